"""Bad and odd inputs of PrivateGridSearch: those of the catalogue, and its own parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import LinearSVC

from dpsvm_fast import OutputPerturbationSVC, PrivacyLedger
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError, NotPrivateWarning
from dpsvm_fast.model_selection import PrivateGridSearch
from dpsvm_fast.model_selection.search import RESERVED
from oracles.odd_inputs import X, Y
from oracles.odd_parameters import INF, NAN, SHARED, Unread
from oracles.odd_rows import ACCEPTED, REFUSED, Case, secrets
from oracles.subjects import assert_refused, chained_text, spent
from oracles.watching import fitted_names

# Planning the best of a random number of runs takes seconds for each new budget.
every_strategy = pytest.mark.parametrize(
    "strategy", ["partition", pytest.param("random_stopping", marks=pytest.mark.slow)]
)
# Settings of the cases that are for the estimator, and for the search.
INNER, OUTER = {"classes", "fit_intercept", "data_norm"}, {"epsilon", "delta"}


def made(strategy: str = "partition", classes: Any = range(3), **changes: Any) -> Any:
    inner = {name: changes.pop(name) for name in INNER & set(changes)}
    estimator = OutputPerturbationSVC(classes=classes, n_threads=1, **inner)
    settings = {
        "estimator": estimator,
        "param_grid": {"C": [0.001, 0.01]},
        "strategy": strategy,
        "ledger": PrivacyLedger(epsilon=1e4, delta=0.5),
    }
    return PrivateGridSearch(**(settings | changes))


def applies(case: Case) -> bool:
    wide = len(case.settings.get("classes", ())) > 1000 or case.settings.get("delta") == 1e-300
    return not wide and set(case.settings) <= INNER | OUTER


@pytest.mark.sampled
@every_strategy
@pytest.mark.parametrize("name", REFUSED)
def test_refused_data_cost_nothing(strategy: str, name: str) -> None:
    case, fitting = REFUSED[name], made(strategy)
    error = assert_refused(lambda: fitting.fit(case.rows, case.labels), fitting, case.words)
    text = chained_text(error)
    assert not {secret for secret in secrets(case) if secret in text}


def repeated(case: Case) -> tuple[Any, Any]:
    """Every row many times: a partition wants some in each part."""
    rows, labels = case.rows, np.asarray(case.labels)
    times = 400 // len(labels)
    if sparse.issparse(rows):
        return sparse.vstack([rows] * times).tocsr(), np.tile(labels, times)
    whole = np.vstack([np.asarray(rows)] * times)
    return whole, np.tile(labels, times)


@pytest.mark.sampled
@every_strategy
@pytest.mark.parametrize("name", [name for name, case in ACCEPTED.items() if applies(case)])
def test_accepted_data_give_a_model(strategy: str, name: str) -> None:
    case = ACCEPTED[name]
    if name == "more features than rows":
        case = Case(np.asarray(case.rows)[:, :2000])
    fitting = made(strategy, **case.settings)
    rows, labels = repeated(case) if strategy == "partition" else (case.rows, case.labels)
    fitting.fit(rows, labels)
    assert spent(fitting) > 0
    assert np.isfinite(fitting.decision_function(rows)).all()
    assert set(fitting.predict(rows)) <= set(fitting.classes_)


def test_too_few_rows_for_a_partition_cost_nothing() -> None:
    fitting = made("partition")
    assert_refused(lambda: fitting.fit(X, Y), fitting, "^param_grid: .*too few rows")


OWN: list[tuple[str, tuple[Any, ...]]] = [
    ("strategy", ("grid", None, 1)),
    ("selection", ("best", None, 1)),
    ("scoring", ("accuracy", None, 1)),
    ("validation_fraction", (0.0, 1.0, -0.1, NAN, INF, "x", None, True)),
    ("refit_fraction", (1.0, -0.1, NAN, "x", None, True)),
    ("stopping", ("never", None, 1)),
    ("mean_runs", (0.0, -1.0, NAN, INF, "x", True)),
    ("score_fraction", (0.0, 1.0, -1.0, NAN, "x", None, True)),
    ("n_jobs", (0, 1.5, "x", True)),
    ("param_grid", ([], {"C": []}, {"C": 1.0}, {"C": "ab"}, {1: [1]}, None, 1, "C")),
    ("param_grid", tuple({name: [None]} for name in sorted(RESERVED))),
    ("param_grid", ({"unknown": [1]},)),
    ("estimator", (None, 1, "svc", object(), OutputPerturbationSVC, LinearSVC())),
    ("random_state", (-1,)),
    ("ledger", (3,)),
]
NAMES = ("epsilon", "delta", "adjacency", "ledger", "random_state", "verbose")
PARAMETERS = [
    *((name, value) for name, value in SHARED if name in NAMES),
    *((name, value) for name, values in OWN for value in values),
]


@every_strategy
@pytest.mark.parametrize("name", sorted({name for name, _ in PARAMETERS}))
def test_bad_parameters_are_refused_before_data_are_read(strategy: str, name: str) -> None:
    for value in (value for other, value in PARAMETERS if other == name):
        fitting = made(**({"strategy": strategy} | {name: value}))
        with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
            fitting.fit(Unread(), Unread())
        assert spent(fitting) == 0
        assert fitted_names(fitting) == []


@every_strategy
def test_a_candidate_that_is_none_is_refused_before_data_are_read(strategy: str) -> None:
    for grid, name in (({"C": [0.01, -1.0]}, "C"), ({"n_threads": [1, 10**6]}, "n_threads")):
        fitting = made(strategy, param_grid=grid)
        with pytest.raises(ValueError, match=f"^{name}: "):
            fitting.fit(Unread(), Unread())
        assert spent(fitting) == 0


@every_strategy
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("random_state", {"estimator": OutputPerturbationSVC(random_state=1)}),
        ("ledger", {"estimator": OutputPerturbationSVC(ledger=PrivacyLedger(1.0, 0.1))}),
        ("adjacency", {"adjacency": "replace_one", "ledger": None}),
        ("delta", {"delta": 0.0}),
    ],
)
def test_what_the_search_decides_is_refused_in_candidates(
    strategy: str, name: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(InvalidParameterError) as error:
        made(strategy, **changes).fit(Unread(), Unread())
    assert error.value.parameter == name


def test_a_search_is_no_candidate() -> None:
    with pytest.raises(TypeError, match=r"^estimator: "):
        made(estimator=made(ledger=None), param_grid={"strategy": ["partition"]}).fit(Unread(), 0)


def test_weights_of_classes_are_for_their_own_scoring() -> None:
    with pytest.raises(InvalidParameterError) as error:
        made(class_weight=dict.fromkeys(range(3), 1.0)).fit(Unread(), Unread())
    assert error.value.parameter == "class_weight"


WEIGHTS: list[Any] = [{0: w, 1: 1.0, 2: 1.0} for w in (NAN, -1.0, 0.0)]


@every_strategy
@pytest.mark.parametrize("bad", [*WEIGHTS, {0: 1.0, 5: 1.0}, "balanced", None, [1], 1])
def test_bad_weights_of_classes(strategy: str, bad: Any) -> None:
    fitting = made(strategy, scoring="balanced_errors", class_weight=bad)
    with pytest.raises((TypeError, ValueError), match=r"^class_weight: "):
        fitting.fit(Unread(), Unread())
    assert spent(fitting) == 0


def test_a_budget_that_leaves_nothing_for_the_choice_is_named() -> None:
    """Not by the rate of the choice, which no user has typed."""
    with pytest.raises(InvalidParameterError) as caught:
        made(epsilon=1e-12, delta=1e-6).fit(Unread(), Unread())
    assert caught.value.parameter == "epsilon"


@every_strategy
def test_a_budget_smaller_than_the_cost_is_refused_before_data_are_read(strategy: str) -> None:
    ledger = PrivacyLedger(epsilon=0.5, delta=1e-6)
    with pytest.raises(BudgetExceededError):
        made(strategy, ledger=ledger).fit(Unread(), Unread())
    assert ledger.history == ()


@pytest.mark.parametrize("seed", range(3))
def test_a_part_of_weight_0_does_not_show(seed: int) -> None:
    """How many rows weigh anything is private, also where the number of rows is public."""
    rows, labels = np.tile([[0.5, 0.1], [-0.5, 0.2]], (200, 1)), np.tile([0, 1], 200)
    weights = np.zeros(400)
    weights[0] = 1.0
    fitting = made(classes=[0, 1], adjacency="replace_one", random_state=seed, ledger=None)
    fitting.estimator.set_params(adjacency="replace_one")
    with pytest.warns(NotPrivateWarning):
        fitting.fit(rows, labels, sample_weight=weights)
    assert np.isfinite(fitting.best_estimator_.coef_).all()
