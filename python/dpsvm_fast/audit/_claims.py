"""What an estimator promises, as its own events say, and the same law with other noise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast.accounting import (
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    composed_epsilon,
    gaussian_epsilon,
)
from dpsvm_fast.accounting._profile import gaussian_mu
from dpsvm_fast.accounting.accountant import Composition
from dpsvm_fast.audit._bounds import (
    N_EPSILONS,
    Counts,
    hockey_stick_bound,
    profile_violation,
    separation_bound,
    smallest_consistent,
)
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["METHODS", "Claim", "certified_epsilon", "event_score", "resolved_method"]

Array = NDArray[np.float64]

METHODS = ("auto", "clopper_pearson", "gaussian", "profile")

# With how much noise the claimed law is looked at to choose an event.
N_FACTORS = 12
# How each number of an event changes when its noise grows by a factor: its power.
_POWERS = {"sigma": 1, "noise_multiplier": 1, "epsilon": -1, "rho": -2}


@dataclasses.dataclass(frozen=True)
class Claim:
    """What is promised.

    Parameters
    ----------
    epsilon, delta : float
    adjacency : {"add_remove", "replace_one"}
    events : tuple of PrivacyEvent
        The law behind it; empty where only the two numbers are known.
    """

    epsilon: float
    delta: float
    adjacency: str
    events: tuple[PrivacyEvent, ...] = ()

    @property
    def gaussian_mu(self) -> float | None:
        """Parameter of Gaussian differential privacy; None where some law is another."""
        mus = [_gaussian_mu(event) for event in self.events]
        known = [mu for mu in mus if mu is not None]
        return math.hypot(*known) if mus and len(known) == len(mus) else None

    @property
    def pure(self) -> bool:
        """Whether delta is 0."""
        return self.delta == 0.0

    def with_noise(self, factor: float) -> tuple[PrivacyEvent, ...]:
        """The events as they would be with so many times the noise."""
        return tuple(_with_noise(event, factor) for event in self.events)


def _gaussian_mu(event: PrivacyEvent) -> float | None:
    """Parameter of one event: of noise in an objective where its curvature is free."""
    if isinstance(event, GaussianEvent):
        return event.mu
    return gaussian_mu(event) if isinstance(event, ObjectiveEvent) else None


def _with_noise(event: Any, factor: float) -> Any:
    """One event, or nested ones, with so many times the noise."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if field.name in _POWERS:
            changes[field.name] = value * factor ** _POWERS[field.name]
        elif isinstance(value, tuple):
            changes[field.name] = _nested(value, factor)
    return dataclasses.replace(event, **changes)


def _nested(value: Any, factor: float) -> Any:
    """Tuples of events, of tuples of events, or of anything else."""
    if isinstance(value, tuple):
        return tuple(_nested(part, factor) for part in value)
    return _with_noise(value, factor) if isinstance(value, PrivacyEvent) else value


def resolved_method(method: str, claim: Claim) -> str:
    """What "auto" means: the sharpest method that the claimed law allows.

    Raises
    ------
    InvalidParameterError
        A method that this claim does not allow, or an unknown one.
    """
    if method not in METHODS:
        raise InvalidParameterError.of("method", got=method, accepted=f"one of {METHODS}")
    if method == "gaussian" and claim.gaussian_mu is None:
        raise InvalidParameterError.of(
            "method",
            got=method,
            accepted="another one: the claim rests on other than Gaussian noise",
        )
    if method == "profile" and not claim.events:
        raise InvalidParameterError.of(
            "method", got=method, accepted="'clopper_pearson' for a claim without events"
        )
    if method != "auto":
        return method
    if claim.gaussian_mu is not None:
        return "gaussian"
    # Of a pure law the two numbers say everything.
    return "profile" if claim.events and not claim.pure else "clopper_pearson"


def certified_epsilon(method: str, counts: Counts, claim: Claim, alpha: float) -> float:
    """Lower bound of epsilon at the claim's delta, wrong with probability at most ``alpha``."""
    if method == "clopper_pearson":
        return hockey_stick_bound(counts, claim.delta, alpha)
    if method == "gaussian":
        mu = separation_bound(counts, alpha)
        return gaussian_epsilon(claim.delta, 1.0 / mu) if mu > 1e-9 else 0.0
    low, high = counts.interval(alpha)
    largest = 2.0 * max(claim.epsilon, 1.0)

    def refuted(factor: float) -> bool:
        return profile_violation(low, high, _profile(claim, factor), largest) > 0.0

    factor = smallest_consistent(refuted)
    if factor is None:
        return 0.0
    return composed_epsilon(claim.with_noise(factor), claim.delta)


def _profile(claim: Claim, factor: float) -> Callable[[float], float]:
    """Delta at every epsilon with so many times the noise."""
    return Composition.of(claim.with_noise(factor)).delta


def event_score(method: str, claim: Claim) -> Callable[[Array, Array], Array]:
    """What an event would prove, for many at once: larger is better, units do not matter.

    Its arguments are lower bounds of the one world's probabilities and upper bounds of the other's.
    """
    if method == "clopper_pearson":
        return lambda low, high: _finite(np.log(np.maximum(low - claim.delta, 1e-300) / high))
    if method == "gaussian":
        return lambda low, high: _finite(stats.norm.ppf(low) - stats.norm.ppf(high))
    epsilons = np.linspace(0.0, 2.0 * max(claim.epsilon, 1.0), N_EPSILONS)
    factors = np.geomspace(0.5, 8.0, N_FACTORS)
    profiles = [np.array([_profile(claim, f)(e) for e in epsilons]) for f in factors]

    def least_noise(low: Array, high: Array) -> Array:
        """Minus the least noise that is refuted, the steps between linear."""
        grown = np.exp(epsilons)[:, None]
        over = np.maximum(low - grown * high, (1.0 - high) - grown * (1.0 - low))
        excess = np.array([(over - profile[:, None]).max(axis=0) for profile in profiles])
        i = np.argmax(excess > 0.0, axis=0)
        columns = np.arange(low.size)
        here, before = excess[i, columns], excess[np.maximum(i - 1, 0), columns]
        part = np.where(i > 0, here / np.maximum(here - before, 1e-300), 0.0)
        refuted = (excess > 0.0).any(axis=0)
        # What no factor refutes comes after all others; the excess of trivial events is near 0.
        distance = np.maximum(_finite(stats.norm.ppf(low) - stats.norm.ppf(high)), -1e3)
        return np.asarray(np.where(refuted, part - i, 1e-3 * distance - 2.0 * N_FACTORS))

    return least_noise


def _finite(scores: Array) -> Array:
    """Scores with minus infinity where there is no number."""
    return np.asarray(np.nan_to_num(scores, nan=-np.inf, posinf=-np.inf, neginf=-np.inf))
