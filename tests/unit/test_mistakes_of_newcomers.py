"""Ten mistakes of whoever uses the library for the first time: what is lost is nothing in all ten.

Each has a ledger, as the guides advise, and ends in an error that names what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpsvm_fast import (
    BudgetExceededError,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivacyLedger,
    PrivateLinearSVC,
    PrivatePipeline,
    PrivateStandardScaler,
)
from dpsvm_fast.metrics import evaluate
from dpsvm_fast.model_selection import PrivateGridSearch

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.uniform(18, 90, 300), RNG.uniform(0, 60, 300)])
Y = (X[:, 0] + RNG.normal(0, 20, 300) > 50).astype(int)
GAPS = np.where(RNG.random(X.shape) < 0.05, np.nan, X)
WORDS = np.column_stack([X.astype(object), np.where(Y, "red", "green")])
BOUNDS = ([0, 0], [100, 100])


def seeded(ledger: PrivacyLedger) -> Any:
    return PrivateLinearSVC(1.0, classes=[0, 1], random_state=0, ledger=ledger).fit(X, Y)


def classes_left_out(ledger: PrivacyLedger) -> Any:
    return PrivateLinearSVC(1.0, bounds=BOUNDS, ledger=ledger).fit(X, Y)


def few_steps_as_elsewhere(ledger: PrivacyLedger) -> Any:
    model = ObjectivePerturbationSVC(1.0, classes=[0, 1], max_iter=1, data_norm=100, ledger=ledger)
    return model.fit(X, Y)


def scaler_in_front(ledger: PrivacyLedger) -> Any:
    model = PrivateLinearSVC(1.0, classes=[0, 1], ledger=ledger)
    return PrivatePipeline([("scale", StandardScaler()), ("svc", model)]).fit(X, Y)


def imputer_in_a_search(ledger: PrivacyLedger) -> Any:
    candidate = make_pipeline(SimpleImputer(), OutputPerturbationSVC(classes=[0, 1]))
    grid = {"outputperturbationsvc__C": [0.1, 1.0]}
    return PrivateGridSearch(candidate, grid, 1.0, ledger=ledger).fit(GAPS, Y)


def other_labels(ledger: PrivacyLedger) -> Any:
    return PrivateLinearSVC(1.0, classes=["no", "yes"], ledger=ledger).fit(X, Y)


def gaps_in_the_table(ledger: PrivacyLedger) -> Any:
    return PrivateLinearSVC(1.0, classes=[0, 1], bounds=BOUNDS, ledger=ledger).fit(GAPS, Y)


def a_column_of_words(ledger: PrivacyLedger) -> Any:
    return PrivateLinearSVC(1.0, classes=[0, 1], ledger=ledger).fit(WORDS, Y)


def bounds_of_each_column_as_a_pair(ledger: PrivacyLedger) -> Any:
    scaler = PrivateStandardScaler(1.0, bounds=[(0, 100), (0, 60), (0, 1)], ledger=ledger)
    return scaler.fit(X)


def more_than_is_left(ledger: PrivacyLedger) -> Any:
    return PrivateLinearSVC(3.0, classes=[0, 1], ledger=ledger).fit(X, Y)


def the_other_relation(ledger: PrivacyLedger) -> Any:
    model = PrivateLinearSVC(1.0, classes=[0, 1], adjacency="replace_one", ledger=ledger)
    return model.fit(X, Y)


def a_seeded_score(ledger: PrivacyLedger) -> Any:
    return evaluate(LogisticRegression().fit(X, Y), X, Y, random_state=0, ledger=ledger)


# The last two are mistakes of the second day.
MISTAKES: list[Callable[[PrivacyLedger], Any]] = [
    seeded,
    classes_left_out,
    few_steps_as_elsewhere,
    scaler_in_front,
    imputer_in_a_search,
    other_labels,
    gaps_in_the_table,
    a_column_of_words,
    bounds_of_each_column_as_a_pair,
    more_than_is_left,
    the_other_relation,
    a_seeded_score,
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_nothing_is_lost(mistake: Callable[[PrivacyLedger], Any]) -> None:
    ledger = PrivacyLedger(2.0, 1e-5)
    with pytest.raises((ValueError, TypeError, BudgetExceededError)) as told:
        mistake(ledger)
    assert len(str(told.value)) > 20
    assert ledger.history == ()


def test_what_is_right_is_charged() -> None:
    """Negative control: the same table, once all is as it should be."""
    ledger = PrivacyLedger(2.0, 1e-5)
    PrivateLinearSVC(1.0, classes=[0, 1], bounds=BOUNDS, ledger=ledger).fit(X, Y)
    assert ledger.total()[0] > 0.5
