"""Principal components of a noisy matrix of second moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import _core
from dpsvm_fast import _validation as check
from dpsvm_fast.accounting import PrivacyLedger
from dpsvm_fast.estimators._training_data import checked_numbers, checked_rows
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms._noisy_sum import gaussian_parameter
from dpsvm_fast.mechanisms._row_maps import PublicMap
from dpsvm_fast.mechanisms._settings import LARGEST
from dpsvm_fast.mechanisms.pca import NoisyComponents, Projection
from dpsvm_fast.preprocessing._base import PrivateTransformer, unlabelled

__all__ = ["PrivatePCA"]


def checked_centre(value: object) -> NDArray[np.float64] | None:
    """None, or the public point as an array of finite numbers."""
    if value is None:
        return None
    accepted = "None or a list of finite numbers, one for each feature"
    try:
        point = np.array(value, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        raise TypeError(f"centre: got {type(value).__name__}, expected {accepted}") from None
    if point.ndim != 1 or not np.isfinite(point).all():
        raise InvalidParameterError(f"centre: expected {accepted}")
    if not (np.abs(point) <= LARGEST).all():
        raise InvalidParameterError(f"centre: expected numbers from {-LARGEST:g} to {LARGEST:g}")
    return point


def checked_n_components(value: object) -> int | None:
    """None, or a number of components."""
    return None if value is None else check.check_integer("n_components", value, 1)


class PrivatePCA(ClassNamePrefixFeaturesOutMixin, PrivateTransformer):
    r"""Principal components of a noisy matrix of second moments.

    With :math:`u_i` the rows minus the public ``centre`` c, clipped to norm :math:`\kappa` =
    ``data_norm`` and divided by it, the components are the leading eigenvectors of

    .. math:: A = \sum_i u_i u_i^\top + E, \qquad
              E_{jj} \sim N(0, \sigma^2), \quad E_{jk} = E_{kj} \sim N(0, \sigma^2 / 2),

    and a row x becomes V clip(x - c), clipped to norm ``data_norm`` again.

    Parameters
    ----------
    n_components : int or None, default=None
        Number k of components, 1 to n_features; None for n_features.
    epsilon : float, default=1.0
        Privacy parameter, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 < delta < 1.
    data_norm : float, default=1.0
        Public bound of the norm of rows minus the centre; longer ones are scaled down to it,
        silently, in ``fit`` and in ``transform``.
    centre : array-like of shape (n_features,) or None, default=None
        Public point that the rows are taken relative to; None for the origin. The released mean of
        a ``PrivateCenter`` will do, the mean of private rows will not.
    whiten : bool, default=False
        Whether coordinates are scaled towards equal second moments, by factors of at most 1:

        .. math:: s_j = \sqrt{\frac{\max(\lambda_k, 0) + r}{\max(\lambda_j, 0) + r}}, \qquad
                  r = 0.35\, \sigma \sqrt{2 d}

        for the noisy eigenvalues :math:`\lambda_1 \ge \dots \ge \lambda_k`. Rows stay within
        ``data_norm``.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets: one row more or fewer, or one row exchanged for another.
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
    components_ : ndarray of shape (n_components, n_features)
        V: eigenvectors, of norm 1, by descending eigenvalue. The entry of largest magnitude of
        each is positive.
    eigenvalues_ : ndarray of shape (n_components,)
        Of ``data_norm**2 * A``: noisy sums over the rows of their squared coordinates, in squared
        units of X; small ones are mostly noise and may be negative.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        Their shares of the trace of that noisy matrix, within [0, 1]. Of second moments about
        ``centre``, not about the mean.
    scales_ : ndarray of shape (n_components,)
        s with ``whiten``, ones without.
    centre_ : ndarray of shape (n_features,)
        The public point.
    n_components_ : int
    data_norm_ : float
        The bound of the fit.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
    privacy_ : PrivacyStatement

    Notes
    -----
    Guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the
    relation ``adjacency``, provided that ``data_norm``, ``centre``, the feature names and every
    other parameter were chosen without looking at the data. Proof: docs/proofs/private_pca.md. Not
    covered: running time; floating-point effects with ``noise_grid="float"``.

    The sensitivity of the matrix is 1 for add_remove and sqrt(2) for replace_one; the spectral
    norm of the noise is about :math:`\sigma \sqrt{2 d}`, and components with eigenvalues below it
    are noise. Nothing is divided by the number of rows, which is private with add_remove.

    ``fit`` takes O(n d^2) work and memory for five matrices of d^2 numbers. Projected rows are
    dense; sparse rows with a ``centre`` become dense in ``fit`` too.

    References
    ----------
    Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss", STOC 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from dpsvm_fast import ObjectivePerturbationSVC, PrivatePCA
    >>> X, y = load_digits(return_X_y=True)
    >>> pca = PrivatePCA(16, 2.0, data_norm=60.0, centre=[8.0] * 64)
    >>> svc = ObjectivePerturbationSVC(6.0, classes=range(10), data_norm=60.0)
    >>> make_pipeline(pca, svc).fit(X, y)[0].components_.shape
    (16, 64)
    """

    _mechanism_name = "private_pca"
    _parameters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "n_components": checked_n_components,
        **PrivateTransformer._parameters,
        "centre": checked_centre,
        "whiten": partial(check.check_bool, "whiten"),
    }

    components_: NDArray[np.float64]
    eigenvalues_: NDArray[np.float64]
    explained_variance_ratio_: NDArray[np.float64]
    scales_: NDArray[np.float64]
    centre_: NDArray[np.float64]
    n_components_: int
    data_norm_: float

    def __init__(
        self,
        n_components: int | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        data_norm: float = 1.0,
        centre: ArrayLike | None = None,
        whiten: bool = False,
        adjacency: str = "add_remove",
        random_state: int | None = None,
        ledger: PrivacyLedger | None = None,
        n_threads: int | None = None,
        noise_grid: str = "exact",
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.centre = centre
        self.whiten = whiten
        self.adjacency = adjacency
        self.random_state = random_state
        self.ledger = ledger
        self.n_threads = n_threads
        self.noise_grid = noise_grid

    def _check_shape(self, settings: SimpleNamespace, n_features: int) -> None:
        """As many components as there are features, and a centre of that length."""
        if settings.n_components is not None and settings.n_components > n_features:
            raise InvalidParameterError.of(
                "n_components",
                got=settings.n_components,
                accepted=f"at most {n_features}, the number of features",
            )
        if settings.centre is not None and settings.centre.size != n_features:
            raise InvalidParameterError(
                f"centre: got {settings.centre.size} numbers, expected {n_features}, one for each "
                "feature"
            )

    def _learned(self, n_features: int) -> int:
        """A matrix."""
        return n_features**2

    def _mechanism(self, settings: SimpleNamespace, n_features: int) -> NoisyComponents:
        """The whole budget for the second moments."""
        if settings.delta == 0.0:
            raise InvalidParameterError.of("delta", got=0.0, accepted="a number in (0, 1)")
        return NoisyComponents(
            n_features=n_features,
            adjacency=settings.adjacency,
            noise_grid=settings.noise_grid,
            mu=gaussian_parameter(settings.epsilon, settings.delta),
        )

    def _records(self, X: Any, settings: SimpleNamespace) -> Any:
        """Rows minus the centre, over the bound of their norm."""
        if settings.centre is not None and sparse.issparse(X):
            X = X.toarray()
        public = PublicMap(offset=settings.centre, unit=False, data_norm=settings.data_norm)
        return unlabelled(public, X, settings.n_threads)

    def _facts(
        self, mechanism: NoisyComponents, records: _core.Records, X: Any, how: SimpleNamespace
    ) -> dict[str, Any]:
        """The components and what belongs to them."""
        d = mechanism.n_features
        k = d if how.n_components is None else how.n_components
        moments = records.gram(how.n_threads)
        released = mechanism.release(moments, k, how.source, how.n_threads)
        return {
            "components_": released.vectors,
            "eigenvalues_": released.values * how.data_norm**2,
            "explained_variance_ratio_": released.shares,
            "scales_": mechanism.scales(released.values) if how.whiten else np.ones(k),
            "centre_": np.zeros(d) if how.centre is None else how.centre,
            "n_components_": k,
        }

    def _projection(self) -> Projection:
        """The released map of rows."""
        return Projection(self.components_, self.scales_, self.centre_, self.data_norm_)

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Coordinates of rows, minus the centre and clipped, along the components.

        Every row is a function of itself and of fitted attributes alone, to the last bit.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Rows of norm at most ``data_norm``.
        """
        check_is_fitted(self)
        n_threads = check.check_n_threads(self.n_threads)
        return self._projection().apply(checked_rows(self, X), n_threads)

    def inverse_transform(self, X: Any) -> NDArray[np.float64]:
        """Rows in the features' space with these coordinates along the components.

        What lies across the components, and beyond ``data_norm``, is gone.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        coordinates = checked_numbers(X)
        if coordinates.shape[1] != self.n_components_:
            raise ValueError(
                f"X: got {coordinates.shape[1]} columns, expected {self.n_components_}, one for "
                "each component"
            )
        return self._projection().invert(coordinates)

    @property
    def _n_features_out(self) -> int:
        """Number of columns, for their names."""
        return self.n_components_
