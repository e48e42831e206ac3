"""Parallel branches, alternatives and approximate events, against exact laws on small spaces."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast.accounting import composed_delta, composed_epsilon
from dpsvm_fast.accounting import totals as choices
from dpsvm_fast.certificates import (
    AlternativesEvent,
    ApproximateEvent,
    GaussianEvent,
    ObjectiveEvent,
    ParallelEvent,
    PrivacyEvent,
    PureEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)

Array = NDArray[np.float64]
Law = tuple[Array, Array]

A = "add_remove"
EPSILONS = (0.0, 0.05, 0.2, 0.5, 0.9, 1.3, 2.0, 3.0)
# Relative, of double precision on a few hundred terms.
ROUNDING = 1e-12


def pair_of(event: PrivacyEvent) -> Law:
    """Return the dominating pair of a pure or approximate event: told, told', likely, unlikely."""
    assert isinstance(event, (PureEvent, ApproximateEvent))
    told = event.delta if isinstance(event, ApproximateEvent) else 0.0
    high = (1.0 - told) / (1.0 + math.exp(-event.epsilon))
    low = 1.0 - told - high
    return np.array([told, 0.0, high, low]), np.array([0.0, told, low, high])


def product(pairs: list[Law]) -> Law:
    """Both laws of independent outputs."""
    p, q = np.ones(1), np.ones(1)
    for one, other in pairs:
        p, q = np.outer(p, one).ravel(), np.outer(q, other).ravel()
    return p, q


def delta_of(law: Law, epsilon: float) -> float:
    """Delta of a pair of laws."""
    p, q = law
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


APPROXIMATE = [
    [ApproximateEvent(0.5, 1e-3, A)],
    [ApproximateEvent(0.5, 1e-3, A), ApproximateEvent(0.2, 1e-2, A)],
    [ApproximateEvent(0.5, 0.3, A)] * 3 + [PureEvent(0.4, A)],
    [ApproximateEvent(1.0, 1e-9, A), PureEvent(0.1, A), PureEvent(0.1, A)],
]


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
@pytest.mark.parametrize("events", APPROXIMATE, ids=str)
def test_approximate_events_compose_exactly(events: list[PrivacyEvent]) -> None:
    law = product([pair_of(event) for event in events])
    for epsilon in EPSILONS:
        exact, bound = delta_of(law, epsilon), composed_delta(events, epsilon)
        assert exact * (1.0 - ROUNDING) <= bound <= exact * (1.0 + 1e-9) + 1e-15


def test_approximate_and_gaussian_shift_delta() -> None:
    noise, told = GaussianEvent(3.0, 1.0, A), 1e-4
    mixed = [noise, ApproximateEvent(0.3, told, A)]
    for epsilon in EPSILONS:
        rest = composed_delta([noise, PureEvent(0.3, A)], epsilon)
        assert composed_delta(mixed, epsilon) == pytest.approx(told + (1 - told) * rest, rel=1e-9)
    assert composed_epsilon(mixed, 0.99e-4) == math.inf
    assert composed_epsilon(mixed, 2e-4) == pytest.approx(
        composed_epsilon([noise, PureEvent(0.3, A)], 1e-4 / (1 - told)), rel=1e-6
    )


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
def test_many_small_leaks_add_up_to_less_than_their_sum() -> None:
    events = [ApproximateEvent(1e-9, 1e-3, A)] * 1000
    told = 1.0 - 0.999**1000
    assert composed_delta(events, 1.0) == pytest.approx(told, rel=1e-6)
    assert told <= composed_delta(events, 1.0) < 1.0


BRANCHES = (
    (PureEvent(0.9, A),),
    (PureEvent(0.4, A), PureEvent(0.4, A)),
    (ApproximateEvent(0.2, 0.05, A),),
)


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
@pytest.mark.parametrize("count", [1, 2, 3])
def test_parallel_branches_are_tried_in_all_combinations(count: int) -> None:
    event = ParallelEvent(BRANCHES, A)
    other = [PureEvent(0.3, A)]
    laws = [
        product([pair_of(e) for e in [*itertools.chain(*met), *other]])
        for met in itertools.product(BRANCHES, repeat=count)
    ]
    for epsilon in EPSILONS:
        exact = max(delta_of(law, epsilon) for law in laws)
        # A record that meets a random branch each time is at most as badly off.
        mixed = float(np.mean([delta_of(law, epsilon) for law in laws]))
        bound = composed_delta([event] * count + other, epsilon)
        assert mixed <= exact * (1.0 + ROUNDING)
        assert exact * (1.0 - ROUNDING) <= bound <= exact * (1.0 + 1e-9) + 1e-15


@pytest.mark.proof("private_selection", "The accountant")
def test_a_partition_costs_its_most_expensive_part() -> None:
    parts = ParallelEvent(((GaussianEvent(4.0, 1.0, A),), (PureEvent(0.2, A),)), A)
    assert composed_epsilon([parts], 1e-6) == composed_epsilon([GaussianEvent(4.0, 1.0, A)], 1e-6)
    pure = ParallelEvent(((PureEvent(0.5, A),), (PureEvent(0.2, A),) * 2), A)
    assert composed_epsilon([pure], 0.0) == 0.5
    # Not the sum, and not less than the maximum.
    both = composed_epsilon([GaussianEvent(4.0, 1.0, A), PureEvent(0.2, A)], 1e-6)
    assert composed_epsilon([parts], 1e-6) < both


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
def test_covered_branches_are_left_out() -> None:
    branches = (
        (GaussianEvent(4.0, 1.0, A),),
        (GaussianEvent(2.0, 1.0, A), PureEvent(0.3, A)),
        (PureEvent(0.2, A),),
        (SubsampledGaussianEvent(1.0, 0.01, 5, A),),
        (SubsampledGaussianEvent(1.0, 0.01, 9, A),),
    )
    kept = choices.choices(choices.of_events([ParallelEvent(branches, A)]))
    assert len(kept) == 2


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
@pytest.mark.parametrize("limit", [1, 2, 5, 64])
def test_too_many_combinations_only_loosen_the_bound(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    events = [ParallelEvent(BRANCHES, A)] * 2 + [
        ParallelEvent(
            ((PureEvent(0.3, A),), (GaussianEvent(5.0, 1.0, A),), (ZCDPEvent(0.01, A),)), A
        )
    ]
    exact = composed_delta(events, 1.5)
    monkeypatch.setattr(choices, "MAX_CHOICES", limit)
    loose = composed_delta(events, 1.5)
    everything = [e for event in events for branch in event.branches for e in branch]
    assert exact * (1.0 - 1e-6) <= loose <= composed_delta(everything, 1.5) * (1.0 + 1e-6)


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
def test_the_join_covers_every_branch() -> None:
    branches = (
        (PureEvent(0.9, A), PureEvent(0.1, A), GaussianEvent(5.0, 1.0, A)),
        (PureEvent(0.4, A),) * 3,
        (ApproximateEvent(0.2, 0.05, A), ZCDPEvent(0.1, A)),
        (ObjectiveEvent("huber", 1, 9.0, None, 0.1, A), SubsampledGaussianEvent(2.0, 0.1, 3, A)),
    )
    totals = [choices.of_events(branch) for branch in branches]
    join = choices.join(tuple(totals))
    assert all(part.within(join) for part in totals)
    assert dict(join.pure) == {0.9: 1, 0.4: 2}


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
def test_alternatives_are_the_pointwise_worst() -> None:
    branches = ((PureEvent(1.0, A),), (GaussianEvent(3.0, 1.0, A), PureEvent(0.1, A)))
    event = AlternativesEvent(branches, A)
    for epsilon in EPSILONS:
        worst = max(composed_delta(branch, epsilon) for branch in branches)
        # Between the points of a table the bound is a chord.
        assert worst * (1.0 - ROUNDING) <= composed_delta([event], epsilon) <= 1.1 * worst + 1e-12


@pytest.mark.proof("private_selection", "The accountant")
def test_a_choice_that_looks_costs_more_than_the_worst_fixed_branch() -> None:
    # Randomised response first; then a leak where its loss was high, randomised response where low.
    first, leak, response = PureEvent(1.0, A), ApproximateEvent(1e-9, 0.02, A), PureEvent(1.0, A)
    laws = [product([pair_of(first), pair_of(e)]) for e in (response, leak)]
    shape = (4, 4)
    looked = []
    for law, other in zip(laws[0], laws[1], strict=True):
        chosen = law.reshape(shape).copy()
        chosen[3] = other.reshape(shape)[3]
        looked.append(chosen.ravel())
    branches = ((leak,), (response,))
    gaps = []
    for epsilon in EPSILONS:
        exact = delta_of((looked[0], looked[1]), epsilon)
        fixed = composed_delta([first, ParallelEvent(branches, A)], epsilon)
        bound = composed_delta([first, AlternativesEvent(branches, A)], epsilon)
        assert exact <= bound * (1.0 + ROUNDING)
        gaps.append(exact / max(fixed, 1e-300))
    # Negative control: the largest over fixed branches is refuted.
    assert max(gaps) > 1.01


def test_comparable_alternatives_are_the_largest() -> None:
    event = AlternativesEvent(((GaussianEvent(4.0, 1.0, A),), (GaussianEvent(3.0, 1.0, A),)), A)
    other = PureEvent(0.3, A)
    assert composed_epsilon([event, other], 1e-6) == composed_epsilon(
        [GaussianEvent(3.0, 1.0, A), other], 1e-6
    )
    pure = AlternativesEvent(((PureEvent(0.3, A),) * 2, (PureEvent(0.5, A),)), A)
    assert composed_epsilon([pure], 0.0) == 0.6


def test_what_is_not_pure_never_has_delta_zero() -> None:
    events: list[list[PrivacyEvent]] = [
        [GaussianEvent(5.0, 1.0, A)],
        [
            GaussianEvent(50.0, 1.0, A),
            PureEvent(0.1, A),
            ObjectiveEvent("huber", 1, 50.0, 0.1, None, A),
        ],
        [SubsampledGaussianEvent(5.0, 0.01, 5, A), PureEvent(0.1, A)],
        [AlternativesEvent(((GaussianEvent(5.0, 1.0, A),), (PureEvent(0.1, A),)), A)],
    ]
    for each in events:
        assert composed_delta(each, 1000.0) > 0.0
    assert composed_delta([PureEvent(1.0, A)], 1.0) == 0.0
