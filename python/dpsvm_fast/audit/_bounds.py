r"""From counts of two worlds to certified lower bounds of epsilon.

Everything rests on one event S that was fixed before the counted runs: k of n runs of a world fall
into S, so k is binomial, and Clopper and Pearson's interval holds for its probability whatever the
mechanism is. Three readings of the two intervals follow, each with its proof in one sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy import stats

__all__ = [
    "N_EPSILONS",
    "Counts",
    "hockey_stick_bound",
    "profile_violation",
    "proportion_above",
    "proportion_below",
    "separation_bound",
    "smallest_consistent",
]

# Quantiles of the beta law are right to far more digits than this.
SLACK = 1e-12
# Steps of a bisection: its interval ends below one part in 2**40.
HALVINGS = 40
# At how many epsilons a profile is compared with the counts.
N_EPSILONS = 24


def proportion_below(inside: int, n: int, alpha: float) -> float:
    """Lower confidence bound of a proportion: too large with probability at most ``alpha``."""
    if inside == 0:
        return 0.0
    return float(stats.beta.ppf(alpha, inside, n - inside + 1)) * (1.0 - SLACK)


def proportion_above(inside: int, n: int, alpha: float) -> float:
    """Upper confidence bound of a proportion: too small with probability at most ``alpha``."""
    if inside == n:
        return 1.0
    return min(1.0, float(stats.beta.isf(alpha, inside + 1, n - inside)) * (1.0 + SLACK))


@dataclass(frozen=True)
class Counts:
    """How many runs of each world fell into an event that had been fixed before them.

    Parameters
    ----------
    likely : int
        Runs inside the event, of the world in which it was expected more often.
    rare : int
        The same of the other world.
    n : int
        Runs of each world.
    """

    likely: int
    rare: int
    n: int

    def interval(self, alpha: float) -> tuple[float, float]:
        """Below the one probability and above the other, wrong with probability <= ``alpha``.

        Each of the two bounds has half of ``alpha``; the runs of the worlds are independent, but
        nothing here needs that.
        """
        return (
            proportion_below(self.likely, self.n, 0.5 * alpha),
            proportion_above(self.rare, self.n, 0.5 * alpha),
        )


def hockey_stick_bound(counts: Counts, delta: float, alpha: float) -> float:
    r"""Epsilon by the definition alone, whatever the law of the mechanism.

    Proof: (epsilon, delta) says :math:`P(S) \le e^\epsilon Q(S) + \delta`, hence
    :math:`\epsilon \ge \log((P(S) - \delta) / Q(S))`, which falls when P(S) is replaced by a lower
    and Q(S) by an upper bound; the complement of S, with the worlds exchanged, says the same of
    1 - Q(S) and 1 - P(S).
    """
    low, high = counts.interval(alpha)
    return max(0.0, _log_ratio(low - delta, high), _log_ratio(1.0 - high - delta, 1.0 - low))


def _log_ratio(top: float, bottom: float) -> float:
    """Log of a ratio, minus infinity where it says nothing."""
    if top <= 0.0:
        return -math.inf
    return math.log(top / bottom) if bottom > 0.0 else math.inf


def separation_bound(counts: Counts, alpha: float) -> float:
    r"""Parameter mu of Gaussian differential privacy.

    Proof: :math:`\mu`-GDP says :math:`\Phi^{-1}(P(S)) - \Phi^{-1}(Q(S)) \le \mu` for every S (Dong,
    Roth and Su 2022), and the left side falls when P(S) is replaced by a lower and Q(S) by an upper
    bound. This is the interval method of Nasr et al. (2023).
    """
    low, high = counts.interval(alpha)
    if not 0.0 < low < 1.0 or not 0.0 < high < 1.0:
        return 0.0
    return max(0.0, float(stats.norm.ppf(low) - stats.norm.ppf(high)) * (1.0 - SLACK))


def profile_violation(
    low: float, high: float, profile: Callable[[float], float], largest: float
) -> float:
    r"""By how much :math:`P(S) \ge` low and :math:`Q(S) \le` high break a privacy profile.

    Parameters
    ----------
    low, high : float in [0, 1]
    profile : callable
        Delta at every epsilon >= 0.
    largest : float > 0
        The largest epsilon to be looked at; any choice is sound.

    Returns
    -------
    float
        Positive: no mechanism with this profile has such probabilities.

    Notes
    -----
    Proof: a profile says :math:`P(S) \le e^\epsilon Q(S) + \delta(\epsilon)` for all S, both orders
    of the worlds and every epsilon, so one epsilon at which it fails refutes it.
    """
    worst = -math.inf
    for i in range(N_EPSILONS):
        epsilon = largest * i / (N_EPSILONS - 1)
        grown = math.exp(epsilon)
        over = max(low - grown * high, (1.0 - high) - grown * (1.0 - low))
        if over > worst and over > 0.0:
            worst = max(worst, over - profile(epsilon))
    return worst


def smallest_consistent(refuted: Callable[[float], bool], most: float = 64.0) -> float | None:
    r"""The largest noise, in units of what is claimed, that the counts do not refute.

    Parameters
    ----------
    refuted : callable
        Whether the claimed law with s times the noise is refuted; monotone in s.
    most : float
        The largest s to be tried.

    Returns
    -------
    float or None
        A multiple at which the law is refuted, as is every larger one; None where even ``most``
        times the noise is not.

    Notes
    -----
    Proof: more noise means a smaller profile, so what refutes s refutes every larger one; the true
    noise is below s, and its epsilon above that of s, with the confidence of the counts.
    """
    if not refuted(most):
        return None
    low, high = 1.0 / most, most
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refuted(middle) else (middle, high)
        if high / low < 1.0 + 1e-6:
            break
    return high
