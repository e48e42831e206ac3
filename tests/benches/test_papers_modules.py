"""Every script of the papers' tables keeps the contract, and its stored figures are its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from benches.papers import command, results_page

from benches import tables

ROOT = Path(__file__).resolve().parents[2]


RESULTS = ROOT / "benches" / "results"


def stored(name: str) -> tuple[list[tables.Row], list[tables.Row]]:
    """Runs and summary as they are stored."""
    paths = [RESULTS / f"papers_{name}{end}.csv" for end in ("_runs", "")]
    if not paths[1].is_file():
        pytest.skip("nothing stored")
    return tables.read(paths[0])[0], tables.read(paths[1])[0]


@pytest.mark.parametrize("name", command.MODULES)
def test_the_stored_summary_is_that_of_the_stored_runs(name: str) -> None:
    module = command.module_of(name)
    runs, table = stored(name)
    assert {row["data"] for row in runs} <= set(module.DATA)
    again = module.analyse(runs)
    assert again == table
    assert all(isinstance(line, str) for line in module.failures(table))


def test_the_page_is_that_of_the_stored_summaries() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    fresh = results_page.contents(RESULTS, command.all_modules())
    assert page == fresh, "run: python -m benches.papers page"
