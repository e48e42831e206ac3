"""Distinguishing tests: what two worlds' outputs prove about the noise between them.

All decide at the false-alarm rate ALPHA. Every one takes samples of one real statistic in two
worlds (neighbouring data sets) and no knowledge of how they were made.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
ALPHA = 1e-6


def plausible_deviation(samples: Array, sigma: float, alpha: float = ALPHA) -> bool:
    """Chi-square test that normal samples of unknown mean have standard deviation ``sigma``.

    (n - 1) s^2 / sigma^2 has a chi-square law with n - 1 degrees of freedom; two-sided.
    """
    total = float(((samples - samples.mean()) ** 2).sum()) / sigma**2
    low, high = stats.chi2.ppf([alpha / 2.0, 1.0 - alpha / 2.0], df=samples.size - 1)
    return bool(low <= total <= high)


def separation_bound(first: Array, second: Array, alpha: float = ALPHA) -> float:
    """Lower confidence bound of mu = |difference of means| / sigma of two normal samples.

    The standard error of the estimate is at most sqrt(2/n + mu^2/(4n)) up to terms of higher
    order; the quantile is one-sided at alpha.
    """
    n = min(first.size, second.size)
    spread = math.sqrt(0.5 * (first.var(ddof=1) + second.var(ddof=1)))
    mu = abs(float(first.mean() - second.mean())) / spread
    return max(0.0, mu - stats.norm.isf(alpha) * math.sqrt(2.0 / n + mu * mu / (4.0 * n)))


def epsilon_of_separation(mu: float, delta: float) -> float:
    """Smallest epsilon of two unit normals at distance mu (Balle and Wang 2018, Theorem 8)."""
    if mu == 0.0:
        return 0.0

    def achieved(epsilon: float) -> float:
        tail = epsilon + float(stats.norm.logcdf(-mu / 2.0 - epsilon / mu))
        return float(stats.norm.cdf(mu / 2.0 - epsilon / mu)) - math.exp(tail)

    low, high = 0.0, 1.0
    while achieved(high) > delta:
        high *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if achieved(middle) > delta else (low, middle)
    return low


def counting_bound(first: Array, second: Array, thresholds: Array, delta: float) -> float:
    """Lower confidence bound of epsilon from the counts beyond fixed thresholds, law unknown.

    For an (epsilon, delta) guarantee P(S) <= e^epsilon Q(S) + delta. Both tails, both orders of the
    worlds and both ends of the interval are 8 Clopper-Pearson bounds a threshold; at
    ALPHA / (8 * number of thresholds) each they hold together.
    """
    level = ALPHA / (8.0 * thresholds.size)
    best = 0.0
    for cut in thresholds:
        for p, q in ((first, second), (second, first)):
            for side in (1.0, -1.0):
                inside = int((side * p > side * cut).sum())
                outside = int((side * q > side * cut).sum())
                if inside == 0:
                    continue
                low = float(stats.beta.ppf(level, inside, p.size - inside + 1))
                high = float(stats.beta.ppf(1.0 - level, outside + 1, max(q.size - outside, 1e-9)))
                if low > delta:
                    best = max(best, math.log((low - delta) / high))
    return best
