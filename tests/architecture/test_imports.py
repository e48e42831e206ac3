"""Imports point one way: from exceptions through certificates and accounting to the command line.

The layers are written out below; a module may import its own layer and any earlier one. A module
that belongs to no layer fails the test, so that a new one is placed on purpose.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "dpsvm_fast"

# Position in this tuple is the floor: imports go down or stay. Names are the first part of the
# module path below the package.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"_core", "arithmetic", "exceptions", "files", "rounding"}),
    frozenset({"losses", "validation"}),
    frozenset({"certificates"}),
    frozenset({"verification"}),
    frozenset({"accounting"}),
    frozenset({"ledger"}),
    frozenset({"mechanisms", "noise"}),
    frozenset({"estimators", "preprocessing"}),
    frozenset({"metrics", "pipelines"}),
    frozenset({"audit", "data", "federated", "model_selection", "planning"}),
    frozenset({"persist", "plotting"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)

# These share a floor and still must not know each other.
APART = frozenset({"audit", "data", "federated", "model_selection"})

# Third-party packages that a layer may not touch.
FORBIDDEN = dict.fromkeys(
    ("certificates", "verification", "accounting", "ledger", "mechanisms", "noise"),
    frozenset({"sklearn", "matplotlib"}),
)

# What certificates and their verification may be made of: no compiled module, no calibration, no
# table of losses. Nothing on a floor above may borrow from verification but its verdict.
INDEPENDENT = {
    "certificates": frozenset({"certificates", "exceptions", "files", "rounding", "validation"}),
    # The mode of the thread is no numerics: it is set where the compiled module is loaded anyway.
    "verification": frozenset(
        {"arithmetic", "certificates", "exceptions", "files", "rounding", "validation"}
        | {"verification"}
    ),
}
VERDICT = frozenset({"Policy", "Verification", "verify", "verify.Verification", "verify.verify"})

OURS = "dpsvm_fast"


def floor(part: str) -> int | None:
    """Return the floor of a first-level module, None when it has none."""
    return next((i for i, layer in enumerate(LAYERS) if part in layer), None)


def imported_modules(source: str) -> list[tuple[int, str]]:
    """Return (line, absolute module name) of every import, also inside functions."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                found.append((node.lineno, "." * node.level + (node.module or "")))
            elif node.module == OURS:
                # "from dpsvm_fast import noise" names a module in its second half.
                found += [(node.lineno, f"{OURS}.{alias.name}") for alias in node.names]
            elif node.module == f"{OURS}.verification":
                found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
            elif node.module is not None:
                found.append((node.lineno, node.module))
    return found


def violation(part: str, module: str, public: frozenset[str]) -> str | None:
    """Say why first-level module ``part`` may not import ``module``; None when it may."""
    if module.startswith("."):
        return f"relative import {module}"
    top, _, rest = module.partition(".")
    if top != OURS:
        return f"{part} imports {top}" if top in FORBIDDEN.get(part, ()) else None
    target = rest.split(".")[0]
    if target in ("", "__version__") or (target in public and floor(target) is None):
        # The package's own face: only its outermost modules may look at it.
        return None if part in ("cli", "__main__", "plotting") else f"{part} imports the package"
    if part in INDEPENDENT and target not in INDEPENDENT[part]:
        return f"{part} imports {target}"
    if target == "verification" and part != target:
        inner = rest.partition(".")[2]
        if inner and inner not in VERDICT and inner != "verify":
            return f"{part} borrows {inner} from verification"
    here, there = floor(part), floor(target)
    if here is None or there is None:
        return f"{part if here is None else target} is on no floor of LAYERS"
    if there > here or (part != target and part in APART and target in APART):
        return f"{part} imports {target}"
    return None


@cache
def public_names() -> frozenset[str]:
    """Return the names that ``dpsvm_fast/__init__.py`` exports and that are no modules."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return frozenset(names)


def violations(path: Path) -> list[str]:
    """Return a line for each wrong import of one file of the package."""
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if part == "__init__":
        return []
    if path.name == "__main__.py":
        # A program: nothing imports it.
        part = "__main__"
    source = path.read_text(encoding="utf-8")
    public = public_names()
    return [
        f"{path.relative_to(ROOT)}:{line}: {reason}"
        for line, module in imported_modules(source)
        if (reason := violation(part, module, public)) is not None
    ]


def test_python_imports_point_one_way() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert files
    wrong = [line for path in files for line in violations(path)]
    assert not wrong, "\n".join(wrong)


def spends(source: str) -> list[str]:
    """Return the functions that call ``spend`` of a ledger, but for ledgers themselves."""
    if ".spend" not in source:
        return []
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name != "spend"
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and inner.attr == "spend"
    ]


def test_budgets_are_spent_in_one_place() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in spends(path.read_text(encoding="utf-8"))
    }
    assert found == {("estimators/fit.py", "charge")}
    # A wrong one would be seen.
    assert spends("def fit(ledger):\n    ledger.spend(event)\n") == ["fit"]


def test_every_module_is_on_a_floor() -> None:
    parts = {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in PACKAGE.rglob("*.py")}
    lost = sorted(p for p in parts - {"__init__"} if floor(p) is None)
    assert not lost, f"place {lost} in LAYERS"


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("accounting", "from dpsvm_fast.mechanisms.output import X"),
        ("accounting", "import sklearn.base"),
        ("mechanisms", "def f():\n    from sklearn.utils import check_array"),
        ("mechanisms", "import dpsvm_fast.estimators.output"),
        ("exceptions", "from dpsvm_fast import validation"),
        ("verification", "from dpsvm_fast import _core"),
        ("verification", "from dpsvm_fast.losses import LOSSES"),
        ("certificates", "import dpsvm_fast.verification"),
        ("accounting", "from dpsvm_fast.verification.losses import log_sum"),
        ("accounting", "from dpsvm_fast.verification import compose"),
        ("estimators", "from dpsvm_fast import cli"),
        ("reference", "from dpsvm_fast.accounting import gaussian"),
        ("federated", "from dpsvm_fast.audit import report"),
        ("estimators", "from . import output"),
        ("mechanisms", "from dpsvm_fast.unheard_of import x"),
    ],
)
def test_a_wrong_arrow_is_caught(part: str, source: str) -> None:
    """Negative control: the judge above does reject."""
    judged = [violation(part, module, frozenset()) for _, module in imported_modules(source)]
    assert any(reason is not None for reason in judged)


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("mechanisms", "from dpsvm_fast.certificates.events import GaussianEvent"),
        ("estimators", "from sklearn.base import BaseEstimator"),
        ("cli", "from dpsvm_fast import OutputPerturbationSVC"),
    ],
)
def test_a_right_arrow_is_let_through(part: str, source: str) -> None:
    public = frozenset({"OutputPerturbationSVC"})
    judged = [violation(part, module, public) for _, module in imported_modules(source)]
    assert judged == [None]


def mentions_python(text: str) -> bool:
    """Tell whether Rust source or a manifest names the Python bindings."""
    lowered = text.lower()
    return "pyo3" in lowered or "numpy::" in lowered or "numpy." in lowered


def test_the_core_has_never_heard_of_python() -> None:
    files = [*(ROOT / "rust" / "core").rglob("*.rs"), ROOT / "rust" / "core" / "Cargo.toml"]
    assert len(files) > 1
    wrong = [str(p.relative_to(ROOT)) for p in files if mentions_python(p.read_text("utf-8"))]
    assert not wrong, wrong
    assert mentions_python("use pyo3::prelude::*;")


# Which rooms of the core each room may use (rust/core/src/lib.rs says the same in prose).
_BASE = frozenset({"error", "runtime", "simd", "numeric"})
CORE_MAY_USE = {
    "error": frozenset(),
    "simd": frozenset({"error", "runtime"}),
    "numeric": frozenset(),
    "runtime": frozenset({"error"}),
    "rows": _BASE,
    "linalg": _BASE,
    "loss": _BASE,
    "noise": _BASE,
    "layout": _BASE | {"rows", "linalg"},
    "fourier": _BASE | {"rows", "linalg", "noise"},
    "images": _BASE | {"rows"},
    "records": _BASE | {"rows", "linalg", "fourier"},
    "solver": _BASE | {"rows", "linalg", "layout", "loss"},
    "descent": _BASE | {"rows", "linalg", "layout", "loss", "noise", "records"},
    "tables": frozenset({"error", "runtime"}),
    "accounting": frozenset({"error", "numeric", "runtime"}),
}


def core_uses(source: str) -> set[str]:
    """Return the first-level core modules that Rust source names through ``crate::``."""
    used = set(re.findall(r"\bcrate::(\w+)", source))
    for group in re.findall(r"\bcrate::\{([^}]*)\}", source):
        used |= set(re.findall(r"(?:^|,)\s*(\w+)", group))
    return used & set(CORE_MAY_USE)


def test_core_modules_point_one_way() -> None:
    source_root = ROOT / "rust" / "core" / "src"
    wrong = []
    for path in sorted(source_root.rglob("*.rs")):
        part = path.relative_to(source_root).parts[0].removesuffix(".rs")
        if part == "lib":
            continue
        assert part in CORE_MAY_USE, f"place {part} in CORE_MAY_USE"
        # Tests inside a module may build their inputs with any other module.
        code = path.read_text(encoding="utf-8").split("#[cfg(test)]")[0]
        bad = core_uses(code) - CORE_MAY_USE[part] - {part}
        wrong += [f"{path.relative_to(ROOT)} uses {name}" for name in sorted(bad)]
    assert not wrong, wrong


def test_a_wrong_core_arrow_is_caught() -> None:
    assert "solver" in core_uses("use crate::solver::dual::Solver;")
    assert core_uses("use crate::{error::Result, noise};") >= {"error", "noise"}
    assert "solver" not in CORE_MAY_USE["noise"]
    assert "noise" not in CORE_MAY_USE["solver"]


def test_slow_twins_stand_alone() -> None:
    for path in (ROOT / "tests" / "twins").glob("*.py"):
        wrong = [m for _, m in imported_modules(path.read_text("utf-8")) if m.startswith(OURS)]
        assert not wrong, f"{path.name} imports {wrong}"


PRIVATE = re.compile(rf"from {OURS}\.(?:[\w.]*\b_|[\w.]+ import (?:\([^)]*|[^(\n]*)\b_)")


def private_imports(path: Path) -> list[str]:
    """Return imports of private names or modules of another folder of the package."""
    own = path.relative_to(PACKAGE).parts[:-1] if path.is_relative_to(PACKAGE) else None
    source, found = path.read_text("utf-8"), []
    # Most files have none, and need no parsing.
    for node in ast.walk(ast.parse(source)) if PRIVATE.search(source) else ():
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(f"{OURS}."):
            continue
        folder = (node.module or "").split(".")[1:]
        names = [*folder, *(alias.name for alias in node.names)]
        if any(n.startswith("_") and n != "_core" for n in names) and tuple(folder[:-1]) != own:
            found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def test_private_names_stay_in_their_folder() -> None:
    places = (PACKAGE, ROOT / "tests", ROOT / "benches")
    wrong = [line for place in places for p in place.rglob("*.py") for line in private_imports(p)]
    assert not wrong, wrong
    for source in (
        "a import b, _c",
        "_a import b",
        "a._b import c",
        "a import (\n    b,\n    _c,\n)",
    ):
        assert PRIVATE.search(f"from {OURS}.{source}"), source
