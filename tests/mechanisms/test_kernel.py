"""Kernels: the rule that chooses one, random features, and how far a record moves their sums."""

from __future__ import annotations

import dataclasses
import math
import pickle
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from dpsvm_fast import PrivateLinearSVC, RandomFourierFeatures, _core
from dpsvm_fast.accounting import composed_delta
from dpsvm_fast.certificates import GaussianEvent, PureEvent
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.pipeline import NoisyCount, PrivateKernel, PrivateLinear
from dpsvm_fast.mechanisms.rows import MAX_ROTATED, FourierFeatures, PublicMap, structure_of
from oracles.noisy_descent import settings
from oracles.plans import plan_of
from twins.fourier import FourierMap as Twin
from twins.fourier import features_of

RELATIONS = ("add_remove", "replace_one")
LOSS = Loss(name="softmax_margin", n_classes=4, margin=0.0)
HUBER = Loss(name="huber", n_classes=2, smoothing=0.5, margin=1.0)


BASE: dict[str, Any] = {"loss": LOSS, "delta": 1e-5, "n_features": 10}
linear, plan = partial(plan_of, PrivateLinear, **BASE), partial(plan_of, PrivateKernel, **BASE)


def pure(**changes: Any) -> PrivateKernel:
    given = {"epsilon": 0.1, "delta": 0.0, "trainer": "objective", "loss": HUBER, "n_features": 5}
    return plan(**given | {"n_components": 100} | changes)


def test_a_named_kernel_is_taken_whatever_the_count() -> None:
    for kernel in ("rbf", "laplacian", "linear"):
        assert plan(kernel=kernel).choice(3.0).kernel == kernel
    # Where nearly orthogonal rows have the same kernel, by the law of large numbers.
    one, two = (plan(kernel=k, whiten=False).choice(1e5).gamma for k in ("rbf", "laplacian"))
    assert one is not None
    assert two == pytest.approx(one * math.sqrt(math.pi / 10))
    assert plan(kernel="rbf", gamma=3.5).choice(2.0).gamma == 3.5


@pytest.mark.proof("random_features", "The rule and its budget")
@pytest.mark.parametrize("count", [2.0, 300.0, 1e6])
@pytest.mark.parametrize("whiten", ["auto", True, False])
def test_a_linear_choice_is_the_linear_pipeline(count: float, whiten: Any) -> None:
    here = plan(kernel="linear", whiten=whiten).training(count)
    there = linear(whiten=whiten).training(count)
    assert here == there
    assert plan(kernel="linear").events == linear().events


@pytest.mark.proof("random_features", "The rule and its budget")
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("kernel", ["auto", "rbf", "linear"])
@pytest.mark.parametrize("count", [3.0, 2e3, 1e6])
def test_the_squares_add_up_on_every_path(
    adjacency: str, normalize: bool, kernel: str, count: float
) -> None:
    mechanism = plan(adjacency=adjacency, normalize=normalize, centred=normalize, kernel=kernel)
    budget = math.fsum(e.mu**2 for e in mechanism.events if isinstance(e, GaussianEvent))
    assert budget <= mechanism.mu**2 * (1.0 + 1e-12)
    events = mechanism.training(count).events
    spent = math.fsum(e.mu**2 for e in events if isinstance(e, GaussianEvent))
    assert spent == pytest.approx(budget, rel=1e-9)
    assert composed_delta(events, 1.0) <= 1e-5 * (1.0 + 1e-9)
    names = [part.name for part in mechanism.training(count).sums]
    assert ("centre" in names) == normalize
    assert ("count" in names) == (not normalize and adjacency == "add_remove")
    assert names[-1] == "training"


@pytest.mark.proof("random_features", "The rule and its budget")
def test_the_count_costs_what_it_says() -> None:
    mechanism = plan(centred=False, normalize=False)
    assert mechanism.count is not None
    event = mechanism.count.event
    assert isinstance(event, GaussianEvent)
    assert event.sensitivity == 1.0
    assert event.mu**2 == pytest.approx(0.02 * mechanism.mu**2, rel=1e-9)
    alone = pure(centred=False, normalize=False)
    assert alone.events[0] == PureEvent(0.02 * 0.1, "add_remove")
    # So large a noise has a grid coarser than whole numbers, and rounding costs.
    coarse = NoisyCount(noise_grid="exact", mu=1e-13).sum
    assert coarse.grid is not None
    assert coarse.grid > 1.0
    assert coarse.rounding >= coarse.grid
    # A larger one would have more steps than are drawn exactly.
    with pytest.raises(InvalidParameterError, match=r"^epsilon: the Gaussian parameter of"):
        _ = NoisyCount(noise_grid="exact", mu=1e-16).sum


@pytest.mark.proof("random_features", "The rule and its budget")
def test_nothing_is_released_that_no_choice_needs() -> None:
    free = {"centred": False, "normalize": False}
    assert pure(**free, kernel="linear").count is None
    assert pure(**free, kernel="rbf", gamma=1.0).count is None
    assert pure(**free, kernel="rbf").count is not None
    assert pure(**free, kernel="auto", gamma=1.0).count is not None
    assert pure(**free, adjacency="replace_one").count is None
    # The descent needs one whatever the kernel is.
    assert plan(**free, kernel="linear").count is not None
    assert plan().count is None


@pytest.mark.proof("random_features", "The rule and its budget")
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("centred", [True, False])
def test_pure_paths_cost_the_same(adjacency: str, centred: bool) -> None:
    """Epsilons add up whatever the law of the second release is, if its epsilon is fixed."""
    mechanism = pure(adjacency=adjacency, centred=centred, normalize=centred)
    linear, lifted = mechanism.training(2.0), mechanism.training(1e9)
    assert mechanism.choice(2.0).kernel == "linear"
    assert mechanism.choice(1e9).kernel == "rbf"
    assert linear.events == lifted.events == mechanism.events
    total = math.fsum(e.epsilon for e in mechanism.events if isinstance(e, PureEvent))
    assert 0.09999 <= total <= 0.1
    assert lifted.solver is not None
    assert lifted.solver.n_features == 200


@pytest.mark.proof("random_features", "The rule and its budget")
def test_gaussian_noise_in_the_objective_has_one_path() -> None:
    """Two laws with the same epsilon and delta differ elsewhere: no released number may choose."""
    shape = {"trainer": "objective", "loss": HUBER}
    with pytest.raises(InvalidParameterError, match=r"^kernel: got .auto."):
        plan(**shape)
    mechanism = plan(**shape, kernel="rbf", n_components=20, whiten=False)
    assert mechanism.training(50.0).events == mechanism.training(1e6).events == mechanism.events
    plain = linear(**shape, whiten=False)
    assert plan(**shape, kernel="linear", whiten=False).events == plain.events


@pytest.mark.proof("random_features", "The rule and its budget")
@pytest.mark.parametrize("count", [2.0, 1e5])
def test_noise_on_the_weights_fits_what_is_left(count: float) -> None:
    loss = Loss(name="crammer_singer", n_classes=4, margin=1.0)
    mechanism = plan(trainer="output", loss=loss)
    assert composed_delta(mechanism.training(count).events, 1.0) <= 1e-5 * (1.0 + 1e-9)
    assert composed_delta(mechanism.events, 1.0) <= 1e-5 * (1.0 + 1e-9)


def test_features_are_described_by_public_numbers() -> None:
    mechanism = plan(n_features=70)
    choice = mechanism.choice(1e6)
    features = mechanism.features(choice, 5)
    assert features is not None
    assert features == dataclasses.replace(features)
    assert (features.structure, features.centre, features.seed) == ("fast", "sphere", 5)
    assert (features.n_features, features.n_components) == (70, 1000)
    ball = plan(normalize=False, centred=False, orthogonal=False).features(choice, 5)
    assert ball is not None
    assert (ball.structure, ball.centre) == ("independent", "ball")
    assert mechanism.features(plan(kernel="linear").choice(1e6), 5) is None
    assert "kernel auto" in mechanism.summary()


Array = NDArray[Any]
CLIP, GRID, SIGMA = 0.25, 2.0**-33, 2.0**-12
THREE_CLASSES = Loss(name="softmax_margin", n_classes=3, margin=0.0)


def moments(X: Any, y: Array, features: FourierFeatures) -> Array:
    """The exact sum of outer products of lifted records."""
    records = PublicMap(unit=False).records(X, y, THREE_CLASSES.n_classes, 1)
    records.lift(features.map(), True, 1)
    return records.gram(1)


def step(X: Any, y: Array, features: FourierFeatures, *, stored: bool, threads: int = 1) -> Array:
    """Minus the noisy sum of clipped gradients at W = 0, in multiples of the grid."""
    records = PublicMap(unit=False).records(X, y, THREE_CLASSES.n_classes, threads)
    records.lift(features.map(), stored, threads)
    descent = _core.Descent(
        **settings(
            **THREE_CLASSES.compiled,
            n_features=2 * features.n_components,
            intercept=0.2,
            row_scale=1.0 / math.hypot(1.0, 0.2),
            clip=CLIP,
            sigma=SIGMA,
            grid=GRID,
            horizon=1,
        )
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


ALPHA = 1e-6
# (kernel, orthogonal, n_features) of every structure.
SHAPES = [
    ("rbf", False, 5),
    ("rbf", True, 5),
    ("rbf", True, MAX_ROTATED + 1),
    ("rbf", True, 2 * MAX_ROTATED),
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
    if settings["structure"] == "fast" and d < 2 * MAX_ROTATED:
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


@pytest.mark.sampled
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
        n_components=blocks * block if d < MAX_ROTATED else 40 * block,
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
    assert structure_of("rbf", MAX_ROTATED, orthogonal=True) == "orthogonal"
    assert structure_of("rbf", MAX_ROTATED + 1, orthogonal=True) == "fast"
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
