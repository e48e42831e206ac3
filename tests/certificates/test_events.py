"""Events are frozen, checked, and refuse to be read as something they are not."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpsvm_fast.accounting import composed_delta, composed_epsilon
from dpsvm_fast.certificates import (
    AlternativesEvent,
    ApproximateEvent,
    DistanceEvent,
    GaussianEvent,
    ObjectiveEvent,
    ParallelEvent,
    PrivacyEvent,
    PureEvent,
    RandomStoppingEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.verification.compose import recomputed_events

HERE, ELSEWHERE = PureEvent(0.5, "add_remove"), GaussianEvent(4.0, 1 / 3, "add_remove")
PARALLEL = ParallelEvent(((HERE, ELSEWHERE), (HERE,)), "add_remove")
EVENTS = [
    GaussianEvent(sigma=0.1, sensitivity=1 / 3, adjacency="add_remove"),
    GaussianEvent(sigma=1e-9, sensitivity=1e200, adjacency="replace_one"),
    PureEvent(0.1, "replace_one"),
    SubsampledGaussianEvent(1.1, 1 / 3, 1000, "replace_one"),
    SubsampledGaussianEvent(1e-3, 1.0, 1, "add_remove"),
    ZCDPEvent(1 / 3, "add_remove"),
    ObjectiveEvent("softmax", 10, 3.3, 0.1, None, "add_remove"),
    ObjectiveEvent("huber", 1, 3.3, None, 0.0, "replace_one"),
    ApproximateEvent(1 / 3, 1e-9, "replace_one"),
    PARALLEL,
    AlternativesEvent(((HERE,), (ELSEWHERE, ELSEWHERE)), "add_remove"),
    RandomStoppingEvent((PARALLEL, HERE), "geometric", 7.3, "add_remove"),
    RandomStoppingEvent((HERE,), "poisson", 0.1, "add_remove"),
]


@pytest.mark.parametrize("event", EVENTS)
def test_round_trips(event: PrivacyEvent) -> None:
    text = json.dumps(event.to_dict(), allow_nan=False)
    assert PrivacyEvent.from_dict(json.loads(text)) == event
    assert pickle.loads(pickle.dumps(event)) == event
    assert hash(pickle.loads(pickle.dumps(event))) == hash(event)


@pytest.mark.parametrize("event", EVENTS)
def test_frozen(event: PrivacyEvent) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.adjacency = "add_remove"


def test_mu_is_rounded_up() -> None:
    for event in EVENTS[:2]:
        assert isinstance(event, GaussianEvent)
        exact = Fraction(event.sensitivity) / Fraction(event.sigma)
        assert exact <= Fraction(event.mu) <= exact * (1 + Fraction(1, 2**52))


NAN, INF = float("nan"), float("inf")
GAUSSIAN = {"kind": GaussianEvent, "sigma": 2.0, "sensitivity": 1.0}
SAMPLED = {
    "kind": SubsampledGaussianEvent,
    "noise_multiplier": 1.0,
    "sampling_rate": 0.1,
    "n_steps": 10,
}
OBJECTIVE = {
    "kind": ObjectiveEvent,
    "law": "softmax",
    "n_scores": 2,
    "sigma": 3.0,
    "kappa": 0.5,
    "jacobian": None,
}
PURE, RHO = {"kind": PureEvent, "epsilon": 1.0}, {"kind": ZCDPEvent, "rho": 1.0}
APPROXIMATE = {"kind": ApproximateEvent, "epsilon": 1.0, "delta": 1e-6}
BEST = {"kind": RandomStoppingEvent, "base": (HERE,), "stopping": "geometric", "mean": 3.0}
STOPPING = RandomStoppingEvent((HERE,), "geometric", 3.0, "add_remove")
# Values that a field cannot have.
WRONG: list[tuple[dict[str, Any], str, Any]] = [
    *((GAUSSIAN, "sigma", value) for value in (0.0, -1.0, NAN, INF, "1")),
    *((GAUSSIAN, "sensitivity", value) for value in (0.0, -1.0, NAN, INF)),
    *((PURE, "epsilon", value) for value in (0.0, -1.0, NAN, INF)),
    *((RHO, "rho", value) for value in (0.0, -1.0, NAN, INF)),
    *((APPROXIMATE, "delta", value) for value in (0.0, 1.0, -0.1, NAN, INF)),
    *((one, "adjacency", "zero_out") for one in (GAUSSIAN, PURE, SAMPLED, OBJECTIVE)),
    *((SAMPLED, "noise_multiplier", value) for value in (0.0, 5e-324, "1")),
    *((SAMPLED, "sampling_rate", value) for value in (0.0, 1.0000001)),
    *((SAMPLED, "n_steps", value) for value in (0, 10**9 + 1, 10.0)),
    *((BEST, "base", value) for value in ((), (STOPPING,), (EVENTS[-3],))),
    *((BEST, "base", (PureEvent(1.0, "replace_one"),)), (BEST, "stopping", "fixed")),
    *((BEST, "mean", value) for value in (1.0, INF, "3")),
    (BEST | {"stopping": "poisson"}, "mean", 0.0),
]


def assert_refused(changes: dict[str, Any], words: str) -> None:
    settings = {"adjacency": "add_remove"} | changes
    kind = settings.pop("kind")
    with pytest.raises((InvalidParameterError, TypeError), match=words):
        kind(**settings)


@pytest.mark.parametrize(("good", "name", "value"), WRONG, ids=str)
def test_fields_are_checked(good: dict[str, Any], name: str, value: Any) -> None:
    kind = good["kind"]
    assert kind(**{"adjacency": "add_remove"} | {k: v for k, v in good.items() if k != "kind"})
    assert_refused(good | {name: value}, name)


def test_a_ratio_that_no_float_holds_is_refused() -> None:
    assert_refused(GAUSSIAN | {"sigma": 1e-200, "sensitivity": 1e200}, "sigma")
    with pytest.raises(TypeError, match="PrivacyEvent"):
        PrivacyEvent()


@pytest.mark.parametrize(
    "record",
    [
        {"type": "zcdp", "rho": 1.0},
        {"type": "zcdp", "rho": 1.0, "xi": 0.0, "adjacency": "add_remove"},
        {"type": "subsampled_gaussian", "noise_multiplier": 1.0, "adjacency": "add_remove"},
        {"type": "laplace", "epsilon": 1.0, "adjacency": "add_remove"},
        {"type": ["pure"], "epsilon": 1.0, "adjacency": "add_remove"},
        {"epsilon": 1.0, "adjacency": "add_remove"},
        {"type": "pure", "epsilon": 1.0},
        {"type": "pure", "epsilon": 1.0, "adjacency": "add_remove", "amplified": True},
        {"type": "pure", "epsilon": -1.0, "adjacency": "add_remove"},
    ],
)
def test_what_is_not_known_is_not_interpreted(record: dict[str, object]) -> None:
    with pytest.raises(InvalidParameterError):
        PrivacyEvent.from_dict(record)


def test_no_mapping_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="mapping"):
        PrivacyEvent.from_dict("pure")  # type: ignore[arg-type]


@pytest.mark.proof("objective_perturbation", "Events, both noises, the approximate minimum")
@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"law": "hinge"}, "law"),
        ({"n_scores": 1}, "n_scores"),
        ({"n_scores": 100_001}, "n_scores"),
        ({"n_scores": 2**63}, "n_scores"),
        ({"sigma": 0.0}, "sigma"),
        ({"kappa": None}, "exactly one"),
        ({"jacobian": 0.1}, "exactly one"),
        ({"kappa": 0.0}, "kappa"),
        ({"kappa": None, "jacobian": -1.0}, "jacobian"),
    ],
    ids=str,
)
def test_an_objective_event_is_checked_as_a_whole(changes: dict[str, Any], word: str) -> None:
    assert_refused(OBJECTIVE | changes, word)


def test_equal_branches_are_kept_once() -> None:
    event = ParallelEvent(((HERE,), (ELSEWHERE,), (HERE,)), "add_remove")
    assert event.branches == ((HERE,), (ELSEWHERE,))
    assert PrivacyEvent.from_dict(event.to_dict()) == event


@pytest.mark.parametrize("kind", [ParallelEvent, AlternativesEvent])
@pytest.mark.parametrize(
    ("branches", "error"),
    [
        ((), InvalidParameterError),
        (((),), InvalidParameterError),
        ({HERE}, TypeError),
        ((HERE,), TypeError),
        (((HERE, 1.0),), TypeError),
        (((PARALLEL,),), TypeError),
        (((STOPPING,),), TypeError),
        (((HERE,), (PureEvent(1.0, "replace_one"),)), InvalidParameterError),
    ],
    ids=str,
)
def test_branches_are_checked(
    kind: type[ParallelEvent], branches: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"branches"):
        kind(branches, "add_remove")


@pytest.mark.parametrize("mean", [1.001, 2.0, 10.0, 1e6])
def test_the_parameter_of_the_number_of_runs_has_the_mean(mean: float) -> None:
    geometric = RandomStoppingEvent((HERE,), "geometric", mean, "add_remove").gamma
    k = np.arange(1.0, 1e6)
    assert 1.0 / geometric == pytest.approx(mean, rel=1e-15)
    logarithmic = RandomStoppingEvent((HERE,), "logarithmic", mean, "add_remove").gamma
    assert 0.0 < logarithmic < 1.0
    if mean < 1e3:
        masses = (1.0 - logarithmic) ** k / (k * -math.log(logarithmic))
        assert masses.sum() == pytest.approx(1.0, rel=1e-9)
        assert k @ masses == pytest.approx(mean, rel=1e-9)


def test_nested_records_end() -> None:
    record = HERE.to_dict()
    for _ in range(5000):
        record = {"type": "parallel", "branches": [[record]], "adjacency": "add_remove"}
    with pytest.raises(InvalidParameterError, match="branches"):
        PrivacyEvent.from_dict(record)


@pytest.mark.parametrize("branches", [None, 3, [HERE.to_dict()], [[{"type": "x"}]], [[None]]])
def test_damaged_branches_are_not_interpreted(branches: Any) -> None:
    with pytest.raises((TypeError, InvalidParameterError)):
        PrivacyEvent.from_dict(
            {"type": "parallel", "branches": branches, "adjacency": "add_remove"}
        )


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
