"""Check the releases of a certificate: noisy sums, objectives, searches, secure sums.

Certificates of training across parties are also recomputed number by number.

This module shares nothing with the planning of noise: numbers of parties, sensitivities, distances
and noise are written out again, in exact fractions or in logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from scipy.optimize import minimize_scalar

from dpsvm_fast.certificates.events import (
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PureEvent,
    SubsampledGaussianEvent,
)
from dpsvm_fast.certificates.releases import (
    ENCODABLE,
    Descent,
    LastIterate,
    Noise,
    ObjectiveNoise,
    ReleasePart,
    SecureRound,
    Sensitivity,
    descent_sensitivity,
)
from dpsvm_fast.certificates.statement import (
    CHOICES,
    FederatedStatement,
    PipelineStatement,
    PrivacyStatement,
    SelectionStatement,
    Statement,
)
from dpsvm_fast.rounding import NEARLY_ZERO
from dpsvm_fast.verification.compose import (
    ALLOWANCE,
    LARGEST_EPSILON,
    least_gaussian,
    recomputed_events,
)
from dpsvm_fast.verification.losses import crossing, gaussian_delta, gaussian_epsilon
from dpsvm_fast.verification.objective import jacobian_of, objective_delta, trace_of

# The part of a certificate that is about noise in the objective, recomputed.


# The recomputation rounds to nearest and the promise rounded outward: it stays far within this.
ROUNDING_SLACK = 1e-12
# A number that should follow from others may be larger than they say (that is the safe side), but
# a large excess means that it does not follow from them.
EXCESS = 1e-9

# Beyond it the law of a person is not proved: the largest change of the gradient over the noise.
LARGEST_REACH = 2.0 * (1.0 + ROUNDING_SLACK)
RELATION_FACTOR = {"add_remove": 1, "replace_one": 2}
NO_POWER = "grid is not a power of two"
NOT_ONE = "smoothing is not 1, the temperature of the logistic loss"
# Losses that compare the own class with each other one in a pair of scores.
WESTON_WATKINS = ("m3", "huber_ww")


def failures(*tests: tuple[object, str]) -> list[str]:
    """Return the sentences whose tests are true; each says what does not follow."""
    return [problem for fails, problem in tests if fails]


def off_grid(grid: float | None) -> bool:
    """Return whether a grid is not a power of two."""
    return grid is not None and math.frexp(grid)[0] != 0.5


class _Row(NamedTuple):
    """Constants of a loss in the proofs; tau is its temperature."""

    # Noise in the objective needs a law; empty for losses without one.
    law: str
    # Largest norm of the gradient in the scores, and largest eigenvalue of the Hessian.
    lipschitz: float
    curvature: float
    temperature: float


def _constants(loss: str, n_scores: int) -> _Row | None:
    """Return a loss's row of constants at smoothing 1; None for an unknown loss."""
    n = float(n_scores)
    # One term for each score, each with a derivative in [-1, 1]; or one for each pair of scores.
    logistic = _Row("logistic", math.sqrt(n), 0.25, 1.0)
    pairs = _Row("weston_watkins", math.sqrt(n * (n - 1.0)), 0.5 * n, 1.0)
    return {
        "crammer_singer": _Row("", math.sqrt(2.0), math.inf, 1.0),
        "softmax_margin": SOFTMAX if n_scores > 1 else logistic,
        "huber": _Row("huber", math.sqrt(n), 0.5, 0.5),
        "logistic": logistic,
        "softplus": logistic,
        "m3": pairs,
        "huber_ww": pairs,
        # The slope of a Huber function of a distance.
        "margin_distance": _Row("", 1.0, 1.0, 1.0),
    }.get(loss)


SOFTMAX = _Row("softmax", math.sqrt(2.0), 0.5, 1.0)


def lipschitz_of(loss: str, n_scores: int) -> float | None:
    """Return the largest norm of a loss's gradient in the scores; None for an unknown loss."""
    known = _constants(loss, n_scores)
    return None if known is None else known.lipschitz


def check_objective(statement: PrivacyStatement, s: Sensitivity, noise: Noise) -> list[str]:
    """Return which numbers of the objective's noise do not follow."""
    o = statement.objective
    if o is None:
        return []
    row = _row(statement, o)
    if row is None:
        return [
            f"loss {statement.loss!r} with {o.n_classes} classes does not have {o.shape[0]} scores"
        ]
    law, own = (o.law, o.n_scores), (row.law, scores_of(statement, o.shape[0]))
    more = o.epsilon > statement.epsilon or o.delta > statement.delta
    problems = _ellipsoid_problems(statement, o) + failures(
        (law != own, f"law and n_scores do not fit {statement.loss!r}"),
        (o.shape != noise.shape, "the two noises have different shapes"),
        (o.distribution != noise.distribution, "the two noises have different distributions"),
        (statement.loss == "logistic" and o.smoothing != 1.0, NOT_ONE),
        (more, "the noise in the objective exceeds the budget"),
        (off_grid(o.grid), NO_POWER),
    )
    reach = s.relation_factor * row.lipschitz * o.row_norm / (o.sigma or math.inf)
    of_person = statement.unit == "person"
    if o.sigma is not None:
        problems += failures(
            (of_person != (o.jacobian is not None), "the law is for another unit"),
            (of_person and reach > LARGEST_REACH, "too little noise for a person"),
        )
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
    elif of_person and o.jacobian is not None:
        price = trace_of(row.law, own[1], kappa) + reach**2
        problems += follows("jacobian", o.jacobian, price)
    return problems


def follows(
    name: str, stated: float, recomputed: float, slack: float = ROUNDING_SLACK
) -> list[str]:
    """Report a problem if ``stated`` is below, or far above, the recomputed value."""
    if not stated >= recomputed * (1.0 - slack):
        return [f"{name} is {stated!r}, below the recomputed {recomputed!r}"]
    if stated > recomputed * (1.0 + EXCESS):
        return [f"{name} is {stated!r}, above the recomputed {recomputed!r}"]
    return []


def objective_share(
    statement: PrivacyStatement, o: ObjectiveNoise
) -> tuple[tuple[float, float], bool | None]:
    """Return epsilon and delta of the objective's noise, and whether they fit its share.

    The last value is None if that is neither confirmed nor refuted.

    Epsilon is the claimed one if it holds, otherwise the recomputed one.
    """
    row = _row(statement, o)
    if row is None:
        return (math.inf, 1.0), False
    n_scores = scores_of(statement, o.shape[0])
    factor = RELATION_FACTOR[statement.adjacency]
    if o.beta is not None:
        rate, unit = o.beta * o.row_norm, statement.unit
        epsilon = _pure_epsilon(row, n_scores, rate, o.curvature_ratio, factor, unit)
        return (epsilon, 0.0), epsilon <= o.epsilon * (1.0 + ROUNDING_SLACK)
    law, sigma, replace_one = row.law, _sigma_of(o), factor == 2
    kappa = o.curvature_ratio if o.jacobian is None else None
    how: dict[str, Any] = {"kappa": kappa, "jacobian": o.jacobian, "replace_one": replace_one}

    def delta_at(epsilon: float) -> float:
        return objective_delta(law, n_scores, epsilon, sigma, **how)

    claimed = o.delta * (1.0 + ALLOWANCE)
    mu = least_gaussian(law, n_scores, sigma, replace_one=replace_one)
    least = gaussian_delta(o.epsilon, mu)
    delta = max(delta_at(o.epsilon), least)
    if delta <= claimed:
        return (o.epsilon, delta), True
    verdict = False if least > claimed else None

    def excess(epsilon: float) -> float:
        return math.log((delta_at(epsilon) + NEARLY_ZERO) / claimed)

    # To three digits.
    larger = crossing(excess, o.epsilon, 2.0 * o.epsilon, LARGEST_EPSILON, xtol=1e-9, rtol=1e-3)
    return (larger, delta), verdict


def _sigma_of(o: ObjectiveNoise) -> float:
    """Return the noise divided by the norm bound of the rows."""
    return 0.0 if o.sigma is None else o.sigma / o.row_norm


def _pure_epsilon(row: _Row, n: int, rate: float, kappa: float, factor: int, unit: str) -> float:
    """Return epsilon of noise with density ~ exp(-beta ||B||), rate = beta * row norm.

    For averages of a person's rows, traces replace log-determinants.
    """
    averaged = unit == "person"
    grown = float if averaged else math.log1p
    if row.law == "logistic":
        other = rate * math.sqrt(n) * (factor - 1)
        return other + _maximum(
            lambda u: rate * math.sqrt(n) * u + n * grown(kappa * u * (1.0 - u)), 1.0
        )
    if row.law == "softmax":
        other = rate * math.sqrt(2.0) * (factor - 1)
        return other + _maximum(
            lambda S: rate * math.sqrt(2.0 - S) + (n - 1) * grown(kappa * S / (n - 1)),
            1.0 - 1.0 / n,
        )
    price = (trace_of if averaged else jacobian_of)(row.law, n, kappa)
    return factor * rate * row.lipschitz + price


def _maximum(f: Callable[[float], float], high: float) -> float:
    """Return the maximum of a concave function on [0, high]."""
    inside = minimize_scalar(
        lambda x: -f(x), bounds=(0.0, high), method="bounded", options={"xatol": 1e-12}
    )
    return max(f(0.0), f(high), -float(inside.fun))


def scores_of(statement: PrivacyStatement, n_rows: int) -> int:
    """Return the number of scores in the loss of one record.

    With several ellipsoids per class: that of its own ellipsoid and those of all other classes.
    """
    o = statement.objective
    if statement.mechanism == "gaussian_margin" and o is not None:
        return o.n_classes
    return n_rows


def _ellipsoid_problems(statement: PrivacyStatement, o: ObjectiveNoise) -> list[str]:
    """Check that the number of scores of a record agrees with the number of matrices."""
    if statement.mechanism != "gaussian_margin" or o.n_classes == o.shape[0]:
        return []
    ellipsoids = o.shape[0] - o.n_classes + 1
    fits = ellipsoids > 1 and o.shape[0] % ellipsoids == 0 and o.shape[0] > ellipsoids
    if not (fits and any(part.name == "anchors" for part in statement.parts)):
        return [f"{o.n_classes} scores in the loss of a record do not match {o.shape[0]}"]
    return []


def _row(statement: PrivacyStatement, o: ObjectiveNoise) -> _Row | None:
    """Return the loss's row of constants; None if the scores do not fit loss and classes."""
    loss, K, n = statement.loss, o.n_classes, scores_of(statement, o.shape[0])
    expected, known = 1 if K == 2 and loss not in WESTON_WATKINS else K, _constants(loss, n)
    if statement.mechanism == "gaussian_margin" and loss == "softmax_margin":
        # Also of two classes each has a score: their matrices are constrained one by one.
        expected, known = n, SOFTMAX
    if known is None or not known.law or n != expected:
        return None
    tau = 1.0 if loss == "logistic" else o.smoothing
    return known._replace(curvature=known.curvature / tau, temperature=known.temperature * tau)


# The part of a certificate that is about noisy sums, recomputed number by number.


# Mechanisms that are made of noisy sums, and of which.
PARTS = {
    "output_perturbation": ("classes",),
    "objective_perturbation": ("classes",),
    "gradient_perturbation": ("classes", "training"),
    "private_linear": ("classes", "centre", "whitening", "training"),
    "private_kernel": ("count", "classes", "centre", "whitening", "training"),
    "private_center": ("centre",),
    "private_whitener": ("centre", "whitening"),
    "private_pca": ("components",),
    "private_standard_scaler": ("means", "moments"),
    "private_evaluation": ("cells", "metrics"),
    "gaussian_margin": ("classes", "anchors"),
}
# Every release of a mechanism has at least one of these sums, or may have none; other mechanisms
# have one of all.
NEEDED: dict[str, set[str]] = {
    "output_perturbation": set(),
    "objective_perturbation": set(),
    "gaussian_margin": set(),
    "gradient_perturbation": {"training"},
    "private_linear": {"classes", "centre"},
    "private_kernel": {"count", "classes", "centre"},
    "private_whitener": {"whitening"},
    "private_evaluation": {"metrics"},
}
# Their noise is on weights, not on sums of gradients.
ON_WEIGHTS = ("output_perturbation", "objective_perturbation")
SINGLE = ("count", "classes", "centre")
# Largest number of whitenings of rows; elsewhere one.
WHITENINGS = {"private_linear": 3, "private_kernel": 3}
# A row is in one class or cell, or adds weighted numbers, of norm 1 together.
COUNTED = ("classes", "cells", "metrics")


# Weights of running sums are multiples of this.
FACTOR_GRID = 2.0**-6


class _Sum(NamedTuple):
    """Facts about a sum that follow from its name."""

    # By how many contributions sums can differ when a record is replaced.
    exchanged: float
    # A number, a vector, a matrix, or a square matrix.
    form: str
    # Sums are multiples of this: noise on a grid at least as fine needs no rounding.
    free_grid: float = 0.0


SUMS = {
    "count": _Sum(2.0, "number", 1.0),
    "classes": _Sum(math.sqrt(2.0), "vector", 2.0**-20),
    "centre": _Sum(2.0, "vector", 2.0**-20),
    "whitening": _Sum(math.sqrt(2.0), "square"),
    "components": _Sum(math.sqrt(2.0), "square"),
    "training": _Sum(2.0, "matrix"),
    "means": _Sum(2.0, "vector", 2.0**-23),
    "moments": _Sum(1024.0 / 539.0, "vector", 2.0**-23),
    "anchors": _Sum(2.0, "matrix", 2.0**-20),
    "cells": _Sum(math.sqrt(2.0), "vector", 2.0**-24),
    "metrics": _Sum(math.sqrt(2.0), "vector", 2.0**-24),
}
# Largest squared length of what one feature adds to the sums of columns, and of how many numbers.
COLUMN_SQUARES = {"means": (Fraction(1), 1), "moments": (Fraction(539, 512) ** 2, 2)}


def check_parts(statement: PrivacyStatement) -> list[str]:
    """Return which numbers of the noisy sums do not follow."""
    parts, known = statement.parts, PARTS[statement.mechanism]
    if problems := _reserved_problems(statement):
        return problems
    needed = _needed(statement)
    if not parts and needed:
        return [f"{statement.mechanism!r} has some noisy sums"]
    names = [part.name for part in parts]
    if any(name not in known for name in names):
        return [f"noisy sums {names}, expected some of {list(known)}"]
    lacking = needed and not needed & set(names)
    # Training may be taken up again; what comes before it may not.
    mixed = names != sorted(names, key=known.index) or max(map(names.count, SINGLE)) > 1
    again = statement.mechanism == "gradient_perturbation" and "classes" not in names
    twice = names.count("training") > 1 and not again
    twice |= names.count("whitening") > WHITENINGS.get(statement.mechanism, 1)
    twice |= names.count("means") + names.count("moments") > 1
    problems += failures(
        (lacking, f"{statement.mechanism!r} without its noisy sum"),
        (mixed, "the noisy sums are out of order"),
        (twice, "a noisy sum is repeated"),
    )
    for part in (*parts, *statement.reserved):
        problems += [f"{part.name}: {problem}" for problem in _check_part(statement, part)]
    return problems


def _needed(statement: PrivacyStatement) -> set[str]:
    """Return the required sums; the number of rows is private in one relation only."""
    if statement.mechanism == "private_kernel" and statement.adjacency == "replace_one":
        return set(PARTS["private_kernel"])
    return NEEDED.get(statement.mechanism, set(PARTS[statement.mechanism]))


def _reserved_problems(statement: PrivacyStatement) -> list[str]:
    """Check the sums charged but not released: at most one whitening."""
    names = [part.name for part in statement.reserved]
    whitened = any(part.name == "whitening" for part in statement.parts)
    skips = statement.mechanism in WHITENINGS and statement.objective is not None
    if not names or (names == ["whitening"] and skips and not whitened):
        return []
    return [f"noisy sums {names} cannot be reserved"]


def _check_part(statement: PrivacyStatement, part: ReleasePart) -> list[str]:
    """Check the numbers of a single part."""
    known = SUMS[part.name]
    exact = Fraction(part.clip_norm) + Fraction(part.rounding)
    below = math.nextafter(part.contribution, 0.0)
    close = Fraction(below) < exact <= Fraction(part.contribution)
    factor = 1.0 if statement.adjacency == "add_remove" else known.exchanged
    right = factor <= part.relation_factor <= factor * (1.0 + ROUNDING_SLACK)
    # Sums with weights are multiples of a finer unit.
    free = known.free_grid * (FACTOR_GRID if part.factor else 1.0)
    grid = 0.0 if part.grid is None or part.grid <= free else part.grid
    moved = grid * math.sqrt(part.n_numbers) * (1.0 - ROUNDING_SLACK)
    steps = part.name == "training" and statement.mechanism == "gradient_perturbation"
    rarer = part.sampling_rate < 1.0 or part.last_iterate is not None
    problems = failures(
        (rarer and not steps, "only steps of gradient_perturbation cost less than whole sums"),
        (not _has_form(part, known.form), "shape does not fit the sum"),
        (not close, "contribution is not clip_norm + rounding, rounded up"),
        (not right, f"relation_factor does not fit {statement.adjacency}"),
        (off_grid(part.grid), NO_POWER),
        (part.relation_factor * part.rounding < moved, "rounding is below that of the grid"),
    )
    if part.beta is not None and part.epsilon is not None:
        moved = part.relation_factor * part.contribution
        problems += follows("epsilon", part.epsilon, part.beta * moved)
    if part.name in COUNTED:
        problems += follows("clip_norm", part.clip_norm, 1.0)
    if part.name in COLUMN_SQUARES:
        problems += _check_columns(statement, part)
    if part.factor and (
        part.name not in COLUMN_SQUARES
        or part.factor[0] != 1.0
        or any(weight % FACTOR_GRID for weight in part.factor)
    ):
        problems.append("factor does not fit running sums")
    if part.last_iterate is not None:
        problems += _check_last_iterate(statement, part, part.last_iterate)
    return problems


def _has_form(part: ReleasePart, form: str) -> bool:
    """Return whether a shape has the given form: number, vector, matrix or square matrix."""
    if form in ("number", "vector"):
        return len(part.shape) == 1 and (form == "vector" or part.shape == (1,))
    return len(part.shape) == 2 and (form == "matrix" or part.shape[0] == part.shape[1])


def _check_columns(statement: PrivacyStatement, part: ReleasePart) -> list[str]:
    """Check that a record's contribution to column sums fits the number of features."""
    counts = statement.adjacency == "add_remove"
    square, numbers = COLUMN_SQUARES[part.name]
    features, odd = divmod(part.n_numbers - counts, numbers)
    if odd or features < 1:
        return ["shape does not fit the number of features"]
    total = features * square
    if counts:
        # The weight of the number of rows, the fourth root of that of features to 10 binary places.
        total += Fraction(math.isqrt(math.isqrt(features << 40)), 1024) ** 2
    return follows("clip_norm", part.clip_norm, math.sqrt(total))


def _check_last_iterate(
    statement: PrivacyStatement, part: ReleasePart, last: LastIterate
) -> list[str]:
    """Check that the theorem covers the run, and the effective number of steps."""
    known = _constants(statement.loss, part.shape[0])
    if known is None or math.isinf(known.curvature):
        return [f"the last iterate of {part.name!r} with loss {statement.loss!r} is not bounded"]
    problems = follows("lipschitz", last.lipschitz, known.lipschitz)
    problems += follows("curvature", last.curvature, known.curvature / last.smoothing)
    problems += follows("clip_norm", part.clip_norm, last.lipschitz * last.row_norm)
    eta, m, M = (Fraction(x) for x in (last.learning_rate, last.regularization, last.smoothness))
    curved = Fraction(last.curvature) * Fraction(last.row_norm) ** 2 * last.max_records
    problems += follows("smoothness", last.smoothness, float(m + curved / Fraction(last.divisor)))
    far = eta * (m + M) > 2 * (1 + Fraction(ROUNDING_SLACK))
    # For a factor close to 1 the distance from 1 matters.
    gap, stated = float(1 - max(abs(1 - eta * m), abs(1 - eta * M))), 1.0 - last.contraction
    close = gap * (1.0 - EXCESS) - 4e-16 <= stated <= gap * (1.0 + ROUNDING_SLACK) + 4e-16
    problems += failures(
        (statement.loss == "logistic" and last.smoothing != 1.0, NOT_ONE),
        (far, "learning_rate is above 2 / (strong convexity + smoothness)"),
        (not close, "contraction does not follow from the step"),
    )
    problems += follows("effective_steps", last.effective_steps, _counted(last, part.n_steps))
    return problems


def _counted(last: LastIterate, n_steps: int) -> float:
    r"""Return :math:`(1 - c^T)(1 + c) / ((1 + c^T)(1 - c))` by hyperbolic tangents."""
    if last.contraction == 0.0:
        return 1.0
    half = -0.5 * math.log1p(last.contraction - 1.0)
    return math.tanh(n_steps * half) / math.tanh(half)


# One fit: its noisy sums, its objective and its weights.


def check_fit(statement: PrivacyStatement) -> list[str]:
    """Return what does not follow, apart from the total."""
    problems = [*_mechanism_problems(statement), *_loss_problems(statement)]
    problems += check_parts(statement) + _event_problems(statement)
    s, noise = statement.sensitivity, statement.noise
    if s is not None and noise is not None:
        problems += _sensitivity_problems(statement, s, noise)
        problems += check_objective(statement, s, noise)
        problems += _noise_problems(statement, s, noise)
    return problems


def _event_problems(statement: PrivacyStatement) -> list[str]:
    """Check that each event is that of its noise.

    The statement derives its events by code shared with the mechanisms. Here their numbers are
    written out again, without that code.
    """
    expected = [_sum_cost(part) for part in statement.parts]
    o, s, noise = statement.objective, statement.sensitivity, statement.noise
    if o is not None and o.sigma is None:
        expected.append(("pure", o.epsilon))
    elif o is not None:
        price = (o.curvature_ratio, None) if statement.unit == "row" else (None, o.jacobian)
        law = (o.law, o.n_scores, *price)
        expected.append(("objective", 1.0 / _sigma_of(o), *law))
    if s is not None and noise is not None and noise.sigma is None:
        expected += noise.n_releases * [("pure", _pure_epsilon_of(s, noise))]
    elif s is not None and noise is not None:
        assert noise.sigma is not None
        expected += noise.n_releases * [("gaussian", s.total / noise.sigma)]
    expected += [_sum_cost(part) for part in statement.reserved]
    if len(statement.events) != len(expected):
        return [f"{len(statement.events)} events, expected {len(expected)}"]
    problems = []
    for event, (tag, due, *facts) in zip(statement.events, expected, strict=True):
        cost, *stated = _event_cost(event)
        if (event.tag, event.adjacency, stated) != (tag, statement.adjacency, facts):
            problems.append(f"the {event.tag} event does not follow from its noise")
        else:
            problems += follows(f"cost of the {tag} event", cost, due)
    return problems


def _event_cost(event: PrivacyEvent) -> tuple[Any, ...]:
    """Return a number that grows with the cost of an event, and its other fields."""
    match event:
        case GaussianEvent():
            return (event.sensitivity / event.sigma,)
        case SubsampledGaussianEvent():
            return (1.0 / event.noise_multiplier, event.sampling_rate, event.n_steps)
        case ObjectiveEvent():
            return (1.0 / event.sigma, event.law, event.n_scores, event.kappa, event.jacobian)
        case PureEvent():
            return (event.epsilon,)
    return (math.nan,)


def _sum_cost(part: ReleasePart) -> tuple[Any, ...]:
    """Return the event kind of a noisy sum, its sensitivity / noise or epsilon, and the rest."""
    moved = part.relation_factor * part.contribution
    if part.sigma is None:
        return ("pure", (part.beta or 0.0) * moved)
    if part.sampling_rate < 1.0:
        # One record's contribution: sampled sums pay for an exchange in their law.
        cost = part.contribution / part.sigma
        return ("subsampled_gaussian", cost, part.sampling_rate, part.n_steps)
    last = part.last_iterate
    steps = part.n_steps if last is None else _counted(last, part.n_steps)
    if part.factor:
        steps = math.fsum(weight * weight for weight in part.factor)
    return ("gaussian", math.sqrt(steps) * moved / part.sigma)


def _mechanism_problems(statement: PrivacyStatement) -> list[str]:
    """Check that the mechanism has these kinds of releases."""
    mechanism = statement.mechanism
    if mechanism == "gaussian_margin":
        # Noisy sums are there where a class has several ellipsoids.
        if statement.objective is None:
            return ["gaussian_margin has no noise in the objective"]
    elif mechanism in ("private_linear", "private_kernel"):
        # Trained by noisy sums, or by one of the two mechanisms that have noise on the weights.
        if (statement.noise is None) != any(part.name == "training" for part in statement.parts):
            return ["expected either noisy sums for training or noise on the weights"]
    elif (mechanism == "objective_perturbation") != (statement.objective is not None):
        return ["noise in the objective belongs to objective_perturbation alone"]
    elif (mechanism in ON_WEIGHTS) == (statement.noise is None):
        return [f"{mechanism} has no noise on the weights"]
    return []


def _loss_problems(statement: PrivacyStatement) -> list[str]:
    """Check that there is a loss if and only if something was trained."""
    trained = statement.noise is not None or any(p.name == "training" for p in statement.parts)
    known = statement.loss == "none" or lipschitz_of(statement.loss, 2) is not None
    if known and trained == (statement.loss != "none"):
        return []
    return [f"loss {statement.loss!r} does not fit a {'' if trained else 'non-'}trained release"]


def _sensitivity_problems(statement: PrivacyStatement, s: Sensitivity, noise: Noise) -> list[str]:
    """Return numbers of the sensitivity that do not follow from the preceding ones."""
    lipschitz = lipschitz_of(statement.loss, scores_of(statement, noise.shape[0]))
    if lipschitz is None:
        return [f"unknown loss {statement.loss!r}"]
    wrong = s.relation_factor != RELATION_FACTOR[statement.adjacency]
    problems = failures(
        (wrong, f"relation_factor does not fit {statement.adjacency}"),
        (off_grid(noise.grid), NO_POWER),
    )
    problems += _chain_problems(s, lipschitz)
    if statement.descent is not None:
        problems += _descent_problems(statement, statement.descent, s, noise)
    elif statement.objective is None:
        exact = s.relation_factor * s.C * s.lipschitz * s.row_norm
        problems += follows("exact", s.exact, exact)
    elif s.exact != 0.0:
        problems.append("exact must be 0: both minimisers are the same")
    return problems + follows("rounding", s.rounding, _rounding(noise))


def _chain_problems(s: Sensitivity, lipschitz: float) -> list[str]:
    """Report numbers of a sensitivity that do not follow, each wrong number once."""
    problems = follows("lipschitz", s.lipschitz, lipschitz)
    problems += follows("row_norm", s.row_norm, math.hypot(s.data_norm, s.intercept_scaling))
    return problems + follows("total", s.total, s.exact + 2.0 * s.solver_radius + s.rounding)


def _descent_problems(
    statement: PrivacyStatement, descent: Descent, s: Sensitivity, noise: Noise
) -> list[str]:
    """Check that projected SGD is covered by its theorem, and its sensitivity."""
    inside = statement.objective is not None
    return follows("exact", s.exact, descent_sensitivity(s, descent, noise.shape[0])) + failures(
        (statement.adjacency != "replace_one", "projected SGD is private for replace_one only"),
        (statement.loss == "crammer_singer", "projected SGD needs a smooth loss"),
        (inside, "projected SGD does not minimise an objective with noise inside"),
    )


def _rounding(noise: Noise) -> float:
    """Return the distance that rounding to the grid adds between two sets of weights."""
    if noise.sampler != "exact_grid" or noise.grid is None:
        return 0.0
    return noise.grid * math.sqrt(noise.n_weights)


def _noise_problems(statement: PrivacyStatement, s: Sensitivity, noise: Noise) -> list[str]:
    """Check the stated cost of the noise on the weights, for all its releases."""
    # Behind noisy sums weights may be released several times, always with the same noise.
    if noise.n_releases > 1 and (statement.objective is not None or not statement.parts):
        return ["several releases of weights need noisy sums before them"]
    if noise.epsilon is None:
        return []
    problems = follows("epsilon", noise.epsilon, _pure_epsilon_of(s, noise))
    if noise.epsilon > statement.epsilon:
        problems.append("the noise on the weights exceeds the budget")
    return problems


def recomputed_weights(statement: PrivacyStatement) -> tuple[float, float, bool | None]:
    """Return epsilon, delta, and whether the claim holds, for weights without noisy sums.

    The last value is None if the claim is neither confirmed nor refuted.

    With objective perturbation, epsilon and delta are sums over the two noises, each at its own
    share of the budget: the noise on the weights gets what the noise in the objective does not
    claim.
    """
    s, noise, objective = statement.sensitivity, statement.noise, statement.objective
    assert s is not None
    assert noise is not None
    epsilon, delta = statement.epsilon, statement.delta
    first, holds = (0.0, 0.0), True
    own: bool | None = True
    if objective is not None:
        first, own = objective_share(statement, objective)
        holds = own is not False
        epsilon, delta = epsilon - objective.epsilon, delta - objective.delta
    if noise.sigma is None:
        second = _pure_epsilon_of(s, noise)
        holds = holds and second <= epsilon + ROUNDING_SLACK * statement.epsilon
        return first[0] + second, first[1] + (0.0 if holds else 1.0), holds and own
    if not (epsilon > 0.0 and delta > 0.0):
        return math.inf, 1.0, False
    mu = s.total / noise.sigma
    second_delta = gaussian_delta(epsilon, mu)
    holds = holds and second_delta <= delta * (1.0 + EXCESS)
    found = first[0] + gaussian_epsilon(delta, mu), min(1.0, first[1] + second_delta)
    return (*found, holds and own)


def _pure_epsilon_of(s: Sensitivity, noise: Noise) -> float:
    """Return epsilon of noise with density ~ exp(-beta ||b||) on weights."""
    return math.inf if noise.beta is None else noise.beta * s.total


# Consistency of the numbers in the statement of a search.


def check_selection(statement: SelectionStatement) -> list[str]:
    """Return what does not follow, apart from the total.

    The events of the choice follow from its numbers, so only these can be wrong. The costs of the
    fits are stated as events, each with its own numbers.
    """
    chosen = statement.selection
    # More where scores may move in opposite directions.
    factor = RELATION_FACTOR[statement.adjacency] if chosen.mechanism in CHOICES else 1
    if chosen.relation_factor == factor:
        return []
    return [
        f"relation_factor of the selection does not fit {statement.adjacency} with "
        f"{chosen.mechanism}"
    ]


# Shares of parties are decimal numbers that were rounded to floats: by less than this.
SHARE_SLACK = Fraction(1, 2**50)
# Rounding of an entry of a person's second moments, at most 1, for both neighbours.
PERSON_ROUNDING = 2.0 * (2.0**-40 + 2.0**-53)
# Relative excess over half a grid step on either side, for rounding before it.
GRID_EXCESS = 2.0**-20
# Integers are added modulo this.
MODULUS = 2**48
# Distances are logarithms of tiny numbers.
DISTANCE_SLACK = 1e-6
# Terms of a sum over merges that are not equal to the limit.
MERGES = 4096
# Smallest assumption that is accepted.
MIN_ASSUMED = 2.0**-128


def check_federated(statement: FederatedStatement) -> list[str]:
    """Return what does not follow, apart from the total."""
    problems = _count_problems(statement)
    if lipschitz_of(statement.loss, 2) is None:
        problems.append(f"unknown loss {statement.loss!r}")
    if statement.sensitivity is not None:
        problems += _party_sensitivity(statement, statement.sensitivity)
    for part in statement.rounds:
        problems += [f"{part.name}: {problem}" for problem in _round_problems(statement, part)]
    problems += _arrangement_problems(statement)
    stated = statement.local_epsilon
    if stated is not None:
        holds = recomputed_events(statement.sent_events, stated, statement.delta)[2]
        problems += failures((not holds, "local_epsilon is below that of one party's own noise"))
    return problems


def _count_problems(statement: FederatedStatement) -> list[str]:
    """Check the numbers of parties: honest ones in every sum, and those that can open one."""
    users, left = statement.n_users, statement.min_survivors
    honest = math.ceil(Fraction(statement.honest_fraction) * users * (1 - SHARE_SLACK))
    lost = math.floor(Fraction(statement.max_dropout) * users * (1 + SHARE_SLACK))
    counted = statement.honest_survivors == left - (users - honest)
    # Without a threshold none of its tests can fail.
    opens = left if statement.threshold is None else statement.threshold
    few = statement.threshold is not None and opens <= users - honest
    half = statement.threshold is not None and 2 * opens <= users
    least, most = statement.min_records, statement.max_records
    return failures(
        (left > users - lost, "min_survivors is more than max_dropout leaves"),
        (not counted, "honest_survivors is not min_survivors without the colluding parties"),
        (users * 2 * ENCODABLE > MODULUS, "n_users exceeds the range of the sums"),
        (few, "threshold lets colluding parties open the sum"),
        (half, "threshold lets half of the parties open the sum"),
        (opens > left, "threshold is above min_survivors, so the sum could not be opened"),
        (least and most and least > most, "min_records is above max_records"),
    )


def _weight(statement: FederatedStatement) -> int | None:
    """Return the largest weight of a party's model; None if it is unbounded."""
    return 1 if statement.weighting == "users" else statement.max_records


def _party_sensitivity(statement: FederatedStatement, s: Sensitivity) -> list[str]:
    """Return numbers of the sensitivity to one row or person that do not follow."""
    assert statement.n_scores is not None
    problems = failures((s.relation_factor != 2, "relation_factor does not fit replace_one"))
    problems += _chain_problems(s, lipschitz_of(statement.loss, statement.n_scores) or math.inf)
    least = 1 if statement.weighting == "records" else statement.min_records
    if statement.regularization is None or least is None:
        problems.append("C does not follow: expected a regularization and min_records")
    else:
        problems += follows("C", s.C, 1.0 / statement.regularization / least)
    problems += follows("exact", s.exact, 2.0 * s.C * s.lipschitz * s.row_norm)
    for part in statement.rounds:
        if part.name == "model":
            own = part.grid * math.sqrt(part.size) * (1.0 + GRID_EXCESS)
            problems += follows("rounding", s.rounding, own)
            if part.size % statement.n_scores:
                problems.append("n_scores does not divide the number of weights")
    return problems


def _moved(statement: FederatedStatement, part: SecureRound) -> float | None:
    """Return the largest distance between sums of neighbours before rounding; None if unbounded."""
    if part.clip_norm is not None:
        matrices = statement.max_records if statement.unit == "party" else 1
        # Every entry of a person's matrix is rounded, for both neighbours.
        rounded = math.isqrt(2 * part.size) * PERSON_ROUNDING if statement.unit == "person" else 0.0
        return None if matrices is None else (math.sqrt(2.0) * matrices + rounded) * part.clip_norm
    s, weight = statement.sensitivity, _weight(statement)
    assert s is not None
    bounds = []
    if statement.unit != "party":
        bounds.append(s.exact + 2.0 * s.solver_radius)
    if statement.radius is not None and weight is not None:
        bounds.append(2.0 * weight * statement.radius)
    return min(bounds, default=None)


def _round_problems(statement: FederatedStatement, part: SecureRound) -> list[str]:
    """Check the numbers of one sum."""
    own = part.grid * math.sqrt(part.size) * (1.0 + GRID_EXCESS)
    problems = follows("rounding", part.rounding, own)
    moved = _moved(statement, part)
    if moved is not None:
        problems += follows("exact", part.exact, moved)
    exact = Fraction(part.exact) + Fraction(part.rounding)
    added = exact <= Fraction(part.total) <= exact * (1 + Fraction(EXCESS))
    # The joint noise of all parties whose noise counts.
    steps = part.honest_survivors * Fraction(part.sigma_steps) ** 2 - Fraction(part.smoothing) ** 2
    square, stated = steps * Fraction(part.grid) ** 2, Fraction(part.sigma) ** 2
    enough = square * (1 - Fraction(EXCESS)) <= stated <= square
    other = statement.honest_survivors
    problems += failures(
        (part.honest_survivors != other, "honest_survivors differs from the statement"),
        (moved is None, "exact does not follow: the sensitivity of a unit is unbounded"),
        (not added, "total is not exact + rounding, rounded up"),
        (part.sigma_steps & (part.sigma_steps - 1), "sigma_steps is not a power of two"),
        (not enough, "sigma is not that of the honest noise, rounded down"),
    )
    return problems + _distance_problems(statement, part) + _range_problems(statement, part)


def _log_of_series(square: float) -> float:
    """Return the logarithm of ``sum_m exp(-2 pi^2 m^2 square)``, m >= 1."""
    first = -2.0 * math.pi**2 * square
    # Further terms: exp(first)^3, exp(first)^8, ...
    more = math.fsum(math.exp((m * m - 1) * first) for m in (2, 3, 4))
    return first + math.log1p(more)


def _log_of_ratio(square: float) -> float:
    """Return the logarithm of ``log((1 + e) / (1 - e))``, with e twice that series."""
    log_e = math.log(2.0) + _log_of_series(square)
    if log_e >= -1e-9:
        # No bound: probability 1.
        return 0.0
    if log_e < -30.0:
        # The first term of the series of 2 artanh(e).
        return math.log(2.0) + log_e
    return math.log(2.0 * math.atanh(math.exp(log_e)))


def _distance_problems(statement: FederatedStatement, part: SecureRound) -> list[str]:
    """Check that distances are at least what the proof needs; larger ones promise less."""
    variance, r2 = float(part.sigma_steps) ** 2, part.smoothing**2
    # The smallest noise that is considered is that of one party.
    logs = [_log_of_ratio(r2 * (variance - r2) / variance)]
    merges = part.honest_survivors - 1
    for k in range(1, min(merges, MERGES) + 1):
        logs.append(_log_of_ratio(variance * k / (k + 1.0)))
    if merges > MERGES:
        rest = _log_of_ratio(variance * MERGES / (MERGES + 1.0))
        logs.append(rest + math.log(merges - MERGES))
    top = max(logs)
    apart = math.log(part.size) + top + math.log(math.fsum(math.exp(x - top) for x in logs))
    room = (ENCODABLE - part.range_steps) / part.sigma_steps
    beyond = math.log(2.0 * statement.n_users * part.size) - 0.5 * room * room
    close, inside = _at_least(part.discreteness, apart), _at_least(part.overflow, beyond)
    plain = statement.trust == "trusted_curator"
    unbroken = not plain and part.computational < MIN_ASSUMED
    return failures(
        (not close, "discreteness is below the distance to continuous noise"),
        (not inside, "overflow is below the probability of leaving the range"),
        (plain and part.computational, "computational is not 0, but nothing is encrypted"),
        (unbroken, "computational is 0, but no cryptography is unbreakable"),
    )


def _at_least(stated: float, log_needed: float) -> bool:
    """Return whether a probability is at least another, given by its logarithm."""
    # Below the smallest float none can be stated.
    return stated > 0.0 and math.log(stated) >= min(log_needed, 0.0) - DISTANCE_SLACK


def _range_problems(statement: FederatedStatement, part: SecureRound) -> list[str]:
    """Check that contributions of every party stay within the stated range."""
    if part.range_steps >= ENCODABLE:
        return ["range_steps leaves no room for noise"]
    if part.clip_norm is not None:
        rows = statement.max_records
        largest = None if rows is None else rows * part.clip_norm
    else:
        weight, radius = _weight(statement), statement.radius
        largest = None if weight is None or radius is None else weight * radius
    if largest is None:
        return ["range_steps does not follow: the contribution of a party is unbounded"]
    if part.range_steps < (largest / part.grid) * (1.0 - ROUNDING_SLACK) + 0.5:
        return ["range_steps is below what a party can contribute"]
    return []


def _arrangement_problems(statement: FederatedStatement) -> list[str]:
    """Check that the sums are those of the algorithm, and the events those of the unit."""
    names, own = [part.name for part in statement.rounds], statement.local_events
    helmet = statement.algorithm == "dp_helmet"
    known: tuple[list[str], ...] = ([], ["gram"], ["model"], ["gram", "model"])
    bare = not helmet and len(names) + bool(own) < 2 and len(own) < 2
    distant = any(event.tag == "distance" for event in own)
    # The law of a person has a constant for the curvature.
    of_rows = any(event.for_rows for event in own)
    return failures(
        (helmet and names != ["model"], "dp_helmet has exactly one noisy sum, of models"),
        (helmet and own, "dp_helmet has no noise other than that of its sum"),
        (not helmet and names not in known, "fed_dpdr sums matrices, then models"),
        (bare, "fed_dpdr has noise in each of its two rounds"),
        (own and statement.unit == "party", "noise that each party adds protects no party"),
        (of_rows and statement.unit == "person", "noise in an objective protects one row"),
        (distant, "local_events contain a distance"),
    )


# Check of a statement of each kind, besides the total and what is inside it.
CHECKS: dict[type[Statement], Callable[[Any], list[str]]] = {
    PrivacyStatement: check_fit,
    SelectionStatement: check_selection,
    FederatedStatement: check_federated,
    # Its steps have their own checks.
    PipelineStatement: lambda _: [],
}
