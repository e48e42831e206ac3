"""Faults of what solvers have of their own: Ctrl-C, forks, little memory, refused certificates.

Whatever happens, the budget counts as spent once the solver was started, nothing half-fitted is
left, and the next fit works with new noise. Faults of all estimators: `test_faults_everywhere`.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone

from dpsvm_fast import PrivacyLedger, _core
from dpsvm_fast.exceptions import CertificationError
from oracles.odd_inputs import ESTIMATORS, EVENTS, every_estimator
from oracles.signals import FORKS, POSIX, in_child
from oracles.watching import fitted_names

pytestmark = pytest.mark.fresh

Data = tuple[NDArray[np.float64], NDArray[np.int64]]


def small() -> Data:
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 5)), rng.integers(0, 3, 60).astype(np.int64)


@functools.cache
def hard(n_samples: int = 60_000, n_features: int = 120) -> Data:
    """Random labels: a fit with LONG takes many seconds."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n_samples, n_features))
    X.flags.writeable = False
    return X, rng.integers(0, 8, n_samples).astype(np.int64)


LONG: dict[str, dict[str, Any]] = {
    "output": {"classes": range(8), "C": 0.1, "tol": 1e-4},
    # A hinge that is hardly rounded, with noise that does not ask for more regularisation.
    "objective": {
        "classes": range(8),
        "C": 100.0,
        "extra_regularization": 0.0,
        "loss": "m3",
        "smoothing": 1e-3,
        "noise": "gamma",
        "epsilon": 1e3,
        "tol": 1e-5,
    },
}
# Seconds of training before a signal.
DELAY = 0.15
SOLVERS = ("crammer_singer", "smooth")


def model(kind: str = "output", **settings: Any) -> Any:
    return ESTIMATORS[kind](**({"classes": range(3), "n_threads": 2} | settings))


def budget() -> PrivacyLedger:
    return PrivacyLedger(epsilon=9e3, delta=1e-4, strict=False)


@contextmanager
def at_start_of_training(action: Callable[[], None]) -> Iterator[None]:
    """Runs ``action`` when a fit calls its compiled solver."""

    def announced(solver: Any) -> Any:
        return lambda *args, **options: (action(), solver(*args, **options))[1]

    with pytest.MonkeyPatch.context() as patch:
        for name in (f"solve_{suffix}" for suffix in SOLVERS):
            patch.setattr(_core, name, announced(getattr(_core, name)))
        yield


@POSIX
@every_estimator
def test_ctrl_c_from_another_thread(estimator: str) -> None:
    """The real signal with Python's own handler."""
    fitting = model(estimator, **LONG[estimator], ledger=(ledger := budget()))
    X, y = hard()
    timer = threading.Timer(DELAY, os.kill, (os.getpid(), signal.SIGINT))
    # A shell starts its background jobs with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with at_start_of_training(timer.start), pytest.raises(KeyboardInterrupt):
            fitting.fit(X, y)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert fitted_names(fitting) == []
    assert len(ledger.history) == EVENTS[estimator]


@pytest.mark.proof("output_perturbation", "Inexact minimiser")
@pytest.mark.proof("output_perturbation", "The whole release, and what may leave with it")
@every_estimator
def test_passes_that_run_out(estimator: str) -> None:
    ledger = budget()
    fitting = model(estimator, C=10.0, max_iter=1, ledger=ledger, noise="gamma")
    X, y = small()
    with pytest.raises(CertificationError, match=r"^max_iter: "):
        fitting.fit(X, y)
    assert fitted_names(fitting) == []
    assert len(ledger.history) == EVENTS[estimator]
    fitting.set_params(max_iter=None).fit(X, y)
    assert len(ledger.history) == 2 * EVENTS[estimator]


@pytest.mark.proof("output_perturbation", "The whole release, and what may leave with it")
@every_estimator
def test_noise_is_not_reused_after_a_failure(estimator: str) -> None:
    X, y = small()
    fitting = model(estimator)
    first = fitting.fit(X, y).coef_.copy()
    with pytest.raises(CertificationError):
        fitting.set_params(max_iter=1, C=10.0).fit(X, y)
    second = fitting.set_params(max_iter=None, C="auto").fit(X, y).coef_
    # One of the 15 numbers on a grid is the same again in one of 1e7 runs.
    assert (first != second).mean() > 0.9


@every_estimator
def test_a_ledger_shared_by_fits_at_once_is_never_overdrawn(estimator: str) -> None:
    from dpsvm_fast.exceptions import BudgetExceededError

    X, y = small()
    ledger = PrivacyLedger(epsilon=5.0, delta=0.0)

    shared = model(estimator, noise="gamma", delta=0.0, epsilon=1.0, ledger=ledger)

    def fit(number: int) -> bool:
        # Half of them fit the very same object.
        try:
            (shared if number % 2 else clone(shared)).fit(X, y)
        except BudgetExceededError:
            return False
        return True

    with ThreadPoolExecutor(32) as pool:
        assert sum(pool.map(fit, range(32))) == 5
    assert len(ledger.history) == 5 * EVENTS[estimator]


def _fit_elsewhere(seed: int | None = None) -> NDArray[np.float64]:
    X, y = small()
    return np.asarray(model(random_state=seed).fit(X, y).coef_)


@FORKS
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_while_another_thread_fits() -> None:
    X, y = hard(20_000, 30)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            model(classes=range(8), C=1e-3).fit(X, y)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(3):
            time.sleep(0.05)
            answer = in_child(lambda: _fit_elsewhere().tobytes())
            assert np.frombuffer(answer).shape == (15,)
    finally:
        stop.set()
        thread.join()


@pytest.mark.proof("grid_gaussian")
def test_spawned_processes_draw_different_noise() -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        first, second = pool.map(_fit_elsewhere, [None, None], chunksize=1)
    assert (first != second).mean() > 0.9


# Few columns and many classes: not the rows but what is kept of each class and row is large.
MANY_CLASSES = """
import resource, sys
import numpy as np
from dpsvm_fast import PrivacyLedger, {estimator}
n, K = 100_000, 1000
X, y = np.ones((n, 1)), np.arange(n) % K
ledger = PrivacyLedger(epsilon=10.0, delta=1e-3)
model = {estimator}(
    epsilon=1.0, delta=1e-5, classes=range(K), data_norm=2.0, C=1e-6, ledger=ledger{more}
)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
try:
    model.fit(X, y)
except MemoryError:
    sys.stdout.write(f"MemoryError {{ledger.total()[0]}}")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS and /proc")
@pytest.mark.parametrize(
    ("estimator", "more"),
    [
        ("OutputPerturbationSVC", ""),
        pytest.param(
            *("ObjectivePerturbationSVC", ', loss="softmax_margin"'), marks=pytest.mark.slow
        ),
    ],
)
def test_numbers_of_each_row_and_class_that_do_not_fit_cost_nothing(
    estimator: str, more: str
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", MANY_CLASSES.format(estimator=estimator, more=more)],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    assert (result.returncode, result.stdout) == (0, "MemoryError 0.0"), result.stderr[-500:]
