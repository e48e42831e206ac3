"""The tests of each proof page, found by their markers.

A Python test says which page it tests, and which part of the page's list it belongs to::

    @pytest.mark.proof("output_perturbation", "Noise and grid")

Where all tests of a file do, the file says so once: ``pytestmark = pytest.mark.proof(...)``, or a
list with that mark. A Rust test says the same in a comment::

    // Proof: output_perturbation, "Noise and grid"

The site lists the tests on the page; `python docs/_site/proof_tests.py PAGE` prints the list.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HEADING = "## Tests that fail if this is wrong\n"
RUST = re.compile(
    r'((?:^\s*// Proof: \w+(?:, "[^"]+")?\n)+)(?:^\s*(?:#\[|//).*\n)*^\s*fn (\w+)', re.M
)
MARK = re.compile(r'// Proof: (\w+)(?:, "([^"]+)")?$', re.M)


@cache
def marked_tests() -> dict[str, dict[str, list[str]]]:
    """Return the ids ``file::test`` by page and part; the part is "" where none is named."""
    found: dict[str, dict[str, list[str]]] = {}
    for page, part, test in (*_python_tests(), *_rust_tests()):
        found.setdefault(page, {}).setdefault(part, []).append(test)
    return found


def _python_tests() -> list[tuple[str, str, str]]:
    """Page, part and id of each marked Python test."""
    found = []
    for file in sorted((ROOT / "tests").rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        if "mark.proof(" not in source:
            continue
        tree = ast.parse(source)
        of_all = [
            mark
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
            for mark in (node.value.elts if isinstance(node.value, ast.List) else [node.value])
        ]
        for node in ast.walk(tree):
            if not (isinstance(node, ast.FunctionDef) and node.name.startswith("test_")):
                continue
            for mark in (*of_all, *node.decorator_list):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.proof":
                    page, part = [*map(ast.literal_eval, mark.args), ""][:2]
                    found.append((page, part, f"{file.relative_to(ROOT).as_posix()}::{node.name}"))
    return found


def _rust_tests() -> list[tuple[str, str, str]]:
    """Page, part and id of each marked Rust test."""
    found = []
    for file in sorted((ROOT / "rust").rglob("*.rs")):
        name = file.relative_to(ROOT).as_posix()
        for marks, test in RUST.findall(file.read_text(encoding="utf-8")):
            found += [(page, part, f"{name}::{test}") for page, part in MARK.findall(marks)]
    return found


def list_of(page: str) -> str:
    """Return the tests of a page as Markdown."""
    parts = marked_tests().get(page, {})
    return "\n\n".join(
        "\n".join([*([f"{part}:", ""] if part else []), *(f"- `{test}`" for test in tests)])
        for part, tests in sorted(parts.items())
    )


def add_list(_app: Any, document: str, source: list[str]) -> None:
    """Put the list at the end of a proof page."""
    folder, _, page = document.rpartition("/")
    if folder == "proofs" and HEADING in source[0]:
        source[0] = f"{source[0].rstrip()}\n\n{list_of(page)}\n"


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("source-read", add_list)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    for page in sys.argv[1:] or sorted(marked_tests()):
        sys.stdout.write(f"# {page}\n\n{list_of(page)}\n\n")
