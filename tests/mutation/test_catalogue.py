"""The catalogue of mutants is up to date, and every mutant in it is killed by the tests it names.

The ordinary suite runs one mutant of Python; ``make nightly`` runs all of them, those of the
compiled module included. By hand: ``python tools/mutants.py``.
"""

from __future__ import annotations

import functools
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from catalogue import CATALOGUE, Edit, Mutant
from mutant_runner import (
    PATH,
    ROOT,
    Verdict,
    baseline,
    changed,
    compiled,
    judge,
    killers,
    place,
    sources,
    why_not_killed,
)

QUICK = [mutant for mutant in CATALOGUE if not (mutant.slow or compiled(mutant))]
LONG = [mutant for mutant in CATALOGUE if mutant.slow or compiled(mutant)]
# Of the quick ones the one that every run judges, to see that judging works. Named faults of each
# mechanism are judged by the other files of this folder.
ALWAYS = ("sqrt(T) forgotten",)
WANTED = """
sigma/2, sigma/sqrt2, Delta without the factor 2, per-coordinate Laplace, no clipping,
clip after mean, divide by actual batch, fixed batch, noise reused over steps,
noise reused over classes, beta instead of beta/2, Lambda scaled by n, missing b/n,
solver stopped at 1e-2, intercept unregularised, class counts released, seeded RNG,
RDP with wrong order, sqrt(T) forgotten, budget not split over classes, tuning charged as one run,
bounds taken from data
"""


def quick() -> list[Any]:
    """Quick mutants as parameters, most of them for the nightly run alone."""
    return [
        pytest.param(
            mutant, id=mutant.name, marks=() if mutant.name in ALWAYS else pytest.mark.nightly
        )
        for mutant in QUICK
    ]


def named(mutant: Mutant) -> str:
    return mutant.name


def test_every_fault_that_was_asked_for_is_in_the_catalogue() -> None:
    names = [mutant.name for mutant in CATALOGUE]
    assert {name.strip() for name in WANTED.replace("\n", " ").split(",")} <= set(names)
    assert len(names) == len(set(names))
    assert set(ALWAYS) <= {mutant.name for mutant in QUICK}


@pytest.mark.parametrize("mutant", CATALOGUE, ids=named)
def test_a_mutant_fits_the_sources(mutant: Mutant) -> None:
    """What it replaces is there once, in the sources themselves, and its killers exist."""
    assert mutant.models
    assert mutant.edits
    assert mutant.killers
    assert all(changed(mutant.edits, sources()).values())
    assert all(edit.old.split() != edit.new.split() for edit in mutant.edits)
    assert not any(test.startswith("tests/mutation/") for test in killers(mutant))


@functools.cache
def workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1))


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest) -> dict[str, Future[Verdict]]:
    """Runs of the chosen quick mutants, two at a time.

    Where pytest itself runs in several processes, each judges only what it is asked for.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return {}
    chosen = {item.name for item in request.session.items}
    return {
        mutant.name: workers().submit(judge, mutant)
        for mutant in QUICK
        if f"test_a_quick_mutant_is_killed[{mutant.name}]" in chosen
    }


@pytest.mark.parametrize("mutant", quick())
def test_a_quick_mutant_is_killed(mutant: Mutant, verdicts: dict[str, Future[Verdict]]) -> None:
    begun = verdicts.get(mutant.name)
    verdict = judge(mutant) if begun is None else begun.result()
    assert verdict.killed, verdict.problem


@pytest.mark.nightly
def test_the_killers_of_quick_mutants_pass_on_the_sources_as_they_are() -> None:
    assert not baseline(QUICK)


@pytest.mark.slow
def test_a_change_without_effect_is_not_killed() -> None:
    """The runner does not count just anything as a kill."""
    (mutant,) = (mutant for mutant in QUICK if mutant.name == "seeded RNG")
    (same,) = mutant.edits
    edit = Edit(same.old, same.old + "  # the same", same.near)
    verdict = judge(Mutant("none", "nothing", (edit,), mutant.killers))
    assert not verdict.killed
    assert "survives" in verdict.problem


def test_an_error_or_another_package_is_not_a_kill(tmp_path: Path) -> None:
    test = "test_a_place_that_is_missing_or_ambiguous_is_refused"
    mutant = Mutant("m", "", (), (test,))
    (test,) = killers(mutant)
    package = str(tmp_path / "dpsvm_fast" / "__init__.py")

    def verdict(**changes: object) -> str:
        failed = [{"id": f"{test}[1]", "phase": "call", "kind": "assertion"}]
        found = {"package": package, "failed": failed, "passed": [], "code": 1, "output": ""}
        return why_not_killed(mutant, found | changes, tmp_path)

    assert not verdict()
    assert verdict(package="")
    assert verdict(package=str(ROOT / "python" / "dpsvm_fast" / "__init__.py"))
    assert verdict(failed=[])
    assert verdict(code=2)
    for wrong in ({"phase": "setup"}, {"kind": "ImportError"}, {"id": "a.py::test_c"}):
        one = {"id": f"{test}[1]", "phase": "call", "kind": "assertion"} | wrong
        assert verdict(failed=[one])


def test_a_place_that_is_missing_or_ambiguous_is_refused() -> None:
    texts = {"a.py": "def f():\n    return  1\n", "b.py": "def g():\n    return 1\nx = 1\n"}
    for old in ("y = 1", "return 1", "1"):
        with pytest.raises(LookupError):
            place(Edit(old, "z"), texts)
    assert changed([Edit("return 1", "return 2", near="f")], texts) == {
        "a.py": "def f():\n    return 2\n"
    }
    with pytest.raises(LookupError):
        killers(Mutant("m", "", (), ("test_that_nobody_wrote",)))


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", LONG, ids=named)
def test_a_long_mutant_is_killed(mutant: Mutant) -> None:
    if mutant.compiled and shutil.which("cargo", path=PATH) is None:
        pytest.skip("mutants of the compiled module are built with cargo")
    verdict = judge(mutant)
    assert verdict.killed, verdict.problem


@pytest.mark.nightly
def test_the_killers_of_long_mutants_pass_on_the_sources_as_they_are() -> None:
    assert not baseline(LONG)
