"""The steps of a private fit, the same for every estimator.

Parameters and the ledger are checked before data are read. The budget is spent before noise is
drawn or a solver runs. The fitted attributes are set at the very end, all or none.
"""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, TypeVar

from sklearn.base import BaseEstimator

from dpsvm_fast import _core
from dpsvm_fast.arithmetic import check_arithmetic, in_usual_arithmetic
from dpsvm_fast.certificates import Occasion, PrivacyEvent
from dpsvm_fast.estimators import parameters as param
from dpsvm_fast.estimators.base import PrivateLinearClassifier, Released, linear_attributes
from dpsvm_fast.estimators.inputs import ArrayRows, NamedBounds, check_room
from dpsvm_fast.estimators.parameters import checked_copy, number_or_none, tests_of
from dpsvm_fast.exceptions import InvalidParameterError, NotPrivateWarning, PrivacyLeakWarning
from dpsvm_fast.ledger import PrivacyLedger, check_ledger
from dpsvm_fast.mechanisms.moments import BalancedPlan
from dpsvm_fast.mechanisms.output import INTERCEPT
from dpsvm_fast.mechanisms.plan import DataclassT, Facts, Plan, Rows, filled
from dpsvm_fast.validation import SEARCHING, warn_of_weak_numbers

# Logs public facts only: plans, spends and whether they are private. Nothing about candidates: the
# number of fits of a search may be secret.
LOG = logging.getLogger("dpsvm_fast")
LOG.addFilter(lambda _: not SEARCHING.get())

# Parameters that do not affect the guarantee, and the label set, which has its own line.
WITHOUT_WEIGHT = ("n_threads", "verbose", "low_memory", "random_state", "classes")

STRICT = ". Nothing was spent: the ledger is strict; PrivacyLedger(..., strict=False) allows it"
# The release has less noise than was paid for: charge at least the cost of the noise, whose key
# may still be secret. Charging less would let later fits spend it again.
CHARGED = "; the ledger is charged nevertheless and lists the spend as NOT PRIVATE"

# Stack frames from what private_fit calls to the line that called ``fit``, for its warnings.
FRAMES = 5

Fitted = TypeVar("Fitted", bound="PrivateEstimator")


def private_fit(estimator: PrivateEstimator, rows: Rows) -> dict[str, Any]:
    """Plan a fit, spend its budget and run it.

    Parameters
    ----------
    estimator : PrivateEstimator
        Checked copy of the estimator.
    rows : Rows
        Training rows.

    Returns
    -------
    dict
        All fitted attributes, to be set at once: the noisy numbers and their statement.
    """
    ledger = estimator.ledger
    warn_not_private(estimator)
    facts = rows.facts
    _check_scales(estimator, facts)
    bounds = getattr(estimator, "bounds", None)
    if isinstance(bounds, NamedBounds):
        vars(estimator)["bounds"] = bounds.in_order(facts.feature_names)
    plan = estimator.plan(estimator.owned(facts))
    # Refuses noise that cannot be drawn.
    events, training = plan.events, plan.weighed_training
    how: Any = {"unit": facts.unit, "by_age": plan.by_age}
    if ledger is not None:
        ledger.check(events, **how)
    rows.read()
    if rows.facts != facts:
        raise InvalidParameterError("X: its values changed during the fit")
    training.check_rows(rows)
    check_room(training.n_numbers(rows.n_here))
    occasion = {
        "occasion": estimator._occasion(),
        "library_version": _core.build_info()["version"],
        "random_source": "operating_system" if estimator.random_state is None else "seed",
        "unit": facts.unit,
    }
    read, learned = getattr(estimator, "classes", ()), getattr(estimator, "learned", None)
    private = not (read is None or estimator.random_state is not None or learned)
    source = _core.NoiseSource(estimator.random_state)
    name = type(estimator).__name__
    LOG.info("%s: %s", name, plan.summary())
    if rows.verbose:
        sys.stdout.write(f"{name}: {plan.summary()}\n")
    charge(ledger, events, name, private=private, **how)
    released = plan.run(rows, source)
    statement = estimator._statement(plan, released, occasion)
    LOG.info("%s: released, %s", name, "private" if private else "NOT PRIVATE")
    return estimator._attributes(training, released) | rows.published | {"privacy_": statement}


def charge(
    ledger: PrivacyLedger | None,
    events: tuple[PrivacyEvent, ...],
    label: str,
    *,
    private: bool = True,
    unit: str = "row",
    by_age: bool = False,
) -> None:
    """Charge a ledger, if given, for a release. Nothing else in the package spends.

    Parameters
    ----------
    ledger : PrivacyLedger or None
    events : tuple of PrivacyEvent
    label : str
        Label of the ledger entry; it is marked if the release is not private.
    private : bool, default=True
    unit, by_age
        As in :meth:`PrivacyLedger.spend`.
    """
    if ledger is not None and events:
        ledger.spend(
            events, label if private else f"{label}, NOT PRIVATE", unit=unit, by_age=by_age
        )
        LOG.info("%s: charged", label)


class PrivateEstimator(Released):
    """Base of all estimators whose fit spends budget.

    A subclass is a dataclass of its parameters (see `dpsvm_fast.estimators.parameters`). Its
    ``plan`` builds the plan from the parameters and public facts; its ``_attributes`` are
    published.
    """

    adjacency: str
    random_state: int | None
    ledger: PrivacyLedger | None
    n_threads: int | None

    # Arguments of a fit besides rows and labels.
    _takes: tuple[str, ...] = ("groups", "sample_weight")

    def __sklearn_clone__(self: Fitted) -> Fitted:
        """Return a clone that is marked as one."""
        cloned: Fitted = BaseEstimator.__sklearn_clone__(self)
        vars(cloned)["_set_on_clone"] = ()
        return cloned

    def set_params(self: Fitted, **params: Any) -> Fitted:
        """Set parameters, as in scikit-learn.

        A strict ledger refuses a clone whose settings were changed, as GridSearchCV does. If
        ``ledger`` is among the parameters, the clone counts as a separate estimator.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        object
            This estimator.
        """
        BaseEstimator.set_params(self, **params)
        known = vars(self).pop("_set_on_clone", None)
        if known is not None and "ledger" not in params:
            tried = tuple(name for name in params if name not in WITHOUT_WEIGHT)
            vars(self)["_set_on_clone"] = known + tried
        return self

    def owned(self, facts: Facts) -> Facts:
        """Return the facts, marked as weighted if the parameters include weights."""
        own = (getattr(self, "class_weight", None), getattr(self, "max_weight", 1.0))
        return replace(facts, weighted=facts.weighted or own != (None, 1.0))

    @property
    def _rests_on(self) -> str:
        """Public parameter that bounds the sensitivity."""
        return "data_norm"

    def checked(self: Fitted) -> Fitted:
        """Return a copy with all parameters checked; no data are read.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter is outside its range.
        """
        check_arithmetic()
        checked = checked_copy(self)
        checked.ledger = check_ledger(self.ledger, checked.adjacency)
        return checked

    @abstractmethod
    def plan(self, facts: Facts) -> Plan:
        """Plan all releases of a fit; the parameters are already checked.

        Parameters
        ----------
        facts : Facts
            Public facts about the rows.

        Returns
        -------
        Plan

        Raises
        ------
        InvalidParameterError
            The parameters are inconsistent, or no finite noise scale exists for them.
        """

    @abstractmethod
    def _attributes(self, plan: Any, released: Any) -> dict[str, Any]:
        """Return the published attributes, computed from the released numbers only."""

    def _occasion(self, **facts: Any) -> Occasion:
        """Return the facts about this fit that its statement needs; ``facts`` are more of them."""
        limited = getattr(self, "max_iter", None) is not None
        found = {"parameters": tests_of(type(self)), "uncovered": ("max_iter",) * limited} | facts
        without = (self._rests_on, *WITHOUT_WEIGHT)
        found["parameters"] = tuple(name for name in found["parameters"] if name not in without)
        if hasattr(self, "classes"):
            found["labels"] = "read" if self.classes is None else "given"
        if self.ledger is not None:
            found["periods"] = self.ledger.charged
        return Occasion(parameter=self._rests_on, **found)

    def _statement(self, plan: Any, released: Any, occasion: dict[str, Any]) -> Any:
        """Return the privacy statement of this fit."""
        return plan.statement(released, **occasion)


@dataclass(eq=False, repr=False)
class PrivatelyTrained(PrivateEstimator, PrivateLinearClassifier):
    """Base of classifiers that spend, train and release in one ``fit``."""

    epsilon: param.Epsilon = 1.0
    delta: param.Delta = 1e-6
    _: KW_ONLY
    adjacency: param.Adjacency = "add_remove"
    classes: param.Classes = None
    class_weight: param.ClassWeight = None
    max_weight: param.Positive = 1.0
    noise_grid: param.NoiseGrid = "exact"
    random_state: param.Seed = None
    ledger: PrivacyLedger | None = None
    n_threads: param.Threads = None
    verbose: param.Verbose = 0

    def checked(self: Trained) -> Trained:
        """Return a copy with all parameters checked; no data are read."""
        checked = super().checked()
        pure = checked.delta == 0.0 or getattr(checked, "noise", "gaussian") == "gamma"
        if checked.class_weight == "balanced" and pure:
            raise InvalidParameterError(
                "class_weight: 'balanced' releases class counts with Gaussian noise; with delta=0 "
                "or noise='gamma' use None or a dict of public weights"
            )
        return checked

    def _attributes(self, plan: Any, released: Any) -> dict[str, Any]:
        """Return the coefficients and intercepts."""
        found = linear_attributes(released, plan.intercept_scaling)
        return found | {"_fitted_loss": plan.loss}

    def _intercept(self, share: float = INTERCEPT) -> float:
        """Return the constant feature, 0 for none; "auto" is this share of the rows' norm bound."""
        own: Any = self
        if not own.fit_intercept:
            return 0.0
        given = number_or_none(own.intercept_scaling)
        return share * own.data_norm if given is None else given

    def _scaled_C(self, n_classes: int) -> float | None:
        """Return C for class weights divided by the largest; None lets the plan choose."""
        own: Any = self
        C, named = number_or_none(own.C), self.class_weight
        named = named if isinstance(named, dict) else {}
        others = 1.0 if len(named) < n_classes else 0.0
        return None if C is None else C * self.max_weight * max(others, *named.values(), 0.0)

    @in_usual_arithmetic
    def fit(
        self: Trained,
        X: Any,
        y: Any,
        groups: Any = None,
        sample_weight: Any = None,
        on_step: Any = None,
    ) -> Trained:
        """Train on private rows: spend the budget and release noisy weights.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers.
        y : array-like of shape (n_samples,)
            Labels, each one of ``classes``.
        groups : array-like of shape (n_samples,), optional
            Id of the person that each row belongs to: ints, strings or bools. Whole persons are
            then protected, however many rows they own: neighbouring data sets differ by all rows of
            one person. Ids are private and not kept.
        sample_weight : array-like of shape (n_samples,), optional
            Private non-negative weights, clipped to the public ``max_weight``. A row of weight 0 is
            ignored, but with ``adjacency="replace_one"`` it, or its person, still counts.
        on_step : callable, optional
            Called periodically with the number of finished steps and the total, both public, for a
            progress bar. If it raises, the fit ends as after Ctrl-C. Only gradient descent has
            steps.

        Returns
        -------
        object
            This estimator.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter is outside its range, or groups or weights are invalid. Nothing was spent.
        BudgetExceededError
            The ledger refuses. Nothing was read or spent.
        ValueError
            X or y is invalid; the message does not quote it. Nothing was spent.
        KeyboardInterrupt
            The budget is spent and nothing is released.
        """
        self._forget()
        checked = self.checked()
        own = {"groups": groups, "sample_weight": sample_weight, "on_step": on_step}
        rows = ArrayRows(checked, X, y, classes=checked.classes, **own)
        self.__dict__.update(private_fit(checked, rows))
        return self


Trained = TypeVar("Trained", bound="PrivatelyTrained")


class OneRelease(PrivatelyTrained):
    """Base of classifiers whose training is one release, possibly after class counts."""

    def plan(self, facts: Facts) -> Plan:
        """Return the plan for rows with these public facts."""
        if self.class_weight != "balanced":
            return self._training(facts)

        def with_epsilon(own: float, facts: Facts) -> Plan:
            return copy.copy(self).set_params(epsilon=own)._training(facts)

        return BalancedPlan.of(self, facts, with_epsilon)

    @abstractmethod
    def _training(self, facts: Facts) -> Plan:
        """Return the plan of the training."""

    def _planned(self, kind: type[DataclassT], facts: Facts, **own: Any) -> DataclassT:
        """Return a plan of parameters and facts of the same names; ``own`` has precedence.

        "auto" becomes None, so that the plan chooses.
        """
        given = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, str) and value == "auto":
                setattr(given, name, None)
        given.__dict__.update(C=self._scaled_C(facts.n_classes), n_features=facts.n_columns)
        return filled(kind, given, facts, **own)


def warn_not_private(estimator: Any) -> None:
    """Warn the caller of ``fit`` if a release is not private or its guarantee is vacuous.

    Parameters
    ----------
    estimator : PrivateEstimator or PrivateGridSearch
        With checked parameters.

    Raises
    ------
    InvalidParameterError
        The ledger is strict, and the release would not be private or its failure not covered.
    """
    if SEARCHING.get():
        return
    ledger, above = estimator.ledger, FRAMES + 1
    strict = ledger is not None and ledger.strict
    if getattr(estimator, "classes", ()) is None:
        leak = "None reads the label set from y and releases it without noise; pass the public one"
        refuse_or_warn(ledger, "classes", leak, PrivacyLeakWarning, stacklevel=above)
    if estimator.random_state is not None:
        refuse_or_warn(ledger, "random_state", SEEDED, NotPrivateWarning, stacklevel=above)
    if strict and _is_limited(estimator):
        raise InvalidParameterError(
            "max_iter: a fit that reaches it spends the budget without a model, which reveals "
            f"something about the data; use None, which trains until convergence{STRICT}"
        )
    tried = getattr(estimator, "_set_on_clone", ())
    if tried and strict:
        raise InvalidParameterError(
            f"{tried[0]}: was set on a clone, as GridSearchCV does, whose scores have no noise; "
            f"use PrivateGridSearch, or also set ledger= on the clone to fit it alone{STRICT}"
        )
    warn_of_weak_numbers(estimator.epsilon, estimator.delta, stacklevel=above)


def _check_scales(estimator: Any, facts: Facts) -> None:
    """Refuse rows without declared feature bounds, and warn if columns have names.

    Users without declared bounds have often scaled by the rows, which no estimator can detect.
    """
    fitting = getattr(estimator, "candidates", [estimator])
    undeclared = (
        getattr(one, "_rests_on", None) == "bounds" and one.bounds is None for one in fitting
    )
    if SEARCHING.get() or not any(undeclared):
        return
    if estimator.ledger is not None and estimator.ledger.strict:
        raise InvalidParameterError(f"bounds: {UNSCALED}. {LEARNED}{STRICT}")
    if facts.feature_names is not None and not facts.sparse:
        warnings.warn(f"bounds: {UNSCALED}", UserWarning, stacklevel=FRAMES)


UNSCALED = (
    "None scales every row to unit norm, so that features of larger range dominate; pass public "
    "bounds such as (0, 1) or {'age': (0, 100)}, or 'unit_norm' if only the directions of "
    "rows matter, as for text"
)

LEARNED = (
    "Do not scale by a StandardScaler first: it learns from the rows without privacy, which "
    "PrivatePipeline would refuse"
)

SEEDED = "anyone who knows the seed can remove the noise; use None for a private release"


def refuse_or_warn(
    ledger: PrivacyLedger | None,
    parameter: str,
    sentence: str,
    category: type[Warning],
    *,
    stacklevel: int,
) -> None:
    """Refuse a fit that is not private if the ledger is strict; otherwise warn.

    Parameters
    ----------
    ledger : PrivacyLedger or None
    parameter : str
        Name of the parameter at fault.
    sentence : str
        Why the fit is not private, and what to do.
    category : type
        Category of the warning.
    stacklevel : int
        Number of frames up to the caller to warn.
    """
    if ledger is not None and ledger.strict:
        raise InvalidParameterError(f"{parameter}: {sentence}{STRICT}")
    message = f"{parameter}: {sentence}" + ("" if ledger is None else CHARGED)
    warnings.warn(message, category, stacklevel=stacklevel)


def _is_limited(estimator: Any) -> bool:
    """Return whether the training, or that of a candidate, may end without a model."""
    candidates = getattr(estimator, "candidates", None)
    if candidates is None:
        return getattr(estimator, "max_iter", None) is not None
    named = [(name, value) for one in candidates for name, value in one.get_params().items()]
    return any(name.split("__")[-1] == "max_iter" and value is not None for name, value in named)
