"""Whatever is asked of a ledger, in whatever order: the budget holds and nothing is lost."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dpsvm_fast.accounting import composed_delta, composed_epsilon
from dpsvm_fast.certificates import GaussianEvent, PrivacyEvent, PureEvent
from dpsvm_fast.exceptions import BudgetExceededError
from dpsvm_fast.ledger import PrivacyLedger
from oracles.ledgers import admitted

# The slack that the ledger's text promises for rounding.
SLACK = 1e-9

epsilons = st.floats(0.05, 4.0)
deltas = st.one_of(st.just(0.0), st.floats(1e-12, 1e-2))
pure_events = st.floats(1e-3, 1.0).map(lambda e: PureEvent(e, "add_remove"))
gaussian_events = st.floats(0.5, 200.0).map(lambda s: GaussianEvent(s, 1.0, "add_remove"))
events = st.one_of(pure_events, gaussian_events)


class SharedBudget(RuleBasedStateMachine):
    """A ledger against a plain list, with moves to files and reloads between the spends."""

    @initialize(epsilon=epsilons, delta=deltas)
    def open(self, epsilon: float, delta: float) -> None:
        self.ledger = PrivacyLedger(epsilon, delta)
        self.admitted: list[PrivacyEvent] = []

    @rule(event=events)
    def spend(self, event: PrivacyEvent) -> None:
        if admitted(self.ledger, event):
            self.admitted.append(event)

    @rule(event=events)
    def check_predicts_spend(self, event: PrivacyEvent) -> None:
        try:
            self.ledger.check(event)
            fits = True
        except BudgetExceededError:
            fits = False
        assert admitted(self.ledger, event) == fits
        if fits:
            self.admitted.append(event)

    @rule()
    def move_to_a_file(self) -> None:
        assert pickle.loads(pickle.dumps(self.ledger)) is self.ledger

    @rule()
    def save_and_load(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ledger.json"
            self.ledger.save(path)
            self.ledger = PrivacyLedger.load(path)

    @rule()
    def spend_what_remains(self) -> None:
        remaining = self.ledger.remaining()
        if remaining > 0:
            event = PureEvent(remaining, "add_remove")
            self.ledger.spend(event)
            self.admitted.append(event)

    @invariant()
    def nothing_is_lost_and_the_budget_holds(self) -> None:
        if not hasattr(self, "ledger"):
            return
        assert [record.event for record in self.ledger.history] == self.admitted
        epsilon, delta = self.ledger.epsilon, self.ledger.delta
        if delta > 0.0:
            assert composed_delta(self.admitted, epsilon * (1 + SLACK)) <= delta * (1 + 2 * SLACK)
        else:
            assert composed_epsilon(self.admitted, 0.0) <= epsilon * (1 + 2 * SLACK)


TestSharedBudget = SharedBudget.TestCase
# Every step composes all that was admitted: a run costs the square of its length.
# Half as many examples as other properties have: each is a history.
TestSharedBudget.settings = settings(
    stateful_step_count=30, max_examples=settings().max_examples // 2
)


@given(st.lists(events, max_size=8), st.floats(1e-9, 1e-3), st.randoms())
def test_the_total_does_not_depend_on_the_order(
    spends: list[PrivacyEvent], delta: float, random: object
) -> None:
    ledgers = [PrivacyLedger(1e4, delta) for _ in range(2)]
    for event in spends:
        ledgers[0].spend(event)
    shuffled = sorted(spends, key=lambda _: random.random())  # type: ignore[attr-defined]
    for event in shuffled:
        ledgers[1].spend(event)
    assert ledgers[0].total() == ledgers[1].total()


@given(st.lists(events, min_size=1, max_size=8), st.floats(1e-9, 1e-3))
def test_a_budget_of_exactly_the_total_admits_exactly_these(
    spends: list[PrivacyEvent], delta: float
) -> None:
    total = composed_epsilon(spends, delta)
    if total <= 0.0:
        return
    ledger = PrivacyLedger(total, delta)
    assert all(admitted(ledger, event) for event in spends)
    assert not admitted(ledger, PureEvent(max(1.0, total), "add_remove"))


@given(epsilons, deltas, st.lists(events, max_size=6))
def test_a_refusal_changes_nothing(
    epsilon: float, delta: float, spends: list[PrivacyEvent]
) -> None:
    ledger = PrivacyLedger(epsilon, delta)
    for event in spends:
        before = (ledger.history, ledger.total())
        if not admitted(ledger, event):
            assert (ledger.history, ledger.total()) == before
