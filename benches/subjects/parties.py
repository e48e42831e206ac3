"""Many small local fits: one call for all parties against a loop of single calls.

The parties have the size of those in DP-Helmet's experiments: 50 records of 784 features and ten
classes. Exact fits are certified to a thousandth of what one record can move them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.config import (
    PARTIES_EPOCHS,
    PARTIES_LOOP,
    PARTIES_REGULARIZATIONS,
    PARTIES_SHAPE,
    Plan,
)
from benches.measuring import interleaved
from benches.tables import Row, as_rows
from dpsvm_fast import _core

Options = dict[str, Any]
Records = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]
Call = Callable[[int], object]

LOOP = "loop of single calls"
TOL, BATCH, RADIUS = 1e-3, 25, 10.0
CLIPPED: Options = {"data_norm": 1.0, "intercept_scaling": 0.5}
SMOOTH = CLIPPED | {"smoothing": 0.5, "margin": 1.0}


def run(plan: Plan) -> list[Row]:
    """One row a measurement: seconds of all fits of the call or of the loop."""
    records = data(plan.n_parties)
    found: list[dict[str, object]] = []
    for fit, together, alone in _fits(records):
        # A loop over the first parties tells what one over all would take.
        looped = min(plan.n_parties, PARTIES_LOOP)
        candidates = {
            "one call, 1 thread": partial(together, 1),
            "one call, 2 threads": partial(together, 2),
            LOOP: partial(_loop, alone, looped),
        }
        timed = {name: (lambda _, work=work: work() is None) for name, work in candidates.items()}
        for measured in interleaved(timed, plan.repeats):
            fits = looped if measured.label == LOOP else plan.n_parties
            facts = {"fit": fit, "how": measured.label, "fits": fits, "repeat": measured.repeat}
            found.append(facts | {"seconds": measured.seconds})
    return as_rows(found)


def data(n_parties: int) -> Records:
    """Rows of length 1 around a centre for each class, labels, and where parties begin."""
    n_rows, n_features, n_classes = PARTIES_SHAPE
    rng = np.random.default_rng(7)
    y = rng.integers(0, n_classes, n_parties * n_rows)
    X = 0.25 * rng.normal(size=(n_classes, n_features))[y] + rng.normal(size=(len(y), n_features))
    X = np.maximum(X, 0.0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, y.astype(np.int64), np.arange(0, len(y) + 1, n_rows, dtype=np.int64)


def _fits(records: Records) -> Iterator[tuple[str, Call, Call]]:
    """(name, all parties with so many threads, one party) of every kind of fit."""
    n_parties, n_rows = len(records[2]) - 1, PARTIES_SHAPE[0]
    for regularization in PARTIES_REGULARIZATIONS:
        in_sum = n_rows * regularization
        distance = TOL * 2.0 / in_sum
        for loss in ("softmax_margin", "huber"):
            numbers = {"regularization": in_sum, "gradient_tol": distance * in_sum}
            yield (
                f"{loss}, Lambda {regularization:g}",
                partial(_smooth, records, loss, numbers),
                partial(_smooth_alone, records, loss, numbers),
            )
        numbers = {"C": 1.0 / in_sum, "radius": distance}
        yield (
            f"crammer_singer, Lambda {regularization:g}",
            partial(_crammer_singer, records, numbers),
            partial(_crammer_singer_alone, records, numbers),
        )
    for n_epochs in PARTIES_EPOCHS:
        lams = np.full(n_parties, PARTIES_REGULARIZATIONS[0])
        yield (
            f"projected SGD, {n_epochs} passes",
            partial(_descents, records, n_epochs, lams),
            partial(_descent_alone, records, n_epochs, float(lams[0])),
        )


def _loop(alone: Call, n_parties: int) -> None:
    for party in range(n_parties):
        alone(party)


def _own(records: Records, party: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    begin, end = records[2][party : party + 2]
    return records[0][begin:end], records[1][begin:end]


def _smooth_options(loss: str) -> Options:
    return SMOOTH | {"loss": loss, "n_scores": PARTIES_SHAPE[2], "shuffle_seed": 1}


def _smooth(records: Records, loss: str, numbers: Options, n_threads: int) -> object:
    each = {f"{name}s": np.full(len(records[2]) - 1, x) for name, x in numbers.items()}
    options = each | _smooth_options(loss)
    return _core.solve_smooth_parties(*records, n_threads=n_threads, **options)


def _smooth_alone(records: Records, loss: str, numbers: Options, party: int) -> object:
    single = {"linear": None, "max_iter": None, "n_threads": 1, "low_memory": False}
    options = numbers | single | _smooth_options(loss)
    return _core.solve_smooth(*_own(records, party), **options)


def _crammer_singer(records: Records, numbers: Options, n_threads: int) -> object:
    each = {name: np.full(len(records[2]) - 1, x) for name, x in numbers.items()}
    options = each | CLIPPED | {"n_classes": PARTIES_SHAPE[2], "shuffle_seed": 1}
    return _core.solve_crammer_singer_parties(*records, n_threads=n_threads, **options)


def _crammer_singer_alone(records: Records, numbers: Options, party: int) -> object:
    single = {"max_iter": None, "n_threads": 1, "low_memory": False}
    options = numbers | single | CLIPPED | {"n_classes": PARTIES_SHAPE[2], "shuffle_seed": 1}
    return _core.solve_crammer_singer(*_own(records, party), **options)


def _descent_options(n_epochs: int) -> Options:
    shape = {"loss": "huber", "n_scores": PARTIES_SHAPE[2], "radius": RADIUS, "n_epochs": n_epochs}
    rule = {"projection": "joint", "average": "last", "permutation_seed": 1, "batch_size": BATCH}
    return SMOOTH | shape | rule


def _descents(records: Records, n_epochs: int, lams: NDArray[np.float64], n_threads: int) -> object:
    options = _descent_options(n_epochs) | {"regularizations": lams, "n_threads": n_threads}
    return _core.projected_sgd_parties(*records, **options)


def _descent_alone(records: Records, n_epochs: int, lam: float, party: int) -> object:
    options = _descent_options(n_epochs) | {
        "regularization": lam,
        "low_memory": False,
        "most_rows": 1,
    }
    return _core.projected_sgd(*_own(records, party), **options)


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Medians: milliseconds a fit, seconds of a thousand of them."""
    cells: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        seconds = float(row["seconds"]) / int(row["fits"])
        cells.setdefault((row["fit"], row["how"]), []).append(seconds)
    return as_rows(
        {"fit": fit, "how": how, "ms_per_fit": 1e3 * median(times)}
        | {"seconds_per_1000": 1e3 * median(times)}
        for (fit, how), times in cells.items()
    )
