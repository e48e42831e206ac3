"""How far one record moves the second moments that `PrivatePCA` adds noise to, and what that costs.

Searches over adversarial rows, through the compiled sums; and whole fits on neighbours that are
made to release the same, where the price of every draw is exact (oracles/coupled.py).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpsvm_fast import PrivatePCA
from dpsvm_fast.mechanisms import noise as noisy_moments
from dpsvm_fast.mechanisms.noise import gaussian_parameter
from dpsvm_fast.mechanisms.rows import PublicMap
from oracles.coupled import coupled, estimator_run

Array = NDArray[Any]
BOUND = {"add_remove": 1.0, "replace_one": math.sqrt(2.0)}
either = pytest.mark.parametrize("adjacency", BOUND)


def moments(rows: Array, data_norm: float = 1.0, centre: Array | None = None) -> Array:
    public = PublicMap(offset=centre, unit=False, data_norm=data_norm)
    return public.records(rows, np.zeros(len(rows), dtype=np.int64), 2, 1).gram(1)


entries = st.one_of(
    st.floats(-4.0, 4.0),
    st.sampled_from([0.0, 1.0, -1.0, 2.0**-20, 1.0 - 2.0**-20, 5e-324, 1e-160, 1e160, -1e308]),
)


@pytest.mark.proof("private_pca")
@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 5), st.sampled_from([1e-3, 0.7, 1.0, 30.0]))
def test_no_record_moves_the_moments_further(data: Any, d: int, data_norm: float) -> None:
    """Exact integers below 2**53 times 2**-40: differences of the sums carry no rounding."""
    row = st.lists(entries, min_size=d, max_size=d)
    first, second = (np.array([data.draw(row)]) for _ in range(2))
    others = np.random.default_rng(d).normal(size=(data.draw(st.integers(0, 9)), d))
    centre = np.array(data.draw(st.lists(st.floats(-3.0, 3.0), min_size=d, max_size=d)))
    for point in (None, centre):
        base = moments(np.vstack([others, first]), data_norm, point)
        fewer = moments(others, data_norm, point) if len(others) else np.zeros((d, d))
        assert np.linalg.norm(base - fewer) <= 1.0
        other = moments(np.vstack([others, second]), data_norm, point)
        assert np.linalg.norm(base - other) <= BOUND["replace_one"] * (1.0 + 1e-15)


@pytest.mark.proof("private_pca")
def test_the_bounds_are_attained() -> None:
    axes = np.eye(3)
    assert np.linalg.norm(moments(axes) - moments(axes[:2])) == 1.0
    moved = moments(axes[:1]) - moments(axes[1:2])
    assert np.linalg.norm(moved) == pytest.approx(math.sqrt(2.0), rel=1e-15)


def neighbours(adjacency: str) -> tuple[Any, Any]:
    """Neighbours as far apart as any."""
    base = np.random.default_rng(3).normal(size=(30, 4)) * 0.4
    first = np.vstack([base, [[3.0, 0.0, 0.0, 0.0]]])
    second = base if adjacency == "add_remove" else np.vstack([base, [[0.0, -5.0, 0.0, 0.0]]])
    return (first,), (second,)


@either
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
@pytest.mark.parametrize("whiten", [False, True])
def test_a_fit_spends_what_it_says_and_publishes_nothing_else(
    adjacency: str, noise_grid: str, whiten: bool
) -> None:
    def make() -> PrivatePCA:
        return PrivatePCA(
            3, 1.5, 1e-5, adjacency=adjacency, noise_grid=noise_grid, whiten=whiten, n_threads=1
        )

    found = coupled(estimator_run(make), *neighbours(adjacency))
    assert len(found.sizes) == 2
    spent, budget = float(np.linalg.norm(found.sizes)), gaussian_parameter(1.5, 1e-5)
    assert 0.999 * budget < spent <= budget
    here, there = found.outcomes
    for name in vars(here):
        if name.endswith("_"):
            one, two = getattr(here, name), getattr(there, name)
            assert one == two if name == "privacy_" else np.array_equal(one, two), name


@pytest.mark.proof("private_pca")
def test_noise_for_one_record_more_does_not_pay_for_an_exchange(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: without its sqrt 2 an exchange spends sqrt 2 times the budget."""
    monkeypatch.setattr(noisy_moments, "sqrt_up", lambda _: 1.0)
    run = estimator_run(lambda: PrivatePCA(3, 1.5, 1e-5, adjacency="replace_one", n_threads=1))
    spent = np.linalg.norm(coupled(run, *neighbours("replace_one")).sizes)
    assert spent == pytest.approx(math.sqrt(2.0) * gaussian_parameter(1.5, 1e-5), rel=1e-4)
