r"""Noisy cluster centres of every class: which ellipsoid of its class a record belongs to.

Proved in docs/proofs/gaussian_margin.md, section "Mixtures". A few steps of Lloyd's algorithm, each
from one noisy sum over the records. With q a record's row of norm at most 1, rounded towards zero
to multiples of 2**-20, a record adds (q, 1/2) to the cell of its nearest centre, and nothing to all
other cells: of norm at most :math:`\sqrt{1 + 1/4}`, however many cells there are. The cell is a
function of the record and of what was released before.

In the first step every class is one cell. Its noisy mean is where the next cells meet, in
directions from a public seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast._rounding import sqrt_up
from dpsvm_fast.accounting.words import summed
from dpsvm_fast.mechanisms._noise_grid import grid_of_sums
from dpsvm_fast.mechanisms._noisy_sum import NoisySum
from dpsvm_fast.mechanisms._row_maps import row_blocks
from dpsvm_fast.mechanisms._settings import RELATION_FACTOR

__all__ = ["STEPS", "NoisyAnchors", "nearest_ellipsoids"]

# Sums released: the classes' means, and two steps of Lloyd's algorithm.
STEPS = 3
# Rows are rounded to multiples of this, so that their sums are sums of integers.
ROW_GRID = 2.0**-20
# Rounding to nearest may have lengthened a row, by less than 2**-23 in single precision.
SHORTER = 1.0 - 2.0**-20
# A cell's number of records beside the sum of its rows.
COUNT_SCALE = 0.5
# A cell moves where it has this many deviations of the noise in its number, and its records.
LEAST_COUNT = 3.0
# Distance of the first centres from the mean of their class.
SPREAD = 0.25

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class NoisyAnchors:
    """Release of one centre for each ellipsoid.

    Parameters
    ----------
    n_classes, n_ellipsoids, n_features : int
        Ellipsoids are counted for each class.
    adjacency : {"add_remove", "replace_one"}
    noise_grid : {"exact", "float"}
        How Gaussian noise is drawn.
    mu : float > 0 or None
        Parameter of the Gaussian noise of one sum.
    epsilon : float > 0 or None
        Of the Gamma noise of one sum; exactly one of the two.

    Notes
    -----
    Guarantees: ``release`` is the composition of ``STEPS`` Gaussian mechanisms with parameter
    ``mu``, or of ``STEPS`` epsilon-private ones, for rows of norm at most 1.
    """

    n_classes: int
    n_ellipsoids: int
    n_features: int
    adjacency: str
    noise_grid: str
    mu: float | None = None
    epsilon: float | None = None

    @cached_property
    def sum(self) -> NoisySum:
        """The noise of one step and what it covers."""
        shape = (self.n_classes * self.n_ellipsoids, self.n_features + 1)
        clip_norm = sqrt_up(1.0 + COUNT_SCALE**2)
        factor = float(RELATION_FACTOR[self.adjacency])
        grid, rounding = None, 0.0
        if self.mu is not None and self.noise_grid == "exact":
            grid, rounding = grid_of_sums(
                ROW_GRID, 2.0 * factor * clip_norm / self.mu, shape[0] * shape[1]
            )
        return NoisySum(
            name="anchors",
            what=summed("anchors", self.adjacency),
            adjacency=self.adjacency,
            clip_norm=clip_norm,
            relation_factor=factor,
            shape=shape,
            mu=self.mu,
            epsilon=self.epsilon,
            grid=grid,
            rounding=rounding,
        )

    @property
    def sums(self) -> tuple[NoisySum, ...]:
        """All steps, for the statement and the ledger."""
        return (self.sum,) * STEPS

    def release(
        self, rows: Array, codes: Labels, source: _core.NoiseSource, n_threads: int
    ) -> Array:
        """Centres of shape (n_classes * n_ellipsoids, n_features).

        Parameters
        ----------
        rows : ndarray of shape (n_samples, n_features)
            Of norm at most 1 up to rounding.
        codes : ndarray of shape (n_samples,)
            Classes.
        source : NoiseSource
        n_threads : int
            Does not change the result.
        """
        public = np.random.default_rng(source.public_seed())
        points = np.zeros((self.sum.shape[0], self.n_features))
        for step in range(STEPS):
            total = self._total(rows, codes, None if step == 0 else points)
            noisy = self.sum.release(total.ravel(), source, n_threads).reshape(self.sum.shape)
            points = self._means(noisy, points)
            if step == 0:
                means = np.repeat(points[:: self.n_ellipsoids], self.n_ellipsoids, axis=0)
                points = means + SPREAD * np.tile(self._directions(public), (self.n_classes, 1))
        return points

    def _total(self, rows: Array, codes: Labels, points: Array | None) -> Array:
        """Exact sums over the cells: integers, multiples of 2**-20."""
        total = np.zeros(self.sum.shape, dtype=np.int64)
        for block in row_blocks(rows):
            steps = _row_steps(rows[block])
            cells = codes[block] * self.n_ellipsoids
            if points is not None:
                cells = nearest_ellipsoids(rows[block], codes[block], points, self.n_ellipsoids)
            counted = np.full((len(cells), 1), round(COUNT_SCALE / ROW_GRID))
            np.add.at(total, cells, np.hstack([steps, counted]))
        # Below 2**33 records no sum has more than 53 bits.
        return total.astype(np.float64) * ROW_GRID

    def _means(self, noisy: Array, points: Array) -> Array:
        """Post-processing: new centres where enough records tell, old ones elsewhere."""
        half_counts = noisy[:, -1:]
        known = half_counts > LEAST_COUNT * self.sum.deviation
        means = noisy[:, :-1] / np.where(known, half_counts / COUNT_SCALE, 1.0)
        lengths = np.linalg.norm(means, axis=1, keepdims=True)
        means = means / np.maximum(lengths, 1.0)
        return np.where(known & np.isfinite(means).all(axis=1, keepdims=True), means, points)

    def _directions(self, public: np.random.Generator) -> Array:
        """Unit vectors, one an ellipsoid; orthogonal where there is room, from public numbers."""
        drawn = public.standard_normal((self.n_ellipsoids, self.n_features))
        if self.n_ellipsoids <= self.n_features:
            return np.linalg.qr(drawn.T)[0].T
        return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def nearest_ellipsoids(rows: Array, codes: Labels, points: Array, n_ellipsoids: int) -> Labels:
    """Ellipsoid of each record: the nearest centre of its own class, by the record alone.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
    codes : ndarray of shape (n_samples,)
    points : ndarray of shape (n_classes * n_ellipsoids, n_features)
    n_ellipsoids : int
    """
    own = points.reshape(-1, n_ellipsoids, points.shape[1])
    cells = np.empty(len(codes), dtype=np.int64)
    for block in row_blocks(rows, n_ellipsoids * rows.shape[1]):
        gaps = _row_steps(rows[block])[:, None, :] * ROW_GRID - own[codes[block]]
        # Every sum over the features in the same order, whatever other records there are.
        cells[block] = (gaps * gaps).sum(axis=2).argmin(axis=1)
    return codes * n_ellipsoids + cells


def _row_steps(rows: NDArray[np.floating]) -> NDArray[np.int64]:
    """Rows in units of 2**-20, rounded towards zero: of norm at most 1 exactly."""
    scaled = rows.astype(np.float64) * (SHORTER / ROW_GRID)
    return np.asarray(np.trunc(scaled).astype(np.int64))
