"""The law of discrete Gaussian noise, against references and far out.

``tests/stored/discrete_gaussian.json`` was computed in 70-digit arithmetic. How often
a test refuses a right law is said in ``oracles/counted_draws.py``. Every test must reject a wrong
law.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast import _core
from oracles.counted_draws import fits
from oracles.stored import stored

pytestmark = [pytest.mark.statistical, pytest.mark.proof("discrete_gaussian")]

N_DRAWS = 1_000_000

Array = NDArray[Any]


def points() -> list[dict[str, Any]]:
    """Reference points with a whole parameter."""
    found = stored("discrete_gaussian")["points"]
    whole = [point for point in found if float(point["sigma"]).is_integer()]
    assert len(whole) >= 5
    return whole


def draws(sigma: int, seed: int) -> NDArray[np.int64]:
    return _core.NoiseSource(seed).discrete_gaussian(N_DRAWS, sigma, 2)


@pytest.mark.parametrize("point", points(), ids=lambda point: point["sigma"])
def test_discrete_gaussian_agrees_with_the_reference(point: dict[str, Any]) -> None:
    values = draws(int(point["sigma"]), 41)
    cells, law = [], []
    for entry in point["pmf"]:
        for k in {entry["k"], -entry["k"]}:
            cells.append(np.count_nonzero(values == k))
            law.append(float(entry["pmf"]))
    counts = np.array([*cells, N_DRAWS - sum(cells)])
    rest = max(0.0, 1.0 - sum(law))
    assert fits(counts, np.array([*law, rest]))
    # Negative control: zero under both signs.
    twice = np.array([2.0 * law[0], *law[1:], rest]) / (1.0 + law[0])
    assert not fits(counts, twice)


def binned_law(sigma: float, edges: Array) -> Array:
    """Probabilities of edges[i] <= X < edges[i + 1]: summed to 12 sigma."""
    reach = math.ceil(12 * sigma)
    k = np.arange(-reach, reach + 1)
    density = np.exp(-0.5 * (k / sigma) ** 2)
    cells = np.bincount(
        np.searchsorted(edges, k, side="right"), weights=density, minlength=len(edges) + 1
    )
    law: Array = cells / density.sum()
    return law


@pytest.mark.parametrize("sigma", [1, 3, 16, 31, 32, 33, 1000, 4096, 10_007, 2**18])
def test_discrete_gaussian_has_its_law_far_out(sigma: int) -> None:
    values = draws(sigma, 43)
    reach = max(3, math.ceil(5 * sigma))
    step = max(1, reach // 150)
    edges = np.arange(-reach, reach + 1, step)
    counts = np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1)
    assert fits(counts, binned_law(sigma, edges))
    # Negative controls: one percent in sigma, and one cell to the right.
    assert not fits(counts, binned_law(1.01 * sigma, edges))
    assert not fits(counts, np.roll(binned_law(sigma, edges), 1))


@pytest.mark.parametrize("sigma", [2**20, 2**24 + 1, 2**40 - 1])
def test_residues_are_uniform_for_large_parameters(sigma: int) -> None:
    """Modulo 97 the law is uniform up to 1e-100, and so are halves of the cells of the sampler."""
    values = draws(sigma, 44)
    assert fits(np.bincount(values % 97, minlength=97), np.full(97, 1 / 97))
    skewed = np.where(values % 97 == 0, values + (values % 3 == 0), values)
    assert not fits(np.bincount(skewed % 97, minlength=97), np.full(97, 1 / 97))


@pytest.mark.parametrize("sigma", [2**30, 3**20])
def test_large_parameters_are_normal(sigma: int) -> None:
    """A parameter this large is normal up to 1e-9, which a million draws cannot see."""
    edges = np.linspace(-4.5, 4.5, 289)
    values = draws(sigma, 45) / sigma
    counts = np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1)
    law = np.diff(np.concatenate([[0.0], stats.norm.cdf(edges), [1.0]]))
    assert fits(counts, law)
    assert not fits(counts, np.diff(np.concatenate([[0.0], stats.norm.cdf(edges / 1.01), [1.0]])))


def test_neighbours_are_independent() -> None:
    values = np.clip(draws(2, 46), -5, 5) + 5
    single = np.bincount(values, minlength=11)
    pairs = np.bincount(values[:-1:2] * 11 + values[1::2], minlength=121).reshape(11, 11)
    law = single / single.sum()
    assert fits(pairs.ravel(), np.outer(law, law).ravel())
    # Negative control: one pair in fifty repeats its first value.
    copied = 0.98 * np.outer(law, law) + 0.02 * np.diag(law)
    assert not fits(pairs.ravel(), copied.ravel())
