"""The private pipeline with a kernel, by public random features."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import _core
from dpsvm_fast import validation as check
from dpsvm_fast.certificates import PrivacyStatement
from dpsvm_fast.certificates.words import RANDOM_FEATURES
from dpsvm_fast.estimators.fit import promise_facts
from dpsvm_fast.estimators.inputs import Bounds, checked_rows, public_map
from dpsvm_fast.estimators.linear import (
    LinearFit,
    PrivatePipeline,
    descended,
    prepared,
    solved,
    trained,
)
from dpsvm_fast.estimators.parameters import PRIVATE_KERNEL
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.mechanisms.kernel import KernelChoice, PrivateKernel
from dpsvm_fast.mechanisms.noise import check_range
from dpsvm_fast.mechanisms.rows import (
    FourierFeatures,
    PublicMap,
    ReleasedMap,
    feature_rows,
    feature_scores,
    mapped_scores,
)

# One private fit of the kernel pipeline: the linear one, with features where the rule says so.


# low_memory="auto": features are kept where all of them take at most so many bytes, and are
# computed anew in every pass beyond.
LARGEST_STORE = 1 << 28

BYTES_A_NUMBER = 4


@dataclass(frozen=True, eq=False)
class KernelFit(LinearFit):
    """Everything that was released, and the public map that was drawn.

    Parameters
    ----------
    choice : KernelChoice
    features : FourierFeatures or None
        None for the linear model; otherwise ``weights`` are those of the features.
    """

    choice: KernelChoice
    features: FourierFeatures | None


def fitted_kernel(
    mechanism: PrivateKernel,
    public: PublicMap,
    X: Any,
    codes: NDArray[np.int64],
    source: _core.NoiseSource,
    n_threads: int,
    *,
    low_memory: bool | str,
) -> KernelFit:
    """Makes the releases of one fit; everything else that was known is dropped.

    Parameters
    ----------
    mechanism : PrivateKernel
        Its events have been recorded (owed by the caller).
    public : PublicMap
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        Checked raw rows.
    codes : ndarray of shape (n_samples,)
        Class indices.
    source : NoiseSource
    n_threads : int
        Does not change the result.
    low_memory : bool or "auto"
        Does not change the result.
    """
    ready = prepared(mechanism, public, X, codes, source, n_threads)
    choice = mechanism.choice(ready.count)
    # Drawn only where it is used: a linear model is then that of the linear pipeline.
    features = (
        None if choice.kernel == "linear" else mechanism.features(choice, source.public_seed())
    )
    if features is None:
        linear = trained(ready, public, X, codes, source, n_threads)
        return KernelFit(**vars(linear), choice=choice, features=None)
    rule, solver = ready.training.rule, ready.training.solver
    if rule is not None:
        assert ready.records is not None
        size = BYTES_A_NUMBER * 2 * features.n_components * X.shape[0]
        stored = size <= LARGEST_STORE if low_memory == "auto" else not low_memory
        _lift(ready.records, features, stored=stored, n_threads=n_threads)
        weights, scaling = descended(rule, ready.records, source, n_threads)
    else:
        assert solver is not None
        released = ReleasedMap(ready.centre, ready.matrix)
        rows = feature_rows(features, public, released, X, n_threads)
        weights, scaling = solved(
            solver, rows, codes, source, n_threads, n_releases=ready.training.n_releases
        )
    return KernelFit(
        weights, scaling, ready.count, ready.centre, ready.matrix, ready.training, choice, features
    )


def _lift(records: Any, features: FourierFeatures, *, stored: bool, n_threads: int) -> None:
    """Features of the records; who holds them elsewhere draws the public map there."""
    elsewhere = getattr(records, "lift_by", None)
    if elsewhere is None:
        records.lift(features.map(), stored, n_threads)
    else:
        elsewhere(features, stored)


# n_components="auto". With Gaussian noise features cost time only; Gamma noise grows with them.
N_COMPONENTS, PURE_N_COMPONENTS = 1000, 100


class PrivateKernelSVC(PrivatePipeline):
    r"""Private kernel SVM: `PrivateLinearSVC`, trained on random features where that will help.

    One fit does, in this order and within one budget:

    1. rows are mapped by public ``bounds``, scaled to norm 1, centred by a noisy mean and perhaps
       whitened, exactly as by `PrivateLinearSVC`;
    2. with the released number of rows a rule decides whether to stay linear, and gamma: no budget;
    3. rows become :math:`(\cos\langle w_j, x\rangle - e_j, \sin\langle w_j, x\rangle)_{j \le D}`,
       scaled to norm 1, with public random frequencies w and public constants e, about the mean
       cosine over the unit sphere: no budget;
    4. weights of the features are trained with what is left.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter of everything together, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 <= delta < 1; far below one over the number of rows. 0 takes a recipe
        of pure epsilon, whose noise grows with the number of weights: for two classes and few
        features.
    bounds : tuple (low, high) or None, default=None
        Public bounds of the features, as of `PrivateLinearSVC`; None with ``normalize=False``.
    kernel : {"auto", "rbf", "laplacian", "linear"}, default="auto"
        ``exp(-gamma ||x - x'||^2)`` or ``exp(-gamma ||x - x'||_1)`` of the mapped rows; "linear"
        trains the model of `PrivateLinearSVC`. "auto" is "rbf" or "linear", see Notes; it is
        refused with ``mechanism="objective"`` and ``delta > 0``. On data with linear classes and
        strongly correlated features a kernel can be up to 0.01 less accurate: choose "linear" if
        you know.
    gamma : float or "auto", default="auto"
        Scale of the kernel on the mapped rows, 1e-30 <= gamma <= 1e30.
    n_components : int or "auto", default="auto"
        Number D of frequencies, at most 2**20; features are twice as many. "auto" is 1000, or 100
        with ``delta=0``.
    orthogonal : bool, default=True
        Whether frequencies of "rbf" are orthogonal in blocks, which makes the features more
        accurate; those of "laplacian" never are.
    mechanism : {"auto", "gradient", "objective", "output"}, default="auto"
        How the weights are trained, as of `PrivateLinearSVC`.
    normalize : bool, default=True
        False keeps what the length of a row tells: rows are clipped to norm ``data_norm`` and
        divided by it, and neither scaled to norm 1 nor centred nor whitened. Where their number is
        private and the rule needs it, it is released for 2 % of the squared Gaussian parameter (of
        epsilon with ``delta=0``).
    data_norm : float, default=1.0
        Public bound of the rows' L2 norm with ``normalize=False``; 1 otherwise.
    classes : array-like of shape (n_classes,) or None, default=None
        Public label set. None reads it from ``y``, which releases it without noise: a
        ``PrivacyLeakWarning``, and the statement is marked not private.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets: one row more or fewer, or one row exchanged for another; then the
        number of rows is public.
    whiten : "auto" or bool, default="auto"
        As of `PrivateLinearSVC`.
    margin : "auto" or float >= 0, default="auto"
        Margin of the softmax loss, as of `PrivateLinearSVC`.
    fit_intercept : bool, default=True
        Whether to add a constant feature. Its weight is noisy like the others.
    low_memory : bool or "auto", default="auto"
        Whether features are computed anew, block by block, in every pass over the rows, instead of
        being kept (8 D bytes a row). "auto" keeps up to 256 MiB. Never changes the result; of
        "gradient" only, the other mechanisms keep them.
    random_state : int or None, default=None
        None takes the operating system's entropy. A seed makes the fit reproducible and thereby
        not private: a ``NotPrivateWarning``, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget to be asked before data are read and charged before anything is drawn.
    n_threads : int or None, default=None
        Threads; None is all cores that this process may use. Never changes the result.
    noise_grid : {"exact", "float"}, default="exact"
        How Gaussian noise is drawn, as of `PrivateLinearSVC`.
    verbose : {0, 1}, default=0
        1 prints what was planned before training.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, 2 D), or (1, 2 D) for two classes
        Noisy weights of the features, cosines first; of the centred row, as `PrivateLinearSVC` has
        them, where ``kernel_`` is "linear".
    intercept_ : ndarray of shape (n_classes,), or (1,)
    kernel_ : {"rbf", "laplacian", "linear"}
        What was chosen.
    gamma_ : float or None
    n_components_ : int or None
        D; both are None for "linear".
    q_ : float or None
        The number that the rule judges by; None where no number of rows is known.
    features_ : FourierFeatures or None
        Everything that the map was drawn from: seed, structure, centre, kernel. Public.
    classes_, n_features_in_, feature_names_in_, bounds_, n_samples_, centre_, whitened_
        As of `PrivateLinearSVC`.
    whitening_, mechanism_, mu_, max_grad_norm_, n_steps_, learning_rate_, c_, lambda_
        As of `PrivateLinearSVC`.
    data_norm_ : float or None
        Bound of the rows' norm of the fit; None with ``normalize=True``.
    privacy_ : PrivacyStatement
        What was promised, and every number needed to recompute it.

    Notes
    -----
    Guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the
    relation ``adjacency``, one record being one row with its label, provided that ``bounds``,
    ``data_norm``, ``classes``, the feature names and every other parameter were chosen without
    looking at the data. Features are functions of their row and of public and released numbers, and
    have norm at most 1 whatever the row holds. Proof: docs/proofs/random_features.md on top of
    docs/proofs/auto_pipeline.md. Not covered: what `PrivateLinearSVC` lists.

    With n = ``n_samples_`` and mu the Gaussian parameter of the training (halved for
    ``replace_one``), q = n mu / B with B the number of classes, or the number of features if that
    is larger and rows are whitened. "auto" stays linear if q < 40, or if rows are not whitened and
    n < 10 n_features. gamma = sqrt(q / 1000), between 1/4 and 1; for "laplacian" times sqrt(pi /
    n_features). With ``delta=0`` epsilon / sqrt(p + 1) takes the place of mu, p being the number of
    weights, and "auto" also stays linear if D < 20 n_features. The descent is that of
    `PrivateLinearSVC` with c = 0.5 for whitened rows, 0.7 otherwise.

    The constants of the recipe were chosen on vehicle, wisdm, digits, usps, mnist, adult and
    synthetic data: expect a little less on others.

    ``bounds`` of sparse rows must have low = 0, or low = -high. "objective" and "output" do not
    centre sparse rows, as in `PrivateLinearSVC`, and make all features of all rows at once:
    ``low_memory`` is for "gradient".

    References
    ----------
    .. [1] Rahimi and Recht, "Random features for large-scale kernel machines", NIPS 2007.
    .. [2] Chaudhuri, Monteleoni and Sarwate, "Differentially private empirical risk minimization",
       JMLR 12 (2011), section 4 (kernels by random features).
    .. [3] Yu, Suresh, Choromanski, Holtmann-Rice and Kumar, "Orthogonal random features",
       NIPS 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsvm_fast import PrivateKernelSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> model = PrivateKernelSVC(
    ...     epsilon=8.0, classes=range(10), bounds=(0, 16), n_components=200
    ... ).fit(X, y)
    >>> model.kernel_, model.coef_.shape
    ('rbf', (10, 400))
    >>> model.privacy_.private
    True
    """

    _parameters = PRIVATE_KERNEL

    # What a fit publishes.
    data_norm_: float | None
    features_: FourierFeatures | None

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        bounds: Any = None,
        kernel: str = "auto",
        gamma: float | str = "auto",
        n_components: int | str = "auto",
        orthogonal: bool = True,
        mechanism: str = "auto",
        normalize: bool = True,
        data_norm: float = 1.0,
        classes: Any = None,
        adjacency: str = "add_remove",
        whiten: bool | str = "auto",
        margin: float | str = "auto",
        fit_intercept: bool = True,
        low_memory: bool | str = "auto",
        random_state: int | None = None,
        ledger: PrivacyLedger | None = None,
        n_threads: int | None = None,
        noise_grid: str = "exact",
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.kernel = kernel
        self.gamma = gamma
        self.n_components = n_components
        self.orthogonal = orthogonal
        self.mechanism = mechanism
        self.normalize = normalize
        self.data_norm = data_norm
        self.classes = classes
        self.adjacency = adjacency
        self.whiten = whiten
        self.margin = margin
        self.fit_intercept = fit_intercept
        self.low_memory = low_memory
        self.random_state = random_state
        self.ledger = ledger
        self.n_threads = n_threads
        self.noise_grid = noise_grid
        self.verbose = verbose

    def _complete(self, settings: SimpleNamespace) -> None:
        """What "auto" means, and what goes together."""
        super()._complete(settings)
        if settings.n_components == "auto":
            pure = settings.delta == 0.0
            settings.n_components = PURE_N_COMPONENTS if pure else N_COMPONENTS
        check_range("data_norm", settings.data_norm, "the bound of the rows' norm")
        if settings.normalize and settings.data_norm != 1.0:
            raise InvalidParameterError.of(
                "data_norm",
                got=settings.data_norm,
                accepted="1.0 with normalize=True, which scales every row to norm 1",
            )
        if settings.normalize:
            return
        if settings.bounds is not None:
            raise InvalidParameterError(
                "bounds: expected None with normalize=False, which takes rows as they are; "
                "data_norm is their public bound"
            )
        if settings.whiten is True:
            raise InvalidParameterError.of(
                "whiten", got=True, accepted="'auto' or False with normalize=False"
            )

    def _mechanism(
        self, settings: SimpleNamespace, n_classes: int, n_features: int
    ) -> PrivateKernel:
        """All releases for weights of this shape."""
        shared = self._shared_settings(settings, n_classes, n_features)
        shared["centred"] = shared["centred"] and settings.normalize
        names = ("kernel", "gamma", "n_components", "orthogonal", "normalize", "data_norm")
        return PrivateKernel(**shared, **{name: getattr(settings, name) for name in names})

    def _public_map(self, bounds: Bounds | None, settings: SimpleNamespace) -> PublicMap:
        """The map of raw rows by public numbers."""
        if settings.normalize:
            return super()._public_map(bounds, settings)
        return PublicMap(unit=False, data_norm=settings.data_norm)

    def _fit_released(
        self,
        mechanism: PrivateKernel,
        public: PublicMap,
        X: Any,
        codes: NDArray[np.int64],
        source: _core.NoiseSource,
        settings: SimpleNamespace,
    ) -> KernelFit:
        """Makes the releases of one fit."""
        threads, low_memory = settings.n_threads, settings.low_memory
        return fitted_kernel(mechanism, public, X, codes, source, threads, low_memory=low_memory)

    def _released_facts(self, fit: KernelFit, mechanism: PrivateKernel) -> dict[str, Any]:
        """What was released besides the weights, and the choices that follow from it."""
        lifted = fit.features is not None
        return super()._released_facts(fit, mechanism) | {
            "kernel_": fit.choice.kernel,
            "gamma_": fit.choice.gamma,
            "n_components_": mechanism.n_components if lifted else None,
            "q_": fit.choice.signal,
            "features_": fit.features,
            "data_norm_": None if mechanism.normalize else mechanism.data_norm,
        }

    def _promise(
        self, mechanism: PrivateKernel, fit: KernelFit, settings: SimpleNamespace
    ) -> PrivacyStatement:
        """What this fit promises."""
        facts = promise_facts(settings, "bounds" if settings.normalize else "data_norm")
        if fit.features is not None:
            facts["assumed_public"] += (RANDOM_FEATURES.format(seed=fit.features.seed),)
        return mechanism.statement(fit.training, **facts)

    def _scaled_scores(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Scores of mapped rows, which no row can bring out of the floats."""
        check_is_fitted(self)
        threads = check.check_n_threads(self.n_threads)
        X = checked_rows(self, X)
        if self.data_norm_ is None:
            public = public_map(self.bounds_, sparse_rows=sparse.issparse(X))
        else:
            public = PublicMap(unit=False, data_norm=self.data_norm_)
        released = ReleasedMap(self.centre_, self.whitening_)
        weights = (self.coef_, self.intercept_)
        if self.features_ is None:
            scores = mapped_scores(public, released, X, *weights)
        else:
            scores = feature_scores(self.features_, public, released, X, *weights, threads)
        return scores, np.zeros(scores.shape[0], dtype=np.int64)
