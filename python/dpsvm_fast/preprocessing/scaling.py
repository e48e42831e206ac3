"""Scaling of features: by public bounds alone, or by noisy means and variances."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import _core
from dpsvm_fast import _validation as check
from dpsvm_fast.accounting import PrivacyLedger
from dpsvm_fast.estimators._bounds import broadcast_bounds, checked_bounds, public_map
from dpsvm_fast.estimators._training import FEATURE_FACTS
from dpsvm_fast.estimators._training_data import (
    checked_outputs,
    checked_rows,
    checked_training_rows,
)
from dpsvm_fast.mechanisms._noisy_sum import gaussian_parameter
from dpsvm_fast.mechanisms._row_maps import PartitionedRows
from dpsvm_fast.mechanisms.scaling import NoisyColumnMoments
from dpsvm_fast.preprocessing._base import PrivateTransformer

__all__ = ["PrivateStandardScaler", "PublicScaler"]

Array = NDArray[np.float64]


class PublicScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Scaling by public bounds: learns nothing from the rows and spends no budget.

    Bounds :math:`[-b, b]` are mapped to [-1, 1], all others to [0, 1]; entries outside are clipped.

    Parameters
    ----------
    bounds : tuple of (low, high)
        Public bounds of the entries, numbers or arrays of shape (n_features,), ``low < high``. They
        must not come from the data: a minimum or a maximum of the rows is a leak.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

    Notes
    -----
    Guarantees: every row is mapped by itself, by public numbers, so what is private after this
    transformer was as private before it; ``total_privacy`` counts it as free. Proof:
    docs/proofs/private_scaling.md, section "Pipelines". Mapped rows have norm at most
    ``sqrt(n_features)``.

    Sparse rows stay sparse with ``low = 0`` or ``low = -high``; other bounds move zeros and are
    refused for them.

    Examples
    --------
    >>> from dpsvm_fast import PublicScaler
    >>> PublicScaler((0, [10, 200])).fit_transform([[5, 50], [12, -1]]).tolist()
    [[0.5, 0.25], [1.0, 0.0]]
    """

    # Nothing that this transformer does depends on more than one row.
    _learns_from_rows = False

    def __init__(self, bounds: Any) -> None:
        self.bounds = bounds

    def fit(self, X: Any, y: Any = None) -> PublicScaler:
        """Check the bounds and remember the number and names of the features.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        PublicScaler
            This transformer.

        Raises
        ------
        InvalidParameterError, TypeError
            Bounds that are none, or as many as X has no features.
        ValueError
            X is invalid; the text does not quote it.
        """
        checked_bounds(self.bounds)
        # Validation writes what it learns about X onto the copy, whether or not X is refused.
        probe = copy.copy(self)
        self._map(checked_training_rows(probe, X))
        for name in FEATURE_FACTS:
            self.__dict__.pop(name, None)
        facts = {name: vars(probe)[name] for name in FEATURE_FACTS if name in vars(probe)}
        self.__dict__.update(facts)
        return self

    def transform(self, X: Any) -> Any:
        """Rows under the map of the bounds; works without ``fit``.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray or CSR matrix of shape (n_samples, n_features)
            Entries in [0, 1], or in [-1, 1] with ``low = -high``.
        """
        X = checked_rows(self, X)
        return self._map(X).entries(X)

    def inverse_transform(self, X: Any) -> Any:
        """Entries back in their bounds; what was clipped stays at its bound.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray or CSR matrix of shape (n_samples, n_features)
        """
        X = checked_outputs(self, X)
        public = self._map(X)
        assert public.scale is not None
        if sparse.issparse(X):
            data = X.data / public.scale[X.indices]
            return sparse.csr_matrix((data, X.indices, X.indptr), shape=X.shape)
        rows = X / public.scale
        return np.asarray(rows if public.offset is None else rows + public.offset)

    def _map(self, X: Any) -> Any:
        """The public map for rows with so many features."""
        bounds = broadcast_bounds(checked_bounds(self.bounds), X.shape[1])
        return public_map(bounds, sparse_rows=sparse.issparse(X))

    def __sklearn_tags__(self) -> Any:
        """Sparse rows are accepted, and no fit is needed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.requires_fit = False
        return tags


class PrivateStandardScaler(OneToOneFeatureMixin, PrivateTransformer):
    r"""Standardisation by noisy means and variances, from public bounds.

    Every entry is mapped from its bounds to z in [-1, 1]. The sums of z and of
    :math:`\tfrac{11}{8} (z^2 - \tfrac{49}{64})` over the records, for all features, are released
    together with the number of records, in one release; rows become

    .. math:: (\mathrm{clip}(x, \mathit{low}, \mathit{high}) - \mathit{mean}) / \mathit{scale}.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 <= delta < 1; 0 takes noise of density proportional to
        ``exp(-beta ||b||)``, which is pure.
    bounds : tuple of (low, high)
        Public bounds of the entries, numbers or arrays of shape (n_features,), ``low < high``; they
        must not come from the data. Entries outside are clipped, in ``fit`` and in ``transform``.
        Noise grows with their width.
    with_std : bool, default=True
        Whether to divide by the noisy standard deviations. Without, all of the budget is for the
        means.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets: one row more or fewer, or one row exchanged for another; then the
        number of rows is public.
    random_state : int or None, default=None
        None takes the operating system's entropy. A seed makes the fit reproducible and thereby
        not private: a ``NotPrivateWarning``, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget to be asked before data are read and charged before noise is drawn.
    n_threads : int or None, default=None
        Threads; None is all cores that this process may use. Never changes the result.
    noise_grid : {"exact", "float"}, default="exact"
        "exact" draws Gaussian noise exactly on a power-of-two grid.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Noisy means, within the bounds; shrunk towards their middle by the share of the noise.
    scale_ : ndarray of shape (n_features,) or None
        Noisy standard deviations, at least 2**-10 of half the width of the bounds; None without
        ``with_std``.
    var_ : ndarray of shape (n_features,) or None
        Their squares, at most the largest float.
    n_samples_seen_ : float
        Noisy number of rows, at least 1; the public one with ``replace_one``.
    data_norm_ : float
        No transformed row is longer: the norm of the farthest corner of the bounds. A release like
        the others; an estimator after this one may have it, or any smaller number, as its
        ``data_norm``.
    bounds_ : tuple of two ndarrays of shape (n_features,)
        The bounds of the fit.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
    privacy_ : PrivacyStatement

    Notes
    -----
    Guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the
    relation ``adjacency``, provided that ``bounds``, the feature names and every other parameter
    were chosen without looking at the data. Proof: docs/proofs/private_scaling.md, sections
    "Moments from public bounds" and "Post-processing". Not covered: running time; floating-point
    effects with ``delta=0`` or ``noise_grid="float"``.

    How the budget is split: with d features, a record adds at most :math:`d (539/512)^2 + \sqrt d`
    to the squared length of the sum, the second part for the number of rows
    (``replace_one`` has none). Of the first part a feature's mean has all at the ends of its bounds
    and its mean square all in their middle: either costs what it would cost alone, within 5 % in
    the noise. The noise of a sum of z has the standard deviation :math:`\sigma`, that of a sum of
    :math:`z^2` has :math:`8 \sigma / 11`.

    A variance below twice the standard deviation of its own noise is set to that, so that noise
    never blows a column up; where even the variance of the uniform law on the bounds is below it,
    that public variance is taken. Constant features thus come out near 0. Sparse rows become dense.
    Sums saturate beyond 2**27 rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dpsvm_fast import PrivateStandardScaler
    >>> X, _ = load_iris(return_X_y=True)
    >>> scaler = PrivateStandardScaler(4.0, bounds=(0, 10), adjacency="replace_one").fit(X)
    >>> scaler.transform(X).shape, scaler.n_samples_seen_
    ((150, 4), 150.0)
    """

    _mechanism_name = "private_standard_scaler"
    _bounded_by = "bounds"
    _parameters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "bounds": checked_bounds,
        "with_std": partial(check.check_bool, "with_std"),
        **{k: v for k, v in PrivateTransformer._parameters.items() if k != "data_norm"},
    }

    mean_: Array
    scale_: Array | None
    var_: Array | None
    n_samples_seen_: float
    data_norm_: float
    bounds_: tuple[Array, Array]

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        bounds: Any,
        with_std: bool = True,
        adjacency: str = "add_remove",
        random_state: int | None = None,
        ledger: PrivacyLedger | None = None,
        n_threads: int | None = None,
        noise_grid: str = "exact",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.with_std = with_std
        self.adjacency = adjacency
        self.random_state = random_state
        self.ledger = ledger
        self.n_threads = n_threads
        self.noise_grid = noise_grid

    def _mechanism(self, settings: SimpleNamespace, n_features: int) -> NoisyColumnMoments:
        """The whole budget for one release."""
        pure = settings.delta == 0.0
        return NoisyColumnMoments(
            n_features=n_features,
            adjacency=settings.adjacency,
            noise_grid=settings.noise_grid,
            with_std=settings.with_std,
            mu=None if pure else gaussian_parameter(settings.epsilon, settings.delta),
            epsilon=settings.epsilon if pure else None,
        )

    def _check_shape(self, settings: SimpleNamespace, n_features: int) -> None:
        """As many bounds as features."""
        settings.bounds = broadcast_bounds(settings.bounds, n_features)

    def _records(self, X: Any, settings: SimpleNamespace) -> tuple[NDArray[Any], NDArray[Any]]:
        """The exact sums of the entries and of their squares."""
        middle, half = _middle_and_half(*settings.bounds)
        how: dict[str, Any] = {
            "offset": middle,
            "scale": 1.0 / half,
            "n_threads": settings.n_threads,
        }
        if isinstance(X, PartitionedRows):
            return X.column_moments(how["offset"], how["scale"])
        if sparse.issparse(X):
            return _core.column_moments_csr(X.data, X.indices, X.indptr, X.shape, **how)
        return _core.column_moments_dense(X, **how)

    def _facts(
        self, mechanism: NoisyColumnMoments, records: Any, X: Any, how: SimpleNamespace
    ) -> dict[str, Any]:
        """Means, scales and what follows from them."""
        first, second = records
        released = mechanism.release(first, second, X.shape[0], how.source, how.n_threads)
        low, high = how.bounds
        middle, half = _middle_and_half(low, high)
        mean = np.clip(middle + half * released.mean, low, high)
        scale = variance = None
        if released.variance is not None:
            scale = half * np.sqrt(released.variance)
            variance = squares(scale)
        return {
            "mean_": mean,
            "scale_": scale,
            "var_": variance,
            "n_samples_seen_": released.count,
            "data_norm_": _farthest(np.maximum(high - mean, mean - low), scale),
            "bounds_": (low, high),
        }

    def transform(self, X: Any) -> Array:
        """Rows, clipped to the bounds of the fit, less the means and over the scales.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Of norm at most ``data_norm_``.
        """
        check_is_fitted(self)
        X = checked_rows(self, X)
        rows = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
        rows = np.clip(rows, *self.bounds_) - self.mean_
        return np.asarray(rows if self.scale_ is None else rows / self.scale_)

    def inverse_transform(self, X: Any) -> Array:
        """Rows times the scales, plus the means; what was clipped stays at its bound.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = checked_outputs(self, X)
        rows = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
        return np.asarray((rows if self.scale_ is None else rows * self.scale_) + self.mean_)


def squares(scale: Array) -> Array:
    """Variances; the largest float where they are beyond the floats."""
    with np.errstate(over="ignore", under="ignore"):
        return np.minimum(scale**2, np.finfo(np.float64).max)


def _middle_and_half(low: Array, high: Array) -> tuple[Array, Array]:
    """Middle and half the width of bounds, without overflow."""
    return 0.5 * low + 0.5 * high, 0.5 * (high - low)


def _farthest(distances: Array, scale: Array | None) -> float:
    """Norm of the corner of the bounds that is farthest from the means, rounded up."""
    corner = distances if scale is None else distances / scale
    largest = float(corner.max())
    # Each operation, and each of a computed row, is off by less than this share.
    slack = 1.0 + (corner.size + 16.0) * np.finfo(np.float64).eps
    return largest * float(np.linalg.norm(corner / largest)) * slack
