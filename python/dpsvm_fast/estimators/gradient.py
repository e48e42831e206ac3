"""Support vector machine trained by noisy descent on clipped gradients."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if

from dpsvm_fast import _core
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.certificates.words import ROWS_OF_PERSON
from dpsvm_fast.estimators import parameters as param
from dpsvm_fast.estimators.base import Probabilities
from dpsvm_fast.estimators.fit import OneRelease, private_fit
from dpsvm_fast.estimators.inputs import ArrayRows, public_classes
from dpsvm_fast.estimators.parameters import (
    auto_or,
    chosen_loss,
    integer,
    one_of,
    or_word,
    real,
    refuse_unused,
    tests_of,
)
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.gradient import GradientPerturbation, ReleasedIterate
from dpsvm_fast.mechanisms.plan import Facts

# Parameters of some optimizers alone, with their defaults: any other value with another optimizer
# would be ignored silently.
MOMENTUM_ONLY = {"momentum": "auto", "nesterov": False}
ADAM_ONLY = {"betas": (0.9, 0.999), "stabilizer": "auto", "noise_correction": False}
# Parameters that may change between calls of partial_fit: they change no result.
FREE = ("n_threads", "verbose", "ledger")
# Widths for which the automatic steps were chosen: scores of the size of the noise in them.
AUTOMATIC_SMOOTHING = {"softmax_margin": 1.0, "softplus": 1.0}
AUTOMATIC_MARGIN = 1.0
# Decay rates; nearer to 1, a moment would practically never decay.
decay = real(0.0, 1.0 - 1e-12)


def checked_betas(name: str, value: Any) -> tuple[float, float]:
    """Accept the two decay rates of Adam's moments."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise InvalidTypeError.of(name, value, "two numbers in [0, 1)")
    return (decay(name, value[0]), decay(name, value[1]))


# The state from which ``partial_fit`` continues, and whether it may.
#
# Noisy sums and public facts only: nothing kept between calls leaks more than was paid for.


class Continuation(NamedTuple):
    """State from which ``partial_fit`` continues: noisy numbers and public facts."""

    # State of the descent.
    state: dict[str, Any]
    # Steps taken so far.
    n_steps: int
    # Settings that may change a result.
    parameters: dict[str, Any]
    # The label set as the user gave it, None where it was read from labels.
    classes: NDArray[Any] | None
    n_calls: int
    # "row" or "person".
    unit: str
    # Periods that the ledger was charged for in all calls; empty if it was charged for all rows.
    periods: tuple[str, ...]
    # True: the statement is about the rows of the last call alone, which no other has seen.
    apart: bool


def may_continue(estimator: Any) -> bool:
    """Check that a model with these parameters can be continued."""
    if estimator.accountant == "last_iterate":
        raise AttributeError(
            "partial_fit continues from every step, but accountant='last_iterate' covers the last "
            "one only; use accountant='composition'"
        )
    return True


def continues_on_new_periods(estimator: Any) -> bool:
    """Return whether a call uses only periods that no earlier call was charged for.

    Raises
    ------
    InvalidParameterError
        Some of the periods belong to an earlier call that the statement no longer covers.
    """
    before: Continuation | None = estimator._continuation
    if before is None:
        return False
    own = () if estimator.ledger is None else estimator.ledger.charged
    if own and before.periods and not set(own) & set(before.periods):
        return before.apart or bool(estimator.privacy_.private)
    if before.apart:
        raise InvalidParameterError(
            "ledger: expected ledger.for_periods() with periods that no earlier call used, or a "
            "new fit"
        )
    return False


def continuation(estimator: Any, parameters: dict[str, Any]) -> Continuation | None:
    """Return the state that a call with these parameters may continue from."""
    before: Continuation | None = estimator._continuation
    if before is None:
        if "privacy_" in vars(estimator):
            raise InvalidParameterError(
                "accountant: this model cannot be continued: its fit released only the last "
                "iterate, or it comes from load_model or a search; fit one with "
                "accountant='composition' in this process, or unpickle one"
            )
        return None
    for name, value in parameters.items():
        if not np.array_equal(value, before.parameters[name]):
            raise InvalidParameterError(
                f"{name}: parameters must not change between calls of partial_fit"
            )
    if estimator.schedule == "linear":
        raise InvalidParameterError.of(
            "schedule",
            got="linear",
            accepted="'constant' or 'inverse' in a second call: the linear rate ended at 0",
        )
    return before


def declared_classes(
    estimator: Any, before: Continuation | None, argument: Any
) -> NDArray[Any] | None:
    """Return the label set from the parameter, the argument or an earlier call."""
    parameter: NDArray[Any] | None = estimator.classes
    if argument is None:
        if before is not None:
            return before.classes
        if parameter is None:
            raise InvalidParameterError(
                "classes: got None, expected the public label set in the first call of partial_fit "
                "or as a parameter"
            )
        return parameter
    given = public_classes("classes", argument)
    known = parameter if before is None else estimator.classes_
    if known is not None and not np.array_equal(given, known):
        raise InvalidParameterError("classes: expected the label set of the first call, or None")
    return given if before is None else before.classes


def next_seed(seed: int, n_calls: int) -> int:
    """Return a new seed for each call, because repeated noise could be subtracted."""
    for _ in range(n_calls):
        seed = _core.NoiseSource(seed).public_seed()
    return seed


Fitted = TypeVar("Fitted", bound="GradientPerturbationSVC")


@dataclass(eq=False, repr=False)
class GradientPerturbationSVC(Probabilities, OneRelease):
    r"""Multi-class linear SVM trained by noisy gradient descent (DP-SGD and DP-GD).

    All classes are trained jointly. With rows
    :math:`\tilde x_i = (x_i \min(1, \kappa / \|x_i\|), s)`, clipped to the norm ``data_norm`` and
    extended by the constant feature ``intercept_scaling``, descent approaches the minimum of

    .. math:: \tfrac12 \|W\|_F^2 + C \sum_i \phi_{y_i}(W \tilde x_i)

    (of the sum alone with ``C="auto"``) in ``n_steps`` steps along

    .. math::
        g = \frac1b \Big( \sum_{i \in B} \min\Big(1, \frac{R}{\|\nabla_i\|}\Big) \nabla_i
        + N(0, \sigma^2 I) \Big) + \frac{q}{b C \kappa^2} W

    where each row is in the batch B independently with probability q = ``sampling_rate``, b =
    ``expected_batch_size`` is a declared number, R = ``max_grad_norm``, and the gradients are with
    respect to W times kappa, that is for rows divided by ``data_norm``. On average g is q / b times
    the gradient of the objective divided by C. The penalty does not depend on rows, so it is
    neither clipped nor noisy.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter of one call of ``fit`` or ``partial_fit``, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 < delta < 1.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets differ by one row added or removed (the number of rows stays
        private), or by one row replaced (twice the noise; the number of rows is public).
    classes : array-like of shape (n_classes,) or None, default=None
        Public label set: ints, strings, bools or whole floats. Classes may be absent from the data.
        None reads it from ``y``: a ``PrivacyLeakWarning`` is issued, and the statement is marked
        not private.
    class_weight : dict, "balanced" or None, default=None
        Public weight of the loss for each label; 1 for labels not given. Only ratios matter:
        weights are divided by the largest. "balanced" releases noisy class counts, for 2 % of the
        squared Gaussian parameter, and weights each class by the inverse of its count; not with
        ``partial_fit``.
    max_weight : float > 0, default=1.0
        Public upper limit on ``sample_weight``; larger weights are clipped, and a row of this
        weight counts as one. The weights of one person sum to at most one.
    noise_grid : {"exact", "float"}, default="exact"
        "exact" samples Gaussian noise exactly on a power-of-two grid, so that the guarantee covers
        the program's arithmetic. "float" draws ordinary floating-point noise.
    random_state : int or None, default=None
        None draws noise from the operating system. A seed makes the fit reproducible but not
        private: a ``NotPrivateWarning`` is issued, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget ledger, checked before data are read and charged before the first step of every call.
    n_threads : int or None, default=None
        Number of threads; None for all cores of this process. Never changes the result.
    verbose : {0, 1}, default=0
        1 prints the plan and draws a progress bar.
    loss : str, default="softmax_margin"
        Loss phi of the scores: any smooth loss of :class:`dpsvm_fast.losses.Loss` except
        ``margin_distance``. ``softmax_margin`` is the smoothed Crammer-Singer hinge; with
        ``margin=0`` it is the cross-entropy.
    data_norm : float, default=1.0
        Public bound on the L2 norm of each row; longer rows are scaled down to it, silently.
    fit_intercept : bool, default=True
        Whether to add a constant feature, whose weight is noisy like the others.
    intercept_scaling : "auto" or float > 0, default="auto"
        Value of the constant feature for the intercept; "auto" is ``0.2 * data_norm``.
    C : "auto" or float > 0, default="auto"
        Factor of the sum of the losses, as in scikit-learn. "auto" has no penalty on the weights:
        early stopping regularises.
    smoothing : "auto" or float > 0, default="auto"
        Width over which the hinge is smoothed; "auto" is 1 for ``softmax_margin`` and ``softplus``,
        0.5 for the others. Must be "auto" for ``logistic``.
    margin : "auto" or float >= 0, default="auto"
        Margin of the loss; "auto" is 1. Must be "auto" or 1 for ``huber``, "auto" for ``logistic``.
    optimizer : {"gd", "sgd", "adam"}, default="gd"
        "gd" is full-batch gradient descent; "sgd" and "adam" use Poisson-sampled batches.
    n_steps : "auto" or int >= 1, default="auto"
        Number of steps per call. "auto": see Notes.
    sampling_rate : "auto" or float in [1e-12, 1], default="auto"
        Probability that a row is in a batch; 1 for ``gd``. "auto" for the others is
        ``128 / max_samples``, or 0.1 without ``max_samples``.
    expected_batch_size : "auto" or float > 0, default="auto"
        PUBLIC divisor of the noisy sums; it only scales the learning rate (and ``stabilizer``).
        "auto" is 1 for ``gd``, for the others ``sampling_rate * max_samples``, or 128.
    max_grad_norm : "auto" or float > 0, default="auto"
        Bound on the norm of one row's gradient; longer gradients are scaled down. "auto" is
        ``0.25 * sqrt(1 + (intercept_scaling / data_norm)**2)``, up to 2.8 times that with a large
        budget (see Notes), or the largest possible gradient with ``accountant="last_iterate"``.
    learning_rate : "auto" or float > 0, default="auto"
        Step size for weights of rows divided by ``data_norm``. "auto": see Notes.
    schedule : {"constant", "inverse", "linear"}, default="constant"
        Factor of the learning rate in step t = 0, 1, ...: 1, 1 / (t + 1) or 1 - t / n_steps.
    momentum : "auto" or float in [0, 1), default="auto"
        For ``gd`` and ``sgd``: velocity = momentum * velocity + g. "auto" is 0, or up to 0.9 for
        full batches whose steps would be too long (see Notes).
    nesterov : bool, default=False
        Whether a step follows ``g + momentum * velocity`` instead of the velocity.
    betas : tuple of two floats in [0, 1), default=(0.9, 0.999)
        Decay rates of the two moments of ``adam``.
    stabilizer : "auto" or float > 0, default="auto"
        Added by ``adam`` to the root of the second moment, or its lower bound with
        ``noise_correction``. "auto" is 1e-8, or half the noise in g with ``noise_correction``.
    noise_correction : bool, default=False
        Whether ``adam`` subtracts the variance of the noise from the second moment.
    average : "auto" or float in [0, 1], default="auto"
        Share of the iterates, counted back from the last, whose mean is released; 0 is the last
        iterate. "auto" is 0.25, or 0 with ``accountant="last_iterate"``.
    accountant : {"auto", "composition", "last_iterate"}, default="auto"
        "composition" accounts for all iterates. "last_iterate" accounts for the released last
        iterate only, which needs less noise for many steps on a strongly convex objective. It
        requires ``optimizer="gd"`` without momentum, a constant schedule, ``average=0``, a C, no
        clipping, ``max_samples`` or ``replace_one``, and a learning rate of at most 2 / (m + M),
        with m and M the smallest and the largest curvature; on an exact grid it must also be a
        power of two times b. "auto" uses it if all this holds, ``average=0`` and ``max_grad_norm``
        are given, and it needs less noise, but never with ``groups``. With "last_iterate" a person
        counts as the mean of its first rows, not as their clipped sum: the first 1024 rows, or
        fewer if their rounding for ``max_samples`` persons, which the noise covers, would exceed 5
        % of a contribution.
    max_samples : int or None, default=None
        Public upper bound on the number of rows (of persons with ``groups``), for the rules in
        Notes and for ``"last_iterate"``, which refuses more. Must be None with ``replace_one``,
        where the public number of rows is used.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Noisy weights. For two classes the row is the difference of their weights, or the weights of
        the single score.
    intercept_ : ndarray of shape (n_classes,), or (1,)
        Noisy intercepts, 0 without ``fit_intercept``.
    classes_ : ndarray of shape (n_classes,)
        The sorted label set.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Feature names, if X has string column names.
    privacy_ : PrivacyStatement
        Privacy statement of all calls since the last ``fit``, with every number to recompute it.

    Notes
    -----
    Guarantees: the fitted attributes are (epsilon, delta)-differentially private for the relation
    ``adjacency``, where a record is one row with its label, provided that ``data_norm``,
    ``classes``, ``max_samples``, the feature names and every other parameter were chosen without
    looking at the data. Batches are Poisson samples, as the accounting assumes: an empty batch is a
    step like any other. Non-finite values are refused, and long rows and gradients are clipped, so
    no value in X or y can void the guarantee. Not covered: running time, which depends on the batch
    sizes; with ``noise_grid="float"``, floating-point effects. The state that ``partial_fit``
    continues from (iterate, moments, number of steps) is kept in the estimator and its pickles. It
    is computed from noisy sums and as private as the weights. With ``accountant="last_iterate"`` it
    is not private, and not kept. An error reveals that the data are invalid but never quotes them.

    Every "auto" follows from public numbers. Let n be ``max_samples`` (the number of rows with
    ``replace_one``), d the number of features, kt the norm of a divided row with its constant
    feature, and mu the Gaussian parameter of (epsilon, delta):

    - ``n_steps`` is between 100 and 500 for full batches: ``n mu / 300``, or as many as keep a step
      at most ``24 / n`` (0.021 without n). For sampled batches it is ``20 / sampling_rate``, twenty
      passes, and at least 100.
    - Steps that are x times too long would make the weights oscillate, as with 500 full batches
      and a large budget, with few given steps, or with samples of a private number of rows. Then
      ``momentum`` is ``1 - 1 / x``, at most 0.9, so that steps of ``24 / n`` go as far. If x is y
      times more than momentum compensates, the path is y times shorter and ``max_grad_norm`` is
      ``sqrt(y)`` times larger, at most 2.8 times. Of this, ``adam`` has the larger
      ``max_grad_norm`` only. It requires ``learning_rate="auto"``; with samples and a known n
      nothing changes.
    - ``learning_rate`` for ``gd`` and ``sgd``: the rates of all steps, divided by ``1 - momentum``,
      sum to ``b / (q lambda)`` with ``lambda = c kt sigma / (q sqrt(n_steps))``, so that the noise
      moves each weight by about ``1 / (c kt)`` in total; with a C, at most the rate at which the
      penalty settles. For ``adam`` they sum to ``sqrt(n_steps) / (c kt)``.
    - c is 0.5 without n, else ``sqrt(6 d / n)``, clipped to [0.35, 0.7]. With
      ``accountant="last_iterate"`` the learning rate is the largest allowed.

    docs/accuracy.md lists methods of the literature as settings of this class.

    References
    ----------
    .. [1] Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar and Zhang, "Deep learning with
       differential privacy", CCS 2016.
    .. [2] Park, Choi and Lee, "Multi-class support vector machine with differential privacy",
       NeurIPS 2025, section 3 (gradient perturbation).
    .. [3] Bok, Su and Altschuler, "Shifted interpolation for differential privacy", ICML 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from dpsvm_fast import GradientPerturbationSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> model = GradientPerturbationSVC(epsilon=8.0, classes=range(10)).fit(normalize(X), y)
    >>> model.coef_.shape
    (10, 64)
    >>> model.privacy_.private
    True
    """

    _: KW_ONLY
    loss: param.SmoothLoss = "softmax_margin"
    data_norm: param.Positive = 1.0
    fit_intercept: param.Flag = True
    intercept_scaling: param.AutoPositive = "auto"
    C: param.AutoPositive = "auto"
    smoothing: param.Smoothing = "auto"
    margin: param.Margin = "auto"
    optimizer: Annotated[str, one_of("gd", "sgd", "adam")] = "gd"
    n_steps: Annotated[int | str, auto_or(integer(1, 2**31 - 1))] = "auto"
    # Below this rate, batches of any number of rows that fits into memory are empty.
    sampling_rate: Annotated[float | str, auto_or(real(1e-12, 1.0))] = "auto"
    expected_batch_size: param.AutoWithin = "auto"
    max_grad_norm: param.AutoPositive = "auto"
    learning_rate: param.AutoWithin = "auto"
    schedule: Annotated[str, one_of("constant", "inverse", "linear")] = "constant"
    momentum: Annotated[float | str, auto_or(decay)] = "auto"
    nesterov: param.Flag = False
    betas: Annotated[tuple[float, float], checked_betas] = (0.9, 0.999)
    stabilizer: param.AutoWithin = "auto"
    noise_correction: param.Flag = False
    average: Annotated[float | str, auto_or(real(0.0, 1.0))] = "auto"
    accountant: Annotated[str, one_of("auto", "composition", "last_iterate")] = "auto"
    max_samples: Annotated[int | None, or_word(None, integer(1, 2**40))] = None

    @available_if(may_continue)  # type: ignore[untyped-decorator]
    @in_usual_arithmetic
    def partial_fit(
        self: Fitted,
        X: Any,
        y: Any,
        classes: Any = None,
        groups: Any = None,
        sample_weight: Any = None,
        on_step: Any = None,
    ) -> Fitted:
        """Take ``n_steps`` more steps, spending epsilon and delta again.

        Training continues from the last ``fit`` or ``partial_fit``, including moments; the first
        call starts from zero. ``privacy_`` covers all calls together, as if each used the same
        rows: delta stays that of one call, and epsilon grows. If every call has
        ``ledger.for_periods()`` with other periods, no row is in two calls, and ``privacy_`` covers
        the rows of the last call.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like of shape (n_classes,) or None, default=None
            Public label set, required in the first call if the parameter ``classes`` is None.
        groups, sample_weight : array-like of shape (n_samples,), optional
            As in ``fit``; pass groups in all calls or in none.
        on_step : callable, optional
            As in ``fit``.

        Returns
        -------
        object
            This estimator.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter is outside its range or differs from the previous call; the label set is
            missing or differs; the previous ``fit`` released its last iterate only, or the model
            was loaded by ``load_model``. Nothing was read or spent.
        BudgetExceededError
            The ledger refuses. Nothing was read or spent.
        ValueError
            X or y is invalid; the message does not quote it. Nothing was spent.
        KeyboardInterrupt
            The budget of this call is spent; earlier releases stay.
        """
        checked = self.checked()
        if checked.class_weight == "balanced":
            raise InvalidParameterError(
                "class_weight: 'balanced' counts the rows of one fit; expected None or a dict of "
                "public weights in partial_fit"
            )
        asked = checked._compared()
        # One look at the attributes: another thread may be fitting the same object.
        before = continuation(checked, asked)
        checked.classes = declared_classes(checked, before, classes)
        checked.accountant = "composition"
        known = checked.classes
        if before is not None:
            known = checked.classes_
            if checked.random_state is not None:
                checked.random_state = next_seed(checked.random_state, before.n_calls)
        own = {"groups": groups, "sample_weight": sample_weight, "on_step": on_step}
        found = private_fit(checked, ArrayRows(checked, X, y, classes=known, **own))
        found["_continuation"] = found["_continuation"]._replace(parameters=asked)
        self.__dict__.update(found)
        return self

    def _compared(self) -> dict[str, Any]:
        """Return the parameters that may affect the result."""
        return {name: getattr(self, name) for name in tests_of(type(self)) if name not in FREE}

    def _training(self, facts: Facts) -> GradientPerturbation:
        """Return the plan of the training for rows with these public facts."""
        self._refuse_unused()
        n_records = self.max_samples
        if self.adjacency == "replace_one":
            # One row until the number of rows is known.
            n_records = facts.n_samples or 1
        before, owned = self._continuation, facts.unit == "person"
        if before is not None and before.unit != facts.unit:
            raise InvalidParameterError(
                f"groups: earlier calls protected each {before.unit}; expected the same unit"
            )
        return self._planned(
            GradientPerturbation,
            facts,
            loss=self._loss_of(facts.n_classes),
            intercept_scaling=self._intercept(),
            # Sums of a person's rows are clipped, their means are not: "auto" must not choose.
            accountant="composition" if owned and self.accountant == "auto" else self.accountant,
            n_records=n_records,
            most_rows=ROWS_OF_PERSON if owned else 1,
            # For single rows truncation costs almost nothing: one plan for all forms of rows.
            truncated=not owned or facts.sparse or facts.in_parts,
            continues=None if before is None or continues_on_new_periods(self) else self.privacy_,
            state=None if before is None else before.state,
            steps_before=0 if before is None else before.n_steps,
        )

    def _refuse_unused(self) -> None:
        """Refuse parameter values that would be ignored."""
        unused = MOMENTUM_ONLY if self.optimizer == "adam" else ADAM_ONLY
        if self.momentum in (0.0, "auto"):
            refuse_unused(self, {"nesterov": False}, "without a momentum")
        refuse_unused(self, unused, f"with optimizer={self.optimizer!r}, which does not use it")
        if self.optimizer == "gd" and self.sampling_rate != 1.0:
            reason = "or 1.0 with optimizer='gd', which takes all rows"
            refuse_unused(self, {"sampling_rate": "auto"}, reason)
        if self.adjacency == "replace_one":
            reason = "with adjacency='replace_one', where the number of rows is public itself"
            refuse_unused(self, {"max_samples": None}, reason)

    def _loss_of(self, n_classes: int) -> Loss:
        """Return the loss with this estimator's automatic smoothing and margin."""
        name, smoothing, margin = self.loss, self.smoothing, self.margin
        if name in AUTOMATIC_SMOOTHING:
            smoothing = AUTOMATIC_SMOOTHING[name] if smoothing == "auto" else smoothing
            margin = AUTOMATIC_MARGIN if margin == "auto" else margin
        return chosen_loss(name, n_classes, smoothing, margin)

    def _attributes(self, plan: GradientPerturbation, released: ReleasedIterate) -> dict[str, Any]:
        """Return coefficients, intercepts and the state from which ``partial_fit`` continues."""
        found = super()._attributes(plan, released.weights)
        if released.state is not None:
            before = self._continuation
            charged = () if self.ledger is None else self.ledger.charged
            found["_continuation"] = Continuation(
                state=released.state,
                n_steps=plan.steps + plan.steps_before,
                parameters=self._compared(),
                classes=self.classes,
                n_calls=1 if before is None else before.n_calls + 1,
                unit=plan.unit,
                periods=charged
                if before is None
                else (before.periods and charged and before.periods + charged),
                apart=continues_on_new_periods(self),
            )
        return found

    def _statement(self, plan: Any, released: Any, occasion: dict[str, Any]) -> Any:
        """Return the statement of this call, or of all calls."""
        if continues_on_new_periods(self):
            known = occasion["occasion"]
            occasion |= {"occasion": replace(known, assumed=(*known.assumed, "start"))}
        return super()._statement(plan, released, occasion)
