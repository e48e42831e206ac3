r"""Recompute the promise of a certificate from its numbers alone.

Deliberately shares no numerical code with the calibration that made the promise: the delta of
Gaussian noise comes from SciPy's tail functions through

.. math:: \delta = \varphi(x) \, [m(-x) - m(y)], \quad x = \tfrac{\mu}{2} - \tfrac{\epsilon}{\mu},
    \quad y = \tfrac{\mu}{2} + \tfrac{\epsilon}{\mu},

with :math:`m(t) = (1 - \Phi(t)) / \varphi(t)` the Mills ratio, because
:math:`e^\epsilon \varphi(y) = \varphi(x)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr

from dpsvm_fast.accounting.events import GaussianEvent, PureEvent
from dpsvm_fast.accounting.statement import Noise, PrivacyStatement, Sensitivity

__all__ = ["Verification", "verify"]

# Largest norm of a loss's gradient in the scores. Crammer-Singer: p - e_y with p in the simplex.
LIPSCHITZ = {"crammer_singer": math.sqrt(2.0)}
RELATION_FACTOR = {"add_remove": 1, "replace_one": 2}

# The recomputation rounds to nearest and the promise rounded outward; both stay far within these.
DELTA_SLACK = 1e-9
EPSILON_SLACK = 1e-12
ROUNDING_SLACK = 1e-12
# A number that should follow from others may be larger than they say (that is the safe side), but
# a large excess means that it does not follow from them.
EXCESS = 1e-9

# Gauss-Legendre on [-1, 1]: the slope is smooth and the interval at most 1 long.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


@dataclass(frozen=True)
class Verification:
    """Outcome of a recomputation; true when every number follows and the promise holds.

    Parameters
    ----------
    ok : bool
    problems : tuple of str
        What does not follow; empty when ``ok``.
    epsilon : float or None
        Recomputed epsilon at the claimed delta; None where the certificate cannot be read.
    delta : float or None
        Recomputed delta at the claimed epsilon.
    """

    ok: bool
    problems: tuple[str, ...]
    epsilon: float | None
    delta: float | None

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        numbers = (
            ""
            if self.epsilon is None or self.delta is None
            else f" Recomputed: epsilon = {self.epsilon:.6g}, delta = {self.delta:.6g}."
        )
        if self.ok:
            return f"The certificate holds: every number follows from the others.{numbers}"
        return (
            "The certificate does NOT hold."
            + numbers
            + "".join(f"\n  - {problem}" for problem in self.problems)
        )


def verify(certificate: Mapping[str, Any] | str | PrivacyStatement) -> Verification:
    """Check that the promise of a certificate follows from the numbers in it.

    Parameters
    ----------
    certificate : PrivacyStatement, dict or str
        A statement, its ``to_dict()`` or its ``to_json()``.

    Returns
    -------
    Verification
        False for anything that cannot be read: another version, unknown fields, not private.

    Raises
    ------
    TypeError
        An argument of another type.

    Notes
    -----
    Guarantees: a certificate that passes states an epsilon and a delta which follow, by the
    theorems it names, from its own sensitivity and noise. That the release was really made
    this way, and that what it lists as public was public, no recomputation can tell.

    Examples
    --------
    >>> from dpsvm_fast.accounting import verify
    >>> print(verify("{}"))
    The certificate does NOT hold.
      - format: got None, expected 'dpsvm_fast.certificate'
    """
    if not isinstance(certificate, (str, Mapping, PrivacyStatement)):
        raise TypeError(
            f"certificate: got {type(certificate).__name__}, expected a PrivacyStatement, a dict "
            "or a JSON string"
        )
    try:
        statement = _read(certificate)
    except (TypeError, ValueError) as error:
        return Verification(ok=False, problems=(str(error),), epsilon=None, delta=None)
    problems = [
        *_standing(statement),
        *_sensitivity_problems(statement),
        *_event_problems(statement),
    ]
    epsilon, delta = _recomputed(statement)
    if statement.noise.distribution == "gaussian":
        holds = delta <= statement.delta * (1.0 + DELTA_SLACK)
    else:
        holds = epsilon <= statement.epsilon * (1.0 + EPSILON_SLACK)
    if not holds:
        problems.append(
            f"the noise does not give epsilon = {statement.epsilon!r} with delta = "
            f"{statement.delta!r}"
        )
    return Verification(ok=not problems, problems=tuple(problems), epsilon=epsilon, delta=delta)


def _read(certificate: Mapping[str, Any] | str | PrivacyStatement) -> PrivacyStatement:
    """Return the certificate as a checked record, whatever form it came in."""
    if isinstance(certificate, str):
        return PrivacyStatement.from_json(certificate)
    if isinstance(certificate, PrivacyStatement):
        return PrivacyStatement.from_dict(certificate.to_dict())
    return PrivacyStatement.from_dict(certificate)


def _standing(statement: PrivacyStatement) -> list[str]:
    """Reasons for which the numbers do not matter."""
    problems = [f"not private: {reason}" for reason in statement.not_private_reasons]
    if statement.random_source != "operating_system":
        problems.append("the noise does not come from the operating system's entropy")
    if statement.mechanism != "output_perturbation":
        problems.append(f"unknown mechanism {statement.mechanism!r}")
    return problems


def _sensitivity_problems(statement: PrivacyStatement) -> list[str]:
    """Numbers of the sensitivity that do not follow from the ones before them."""
    s, noise = statement.sensitivity, statement.noise
    lipschitz = LIPSCHITZ.get(statement.loss)
    if lipschitz is None:
        return [f"unknown loss {statement.loss!r}"]
    problems = []
    if s.relation_factor != RELATION_FACTOR[statement.adjacency]:
        problems.append(f"relation_factor is not that of {statement.adjacency}")
    # Each from the certificate's own earlier numbers, so one lie is reported once.
    problems += _follows("lipschitz", s.lipschitz, lipschitz)
    problems += _follows("row_norm", s.row_norm, math.hypot(s.data_norm, s.intercept_scaling))
    problems += _follows("exact", s.exact, s.relation_factor * s.C * s.lipschitz * s.row_norm)
    problems += _follows("rounding", s.rounding, _rounding(noise))
    problems += _follows("total", s.total, s.exact + 2.0 * s.solver_radius + s.rounding)
    if noise.grid is not None and math.frexp(noise.grid)[0] != 0.5:
        problems.append("grid is not a power of two")
    return problems


def _rounding(noise: Noise) -> float:
    """How far rounding to the grid can move two sets of weights apart, before the noise."""
    if noise.sampler != "exact_grid" or noise.grid is None:
        return 0.0
    return noise.grid * math.sqrt(noise.n_weights)


def _follows(name: str, stated: float, recomputed: float) -> list[str]:
    """One problem when ``stated`` is less than it must be, or much more."""
    if stated < recomputed * (1.0 - ROUNDING_SLACK):
        return [f"{name} is {stated!r}, less than the {recomputed!r} that follows"]
    if stated > recomputed * (1.0 + EXCESS):
        return [f"{name} is {stated!r}, more than the {recomputed!r} that follows"]
    return []


def _event_problems(statement: PrivacyStatement) -> list[str]:
    """Compare: the one event must say what the noise says: it is what ledgers were charged."""
    if len(statement.events) != 1:
        return [f"{len(statement.events)} events, expected one"]
    event, s, noise = statement.events[0], statement.sensitivity, statement.noise
    if event.adjacency != statement.adjacency:
        return ["the event is of another neighbouring relation"]
    if noise.distribution == "gaussian":
        matches = (
            isinstance(event, GaussianEvent)
            and event.sigma == noise.sigma
            and event.sensitivity == s.total
        )
    else:
        matches = (
            isinstance(event, PureEvent)
            and _pure_epsilon(s, noise) <= event.epsilon * (1.0 + EPSILON_SLACK)
            and event.epsilon <= _pure_epsilon(s, noise) * (1.0 + EXCESS)
            and event.epsilon <= statement.epsilon
        )
    return [] if matches else ["the event does not describe the noise"]


def _recomputed(statement: PrivacyStatement) -> tuple[float, float]:
    """Epsilon at the claimed delta and delta at the claimed epsilon."""
    s, noise = statement.sensitivity, statement.noise
    if noise.sigma is None:
        epsilon = _pure_epsilon(s, noise)
        return epsilon, 0.0 if epsilon <= statement.epsilon * (1.0 + EPSILON_SLACK) else 1.0
    mu = s.total / noise.sigma
    delta = _gaussian_delta(statement.epsilon, mu)
    return _gaussian_epsilon(statement.delta, mu), delta


def _pure_epsilon(s: Sensitivity, noise: Noise) -> float:
    """Epsilon of noise with density ~ exp(-beta ||b||)."""
    return math.inf if noise.beta is None else noise.beta * s.total


def _gaussian_delta(epsilon: float, mu: float) -> float:
    """Delta of the Gaussian mechanism; see the formula at the head of this file."""
    if not mu > 0.0:
        return 0.0
    x, y = mu / 2.0 - epsilon / mu, mu / 2.0 + epsilon / mu
    if not (math.isfinite(x) and math.isfinite(y)):
        return 1.0 if mu > 1.0 else 0.0
    if x > 0.0 and mu >= 1.0:
        # Both terms are of the order of delta here.
        return float(math.exp(log_ndtr(x)) - math.exp(epsilon + log_ndtr(-y)))
    density = math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    if mu >= 1.0:
        return density * float(_mills(-x) - _mills(y))
    # The two arguments are only mu apart: integrate the slope instead of subtracting.
    middle, half = epsilon / mu, mu / 2.0
    points = middle + half * _NODES
    return density * half * float(_WEIGHTS @ (1.0 - points * _mills(points)))


def _mills(t: Any) -> Any:
    """Tail of the normal distribution over its density; its slope is ``t * _mills(t) - 1``."""
    return math.sqrt(math.pi / 2.0) * erfcx(t / math.sqrt(2.0))


def _gaussian_epsilon(delta: float, mu: float) -> float:
    """Epsilon of the Gaussian mechanism at ``delta``, to report beside the claim."""
    if delta == 0.0 or not math.isfinite(mu):
        return math.inf
    if _gaussian_delta(0.0, mu) <= delta:
        return 0.0
    high = 1.0
    while _gaussian_delta(high, mu) > delta:
        high *= 2.0
        if math.isinf(high):
            return math.inf
    return float(
        brentq(lambda e: _gaussian_delta(e, mu) - delta, 0.0, high, xtol=1e-300, rtol=1e-14)
    )
