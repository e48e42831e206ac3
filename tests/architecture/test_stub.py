"""The hand-written stub of the compiled module names exactly what the module has.

Signatures are compared by mypy's stubtest in ``make check``; this test needs no mypy and fails on
a missing or a left-over name.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dpsvm_fast import _core

# The sources of noise as they are.
pytestmark = pytest.mark.fresh

STUB = Path(__file__).resolve().parents[2] / "python" / "dpsvm_fast" / "_core.pyi"


def stub_names(source: str) -> dict[str, set[str]]:
    """Return the public names of a stub, each with its public members (empty for functions)."""
    names: dict[str, set[str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            names[node.name] = set()
        elif isinstance(node, ast.ClassDef):
            members = [n.name for n in node.body if isinstance(n, ast.FunctionDef)]
            names[node.name] = {m for m in members if not m.startswith("_")}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = set()
    return {name: members for name, members in names.items() if not name.startswith("_")}


def module_names() -> dict[str, set[str]]:
    """Return the public names of the compiled module in the same shape."""
    names: dict[str, set[str]] = {}
    for name, value in vars(_core).items():
        if not name.startswith("_"):
            members = vars(value) if isinstance(value, type) else {}
            names[name] = {m for m in members if not m.startswith("_")}
    return names


def test_stub_and_module_name_the_same_things() -> None:
    assert stub_names(STUB.read_text(encoding="utf-8")) == module_names()


def test_a_forgotten_or_left_over_name_is_caught() -> None:
    """Negative control."""
    extra = STUB.read_text(encoding="utf-8") + "\ndef left_over() -> None: ...\n"
    assert stub_names(extra) != module_names()
    assert stub_names("") != module_names()
