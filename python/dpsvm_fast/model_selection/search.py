"""Private search over parameters: its budget covers all fits that it compares."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from dpsvm_fast import validation as check
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.certificates import Occasion, PrivacyEvent
from dpsvm_fast.certificates.events import STOPPING_LAWS
from dpsvm_fast.certificates.statement import CHOICES, STRATEGIES, SelectionStatement
from dpsvm_fast.estimators import parameters as param
from dpsvm_fast.estimators.fit import (
    PrivateEstimator,
    charge,
    private_fit,
    refuse_or_warn,
)
from dpsvm_fast.estimators.frames import feature_names, rows_at, sparse_table
from dpsvm_fast.estimators.inputs import (
    checked_rows,
    classes_from_labels,
    encoded_labels,
    feature_facts,
    owners,
    public_classes,
)
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError, PrivacyLeakWarning
from dpsvm_fast.ledger import PrivacyLedger, check_ledger
from dpsvm_fast.mechanisms.plan import Facts, filled
from dpsvm_fast.model_selection.plan import partition_budgets, stopping_budgets
from dpsvm_fast.model_selection.strategies import (
    Chosen,
    Part,
    PartitionPlan,
    Scoring,
    SearchPlan,
    StoppingPlan,
    label_step,
)
from dpsvm_fast.pipelines import (
    OURS,
    check_form,
    leaf_steps,
    private_steps,
    private_steps_instead,
    takes,
)

# The candidates of a search: copies of one estimator with the parameters of a grid.


# Parameters that the search itself decides, for every candidate alike.
RESERVED = frozenset({"epsilon", "delta", "adjacency", "ledger", "random_state", "classes"})
# One part of the records, or one of this many draws, for each candidate.
MAX_CANDIDATES = 10_000


def candidate_parameters(param_grid: Any) -> list[dict[str, Any]]:
    """Return every combination of a grid, in scikit-learn's order.

    Raises
    ------
    TypeError, InvalidParameterError
        The grid is missing or empty, or varies a parameter that the search sets.
    """
    try:
        grid = ParameterGrid(param_grid)
        n = len(grid)
    except ValueError as error:
        raise InvalidParameterError(f"param_grid: {error}") from None
    except TypeError as error:
        raise InvalidTypeError(f"param_grid: {error}") from None
    if not 0 < n <= MAX_CANDIDATES:
        raise InvalidParameterError.of(
            "param_grid", got=n, accepted=f"1 to {MAX_CANDIDATES} combinations"
        )
    parameters = [dict(combination) for combination in grid]
    names = {name for combination in parameters for name in combination}
    if not all(isinstance(name, str) for name in names):
        raise InvalidTypeError("param_grid: expected strings as names of parameters")
    for name in sorted(names):
        if name.rpartition("__")[2] in RESERVED:
            raise InvalidParameterError(
                f"param_grid: {name} cannot vary; all candidates share the budget, relation, label "
                "set, ledger and source of randomness"
            )
    return parameters


def candidates_of(estimator: Any, parameters: list[dict[str, Any]], adjacency: str) -> list[Any]:
    """Return a copy of the estimator for each combination.

    Raises
    ------
    TypeError, InvalidParameterError
        The value is not an estimator or makes no private release; or a private step has another
        relation, a ledger or a seed.
    """
    alike = hasattr(estimator, "fit") and hasattr(estimator, "get_params")
    if not alike or isinstance(estimator, type):
        raise InvalidTypeError.of("estimator", estimator, "an estimator or Pipeline")
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


def _check_step(step: Any, adjacency: str) -> None:
    """Refuse a private step whose parameters conflict with those that the search sets."""
    name = type(step).__name__
    if isinstance(step, PrivateGridSearch):
        raise InvalidTypeError.of("estimator", step, "one that fits once, or a DeclaredTrainer")
    if not hasattr(step, "epsilon") or not hasattr(step, "adjacency"):
        raise InvalidTypeError(
            f"estimator: {name} has no epsilon or no adjacency, which a search sets"
        )
    if step.adjacency != adjacency:
        accepted = f"{step.adjacency!r}, as in {name}"
        raise InvalidParameterError.of("adjacency", got=adjacency, accepted=accepted)
    for parameter in ("ledger", "random_state"):
        if getattr(step, parameter, None) is not None:
            raise InvalidParameterError(
                f"{parameter}: expected None in {name}; give it to the search"
            )


def given_label_set(candidates: list[Any]) -> tuple[bool, NDArray[Any] | None]:
    """Return whether the candidates have a label-set parameter, and its value."""
    steps = [label_step(candidate) for candidate in candidates]
    if any(step is None for step in steps):
        return False, None
    sets: list[Any] = [getattr(step, "classes", None) for step in steps]
    sets = [None if classes is None else public_classes("classes", classes) for classes in sets]
    # None equals None only.
    if not all(np.array_equal(sets[0], other) for other in sets):
        raise InvalidParameterError("classes: expected the same in all candidates")
    return True, sets[0]


def given_max_weight(candidates: list[Any]) -> float:
    """Return the weight that counts as one row in all candidates.

    Raises
    ------
    InvalidParameterError
        Candidates have different values, or one takes no weights.
    """
    taking = [
        [step for step in private_steps(candidate) if "sample_weight" in takes(step)]
        for candidate in candidates
    ]
    if not all(taking):
        raise InvalidParameterError("sample_weight: expected candidates that take weights")
    found = {step.max_weight for steps in taking for step in steps}
    if len(found) > 1:
        raise InvalidParameterError(
            "max_weight: expected the same in all steps of all candidates that take weights, "
            "transformers too"
        )
    return check.check_positive("max_weight", found.pop())


def described(parameters: Mapping[str, Any]) -> str:
    """Return the public parameters of one candidate as text."""
    found = []
    for name in sorted(parameters):
        text = " ".join(repr(parameters[name]).split())
        found.append(f"{name}={text if len(text) <= 200 else f'{text[:197]}...'}")
    return ", ".join(found) or "the estimator as it is"


class SearchRows:
    """Rows and labels of a search, checked as far as possible before candidates use them.

    If every candidate begins with an estimator of this library, X must be valid for all of them.
    Other first steps, and functions, may take anything with rows.

    Parameters
    ----------
    search : PrivateGridSearch
        With checked parameters.
    X, y : object
        Arguments of ``fit``.
    """

    def __init__(
        self, search: PrivateGridSearch, X: Any, y: Any, groups: Any, sample_weight: Any
    ) -> None:
        self.X, self.y, self._search = X, y, search
        self._groups, self._weights = groups, sample_weight
        self.classes = search.label_set
        self.verbose, self.on_step = bool(search.verbose), None
        self.published: dict[str, Any] = {}
        self._was_read = False

    @property
    def facts(self) -> Facts:
        """Return the public facts; labels are read only without classes, rows only counted."""
        counted = self._search.adjacency == "replace_one"
        if counted or (self.classes is None and self._search.labelled):
            self.read()
        return Facts(
            n_classes=2 if self.classes is None else self.classes.size,
            n_samples=self.n_rows if counted else None,
            sparse=sparse_table(self.X),
            feature_names=feature_names(self.X),
            unit="row" if self._groups is None else "person",
            weighted=self._weights is not None,
        )

    @property
    def n_rows(self) -> int:
        """Number of rows, or of persons; private with ``add_remove``."""
        return self.n_here if self._groups is None else int(self._groups[-1]) + 1

    @property
    def n_here(self) -> int:
        """Return the number of rows in this process."""
        return int(self.y.shape[0])

    def read(self) -> None:
        """Check rows and labels once.

        Raises
        ------
        ValueError, TypeError
            The rows are invalid; the message does not quote them.
        """
        if self._was_read:
            return
        search = self._search
        first = [_first_step(candidate) for candidate in search.candidates]
        if all(taken == "numbers" for _, taken in first):
            # Validation writes what it learns about X onto the copy.
            probe = copy.copy(search)
            numbers, self.y = checked_rows(probe, self.X, self.y, reset=True)
            self.published = feature_facts(probe)
            # Rows of a table keep their names for the candidates.
            self.X = self.X if "feature_names_in_" in self.published else numbers
        else:
            self.X, self.y = _indexable(self.X, self.y)
            schemas: list[Any] = []
            for step, taken in first:
                # Cells of tables are checked before anything is spent.
                if taken == "cells" and step.schema not in schemas:
                    clone(step).fit_transform(self.X)
                    schemas.append(step.schema)
        for known in (search.counted.classes, self.classes):
            if known is not None:
                encoded_labels(self.y, known)
        if self.classes is None and search.labelled:
            self.classes = classes_from_labels(self.y)
        if self.classes is not None:
            self.published["classes_"] = self.classes
        if self._groups is not None or self._weights is not None:
            own = (self._groups, self._weights, self.n_here, search.max_weight)
            found = owners(*own, counted=search.adjacency == "replace_one")
            if self._weights is not None:
                self._weights = np.asarray(self._weights, dtype=np.float64)
            if found.order is not None:
                self.X, self.y = rows_at(self.X, found.order), self.y[found.order]
                self._weights = None if self._weights is None else self._weights[found.order]
            if self._groups is not None:
                n, several = self.n_here, found.persons
                starts = np.append(np.arange(several[0]), several) if several.size else np.arange(n)
                self._groups = np.searchsorted(starts, np.arange(n), side="right") - 1
        self._was_read = True

    def some(self, members: NDArray[np.intp] | None) -> Part:
        """Return the rows with these indices, or of these persons; all rows for None."""
        if members is None:
            return Part(self.X, self.y, self._groups, self._weights)
        if self._groups is not None:
            chosen = np.zeros(self.n_rows, dtype=bool)
            chosen[members] = True
            members = np.flatnonzero(chosen[self._groups])
        own = (None if a is None else a[members] for a in (self._groups, self._weights))
        return Part(rows_at(self.X, members), self.y[members], *own)


def _first_step(candidate: Any) -> tuple[Any, str]:
    """Return the first step, and what it checks: "numbers", "cells" or "nothing"."""
    leaf = next(leaf_steps(candidate, ""), None)
    step = None if leaf is None else leaf.estimator
    if not type(step).__module__.startswith(OURS) or isinstance(step, DeclaredTrainer):
        return step, "nothing"
    return step, "numbers" if get_tags(step).input_tags.two_d_array else "cells"


def _indexable(X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
    """Check that X has rows and y as many labels."""
    try:
        X, y = indexable(X, y)
        labels = np.asarray(y)
        same = labels.ndim == 1 and _num_samples(X) == labels.shape[0]
    except (TypeError, ValueError):
        same = False
    if not same:
        raise InvalidParameterError("X and y: expected rows, and one label for each of them")
    return X if hasattr(X, "shape") else np.asarray(X), labels


# More runs on average than anyone waits for.
MAX_RUNS = 1000.0

Share = Annotated[float, param.real(0.01, 0.99)]


def _jobs(name: str, value: Any) -> int:
    """Accept a number of joblib jobs."""
    jobs = check.check_integer(name, value, -1024, 1024)
    if jobs == 0:
        raise InvalidParameterError.of(name, got=0, accepted="an integer other than 0")
    return jobs


def _best_has(name: str) -> Any:
    """Return an ``available_if`` decorator that asks the model or estimator for a method."""

    def check(search: Any) -> bool:
        getattr(vars(search).get("best_estimator_", search.estimator), name)
        return True

    return available_if(check)


@dataclass(eq=False, repr=False)
class PrivateGridSearch(PrivateEstimator, MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    r"""Private search over a grid of parameters, within one budget.

    A grid search that fits many private models but counts only the budget of the best one is not
    private. This search also pays for the choice, in one of two ways:

    - ``strategy="partition"``: every record is assigned at random to one of m + 1 parts. Each of m
      candidates is trained on its own part, and the winner is chosen by errors on the last part,
      with the exponential mechanism or permute-and-flip. A record is charged only for its own part:
      the total is the largest of the parts' budgets, not their sum.
    - ``strategy="random_stopping"``: a secret random number of runs, each with a random candidate
      on all records and a noisy score. The best run is released. This costs about two to three
      times a single run, for any number of candidates.

    Parameters
    ----------
    estimator : estimator, Pipeline or DeclaredTrainer
        Any estimator of this library, a Pipeline with one or more of them, or a training function
        with declared events. Its ``adjacency`` must be that of the search; its ``ledger`` and
        ``random_state`` must be None. The search sets its ``epsilon`` and ``delta``; in a Pipeline
        with several private steps their epsilons are proportions. A step with delta = 0 stays pure.
    param_grid : dict of lists, or list of such dicts
        As in scikit-learn's GridSearchCV. PUBLIC: it must not come from the data. It cannot vary
        ``epsilon``, ``delta``, ``adjacency``, ``classes``, ``ledger`` and ``random_state``.
    epsilon : float, default=1.0
        Epsilon of the whole search, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Delta of the whole search, 0 <= delta < 1; 0 needs pure candidates.
    strategy : {"partition", "random_stopping"}, default="partition"
    selection : {"permute_and_flip", "exponential"}, default="permute_and_flip"
        Mechanism by which "partition" chooses. Permute-and-flip is never worse.
    scoring : {"errors", "balanced_errors"}, default="errors"
        Score to minimise: the number of errors, or their sum weighted by class.
    class_weight : dict or None, default=None
        PUBLIC weight of an error on each class, for "balanced_errors"; rounded to multiples of
        1/256 of the largest.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets differ by one row added or removed, or by one row replaced, which
        makes the number of rows public.
    validation_fraction : float in (0, 1), default=0.2
        Share of the records used by "partition" to choose. Every part needs 50 expected records.
    refit_fraction : float in [0, 1), default=0.8
        Share of the budget (of epsilon with ``delta=0``, else of the squared Gaussian parameter)
        reserved to refit the winner on all records. 0 releases the winner without a refit.
    stopping : {"geometric", "logarithmic", "poisson"}, default="geometric"
        Distribution of the number of runs of "random_stopping". A "poisson" number is near its
        mean, but costs more with ``delta=0`` and may be 0; then a constant model is released. The
        others are often 1, whatever their mean, and a single run gives a random candidate.
    mean_runs : float in (1, 1000] or None, default=None
        Mean number of runs; None is three times the number of candidates, at least 10.
    score_fraction : float in (0, 1), default=0.1
        Share of a run's budget for its noisy score, measured as ``refit_fraction`` is.
    n_jobs : int or None, default=None
        Number of simultaneous fits, by joblib, on any backend. Never changes the result.
    random_state : int or None, default=None
        None draws noise from the operating system. A seed makes the search reproducible but not
        private: a ``NotPrivateWarning`` is issued, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget ledger, charged once for the whole search, before anything is drawn.
    verbose : {0, 1}, default=0
        1 prints the budgets of all parts before the search.

    Attributes
    ----------
    best_estimator_ : estimator
        Released model. Its ``privacy_`` is that of the search.
    best_params_ : dict
        Parameters of the winner.
    best_index_ : int
        Index of the winner in the grid; -1 if a Poisson number of runs was 0 and there is no refit.
    best_score_ : float
        Noisy score of the winner, with "random_stopping" only.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
    privacy_ : SelectionStatement
        Guarantee of the search, with every number to recompute it.

    Notes
    -----
    Guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the
    relation ``adjacency``, provided that the estimator, the grid and every other parameter were
    chosen without looking at the data. Proof: docs/proofs/private_selection.md. Scores of
    candidates are not kept: there is no ``cv_results_``. The assignment to parts does not depend on
    the records: it is never stratified. Not covered: running time, which reveals the number of runs
    with "random_stopping"; errors of the search, including too few rows for the parts; exceptions
    of the candidates' own guarantees.

    With "partition" every candidate is trained on ``(1 - validation_fraction) / m`` of the records,
    so keep grids small. The refit trains the winner on all records with part of the budget;
    parameters that suit a small part may not suit all records. A search is mostly no better than
    the defaults: see docs/tuning.md.

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

    estimator: Any
    param_grid: Any
    epsilon: param.Epsilon = 1.0
    delta: param.Delta = 1e-6
    _: KW_ONLY
    strategy: Annotated[str, param.one_of(*STRATEGIES)] = "partition"
    selection: Annotated[str, param.one_of(*CHOICES)] = "permute_and_flip"
    scoring: str = "errors"
    class_weight: dict[Any, float] | None = None
    adjacency: param.Adjacency = "add_remove"
    validation_fraction: Share = 0.2
    refit_fraction: Annotated[float, param.real(0.0, 0.99)] = 0.8
    stopping: Annotated[str, param.one_of(*STOPPING_LAWS)] = "geometric"
    mean_runs: Annotated[float | None, param.or_word(None, param.real(1.01, MAX_RUNS))] = None
    score_fraction: Share = 0.1
    n_jobs: Annotated[int | None, param.or_word(None, _jobs)] = None
    random_state: param.Seed = None
    ledger: PrivacyLedger | None = None
    verbose: param.Verbose = 0

    best_estimator_: Any = field(init=False)
    best_params_: dict[str, Any] = field(init=False)
    best_index_: int = field(init=False)
    classes_: NDArray[Any] = field(init=False)
    privacy_: SelectionStatement = field(init=False)

    @in_usual_arithmetic
    def fit(
        self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None
    ) -> PrivateGridSearch:
        """Search, spend the budget and release the winner.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Input of the candidates.
        y : array-like of shape (n_samples,)
            Labels, each one of the candidates' ``classes``.
        groups : array-like of shape (n_samples,), optional
            Id of the person that each row belongs to, as for the candidates. Whole persons are then
            protected: all rows of a person are in one part, and scores count persons.
        sample_weight : array-like of shape (n_samples,), optional
            Private weights, clipped to the ``max_weight`` of the candidates, which must be the same
            in all. Every step that takes weights, transformers included, and the score use them.

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
            X or y is invalid; the message does not quote it. Nothing was spent, unless only a
            candidate could detect it.
        CertificationError
            The fit of a candidate failed. The budget is spent and nothing is released.
        KeyboardInterrupt
            The budget is spent and nothing is released.
        """
        self._forget()
        checked = self.checked()
        check_form("estimator", X, checked.candidates)
        if checked.learned:
            leak = (
                "candidates have steps that learn from the rows without privacy: "
                f"{', '.join(checked.learned)}; the release is not private. "
                + private_steps_instead(checked.learned)
            )
            refuse_or_warn(checked.ledger, "estimator", leak, PrivacyLeakWarning, stacklevel=4)
        if sample_weight is not None:
            checked.max_weight = given_max_weight(checked.candidates)
        rows: Any = SearchRows(checked, X, y, groups, sample_weight)
        self.__dict__.update(private_fit(checked, rows))
        return self

    # From a checked copy: the candidates, their parameters, and these as text; how errors are
    # counted; whether there is a label set, and which one if it is known.
    candidates: list[Any] = field(init=False)
    combinations: list[dict[str, Any]] = field(init=False)
    titles: tuple[str, ...] = field(init=False)
    counted: Scoring = field(init=False)
    labelled: bool = field(init=False)
    label_set: NDArray[Any] | None = field(init=False)
    classes: NDArray[Any] | None = field(init=False)
    # The weight that counts as one row.
    max_weight = 1.0

    @cached_property
    def learned(self) -> tuple[str, ...]:
        """Nested steps of the candidates that learn from the rows without privacy."""
        leaves = (leaf for candidate in self.candidates for leaf in leaf_steps(candidate, ""))
        found = (str(leaf) for leaf in leaves if leaf.role == "learned" and not leaf.spends)
        return tuple(dict.fromkeys(found))

    def checked(self) -> PrivateGridSearch:
        """Return a copy with candidates and checked parameters; no data are read.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter of the search or of a candidate is outside its range.
        """
        checked = super().checked()
        checked.counted = Scoring(self.scoring, self.class_weight)
        checked.combinations = candidate_parameters(self.param_grid)
        checked.titles = tuple(map(described, checked.combinations))
        checked.candidates = candidates_of(self.estimator, checked.combinations, checked.adjacency)
        if checked.mean_runs is None:
            checked.mean_runs = min(MAX_RUNS, max(10.0, 3.0 * len(checked.candidates)))
        checked._settle_label_set()
        return checked

    def _settle_label_set(self) -> None:
        """Find the label set; it stays unknown if no candidate has the parameter ``classes``."""
        weighted = self.counted.classes
        self.labelled, self.label_set = given_label_set(self.candidates)
        if self.labelled:
            self.classes = self.label_set
            try:
                if weighted is not None and self.classes is not None:
                    encoded_labels(self.classes, weighted)
            except ValueError:
                raise InvalidParameterError(
                    "class_weight: expected a weight for each one of `classes`"
                ) from None
            return
        self.labelled, self.label_set = weighted is not None, weighted
        runs = (self.strategy, self.stopping) == ("random_stopping", "poisson")
        if runs and self.refit_fraction == 0.0 and not self.labelled:
            raise InvalidParameterError(
                "stopping: expected 'geometric' or 'logarithmic', or refit_fraction > 0, for "
                "candidates without a public label set, because 'poisson' may run no fit"
            )

    def owned(self, facts: Facts) -> Facts:
        """Return the facts unchanged; the candidates know what they accept."""
        return facts

    def plan(self, facts: Facts) -> SearchPlan:
        """Return the plan of all fits and of the choice."""
        if facts.unit == "person" or facts.weighted:
            self.counted = self.counted.of_persons(self.max_weight)
        partition = self.strategy == "partition"
        budgets = (partition_budgets if partition else stopping_budgets)(self, facts)
        kind: type[SearchPlan] = PartitionPlan if partition else StoppingPlan
        own = {"scoring": self.counted, "seeded": self.random_state is not None}
        return filled(kind, self, budgets=budgets, **own)

    def _attributes(self, plan: SearchPlan, released: Chosen) -> dict[str, Any]:
        """Return the released model, its parameters, and its attributes about rows and labels."""
        best, index = released.estimator, released.index
        names = ("classes_", "n_features_in_", "feature_names_in_")
        found = {name: getattr(best, name) for name in names if hasattr(best, name)}
        if released.score is not None:
            found["best_score_"] = released.score
        parameters = self.combinations[index] if index >= 0 else {}
        return found | {
            "best_estimator_": best,
            "best_params_": dict(parameters),
            "best_index_": index,
        }

    _rests_on = "param_grid"

    def _occasion(self, **facts: Any) -> Occasion:
        """Return facts about this search that the statement adds to its plan."""
        leaves = [leaf for candidate in self.candidates for leaf in leaf_steps(candidate, "")]
        steps = [leaf.estimator for leaf in leaves]
        assumed = {
            "class_weights": self.class_weight is not None,
            "declared": any(isinstance(step, DeclaredTrainer) for step in steps),
        }
        uncovered = {
            "floating_point": any(getattr(s, "noise_grid", "exact") == "float" for s in steps),
            "precision": any(map(_minimises, steps)),
            "max_iter": any(getattr(step, "max_iter", None) is not None for step in steps),
        }
        return super()._occasion(
            parameters=self.get_params(deep=False),
            assumed=tuple(name for name, applies in assumed.items() if applies),
            functions=tuple(dict.fromkeys(str(leaf) for leaf in leaves if leaf.maps_by_function)),
            learned=self.learned,
            uncovered=tuple(name for name, applies in uncovered.items() if applies),
            **facts,
        )

    def _statement(
        self, plan: SearchPlan, released: Chosen, occasion: dict[str, Any]
    ) -> SelectionStatement:
        """Return the statement of the search, which replaces that of the released model.

        The model's own statement would cover one fit, not the search. The state for ``partial_fit``
        is dropped too, because a continuation would account for that fit only.
        """
        branches = tuple(branch.events for branch in plan.budgets.branches)
        own = {"candidates": self.titles, "branches": branches}
        statement = filled(SelectionStatement, plan.budgets, self, **own, **occasion)
        for leaf in leaf_steps(released.estimator, ""):
            leaf.estimator.__dict__.pop("_continuation", None)
        steps = private_steps(released.estimator)
        if steps and "privacy_" in vars(steps[-1]):
            steps[-1].privacy_ = statement
        return statement

    @_best_has("predict")  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the labels predicted by the released model, ndarray of shape (n_samples,)."""
        return np.asarray(self._model().predict(X))

    @_best_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of the released model, one per class, or one for two classes."""
        return np.asarray(self._model().decision_function(X))

    @_best_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities, ndarray of shape (n_samples, n_classes)."""
        return np.asarray(self._model().predict_proba(X))

    @_best_has("predict_log_proba")  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Return log probabilities, ndarray of shape (n_samples, n_classes)."""
        return np.asarray(self._model().predict_log_proba(X))

    @_best_has("transform")  # type: ignore[untyped-decorator]
    def transform(self, X: Any) -> Any:
        """Return rows transformed by the released model."""
        return self._model().transform(X)

    def _model(self) -> Any:
        """Return the released model; raise an error before a fit."""
        check_is_fitted(self)
        return self.best_estimator_

    def __sklearn_tags__(self) -> Any:
        """Return the tags of the estimator; on small data, noise may dominate the model."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        return tags


def _minimises(step: Any) -> bool:
    """Return whether a fit must certify the minimum of a smooth loss, which may fail."""
    trainer = getattr(step, "mechanism", None)
    if trainer is not None:
        return bool(trainer in ("objective", "output") or (trainer == "auto" and step.delta == 0.0))
    certifies = hasattr(step, "max_iter") and getattr(step, "solver", "exact") == "exact"
    return bool(certifies and getattr(step, "loss", None) != "crammer_singer")


# Any training procedure with a declared price, as an estimator.


@dataclass(frozen=True)
class Declared:
    """Plan of a DeclaredTrainer: the declared cost of one call."""

    events: tuple[PrivacyEvent, ...]


def _a_function(name: str, value: Any) -> Any:
    """Accept a callable."""
    if not callable(value):
        raise InvalidTypeError.of(name, value, "a function")
    return value


def _arguments(name: str, value: Any) -> dict[str, Any]:
    """Accept keyword arguments as a dict, or None."""
    return dict(check.check_type(name, value, (Mapping, type(None)), "a dict or None") or {})


@dataclass(eq=False, repr=False)
class DeclaredTrainer(ClassifierMixin, BaseEstimator):
    """Training function of your own, with declared privacy events.

    Parameters
    ----------
    train : callable
        ``train(X, y, **parameters)`` returns an object with ``predict``. If ``events`` is a
        function, it also gets ``epsilon``, ``delta`` and ``adjacency``.
    events : tuple of PrivacyEvent, or callable
        Privacy cost of one call of ``train`` for every record: events, or a function
        ``events(epsilon, delta, adjacency, **parameters)`` that returns them for a budget. It must
        not read data.
    parameters : dict or None, default=None
        Keyword arguments of both functions. ``set_params`` adds unknown names, so that grids can
        vary them.
    epsilon : float, default=1.0
        Privacy parameter passed to the functions.
    delta : float, default=1e-6
        Privacy parameter passed to the functions.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring relation of all events.
    ledger : PrivacyLedger or None, default=None
        Charged before ``train`` is called.

    Attributes
    ----------
    model_ : object
        Result of ``train``.
    events_ : tuple of PrivacyEvent
        Events charged for it.

    Notes
    -----
    Guarantees: none. You must ensure that the declared events cover the cost of ``train``, that its
    result depends on the data in no other way, and that it uses fresh randomness in every call.

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

    train: Annotated[Callable[..., Any], _a_function]
    events: tuple[PrivacyEvent, ...] | Callable[..., tuple[PrivacyEvent, ...]]
    parameters: Annotated[Mapping[str, Any] | None, _arguments] = None
    _: KW_ONLY
    epsilon: param.Epsilon = 1.0
    delta: param.Delta = 1e-6
    adjacency: param.Adjacency = "add_remove"
    ledger: PrivacyLedger | None = None

    model_: Any = field(init=False)
    events_: tuple[PrivacyEvent, ...] = field(init=False)

    def set_params(self, **params: Any) -> DeclaredTrainer:
        """Set constructor arguments; any other name is a parameter of ``train``."""
        own = self.get_params(deep=False)
        others = {name: value for name, value in params.items() if name not in own}
        super().set_params(**{name: value for name, value in params.items() if name in own})
        if others:
            self.parameters = {**(self.parameters or {}), **others}
        return self

    @in_usual_arithmetic
    def fit(self, X: Any, y: Any) -> DeclaredTrainer:
        """Charge the ledger, then call ``train``.

        Parameters
        ----------
        X, y : anything
            Passed on.

        Returns
        -------
        DeclaredTrainer

        Raises
        ------
        InvalidParameterError, TypeError
            An argument has the wrong type or is outside its range, an event has another relation,
            or the result has no ``predict``.
        BudgetExceededError
            The ledger refuses; ``train`` was not called.
        """
        for name in ("model_", "events_"):
            self.__dict__.pop(name, None)
        checked = self.checked()
        events = checked.plan().events
        charge(checked.ledger, events, type(self).__name__)
        model = self.train(X, y, **checked._arguments(budget=callable(self.events)))
        if not hasattr(model, "predict"):
            kind = type(model).__name__
            raise InvalidTypeError(f"train: returned {kind}, expected an object with predict")
        self.model_, self.events_ = model, events
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return predicted labels, ndarray of shape (n_samples,)."""
        check_is_fitted(self)
        return np.asarray(self.model_.predict(X))

    def checked(self) -> DeclaredTrainer:
        """Return a copy with checked parameters."""
        checked = param.checked_copy(self)
        checked.ledger = check_ledger(self.ledger, checked.adjacency)
        return checked

    def plan(self, facts: Facts | None = None) -> Declared:
        """Return the plan of one call; the parameters are already checked."""
        events = self.events
        if callable(events):
            events = events(**self._arguments(budget=True))
        events = (events,) if isinstance(events, PrivacyEvent) else events
        check.check_type("events", events, (tuple, list), "a tuple of events")
        for event in events:
            check.check_type("events", event, PrivacyEvent, "a PrivacyEvent")
            if event.adjacency != self.adjacency:
                raise InvalidParameterError.of(
                    "events", got=event.adjacency, accepted=f"events of {self.adjacency}"
                )
        return Declared(tuple(events))

    def _arguments(self, *, budget: bool) -> dict[str, Any]:
        """Return a deep copy of the keyword arguments, so that calls cannot affect each other."""
        parameters = copy.deepcopy(dict(self.parameters or {}))
        named = {name: getattr(self, name) for name in ("epsilon", "delta", "adjacency")}
        return named | parameters if budget else parameters
