"""Every page, section, test and class named by docs/guarantees.md exists, and none is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dpsvm_fast
from dpsvm_fast import model_selection

ROOT = Path(__file__).resolve().parents[2]
PAGES = {name: ROOT / "docs" / name for name in ("guarantees.md", "pitfalls.md")}


def is_test(name: str) -> bool:
    """Tell whether ``file::test`` names a test function of that file (Python or Rust)."""
    file, _, function = name.partition("::")
    path = ROOT / file
    if not path.is_file() or not function:
        return False
    keyword = "fn" if path.suffix == ".rs" else "def"
    bare = function.split("::")[-1].split("[")[0]
    source = path.read_text(encoding="utf-8")
    return re.search(rf"\b{keyword}\s+{re.escape(bare)}\b", source) is not None


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links of ``text`` to files or sections that do not exist."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        name, _, section = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        headings = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.M) if file.is_file() else []
        if not file.exists() or (section and section not in map(slug, headings)):
            broken.append(target)
    return broken


def missing_tests(text: str) -> list[str]:
    """Test ids of ``text`` that do not exist."""
    named = re.findall(r"`((?:tests|rust)/[^`]+::[^`]+)`", text)
    return [name for name in named if not is_test(name)]


@pytest.mark.parametrize("name", PAGES)
def test_links_and_tests_exist(name: str) -> None:
    text = PAGES[name].read_text(encoding="utf-8")
    assert not broken_links(PAGES[name], text)
    assert not missing_tests(text)


def rows(text: str, heading: str) -> list[str]:
    """Rows of the table of a section, without its head."""
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def test_every_mechanism_has_a_theorem_and_a_test() -> None:
    table = rows(PAGES["guarantees.md"].read_text(encoding="utf-8"), "Mechanisms")
    assert len(table) > 15
    for row in table:
        cells = row.split(" | ")
        assert len(cells) == 5
        assert "](proofs/" in cells[2], row
        assert "::test_" in cells[4], row


def test_no_mechanism_is_left_out() -> None:
    text = PAGES["guarantees.md"].read_text(encoding="utf-8")
    public = [getattr(dpsvm_fast, name) for name in dpsvm_fast.__all__]
    public += [getattr(model_selection, name) for name in model_selection.__all__]
    mechanisms = {thing.__name__ for thing in public if hasattr(thing, "fit")}
    mechanisms |= {"PrivacyLedger", "total_privacy"}
    assert len(mechanisms) > 12
    assert not [name for name in sorted(mechanisms) if f"`{name}" not in text]


def test_pages_of_mechanisms_are_all_referred_to() -> None:
    text = PAGES["guarantees.md"].read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs" / "proofs").glob("*.md")}
    assert not [name for name in sorted(pages) if f"proofs/{name}" not in text]


def test_what_does_not_exist_is_found() -> None:
    """Negative control."""
    page = PAGES["guarantees.md"]
    assert broken_links(page, "[x](proofs/output_perturbation.md#no-such-section)")
    assert broken_links(page, "[x](proofs/no_such_page.md)")
    assert missing_tests("`tests/certificates/test_events.py::test_no_such_test`")
    assert not broken_links(page, "[x](proofs/output_perturbation.md#sensitivity)")


def test_every_pitfall_is_graded_and_answered() -> None:
    text = PAGES["pitfalls.md"].read_text(encoding="utf-8")
    tables = text.split("\n## ")[1:]
    assert len(tables) > 7
    for table in tables[:-1]:
        heading = table.splitlines()[0]
        for row in rows(text, heading):
            cells = row.strip("| ").split(" | ")
            assert len(cells) == 4, row
            assert re.match(r"\*\*(void|weaker|intact)\*\*", cells[1]), row
            assert all(cells), row
