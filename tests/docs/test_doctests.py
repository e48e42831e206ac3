"""Examples in docstrings run and print what they say; blocks of Python on pages run as pasted.

A block that needs what a test does not have says so, in a comment before it:
``<!-- not run: why -->``. Such blocks are compiled only, and reported as skipped.
"""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "dpsvm_fast"
DOCS = ROOT / "docs"

BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+?) -->\n+)?```python\n(?P<code>.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)
# Pages whose blocks another test runs, with what they print, and the file that names them.
RUN_ELSEWHERE = {
    "accuracy.md": "tests/estimators/test_gradient_presets.py",
    "budget.md": "tests/docs/test_pages.py",
    "guarantees.md": "tests/docs/test_guarantee_pages.py",
    "kernels.md": "tests/docs/test_pages.py",
    "pipelines.md": "tests/docs/test_pages.py",
    "tuning.md": "tests/docs/test_pages.py",
    "tutorial.md": "tests/oracles/tutorial.py",
    "your_data.md": "tests/docs/test_table_page.py",
}
# Optional packages that a page's blocks use.
NEEDS = {"plots.md": "matplotlib"}
# Pages whose blocks take seconds, of what other tests do by day.
SLOW = ("larger_than_memory.md", "plots.md")


def modules_with_examples() -> list[str]:
    """Dotted names of modules with a prompt in them."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        if re.search(r"^\s*>>> ", file.read_text(encoding="utf-8"), flags=re.MULTILINE):
            parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
            found.append(".".join(parts).removesuffix(".__init__"))
    return found


def blocks_of(text: str) -> list[tuple[str, str | None]]:
    """Blocks of Python of a page, each with the reason why it is not run."""
    return [(found["code"], found["reason"]) for found in BLOCK.finditer(text)]


def pages_with_blocks() -> list[str]:
    """Pages with blocks of Python that no other test runs."""
    pages = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
    # What the site makes of pages elsewhere.
    own = [page for page in pages if not page.startswith(("repository/", "reference/"))]
    return [
        page
        for page in own
        if page not in RUN_ELSEWHERE and blocks_of((DOCS / page).read_text(encoding="utf-8"))
    ]


def failures_in(module: ModuleType) -> int:
    """How many examples of a module do not print what they say; that there are any is asserted."""
    result = doctest.testmod(module)
    assert result.attempted > 0
    return result.failed


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "display" in name or "plotting" in name:
        pytest.importorskip("matplotlib").use("Agg")
    if "onnx" in name:
        pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    assert failures_in(importlib.import_module(name)) == 0


@pytest.mark.parametrize(
    "name",
    [pytest.param(p, marks=pytest.mark.slow if p in SLOW else ()) for p in pages_with_blocks()],
)
def test_blocks_of_pages(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name]).use("Agg")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    skipped = []
    for number, (code, reason) in enumerate(blocks_of((DOCS / name).read_text("utf-8")), start=1):
        compiled = compile(code, f"{name} block {number}", "exec")
        if reason is None:
            exec(compiled, namespace)
        else:
            skipped.append(f"block {number}: {reason}")
    if skipped:
        pytest.skip("; ".join(skipped))


def test_pages_that_other_tests_run_are_named_there() -> None:
    for page, test in RUN_ELSEWHERE.items():
        assert (DOCS / page).is_file()
        assert page in (ROOT / test).read_text(encoding="utf-8")


def test_there_are_examples() -> None:
    assert len(modules_with_examples()) > 20
    assert len(pages_with_blocks()) > 5


def test_a_wrong_example_is_caught() -> None:
    """Negative control: examples are found, and what they print is compared."""
    module = ModuleType("wrong")
    module.__doc__ = ">>> 1 + 1\n3\n"
    assert failures_in(module) == 1
    page = "<!-- not run: no server -->\n```python\nconnect()\n```\n\n```python\n1 / 0\n```\n"
    (first, reason), (second, none) = blocks_of(page)
    assert (first, reason, none) == ("connect()\n", "no server", None)
    with pytest.raises(ZeroDivisionError):
        exec(second, {})
