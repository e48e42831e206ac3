"""Every script of the papers' tables runs, and its stored figures are its own."""

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


@pytest.mark.nightly
@pytest.mark.parametrize("name", command.MODULES)
def test_every_script_runs(name: str, tmp_path: Path) -> None:
    """From measuring to drawing, on a few rows; without its data or library it says SKIPPED."""
    assert command.main([name, "--quick", "--out", str(tmp_path)]) == 0
    for summary in tmp_path.glob("papers_*.csv"):
        # No method spends more than its budget.
        assert "False" not in {row.get("holds") for row in tables.read(summary)[0]}
