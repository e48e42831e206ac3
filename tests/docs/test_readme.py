"""The README's Python blocks run, one after the other, as a reader would paste them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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


def targets(page: Path) -> list[tuple[Path, str]]:
    """Files that a page links to, with the section."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text)
    return [
        (page.parent / file if file else page, section)
        for file, section in links
        if "://" not in file
    ]


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


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


def test_the_first_screen_counts_what_the_table_counts() -> None:
    """The table is generated; the sentence above it is not."""
    counts = re.findall(r"\bin (\d+ of \d+)", README.read_text(encoding="utf-8"))
    assert len(counts) == 2
    assert len(set(counts)) == 1
