"""Benchmarks in four steps, each of which can be run alone; see README.md in this folder.

    python benches/run.py [solver|noise|accounting|memory|crossing|objective|objective_fit|descent
        |descent_memory|linear_fit|transformers|parties|roofline|all]
        [--step run|analyse|plot|update ...] [--quick] [--threads N] [--out FOLDER]

run measures and stores every measurement, analyse reduces them to a summary, plot draws it, update
fills the tables of README and documentation. Without --step: run, analyse and plot.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
# Run as a script, this folder is on the path instead of the one that holds the package.
sys.path.insert(0, str(ROOT))

from threadpoolctl import threadpool_limits  # noqa: E402

from benches import pages, report, tables  # noqa: E402
from benches.config import Plan, quick  # noqa: E402
from benches.machine import description, require_release  # noqa: E402
from benches.subjects import (  # noqa: E402
    accounting,
    crossing,
    descent,
    descent_memory,
    linear_fit,
    memory,
    noise,
    objective,
    objective_fit,
    parties,
    roofline,
    solver,
    transformers,
)
from dpsvm_fast import _core  # noqa: E402

SUBJECTS: dict[str, ModuleType] = {
    "solver": solver,
    "noise": noise,
    "accounting": accounting,
    "memory": memory,
    "crossing": crossing,
    "objective": objective,
    "objective_fit": objective_fit,
    "descent": descent,
    "descent_memory": descent_memory,
    "linear_fit": linear_fit,
    "transformers": transformers,
    "parties": parties,
    "roofline": roofline,
}
STEPS = ("run", "analyse", "plot", "update")
RESULTS = ROOT / "benches" / "results"
# Ignored by git with the rest of target/: quick figures are not results.
QUICK_RESULTS = ROOT / "target" / "bench_quick"


def run_step(name: str, out: Path, plan: Plan, facts: dict[str, str]) -> None:
    """Measure and store every single measurement."""
    with threadpool_limits(limits=1):
        rows = SUBJECTS[name].run(plan)
    if rows:
        tables.write(out / f"{name}_runs.csv", rows, facts)


def analyse_step(name: str, out: Path) -> list[str]:
    """Reduce the measurements; returns what makes a figure invalid."""
    path = out / f"{name}_runs.csv"
    if not path.is_file():
        print(f"SKIPPED {name}: no {path.name}; the step run makes it")
        return []
    rows, facts = tables.read(path)
    table = SUBJECTS[name].analyse(rows)
    tables.write(out / f"{name}.csv", table, facts)
    print(f"\n{name}\n{tables.printed(table)}", flush=True)
    failures = getattr(SUBJECTS[name], "failures", None)
    return failures(table) if failures else []


def plot_step(out: Path) -> None:
    """Draw the solver's ratios."""
    path = out / "solver.csv"
    if path.is_file():
        report.plot(tables.read(path)[0], out / "solver.png")
        print(f"plot: {out / 'solver.png'}")


def update_step(out: Path) -> None:
    """Fill the tables of README and documentation from the stored summaries."""
    pages.fill_speed(out, ROOT)
    for page in pages.PAGES:
        pages.fill(page, out, ROOT)
        print(f"updated {page}")


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("subject", nargs="?", default="all", choices=[*SUBJECTS, "all"])
    parser.add_argument("--step", action="append", choices=STEPS, help="may be repeated")
    parser.add_argument("--quick", action="store_true", help="small data, seconds, not for keeps")
    parser.add_argument("--threads", type=int, default=1, help="threads of our solver")
    parser.add_argument("--out", type=Path, help="folder of the CSV files")
    options = parser.parse_args(given)
    options.step = options.step or ["run", "analyse", "plot"]
    options.out = options.out or (QUICK_RESULTS if options.quick else RESULTS)
    if options.quick and "update" in options.step:
        parser.error("figures of a --quick run do not go into README and documentation")
    return options


def main(given: Sequence[str] | None = None) -> int:
    """Run the steps asked for; 1 when a figure is invalid (see ``failures`` of the subjects)."""
    options = arguments(given)
    names = list(SUBJECTS) if options.subject == "all" else [options.subject]
    failures: list[str] = []
    if "run" in options.step:
        build = _core.build_info()
        require_release(build)
        facts = description(build, options.threads)
        print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
        plan = quick(options.threads) if options.quick else Plan(n_threads=options.threads)
        for name in names:
            run_step(name, options.out, plan, facts)
    if "analyse" in options.step:
        for name in names:
            failures += analyse_step(name, options.out)
    if "plot" in options.step and "solver" in names:
        plot_step(options.out)
    if "update" in options.step:
        update_step(options.out)
    print("\n".join(failures), file=sys.stderr if failures else sys.stdout)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
