"""Speed of the transformers: random features, private components, private scales.

Beside them scikit-learn's, which are not private. Calibration and noise are part of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from benches.config import TRANSFORMER_COMPONENTS, TRANSFORMER_FEATURES, TRANSFORMER_ROWS, Plan
from benches.libraries import sklearn_transformers
from benches.measuring import interleaved
from benches.tables import Row, as_rows
from dpsvm_fast import PrivatePCA, PrivateStandardScaler, RandomFourierFeatures

THREADS = (1, 2)
GAMMA = 0.5

Call = Callable[[], object]


def run(plan: Plan) -> list[Row]:
    """One row a measurement."""
    n = TRANSFORMER_ROWS if plan.max_rows is None else min(TRANSFORMER_ROWS, plan.max_rows)
    rng = np.random.default_rng(0)
    calls: dict[str, Call] = {}
    for d in TRANSFORMER_FEATURES:
        X = rng.uniform(size=(n, d))
        X /= np.linalg.norm(X, axis=1)[:, None]
        for dtype in ("float64", "float32"):
            calls |= _features(X.astype(dtype), dtype)
        calls |= _fits(X)
    # One untimed round first: pages, pools, clocks and remembered calibrations warm up.
    for call in calls.values():
        call()
    # Results die inside the measurement: their pages cost all candidates alike.
    candidates = {label: (lambda _, call=call: call() is None) for label, call in calls.items()}
    records = []
    for measured in interleaved(candidates, plan.repeats):
        task, library, d_text, dtype, threads = measured.label.split("|")
        records.append(
            {"task": task, "library": library, "n_samples": n, "n_features": d_text}
            | {"dtype": dtype, "n_threads": threads, "repeat": measured.repeat}
            | {"seconds": measured.seconds}
        )
    return as_rows(records)


def _features(X: Any, dtype: str) -> dict[str, Call]:
    """Random features of the rows."""
    d, pairs = X.shape[1], TRANSFORMER_COMPONENTS
    calls: dict[str, Call] = {
        f"features|scikit-learn|{d}|{dtype}|1": sklearn_transformers.features(X, pairs, GAMMA)
    }
    for threads in THREADS:
        ours = RandomFourierFeatures(pairs, gamma=GAMMA, random_state=0, n_threads=threads)
        ours.fit(X[:1])
        calls[f"features|dpsvm_fast|{d}|{dtype}|{threads}"] = lambda ours=ours: ours.transform(X)
    return calls


def _fits(X: Any) -> dict[str, Call]:
    """Components and scales."""
    d = X.shape[1]
    k = min(20, d)
    calls: dict[str, Call] = {
        f"components|scikit-learn|{d}|float64|1": sklearn_transformers.components(X, k),
        f"scales|scikit-learn|{d}|float64|1": sklearn_transformers.scales(X),
    }
    for threads in THREADS:
        pca = PrivatePCA(k, n_threads=threads)
        scaler = PrivateStandardScaler(bounds=(0.0, 1.0), n_threads=threads)
        calls[f"components|dpsvm_fast|{d}|float64|{threads}"] = lambda pca=pca: pca.fit(X)
        calls[f"scales|dpsvm_fast|{d}|float64|{threads}"] = lambda s=scaler: s.fit(X)
    return calls


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Median milliseconds, and how many times faster than scikit-learn."""
    keys = ("task", "n_samples", "n_features", "dtype", "library", "n_threads")
    cells: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        cells.setdefault(tuple(row[name] for name in keys), []).append(float(row["seconds"]))
    table = []
    for key, times in sorted(cells.items()):
        peer = cells[(*key[:4], "scikit-learn", "1")]
        table.append(
            dict(zip(keys, key, strict=True))
            | {"ms": 1e3 * median(times), "faster": median(peer) / median(times)}
        )
    return as_rows(table)
