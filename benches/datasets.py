"""Data sets: files NAME.npz with X and y in the folder DPSVM_DATA, else scikit-learn's digits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from benches.config import DATA_SETS, Plan

Labelled = tuple[str, NDArray[np.float64], NDArray[np.int64]]


def unit_rows(X: NDArray[np.generic]) -> NDArray[np.float64]:
    """Rows scaled to norm 1 in float64; rows of zeros stay zero."""
    rows = np.array(X, dtype=np.float64, order="C")
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(norms > 0.0, norms, 1.0)
    return rows


def available(plan: Plan) -> Iterator[Labelled]:
    """Each data set that is there, as (name, unit rows, label codes); says what is not."""
    folder = os.environ.get("DPSVM_DATA")
    found = False
    for name, limit in DATA_SETS.items():
        path = Path(folder or ".") / f"{name}.npz"
        if folder is None or not path.is_file():
            print(f"SKIPPED {name}: no {name}.npz (X, y); set DPSVM_DATA to the folder with it")
            continue
        found = True
        with np.load(path, allow_pickle=False) as stored:
            yield _prepared(name, stored["X"], stored["y"], limit, plan)
    if not found:
        print("falling back to scikit-learn's digits")
        X, y = load_digits(return_X_y=True)
        yield _prepared("digits", X, y, None, plan)


def _prepared(
    name: str,
    X: NDArray[np.generic],
    y: NDArray[np.generic],
    limit: int | None,
    plan: Plan,
) -> Labelled:
    """First rows in file order, unit norm, labels coded from 0."""
    sizes = [size for size in (limit, plan.max_rows, len(y)) if size is not None]
    n_rows = min(sizes)
    codes = np.unique(y[:n_rows], return_inverse=True)[1]
    return name, unit_rows(X[:n_rows]), codes.astype(np.int64)
