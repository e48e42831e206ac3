"""Clipped sums of gradients: one record never moves them further than declared, after rounding.

With learning rate 1, divisor 1 and neither noise nor regularisation a step from W = 0 gives minus
the sum, to the last bit. How sums of dense rows are rounded depends on random tags of the records,
whose law is the same in both worlds; with one seed records of equal number have equal tags, so a
record more stands at the end here, and one in the middle is compared with room for other tags.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from oracles.noisy_descent import (
    STEEP,
    clipped_sum,
    distance_bound,
    kernel,
    records_of,
    run,
    zero_rows,
)

Array = NDArray[Any]
LOSSES = [
    ("m3", 2),
    ("m3", 5),
    ("huber_ww", 2),
    ("huber_ww", 5),
    ("softmax_margin", 4),
    ("huber", 2),
    ("huber", 3),
    ("logistic", 2),
    ("logistic", 7),
    ("softplus", 3),
]
FORMS: dict[str, Any] = {
    "dense": np.asarray,
    "single": lambda X: X.astype(np.float32),
    "csr": sparse.csr_matrix,
}
POINT = np.rint(np.linspace(-0.3, 0.4, 9) * 2**20) / 2**20


class Case:
    """A data set, a record of it, and the settings of the step."""

    def __init__(self, draw: st.DrawFn) -> None:
        loss, n_classes = draw(st.sampled_from(LOSSES))
        n = draw(st.integers(2, 500))
        self.n_classes, self.n_features = n_classes, draw(st.integers(1, 9))
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        X = rng.normal(size=(n, self.n_features)) * draw(st.sampled_from([1e-3, 0.3, 10.0]))
        X *= rng.random(X.shape) < draw(st.sampled_from([0.1, 0.6, 1.0]))
        extreme = draw(st.sampled_from([0.0, 1e-300, 1e-7, 1.0, 1e300]))
        self.position = draw(st.one_of(st.just(n - 1), st.integers(0, n - 1)))
        if draw(st.booleans()):
            X[self.position] = extreme * np.sign(rng.normal(size=self.n_features))
        self.X, self.y = X, rng.integers(0, n_classes, n)
        self.form = FORMS[draw(st.sampled_from(sorted(FORMS)))]
        if self.form is FORMS["single"]:
            self.X = np.clip(self.X, -1e30, 1e30)
        self.maps = {"unit": draw(st.booleans()), "data_norm": draw(st.sampled_from([0.5, 1.0]))}
        self.centred = draw(st.booleans())
        self.options = kernel(loss, n_classes, draw(st.sampled_from([0.01, 0.5])))
        self.options |= {
            "clip": draw(st.sampled_from([1e-6, 0.1, 1.0, 3.7, 100.0])),
            "intercept": draw(st.sampled_from([0.0, 0.25, 3.0])),
            "row_scale": draw(st.sampled_from([0.7, 1.0, 20.0])),
            "precision": draw(st.sampled_from(["f32", "f32", "f64"])),
        }
        # A power of two near 2**-20 of the clip, as the mechanism chooses it, or a coarse one.
        power = draw(st.sampled_from([None, 20, 6]))
        exponent = math.floor(math.log2(self.options["clip"]))
        self.options["grid"] = None if power is None else 2.0 ** (exponent - power)
        size = draw(st.sampled_from([0.0, 1e-3, 1.0, 1e4]))
        self.options["state"] = self.start(size, draw(st.integers(0, 2**32)))

    def start(self, size: float, seed: int) -> Any:
        """State with random weights of that size."""
        options = self.options | {"clip": 1.0, "sigma": size, "grid": None, "intercept": 0.0}
        # Zero rows would have a gradient with an intercept, so it counts as a feature here.
        width = self.n_features + (self.options["intercept"] > 0.0)
        source = zero_rows(2, width, n_classes=self.n_classes)
        return run(source, 1, seed=seed, **options).state() if size else None

    def records(self, kept: Array, changed: Any = None) -> Any:
        X, y = self.X[kept], self.y[kept].copy()
        if changed is not None:
            X = X.copy()
            X[self.position], y[self.position] = changed
        records = records_of(self.form(X), y, self.n_classes, **self.maps)
        if self.centred:
            records.centre(POINT[: self.n_features], 1)
        return records

    def bound(self) -> float:
        columns = self.n_features + (self.options["intercept"] > 0.0)
        n_weights = self.options["n_scores"] * columns
        return distance_bound(self.options["clip"], n_weights, self.options["grid"])

    def sum(self, records: Any) -> Array:
        return clipped_sum(records, **self.options)

    def slack(self, *sums: Array) -> float:
        """What reading the sum off the weights costs: their own rounding."""
        state = self.options["state"]
        weights = 0.0 if state is None else run_weights(state, self)
        size = max(float(np.abs(s).max()) for s in sums) + weights
        return 2.0**-50 * size * math.sqrt(sums[0].size)


def run_weights(state: Any, case: Case) -> float:
    """Largest weight of a state."""
    numbers = [np.abs(np.asarray(v, dtype=float)).max(initial=0.0) for v in _arrays(state)]
    return float(max(numbers, default=0.0))


def _arrays(state: Any) -> list[Any]:
    return [v for v in state.values() if isinstance(v, np.ndarray)]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    return Case(draw)


@pytest.mark.proof("gradient_perturbation", "Clipped sums and their rounding")
@given(case=cases())
def test_a_record_more_moves_the_sum_by_no_more_than_declared(case: Case) -> None:
    everyone = np.arange(len(case.X))
    whole = case.sum(case.records(everyone))
    part = case.sum(case.records(everyone[:-1]))
    allowed = case.bound() + case.slack(whole, part)
    assert float(np.linalg.norm(whole - part)) <= allowed


@pytest.mark.proof("gradient_perturbation", "Clipped sums and their rounding")
@given(case=cases(), label=st.integers(0, 6), seed=st.integers(0, 2**32 - 1))
def test_another_record_moves_the_sum_by_no_more_than_twice(
    case: Case, label: int, seed: int
) -> None:
    everyone = np.arange(len(case.X))
    x = np.random.default_rng(seed).normal(size=case.n_features)
    whole = case.sum(case.records(everyone))
    other = case.sum(case.records(everyone, changed=(x, label % case.n_classes)))
    allowed = 2.0 * case.bound() + case.slack(whole, other)
    assert float(np.linalg.norm(whole - other)) <= allowed


@pytest.mark.proof("gradient_perturbation", "Clipped sums and their rounding")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("position", [0, 1, 63, 64, 200, 299])
@pytest.mark.parametrize("grid", [None, 2.0**-26])
def test_the_declared_distance_is_nearly_reached(form: str, position: int, grid: Any) -> None:
    """A long gradient moves the sum by nearly the clip, wherever the record stands."""
    rng = np.random.default_rng(position)
    X = rng.normal(size=(300, 6))
    y = rng.integers(0, 2, 300)
    kept = np.arange(300) != position
    for clip in (0.05, 0.6):
        # Both neighbours of every step are sampled in full; gradients have norm 1.
        options = STEEP | {"clip": clip, "grid": grid}
        whole, part = (
            clipped_sum(records_of(FORMS[form](rows), labels, unit=True), **options)
            for rows, labels in ((X, y), (X[kept], y[kept]))
        )
        moved = float(np.linalg.norm(whole - part))
        other_tags = 1.0 if position == 299 or form == "csr" else 1.001
        assert 0.99 * clip <= moved <= distance_bound(clip, 6, grid) * other_tags
        # Not vacuous: the declared distance is what the clip says, but for rounding.
        assert distance_bound(clip, 6, grid) <= 1.001 * clip
        flipped = y.copy()
        flipped[position] = 1 - y[position]
        other = clipped_sum(records_of(FORMS[form](X), flipped, unit=True), **options)
        distance = float(np.linalg.norm(whole - other))
        assert 0.99 * 2.0 * clip <= distance <= 2.0 * distance_bound(clip, 6, grid)


def exact_square(S: Array) -> Fraction:
    return sum((Fraction(float(v)) ** 2 for v in S.ravel()), Fraction(0))


@pytest.mark.proof("gradient_perturbation", "Clipped sums and their rounding")
@given(
    loss=st.sampled_from(LOSSES),
    clip=st.floats(1e-3, 10.0),
    row_scale=st.floats(0.5, 4.0),
    intercept=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**32 - 1),
    form=st.sampled_from(sorted(FORMS)),
    centred=st.booleans(),
    precision=st.sampled_from(["f32", "f64"]),
)
def test_one_contribution_is_no_longer_than_the_clip(
    loss: tuple[str, int],
    clip: float,
    row_scale: float,
    intercept: float,
    seed: int,
    form: str,
    centred: bool,
    precision: str,
) -> None:
    """The norm of the sum over one record, in exact arithmetic on its bits."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(1, 5)), rng.integers(0, loss[1], 1)
    records = records_of(FORMS[form](x), y, loss[1], unit=True)
    if centred:
        records.centre(POINT[:5], 1)
    options = kernel(*loss) | {"clip": clip, "row_scale": row_scale, "intercept": intercept}
    S = clipped_sum(records, precision=precision, **options)
    assert exact_square(S) <= Fraction(distance_bound(clip, S.size, None)) ** 2
    # And it is no shorter than it should be: the natural length, or the clip.
    free = clipped_sum(records, precision=precision, **(options | {"clip": 1e3}))
    natural = float(np.linalg.norm(free))
    assert np.linalg.norm(S) >= 0.99 * min(clip, natural) - 1e-4 * clip


@pytest.mark.proof("gradient_perturbation", "Clipped sums and their rounding")
@pytest.mark.parametrize("precision", ["f32", "f64"])
@pytest.mark.parametrize("clip", [1e-15, 1e-7, 1e-5, 1e-2])
@pytest.mark.parametrize("intercept", [0.0, 0.25])
def test_a_sparse_row_near_the_centre_moves_the_sum_by_no_more_than_declared(
    precision: str, clip: float, intercept: float
) -> None:
    """Without an intercept the clip bounds no coefficient of a row at the centre, nor `q x`."""
    options = STEEP | {"clip": clip, "precision": precision, "intercept": intercept}
    point = POINT[:3]
    step = np.array([2.0**-20, 0.0, 0.0])
    for row in (point, point + step, point - 2e5 * step):
        sums = []
        for n in (3, 2):
            X = np.array([[0.1, 0.5, 0.2], [0.5, 0.1, -0.3], row])[:n]
            records = records_of(sparse.csr_matrix(X), [0, 1, 0][:n])
            records.centre(point, 1)
            sums.append(clipped_sum(records, **options))
        bound = distance_bound(clip, sums[0].size, None)
        assert np.linalg.norm(sums[0] - sums[1]) <= bound
        # Not vacuous: the others are summed, each to the length of the clip.
        assert np.linalg.norm(sums[1]) > 0.1 * clip


@pytest.mark.parametrize("precision", ["f32", "f64"])
def test_zero_rows_contribute_nothing(precision: str) -> None:
    for loss, n_classes in LOSSES:
        records = zero_rows(70, 4, n_classes=n_classes)
        S = clipped_sum(records, precision=precision, **kernel(loss, n_classes))
        assert (S == 0.0).all()


@pytest.mark.parametrize("precision", ["f32", "f64"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("loss", "n_classes"), LOSSES)
def test_weights_that_left_every_range_break_no_bound(
    loss: str, n_classes: int, form: str, precision: str
) -> None:
    """Scores beyond single precision, or beyond all floats: contributions stay finite and clipped.

    Beside such weights the sum is read off the velocity, which in a first step it is.
    """
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(100, 6)), rng.integers(0, n_classes, 100)
    X[rng.random(X.shape) < 0.4] = 0.0
    options = kernel(loss, n_classes, 0.01) | {"clip": 0.5, "precision": precision}
    options["momentum"] = 0.5
    start = run(zero_rows(2, 6, n_classes=n_classes), 1, sigma=1.0, **options)
    direction = np.sign(start.weights())
    for size in (1e6, 1e20, 1e37, 1e39, 1e150, 1e300):
        state = start.state() | {"weights": size * direction, "first": 0.0 * direction}
        sums = []
        for n in (100, 99, 1):
            records = records_of(FORMS[form](X[:n]), y[:n], n_classes, unit=True)
            sums.append(run(records, 1, state=state, **options).state()["first"])
        assert all(S.shape == direction.shape and np.isfinite(S).all() for S in sums)
        assert np.linalg.norm(sums[0]) > 0.1
        bound = distance_bound(0.5, sums[0].size, None)
        assert np.linalg.norm(sums[0] - sums[1]) <= bound
        assert np.linalg.norm(sums[2]) <= bound
