"""The measured process: loads X, resets its peak, fits once, prints the growth as JSON.

Run by ``benches.subjects.memory`` as ``python -m benches.subjects.memory_child JOB``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benches.config import LBFGS_TOL, LIBLINEAR_TOL
from benches.libraries import logistic_peers, ours, sklearn_liblinear


def status_bytes(field: str) -> int:
    """A size from /proc/self/status: VmRSS is what is resident, VmHWM its peak."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def peak_growth(call: Callable[[], object]) -> int:
    """Bytes by which a call's peak exceeds what was resident before it."""
    # 5 sets the peak back to what is resident now.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = status_bytes("VmRSS")
    call()
    return status_bytes("VmHWM") - before


def rows_of(folder: Path, storage: str) -> tuple[Any, int]:
    """X in the wanted storage, and its size in bytes."""

    def array(name: str) -> NDArray[Any]:
        loaded: NDArray[Any] = np.load(folder / f"{name}.npy")
        return loaded

    if not storage.startswith("csr"):
        X = array(storage)
        return X, X.nbytes
    parts = [array(name) for name in ("data", "indices", "indptr")]
    return sparse.csr_matrix(tuple(parts)), sum(part.nbytes for part in parts)


def model_for(job: dict[str, Any], n_classes: int) -> Any:
    """The estimator of a case."""
    library, C = job["library"], job["C"]
    if library == "liblinear":
        return sklearn_liblinear.classifier(C, tol=LIBLINEAR_TOL)
    if library == "lbfgs":
        return logistic_peers.classifier(1.0 / C, "lbfgs", LBFGS_TOL)
    settings = {"n_threads": job["n_threads"], "low_memory": job["low_memory"]}
    if library == "dpsvm_fast objective":
        return ours.objective_estimator(C, n_classes, **settings)
    return ours.estimator(C, n_classes, **settings)


def main(job: dict[str, Any]) -> dict[str, int]:
    """Fit once and report the peak beyond what was resident with X loaded."""
    folder = Path(job["folder"])
    X, x_bytes = rows_of(folder, job["storage"])
    y = np.load(folder / "y.npy")
    model = model_for(job, int(y.max()) + 1)
    return {"x_bytes": x_bytes, "peak_beyond_x_bytes": peak_growth(lambda: model.fit(X, y))}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
