"""One ledger through everything scikit-learn does to an estimator that carries it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier

from dpsvm_fast import BudgetExceededError, OutputPerturbationSVC, PrivacyLedger
from dpsvm_fast.certificates import PureEvent

TrainingSet = tuple[NDArray[np.float64], NDArray[np.int64]]


def model(ledger: PrivacyLedger, **changes: Any) -> OutputPerturbationSVC:
    settings = {"epsilon": 0.5, "classes": [0, 1, 2], "n_threads": 1, "noise": "gamma"}
    return OutputPerturbationSVC(**(settings | changes), ledger=ledger)


def test_clones_share_the_budget(clusters: TrainingSet) -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=0.0)
    estimator = model(ledger)
    clone(estimator).fit(*clusters)
    clone(estimator).fit(*clusters)
    with pytest.raises(BudgetExceededError):
        clone(estimator).fit(*clusters)
    assert len(ledger.history) == 2


def test_grid_search_charges_every_fit(clusters: TrainingSet) -> None:
    ledger = PrivacyLedger(epsilon=3.5, delta=0.0, strict=False)
    search = GridSearchCV(model(ledger), {"C": [0.01, 0.1]}, cv=3)
    search.fit(*clusters)
    assert len(ledger.history) == 2 * 3 + 1
    with pytest.raises(BudgetExceededError):
        model(ledger).fit(*clusters)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_cross_validation_charges_every_fit(clusters: TrainingSet, n_jobs: int) -> None:
    ledger = PrivacyLedger(epsilon=2.0, delta=0.0)
    cross_val_score(model(ledger), *clusters, cv=4, n_jobs=n_jobs)
    assert len(ledger.history) == 4
    with pytest.raises(BudgetExceededError):
        model(ledger).fit(*clusters)


def test_one_vs_rest_charges_every_class(clusters: TrainingSet) -> None:
    ledger = PrivacyLedger(epsilon=1.5, delta=0.0)
    OneVsRestClassifier(model(ledger, classes=[0, 1])).fit(*clusters)
    assert len(ledger.history) == 3
    with pytest.raises(BudgetExceededError):
        model(ledger).fit(*clusters)


@pytest.mark.parametrize("stored", [False, True])
def test_events_of_one_release_are_recorded_together_or_not_at_all(
    stored: bool, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.sqlite" if stored else None
    ledger = PrivacyLedger(epsilon=1.0, delta=0.0, path=path)
    half, more = (PureEvent(epsilon=e, adjacency="add_remove") for e in (0.5, 0.6))
    for refused in (ledger.check, ledger.spend):
        with pytest.raises(BudgetExceededError, match=r"needs epsilon=1\.1"):
            refused((half, more))
    assert ledger.history == ()
    ledger.spend((half, half), "two parts")
    assert [record.event for record in ledger.history] == [half, half]
    assert ledger.total()[0] == 1.0
    with pytest.raises(TypeError):
        ledger.spend((half, "event"))  # type: ignore[arg-type]
