"""Compiled private descent against its slow twin: every loss, optimiser, schedule and form of rows.

The noise is part of the comparison: it depends on the seed alone, so descent on zero rows shows it
and the twin replays it.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from oracles.noisy_descent import COMPILED, TWIN, Kind, Replay, kernel, noises, records_of, run

Array = NDArray[Any]

LOSSES = [
    ("m3", 2),
    ("m3", 4),
    ("huber_ww", 2),
    ("huber_ww", 4),
    ("softmax_margin", 2),
    ("softmax_margin", 3),
    ("huber", 2),
    ("huber", 4),
    ("logistic", 2),
    ("logistic", 3),
    ("softplus", 2),
    ("softplus", 3),
]
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "gd": {"learning_rate": 2.0},
    "momentum": {"momentum": 0.8},
    "nesterov": {"momentum": 0.8, "nesterov": True},
    "adam": {"optimizer": "adam", "learning_rate": 0.3, "stabilizer": 0.01},
    "adam corrected": {
        "optimizer": "adam",
        "learning_rate": 0.3,
        "stabilizer": 0.02,
        "beta2": 0.7,
        "noise_correction": True,
    },
}
SCHEDULES: list[dict[str, Any]] = [
    {"schedule": "constant"},
    {"schedule": "inverse"},
    {"schedule": "linear", "horizon": 9},
]
N, FEATURES, STEPS, SEED = 30, 5, 6, 4
SIGMA, GRID = 0.5, 2.0**-20
# One record's contribution is rounded in single precision; six steps of 30 records add up.
TOLERANCE = {"f32": 3e-4, "f64": 1e-6}


def problem(n_classes: int, centred: bool = False) -> tuple[Array, Array]:
    """Rows of norm below 1, a third of the entries zero, all multiples of 2**-12."""
    rng = np.random.default_rng(n_classes)
    y = rng.integers(0, n_classes, N)
    X = rng.normal(size=(N, FEATURES)) + 2.0 * np.eye(n_classes, FEATURES)[y]
    X *= rng.random(X.shape) > 1 / 3
    X /= 1.1 * np.linalg.norm(X, axis=1).max()
    return np.rint(X * 4096) / 4096, y


def forms(X: Array) -> list[tuple[Any, bool]]:
    """Rows as a caller can hand them over, and whether they are centred afterwards."""
    single = X.astype(np.float32)
    long = sparse.csr_matrix(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    kinds = (X, single, sparse.csr_matrix(X), sparse.csr_matrix(single), long)
    return [(rows, centred) for rows in kinds for centred in (False, True)]


def trained(kind: Kind, rows: Any, y: Array, n_classes: int, centred: bool, **options: Any) -> Any:
    records = records_of(rows, y, n_classes, kind=kind)
    if centred:
        records.centre(np.rint(np.linspace(-0.2, 0.3, FEATURES) * 2**20) / 2**20, 1)
    return run(records, STEPS, kind=kind, seed=SEED, **options)


def both(rows: Any, y: Array, n_classes: int, centred: bool, **options: Any) -> tuple[Array, Array]:
    """Weights of the compiled run and of the twin with the same noise."""
    found = trained(COMPILED, rows, y, n_classes, centred, **options).weights()
    source = None
    if options["sigma"] > 0.0:
        source = Replay(noises(SEED, STEPS, found.shape, SIGMA, options["grid"]), SIGMA)
    dense = rows.toarray() if sparse.issparse(rows) else rows
    twin = trained(TWIN, dense, y, n_classes, centred, source=source, **options)
    return found, twin.weights()


def base(loss: str, n_classes: int, sigma: float, precision: str = "f32") -> dict[str, Any]:
    # The clip acts on some records and not on others.
    plain = {"clip": 0.3, "intercept": 0.25, "row_scale": 0.75, "divisor": 7.0}
    noise = {"sigma": sigma, "regularization": 0.1, "precision": precision}
    # In double precision a grid is for weights on a lattice, which has a test of its own.
    noise["grid"] = GRID if precision == "f32" else None
    return kernel(loss, n_classes) | plain | noise


@pytest.mark.sampled(times=2)
@pytest.mark.proof("gradient_perturbation", "Clipped sums and their rounding")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("loss", "n_classes"), LOSSES)
def test_every_run_is_that_of_the_twin(loss: str, n_classes: int, optimizer: str) -> None:
    X, y = problem(n_classes)
    sigmas, precisions = itertools.cycle([SIGMA, 0.0]), itertools.cycle(["f32", "f64", "f32"])
    for schedule, (rows, centred) in itertools.product(SCHEDULES, forms(X)):
        precision = next(precisions)
        options = base(loss, n_classes, next(sigmas), precision) | OPTIMIZERS[optimizer] | schedule
        found, twin = both(rows, y, n_classes, centred, **options)
        # A centre leaves rows that are rounded, not always in the same way.
        limit = max(TOLERANCE[precision], 1e-5 if centred else 0.0)
        assert np.abs(found - twin).max() <= limit
        assert np.abs(twin).max() > 100.0 * limit


WRONG: list[dict[str, Any]] = [
    {"clip": 0.31},
    {"intercept": 0.26},
    {"row_scale": 0.8},
    {"divisor": 7.2},
    {"regularization": 0.11},
    {"smoothing": 0.55},
    {"margin": 1.1},
    {"learning_rate": 0.98},
    {"momentum": 0.77},
    {"nesterov": False},
    {"schedule": "inverse"},
    {"sigma": 0.0},
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: next(iter(w)))
def test_the_comparison_rejects_other_settings(wrong: dict[str, Any]) -> None:
    """Negative control: every setting moves the weights by more than the tolerance."""
    X, y = problem(3)
    options = base("huber", 3, SIGMA) | OPTIMIZERS["nesterov"]
    right, twin = both(X, y, 3, False, **options)
    found = trained(COMPILED, X, y, 3, False, **(options | wrong)).weights()
    assert np.abs(right - twin).max() <= TOLERANCE["f32"]
    assert np.abs(found - twin).max() > 2.0 * TOLERANCE["f32"]


@pytest.mark.parametrize("name", ["beta1", "beta2", "stabilizer", "noise_correction"])
def test_the_comparison_rejects_other_settings_of_adam(name: str) -> None:
    X, y = problem(3)
    options = base("m3", 3, SIGMA, "f64") | OPTIMIZERS["adam corrected"]
    right, twin = both(X, y, 3, False, **options)
    changed = {"beta1": 0.85, "beta2": 0.8, "stabilizer": 0.03, "noise_correction": False}[name]
    found = trained(COMPILED, X, y, 3, False, **(options | {name: changed})).weights()
    assert np.abs(right - twin).max() <= TOLERANCE["f64"]
    assert np.abs(found - twin).max() > 1e-3


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_double_precision_on_a_grid_keeps_weights_on_a_lattice(form: Any) -> None:
    """Every iterate is a multiple of learning rate * grid / divisor, near that of the twin."""
    X, y = problem(3)
    options = base("m3", 3, SIGMA) | {"precision": "f64", "divisor": 8.0, "learning_rate": 0.25}
    options["radius"] = 50.0
    found, twin = both(form(X), y, 3, False, **options)
    lattice = 0.25 * GRID / 8.0
    np.testing.assert_array_equal(np.rint(found / lattice) * lattice, found)
    # A rounding of the sum and of the weights a step.
    assert np.abs(found - twin).max() <= 4.0 * STEPS * lattice
    for name, wrong in (("learning_rate", {"divisor": 7.0}), ("radius", {"radius": None})):
        with pytest.raises(ValueError, match=name):
            trained(COMPILED, form(X), y, 3, False, **(options | wrong))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("average_from", [0, 3, STEPS - 1, STEPS])
def test_averages_are_those_of_the_twin(optimizer: str, average_from: int) -> None:
    X, y = problem(3)
    options = base("softmax_margin", 3, SIGMA) | OPTIMIZERS[optimizer]
    found, twin = both(X, y, 3, False, average_from=average_from, **options)
    np.testing.assert_allclose(found, twin, atol=TOLERANCE["f32"])
    last, _ = both(X, y, 3, False, **options)
    if average_from >= STEPS - 1:
        # One iterate is its own mean, and before the first one counts the last is the result.
        np.testing.assert_array_equal(found, last)
    else:
        assert np.abs(found - last).max() > 10.0 * TOLERANCE["f32"]


def test_averages_from_first_principles() -> None:
    """The mean of the iterates after steps 2, 3 and 4, counted from 0."""
    X, y = problem(2)
    options = base("logistic", 2, 0.0)
    records = records_of(X, y)
    path = [run(records, t, **options).weights() for t in (3, 4, 5)]
    mean = run(records, 5, average_from=2, **options).weights()
    np.testing.assert_allclose(mean, np.mean(path, axis=0), rtol=1e-12)


@pytest.mark.parametrize("radius", [0.05, 0.4, 100.0])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_radius_is_that_of_the_twin(optimizer: str, radius: float) -> None:
    X, y = problem(3)
    options = base("huber", 3, SIGMA) | OPTIMIZERS[optimizer]
    found, twin = both(X, y, 3, False, radius=radius, **options)
    np.testing.assert_allclose(found, twin, atol=TOLERANCE["f32"])
    assert np.linalg.norm(found) <= radius * (1 + 1e-12)
    free, _ = both(X, y, 3, False, **options)
    assert np.array_equal(found, free) == (radius > 10.0)


@pytest.mark.proof("gradient_perturbation", "Clipped sums and their rounding")
def test_regularisation_lies_outside_the_clip() -> None:
    """With clip near 0 only the regulariser is left: W shrinks by the factor it should."""
    X, y = problem(2)
    records = records_of(X, y)
    start = run(records, 1, **base("huber", 2, 0.0))
    before = start.weights()
    options = base("huber", 2, 0.0) | {"clip": 1e-9, "grid": None, "regularization": 0.25}
    after = run(records, 1, state=start.state(), **options).weights()
    assert np.abs(before).max() > 0.01
    np.testing.assert_allclose(after, 0.75 * before, atol=1e-7)


@pytest.mark.parametrize("average_from", [None, 2, 5])
@pytest.mark.parametrize("schedule", [s["schedule"] for s in SCHEDULES])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_state_goes_on_where_it_was_taken(
    optimizer: str, schedule: str, average_from: int | None
) -> None:
    X, y = problem(3)
    options = base("m3", 3, 0.0) | OPTIMIZERS[optimizer]
    options |= {"schedule": schedule, "average_from": average_from, "horizon": 9}
    records = records_of(X, y, 3)
    whole = run(records, 7, **options)
    first = run(records, 3, **options)
    state = first.state()
    kept = {k: np.array(v) for k, v in state.items()}
    again = run(records, 4, state=state, **options)
    np.testing.assert_array_equal(again.weights(), whole.weights())
    # The state is a copy: neither run that took it over changed it.
    first.run(records, _core.NoiseSource(0), 4, 1)
    np.testing.assert_array_equal(first.weights(), whole.weights())
    assert all(np.array_equal(kept[k], np.array(v)) for k, v in state.items())
    # Negative control: the state matters.
    assert not np.array_equal(run(records, 4, **options).weights(), whole.weights())


def test_the_data_may_change_between_runs() -> None:
    """A second run on other records, as `partial_fit` does it, is that of the twin."""
    X, y = problem(3)
    options = base("softplus", 3, 0.0)
    ends = []
    for kind in (COMPILED, TWIN):
        first = run(records_of(X[:20], y[:20], 3, kind=kind), 3, kind=kind, **options)
        first.run(records_of(X[15:], y[15:], 3, kind=kind), _core.NoiseSource(0), 3, 1)
        ends.append(first.weights())
    np.testing.assert_allclose(ends[0], ends[1], atol=TOLERANCE["f32"])
