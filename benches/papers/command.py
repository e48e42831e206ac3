"""The command line of the accuracy benchmarks: ``python -m benches.papers NAME...``.

A module of this folder measures one table or figure of a paper, or our defaults beside one. It has
TITLE, PROTOCOL, DATA, QUICK_DATA, QUICK_REPEATS, run, analyse, failures, plot and page. Here are
the steps that are the same for all of them.
"""

from __future__ import annotations

import argparse
import importlib
import io
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from benches import tables
from benches.machine import description
from benches.papers import results_page
from dpsvm_fast import _core

ROOT = Path(__file__).resolve().parents[2]
RESULTS, IMAGES, PAGE = (
    ROOT / "benches" / "results",
    ROOT / "docs" / "images",
    ROOT / "docs" / "results.md",
)
# In the order of the page of results. Imported only where they are used: each needs something else.
MODULES: tuple[str, ...] = (
    "auto",
    "budgets",
    "op",
    "outside_peers",
    "pmsvm_table2",
    "pmsvm_figure2",
    "pmsvm_figure3",
    "pmsvm_table4",
    "pmsvm_table9",
    "pmsvm_table10",
    "pmsvm_table11",
    "scm_figure1",
    "scm_figure2",
    "scm_figure3",
    "scm_figure4",
    "feddpdr_figure2",
    "feddpdr_figure3",
    "feddpdr_figure4",
    "feddpdr_figure5",
    "feddpdr_table3",
    "helmet_figure3",
    "helmet_figure4",
    "helmet_figure8",
    "helmet_table2",
    "lmgc",
    "kernel",
    "kernel_timing",
    "maps",
    "tuning",
)
STEPS = ("run", "analyse", "plot")
# What is imported without being a missing library when it fails.
OWN_PACKAGES = ("benches", "dpsvm_fast")


def module_of(name: str) -> Any:
    """The module of a registered name."""
    return importlib.import_module(f"benches.papers.{name}")


def all_modules() -> dict[str, Any]:
    """Every registered module."""
    return {name: module_of(name) for name in MODULES}


def script(path: str) -> int:
    """The command line of one module that is run by itself."""
    return main([Path(path).stem, *sys.argv[1:]])


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The parsed command line; ``names`` are registered ones."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.papers",
        description="Accuracy beside published figures.",
        epilog=f"NAME is one of {', '.join(MODULES)}, or all, or page (writes docs/results.md).",
    )
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="to see that it works; stores nothing")
    parser.add_argument("--data", action="append", help="of several sets; others keep their rows")
    parser.add_argument("--repeats", type=int, help="splits, draws or rounds")
    parser.add_argument("--step", action="append", choices=STEPS)
    parser.add_argument("--out", type=Path, help="folder of the results")
    options = parser.parse_args(given)
    options.step = options.step or list(STEPS)
    unknown = [name for name in options.names if name not in (*MODULES, "all", "page")]
    if unknown:
        parser.error(f"{', '.join(unknown)}: NAME is one of {', '.join(MODULES)}, all, page")
    if options.repeats is not None and options.repeats < 1:
        parser.error("--repeats is at least 1")
    if "all" in options.names:
        options.names = [*MODULES, *(["page"] if "page" in options.names else [])]
    for name in options.names if options.data else ():
        known = () if name == "page" else _known(module_of(name))
        if not set(options.data) <= set(known):
            parser.error(f"--data of {name} is one of {', '.join(map(repr, known))}")
    return options


def _known(module: Any) -> tuple[str, ...]:
    """Names of data sets; quick runs may have smaller ones of their own."""
    return tuple(dict.fromkeys((*module.DATA, *module.QUICK_DATA)))


def main(given: Sequence[str] | None = None) -> int:
    """Do what is asked for; 1 when a module raised, or a figure misses what it has to reach."""
    options = arguments(given)
    with _folder(options) as folder:
        failed = [name for name in options.names if not _done(name, options, folder)]
    if failed and len(options.names) > 1:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


@contextmanager
def _folder(options: argparse.Namespace) -> Iterator[Path]:
    """Where results go: quick ones never among those that are stored."""
    if options.out is not None or not options.quick:
        yield options.out or RESULTS
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _done(name: str, options: argparse.Namespace, folder: Path) -> bool:
    """Run one name; whether nothing failed. Quick runs of several say one line each."""
    brief = options.quick and len(options.names) > 1
    said = io.StringIO()
    begin = time.perf_counter()
    failures: list[str] = []
    try:
        with redirect_stdout(said if brief else sys.stdout):
            outcome, failures = _measured(name, options, folder)
    except Exception as error:
        outcome, failures = _outcome_of(error)
    judged = bool(failures) and (not options.quick or outcome == "FAILED")
    if outcome != "FAILED":
        print("\n".join(failures), end="\n" if failures else "", file=sys.stderr)
    skipped = [line for line in said.getvalue().splitlines() if line.startswith("SKIPPED")]
    print("\n".join(skipped), end="\n" if skipped else "")
    seconds = time.perf_counter() - begin
    print(f"{name}: {outcome}, {seconds:.1f} s{', remarks above' * (bool(failures) > judged)}")
    sys.stdout.flush()
    return not judged


def _outcome_of(error: Exception) -> tuple[str, list[str]]:
    """A missing library is no failure."""
    missing = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and missing not in ("", *OWN_PACKAGES):
        return f"SKIPPED: needs {missing} (benches/README.md says how to install it)", []
    traceback.print_exception(error)
    return "FAILED", ["it raised"]


def _measured(name: str, options: argparse.Namespace, folder: Path) -> tuple[str, list[str]]:
    """The steps asked for: an outcome in a word, and what misses what it has to reach."""
    if name == "page":
        path = PAGE if folder == RESULTS else folder / PAGE.name
        results_page.write(path, folder, all_modules())
        return "written", []
    module = module_of(name)
    path = folder / f"papers_{name}_runs.csv"
    if "run" in options.step and not _run(name, module, options, path):
        return "SKIPPED", []
    if not {"analyse", "plot"} & set(options.step) or not path.is_file():
        return "done", []
    rows, facts = tables.read(path)
    table = module.analyse(rows)
    if "plot" in options.step:
        _plot(module, table, (IMAGES if folder == RESULTS else folder) / f"papers_{name}.png")
    if "analyse" not in options.step:
        return "done", []
    tables.write(folder / f"papers_{name}.csv", table, facts)
    print(tables.printed(table))
    return "done", module.failures(table)


def _run(name: str, module: Any, options: argparse.Namespace, path: Path) -> bool:
    """Store every fit, sets one after the other, so that what is done is kept; whether any was."""
    quick = options.quick
    stored = False
    for data in options.data or (module.QUICK_DATA if quick else module.DATA):
        begin, spent = time.perf_counter(), time.process_time()
        rows = module.run([data], options.repeats or (module.QUICK_REPEATS if quick else None))
        seconds, spent = time.perf_counter() - begin, time.process_time() - spent
        print(f"{name}, {data}: {seconds:.0f} s, {spent:.0f} s of CPU time", flush=True)
        if rows:
            _store(path, rows, module.DATA)
            stored = True
    return stored


def _store(path: Path, rows: list[tables.Row], order: Sequence[str]) -> None:
    """Write rows beside those of other sets that are already there."""
    replaced = {row.get("data") for row in rows}
    stored = tables.read(path)[0] if path.is_file() else []
    kept = [row for row in stored if row.get("data") not in replaced]
    places = {data: place for place, data in enumerate(order)}
    together = sorted(kept + rows, key=lambda row: places.get(row.get("data", ""), len(places)))
    tables.write(path, together, description(_core.build_info(), 1))


def _plot(module: Any, table: Sequence[tables.Row], path: Path) -> None:
    """The picture, where the library for it is installed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        module.plot(table, path)
    except ModuleNotFoundError as missing:
        if missing.name != "matplotlib":
            raise
        print("SKIPPED the picture: matplotlib is not installed")
