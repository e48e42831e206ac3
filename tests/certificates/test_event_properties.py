"""Compositions of any events: more never costs less, order is nothing, a second method agrees."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from dpsvm_fast.accounting import composed_delta, composed_epsilon
from dpsvm_fast.certificates import (
    AlternativesEvent,
    ApproximateEvent,
    DistanceEvent,
    GaussianEvent,
    ParallelEvent,
    PrivacyEvent,
    PureEvent,
    RandomStoppingEvent,
    ZCDPEvent,
)
from dpsvm_fast.exceptions import BudgetExceededError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.verification.compose import recomputed_events

A = "add_remove"
# Relative, of sums and grids that are rounded at different places.
LOOSE = 1e-3

plain = st.one_of(
    st.floats(0.01, 1.5).map(lambda e: PureEvent(e, A)),
    st.floats(1.0, 50.0).map(lambda s: GaussianEvent(s, 1.0, A)),
    st.tuples(st.floats(0.01, 1.0), st.floats(1e-9, 0.1)).map(lambda t: ApproximateEvent(*t, A)),
)
distances = st.floats(1e-12, 1e-4).map(lambda d: DistanceEvent(d, A))
parts = st.one_of(plain, plain, distances)


def branches_of(inside: st.SearchStrategy[PrivacyEvent]) -> st.SearchStrategy[Any]:
    branch = st.lists(inside, min_size=1, max_size=2).map(tuple)
    return st.lists(branch, min_size=1, max_size=3).map(tuple)


parallel = branches_of(parts).map(lambda b: ParallelEvent(b, A))
alternatives = branches_of(parts).map(lambda b: AlternativesEvent(b, A))
best = st.builds(
    lambda base, law, mean: RandomStoppingEvent((base,), law, mean, A),
    st.one_of(plain, branches_of(plain).map(lambda b: ParallelEvent(b, A))),
    st.sampled_from(["geometric", "logarithmic", "poisson"]),
    st.floats(1.1, 30.0),
)
events = st.one_of(plain, distances, parallel, alternatives, best, st.just(ZCDPEvent(0.01, A)))
epsilons = st.floats(0.0, 4.0)


@given(event=events)
def test_records_come_back(event: PrivacyEvent) -> None:
    text = json.dumps(event.to_dict(), allow_nan=False)
    again = PrivacyEvent.from_dict(json.loads(text))
    assert again == event
    assert hash(again) == hash(event)


@given(listed=st.lists(st.one_of(parts, parallel), min_size=1, max_size=4), epsilon=epsilons)
def test_order_is_nothing(listed: list[PrivacyEvent], epsilon: float) -> None:
    shuffled = random.Random(1).sample(listed, len(listed))
    one, other = composed_delta(listed, epsilon), composed_delta(shuffled, epsilon)
    assert abs(one - other) <= 1e-9 * one + 1e-15


@given(listed=st.lists(st.one_of(parts, parallel), max_size=3), more=parts, epsilon=epsilons)
def test_one_more_event_never_costs_less(
    listed: list[PrivacyEvent], more: PrivacyEvent, epsilon: float
) -> None:
    before = composed_delta(listed, epsilon) if listed else 0.0
    assert before <= composed_delta([*listed, more], epsilon) * (1.0 + 1e-9) + 1e-15


@given(event=events, epsilon=epsilons)
def test_events_with_events_inside_cost_no_less_than_one_of_them(
    event: PrivacyEvent, epsilon: float
) -> None:
    inside: list[tuple[PrivacyEvent, ...]] = []
    if isinstance(event, ParallelEvent):
        inside = list(event.branches)
    elif isinstance(event, RandomStoppingEvent) and event.stopping != "poisson":
        inside = [event.base]
    whole = composed_delta([event], epsilon)
    for part in inside:
        if isinstance(event, RandomStoppingEvent):
            # A score that is the same for all makes the best run one run.
            assert composed_delta(part, epsilon) <= whole * (1.0 + LOOSE) + 1e-12
        else:
            assert composed_delta(part, epsilon) <= whole * (1.0 + 1e-9) + 1e-15


@example([GaussianEvent(1.0, 1.0, A), ZCDPEvent(0.01, A)], 1e-7)
@given(listed=st.lists(events, min_size=1, max_size=2), delta=st.floats(1e-7, 1e-3))
def test_what_is_promised_is_confirmed(listed: list[PrivacyEvent], delta: float) -> None:
    epsilon = composed_epsilon(listed, delta)
    if epsilon > 1e3:
        return
    found = recomputed_events(tuple(listed), max(epsilon, 1e-6), delta)
    assert found[2]


@given(listed=st.lists(parts, min_size=1, max_size=12))
def test_adaptive_ledgers_admit_no_more_than_fixed_sizes_allow(listed: list[PrivacyEvent]) -> None:
    ledger = PrivacyLedger(2.0, 0.01, adaptive=True)
    for event in listed:
        try:
            ledger.spend(event)
        except BudgetExceededError:
            continue
    admitted = [record.event for record in ledger.history]
    if admitted:
        # Of fixed sizes the same events cost no more than the budget.
        assert composed_delta(admitted, 2.0 * (1.0 + 1e-9)) <= 0.01 * (1.0 + 1e-6)
        assert composed_epsilon(admitted, 0.01) <= ledger.odometer(0.005)[0] * (1.0 + 1e-9)
