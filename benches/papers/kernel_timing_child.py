"""One fit of MNIST in a process of its own; its argument is a job in JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline

from benches.subjects.memory_child import peak_growth
from dpsvm_fast import PrivateKernelSVC, PrivateLinearSVC, PublicImageFeatures

DELTA = 1e-5
N_THREADS = 2
BYTES_OF_A_FEATURE = 4


def main(job: Mapping[str, Any]) -> dict[str, object]:
    """Fit once and score."""
    folder = Path(job["folder"])
    X, y = np.load(folder / f"{job['storage']}.npy"), np.load(folder / "y.npy")
    common: dict[str, Any] = {
        "bounds": (0, 255),
        "classes": range(10),
        "n_threads": N_THREADS,
    }
    kernel = job["model"] == "kernel"
    model: Any
    if kernel:
        model = PrivateKernelSVC(job["epsilon"], DELTA, low_memory=job["low_memory"], **common)
    elif job["model"] == "images":
        svc = PrivateLinearSVC(job["epsilon"], DELTA, **common | {"bounds": None})
        model = make_pipeline(PublicImageFeatures((28, 28), n_threads=N_THREADS), svc)
    else:
        model = PrivateLinearSVC(job["epsilon"], DELTA, **common)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    peak = peak_growth(lambda: model.fit(X, y))
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    components = model.n_components_ if kernel else None
    X_test, y_test = np.load(folder / "X_test.npy"), np.load(folder / "y_test.npy")
    return {
        "n_samples": X.shape[0],
        "n_components": components,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "x_mb": X.nbytes / 1e6,
        "peak_beyond_x_mb": peak / 1e6,
        "features_mb": _features_mb(X.shape[0], components),
        "accuracy": float(model.score(X_test, y_test)),
    }


def _features_mb(n: int, components: int | None) -> float | None:
    """What all features of all rows would take in single precision."""
    return None if components is None else n * 2 * components * BYTES_OF_A_FEATURE / 1e6


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
