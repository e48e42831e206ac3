"""Speed of the samplers: draws a second, and milliseconds for one long vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import numpy as np

from benches.config import NOISE_SIGMA, NOISE_STEPS, NOISE_THREADS, Plan
from benches.libraries import numpy_generator
from benches.measuring import interleaved
from benches.tables import Row, as_rows
from dpsvm_fast import _core


def run(plan: Plan) -> list[Row]:
    """One row a measurement of ``plan.n_draws`` values."""
    source, rng, size = _core.NoiseSource(), np.random.default_rng(), plan.n_draws
    draws: dict[str, Callable[[], object]] = {
        "gaussian|numpy|1": lambda: numpy_generator.gaussian(rng, size, 1.0),
        "gamma_ball|numpy|1": lambda: numpy_generator.gamma_ball(rng, size, 1.0),
    }
    for n_threads in NOISE_THREADS:
        grid = 1.0 / NOISE_STEPS
        ours: dict[str, Callable[[], object]] = {
            "gaussian_on_grid": partial(source.gaussian_on_grid, size, 1.0, grid, n_threads),
            "discrete_gaussian": partial(source.discrete_gaussian, size, NOISE_SIGMA, n_threads),
            "gaussian": partial(source.gaussian, size, 1.0, n_threads),
            "gamma_ball": partial(source.gamma_ball, size, 1.0, n_threads),
        }
        draws |= {f"{name}|dpsvm_fast|{n_threads}": call for name, call in ours.items()}
    # One untimed round first: pages, pools and clocks warm up.
    for draw in draws.values():
        draw()
    # The array dies inside the measurement, as it would in a release.
    candidates = {label: (lambda _, draw=draw: draw() is None) for label, draw in draws.items()}
    records = []
    for measured in interleaved(candidates, 3 * plan.repeats):
        sampler, library, n_threads_text = measured.label.split("|")
        records.append(
            {
                "sampler": sampler,
                "library": library,
                "n_threads": n_threads_text,
                "size": size,
                "repeat": measured.repeat,
                "seconds": measured.seconds,
            }
        )
    return as_rows(records)


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Medians: nanoseconds a value, million values a second, milliseconds the vector."""
    cells: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("sampler", "library", "n_threads", "size"))
        cells.setdefault(key, []).append(float(row["seconds"]))
    table = []
    for (sampler, library, n_threads, size), times in sorted(cells.items()):
        seconds = median(times)
        table.append(
            {
                "sampler": sampler,
                "library": library,
                "n_threads": n_threads,
                "size": size,
                "ns_per_draw": 1e9 * seconds / int(size),
                "million_draws_per_s": int(size) / seconds / 1e6,
                "ms": 1e3 * seconds,
            }
        )
    return as_rows(table)
