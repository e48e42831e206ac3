"""Sensitivity of output perturbation: a search over neighbours reaches it and never exceeds it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpsvm_fast import OutputPerturbationSVC
from dpsvm_fast.mechanisms.output import OutputPerturbation
from oracles.descent import output_plan
from oracles.neighbours import tight_pair
from oracles.solver import compiled

pytestmark = pytest.mark.proof("output_perturbation", "Sensitivity, declared radius, rounding")

ROUNDING = 1e-9
Data = tuple[NDArray[np.float64], NDArray[np.int64]]


mechanism = partial(output_plan, C=1e-3)


def moved(plan: OutputPerturbation, first: Data, second: Data) -> float:
    """Distance between the certified weights of two data sets."""
    weights = []
    for X, y in (first, second):
        found, radius, _ = compiled(
            X,
            y,
            n_classes=plan.loss.n_classes,
            C=plan.C,
            data_norm=plan.data_norm,
            intercept_scaling=plan.intercept_scaling,
            radius=plan.radius,
        )
        assert radius <= plan.radius
        weights.append(found)
    return float(np.linalg.norm(weights[0] - weights[1]))


def covered(distance: float, claimed: float, radius: float) -> bool:
    """Whether a distance between certified weights is possible with the claimed sensitivity."""
    return distance <= (claimed + 2.0 * radius) * (1.0 + ROUNDING)


CASES = [
    (adjacency, n_classes, s)
    for adjacency in ("add_remove", "replace_one")
    for n_classes in (2, 3, 4)
    for s in (0.0, 0.2, 0.9)
    # With long constant features the rows against x no longer are.
    if n_classes == 2 or s < 0.5
]


@pytest.mark.parametrize(("adjacency", "n_classes", "s"), CASES)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
def test_constructed_neighbours_reach_the_sensitivity(
    adjacency: str, n_classes: int, s: float, scale: float
) -> None:
    pair = tight_pair(adjacency, n_classes, s)
    C = 1e-3 / scale**2
    plan = mechanism(
        adjacency=adjacency,
        n_classes=n_classes,
        C=C,
        data_norm=scale,
        intercept_scaling=s * scale,
    )
    distance = moved(
        plan, (pair.first[0] * scale, pair.first[1]), (pair.second[0] * scale, pair.second[1])
    )
    factor = 1.0 if adjacency == "add_remove" else 2.0
    expected = factor * math.sqrt(2.0) * C * scale * math.hypot(1.0, s)
    assert plan.exact_sensitivity == pytest.approx(expected, rel=1e-12)
    assert distance >= 0.95 * plan.exact_sensitivity
    assert covered(distance, plan.exact_sensitivity, plan.radius)
    # Negative controls: half the claim, and a claim that forgets the constant feature.
    assert not covered(distance, plan.exact_sensitivity / 2.0, plan.radius)
    if s >= 0.2:
        forgotten = factor * math.sqrt(2.0) * C * scale
        assert not covered(distance, forgotten, plan.radius)


def test_longer_rows_move_the_weights_no_further() -> None:
    """Clipping: a record of norm 1e6 counts as one at the bound."""
    plan = mechanism(C=0.1)
    empty = np.zeros((0, 3)), np.zeros(0, dtype=np.int64)
    long = np.array([[1e6, -1e6, 1e6]]), np.array([1])
    distance = moved(plan, long, empty)
    assert 0.95 * plan.exact_sensitivity <= distance
    assert covered(distance, plan.exact_sensitivity, plan.radius)


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[Data, tuple[NDArray[np.float64], int], int]:
    """A data set, a record, and the number of classes."""
    n_classes, n_samples = draw(st.integers(2, 5)), draw(st.integers(1, 14))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    centres = rng.normal(size=(n_classes, 3))
    y = rng.integers(0, n_classes, n_samples).astype(np.int64)
    X = centres[y] * draw(st.sampled_from([0.0, 1.0, 3.0])) + rng.normal(size=(n_samples, 3))
    x = draw(st.sampled_from([-1.0, 1.0])) * X[0] + 0.1 * rng.normal(size=3)
    return (X, y), (x, int(rng.integers(0, n_classes))), n_classes


@given(
    drawn=neighbours(),
    adjacency=st.sampled_from(["add_remove", "replace_one"]),
    C=st.floats(-4.0, 3.0).map(lambda exponent: 10.0**exponent),
    s=st.sampled_from([0.0, 0.2, 2.0]),
)
def test_random_neighbours_never_exceed_the_sensitivity(
    drawn: tuple[Data, tuple[NDArray[np.float64], int], int],
    adjacency: str,
    C: float,
    s: float,
) -> None:
    (X, y), (x, label), n_classes = drawn
    plan = mechanism(adjacency=adjacency, n_classes=n_classes, C=C, intercept_scaling=s)
    if adjacency == "add_remove":
        other = np.vstack([X, x]), np.append(y, label)
    else:
        other = np.vstack([x, X[1:]]), np.append(label, y[1:])
    assert covered(moved(plan, (X, y), other), plan.exact_sensitivity, plan.radius)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_what_reaches_the_noise_moves_within_the_stated_sensitivity(
    monkeypatch: pytest.MonkeyPatch, adjacency: str, fit_intercept: bool
) -> None:
    """Whole fits: the weights handed to `release`, the plan they are handed to, the statement."""
    seen: list[tuple[OutputPerturbation, NDArray[np.float64]]] = []

    def spy(self: OutputPerturbation, weights: Any, source: Any, *, n_threads: int) -> Any:
        seen.append((self, weights))
        return weights

    monkeypatch.setattr(OutputPerturbation, "release", spy)
    s = 0.2 if fit_intercept else 0.0
    pair = tight_pair(adjacency, 3, s)
    for X, y in (pair.first, pair.second):
        model = OutputPerturbationSVC(
            adjacency=adjacency, classes=range(3), C=1e-3, fit_intercept=fit_intercept
        ).fit(X, y)
        stated = model.privacy_.sensitivity
        assert stated.total == seen[-1][0].output.total
        assert stated.exact == seen[-1][0].exact_sensitivity
    distance = float(np.linalg.norm(seen[0][1] - seen[1][1]))
    assert distance >= 0.95 * stated.exact
    assert distance <= stated.exact + 2.0 * stated.solver_radius
    assert stated.total >= stated.exact + 2.0 * stated.solver_radius + stated.rounding
    # Negative control.
    assert not covered(distance, stated.exact / 2.0, stated.solver_radius)
