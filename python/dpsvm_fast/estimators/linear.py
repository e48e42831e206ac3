"""The estimator to start with: a whole private pipeline, with nothing to tune."""

from __future__ import annotations

import copy
import sys
from abc import abstractmethod
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import _core
from dpsvm_fast import validation as check
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.certificates import PrivacyStatement
from dpsvm_fast.estimators.base import Probabilities
from dpsvm_fast.estimators.fit import (
    FEATURE_FACTS,
    PrivatelyTrained,
    certified,
    promise_facts,
    spend_label,
    warn_not_private,
)
from dpsvm_fast.estimators.gradient import take_steps
from dpsvm_fast.estimators.inputs import (
    Bounds,
    broadcast_bounds,
    check_extent,
    check_room,
    checked_rows,
    checked_training_set,
    classes_from_labels,
    encoded_labels,
    public_map,
)
from dpsvm_fast.estimators.parameters import PRIVATE_LINEAR, chosen_loss
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.noise import joined_parameter
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from dpsvm_fast.mechanisms.output import OutputPerturbation
from dpsvm_fast.mechanisms.pipeline import TRAINERS, DescentRule, PrivateLinear, Training
from dpsvm_fast.mechanisms.rows import PublicMap, ReleasedMap, mapped_rows, mapped_scores

# What the private pipelines have in common, the linear one and the one with a kernel.


Fitted = TypeVar("Fitted", bound="PrivatePipeline")


class PrivatePipeline(Probabilities, PrivatelyTrained):
    """Base of classifiers that map rows by released numbers before they train on them."""

    # What a fit publishes.
    bounds_: Bounds | None
    centre_: NDArray[np.float64] | None
    whitening_: NDArray[np.float64] | None

    # What a subclass is made with.
    delta: float
    mechanism: str
    margin: float | str

    @abstractmethod
    def _fit_released(
        self,
        mechanism: Any,
        public: PublicMap,
        X: Any,
        codes: Any,
        source: _core.NoiseSource,
        settings: SimpleNamespace,
    ) -> LinearFit:
        """Makes the releases of one fit, whose events have been recorded."""

    @in_usual_arithmetic
    def fit(self: Fitted, X: Any, y: Any) -> Fitted:
        """Spend the budget on private rows and publish what came out.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers.
        y : array-like of shape (n_samples,)
            Labels, each one of ``classes``.

        Returns
        -------
        object
            This estimator.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter is outside its range. Nothing was spent.
        BudgetExceededError
            The ledger refuses. Nothing was spent.
        ValueError
            X or y are invalid; the text does not quote them. Nothing was spent.
        CertificationError
            With "objective" or "output", double precision could not certify the minimum. The budget
            is spent and nothing is released; this event is not covered by the guarantee.
        KeyboardInterrupt
            The budget is spent and nothing is released.
        """
        self._forget()
        settings = self._checked_parameters()
        warn_not_private(settings)
        # Validation writes what it learns about X onto the copy: this object stays unfitted.
        probe = copy.copy(self)
        X, y = checked_training_set(probe, X, y)
        classes = classes_from_labels(y) if settings.classes is None else settings.classes
        facts = {name: vars(probe)[name] for name in FEATURE_FACTS if name in vars(probe)}
        settings.sparse = sparse.issparse(X)
        self._fit_on(X, encoded_labels(y, classes), classes, facts, settings)
        return self

    def _fit_on(
        self,
        X: Any,
        codes: NDArray[np.int64] | None,
        classes: NDArray[Any],
        facts: dict[str, Any],
        settings: SimpleNamespace,
    ) -> None:
        """Spend, release and publish.

        Parameters
        ----------
        X : ndarray, CSR matrix or PartitionedRows
            Validated rows, or rows that validate themselves once the budget is spent.
        codes : ndarray of shape (n_samples,) or None
            Class indices; None where X has its labels.
        classes : ndarray of shape (n_classes,)
        facts : dict
            What was learned about the features, to be published.
        settings : SimpleNamespace
            Checked parameters, and whether rows are sparse.
        """
        n_features = facts["n_features_in_"]
        bounds = broadcast_bounds(settings.bounds, n_features)
        mechanism = self._mechanism(settings, classes.size, n_features)
        # Rows elsewhere are not counted yet, and no minimiser is fitted on them.
        n_rows = 0 if codes is None else codes.size
        self._check_room(mechanism, n_rows, classes.size, n_features)
        public = self._public_map(bounds, settings)
        events = mechanism.events
        source = _core.NoiseSource(settings.random_state)
        if settings.verbose:
            sys.stdout.write(f"{type(self).__name__}: {mechanism.summary()}\n")
        if settings.ledger is not None:
            settings.ledger.spend(events, spend_label(self, settings))
        fit = self._fit_released(mechanism, public, X, codes, source, settings)
        self._publish(
            fit.weights,
            fit.scaling,
            **self._released_facts(fit, mechanism),
            bounds_=bounds,
            classes_=classes,
            mechanism_=mechanism.trainer,
            privacy_=self._promise(mechanism, fit, settings),
            _fitted_loss=mechanism.score_loss,
            **facts,
        )

    def _check_room(self, mechanism: Any, n_rows: int, n_classes: int, n_features: int) -> None:
        """Refuse what memory is lacking for, before anything is spent."""
        # Weights, and a frequency of a kernel for every feature.
        kept = 0 if mechanism.trainer == "gradient" else n_rows * n_classes
        check_room(n_classes * (mechanism.n_columns + 1) + n_features, kept)
        if mechanism.n_columns != n_features:
            check_room(0, mechanism.n_columns * n_features)

    def _public_map(self, bounds: Bounds | None, settings: SimpleNamespace) -> PublicMap:
        """The map of raw rows by public numbers."""
        public = public_map(bounds, sparse_rows=settings.sparse)
        check_extent(public)
        return public

    def _complete(self, settings: SimpleNamespace) -> None:
        """What "auto" means."""
        # Known once data are there; as public as the number of columns.
        settings.sparse = False
        if settings.mechanism == "auto":
            settings.mechanism = "gradient" if settings.delta > 0.0 else "objective"
        if settings.mechanism == "gradient" and settings.delta == 0.0:
            raise InvalidParameterError.of(
                "delta", got=0.0, accepted="a number in (0, 1) with mechanism='gradient'"
            )
        if settings.whiten is True and settings.delta == 0.0:
            raise InvalidParameterError.of(
                "whiten", got=True, accepted="'auto' or False with delta=0"
            )

    def _shared_settings(
        self, settings: SimpleNamespace, n_classes: int, n_features: int
    ) -> dict[str, Any]:
        """Settings of the mechanism that both pipelines have."""
        names = ("epsilon", "delta", "adjacency", "noise_grid", "fit_intercept", "whiten")
        centred = settings.mechanism == "gradient" or not settings.sparse
        if settings.whiten is True and not centred:
            raise InvalidParameterError.of(
                "whiten",
                got=True,
                accepted=f"'auto' or False for sparse rows with mechanism={settings.mechanism!r}",
            )
        return {name: getattr(settings, name) for name in names} | {
            "trainer": settings.mechanism,
            "loss": _loss(settings.mechanism, settings.delta, n_classes, settings.margin),
            "n_features": n_features,
            "centred": centred,
        }

    def _used_loss(self) -> Loss:
        """The loss of the fitted model, or the one that a fit would use for two classes."""
        fitted: Loss | None = vars(self).get("_fitted_loss")
        if fitted is not None:
            return fitted
        delta = check.check_delta(self.delta)
        trainer = check.check_option("mechanism", self.mechanism, ("auto", *TRAINERS))
        if trainer == "auto":
            trainer = "gradient" if delta > 0.0 else "objective"
        return _loss(trainer, delta, 2, self._parameters["margin"](self.margin))

    def _released_facts(self, fit: Any, mechanism: Any) -> dict[str, Any]:
        """What was released besides the weights, and the choices that follow from it."""
        rule, solver = fit.training.rule, fit.training.solver
        gradient = rule is not None
        lam = rule.regularization if rule is not None else getattr(solver, "regularization", None)
        return {
            "n_samples_": fit.count,
            "centre_": fit.centre,
            "whitened_": fit.training.whitened,
            "whitening_": fit.whitening,
            "mu_": _parameters_of(fit.training) if gradient else {},
            "max_grad_norm_": rule.clip if rule is not None else None,
            "n_steps_": rule.n_steps if rule is not None else None,
            "learning_rate_": rule.learning_rate if rule is not None else None,
            "c_": rule.c if rule is not None else None,
            "lambda_": lam if mechanism.trainer != "output" else None,
        }

    def _promise(self, mechanism: Any, fit: Any, settings: SimpleNamespace) -> PrivacyStatement:
        """What this fit promises."""
        promised: PrivacyStatement = mechanism.statement(
            fit.training, **promise_facts(settings, "bounds")
        )
        return promised


def _parameters_of(training: Training) -> dict[str, float]:
    """The Gaussian parameter of each kind of release."""
    found: dict[str, list[float]] = {}
    for part in training.sums:
        if part.mu is not None:
            found.setdefault(part.name, []).append(part.mu)
    return {
        name: mus[0] if len(mus) == 1 else joined_parameter(*mus) for name, mus in found.items()
    }


def _loss(trainer: str, delta: float, n_classes: int, margin: float | str) -> Loss:
    """The loss of each kind of training."""
    if trainer == "gradient":
        return chosen_loss("softmax_margin", n_classes, 1.0, 0.0 if margin == "auto" else margin)
    if trainer == "output":
        return chosen_loss("margin_distance", n_classes, "auto", margin)
    name = "huber" if delta == 0.0 and n_classes == 2 else "softmax_margin"
    return chosen_loss(name, n_classes, "auto", margin)


# One private fit of the linear pipeline, from raw rows to noisy weights of mapped rows.


Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinearFit:
    """Everything that was released.

    Parameters
    ----------
    weights : ndarray of shape (n_scores, n_features [+ 1])
        Of the centred row, whitening folded in; the last column belongs to the constant feature.
    scaling : float
        The constant feature; 0 for none.
    count : float or None
        Noisy or public number of rows.
    centre : ndarray of shape (n_features,) or None
    whitening : ndarray of shape (n_features, n_features) or None
    training : Training
        The path that was taken.
    """

    weights: Array
    scaling: float
    count: float | None
    centre: Array | None
    whitening: Array | None
    training: Training


@dataclass(frozen=True, eq=False)
class Prepared:
    """What is there before the training: releases, and rows mapped by them.

    Parameters
    ----------
    count : float or None
        Noisy or public number of rows.
    centre : ndarray of shape (n_features,) or None
    matrix : ndarray of shape (n_features, n_features) or None
    training : Training
        The path that was taken.
    records : Records or None
        Private rows for the descent, mapped; None where a solver maps rows itself.
    """

    count: float | None
    centre: Array | None
    matrix: Array | None
    training: Training
    records: _core.Records | None


def fitted_weights(
    mechanism: PrivateLinear,
    public: PublicMap,
    X: Any,
    codes: NDArray[np.int64],
    source: _core.NoiseSource,
    n_threads: int,
) -> LinearFit:
    """Makes the releases of one fit; everything else that was known is dropped.

    Parameters
    ----------
    mechanism : PrivateLinear
        Its events have been recorded (owed by the caller).
    public : PublicMap
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        Checked raw rows.
    codes : ndarray of shape (n_samples,)
        Class indices.
    source : NoiseSource
    n_threads : int
        Does not change the result.
    """
    ready = prepared(mechanism, public, X, codes, source, n_threads)
    return trained(ready, public, X, codes, source, n_threads)


def prepared(
    mechanism: PrivateLinear,
    public: PublicMap,
    X: Any,
    codes: NDArray[np.int64],
    source: _core.NoiseSource,
    n_threads: int,
) -> Prepared:
    """Makes the releases before the training; parameters as of :func:`fitted_weights`."""
    count: float | None
    centre = matrix = records = None
    if mechanism.centre is not None or mechanism.trainer == "gradient":
        records = public.records(X, codes, mechanism.loss.n_classes, n_threads)
    if mechanism.centre is not None and records is not None:
        mean = mechanism.centre.release(records.sums(n_threads), X.shape[0], source, n_threads)
        count, centre = mean.count, mean.point
    else:
        count = mechanism.known_count(X.shape[0], source, n_threads)
    training = mechanism.training(count)
    if (
        records is not None
        and centre is not None
        and (training.whitened or training.rule is not None)
    ):
        records.centre(centre, n_threads)
    for moments in mechanism.whitenings if training.whitened else ():
        assert records is not None
        own = moments.release(records.gram(n_threads), source, n_threads)
        matrix = own if matrix is None else _core.row_products(own, matrix, n_threads)
        if training.rule is not None or moments is not mechanism.whitening:
            records.transform(own, n_threads)
    if training.rule is None:
        records = None
    return Prepared(count, centre, matrix, training, records)


def trained(
    ready: Prepared,
    public: PublicMap,
    X: Any,
    codes: NDArray[np.int64],
    source: _core.NoiseSource,
    n_threads: int,
) -> LinearFit:
    """Weights of the mapped rows themselves."""
    training, matrix = ready.training, ready.matrix
    if training.rule is not None:
        assert ready.records is not None
        weights, scaling = descended(training.rule, ready.records, source, n_threads)
    else:
        assert training.solver is not None
        rows = _rows_of_solver(public, ReleasedMap(ready.centre, matrix), X)
        weights, scaling = solved(
            training.solver, rows, codes, source, n_threads, n_releases=training.n_releases
        )
    if matrix is not None:
        d = X.shape[1]
        weights = np.hstack([weights[:, :d] @ matrix, weights[:, d:]])
    return LinearFit(weights, scaling, ready.count, ready.centre, matrix, training)


def descended(
    rule: DescentRule, records: _core.Records, source: _core.NoiseSource, n_threads: int
) -> tuple[Array, float]:
    """Weights of the row before it was shortened to make room for the constant feature."""
    descent = rule.descent()
    take_steps(descent, rule.descent_options(), records, source, rule.n_steps, n_threads)
    return rule.row_scale * descent.weights(), rule.intercept


def _rows_of_solver(public: PublicMap, released: ReleasedMap, X: Any) -> Any:
    """Mapped rows for a solver: dense ones in single precision; sparse ones are not centred."""
    if not sparse.issparse(X):
        return mapped_rows(public, released, X, np.float32)
    return public.apply(X)


def solved(
    mechanism: ObjectivePerturbation | OutputPerturbation,
    rows: Any,
    codes: NDArray[np.int64],
    source: _core.NoiseSource,
    n_threads: int,
    *,
    n_releases: int = 1,
) -> tuple[Array, float]:
    """Certified weights with noise in the objective or on them, and the constant feature.

    Of several releases the last: each minimiser is regularised towards the release before it, whose
    half squared distance times lambda is the penalty of 0 and a linear term.
    """
    loss, linear = mechanism.score_loss, None
    if isinstance(mechanism, ObjectivePerturbation):
        linear = mechanism.draw_linear(source, n_threads=n_threads)
    kernel, smoothing, margin = loss.kernel
    options: dict[str, Any] = {
        "loss": kernel,
        "n_scores": loss.n_scores,
        "smoothing": smoothing,
        "margin": margin,
        "regularization": mechanism.regularization,
        "linear": linear,
        "gradient_tol": mechanism.gradient_tol,
        "data_norm": mechanism.data_norm,
        "intercept_scaling": mechanism.intercept_scaling,
        "max_iter": None,
        "n_threads": n_threads,
        "low_memory": False,
        "shuffle_seed": source.public_seed(),
    }
    solvers = (_core.solve_smooth_dense, _core.solve_smooth_csr)
    noisy = mechanism.release(
        certified(*solvers, rows, codes, options), source, n_threads=n_threads
    )
    for _ in range(1, n_releases):
        options["linear"] = -mechanism.regularization * noisy
        options["shuffle_seed"] = source.public_seed()
        again = certified(*solvers, rows, codes, options)
        noisy = mechanism.release(again, source, n_threads=n_threads)
    return noisy, mechanism.intercept_scaling


class PrivateLinearSVC(PrivatePipeline):
    r"""Private multi-class linear SVM with a private pipeline around it and nothing to tune.

    One fit does, in this order and within one budget:

    1. every row is mapped by public ``bounds``, [0, b] and [lo, hi] to [0, 1] and [-b, b] to
       [-1, 1], and scaled to norm 1: no budget;
    2. the mean of the rows and their number are released with noise (7 % of the squared Gaussian
       parameter); rows are centred and scaled to norm 1 again;
    3. if the noisy number of rows is large enough for their dimension, the matrix of their second
       moments is released with noise (10 %); rows are whitened and scaled to norm 1 again. With
       more than 2 K and at most 20 features, K the number of classes, that is done twice before
       (5 % each): what one whitening enlarges stands out of the noise of the next;
    4. weights of all classes are trained with what is left of the budget, by default by full-batch
       gradient descent on clipped gradients with noise in every step; the mean of the last iterates
       is released.

    Every number in it is a function of public facts and of what was released before.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter of everything together, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 <= delta < 1; far below one over the number of rows. 0 takes a recipe
        of pure epsilon: centring for a tenth of epsilon and objective perturbation with Gamma
        noise, without whitening. Its noise grows with the number of weights: expect little of it
        for many classes or features.
    bounds : tuple (low, high) or None, default=None
        Public bounds of the features, each a number or an array of shape (n_features,), with
        ``low < high``; entries outside are clipped, silently. They must not be taken from the data.
        None leaves features as they are: then only the directions of rows matter, and features of
        larger range dominate.
    mechanism : {"auto", "gradient", "objective", "output"}, default="auto"
        How the weights are trained. "auto" is "gradient", or "objective" with ``delta=0``.
        "objective" puts noise into the objective (smoothed Crammer-Singer loss, or the Huber hinge
        for two classes with ``delta=0``); "output" puts it on the trained weights (loss
        ``margin_distance``, see `OutputPerturbationSVC`); with a centre before it and
        ``delta > 0`` in four releases, each minimiser regularised towards the release before.
    classes : array-like of shape (n_classes,) or None, default=None
        Public label set: ints, strings, bools or whole floats. It may hold classes that do not
        occur. None reads it from ``y``, which releases it without noise: a
        ``PrivacyLeakWarning``, and the statement is marked not private.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets: one row more or fewer (the number of rows stays private), or one
        row exchanged for another (more noise; the number of rows is public).
    whiten : "auto" or bool, default="auto"
        Whether to whiten. "auto" decides by the noisy number of rows; what is not spent on it
        stays with the training, except with ``mechanism="objective"``, where it is lost: there say
        False if you know that the rows are fewer than half the squared number of features.
    margin : "auto" or float >= 0, default="auto"
        Margin of the loss. "auto" is 0 for "gradient", which makes the loss a likelihood
        with ``predict_proba``; 1 makes it the smoothed Crammer-Singer hinge, as accurate for many
        rows and up to 0.01 less for few. "auto" is 1 for "objective" and "output".
    fit_intercept : bool, default=True
        Whether to add a constant feature. Its weight is noisy like the others.
    random_state : int or None, default=None
        None takes the operating system's entropy. A seed makes the fit reproducible and thereby
        not private: a ``NotPrivateWarning``, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget to be asked before data are read and charged before anything is drawn.
    n_threads : int or None, default=None
        Threads; None is all cores that this process may use. Never changes the result.
    noise_grid : {"exact", "float"}, default="exact"
        "exact" draws Gaussian noise exactly on power-of-two grids, so that the guarantee covers
        the program's own arithmetic. "float" is ordinary floating-point noise.
    verbose : {0, 1}, default=0
        1 prints what was planned before training.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Noisy weights of the centred row, whitening included, see Notes.
    intercept_ : ndarray of shape (n_classes,), or (1,)
        Noisy intercepts, 0 without ``fit_intercept``.
    classes_ : ndarray of shape (n_classes,)
        The sorted label set.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features where X has string names.
    bounds_ : tuple of two ndarray of shape (n_features,), or None
        The public bounds.
    n_samples_ : float or None
        Noisy number of training rows, or the public one with ``replace_one``; None where neither
        was used.
    centre_ : ndarray of shape (n_features,) or None
        Noisy mean of the mapped rows, shrunk by the share of noise in its length.
    whitened_ : bool
    whitening_ : ndarray of shape (n_features, n_features) or None
        Noisy whitening matrix, of spectral norm at most 1; the product of all of them.
    mechanism_ : {"gradient", "objective", "output"}
    mu_ : dict of str to float
        Gaussian parameter of each kind of release ("centre", "whitening", "training"), of
        "gradient"; the sum of their squares is that of the whole budget. Empty otherwise.
    max_grad_norm_, n_steps_, learning_rate_, c_, lambda_ : float or int, or None
        Of "gradient": clip norm, number of steps, step on the sum of gradients, and the rule behind
        it, see Notes. With "objective", ``lambda_`` is that of the objective.
    privacy_ : PrivacyStatement
        What was promised, and every number needed to recompute it.

    Notes
    -----
    Guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the
    relation ``adjacency``, one record being one row with its label, provided that ``bounds``,
    ``classes``, the feature names and every other parameter were chosen without looking at the
    data. No value in X or y can void it: rows are mapped to norm 1 whatever they hold, and
    non-finite values are refused. Not covered: running time; floating-point effects with
    ``noise_grid="float"`` or ``delta=0``; with "objective" and "output", the event that double
    precision cannot certify the minimum (``CertificationError``). An error about invalid data
    tells that they are invalid, and never quotes them.

    With u the row mapped by ``bounds`` and scaled to norm 1, m = ``centre_`` and M =
    ``whitening_``, the scores are

    .. math:: \langle w_k, u - m \rangle / \nu(u) + b_k, \qquad
              \nu(u) = \max(\|u - m\|, 1/16) \text{ or } \|M (u - m)\|

    with w = ``coef_`` and b = ``intercept_``: one affine map of u up to a positive factor, which is
    recomputed for every row because it weighs the intercept.

    The descent has, with R = ``max_grad_norm_`` = 0.25 (0.25 / sqrt 2 for the one score of two
    classes), n = ``n_samples_`` and mu the parameter of the training (halved for ``replace_one``):
    T = n mu / 300 steps, between 100 and 500; c = sqrt(6 d / n), between 0.35 and 0.7; lambda = c R
    / mu; steps of 1 / (lambda T) on the sum of clipped gradients; no weight decay; the mean of the
    last 0.0875 T / c iterates. Whitened rows take c down to 0.25 and the last 0.15 T / c iterates.
    The constants of the recipe were chosen on six data sets (vehicle, dermatology, isolet, usps,
    cornell, wisdm; epsilon 1 to 8, delta 1e-5), those of whitening on small versions of them, too:
    expect a little less on others.

    Sparse rows stay sparse: centring is implicit, so ``bounds`` must have low = 0, or low = -high.
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

    _parameters = PRIVATE_LINEAR

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        bounds: Any = None,
        mechanism: str = "auto",
        classes: Any = None,
        adjacency: str = "add_remove",
        whiten: bool | str = "auto",
        margin: float | str = "auto",
        fit_intercept: bool = True,
        random_state: int | None = None,
        ledger: PrivacyLedger | None = None,
        n_threads: int | None = None,
        noise_grid: str = "exact",
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.mechanism = mechanism
        self.classes = classes
        self.adjacency = adjacency
        self.whiten = whiten
        self.margin = margin
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.ledger = ledger
        self.n_threads = n_threads
        self.noise_grid = noise_grid
        self.verbose = verbose

    def _mechanism(
        self, settings: SimpleNamespace, n_classes: int, n_features: int
    ) -> PrivateLinear:
        """All releases for weights of this shape."""
        return PrivateLinear(**self._shared_settings(settings, n_classes, n_features))

    def _fit_released(
        self,
        mechanism: PrivateLinear,
        public: PublicMap,
        X: Any,
        codes: NDArray[np.int64],
        source: _core.NoiseSource,
        settings: SimpleNamespace,
    ) -> LinearFit:
        """Makes the releases of one fit."""
        return fitted_weights(mechanism, public, X, codes, source, settings.n_threads)

    def _scaled_scores(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Scores of mapped rows, which no row can bring out of the floats."""
        check_is_fitted(self)
        X = checked_rows(self, X)
        public = public_map(self.bounds_, sparse_rows=sparse.issparse(X))
        released = ReleasedMap(self.centre_, self.whitening_)
        scores = mapped_scores(public, released, X, self.coef_, self.intercept_)
        return scores, np.zeros(scores.shape[0], dtype=np.int64)
