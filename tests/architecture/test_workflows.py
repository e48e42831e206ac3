"""The workflow files: what they name exists here, and no job or failure is left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
NAMES = sorted(path.name for path in FOLDER.glob("*.yml"))
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

# What a step may run of this repository: scripts, targets of make, extras, lists of packages.
SCRIPT = re.compile(r"(?<![\w/.-])(?:tools|benches|tests|examples|docs|python|rust)/[\w/.-]*\w")
TARGET = re.compile(r"^\s*make ([\w ]+)", flags=re.MULTILINE)
EXTRAS = re.compile(r"(?:--extras |--group |\.\[)([a-z,]+)")
ACTION = re.compile(r"^[\w-]+/[\w/-]+@[0-9a-f]{40}$")
# What a job may install before it stores a file that is released.
BUILDERS = 'python -m pip install "pip>=25.1" && python -m pip install --group wheel'


@cache
def workflow(name: str) -> dict[Any, Any]:
    """A workflow; YAML 1.1 takes its key "on" for a truth value."""
    found: dict[Any, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return found


def steps(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for job, content in workflow(name)["jobs"].items():
        for step in content["steps"]:
            yield job, step


def missing(command: str) -> list[str]:
    """What a command names and this repository does not have."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = [name for name in SCRIPT.findall(command) if not (ROOT / name).exists()]
    for names in TARGET.findall(command):
        found += [one for one in names.split() if f"\n{one}:" not in makefile]
    for names in EXTRAS.findall(command):
        found += [one for one in names.split(",") if not declared(one)]
    return found


def declared(extra: str) -> bool:
    return re.search(rf"^{extra} = \[", PROJECT, flags=re.MULTILINE) is not None


@pytest.mark.parametrize("name", NAMES)
def test_steps_run_what_exists(name: str) -> None:
    commands = [step["run"] for _, step in steps(name) if "run" in step]
    assert commands
    wrong = [(command, missing(command)) for command in commands if missing(command)]
    assert not wrong


def test_a_missing_script_target_or_extra_is_reported() -> None:
    """Negative control."""
    assert missing("tools/no_such.sh --fast") == ["tools/no_such.sh"]
    assert missing("make wheel no_such") == ["no_such"]
    assert missing('python -m pip install ".[cli,no]" --group nor') == ["no", "nor"]
    assert missing("tools/test_wheel.sh && make test\npip install .[cli] --group test") == []


@pytest.mark.parametrize("name", NAMES)
def test_jobs_are_bounded_and_need_jobs_that_exist(name: str) -> None:
    jobs = workflow(name)["jobs"]
    for job, content in jobs.items():
        needs = content.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= set(jobs), job
        assert "timeout-minutes" in content, job
        assert content["steps"], job


@pytest.mark.parametrize("name", [name for name in NAMES if "all" in workflow(name)["jobs"]])
def test_the_one_verdict_counts_every_job(name: str) -> None:
    jobs = workflow(name)["jobs"]
    after = {job for job, content in jobs.items() if content.get("needs") == "all"}
    assert set(jobs["all"]["needs"]) == set(jobs) - {"all"} - after


@pytest.mark.parametrize("name", NAMES)
def test_nothing_from_elsewhere_runs_before_a_file_is_stored(name: str) -> None:
    """Tools that pip installs could change the wheel that is released."""
    for job in workflow(name)["jobs"]:
        if name == "wheels.yml":
            installed = False
            for step in (step for owner, step in steps(name) if owner == job):
                installed |= "pip install" in step.get("run", "").replace(BUILDERS, "")
                assert not (installed and is_a(step, "up")), job


def test_only_approved_tags_are_published_and_only_that_job_may_write() -> None:
    jobs = workflow("wheels.yml")["jobs"]
    publish = jobs["publish"]
    assert publish["if"] == "github.ref_type == 'tag'"
    assert publish["needs"] == "all"
    assert publish["environment"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["steps"][-1]["with"] == {"attestations": True}
    for name in NAMES:
        assert workflow(name)["permissions"] == {"contents": "read"}
        others = set(workflow(name)["jobs"]) - {"publish"}
        assert not any("permissions" in workflow(name)["jobs"][job] for job in others)


def commands(job: str) -> list[str]:
    return [step["run"] for owner, step in steps("wheels.yml") if owner == job and "run" in step]


def test_the_gate_lints_with_the_compiler_of_the_wheels() -> None:
    compiler = workflow("wheels.yml")["env"]["RUSTUP_TOOLCHAIN"]
    # Lints differ between compilers.
    assert workflow("ci.yml")["jobs"]["gate"]["env"]["RUSTUP_TOOLCHAIN"] == compiler


@pytest.mark.skipif(sys.platform == "win32", reason="the step runs on Linux")
@pytest.mark.parametrize(
    ("tag", "urls", "said"),
    [
        ("v0.2.0", '[project.urls]\nSource = "https://example.org"\n', ""),
        ("v0.3.0", "", "the version in Cargo.toml 0.2.0"),
        ("v0.2.0", "", "names no address under [project.urls]"),
        ("v0.2.0", '[project.urls]\n[other]\nSource = "https://example.org"\n', "no address"),
    ],
)
def test_a_tag_needs_its_version_and_an_address(
    tmp_path: Path, tag: str, urls: str, said: str
) -> None:
    (script,) = [
        step["run"] for job, step in steps("wheels.yml") if job == "version" and "run" in step
    ]
    (tmp_path / "Cargo.toml").write_text('[workspace.package]\nversion = "0.2.0"\n')
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "x"\n{urls}')
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "TAG": tag},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (not said)
    assert said in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_pinned(name: str) -> None:
    """A tag can be moved, a digest cannot."""
    for job, step in steps(name):
        assert ("uses" in step) != ("run" in step), job
        assert "uses" not in step or ACTION.match(step["uses"]), step


def machines(job: str) -> set[str]:
    matrix = workflow("wheels.yml")["jobs"][job]["strategy"]["matrix"]
    return {entry["name"] for entry in matrix.get("machine", matrix.get("include"))}


def test_every_wheel_that_is_built_is_tested() -> None:
    assert machines("build") == machines("test") | machines("test-musl")
    assert machines("build-free-threaded") == machines("test-free-threaded")
    jobs = workflow("wheels.yml")["jobs"]
    for job in ("test", "test-musl", "test-free-threaded"):
        (upload,) = [s["with"]["name"] for s in jobs[jobs[job]["needs"]]["steps"] if is_a(s, "up")]
        (download,) = [s["with"]["name"] for s in jobs[job]["steps"] if is_a(s, "down")]
        assert prefix(upload) == prefix(download), job
        assert any("tools/test_wheel.sh" in step.get("run", "") for step in jobs[job]["steps"])


def is_a(step: dict[str, Any], way: str) -> bool:
    return fnmatch(step.get("uses", ""), f"actions/{way}load-artifact@*")


def prefix(artifact: str) -> str:
    return artifact.partition("${{")[0]


def test_the_subset_of_tests_exists() -> None:
    script = (ROOT / "tools" / "test_wheel.sh").read_text(encoding="utf-8")
    names = re.search(r'^tests="(.*?)"', script, flags=re.DOTALL | re.MULTILINE)
    assert names is not None
    assert len(names[1].split()) >= 12
    shared = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")}
    (copied,) = re.findall(r"^cp -R (.*) \"", script, flags=re.MULTILINE)
    for name in names[1].split():
        (path,) = (ROOT / "tests").rglob(f"{name}.py")
        imported = re.findall(r"^ *from (\w+)", path.read_text("utf-8"), flags=re.MULTILINE)
        for folder in shared & set(imported):
            assert f"tests/{folder}" in copied.split(), name
    for name in re.findall(r"^cp (?:-R )?([\w/ .]+) \"\$folder", script, flags=re.MULTILINE):
        for part in name.split():
            assert (ROOT / part).exists(), part
