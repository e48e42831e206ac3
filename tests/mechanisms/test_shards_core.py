"""The compiled sums of shards: they merge to those of the whole, bit for bit."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from oracles.noisy_descent import kernel, records_of, settings

Array = NDArray[Any]
KEY = bytes(range(32))
N, D, CLASSES = 260, 11, 3


def table(form: Any = np.asarray) -> tuple[Any, Array]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.6)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    return form(X), rng.integers(0, CLASSES, size=N)


def centred(records: Any) -> Any:
    records.centre(np.linspace(-0.2, 0.3, D), 1)
    return records


def whitened(records: Any) -> Any:
    rng = np.random.default_rng(1)
    records.transform(np.eye(D) + 0.1 * rng.normal(size=(D, D)), 1)
    return records


CHANGES = {
    "as they are": lambda records: records,
    "centred": centred,
    "whitened": whitened,
    "centred and whitened": lambda records: whitened(centred(records)),
}
FORMS = {"dense": np.asarray, "sparse": sparse.csr_matrix}


def cuts(shards: int) -> list[tuple[int, int]]:
    """Shards of unequal sizes; the second of seven is empty."""
    rng = np.random.default_rng(shards)
    inner = np.sort(rng.integers(1, N, size=shards - 1))
    if shards == 7:
        inner[1] = inner[0]
    ends = [0, *inner.tolist(), N]
    return list(itertools.pairwise(ends))


def split(shards: int, form: str, change: str) -> list[Any]:
    X, y = table(FORMS[form])
    parts = cuts(shards)
    return [CHANGES[change](records_of(X[a:b], y[a:b], CLASSES)) for a, b in parts]


def descent(**changes: Any) -> Any:
    """A noisy descent on three classes."""
    plain = settings(
        **kernel("softmax_margin", CLASSES),
        n_features=D,
        intercept=0.3,
        row_scale=0.9,
        clip=0.4,
        sigma=1.5,
        grid=2.0**-36,
        divisor=8.0,
        regularization=0.01,
        learning_rate=0.5,
    )
    return _core.Descent(**(plain | changes))


@pytest.mark.proof("gradient_perturbation", "Clipped sums and their rounding")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_tasks_that_run_again_give_the_same_numbers(form: str, rate: float) -> None:
    (records,) = split(1, form, "as they are")
    weights = np.full((CLASSES, D + 1), 0.1)
    one, other = descent(sampling_rate=rate), descent(sampling_rate=rate)
    other.run(records, _core.NoiseSource(0), 2, 1)  # Its own state does not matter.
    first = one.partial(records, weights, KEY, 3, 8, 1)
    assert (first == other.partial(records, weights, KEY, 3, 8, 2)).all()
    assert (first != 0).any()
    for shard, step, key in ((4, 8, KEY), (3, 9, KEY), (3, 8, KEY[::-1])):
        changed = one.partial(records, weights, key, shard, step, 1)
        assert (changed == first).all() == (rate == 1.0)
    assert (one.iterate() == 0).all()


@pytest.mark.proof("gradient_perturbation", "Clipped sums and their rounding")
def test_batches_of_two_shards_meet_by_chance_alone() -> None:
    """Rows are unit vectors: the sum shows who joined. Control: a shard with itself."""
    n, rate = 1200, 0.3
    rows = sparse.identity(n, format="csr") * (1.0 - 2.0**-20)
    records = records_of(rows, np.ones(n))
    one = _core.Descent(**settings(n_features=n, clip=10.0, sampling_rate=rate))

    def joined(shard: int, step: int) -> Array:
        found = one.partial(records, np.zeros((1, n)), KEY, shard, step, 1)
        return np.asarray((found != 0).any(axis=0)[0])

    def excess(a: Array, b: Array) -> float:
        both = n * rate**2
        return float(((a & b).sum() - both) / np.sqrt(both * (1 - rate**2)))

    pairs = [((0, 0), (1, 0)), ((0, 0), (0, 1)), ((2, 5), (5, 2)), ((7, 1), (1, 7))]
    for first, second in pairs:
        # Binomial(1200, 0.09), 108 on average: beyond 5.5 standard deviations with probability
        # below 2e-7 (exact tails), four times.
        assert abs(excess(joined(*first), joined(*second))) < 5.5
    assert excess(joined(0, 0), joined(0, 0)) > 15


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_record_that_shifts_all_shards_moves_the_sum_by_its_own_contribution(
    form: str, change: str
) -> None:
    """Inserted in front of all others: every shard of fixed length changes."""
    X, y = table()
    one, weights = descent(), np.full((CLASSES, D + 1), 0.2) * np.arange(3)[:, None]

    def units(first: int) -> Array:
        total = np.zeros((2, CLASSES, D + 1), dtype=np.int64)
        for shard, at in enumerate(range(first, N, 37)):
            rows = slice(at, min(at + 37, N))
            part = records_of(FORMS[form](X[rows]), y[rows], CLASSES)
            total += one.partial(CHANGES[change](part), weights, KEY, shard, 0, 1)
        return total[0].astype(object) * 2**32 + total[1]

    alone = CHANGES[change](records_of(FORMS[form](X[:1]), y[:1], CLASSES))
    high, low = one.partial(alone, weights, KEY, 0, 0, 1)
    own = high.astype(object) * 2**32 + low
    moved = units(0) - units(1)
    assert (moved == own).all()
    # The clip, 0.4, in units of 2^-20 of the coefficients' grid 2^-21.
    square = sum(int(u) ** 2 for u in own.ravel())
    assert 0 < square <= (0.4 * 2**41) ** 2


def test_empty_shards_and_empty_batches_add_nothing() -> None:
    for form in FORMS.values():
        X, y = table(form)
        empty = records_of(X[:0], y[:0], CLASSES)
        assert empty.n_rows == 0
        assert records_of(X, y, CLASSES).n_rows == N
        assert (empty.gram_parts(1) == 0).all()
        assert (empty.sums(1) == 0).all()
        weights = np.full((CLASSES, D + 1), 0.1)
        for rate in (1.0, 0.5):
            one = descent(sampling_rate=rate)
            assert (one.partial(empty, weights, KEY, 0, 0, 1) == 0).all()
        rare = descent(sampling_rate=1e-12)
        found = rare.partial(records_of(X, y, CLASSES), weights, KEY, 0, 0, 1)
        assert found.shape == (2, CLASSES, D + 1)
        assert (found == 0).all()


def test_a_step_without_records_is_noise() -> None:
    one = descent(regularization=0.0)
    _core.ShardedRun(one, _core.NoiseSource(5), 1).advance(
        np.zeros((2, CLASSES, D + 1), dtype=np.int64)
    )
    assert (one.weights() != 0).all()


def refused(what: str) -> Any:
    return pytest.raises((ValueError, TypeError), match=what)


@pytest.mark.proof("gradient_perturbation", "Clipped sums and their rounding")
def test_no_noise_is_used_twice() -> None:
    one = descent()
    source = _core.NoiseSource(3)
    driver, another = _core.ShardedRun(one, source, 1), _core.ShardedRun(one, source, 1)
    assert driver.key == driver.key != another.key
    assert len(driver.key) == 32
    zero = np.zeros((2, CLASSES, D + 1), dtype=np.int64)
    driver.advance(zero)
    with pytest.raises(RuntimeError, match="all 1 steps"):
        driver.advance(zero)
    first = one.weights()
    another.advance(zero)
    assert (one.weights() - first != first).all()
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="neither copied nor pickled"):
            way(driver)


def test_settings_that_no_step_could_use_are_refused_at_once() -> None:
    odd = descent(precision="f64", radius=10.0, learning_rate=0.3)
    with refused("learning_rate"):
        _core.ShardedRun(odd, _core.NoiseSource(0), 1)
