"""The certificate: the distance to the minimiser never exceeds what the solver claims.

The minimiser comes from an interior-point method in `oracles.crammer_singer`, on the same rounded
rows, with a certificate of its own in extended precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from oracles.crammer_singer import minimiser, stored_rows
from oracles.solver import compiled

pytestmark = pytest.mark.proof("output_perturbation", "Inexact minimiser")


@dataclass(frozen=True)
class Problem:
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    n_classes: int
    C: float
    data_norm: float
    intercept_scaling: float


def distance_and_claims(
    problem: Problem, tol: float, *, csr: bool, single: bool, low_memory: bool
) -> tuple[float, float, float, float]:
    """Distance to the oracle's point, and the radii: oracle's, certified, asked for."""
    X = problem.X.astype(np.float32 if single else np.float64)
    weights, radius, asked = compiled(
        sparse.csr_matrix(X) if csr else X,
        problem.y,
        n_classes=problem.n_classes,
        C=problem.C,
        data_norm=problem.data_norm,
        intercept_scaling=problem.intercept_scaling,
        tol=tol,
        low_memory=low_memory,
    )
    rows = stored_rows(X.astype(np.float64), problem.data_norm, problem.intercept_scaling)
    expected, accuracy = minimiser(rows, problem.y, problem.n_classes, problem.C)
    return float(np.linalg.norm(weights - expected)), accuracy, radius, asked


def check(problem: Problem, tol: float, *, csr: bool, single: bool, low_memory: bool) -> None:
    distance, accuracy, radius, asked = distance_and_claims(
        problem, tol, csr=csr, single=single, low_memory=low_memory
    )
    # The oracle must be much closer than the claim, or the comparison could not fail.
    assert accuracy <= 0.2 * asked
    assert radius <= asked
    assert distance <= radius + accuracy


def duplicated(rng: np.random.Generator) -> NDArray[np.float64]:
    return np.repeat(rng.normal(size=(3, 4)), 3, axis=0)


RNG = np.random.default_rng(0)
MIXED = np.arange(9) % 3
ROWS = {
    "random": (RNG.normal(size=(9, 4)), MIXED),
    "duplicates": (duplicated(RNG), MIXED),
    "duplicates_of_one_label": (duplicated(RNG), np.repeat([0, 1, 2], 3)),
    "opposite": (np.vstack([np.eye(4), -np.eye(4)]), np.arange(8) % 2),
    "one_row": (RNG.normal(size=(1, 4)), np.array([1])),
    "one_feature": (RNG.normal(size=(9, 1)), MIXED),
    "all_zero": (np.zeros((5, 3)), MIXED[:5]),
    "some_zero": (np.diag([0.0, 1.0, 0.0, 2.0]), MIXED[:4]),
    "one_class": (RNG.normal(size=(7, 3)), np.full(7, 2)),
    "at_the_bound": (np.vstack([np.eye(5), np.full((2, 5), 5**-0.5)]), MIXED[:7]),
    "far_beyond_the_bound": (1e6 * RNG.normal(size=(7, 5)), MIXED[:7]),
    "far_below_the_bound": (1e-6 * RNG.normal(size=(7, 5)), MIXED[:7]),
    "eight_and_nine_features": (RNG.normal(size=(5, 17)), MIXED[:5]),
}


@pytest.mark.sampled(times=3)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("C", [1e-8, 1e-3, 0.3, 1e2, 1e6])
@pytest.mark.parametrize("intercept_scaling", [0.0, 0.2])
def test_hand_made_rows(name: str, C: float, intercept_scaling: float) -> None:
    X, y = ROWS[name]
    problem = Problem(X, y.astype(np.int64), 3, C, 1.0, intercept_scaling)
    check(problem, 1e-3, csr=C < 1.0, single=C == 0.3, low_memory=C > 10.0)


@pytest.mark.sampled
@pytest.mark.parametrize("n_classes", [2, 3, 4, 5, 8, 9, 16, 17, 33, 40])
@pytest.mark.parametrize("csr", [False, True])
def test_every_width_of_the_score_kernels(n_classes: int, csr: bool) -> None:
    rng = np.random.default_rng(n_classes)
    # The oracle takes the cube of rows times classes.
    n_samples = 6 if n_classes < 20 else 3
    y = rng.integers(0, n_classes, n_samples).astype(np.int64)
    problem = Problem(rng.normal(size=(n_samples, 3)), y, n_classes, 0.5, 1.0, 0.2)
    check(problem, 1e-3, csr=csr, single=False, low_memory=False)


def test_absent_classes_that_tie() -> None:
    """Sixteen equal scores: a threshold that rounding moves back and forth must not loop."""
    X = np.random.default_rng(5).normal(size=(3, 8))
    for scale in np.linspace(0.5, 2.0, 40):
        problem = Problem(scale * X, np.full(3, 16), 17, 2.1, 1.0, 0.2)
        check(problem, 6e-3, csr=False, single=True, low_memory=False)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    n_classes = draw(st.sampled_from([2, 3, 4, 7, 12]))
    n_samples = draw(st.integers(0, 12 if n_classes < 7 else 6))
    n_features = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    data_norm = 10.0 ** draw(st.floats(-3.0, 3.0))
    X = rng.normal(size=(n_samples, n_features)) * data_norm / math.sqrt(n_features)
    X *= 10.0 ** draw(st.floats(-1.5, 1.5))
    if draw(st.booleans()):
        X[rng.random(X.shape) < 0.5] = 0.0
    if n_samples > 1 and draw(st.booleans()):
        X[1] = X[0]
    y = rng.integers(0, draw(st.integers(1, n_classes)), n_samples).astype(np.int64)
    # C in units in which rows have norm about 1, from every row at its vertex to a hard margin.
    C = 10.0 ** draw(st.floats(-6.0, 4.0)) / data_norm**2
    return Problem(
        X, y, n_classes, C, data_norm, data_norm * draw(st.sampled_from([0.0, 0.2, 3.0]))
    )


@given(
    problem=problems(),
    tol=st.floats(-4.0, -1.0).map(lambda exponent: 10.0**exponent),
    csr=st.booleans(),
    single=st.booleans(),
    low_memory=st.booleans(),
)
def test_distance_to_the_minimiser_is_within_the_radius(
    problem: Problem, tol: float, csr: bool, single: bool, low_memory: bool
) -> None:
    check(problem, tol, csr=csr, single=single, low_memory=low_memory)


@given(problem=problems())
def test_stored_rows_never_exceed_the_bound(problem: Problem) -> None:
    rows = stored_rows(problem.X, problem.data_norm, problem.intercept_scaling)
    bound = math.hypot(problem.data_norm, problem.intercept_scaling)
    assert (np.linalg.norm(rows, axis=1) <= bound * (1.0 + 1e-15)).all()


@pytest.mark.parametrize("wrong", ["cost", "norm", "label", "intercept"])
def test_another_problem_is_not_within_the_radius(wrong: str) -> None:
    """Negative controls: the comparison sees a problem that differs a little."""
    X, y = ROWS["random"]
    problem = Problem(X, y, 3, 0.3, 1.0, 0.2)
    changed = {
        "cost": Problem(X, y, 3, 0.303, 1.0, 0.2),
        "norm": Problem(X, y, 3, 0.3, 1.01, 0.2),
        "label": Problem(X, np.roll(y, 1), 3, 0.3, 1.0, 0.2),
        "intercept": Problem(X, y, 3, 0.3, 1.0, 0.21),
    }[wrong]
    rows = stored_rows(problem.X, problem.data_norm, problem.intercept_scaling)
    expected, accuracy = minimiser(rows, problem.y, 3, problem.C)
    weights, radius, _ = compiled(
        changed.X,
        changed.y,
        n_classes=3,
        C=changed.C,
        data_norm=changed.data_norm,
        intercept_scaling=changed.intercept_scaling,
    )
    assert np.linalg.norm(weights - expected) > radius + accuracy
