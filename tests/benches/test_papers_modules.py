"""Every script of the papers' tables keeps the contract, and its stored figures are its own."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from benches.papers import command, results_page

from benches import tables

ROOT = Path(__file__).resolve().parents[2]


RESULTS = ROOT / "benches" / "results"
# The functions of a module with the names of their parameters: all are called by position.
FUNCTIONS = {"run": 2, "analyse": 1, "failures": 1, "plot": 2, "page": 1}


def stored(name: str) -> tuple[list[tables.Row], list[tables.Row]]:
    """Runs and summary as they are stored."""
    paths = [RESULTS / f"papers_{name}{end}.csv" for end in ("_runs", "")]
    if not paths[1].is_file():
        pytest.skip("nothing stored")
    return tables.read(paths[0])[0], tables.read(paths[1])[0]


def test_what_is_stored_has_a_module() -> None:
    names = {path.stem.removeprefix("papers_") for path in RESULTS.glob("papers_*.csv")}
    known = {end for name in command.MODULES for end in (name, f"{name}_runs")}
    assert names <= known
    pictures = {path.stem for path in (ROOT / "docs" / "images").glob("papers_*.png")}
    assert pictures <= {f"papers_{name}" for name in command.MODULES}


@pytest.mark.parametrize("name", command.MODULES)
def test_the_contract_is_kept(name: str) -> None:
    module = command.module_of(name)
    assert isinstance(module.TITLE, str)
    assert module.TITLE.strip() == module.TITLE
    assert isinstance(module.PROTOCOL, tuple)
    assert module.PROTOCOL
    for sentence in module.PROTOCOL:
        assert sentence.endswith(".")
        assert "  " not in sentence
    for names in (module.DATA, module.QUICK_DATA):
        assert isinstance(names, tuple)
        assert names
        assert all(isinstance(one, str) for one in names)
    assert len(set(module.DATA)) == len(module.DATA)
    # Quick runs may have the first rows of a set, which no full run has.
    assert {one.partition(",")[0] for one in module.QUICK_DATA} <= {
        one.partition(",")[0] for one in module.DATA
    }
    assert isinstance(module.QUICK_REPEATS, int)
    assert module.QUICK_REPEATS >= 1
    for function, parameters in FUNCTIONS.items():
        inspect.signature(getattr(module, function)).bind(*range(parameters))


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


def test_the_list_of_papers_names_every_section() -> None:
    papers = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    modules = command.all_modules()
    opening, closing = results_page.MARKERS
    listed = papers.partition(opening)[2].partition(closing)[0].strip()
    assert listed == results_page.index(RESULTS, modules), "run: python -m benches.papers page"
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    sections = {results_page.anchor_of(title) for title in re.findall(r"^### (.*)$", page, re.M)}
    assert set(re.findall(r"results\.md#([^)]+)\)", listed)) == sections
