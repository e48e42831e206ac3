"""Signals during long fits on features that are made as they are read: of kernels, of ellipsoids.

The budget counts as spent, nothing half-fitted is left, and the next fit works with new noise.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import PrivacyLedger, PrivateGaussianMarginClassifier, PrivateKernelSVC
from unit.test_faults import POSIX, fitted_names

X = np.random.default_rng(1).normal(size=(40_000, 60))
Y = np.random.default_rng(2).integers(0, 3, len(X))

SHARED: dict[str, Any] = {"classes": range(3), "data_norm": 9.0}
KERNEL = SHARED | {"kernel": "rbf", "gamma": 1.0, "n_components": 3000, "normalize": False}
LONG: dict[str, Any] = {
    "streamed kernel": PrivateKernelSVC(low_memory=True, **KERNEL),
    "stored kernel": PrivateKernelSVC(low_memory=False, **KERNEL),
    "kernel for a solver": PrivateKernelSVC(mechanism="output", **KERNEL | {"n_components": 500}),
    "ellipsoids": PrivateGaussianMarginClassifier(8.0, **SHARED),
    "ellipsoids in the cone": PrivateGaussianMarginClassifier(8.0, psd="constraint", **SHARED),
}


@POSIX
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kind", LONG)
def test_ctrl_c_ends_a_long_fit(kind: str, n_threads: int) -> None:
    """The real signal with Python's own handler, from another thread."""
    ledger = PrivacyLedger(epsilon=9e3, delta=1e-4)
    fitting = LONG[kind].set_params(ledger=None, n_threads=n_threads)
    small: tuple[Any, NDArray[np.int64]] = (X[:100, :4], Y[:100])
    # A model of an earlier fit is forgotten, too.
    fitting.fit(*small).set_params(ledger=ledger)
    due = []

    def interrupt() -> None:
        due.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.5, interrupt)
    # A shell starts its background jobs with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            fitting.fit(X, Y)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    # Promised: 200 ms of an idle machine. That it ends at all is tested here.
    assert time.monotonic() - due[0] < 5.0
    assert fitted_names(fitting) == []
    spent = len(ledger.history)
    assert spent > 0
    fitting.fit(*small)
    assert len(ledger.history) == 2 * spent
