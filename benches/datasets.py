"""Data sets: files NAME.npz with X and y in the folder DPSVM_DATA, else scikit-learn's digits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_digits

from benches.config import DATA_SETS, TEXT_ROW, TEXT_SHAPE, Plan
from benches.papers.data import load

Labelled = tuple[str, NDArray[np.float64], NDArray[np.int64]]


def unit_rows(X: NDArray[np.generic]) -> NDArray[np.float64]:
    """Rows scaled to norm 1 in float64; rows of zeros stay zero."""
    rows = np.array(X, dtype=np.float64, order="C")
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(norms > 0.0, norms, 1.0)
    return rows


def available(plan: Plan, sets: Mapping[str, int | None] = DATA_SETS) -> Iterator[Labelled]:
    """Each data set that is there, as (name, unit rows, label codes); says what is not."""
    folder = os.environ.get("DPSVM_DATA")
    found = False
    for name, limit in sets.items():
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


def prepared_adult(plan: Plan) -> Iterator[Labelled]:
    """Adult with its numeric columns scaled by public bounds, unit rows; nothing if not there."""
    data = load("adult")
    if data is not None:
        clipped = np.clip(data.X[: plan.max_rows], data.low, data.high)
        shares = (clipped - data.low) / (data.high - data.low)
        yield "adult", unit_rows(shares), data.y[: plan.max_rows]


def text_like(plan: Plan, n_classes: int) -> tuple[str, sparse.csr_matrix, NDArray[np.int64]]:
    """A sparse set shaped like word counts: few frequent columns, many rare ones.

    The share of column j falls like j^(-2/3); every row has the same number of different columns,
    with exponential values and norm 1. Labels are those of a planted linear model, with noise.
    """
    n_rows, n_columns = TEXT_SHAPE
    n_rows = min(n_rows, plan.max_rows or n_rows)
    rng = np.random.default_rng(7)
    indices = np.sort(_columns(rng, n_rows, n_columns), axis=1)
    while (again := indices[:, 1:] == indices[:, :-1]).any():
        # Of equal neighbours, one is drawn again.
        indices[:, 1:][again] = _columns(rng, int(again.sum()), n_columns, 1).ravel()
        indices.sort(axis=1)
    values = rng.exponential(size=indices.shape)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    starts = np.arange(0, indices.size + 1, TEXT_ROW, dtype=np.int32)
    X = sparse.csr_matrix(
        (values.ravel(), indices.ravel().astype(np.int32), starts), shape=(n_rows, n_columns)
    )
    scores = X @ rng.normal(size=(n_columns, n_classes))
    scores += 0.5 * rng.normal(size=scores.shape)
    return f"text, {n_classes} classes", X, scores.argmax(axis=1).astype(np.int64)


def _columns(
    rng: np.random.Generator, n_rows: int, n_columns: int, each: int = TEXT_ROW
) -> NDArray[np.int64]:
    """Columns with a power law, perhaps with repetitions."""
    drawn = n_columns * rng.random((n_rows, each)) ** 3
    return np.minimum(drawn.astype(np.int64), n_columns - 1)
