"""Parameters of a search, checked before anything is read, and the plan that follows from them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dpsvm_fast import _validation as check
from dpsvm_fast.accounting import check_ledger
from dpsvm_fast.accounting.compound import STOPPING_LAWS
from dpsvm_fast.accounting.selection import CHOICES, STRATEGIES, Stopping
from dpsvm_fast.estimators._planned_events import Planned
from dpsvm_fast.estimators._training_data import classes_from_labels, encoded_labels
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.model_selection._budgets import Budget
from dpsvm_fast.model_selection._data import Data
from dpsvm_fast.model_selection._grid import (
    candidate_parameters,
    candidates_of,
    label_set,
    label_step,
)
from dpsvm_fast.model_selection._plan import Plan, Shape, partition_plan, stopping_plan
from dpsvm_fast.model_selection._scores import Scoring
from dpsvm_fast.model_selection._strategies import part_sizes

__all__ = ["check_size", "checked_settings", "planned", "settle_labels", "shape_of"]

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
