"""Train on a file that is never in memory as a whole, here and on a cluster of two workers.

A memory map of 100,000 rows stands for one of any size: a partition of 10,000 rows is loaded,
summed and dropped, again and again. With the extra `distributed` the same fit runs
on a Dask cluster. The model is the same to the last bit where the noise is, which a seed shows here
and nobody should give a fit that is meant to be private.
"""

from __future__ import annotations

import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from dpsvm_fast import GradientPerturbationSVC, NotPrivateWarning, PrivateLinearSVC
from dpsvm_fast.data import Partitions, fit
from dpsvm_fast.ledger import PrivacyLedger

N_ROWS, N_FEATURES, PART = 100_000, 20, 10_000


def written(folder: Path) -> tuple[Any, Any]:
    """Memory maps of rows and labels, written part by part."""
    X = np.lib.format.open_memmap(
        folder / "rows.npy", mode="w+", dtype=np.float32, shape=(N_ROWS, N_FEATURES)
    )
    y = np.lib.format.open_memmap(folder / "labels.npy", mode="w+", dtype=np.int64, shape=(N_ROWS,))
    directions = np.random.default_rng(0).normal(size=(3, N_FEATURES)) / 4
    for start in range(0, N_ROWS, PART):
        rng = np.random.default_rng(1 + start)
        labels = rng.integers(0, 3, PART)
        y[start : start + PART] = labels
        X[start : start + PART] = directions[labels] + rng.normal(size=(PART, N_FEATURES)) / 4
    return X, y


def main() -> None:
    """Fits, scores, and prints what is promised."""
    with tempfile.TemporaryDirectory() as folder:
        X, y = written(Path(folder))
        partitions = Partitions.from_arrays(X, y, rows_per_partition=PART)
        print(f"{partitions}")
        ledger = PrivacyLedger(1.0, 1e-7)
        # resident=True keeps rows packed to 4 bytes a number; without, each step reads the file.
        model = PrivateLinearSVC(1.0, 1e-7, classes=[0, 1, 2], bounds=(-2, 2), ledger=ledger)
        fitted = fit(model, partitions, resident=True)
        print(f"accuracy: {fitted.score(X[:PART], y[:PART]):.3f}")
        print(f"epsilon spent: {ledger.total()[0]:.3f}")
        if find_spec("distributed") is None:
            print("no cluster: distributed is not installed")
            return
        print(f"same model on a cluster: {same_on_a_cluster(partitions)}")


def same_on_a_cluster(partitions: Partitions) -> bool:
    """Whether two workers release what this process does, with the same noise."""
    from distributed import Client, LocalCluster

    settings: dict[str, Any] = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": False,
        "dashboard_address": "127.0.0.1:0",
        "worker_dashboard_address": "127.0.0.1:0",
    }
    with LocalCluster(**settings) as cluster, Client(cluster) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        few = GradientPerturbationSVC(classes=[0, 1, 2], data_norm=4.0, n_steps=10, random_state=1)
        here = fit(clone(few), partitions)
        there = fit(clone(few), partitions, client=client)
    print(f"who is trusted: {there.privacy_.caveats[-1]}")
    return np.array_equal(here.coef_, there.coef_)


if __name__ == "__main__":
    main()
