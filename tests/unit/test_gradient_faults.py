"""Faults during a fit of GradientPerturbationSVC, and what a fitted one holds.

Whatever happens, the budget counts as spent once the first step may have been taken, nothing
half-fitted is left, and the next fit works with new noise.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import BudgetExceededError, GradientPerturbationSVC, PrivacyLedger
from oracles.watching import fitted_names
from unit.test_faults import in_child
from unit.test_released_attributes import RELEASED, arrays_in

POSIX = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX signals")
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
OPTIMIZERS = ("gd", "sgd", "adam")
TrainingSet = tuple[NDArray[np.float64], NDArray[np.int64]]


def model(**settings: Any) -> GradientPerturbationSVC:
    return GradientPerturbationSVC(**({"classes": range(3), "n_threads": 2} | settings))


def large() -> TrainingSet:
    rng = np.random.default_rng(1)
    return rng.normal(size=(20_000, 50)), rng.integers(0, 3, 20_000)


@POSIX
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_ctrl_c_ends_a_long_fit(optimizer: str, clusters: TrainingSet) -> None:
    """The real signal with Python's own handler, from another thread."""
    ledger = PrivacyLedger(epsilon=9.0, delta=1e-4)
    settings = {"n_steps": 10**6, "sampling_rate": 1.0, "ledger": ledger, "learning_rate": 1e-9}
    fitting = model(optimizer=optimizer, **settings)
    X, y = large()
    due = []

    def interrupt() -> None:
        due.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.4, interrupt)
    # A shell starts its background jobs with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            fitting.fit(X, y)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    # Promised: 200 ms of an idle machine. That it ends at all is tested here.
    assert time.monotonic() - due[0] < 5.0
    assert fitted_names(fitting) == []
    assert "_continuation" not in vars(fitting)
    assert len(ledger.history) == 1
    fitting.set_params(n_steps=5).fit(*clusters)
    assert len(ledger.history) == 2


def test_a_ledger_shared_by_fits_at_once_is_never_overdrawn(clusters: TrainingSet) -> None:
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-6)

    def fit(number: int) -> bool:
        fitting = model(epsilon=1.0, ledger=ledger, n_steps=5)
        try:
            (fitting.fit if number % 2 else fitting.partial_fit)(*clusters)
        except BudgetExceededError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        fits = sum(pool.map(fit, range(16)))
    # Gaussian mechanisms: mu grows with the root of their number, so 3 fit and 5 do not.
    assert 3 <= fits <= 4
    assert len(ledger.history) == fits
    assert ledger.total()[0] <= 2.0 * (1.0 + 1e-9)


def test_many_calls_on_one_estimator_at_once(clusters: TrainingSet) -> None:
    """Calls may overtake each other; every state that is left is a whole one."""
    ledger = PrivacyLedger(epsilon=100.0, delta=1e-4)
    one = model(ledger=ledger, n_steps=5)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: one.partial_fit(*clusters), range(24)))
    assert len(ledger.history) == 24
    assert np.isfinite(one.coef_).all()
    assert len(one.privacy_.parts) == vars(one)["_continuation"].n_calls
    one.partial_fit(*clusters)


@FORKS
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fits_in_forked_children() -> None:
    X, y = large()
    parent = model(n_steps=5).fit(X, y).coef_  # the thread pool exists before the fork
    work = lambda: model(n_steps=5).fit(X, y).coef_.tobytes()  # noqa: E731
    children = [np.frombuffer(in_child(work)).reshape(parent.shape) for _ in range(2)]
    assert (children[0] != children[1]).all()
    assert (children[0] != parent).all()


@seeded
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
def test_everything_that_is_kept_moves_with_the_noise(
    optimizer: str, noise_grid: str, clusters: TrainingSet
) -> None:
    """A tiny budget: an array with a trace of sums without noise would not change."""
    found: list[dict[str, NDArray[Any]]] = [{}, {}]
    for seed in (0, 1):
        estimator = model(
            epsilon=0.01, random_state=seed, optimizer=optimizer, noise_grid=noise_grid
        ).fit(*clusters)
        parameters = set(estimator.get_params())
        assert set(vars(estimator)) - parameters <= {*RELEASED, "_continuation"}
        arrays_in(pickle.loads(pickle.dumps(estimator)), "", found[seed])
    # Labels are public, and moments that are not in use are empty or 0.
    names = {name for name in found[0] if found[0][name].dtype.kind == "f" and found[0][name].any()}
    assert {".coef_", ".intercept_"} < names
    assert any("_continuation" in name for name in names)
    for name in names:
        assert (found[0][name] != found[1][name]).all(), name


def test_the_statement_does_not_depend_on_the_data(clusters: TrainingSet) -> None:
    X, y = clusters
    for optimizer in OPTIMIZERS:
        here, there = (
            model(optimizer=optimizer).fit(*data).privacy_
            for data in ((X, y), (X[:7] * 100, y[:7]))
        )
        assert here.to_json() == there.to_json()


@seeded
def test_equal_data_give_equal_continuations(clusters: TrainingSet) -> None:
    """Negative control of the test above: with one seed the whole pickle is the same."""
    first, second = (model(random_state=5, n_threads=n).fit(*clusters) for n in (1, 1))
    assert pickle.dumps(vars(first)["_continuation"]) == pickle.dumps(vars(second)["_continuation"])
