"""The page of papers: every function and file that they name exists, every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from oracles.dotted_names import python_object_exists

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "papers.md"


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
