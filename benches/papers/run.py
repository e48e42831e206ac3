"""Accuracy of private pipelines beside published figures.

    python benches/papers/run.py auto|op|adult|kernel|balls|feddpdr|lmgc|tuning|helmet|uneven
        [--data NAME ...] [--repeats N] [--timing] [--step run|analyse|plot ...] [--out FOLDER]

auto: the linear pipeline at its defaults. op: objective perturbation with Gaussian noise, many
classes. adult: pure objective perturbation, two classes. kernel: random features at their defaults.
balls: a kernel under pure epsilon. feddpdr: private PCA before a linear SVM. lmgc: Gaussian
ellipsoids. tuning: searches over parameters beside the defaults. helmet: blind averaging over many
users. uneven: parties with different numbers of rows. Data sets as for the benchmarks; every fit
goes to papers_<subject>_runs.csv. With --timing only the timed part of kernel or feddpdr runs, on
an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Run as a script, this folder is on the path instead of the one that holds the package.
sys.path.insert(0, str(ROOT))

from benches import tables  # noqa: E402
from benches.machine import description  # noqa: E402
from benches.papers import (  # noqa: E402
    adult,
    auto,
    balls,
    feddpdr,
    feddpdr_timing,
    helmet,
    kernel,
    kernel_timing,
    lmgc,
    op,
    tuning,
    uneven,
)
from dpsvm_fast import _core  # noqa: E402

RESULTS, IMAGES = ROOT / "benches" / "results", ROOT / "docs" / "images"
SUBJECTS: dict[str, Any] = {
    "auto": auto,
    "op": op,
    "adult": adult,
    "kernel": kernel,
    "balls": balls,
    "feddpdr": feddpdr,
    "lmgc": lmgc,
    "tuning": tuning,
    "helmet": helmet,
    "uneven": uneven,
}
TIMED: dict[str, Any] = {"kernel": kernel_timing, "feddpdr": feddpdr_timing}
# Data sets of the subjects that have several.
DATA: dict[str, tuple[str, ...]] = {
    "auto": tuple(auto.PROTOTYPE),
    "op": tuple(op.SPLITS),
    "kernel": tuple(kernel.CELLS),
    "feddpdr": feddpdr.TASKS,
    "lmgc": tuple(lmgc.RECIPES),
    "tuning": tuning.NAMES,
    "helmet": helmet.FEATURES,
    "uneven": uneven.TASKS,
}
STEPS = ("run", "analyse", "plot")


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("subject", choices=list(SUBJECTS))
    parser.add_argument("--data", action="append", help="of several sets; others keep their rows")
    parser.add_argument("--repeats", type=int, help="splits, draws or rounds")
    parser.add_argument("--timing", action="store_true", help="only what is timed")
    parser.add_argument("--step", action="append", choices=STEPS)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    options = parser.parse_args(given)
    options.step = options.step or list(STEPS)
    known = DATA.get(options.subject, ())
    if options.data and not known:
        parser.error(f"--data is for {', '.join(DATA)}")
    if not set(options.data or ()) <= set(known):
        parser.error(f"--data of {options.subject} is one of {', '.join(known)}")
    if options.timing and options.subject not in TIMED:
        parser.error(f"--timing is for {', '.join(TIMED)}")
    return options


def main(given: Sequence[str] | None = None) -> int:
    """Run the steps asked for; 1 when a figure misses what it has to reach."""
    options = arguments(given)
    name = f"papers_{options.subject}" + ("_timing" if options.timing else "")
    subject = (TIMED if options.timing else SUBJECTS)[options.subject]
    path = options.out / f"{name}_runs.csv"
    if "run" in options.step:
        _measure(subject, options, path)
    if not {"analyse", "plot"} & set(options.step) or not path.is_file():
        return 0
    rows, facts = tables.read(path)
    table = subject.analyse(rows)
    if "plot" in options.step and hasattr(subject, "plot"):
        images = IMAGES if options.out == RESULTS else options.out
        subject.plot(table, images / f"{name}.png")
    if "analyse" not in options.step:
        return 0
    tables.write(options.out / f"{name}.csv", table, facts)
    print(tables.printed(table))
    failures = subject.failures(table)
    print("\n".join(failures), file=sys.stderr if failures else sys.stdout)
    return 1 if failures else 0


def _measure(subject: Any, options: argparse.Namespace, path: Path) -> None:
    """Store every fit; sets one after the other, so that what is done is kept."""
    if options.timing or options.subject not in DATA:
        _store(path, subject.run(options.repeats), replaced=None)
        return
    for name in options.data or DATA[options.subject]:
        _store(path, subject.run([name], options.repeats), replaced=name)


def _store(path: Path, rows: list[tables.Row], *, replaced: str | None) -> None:
    """Write rows, beside those of other sets that are already there."""
    if not rows:
        return
    kept: list[tables.Row] = []
    if replaced is not None and path.is_file():
        kept = [row for row in tables.read(path)[0] if row["data"] != replaced]
    tables.write(path, kept + rows, description(_core.build_info(), 1))


if __name__ == "__main__":
    raise SystemExit(main())
