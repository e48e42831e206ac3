"""Private pipeline with a kernel, approximated by public random features."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from dpsvm_fast.estimators import parameters as param
from dpsvm_fast.estimators.inputs import broadcast_bounds, checked_knots, placed_splines
from dpsvm_fast.estimators.linear import PipelineClassifier, Trainer
from dpsvm_fast.estimators.parameters import auto_or, integer, one_of, real
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms.noise import check_range
from dpsvm_fast.mechanisms.pipeline import (
    UNLIFTED,
    PrivateKernel,
    PrivateLinear,
    ReleasedPipeline,
)
from dpsvm_fast.mechanisms.plan import Facts, filled
from dpsvm_fast.mechanisms.rows import (
    KERNELS,
    LARGEST_GAMMA,
    MAX_COMPONENTS,
    SMALLEST_GAMMA,
    FourierFeatures,
    PublicMap,
    SplineMap,
)
from dpsvm_fast.validation import refuse

# n_components="auto". With Gaussian noise features cost time only; Gamma noise grows with them.
N_COMPONENTS, PURE_N_COMPONENTS = 1000, 100


@dataclass(eq=False, repr=False)
class PrivateKernelSVC(PipelineClassifier):
    r"""Private kernel SVM: `PrivateLinearSVC` on random features if they help, or on splines.

    A fit makes these steps in order, within one budget:

    1. map rows by public ``bounds``, scale them to norm 1, centre them by a noisy mean and possibly
       whiten them, exactly as `PrivateLinearSVC` does;
    2. choose linear or kernel, and gamma, from the released number of rows: no budget;
    3. map rows to :math:`(\cos\langle w_j, x\rangle - e_j, \sin\langle w_j, x\rangle)_{j \le D}`,
       scaled to norm 1, with public random frequencies w and public constants e, approximately the
       mean cosine over the unit sphere: no budget;
    4. train the weights of the features with the rest of the budget.

    Parameters
    ----------
    epsilon : float, default=1.0
        Epsilon of the whole fit, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 <= delta < 1, far below 1 / number of rows. 0 gives pure epsilon, with
        noise that grows with the number of weights: use it for two classes and few features.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets differ by one row added or removed, or by one row replaced, which
        makes the number of rows public.
    classes : array-like of shape (n_classes,) or None, default=None
        Public label set. None reads it from ``y``, which releases it without noise: a
        ``PrivacyLeakWarning`` is issued, and the statement is marked not private.
    class_weight : dict, "balanced" or None, default=None
        Public weight of the loss for each label; 1 for labels not given. Only ratios matter:
        weights are divided by the largest. "balanced" releases noisy class counts, for 2 % of the
        squared Gaussian parameter, and weights each class by the inverse of its count; it needs
        ``delta > 0``.
    max_weight : float > 0, default=1.0
        Public upper limit on ``sample_weight``; larger weights are clipped, and a row of this
        weight counts as one. The weights of one person sum to at most one.
    noise_grid : {"exact", "float"}, default="exact"
        Sampling of Gaussian noise, as in `PrivateLinearSVC`.
    random_state : int or None, default=None
        None draws noise from the operating system. A seed makes the fit reproducible but not
        private: a ``NotPrivateWarning`` is issued, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget ledger, checked before data are read and charged before noise is drawn.
    n_threads : int or None, default=None
        Number of threads; None for all cores of this process. Never changes the result.
    verbose : {0, 1}, default=0
        1 prints the plan and draws a progress bar.
    bounds : tuple (low, high), dict of such pairs by column name, "unit_norm" or None, default=None
        Public bounds on the features, as in `PrivateLinearSVC`; None with ``normalize=False``.
    kernel : {"auto", "rbf", "laplacian", "additive", "linear"}, default="auto"
        ``exp(-gamma ||x - x'||^2)`` or ``exp(-gamma ||x - x'||_1)`` of the mapped rows; "linear"
        trains the model of `PrivateLinearSVC`. "additive" trains it on piecewise linear functions
        of single columns, as `PublicSplines` before it would: for classes that depend on the
        columns one by one, but not linearly. It needs ``bounds``. "auto" chooses "rbf" or "linear"
        (see Notes); it is refused with ``mechanism="objective"`` and ``delta > 0``. With linear
        classes a kernel usually loses up to 0.01 accuracy, and 0.08 in the worst case known
        (docs/kernels.md): then choose "linear".
    gamma : float or "auto", default="auto"
        Coefficient of the kernel on the mapped rows, 1e-30 <= gamma <= 1e30.
    n_components : int or "auto", default="auto"
        Number D of frequencies, at most 2**20, for 2 D features. "auto" is 1000, or 100 with
        ``delta=0``.
    orthogonal : bool, default=True
        Whether frequencies of "rbf" are orthogonal in blocks, which makes the features more
        accurate; those of "laplacian" are always independent.
    mechanism : {"auto", "gradient", "objective", "output"}, default="auto"
        Mechanism that trains the weights, as in `PrivateLinearSVC`.
    normalize : bool, default=True
        Whether rows are scaled to norm 1. False keeps their length: rows are clipped to norm
        ``data_norm`` and divided by it, but not scaled, centred or whitened. If the number of rows
        is private and the rule needs it, it is released for 2 % of the squared Gaussian parameter
        (of epsilon with ``delta=0``).
    data_norm : float, default=1.0
        Public bound on the L2 norm of each row with ``normalize=False``; must be 1 otherwise.
    whiten : "auto" or bool, default="auto"
        As in `PrivateLinearSVC`.
    margin : "auto" or float >= 0, default="auto"
        Margin of the softmax loss, as in `PrivateLinearSVC`.
    fit_intercept : bool, default=True
        Whether to add a constant feature, whose weight is noisy like the others.
    low_memory : bool or "auto", default="auto"
        Whether to recompute features in blocks in every pass instead of storing them (8 D bytes per
        row). "auto" stores up to 256 MiB. Never changes the result. Only for "gradient"; the other
        mechanisms store all features.
    knots : int, or list with an entry for each column, default=5
        For "additive": public knots of each column, as in `PublicSplines`.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, 2 D), or (1, 2 D) for two classes
        Noisy weights of the features, cosines first. If ``kernel_`` is "linear", those of the
        centred row as in `PrivateLinearSVC`, of shape (..., n_features); if it is "additive", those
        of the functions, of shape (..., n_functions).
    intercept_ : ndarray of shape (n_classes,), or (1,)
    kernel_ : {"rbf", "laplacian", "additive", "linear"}
        Chosen kernel.
    gamma_ : float or None
    n_components_ : int or None
        D; both are None for "linear" and "additive".
    q_ : float or None
        Signal q of the rule; None if the number of rows is unknown.
    features_ : FourierFeatures or None
        Public definition of the random features: seed, structure, centre, kernel.
    splines_ : SplineMap or None
        Public knots of "additive", whose functions take the place of the columns.
    classes_, n_features_in_, feature_names_in_, bounds_, lift_, lift_coef_, n_samples_, centre_
        As in `PrivateLinearSVC`; ``lift_coef_`` is None with random features.
    whitened_, whitening_, mechanism_, mu_, max_grad_norm_, n_steps_, learning_rate_, c_, lambda_
        As in `PrivateLinearSVC`.
    temperature_ : float
        As in `PrivateLinearSVC`.
    data_norm_ : float or None
        Bound on the norm of rows used in the fit; None with ``normalize=True``.
    privacy_ : PrivacyStatement
        Privacy statement of the fit, with every number to recompute it.

    Notes
    -----
    Guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the
    relation ``adjacency``, where a record is one row with its label, provided that ``bounds``,
    ``data_norm``, ``classes``, the feature names and every other parameter were chosen without
    looking at the data. The features of a row depend only on that row and on public and released
    numbers, and have norm at most 1 whatever the row contains. Proof:
    docs/proofs/random_features.md on top of docs/proofs/auto_pipeline.md. Not covered: the
    exceptions listed by `PrivateLinearSVC`.

    Let n be ``n_samples_`` and mu the Gaussian parameter of the training (halved for
    ``replace_one``). Then q = n mu / B, with B the number of classes, or the number of features if
    that is larger and rows are whitened. "auto" stays linear if q < 40, or if rows are not whitened
    and n < 10 n_features. gamma is sqrt(q / 1000), clipped to [1/4, 1], or to [1/4, 1/2] for
    whitened rows, times sqrt(pi / n_features) for "laplacian". With ``delta=0``,
    epsilon / sqrt(p + 1) replaces mu, with p weights, and "auto" also stays linear if
    D < 20 n_features. The descent is that of `PrivateLinearSVC` with c = 0.5 for whitened rows, 0.7
    otherwise, always m = 64, and steps that sum to at most 4 (8 for two classes): features fit any
    rows in the end.

    The constants of the rule were chosen on vehicle, wisdm, digits, usps, mnist, adult and
    synthetic data: expect slightly lower accuracy on other data.

    ``bounds`` for sparse rows must have low = 0 or low = -high. "objective" and "output" do not
    centre sparse rows, as in `PrivateLinearSVC`, and compute all features of all rows at once.

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

    _: KW_ONLY
    bounds: param.OptionalBounds = None
    kernel: Annotated[str, one_of("auto", *KERNELS, *UNLIFTED)] = "auto"
    gamma: Annotated[float | str, auto_or(real(SMALLEST_GAMMA, LARGEST_GAMMA))] = "auto"
    n_components: Annotated[int | str, auto_or(integer(1, MAX_COMPONENTS))] = "auto"
    orthogonal: param.Flag = True
    mechanism: Trainer = "auto"
    normalize: param.Flag = True
    data_norm: param.Positive = 1.0
    whiten: param.AutoFlag = "auto"
    margin: param.Margin = "auto"
    fit_intercept: param.Flag = True
    low_memory: param.AutoFlag = "auto"
    knots: Annotated[Any, checked_knots, param.ADDED] = 5

    # Published by a fit.
    data_norm_: float | None = field(init=False)
    features_: FourierFeatures | None = field(init=False)
    # Set by a fit with this kernel only.
    splines_: SplineMap | None = field(init=False, default=None)

    @property
    def _rests_on(self) -> str:
        """Public parameter that bounds the sensitivity."""
        return "bounds" if self.normalize else "data_norm"

    def plan(self, facts: Facts) -> PrivateKernel:
        """Return the plan for rows with these public facts."""
        check_range("data_norm", self.data_norm, "the bound on the norm of rows")
        plain = not self.normalize
        unused = "None with normalize=False, which uses rows as they are, of norm data_norm at most"
        one = "1.0 with normalize=True, which scales every row to norm 1"
        refuse(
            self,
            ("bounds", plain and self.bounds is not None, unused),
            ("data_norm", self.normalize and self.data_norm != 1.0, one),
            ("whiten", plain and self.whiten is True, "'auto' or False with normalize=False"),
            ("kernel", plain and self.kernel == "additive", "another kernel with normalize=False"),
        )
        public = self._public_map(facts)
        if public.splines is not None:
            # Most functions are 0 at a row: their values are sparse.
            facts = replace(facts, n_features=sum(public.splines.sizes), sparse=True)
        shared = self._shared(facts, public)
        n_components = self.n_components
        if isinstance(n_components, str):
            n_components = PURE_N_COMPONENTS if self.delta == 0.0 else N_COMPONENTS
        shared |= {"centred": shared["centred"] and self.normalize, "n_components": n_components}
        return filled(PrivateKernel, self, **shared)

    def _public_map(self, facts: Facts) -> PublicMap:
        """Return the map of raw rows by public numbers."""
        if self.kernel == "additive":
            return PublicMap.of_splines(self._splines(facts))
        if self.normalize:
            return super()._public_map(facts)
        return PublicMap(unit=False, data_norm=self.data_norm)

    def _splines(self, facts: Facts) -> SplineMap:
        """Return the functions of the additive kernel."""
        if self.bounds is None or isinstance(self.bounds, str):
            raise InvalidParameterError.of(
                "bounds", got=self.bounds, accepted="(low, high) with kernel='additive'"
            )
        # Before the rows are known: as many features as the parameters tell.
        told = [np.size(side) for side in self.bounds]
        told += [len(self.knots)] if isinstance(self.knots, list) else []
        n_features = facts.n_features or max(told)
        bounds = broadcast_bounds(self.bounds, n_features, facts.feature_names)
        return placed_splines(self.knots, bounds, n_features)

    def fitted_map(self, *, sparse_rows: bool) -> PublicMap:
        """Return the map of raw rows used in the fit."""
        if self.splines_ is not None:
            return replace(PublicMap.of_splines(self.splines_), constant=self.lift_)
        if self.data_norm_ is None:
            return super().fitted_map(sparse_rows=sparse_rows)
        return PublicMap(unit=False, data_norm=self.data_norm_)

    def _attributes(self, plan: PrivateLinear, released: ReleasedPipeline) -> dict[str, Any]:
        """Return the other released numbers, and the choices that follow from them."""
        choice, features, splines = released.choice, released.features, plan.public.splines
        assert choice is not None
        own = {} if splines is None else {"splines_": splines}
        return (
            super()._attributes(plan, released)
            | own
            | {
                "kernel_": choice.kernel,
                "gamma_": choice.gamma,
                "n_components_": None if features is None else features.n_components,
                "q_": choice.signal,
                "features_": features,
                "data_norm_": None if self.normalize else self.data_norm,
            }
        )
