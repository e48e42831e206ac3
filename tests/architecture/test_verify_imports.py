"""Certificates are verified without the compiled module, and without what calibrated them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from oracles.statements import statement_of

ROOT = Path(__file__).resolve().parents[2] / "python" / "dpsvm_fast"

# The package as a bare folder: nothing of it is imported but what verification asks for.
BARE = """
import importlib, sys, types
package = types.ModuleType("dpsvm_fast")
package.__path__ = [{root!r}]
sys.modules["dpsvm_fast"] = package
sys.modules["dpsvm_fast._core"] = None
verify = importlib.import_module("dpsvm_fast.verification").verify
for line in sys.stdin:
    outcome = verify(line)
    print(outcome.ok, outcome)
print("reached", *sorted({{n.split(".")[1] for n in sys.modules if n.startswith("dpsvm_fast.")}}))
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
        timeout=600,
        check=True,
    )
    lines = done.stdout.splitlines()
    verdicts = [line.split()[0] for line in lines if line[:1] in "TF"]
    assert verdicts == ["True"] * len(texts) + ["False"]
    reached = lines[-1].split()[1:]
    assert set(reached) == {
        *("_core", "arithmetic", "certificates", "exceptions", "files", "rounding", "validation"),
        "verification",
    }
