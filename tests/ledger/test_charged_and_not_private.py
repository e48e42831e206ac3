"""Fits that are not private and have a ledger: refused by a strict one, charged by others.

Something leaves in such a fit with less noise than was paid for, so that a ledger that lets it pass
is charged; but neither silently nor for a fit that a warning stopped.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dpsvm_fast as dp
from dpsvm_fast import NotPrivateWarning, PrivacyLedger
from dpsvm_fast.data import Partitions
from dpsvm_fast.data import fit as distributed_fit
from dpsvm_fast.exceptions import (
    InvalidParameterError,
    PrivacyLeakWarning,
    WeakPrivacyWarning,
)
from dpsvm_fast.federated import FederatedSpec, simulate
from dpsvm_fast.metrics import evaluate
from dpsvm_fast.model_selection import PrivateGridSearch
from dpsvm_fast.planning import plan_noise

X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(400, 3))
Y = np.arange(400) % 2
TWO: dict[str, Any] = {"classes": [0, 1], "n_threads": 1}
PUBLIC = LogisticRegression().fit(X, Y)
# Seeds of a fit, of every base class.
SEEDED: dict[str, Callable[[PrivacyLedger], Any]] = {
    "output": lambda b: dp.OutputPerturbationSVC(ledger=b, random_state=1, **TWO).fit(X, Y),
    "objective": lambda b: dp.ObjectivePerturbationSVC(ledger=b, random_state=1, **TWO).fit(X, Y),
    "gradient": lambda b: dp.GradientPerturbationSVC(
        ledger=b, random_state=1, n_steps=3, **TWO
    ).fit(X, Y),
    "linear": lambda b: dp.PrivateLinearSVC(ledger=b, random_state=1, **TWO).fit(X, Y),
    "kernel": lambda b: dp.PrivateKernelSVC(ledger=b, random_state=1, n_components=5, **TWO).fit(
        X, Y
    ),
    "ellipsoids": lambda b: dp.PrivateGaussianMarginClassifier(ledger=b, random_state=1, **TWO).fit(
        X, Y
    ),
    "centre": lambda b: dp.PrivateCenter(ledger=b, random_state=1).fit(X),
    "pca": lambda b: dp.PrivatePCA(1, ledger=b, random_state=1).fit(X),
    "scaler": lambda b: dp.PrivateStandardScaler(bounds=(-1, 1), ledger=b, random_state=1).fit(X),
    "search": lambda b: PrivateGridSearch(
        dp.OutputPerturbationSVC(**TWO), {"C": [0.1, 1.0]}, ledger=b, random_state=1
    ).fit(X, Y),
    "partitions": lambda b: distributed_fit(
        dp.PrivateLinearSVC(ledger=b, random_state=1, **TWO),
        Partitions.from_arrays(X, Y, rows_per_partition=100),
    ),
    "parties": lambda b: parties(b),
    "evaluation": lambda b: evaluate(PUBLIC, X, Y, ledger=b, random_state=1),
    "continued": lambda b: dp.GradientPerturbationSVC(
        ledger=b, random_state=1, n_steps=3, **TWO
    ).partial_fit(X, Y),
}
LEAKS: dict[str, Callable[[PrivacyLedger], Any]] = {
    "classes from labels": lambda b: dp.OutputPerturbationSVC(ledger=b).fit(X, Y),
    "scaler in candidates": lambda b: PrivateGridSearch(
        make_pipeline(StandardScaler(), dp.OutputPerturbationSVC(**TWO)),
        {"outputperturbationsvc__C": [0.1, 1.0]},
        ledger=b,
    ).fit(X, Y),
}
BOTH = SEEDED | LEAKS


def specification(epsilon: float, delta: float) -> FederatedSpec:
    return FederatedSpec.dp_helmet(
        n_users=4,
        n_features=3,
        classes=[0, 1],
        delta=delta,
        epsilon=epsilon,
        max_records=100,
        n_epochs=1,
    )


def parties(ledger: PrivacyLedger) -> Any:
    rows = [(X[part], Y[part]) for part in np.split(np.arange(400), 4)]
    return simulate(specification(1.0, 1e-6), rows, ledger=ledger, random_state=1)


def budget(name: str, *, strict: bool = False) -> PrivacyLedger:
    relation = "replace_one" if name == "parties" else "add_remove"
    return PrivacyLedger(9.0, 1e-4, relation, strict=strict)


@pytest.mark.parametrize("name", BOTH)
def test_a_strict_ledger_refuses_before_anything_is_charged(name: str) -> None:
    ledger = budget(name, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(InvalidParameterError) as told:
            BOTH[name](ledger)
    leaks = {"classes from labels": "classes", "scaler in candidates": "estimator"}
    assert told.value.parameter == leaks.get(name, "random_state")
    assert ledger.history == ()


def test_a_strict_ledger_refuses_training_that_may_end_without_a_model() -> None:
    ledger = budget("objective")
    strict = budget("objective", strict=True)
    limited = dp.ObjectivePerturbationSVC(1.0, max_iter=1000, **TWO)
    with pytest.raises(InvalidParameterError) as told:
        clone(limited).set_params(ledger=strict).fit(X, Y)
    assert told.value.parameter == "max_iter"
    assert strict.history == ()
    assert clone(limited).set_params(ledger=ledger).fit(X, Y).privacy_.private


def test_strictness_goes_where_the_ledger_goes(tmp_path: Path) -> None:
    assert PrivacyLedger(1.0, 1e-6).strict
    path = tmp_path / "b.budget"
    ledger = PrivacyLedger(1.0, 1e-6, path=path, strict=False)
    assert not pickle.loads(pickle.dumps(ledger)).strict
    assert not clone(dp.PrivateLinearSVC(ledger=ledger)).ledger.strict
    text = pickle.dumps(ledger)
    del ledger
    assert not pickle.loads(text).strict
    # Of the object, not of the file.
    assert PrivacyLedger.open(path).strict
    assert not PrivacyLedger.open(path, strict=False).strict
    with pytest.raises(TypeError, match="strict"):
        PrivacyLedger(1.0, 1e-6, strict="no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epsilon", "delta", "weak"),
    [(10.0, 1e-3, 0), (10.5, 1e-6, 1), (1.0, 1.1e-3, 1), (50.0, 0.2, 2)],
)
def test_numbers_that_say_next_to_nothing_are_reported(
    epsilon: float, delta: float, weak: int
) -> None:
    """And charged, since what they promise holds."""
    ledger = PrivacyLedger(100.0, 0.5)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = dp.OutputPerturbationSVC(epsilon, delta, ledger=ledger, **TWO).fit(X, Y)
    assert [one.category for one in told] == weak * [WeakPrivacyWarning]
    assert all(one.filename == __file__ for one in told)
    assert model.privacy_.private
    assert ledger.history


PROMISES: dict[str, Callable[..., Any]] = {
    "ledger": PrivacyLedger,
    "fit": lambda epsilon, delta: dp.OutputPerturbationSVC(epsilon, delta, **TWO).fit(X, Y),
    "centre": lambda epsilon, delta: dp.PrivateCenter(epsilon, delta).fit(X),
    "evaluation": lambda epsilon, delta: evaluate(PUBLIC, X, Y, epsilon=epsilon, delta=delta),
    "plan": lambda epsilon, delta: plan_noise(dp.PrivateLinearSVC(epsilon, delta, **TWO), 3),
    "parties": specification,
}


@pytest.mark.parametrize("name", PROMISES)
def test_every_promise_of_next_to_nothing_is_reported(name: str) -> None:
    for epsilon, delta, weak in ((1.0, 1e-3, 0), (1.0, 0.2, 1), (20.0, 0.9, 2)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            PROMISES[name](epsilon, delta)
        assert [one.category for one in told] == weak * [WeakPrivacyWarning]
        assert all(one.filename == __file__ for one in told)


@pytest.mark.parametrize("name", BOTH)
def test_a_warning_that_is_an_error_costs_nothing(name: str) -> None:
    ledger = budget(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((NotPrivateWarning, PrivacyLeakWarning)):
            BOTH[name](ledger)
    assert ledger.history == ()


@pytest.mark.parametrize("name", BOTH)
def test_the_charge_is_reported_and_listed(name: str) -> None:
    ledger = budget(name)
    with pytest.warns((NotPrivateWarning, PrivacyLeakWarning), match="ledger is charged"):
        BOTH[name](ledger)
    assert ledger.history
    assert all(record.label.endswith("NOT PRIVATE") for record in ledger.history)


def test_a_private_fit_is_listed_by_its_class_alone() -> None:
    ledger = budget("output")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dp.OutputPerturbationSVC(ledger=ledger, **TWO).fit(X, Y)
    assert [record.label for record in ledger.history] == ["OutputPerturbationSVC"]


def test_the_winner_of_a_plain_search_claims_its_own_fit_alone() -> None:
    """It was chosen by exact scores, which nothing in its own fit knows."""
    search = GridSearchCV(dp.OutputPerturbationSVC(**TWO), {"C": [0.1, 1.0]}, cv=2).fit(X, Y)
    text = " ".join(str(search.best_estimator_.privacy_).split())
    assert "GridSearchCV" in text
    total = dp.total_privacy(search.best_estimator_)
    assert "GridSearchCV" in " ".join(str(total).split())
