"""Accuracy of private pipelines beside published figures.

    python benches/papers/run.py auto|op|adult [--data NAME ...] [--repeats N]
        [--step run|analyse ...] [--out FOLDER]

auto: the whole private pipeline at its defaults. op: objective perturbation with Gaussian noise,
many classes. adult: pure objective perturbation, two classes. Data sets as for the benchmarks;
every fit goes to papers_<subject>_runs.csv.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Run as a script, this folder is on the path instead of the one that holds the package.
sys.path.insert(0, str(ROOT))

from benches import tables  # noqa: E402
from benches.machine import description  # noqa: E402
from benches.papers import adult, auto, op  # noqa: E402
from dpsvm_fast import _core  # noqa: E402

RESULTS = ROOT / "benches" / "results"
SUBJECTS = {"auto": auto, "op": op, "adult": adult}


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("subject", choices=list(SUBJECTS))
    parser.add_argument(
        "--data",
        action="append",
        choices=list(auto.PROTOTYPE),
        help="of auto and op; others keep their rows",
    )
    parser.add_argument("--repeats", type=int, help="splits of auto and op, draws of adult")
    parser.add_argument("--step", action="append", choices=["run", "analyse"])
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the CSV files")
    options = parser.parse_args(given)
    options.step = options.step or ["run", "analyse"]
    if options.data and options.subject == "adult":
        parser.error("--data is for auto and op")
    if options.subject == "op" and not set(options.data or ()) <= set(op.SPLITS):
        parser.error(f"--data of op is one of {', '.join(op.SPLITS)}")
    return options


def main(given: Sequence[str] | None = None) -> int:
    """Run the steps asked for; 1 when a figure misses what it has to reach."""
    options = arguments(given)
    path = options.out / f"papers_{options.subject}_runs.csv"
    subject = SUBJECTS[options.subject]
    if "run" in options.step:
        rows = (
            adult.run(options.repeats)
            if options.subject == "adult"
            else subject.run(options.data or list(subject.PROTOTYPE), options.repeats)
        )
        if options.data and path.is_file():
            # The rows of the other data sets stay.
            kept = [row for row in tables.read(path)[0] if row["data"] not in options.data]
            rows = kept + rows
        if rows:
            tables.write(path, rows, description(_core.build_info(), 1))
    if "analyse" not in options.step or not path.is_file():
        return 0
    rows, facts = tables.read(path)
    table = subject.analyse(rows)
    tables.write(options.out / f"papers_{options.subject}.csv", table, facts)
    print(tables.printed(table))
    failures = subject.failures(table)
    print("\n".join(failures), file=sys.stderr if failures else sys.stdout)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
