"""Noisy means, second moments and class counts of private rows, and their post-processing.

Whitening by a noisy matrix of second moments is proved in docs/proofs/auto_pipeline.md, section
"Whitening".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.arithmetic import quiet
from dpsvm_fast.certificates import GaussianEvent, PrivacyEvent, PrivacyStatement
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms.noise import (
    RELATION_FACTOR,
    NoisySum,
    SecondMoments,
    SumRelease,
    gaussian_parameter,
    share_of,
    within_budget,
)
from dpsvm_fast.mechanisms.plan import Facts, Plan, Rows, SumsPlan, filled
from dpsvm_fast.mechanisms.rows import PublicMap, row_blocks
from dpsvm_fast.rounding import div_up, fraction_up, mul_up, sqrt_up

# The noisy mean of private rows, with their noisy number, in one release.
#
# Proved in docs/proofs/auto_pipeline.md, sections "Exact sums" and "Centre". With rows of norm at
# most 1, one record moves :math:`(\sum_i u_i, n/2)` by at most :math:`\sqrt{1 + 1/4}`: the number
# of rows costs an eighth more noise instead of a separate budget. Where it is public
# (``replace_one``), the sum alone is released, and a replacement moves it by at most 2.
#
# Sums come from rows whose entries are multiples of 2**-20 and are exact; the noise is drawn
# exactly on a grid at least as coarse.


# Rows, hence their sums and a released centre, are multiples of this.
ROW_GRID = 2.0**-20
# Weight of the number of rows next to the sum of rows of norm 1. A smaller factor makes the number
# noisier, a larger one the sum.
COUNT_SCALE = 0.5


@dataclass(frozen=True, eq=False)
class ReleasedMoments:
    """Released number of rows, means and variances.

    Parameters
    ----------
    count : float >= 1
        Noisy number of rows, or the public one.
    mean : ndarray of shape (n_features,)
        Noisy means; of columns in [-1, 1], relative to the midpoint and half width of the bounds.
    variance : ndarray of shape (n_features,) or None
        Variances in the same units, in [2**-20, 1]; None if squares were not released.
    """

    count: float
    mean: NDArray[np.float64]
    variance: NDArray[np.float64] | None = None


@dataclass(frozen=True, kw_only=True)
class NoisyMean(SumRelease):
    """Release of the sum and the number of rows of norm at most 1.

    Parameters
    ----------
    n_features : int
    lifted : bool
        Whether rows end with an appended constant, so that the other entries share one scale.

    Notes
    -----
    Guarantees: ``release`` is a Gaussian mechanism with parameter ``mu``, or epsilon-private, for
    exact sums of rows of norm at most 1.
    """

    n_features: int
    lifted: bool = False

    @cached_property
    def sum(self) -> NoisySum:
        """Noisy sum with its sensitivity."""
        return self.of_multiples(
            ROW_GRID,
            name="centre",
            clip_norm=sqrt_up(1.0 + COUNT_SCALE**2) if self.counts else 1.0,
            relation_factor=float(RELATION_FACTOR[self.adjacency]),
            shape=(self.n_features + self.counts,),
        )

    def summed(self, rows: Rows, public: PublicMap) -> tuple[NDArray[np.float64], float]:
        """Return the exact sum of the mapped rows, and their number."""
        return rows.records(public).sums(rows.n_threads), rows.n_rows

    def release(
        self, total: NDArray[np.float64], n_rows: float, source: _core.NoiseSource, n_threads: int
    ) -> ReleasedMoments:
        """Return the noisy mean of ``n_rows`` rows with exact sum ``total``."""
        exact = self.exact(total, n_rows)
        return self.finished(self.sum.release(exact, source, n_threads), n_rows)

    def exact(self, total: NDArray[np.float64], n_rows: float) -> NDArray[np.float64]:
        """Return the exact input of the noise: the sum and, if private, half the count."""
        return np.append(total, COUNT_SCALE * n_rows) if self.counts else total

    def finished(self, noisy: NDArray[np.float64], n_rows: float) -> ReleasedMoments:
        r"""Post-process a noisy sum; the number of rows is used only where it is public.

        On average :math:`d \sigma^2` of the squared length is noise. The mean is shrunk by that
        share (James and Stein), to at most the norm of the rows, and to multiples of 2**-20. For
        ``lifted`` rows three parts are shrunk separately: the mean of all entries, the deviations
        from it, and the last entry.
        """
        total, count = noisy, float(n_rows)
        if self.counts:
            total, count = noisy[:-1], max(1.0, float(noisy[-1]) / COUNT_SCALE)
        noise = self.sum.deviation**2
        if self.lifted:
            common = np.full(total.size - 1, total[:-1].mean())
            apart = _shrunk(total[:-1] - common, (common.size - 1) * noise)
            mean = np.append(_shrunk(common, noise) + apart, _shrunk(total[-1:], noise))
        else:
            mean = _shrunk(total, total.size * noise)
        mean = mean / count
        length = float(np.linalg.norm(mean))
        if not math.isfinite(length):
            mean, length = np.zeros_like(total), 0.0
        mean = mean / max(1.0, length)
        return ReleasedMoments(count, np.trunc(mean / ROW_GRID) * ROW_GRID)

    def straightened(
        self, released: ReleasedMoments, constant: float, kept: float
    ) -> NDArray[np.float64]:
        """Return the matrix that maps (z, ``constant``) to (z - c, ``kept`` s) up to a factor.

        Parameters
        ----------
        released : ReleasedMoments
            It gives the centre c and, as rows have norm 1, their spread s around it.
        constant, kept : float > 0
        """
        mean, noise = released.mean, self.sum.deviation / released.count
        limit = 1.0 / constant
        centre = np.clip(mean[:-1] / max(float(mean[-1]), ROW_GRID), -limit, limit)
        length = max(0.0, min(1.0, float(np.linalg.norm(mean))) - noise)
        spread = math.sqrt(1.0 - length**2) * (1.0 + float(centre @ centre))
        return _affine(np.eye(centre.size), centre, kept * spread)


def _affine(
    root: NDArray[np.float64], centre: NDArray[np.float64], kept: float
) -> NDArray[np.float64]:
    """Return the matrix that maps (z, 1) to (root (z - centre), kept), of Frobenius norm 1."""
    matrix = np.zeros((centre.size + 1, centre.size + 1))
    matrix[:-1, :-1], matrix[:-1, -1], matrix[-1, -1] = root, -(root * centre).sum(axis=1), kept
    return np.asarray(matrix / np.linalg.norm(matrix))


def _shrunk(noisy: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """Return a noisy vector shrunk by the share of noise in its squared length."""
    squared = float(noisy @ noisy)
    return noisy * max(0.0, 1.0 - noise / squared) if squared > 0.0 else noisy


# Noisy means and mean squares of features with public bounds, in one release.
#
# Proved in docs/proofs/private_scaling.md, section "Moments from public bounds". Every entry is
# mapped from its bounds to z in [-1, 1], on a grid. A record contributes, for each of d features,
# the pair
#
# .. math:: \varphi(z) = \left(z, \; b\, (z^2 - t)\right), \qquad b = 11/8, \quad t = 49/64,
#
# and, where the number of records is private, the constant :math:`a \approx d^{1/4}`. The length of
# a pair is largest at z = 0, where all of it is the square's, and nearly as large at the ends,
# where it is the mean's: one budget pays for both. Adding or removing a record moves the sum by at
# most :math:`\sqrt{d\,(539/512)^2 + a^2}`, replacing one by :math:`2 \sqrt d`, the distance of
# :math:`\varphi(1)` and :math:`\varphi(-1)`.
#
# Among all pairs :math:`(z, b (z^2 - t))`, :math:`b = \sqrt 2` with :math:`t = 3/4` has the least
# sum of the noise variances of mean and mean square; the numbers above are within half a percent of
# it, and make the sums multiples of 2**-23.


# b, t, and their product: the largest length of a pair.
SQUARE_WEIGHT, SQUARE_OFFSET, PAIR_NORM = Fraction(11, 8), Fraction(49, 64), Fraction(539, 512)
# Weighted sums are multiples of SUM_GRID; a float holds MAX_UNITS of them exactly.
SUM_GRID, MAX_UNITS = 2.0**-23, 2**53
# Variance of the uniform law on [-1, 1]: assumed for a feature where noise dominates.
UNIFORM_VARIANCE = 1.0 / 3.0
# No feature is taken to be narrower than 2**-10 of half its bounds.
SMALLEST_VARIANCE = 2.0**-20
# A noisy variance is believed from that many standard deviations of its noise on.
SIGNIFICANT = 2.0


@dataclass(frozen=True, kw_only=True)
class NoisyColumnMoments(SumRelease):
    """Release of the sums of bounded entries and their squares, and of the number of records.

    Parameters
    ----------
    n_features : int
    with_std : bool
        Whether squares are released.
    factor : tuple of float
        Factor for sums of several periods, from ``square_root_factor``; empty for one release.

    Notes
    -----
    Guarantees: ``release`` is a Gaussian mechanism with parameter ``mu``, or epsilon-private, for
    the exact sums of ``_core.column_moments``; everything else is post-processing.
    """

    n_features: int
    with_std: bool = True
    factor: tuple[float, ...] = ()

    @property
    def count_weight(self) -> Fraction:
        """Weight a of the count: fourth root of the number of features, rounded down to 2**-10.

        The count gets 1 / (1 + sqrt(d)) of the squared sensitivity, which minimises the variance of
        a mean square near 0.
        """
        return Fraction(math.isqrt(math.isqrt(self.n_features << 40)), 1024)

    @cached_property
    def sum(self) -> NoisySum:
        """Noisy sum with its sensitivity."""
        d, squares, counts = self.n_features, self.with_std, self.counts
        pair = PAIR_NORM**2 if squares else Fraction(1)
        clip_norm = sqrt_up(fraction_up(d * pair + (self.count_weight**2 if counts else 0)))
        factor = 1.0
        if not counts:
            factor = div_up(2.0, float(PAIR_NORM)) if squares else 2.0
        unit = SUM_GRID * FACTOR_GRID if self.factor else SUM_GRID
        noise = self.of_multiples(
            unit,
            name="moments" if squares else "means",
            clip_norm=clip_norm,
            relation_factor=factor,
            shape=(d * (1 + squares) + counts,),
            n_steps=max(1, len(self.factor)),
            factor=self.factor,
        )
        if self.factor and noise.grid not in (None, unit):
            raise InvalidParameterError(
                "epsilon: expected a larger epsilon or delta, as the fixed grid of the running "
                "sums is too fine for this much noise"
            )
        return noise

    def summed(
        self, rows: Rows, public: PublicMap
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], float]:
        """Return exact sums of the mapped columns and of their squares, and the number of rows.

        If the number of rows is private, the sum of their weights is returned instead.
        """
        first, second, weight = rows.column_moments(public)
        return first, second, float(weight[0]) if self.counts else rows.n_rows

    def release(
        self,
        first: NDArray[np.int64],
        second: NDArray[np.int64],
        n_rows: float,
        source: _core.NoiseSource,
        n_threads: int,
    ) -> ReleasedMoments:
        """Release means and variances from the exact sums of ``n_rows`` records.

        Parameters
        ----------
        first, second : ndarray of shape (n_features,)
            Sums of the entries and of their squares, in units of 2**-20.
        n_rows : float
            Below 2**32, a multiple of 2**-13.
        source : NoiseSource
        n_threads : int
            Does not change the result.
        """
        exact = self.exact(first, second, n_rows)
        return self.finished(self.sum.release(exact, source, n_threads), n_rows)

    def finished(self, noisy: NDArray[np.float64], n_rows: float) -> ReleasedMoments:
        """Post-process a noisy sum; the number of rows is used only where it is public."""
        d = self.n_features
        count = float(n_rows)
        if self.counts:
            count = max(1.0, float(noisy[-1]) / float(self.count_weight))
        noise = self.sum.deviation / count
        # Towards the middle of the bounds by the share of noise, as if means were uniform.
        kept = UNIFORM_VARIANCE / (UNIFORM_VARIANCE + noise**2)
        raw = np.clip(noisy[:d] / count, -1.0, 1.0)
        mean = np.asarray(raw * kept)
        if not self.with_std:
            return ReleasedMoments(count, mean)
        squares = float(SQUARE_OFFSET) + noisy[d : 2 * d] / (count * float(SQUARE_WEIGHT))
        return ReleasedMoments(count, mean, self._variance(mean, np.clip(squares, 0.0, 1.0), noise))

    def exact(
        self, first: NDArray[np.int64], second: NDArray[np.int64], n_rows: float
    ) -> NDArray[np.float64]:
        """Return the exact sum: multiples of 2**-23, clamped to the range of floats."""
        return self.units(first, second, n_rows).astype(np.float64) * SUM_GRID

    def units(
        self, first: NDArray[np.int64], second: NDArray[np.int64], n_rows: float
    ) -> NDArray[np.int64]:
        """Return the same sum as integers."""
        parts = [first * 8]
        if self.with_std:
            offset = int(PAIR_NORM * 2**23 * Fraction(n_rows))
            parts.append(second * int(SQUARE_WEIGHT * 8) - offset)
        units = np.clip(np.concatenate(parts), -MAX_UNITS, MAX_UNITS)
        if self.counts:
            rows = int(self.count_weight * 2**23 * Fraction(n_rows))
            units = np.append(units, min(rows, MAX_UNITS))
        return units

    def _variance(
        self, mean: NDArray[np.float64], squares: NDArray[np.float64], noise: float
    ) -> NDArray[np.float64]:
        r"""Return mean squares minus squared means, at least what the noise can resolve.

        The noise in a variance has the standard deviation
        :math:`\nu \sqrt{1/b^2 + 4 m^2 + (t - s + 2 m^2)^2 / a^2}`, with :math:`\nu` that of a sum
        over the count, m the mean and s the mean square; the last term is due to the count. A
        variance below twice this deviation is raised to that level, so that noise never widens a
        column. If the level exceeds the variance of the uniform distribution, that variance is
        used.
        """
        of_count = np.zeros_like(mean)
        if self.counts:
            of_count = (float(SQUARE_OFFSET) - squares + 2.0 * mean**2) / float(self.count_weight)
        deviation = noise * np.sqrt(1.0 / float(SQUARE_WEIGHT) ** 2 + 4.0 * mean**2 + of_count**2)
        level = SIGNIFICANT * deviation
        found = np.maximum(squares - mean**2, np.maximum(level, SMALLEST_VARIANCE))
        return np.where(level < UNIFORM_VARIANCE, found, UNIFORM_VARIANCE)


# Principal components of a noisy matrix of second moments, and the projection onto them.
#
# Proved in docs/proofs/private_pca.md. The components are those of the noisy matrix; nothing else
# that depends on the rows is looked at.


Array = NDArray[np.float64]

# Largest rounded norm of a projected row, so that the row's own is at most 1.
JUST_BELOW_ONE = 1.0 - 2.0**-40


@dataclass(frozen=True, eq=False)
class ReleasedComponents:
    """Principal components of A, the noisy sum of outer products of rows of norm at most 1.

    Parameters
    ----------
    values : ndarray of shape (n_components,)
        Largest eigenvalues of A, in descending order; some may be negative.
    vectors : ndarray of shape (n_components, n_features)
        Eigenvectors, orthonormal up to rounding.
    trace : float
        Sum of all eigenvalues of A.
    """

    values: Array
    vectors: Array
    trace: float

    @property
    def shares(self) -> Array:
        """Each eigenvalue's share of the trace, within [0, 1]; 0 if the trace is not positive."""
        if not self.trace > 0.0:
            return np.zeros_like(self.values)
        return np.clip(self.values / self.trace, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class NoisyComponents(SecondMoments):
    """Release of second moments of rows of norm at most 1, for principal components.

    Parameters
    ----------
    n_components : int or None
        Number of components; None for all.

    Notes
    -----
    Guarantees: ``release`` is a Gaussian mechanism with parameter ``mu`` for exact sums over rows
    of norm at most 1; everything else is post-processing.
    """

    part_name = "components"
    n_components: int | None = None

    def release(
        self, moments: Array, source: _core.NoiseSource, n_threads: int
    ) -> ReleasedComponents:
        """Return the leading components of the noisy matrix.

        Parameters
        ----------
        moments : ndarray of shape (n_features, n_features)
            Symmetric; entries that are not exact are rounded to nearest.
        source : NoiseSource
        n_threads : int
            Does not change the result.
        """
        noisy = self.noisy(moments, source, n_threads)
        values, vectors = _core.symmetric_eigen(noisy, self.n_components or self.n_features)
        return ReleasedComponents(values, vectors, float(np.trace(noisy)))

    def scales(self, values: Array) -> Array:
        r"""Return the factors, at most 1, that whiten coordinates.

        .. math:: \sqrt{\frac{\min_l \max(\lambda_l, 0) + r}{\max(\lambda_j, 0) + r}}, \qquad
                  r = 0.35\, \sigma \sqrt{2 d}
        """
        roots = np.sqrt(np.maximum(values, 0.0) + RIDGE * self.spectral_noise)
        return np.asarray(roots.min() / roots)


@dataclass(frozen=True, eq=False)
class Projection:
    r"""Projection of rows onto released components.

    .. math:: z = s \circ V \, \mathrm{clip}(x - c, \kappa)

    The result is clipped to norm kappa again, because rows of V are orthonormal only up to
    rounding.

    Parameters
    ----------
    vectors : ndarray of shape (n_components, n_features)
        V.
    scales : ndarray of shape (n_components,)
        s, in (0, 1].
    centre : ndarray of shape (n_features,)
        c, public.
    data_norm : float > 0
        Kappa.
    """

    vectors: Array
    scales: Array
    centre: Array
    data_norm: float

    @quiet
    def apply(self, X: Any, n_threads: int) -> Array:
        """Return projected rows; each depends on its input row only, to the last bit.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (n_samples, n_features)
        n_threads : int
            Does not change the result.
        """
        moved = bool(self.centre.any())
        public = PublicMap(
            offset=self.centre if moved else None, unit=False, data_norm=self.data_norm
        )
        matrix = np.ascontiguousarray((self.vectors * self.scales[:, None]).T)
        projected = np.empty((X.shape[0], self.scales.size))
        for block in row_blocks(X):
            rows = X[block]
            if moved and sparse.issparse(rows):
                rows = rows.toarray()
            rows = public.apply(rows)
            rows = rows.toarray() if sparse.issparse(rows) else rows
            projected[block] = _core.row_products(np.ascontiguousarray(rows), matrix, n_threads)
        norms = np.linalg.norm(projected, axis=1)
        projected *= (self.data_norm / np.maximum(norms / JUST_BELOW_ONE, 1.0))[:, None]
        return projected

    def invert(self, projected: Array) -> Array:
        """Return the rows, shape (n_samples, n_features), with these coordinates."""
        return np.asarray((projected / self.scales) @ self.vectors + self.centre)


# Shares of the squared Gaussian parameter: of the last whitening, and of one before it where
# features are few and classes fewer still. That one makes small directions large compared with the
# noise of the last. With many features it would enlarge those that tell nothing about classes, too;
# with many classes the large ones tell most.
LAST_SHARE, EARLIER_SHARE = 0.10, 0.05

FEW_FEATURES, FEATURES_A_CLASS = 20, 2

# Whitening needs this many rows a squared dimension, and noise at most this share of the rows.
ROWS_A_SQUARE, LARGEST_NOISE = 0.5, 0.15
# Largest constant beside rows of spread 1.
LARGEST_KEPT = 16.0
# The ridge below the noisy eigenvalues, in units of the norm of the noise. From a quarter to a half
# most data sets do alike; small ones do better with less. Where columns are many it grows, as noise
# vanishes, to a part of the mean eigenvalue: of a row with a rare category little else would be
# left once it is scaled to norm 1. Of few columns the small directions tell too much.
RIDGE, RIDGE_WITHOUT_NOISE, RIDGE_SLOPE = 0.35, 0.3, 5.0


def whitening_shares(n_features: int, n_classes: int) -> tuple[float, ...]:
    """Return shares of the squared Gaussian parameter, one per whitening, from public facts."""
    few = FEATURES_A_CLASS * n_classes < n_features <= FEW_FEATURES
    return (EARLIER_SHARE, LAST_SHARE) if few else (LAST_SHARE,)


@dataclass(frozen=True, kw_only=True)
class NoisyMoments(SecondMoments):
    """Release of second moments of rows of norm at most 1, for whitening.

    Parameters
    ----------
    scaled : bool, default=False
        Whether whitened rows are scaled to norm 1.

    Notes
    -----
    Guarantees: ``release`` is a Gaussian mechanism with parameter ``mu`` for exact sums over rows
    of norm at most 1; everything else is post-processing.
    """

    part_name = "whitening"
    scaled: bool = False

    def precise(self, count: float) -> bool:
        """Return whether the noise would be small compared with the moments of this many rows."""
        enough = count >= ROWS_A_SQUARE * self.n_features**2
        return enough and self.spectral_noise <= LARGEST_NOISE * count

    def constant_for(self, count: float) -> float:
        """Return the constant, beside rows of spread 1, up to which their moments are precise.

        The larger, the closer their scatter is to a covariance, and the less of it is left.
        """
        most = math.sqrt(LARGEST_NOISE * count / self.spectral_noise)
        return min(LARGEST_KEPT, max(1.0, most))

    def release(
        self,
        moments: NDArray[np.float64],
        source: _core.NoiseSource,
        n_threads: int,
        *,
        kept: float = 0.0,
    ) -> NDArray[np.float64]:
        r"""Release the whitening matrix :math:`(A + r I)^{-1/2}`, scaled to spectral norm 1.

        The ridge r is a fraction of the typical spectral norm of the noise. If that is small, rows
        are ``scaled`` and there are more than 20 columns including the constant, it is a fraction
        of the mean eigenvalue.

        Parameters
        ----------
        moments : ndarray of shape (n_features, n_features)
            Symmetric; entries that are not exact are rounded to nearest.
        source : NoiseSource
        n_threads : int
            Does not change the result.
        kept : float >= 0, default=0
            If positive, rows are seen as points z / z_d: their scatter around their mean, in units
            of the last moment, is whitened in place of A, and the last entry becomes ``kept``.

        Returns
        -------
        ndarray of shape (n_features, n_features)
            Without ``kept`` symmetric and positive definite.
        """
        noisy = self.noisy(moments, source, n_threads)
        ridge = RIDGE * self.spectral_noise
        if kept:
            whole = max(float(noisy[-1, -1]), self.spectral_noise)
            centre, ridge = noisy[:-1, -1] / whole, ridge / whole
            noisy = noisy[:-1, :-1] / whole - np.outer(centre, centre)
        values, vectors = _core.symmetric_eigen(noisy, len(noisy))
        values = np.maximum(values, 0.0)
        if self.scaled and self.n_features > FEW_FEATURES:
            ridge = max(ridge, RIDGE_WITHOUT_NOISE * float(values.mean()) - RIDGE_SLOPE * ridge)
        roots = np.sqrt(values + ridge)
        scaled = np.ascontiguousarray(vectors.T * (roots.min() / roots))
        # Not by BLAS, whose sums depend on its threads.
        whitening = _core.row_products(scaled, vectors, n_threads)
        whitening = np.asarray(0.5 * (whitening + whitening.T))
        return _affine(whitening, centre, kept * roots.min()) if kept else whitening


# Plan of a fit that is one noisy sum.


NoisyTotal = NoisyMean | NoisyMoments | NoisyComponents | NoisyColumnMoments


@dataclass(frozen=True, kw_only=True)
class SumPlan(SumsPlan):
    """Plan of one noisy sum over all rows.

    Parameters
    ----------
    total : NoisyMean, NoisyMoments, NoisyComponents or NoisyColumnMoments
    public : PublicMap
        Map from raw rows to the summed rows.
    """

    total: NoisyTotal
    public: PublicMap

    @property
    def sums(self) -> tuple[NoisySum, ...]:
        """The only sum."""
        return (self.total.sum,)

    def run(self, rows: Rows, source: _core.NoiseSource) -> Any:
        """Make the release."""
        total: Any = self.total
        return total.release(*total.summed(rows, self.public), source, rows.n_threads)


# Running sums: what the rows of all periods so far add up to, released after every period.
#
# Proved in docs/proofs/private_scaling.md, section "Running sums". Noisy are not the sums G of the
# periods but C G, with a lower triangular Toeplitz matrix C near the root of that of ones; what is
# wanted of them is post-processing. A record is in one row of G, so it moves C G by the norm of a
# column of C. Nothing secret is kept: rows of earlier periods are handed over again.

# The entries of C are multiples of this, so that weighted sums are exact.
FACTOR_GRID = 2.0**-6
# Weighted sums with noise stay inside 64 bits.
MAX_STEPS = 2**61


def square_root_factor(n_periods: int) -> tuple[float, ...]:
    r"""Return :math:`\binom{2k}{k} 4^{-k}`, column 1 of C, in positive multiples of 2**-6.

    Examples
    --------
    >>> square_root_factor(4)
    (1.0, 0.5, 0.375, 0.3125)
    """
    found, entry = [], 1.0
    for k in range(n_periods):
        found.append(max(1.0, round(entry / FACTOR_GRID)) * FACTOR_GRID)
        entry *= (2 * k + 1) / (2 * k + 2)
    return tuple(found)


def sums_from(factor: tuple[float, ...], n_done: int) -> NDArray[np.float64]:
    """Return the weights that combine the releases so far into the sum over all periods."""
    weights = np.zeros(n_done)
    for k in range(n_done):
        weights[k] = 1.0 - np.dot(factor[1 : k + 1], weights[:k][::-1])
    return weights[::-1]


class RunningSums(NamedTuple):
    """Moments of all rows so far, and the noisy weighted sums of each period."""

    columns: ReleasedMoments
    releases: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RunningMoments(SumPlan):
    """Plan of the next release of running sums.

    Parameters
    ----------
    total : NoisyColumnMoments
        With a factor.
    before : ndarray of shape (n_done, n_numbers)
        Earlier releases, public.

    Notes
    -----
    Guarantees: this release is a Gaussian mechanism for records of each period so far, with the
    parameters of ``events``; all releases together are one with the parameter of ``total``.
    """

    by_age = True

    total: NoisyColumnMoments
    before: NDArray[np.float64]

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Cost of this release for records of this period, of the previous one, and so on."""
        noise = self.total.sum
        moved = mul_up(noise.relation_factor, noise.contribution)
        return tuple(
            GaussianEvent(noise.scale, mul_up(weight, moved), self.adjacency)
            for weight in noise.factor[: len(self.before) + 1]
        )

    def run(self, rows: Any, source: _core.NoiseSource) -> RunningSums:
        """Release the next weighted sum, and post-process all releases."""
        noise, now = self.total.sum, len(self.before)
        units: Any = np.zeros(noise.size, dtype=object)
        for period, weight in enumerate(reversed(noise.factor[: now + 1])):
            part = rows.of_period(period)
            own = self.total.units(*self.total.summed(part, self.public))
            # Exact integers: nothing is rounded.
            units += int(weight / FACTOR_GRID) * own.astype(object)
        exact = np.clip(units, -MAX_STEPS, MAX_STEPS).astype(np.int64)
        unit = SUM_GRID * FACTOR_GRID
        if noise.grid is None:
            noisy = exact * unit + source.gaussian(exact.size, noise.scale, rows.n_threads)
        else:
            drawn = source.gaussian_on_grid(exact.size, noise.scale, noise.grid, rows.n_threads)
            noisy = (exact + drawn).astype(np.float64) * noise.grid
        releases = np.vstack([self.before, noisy])
        weights = sums_from(noise.factor, now + 1)
        deviation = noise.scale * float(np.linalg.norm(weights))
        moved = mul_up(noise.relation_factor, noise.contribution)
        # As if there had been one sum with that noise.
        seen = replace(self.total, factor=(), mu=moved / deviation)
        total = (weights[:, None] * releases).sum(axis=0)
        return RunningSums(seen.finished(total, int(rows.n_rows)), releases)


# Class weights by noisy numbers of rows: the release of those, and the training after it.
#
# Proved in docs/proofs/persons.md, section "Class counts". Weights are functions of what was
# released, and at most 1 whatever that is: to the training they are public numbers.


# Share of the counts in the squared Gaussian parameter; smallest count used, in deviations of
# the noise.
CLASS_SHARE, MIN_COUNT = 0.02, 3.0


@dataclass(frozen=True, kw_only=True)
class ClassCounts(SumRelease):
    """Release of the number of rows of each class.

    Parameters
    ----------
    n_classes : int >= 2
    """

    n_classes: int

    @classmethod
    def before(cls, whole: Any, n_classes: int) -> ClassCounts:
        """Return the release with its share of a budget of ``epsilon`` and ``delta``."""
        mu = share_of(gaussian_parameter(whole.epsilon, whole.delta), CLASS_SHARE)
        return filled(cls, whole, mu=mu, epsilon=None, n_classes=n_classes)

    @cached_property
    def sum(self) -> NoisySum:
        """Noisy sum with its sensitivity."""
        factor = 1.0 if self.adjacency == "add_remove" else sqrt_up(2.0)
        facts: Any = {"clip_norm": 1.0, "relation_factor": factor, "shape": (self.n_classes,)}
        return self.of_multiples(2.0**-20, name="classes", **facts)

    def balance(self, rows: Rows, source: _core.NoiseSource) -> None:
        """Weight each class by the inverse of its noisy count, the rarest by 1."""
        noisy = self.sum.release(rows.class_counts(), source, rows.n_threads)
        # Counts that may be noise alone are raised.
        counts = np.maximum(noisy, max(1.0, MIN_COUNT * self.sum.scale))
        rows.balance(counts.min() / counts)


@dataclass(frozen=True, kw_only=True)
class BalancedPlan(Plan):
    """Plan of class counts and of training on rows weighted by them.

    Parameters
    ----------
    epsilon, delta : float
        Budget of both together.
    class_counts : ClassCounts
    training : Plan
        Plan of the training, with the budget that exact composition leaves.
    """

    epsilon: float
    delta: float
    class_counts: ClassCounts
    training: Any

    @classmethod
    def of(cls, whole: Any, facts: Facts, plan_of: Callable[..., Plan]) -> BalancedPlan:
        """Return the plan within a budget; ``plan_of`` plans the training for a given epsilon."""
        counts = ClassCounts.before(whole, facts.n_classes)
        spent, one = (counts.sum.event,), replace(facts, n_features=None)
        like = (spent, partial(plan_of, facts=one))
        training = within_budget(whole, spent, partial(plan_of, facts=facts), like=like)
        return filled(cls, whole, class_counts=counts, training=training)

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Event of the class counts, then events of the training."""
        return (self.class_counts.sum.event, *self.training.events)

    @property
    def weighed_training(self) -> Any:
        """Plan of the training after the class counts."""
        return self.training

    def run(self, rows: Rows, source: _core.NoiseSource) -> Any:
        """Release the class counts, then train and return the training's release."""
        self.class_counts.balance(rows, source)
        return self.training.run(rows, source)

    def summary(self) -> str:
        """Return a one-line summary of public facts."""
        return f"{self.training.summary()}, after noisy class counts"

    def statement(self, released: Any = None, **occasion: Any) -> PrivacyStatement:
        """Return the statement of both together."""
        own: PrivacyStatement = self.training.statement(released, **occasion)
        parts = (self.class_counts.sum.part, *own.parts)
        return replace(own, epsilon=self.epsilon, delta=self.delta, parts=parts)
