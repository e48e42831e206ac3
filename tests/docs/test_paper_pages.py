"""The page of papers: every function and file that they name exists, every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oracles.dotted_names import python_object_exists
from oracles.guarantee_lookups import guarantee_lookups

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "papers.md"
NAMES = ("PMSVM", "SCM", "FedDPDR", "DP-Helmet", "LMGC")


def exists(name: str) -> bool:
    """Whether a path, with the name of a function or type in it, is there."""
    path, _, item = name.partition("::")
    file = ROOT / path
    if not item:
        return file.exists()
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return re.search(rf"\b(?:fn|struct|enum|trait|def|class) {re.escape(item)}\b", text) is not None


def named(text: str) -> list[str]:
    """Functions of the package and files that a page names."""
    return re.findall(r"`((?:dpsvm_fast|rust/|python/|benches/|docs/)[\w./:]*)`", text)


def missing(text: str) -> list[str]:
    """Those that do not exist."""
    return [
        name
        for name in named(text)
        if not (python_object_exists(name) if name.startswith("dpsvm_fast") else exists(name))
    ]


def test_what_the_page_names_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(named(text)) > 5
    assert not missing(text)


def test_links_lead_to_sections() -> None:
    assert not guarantee_lookups().broken_links(PAGE, PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_every_equation_has_a_function_and_a_proof(name: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"### Corrections to {name}\n" in text
    section = text.partition(f"### Equations of {name}\n")[2].partition("\n##")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 7
    for row in rows:
        _, _, _, proof, function, _ = row.split("|")
        assert "`" in function, row
        assert re.search(r"\]\((?:proofs/|notation|federated)", proof), row


@pytest.mark.parametrize("name", ["library_design.md", "extending.md"])
def test_files_that_pages_for_developers_name_exist(name: str) -> None:
    folders = ("rust", "python", "tests", "benches", "tools")
    known = {path.name for folder in folders for path in (ROOT / folder).rglob("*.*")}
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    found = set(re.findall(r"`(?:[\w/]+/)?(\w+\.(?:py|rs|toml))`", text))
    assert len(found) > 10
    assert not found - known


def test_a_name_that_is_gone_is_caught() -> None:
    """Negative control."""
    text = (
        "`dpsvm_fast.losses.Loss.lipschitz` `dpsvm_fast.losses.Loss.gone` `dpsvm_fast.gone.f` "
        "`rust/core/src/lib.rs` `rust/core/src/solver/crammer_singer/problem.rs::Problem` "
        "`rust/core/src/solver/crammer_singer/problem.rs::Gone` `rust/gone.rs`"
    )
    assert missing(text) == [
        "dpsvm_fast.losses.Loss.gone",
        "dpsvm_fast.gone.f",
        "rust/core/src/solver/crammer_singer/problem.rs::Gone",
        "rust/gone.rs",
    ]
