"""Trainers of a user's own, whose events are declared: searched, charged and refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from test_private_search import STRATEGIES, data, search

from dpsvm_fast import BudgetExceededError, InvalidParameterError, PrivacyLedger
from dpsvm_fast.certificates import GaussianEvent, PureEvent
from dpsvm_fast.model_selection import ConstantClassifier, DeclaredTrainer


def test_a_constant_needs_a_public_label_set() -> None:
    trainer = DeclaredTrainer(nearest_mean, (PureEvent(0.5, "add_remove"),))
    options = {"strategy": "random_stopping", "stopping": "poisson", "refit_fraction": 0.0}
    with pytest.raises(InvalidParameterError, match="poisson"):
        search(trainer, {"shift": [0.0]}, delta=0.0, **options).fit("no rows", None)


def nearest_mean(X: Any, y: Any, shift: float = 0.0, **_: Any) -> Any:
    """A declared trainer: the constant 1, whatever the data are."""
    return ConstantClassifier([1, 0]) if shift == 0.0 else ConstantClassifier([0, 1])


def gaussian_events(epsilon: float, delta: float, adjacency: str, **_: Any) -> Any:
    """Events of a trainer that uses its budget for Gaussian noise."""
    from dpsvm_fast.accounting import gaussian_sigma

    return (GaussianEvent(gaussian_sigma(epsilon, delta), 1.0, adjacency),)


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(one, marks=pytest.mark.slow if one == "random_stopping" else ())
        for one in STRATEGIES
    ],
)
def test_functions_with_declared_events_can_be_searched(strategy: str) -> None:
    X, y = data()
    y = np.ones_like(y)
    trainer = DeclaredTrainer(nearest_mean, gaussian_events)
    made = search(trainer, {"shift": [0.0, 1.0]}, strategy=strategy, mean_runs=8.0).fit(X, y)
    assert made.privacy_.private
    assert any("declares" in text for text in made.privacy_.assumed_public)
    # With 600 rows the better of "always 1" and "always 0" is clear; 8 runs may miss it.
    if strategy == "partition":
        assert made.best_params_ == {"shift": 0.0}
        assert made.score(X, y) == 1.0


@pytest.mark.proof("private_selection", "The search as a program")
def test_declared_events_beyond_the_budget_are_refused() -> None:
    trainer = DeclaredTrainer(nearest_mean, (PureEvent(4.5, "add_remove"),))
    for strategy in STRATEGIES:
        with pytest.raises(InvalidParameterError):
            search(trainer, {"shift": [0.0]}, strategy=strategy).fit("no rows", None)


def test_a_declared_trainer_spends_before_it_trains() -> None:
    ledger = PrivacyLedger(1.0, 0.0)
    seen: list[int] = []

    def train(X: Any, y: Any) -> Any:
        seen.append(len(ledger.history))
        return ConstantClassifier([0, 1])

    trainer = DeclaredTrainer(train, PureEvent(0.75, "add_remove"), ledger=ledger)
    assert list(trainer.fit([[0.0]], [0]).predict([[1.0]])) == [0]
    with pytest.raises(BudgetExceededError):
        trainer.fit([[0.0]], [0])
    assert seen == [1]
    assert not hasattr(trainer, "model_")


@pytest.mark.parametrize(
    ("trainer", "word"),
    [
        (DeclaredTrainer(3, ()), "train"),  # type: ignore[arg-type]
        (DeclaredTrainer(nearest_mean, 3), "events"),  # type: ignore[arg-type]
        (DeclaredTrainer(nearest_mean, (3,)), "events"),  # type: ignore[arg-type]
        (DeclaredTrainer(nearest_mean, (PureEvent(1.0, "replace_one"),)), "events"),
        (DeclaredTrainer(nearest_mean, (), parameters=3), "parameters"),  # type: ignore[arg-type]
        (DeclaredTrainer(lambda X, y: 3, ()), "train"),
    ],
)
def test_bad_declarations_are_named(trainer: DeclaredTrainer, word: str) -> None:
    with pytest.raises((TypeError, InvalidParameterError), match=word):
        trainer.fit([[0.0]], [0])


def test_declared_trainers_keep_their_parameters_apart() -> None:
    trainer = DeclaredTrainer(nearest_mean, ()).set_params(shift=1.0, epsilon=2.0)
    other = clone(trainer).set_params(shift=0.0)
    assert trainer.parameters == {"shift": 1.0}
    assert other.parameters == {"shift": 0.0}
    assert trainer.epsilon == other.epsilon == 2.0
