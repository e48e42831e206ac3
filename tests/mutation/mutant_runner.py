"""Applies a mutant to a copy of the sources and runs the tests that are to kill it.

The copy comes first on the import path and the run reports which package it imported: an editable
installation of the real one must not win. A mutant of the compiled module is built in one folder
that all of them share, so that only what changed is compiled; files are written there only where
they differ, as the build looks at their times.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalogue import Edit, Mutant

from dpsvm_fast import _core

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("python", "tests")
BUILT = ("Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md", "LICENSE*")
MATURIN = ["develop", "--quiet", "--release", "--locked", "--skip-install"]
# Optimised code without what takes long whenever a file changes.
QUICK_BUILD = {
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_RELEASE_INCREMENTAL": "true",
    "CARGO_PROFILE_RELEASE_DEBUG": "0",
}
# Where rustup puts cargo, which need not be on the path of whoever runs the tests.
PATH = os.pathsep.join([os.environ.get("PATH", ""), str(Path.home() / ".cargo" / "bin")])
# Seconds; a killer needs a few.
LONGEST_RUN, LONGEST_BUILD = 600, 3000


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    name: str
    killed: bool
    seconds: float
    failed: tuple[str, ...]
    problem: str = ""


def judge(mutant: Mutant, root: Path = ROOT) -> Verdict:
    """Runs the killers of a mutant on the changed sources."""
    start = time.monotonic()
    if mutant.compiled:
        folder = build(mutant.edits, root)
        found = run_tests(folder, mutant.killers)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            copy_sources(root, folder)
            for edit in mutant.edits:
                apply(edit, folder)
            found = run_tests(folder, mutant.killers)
    problem = why_not_killed(mutant, found, folder)
    failed = tuple(test["id"] for test in found["failed"])
    return Verdict(mutant.name, not problem, time.monotonic() - start, failed, problem)


def baseline(killers: Sequence[str], root: Path = ROOT) -> str:
    """What is wrong with the killers on the sources as they are; nothing if they all pass."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copy_sources(root, folder)
        found = run_tests(folder, killers)
        if not Path(found["package"]).resolve().is_relative_to(folder.resolve()):
            return f"the copy was not imported but {found['package']}"
        idle = [k for k in killers if not any(_belongs(test, k) for test in found["passed"])]
        if found["code"] != 0 or idle:
            return f"unmutated: failed {found['failed']}, did not run {idle}\n{found['output']}"
        return ""


def why_not_killed(mutant: Mutant, found: dict[str, Any], folder: Path) -> str:
    """Why a run does not count as a kill; nothing if it does."""
    if not found["package"] or not Path(found["package"]).resolve().is_relative_to(
        folder.resolve()
    ):
        return f"the copy was not imported but {found['package']!r}\n{found['output']}"
    for test in found["failed"]:
        if test["phase"] != "call" or test["kind"] != "assertion":
            return f"{test['id']} did not fail by a check: {test['kind']} in {test['phase']}"
    alive = [k for k in mutant.killers if not any(_belongs(t["id"], k) for t in found["failed"])]
    if alive:
        return f"survives {', '.join(alive)}\n{found['output']}"
    return "" if found["code"] == 1 else f"exit code {found['code']}\n{found['output']}"


def _belongs(case: str, named: str) -> bool:
    """Whether a test that ran is the named one, or one of its cases."""
    return case == named or case.startswith(f"{named}[")


def copy_sources(root: Path, folder: Path) -> None:
    """The package with its compiled module, which may be installed elsewhere, and the tests."""
    for name in COPIED:
        shutil.copytree(root / name, folder / name)
    shutil.copy2(root / "pyproject.toml", folder)
    package, compiled = folder / "python" / "dpsvm_fast", Path(_core.__file__)
    if not (package / compiled.name).exists():
        shutil.copy2(compiled, package)


def apply(edit: Edit, folder: Path) -> None:
    """Replaces the one place that a mutation is about."""
    path = folder / edit.path
    text = replaced(path.read_text(encoding="utf-8"), edit)
    path.write_text(text, encoding="utf-8")
    for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        stale.unlink()


def replaced(text: str, edit: Edit) -> str:
    """The text with the one place replaced.

    Raises
    ------
    LookupError
        There is no such place, or more than one.
    """
    if text.count(edit.old) != 1:
        raise LookupError(f"{edit.path}: {text.count(edit.old)} places for {edit.old!r}")
    return text.replace(edit.old, edit.new)


def run_tests(folder: Path, tests: Sequence[str]) -> dict[str, Any]:
    """Runs tests in a folder of sources; what the plugin reports, the exit code and the output."""
    report = folder / "mutant-report.json"
    report.unlink(missing_ok=True)
    paths = [str(folder / "python"), str(folder / "tests" / "mutation")]
    changes = {"PYTHONPATH": os.pathsep.join(paths), "MUTANT_REPORT": str(report)}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short"]
    command += ["-p", "no:cacheprovider", "-p", "mutant_report", "--rootdir", str(folder), *tests]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | changes,
        capture_output=True,
        text=True,
        timeout=LONGEST_RUN,
        check=False,
    )
    found: dict[str, Any] = {"package": "", "failed": [], "passed": []}
    if report.exists():
        found = json.loads(report.read_text())
    output = (done.stdout + done.stderr)[-4000:]
    return found | {"code": done.returncode, "output": output}


def build(edits: Sequence[Edit], root: Path = ROOT) -> Path:
    """The folder with the changed sources and their compiled module."""
    target = Path(os.environ.get("DPSVM_MUTANT_TARGET", root / "target" / "mutants")).resolve()
    folder = target / "sources"
    changed: dict[str, str] = {}
    for edit in edits:
        text = changed.get(edit.path) or (root / edit.path).read_text(encoding="utf-8")
        changed[edit.path] = replaced(text, edit)
    wanted = {path.relative_to(root) for name in BUILT for path in root.glob(name)}
    for name in ("rust", *COPIED):
        wanted |= {path.relative_to(root) for path in (root / name).rglob("*") if path.is_file()}
    wanted = {path for path in wanted if path.suffix not in (".so", ".pyd", ".pyc")}
    for path in sorted(wanted):
        text = changed.get(path.as_posix(), "")
        _write_if_other(folder / path, text.encode() if text else (root / path).read_bytes())
    _remove_others(folder, wanted)
    maturin = Path(sys.executable).parent / "maturin"
    places = {"CARGO_TARGET_DIR": str(target), "VIRTUAL_ENV": sys.prefix, "PATH": PATH}
    subprocess.run(
        [str(maturin), *MATURIN],
        cwd=folder,
        env=os.environ | QUICK_BUILD | places,
        timeout=LONGEST_BUILD,
        check=True,
    )
    return folder


def _write_if_other(path: Path, content: bytes) -> None:
    """Writes a file unless it is the same already."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _remove_others(folder: Path, wanted: set[Path]) -> None:
    """Removes sources that are there no longer."""
    for name in ("rust", *COPIED):
        for path in [p for p in (folder / name).rglob("*") if p.is_file()]:
            if path.relative_to(folder) not in wanted and path.suffix not in (".so", ".pyd"):
                path.unlink()
