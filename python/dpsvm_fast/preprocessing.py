"""Private transformers: noisy means, components and scales; public scaling and features.

Each transformer works in a scikit-learn ``Pipeline``; a private one spends its own budget in
``fit``. Published numbers are noisy; everything computed from them is post-processing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
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
from dpsvm_fast.arithmetic import in_usual_arithmetic, quiet
from dpsvm_fast.certificates import PrivacyStatement
from dpsvm_fast.estimators import parameters as param
from dpsvm_fast.estimators.fit import PrivateEstimator, private_fit
from dpsvm_fast.estimators.frames import feature_names
from dpsvm_fast.estimators.gradient import next_seed
from dpsvm_fast.estimators.inputs import (
    FEATURE_FACTS,
    MAX_FEATURES,
    ArrayRows,
    Bounds,
    broadcast_bounds,
    checked_knots,
    checked_numbers,
    checked_outputs,
    checked_rows,
    feature_facts,
    finite_numbers,
    placed_splines,
    public_map,
)
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.mechanisms.moments import (
    NoisyColumnMoments,
    NoisyComponents,
    NoisyMean,
    NoisyMoments,
    Projection,
    ReleasedComponents,
    ReleasedMoments,
    RunningMoments,
    RunningSums,
    SumPlan,
    square_root_factor,
)
from dpsvm_fast.mechanisms.noise import LARGEST, SecondMoments, check_range, gaussian_parameter
from dpsvm_fast.mechanisms.plan import Facts, filled
from dpsvm_fast.mechanisms.rows import (
    KERNELS,
    LARGEST_GAMMA,
    MAX_COMPONENTS,
    SMALLEST_GAMMA,
    FourierFeatures,
    PublicMap,
    SplineMap,
    compiled_rows,
    row_blocks,
    structure_of,
)

__all__ = [
    "PrivateCenter",
    "PrivatePCA",
    "PrivateStandardScaler",
    "PrivateWhitener",
    "PublicImageFeatures",
    "PublicScaler",
    "PublicSplines",
    "RandomFourierFeatures",
    "clipped_rows",
]


# Base of the private transformers: one noisy sum over rows of bounded norm.


Fitted = TypeVar("Fitted", bound="PrivateTransformer")


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateTransformer(PrivateEstimator, TransformerMixin, BaseEstimator):
    """Base of transformers that release one noisy sum over the rows."""

    adjacency: param.Adjacency = "add_remove"
    max_weight: param.Positive = 1.0
    noise_grid: param.NoiseGrid = "exact"
    random_state: param.Seed = None
    ledger: PrivacyLedger | None = None
    n_threads: param.Threads = None

    n_features_in_: int = field(init=False)
    data_norm_: float = field(init=False)
    privacy_: PrivacyStatement = field(init=False)

    @in_usual_arithmetic
    def fit(
        self: Fitted, X: Any, y: Any = None, groups: Any = None, sample_weight: Any = None
    ) -> Fitted:
        """Spend the budget on private rows and release noisy numbers.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers; rows longer than ``data_norm`` are scaled down to it, silently.
        y : ignored
        groups : array-like of shape (n_samples,), optional
            Id of the person that each row belongs to: ints, strings or bools. Whole persons are
            then protected. Ids are private and not kept.
        sample_weight : array-like of shape (n_samples,), optional
            Private non-negative weights, clipped to the public ``max_weight``. A row of weight 0 is
            ignored, but with ``adjacency="replace_one"`` it, or its person, still counts.

        Returns
        -------
        object
            This transformer.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter is outside its range, or groups or weights are invalid. Nothing was spent.
        BudgetExceededError
            The ledger refuses. Nothing was read or spent.
        ValueError
            X is invalid; the message does not quote it. Nothing was spent.
        """
        self._forget()
        checked = self.checked()
        own = {"groups": groups, "sample_weight": sample_weight}
        rows = ArrayRows(checked, X, labelled=False, **own)
        self.__dict__.update(private_fit(checked, rows))
        return self

    def _sum_plan(self, mechanism: str, kind: type[Any], public: PublicMap, **own: Any) -> SumPlan:
        """Return the plan of one noisy sum with the whole budget."""
        given: Any = self
        budget: dict[str, float] = {"epsilon": given.epsilon}
        if given.delta > 0.0:
            budget = {"mu": gaussian_parameter(given.epsilon, given.delta)}
        elif issubclass(kind, SecondMoments):
            raise InvalidParameterError.of("delta", got=0.0, accepted="a number in (0, 1)")
        total = kind(adjacency=self.adjacency, noise_grid=self.noise_grid, **budget, **own)
        return filled(SumPlan, self, mechanism=mechanism, total=total, public=public)

    def __sklearn_tags__(self) -> Any:
        """Declare that sparse rows are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _public_map(data_norm: float, centre: NDArray[np.float64] | None = None) -> PublicMap:
    """Return the map that subtracts a public centre, clips to the norm bound and divides by it."""
    check_range("data_norm", data_norm, "the bound on the norm of rows")
    return PublicMap(offset=centre, unit=False, data_norm=data_norm)


def clipped_rows(X: Any, data_norm: float) -> Any:
    """Clip rows to the norm bound; CSR stays CSR."""
    return _public_map(data_norm).apply(X) * data_norm


# Centring by a noisy mean.


@dataclass(eq=False, repr=False)
class PrivateCenter(OneToOneFeatureMixin, PrivateTransformer):
    r"""Centre rows by a noisy mean.

    The sum of the rows, clipped to norm ``data_norm``, and the number of rows are released together
    with noise. The mean is their quotient, shrunk towards zero by the share of noise in its length.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 <= delta < 1; 0 uses noise b of density proportional to
        ``exp(-beta ||b||)``, which gives pure epsilon.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets differ by one row added or removed, or by one row replaced, which
        makes the number of rows public.
    max_weight : float > 0, default=1.0
        Public upper limit on ``sample_weight``; larger weights are clipped, and a row of this
        weight counts as one. The weights of one person sum to at most one.
    noise_grid : {"exact", "float"}, default="exact"
        "exact" samples Gaussian noise exactly on a power-of-two grid; "float" draws ordinary
        floating-point noise.
    random_state : int or None, default=None
        None draws noise from the operating system. A seed makes the fit reproducible but not
        private: a ``NotPrivateWarning`` is issued, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget ledger, checked before data are read and charged before noise is drawn.
    n_threads : int or None, default=None
        Number of threads; None for all cores of this process. Never changes the result.
    data_norm : float, default=1.0
        Public bound on the L2 norm of each row; longer rows are scaled down to it, silently, in
        ``fit`` and in ``transform``.
    dense_output : bool, default=False
        Whether ``transform`` may convert sparse rows to dense; otherwise it refuses them.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Noisy mean of the clipped rows, of norm at most ``data_norm``.
    n_samples_ : float
        Noisy number of rows, at least 1; with weights, their noisy sum divided by ``max_weight``.
        With ``replace_one`` it is the public number, so that weights below ``max_weight`` pull the
        mean towards 0.
    data_norm_ : float
        Bound used in the fit.
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

    Centred rows have norm up to ``2 data_norm``. A following scikit-learn ``Normalizer`` scales
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

    epsilon: param.Epsilon = 1.0
    delta: param.Delta = 1e-6
    _: KW_ONLY
    data_norm: param.Positive = 1.0
    dense_output: param.Flag = False

    mean_: NDArray[np.float64] = field(init=False)
    n_samples_: float = field(init=False)

    def plan(self, facts: Facts) -> SumPlan:
        """Return the plan of the release."""
        public = _public_map(self.data_norm)
        return self._sum_plan("private_center", NoisyMean, public, n_features=facts.n_columns)

    def _attributes(self, plan: SumPlan, released: ReleasedMoments) -> dict[str, Any]:
        """Return the mean and the number of rows."""
        return {
            "mean_": self.data_norm * released.mean,
            "n_samples_": released.count,
            "data_norm_": self.data_norm,
        }

    @quiet
    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return rows clipped to ``data_norm_``, minus the noisy mean.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)

        Raises
        ------
        TypeError
            Rows are sparse and ``dense_output`` is False.
        """
        check_is_fitted(self)
        X = checked_rows(self, X)
        if sparse.issparse(X) and not self.dense_output:
            raise InvalidTypeError(
                "X: centred sparse rows are dense; use dense_output=True, or PrivateLinearSVC, "
                "which keeps them sparse"
            )
        rows = clipped_rows(X, self.data_norm_)
        return np.asarray((rows.toarray() if sparse.issparse(rows) else rows) - self.mean_)


# Whitening by a noisy matrix of second moments.


@dataclass(eq=False, repr=False)
class PrivateWhitener(ClassNamePrefixFeaturesOutMixin, PrivateTransformer):
    r"""Whiten rows by a noisy matrix of second moments.

    Let u be the rows, clipped to norm ``data_norm`` and divided by it, and A the sum of
    :math:`u u^\top` plus symmetric Gaussian noise, with negative eigenvalues set to 0. Rows become
    M u with

    .. math:: M \propto (A + r I)^{-1/2}, \qquad r = 0.35\, \sigma \sqrt{2 d}

    scaled to spectral norm 1, so that rows keep norm at most ``data_norm``. Whitening helps if the
    noise, of spectral norm about :math:`\sigma \sqrt{2 d}`, is small compared with the number of
    rows. Centre rows first.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 < delta < 1.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets differ by one row added or removed, or by one row replaced.
    max_weight : float > 0, default=1.0
        Public upper limit on ``sample_weight``; larger weights are clipped. A row of this weight
        counts as one, and a person as at most one.
    noise_grid : {"exact", "float"}, default="exact"
        "exact" samples Gaussian noise exactly on a power-of-two grid; "float" draws ordinary
        floating-point noise.
    random_state : int or None, default=None
        None draws noise from the operating system. A seed makes the fit reproducible but not
        private: a ``NotPrivateWarning`` is issued, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget ledger, checked before data are read and charged before noise is drawn.
    n_threads : int or None, default=None
        Number of threads; None for all cores of this process. Never changes the result.
    data_norm : float, default=1.0
        Public bound on the L2 norm of each row; longer rows are scaled down to it, silently, in
        ``fit`` and in ``transform``.

    Attributes
    ----------
    whitening_ : ndarray of shape (n_features, n_features)
        M, symmetric and positive definite.
    data_norm_ : float
        Bound used in the fit.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
    privacy_ : PrivacyStatement

    Notes
    -----
    Guarantees: ``whitening_`` is (epsilon, delta)-differentially private for the relation
    ``adjacency``, provided that ``data_norm``, the feature names and every other parameter were
    chosen without looking at the data. Proof: docs/proofs/auto_pipeline.md, sections "Exact sums"
    and "Whitening". Not covered: running time; floating-point effects with ``noise_grid="float"``.

    Sparse rows become dense. The matrix takes O(n d^2) time and d^2 numbers of memory.

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

    epsilon: param.Epsilon = 1.0
    delta: param.Delta = 1e-6
    _: KW_ONLY
    data_norm: param.Positive = 1.0

    whitening_: NDArray[np.float64] = field(init=False)

    def plan(self, facts: Facts) -> SumPlan:
        """Return the plan of the release."""
        public = _public_map(self.data_norm)
        return self._sum_plan("private_whitener", NoisyMoments, public, n_features=facts.n_columns)

    def _attributes(self, plan: SumPlan, released: NDArray[np.float64]) -> dict[str, Any]:
        """Return the whitening matrix."""
        return {"whitening_": released, "data_norm_": self.data_norm}

    @quiet
    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return rows clipped to ``data_norm_``, times the whitening matrix.

        Each output row depends only on its input row and on fitted attributes, to the last bit.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = checked_rows(self, X)
        n_threads = check.check_n_threads("n_threads", self.n_threads)
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
        """Number of output columns."""
        return int(self.n_features_in_)


# Principal components of a noisy matrix of second moments.


def checked_centre(name: str, value: object) -> NDArray[np.float64] | None:
    """Check a public centre: None, or an array of finite numbers."""
    if value is None:
        return None
    accepted = "None or a list of finite numbers, one for each feature"
    point = finite_numbers(name, value, accepted)
    if not (np.abs(point) <= LARGEST).all():
        raise InvalidParameterError(f"{name}: expected numbers from {-LARGEST:g} to {LARGEST:g}")
    return point


@dataclass(eq=False, repr=False)
class PrivatePCA(ClassNamePrefixFeaturesOutMixin, PrivateTransformer):
    r"""Project rows onto principal components of a noisy matrix of second moments.

    With :math:`u_i` the rows minus the public ``centre`` c, clipped to norm :math:`\kappa` =
    ``data_norm`` and divided by it, the components are the leading eigenvectors of

    .. math:: A = \sum_i u_i u_i^\top + E, \qquad
              E_{jj} \sim N(0, \sigma^2), \quad E_{jk} = E_{kj} \sim N(0, \sigma^2 / 2),

    A row x becomes V clip(x - c), clipped to norm ``data_norm`` again.

    Parameters
    ----------
    n_components : int or None, default=None
        Number k of components, from 1 to n_features; None for n_features.
    epsilon : float, default=1.0
        Privacy parameter, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 < delta < 1.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets differ by one row added or removed, or by one row replaced.
    max_weight : float > 0, default=1.0
        Public upper limit on ``sample_weight``; larger weights are clipped. A row of this weight
        counts as one, and a person as at most one.
    noise_grid : {"exact", "float"}, default="exact"
        "exact" samples Gaussian noise exactly on a power-of-two grid; "float" draws ordinary
        floating-point noise.
    random_state : int or None, default=None
        None draws noise from the operating system. A seed makes the fit reproducible but not
        private: a ``NotPrivateWarning`` is issued, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget ledger, checked before data are read and charged before noise is drawn.
    n_threads : int or None, default=None
        Number of threads; None for all cores of this process. Never changes the result.
    data_norm : float, default=1.0
        Public bound on the norm of each row minus the centre; longer ones are scaled down to it,
        silently, in ``fit`` and in ``transform``.
    centre : array-like of shape (n_features,) or None, default=None
        Public point to subtract from the rows; None for the origin. Use for example the released
        mean of a ``PrivateCenter``, never the mean of private rows.
    whiten : bool, default=False
        Whether to scale coordinates towards equal second moments, by factors of at most 1:

        .. math:: s_j = \sqrt{\frac{\max(\lambda_k, 0) + r}{\max(\lambda_j, 0) + r}}, \qquad
                  r = 0.35\, \sigma \sqrt{2 d}

        for the noisy eigenvalues :math:`\lambda_1 \ge \dots \ge \lambda_k`. Rows keep norm at most
        ``data_norm``.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Eigenvectors V of norm 1, by descending eigenvalue. The entry of largest magnitude in each
        is positive.
    eigenvalues_ : ndarray of shape (n_components,)
        Eigenvalues of ``data_norm**2 * A``: noisy sums of squared coordinates over the rows, in
        squared units of X, with weights as shares of ``max_weight``. Small ones are mostly noise
        and may be negative.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        Shares of the eigenvalues in the trace of the noisy matrix, within [0, 1], for second
        moments about ``centre``, not about the mean.
    scales_ : ndarray of shape (n_components,)
        Factors s with ``whiten``; ones otherwise.
    centre_ : ndarray of shape (n_features,)
        Public centre.
    n_components_ : int
    data_norm_ : float
        Bound used in the fit.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
    privacy_ : PrivacyStatement

    Notes
    -----
    Guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the
    relation ``adjacency``, provided that ``data_norm``, ``centre``, the feature names and every
    other parameter were chosen without looking at the data. Proof: docs/proofs/private_pca.md. Not
    covered: running time; floating-point effects with ``noise_grid="float"``.

    The sensitivity of the matrix is 1 for add_remove and sqrt(2) for replace_one. The spectral norm
    of the noise is about :math:`\sigma \sqrt{2 d}`; components with smaller eigenvalues are noise.
    Nothing is divided by the number of rows, which is private with add_remove.

    ``fit`` takes O(n d^2) time and memory for five matrices of d^2 numbers. Projected rows are
    dense; with a ``centre``, sparse rows become dense in ``fit`` too.

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

    n_components: Annotated[int | None, param.or_word(None, param.integer(1, MAX_FEATURES))] = None
    epsilon: param.Epsilon = 1.0
    delta: param.Delta = 1e-6
    _: KW_ONLY
    data_norm: param.Positive = 1.0
    centre: Annotated[Any, checked_centre] = None
    whiten: param.Flag = False

    components_: NDArray[np.float64] = field(init=False)
    eigenvalues_: NDArray[np.float64] = field(init=False)
    explained_variance_ratio_: NDArray[np.float64] = field(init=False)
    scales_: NDArray[np.float64] = field(init=False)
    centre_: NDArray[np.float64] = field(init=False)
    n_components_: int = field(init=False)

    def plan(self, facts: Facts) -> SumPlan:
        """Return the plan of the release."""
        known, k = facts.n_features, self.n_components
        if known is not None and k is not None:
            check.check_integer("n_components", k, 1, known)
        if known is not None and self.centre is not None and self.centre.size != known:
            raise InvalidParameterError(
                f"centre: got {self.centre.size} numbers, expected {known}, one for each feature"
            )
        public = _public_map(self.data_norm, self.centre)
        own = {"n_features": facts.n_columns, "n_components": k}
        return self._sum_plan("private_pca", NoisyComponents, public, **own)

    def _attributes(self, plan: SumPlan, released: ReleasedComponents) -> dict[str, Any]:
        """Return the components and the other published numbers."""
        total = plan.total
        assert isinstance(total, NoisyComponents)
        k = released.values.size
        return {
            "components_": released.vectors,
            "eigenvalues_": released.values * self.data_norm**2,
            "explained_variance_ratio_": released.shares,
            "scales_": total.scales(released.values) if self.whiten else np.ones(k),
            "centre_": np.zeros(total.n_features) if self.centre is None else self.centre,
            "n_components_": k,
            "data_norm_": self.data_norm,
        }

    def _projection(self) -> Projection:
        """Return the released map of rows."""
        return Projection(self.components_, self.scales_, self.centre_, self.data_norm_)

    @quiet
    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the coordinates of centred and clipped rows along the components.

        Each output row depends only on its input row and on fitted attributes, to the last bit.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Rows of norm at most ``data_norm``.
        """
        check_is_fitted(self)
        n_threads = check.check_n_threads("n_threads", self.n_threads)
        return self._projection().apply(checked_rows(self, X), n_threads)

    def inverse_transform(self, X: Any) -> NDArray[np.float64]:
        """Return the rows with these coordinates along the components.

        The part of a row orthogonal to the components, or beyond ``data_norm``, is lost.

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
            raise InvalidParameterError(
                f"X: got {coordinates.shape[1]} columns, expected {self.n_components_}, one for "
                "each component"
            )
        return self._projection().invert(coordinates)

    @property
    def _n_features_out(self) -> int:
        """Number of output columns."""
        return self.n_components_


class PublicTransformer(TransformerMixin, BaseEstimator):
    """Base of transformers that map each row independently, by public numbers."""

    # Each output row depends on its own input row only.
    _learns_from_rows = False
    n_features_in_: int

    def fit(self: PublicFitted, X: Any, y: Any = None) -> PublicFitted:
        """Check the parameters; store the number and names of the features.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers.
        y : ignored

        Returns
        -------
        object
            This transformer.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter is outside its range or does not fit the number of features.
        ValueError
            X is invalid; the message does not quote it.
        """
        # Validation writes what it learns about X onto the copy, whether or not X is refused.
        probe = param.checked_copy(self)
        attributes = probe._fitted_attributes(checked_rows(probe, X, reset=True))
        for name in FEATURE_FACTS:
            self.__dict__.pop(name, None)
        self.__dict__.update(feature_facts(probe) | attributes)
        return self

    @abstractmethod
    def _fitted_attributes(self, X: Any) -> dict[str, Any]:
        """Check the parameters against the number of features; return more fitted attributes."""

    def __sklearn_tags__(self) -> Any:
        """Declare that sparse rows are accepted, precision is kept and no fit is needed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


PublicFitted = TypeVar("PublicFitted", bound=PublicTransformer)

# Scaling of features: by public bounds alone, or by noisy means and variances.


Array = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class PublicScaler(OneToOneFeatureMixin, PublicTransformer):
    r"""Scale features by public bounds; learns nothing from the rows and costs no budget.

    Symmetric bounds :math:`[-b, b]` are mapped to [-1, 1], all others to [0, 1]. Entries outside
    are clipped.

    Parameters
    ----------
    bounds : tuple of (low, high), or dict of such pairs by column name
        Public bounds on the entries, numbers or arrays of shape (n_features,), ``low < high``. They
        must not come from the data: the minimum or maximum of the rows is a leak.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

    Notes
    -----
    Guarantees: each row is mapped independently by public numbers, so this step costs no privacy
    and ``total_privacy`` counts it as free. Proof: docs/proofs/private_scaling.md, section
    "Pipelines". Mapped rows have norm at most ``sqrt(n_features)``.

    Sparse rows stay sparse with ``low = 0`` or ``low = -high``; other bounds would move zeros and
    are refused for sparse rows.

    Examples
    --------
    >>> from dpsvm_fast import PublicScaler
    >>> PublicScaler((0, [10, 200])).fit_transform([[5, 50], [12, -1]]).tolist()
    [[0.5, 0.25], [1.0, 0.0]]
    """

    bounds: param.GivenBounds

    def _fitted_attributes(self, X: Any) -> dict[str, Any]:
        """Check the bounds; nothing else is stored."""
        self._map(X)
        return {}

    @quiet
    def transform(self, X: Any) -> Any:
        """Return rows scaled by the bounds; ``fit`` is not required.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray or CSR matrix of shape (n_samples, n_features)
            Entries in [0, 1], or in [-1, 1] with ``low = -high``.
        """
        names = feature_names(X)
        X = checked_rows(self, X)
        return self._map(X, names).entries(X)

    def inverse_transform(self, X: Any) -> Any:
        """Return entries in the units of the bounds; clipped entries stay clipped.

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

    def _map(self, X: Any, names: Any = None) -> Any:
        """Return the public map for rows with this number of features."""
        names = vars(self).get("feature_names_in_", names)
        bounds = broadcast_bounds(param.checked_copy(self).bounds, X.shape[1], names)
        return public_map(bounds, sparse_rows=sparse.issparse(X))

    def __sklearn_tags__(self) -> Any:
        """Declare that features are scaled in double precision."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags


@dataclass(eq=False, repr=False)
class PrivateStandardScaler(OneToOneFeatureMixin, PrivateTransformer):
    r"""Standardise features by noisy means and variances, within public bounds.

    Each entry is mapped from its bounds to z in [-1, 1]. The sums of z and of
    :math:`\tfrac{11}{8} (z^2 - \tfrac{49}{64})` over the records, for all features, and the number
    of records are released in one release. Rows become

    .. math:: (\mathrm{clip}(x, \mathit{low}, \mathit{high}) - \mathit{mean}) / \mathit{scale}.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 <= delta < 1; 0 uses noise b of density proportional to
        ``exp(-beta ||b||)``, which gives pure epsilon.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets differ by one row added or removed, or by one row replaced, which
        makes the number of rows public.
    max_weight : float > 0, default=1.0
        Public upper limit on ``sample_weight``; larger weights are clipped. A row of this weight
        counts as one, and a person as at most one. Weights have a resolution of
        ``max_weight / 8192``.
    noise_grid : {"exact", "float"}, default="exact"
        "exact" samples Gaussian noise exactly on a power-of-two grid; "float" draws ordinary
        floating-point noise.
    random_state : int or None, default=None
        None draws noise from the operating system. A seed makes the fit reproducible but not
        private: a ``NotPrivateWarning`` is issued, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget ledger, checked before data are read and charged before noise is drawn.
    n_threads : int or None, default=None
        Number of threads; None for all cores of this process. Never changes the result.
    bounds : tuple of (low, high), or dict of such pairs by column name
        Public bounds on the entries, numbers or arrays of shape (n_features,), ``low < high``; they
        must not come from the data. Entries outside are clipped, in ``fit`` and in ``transform``.
        Noise grows with the width of the bounds.
    with_std : bool, default=True
        Whether to divide by the noisy standard deviations. If False, the whole budget is for the
        means.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Noisy means within the bounds, shrunk towards their midpoint by the share of the noise.
    scale_ : ndarray of shape (n_features,) or None
        Noisy standard deviations, at least 2**-10 times half the width of the bounds; None without
        ``with_std``.
    var_ : ndarray of shape (n_features,) or None
        Squares of ``scale_``, at most the largest float.
    n_samples_seen_ : float
        Noisy number of rows, at least 1; with weights, their noisy sum divided by ``max_weight``.
        With ``replace_one`` it is the public number, and what a weight lacks to ``max_weight``
        counts as a row at the midpoint of the bounds.
    data_norm_ : float
        Largest norm of a transformed row: the norm of the farthest corner of the bounds. It is
        released like the other attributes; a following estimator may use it, or any smaller number,
        as its ``data_norm``.
    bounds_ : tuple of two ndarrays of shape (n_features,)
        Bounds used in the fit.
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

    Split of the budget: with d features, a record adds at most :math:`d (539/512)^2 + \sqrt d` to
    the squared length of the sum, where the second term is for the number of rows (absent with
    ``replace_one``). The first term is due to the mean at the ends of the bounds and to the mean
    square at their midpoint, so mean and mean square together cost what either would cost alone,
    within 5 % of the noise. The noise in a sum of z has standard deviation :math:`\sigma`, that in
    a sum of :math:`z^2` has :math:`8 \sigma / 11`.

    A variance below twice the standard deviation of its noise is raised to that level, so that
    noise never inflates a column. If the level exceeds the variance of the uniform distribution on
    the bounds, this public variance is used instead. Constant features thus become nearly 0. Sparse
    rows become dense. Sums saturate beyond 2**27 rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dpsvm_fast import PrivateStandardScaler
    >>> X, _ = load_iris(return_X_y=True)
    >>> scaler = PrivateStandardScaler(4.0, bounds=(0, 10), adjacency="replace_one").fit(X)
    >>> scaler.transform(X).shape, scaler.n_samples_seen_
    ((150, 4), 150.0)
    """

    epsilon: param.Epsilon = 1.0
    delta: param.Delta = 1e-6
    _: KW_ONLY
    bounds: param.GivenBounds
    with_std: param.Flag = True

    mean_: Array = field(init=False)
    scale_: Array | None = field(init=False)
    var_: Array | None = field(init=False)
    n_samples_seen_: float = field(init=False)
    bounds_: tuple[Array, Array] = field(init=False)

    # Set on the copy that fit_periods fits: the state from which it continues.
    _next: ClassVar[Running | None] = None

    _rests_on = "bounds"

    def plan(self, facts: Facts) -> SumPlan:
        """Return the plan of one release."""
        low, high = self._bounds_of(facts.n_features)
        middle, half = middle_and_half(low, high)
        own: dict[str, Any] = {"n_features": facts.n_columns, "with_std": self.with_std}
        public = PublicMap(offset=middle, scale=1.0 / half)
        running = self._next
        own["factor"] = () if running is None else square_root_factor(running.n_periods)
        plan = self._sum_plan("private_standard_scaler", NoisyColumnMoments, public, **own)
        if running is None:
            return plan
        before = running.releases.reshape(-1, plan.total.sum.size)
        return RunningMoments(**vars(plan), before=before)

    @in_usual_arithmetic
    def fit_periods(self: Scaler, X: Any, periods: Any, *, n_periods: int | None = None) -> Scaler:
        """Release the moments of all rows so far, once per period, at one total cost.

        The noise of the releases is correlated, so that it hardly grows: after 52 periods it is 2.3
        times that of one ``fit`` on all rows, compared with 7.2 times for independent noise. Noise
        and statement are for ``n_periods`` calls. A ledger is charged at every call, by the age of
        the rows: pass ``ledger.for_periods()`` with all periods so far, in order.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows of this period and, again, of all earlier periods. Rows are not kept.
        periods : array-like of int, shape (n_samples,)
            Period of each row, from 0 to the number of earlier calls.
        n_periods : int in 1..1000 or None, default=None
            Largest number of calls; required in the first call.

        Returns
        -------
        object
            This transformer.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter is outside its range or differs from the previous call, no period is left,
            or the scaler was fitted by ``fit`` or loaded. Nothing was read or spent.
        BudgetExceededError
            The ledger refuses. Nothing was read or spent.
        ValueError
            X is invalid; the message does not quote it. Nothing was spent.
        """
        checked = self.checked()
        asked = {
            name: getattr(checked, name) for name in param.tests_of(type(self)) if name not in FREE
        }
        before = running_before(self, asked, n_periods)
        checked.__dict__["_next"] = before
        if not checked.delta:
            raise InvalidParameterError.of("delta", got=0.0, accepted="a number in (0, 1)")
        n_done = len(before.releases)
        if checked.random_state is not None:
            checked.random_state = next_seed(checked.random_state, n_done)
        if n_done:
            checked.n_features_in_ = self.n_features_in_
        rows = ArrayRows(checked, X, labelled=False, periods=checked_periods(periods, n_done))
        self.__dict__.update(private_fit(checked, rows))
        return self

    def _bounds_of(self, n_features: int | None) -> Bounds:
        """Return the bounds of each feature."""
        bounds = broadcast_bounds(self.bounds, n_features)
        assert bounds is not None
        return bounds

    def _attributes(self, plan: SumPlan, released: ReleasedMoments | RunningSums) -> dict[str, Any]:
        """Return the means, the scales, and the state for the next period."""
        if isinstance(released, RunningSums):
            assert self._next is not None
            running = self._next._replace(releases=released.releases)
            return self._attributes(plan, released.columns) | {"_running": running}
        low, high = self._bounds_of(plan.total.n_features)
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

    @quiet
    def transform(self, X: Any) -> Array:
        """Return rows clipped to the bounds, minus the means, divided by the scales.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows of norm at most ``data_norm_``.
        """
        check_is_fitted(self)
        X = checked_rows(self, X)
        rows = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
        rows = np.clip(rows, *self.bounds_) - self.mean_
        return np.asarray(rows if self.scale_ is None else rows / self.scale_)

    def inverse_transform(self, X: Any) -> Array:
        """Return rows times the scales plus the means; clipped entries stay clipped.

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


# State from which ``fit_periods`` continues: releases and public facts only.
FREE = ("ledger", "n_threads")
MAX_PERIODS = 1000
Scaler = TypeVar("Scaler", bound=PrivateStandardScaler)


class Running(NamedTuple):
    """Noisy releases of the periods so far."""

    n_periods: int
    parameters: dict[str, Any]
    releases: Array


def running_before(
    scaler: PrivateStandardScaler, asked: dict[str, Any], n_periods: int | None
) -> Running:
    """Return the state that a call with these parameters may continue from."""
    before: Running | None = vars(scaler).get("_running")
    if before is None:
        if "privacy_" in vars(scaler):
            raise InvalidParameterError(
                "n_periods: this scaler was fitted by fit, or loaded, and cannot be continued; "
                "use one fitted by fit_periods, or a new one"
            )
        n_periods = check.check_integer("n_periods", n_periods, 1, MAX_PERIODS)
        return Running(n_periods, asked, np.empty((0, 0)))
    if n_periods not in (None, before.n_periods):
        raise InvalidParameterError.of("n_periods", got=n_periods, accepted=f"{before.n_periods}")
    if len(before.releases) == before.n_periods:
        raise InvalidParameterError(
            f"n_periods: all {before.n_periods} releases have been made; use a new scaler"
        )
    for name, value in asked.items():
        if not np.array_equal(value, before.parameters[name]):
            raise InvalidParameterError(f"{name}: must not change between calls")
    return before


def checked_periods(periods: Any, n_done: int) -> NDArray[np.int64]:
    """Return the checked period of each row; error messages quote none."""
    found = np.asarray(periods)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InvalidTypeError("periods: expected a one-dimensional array of integers")
    if found.size and not (found.min() >= 0 and found.max() <= n_done):
        raise InvalidParameterError(
            f"periods: expected 0 to {n_done}, the number of releases so far"
        )
    return found.astype(np.int64)


def squares(scale: Array) -> Array:
    """Return squares, or the largest float where they overflow."""
    with np.errstate(over="ignore", under="ignore"):
        return np.minimum(scale**2, np.finfo(np.float64).max)


def middle_and_half(low: Array, high: Array) -> tuple[Array, Array]:
    """Return the midpoint and half the width of bounds, without overflow."""
    return 0.5 * low + 0.5 * high, 0.5 * (high - low)


def _farthest(distances: Array, scale: Array | None) -> float:
    """Return the largest scaled distance of a row within the bounds from the means, rounded up."""
    corner = distances if scale is None else distances / scale
    largest = float(corner.max())
    # Each operation, and each of a computed row, is off by less than this share.
    slack = 1.0 + (corner.size + 16.0) * np.finfo(np.float64).eps
    return largest * float(np.linalg.norm(corner / largest)) * slack


def checked_columns(name: str, value: Any) -> Any:
    """Check columns: a flag for all columns, or a list of positions."""
    if not isinstance(value, (list, tuple, np.ndarray)):
        return check.check_bool(name, value)
    return [check.check_integer(name, place, 0, 2**32) for place in value]


@dataclass(eq=False, repr=False)
class PublicSplines(OneToOneFeatureMixin, PublicTransformer):
    r"""Map each column to piecewise linear splines on public knots; costs no budget.

    A column with k knots becomes k hat functions, each 1 at its knot and 0 at the others. They sum
    to 1, so a linear model on them can be any piecewise linear function of the column.

    Parameters
    ----------
    bounds : tuple of (low, high), dict of such pairs by column name, or None, default=None
        Public bounds on the entries, numbers or arrays of shape (n_features,), ``low < high``. They
        must not come from the data. Entries outside are clipped. None if all knots are given as
        positions.
    knots : int, or list with an entry for each column, default=5
        Number of equidistant knots between the bounds, ends included. 1 only scales a column to [0,
        1], for columns of zeros and ones. A list has for each column such a number or an array of
        increasing positions, which must not come from the data: quantiles of the rows are a leak.
    log : bool or list of int, default=False
        Columns with knots equidistant in log x if low > 0, else in sign(x) log(1 + abs(x)): all,
        none, or the columns at the given positions (from 0). Knots given as positions do not
        change.
    sparse_output : bool, default=True
        Whether ``transform`` returns a CSR matrix.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

    Notes
    -----
    Guarantees: each row is mapped independently by public numbers, to the last bit, so this step
    costs no privacy and ``total_privacy`` counts it as free. Proof: docs/proofs/private_scaling.md,
    section "Pipelines". Mapped rows have norm at most ``sqrt(n_features)``.

    Each function adds one noisy weight per class: with few rows take few knots, or 1.

    Examples
    --------
    >>> from dpsvm_fast import PublicSplines
    >>> splines = PublicSplines((0, [100, 1]), [5, 1], sparse_output=False)
    >>> splines.fit_transform([[30, 1], [120, 0]]).tolist()
    [[0.0, 0.8, 0.2, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]]
    >>> splines.get_feature_names_out().tolist()
    ['x0_sp_0', 'x0_sp_1', 'x0_sp_2', 'x0_sp_3', 'x0_sp_4', 'x1']
    """

    bounds: param.OptionalBounds = None
    knots: Annotated[Any, checked_knots] = 5
    _: KW_ONLY
    log: Annotated[Any, checked_columns] = False
    sparse_output: param.Flag = True

    def _fitted_attributes(self, X: Any) -> dict[str, Any]:
        """Check the knots; nothing else is stored."""
        self.functions(X.shape[1])
        return {}

    @quiet
    def transform(self, X: Any) -> Any:
        """Return the values of the functions; ``fit`` is not required.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        CSR matrix or ndarray of shape (n_samples, n_functions)
            Values in [0, 1], in the precision of X, at most two nonzero per column.
        """
        names = vars(self).get("feature_names_in_", feature_names(X))
        X = checked_rows(self, X)
        found = self.functions(X.shape[1], names).apply(X)
        return found if self.sparse_output else found.toarray()

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return output names: column name and knot number.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            Names of the columns; None uses those of the fit.

        Returns
        -------
        ndarray of str
        """
        names = super().get_feature_names_out(input_features)
        sizes = self.functions(len(names)).sizes
        return np.asarray(
            [
                name if size == 1 else f"{name}_sp_{place}"
                for name, size in zip(names, sizes, strict=True)
                for place in range(size)
            ],
            dtype=object,
        )

    @property
    def _n_features_out(self) -> int:
        """Number of functions."""
        return sum(self.functions(self.n_features_in_).sizes)

    def functions(self, n_features: int, names: Any = None) -> SplineMap:
        """Return the spline map for rows with this number of features.

        Parameters
        ----------
        n_features : int
        names : sequence of str or None, default=None
            Names of the columns; None uses those of the fit.

        Returns
        -------
        SplineMap
            Map with the knots of each column.

        Raises
        ------
        InvalidParameterError, TypeError
            Parameters are invalid or do not fit the number of features.
        """
        checked = param.checked_copy(self)
        log = checked.log
        log = set(log if isinstance(log, list) else range(n_features if log else 0))
        if max(log, default=0) >= n_features:
            raise InvalidParameterError(
                f"log: got column {max(log)}, expected positions below {n_features}"
            )
        names = vars(self).get("feature_names_in_") if names is None else names
        bounds = broadcast_bounds(checked.bounds, n_features, names)
        return placed_splines(checked.knots, bounds, n_features, log)


# Sides of images, cells along them and directions, as the core takes them.
MAX_PIXELS = 1 << 12
# Share of the squared norm that edges of edges have.
SECOND_SHARE = 1.0 / 3.0


def checked_lengths(name: str, value: Any) -> tuple[int, ...]:
    """Check the two or three side lengths of an image."""
    check.check_type(name, value, (list, tuple, np.ndarray), "two or three whole numbers")
    lengths = tuple(check.check_integer(name, length, 1, MAX_PIXELS) for length in value)
    if len(lengths) not in (2, 3):
        raise InvalidParameterError(f"{name}: got {len(lengths)} numbers, expected two or three")
    return lengths


def checked_cells(name: str, value: Any) -> int | tuple[int, int]:
    """Check the number of cells: one number for both sides, or one each for height and width."""
    if not isinstance(value, (list, tuple, np.ndarray)):
        return check.check_integer(name, value, 1, MAX_PIXELS)
    lengths = checked_lengths(name, value)
    if len(lengths) != 2:
        raise InvalidParameterError(f"{name}: got three numbers, expected one or two")
    return lengths[0], lengths[1]


class ImageGrid(NamedTuple):
    """Grid of cells in which edge directions are summed.

    Parameters
    ----------
    shape : tuple of int
        Height, width and number of channels of an image.
    cells : tuple of int
        Number of cells along height and width.
    n_orientations : int
    """

    shape: tuple[int, int, int]
    cells: tuple[int, int]
    n_orientations: int

    @property
    def n_features(self) -> int:
        """Number of features of an image."""
        return self.shape[2] * math.prod(self.cells) * self.n_orientations

    def halved(self) -> tuple[ImageGrid, ImageGrid]:
        """Return the grid of the edge image at half size, and the grid of its edges.

        The channels of the edge image are the orientations. Halves are rounded up.

        Raises
        ------
        InvalidParameterError
            The edge image has too many channels.
        """
        n_channels = self.shape[2] * self.n_orientations
        if n_channels > MAX_PIXELS:
            raise InvalidParameterError(
                f"n_orientations: got {self.n_orientations}, expected at most {MAX_PIXELS} for "
                "all channels together with order=2"
            )
        height, width = (-(-side // 2) for side in self.shape[:2])
        vertical, horizontal = (-(-number // 2) for number in self.cells)
        inner = ImageGrid(self.shape, (height, width), self.n_orientations)
        # Two would miss edges at right angles to both.
        fewer = max(3, -(-self.n_orientations // 2))
        return inner, ImageGrid((height, width, n_channels), (vertical, horizontal), fewer)

    def sums(self, images: Any, n_threads: int) -> NDArray[Any]:
        """Return the square roots of the shares of edge directions in each cell."""
        rows = compiled_rows(images) if sparse.issparse(images) else np.ascontiguousarray(images)
        how = {"n_orientations": self.n_orientations, "n_threads": n_threads}
        return _core.oriented_gradients(rows, shape=self.shape, cells=self.cells, **how)


@dataclass(eq=False, repr=False)
class PublicImageFeatures(ClassNamePrefixFeaturesOutMixin, PublicTransformer):
    r"""Map images to histograms of edge directions in cells; costs no budget.

    The gradient at a pixel (differences of its neighbours along width and height) has length m and
    direction v. It divides :math:`m \max(0, \langle v, u_k \rangle)^8` among the nearest cells of a
    grid, as orientation k of K, with :math:`u_1, \dots, u_K` around the circle. The sums of a cell
    are divided by their total plus a tenth of the mean total, so that faint edges count as much as
    strong ones. Features are the square roots of these shares, normalised to sum 1: rows have norm
    1.

    With ``order=2`` edges of edges follow, which distinguish corners and curves from lines: the
    features of a grid with half as many cells per side as pixels form an image whose channels are
    the orientations. Its edges are summed in the same way, over half as many cells per side and
    half as many orientations, at least 3.

    Parameters
    ----------
    shape : tuple (height, width) or (height, width, channels)
        Shape of one image, each number at most 4096. A row of X is an image of this shape flattened
        in C order: pixel rows one after another, with the channels of a pixel adjacent.
    cells : int or tuple (vertical, horizontal), default=4
        Number of cells along height and width, at most the number of pixels. A single number is
        used for both sides, limited to the number of pixels of a shorter side.
    n_orientations : int, default=8
        Number K of directions, at most 4096.
    order : {1, 2}, default=1
        2 adds edges of edges: more accurate with tens of thousands of rows and for photographs, no
        better with a few thousand digits.
    n_threads : int or None, default=None
        Number of threads; None for all cores of this process. Never changes the result.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

    Notes
    -----
    Guarantees: each row is mapped independently by public numbers, to the last bit, so this step
    costs no privacy and ``total_privacy`` counts it as free. Proof: docs/proofs/private_scaling.md,
    section "Pipelines". Rows have norm 1 up to rounding, or 0 for a constant image. With
    ``order=2``, edges have two thirds of the squared norm and edges of edges one third.

    Brightness and contrast of an image do not change its features, so no bounds are needed; a shift
    by a fraction of a cell changes them slightly. Memory is that of X, of its copy in floating
    point if X has another type, and of the features.

    References
    ----------
    .. [1] Dalal and Triggs, "Histograms of oriented gradients for human detection", CVPR 2005.
    .. [2] Arandjelovic and Zisserman, "Three things everyone should know to improve object
       retrieval", CVPR 2012 (square roots of histograms).
    .. [3] Bruna and Mallat, "Invariant scattering convolution networks", IEEE TPAMI 35, 2013
       (maps of maps).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from dpsvm_fast import PrivateLinearSVC, PublicImageFeatures
    >>> X, y = load_digits(return_X_y=True)
    >>> svc = PrivateLinearSVC(2.0, classes=range(10))
    >>> model = make_pipeline(PublicImageFeatures((8, 8)), svc).fit(X, y)
    >>> model[:-1].transform(X).shape
    (1797, 128)
    """

    shape: Annotated[Any, checked_lengths]
    cells: Annotated[Any, checked_cells] = 4
    n_orientations: Annotated[int, param.integer(1, MAX_PIXELS)] = 8
    _: KW_ONLY
    order: Annotated[int, param.integer(1, 2)] = 1
    n_threads: param.Threads = None

    def _fitted_attributes(self, X: Any) -> dict[str, Any]:
        """Check the shape; nothing else is stored."""
        self.grids(X.shape[1])
        return {}

    @quiet
    def transform(self, X: Any) -> NDArray[Any]:
        """Return the features of images; ``fit`` is not required.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, channels * vertical * horizontal * n_orientations)
            Features in the precision of X, with the orientations of a cell adjacent; with
            ``order=2`` those of edges of edges follow.
        """
        checked = param.checked_copy(self)
        X = checked_rows(self, X)
        n_threads: Any = checked.n_threads
        first, *more = checked.grids(X.shape[1])
        if not more:
            return first.sums(X, n_threads)
        inner, second = more
        found = np.empty((X.shape[0], first.n_features + second.n_features), dtype=X.dtype)
        for block in row_blocks(X, inner.n_features + X.shape[1]):
            own = first.sums(X[block], n_threads)
            found[block, : first.n_features] = math.sqrt(1.0 - SECOND_SHARE) * own
            edges = inner.sums(X[block], n_threads)
            edges = edges.reshape(-1, first.shape[2], *inner.cells, first.n_orientations)
            images = np.moveaxis(edges, 1, 3).reshape(edges.shape[0], -1)
            behind = second.sums(images, n_threads)
            found[block, first.n_features :] = math.sqrt(SECOND_SHARE) * behind
        return found

    def grids(self, n_features: int) -> tuple[ImageGrid, ...]:
        """Return the grid of edges; with ``order=2`` also the two grids of edges of edges.

        Parameters
        ----------
        n_features : int
            Number of pixels.

        Returns
        -------
        tuple of ImageGrid

        Raises
        ------
        InvalidParameterError, TypeError
            Parameters are invalid or do not fit the number of pixels.
        """
        checked = param.checked_copy(self)
        height, width, channels = (*checked.shape, 1)[:3]
        if height * width * channels != n_features:
            raise InvalidParameterError(
                f"shape: got {tuple(checked.shape)}, expected one of {n_features} numbers, as many "
                "as features"
            )
        if isinstance(checked.cells, int):
            checked.cells = min(checked.cells, height), min(checked.cells, width)
        vertical, horizontal = checked.cells
        if vertical > height or horizontal > width:
            raise InvalidParameterError.of(
                "cells", got=checked.cells, accepted=f"at most {height} and {width}, the pixels"
            )
        first = ImageGrid((height, width, channels), (vertical, horizontal), checked.n_orientations)
        return (first, *first.halved()) if checked.order == 2 else (first,)

    @property
    def _n_features_out(self) -> int:
        """Number of features."""
        first, *more = self.grids(self.n_features_in_)
        return first.n_features + sum(grid.n_features for grid in more[1:])


@dataclass(eq=False, repr=False)
class RandomFourierFeatures(ClassNamePrefixFeaturesOutMixin, PublicTransformer):
    r"""Map rows to random Fourier features of norm exactly 1.

    .. math:: \phi(x) = D^{-1/2} (\cos\langle w_1, x\rangle, \dots, \cos\langle w_D, x\rangle,
        \sin\langle w_1, x\rangle, \dots, \sin\langle w_D, x\rangle)

    Frequencies are drawn from the spectrum of the kernel, so that
    :math:`\langle \phi(x), \phi(x') \rangle` is an unbiased estimate of the kernel with an error of
    about :math:`D^{-1/2}`.

    Parameters
    ----------
    n_components : int, default=1000
        Number D of frequencies, at most 2**20. Each gives a cosine and a sine: 2 D features.
    gamma : float, default=1.0
        Coefficient of the kernel, 1e-30 <= gamma <= 1e30.
    kernel : {"rbf", "laplacian"}, default="rbf"
        ``exp(-gamma ||x - x'||^2)`` or ``exp(-gamma ||x - x'||_1)``.
    orthogonal : bool, default=True
        Whether frequencies of "rbf" are orthogonal in blocks, which reduces the error: random
        rotations up to 64 features, above that faster products of random signs and Hadamard
        matrices. Those of "laplacian" are always independent.
    random_state : int or None, default=None
        Seed of the frequencies, 0 <= random_state < 2**64; None draws one. It draws no noise, so it
        is public and stored in ``seed_``.
    n_threads : int or None, default=None
        Number of threads; None for all cores of this process. Never changes the result.

    Attributes
    ----------
    seed_ : int
        The public seed.
    structure_ : {"independent", "orthogonal", "fast"}
        Structure of the frequencies.
    random_weights_ : ndarray of shape (n_components, n_features)
        The frequencies, recomputed at every access.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

    Notes
    -----
    Guarantees: ``fit`` reads only the number and names of the features, and all fitted attributes
    are independent of the rows, so it costs no budget. The features of a row depend on that row
    only, and have norm 1 up to rounding (a few 1e-16 in double, 1e-7 in single precision) for every
    row; a following mechanism with ``data_norm=1`` clips the excess. Proof:
    docs/proofs/random_features.md, "Feature map". The caller must not choose ``gamma`` by looking
    at private data.

    Time is O(n d D), or O(n D log d) for the products of signs. The result is dense, n x 2 D
    numbers in the precision of X; `PrivateKernelSVC` needs only one block at a time.

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

    n_components: Annotated[int, param.integer(1, MAX_COMPONENTS)] = 1000
    gamma: Annotated[float, param.real(SMALLEST_GAMMA, LARGEST_GAMMA)] = 1.0
    _: KW_ONLY
    kernel: Annotated[str, param.one_of(*KERNELS)] = "rbf"
    orthogonal: param.Flag = True
    random_state: param.Seed = None
    n_threads: param.Threads = None

    seed_: int = field(init=False)
    structure_: str = field(init=False)
    _features: FourierFeatures = field(init=False)

    def _fitted_attributes(self, X: Any) -> dict[str, Any]:
        """Draw the frequencies."""
        d, seed = X.shape[1], self.random_state
        features = filled(
            FourierFeatures,
            self,
            n_features=d,
            structure=structure_of(self.kernel, d, orthogonal=self.orthogonal),
            centre="none",
            seed=_core.NoiseSource(None).public_seed() if seed is None else seed,
        )
        # Fail now if there is no memory for the frequencies.
        features.map()
        return {"_features": features, "seed_": features.seed, "structure_": features.structure}

    @quiet
    def transform(self, X: Any) -> NDArray[Any]:
        """Return the features of rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, 2 n_components)
            Features in the precision of X.
        """
        check_is_fitted(self)
        threads = check.check_n_threads("n_threads", self.n_threads)
        X = checked_rows(self, X)
        drawn = self._features.map()
        rows = compiled_rows(X) if sparse.issparse(X) else np.ascontiguousarray(X)
        return drawn.transform(rows, threads)

    @property
    def random_weights_(self) -> NDArray[np.float64]:
        """Frequencies, ndarray of shape (n_components, n_features)."""
        check_is_fitted(self, "seed_")
        return self._features.map().weights()

    @property
    def _n_features_out(self) -> int:
        """Number of output features."""
        return 2 * self._features.n_components

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether the frequencies have been drawn."""
        return "seed_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        """Declare that a fit is needed to draw the frequencies."""
        tags = super().__sklearn_tags__()
        tags.requires_fit = True
        return tags
