"""The part of a certificate that is about noise in the objective, recomputed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from scipy.optimize import brentq, minimize_scalar

from dpsvm_fast.accounting._gaussian_check import gaussian_delta
from dpsvm_fast.accounting._least_check import least_gaussian
from dpsvm_fast.accounting._objective_check import jacobian_of, objective_delta
from dpsvm_fast.accounting.events import ObjectiveEvent, PrivacyEvent, PureEvent
from dpsvm_fast.accounting.statement import (
    Noise,
    ObjectiveNoise,
    PrivacyStatement,
    Sensitivity,
)

__all__ = [
    "ALLOWANCE",
    "EXCESS",
    "ROUNDING_SLACK",
    "check_objective",
    "curvature_of",
    "follows",
    "lipschitz_of",
    "objective_event_matches",
    "objective_share",
    "scores_of",
]

# The recomputation rounds to nearest and the promise rounded outward: it stays far within this.
ROUNDING_SLACK = 1e-12
# A number that should follow from others may be larger than they say (that is the safe side), but
# a large excess means that it does not follow from them.
EXCESS = 1e-9

# A claim may be below the recomputed bound of delta by this share, which the bound of one score
# with curvature may exceed the truth by: what is confirmed holds up to a ten-millionth of delta.
ALLOWANCE = 1e-7


# Losses that compare the own class with each other one in a pair of scores.
WESTON_WATKINS = ("m3", "huber_ww")


class _Row(NamedTuple):
    """What the proofs use of a loss; tau is its temperature."""

    law: str
    lipschitz: float
    curvature: float
    temperature: float


def lipschitz_of(loss: str, n_scores: int) -> float | None:
    """Largest norm of a loss's gradient in the scores; None for an unknown loss."""
    if loss == "crammer_singer" or (loss == "softmax_margin" and n_scores > 1):
        return math.sqrt(2.0)
    if loss in WESTON_WATKINS:
        return math.sqrt(n_scores * (n_scores - 1.0))
    if loss == "margin_distance":
        # The slope of a Huber function of a distance.
        return 1.0
    if loss in ("huber", "logistic", "softplus", "softmax_margin"):
        # One term for each score, each with a derivative in [-1, 1].
        return math.sqrt(n_scores)
    return None


def curvature_of(loss: str, n_scores: int, smoothing: float) -> float | None:
    """Largest eigenvalue of a loss's Hessian in the scores; None for a loss that has none."""
    if loss in WESTON_WATKINS:
        return n_scores / (2.0 * smoothing)
    if loss == "margin_distance":
        return 1.0 / smoothing
    if loss == "huber" or (loss == "softmax_margin" and n_scores > 1):
        return 1.0 / (2.0 * smoothing)
    if loss in ("softplus", "softmax_margin", "logistic"):
        # One-score terms; the temperature of the logistic loss is 1.
        return 1.0 / (4.0 * smoothing)
    return None


def check_objective(statement: PrivacyStatement, s: Sensitivity, noise: Noise) -> list[str]:
    """Numbers about the noise in the objective that do not follow from the ones before them."""
    o = statement.objective
    if o is None:
        return []
    row = _row(statement, o)
    if row is None:
        return [f"loss {statement.loss!r} with {o.n_classes} classes has not {o.shape[0]} scores"]
    problems = _ellipsoid_problems(statement, o)
    if o.shape != noise.shape:
        problems.append("the two noises are of different shapes")
    if o.distribution != noise.distribution:
        problems.append("the two noises are of different kinds")
    if statement.loss == "logistic" and o.smoothing != 1.0:
        problems.append("smoothing is not 1, the temperature of the logistic loss")
    if o.epsilon > statement.epsilon or o.delta > statement.delta:
        problems.append("the noise in the objective has more than the whole budget")
    if o.grid is not None and math.frexp(o.grid)[0] != 0.5:
        problems.append("grid is not a power of two")
    step = o.grid if o.grid is not None else 0.0
    radius = (o.gradient_tol + 0.5 * step * math.sqrt(noise.n_weights)) / o.regularization
    kappa = o.row_norm**2 / (o.regularization * row.temperature)
    for name, stated, recomputed in (
        ("lipschitz", o.lipschitz, row.lipschitz),
        ("curvature", o.curvature, row.curvature),
        ("row_norm", o.row_norm, s.row_norm),
        ("curvature_ratio", o.curvature_ratio, kappa),
        ("solver_radius", s.solver_radius, radius),
        ("C", s.C, 1.0 / o.regularization),
    ):
        problems += follows(name, stated, recomputed, ROUNDING_SLACK if name != "C" else EXCESS)
    if o.beta is not None and o.jacobian is not None:
        noise_alone = s.relation_factor * o.beta * row.lipschitz * o.row_norm
        problems += follows("epsilon", o.epsilon, noise_alone + o.jacobian)
    return problems


def follows(
    name: str, stated: float, recomputed: float, slack: float = ROUNDING_SLACK
) -> list[str]:
    """One problem when ``stated`` is less than it must be, or much more."""
    if not stated >= recomputed * (1.0 - slack):
        return [f"{name} is {stated!r}, less than the {recomputed!r} that follows"]
    if stated > recomputed * (1.0 + EXCESS):
        return [f"{name} is {stated!r}, more than the {recomputed!r} that follows"]
    return []


def objective_event_matches(
    statement: PrivacyStatement, o: ObjectiveNoise, event: PrivacyEvent
) -> bool:
    """Whether an event says what the noise in the objective says."""
    if o.sigma is None:
        return isinstance(event, PureEvent) and event.epsilon == o.epsilon
    row = _row(statement, o)
    return (
        row is not None
        and isinstance(event, ObjectiveEvent)
        and (event.law, event.n_scores) == (row.law, scores_of(statement, o.shape[0]))
        and (event.kappa, event.jacobian) == (o.curvature_ratio, None)
        # A smaller sigma would promise less; it is this one that was charged.
        and not follows("sigma", o.sigma / o.row_norm, event.sigma)
    )


def objective_share(
    statement: PrivacyStatement, o: ObjectiveNoise
) -> tuple[tuple[float, float], bool]:
    """Epsilon and delta of the noise in the objective, and whether they are within its share.

    Epsilon is the claimed one where that holds, and recomputed where it does not.
    """
    row = _row(statement, o)
    if row is None:
        return (math.inf, 1.0), False
    n_scores = scores_of(statement, o.shape[0])
    factor = 1 if statement.adjacency == "add_remove" else 2
    if o.beta is not None:
        epsilon = _pure_epsilon(row, n_scores, o.beta * o.row_norm, o.curvature_ratio, factor)
        return (epsilon, 0.0), epsilon <= o.epsilon * (1.0 + ROUNDING_SLACK)
    delta_at = _profile(statement, o, row)
    claimed = o.delta * (1.0 + ALLOWANCE)
    mu = least_gaussian(
        row.law, n_scores, _sigma_of(o), replace_one=statement.adjacency == "replace_one"
    )
    delta = max(delta_at(o.epsilon), gaussian_delta(o.epsilon, mu))
    if delta <= claimed:
        return (o.epsilon, delta), True
    return (_larger_epsilon(delta_at, o.epsilon, claimed), delta), False


def _profile(statement: PrivacyStatement, o: ObjectiveNoise, row: _Row) -> Callable[[float], float]:
    """Delta of Gaussian noise in the objective, at any epsilon from 0 on."""

    def delta_at(epsilon: float) -> float:
        return objective_delta(
            row.law,
            scores_of(statement, o.shape[0]),
            epsilon,
            _sigma_of(o),
            kappa=o.curvature_ratio,
            jacobian=None,
            replace_one=statement.adjacency == "replace_one",
        )

    return delta_at


def _sigma_of(o: ObjectiveNoise) -> float:
    """Noise over the bound of the rows' norm."""
    return 0.0 if o.sigma is None else o.sigma / o.row_norm


def _larger_epsilon(delta_at: Callable[[float], float], low: float, delta: float) -> float:
    """Epsilon above ``low`` at which a delta is reached, to three digits."""
    high = 2.0 * low
    while delta_at(high) > delta:
        low, high = high, 2.0 * high
        if high > 1e5:
            return math.inf
    return float(
        brentq(lambda e: math.log((delta_at(e) + 1e-320) / delta), low, high, rtol=1e-3, xtol=1e-9)
    )


def _pure_epsilon(row: _Row, n: int, rate: float, kappa: float, factor: int) -> float:
    """Epsilon of noise with density ~ exp(-beta ||B||), rate = beta times row norm."""
    if row.law == "logistic":
        other = rate * math.sqrt(n) * (factor - 1)
        return other + _maximum(
            lambda u: rate * math.sqrt(n) * u + n * math.log1p(kappa * u * (1.0 - u)), 1.0
        )
    if row.law == "softmax":
        other = rate * math.sqrt(2.0) * (factor - 1)
        return other + _maximum(
            lambda S: rate * math.sqrt(2.0 - S) + (n - 1) * math.log1p(kappa * S / (n - 1)),
            1.0 - 1.0 / n,
        )
    return factor * rate * row.lipschitz + jacobian_of(row.law, n, kappa)


def _maximum(f: Callable[[float], float], high: float) -> float:
    """Maximum of a concave function on [0, high]."""
    inside = minimize_scalar(
        lambda x: -f(x), bounds=(0.0, high), method="bounded", options={"xatol": 1e-12}
    )
    return max(f(0.0), f(high), -float(inside.fun))


def scores_of(statement: PrivacyStatement, n_rows: int) -> int:
    """Scores in the loss of one record.

    With several ellipsoids a class, its own ellipsoid's and all those of the other classes.
    """
    o = statement.objective
    if statement.mechanism == "gaussian_margin" and o is not None:
        return o.n_classes
    return n_rows


def _ellipsoid_problems(statement: PrivacyStatement, o: ObjectiveNoise) -> list[str]:
    """Whether so many scores of a record and so many matrices belong together."""
    if statement.mechanism != "gaussian_margin" or o.n_classes == o.shape[0]:
        return []
    ellipsoids = o.shape[0] - o.n_classes + 1
    fits = ellipsoids > 1 and o.shape[0] % ellipsoids == 0 and o.shape[0] > ellipsoids
    if not (fits and statement.parts):
        return [f"{o.n_classes} scores in the loss of a record do not belong to {o.shape[0]}"]
    return []


def _row(statement: PrivacyStatement, o: ObjectiveNoise) -> _Row | None:
    """The line of the table of losses; None if the scores are not those of loss and classes."""
    loss, K, n, tau = statement.loss, o.n_classes, scores_of(statement, o.shape[0]), o.smoothing
    if statement.mechanism == "gaussian_margin" and loss == "softmax_margin":
        # Also of two classes each has a score: their matrices are constrained one by one.
        return _Row("softmax", math.sqrt(2.0), 1.0 / (2.0 * tau), tau)
    if loss == "logistic":
        tau = 1.0
    lipschitz, curvature = lipschitz_of(loss, n), curvature_of(loss, n, tau)
    if lipschitz is None or curvature is None or loss == "margin_distance":
        # The last one has no law.
        return None
    if n != (1 if K == 2 and loss not in WESTON_WATKINS else K):
        return None
    if loss in WESTON_WATKINS:
        return _Row("weston_watkins", lipschitz, curvature, tau)
    if loss == "softmax_margin" and n > 1:
        return _Row("softmax", lipschitz, curvature, tau)
    if loss == "huber":
        return _Row("huber", lipschitz, curvature, tau / 2.0)
    return _Row("logistic", lipschitz, curvature, tau)
