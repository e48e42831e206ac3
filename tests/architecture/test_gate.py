"""Long work leaves the interpreter by one gate, which lets signals through and catches panics."""

from __future__ import annotations

import re
from pathlib import Path

BINDINGS = Path(__file__).resolve().parents[2] / "rust" / "py" / "src"
# How PyO3 lets go of the interpreter, now and in earlier versions.
LETTING_GO = re.compile(r"\b(detach|allow_threads|SuspendAttach|PyEval_SaveThread)\b")


def test_nothing_but_the_gate_lets_go_of_the_interpreter() -> None:
    found = {path.name for path in BINDINGS.rglob("*.rs") if LETTING_GO.search(path.read_text())}
    assert found == {"gate.rs"}
