"""One record of a kernel: its features are bounded, and the same whatever the others are.

Sums of outer products are exact, so their difference shows a lifted record to the last bit. One
step of the compiled descent with the same noise shows how far one record moves a sum of gradients;
these are added in single precision, in leaves, which the bound covers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.rows import FourierFeatures, PublicMap, structure_of

Array = NDArray[Any]
CLIP, GRID, SIGMA = 0.25, 2.0**-33, 2.0**-12
LOSS = Loss(name="softmax_margin", n_classes=3, margin=0.0)


def moments(X: Any, y: Array, features: FourierFeatures) -> Array:
    """The exact sum of outer products of lifted records."""
    records = PublicMap(unit=False).records(X, y, LOSS.n_classes, 1)
    records.lift(features.map(), True, 1)
    return records.gram(1)


def step(X: Any, y: Array, features: FourierFeatures, *, stored: bool, threads: int = 1) -> Array:
    """Minus the noisy sum of clipped gradients at W = 0, in multiples of the grid."""
    records = PublicMap(unit=False).records(X, y, LOSS.n_classes, threads)
    records.lift(features.map(), stored, threads)
    kernel, smoothing, margin = LOSS.kernel
    descent = _core.Descent(
        loss=kernel,
        n_scores=LOSS.n_scores,
        smoothing=smoothing,
        margin=margin,
        n_features=2 * features.n_components,
        intercept=0.2,
        row_scale=1.0 / math.hypot(1.0, 0.2),
        clip=CLIP,
        sigma=SIGMA,
        grid=GRID,
        sampling_rate=1.0,
        divisor=1.0,
        regularization=0.0,
        optimizer="gd",
        learning_rate=1.0,
        schedule="constant",
        horizon=1,
        momentum=0.0,
        nesterov=False,
        beta1=0.9,
        beta2=0.999,
        stabilizer=1e-8,
        noise_correction=False,
        average_from=None,
        radius=None,
        precision="f32",
    )
    descent.run(records, _core.NoiseSource(5), 1, threads)
    steps = np.asarray(descent.weights() / GRID)
    assert np.array_equal(steps, np.rint(steps))
    return steps


def described(d: int, D: int, gamma: float, kernel: str, centre: str) -> FourierFeatures:
    structure = structure_of(kernel, d, orthogonal=True)
    return FourierFeatures(
        n_features=d,
        n_components=D,
        gamma=gamma,
        kernel=kernel,
        structure=structure,
        centre=centre,
        seed=9,
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[FourierFeatures, Array, Array, Array, int]:
    """A map, two data sets, and a record that both will get."""
    d = draw(st.sampled_from([1, 3, 7, 70]))
    features = described(
        d,
        draw(st.sampled_from([1, 5, 33])),
        10.0 ** draw(st.sampled_from([-30, -9, -3, 0, 3, 30])),
        draw(st.sampled_from(["rbf", "laplacian"])),
        draw(st.sampled_from(["none", "sphere", "ball"])),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    first, second = (rng.normal(size=(draw(st.integers(1, 300)), d)) for _ in range(2))
    record = rng.normal(size=d) * 10.0 ** draw(st.sampled_from([-300, -40, -7, 0, 300]))
    return features, first, second, record, draw(st.integers(0, 2))


@given(
    case=cases(), where=st.floats(0.0, 1.0), form=st.sampled_from([np.asarray, sparse.csr_matrix])
)
def test_a_record_has_the_same_features_wherever_it_is(
    case: tuple[FourierFeatures, Array, Array, Array, int], where: float, form: Any
) -> None:
    features, first, second, record, label = case
    found = []
    for rows in (first, second):
        y = np.arange(len(rows)) % 3
        at = round(where * len(rows))
        longer = np.insert(rows, at, record, axis=0), np.insert(y, at, label)
        found.append(moments(form(longer[0]), longer[1], features))
        found[-1] -= moments(form(rows), y, features)
    alone = moments(form(record[None]), np.array([label]), features)
    assert np.array_equal(found[0], alone)
    assert np.array_equal(found[1], alone)
    assert np.trace(alone) <= 1.0


@given(case=cases(), form=st.sampled_from([np.asarray, sparse.csr_matrix]))
def test_a_record_moves_the_gradients_by_no_more_than_is_covered(
    case: tuple[FourierFeatures, Array, Array, Array, int], form: Any
) -> None:
    features, rows, _, record, label = case
    y = np.arange(len(rows)) % 3
    expected = step(form(rows), y, features, stored=True)
    # Streamed features are the stored ones, by any number of threads.
    assert np.array_equal(step(form(rows), y, features, stored=False, threads=2), expected)
    longer = form(np.vstack([rows, record])), np.append(y, label)
    moved = GRID * np.linalg.norm(step(*longer, features, stored=False) - expected)
    assert moved <= _core.clipped_sum_distance(CLIP, expected.size, GRID) * (1.0 + 1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_the_bound_is_reached(kernel: str) -> None:
    """Power of the search: at W = 0 a gradient of three classes has norm 0.8, above the clip."""
    features = described(4, 40, 0.5, kernel, "sphere")
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(50, 4)), rng.integers(0, 3, 50)
    here = step(rows, y, features, stored=True)
    there = step(rows[:-1], y[:-1], features, stored=True)
    assert 0.999 * CLIP <= GRID * np.linalg.norm(here - there) <= CLIP * (1.0 + 1e-4)
    assert np.trace(moments(rows, y, features)) == pytest.approx(50.0, abs=1e-2)
