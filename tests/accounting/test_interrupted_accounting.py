"""Ctrl-C ends a call of the accountant soon, and nothing of it is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dpsvm_fast import _core
from dpsvm_fast.certificates import ObjectiveEvent
from dpsvm_fast.exceptions import BudgetExceededError
from dpsvm_fast.ledger import PrivacyLedger
from oracles.signals import POSIX, interrupted

pytestmark = POSIX

# Promised are 0.2 s; a machine under load may take more.
SOON = 2.0
LATER = 0.05


def mixture() -> _core.LossDistribution:
    """Two dozen kinds of steps, which take about a second."""
    kinds = [(1.0 + 0.1 * k, 0.001 * (k + 1), 1000) for k in range(24)]
    return _core.LossDistribution(
        subsampled=kinds, gaussian_mu=0.1, pure=[], zcdp_rho=0.1, profiles=[], replace_one=False
    )


@pytest.mark.parametrize(
    "work",
    [
        lambda: mixture().epsilon(1e-6),
        lambda: mixture().delta(2.0),
        lambda: _core.subsampled_gaussian_noise_multiplier(2.0, 1e-9, 0.003, 10**6, True),
        lambda: _core.objective_sigma("softmax", 100, 0.7, 1e-5, 0.4, None, None, True),
        lambda: _core.objective_delta("softmax", 100, 0.7, 9.0, 0.4, None, True),
        lambda: _core.objective_profile("softmax", 100, 0.1, 3.0, 500, 9.0, 0.4, None, False),
    ],
)
def test_one_call_is_interrupted(work: Callable[[], object]) -> None:
    assert interrupted(work, LATER) < SOON


def test_an_interrupted_spend_is_not_recorded() -> None:
    ledger = PrivacyLedger(5.0, 1e-5)
    event = ObjectiveEvent(
        law="softmax", n_scores=60, sigma=8.0, kappa=0.05, jacobian=None, adjacency="add_remove"
    )

    def spend() -> None:
        try:
            ledger.spend(event)
        except BudgetExceededError:
            ledger.total()

    before = len(ledger.history)
    interrupted(spend, LATER)
    after = ledger.history
    assert len(after) >= before
    # The ledger goes on, and knows what it has granted.
    assert ledger.total()[0] <= 5.0 * (1.0 + 1e-9)
