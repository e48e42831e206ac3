"""How close the hot loops are to what the machine can do, measured in the same rounds.

The machine: a matrix product of numpy's BLAS for arithmetic, in each precision, and for the memory
the faster of a triad and an inner product of long vectors in numpy, on as many threads as the loop:
proxies of loops of fused products and of streams. A loop may not take less time than its
arithmetic at the one speed, nor than its traffic at the other; its share is the larger of both
times over its own. What a loop does is counted below at its least: every entry of a row once from
memory unless it says otherwise, and no function but sums and products. Every time is the fastest of
the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

from benches.config import NOISE_STEPS, Plan
from benches.descent_problem import DescentProblem, synthetic
from benches.libraries import ours, ours_descent
from benches.logistic_problem import LogisticProblem
from benches.measuring import interleaved
from benches.tables import Row, as_rows
from dpsvm_fast import RandomFourierFeatures, _core

THREADS = (1, 2)
# Rows, columns, classes of dense rows; columns and non-zeros of sparse ones; pairs of features.
SHAPE, SPARSE, PAIRS = (40_000, 400, 10), (20_000, 100), 1_000
DRAWS = 1_000_000
# Gradient steps of one call.
STEPS = 10
# Entries of a vector of the streams, far beyond the caches, and of a side of the matrices.
TRIAD, SIDE = 16_000_000, 2_048
# Entries that the triad works on at once: what is between its two calls stays in the cache.
PART = 65_536
# Looser tolerances need fewer gradients and products: their times follow from several solves.
TOLERANCES = (3e-1, 1e-1, 3e-2, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)


# What the smooth solver tells of a solve, and the share of the rows that each of them passes over;
# the rest of its time is packing the rows.
COUNTS = {"gradients": 1.0, "products": 1.0, "sample_products": 1.0 / 16.0}
PASS = "smooth solver, a gradient or a product with the Hessian"
SMOOTH, PRODUCTS, STREAMS = "smooth solver, all at ", "matrix product, ", ("triad", "inner product")
KEY = ("loop", "n_threads", "rows", "flops", "bytes", "precision")


class Work(NamedTuple):
    """What one call of a loop does: rows, and of each row sums and products, and bytes."""

    call: Callable[[], object]
    rows: int
    flops: float
    bytes: float
    precision: str = "float32"


def run(plan: Plan) -> list[Row]:
    """One row a measurement."""
    n, d, classes = SHAPE
    n = min(n, plan.max_rows or n)
    X, y = synthetic(n, d, classes)
    records: list[dict[str, object]] = []
    for n_threads in THREADS:
        loops = {**_machine(n_threads), **_loops(X, y, n_threads)}
        for loop in loops.values():
            loop.call()
        calls = {name: (lambda _, call=loop.call: call()) for name, loop in loops.items()}
        with threadpool_limits(limits=n_threads):
            for measured in interleaved(calls, plan.repeats):
                loop = loops[measured.label]
                facts = {"loop": measured.label, "n_threads": n_threads, "rows": loop.rows}
                facts |= {"flops": loop.flops, "bytes": loop.bytes, "precision": loop.precision}
                facts |= {"repeat": measured.repeat, "seconds": measured.seconds}
                counts = measured.result if isinstance(measured.result, dict) else {}
                records.append(facts | {name: counts.get(name) for name in COUNTS})
    return as_rows(records)


def _machine(n_threads: int) -> dict[str, Work]:
    """Arithmetic and memory."""
    found = {}
    for precision in ("float64", "float32"):
        a, b = (np.full((SIDE, SIDE), x, dtype=precision) for x in (0.5, 0.25))
        out = np.empty_like(a)
        product = partial(np.matmul, a, b, out=out)
        found[f"{PRODUCTS}{precision}"] = Work(product, 1, 2.0 * SIDE**3, 0.0, precision)
    vectors = [np.full(TRIAD, x) for x in (0.0, 1.0, 2.0)]
    for name, size in zip(STREAMS, (24.0, 16.0), strict=True):
        found[name] = Work(partial(_stream, name, vectors, n_threads), 1, 0.0, size * TRIAD)
    return found


def _stream(name: str, vectors: list[Any], n_threads: int) -> None:
    """a = b + 3 c, or the inner product of b and c."""

    def part(first: int, last: int) -> None:
        if name != STREAMS[0]:
            np.dot(vectors[1][first:last], vectors[2][first:last])
            return
        for at in range(first, last, PART):
            a, b, c = (vector[at : min(at + PART, last)] for vector in vectors)
            np.multiply(c, 3.0, out=a)
            np.add(a, b, out=a)

    ends = [TRIAD * i // n_threads for i in range(n_threads + 1)]
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(part, ends[:-1], ends[1:]))


def _loops(X: Any, y: Any, n_threads: int) -> dict[str, Work]:
    """The library's own."""
    (n, d), classes = X.shape, SHAPE[2]
    columns, filled = SPARSE
    rng = np.random.default_rng(0)
    index = np.sort(rng.integers(0, columns, (n, filled)), axis=1).ravel()
    values = np.full(n * filled, filled**-0.5)
    csr = sparse.csr_matrix((values, index, np.arange(0, n * filled + 1, filled)), (n, columns))
    csr.sum_duplicates()
    entries = csr.nnz / n
    problem = LogisticProblem(X, y, classes, 1.0)
    first, source = problem.norm_at_zero(), _core.NoiseSource()
    found = {
        "private step, dense": Work(_steps(X, y, n_threads), STEPS * n, 4.0 * classes * d, 4.0 * d),
        "private step, sparse": Work(
            _steps(csr, y, n_threads), STEPS * n, 4.0 * classes * entries, 8.0 * entries
        ),
        # Rows packed, one pass in single precision, and the certificate's two in double.
        "Crammer-Singer, packing, a pass and a certificate": Work(
            partial(_crammer_singer, X, y, n_threads), n, 4.0 * classes * d, 24.0 * d, "float64"
        ),
        "random features": Work(
            partial(_features(d, n_threads).transform, X.astype(np.float32)),
            n,
            2.0 * d * PAIRS,
            4.0 * d + 8.0 * PAIRS,
        ),
        # A sum and a sum of squares of every column, in whole numbers.
        "exact sums of columns": Work(
            lambda: _core.column_moments(
                X, offset=np.zeros(d), scale=np.ones(d), n_threads=n_threads
            ),
            n,
            3.0 * d,
            8.0 * d,
            "float64",
        ),
        "exact Gaussian noise, a number": Work(
            partial(source.gaussian_on_grid, DRAWS, 1.0, 1.0 / NOISE_STEPS, n_threads),
            DRAWS,
            0.0,
            8.0,
        ),
    }
    for tolerance in TOLERANCES:
        solve = partial(_smooth, problem, tolerance * first, n_threads)
        found[f"{SMOOTH}{tolerance:g}"] = Work(solve, n, 4.0 * classes * d, 4.0 * d)
    return found


def _steps(X: Any, y: Any, n_threads: int) -> Callable[[], None]:
    """Private gradient steps over all rows."""
    problem = DescentProblem(X, y, SHAPE[2], X.shape[0])
    rows = ours_descent.records(X, y, SHAPE[2])
    stepper = ours_descent.Stepper(problem, rows, "exact", n_threads)
    return partial(stepper.advance, STEPS)


def _features(d: int, n_threads: int) -> RandomFourierFeatures:
    """A map of dense rows."""
    features = RandomFourierFeatures(PAIRS, gamma=0.5, random_state=0, n_threads=n_threads)
    return features.fit(np.zeros((1, d), dtype=np.float32))


def _crammer_singer(X: Any, y: Any, n_threads: int) -> None:
    """As far as one pass over the rows brings it."""
    settings = {"data_norm": 1.0, "intercept_scaling": 0.0, "low_memory": False}
    stop = {"radius": 1e-6, "max_iter": 1, "shuffle_seed": 0, "n_threads": n_threads}
    _core.solve_crammer_singer(X, y, n_classes=SHAPE[2], C=1.0, **settings, **stop)


def _smooth(problem: LogisticProblem, tol: float, n_threads: int) -> dict[str, Any]:
    """What the solver tells of a solve."""
    return ours.solve_smooth(problem, gradient_tol=tol, seed=0, n_threads=n_threads)[1]


def analyse(rows: Sequence[Row]) -> list[Row]:
    """One row a loop and number of threads: speeds, and the share of the roof."""
    cells: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault(tuple(row[name] for name in KEY), []).append(row)
    found = [
        dict(zip(KEY, key, strict=True))
        | {"seconds": min(float(row["seconds"]) for row in members)}
        | {name: members[0][name] for name in COUNTS}
        for key, members in cells.items()
    ]
    table = []
    for threads in sorted({row["n_threads"] for row in found}):
        own = [row for row in found if row["n_threads"] == threads]
        loops = [row for row in own if not row["loop"].startswith(SMOOTH)]
        solves = [row for row in own if row["loop"].startswith(SMOOTH)]
        speeds = {row["loop"]: _speeds(row) for row in loops}
        roof = {name: speeds[f"{PRODUCTS}{name}"][0] for name in ("float64", "float32")}
        memory = max(speeds[name][1] for name in STREAMS)
        for row in loops + _parts(solves):
            flops, moved = _speeds(row)
            share = max(flops / roof[row["precision"]], moved / memory)
            table.append(
                {name: row[name] for name in (*KEY, "seconds")}
                | {"gflops": flops / 1e9, "gb_per_s": moved / 1e9, "share": share}
            )
    return as_rows(table)


def _speeds(row: dict[str, Any]) -> tuple[float, float]:
    """Sums and products, and bytes, a second."""
    calls = float(row["rows"]) / row["seconds"]
    return calls * float(row["flops"]), calls * float(row["bytes"])


def _parts(solves: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Time of a pass, which with that of packing explains the times of the solves best."""
    passes = [sum(w * float(row[name]) for name, w in COUNTS.items()) for row in solves]
    seconds = np.array([row["seconds"] for row in solves])
    # Relative to the time of each: all deviate by about the same share.
    shares = np.column_stack([np.ones(len(solves)), passes]) / seconds[:, None]
    found = float(nnls(shares, np.ones(len(solves)))[0][1])
    return [solves[0] | {"loop": PASS, "seconds": found}] if found > 0.0 else []
