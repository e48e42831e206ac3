"""Random Fourier features: norm 1 whatever the row, the kernel they estimate, what is refused."""

from __future__ import annotations

import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from dpsvm_fast import PrivateLinearSVC, RandomFourierFeatures, _core
from dpsvm_fast.mechanisms.rows import MOST_ROTATED, FourierFeatures, structure_of
from twins.fourier import FourierMap as Twin
from twins.fourier import features_of

ALPHA = 1e-6
Array = NDArray[np.float64]
# (kernel, orthogonal, n_features) of every structure.
SHAPES = [
    ("rbf", False, 5),
    ("rbf", True, 5),
    ("rbf", True, MOST_ROTATED + 1),
    ("rbf", True, 2 * MOST_ROTATED),
    ("laplacian", True, 5),
    ("rbf", True, 1),
]
each_shape = pytest.mark.parametrize(("kernel", "orthogonal", "d"), SHAPES)


def adversarial(d: int) -> Array:
    """Rows of every size: zero, tiny, huge, of one entry, and of all signs."""
    rng = np.random.default_rng(0)
    rows = [np.zeros(d), np.full(d, 5e-324), np.full(d, -1e-30), np.ones(d), np.full(d, 1e30)]
    rows += [np.eye(d)[0] * 1e15, np.eye(d)[-1] * -1e300, np.full(d, 1e308)]
    return np.vstack([*rows, rng.normal(size=(20, d)), 1e6 * rng.normal(size=(20, d))])


@pytest.mark.proof("random_features", "The map")
@each_shape
@pytest.mark.parametrize("gamma", [1e-30, 1e-3, 1.0, 1e3, 1e30])
@pytest.mark.parametrize("centre", ["none", "sphere", "ball"])
def test_rows_have_norm_one_whatever_they_hold(
    kernel: str, orthogonal: bool, d: int, gamma: float, centre: str
) -> None:
    features = FourierFeatures(
        n_features=d,
        n_components=30,
        gamma=gamma,
        kernel=kernel,
        structure=structure_of(kernel, d, orthogonal=orthogonal),
        centre=centre,
        seed=3,
    )
    rows = adversarial(d)
    for dtype, close in ((np.float64, 1e-14), (np.float32, 1e-5)):
        given = np.clip(rows, -3e38, 3e38).astype(dtype)
        found = features.map().transform(given, 1)
        assert found.shape == (len(rows), 60)
        assert found.dtype == dtype
        norms = np.linalg.norm(found.astype(np.float64), axis=1)
        # A constant kernel without its constant part may leave nothing to be scaled.
        nothing = norms == 0.0
        assert centre != "none" or not nothing.any()
        assert np.allclose(norms[~nothing], 1.0, rtol=close)


@pytest.mark.proof("random_features", "The map")
@each_shape
@pytest.mark.parametrize("centre", ["none", "sphere", "ball"])
def test_compiled_features_are_those_of_the_twin(
    kernel: str, orthogonal: bool, d: int, centre: str
) -> None:
    settings: dict[str, Any] = {
        "n_features": d,
        "n_components": 77,
        "gamma": 0.3,
        "kernel": kernel,
        "structure": structure_of(kernel, d, orthogonal=orthogonal),
        "centre": centre,
        "seed": 11,
    }
    drawn = _core.FourierMap(**settings)
    rows = np.random.default_rng(1).normal(size=(40, d)) / math.sqrt(d)
    weights, constants = drawn.weights(), drawn.constants()
    assert weights.shape == (77, d)
    assert constants.shape == (77,)
    expected = features_of(rows, weights, constants)
    assert np.allclose(drawn.transform(rows, 2), expected, atol=1e-11)
    single = drawn.transform(rows.astype(np.float32), 1)
    # Angles of single precision: heavy-tailed frequencies are long.
    assert np.allclose(single, expected, atol=1e-5 * max(1.0, np.abs(weights).max()))
    squares = (weights**2).sum(axis=1)
    dimension = {"none": math.inf, "sphere": d, "ball": d + 2}[centre]
    wanted = 0.0 if centre == "none" else np.exp(-squares / (2.0 * dimension))
    if settings["structure"] == "fast" and d < 2 * MOST_ROTATED:
        # By the length that a row of the block of the next power of two has here on average.
        assert np.allclose(constants, wanted, atol=0.2)
    else:
        assert np.allclose(constants, wanted, rtol=1e-12, atol=1e-300)
    csr = sparse.csr_matrix(rows)
    found = drawn.transform((csr.data, csr.indices, csr.indptr, d), 2)
    assert np.allclose(found, expected, atol=1e-11)


def kernel_of(name: str, gamma: float, x: Array, z: Array) -> float:
    power = 2 if name == "rbf" else 1
    return math.exp(-gamma * float((np.abs(x - z) ** power).sum()))


@pytest.mark.statistical
@each_shape
@pytest.mark.parametrize("make", ["compiled", "twin"])
def test_inner_products_estimate_the_kernel(
    kernel: str, orthogonal: bool, d: int, make: str
) -> None:
    """The mean of cos(w_j (x - z)) over blocks that are independent of each other (Hoeffding).

    Each block's mean is in [-1, 1] and has the kernel as its expectation (for signs and Hadamard
    matrices up to a relative error of the order of 1 / d in the exponent); m blocks are off by more
    than sqrt(2 log(2 / ALPHA) / m) with probability at most ALPHA.
    """
    structure = structure_of(kernel, d, orthogonal=orthogonal)
    block = {"independent": 1, "orthogonal": d, "fast": 2 ** math.ceil(math.log2(d))}[structure]
    blocks, gamma = 2000, 0.4
    build = Twin if make == "twin" else _core.FourierMap
    drawn = build(
        n_features=d,
        n_components=blocks * block if d < MOST_ROTATED else 40 * block,
        gamma=gamma,
        kernel=kernel,
        structure=structure,
        centre="none",
        seed=5,
    )
    blocks = drawn.n_components // block
    bound = math.sqrt(2.0 * math.log(2.0 / ALPHA) / blocks)
    rng = np.random.default_rng(2)
    x, z = rng.normal(size=(2, d)) / math.sqrt(d)
    one, two = drawn.transform(np.stack([x, z]), 1)
    estimate = float(one @ two)
    assert abs(estimate - kernel_of(kernel, gamma, x, z)) <= bound
    # Negative control: a kernel that is a few times as wide is told apart.
    if blocks >= 2000:
        assert abs(estimate - kernel_of(kernel, gamma / 4.0, x, z)) > bound


def test_structure_follows_from_public_facts() -> None:
    assert structure_of("rbf", MOST_ROTATED, orthogonal=True) == "orthogonal"
    assert structure_of("rbf", MOST_ROTATED + 1, orthogonal=True) == "fast"
    assert structure_of("rbf", 3, orthogonal=False) == "independent"
    assert structure_of("laplacian", 300, orthogonal=True) == "independent"


@pytest.mark.proof("random_features", "The map")
def test_a_seed_is_public_and_gives_the_same_features_everywhere() -> None:
    X = np.random.default_rng(0).normal(size=(30, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = RandomFourierFeatures(20, random_state=7).fit(X)
    assert first.seed_ == 7
    again = RandomFourierFeatures(20, random_state=first.seed_, n_threads=2).fit(X + 1.0)
    assert np.array_equal(first.transform(X), again.transform(X))
    copied = pickle.loads(pickle.dumps(first))
    assert np.array_equal(first.transform(X), copied.transform(X))
    assert not hasattr(clone(first), "seed_")
    other = RandomFourierFeatures(20, random_state=8).fit(X)
    assert not np.array_equal(first.transform(X), other.transform(X))
    seeds = {RandomFourierFeatures(2).fit(X).seed_ for _ in range(4)}
    assert len(seeds) == 4


@pytest.mark.proof("random_features", "The map")
@pytest.mark.parametrize("d", [3, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_is_mapped_alone_to_the_last_bit(d: int, dtype: type) -> None:
    X = np.random.default_rng(0).normal(size=(700, d)).astype(dtype)
    fitted = RandomFourierFeatures(64, random_state=1, n_threads=1).fit(X)
    whole = fitted.transform(X)
    assert whole.dtype == dtype
    assert np.array_equal(whole[5:6], fitted.transform(X[5:6]))
    assert np.array_equal(whole[::-1], fitted.transform(X[::-1]))
    assert np.array_equal(whole, fitted.set_params(n_threads=4).transform(X))
    # Sparse rows are other sums: alike up to rounding, and each a function of itself.
    rows = sparse.csr_matrix(np.where(X > 0.5, X, 0.0).astype(dtype))
    found = fitted.transform(rows)
    assert found.dtype == dtype
    assert np.array_equal(found[7:9], fitted.transform(rows[7:9]))
    assert np.allclose(found, fitted.transform(rows.toarray()), atol=1e-4)


def test_it_serves_a_private_model_in_a_pipeline() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = (np.linalg.norm(X, axis=1) > 1.1).astype(int)
    features = RandomFourierFeatures(100, 0.7, random_state=0)
    svc = PrivateLinearSVC(8.0, 1e-5, classes=[0, 1])
    assert make_pipeline(features, svc).fit(X, y).score(X, y) > 0.8
    # No linear model of the rows themselves does better than the larger class.
    assert PrivateLinearSVC(8.0, 1e-5, classes=[0, 1]).fit(X, y).score(X, y) < 0.7
