"""The README's Python blocks run, one after the other, as a reader would paste them."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benches import readme_tables  # noqa: E402


def python_blocks(text: str) -> list[str]:
    """Return the Python code blocks of a Markdown text."""
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def run_blocks(blocks: list[str]) -> dict[str, object]:
    """Run code blocks in one namespace and return it."""
    namespace: dict[str, object] = {}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"README.md block {number}", "exec"), namespace)
    return namespace


def test_the_examples_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One of them writes a file where it runs.
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 2
    namespace = run_blocks(blocks)
    printed = capsys.readouterr().out
    score = float(printed.splitlines()[0])
    # 0.91 with a standard deviation of 0.013 over the noise; chance is 0.1.
    assert 0.8 < score <= 1.0
    # The second model is the one in `clf`; its statement names what the example asked for.
    statement = namespace["clf"].privacy_
    assert statement.mechanism == "private_linear"
    assert statement.epsilon == 2.0
    assert statement.delta == 1e-5
    assert np.all(np.isfinite(namespace["clf"].coef_))
    # A kernel, 0.97 with a standard deviation of 0.01 over noise and features.
    found = re.search(r"^rbf (\S+) (\S+)$", printed, flags=re.MULTILINE)
    assert found is not None
    assert 0.25 <= float(found[1]) <= 1.0
    assert 0.9 < float(found[2]) <= 1.0
    # A search: parameters, score, and the epsilon of everything.
    found = re.search(r"^\{'gamma': \S+\} (\S+) (\S+)$", printed, flags=re.MULTILINE)
    assert found is not None
    assert 0.8 < float(found[1]) <= 1.0
    assert float(found[2]) == 4.0
    # An audit of epsilon 1: 0.64 expected of 20,000 runs.
    bound = re.search(r"^  certified  epsilon >= (\S+)", printed, flags=re.MULTILINE)
    assert bound is not None
    assert 0.2 < float(bound[1]) < 1.0
    # Two numbers alone on a line: a noise multiplier with its epsilon, and a pipeline's epsilon and
    # score. The last lines: a score, those of the pipeline, the score of ellipsoids.
    multiplier_line = next(re.finditer(r"^\d\S* \d\S*$", printed, flags=re.MULTILINE))[0]
    *_, score_line, pipeline_line, ellipsoid_line, parties_line, rows_line = printed.splitlines()
    multiplier, epsilon = map(float, multiplier_line.split())
    assert multiplier > 1.0
    assert 0.99 < epsilon <= 1.0
    assert 0.6 < float(score_line) <= 1.0
    total, score = map(float, pipeline_line.split())
    assert 1.4 < total <= 2.0
    assert 0.8 < score <= 1.0
    assert 0.9 < float(ellipsoid_line) <= 1.0
    # Twenty parties, 0.76 with a standard deviation of 0.03; rows in a file, 0.99.
    assert 0.5 < float(parties_line.removeprefix("accuracy ")) <= 1.0
    assert 0.95 < float(rows_line.removeprefix("accuracy ")) <= 1.0


def test_the_first_example_is_ten_lines() -> None:
    first = python_blocks((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 12


def test_accuracies_are_those_of_the_benchmark() -> None:
    lines = (ROOT / "benches" / "results" / "papers_auto.csv").read_text("utf-8").splitlines()
    stored = {
        (row["data"], row["epsilon"]): row
        for row in csv.DictReader(line for line in lines if not line.startswith("#"))
    }
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## Accuracy\n")[2].partition("\n## ")[0]
    wisdm = re.search(r"^WISDM .*: (.*) for ε = 1, 2, 4 and 8", section, flags=re.MULTILINE)
    assert wisdm is not None
    assert re.findall(r"0\.\d{3}", wisdm[1]) == [
        f"{float(stored['wisdm', epsilon]['accuracy']):.3f}" for epsilon in "1248"
    ]
    adult = re.findall(r"(0\.\d+) at ε = (0\.1|0\.2|1)\b", section)
    assert len(adult) == 3
    for own, epsilon in adult:
        assert own == f"{float(stored['adult', epsilon]['accuracy']):.3f}"


def between(text: str, name: str) -> str | None:
    """What stands between the markers of a table; None where there are none."""
    opening, closing = readme_tables.markers(name)
    if opening not in text and closing not in text:
        return None
    assert text.count(opening) == text.count(closing) == 1
    return text.partition(opening)[2].partition(closing)[0].strip()


@pytest.mark.parametrize("name", readme_tables.TABLES)
def test_tables_are_those_of_stored_summaries(name: str) -> None:
    stored = readme_tables.contents(ROOT / "benches" / "results")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    # No summary, no table: figures that nobody can recompute have no place.
    assert between(readme, name) == stored.get(name)


def test_the_summary_names_the_accuracy_of_the_kernel() -> None:
    lines = (ROOT / "benches" / "results" / "papers_kernel.csv").read_text("utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    mnist = next(row for row in rows if (row["data"], row["epsilon"]) == ("mnist", "1"))
    summary = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## ")[0]
    found = re.search(r"accuracy (\S+); linear and not\s+private: (0\.\d+)", summary)
    assert found is not None
    assert found[1] == f"{float(mnist['accuracy']):.3f}"
    assert found[2] == f"{float(mnist['not_private']):.3f}"


def test_a_changed_figure_is_caught() -> None:
    """Negative control: what stands in the README is compared digit by digit."""
    stored = readme_tables.contents(ROOT / "benches" / "results")["kernel-table"]
    opening, closing = readme_tables.markers("kernel-table")
    shown = f"{opening}\n{stored}\n{closing}"
    figure = re.findall(r"0\.\d{3}", stored)[0]
    changed = shown.replace(figure, f"{float(figure) + 0.001:.3f}", 1)
    assert between(shown, "kernel-table") == stored
    assert between(changed, "kernel-table") != stored
    assert between("", "kernel-table") is None


def test_the_summary_names_the_means_of_its_tables() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    summary = readme.partition("\n## ")[0]
    named = re.findall(r"(\d+\.\d)\u00d7 as\s+fast", summary)
    means = re.findall(
        r"^Geometric means?:? (?:numpy )?(\d+\.\d)\u00d7", readme, flags=re.MULTILINE
    )
    assert len(named) == 3
    assert named == means


def test_a_broken_example_is_caught() -> None:
    """Negative control: blocks are found and really executed."""
    blocks = python_blocks("text\n```python\nraise ZeroDivisionError\n```\n```\nnot python\n```\n")
    assert len(blocks) == 1
    try:
        run_blocks(blocks)
    except ZeroDivisionError:
        return
    raise AssertionError("the block was not executed")


def test_links_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = []
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")
    assert not broken, broken
