"""``dpsvm-fast fit`` on a file of a million rows, beside scikit-learn and oneDAL without privacy.

Run ``python -m benches.command_line`` on a quiet machine; ``--rows`` makes it smaller. ``--folder``
keeps the files, and takes those that it finds there. ``--repeats 3`` is the default. The
same rows are there as CSV and as Parquet. Every candidate is a process of its own that begins with
nothing but files and ends with a model; candidates alternate. Written to
``benches/results/command_line_runs.csv`` and, as medians, ``benches/results/command_line.csv``:
seconds, processor seconds, peak resident memory, accuracy on rows that nobody trained on. One more
run of ours under a profiler tells where the time goes: ``command_line_stages.csv``. A run of the
whole size also fills the tables of docs/command_line.md.

The rows: 96 correlated Gaussian columns clipped to their public bounds [0, 100] and written with
four decimals, three categorical columns, and one of four classes by a softmax of a linear function
of all of them, so that no classifier is right more often than the ``best`` that is printed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import pstats
import re
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches import pages, tables
from benches.machine import description, require_release
from dpsvm_fast import _core

ROWS, TEST_ROWS, BLOCK = 1_000_000, 50_000, 50_000
NUMBERS, CLASSES = 96, ("low", "medium", "high", "urgent")
CATEGORIES = {
    "region": ("north", "east", "south", "west"),
    "device": ("phone", "tablet", "laptop"),
    "plan": ("free", "basic", "plus", "team", "firm"),
}
EPSILON, DELTA = "1", "1e-8"
ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benches" / "results"
# Where the tables go.
PAGE = "docs/command_line.md"
# The reader of pandas and the classifier. Others of scikit-learn were slower: SGDClassifier took
# 1.2 times and LinearSVC 7 times as long.
PEERS = (
    "pandas + LogisticRegression",
    "pyarrow + LogisticRegression",
    "pyarrow + oneDAL",
    "Parquet + LogisticRegression",
    "Parquet + oneDAL",
)
# File and memory of our candidates.
OURS = (("csv", "320MiB"), ("csv", "2GiB"), ("parquet", "2GiB"))
# Where the time of a fit goes: functions of ours, none of which calls another.
STAGES = {
    "reading, parsing, checking": ("tables.read", "tables.to_partitions"),
    "mapping": ("executors.mapped", "rows.mapped_rows"),
    "moments": ("Records.sums", "Records.gram_parts"),
    "steps": ("Descent.partial",),
}
START, REST = "start and imports", "rest"
Row = dict[str, Any]


def law() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How columns depend on each other, and classes on columns; the same for all files."""
    rng = np.random.default_rng(11)
    mixing = np.eye(NUMBERS) + rng.normal(size=(NUMBERS, NUMBERS)) / 12.0
    n_columns = NUMBERS + sum(map(len, CATEGORIES.values()))
    return mixing, 0.55 * rng.normal(size=(n_columns, len(CLASSES)))


def block(rng: np.random.Generator, n_rows: int) -> tuple[Any, float]:
    """Some rows as an Arrow table, and the share that the best classifier gets right."""
    import pyarrow as pa

    mixing, weights = law()
    latent = rng.normal(size=(n_rows, NUMBERS)) @ mixing
    words = {name: rng.integers(0, len(values), n_rows) for name, values in CATEGORIES.items()}
    one_hot = [np.eye(len(CATEGORIES[name]))[codes] for name, codes in words.items()]
    scores = np.hstack([latent, *one_hot]) @ weights
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    codes = (odds.cumsum(axis=1) < rng.random((n_rows, 1))).sum(axis=1)
    numbers = np.clip(np.round(50.0 + 12.0 * latent, 4), 0.0, 100.0)
    columns: dict[str, Any] = {f"x{j}": numbers[:, j] for j in range(NUMBERS)}
    for name, found in words.items():
        columns[name] = np.array(CATEGORIES[name])[found]
    columns["priority"] = np.array(CLASSES)[np.minimum(codes, len(CLASSES) - 1)]
    return pa.table(columns), float(odds.max(axis=1).mean())


def write(path: Path, n_rows: int, seed: int) -> float:
    """Two files of so many rows; returns the best accuracy."""
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    rng, best, writer = np.random.default_rng(seed), [], None
    options = arrow_csv.WriteOptions(quoting_style="none")
    for start in range(0, n_rows, BLOCK):
        table, share = block(rng, min(BLOCK, n_rows - start))
        best.append(share)
        if writer is None:
            writer = arrow_csv.CSVWriter(path, table.schema, write_options=options)
            columns = parquet.ParquetWriter(path.with_suffix(".parquet"), table.schema)
        writer.write_table(table)
        columns.write_table(table)
    assert writer is not None
    writer.close()
    columns.close()
    return statistics.fmean(best)


def write_schema(path: Path) -> None:
    """What is public."""
    lines = ['target = "priority"', f"classes = {json.dumps(CLASSES)}", "[columns]"]
    lines += [
        f"{name} = {{ categories = {json.dumps(words)} }}" for name, words in CATEGORIES.items()
    ]
    path.write_text("\n".join([*lines, "[all_other_columns]", "bounds = [0, 100]", ""]))


def peer(name: str, folder: Path) -> None:
    """What a user of pandas and scikit-learn writes; run in a process of its own."""
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    engine, kind = name.split(" + ")
    module = "sklearnex" if kind == "oneDAL" else "sklearn"
    classifier = importlib.import_module(f"{module}.linear_model").LogisticRegression()
    if engine == "Parquet":
        frame = pd.read_parquet(folder / "rows.parquet")
    else:
        frame = pd.read_csv(folder / "rows.csv", engine="c" if engine == "pandas" else "pyarrow")
    y = frame.pop("priority")
    numbers = [column for column in frame if column not in CATEGORIES]
    columns = ColumnTransformer(
        [
            ("numbers", StandardScaler(), numbers),
            ("words", OneHotEncoder(sparse_output=False), list(CATEGORIES)),
        ]
    )
    model = make_pipeline(columns, classifier).fit(frame, y)
    # As ours does: the model is what remains.
    import joblib

    joblib.dump(model, folder / f"{name}.joblib")


def called(form: str, size: str) -> str:
    """What a candidate of ours is called."""
    return f"dpsvm-fast fit rows.{form} --max-memory {size}"


def command(folder: Path, form: str, size: str) -> list[str]:
    """The command line of ours, without Python."""
    return [
        "-m", "dpsvm_fast", "fit", str(folder / f"rows.{form}"),
        "--schema", str(folder / "schema.toml"), "--epsilon", EPSILON, "--delta", DELTA,
        "--max-memory", size, "--temp", str(folder), "--force",
        "-o", str(folder / f"{called(form, size)}.json"),
    ]  # fmt: skip


def commands(folder: Path) -> dict[str, list[str]]:
    """Command line of each candidate."""
    found = {called(*one): [sys.executable, *command(folder, *one)] for one in OURS}
    for name in PEERS:
        if "oneDAL" not in name or importlib.util.find_spec("sklearnex"):
            found[name] = [
                sys.executable, "-m", "benches.command_line", "--peer", name,
                "--folder", str(folder),
            ]  # fmt: skip
    return found


def stages(folder: Path) -> list[Row]:
    """Where the time of ours goes, with the largest memory."""
    found: list[Row] = []
    for form, size in OURS[1:]:
        profile = folder / "profile"
        words = [sys.executable, "-m", "cProfile", "-o", str(profile), *command(folder, form, size)]
        total = timed(words)["seconds"]
        seconds: dict[str, float] = {}
        for (file, _, name), (*_, own, _) in pstats.Stats(str(profile)).stats.items():
            if "dpsvm_fast" in f"{file}{name}":
                # Module and function, or class and method of the compiled module.
                words = re.findall(r"'(?:dpsvm_fast\._core\.)?(\w+)'", name)
                key = ".".join(reversed(words) if words else (Path(file).stem, name))
                seconds[key] = seconds.get(key, 0.0) + own
        parts = {START: total - seconds["training.fit_command"]}
        parts |= {stage: sum(seconds.get(n, 0.0) for n in names) for stage, names in STAGES.items()}
        parts[REST] = total - sum(parts.values())
        rounded = {stage: round(value, 2) for stage, value in parts.items()}
        found.append({"candidate": called(form, size), "seconds": total} | rounded)
        print(found[-1], flush=True)
    return found


# A process counts what its parent held when it began as its own peak: this one holds little.
LAUNCHER = """
import os, sys, time
start = time.perf_counter()
silence = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=silence)
_, status, usage = os.wait4(child, 0)
seconds = time.perf_counter() - start
print(status, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""


def timed(words: list[str]) -> Row:
    """Wall time, processor time and peak memory of a process."""
    launch = [sys.executable, "-S", "-c", LAUNCHER, *words]
    printed = subprocess.run(launch, stdout=subprocess.PIPE, check=True, text=True).stdout
    status, seconds, cpu_seconds, peak_kb = map(float, printed.split())
    if status:
        raise SystemExit(f"{' '.join(words)}: failed")
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "peak_mib": round(peak_kb / 1024),
    }


def accuracy(name: str, folder: Path) -> float:
    """On rows that nobody trained on."""
    import joblib
    import pandas as pd

    from dpsvm_fast.data import TableSchema, open_table
    from dpsvm_fast.persist import read_model

    if name in PEERS:
        model = joblib.load(folder / f"{name}.joblib")
        frame = pd.read_csv(folder / "test.csv")
        y = frame.pop("priority")
        return float(model.score(frame, y))
    saved = read_model(folder / f"{name}.json")
    schema = saved.schema or TableSchema.load(folder / "schema.toml")
    X, labels = open_table(folder / "test.csv", schema).read()
    return float(saved.estimator.score(X, labels))


def files(folder: Path, n_rows: int) -> float:
    """Make the files, unless the folder has those of so many rows; the best accuracy there is."""
    made = folder / "made.json"
    wanted = {"rows": n_rows, "test_rows": TEST_ROWS, "source": Path(__file__).read_text("utf-8")}
    if made.exists():
        found = json.loads(made.read_text("utf-8"))
        if found["wanted"] == wanted:
            return float(found["best"])
        made.unlink()
    write(folder / "rows.csv", n_rows, seed=1)
    best = write(folder / "test.csv", TEST_ROWS, seed=2)
    write_schema(folder / "schema.toml")
    made.write_text(json.dumps({"wanted": wanted, "best": best}), "utf-8")
    return best


def measured(folder: Path, n_rows: int, repeats: int) -> tuple[list[Row], float]:
    """Every single run, and the best accuracy that there is."""
    best = files(folder, n_rows)
    rows: list[Row] = []
    candidates = commands(folder)
    names = list(candidates)
    for repeat in range(repeats):
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            load = os.getloadavg()[0]
            row = {"candidate": name, "repeat": repeat, **timed(candidates[name])}
            rows.append(
                row | {"accuracy": round(accuracy(name, folder), 4), "load": round(load, 1)}
            )
            print(*(f"{value}" for value in rows[-1].values()), sep=", ", flush=True)
    return rows, best


def medians(rows: list[Row]) -> list[Row]:
    """One row for each candidate, the seconds of the fastest peer on the same file as unit."""
    found: list[Row] = []
    for name in dict.fromkeys(row["candidate"] for row in rows):
        own = [row for row in rows if row["candidate"] == name]
        columns = ("seconds", "cpu_seconds", "peak_mib", "accuracy")
        found.append(
            {"candidate": name} | {c: statistics.median(row[c] for row in own) for c in columns}
        )
    for row in found:
        form = is_parquet(row["candidate"])
        peers = [one for one in found if one["candidate"] in PEERS]
        same = [one["seconds"] for one in peers if is_parquet(one["candidate"]) == form]
        row["times_fastest_peer"] = round(row["seconds"] / min(same), 2)
    return found


def is_parquet(name: str) -> bool:
    """Which of the two files a candidate reads."""
    return "parquet" in name.lower()


def publish(rows: list[Row], summary: list[Row], parts: list[Row], facts: dict[str, str]) -> None:
    """Store the figures and put them into their page."""
    tables.write(RESULTS / "command_line_stages.csv", tables.as_rows(parts), facts)
    tables.write(RESULTS / "command_line_runs.csv", tables.as_rows(rows), facts)
    tables.write(RESULTS / "command_line.csv", tables.as_rows(summary), facts)
    pages.fill(PAGE, RESULTS, ROOT)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--rows", type=int, default=ROWS)
    reader.add_argument("--repeats", type=int, default=3)
    reader.add_argument("--folder", type=Path, help="for the files, which take 3 GB")
    reader.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    options = reader.parse_args()
    if options.peer is not None:
        peer(options.peer, options.folder)
        return
    build = _core.build_info()
    require_release(build)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        rows, best = measured(folder, options.rows, options.repeats)
        parts = stages(folder)
        size = (folder / "rows.csv").stat().st_size
    facts = description(build, len(os.sched_getaffinity(0)))
    facts |= {name: version(name) for name in ("pandas", "pyarrow")}
    facts |= {
        "rows": str(options.rows),
        "MB": str(round(size / 1e6)),
        "best accuracy": f"{best:.4f}",
        "epsilon, delta": f"{EPSILON}, {DELTA}",
        "peer threads": "default",
    }
    summary = medians(rows)
    for row in summary:
        print(row)
    if options.rows == ROWS:
        publish(rows, summary, parts, facts)


if __name__ == "__main__":
    main()
