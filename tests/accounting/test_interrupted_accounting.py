"""Ctrl-C ends a call of the accountant soon, and nothing of it is kept."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from dpsvm_fast import _core
from dpsvm_fast.certificates import ObjectiveEvent
from dpsvm_fast.exceptions import BudgetExceededError
from dpsvm_fast.ledger import PrivacyLedger

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="the system has no such timer"
)

# Promised are 0.2 s; a machine under load may take more.
SOON = 2.0
LATER = 0.05


class Interrupted(Exception):
    """What the signal's handler raises."""


def forever(work: Callable[[], object]) -> None:
    """Work, and again."""
    while True:
        work()


def interrupted_after(work: Callable[[], object]) -> float:
    """Seconds from the signal to the end of ``work``, which must be its exception."""

    def handler(*_: object) -> None:
        raise Interrupted

    old = signal.signal(signal.SIGALRM, handler)
    start = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, LATER)
    try:
        with pytest.raises(Interrupted):
            forever(work)
        return time.monotonic() - start - LATER
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, old)


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
    assert interrupted_after(work) < SOON


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
    interrupted_after(spend)
    after = ledger.history
    assert len(after) >= before
    # The ledger goes on, and knows what it has granted.
    assert ledger.total()[0] <= 5.0 * (1.0 + 1e-9)
