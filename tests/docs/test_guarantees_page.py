"""Every test and class named by docs/guarantees.md exists, and no mechanism is missing."""

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


def missing_tests(text: str) -> list[str]:
    """Test ids of ``text`` that do not exist."""
    named = re.findall(r"`((?:tests|rust)/[^`]+::[^`]+)`", text)
    return [name for name in named if not is_test(name)]


@pytest.mark.parametrize("name", PAGES)
def test_tests_exist(name: str) -> None:
    assert not missing_tests(PAGES[name].read_text(encoding="utf-8"))


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
    assert missing_tests("`tests/certificates/test_events.py::test_no_such_test`")
