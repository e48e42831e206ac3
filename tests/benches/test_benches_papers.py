"""The accuracy benchmarks: shares of a budget fill it, and events do not depend on rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benches.papers import (
    budget,
)

from dpsvm_fast import PrivateCenter
from dpsvm_fast.accounting import composed_epsilon, gaussian_sigma
from dpsvm_fast.certificates import GaussianEvent


def test_shares_of_a_budget_fill_it() -> None:
    epsilons = [budget.share_of_budget(1.0, 1e-5, share) for share in (0.3, 0.7)]
    events = [
        GaussianEvent(gaussian_sigma(epsilon, 1e-5), 1.0, "add_remove") for epsilon in epsilons
    ]
    assert 0.9999 < composed_epsilon(events, 1e-5) <= 1.0


def test_what_is_left_of_a_budget_fills_it() -> None:
    def events(own: float) -> list[GaussianEvent]:
        return [GaussianEvent(gaussian_sigma(own, 1e-5), 1.0, "add_remove")]

    own = budget.epsilon_beside(1.0, 1e-5, events(0.5), events)
    assert 0.98 < composed_epsilon([*events(0.5), *events(own)], 1e-5) <= 1.0


def test_events_do_not_depend_on_rows(digits_like: tuple[Any, Any]) -> None:
    X, y = digits_like
    model = PrivateCenter(0.5, 1e-5)
    assert budget.events_of(model, X.shape[1], 2) == model.fit(X, y).privacy_.events


@pytest.fixture
def digits_like() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    y = np.arange(600) % 10
    return np.abs(np.eye(10, 12)[y] * 200.0 + rng.integers(0, 50, (600, 12))), y
