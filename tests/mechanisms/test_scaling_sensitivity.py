"""Sensitivity of the sums of columns: a search over neighbours reaches it and never exceeds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.mechanisms.moments import NoisyColumnMoments

pytestmark = pytest.mark.proof("private_scaling")

Array = NDArray[Any]
RELATIONS = ("add_remove", "replace_one")


def mechanism(d: int, adjacency: str, *, with_std: bool) -> NoisyColumnMoments:
    return NoisyColumnMoments(
        n_features=d, adjacency=adjacency, noise_grid="exact", with_std=with_std, mu=1.0
    )


def summed(plan: NoisyColumnMoments, Z: Array) -> Array:
    """What is handed to the noise for entries between bounds -1 and 1."""
    d = plan.n_features
    how: dict[str, Any] = {"offset": np.zeros(d), "scale": np.ones(d), "n_threads": 1}
    first, second = _core.column_moments(np.ascontiguousarray(Z), **how)
    return plan.exact(first, second, Z.shape[0])


def moved(plan: NoisyColumnMoments, Z: Array, last: Array | None) -> float:
    """Distance when the last record is exchanged, or left out."""
    rest = Z[:-1] if last is None else np.vstack([Z[:-1], last])
    return float(np.linalg.norm(summed(plan, Z) - summed(plan, rest)))


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[NoisyColumnMoments, Array, Array | None]:
    d, n = draw(st.integers(1, 5)), draw(st.integers(2, 6))
    adjacency = draw(st.sampled_from(RELATIONS))
    plan = mechanism(d, adjacency, with_std=draw(st.booleans()))
    entries = st.one_of(
        st.sampled_from([-1.0, 1.0, 0.0, -0.0, 2.0**-21, 1.0 - 2.0**-21, 0.5, 7.0, -1e300]),
        st.floats(-1.5, 1.5),
    )
    rows = st.lists(entries, min_size=d, max_size=d)
    Z = np.array(draw(st.lists(rows, min_size=n, max_size=n)))
    return plan, Z, np.array(draw(rows)) if adjacency == "replace_one" else None


@given(drawn=neighbours())
def test_neighbours_never_exceed_the_sensitivity(
    drawn: tuple[NoisyColumnMoments, Array, Array | None],
) -> None:
    plan, Z, last = drawn
    assert moved(plan, Z, last) <= plan.sum.sensitivity


def searched(plan: NoisyColumnMoments, seed: int) -> float:
    """Largest distance that a climb over one or two records finds, knowing nothing of the proof."""
    rng = np.random.default_rng(seed)
    d = plan.n_features
    records = rng.uniform(-1.0, 1.0, (1 if plan.counts else 2, d))

    def distance(records: Array) -> float:
        if plan.counts:
            return moved(plan, np.vstack([np.zeros(d), records]), None)
        return moved(plan, np.vstack([np.zeros(d), records[:1]]), records[1:])

    best = distance(records)
    for step in range(700):
        width = 0.5 * 0.993**step
        trial = np.clip(records + width * rng.standard_normal(records.shape), -1.0, 1.0)
        found = distance(trial)
        if found > best:
            records, best = trial, found
    return best


@pytest.mark.sampled
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("with_std", [True, False])
@pytest.mark.parametrize("d", [1, 5])
def test_a_search_reaches_the_sensitivity(adjacency: str, with_std: bool, d: int) -> None:
    plan = mechanism(d, adjacency, with_std=with_std)
    found = max(searched(plan, seed) for seed in range(3))
    assert 0.97 * plan.sum.sensitivity <= found <= plan.sum.sensitivity
