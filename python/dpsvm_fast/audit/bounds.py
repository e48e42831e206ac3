"""Certified lower bounds on epsilon from counts in two worlds.

An event S is fixed before the counted runs. The number k of a world's n runs in S is binomial, so
the Clopper-Pearson interval holds for the probability of S for any mechanism. Three bounds follow
from the two intervals, each with a one-sentence proof.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast.accounting import composed_epsilon, gaussian_epsilon
from dpsvm_fast.accounting.composition import totals_delta
from dpsvm_fast.accounting.totals import gaussian_mu, of_events
from dpsvm_fast.certificates import ObjectiveEvent, PrivacyEvent
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.validation import check_option

# Quantiles of the beta law are right to far more digits than this.
SLACK = 1e-12
# Steps of a bisection at most.
HALVINGS = 60
# Largest multiple of the claimed noise to try.
MOST_NOISE = 64.0
# Number of epsilons at which a profile is compared with the counts.
N_EPSILONS = 24


def proportion_below(inside: int, n: int, alpha: float) -> float:
    """Return a lower confidence bound on a proportion, wrong with probability ``alpha``."""
    if inside == 0:
        return 0.0
    return float(stats.beta.ppf(alpha, inside, n - inside + 1)) * (1.0 - SLACK)


def proportion_above(inside: int, n: int, alpha: float) -> float:
    """Return an upper confidence bound on a proportion, wrong with probability ``alpha``."""
    if inside == n:
        return 1.0
    return min(1.0, float(stats.beta.isf(alpha, inside + 1, n - inside)) * (1.0 + SLACK))


@dataclass(frozen=True)
class Counts:
    """Numbers of runs in each world inside an event fixed beforehand.

    Parameters
    ----------
    likely : int
        Runs inside the event in the world where it was expected more often.
    rare : int
        Runs inside the event in the other world.
    n : int
        Runs of each world.
    """

    likely: int
    rare: int
    n: int

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return a lower bound on one probability and an upper bound on the other; level ``alpha``.

        Each bound has half of ``alpha``. Independence between the worlds is not needed.
        """
        return (
            proportion_below(self.likely, self.n, 0.5 * alpha),
            proportion_above(self.rare, self.n, 0.5 * alpha),
        )


def hockey_stick_bound(counts: Counts, delta: float, alpha: float) -> float:
    r"""Return a lower bound on epsilon from the definition alone.

    Proof: (epsilon, delta)-privacy means :math:`P(S) \le e^\epsilon Q(S) + \delta`, hence
    :math:`\epsilon \ge \log((P(S) - \delta) / Q(S))`, which decreases if P(S) is replaced by a
    lower and Q(S) by an upper bound. With P and Q interchanged, the complement of S gives the same
    for 1 - Q(S) and 1 - P(S).
    """
    low, high = counts.interval(alpha)
    return max(0.0, _log_ratio(low - delta, high), _log_ratio(1.0 - high - delta, 1.0 - low))


def _log_ratio(top: float, bottom: float) -> float:
    """Return the log of a ratio, minus infinity if it is uninformative."""
    if top <= 0.0:
        return -math.inf
    return math.log(top / bottom) if bottom > 0.0 else math.inf


def separation_bound(counts: Counts, alpha: float) -> float:
    r"""Return a lower bound on mu of Gaussian differential privacy.

    Proof: :math:`\mu`-GDP means :math:`\Phi^{-1}(P(S)) - \Phi^{-1}(Q(S)) \le \mu` for every S
    (Dong, Roth and Su 2022), and the left side decreases if P(S) is replaced by a lower and Q(S) by
    an upper bound. This is the interval method of Nasr et al. (2023).
    """
    low, high = counts.interval(alpha)
    if not 0.0 < low < 1.0 or not 0.0 < high < 1.0:
        return 0.0
    return max(0.0, float(stats.norm.ppf(low) - stats.norm.ppf(high)) * (1.0 - SLACK))


def profile_violation(
    low: float, high: float, profile: Callable[[float], float], largest: float
) -> float:
    r"""Return how far :math:`P(S) \ge` low and :math:`Q(S) \le` high violate a privacy profile.

    Parameters
    ----------
    low, high : float in [0, 1]
    profile : callable
        Delta at every epsilon >= 0.
    largest : float > 0
        Largest epsilon to try; any choice is sound.

    Returns
    -------
    float
        Positive: no mechanism with this profile has such probabilities.

    Notes
    -----
    Proof: a profile means :math:`P(S) \le e^\epsilon Q(S) + \delta(\epsilon)` for all S, both
    orders of the worlds and every epsilon, so one epsilon at which it fails refutes it.
    """
    worst = -math.inf
    for i in range(N_EPSILONS):
        epsilon = largest * i / (N_EPSILONS - 1)
        grown = math.exp(epsilon)
        over = max(low - grown * high, (1.0 - high) - grown * (1.0 - low))
        if over > worst and over > 0.0:
            worst = max(worst, over - profile(epsilon))
    return worst


def boundary(holds: Callable[[float], bool], low: float, high: float, tol: float = 0.0) -> float:
    """Return the largest number found at which a condition holds, by bisection from ``low``."""
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
        if high - low <= tol:
            break
    return low


def largest(holds: Callable[[float], bool], most: float) -> float:
    """Return the largest number found below twice ``most`` at which a condition holds."""
    low, high = 0.0, 1.0
    while high < most and holds(high):
        low, high = high, 2.0 * high
    return boundary(holds, low, high)


Array = NDArray[np.float64]

METHODS = ("auto", "clopper_pearson", "gaussian", "profile")

# Number of noise levels at which the claimed law is examined to choose an event.
N_FACTORS = 12
# How each number of an event changes when its noise grows by a factor: its power.
_POWERS = {"sigma": 1, "noise_multiplier": 1, "epsilon": -1, "rho": -2}


@dataclass(frozen=True)
class Claim:
    """Claim under test.

    Parameters
    ----------
    epsilon, delta : float
    adjacency : {"add_remove", "replace_one"}
    events : tuple of PrivacyEvent
        Events of the claimed law; empty if only epsilon and delta are known.
    """

    epsilon: float
    delta: float
    adjacency: str
    events: tuple[PrivacyEvent, ...] = ()

    @property
    def gaussian_mu(self) -> float | None:
        """Parameter of Gaussian differential privacy; None if an event is not Gaussian."""
        # Parameters of Gaussian releases, and of noise in an objective whose curvature is free.
        mus = [gaussian_mu(e) if isinstance(e, ObjectiveEvent) else e.mu for e in self.events]
        known = [mu for mu in mus if mu is not None]
        return math.hypot(*known) if mus and known == mus else None

    def with_noise(self, factor: float) -> tuple[PrivacyEvent, ...]:
        """Return the events with their noise multiplied by a factor."""
        return tuple(_with_noise(event, factor) for event in self.events)

    def profile(self, factor: float) -> Callable[[float], float]:
        """Return delta as a function of epsilon, with the noise multiplied by a factor."""
        return partial(totals_delta, of_events(self.with_noise(factor)))

    def epsilon_of_mu(self, mu: float) -> float:
        """Return epsilon at the claimed delta of a Gaussian law with parameter ``mu``."""
        return gaussian_epsilon(self.delta, 1.0 / mu) if mu > 1e-9 else 0.0

    def certified_by(self, refuted: Callable[[float], bool]) -> float:
        r"""Return a lower bound on epsilon, from noise with which the claimed law is refuted.

        Parameters
        ----------
        refuted : callable
            Function of s: whether the claimed law with s times the noise is refuted; monotone in s.

        Notes
        -----
        Proof: more noise means a smaller profile, so counts that refute s refute every larger
        multiple. With the confidence of the counts the true noise is below s, and its epsilon above
        that of s.
        """
        if not refuted(MOST_NOISE):
            return 0.0
        end = math.log(MOST_NOISE)
        least = boundary(lambda log: refuted(math.exp(-log)), -end, end, 1e-6)
        return composed_epsilon(self.with_noise(math.exp(-least)), self.delta)


def _with_noise(value: Any, factor: float) -> Any:
    """Multiply the noise of events and of tuples of them; return anything else unchanged."""
    if isinstance(value, tuple):
        return tuple(_with_noise(part, factor) for part in value)
    if not isinstance(value, PrivacyEvent):
        return value
    event: Any = value
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(event):
        own, power = getattr(event, field.name), _POWERS.get(field.name)
        changes[field.name] = _with_noise(own, factor) if power is None else own * factor**power
    return dataclasses.replace(event, **changes)


def resolved_method(method: str, claim: Claim) -> str:
    """Return the method, with "auto" replaced by the sharpest that the claimed law allows.

    Raises
    ------
    InvalidParameterError
        The method is unknown, or this claim does not allow it.
    """
    check_option("method", method, METHODS)
    if method == "gaussian" and claim.gaussian_mu is None:
        accepted = "another method, as the noise of the claim is not Gaussian"
        raise InvalidParameterError.of("method", got=method, accepted=accepted)
    if method == "profile" and not claim.events:
        accepted = "'clopper_pearson' for a claim without events"
        raise InvalidParameterError.of("method", got=method, accepted=accepted)
    if method != "auto":
        return method
    if claim.gaussian_mu is not None:
        return "gaussian"
    # For a pure law, epsilon and delta say everything.
    return "profile" if claim.events and claim.delta > 0.0 else "clopper_pearson"


def certified_epsilon(method: str, counts: Counts, claim: Claim, alpha: float) -> float:
    """Return a lower bound on epsilon at the claimed delta, wrong with prob. ``alpha``."""
    if method == "clopper_pearson":
        return hockey_stick_bound(counts, claim.delta, alpha)
    if method == "gaussian":
        return claim.epsilon_of_mu(separation_bound(counts, alpha))
    low, high = counts.interval(alpha)
    largest = 2.0 * max(claim.epsilon, 1.0)

    def refuted(factor: float) -> bool:
        return profile_violation(low, high, claim.profile(factor), largest) > 0.0

    return claim.certified_by(refuted)


def event_score(method: str, claim: Claim) -> Callable[[Array, Array], Array]:
    """Return a function that scores events by the bound they would prove; larger is better.

    Its arguments are lower bounds on one world's probabilities and upper bounds on the other's. The
    unit of the score is arbitrary.
    """
    if method == "clopper_pearson":
        return lambda low, high: _finite(np.log(np.maximum(low - claim.delta, 1e-300) / high))
    if method == "gaussian":
        return lambda low, high: _finite(stats.norm.ppf(low) - stats.norm.ppf(high))
    epsilons = np.linspace(0.0, 2.0 * max(claim.epsilon, 1.0), N_EPSILONS)
    factors = np.geomspace(0.5, 8.0, N_FACTORS)
    profiles = [np.array([claim.profile(f)(e) for e in epsilons]) for f in factors]

    def least_noise(low: Array, high: Array) -> Array:
        """Return minus the smallest refuted noise, interpolated linearly."""
        grown = np.exp(epsilons)[:, None]
        over = np.maximum(low - grown * high, (1.0 - high) - grown * (1.0 - low))
        excess = np.array([(over - profile[:, None]).max(axis=0) for profile in profiles])
        i = np.argmax(excess > 0.0, axis=0)
        columns = np.arange(low.size)
        here, before = excess[i, columns], excess[np.maximum(i - 1, 0), columns]
        part = np.where(i > 0, here / np.maximum(here - before, 1e-300), 0.0)
        refuted = (excess > 0.0).any(axis=0)
        # Events that no factor refutes come after all others; the excess of trivial ones is near 0.
        distance = np.maximum(_finite(stats.norm.ppf(low) - stats.norm.ppf(high)), -1e3)
        return np.asarray(np.where(refuted, part - i, 1e-3 * distance - 2.0 * N_FACTORS))

    return least_noise


def _finite(scores: Array) -> Array:
    """Replace scores that are not numbers by minus infinity."""
    return np.asarray(np.nan_to_num(scores, nan=-np.inf, posinf=-np.inf, neginf=-np.inf))
