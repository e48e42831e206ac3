"""Milliseconds of one step of private gradient descent, ours and other libraries'.

Every library takes the same step (see ``benches.descent_problem``), many a call, and goes on where
its last call stopped. Before the clock starts all of them take some full-batch steps without noise,
and their weights have to agree.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benches.config import (
    DESCENT_AGREEMENT,
    DESCENT_BATCHES,
    DESCENT_CHECK_ROWS,
    DESCENT_CHECK_STEPS,
    DESCENT_GOALS,
    DESCENT_NOISE_GOAL,
    DESCENT_PRIVATE_GOAL,
    DESCENT_SETS,
    DESCENT_STORAGES,
    DESCENT_SYNTHETIC,
    LONG_STEP_SECONDS,
    MAX_GRADIENT_ENTRIES,
    ROUNDS_OF_LONG_STEPS,
    Plan,
)
from benches.datasets import unit_rows
from benches.descent_peers import PER_EXAMPLE, Peer, installed_peers
from benches.descent_problem import DescentProblem, store, synthetic
from benches.libraries import numpy_descent, ours_descent
from benches.measuring import interleaved
from benches.papers.data import load
from benches.tables import Row, as_rows

# Seconds on the clock and of processor time, for so many steps.
Clock = Callable[[int], tuple[float, float]]
Key = tuple[str, str, str, int]
KEY = ("library", "form", "storage", "n_threads")
OURS = (("exact", 1), ("exact", 2), ("float", 1), ("plain", 1), ("plain", 2))
PRECISIONS = ("float64", "float32")
# Columns of the summary: library, forms, storage; the best over these and over threads.
SHOWN: dict[str, tuple[str, tuple[str, ...], str]] = {
    "numpy": ("numpy", ("float64",), "dense"),
    "numpy_f32": ("numpy", ("float32",), "dense"),
    "scipy_csr": ("numpy", ("float64",), "csr"),
    "jax": ("jax", ("rank_one", "per_example"), "dense"),
    "jax_loop": ("jax", ("rank_one_loop",), "dense"),
    "opacus": ("opacus", ("hooks", "ghost"), "dense"),
    "opacus_bare": ("opacus", ("hooks_bare", "ghost_bare"), "dense"),
}


@dataclass(frozen=True)
class Candidate:
    """One way to take steps: library, form, storage of X, threads."""

    key: Key
    clock: Clock

    @property
    def label(self) -> str:
        """Unique within a cell."""
        return ", ".join(map(str, self.key))


def run(plan: Plan) -> list[Row]:
    """One row a measurement."""
    records: list[dict[str, object]] = []
    with installed_peers() as peers:
        for name, X, y, n_classes in _data_sets(plan):
            n_samples = X.shape[0]
            whole = DescentProblem(X, y, n_classes, n_samples)
            stored = {s: _in_storage(X, s) for s in DESCENT_STORAGES.get(name, ("dense",))}
            batches = [batch for batch in DESCENT_BATCHES if batch < n_samples]
            with tempfile.TemporaryDirectory() as folder:
                store(whole, Path(folder))
                differences = dict(_differences(whole, stored, peers, folder))
                for batch in (*batches, n_samples):
                    problem = replace(whole, batch=batch)
                    facts = {"data": name, "n_samples": n_samples, "n_features": X.shape[1]}
                    facts |= {"n_classes": n_classes, "batch": batch}
                    begin = time.perf_counter()
                    candidates = [*_in_process(problem, stored), *_peers(problem, peers, folder)]
                    records += [
                        facts | dict(zip(KEY, key, strict=True)) | found
                        | {"difference": differences[key]}
                        for key, found in _measured(candidates, plan)
                    ]  # fmt: skip
                    took = time.perf_counter() - begin
                    print(f"{name} {X.shape}, batch {batch}: {took:.0f} s", flush=True)
    return as_rows(records)


def _data_sets(plan: Plan) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.int64], int]]:
    """Name, unit rows, labels, classes of the sets that are there, and of synthetic ones."""
    for name, n_rows in DESCENT_SETS.items():
        data = load(name)
        if data is not None:
            # Some files are sorted by class.
            order = np.random.default_rng(3).permutation(data.y.size)
            kept = np.sort(order[: min(n_rows, plan.max_rows or n_rows)])
            yield name, unit_rows(data.X[kept]), data.y[kept], data.n_classes
    for name, (n_rows, n_features, n_classes) in DESCENT_SYNTHETIC.items():
        n_rows = min(n_rows, plan.max_rows or n_rows)
        yield name, *synthetic(n_rows, n_features, n_classes), n_classes


def _in_storage(X: NDArray[np.float64], storage: str) -> Any:
    """Rows as a user would hold them."""
    return sparse.csr_matrix(X) if storage == "csr" else X


def _differences(
    problem: DescentProblem, stored: dict[str, Any], peers: Sequence[Peer], folder: str
) -> Iterator[tuple[Key, float]]:
    """How far weights are from numpy's after the comparison's steps, relative to their length."""
    quiet = problem.quiet(DESCENT_CHECK_ROWS)
    reference = _compared(numpy_descent.Stepper(quiet, "float64"))

    def distance(weights: NDArray[Any]) -> float:
        return float(np.linalg.norm(weights - reference) / np.linalg.norm(reference))

    for storage, X in stored.items():
        own = replace(problem, X=X).quiet(DESCENT_CHECK_ROWS)
        rows = ours_descent.records(own.X, own.y, own.n_classes)
        for kind, n_threads in OURS:
            # What has no noise anyway need not be compared kind by kind.
            weights = _compared(ours_descent.Stepper(own, rows, "exact", n_threads))
            yield ("ours", kind, storage, n_threads), distance(weights)
        for precision in PRECISIONS:
            weights = _compared(numpy_descent.Stepper(own, precision))
            yield ("numpy", precision, storage, 1), distance(weights)
    for peer in peers:
        peer.ask(folder=folder, n_classes=problem.n_classes, batch=problem.batch)
        for form in peer.formulations:
            yield (peer.name, form, "dense", peer.n_threads), distance(peer.weights(form))


def _compared(stepper: Any) -> NDArray[Any]:
    """Weights after the steps of the comparison."""
    stepper.advance(DESCENT_CHECK_STEPS)
    weights: NDArray[Any] = stepper.weights
    return weights


def _in_process(problem: DescentProblem, stored: dict[str, Any]) -> Iterator[Candidate]:
    """Ours and numpy's, in each storage."""
    for storage, X in stored.items():
        own = replace(problem, X=X)
        rows = ours_descent.records(X, problem.y, problem.n_classes)
        for kind, n_threads in OURS:
            advance = ours_descent.Stepper(own, rows, kind, n_threads).advance
            yield Candidate(("ours", kind, storage, n_threads), partial(_timed, advance))
        for precision in PRECISIONS:
            advance = numpy_descent.Stepper(own, precision).advance
            yield Candidate(("numpy", precision, storage, 1), partial(_timed, advance))


def _peers(problem: DescentProblem, peers: Sequence[Peer], folder: str) -> Iterator[Candidate]:
    """Those of the other processes, which read dense rows."""
    entries = problem.batch * problem.shape[0] * problem.shape[1]
    for peer in peers:
        peer.ask(folder=folder, n_classes=problem.n_classes, batch=problem.batch)
        for form in peer.formulations:
            if form in PER_EXAMPLE and entries > MAX_GRADIENT_ENTRIES:
                print(f"SKIPPED {peer.name} {form}: {4e-9 * entries:.1f} GB of gradients")
                continue
            yield Candidate((peer.name, form, "dense", peer.n_threads), partial(_asked, peer, form))


def _timed(advance: Callable[[int], None], n_steps: int) -> tuple[float, float]:
    """Clock of this process."""
    begin, cpu_begin = time.perf_counter(), time.process_time()
    advance(n_steps)
    return time.perf_counter() - begin, time.process_time() - cpu_begin


def _asked(peer: Peer, form: str, n_steps: int) -> tuple[float, float]:
    """Clock of another process, which starts and stops there."""
    answer = peer.ask(formulation=form, steps=n_steps)
    return answer["seconds"], answer["cpu_seconds"]


def _measured(
    candidates: Sequence[Candidate], plan: Plan
) -> Iterator[tuple[Key, dict[str, object]]]:
    """Rounds of all candidates; slow ones sit out the later rounds."""
    counts, calls = {}, {}
    for candidate in candidates:
        candidate.clock(1)  # Compiles and allocates.
        steps, long = _steps_for(candidate.clock, plan.batch_seconds)
        counts[candidate.label] = steps
        rounds = min(plan.repeats, ROUNDS_OF_LONG_STEPS) if long else plan.repeats
        calls[candidate.label] = partial(_round, candidate.clock, steps, rounds)
    keys = {candidate.label: candidate.key for candidate in candidates}
    for measured in interleaved(calls, plan.repeats):
        if measured.result is not None:
            steps = counts[measured.label]
            seconds, cpu_seconds = (value / steps for value in measured.result)
            found = {"repeat": measured.repeat, "steps": steps}
            yield keys[measured.label], found | {"seconds": seconds, "cpu_seconds": cpu_seconds}


def _round(clock: Clock, steps: int, rounds: int, repeat: int) -> tuple[float, float] | None:
    """One measurement, or none in the rounds that a slow candidate sits out."""
    return clock(steps) if repeat < rounds else None


def _steps_for(clock: Clock, batch_seconds: float) -> tuple[int, bool]:
    """How many steps take about ``batch_seconds``, and whether one of them takes long."""
    steps = 1
    while True:
        seconds = clock(steps)[0]
        if seconds >= batch_seconds / 2.0:
            wanted = max(1, round(steps * batch_seconds / seconds))
            return wanted, seconds / steps > LONG_STEP_SECONDS
        steps *= 4


def analyse(rows: Sequence[Row]) -> list[Row]:
    """One row a data set and batch: medians in ms, ratios, goals."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["data"], row["batch"]), []).append(row)
    return as_rows(_summary(members) for members in cells.values())


def _medians(rows: Sequence[Row]) -> dict[Key, float]:
    """Milliseconds of every candidate: (library, form, storage, threads)."""
    times: dict[Key, list[float]] = {}
    for row in rows:
        key = (row["library"], row["form"], row["storage"], int(row["n_threads"]))
        times.setdefault(key, []).append(float(row["seconds"]))
    return {key: 1e3 * median(values) for key, values in times.items()}


def _summary(rows: Sequence[Row]) -> dict[str, Any]:
    """One cell; ours in the storage in which our private step is the faster one."""
    ms = _medians(rows)
    own = {key[2]: ms[key] for key in ms if key[:2] == ("ours", "exact") and key[3] == 1}
    storage, *others = sorted(own, key=lambda name: own[name])
    private, plain = own[storage], ms["ours", "plain", storage, 1]
    facts = ("data", "n_samples", "n_features", "n_classes", "batch")
    n_weights = int(rows[0]["n_classes"]) * int(rows[0]["n_features"])
    summary: dict[str, Any] = {name: rows[0][name] for name in facts} | {
        "storage": storage,
        "ours_ms": private,
        "ours_2_threads_ms": ms["ours", "exact", storage, 2],
        "ours_other_storage_ms": own[others[0]] if others else None,
        "ours_float_ms": ms["ours", "float", storage, 1],
        "plain_ms": plain,
        "plain_2_threads_ms": ms["ours", "plain", storage, 2],
        "private_over_plain": private / plain,
        "noise_ns_a_weight": 1e6 * (private - plain) / n_weights,
    }
    for name in SHOWN:
        summary |= _beside(name, ms, summary)
    # The loop in our form too: both on as many threads.
    for n in (1, 2):
        loop, mine = ms.get(("jax", "rank_one_loop", "dense", n)), ms["ours", "exact", storage, n]
        summary[f"jax_loop_{n}_ratio"] = loop / mine if loop else None
    nanoseconds, share = DESCENT_NOISE_GOAL
    met = {
        "plain": private <= DESCENT_PRIVATE_GOAL * plain,
        "noise": private - plain <= 1e-6 * nanoseconds * n_weights + share * plain,
    } | {
        name: summary[f"{name}_ratio"] >= goal
        for name, goal in DESCENT_GOALS.items()
        if summary[f"{name}_ratio"] is not None
    }
    missed = " ".join(name for name in met if not met[name])
    difference = max(float(row["difference"]) for row in rows)
    return summary | {"goals_missed": missed or "none", "difference": difference}


def _beside(name: str, ms: dict[Key, float], own: dict[str, Any]) -> dict[str, Any]:
    """A library's best time, which form and threads that was, and its ratio to ours."""
    library, forms, storage = SHOWN[name]
    taken = {k: t for k, t in ms.items() if k[0] == library and k[1] in forms and k[2] == storage}
    if not taken:
        return dict.fromkeys((f"{name}_ms", f"{name}_best", f"{name}_ratio"))
    best = min(taken, key=lambda key: taken[key])
    # numpy has one thread. Who may choose between one and two is compared with our better one.
    mine = min(own["ours_ms"], own["ours_2_threads_ms"] if library != "numpy" else np.inf)
    return {
        f"{name}_ms": taken[best],
        f"{name}_best": f"{best[1]} {best[3]}",
        f"{name}_ratio": taken[best] / mine,
    }


def failures(table: Sequence[Row]) -> list[str]:
    """Cells in which a library did not take the same steps: their times may not be compared."""
    return [
        f"descent: {row['data']} batch {row['batch']}: weights differ by {row['difference']}"
        for row in table
        if not float(row["difference"]) <= DESCENT_AGREEMENT
    ]
