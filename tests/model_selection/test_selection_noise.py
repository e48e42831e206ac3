"""Laws of private selection and of discrete Laplace noise, against references.

``tests/stored/exponential_mechanism.json`` and ``tests/stored/discrete_laplace.json`` were computed
in 70-digit arithmetic. How often a test refuses a right law is said in
``oracles/counted_draws.py``. Every test must reject a wrong law. Permute and flip and random parts
are judged by `test_private_search_law` and by the core's own tests.
"""

from __future__ import annotations

import json
import math
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
MAX_DIFFERENCE = 2**32 - 1


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
    scores = [min(round(d / unit), MAX_DIFFERENCE) for d in differences]
    return np.array(scores, dtype=np.int64), few_bits(rate * unit)


@pytest.mark.parametrize("point", points("exponential_mechanism.json"))
def test_exponential_mechanism_agrees_with_the_reference(point: dict[str, Any]) -> None:
    scores, rate = as_integers(point)
    law = np.array([float(p) for p in point["probabilities"]])
    source = _core.NoiseSource(11)
    picks = [source.exponential_choice(scores, rate) for _ in range(N_CHOICES)]
    counts = np.bincount(picks, minlength=len(scores))
    assert fits(counts, law)
    if len(scores) > 1:
        # Negative control: the best and the second best in each other's place, or shares moved.
        wrong = 0.9 * law + 0.1 * np.roll(law, 1)
        wrong = wrong if not np.allclose(law, wrong) else law * np.linspace(0.9, 1.1, len(law))
        assert not fits(counts, wrong / wrong.sum())


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
