"""``verify`` shares nothing with the calibration that it checks, and runs without it.

The verifying side is written out below. It may read records (events, statements), check arguments
and use NumPy and SciPy; it may not reach the compiled module, the accountants, the mechanisms, or
the table of losses, in any number of steps.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from oracles.statements import statement_of

ROOT = Path(__file__).resolve().parents[2] / "python" / "dpsvm_fast"

# Records and words: what a certificate is.
RECORDS = {
    "_rounding",
    "_strict_json",
    "_validation",
    "exceptions",
    "accounting._certificate",
    "accounting._descent",
    "accounting._event_base",
    "accounting._federated_parts",
    "accounting._federated_prose",
    "accounting._fields",
    "accounting._parts",
    "accounting._parts_prose",
    "accounting._prose",
    "accounting._verification",
    "accounting.bound",
    "accounting.certificates",
    "accounting.compound",
    "accounting.events",
    "accounting.federated_statement",
    "accounting.pipeline",
    "accounting.selection",
    "accounting.statement",
    "accounting.words",
}
# The recomputation.
CHECKS = {
    "accounting._distance_check",
    "accounting._event_verify",
    "accounting._federated_verify",
    "accounting._gaussian_check",
    "accounting._joint_check",
    "accounting._objective_check",
    "accounting._objective_verify",
    "accounting._parts_verify",
    "accounting._sum_check",
    "accounting._tilted_check",
    "accounting.verify",
}
# Later parts of the recomputation are called like this.
NAMES_OF_CHECKS = ("_check", "_verify")


def imports_of(source: str) -> set[str]:
    """Modules of this library that source imports, anywhere in it; names below the package."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            # A package's names may be modules of it.
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name.removeprefix("dpsvm_fast.") for name in found if name.startswith("dpsvm_fast")}


def path_of(module: str) -> Path | None:
    """File of a module, if there is one."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return path if path.exists() else None


def reached(start: str) -> set[str]:
    """All modules of this library that one imports, in any number of steps."""
    found, waiting = set(), [start]
    while waiting:
        module = waiting.pop()
        path = path_of(module)
        if module in found or (path is None and not module.startswith("_core")):
            continue
        found.add(module)
        waiting += imports_of(path.read_text(encoding="utf-8")) if path is not None else []
    return found


def is_allowed(module: str) -> bool:
    return module in RECORDS | CHECKS or (
        module.startswith("accounting._") and module.endswith(NAMES_OF_CHECKS)
    )


def test_verification_reaches_no_calibration() -> None:
    found = reached("accounting.verify")
    assert found >= CHECKS
    wrong = sorted(module for module in found if not is_allowed(module))
    assert not wrong, f"verify reaches {wrong}"


def test_no_calibration_uses_the_recomputation() -> None:
    """The other way round: what is checked does not borrow from what checks it."""
    borrowed = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in ROOT.rglob("*.py")
        for module in imports_of(path.read_text(encoding="utf-8"))
        if module.endswith(NAMES_OF_CHECKS) and module.startswith("accounting._")
        if not path.stem.endswith(NAMES_OF_CHECKS) and path.stem not in ("verify", "_verify")
    }
    assert not borrowed


@pytest.mark.parametrize(
    "start", ["accounting.accountant", "accounting.gaussian", "mechanisms.output", "pipelines"]
)
def test_a_wrong_reach_is_seen(start: str) -> None:
    """Negative control: modules that calibrate do reach the compiled one."""
    assert "_core" in reached(start)
    assert not all(map(is_allowed, reached(start)))


# The package as bare folders: nothing of it is imported but what verify asks for.
BARE = """
import importlib, sys, types
root = {root!r}
for name in ("dpsvm_fast", "dpsvm_fast.accounting"):
    package = types.ModuleType(name)
    package.__path__ = ["/".join([root, *name.split(".")[1:]])]
    sys.modules[name] = package
sys.modules["dpsvm_fast._core"] = None
verify = importlib.import_module("dpsvm_fast.accounting.verify").verify
for line in sys.stdin:
    outcome = verify(line)
    print(outcome.ok, outcome)
"""
KINDS = [
    ("output", "add_remove"),
    ("objective two", "replace_one"),
    ("gradient sampled", "add_remove"),
    ("linear pure", "replace_one"),
    ("pipeline objective", "add_remove"),
    ("helmet", "replace_one"),
    ("dpdr objective", "replace_one"),
]


def test_certificates_are_verified_without_the_compiled_module() -> None:
    texts = [statement_of(*kind).to_json(indent=None) for kind in KINDS]
    bad = texts[0].replace('"epsilon": 2.0', '"epsilon": 1.0', 1)
    assert bad != texts[0]
    done = subprocess.run(
        [sys.executable, "-c", BARE.format(root=str(ROOT))],
        input="\n".join([*texts, bad]),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    verdicts = [line.split()[0] for line in done.stdout.splitlines() if line[:1] in "TF"]
    assert verdicts == ["True"] * len(texts) + ["False"]
