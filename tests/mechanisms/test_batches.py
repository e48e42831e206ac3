"""Many small fits in one call: the bits of as many single fits, on any number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import _core
from oracles.noisy_descent import settings
from oracles.signals import POSIX, interrupted

SCORES = {1: ("huber", "softplus"), 2: ("huber_ww", "softmax_margin"), 3: ("m3", "softmax_margin")}


def rows(n: int, d: int, n_classes: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(n + 10 * d + 100 * n_classes)
    return rng.normal(size=(n, d)) * 0.6, np.arange(n, dtype=np.int64) % n_classes


def smooth_options(loss: str, n_scores: int) -> dict[str, Any]:
    return {
        "loss": loss,
        "n_scores": n_scores,
        "smoothing": 0.5,
        "margin": 1.0,
        "regularization": 0.3,
        "data_norm": 1.0,
        "intercept_scaling": 0.5,
        "gradient_tol": 1e-8,
        "max_iter": None,
        "shuffle_seed": 5,
    }


@pytest.mark.parametrize("n_scores", SCORES)
@pytest.mark.parametrize(("n", "d"), [(0, 2), (2, 1), (7, 2), (20, 4), (300, 3)])
def test_smooth_batch_is_a_loop_of_single_fits(n: int, d: int, n_scores: int) -> None:
    X, y = rows(n, d, max(2, n_scores))
    linear = np.random.default_rng(1).normal(size=(17, n_scores, d + 1)) * 2.0
    for loss in SCORES[n_scores]:
        options = smooth_options(loss, n_scores)
        solve, many = _core.solve_smooth, _core.solve_smooth_batch
        single = [
            solve(X, y, linear=b, n_threads=1, low_memory=False, **options)[0] for b in linear
        ]
        for n_threads in (1, 2, 4):
            weights, certified = many(X, y, linear=linear, n_threads=n_threads, **options)
            assert weights.shape == linear.shape
            assert certified.all()
            assert np.array_equal(weights, np.array(single))


def test_smooth_batch_marks_what_it_could_not_certify() -> None:
    X, y = rows(20, 2, 2)
    options = {**smooth_options("huber", 1), "max_iter": 0}
    linear = np.zeros((3, 1, 3))
    linear[1] = 5.0
    weights, certified = _core.solve_smooth_batch(X, y, linear=linear, n_threads=2, **options)
    assert not certified.any()
    assert not weights.any()


def ellipsoid_options(n_classes: int, n_ellipsoids: int, psd: bool) -> dict[str, Any]:
    return {
        "loss": "softmax_margin",
        "n_classes": n_classes,
        "n_ellipsoids": n_ellipsoids,
        "smoothing": 0.5,
        "margin": 1.0,
        "regularization": 0.3,
        "data_norm": 1.0,
        "psd": psd,
        "gradient_tol": 1e-8,
        "max_iter": None,
    }


@pytest.mark.parametrize("psd", [True, False])
@pytest.mark.parametrize(
    ("n", "d", "n_classes", "each"), [(2, 1, 2, 1), (20, 2, 3, 1), (9, 3, 2, 2)]
)
def test_ellipsoid_batch_is_a_loop_of_single_fits(
    n: int, d: int, n_classes: int, each: int, psd: bool
) -> None:
    X, y = rows(n, d, n_classes)
    target = y * each
    shape = (9, n_classes * each, (d + 1) * (d + 2) // 2)
    linear = np.random.default_rng(2).normal(size=shape)
    options = ellipsoid_options(n_classes, each, psd)
    solve, many = _core.solve_gaussian_margin, _core.solve_gaussian_margin_batch
    single = [solve(X, target, linear=b, n_threads=1, **options) for b in linear]
    for n_threads in (1, 2, 4):
        matrices, distances = many(X, target, linear=linear, n_threads=n_threads, **options)
        assert np.array_equal(matrices, np.array([fit[0] for fit in single]))
        assert np.array_equal(distances, np.array([fit[1] for fit in single]))


def test_ellipsoid_batch_marks_what_it_could_not_certify() -> None:
    X, target = rows(20, 2, 2)
    options = {**ellipsoid_options(2, 1, True), "max_iter": 1}
    linear = np.random.default_rng(3).normal(size=(4, 2, 6))
    many = _core.solve_gaussian_margin_batch
    matrices, distances = many(X, target, linear=linear, n_threads=2, **options)
    assert np.isinf(distances).all()
    assert not matrices.any()


def descent(**changes: Any) -> _core.Descent:
    usual: dict[str, Any] = {
        "margin": 1.0,
        "n_features": 2,
        "intercept": 1.0,
        "clip": 0.5,
        "sigma": 0.5,
        "grid": 2.0**-30,
        "sampling_rate": 0.4,
        "divisor": 5.0,
        "regularization": 0.01,
        "learning_rate": 0.5,
        "horizon": 10,
        "beta2": 0.99,
    }
    return _core.Descent(**settings(**usual | changes))


def records(n: int, n_classes: int) -> _core.Records:
    X, y = rows(n, 2, n_classes)
    return _core.Records(
        X,
        y,
        n_classes=n_classes,
        offset=None,
        scale=None,
        low=-np.inf,
        floor=None,
        high=np.inf,
        constant=0.0,
        data_norm=2.0,
        unit=False,
        n_threads=1,
    )


DESCENTS: dict[str, dict[str, Any]] = {
    "sampled": {},
    "full batch": {"sampling_rate": 1.0},
    "three classes, Adam": {
        "loss": "softmax_margin",
        "n_scores": 3,
        "optimizer": "adam",
        "noise_correction": True,
    },
    "floating-point noise, averaged": {"grid": None, "average_from": 3},
    "last iterate": {
        "sampling_rate": 1.0,
        "precision": "f64",
        "radius": 10.0,
        "divisor": 4.0,
        "learning_rate": 0.25,
    },
}


@pytest.mark.parametrize("changes", DESCENTS.values(), ids=DESCENTS.keys())
def test_descent_batch_is_a_loop_of_single_runs(changes: dict[str, Any]) -> None:
    held = records(12, changes.get("n_scores", 2))
    source, single = _core.NoiseSource(7), []
    for _ in range(13):
        one = descent(**changes)
        one.run(held, source, 10, 1)
        single.append(one.weights())
    assert len(np.unique(np.array(single)[:, 0, 0])) == 13
    after = source.public_seed()
    for n_threads in (1, 2, 4):
        source = _core.NoiseSource(7)
        start = descent(**changes)
        many = start.run_batch(held, source, 13, 10, n_threads)
        assert np.array_equal(many, np.array(single))
        assert not start.weights().any()
        assert source.public_seed() == after


def test_descent_batch_goes_on_from_a_state() -> None:
    held, source = records(12, 2), _core.NoiseSource(8)
    start = descent()
    start.run(held, source, 4, 1)
    options = start.state()
    many = start.run_batch(held, source, 2, 3, 1)
    again = _core.NoiseSource(8)
    descent().run(held, again, 4, 1)
    for weights in many:
        one = descent(state=options)
        one.run(held, again, 3, 1)
        assert np.array_equal(one.weights(), weights)


def test_more_fits_than_streams_are_refused() -> None:
    with pytest.raises(RuntimeError, match="streams"):
        descent().run_batch(records(12, 2), _core.NoiseSource(9), 2**32 - 1, 1, 1)


def smooth_for_ever(n_threads: int) -> None:
    X, y = rows(200, 4, 3)
    linear = np.random.default_rng(4).normal(size=(400_000, 3, 5))
    options = smooth_options("softmax_margin", 3)
    _core.solve_smooth_batch(X, y, linear=linear, n_threads=n_threads, **options)


def ellipsoids_for_ever(n_threads: int) -> None:
    X, y = rows(200, 4, 3)
    linear = np.random.default_rng(4).normal(size=(200_000, 3, 15))
    options = ellipsoid_options(3, 1, True)
    _core.solve_gaussian_margin_batch(X, y, linear=linear, n_threads=n_threads, **options)


def descents_for_ever(n_threads: int) -> None:
    descent().run_batch(records(200, 2), _core.NoiseSource(1), 1_000_000, 50, n_threads)


@pytest.mark.sampled
@POSIX
@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals reach it only"
)
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("work", [smooth_for_ever, ellipsoids_for_ever, descents_for_ever])
def test_a_signal_ends_a_batch(work: Callable[[int], None], n_threads: int) -> None:
    """Each of these would take the better part of a minute."""
    assert interrupted(lambda: work(n_threads), 0.3) < 10.0
