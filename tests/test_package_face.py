"""The package's face: every public name is there, and nothing is imported before it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dpsvm_fast

FACE = Path(dpsvm_fast.__file__)


def names_for_type_checkers() -> dict[str, str]:
    """Name to module, of the imports that only type checkers see."""
    found = {}
    for node in ast.walk(ast.parse(FACE.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpsvm_fast."):
            assert node.module is not None
            found |= {alias.name: node.module.split(".")[1] for alias in node.names}
    return found


def test_every_public_name_is_there() -> None:
    for name in dpsvm_fast.__all__:
        assert getattr(dpsvm_fast, name) is getattr(dpsvm_fast, name)
    assert set(dpsvm_fast.__all__) <= set(dir(dpsvm_fast))
    assert dpsvm_fast.PrivateLinearSVC.__module__.startswith("dpsvm_fast.estimators")


def test_type_checkers_see_what_is_imported() -> None:
    at_first_use = dpsvm_fast._HOMES
    for_checkers = names_for_type_checkers()
    del for_checkers["build_info"]
    assert for_checkers == at_first_use
    modules = set(dpsvm_fast.__all__) - set(at_first_use) - {"__version__"}
    assert modules == {"accounting", "noise"}


@pytest.mark.parametrize("name", ["unheard_of", "_old", "PrivateSVC"])
def test_other_names_are_none(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(dpsvm_fast, name)


# One after the other in one program: what is absent after a step was absent after those before it.
STEPS = [
    ("dpsvm_fast.__version__", ("numpy", "scipy", "sklearn")),
    ("dpsvm_fast.verify('{}')", ("sklearn", "pandas")),
    ("dpsvm_fast.PrivacyLedger(1.0, 1e-6)", ("sklearn", "pandas")),
    ("from dpsvm_fast import PrivateLinearSVC", ("matplotlib", "click")),
    (
        "dpsvm_fast.preprocessing.PublicScaler, dpsvm_fast.audit.audit, dpsvm_fast.losses",
        ("matplotlib", "click"),
    ),
]


def test_nothing_is_imported_before_it_is_used() -> None:
    lines = ["import sys, dpsvm_fast"]
    for code, absent in STEPS:
        lines += [code, f"print([name for name in {absent} if name in sys.modules])"]
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr.strip()) == (0, "")
    assert run.stdout.split("\n") == [*["[]"] * len(STEPS), ""]
