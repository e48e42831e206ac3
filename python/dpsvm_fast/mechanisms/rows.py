"""Maps of rows by public or released numbers, including random features."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.arithmetic import quiet
from dpsvm_fast.certificates.record import Options, Range, Record

# Maps of single rows: the public one before anything is released, and the released one after it.
#
# Both act on each row by itself and know public or released numbers only, so applying them to the
# training rows costs no privacy and applying them to new rows is post-processing.


# Rows nearer than this to the centre are not stretched to norm 1: their direction is mostly noise.
SHORTEST_ROW = 0.0625
# Numbers in a block of rows: few enough for the caches, enough to outweigh the cost of a call.
BLOCK_SIZE = 1 << 20
# Norms below this would lose digits in their squares.
SAFE_NORM = 1e-140
# More would not fit in memory with a column's rows, and could hardly be told apart.
MAX_KNOTS = 1 << 16
# The constant behind mapped rows, as a part of the longest one's norm, and at most.
CONSTANT_SHARE, LARGEST_CONSTANT = 0.25, 1.0

Array = NDArray[np.float64]


def compiled_rows(X: Any) -> Any:
    """Return X for the compiled module: an array, or the parts of a CSR matrix."""
    if sparse.issparse(X):
        return X.data, X.indices, X.indptr, X.shape[1]
    return X


@dataclass(frozen=True, eq=False)
class PublicMap:
    r"""Map of raw rows to rows of norm at most 1, by public numbers only.

    .. math:: z = (\mathrm{clip}((x - o) \cdot c, l, h), a), \qquad
              u = z / \|z\| \text{ or } z \min(1, \kappa / \|z\|) / \kappa

    Parameters
    ----------
    offset, scale : ndarray of shape (n_features,) or None
        o and c; None for 0 and 1. Sparse rows need ``offset=None``.
    low, high : float
        Range of the mapped entries; infinite for no clipping.
    data_norm : float > 0
        Norm bound kappa. Not used with ``unit``.
    unit : bool
        Whether to scale every row to norm 1; zero rows stay zero.
    constant : float >= 0
        Constant a, appended to every row to preserve the information in its length. 0 for none.
    floor : ndarray of shape (n_features,) or None
        Lower ends of the columns, ``low`` or 0, if they differ between columns.
    splines : SplineMap or None
        Functions whose values take the place of the raw entries; None for the entries themselves.
    """

    offset: Array | None = None
    scale: Array | None = None
    low: float = -np.inf
    high: float = np.inf
    data_norm: float = 1.0
    unit: bool = True
    constant: float = 0.0
    floor: Array | None = None
    splines: SplineMap | None = None

    @property
    def n_added(self) -> int:
        """Number of entries that the map appends to a row."""
        return int(self.constant > 0.0)

    @classmethod
    def of_splines(cls, splines: SplineMap) -> PublicMap:
        """Return the map to functions of the columns with an appended constant, of norm 1."""
        ends = np.zeros(sum(splines.sizes)), np.ones(sum(splines.sizes))
        return replace(cls.lifted(*ends), splines=splines)

    @classmethod
    def lifted(cls, low: Array, high: Array) -> PublicMap:
        """Return the map to rows of norm 1 with an appended constant, from public bounds.

        Columns with low = 0 are mapped to [0, 1], which keeps zeros, and others to [-1, 1].

        Parameters
        ----------
        low, high : ndarray of shape (n_features,)
            ``low < high`` everywhere. Entries outside are clipped.
        """
        constant = min(CONSTANT_SHARE * math.sqrt(low.size), LARGEST_CONSTANT)
        from_zero = low == 0.0
        half = 0.5 * (high - low)
        middle, scale = np.where(from_zero, 0.0, low + half), 1.0 / np.where(from_zero, high, half)
        floor = None if from_zero.all() or not from_zero.any() else from_zero - 1.0
        return cls(
            offset=middle if middle.any() else None,
            scale=scale,
            low=0.0 if from_zero.all() else -1.0,
            high=1.0,
            constant=constant,
            floor=floor,
        )

    @classmethod
    def from_bounds(cls, low: Array, high: Array) -> PublicMap:
        """Return the map from public bounds: [-b, b] to [-1, 1], all others to [0, 1].

        Parameters
        ----------
        low, high : ndarray of shape (n_features,)
            ``low < high`` everywhere. Entries outside are clipped.
        """
        if np.array_equal(low, -high):
            return cls(scale=1.0 / high, low=-1.0, high=1.0)
        return cls(offset=low if low.any() else None, scale=1.0 / (high - low), low=0.0, high=1.0)

    def records(
        self, X: Any, codes: NDArray[np.int64], n_classes: int, n_threads: int, owners: Any = None
    ) -> _core.Records:
        """Return the mapped training rows with their labels and owners, if any. Private."""
        X = X if self.splines is None else self.splines.apply(X)
        if self.offset is not None and sparse.issparse(X):
            X = X.toarray()
        records = _core.Records(
            compiled_rows(X),
            codes,
            n_classes=n_classes,
            n_threads=n_threads,
            **{name: value for name, value in vars(self).items() if name != "splines"},
        )
        if owners is not None:
            records.own(owners.persons, owners.weights)
        return records

    @quiet
    def apply(self, X: Any) -> Any:
        """Return mapped rows in float64; CSR stays CSR.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (n_samples, n_features)
            Finite numbers.
        """
        X = X if self.splines is None else self.splines.apply(X)
        if sparse.issparse(X):
            return self._apply_csr(X)
        rows = self.entries(X)
        if self.constant > 0.0:
            rows = np.column_stack([rows, np.full(rows.shape[0], self.constant)])
        largest = np.abs(rows).max(axis=1, initial=0.0)
        rows /= np.where(largest == 0.0, 1.0, largest)[:, None]
        rows *= self._factors(largest, np.linalg.norm(rows, axis=1))[:, None]
        return rows

    @quiet
    def entries(self, X: Any) -> Any:
        """Return the entries z in float64, before normalisation; CSR stays CSR.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (n_samples, n_features)
            Finite numbers.
        """
        if sparse.issparse(X):
            # Zeros are mapped to zeros.
            data = X.data.astype(np.float64)
            if self.scale is not None:
                with np.errstate(over="ignore"):
                    data *= self.scale[X.indices]
            low = self.low if self.floor is None else self.floor[X.indices]
            data = np.clip(data, low, self.high)
            return sparse.csr_matrix((data, X.indices, X.indptr), shape=X.shape)
        rows = X.astype(np.float64)
        # Overflowing entries are clipped, or shrunk with their row by ``apply``.
        with np.errstate(over="ignore"):
            if self.offset is not None:
                rows -= self.offset
            if self.scale is not None:
                rows *= self.scale
        return np.clip(rows, self.low if self.floor is None else self.floor, self.high)

    def _apply_csr(self, X: Any) -> Any:
        """Do the work of ``apply`` for CSR: zeros are mapped to zeros."""
        rows = self.entries(X)
        if self.constant > 0.0:
            last = np.full((X.shape[0], 1), self.constant)
            rows = sparse.hstack([rows, last], format="csr")
        data = rows.data
        row_of = np.repeat(np.arange(X.shape[0]), np.diff(rows.indptr))
        largest = np.zeros(X.shape[0])
        # Rows that another thread changes meanwhile may hold NaN: their model is refused later.
        with np.errstate(invalid="ignore"):
            np.maximum.at(largest, row_of, np.abs(data))
        data /= np.where(largest == 0.0, 1.0, largest)[row_of]
        norms = np.sqrt(np.bincount(row_of, weights=data * data, minlength=X.shape[0]))
        data *= self._factors(largest, norms)[row_of]
        return rows

    def _factors(self, largest: Array, norms: Array) -> Array:
        """Return the factors of rows that are already divided by their largest entry."""
        norms = np.where(norms > 0.0, norms, 1.0)
        if self.unit:
            return np.asarray(1.0 / norms)
        with np.errstate(over="ignore", under="ignore"):
            return np.minimum(1.0 / norms, largest / self.data_norm)


@dataclass(frozen=True, eq=False)
class ReleasedMap:
    r"""Map that centres and whitens rows u of norm at most 1, by released numbers.

    .. math:: v = \frac{u - m}{\max(\|u - m\|, 1/16)}, \qquad
              v = \frac{M (u - m)}{\|M (u - m)\|} \text{ where there is an M}

    Parameters
    ----------
    centre : ndarray of shape (n_features,) or None
        Centre m; None for no centring.
    matrix : ndarray of shape (n_features, n_features) or None
        Whitening matrix M; None for no whitening.
    """

    centre: Array | None
    matrix: Array | None

    @quiet
    def apply(self, rows: Any) -> Any:
        """Return mapped rows; each depends on its input row only, to the last bit.

        Without a release rows stay as they are; otherwise sparse ones become dense.

        The summation order of a matrix product may depend on the number of rows. Then an additional
        record would change the rounding of all others.
        """
        if self.matrix is None and self.centre is None:
            return rows
        moved = self._moved(rows.toarray() if sparse.issparse(rows) else rows)
        return np.asarray(moved / self._floored(np.linalg.norm(moved, axis=1))[:, None])

    @quiet
    def scores(self, rows: Any, coef: Array, intercept: Array) -> Array:
        r"""Return scores :math:`\langle w, u - m \rangle / \nu(u) + b`; sparse rows are not mapped.

        Parameters
        ----------
        rows : ndarray or CSR matrix of shape (n_samples, n_features)
            Rows returned by a :class:`PublicMap`.
        coef : ndarray of shape (n_scores, n_features)
            Weights of the mapped row, times M.
        intercept : ndarray of shape (n_scores,)
        """
        at_centre = 0.0 if self.centre is None else coef @ self.centre
        products = row_scores(rows, coef) - at_centre
        return np.asarray(products / self._lengths(rows)[:, None] + intercept)

    def _moved(self, rows: Any) -> Array:
        """Return M (u - m)."""
        if self.matrix is None:
            return np.asarray(rows if self.centre is None else rows - self.centre)
        moved = row_scores(rows, self.matrix)
        return moved if self.centre is None else moved - self.matrix @ self.centre

    def _lengths(self, rows: Any) -> Array:
        """Return the norms of ``_moved`` rows; centring alone keeps sparse rows sparse."""
        if self.matrix is not None or not sparse.issparse(rows):
            return self._floored(np.linalg.norm(self._moved(rows), axis=1))
        squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
        if self.centre is not None:
            squares = squares - 2.0 * (rows @ self.centre) + self.centre @ self.centre
        return self._floored(np.sqrt(np.maximum(squares, 0.0)))

    def _floored(self, norms: Array) -> Array:
        """Limit norms from below, so that rows near the centre are not scaled to norm 1."""
        if self.matrix is None and self.centre is None:
            return np.ones_like(norms)
        if self.matrix is None:
            return np.maximum(norms, SHORTEST_ROW)
        return np.where(norms > SAFE_NORM, norms, 1.0)


def row_scores(rows: Any, coef: Array, n_threads: int = 1) -> Array:
    """Return products of rows and weights, shape (n_samples, n_scores).

    Each row of the result depends on that input row only, to the last bit. The rounding of a BLAS
    product may depend on the number of rows, so that one record would change predictions for
    others.

    Parameters
    ----------
    rows : ndarray or CSR matrix of shape (n_samples, n_features)
    coef : ndarray of shape (n_scores, n_features)
    n_threads : int, default=1
        Does not change the result.
    """
    if sparse.issparse(rows):
        return np.asarray(rows @ coef.T)
    matrix = np.ascontiguousarray(coef.T, dtype=np.float64)
    scores = np.empty((rows.shape[0], coef.shape[0]))
    for block in row_blocks(rows):
        own = np.ascontiguousarray(rows[block], dtype=np.float64)
        scores[block] = _core.row_products(own, matrix, n_threads)
    return scores


def mapped_scores(
    public: PublicMap,
    released: ReleasedMap,
    X: Any,
    coef: Array,
    intercept: Array,
    features: FourierFeatures | None = None,
    n_threads: int = 1,
) -> Array:
    """Return scores of raw rows, shape (n_samples, n_scores), block by block.

    Parameters
    ----------
    public : PublicMap
    released : ReleasedMap
    X : ndarray or CSR matrix of shape (n_samples, n_features)
    coef : ndarray of shape (n_scores, n_columns)
        Weights of the mapped rows, or of their random features.
    intercept : ndarray of shape (n_scores,)
    features : FourierFeatures or None, default=None
    n_threads : int, default=1
        Does not change the result.
    """
    scores = np.empty((X.shape[0], coef.shape[0]))
    width = max(X.shape[1], coef.shape[1])
    if sparse.issparse(X) and features is None and released.matrix is None:
        # Rows stay sparse, and each block costs a pass over all columns.
        width = max(X.nnz // max(1, X.shape[0]), coef.shape[0])
    for block in row_blocks(X, width):
        if features is None:
            scores[block] = released.scores(public.apply(X[block]), coef, intercept)
            continue
        mapped = released.apply(public.apply(X[block]))
        phi = _features(features, mapped, np.float64, n_threads)
        scores[block] = row_scores(phi, coef, n_threads) + intercept
    return scores


def mapped_rows(
    public: PublicMap, released: ReleasedMap, X: NDArray[Any], dtype: type, n_threads: int = 1
) -> NDArray[Any]:
    """Apply both maps to raw dense rows; each depends on its input row only."""
    rows: NDArray[Any] = np.empty((X.shape[0], X.shape[1] + public.n_added), dtype=dtype)

    def fill(block: slice) -> None:
        rows[block] = released.apply(public.apply(X[block]))

    # All threads' blocks together are as large as a single one would be.
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(fill, row_blocks(X, n_threads * X.shape[1])))
    return rows


def row_blocks(rows: Any, n_numbers: int | None = None) -> Iterator[slice]:
    """Yield slices of rows whose copies stay small.

    Parameters
    ----------
    rows : ndarray or CSR matrix of shape (n_samples, n_features)
    n_numbers : int or None
        Number of values held per row; None for the row itself.
    """
    step = max(1, BLOCK_SIZE // max(1, rows.shape[1] if n_numbers is None else n_numbers))
    for start in range(0, rows.shape[0], step):
        yield slice(start, min(start + step, rows.shape[0]))


# Public piecewise linear functions of single columns.


@dataclass(frozen=True)
class SplineMap(Record):
    """Hat functions of every column: 1 at one knot, 0 at the others, linear in between.

    Parameters
    ----------
    knots : tuple of tuple of float
        Increasing knots of each column, at least two. Entries outside are clipped.
    linear : tuple of bool
        Which columns are only scaled to [0, 1]: of two hats, only the second is used.
    """

    knots: tuple[Annotated[tuple[float, ...], Range(2, MAX_KNOTS)], ...]
    linear: tuple[bool, ...]

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Yield the rules for the knots of a column."""
        wrong = len(self.linear) != len(self.knots)
        yield wrong, "linear: expected one for each column"
        both = zip(self.knots, self.linear, strict=False)
        wrong = any(linear and len(knots) != 2 for knots, linear in both)
        yield wrong, "linear: expected two knots"
        wrong = not all(increasing(np.array(knots)) for knots in self.knots)
        yield wrong, "knots: expected increasing numbers"

    @property
    def sizes(self) -> list[int]:
        """Number of functions of each column."""
        both = zip(self.knots, self.linear, strict=True)
        return [1 if linear else len(knots) for knots, linear in both]

    @quiet
    def apply(self, X: Any) -> sparse.csr_matrix:
        """Return the values of all functions as CSR, in the precision of X.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (n_samples, n_features)
            Finite numbers.
        """
        blocks = [self._block(X[block]) for block in row_blocks(X, 4 * X.shape[1])]
        return sparse.vstack(blocks, format="csr")

    def _block(self, X: Any) -> sparse.csr_matrix:
        """Return the values for a block of rows, column by column."""
        rows = X.toarray() if sparse.issparse(X) else X
        n, width = rows.shape[0], 2 * len(self.knots) - sum(self.linear)
        values: NDArray[Any] = np.empty((width, n), dtype=rows.dtype)
        places = np.empty((width, n), dtype=np.int64)
        at = first = 0
        for column, given, linear in zip(rows.T, self.knots, self.linear, strict=True):
            knots = np.array(given)
            x = np.clip(column.astype(np.float64), knots[0], knots[-1])
            left = np.searchsorted(knots[1:-1], x, side="right")
            share = (x - knots[left]) / np.diff(knots)[left]
            if not linear:
                values[at], places[at] = 1.0 - share, first + left
                at, first = at + 1, first + 1
            values[at], places[at] = share, first + left
            at, first = at + 1, first + (1 if linear else knots.size - 1)
        starts = np.arange(0, values.size + 1, width)
        csr = sparse.csr_matrix((values.T.ravel(), places.T.ravel(), starts), shape=(n, first))
        csr.eliminate_zeros()
        return csr


def increasing(knots: Array) -> bool:
    """Return whether knots are finite and far enough apart to avoid division by zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.diff(knots)
    return bool(np.isfinite(steps).all() and (steps > np.finfo(np.float64).tiny).all())


# Public random Fourier features: what describes them, and where the map is drawn.
#
# Rahimi and Recht (NIPS 2007): with frequencies :math:`w_j` drawn from the spectrum of a kernel,
#
# .. math:: \phi(x) = D^{-1/2} (\cos\langle w_j, x\rangle, \sin\langle w_j, x\rangle)_{j \le D}
#
# has norm 1 for every x, and inner products that estimate the kernel. The frequencies come from a
# public seed and are independent of all data, so the map costs no privacy, and applied to private
# rows it keeps their bound (docs/proofs/random_features.md).


KERNELS = ("rbf", "laplacian")
# Beyond these, frequencies times rows leave the floats, or the kernel is constant.
SMALLEST_GAMMA, LARGEST_GAMMA = 1e-30, 1e30
# More would fill the memory after the budget is spent. Columns are numbered by 32 bits in the core.
MAX_COMPONENTS, MAX_COLUMNS = 2**20, 2**32 - 2
# With more features than this, products of sign matrices replace orthogonal Gaussian ones: they
# cost p log p operations a block of p frequencies instead of p d.
MAX_ROTATED = 64
# Maps that are kept ready; each holds its frequencies once or twice.
MAPS_KEPT = 4


def structure_of(kernel: str, n_features: int, *, orthogonal: bool) -> str:
    """Return the structure of the frequencies, "independent", "orthogonal" or "fast"."""
    if kernel != "rbf" or not orthogonal:
        return "independent"
    return "orthogonal" if n_features <= MAX_ROTATED else "fast"


@dataclass(frozen=True, kw_only=True)
class FourierFeatures(Record):
    r"""Public description of a map of rows to random Fourier features.

    Parameters
    ----------
    n_features : int >= 1
        Number of columns of a row.
    n_components : int >= 1
        Number D of frequencies, for 2 D features.
    gamma : float > 0
        Coefficient of the kernel: ``exp(-gamma ||x - x'||^2)`` for "rbf",
        ``exp(-gamma ||x - x'||_1)`` for "laplacian".
    kernel : {"rbf", "laplacian"}
    structure : {"independent", "orthogonal", "fast"}
        Dependence between the frequencies.
    centre : {"none", "sphere", "ball"}
        Public set of rows whose approximate mean feature is subtracted before features are scaled
        to norm 1 again.
    seed : int
        0 <= seed < 2**64. Public, and independent of the data.
    """

    n_features: Annotated[int, Range(1, MAX_COLUMNS)]
    n_components: Annotated[int, Range(1, MAX_COMPONENTS)]
    gamma: Annotated[float, Range(SMALLEST_GAMMA, LARGEST_GAMMA)]
    kernel: Annotated[str, Options(*KERNELS)]
    structure: Annotated[str, Options("independent", "orthogonal", "fast")]
    centre: Annotated[str, Options("none", "sphere", "ball")]
    seed: Annotated[int, Range(0, 2**64 - 1)]

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Yield the rule that only frequencies of 'rbf' may depend on each other."""
        other = self.kernel != "rbf" and self.structure != "independent"
        yield other, "structure: only frequencies of 'rbf' depend on each other"

    def map(self) -> _core.FourierMap:
        """Return the compiled map; equal descriptions give equal maps."""
        return _drawn(self)


@lru_cache(maxsize=MAPS_KEPT)
def _drawn(features: FourierFeatures) -> _core.FourierMap:
    """Return the compiled map, cached for many blocks of rows."""
    return _core.FourierMap(**vars(features))


def feature_rows(
    features: FourierFeatures, public: PublicMap, released: ReleasedMap, X: Any, n_threads: int
) -> NDArray[np.float32]:
    """Return random features of raw rows for a solver, shape (n_samples, 2 n_components).

    Each row depends only on its raw row and on public and released numbers, to the last bit.
    """
    rows = np.empty((X.shape[0], 2 * features.n_components), dtype=np.float32)
    for block in row_blocks(X, max(X.shape[1], 2 * features.n_components)):
        mapped = released.apply(public.apply(X[block]))
        rows[block] = _features(features, mapped, np.float32, n_threads)
    return rows


def _features(features: FourierFeatures, rows: Any, dtype: type, n_threads: int) -> NDArray[Any]:
    """Return random features of mapped rows in the given precision."""
    drawn = features.map()
    if sparse.issparse(rows):
        return drawn.transform(compiled_rows(rows.astype(dtype, copy=False)), n_threads)
    return drawn.transform(np.ascontiguousarray(rows, dtype=dtype), n_threads)
