"""Peak memory of a fit beyond X, each case in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benches.config import MEMORY_ALLOWANCE, MEMORY_C, MEMORY_FACTOR, Plan
from benches.datasets import available
from benches.tables import Row, as_rows

ROOT = Path(__file__).resolve().parents[2]

# (library, storage of X, low_memory)
CASES: tuple[tuple[str, str, bool], ...] = (
    ("dpsvm_fast", "dense f64", False),
    ("dpsvm_fast", "dense f32", False),
    ("dpsvm_fast", "csr f64", False),
    ("dpsvm_fast", "dense f64", True),
    ("dpsvm_fast", "dense f32", True),
    ("dpsvm_fast", "csr f64", True),
    ("dpsvm_fast objective", "dense f64", False),
    ("dpsvm_fast objective", "dense f32", False),
    ("dpsvm_fast objective", "csr f64", False),
    ("dpsvm_fast objective", "dense f64", True),
    ("dpsvm_fast objective", "csr f64", True),
    ("liblinear", "dense f64", False),
    ("lbfgs", "dense f64", False),
    ("lbfgs", "csr f64", False),
)


def run(plan: Plan) -> list[Row]:
    """One row a case; nothing where the system tells no peak."""
    if not Path("/proc/self/clear_refs").exists():
        print("SKIPPED memory: needs Linux's /proc to reset and read the peak")
        return []
    records: list[dict[str, object]] = []
    for name, X, y in available(plan):
        with tempfile.TemporaryDirectory() as folder:
            _store(Path(folder), X, y)
            for library, storage, low_memory in CASES:
                job = {
                    "folder": folder,
                    "library": library,
                    "storage": storage,
                    "low_memory": low_memory,
                    "C": MEMORY_C,
                    "n_threads": plan.n_threads,
                }
                facts = {"data": name, "n_samples": X.shape[0], "n_features": X.shape[1]}
                records.append(facts | _measured(job))
    return as_rows(records)


def _store(folder: Path, X: NDArray[np.float64], y: NDArray[np.int64]) -> None:
    """Write X in every storage, uncompressed: reading it back leaves no freed memory behind."""
    rows = sparse.csr_matrix(X)
    arrays = {
        "y": y,
        "dense f64": X,
        "dense f32": X.astype(np.float32),
        "data": rows.data,
        "indices": rows.indices,
        "indptr": rows.indptr,
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def _measured(job: dict[str, object]) -> dict[str, object]:
    """What a fresh process reports about one fit."""
    done = subprocess.run(
        [sys.executable, "-m", "benches.subjects.memory_child", json.dumps(job)],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    report: dict[str, int] = json.loads(done.stdout)
    shown = {name: job[name] for name in ("library", "storage", "low_memory", "C", "n_threads")}
    return shown | report


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Megabytes, and whether the promise holds: 1.5 X + 50 MB beyond X."""
    table = []
    for row in rows:
        size, beyond = int(row["x_bytes"]), int(row["peak_beyond_x_bytes"])
        promised = MEMORY_FACTOR * size + MEMORY_ALLOWANCE
        table.append(
            {
                "data": row["data"],
                "library": row["library"],
                "storage": row["storage"],
                "low_memory": row["low_memory"],
                "x_mb": size / 1e6,
                "beyond_x_mb": beyond / 1e6,
                "beyond_x_over_x": beyond / size,
                "promised_mb": promised / 1e6,
                "kept": beyond <= promised,
            }
        )
    return as_rows(table)


def failures(table: Sequence[Row]) -> list[str]:
    """Cases of ours that break the promise."""
    return [
        f"memory: {row['library']} {row['data']} {row['storage']} low_memory={row['low_memory']}: "
        f"{row['beyond_x_mb']} MB beyond X, promised {row['promised_mb']}"
        for row in table
        if row["library"].startswith("dpsvm_fast") and row["kept"] == "False"
    ]
