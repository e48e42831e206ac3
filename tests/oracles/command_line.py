"""The command line in this process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest


def python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter with these words: "-c" and code, "-m" and a module."""
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=os.environ | environment,
    )


class Cli:
    """Runs commands and checks their exit codes."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.read = capsys.readouterr

    def said(self, *words: object) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        from dpsvm_fast.cli import main

        self.read()
        code = main([str(word) for word in words])
        return code, *self.read()

    def both(self, *words: object, code: int = 0) -> tuple[str, str]:
        """Standard output and standard error."""
        found, *both = self.said(*words)
        assert found == code, both[1]
        return both[0], both[1]

    def __call__(self, *words: object, code: int = 0) -> str:
        """Standard output."""
        return self.both(*words, code=code)[0]

    def json(self, *words: object, code: int = 0) -> Any:
        """The object that ``--json`` prints: strict JSON."""
        return json.loads(self(*words, "--json", code=code), parse_constant=pytest.fail)

    def stderr(self, *words: object, code: int = 2) -> str:
        """Standard error."""
        return self.both(*words, code=code)[1]

    def refused(self, *words: object, code: int = 2) -> str:
        """Standard error of a command that prints nothing else."""
        out, err = self.both(*words, code=code)
        assert out == ""
        return err

    def sentence(self, *words: object, code: int = 2) -> str:
        """One sentence on standard error, foreseen by the program."""
        err = self.stderr(*words, code=code)
        assert err.count("\n") == 1
        assert "unexpected" not in err
        return err

    def planned(self, plan: Sequence[str], *options: str) -> str:
        """What ``plan`` prints for these words, some of them replaced by options."""
        given = {option.split("=")[0] for option in options}
        return self(*(word for word in plan if word.split("=")[0] not in given), *options)


def through_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size, rows are decoded to a temporary folder."""
    monkeypatch.setattr("dpsvm_fast.cli.training._largest_size", lambda table: None)


def fact(words: str, shown: str) -> float:
    """The number in a row of a plan."""
    return number(rf"\n{re.escape(words)} +(\S+)\n", shown)


def number(pattern: str, text: str) -> float:
    """The number where the group of ``pattern`` is."""
    found = re.search(pattern, text)
    assert found is not None, text
    return float(found[1])
