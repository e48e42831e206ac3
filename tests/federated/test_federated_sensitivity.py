"""What neighbours move a sum over parties, against what the plan says they may move it.

The noise is left out, everything else is what parties do: fit, project, weight, round. Neighbours
are constructed to move far: opposite rows, other labels, whole parties, rows in several parties.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import PrivacyLedger, _core
from dpsvm_fast.exceptions import InvalidParameterError, PartyRefusedError
from dpsvm_fast.federated import FederatedSpec, simulate
from dpsvm_fast.federated.local import Records, checked_records, contributions
from dpsvm_fast.verification import verify

# Rows, labels and, where whole persons are protected, whose each row is.
Party = tuple[Any, ...]

SIZES = (1, 5, 20)
LOCALS: dict[str, dict[str, Any]] = {
    "svm_sgd": {"local": "svm_sgd", "n_epochs": 5, "batch_size": 4, "tol": 1e-2},
    "softmax": {"local": "softmax_slp_sgd", "n_epochs": 5, "batch_size": 4, "tol": 1e-2},
    "exact": {"local": "exact"},
    "crammer_singer": {"local": "exact", "loss": "crammer_singer"},
}


class NoNoise:
    """A source whose noise is zero: for looking at what noise is added to."""

    def discrete_gaussian(self, size: int, sigma: int, n_threads: int = 1) -> NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)


def plan_of(local: str, unit: str, weighting: str, **settings: Any) -> FederatedSpec:
    given: dict[str, Any] = {
        "n_users": len(SIZES),
        "n_features": 4,
        "classes": [0, 1],
        "epsilon": 2.0,
        "delta": 1e-6,
        "max_records": max(SIZES),
        "honest_fraction": 1.0,
        "unit": unit,
        "group_size": 3 if unit == "person" else 1,
        "weighting": weighting,
    }
    return FederatedSpec.dp_helmet(**(given | LOCALS[local] | settings))


def summed(spec: FederatedSpec, parties: list[Party], name: str) -> NDArray[np.float64]:
    """The sum in steps of the grid, without noise."""
    records = Records.joined([checked_records(X, y, spec, *ids) for X, y, *ids in parties])
    sources = cast("list[_core.NoiseSource]", [NoNoise() for _ in parties])
    vectors = list(contributions(spec, name, records, None, sources, 1))
    return np.asarray(np.sum(vectors, axis=0)[:-2], dtype=np.float64)


def moved(spec: FederatedSpec, one: list[Party], other: list[Party], name: str) -> float:
    """Distance of two sums over what the plan allows."""
    noise = spec.round(name).noise
    assert noise is not None
    steps = np.linalg.norm(summed(spec, one, name) - summed(spec, other, name))
    return float(steps) * noise.step / noise.total


def alike() -> list[Party]:
    """Parties all of whose rows are the same."""
    return [(np.tile([[1.0, 0.0, 0.0, 0.0]], (n, 1)), np.zeros(n, dtype=np.int64)) for n in SIZES]


def at_random(seed: int) -> list[Party]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((n, 4)), rng.integers(0, 2, n)) for n in SIZES]


def opposite(parties: list[Party], places: list[tuple[int, int]]) -> list[Party]:
    """Some rows, by party and number, turned round and made longer than allowed."""
    changed = [(X.copy(), y.copy()) for X, y in parties]
    for party, row in places:
        changed[party][0][row] *= -5.0
    return changed


def farthest(spec: FederatedSpec, unit: str, name: str = "model") -> float:
    found = []
    for parties in (alike(), at_random(1), at_random(2)):
        for places in changes(unit):
            found.append(moved(spec, parties, opposite(parties, places), name))
    return max(found)


def changes(unit: str) -> list[list[tuple[int, int]]]:
    """Places of the rows of a unit."""
    if unit == "row":
        return [[(party, 0)] for party in range(len(SIZES))]
    if unit == "person":
        return [[(0, 0), (1, 0), (2, 0)], [(2, 0), (2, 1), (2, 2)], [(0, 0), (1, 1), (1, 2)]]
    return [[(party, row) for row in range(n)] for party, n in enumerate(SIZES)]


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize("unit", ["row", "person", "party"])
@pytest.mark.parametrize("weighting", ["records", "users"])
@pytest.mark.parametrize("local", LOCALS)
def test_neighbours_stay_within_the_plan(local: str, unit: str, weighting: str) -> None:
    for regularization in (0.05, 2.0):
        spec = plan_of(local, unit, weighting, regularization=regularization)
        assert farthest(spec, unit) <= 1.0


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize(
    ("unit", "weighting"),
    [
        ("row", "records"),
        ("person", "records"),
        ("party", "records"),
        ("row", "users"),
        ("party", "users"),
    ],
)
def test_the_plan_is_nearly_reached(unit: str, weighting: str) -> None:
    """So noise for nine tenths of it would be too little."""
    spec = plan_of("svm_sgd", unit, weighting, regularization=2.0, intercept_scaling=0.0)
    assert farthest(spec, unit) > 0.9


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize("unit", ["person", "party"])
def test_more_than_a_record_moves_further_than_a_record_may(unit: str) -> None:
    """Control: the plan for one record is exceeded by a group and by a party."""
    spec = plan_of("svm_sgd", "row", "records", regularization=2.0)
    assert farthest(spec, unit) > 1.5


def owned(seed: int, place: int, m: int, *, turned: bool) -> list[Party]:
    """As many persons as SIZES says; the first of one party has m rows that agree."""
    found: list[Party] = []
    for party, (X, y) in enumerate(at_random(seed) if seed else alike()):
        ids, own = np.arange(len(y)), np.tile([[1.0, 0.0, 0.0, 0.0]], (m, 1))
        if party == place:
            X = np.concatenate([X[1:], -5.0 * own if turned else own])
            y, ids = np.concatenate([y[1:], np.zeros(m, y.dtype)]), np.append(ids[1:], [0] * m)
        found.append((X, y, ids))
    return found


@pytest.mark.proof("federated", "What a unit moves")
@pytest.mark.parametrize("weighting", ["records", "users"])
@pytest.mark.parametrize("loss", ["huber", "softmax_margin", "crammer_singer"])
def test_whole_persons_move_a_sum_as_a_row_may(loss: str, weighting: str) -> None:
    """Whatever their number of rows, before and after; nearly reached, and only by their means."""
    settings = {"loss": loss, "regularization": 2.0, "intercept_scaling": 0.0, "group_size": 1}
    spec = plan_of("exact", "person", weighting, **settings)
    by_rows = plan_of("exact", "row", weighting, **settings | {"max_records": 100})
    found, control = [], []
    for seed in range(3):
        for place in range(len(SIZES)):
            for sizes in ((1, 1), (1, 50), (50, 50), (7, 3)):
                pair = [owned(seed, place, m, turned=bool(i)) for i, m in enumerate(sizes)]
                found.append(moved(spec, *pair, "model"))
                if sizes == (50, 50):
                    control.append(moved(by_rows, *([p[:2] for p in one] for one in pair), "model"))
    assert max(found) <= 1.0
    assert max(found) > (0.9 if loss == "huber" else 0.3)
    # The same rows, each by itself.
    assert weighting == "users" or max(control) > 1.5


def test_persons_are_needed_exactly_where_they_are_protected() -> None:
    (X, y, ids), settings = owned(1, 2, 5, turned=False)[2], {"group_size": 1}
    spec = plan_of("exact", "person", "records", max_records=100, **settings)
    assert checked_records(X, y, spec, ids).sizes == [20]
    for others in (None, ids[1:], np.where(ids == 1, np.nan, ids)):
        with pytest.raises(PartyRefusedError, match="groups"):
            checked_records(X, y, spec, others)
    with pytest.raises(PartyRefusedError, match="groups"):
        checked_records(X[:20], y[:20], plan_of("exact", "row", "records"), ids[:20])
    with pytest.raises(InvalidParameterError, match="group_size"):
        plan_of("svm_sgd", "person", "records", **settings)


def test_a_simulation_of_whole_persons_is_verified_and_charged() -> None:
    settings: dict[str, Any] = {"n_users": 20, "min_records": 1, "max_records": 40}
    spec = plan_of("exact", "person", "records", group_size=1, **settings)
    parties = [owned(1, 2, 50, turned=False)[2] for _ in range(20)]
    ledger = PrivacyLedger(2.0, 1e-6, "replace_one", unit="person")
    statement = simulate(spec, parties, ledger=ledger).privacy_
    assert (statement.unit, statement.group_size) == ("person", 1)
    assert verify(statement).ok
    assert "the number of persons of every party" in statement.assumed_public
    assert "its number of persons" in " ".join(str(statement).split())
    assert FederatedSpec.from_json(spec.to_json()) == spec
    # The noise is that of a row; a tampered half of it is found.
    own, row = (
        s.round("model").noise for s in (spec, plan_of("exact", "row", "records", **settings))
    )
    assert own is not None
    assert row is not None
    assert (own.distance, own.step, own.sigma_steps) == (row.distance, row.step, row.sigma_steps)
    part = statement.rounds[0]
    halved = dataclasses.replace(part, exact=part.exact / 2, total=part.total / 2)
    assert not verify(dataclasses.replace(statement, rounds=(halved,))).ok


@pytest.mark.proof("federated", "The library")
def test_with_equal_weights_the_smallest_party_counts() -> None:
    """Control: a plan made for parties of 20 is exceeded by a party of one, which it refuses."""
    small = plan_of("svm_sgd", "row", "users", regularization=2.0)
    large = plan_of("svm_sgd", "row", "users", regularization=2.0, min_records=20)
    assert small.rounds[0].noise is not None
    assert large.rounds[0].noise is not None
    assert small.rounds[0].noise.distance > 15 * large.rounds[0].noise.distance
    with pytest.raises(ValueError, match="min_records"):
        summed(large, alike(), "model")


def matrices(unit: str) -> FederatedSpec:
    return FederatedSpec.fed_dpdr(
        n_users=len(SIZES),
        n_features=4,
        classes=[0, 1],
        epsilon=2.0,
        delta=1e-6,
        max_records=max(SIZES),
        n_components=2,
        honest_fraction=1.0,
        local="output",
        unit=unit,
        group_size=3 if unit == "person" else 1,
    )


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize(("unit", "rows"), [("row", 1), ("person", 3), ("party", 20)])
def test_second_moments_stay_within_the_plan_and_reach_it(unit: str, rows: int) -> None:
    first = alike()
    second = [(X.copy(), y.copy()) for X, y in first]
    second[2][0][:rows] = [0.0, 3.0, 0.0, 0.0]
    assert 0.9 < moved(matrices(unit), first, second, "gram") <= 1.0
    if rows > 1:
        assert moved(matrices("row"), first, second, "gram") > 1.5
