"""Private linear pipeline without tuning: the estimator to start with."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast.estimators import parameters as param
from dpsvm_fast.estimators.base import Probabilities, linear_attributes
from dpsvm_fast.estimators.fit import PrivatelyTrained
from dpsvm_fast.estimators.inputs import Bounds, broadcast_bounds, checked_rows, public_map
from dpsvm_fast.estimators.parameters import chosen_loss, one_of, tests_of
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.noise import LARGEST, joined_parameter
from dpsvm_fast.mechanisms.pipeline import TRAINERS, PrivateLinear, ReleasedPipeline
from dpsvm_fast.mechanisms.plan import Facts, filled
from dpsvm_fast.mechanisms.rows import PublicMap, ReleasedMap, mapped_scores
from dpsvm_fast.validation import check_n_threads, refuse

# The type of the parameter ``mechanism`` of both pipelines.
Trainer = Annotated[str, one_of("auto", *TRAINERS)]


class PipelineClassifier(Probabilities, PrivatelyTrained):
    """Base of classifiers that map rows by released numbers before training."""

    # Published by a fit.
    lift_: float
    lift_coef_: NDArray[np.float64] | None
    bounds_: Bounds | None
    centre_: NDArray[np.float64] | None
    whitening_: NDArray[np.float64] | None

    # Parameters of a subclass.
    bounds: Any
    mechanism: str
    whiten: bool | str
    margin: float | str
    fit_intercept: bool

    def _trainer(self) -> str:
        """Name of the mechanism that trains the weights."""
        if self.mechanism == "auto":
            return "gradient" if self.delta > 0.0 else "objective"
        return self.mechanism

    def _shared(self, facts: Facts, public: PublicMap) -> dict[str, Any]:
        """Return the fields shared by the plans of both pipelines, for mapped rows."""
        trainer, pure, whiten = self._trainer(), self.delta == 0.0, self.whiten is True
        centred = trainer == "gradient" or not facts.sparse
        usual, how = "'auto' or False", f"mechanism={trainer!r}"
        refuse(
            self,
            ("delta", pure and trainer == "gradient", f"a number in (0, 1) with {how}"),
            ("whiten", pure and whiten, f"{usual} with delta=0"),
            ("whiten", whiten and not centred, f"{usual} for sparse rows with {how}"),
        )
        loss = self._loss_of(facts.n_classes)
        # Class weights would weight answers, too; without a constant feature there is no room.
        plain = self.class_weight is None and self.fit_intercept
        return {
            "calibrated": trainer == "gradient" and loss.is_likelihood and plain,
            "trainer": trainer,
            "loss": loss,
            "n_features": facts.n_columns + public.n_added,
            "centred": centred,
            "public": public,
            "balanced": self.class_weight == "balanced",
            "unit": facts.unit if trainer == "objective" else "row",
        }

    def _public_map(self, facts: Facts) -> PublicMap:
        """Return the map of raw rows by public numbers.

        Bounds that the compiled code would refuse are refused before the budget is spent.
        """
        bounds = broadcast_bounds(self.bounds, facts.n_features, facts.feature_names)
        public = public_map(bounds, sparse_rows=facts.sparse, of_bounds=PublicMap.lifted)
        for numbers in (public.offset, public.scale):
            if numbers is not None and not (np.abs(numbers) <= LARGEST).all():
                raise InvalidParameterError(
                    f"bounds: expected low from {-LARGEST:g} to {LARGEST:g}, and high at least "
                    f"{1.0 / LARGEST:g} above it"
                )
        return public

    def _loss_of(self, n_classes: int) -> Loss:
        """Return the loss for these parameters and each kind of training."""
        tests = tests_of(type(self))
        for name in ("delta", "mechanism"):
            tests[name](name, getattr(self, name))
        trainer, margin = self._trainer(), tests["margin"]("margin", self.margin)
        if trainer == "gradient":
            margin = 0.0 if margin == "auto" else margin
            return chosen_loss("softmax_margin", n_classes, 1.0, margin)
        name = "margin_distance" if trainer == "output" else "softmax_margin"
        if trainer == "objective" and self.delta == 0.0 and n_classes == 2:
            name = "huber"
        return chosen_loss(name, n_classes, "auto", margin)

    def _attributes(self, plan: PrivateLinear, released: ReleasedPipeline) -> dict[str, Any]:
        """Return the other released numbers, and the choices that follow from them."""
        training = released.training
        rule, solver = training.rule, training.solver
        lam = rule.regularization if rule is not None else getattr(solver, "regularization", None)
        own, public = linear_attributes(released.weights, released.scaling), plan.public
        n_features = plan.n_features - public.n_added
        if public.splines is not None:
            n_features = len(public.splines.knots)
        # The Gaussian parameter of each kind of release.
        mus: dict[str, float] = {}
        for part in training.sums:
            if rule is not None and part.mu is not None:
                earlier = mus.get(part.name)
                mus[part.name] = part.mu if earlier is None else joined_parameter(earlier, part.mu)
        lift_coef = None
        if public.n_added and released.features is None:
            lift_coef = own["coef_"][:, -1].copy()
            own["coef_"] = np.ascontiguousarray(own["coef_"][:, :-1])
        return own | {
            "lift_": public.constant,
            "lift_coef_": lift_coef,
            "bounds_": broadcast_bounds(self.bounds, n_features),
            "n_samples_": released.count,
            "centre_": released.centre,
            "whitened_": training.whitened,
            "whitening_": released.whitening,
            "mechanism_": plan.trainer,
            "mu_": mus,
            "max_grad_norm_": None if rule is None else rule.clip,
            "n_steps_": None if rule is None else rule.n_steps,
            "temperature_": released.temperature,
            "learning_rate_": None if rule is None else rule.learning_rate,
            "c_": None if rule is None else rule.c,
            "lambda_": lam if plan.trainer != "output" else None,
            "_fitted_loss": plan.loss,
        }

    def fitted_map(self, *, sparse_rows: bool) -> PublicMap:
        """Return the map of raw rows used in the fit."""
        public = public_map(self.bounds_, sparse_rows=sparse_rows, of_bounds=PublicMap.lifted)
        return replace(public, constant=self.lift_)

    def mapped_weights(self) -> NDArray[np.float64]:
        """Return the weights of a mapped row, the constant last, or of its features."""
        own = self.lift_coef_
        return self.coef_ if own is None else np.column_stack([self.coef_, own])

    def _scaled_scores(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return scores of mapped rows or of their features; no row can make them overflow."""
        check_is_fitted(self)
        features = vars(self).get("features_")
        threads = 1 if features is None else check_n_threads("n_threads", self.n_threads)
        X = checked_rows(self, X)
        public = self.fitted_map(sparse_rows=sparse.issparse(X))
        released = ReleasedMap(self.centre_, self.whitening_)
        weights = (self.mapped_weights(), self.intercept_)
        scores = mapped_scores(public, released, X, *weights, features, threads)
        return scores, np.zeros(scores.shape[0], dtype=np.int64)


@dataclass(eq=False, repr=False)
class PrivateLinearSVC(PipelineClassifier):
    r"""Private multi-class linear SVM: centring, whitening and training, without tuning.

    A fit makes these steps in order, within one budget:

    1. map rows by public ``bounds`` to [0, 1] (features that start at 0) or [-1, 1], append a
       constant sqrt(d) / 4, at most 1, which keeps the length of rows, and scale rows to norm 1: no
       budget;
    2. release the noisy mean and number of rows (7 % of the squared Gaussian parameter); centre
       rows and scale them to norm 1 again;
    3. if the noisy number of rows is large enough for their dimension and the K classes, release
       noisy second moments (10 %), whiten rows and scale them to norm 1 again. With more than 2 K
       and at most 20 features, whiten once more before that (5 %). With at most two features and
       two classes, whitened rows keep a constant: (z - c, 2), z whitened, scaled to norm 1;
    4. train the weights of all classes with the rest of the budget, by default with full-batch
       noisy gradient descent on clipped gradients, and release the mean of the last iterates. The
       last 2 % of the steps do not move the weights: they calibrate ``predict_proba``.

    All choices depend only on public facts and earlier releases.

    Parameters
    ----------
    epsilon : float, default=1.0
        Epsilon of the whole fit, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Delta of the whole fit, 0 <= delta < 1, far below 1 / number of rows. 0 means pure epsilon:
        centring for a tenth of epsilon, then objective perturbation with Gamma noise, without
        whitening. That noise grows with the number of weights: expect low accuracy with many
        classes or features.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets differ by one row added or removed (the number of rows stays
        private), or by one row replaced (more noise; the number of rows is public).
    classes : array-like of shape (n_classes,) or None, default=None
        Public label set: ints, strings, bools or whole floats; classes may be absent from the data.
        None reads it from ``y``, which releases it without noise: a ``PrivacyLeakWarning`` is
        issued, and the statement says so.
    class_weight : dict, "balanced" or None, default=None
        Public weight of the loss for each label; 1 for labels not given. Only ratios matter:
        weights are divided by the largest. "balanced" releases noisy class counts, for 2 % of the
        squared Gaussian parameter, and weights each class by the inverse of its count; with
        ``delta > 0`` only.
    max_weight : float > 0, default=1.0
        Public upper limit on ``sample_weight``; larger weights are clipped, and a row of this
        weight counts as one. The weights of one person sum to at most one.
    noise_grid : {"exact", "float"}, default="exact"
        "exact" samples Gaussian noise exactly on power-of-two grids, so that the guarantee covers
        the program's arithmetic. "float" draws ordinary floating-point noise.
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
        Public bounds on the features, each a number or an array of shape (n_features,), with
        ``low < high``, never taken from the data. Entries outside are clipped. "unit_norm" leaves
        features as they are, without a constant: then only the directions of rows matter, and
        features of larger range dominate. None does the same, but a strict ledger refuses it.
    mechanism : {"auto", "gradient", "objective", "output"}, default="auto"
        Mechanism that trains the weights. "auto" is "gradient", or "objective" with ``delta=0``.
        "objective" adds noise to the objective (smoothed Crammer-Singer loss, or the Huber hinge
        for two classes with ``delta=0``). "output" adds noise to the trained weights (loss
        ``margin_distance``, see `OutputPerturbationSVC`); after centring and with ``delta > 0`` it
        makes four releases, each minimiser regularised towards the previous release.
    whiten : "auto" or bool, default="auto"
        Whether to whiten. "auto" decides by the noisy number of rows. If rows are not whitened,
        training gets the budget of whitening, but with ``mechanism="objective"`` that budget is
        lost: there, pass False if the number n of rows is known to be below d**2 / 2, or n mu below
        2 K d, for d features and K classes.
    margin : "auto" or float >= 0, default="auto"
        Margin of the loss. "auto" is 0 for "gradient", which makes the loss a likelihood and allows
        ``predict_proba``; 1 gives the smoothed Crammer-Singer hinge, as accurate with many rows and
        up to 0.01 less with few. "auto" is 1 for "objective" and "output".
    fit_intercept : bool, default=True
        Whether to add a constant feature, whose weight is noisy like the others.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Noisy weights of the centred row, including whitening; see Notes.
    lift_ : float
        Public constant appended to mapped rows; 0 without ``bounds``.
    lift_coef_ : ndarray of shape (n_classes,) or (1,), or None
        Noisy weights of the constant; None without ``bounds``.
    intercept_ : ndarray of shape (n_classes,), or (1,)
        Noisy intercepts, 0 without ``fit_intercept``.
    classes_ : ndarray of shape (n_classes,)
        The sorted label set.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Feature names, if X has string column names.
    bounds_ : tuple of two ndarray of shape (n_features,), or None
        The public bounds.
    n_samples_ : float or None
        Noisy number of training rows, or the public one with ``replace_one``; None if neither was
        used.
    centre_ : ndarray of shape (n_features + 1,) or None
        Noisy mean of the mapped rows, shrunk by the share of noise in its length; the constant, if
        any, is last. Zeros where rows keep a constant: ``whitening_`` then centres them.
    whitened_ : bool
    whitening_ : ndarray of shape (n_features + 1, n_features + 1) or None
        Noisy whitening matrix, of spectral norm at most 1: the product of all whitening steps.
    mechanism_ : {"gradient", "objective", "output"}
    mu_ : dict of str to float
        Gaussian parameter of each kind of release ("centre", "whitening", "training") with
        "gradient"; their squares sum to that of the whole budget. Empty otherwise.
    max_grad_norm_, n_steps_, learning_rate_, c_, lambda_ : float or int, or None
        With "gradient": clip norm, number of steps, step size on the sum of gradients, and the c
        and lambda of its rule (see Notes). With "objective", ``lambda_`` is that of the objective.
    temperature_ : float
        Noisy divisor of the scores in ``predict_proba``; 1, at no cost, with ``class_weight`` or
        without an intercept.
    privacy_ : PrivacyStatement
        Privacy statement of the fit, with every number to recompute it.

    Notes
    -----
    Guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the
    relation ``adjacency``, where a record is one row with its label, provided that ``bounds``,
    ``classes``, the feature names and every other parameter were chosen without looking at the
    data. No value in X or y can void the guarantee: rows are mapped to norm 1 whatever they
    contain, and non-finite values are refused. Not covered: running time; floating-point effects
    with ``noise_grid="float"`` or ``delta=0``; with "objective" and "output", the event that double
    precision cannot certify the minimum (``CertificationError``). An error reveals that the data
    are invalid but never quotes them.

    Let u be the row mapped by ``bounds``, extended by the constant and scaled to norm 1, m =
    ``centre_`` and M = ``whitening_``. The scores are

    .. math:: \langle w_k, u - m \rangle / \nu(u) + b_k, \qquad
              \nu(u) = \max(\|u - m\|, 1/16) \text{ or } \|M (u - m)\|

    with w = ``coef_`` followed by ``lift_coef_``, and b = ``intercept_``: an affine map of u up to
    a positive factor, which is computed for every row because it scales the intercept.

    Rule of the descent, with n = ``n_samples_`` and mu the Gaussian parameter of the training
    (halved for ``replace_one``): T = n mu / 300 steps, between 100 and 500; c = sqrt(6 d / n),
    between 0.35 and 0.7; R = ``max_grad_norm_`` = 0.25; lambda = c R / mu; steps of 1 / (lambda T)
    on the sum of clipped gradients; no weight decay; the mean of the last 0.0875 T / c iterates.
    For whitened rows c may go down to 0.25, and the last 0.15 T / c iterates are averaged. Steps
    are at most 4 m / n, with m = d + 1, at least 16, for whitened rows and m = 64 for others, and
    sum to at most 20; if they would be x times longer, R is sqrt(x) times larger, at most 0.7.
    Where rows keep a constant, m = 6 and R is at most sqrt(2), which clips nothing. For the single
    score of two classes R is divided by sqrt 2, and 20 is 40. The last 2 % of the T steps are for
    ``temperature_``. The constants were chosen on six data sets (vehicle, dermatology, isolet,
    usps, cornell, wisdm; epsilon 1 to 8, delta 1e-5), those of whitening also on small subsets of
    them: expect slightly lower accuracy on other data.

    Sparse rows stay sparse: centring is implicit, and ``bounds`` must have low = 0 or low = -high.
    Only whitening makes a dense copy (single precision), and it needs n >= d**2 / 2. "objective"
    and "output" do not centre sparse rows, whatever ``delta`` is: all budget goes to the training.

    References
    ----------
    .. [1] Dong, Roth and Su, "Gaussian differential privacy", JRSS B 84 (2022).
    .. [2] Smith and Thakurta, "Fully adaptive composition for Gaussian differential privacy", 2022.
    .. [3] Abadi et al., "Deep learning with differential privacy", CCS 2016 (clipped gradients).
    .. [4] Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss", STOC 2014 (second moments).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> model = PrivateLinearSVC(epsilon=4.0, classes=range(10), bounds=(0, 16)).fit(X, y)
    >>> model.coef_.shape
    (10, 64)
    >>> model.privacy_.private
    True
    """

    _: KW_ONLY
    bounds: param.OptionalBounds = None
    mechanism: Trainer = "auto"
    whiten: param.AutoFlag = "auto"
    margin: param.Margin = "auto"
    fit_intercept: param.Flag = True

    _rests_on = "bounds"

    def plan(self, facts: Facts) -> PrivateLinear:
        """Return the plan for rows with these public facts."""
        return filled(PrivateLinear, self, **self._shared(facts, self._public_map(facts)))
