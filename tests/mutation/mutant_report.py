"""Pytest plugin of a run on a mutant: what failed, in which phase, by what kind of exception.

It is loaded by ``mutant_runner`` and writes one JSON object to the file named in MUTANT_REPORT.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import dpsvm_fast

FAILED: list[dict[str, Any]] = []
PASSED: list[str] = []


def kind_of(error: BaseException) -> str:
    """ "assertion" for a check that failed, otherwise the name of the exception."""
    if isinstance(error, (AssertionError, pytest.fail.Exception)):
        return "assertion"
    parts = getattr(error, "exceptions", ())
    if parts and all(kind_of(part) == "assertion" for part in parts):
        return "assertion"
    return type(error).__name__


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.outcome == "failed" and call.excinfo is not None:
        FAILED.append(
            {"id": item.nodeid, "phase": report.when, "kind": kind_of(call.excinfo.value)}
        )
    elif report.outcome == "passed" and report.when == "call":
        PASSED.append(item.nodeid)
    return report


def pytest_sessionfinish() -> None:
    found = {"package": dpsvm_fast.__file__, "failed": FAILED, "passed": PASSED}
    Path(os.environ["MUTANT_REPORT"]).write_text(json.dumps(found))
