"""Faults during a fit of every estimator and transformer: signals, forks, pickles, executors.

Whatever happens, the budget counts as spent once noise may have been drawn, nothing half-fitted is
left, and the next fit works with new noise. What solvers have of their own: `test_faults`.
"""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from estimators.test_faults import LONG as OF_SOLVERS
from estimators.test_faults import at_start_of_training
from oracles.odd_inputs import X, Y
from oracles.signals import FORKS, POSIX, in_child
from oracles.subjects import PRIVATE, every_private, every_subject, made, outputs, released, spent
from oracles.watching import fitted_names

pytestmark = pytest.mark.fresh

RNG = np.random.default_rng(1)


class Ended(BaseException):
    """Raised by the handler of a signal."""


def rows(n: int, d: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    return RNG.uniform(-2.0, 2.0, (n, d)), RNG.integers(0, 3, n)


FEATURES = {"data_norm": 9.0, "gamma": 1.0, "n_components": 3000}
# Fits that take seconds, of rows that do not fill the memory: recipe, settings and shape. Sparse
# rows where the name says so.
LONG: dict[str, tuple[str, dict[str, Any], tuple[int, int]]] = {
    f"{name}{form}, low memory {low}": (name, settings | {"low_memory": low}, (60_000, 120))
    for name, settings in OF_SOLVERS.items()
    for form in ("", " of sparse rows")
    for low in (False, True)
} | {
    "psgd": ("psgd", {"n_epochs": 2000}, (20_000, 60)),
    "linear": ("linear", {}, (60_000, 150)),
    "linear whitened": ("linear whitened", {}, (60_000, 150)),
    "linear output": ("linear output", {}, (120_000, 150)),
    "gradient": ("gradient", {"n_steps": 20_000, "learning_rate": 1e-9}, (20_000, 50)),
    "gradient adam": ("gradient adam", {"n_steps": 20_000, "sampling_rate": 0.5}, (20_000, 60)),
    "whitener": ("whitener", {}, (20_000, 1200)),
    "pca": ("pca", {}, (20_000, 1200)),
    # Features that are made as they are read.
    "streamed kernel": ("kernel with norms", FEATURES | {"low_memory": True}, (40_000, 60)),
    "stored kernel": ("kernel with norms", FEATURES | {"low_memory": False}, (40_000, 60)),
    "kernel output": ("kernel output", {"n_components": 500}, (40_000, 60)),
    "ellipsoids": ("ellipsoids", {"epsilon": 8.0, "data_norm": 9.0}, (40_000, 60)),
    "cone": ("ellipsoids in the cone", {"epsilon": 8.0, "data_norm": 9.0}, (40_000, 60)),
}


# Python handles all signals in one place: another one is sent to one fit by day, to all by night.
SIGNALS = [("SIGTERM", fit) for fit in LONG] + [
    pytest.param("SIGINT", fit, marks=() if fit == "psgd" else pytest.mark.nightly) for fit in LONG
]


@pytest.mark.sampled(every=3)
@POSIX
@pytest.mark.parametrize(("which", "fit"), SIGNALS)
def test_a_signal_ends_a_long_fit(fit: str, which: str, request: Any) -> None:
    subject, settings, shape = LONG[fit]
    fitting = made(subject, **settings | {"n_threads": 2}).fit(X, Y)
    before = spent(fitting)
    data: Any
    data, labels = rows(*shape)
    if "sparse" in fit:
        data = sparse.csr_matrix(data)
    due: list[float] = []

    def handler(*_: Any) -> None:
        due.append(time.process_time())
        raise Ended

    def send(*_: Any) -> None:
        signal.raise_signal(getattr(signal, which))

    number = getattr(signal, which)
    old = signal.signal(number, handler)
    old_timer = signal.signal(signal.SIGPROF, send)

    def set_timer() -> None:
        # Time of the processor, so that a busy machine does not end the fit before it began.
        signal.setitimer(signal.ITIMER_PROF, 0.2)

    solves = subject in OF_SOLVERS
    try:
        start = time.process_time()
        if not solves:
            set_timer()
        with at_start_of_training(set_timer), pytest.raises(Ended):
            fitting.fit(data, labels)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, old_timer)
        signal.signal(number, old)
    late = time.process_time() - due[0]
    request.node.user_properties.append(("seconds_after_the_handler", late))
    assert time.process_time() - start < 20.0
    # Promised: 200 ms of an idle machine. That it ends at all is tested here.
    assert late < 5.0
    assert fitted_names(fitting) == []
    # Solvers are interrupted once they run: the budget is spent by then.
    assert spent(fitting) in ((2 * before,) if solves else (before, 2 * before))
    fitting.fit(X, Y)
    assert fitted_names(fitting) != []


@every_private
def test_copies_carry_no_noise(subject: str, tmp_path: Path) -> None:
    original = made(subject).fit(X, Y)
    each = spent(original)
    joblib.dump(original, tmp_path / "model.joblib")
    twins = (
        pickle.loads(pickle.dumps(original)),
        copy.deepcopy(original),
        joblib.load(tmp_path / "model.joblib"),
    )
    for twin in twins:
        for name, value in (released(original) | outputs(original, X)).items():
            np.testing.assert_array_equal((released(twin) | outputs(twin, X))[name], value)
        assert twin.privacy_ == original.privacy_
        assert twin.ledger is original.ledger
    found = [released(twin.fit(X, Y)) for twin in (original, *twins)]
    for i, first in enumerate(found):
        for second in found[:i]:
            assert any((first[name] != second[name]).any() for name in first)
    assert spent(original) == 5 * each > 0
    assert b"NoiseSource" not in pickle.dumps(original)


@every_subject
def test_damaged_pickles_are_exceptions(subject: str) -> None:
    whole = pickle.dumps(
        made(subject, **({"ledger": None} if subject in PRIVATE else {})).fit(X, Y)
    )
    for end in range(1, len(whole) - 1, max(1, len(whole) // 40)):
        with pytest.raises((pickle.UnpicklingError, EOFError, ValueError, AttributeError)):
            pickle.loads(whole[:end])


@pytest.mark.proof("grid_gaussian")
@FORKS
@every_private
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_children_of_a_fork_draw_their_own_noise(subject: str) -> None:
    """After a fit, as of servers that load a model before they fork; no pool is waited for."""
    data = rows(3000, 20 if subject != "ellipsoids" else 8)
    settings = {"n_threads": 2}
    parent = released(made(subject, **settings).fit(*data))

    def work() -> bytes:
        fitted = made(subject, **settings).fit(*data)
        return b"".join(np.ravel(v).astype(float).tobytes() for v in released(fitted).values())

    whole = b"".join(np.ravel(v).astype(float).tobytes() for v in parent.values())
    children = [in_child(work)[: 8 * 2000] for _ in range(2)]
    assert all(len(child) == len(whole[: 8 * 2000]) for child in children)
    assert len({whole[: 8 * 2000], *children}) == 3


def _fit_elsewhere(subject: str) -> dict[str, NDArray[np.float64]]:
    return released(made(subject).fit(X, Y))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver", "loky"])
def test_other_processes_draw_their_own_noise(method: str) -> None:
    jobs = [name for name in PRIVATE for _ in range(2)]
    if method == "loky":
        parallel = joblib.Parallel(n_jobs=2, backend="loky")
        found = parallel(joblib.delayed(_fit_elsewhere)(name) for name in jobs)
    else:
        with multiprocessing.get_context(method).Pool(2) as pool:
            found = pool.map(_fit_elsewhere, jobs, chunksize=1)
    for first, second in zip(found[::2], found[1::2], strict=True):
        assert any((first[name] != second[name]).any() for name in first)


@every_private
def test_32_fits_at_once(subject: str) -> None:
    """On one estimator, and on 16: all are charged, and no two releases are equal."""
    one = made(subject)
    each = spent(made(subject).fit(X, Y))
    others = [made(subject, ledger=one.ledger) for _ in range(16)]
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda estimator: estimator.fit(X, Y), [one] * 16 + others))
    assert spent(one) == 32 * each
    assert all(np.isfinite(value).all() for value in released(one).values())
    outputs(one, X)
    largest = max(released(one), key=lambda name: released(one)[name].size)
    assert len({released(other)[largest].tobytes() for other in others}) == 16


@every_private
def test_fits_in_an_event_loop(subject: str) -> None:
    """A task that is cancelled does not stop its thread: the fit ends, and is paid for."""

    async def both() -> Any:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as pool:
            fitted = await loop.run_in_executor(pool, made(subject).fit, X, Y)
            other = made(subject)
            waiting = asyncio.ensure_future(loop.run_in_executor(pool, other.fit, X, Y))
            await asyncio.sleep(0)
            waiting.cancel()
        return fitted, other

    fitted, other = asyncio.run(both())
    assert spent(fitted) > 0
    assert (spent(other) > 0) == (fitted_names(other) != [])
