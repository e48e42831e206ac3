"""The README's Python blocks run, one after the other, as a reader would paste them."""

from __future__ import annotations

import csv
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from docs.test_guarantees_page import slug

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


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
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(README.read_text(encoding="utf-8"))
    assert len(blocks) == 1
    namespace = run_blocks(blocks)
    printed = capsys.readouterr().out
    score = float(printed.splitlines()[0])
    # 0.91 with a standard deviation of 0.013 over the noise; chance is 0.1.
    assert 0.8 < score <= 1.0
    statement = namespace["clf"].privacy_
    assert statement.private
    assert (statement.epsilon, statement.delta) == (1.0, 1e-5)
    assert str(statement) in printed


def test_the_page_of_a_package_index_has_the_first_example_and_no_relative_link() -> None:
    page = (ROOT / "packaging" / "README.md").read_text(encoding="utf-8")
    assert python_blocks(page) == python_blocks(README.read_text(encoding="utf-8"))
    assert not re.findall(r"\]\((?!https://)", page)
    assert 'readme = "packaging/README.md"' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_the_summary_names_the_accuracy_of_the_kernel() -> None:
    lines = (ROOT / "benches" / "results" / "papers_kernel.csv").read_text("utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    mnist = next(row for row in rows if (row["data"], row["epsilon"]) == ("mnist", "1"))
    readme = README.read_text(encoding="utf-8")
    found = re.search(r"accuracy (\S+); linear and not\s+private: (0\.\d+)", readme)
    assert found is not None
    assert found[1] == f"{float(mnist['accuracy']):.3f}"
    assert found[2] == f"{float(mnist['not_private']):.3f}"


def test_the_summary_names_the_means_of_the_tables() -> None:
    summary = README.read_text(encoding="utf-8")
    tables = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    named = re.findall(r"(\d+\.\d)\u00d7 as\s+fast", summary)
    means = re.findall(
        r"^Geometric means?:? (?:numpy )?(\d+\.\d)\u00d7", tables, flags=re.MULTILINE
    )
    assert len(named) == 3
    assert named == means


def test_the_time_of_a_whole_fit_is_that_of_the_benchmark() -> None:
    summary = README.read_text(encoding="utf-8")
    found = re.search(r"takes (\d\.\d) s for the 60,000 rows of MNIST on two threads", summary)
    assert found is not None
    lines = (ROOT / "benches" / "results" / "linear_fit.csv").read_text("utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    times = {f"{float(row['seconds']):.1f}" for row in rows if row["n_threads"] == "2"}
    assert times == {found[1]}


def project() -> dict[str, Any]:
    """What pyproject.toml says; Python 3.10 cannot read it."""
    tomllib = pytest.importorskip("tomllib")
    with (ROOT / "pyproject.toml").open("rb") as file:
        return dict(tomllib.load(file))


def test_badges_are_true() -> None:
    facts = project()
    classifiers = facts["project"]["classifiers"]
    versions = [name.rpartition("Python :: 3.")[2] for name in classifiers if ":: 3." in name]
    oldest, newest = min(map(int, versions)), max(map(int, versions))
    assert facts["project"]["requires-python"] == f">=3.{oldest}"
    assert "Typing :: Typed" in classifiers
    assert facts["tool"]["mypy"]["strict"] is True
    readme = README.read_text(encoding="utf-8")
    assert re.findall(r"^\[!\[(.*?)\]", readme, flags=re.MULTILINE) == [
        f"Python 3.{oldest} to 3.{newest}",
        f"Licence {facts['project']['license'].replace(' OR ', ' or ')}",
        "Typed: mypy strict",
    ]


def test_extras_are_those_of_the_package() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    table = page.partition("| Extra | For |\n")[2]
    named = set(re.findall(r"^\| `(\w+)`", table.partition("\n\n")[0], flags=re.MULTILINE))
    assert named == set(project()["project"]["optional-dependencies"])


def test_every_command_is_named_and_no_other() -> None:
    click = pytest.importorskip("click")
    app = importlib.import_module("dpsvm_fast.cli.app").app
    section = README.read_text("utf-8").partition("\n## Command line\n")[2].partition("\n## ")[0]
    table = section.partition("| `dpsvm-fast` | What it does |\n|---|---|\n")[2].partition("\n\n")[
        0
    ]
    named = [
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])
    ]
    context = click.Context(app)
    assert sorted(named) == sorted(app.list_commands(context))
    # Options of the lines to type are those of the commands.
    typed = re.findall(r"^dpsvm-fast (\w+)(.*)$", section, flags=re.MULTILINE)
    assert len(typed) == 6
    for name, rest in typed:
        command = app.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            command = command.commands[rest.split()[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"\s(--?[a-z-]+)", rest)) <= known


def test_a_broken_example_is_caught() -> None:
    """Negative control: blocks are found and really executed."""
    blocks = python_blocks("text\n```python\nraise ZeroDivisionError\n```\n```\nnot python\n```\n")
    assert len(blocks) == 1
    try:
        run_blocks(blocks)
    except ZeroDivisionError:
        return
    raise AssertionError("the block was not executed")


def targets(page: Path) -> list[tuple[Path, str]]:
    """Files that a page links to, with the section."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text)
    return [
        (page.parent / file if file else page, section)
        for file, section in links
        if "://" not in file
    ]


def anchors(page: Path) -> list[str]:
    """Sections of a page, as they are called in an address."""
    return [slug(heading) for heading in re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.M)]


def test_links_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)} -> {file.name}#{section}"
        for page in pages
        for file, section in targets(page)
        if not file.exists() or (section and file.suffix == ".md" and section not in anchors(file))
    ]
    assert not broken, broken


def test_a_broken_link_is_caught(tmp_path: Path) -> None:
    """Negative control."""
    page = tmp_path / "page.md"
    page.write_text("# One two\n[a](#one-two) [b](#two) [c](gone.md)\n", encoding="utf-8")
    assert targets(page) == [(page, "one-two"), (page, "two"), (tmp_path / "gone.md", "")]
    assert anchors(page) == ["one-two"]
