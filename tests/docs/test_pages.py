"""Pages of the documentation: their blocks run as pasted, their tables are those of benchmarks."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from benches.papers import scores

from benches import pages, report
from docs.test_readme import python_blocks, run_blocks

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benches" / "results"

Page = Callable[[str], str]


@pytest.fixture
def printed_by(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Page:
    """What the blocks of a page print, one after the other, in an empty folder."""

    def run(name: str) -> str:
        monkeypatch.chdir(tmp_path)
        blocks = python_blocks((ROOT / "docs" / name).read_text(encoding="utf-8"))
        assert blocks
        run_blocks(blocks)
        return capsys.readouterr().out

    return run


def numbers(pattern: str, text: str) -> list[float]:
    """The numbers in the groups of ``pattern``."""
    found = re.search(pattern, text, flags=re.MULTILINE)
    assert found is not None, text
    return [float(group) for group in found.groups()]


# Bounds leave five standard deviations of the noise or more on each side.
def test_kernels(printed_by: Page) -> None:
    printed = printed_by("kernels.md")
    gamma, score = numbers(r"^rbf (\S+) (\S+)$", printed)
    assert 0.25 <= gamma <= 1.0
    # 0.97 with a standard deviation of 0.01 over noise and features.
    assert 0.9 < score <= 1.0
    # The ellipsoids, at the end.
    assert 0.9 < float(printed.splitlines()[-1]) <= 1.0


def test_tuning(printed_by: Page) -> None:
    score, epsilon = numbers(r"^\{'gamma': \S+\} (\S+) (\S+)$", printed_by("tuning.md"))
    assert 0.8 < score <= 1.0
    assert epsilon == 4.0


def test_budget(printed_by: Page) -> None:
    spent, holds, *_, noise = printed_by("budget.md").splitlines()
    epsilon, delta = numbers(r"^\((\S+), (\S+)\)$", spent)
    # The ledger's delta is larger than that of the fit, so it is charged a smaller epsilon.
    assert 1.0 < epsilon <= 2.0
    assert delta == 1e-4
    assert holds.startswith("The certificate holds")
    multiplier, epsilon = map(float, noise.split())
    assert multiplier > 1.0
    assert 0.99 < epsilon <= 1.0


def test_pipelines(printed_by: Page) -> None:
    alone, few, both, *flags = printed_by("pipelines.md").splitlines()
    assert [few, *flags] == ["True"] * 5
    assert 0.6 < float(alone) <= 1.0
    total, score = map(float, both.split())
    assert 1.4 < total <= 2.0
    assert 0.8 < score <= 1.0


def between(text: str, name: str) -> str | None:
    """What stands between the markers of a table; None where there are none."""
    opening, closing = pages.markers(name)
    if opening not in text and closing not in text:
        return None
    assert text.count(opening) == text.count(closing) == 1
    return text.partition(opening)[2].partition(closing)[0].strip()


@pytest.mark.parametrize("page", pages.PAGES)
def test_tables_are_those_of_stored_summaries(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    stored = pages.contents(page, RESULTS)
    # No summary, no table: figures that nobody can recompute have no place.
    assert {name: between(text, name) for name in pages.PAGES[page]} == {
        name: stored.get(name) for name in pages.PAGES[page]
    }


def test_tables_of_speed_are_those_of_stored_summaries(tmp_path: Path) -> None:
    page = tmp_path / pages.SPEED
    page.parent.mkdir()
    text = (ROOT / pages.SPEED).read_text(encoding="utf-8")
    page.write_text(re.sub(r"\d\.\d\u00d7", "?", text), encoding="utf-8")
    pages.fill_speed(RESULTS, tmp_path)
    filled = page.read_text(encoding="utf-8")
    solver = (report.OPENING, report.CLOSING)
    for opening, closing in (solver, report.OBJECTIVE, report.DESCENT, pages.MACHINE):
        own, theirs = (one.partition(opening)[2].partition(closing)[0] for one in (text, filled))
        assert own == theirs
        assert own


def test_a_changed_figure_is_caught() -> None:
    """Negative control: what stands on a page is compared digit by digit."""
    stored = pages.contents("docs/kernels.md", RESULTS)["kernel-table"]
    opening, closing = pages.markers("kernel-table")
    shown = f"{opening}\n{stored}\n{closing}"
    figure = re.findall(r"0\.\d{3}", stored)[0]
    changed = shown.replace(figure, f"{float(figure) + 0.001:.3f}", 1)
    assert between(shown, "kernel-table") == stored
    assert between(changed, "kernel-table") != stored
    assert between("", "kernel-table") is None


def test_accuracies_are_those_of_the_benchmark() -> None:
    lines = (RESULTS / "papers_auto.csv").read_text("utf-8").splitlines()
    stored = {
        (row["data"], row["model"], row["epsilon"]): float(row["accuracy"])
        for row in csv.DictReader(line for line in lines if not line.startswith("#"))
    }
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    wisdm = re.search(r"^\| wisdm \| (0.*)", page, flags=re.MULTILINE)
    assert wisdm is not None
    private = [stored["wisdm", "PrivateLinearSVC", epsilon] for epsilon in "1248"]
    others = [stored["wisdm", name, ""] for name in scores.REFERENCES]
    shown = re.findall(r"(0\.\d{3}) ±", wisdm[1])
    assert shown == [f"{one:.3f}" for one in (*private, *others)]
