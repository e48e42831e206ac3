"""A data set of 20 GB that is generated part by part, trained on by two workers in bounded memory.

Run ``python -m benches.larger_than_memory``; ``--rows`` makes it smaller. Written to
``benches/results/larger_than_memory.csv``: seconds, peak memory of each process, accuracy, and how
far the model of a subsample is from the one that its own ``fit`` releases with the same noise.

``--file FOLDER --rows 10000000`` writes such rows to a Parquet file there, in single precision, and
trains ``dpsvm-fast fit`` on it within 1 GB: seconds, processor seconds, peak memory, accuracy.

``--classes FOLDER --rows 1300000`` writes rows like frozen embeddings there, 1,408 numbers in 1,000
classes, and trains sampled descent on the memory map; beside it the accuracy of the nearest mean.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.command_line import timed as timed_process
from dpsvm_fast import GradientPerturbationSVC, NotPrivateWarning, PrivateStandardScaler, _core
from dpsvm_fast.data import Partitions, fit

ROWS, FEATURES, PART = 25_000_000, 100, 125_000
# Full-batch steps: each of them generates all rows again.
STEPS = 6
WORKERS, LIMIT = 2, "1.5GB"
RESULT = Path(__file__).parent / "results" / "larger_than_memory.csv"
Row = dict[str, Any]


@dataclass(frozen=True)
class Generated:
    """Uniform rows of one partition, with labels by a hidden direction and some of them wrong."""

    part: int
    n_rows: int

    def __call__(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        rng = np.random.Generator(np.random.SFC64([7, self.part]))
        X = rng.random((self.n_rows, FEATURES))
        X -= 0.5
        hidden = np.random.default_rng(0).normal(size=FEATURES)
        y = (X @ hidden > 0.0).astype(np.int64)
        wrong = rng.random(self.n_rows) < 0.05
        return X, np.where(wrong, 1 - y, y)


def parts(n_rows: int) -> Partitions:
    """So many rows, of which none exists yet."""
    starts = range(0, n_rows, PART)
    loaders = [Generated(k, min(PART, n_rows - start)) for k, start in enumerate(starts)]
    return Partitions.from_loaders(loaders, n_features=FEATURES, n_rows=n_rows)


def descent(**settings: Any) -> GradientPerturbationSVC:
    """Few steps over very many rows."""
    # Rows of uniform numbers in [-1/2, 1/2] have norms of about sqrt(100 / 12).
    return GradientPerturbationSVC(
        1.0, 1e-9, classes=[0, 1], data_norm=3.2, n_steps=STEPS, average=0.5, **settings
    )


def peak() -> float:
    """Largest resident size of this process so far, in MB."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def measured(n_rows: int) -> list[Row]:
    """Both fits on the whole, and what belongs to them."""
    from distributed import Client, LocalCluster

    rows: list[Row] = []
    settings: dict[str, Any] = {
        "n_workers": WORKERS,
        "threads_per_worker": 1,
        "memory_limit": LIMIT,
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
        "worker_dashboard_address": "127.0.0.1:0",
    }
    X, y = Generated(10**6, 100_000)()
    with LocalCluster(**settings) as cluster, Client(cluster) as client:
        rows += memory("before", client)
        whole = parts(n_rows)
        scaler, seconds = timed(PrivateStandardScaler(0.1, bounds=(-1, 1)), whole, client)
        off = float(np.abs(scaler.scale_ - 12**-0.5).max())
        rows.append({"what": "scaler, seconds", "value": round(seconds, 1)})
        rows.append({"what": "scaler, largest error of a scale", "value": f"{off:.1e}"})
        model, seconds = timed(descent(), whole, client)
        rows.append({"what": f"descent of {STEPS} steps, seconds", "value": round(seconds, 1)})
        rows.append({"what": "accuracy (0.95 is best)", "value": round(model.score(X, y), 4)})
        rows.append({"what": "rows in a partition, MB", "value": PART * FEATURES * 8 // 10**6})
        rows += memory("after", client)
        rows += same_as_local(client)
    return rows


def timed(estimator: Any, whole: Partitions, client: Any) -> tuple[Any, float]:
    """The fitted estimator, and seconds."""
    start = time.perf_counter()
    return fit(estimator, whole, client=client), time.perf_counter() - start


def memory(when: str, client: Any) -> list[Row]:
    """Peaks of all processes."""
    found = [("driver and scheduler", peak())]
    found += [(f"worker {k}", mb) for k, mb in enumerate(client.run(peak).values())]
    return [{"what": f"peak of {name} {when}, MB", "value": round(mb)} for name, mb in found]


def same_as_local(client: Any) -> list[Row]:
    """A subsample on the cluster and in one process, with the same noise."""
    loaders = parts(4 * PART).loaders[::2]
    some = Partitions.from_loaders(loaders, n_features=FEATURES)
    pairs = [loader() for loader in loaders]
    X, y = np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])
    how = {"random_state": 5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        there = fit(descent(**how), some, client=client)
        here = fit(descent(**how), some)
        local = descent(**how).fit(X, y)
        scaler = PrivateStandardScaler(0.1, bounds=(-1, 1), **how)
        scales = fit(scaler, some, client=client).scale_, scaler.fit(X).scale_
    distance = np.abs(there.coef_ - local.coef_).max() / np.abs(local.coef_).max()
    return [
        {"what": "subsample, rows", "value": len(X)},
        {"what": "subsample: scaler, same bits as fit(X)", "value": np.array_equal(*scales)},
        {
            "what": "subsample: descent, same bits as in one process",
            "value": np.array_equal(there.coef_, here.coef_),
        },
        {"what": "subsample: descent, relative distance to fit(X, y)", "value": f"{distance:.1e}"},
    ]


def write(path: Path, first: int, n_rows: int) -> None:
    """A Parquet file of the rows of parts from this one on, each a row group."""
    import pyarrow as pa
    from pyarrow import parquet

    names = [f"x{j}" for j in range(FEATURES)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("y", pa.int64())])
    with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        for start in range(0, n_rows, PART):
            X, y = Generated(first + start // PART, min(PART, n_rows - start))()
            columns = [*np.ascontiguousarray(X.T, dtype=np.float32), y]
            file.write_table(pa.table(columns, schema=schema))


def from_file(folder: Path, n_rows: int) -> Row:
    """``dpsvm-fast fit`` on a Parquet file that it must decode to the disk."""
    from dpsvm_fast.data import TableSchema, open_table
    from dpsvm_fast.persist import load_model

    train, test, schema = (folder / name for name in ("rows.parquet", "test.parquet", "rows.toml"))
    model = folder / "model.json"
    if not train.exists():
        write(train, 0, n_rows)
        write(test, 10**6, 2 * PART)
    schema.write_text(
        'target = "y"\nclasses = [0, 1]\n[all_other_columns]\nbounds = [-0.5, 0.5]\n', "utf-8"
    )
    found = timed_process(
        [sys.executable, "-m", "dpsvm_fast", "fit", str(train), "--schema", str(schema),
         "--epsilon", "1", "--delta", "1e-9", "--max-memory", "1GB", "--temp", str(folder),
         "--force", "-o", str(model)]
    )  # fmt: skip
    X, y = open_table(test, TableSchema.load(schema)).read()
    return {"rows": n_rows, **found, "accuracy": load_model(model).score(X, y)}


def many_classes(folder: Path, n_rows: int) -> Row:
    """Seconds, peak memory and accuracy for rows around 1,000 means, some directions wide."""
    n_columns, n_classes, n_test, block = 1408, 1000, 20_000, 20_000
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(n_columns, n_columns)))[0].astype(np.float32)
    widths = np.arange(1, n_columns + 1, dtype=np.float32) ** -0.25
    means = rng.standard_normal((n_classes, n_columns), dtype=np.float32) * widths @ turn
    y = rng.integers(0, n_classes, n_rows + n_test)
    shape = (len(y), n_columns)
    X = np.lib.format.open_memmap(folder / "embeddings.npy", "w+", np.float32, shape)
    sums = np.zeros((n_classes, n_columns))
    for start in range(0, len(y), block):
        own = y[start : start + block]
        noise = rng.standard_normal((len(own), n_columns), dtype=np.float32) * widths @ turn
        rows = means[own] + 5.0 * noise
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        X[start : start + block] = rows
        if start < n_rows:
            np.add.at(sums, own, rows)
    X.flush()
    X = np.load(folder / "embeddings.npy", mmap_mode="r")
    model = GradientPerturbationSVC(
        1.0,
        1e-7,
        classes=range(n_classes),
        optimizer="sgd",
        max_samples=n_rows,
        sampling_rate=0.02,
        n_steps=50,
    )
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(X[:n_rows], y[:n_rows])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    nearest = np.argmax(X[n_rows:] @ (sums / np.linalg.norm(sums, axis=1, keepdims=True)).T, axis=1)
    return {
        "rows": n_rows,
        "seconds": wall,
        "processor seconds": cpu,
        "peak, MB": peak,
        "accuracy": model.score(X[n_rows:], y[n_rows:]),
        "of the nearest mean": float(np.mean(nearest == y[n_rows:])),
    }


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--rows", type=int, default=ROWS)
    reader.add_argument("--file", type=Path, metavar="FOLDER", help="which exists and has 12 GB")
    reader.add_argument("--classes", type=Path, metavar="FOLDER", help="which has 8 GB")
    options = reader.parse_args()
    n_rows = options.rows
    if options.classes is not None:
        print(many_classes(options.classes, n_rows))
        return
    if options.file is not None:
        print(from_file(options.file, n_rows))
        return
    size = n_rows * FEATURES * 8 / 1e9
    head = [
        {"what": "rows", "value": n_rows},
        {"what": "features", "value": FEATURES},
        {"what": "size of the rows, GB", "value": round(size, 2)},
        {"what": "workers and limit of each", "value": f"{WORKERS} x {LIMIT}"},
        {"what": "cores", "value": len(os.sched_getaffinity(0))},
        {"what": "build", "value": _core.build_info()["profile"]},
    ]
    rows = head + measured(n_rows)
    for row in rows:
        print(f"{row['what']}: {row['value']}")
    if n_rows == ROWS:
        with RESULT.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["what", "value"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
