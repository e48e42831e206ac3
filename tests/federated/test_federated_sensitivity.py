"""What neighbours move a sum over parties, against what the plan says they may move it.

The noise is left out, everything else is what parties do: fit, project, weight, round. Neighbours
are constructed to move far: opposite rows, other labels, whole parties, rows in several parties.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.federated import FederatedSpec
from dpsvm_fast.federated.local import Records, checked_records, contributions

Party = tuple[NDArray[np.float64], NDArray[np.int64]]

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
    records = Records.joined([checked_records(X, y, spec) for X, y in parties])
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
