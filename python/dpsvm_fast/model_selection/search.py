"""Search over parameters whose price is the price of everything that it looked at."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from dpsvm_fast import validation as check
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.certificates import PrivacyEvent, PureEvent
from dpsvm_fast.certificates.events import STOPPING_LAWS
from dpsvm_fast.certificates.statement import CHOICES, STRATEGIES, SelectionStatement, Stopping
from dpsvm_fast.certificates.words import (
    CLASS_WEIGHTS,
    DECLARED,
    FLOATING_POINT_CAVEAT,
    FUNCTION,
    MAX_ITER_CAVEAT,
    PARTS_CAVEAT,
    PRECISION_CAVEAT,
    RUNNING_TIME_CAVEAT,
    RUNS_CAVEAT,
)
from dpsvm_fast.estimators.base import Released
from dpsvm_fast.estimators.fit import (
    CHARGED,
    label_source,
    not_private_reasons,
    promise_facts,
    spend_label,
    warn_not_private,
)
from dpsvm_fast.estimators.inputs import (
    checked_training_set,
    classes_from_labels,
    encoded_labels,
    feature_facts,
    public_classes,
)
from dpsvm_fast.exceptions import InvalidParameterError, PrivacyLeakWarning
from dpsvm_fast.ledger import PrivacyLedger, check_ledger
from dpsvm_fast.model_selection.plan import (
    Budget,
    Plan,
    Shape,
    allot,
    partition_plan,
    stopping_plan,
)
from dpsvm_fast.model_selection.strategies import (
    Chosen,
    Rows,
    Scoring,
    best_of_parts,
    best_of_runs,
    part_sizes,
    refitted,
    release_only,
)
from dpsvm_fast.pipelines import OURS, PRIVATE_STEPS, Planned, Step, leaf_steps, private_steps
from dpsvm_fast.validation import check_adjacency, check_delta, check_epsilon

# The candidates of a search: copies of one estimator with the parameters of a grid.


# What the search itself decides, for every candidate alike.
RESERVED = frozenset({"epsilon", "delta", "adjacency", "ledger", "random_state", "classes"})
# One part of the records, or one draw in so many, for each candidate.
MOST_CANDIDATES = 10_000


def candidate_parameters(param_grid: Any) -> list[dict[str, Any]]:
    """Every combination of a grid, in scikit-learn's order.

    Raises
    ------
    TypeError, InvalidParameterError
        No grid, an empty one, or one over a parameter that is the search's own.
    """
    if not isinstance(param_grid, (Mapping, Iterable)) or isinstance(param_grid, str):
        kind = type(param_grid).__name__
        raise TypeError(f"param_grid: got {kind}, expected a dict of lists or a list of such dicts")
    try:
        grid = ParameterGrid(param_grid)
        n = len(grid)
    except ValueError as error:
        raise InvalidParameterError(f"param_grid: {error}") from None
    except TypeError as error:
        raise TypeError(f"param_grid: {error}") from None
    if not 0 < n <= MOST_CANDIDATES:
        raise InvalidParameterError.of(
            "param_grid", got=n, accepted=f"1 to {MOST_CANDIDATES} combinations"
        )
    parameters = [dict(combination) for combination in grid]
    names = {name for combination in parameters for name in combination}
    if not all(isinstance(name, str) for name in names):
        raise TypeError("param_grid: expected strings as names of parameters")
    for name in sorted(names):
        if name.rpartition("__")[2] in RESERVED:
            raise InvalidParameterError(
                f"param_grid: {name} is not for the grid; the search has one budget, relation, "
                "label set, ledger and source of randomness for all candidates"
            )
    return parameters


def candidates_of(estimator: Any, parameters: list[dict[str, Any]], adjacency: str) -> list[Any]:
    """A copy of the estimator for each combination.

    Raises
    ------
    TypeError, InvalidParameterError
        Not an estimator; none that makes private releases; another relation, a ledger or a seed in
        one that does.
    """
    alike = hasattr(estimator, "fit") and hasattr(estimator, "get_params")
    if not alike or isinstance(estimator, type):
        kind = type(estimator).__name__
        raise TypeError(f"estimator: got {kind}, expected an estimator or Pipeline")
    made = []
    for combination in parameters:
        candidate = clone(estimator)
        try:
            candidate.set_params(**clone(combination, safe=False))
        except ValueError as error:
            raise InvalidParameterError(f"param_grid: {error}") from None
        steps = private_steps(candidate)
        if not steps:
            raise InvalidParameterError(
                f"estimator: got {type(candidate).__name__}, expected an estimator of this "
                "library, a Pipeline with one inside, or a DeclaredTrainer"
            )
        for step in steps:
            _check_step(step, adjacency)
        made.append(candidate)
    return made


def _check_step(step: Step, adjacency: str) -> None:
    """Refuse what the search decides for all, set otherwise in one estimator."""
    name = type(step.estimator).__name__
    if not hasattr(step.estimator, "epsilon") or not hasattr(step.estimator, "adjacency"):
        raise TypeError(f"estimator: {name} has no epsilon or no adjacency, which a search sets")
    if step.estimator.adjacency != adjacency:
        raise InvalidParameterError(
            f"adjacency: got {adjacency!r} and {step.estimator.adjacency!r} in {name}, expected "
            "the same"
        )
    for parameter in ("ledger", "random_state"):
        if getattr(step.estimator, parameter, None) is not None:
            raise InvalidParameterError(
                f"{parameter}: expected None in {name}; give it to the search"
            )


def label_step(candidate: Any) -> Any | None:
    """The estimator inside that has the public label set as a parameter; None without one."""
    steps = [step.estimator for step in private_steps(candidate)]
    return next((step for step in reversed(steps) if hasattr(step, "classes")), None)


def label_set(candidates: list[Any]) -> tuple[bool, NDArray[Any] | None]:
    """Whether there is a label set among the parameters, and what it is where it is given."""
    steps = [label_step(candidate) for candidate in candidates]
    found = [None if step is None else step.classes for step in steps]
    if any(step is None for step in steps):
        return False, None
    if any(classes is None for classes in found):
        if any(classes is not None for classes in found):
            raise InvalidParameterError("classes: expected the same in all candidates")
        return True, None
    sets = [public_classes(classes) for classes in found]
    if not all(np.array_equal(sets[0], other) for other in sets):
        raise InvalidParameterError("classes: expected the same in all candidates")
    return True, sets[0]


def described(parameters: Mapping[str, Any]) -> str:
    """Public parameters of one candidate as text."""
    if not parameters:
        return "the estimator as it is"
    return ", ".join(f"{name}={_short(parameters[name])}" for name in sorted(parameters))


def _short(value: Any) -> str:
    """A parameter as text of one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:197]}..."


# Rows and labels of a search, checked before anything is spent.


@dataclass(frozen=True, eq=False)
class Data:
    """Rows that can be indexed, and labels.

    Parameters
    ----------
    X : array-like
    y : ndarray of shape (n_samples,)
    facts : dict
        What is known about the features.
    """

    X: Any
    y: NDArray[Any]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def n_samples(self) -> int:
        """Number of rows; private with ``add_remove``."""
        return int(self.y.shape[0])

    @property
    def sparse(self) -> bool:
        """Whether rows are sparse."""
        return bool(sparse.issparse(self.X))


def checked_data(search: Any, candidates: list[Any], X: Any, y: Any) -> Data:
    """Rows and labels as far as they can be checked before the candidates see them.

    Where every candidate begins with an estimator of this library, X has to be what all of those
    take. Other first steps, and functions, may take anything with rows.

    Raises
    ------
    ValueError, TypeError
        Something else; the text does not quote it.
    """
    if all(map(_takes_numbers, candidates)):
        # Validation writes what it learns about X onto the copy.
        probe = copy.copy(search)
        numbers, y = checked_training_set(probe, X, y)
        facts = feature_facts(probe)
        # Rows of a table keep their names for the candidates.
        return Data(X if "feature_names_in_" in facts else numbers, y, facts)
    try:
        X, labels = indexable(X, y)
        labels = np.asarray(labels)
        same = labels.ndim == 1 and _num_samples(X) == labels.shape[0]
    except (TypeError, ValueError):
        same = False
    if not same:
        raise ValueError("X and y: expected rows, and one label for each of them")
    return Data(X if hasattr(X, "shape") else np.asarray(X), labels)


def _takes_numbers(candidate: Any) -> bool:
    """Whether the first that rows meet is an estimator of this library."""
    first = next(leaf_steps(candidate, ""), None)
    if first is None or isinstance(first.estimator, DeclaredTrainer):
        return False
    return type(first.estimator).__module__.startswith(OURS)


# Any training procedure with a declared price, as an estimator.


Events = tuple[PrivacyEvent, ...]


class DeclaredTrainer(ClassifierMixin, BaseEstimator):
    """A training function of one's own, with the privacy events that it is declared to have.

    Parameters
    ----------
    train : callable
        ``train(X, y, **parameters)`` returns an object with ``predict``. It is also given
        ``epsilon``, ``delta`` and ``adjacency`` when ``events`` is a function.
    events : tuple of PrivacyEvent, or callable
        What one call of ``train`` costs every record: events of its own, or
        ``events(epsilon, delta, adjacency, **parameters)`` that returns them for a budget. It must
        not look at data.
    parameters : dict or None, default=None
        Keyword arguments of both functions. ``set_params`` puts every name that is no argument
        here into it, so that grids may vary them.
    epsilon : float, default=1.0
        Privacy parameter handed to the functions.
    delta : float, default=1e-6
        Privacy parameter handed to the functions.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        The relation of all events.
    ledger : PrivacyLedger or None, default=None
        Charged before ``train`` is called.

    Attributes
    ----------
    model_ : object
        What ``train`` returned.
    events_ : tuple of PrivacyEvent
        What was charged for it.

    Notes
    -----
    Guarantees: none. That ``train`` costs what it declares, that what it returns holds nothing else
    about the data, and that its randomness is not the same twice, is up to whoever wrote it.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast.certificates import PureEvent
    >>> from dpsvm_fast.model_selection import DeclaredTrainer
    >>> class Constant:
    ...     def __init__(self, label):
    ...         self.label = label
    ...     def predict(self, X):
    ...         return np.full(len(X), self.label)
    >>> trainer = DeclaredTrainer(lambda X, y, label: Constant(label), (), {"label": 1})
    >>> trainer.fit([[0.0], [1.0]], [0, 1]).predict([[2.0]])
    array([1])
    """

    model_: Any
    events_: Events

    def __init__(
        self,
        train: Callable[..., Any],
        events: Events | Callable[..., Events],
        parameters: Mapping[str, Any] | None = None,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        adjacency: str = "add_remove",
        ledger: PrivacyLedger | None = None,
    ) -> None:
        self.train = train
        self.events = events
        self.parameters = parameters
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.ledger = ledger

    def set_params(self, **params: Any) -> DeclaredTrainer:
        """Set arguments of the constructor, and by any other name parameters of ``train``."""
        own = self.get_params(deep=False)
        others = {name: value for name, value in params.items() if name not in own}
        super().set_params(**{name: value for name, value in params.items() if name in own})
        if others:
            self.parameters = {**(self.parameters or {}), **others}
        return self

    @in_usual_arithmetic
    def fit(self, X: Any, y: Any) -> DeclaredTrainer:
        """Charge the ledger and call ``train``.

        Parameters
        ----------
        X, y : anything
            Handed on.

        Returns
        -------
        DeclaredTrainer

        Raises
        ------
        InvalidParameterError, TypeError
            An argument of another type or outside its range, events of another relation, or a
            result without ``predict``.
        BudgetExceededError
            The ledger refuses; ``train`` was not called.
        """
        for name in ("model_", "events_"):
            self.__dict__.pop(name, None)
        events = self._planned_events(None)
        ledger = check_ledger(self.ledger, self.adjacency)
        if ledger is not None and events:
            ledger.spend(events, type(self).__name__)
        budget = self._budget() if callable(self.events) else {}
        # What one call does to its arguments must not reach the next one.
        model = self.train(X, y, **budget, **copy.deepcopy(dict(self.parameters or {})))
        if not hasattr(model, "predict"):
            kind = type(model).__name__
            raise TypeError(f"train: returned {kind}, expected an object with predict")
        self.model_, self.events_ = model, events
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """What the model predicts, ndarray of shape (n_samples,)."""
        check_is_fitted(self)
        return np.asarray(self.model_.predict(X))

    def _planned_events(self, rows: object) -> Events:
        """Events of one fit, checked; reads no data."""
        if not callable(self.train):
            raise TypeError(f"train: got {type(self.train).__name__}, expected a function")
        if self.parameters is not None and not isinstance(self.parameters, Mapping):
            kind = type(self.parameters).__name__
            raise TypeError(f"parameters: got {kind}, expected a dict or None")
        budget = self._budget()
        events = self.events
        if callable(events):
            events = events(**budget, **copy.deepcopy(dict(self.parameters or {})))
        events = (events,) if isinstance(events, PrivacyEvent) else events
        if not isinstance(events, (tuple, list)):
            raise TypeError(f"events: got {type(events).__name__}, expected a tuple of events")
        for event in events:
            if not isinstance(event, PrivacyEvent):
                raise TypeError(f"events: got {type(event).__name__}, expected a PrivacyEvent")
            if event.adjacency != budget["adjacency"]:
                raise InvalidParameterError.of(
                    "events", got=event.adjacency, accepted=f"events of {budget['adjacency']}"
                )
        return tuple(events)

    def _budget(self) -> dict[str, Any]:
        """What a function of the budget is told."""
        return {
            "epsilon": check_epsilon(self.epsilon),
            "delta": check_delta(self.delta),
            "adjacency": check_adjacency(self.adjacency),
        }


# What is released when a random number of runs is zero: a model that nobody's data went into.


class ConstantClassifier(ClassifierMixin, BaseEstimator):
    """Predicts the first of the public classes for every row.

    Parameters
    ----------
    classes : array-like of shape (n_classes,)
        Public label set.

    Examples
    --------
    >>> from dpsvm_fast.model_selection import ConstantClassifier
    >>> ConstantClassifier(["no", "yes"]).predict([[0.0], [1.0]]).tolist()
    ['no', 'no']
    """

    def __init__(self, classes: Any) -> None:
        self.classes = classes

    @property
    def classes_(self) -> NDArray[Any]:
        """The label set."""
        return np.asarray(self.classes)

    def fit(self, X: Any, y: Any = None) -> ConstantClassifier:
        """Does nothing: there is nothing to be learned.

        Parameters
        ----------
        X, y : object
            Not looked at.

        Returns
        -------
        ConstantClassifier
            Itself.
        """
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The first class for every row."""
        return np.full(_num_samples(X), self.classes_[0])

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Zeros of the shape that scores have."""
        n, k = _num_samples(X), self.classes_.size
        return np.zeros(n if k == 2 else (n, k))

    def __sklearn_is_fitted__(self) -> bool:
        """It always is."""
        return True


# Parameters of a search, checked before anything is read, and the plan that follows from them.


# Records that every part is expected to have.
SMALLEST_PART = 50
# More runs on average than anyone waits for.
MOST_RUNS = 1000.0


def checked_settings(search: Any) -> SimpleNamespace:
    """All parameters in their ranges, all candidates made and the whole affordable; reads no data.

    Raises
    ------
    InvalidParameterError, TypeError, BudgetExceededError
        Something is not.
    """
    check.check_arithmetic()
    settings = SimpleNamespace(
        epsilon=check.check_epsilon(search.epsilon),
        delta=check.check_delta(search.delta),
        adjacency=check.check_adjacency(search.adjacency),
        strategy=check.check_option("strategy", search.strategy, STRATEGIES),
        selection=check.check_option("selection", search.selection, CHOICES),
        stopping=check.check_option("stopping", search.stopping, tuple(STOPPING_LAWS)),
        validation_fraction=_share("validation_fraction", search.validation_fraction),
        refit_fraction=check.check_real(
            "refit_fraction", search.refit_fraction, low=0.0, high=0.99
        ),
        score_fraction=_share("score_fraction", search.score_fraction),
        random_state=check.check_random_state(search.random_state),
        verbose=check.check_integer("verbose", search.verbose, 0, 1),
        class_weight=search.class_weight,
        n_jobs=_checked_jobs(search.n_jobs),
    )
    settings.parameter_names = tuple(search.get_params(deep=False))
    settings.ledger = check_ledger(search.ledger, settings.adjacency)
    settings.counted = Scoring(search.scoring, search.class_weight)
    settings.parameters = candidate_parameters(search.param_grid)
    settings.candidates = candidates_of(search.estimator, settings.parameters, settings.adjacency)
    _set_labels(settings)
    settings.mean_runs = _checked_runs(search.mean_runs, len(settings.parameters))
    if _may_be_constant(settings) and not settings.labelled:
        raise InvalidParameterError(
            "stopping: expected 'geometric' or 'logarithmic', or refit_fraction > 0, for "
            "candidates without a public label set: with 'poisson' there may be no run"
        )
    n = len(settings.candidates)
    settings.plans = {}
    plan = planned(settings, Shape([Planned()] * n, Planned()))
    if settings.ledger is not None:
        settings.ledger.check(plan.events)
    return settings


def _share(name: str, value: Any) -> float:
    """Accept a share that leaves something to both sides."""
    return check.check_real(name, value, low=0.01, high=0.99)


def _checked_jobs(value: Any) -> int | None:
    """What joblib takes: None or an int other than 0."""
    if value is None:
        return None
    jobs = check.check_integer("n_jobs", value, -1024, 1024)
    if jobs == 0:
        raise InvalidParameterError.of("n_jobs", got=0, accepted="None or an integer other than 0")
    return jobs


def _checked_runs(value: Any, n_candidates: int) -> float:
    """Mean number of runs."""
    if value is None:
        return min(MOST_RUNS, max(10.0, 3.0 * n_candidates))
    return check.check_real("mean_runs", value, low=1.01, high=MOST_RUNS)


def _may_be_constant(settings: SimpleNamespace) -> bool:
    """Whether a model that nobody's data went into may be released."""
    runs = (settings.strategy, settings.stopping) == ("random_stopping", "poisson")
    return runs and bool(settings.refit_fraction == 0.0)


def _set_labels(settings: SimpleNamespace) -> None:
    """The label set where it is a parameter; ``classes`` is missing where nothing is about it."""
    settings.labelled, settings.known_classes = label_set(settings.candidates)
    if not settings.labelled:
        settings.known_classes = settings.counted.classes
        settings.labelled = settings.known_classes is not None
        return
    settings.classes = settings.known_classes
    weighted = settings.counted.classes
    if weighted is not None and settings.classes is not None:
        try:
            encoded_labels(settings.classes, weighted)
        except ValueError:
            raise InvalidParameterError(
                "class_weight: expected a weight for each one of `classes`"
            ) from None


def settle_labels(settings: SimpleNamespace, data: Data) -> None:
    """Refuse labels outside the label set, or take it from them where it is not given."""
    settings.counted.check_labels(data.y)
    if settings.known_classes is not None:
        encoded_labels(data.y, settings.known_classes)
    elif settings.labelled:
        settings.known_classes = classes_from_labels(data.y)
        for candidate in settings.candidates:
            step = label_step(candidate)
            assert step is not None
            step.set_params(classes=settings.known_classes)


def check_size(settings: SimpleNamespace, data: Data) -> None:
    """Refuse a partition into parts that are too small.

    Raises
    ------
    InvalidParameterError
        Said without the number of rows, which may be private.
    """
    if settings.strategy != "partition":
        return
    n, v, m = data.n_samples, settings.validation_fraction, len(settings.candidates)
    if settings.adjacency == "replace_one":
        smallest = min(part_sizes(n, m, v))
    else:
        smallest = int(n * min(v, (1.0 - v) / m))
    if smallest < SMALLEST_PART:
        raise InvalidParameterError(
            f"param_grid: got {m} candidates and too few rows for that, expected at least "
            f"{SMALLEST_PART} in each of {m + 1} parts, of which that to choose by is a share of "
            f"{v:g}; fewer candidates or strategy='random_stopping' avoid it"
        )


def shape_of(settings: SimpleNamespace, data: Data) -> Shape:
    """Public facts about the rows of every part."""
    n_classes = 2 if settings.known_classes is None else settings.known_classes.size
    m = len(settings.candidates)
    if settings.adjacency != "replace_one":
        every = Planned(n_classes, None, data.sparse)
        return Shape([every] * m, every)
    sizes = part_sizes(data.n_samples, m, settings.validation_fraction)[1:]
    parts = [Planned(n_classes, size, data.sparse) for size in sizes]
    return Shape(parts, Planned(n_classes, data.n_samples, data.sparse))


def planned(settings: SimpleNamespace, shape: Shape) -> Plan:
    """All budgets of the search; a shape that was planned before is not planned again.

    Raises
    ------
    InvalidParameterError, TypeError
        A candidate cannot be paid for, or has a parameter outside its range.
    """
    given = settings.known_classes is not None and hasattr(settings, "classes")
    # A label set that is given is the candidates' own, whatever is said here.
    n_classes = None if given else shape.whole.n_classes
    facts = [(rows.n_samples, rows.sparse) for rows in (*shape.parts, shape.whole)]
    key = (n_classes, tuple(facts))
    if key not in settings.plans:
        settings.plans[key] = _new_plan(settings, shape)
    plan: Plan = settings.plans[key]
    return plan


def _new_plan(settings: SimpleNamespace, shape: Shape) -> Plan:
    """Budgets for either strategy."""
    budget = Budget(settings.epsilon, settings.delta, settings.adjacency)
    if settings.strategy == "partition":
        return partition_plan(
            settings.candidates,
            budget,
            shape,
            mechanism=settings.selection,
            sensitivity=settings.counted.sensitivity,
            refit_fraction=settings.refit_fraction,
        )
    return stopping_plan(
        settings.candidates,
        budget,
        shape.whole,
        stopping=Stopping(law=settings.stopping, mean=settings.mean_runs),
        sensitivity=settings.counted.sensitivity,
        score_fraction=settings.score_fraction,
        refit_fraction=settings.refit_fraction,
    )


def _best_has(name: str) -> Any:
    """Whether the model, or before a fit the estimator, has a method; for ``available_if``."""

    def check(search: Any) -> bool:
        getattr(vars(search).get("best_estimator_", search.estimator), name)
        return True

    return available_if(check)


class PrivateGridSearch(Released, MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    r"""Search over a grid of parameters within one budget.

    A grid search that reports the best of many private models at the price of one is not private.
    Here the choice is paid for, in one of two ways:

    - ``strategy="partition"``: every record is put into one of m + 1 parts without looking at it.
      Each of m candidates is trained on a part of its own, and one is chosen by its errors on the
      last part, by the exponential mechanism or permute-and-flip. A record pays for its own part
      only: the total is the largest of the parts' budgets, not their sum.
    - ``strategy="random_stopping"``: a random number of runs that nobody is told, each with a
      random candidate on all records, and a noisy score. The best run is released. This costs about
      two to three times a single run, for any number of candidates.

    Parameters
    ----------
    estimator : estimator, Pipeline or DeclaredTrainer
        Any estimator of this library, a Pipeline with one or more of them, or a function with
        declared events. Its ``adjacency`` must be that of the search, its ``ledger`` and
        ``random_state`` None. Its ``epsilon`` and ``delta`` are set by the search; in a Pipeline
        with several private steps their epsilons count as proportions. A step whose delta is 0
        stays pure.
    param_grid : dict of lists, or list of such dicts
        As for scikit-learn's GridSearchCV. PUBLIC: it must not come from the data. Not for
        ``epsilon``, ``delta``, ``adjacency``, ``classes``, ``ledger`` and ``random_state``.
    epsilon : float, default=1.0
        Privacy parameter of the whole search, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter of the whole search, 0 <= delta < 1; 0 needs pure candidates.
    strategy : {"partition", "random_stopping"}, default="partition"
    selection : {"permute_and_flip", "exponential"}, default="permute_and_flip"
        How "partition" chooses. Permute-and-flip is never worse.
    scoring : {"errors", "balanced_errors"}, default="errors"
        What is to be small: the number of errors, or the sum of their classes' weights.
    class_weight : dict or None, default=None
        PUBLIC weight of an error on each class, for "balanced_errors"; rounded to multiples of
        1/256 of the largest.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets: one row more or fewer, or one row exchanged for another; then the
        number of rows is public.
    validation_fraction : float in (0, 1), default=0.2
        Share of the records by which "partition" chooses. Every part must have 50 records at
        least in expectation.
    refit_fraction : float in [0, 1), default=0.8
        Share of the budget (of epsilon with ``delta=0``, else of the squared parameter of Gaussian
        noise) that is kept to fit the winner again on all records. 0 releases the winner itself.
    stopping : {"geometric", "logarithmic", "poisson"}, default="geometric"
        Law of the number of runs of "random_stopping". With "poisson" it may be 0; then a constant
        model is released. The others are often 1, whatever their mean, and one run is a candidate
        at random; a Poisson number is near its mean, but costs more with ``delta=0``.
    mean_runs : float in (1, 1000] or None, default=None
        Mean number of runs; None is three times the number of candidates, at least 10.
    score_fraction : float in (0, 1), default=0.1
        Share of a run's budget for its noisy score, in the units of ``refit_fraction``.
    n_jobs : int or None, default=None
        Fits at a time, through joblib: any of its backends will do. Never changes the result.
    random_state : int or None, default=None
        None takes the operating system's entropy. A seed makes the search reproducible and thereby
        not private: a ``NotPrivateWarning``, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Charged once for the whole search, before anything is drawn.
    verbose : {0, 1}, default=0
        1 prints the budgets of all parts before the search.

    Attributes
    ----------
    best_estimator_ : estimator
        The released model. Its ``privacy_`` is that of the search.
    best_params_ : dict
        Parameters of the winner.
    best_index_ : int
        Its number in the grid; -1 where a Poisson number of runs was 0 and nothing is fitted again.
    best_score_ : float
        Noisy score of the winner, with "random_stopping" alone.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
    privacy_ : SelectionStatement
        What the search promises, and every number needed to recompute it.

    Notes
    -----
    Guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the
    relation ``adjacency``, provided that the estimator, the grid and every other parameter were
    chosen without looking at the data. Proof: docs/proofs/private_selection.md. Scores of
    candidates are not kept: there is no ``cv_results_``. The assignment to parts looks at nothing
    in a record: it is never stratified. Not covered: running time, which with "random_stopping"
    tells the number of runs; that a search ends with an error, also the one that there are too few
    rows for the parts; what the candidates do not cover.

    How much a search may cost: with "partition" every candidate sees ``(1 - validation_fraction) /
    m`` of the records, so that grids should be short. The refit trains the winner on all records,
    with less of the budget; parameters that suit a small part need not suit all records. Beside
    defaults that follow from public facts, as they do here, a search mostly does no better:
    benches/README.md, "What tuning is worth".

    References
    ----------
    .. [1] McKenna and Sheldon, "Permute-and-flip: a new mechanism for differentially private
       selection", NeurIPS 2020.
    .. [2] Liu and Talwar, "Private selection from private candidates", STOC 2019.
    .. [3] Papernot and Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.model_selection import PrivateGridSearch
    >>> X, y = load_digits(return_X_y=True)
    >>> search = PrivateGridSearch(
    ...     PrivateLinearSVC(classes=range(10), bounds=(0, 16)),
    ...     {"margin": [0.0, 1.0]},
    ...     epsilon=4.0,
    ... ).fit(X, y)
    >>> sorted(search.best_params_)
    ['margin']
    >>> search.privacy_.private, search.privacy_.epsilon
    (True, 4.0)
    """

    best_estimator_: Any
    best_params_: dict[str, Any]
    best_index_: int
    classes_: NDArray[Any]
    privacy_: SelectionStatement

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        strategy: str = "partition",
        selection: str = "permute_and_flip",
        scoring: str = "errors",
        class_weight: dict[Any, float] | None = None,
        adjacency: str = "add_remove",
        validation_fraction: float = 0.2,
        refit_fraction: float = 0.8,
        stopping: str = "geometric",
        mean_runs: float | None = None,
        score_fraction: float = 0.1,
        n_jobs: int | None = None,
        random_state: int | None = None,
        ledger: PrivacyLedger | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.strategy = strategy
        self.selection = selection
        self.scoring = scoring
        self.class_weight = class_weight
        self.adjacency = adjacency
        self.validation_fraction = validation_fraction
        self.refit_fraction = refit_fraction
        self.stopping = stopping
        self.mean_runs = mean_runs
        self.score_fraction = score_fraction
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    @in_usual_arithmetic
    def fit(self, X: Any, y: Any) -> PrivateGridSearch:
        """Search, spend the budget and publish the winner.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            What the candidates take.
        y : array-like of shape (n_samples,)
            Labels, each one of the candidates' ``classes``.

        Returns
        -------
        PrivateGridSearch
            This search.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter of the search or of a candidate is outside its range, or there are too few
            rows for the parts. Nothing was spent.
        BudgetExceededError
            The ledger refuses. Nothing was spent.
        ValueError
            X or y are invalid; the text does not quote them. Nothing was spent, except where only a
            candidate could find out.
        CertificationError
            A candidate's fit failed. The budget is spent and nothing is released.
        KeyboardInterrupt
            The budget is spent and nothing is released.
        """
        self._forget()
        settings = checked_settings(self)
        _warn_of_leaks(settings)
        warn_not_private(settings)
        data = checked_data(self, settings.candidates, X, y)
        settle_labels(settings, data)
        check_size(settings, data)
        # Where all that is public was known beforehand, this is the plan that was checked.
        plan = planned(settings, shape_of(settings, data))
        settings.statement = search_statement(settings, plan)
        if settings.verbose:
            sys.stdout.write(f"{type(self).__name__}: {_summary(settings, plan)}\n")
        if settings.ledger is not None:
            settings.ledger.spend(
                plan.events,
                spend_label(self, not_private_reasons(settings)),
            )
        rows = Rows(data.X, data.y, settings.n_jobs, settings.random_state)
        if settings.strategy == "partition":
            chosen = best_of_parts(rows, plan, settings.counted, settings.validation_fraction)
        else:
            chosen = best_of_runs(rows, plan, settings.counted)
        self._publish(_released(settings, chosen, rows, plan, data), settings, data)
        return self

    def _publish(self, chosen: Chosen, settings: SimpleNamespace, data: Data) -> None:
        """Sets all fitted attributes at once."""
        best = release_only(chosen.estimator, settings.statement)
        facts: dict[str, Any] = dict(data.facts)
        if settings.known_classes is not None:
            facts["classes_"] = settings.known_classes
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            if name not in facts and hasattr(best, name):
                facts[name] = getattr(best, name)
        if chosen.score is not None:
            facts["best_score_"] = chosen.score
        parameters = settings.parameters[chosen.index] if chosen.index >= 0 else {}
        self.__dict__.update(
            facts,
            best_estimator_=best,
            best_params_=dict(parameters),
            best_index_=chosen.index,
            privacy_=settings.statement,
        )

    @_best_has("predict")  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> NDArray[Any]:
        """Label of every row by the released model, ndarray of shape (n_samples,)."""
        return np.asarray(self._model().predict(X))

    @_best_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores by the released model, ndarray of shape (n_samples, n_classes) or (n_samples,)."""
        return np.asarray(self._model().decision_function(X))

    @_best_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities by the released model, ndarray of shape (n_samples, n_classes)."""
        return np.asarray(self._model().predict_proba(X))

    @_best_has("predict_log_proba")  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithms of probabilities, ndarray of shape (n_samples, n_classes)."""
        return np.asarray(self._model().predict_log_proba(X))

    @_best_has("transform")  # type: ignore[untyped-decorator]
    def transform(self, X: Any) -> Any:
        """Rows as the released model maps them."""
        return self._model().transform(X)

    def _model(self) -> Any:
        """The released model, if there is one."""
        check_is_fitted(self)
        return self.best_estimator_

    def __sklearn_tags__(self) -> Any:
        """What the estimator takes; no accuracy is promised on small data: noise may drown it."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        return tags


def _warn_of_leaks(settings: SimpleNamespace) -> None:
    """Name what candidates learn without privacy, once for all of them."""
    settings.learned = learned_in(settings.candidates)
    if settings.learned:
        warnings.warn(
            "candidates have steps that learn from the rows without privacy: "
            f"{', '.join(settings.learned)}; what is released is not private. {PRIVATE_STEPS}"
            + ("" if settings.ledger is None else CHARGED),
            PrivacyLeakWarning,
            stacklevel=4,
        )


def _released(
    settings: SimpleNamespace, chosen: Chosen, rows: Rows, plan: Any, data: Data
) -> Chosen:
    """The winner as it is released: fitted again where that was paid for."""
    if plan.refit_budget is not None:
        # Without a run there is no winner; then the first candidate is fitted, for the same price.
        index = max(chosen.index, 0)
        whole = shape_of(settings, data).whole
        again = allot(settings.candidates[index], plan.refit_budget, whole)
        return Chosen(index, refitted(rows, again), chosen.score)
    if chosen.index < 0:
        return Chosen(-1, ConstantClassifier(settings.known_classes), None)
    return chosen


def _summary(settings: SimpleNamespace, plan: Any) -> str:
    """Public facts in one line."""
    each = plan.branches[0].budget.epsilon
    again = plan.refit_budget
    kept = "" if again is None else f", {again.epsilon:.4g} for the refit"
    return (
        f"{settings.strategy}, {len(plan.branches)} candidates, epsilon = {each:.4g} for a fit"
        f"{kept}; {plan.selection}"
    )


# The statement of one search.


def learned_in(candidates: list[Any]) -> tuple[str, ...]:
    """Steps inside the candidates that learn from the rows without privacy."""
    leaves = (leaf for candidate in candidates for leaf in leaf_steps(candidate, ""))
    private = {id(s.estimator) for candidate in candidates for s in private_steps(candidate)}
    found = [str(f) for f in leaves if f.role == "learned" and id(f.estimator) not in private]
    return tuple(dict.fromkeys(found))


def search_statement(settings: SimpleNamespace, plan: Plan) -> SelectionStatement:
    """What the search promises.

    Parameters
    ----------
    settings : SimpleNamespace
        Checked parameters of the search.
    plan : Plan
    """
    facts = promise_facts(
        "param_grid",
        settings.parameter_names,
        adjacency=settings.adjacency,
        labels=label_source(settings),
        seeded=settings.random_state is not None,
        reasons=not_private_reasons(settings),
    )
    public = facts.pop("assumed_public")
    if settings.class_weight is not None:
        public += (CLASS_WEIGHTS,)
    leaves = [leaf for candidate in settings.candidates for leaf in leaf_steps(candidate, "")]
    public += tuple(
        dict.fromkeys(FUNCTION.format(step=leaf) for leaf in leaves if leaf.maps_by_function)
    )
    steps = [leaf.estimator for leaf in leaves]
    if any(isinstance(step, DeclaredTrainer) for step in steps):
        public += (DECLARED,)
    return SelectionStatement(
        epsilon=settings.epsilon,
        delta=settings.delta,
        adjacency=settings.adjacency,
        strategy=settings.strategy,
        candidates=tuple(map(described, settings.parameters)),
        branches=tuple(branch.events for branch in plan.branches),
        selection=plan.selection,
        stopping=plan.stopping,
        refit=plan.refit,
        assumed_public=public,
        caveats=_caveats(settings, plan, steps),
        **facts,
    )


def _caveats(settings: SimpleNamespace, plan: Plan, steps: list[Any]) -> tuple[str, ...]:
    """What no candidate's promise covers, and what the search adds to that."""
    partition = settings.strategy == "partition"
    caveats = [RUNNING_TIME_CAVEAT if partition else RUNS_CAVEAT]
    if partition:
        caveats.append(PARTS_CAVEAT)
    events = [event for branch in plan.branches for event in branch.events]
    floating = any(getattr(step, "noise_grid", "exact") == "float" for step in steps)
    if floating or any(isinstance(event, PureEvent) for event in events):
        caveats.append(FLOATING_POINT_CAVEAT)
    if any(map(_minimises, steps)):
        caveats.append(PRECISION_CAVEAT)
    if any(getattr(step, "max_iter", None) is not None for step in steps):
        caveats.append(MAX_ITER_CAVEAT)
    return tuple(caveats)


def _minimises(step: Any) -> bool:
    """Whether a fit certifies the minimum of a smooth loss, which it may fail to do."""
    trainer = getattr(step, "mechanism", None)
    if trainer is not None:
        return bool(trainer in ("objective", "output") or (trainer == "auto" and step.delta == 0.0))
    certifies = hasattr(step, "max_iter") and getattr(step, "solver", "exact") == "exact"
    return bool(certifies and getattr(step, "loss", None) != "crammer_singer")
