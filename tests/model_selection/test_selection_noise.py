"""Laws of private selection, of discrete Laplace noise and of random parts, against references.

``tests/stored/exponential_mechanism.json`` and ``tests/stored/discrete_laplace.json`` were computed
in 70-digit arithmetic. How often a test refuses a right law is said in
``oracles/counted_draws.py``. Every test must reject a wrong law.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import _core
from oracles.counted_draws import fits

pytestmark = pytest.mark.statistical

DATA = Path(__file__).parents[1] / "stored"
N_CHOICES, N_DRAWS = 30_000, 2_000_000
MOST_DIFFERENCE = 2**32 - 1

Array = NDArray[Any]
Choose = Callable[[_core.NoiseSource, NDArray[np.int64], float], int]


def points(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DATA / name).read_text(encoding="utf-8"))["points"]
    return found


def few_bits(x: Fraction) -> float:
    """Nearest number of 20 significant bits."""
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(math.ldexp(mantissa, 20)), exponent - 20)


def as_integers(point: dict[str, Any]) -> tuple[NDArray[np.int64], float]:
    """Integer scores, lowest best, and the rate; hopeless candidates are moved within range.

    Scores that differ by far less than the rate can tell become equal.
    """
    utilities = [Fraction(u) for u in point["scores"]]
    sensitivity = Fraction(point["sensitivity"]) * (1 if point["monotonic"] else 2)
    rate = Fraction(point["epsilon"]) / sensitivity
    differences = [max(utilities) - u for u in utilities]
    unit = Fraction(1, 2)
    scores = [min(round(d / unit), MOST_DIFFERENCE) for d in differences]
    return np.array(scores, dtype=np.int64), few_bits(rate * unit)


def drawn(choose: Choose, scores: NDArray[np.int64], rate: float, seed: int) -> Array:
    source = _core.NoiseSource(seed)
    picks = [choose(source, scores, rate) for _ in range(N_CHOICES)]
    return np.bincount(picks, minlength=len(scores))


def flip_law(scores: NDArray[np.int64], rate: float) -> Array:
    """The law of permute and flip: the mean over all orders of visits."""
    keep = np.exp(-rate * (scores - scores.min()))
    law = np.zeros(len(scores))

    def visit(open_: tuple[int, ...], reach: float) -> None:
        for i in open_:
            law[i] += reach / len(open_) * keep[i]
            rest = tuple(j for j in open_ if j != i)
            if rest and keep[i] < 1.0:
                visit(rest, reach / len(open_) * (1.0 - keep[i]))

    visit(tuple(range(len(scores))), 1.0)
    return law


@pytest.mark.parametrize("point", points("exponential_mechanism.json"))
def test_exponential_mechanism_agrees_with_the_reference(point: dict[str, Any]) -> None:
    scores, rate = as_integers(point)
    law = np.array([float(p) for p in point["probabilities"]])
    counts = drawn(_core.NoiseSource.exponential_choice, scores, rate, 11)
    assert fits(counts, law)
    if len(scores) > 1:
        # Negative control: the best and the second best in each other's place, or shares moved.
        wrong = 0.9 * law + 0.1 * np.roll(law, 1)
        wrong = wrong if not np.allclose(law, wrong) else law * np.linspace(0.9, 1.1, len(law))
        assert not fits(counts, wrong / wrong.sum())


@pytest.mark.parametrize("point", points("exponential_mechanism.json"))
def test_permute_and_flip_has_its_law(point: dict[str, Any]) -> None:
    scores, rate = as_integers(point)
    law = flip_law(scores, rate)
    assert fits(drawn(_core.NoiseSource.permute_and_flip, scores, rate, 12), law)


def test_the_two_mechanisms_are_told_apart() -> None:
    """Negative control of both tests above."""
    scores = np.array([0, 1, 2, 3], dtype=np.int64)
    weights = np.exp(-0.5 * scores)
    exponential, flip = weights / weights.sum(), flip_law(scores, 0.5)
    first = drawn(_core.NoiseSource.exponential_choice, scores, 0.5, 13)
    second = drawn(_core.NoiseSource.permute_and_flip, scores, 0.5, 13)
    assert fits(first, exponential)
    assert not fits(first, flip)
    assert fits(second, flip)
    assert not fits(second, exponential)


def laplace_draws(scale: str, seed: int) -> NDArray[np.int64]:
    ratio = Fraction(scale)
    return _core.NoiseSource(seed).discrete_laplace(N_DRAWS, ratio.numerator, ratio.denominator, 2)


@pytest.mark.parametrize("point", points("discrete_laplace.json"), ids=lambda point: point["scale"])
def test_discrete_laplace_agrees_with_the_reference(point: dict[str, Any]) -> None:
    values = laplace_draws(point["scale"], 14)
    cells, law = [], []
    for entry in point["pmf"]:
        for k in {entry["k"], -entry["k"]}:
            cells.append(np.count_nonzero(values == k))
            law.append(float(entry["pmf"]))
    counts = np.array([*cells, N_DRAWS - sum(cells)])
    assert fits(counts, np.array([*law, 1.0 - sum(law)]))
    # Negative control: two percent between 0 and the rest.
    zero = law[0] * 0.98
    assert not fits(counts, np.array([zero, *law[1:], 1.0 - zero - sum(law[1:])])) or law[0] < 0.01


def binned_law(scale: float, edges: Array) -> Array:
    """Probabilities of edges[i] <= X < edges[i + 1], by P(X >= m) = a^m / (1 + a) for m >= 1."""
    a = math.exp(-1.0 / scale)
    upper = np.where(
        edges >= 1, a ** np.maximum(edges, 0) / (1 + a), 1 - a ** np.maximum(1 - edges, 0) / (1 + a)
    )
    cells: Array = -np.diff(np.concatenate([[1.0], upper, [0.0]]))
    return cells


@pytest.mark.parametrize("scale", ["1/5", "1", "7/3", "10", "1000", "1000000/3"])
def test_discrete_laplace_has_its_law_far_out(scale: str) -> None:
    values, size = laplace_draws(scale, 15), float(Fraction(scale))
    reach = max(3, math.ceil(9 * size))
    edges = np.arange(-reach, reach + 1, max(1, reach // 100))
    counts = np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1)
    assert fits(counts, binned_law(size, edges))
    assert not fits(counts, binned_law(1.02 * size, edges))
    assert not fits(counts, binned_law(size, edges + max(1, reach // 100)))


@pytest.mark.parametrize("weights", [[1, 1], [2, 5, 1], [10**12, 1, 3 * 10**12], [0, 4, 0, 1]])
def test_parts_have_their_probabilities_and_are_independent(weights: list[int]) -> None:
    n, total = 400_000, sum(weights)
    parts = _core.NoiseSource(16).random_parts(n, np.array(weights, dtype=np.int64), 2)
    law = np.array([float(Fraction(w, total)) for w in weights])
    assert fits(np.bincount(parts, minlength=len(weights)), law)
    # Neighbours: pairs of parts have the product of their laws.
    pairs = parts[:-1:2] * len(weights) + parts[1::2]
    counts = np.bincount(pairs, minlength=len(weights) ** 2)
    assert fits(counts, np.outer(law, law).ravel())
    # Negative control: of twenty records one more in the first part that there is.
    wrong = 0.95 * law + 0.05 * (np.arange(len(law)) == np.flatnonzero(law)[0])
    assert not fits(np.bincount(parts, minlength=len(weights)), wrong)
