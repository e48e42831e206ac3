"""Applies a mutant to a copy of the sources and runs the tests that are to kill it.

The copy comes first on the import path and the run reports which package it imported: an editable
installation of the real one must not win. A mutant of the compiled module is built in one folder
that all of them share, so that only what changed is compiled; files are written there only where
they differ, as the build looks at their times.
"""

from __future__ import annotations

import functools
import json
import os
import re
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
BUILT = ("Cargo.toml", "Cargo.lock", "pyproject.toml", "packaging/README.md", "LICENSE*")
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
SOURCES = ("python/dpsvm_fast/**/*.py", "rust/*/src/**/*.rs")


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    name: str
    killed: bool
    seconds: float
    failed: tuple[str, ...]
    problem: str = ""


@functools.cache
def sources(root: Path = ROOT) -> dict[str, str]:
    """The text of every file of the package and of the core, by its path."""
    found = (path for pattern in SOURCES for path in root.glob(pattern))
    return {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in found}


def place(edit: Edit, texts: dict[str, str]) -> tuple[str, re.Match[str]]:
    """The file and the place that an edit replaces.

    Raises
    ------
    LookupError
        There is no such place, or more than one.
    """
    old = re.compile(r"\s+".join(map(re.escape, edit.old.split())))
    near = re.compile(rf"\b(?:class|def|fn|struct|enum) {edit.near}\b")
    hits = [
        (path, hit)
        for path, text in texts.items()
        for hit in old.finditer(text)
        if not edit.near or near.search(text)
    ]
    if len(hits) != 1:
        raise LookupError(f"{[path for path, _ in hits]} have {edit.old!r}, expected one place")
    return hits[0]


def changed(edits: Sequence[Edit], texts: dict[str, str]) -> dict[str, str]:
    """The files that edits change, with their new texts."""
    done: dict[str, str] = {}
    for edit in edits:
        path, hit = place(edit, texts | done)
        text = (texts | done)[path]
        done[path] = text[: hit.start()] + edit.new.strip() + text[hit.end() :]
    return done


@functools.cache
def places_of_tests(root: Path = ROOT) -> dict[str, list[str]]:
    """Where the tests of a name are, by the bare name and behind the name of their module."""
    found: dict[str, list[str]] = {}
    for path in sorted(root.glob("tests/**/test_*.py")):
        for name in re.findall(r"^def (test_\w+)\(", path.read_text("utf-8"), flags=re.MULTILINE):
            for key in (name, f"{path.stem}::{name}"):
                found.setdefault(key, []).append(f"{path.relative_to(root).as_posix()}::{name}")
    return found


def killers(mutant: Mutant) -> list[str]:
    """The tests that a mutant names, as pytest takes them; each name belongs to one test."""
    found = {name: places_of_tests().get(name, []) for name in mutant.killers}
    if unclear := {name: tests for name, tests in found.items() if len(tests) != 1}:
        raise LookupError(f"expected one test of each name, got {unclear}")
    return [tests[0] for tests in found.values()]


def compiled(mutant: Mutant) -> bool:
    """Whether the compiled module has to be built."""
    return any(place(edit, sources())[0].endswith(".rs") for edit in mutant.edits)


def judge(mutant: Mutant, root: Path = ROOT) -> Verdict:
    """Runs the killers of a mutant on the changed sources."""
    start = time.monotonic()
    texts = changed(mutant.edits, sources(root))
    if any(path.endswith(".rs") for path in texts):
        folder = build(texts, root)
        found = run_tests(folder, killers(mutant))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            copy_sources(root, folder)
            for path, text in texts.items():
                write(folder / path, text)
            found = run_tests(folder, killers(mutant))
    problem = why_not_killed(mutant, found, folder)
    failed = tuple(test["id"] for test in found["failed"])
    return Verdict(mutant.name, not problem, time.monotonic() - start, failed, problem)


def baseline(mutants: Sequence[Mutant], root: Path = ROOT) -> str:
    """What is wrong with the killers on the sources as they are; nothing if they all pass."""
    tests = sorted({test for mutant in mutants for test in killers(mutant)})
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copy_sources(root, folder)
        found = run_tests(folder, tests)
        if not Path(found["package"]).resolve().is_relative_to(folder.resolve()):
            return f"the copy was not imported but {found['package']}"
        idle = [k for k in tests if not any(_belongs(test, k) for test in found["passed"])]
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
    named = killers(mutant)
    alive = [k for k in named if not any(_belongs(t["id"], k) for t in found["failed"])]
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


def write(path: Path, text: str) -> None:
    """Writes a changed source and removes what Python has compiled of it."""
    path.write_text(text, encoding="utf-8")
    for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        stale.unlink()


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


def build(texts: dict[str, str], root: Path = ROOT) -> Path:
    """The folder with the changed sources and their compiled module."""
    target = Path(os.environ.get("DPSVM_MUTANT_TARGET", root / "target" / "mutants")).resolve()
    folder = target / "sources"
    wanted = {path.relative_to(root) for name in BUILT for path in root.glob(name)}
    for name in ("rust", *COPIED):
        wanted |= {path.relative_to(root) for path in (root / name).rglob("*") if path.is_file()}
    wanted = {path for path in wanted if path.suffix not in (".so", ".pyd", ".pyc")}
    for path in sorted(wanted):
        text = texts.get(path.as_posix(), "")
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
