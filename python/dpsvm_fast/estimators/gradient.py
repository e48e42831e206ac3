"""Support vector machine trained by noisy descent along clipped gradients."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if

from dpsvm_fast import _core
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.estimators.base import (
    Continuation,
    Probabilities,
    continuation,
    declared_classes,
    may_continue,
    next_seed,
    resumed,
    shares_with_progress,
)
from dpsvm_fast.estimators.fit import PrivatelyTrained, warn_not_private
from dpsvm_fast.estimators.parameters import GRADIENT_PERTURBATION, chosen_loss
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.gradient import GradientPerturbation, automatic_intercept_scaling
from dpsvm_fast.mechanisms.rows import PublicMap

# Which options of gradient perturbation are used with which others.


# Parameters of some optimizers alone, with their defaults: any other value with another optimizer
# would be ignored silently.
MOMENTUM_ONLY = {"momentum": 0.0, "nesterov": False}

ADAM_ONLY = {"betas": (0.9, 0.999), "stabilizer": None, "noise_correction": False}
# May change between calls of partial_fit: they change no result.
FREE = ("n_threads", "verbose")
# The widths for which the automatic steps were chosen: scores of the size of the noise in them.
AUTOMATIC_SMOOTHING = {"softmax_margin": 1.0, "softplus": 1.0}

AUTOMATIC_MARGIN = 1.0
# Parameters whose "auto" is for the mechanism to choose.
AUTOMATIC = (
    *("C", "n_steps", "sampling_rate", "expected_batch_size", "max_grad_norm", "learning_rate"),
    *("average", "stabilizer"),
)
# Parameters that the mechanism takes as they are.
OF_THE_MECHANISM = (
    *("epsilon", "delta", "adjacency", "noise_grid", "data_norm", "intercept_scaling", "C"),
    *("optimizer", "n_steps", "sampling_rate", "expected_batch_size", "max_grad_norm"),
    *("learning_rate", "schedule", "momentum", "nesterov", "betas", "stabilizer"),
    *("noise_correction", "average", "accountant"),
)


def settle_options(settings: SimpleNamespace) -> None:
    """Leave "auto" to the mechanism, and refuse values that would be ignored."""
    for name in AUTOMATIC:
        if getattr(settings, name) == "auto":
            setattr(settings, name, None)
    unused = MOMENTUM_ONLY if settings.optimizer == "adam" else ADAM_ONLY
    accepted: dict[str, tuple[object, str]] = {
        name: (default, f"with optimizer={settings.optimizer!r}, which does not use it")
        for name, default in unused.items()
    }
    if settings.optimizer == "gd" and settings.sampling_rate != 1.0:
        accepted["sampling_rate"] = (None, "or 1.0 with optimizer='gd', which takes all rows")
    if settings.momentum == 0.0:
        accepted["nesterov"] = (False, "with momentum=0")
    if settings.adjacency == "replace_one":
        reason = "with adjacency='replace_one', where the number of rows is public itself"
        accepted["max_samples"] = (None, reason)
    for name, (default, reason) in accepted.items():
        value = getattr(settings, name)
        if value != default:
            shown = "'auto'" if name in AUTOMATIC else repr(default)
            raise InvalidParameterError.of(name, got=value, accepted=f"{shown} {reason}")


def gradient_loss(settings: SimpleNamespace, n_classes: int) -> Loss:
    """The loss with this estimator's automatic width and margin."""
    name, smoothing, margin = settings.loss, settings.smoothing, settings.margin
    if name in AUTOMATIC_SMOOTHING:
        smoothing = AUTOMATIC_SMOOTHING[name] if smoothing == "auto" else smoothing
        margin = AUTOMATIC_MARGIN if margin == "auto" else margin
    return chosen_loss(name, n_classes, smoothing, margin)


# A run of the compiled descent: rows, steps, progress.


# Noise that one call of the compiled descent draws at most: it counts its streams in 32 bits.
MOST_NUMBERS = 2**32


def started(mechanism: GradientPerturbation, before: Continuation | None) -> _core.Descent:
    """The descent before its first step, or where the calls before have left it."""
    if before is None:
        return _core.Descent(**_options(mechanism, None))
    return _core.Descent(**_options(mechanism, before), state=resumed(before.state))


def _options(mechanism: GradientPerturbation, before: Continuation | None) -> dict[str, Any]:
    """Settings of the compiled descent."""
    return mechanism.descent_options(0 if before is None else before.n_steps)


def descend(
    descent: _core.Descent,
    X: Any,
    codes: NDArray[np.int64],
    mechanism: GradientPerturbation,
    settings: SimpleNamespace,
    source: _core.NoiseSource,
) -> None:
    """Take all steps of one call. What the descent knows then are noisy sums alone."""
    records = training_records(X, codes, mechanism, settings.n_threads)
    options = _options(mechanism, settings.before)
    most = max(1, MOST_NUMBERS // math.prod(mechanism.shape))
    shown = settings.verbose > 0
    for share in shares_with_progress(mechanism.steps, most=most, shown=shown):
        take_steps(descent, options, records, source, share, settings.n_threads)


def take_steps(
    descent: _core.Descent,
    options: dict[str, Any],
    records: Any,
    source: _core.NoiseSource,
    n_steps: int,
    n_threads: int,
) -> None:
    """Steps on records here, or on those of several partitions, of which only sums come here.

    Parameters
    ----------
    descent : Descent
        Its state is moved on.
    options : dict
        The settings that it was made with.
    records : Records, or what stands for those of all partitions
    source : NoiseSource
        Every noise is drawn from it, here.
    n_steps : int
    n_threads : int
        Does not change the result.
    """
    elsewhere = getattr(records, "descend", None)
    if elsewhere is None:
        descent.run(records, source, n_steps, n_threads)
    else:
        elsewhere(descent, options, source, n_steps)


def training_records(
    X: Any, codes: NDArray[np.int64], mechanism: GradientPerturbation, n_threads: int
) -> _core.Records:
    """The rows divided by the bound of their norm, in the form of the compiled descent."""
    public = PublicMap(unit=False, data_norm=mechanism.data_norm)
    return public.records(X, codes, mechanism.loss.n_classes, n_threads)


Fitted = TypeVar("Fitted", bound="GradientPerturbationSVC")


class GradientPerturbationSVC(Probabilities, PrivatelyTrained):
    r"""Multi-class linear SVM made private by noise on the gradients it descends along.

    All classes are trained together. With rows :math:`\tilde x_i = (x_i \min(1, \kappa / \|x_i\|),
    s)`, clipped to the norm ``data_norm`` with the constant feature ``intercept_scaling``, it goes
    towards the minimum of

    .. math:: \tfrac12 \|W\|_F^2 + C \sum_i \phi_{y_i}(W \tilde x_i)

    (of the sum alone with ``C="auto"``) in ``n_steps`` steps along

    .. math::
        g = \frac1b \Big( \sum_{i \in B} \min\Big(1, \frac{R}{\|\nabla_i\|}\Big) \nabla_i
        + N(0, \sigma^2 I) \Big) + \frac{q}{b C \kappa^2} W

    where every row is in B with probability q = ``sampling_rate``, independently of all others, b =
    ``expected_batch_size`` is a declared number, R = ``max_grad_norm``, and the gradients are in W
    times kappa, that is for rows divided by ``data_norm``. On average g is q / b times the gradient
    of the objective divided by C. The penalty is no row's and is neither clipped nor noisy.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter, 0 < epsilon <= 1e4; of one call of ``fit`` or ``partial_fit``.
    delta : float, default=1e-6
        Privacy parameter, 0 < delta < 1.
    loss : str, default="softmax_margin"
        The function phi of the scores; formulas in :class:`dpsvm_fast.losses.Loss`.
        ``softmax_margin`` is the smoothed Crammer-Singer hinge, cross-entropy with ``margin=0``,
        ``m3`` and ``huber_ww`` sum hinges over the other classes (Weston and Watkins), ``huber``,
        ``logistic`` and ``softplus`` over all.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets: one row more or fewer (their number stays private), or one exchanged
        for another (twice the noise; the number of rows is public).
    data_norm : float, default=1.0
        Public bound of the rows' L2 norm; longer rows are scaled down to it, silently.
    classes : array-like of shape (n_classes,) or None, default=None
        Public label set: ints, strings, bools or whole floats; classes may be absent. None reads it
        from ``y``: a ``PrivacyLeakWarning``, and the statement is marked not private.
    fit_intercept : bool, default=True
        Whether to add a constant feature, whose weight is noisy like the others.
    intercept_scaling : "auto" or float > 0, default="auto"
        Value of the constant feature; "auto" is ``0.2 * data_norm``.
    C : "auto" or float > 0, default="auto"
        Multiplies the sum of the losses, as in scikit-learn. "auto" has no penalty on the weights:
        the finite path from 0 regularises.
    smoothing : "auto" or float > 0, default="auto"
        Width over which the hinge is rounded; "auto" is 1 for ``softmax_margin`` and ``softplus``,
        0.5 for ``huber``, ``m3`` and ``huber_ww``. Must be "auto" for ``logistic``.
    margin : "auto" or float >= 0, default="auto"
        "auto" is 1. Must be "auto" or 1 for ``huber``, "auto" for ``logistic``.
    optimizer : {"gd", "sgd", "adam"}, default="gd"
        Gradient descent with full batches, with Poisson samples, or Adam with Poisson samples.
    n_steps : "auto" or int >= 1, default="auto"
        Number of steps of one call. "auto": see Notes.
    sampling_rate : "auto" or float in [1e-12, 1], default="auto"
        Probability with which a row is in a batch; 1 for ``gd``. "auto" for the others is
        ``128 / max_samples``, or 0.1 without ``max_samples``.
    expected_batch_size : "auto" or float > 0, default="auto"
        PUBLIC number by which noisy sums are divided; it only scales the learning rate (and
        ``stabilizer``). "auto" is 1 for ``gd``, for the others ``sampling_rate * max_samples``, or
        128.
    max_grad_norm : "auto" or float > 0, default="auto"
        Bound of the norm of one row's gradient, longer ones are scaled down. "auto" is
        ``0.25 * sqrt(1 + (intercept_scaling / data_norm)**2)``, or the largest gradient possible
        with ``accountant="last_iterate"``.
    learning_rate : "auto" or float > 0, default="auto"
        For weights of rows divided by ``data_norm``. "auto": see Notes.
    schedule : {"constant", "inverse", "linear"}, default="constant"
        The learning rate times 1, 1 / (t + 1) or 1 - t / n_steps in step t = 0, 1, ...
    momentum : float in [0, 1), default=0.0
        Of ``gd`` and ``sgd``: velocity = momentum * velocity + g.
    nesterov : bool, default=False
        Whether a step goes along ``g + momentum * velocity`` instead of the velocity.
    betas : tuple of two floats in [0, 1), default=(0.9, 0.999)
        Decay of the two moments of ``adam``.
    stabilizer : "auto" or float > 0, default="auto"
        Added to the root of the second moment by ``adam``, or its least value with
        ``noise_correction``. "auto" is 1e-8, with ``noise_correction`` half the noise in g.
    noise_correction : bool, default=False
        Whether ``adam`` subtracts the variance of the noise from the second moment.
    average : "auto" or float in [0, 1], default="auto"
        Share of the iterates, from the last one back, whose mean is released; 0 is the last
        iterate. "auto" is 0.25, or 0 with ``accountant="last_iterate"``.
    accountant : {"auto", "composition", "last_iterate"}, default="auto"
        "composition" accounts for all iterates. "last_iterate" accounts for the last one alone,
        which is what is released: less noise for many steps on a strongly convex objective. It
        needs ``optimizer="gd"`` without momentum, a constant schedule, ``average=0``, a C, no
        clipping, ``max_samples`` or ``replace_one``, and a learning rate of at most 2 / (m + M), m
        and M the least and the largest curvature, that is a power of two times b on an exact grid.
        "auto" takes it where all that holds, ``average=0`` and ``max_grad_norm`` are given, and it
        needs less noise.
    max_samples : int or None, default=None
        Public bound of the number of rows, for the rules in Notes and ``"last_iterate"``, which
        refuses more. Must be None with ``replace_one``, where the number of rows takes its place.
    random_state : int or None, default=None
        None takes the operating system's entropy. A seed makes the fit reproducible and thereby
        not private: a ``NotPrivateWarning``, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget to be asked before data are read and charged before the first step, in every call.
    n_threads : int or None, default=None
        Threads; None is all cores that this process may use. Never changes the result.
    noise_grid : {"exact", "float"}, default="exact"
        Noise sampled exactly on a power-of-two grid, so that the guarantee covers the program's own
        arithmetic, or ordinary floating-point noise.
    verbose : {0, 1}, default=0
        1 prints the settings before training and a progress bar: the number of steps is public.
        On a terminal, where the bar moves, a seed gives other noise.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Noisy weights. The row of two classes is the difference of theirs, or that of one score.
    intercept_ : ndarray of shape (n_classes,), or (1,)
        Noisy intercepts, 0 without ``fit_intercept``.
    classes_ : ndarray of shape (n_classes,)
        The sorted label set.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features where X has string names.
    privacy_ : PrivacyStatement
        What all calls since the last ``fit`` promise, and every number needed to recompute it.

    Notes
    -----
    Guarantees: the fitted attributes are (epsilon, delta)-differentially private for the relation
    ``adjacency``, one record being one row with its label, provided that ``data_norm``,
    ``classes``, ``max_samples``, the feature names and every other parameter were chosen without
    looking at the data. Samples are Poisson samples, as the accounting assumes: an empty one is a
    step like any other. Non-finite values are refused, long rows and gradients clipped, so no value
    in X or y can void it. Not covered: running time, which follows the size of the samples; with
    ``noise_grid="float"``, floating-point effects. The state that ``partial_fit`` continues from
    (iterate, moments, number of steps) is kept in the estimator and its pickles: it is made of
    noisy sums and as private as the weights. With ``accountant="last_iterate"`` it is not, and not
    kept. An error about invalid data tells that they are invalid, and never quotes them.

    Every "auto" is a rule of public numbers. With n = ``max_samples`` (the number of rows under
    ``replace_one``), d features, kt the norm of a divided row with its constant feature and mu the
    Gaussian parameter of (epsilon, delta):

    - ``n_steps`` is ``n mu / 300`` within 100 and 500 for full batches, 100 without n;
      ``20 / sampling_rate``, twenty passes, and at least 100 for sampled ones.
    - ``learning_rate`` of ``gd`` and ``sgd``: the rates of all steps add up to ``b / (q lambda)``
      with ``lambda = c kt sigma / (q sqrt(n_steps))``, so that the noise moves each weight by about
      ``1 / (c kt)`` on the whole way, and with C at most what makes the penalty settle; of
      ``adam``, to ``sqrt(n_steps) / (c kt)``.
    - c is 0.5 without n, else ``sqrt(6 d / n)`` within 0.35 and 0.7. With
      ``accountant="last_iterate"`` the learning rate is the largest allowed.

    Methods of the literature as settings of this class are in docs/accuracy.md.

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

    _minimises = False
    _parameters = GRADIENT_PERTURBATION

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        loss: str = "softmax_margin",
        adjacency: str = "add_remove",
        data_norm: float = 1.0,
        classes: Any = None,
        fit_intercept: bool = True,
        intercept_scaling: float | str = "auto",
        C: float | str = "auto",
        smoothing: float | str = "auto",
        margin: float | str = "auto",
        optimizer: str = "gd",
        n_steps: int | str = "auto",
        sampling_rate: float | str = "auto",
        expected_batch_size: float | str = "auto",
        max_grad_norm: float | str = "auto",
        learning_rate: float | str = "auto",
        schedule: str = "constant",
        momentum: float = 0.0,
        nesterov: bool = False,
        betas: tuple[float, float] = (0.9, 0.999),
        stabilizer: float | str = "auto",
        noise_correction: bool = False,
        average: float | str = "auto",
        accountant: str = "auto",
        max_samples: int | None = None,
        random_state: int | None = None,
        ledger: PrivacyLedger | None = None,
        n_threads: int | None = None,
        noise_grid: str = "exact",
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.loss = loss
        self.adjacency = adjacency
        self.data_norm = data_norm
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.C = C
        self.smoothing = smoothing
        self.margin = margin
        self.optimizer = optimizer
        self.n_steps = n_steps
        self.sampling_rate = sampling_rate
        self.expected_batch_size = expected_batch_size
        self.max_grad_norm = max_grad_norm
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.momentum = momentum
        self.nesterov = nesterov
        self.betas = betas
        self.stabilizer = stabilizer
        self.noise_correction = noise_correction
        self.average = average
        self.accountant = accountant
        self.max_samples = max_samples
        self.random_state = random_state
        self.ledger = ledger
        self.n_threads = n_threads
        self.noise_grid = noise_grid
        self.verbose = verbose

    @available_if(may_continue)  # type: ignore[untyped-decorator]
    @in_usual_arithmetic
    def partial_fit(self: Fitted, X: Any, y: Any, classes: Any = None) -> Fitted:
        """Take ``n_steps`` more steps on the given rows, and spend epsilon and delta again.

        It goes on from where the last ``fit`` or ``partial_fit`` ended, moments included; without
        one it begins. ``privacy_`` is about all calls together, as if the same rows were given each
        time, whether they were or not. Its delta stays that of one call, its epsilon grows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like of shape (n_classes,) or None, default=None
            The public label set; needed in the first call if the parameter ``classes`` is None.

        Returns
        -------
        object
            This estimator.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter is outside its range or has changed since the call before; the label set is
            missing or another one; the ``fit`` before released its last iterate alone, or the model
            was loaded by ``load_model``. Nothing was read or spent.
        BudgetExceededError
            The ledger refuses. Nothing was read or spent.
        ValueError
            X or y are invalid; the text does not quote them. Nothing was spent.
        KeyboardInterrupt
            The budget of this call is spent; what was released before stays.
        """
        settings = self._checked_parameters()
        # One look at the attributes: another thread may be fitting the same object.
        fitted = dict(vars(self))
        settings.before = before = continuation(fitted, settings)
        settings.classes = declared_classes(settings.classes, classes, fitted)
        settings.accountant = "composition"
        if before is not None:
            settings.continues = fitted["privacy_"]
            settings.known_classes = fitted["classes_"]
            if settings.random_state is not None:
                settings.random_state = next_seed(settings.random_state, before.n_calls)
        warn_not_private(settings)
        self._train(X, y, settings)
        return self

    def _complete(self, settings: SimpleNamespace) -> None:
        """Without an intercept the constant feature is 0; "auto" is for the mechanism to choose."""
        if not settings.fit_intercept:
            settings.intercept_scaling = 0.0
        elif settings.intercept_scaling == "auto":
            settings.intercept_scaling = automatic_intercept_scaling(settings.data_norm)
        settle_options(settings)
        names = (name for name in self._parameters if name not in FREE)
        settings.parameters = {name: getattr(settings, name) for name in names}
        settings.before = settings.continues = None

    def _mechanism(
        self, settings: SimpleNamespace, n_classes: int, n_features: int
    ) -> GradientPerturbation:
        """The run for weights of this shape."""
        n_records = settings.max_samples
        if settings.adjacency == "replace_one":
            # Before data are seen, over one row.
            n_records = settings.n_samples or 1
        return GradientPerturbation(
            **{name: getattr(settings, name) for name in OF_THE_MECHANISM},
            loss=gradient_loss(settings, n_classes),
            n_features=n_features,
            n_records=n_records,
            continues=settings.continues,
        )

    def _prepare(self, X: Any, mechanism: GradientPerturbation, settings: SimpleNamespace) -> None:
        """Starts the descent, which refuses extreme settings, and counts rows if need be."""
        bound = mechanism.n_records
        if not mechanism.keeps_state and bound is not None and X.shape[0] > bound:
            raise InvalidParameterError(
                f"max_samples: got {bound} and more rows than that, expected a bound of their "
                "number with accountant='last_iterate'"
            )
        settings.descent = started(mechanism, settings.before)

    def _released(
        self,
        X: Any,
        codes: NDArray[np.int64],
        mechanism: GradientPerturbation,
        settings: SimpleNamespace,
        source: _core.NoiseSource,
    ) -> NDArray[np.float64]:
        """Weights in units of the rows, after all steps."""
        descent, before = settings.descent, settings.before
        descend(descent, X, codes, mechanism, settings, source)
        weights = np.asarray(descent.weights() / mechanism.data_norm)
        if not np.isfinite(weights).all():
            # A fact about noisy numbers, which may be told.
            raise InvalidParameterError(
                "learning_rate: the steps were too long and the weights left the floating-point "
                "numbers; nothing is released and the budget is spent; a smaller one avoids it"
            )
        if mechanism.keeps_state:
            settings.kept["_continuation"] = Continuation(
                state=descent.state(),
                n_steps=mechanism.steps + (0 if before is None else before.n_steps),
                parameters=settings.parameters,
                classes=settings.classes,
                n_calls=1 if before is None else before.n_calls + 1,
            )
        return weights

    def _forget(self) -> None:
        """Removes every fitted attribute, and the state from which to go on."""
        super()._forget()
        self.__dict__.pop("_continuation", None)
