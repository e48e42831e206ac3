"""Many parties' fits in one call: what a loop of single calls gives, on any number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import _core
from oracles.signals import POSIX, interrupted

Array = NDArray[Any]
LOSSES = (("huber", 1), ("huber", 4), ("softmax_margin", 4), ("huber_ww", 4), ("softplus", 3))


def parties(
    sizes: tuple[int, ...], d: int, n_classes: int, dtype: str = "float64"
) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
    """Rows in a few directions each, with rows that are repeated, zero or too long."""
    rng = np.random.default_rng(sum(sizes) + 10 * d)
    n = sum(sizes)
    X = rng.normal(size=(n, d)) * rng.choice([0.05, 0.2, 1.0], size=(n, 1))
    X[rng.random(n) < 0.1] = 0.0
    X[1::7] = X[0::7][: len(X[1::7])]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return X.astype(dtype), rng.integers(0, n_classes, n), offsets


def smooth_options(loss: str, n_scores: int, **changes: Any) -> dict[str, Any]:
    return {
        "loss": loss,
        "n_scores": n_scores,
        "smoothing": 0.5,
        "margin": 1.0,
        "data_norm": 1.0,
        "intercept_scaling": 0.5,
        "shuffle_seed": 5,
    } | changes


def smooth_numbers(n_parties: int, tol: float) -> dict[str, Array]:
    rng = np.random.default_rng(n_parties)
    regularizations = rng.choice([0.05, 0.5, 5.0], n_parties)
    return {"regularizations": regularizations, "gradient_tols": tol * regularizations}


def single_smooth(X: Array, y: Array, lam: float, tol: float, options: dict[str, Any]) -> Array:
    found, _ = _core.solve_smooth(
        X, y, regularization=lam, linear=None, gradient_tol=tol, max_iter=None,
        n_threads=1, low_memory=False, **options,
    )  # fmt: skip
    assert found is not None
    return found


@pytest.mark.proof("objective_perturbation", "Few rows of many entries")
@pytest.mark.parametrize(("loss", "n_scores"), LOSSES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_smooth_parties_are_certified_like_single_fits(
    loss: str, n_scores: int, dtype: str
) -> None:
    """Both are within the certified distance of one minimiser."""
    X, y, offsets = parties((5, 0, 12, 1, 30, 7), 70, max(2, n_scores), dtype)
    options, distance = smooth_options(loss, n_scores), 1e-7
    numbers = smooth_numbers(6, distance)
    weights, certified = _core.solve_smooth_parties(
        X, y, offsets, n_threads=2, **numbers, **options
    )
    assert certified.all()
    assert weights.shape == (6, n_scores, 71)
    nonzero = 0
    for i, (lam, tol) in enumerate(zip(*numbers.values(), strict=True)):
        own = slice(offsets[i], offsets[i + 1])
        single = single_smooth(X[own], y[own], lam, tol, options)
        assert np.linalg.norm(weights[i] - single) <= 2.0 * distance
        # The distance means something: the weights themselves are much larger.
        nonzero += np.linalg.norm(single) > 1e3 * distance
    assert nonzero >= 4


@pytest.mark.proof("objective_perturbation", "Few rows of many entries")
@pytest.mark.parametrize("distance", [1e-3, 1e-9])
def test_weights_are_as_close_as_certified(distance: float) -> None:
    """The gradient at the result, computed here, has the norm promised."""
    X, y, offsets = parties((20, 33), 150, 3)
    options = smooth_options("softplus", 3, intercept_scaling=0.0)
    numbers = smooth_numbers(2, distance)
    weights, certified = _core.solve_smooth_parties(
        X, y, offsets, n_threads=1, **numbers, **options
    )
    assert certified.all()
    for i, (lam, tol) in enumerate(zip(*numbers.values(), strict=True)):
        rows = X[offsets[i] : offsets[i + 1]]
        rows = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
        # As the core sees them: single precision, rounded towards zero.
        short = rows.astype(np.float32)
        rows = np.where(np.abs(short) > np.abs(rows), np.nextafter(short, np.float32(0)), short)
        sign = np.where(np.arange(3) == y[offsets[i] : offsets[i + 1], None], 1.0, -1.0)
        slope = -sign / (1.0 + np.exp((sign * (rows @ weights[i].T) - 1.0) / 0.5))
        gradient = slope.T @ rows + lam * weights[i]
        assert np.linalg.norm(gradient) <= tol * (1.0 + 1e-6) + 1e-6 * len(rows)


@pytest.mark.proof("output_perturbation", "Inexact minimiser")
@pytest.mark.parametrize("sizes", [(40,), (3, 0, 60, 11)])
def test_crammer_singer_parties_have_the_bits_of_single_fits(sizes: tuple[int, ...]) -> None:
    X, y, offsets = parties(sizes, 30, 3)
    C, radius = np.linspace(0.1, 0.5, len(sizes)), np.geomspace(1e-6, 1e-3, len(sizes))
    options = {"n_classes": 3, "data_norm": 1.0, "intercept_scaling": 0.5, "shuffle_seed": 3}
    for n_threads in (1, 2):
        weights, certified = _core.solve_crammer_singer_parties(
            X, y, offsets, C=C, radius=radius, n_threads=n_threads, **options
        )
        assert certified.all()
        for i in range(len(sizes)):
            own = slice(offsets[i], offsets[i + 1])
            single, _ = _core.solve_crammer_singer(
                X[own], y[own], C=C[i], radius=radius[i], max_iter=None,
                n_threads=1, low_memory=False, **options,
            )  # fmt: skip
            assert single is not None
            assert np.array_equal(weights[i], single)


def sgd_options(**changes: Any) -> dict[str, Any]:
    return {
        "loss": "huber",
        "n_scores": 3,
        "smoothing": 0.5,
        "margin": 1.0,
        "n_epochs": 4,
        "radius": 2.0,
        "projection": "joint",
        "average": "last",
        "data_norm": 1.0,
        "intercept_scaling": 0.5,
        "permutation_seed": 11,
    } | changes


@pytest.mark.proof("projected_sgd")
@pytest.mark.parametrize("average", ["last", "uniform"])
def test_descents_of_parties_have_the_bits_of_single_runs(average: str) -> None:
    sizes = (40, 3, 12)
    X, y, offsets = parties(sizes, 30, 3)
    lams, options = np.array([0.02, 0.5, 0.1]), sgd_options(average=average)
    for n_threads in (1, 2):
        weights = _core.projected_sgd_parties(
            X, y, offsets, regularizations=lams, batch_size=5, n_threads=n_threads, **options
        )
        for i in range(3):
            own = slice(offsets[i], offsets[i + 1])
            single, _ = _core.projected_sgd(
                X[own], y[own], regularization=lams[i], batch_size=min(5, sizes[i]),
                low_memory=False, most_rows=1, **options,
            )  # fmt: skip
            assert np.array_equal(weights[i], single)


def calls(
    X: Any, y: Any, offsets: Any, n_parties: int, n_threads: int = 1
) -> list[Callable[[], Any]]:
    """Every entry on the same input."""
    ones = np.ones(n_parties)
    singer = {"n_classes": 3, "data_norm": 1.0, "intercept_scaling": 0.5, "shuffle_seed": 3}
    return [
        lambda: _core.solve_smooth_parties(
            X, y, offsets, regularizations=ones, gradient_tols=1e-3 * ones,
            n_threads=n_threads, **smooth_options("huber", 3),
        ),
        lambda: _core.solve_crammer_singer_parties(
            X, y, offsets, C=ones, radius=1e-3 * ones, n_threads=n_threads, **singer
        ),
        lambda: _core.projected_sgd_parties(
            X, y, offsets, regularizations=ones, batch_size=2, n_threads=n_threads,
            **sgd_options(),
        ),
    ]  # fmt: skip


def test_parties_without_records() -> None:
    X, y, offsets = parties((0, 4, 0), 4, 3)
    smooth, singer, descent = calls(X, y, offsets, 3)
    for call in (smooth, singer):
        weights, certified = call()
        assert certified.all()
        assert not weights[[0, 2]].any()
        assert weights[1].any()
    with pytest.raises(ValueError, match=r"^X: "):
        descent()
    for call in calls(X[:0], y[:0], np.array([0]), 0)[:2]:
        assert call()[0].shape == (0, 3, 5)
    assert calls(X[:0], y[:0], np.array([0]), 0)[2]().shape == (0, 3, 5)


@cache
def many_parties() -> tuple[Array, Array, Array]:
    """Enough for calls that a signal finds at work."""
    return parties((25,) * 12_000, 60, 3)


@pytest.mark.sampled
@POSIX
@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals reach it only"
)
@pytest.mark.parametrize("entry", [0, 1, 2])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_signal_ends_a_call(entry: int, n_threads: int) -> None:
    X, y, offsets = many_parties()
    call = calls(X, y, offsets, 12_000, n_threads)[entry]

    assert interrupted(call, 0.2) < 20.0
