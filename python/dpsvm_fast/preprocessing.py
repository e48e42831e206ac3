"""Private transformers: noisy means, components and scales; public scaling and features.

Each works in a scikit-learn ``Pipeline``; each private one spends a budget of its own in ``fit``.
What they publish is noisy; everything that they compute from it is post-processing.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import _core
from dpsvm_fast import validation as check
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.certificates import PrivacyStatement
from dpsvm_fast.certificates.words import FLOATING_POINT_CAVEAT, RUNNING_TIME_CAVEAT
from dpsvm_fast.estimators.base import Released
from dpsvm_fast.estimators.fit import FEATURE_FACTS, promise_facts, spend_label, warn_not_private
from dpsvm_fast.estimators.inputs import (
    broadcast_bounds,
    check_room,
    checked_bounds,
    checked_numbers,
    checked_outputs,
    checked_rows,
    checked_training_rows,
    public_map,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.ledger import PrivacyLedger, check_ledger
from dpsvm_fast.mechanisms.moments import (
    NoisyColumnMoments,
    NoisyComponents,
    NoisyMean,
    NoisyMoments,
    Projection,
)
from dpsvm_fast.mechanisms.noise import (
    LARGEST,
    NOISE_GRIDS,
    NoisySum,
    check_range,
    gaussian_parameter,
)
from dpsvm_fast.mechanisms.rows import (
    KERNELS,
    LARGEST_GAMMA,
    MOST_COMPONENTS,
    SMALLEST_GAMMA,
    FourierFeatures,
    PartitionedRows,
    PublicMap,
    row_blocks,
    structure_of,
)

__all__ = [
    "PrivateCenter",
    "PrivatePCA",
    "PrivateStandardScaler",
    "PrivateWhitener",
    "PublicScaler",
    "RandomFourierFeatures",
    "clipped_rows",
    "unlabelled",
]


# What private transformers have in common: one noisy sum over rows of bounded norm.


Fitted = TypeVar("Fitted", bound="PrivateTransformer")


class PrivateTransformer(Released, TransformerMixin, BaseEstimator):
    """Base of transformers whose fitted attributes follow from one noisy sum over the rows."""

    _mechanism_name: ClassVar[str]
    # The public parameter on which the sensitivity rests.
    _bounded_by: ClassVar[str] = "data_norm"
    _parameters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "epsilon": check.check_epsilon,
        "delta": check.check_delta,
        "data_norm": partial(check.check_positive, "data_norm"),
        "adjacency": check.check_adjacency,
        "random_state": check.check_random_state,
        "n_threads": check.check_n_threads,
        "noise_grid": partial(check.check_option, "noise_grid", options=NOISE_GRIDS),
    }

    n_features_in_: int
    privacy_: PrivacyStatement

    @abstractmethod
    def _mechanism(self, settings: SimpleNamespace, n_features: int) -> Any:
        """The release for rows of so many features; its ``sum`` has the noise."""

    @abstractmethod
    def _facts(self, mechanism: Any, records: Any, X: Any, how: SimpleNamespace) -> dict[str, Any]:
        """Makes the release; returns the attributes to publish. ``X`` knows the number of rows."""

    def _learned(self, n_features: int) -> int:
        """How many numbers a fit learns."""
        return n_features

    def _check_shape(self, settings: SimpleNamespace, n_features: int) -> None:
        """Refuse parameters that do not go with so many features, before anything is spent."""

    def _records(self, X: Any, settings: SimpleNamespace) -> Any:
        """The rows as ``_facts`` takes them: over the bound of their norm, longer ones clipped."""
        return unlabelled(_public_map(settings.data_norm), X, settings.n_threads)

    @in_usual_arithmetic
    def fit(self: Fitted, X: Any, y: Any = None) -> Fitted:
        """Spend the budget on private rows and publish what came out.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers; rows longer than ``data_norm`` are scaled down to it, silently.
        y : ignored

        Returns
        -------
        object
            This transformer.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter is outside its range. Nothing was read or spent.
        BudgetExceededError
            The ledger refuses. Nothing was read or spent.
        ValueError
            X is invalid; the text does not quote it. Nothing was spent.
        """
        self._forget()
        settings = self._checked_parameters()
        warn_not_private(settings)
        probe = copy.copy(self)
        X = checked_training_rows(probe, X)
        facts = {name: vars(probe)[name] for name in FEATURE_FACTS if name in vars(probe)}
        self._fit_on(X, facts, settings)
        return self

    def _fit_on(self, X: Any, feature_facts: dict[str, Any], settings: SimpleNamespace) -> None:
        """Spend, release and publish; ``X`` may be a PartitionedRows."""
        n_features = feature_facts["n_features_in_"]
        self._check_shape(settings, n_features)
        mechanism = self._mechanism(settings, n_features)
        check_room(self._learned(n_features))
        settings.source = _core.NoiseSource(settings.random_state)
        if settings.ledger is not None:
            settings.ledger.spend(mechanism.event, spend_label(self, settings))
        records = self._records(X, settings)
        facts = self._facts(mechanism, records, X, settings)
        if "data_norm" in self._parameters:
            facts["data_norm_"] = settings.data_norm
        statement = self._statement(mechanism.sum, settings)
        self.__dict__.update(facts | feature_facts, privacy_=statement)

    def _checked_parameters(self) -> SimpleNamespace:
        """All parameters in their ranges and affordable; reads no data."""
        check.check_arithmetic()
        settings = SimpleNamespace(
            **{name: test(getattr(self, name)) for name, test in self._parameters.items()}
        )
        settings.parameter_names = tuple(self._parameters)
        if "data_norm" in self._parameters:
            check_range("data_norm", settings.data_norm, "the bound of the rows' norm")
        settings.ledger = check_ledger(self.ledger, settings.adjacency)
        mechanism = self._mechanism(settings, 1)
        if settings.ledger is not None:
            settings.ledger.check(mechanism.event)
        return settings

    def _statement(self, released: NoisySum, settings: SimpleNamespace) -> PrivacyStatement:
        """What this fit promises."""
        floating_point = released.grid is None
        return PrivacyStatement(
            mechanism=self._mechanism_name,
            loss="none",
            adjacency=settings.adjacency,
            epsilon=settings.epsilon,
            delta=settings.delta,
            parts=(released.part,),
            caveats=(RUNNING_TIME_CAVEAT, *((FLOATING_POINT_CAVEAT,) if floating_point else ())),
            **promise_facts(settings, self._bounded_by),
        )

    def __sklearn_tags__(self) -> Any:
        """Sparse rows are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _public_map(data_norm: float) -> PublicMap:
    """Rows over the bound of their norm."""
    return PublicMap(unit=False, data_norm=data_norm)


def unlabelled(public: PublicMap, X: Any, n_threads: int) -> Any:
    """Records of rows without labels: every one is of class 0."""
    if isinstance(X, PartitionedRows):
        return X.mapped_records(public, 2)
    return public.records(X, np.zeros(X.shape[0], dtype=np.int64), 2, n_threads)


def clipped_rows(X: Any, data_norm: float) -> Any:
    """Rows scaled down to the bound where they are longer; CSR stays CSR."""
    return _public_map(data_norm).apply(X) * data_norm


# Centring by a noisy mean.


class PrivateCenter(OneToOneFeatureMixin, PrivateTransformer):
    r"""Centring by a noisy mean.

    The sum of the rows, clipped to norm ``data_norm``, and their number are released together with
    noise; the mean is their quotient, shrunk towards zero by the share of noise in its length.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 <= delta < 1; 0 takes noise of density proportional to
        ``exp(-beta ||b||)``, which is pure.
    data_norm : float, default=1.0
        Public bound of the rows' L2 norm; longer rows are scaled down to it, silently, in ``fit``
        and in ``transform``.
    dense_output : bool, default=False
        Whether ``transform`` may make sparse rows dense; otherwise it refuses them.
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
        Noisy mean of the clipped rows, of norm at most ``data_norm``.
    n_samples_ : float
        Noisy number of rows, at least 1; the public one with ``replace_one``.
    data_norm_ : float
        The bound of the fit.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
    privacy_ : PrivacyStatement

    Notes
    -----
    Guarantees: ``mean_`` and ``n_samples_`` together are (epsilon, delta)-differentially private
    for the relation ``adjacency``, provided that ``data_norm``, the feature names and every other
    parameter were chosen without looking at the data. Proof: docs/proofs/auto_pipeline.md,
    sections "Exact sums" and "Centre". Not covered: running time; floating-point effects with
    ``delta=0`` or ``noise_grid="float"``.

    Centred rows have norm up to ``2 data_norm``. scikit-learn's ``Normalizer`` afterwards brings
    them to norm 1 at no cost.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer
    >>> from dpsvm_fast import ObjectivePerturbationSVC, PrivateCenter
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_pipeline(
    ...     Normalizer(),
    ...     PrivateCenter(0.5),
    ...     Normalizer(),
    ...     ObjectivePerturbationSVC(3.0, classes=range(10)),
    ... ).fit(X, y)
    >>> model[1].mean_.shape
    (64,)
    """

    _mechanism_name = "private_center"
    _parameters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **PrivateTransformer._parameters,
        "dense_output": partial(check.check_bool, "dense_output"),
    }

    mean_: NDArray[np.float64]
    n_samples_: float

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        data_norm: float = 1.0,
        dense_output: bool = False,
        adjacency: str = "add_remove",
        random_state: int | None = None,
        ledger: PrivacyLedger | None = None,
        n_threads: int | None = None,
        noise_grid: str = "exact",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.dense_output = dense_output
        self.adjacency = adjacency
        self.random_state = random_state
        self.ledger = ledger
        self.n_threads = n_threads
        self.noise_grid = noise_grid

    def _mechanism(self, settings: SimpleNamespace, n_features: int) -> NoisyMean:
        """The whole budget for the mean."""
        pure = settings.delta == 0.0
        return NoisyMean(
            n_features=n_features,
            adjacency=settings.adjacency,
            noise_grid=settings.noise_grid,
            mu=None if pure else gaussian_parameter(settings.epsilon, settings.delta),
            epsilon=settings.epsilon if pure else None,
        )

    def _facts(
        self, mechanism: NoisyMean, records: _core.Records, X: Any, how: SimpleNamespace
    ) -> dict[str, Any]:
        """Mean and number of rows."""
        total = records.sums(how.n_threads)
        released = mechanism.release(total, X.shape[0], how.source, how.n_threads)
        return {"mean_": how.data_norm * released.point, "n_samples_": released.count}

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Rows, clipped to the bound of the fit, minus the noisy mean.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)

        Raises
        ------
        TypeError
            Sparse rows without ``dense_output=True``.
        """
        check_is_fitted(self)
        X = checked_rows(self, X)
        if sparse.issparse(X) and not self.dense_output:
            raise TypeError(
                "X: centred sparse rows are dense; use dense_output=True, or PrivateLinearSVC, "
                "which centres sparse rows without making them dense"
            )
        rows = clipped_rows(X, self.data_norm_)
        return np.asarray((rows.toarray() if sparse.issparse(rows) else rows) - self.mean_)


# Whitening by a noisy matrix of second moments.


class PrivateWhitener(ClassNamePrefixFeaturesOutMixin, PrivateTransformer):
    r"""Whitening by a noisy matrix of second moments.

    With A the sum of :math:`u u^\top` over the rows, divided by and clipped to norm ``data_norm``,
    plus symmetric Gaussian noise, negative eigenvalues set to 0, rows become M u with

    .. math:: M \propto (A + r I)^{-1/2}, \qquad r = 0.35\, \sigma \sqrt{2 d}

    scaled to spectral norm 1, so that rows stay within ``data_norm``. It helps where the noise, of
    spectral norm about :math:`\sigma \sqrt{2 d}`, is small beside the number of rows. Rows should
    be centred before.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 < delta < 1.
    data_norm : float, default=1.0
        Public bound of the rows' L2 norm; longer rows are scaled down to it, silently, in ``fit``
        and in ``transform``.
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
    whitening_ : ndarray of shape (n_features, n_features)
        M, symmetric and positive definite.
    data_norm_ : float
        The bound of the fit.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
    privacy_ : PrivacyStatement

    Notes
    -----
    Guarantees: ``whitening_`` is (epsilon, delta)-differentially private for the relation
    ``adjacency``, provided that ``data_norm``, the feature names and every other parameter were
    chosen without looking at the data. Proof: docs/proofs/auto_pipeline.md, sections "Exact sums"
    and "Whitening". Not covered: running time; floating-point effects with ``noise_grid="float"``.

    Sparse rows become dense. The matrix takes O(n d^2) work and d^2 memory.

    References
    ----------
    Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss", STOC 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsvm_fast import PrivateWhitener
    >>> X, _ = load_digits(return_X_y=True)
    >>> PrivateWhitener(8.0, data_norm=60.0).fit_transform(X).shape
    (1797, 64)
    """

    _mechanism_name = "private_whitener"

    whitening_: NDArray[np.float64]

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        data_norm: float = 1.0,
        adjacency: str = "add_remove",
        random_state: int | None = None,
        ledger: PrivacyLedger | None = None,
        n_threads: int | None = None,
        noise_grid: str = "exact",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.adjacency = adjacency
        self.random_state = random_state
        self.ledger = ledger
        self.n_threads = n_threads
        self.noise_grid = noise_grid

    def _learned(self, n_features: int) -> int:
        """A matrix."""
        return n_features**2

    def _mechanism(self, settings: SimpleNamespace, n_features: int) -> NoisyMoments:
        """The whole budget for the second moments."""
        if settings.delta == 0.0:
            raise InvalidParameterError.of("delta", got=0.0, accepted="a number in (0, 1)")
        return NoisyMoments(
            n_features=n_features,
            adjacency=settings.adjacency,
            noise_grid=settings.noise_grid,
            mu=gaussian_parameter(settings.epsilon, settings.delta),
        )

    def _facts(
        self, mechanism: NoisyMoments, records: _core.Records, X: Any, how: SimpleNamespace
    ) -> dict[str, Any]:
        """The whitening matrix."""
        moments = records.gram(how.n_threads)
        return {"whitening_": mechanism.release(moments, how.source, how.n_threads)}

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Rows, clipped to the bound of the fit, times the whitening matrix.

        Every row is a function of itself and of fitted attributes alone, to the last bit.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = checked_rows(self, X)
        n_threads = check.check_n_threads(self.n_threads)
        whitened = np.empty(X.shape)
        for block in row_blocks(X):
            rows = clipped_rows(X[block], self.data_norm_)
            rows = rows.toarray() if sparse.issparse(rows) else rows
            # Not a matrix product: how that rounds one row may depend on how many others there are.
            whitened[block] = _core.row_products(
                np.ascontiguousarray(rows), self.whitening_, n_threads
            )
        return whitened

    @property
    def _n_features_out(self) -> int:
        """Number of columns, for their names."""
        return int(self.n_features_in_)


# Principal components of a noisy matrix of second moments.


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


# Scaling of features: by public bounds alone, or by noisy means and variances.


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
        middle, half = middle_and_half(*settings.bounds)
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
        middle, half = middle_and_half(low, high)
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


def middle_and_half(low: Array, high: Array) -> tuple[Array, Array]:
    """Middle and half the width of bounds, without overflow."""
    return 0.5 * low + 0.5 * high, 0.5 * (high - low)


def _farthest(distances: Array, scale: Array | None) -> float:
    """Norm of the corner of the bounds that is farthest from the means, rounded up."""
    corner = distances if scale is None else distances / scale
    largest = float(corner.max())
    # Each operation, and each of a computed row, is off by less than this share.
    slack = 1.0 + (corner.size + 16.0) * np.finfo(np.float64).eps
    return largest * float(np.linalg.norm(corner / largest)) * slack


class RandomFourierFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Random Fourier features with rows of norm exactly 1.

    .. math:: \phi(x) = D^{-1/2} (\cos\langle w_1, x\rangle, \dots, \cos\langle w_D, x\rangle,
        \sin\langle w_1, x\rangle, \dots, \sin\langle w_D, x\rangle)

    with frequencies drawn from the spectrum of the kernel, so that :math:`\langle \phi(x),
    \phi(x') \rangle` is an unbiased estimate of it with an error of about :math:`D^{-1/2}`.

    Parameters
    ----------
    n_components : int, default=1000
        Number D of frequencies, at most 2**20, each of which gives a cosine and a sine: 2 D
        features.
    gamma : float, default=1.0
        Scale of the kernel, 1e-30 <= gamma <= 1e30.
    kernel : {"rbf", "laplacian"}, default="rbf"
        ``exp(-gamma ||x - x'||^2)`` or ``exp(-gamma ||x - x'||_1)``.
    orthogonal : bool, default=True
        Whether frequencies of "rbf" are orthogonal in blocks, which makes the error smaller: by
        random rotations up to 64 features, above by products of random signs and Hadamard matrices,
        which are faster. Those of "laplacian" are always independent.
    random_state : int or None, default=None
        Seed of the frequencies, 0 <= random_state < 2**64; None draws one. It is public either way
        and kept in ``seed_``: there is no noise that it could reveal.
    n_threads : int or None, default=None
        Threads; None is all cores that this process may use. Never changes the result.

    Attributes
    ----------
    seed_ : int
        The public seed.
    structure_ : {"independent", "orthogonal", "fast"}
        How the frequencies were drawn.
    random_weights_ : ndarray of shape (n_components, n_features)
        The frequencies; computed anew by every access.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

    Notes
    -----
    Guarantees: ``fit`` reads the number and names of the features only, and everything published is
    independent of the rows: it costs no budget. Features of a row are a function of that row alone,
    and have norm 1 up to rounding (a few 1e-16 for double and 1e-7 for single precision), whatever
    the row is; a mechanism that follows with ``data_norm=1`` shortens what exceeds it. Proof:
    docs/proofs/random_features.md, "Feature map". That ``gamma`` was not chosen by looking at
    private data is up to the caller.

    Time is of the order of n d D, or n D log d for the products of signs. The result is dense, n x
    2 D numbers in the precision of X: `PrivateKernelSVC` needs a block of it at a time.

    References
    ----------
    .. [1] Rahimi and Recht, "Random features for large-scale kernel machines", NIPS 2007.
    .. [2] Yu, Suresh, Choromanski, Holtmann-Rice and Kumar, "Orthogonal random features",
       NIPS 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast import RandomFourierFeatures
    >>> X = np.array([[0.0, 0.0], [0.3, 0.1], [2.0, 2.0]])
    >>> features = RandomFourierFeatures(5000, random_state=0).fit_transform(X)
    >>> features.shape
    (3, 10000)
    >>> kernel = np.exp(-np.square(X[:, None] - X).sum(axis=2))
    >>> bool(np.abs(features @ features.T - kernel).max() < 0.05)
    True
    """

    # Nothing that this transformer does depends on more than one row.
    _learns_from_rows = False

    seed_: int
    structure_: str
    n_features_in_: int
    _features: FourierFeatures

    def __init__(
        self,
        n_components: int = 1000,
        gamma: float = 1.0,
        *,
        kernel: str = "rbf",
        orthogonal: bool = True,
        random_state: int | None = None,
        n_threads: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.kernel = kernel
        self.orthogonal = orthogonal
        self.random_state = random_state
        self.n_threads = n_threads

    def fit(self, X: Any, y: Any = None) -> RandomFourierFeatures:
        """Draw the frequencies; of X only the number and names of the features matter.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers.
        y : ignored

        Returns
        -------
        RandomFourierFeatures
            This transformer.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter is outside its range.
        ValueError
            X is invalid; the text does not quote it.
        """
        D = check.check_integer("n_components", self.n_components, 1, MOST_COMPONENTS)
        gamma = check.check_real("gamma", self.gamma, low=SMALLEST_GAMMA, high=LARGEST_GAMMA)
        kernel = check.check_option("kernel", self.kernel, KERNELS)
        orthogonal = check.check_bool("orthogonal", self.orthogonal)
        seed = check.check_random_state(self.random_state)
        check.check_n_threads(self.n_threads)
        # Validation writes what it learns about X onto the copy: until the map is drawn this object
        # stays as it is.
        probe = copy.copy(self)
        X = checked_training_rows(probe, X)
        features = FourierFeatures(
            n_features=X.shape[1],
            n_components=D,
            gamma=gamma,
            kernel=kernel,
            structure=structure_of(kernel, X.shape[1], orthogonal=orthogonal),
            centre="none",
            seed=_core.NoiseSource(None).public_seed() if seed is None else seed,
        )
        # Memory that is lacking for the frequencies is lacking now.
        features.map()
        for name in FEATURE_FACTS:
            self.__dict__.pop(name, None)
        facts = {name: vars(probe)[name] for name in FEATURE_FACTS if name in vars(probe)}
        self.__dict__.update(
            facts, _features=features, seed_=features.seed, structure_=features.structure
        )
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Features of rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, 2 n_components)
            Of the precision of X.
        """
        check_is_fitted(self)
        threads = check.check_n_threads(self.n_threads)
        X = checked_rows(self, X)
        drawn = self._features.map()
        if sparse.issparse(X):
            return drawn.transform_csr(X.data, X.indices, X.indptr, X.shape[1], threads)
        return drawn.transform_dense(np.ascontiguousarray(X), threads)

    @property
    def random_weights_(self) -> NDArray[np.float64]:
        """The frequencies, shape (n_components, n_features)."""
        check_is_fitted(self, "seed_")
        return self._features.map().weights()

    @property
    def _n_features_out(self) -> int:
        """What the names of the features are counted by."""
        return 2 * self._features.n_components

    def __sklearn_is_fitted__(self) -> bool:
        """Whether frequencies have been drawn."""
        return "seed_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        """Sparse rows are accepted; precision is kept."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
