"""The frame of the command line: what is said where, failures, exit codes, help, completion."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dpsvm_fast import BudgetExceededError, InvalidParameterError, __version__
from dpsvm_fast.ledger import PrivacyLedger
from oracles.statements import statement_of

pytest.importorskip("click")

import click

from dpsvm_fast.cli.app import NAMES, app
from dpsvm_fast.cli.screen import CommandError, Screen, guarded, note
from oracles.command_line import Cli, python

PLAN = ["plan", "--delta=1e-5", "--features=4", "--classes=3"]


class TestUsage:
    def test_a_group_alone_shows_its_commands(self, cli: Cli) -> None:
        out, err = cli.both("budget")
        assert out.startswith("Usage: dpsvm-fast budget")
        assert "create" in out
        assert not err

    def test_help_offers_only_models_that_are_taken(self, cli: Cli) -> None:
        for command, has_kernel in (("demo", False), ("plan", True)):
            assert ("kernel" in cli(command, "--help")) is has_kernel

    def test_a_failure_is_json_too(self, cli: Cli) -> None:
        out, err = cli.both("verify", "nowhere.json", "--json", code=2)
        found = json.loads(out)
        assert found == {"error": err[len("dpsvm-fast: ") : -1], "exit_code": 2}
        assert "nowhere.json cannot be read: no such file" in found["error"]

    @pytest.mark.parametrize("name", NAMES)
    def test_every_command_has_an_example_and_takes_json(self, name: str, cli: Cli) -> None:
        command = app.get_command(click.Context(app), name)
        assert command.name == name
        shown = cli(name, "--help")
        if not isinstance(command, click.Group):
            assert "--json" in shown
            assert f"Example:\n    dpsvm-fast {name}" in shown
        assert max(map(len, shown.split("Example:")[0].splitlines())) <= 100

    def test_version(self, cli: Cli) -> None:
        assert cli("--version") == f"dpsvm-fast {__version__}\n"


def failing(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


class TestFailures:
    @pytest.mark.parametrize(
        ("error", "code", "said"),
        [
            (CommandError("that is not there; make it"), 2, "that is not there; make it"),
            (CommandError("refuted", 1), 1, "refuted"),
            (BudgetExceededError("the ledger allows 1"), 3, "the ledger allows 1"),
            (InvalidParameterError("delta: got 2"), 2, "delta: got 2"),
            (ImportError('arrow: pip install "dpsvm-fast[arrow]"'), 2, "pip install"),
            (MemoryError(), 2, "out of memory; use a larger machine"),
            (FileNotFoundError(errno.ENOENT, "x", "a.csv"), 2, "a.csv: no such file"),
            (PermissionError(errno.EACCES, "x", "a.csv"), 2, "a.csv: no permission; choose"),
            (IsADirectoryError(errno.EISDIR, "x", "a"), 2, "a: is a folder; name a file in it"),
            (OSError(errno.ENOSPC, "x", "a"), 2, "a: the disk is full; free some space"),
            (OSError("it went wrong there"), 2, "it went wrong there"),
            (UserWarning("labels were read from y"), 2, "labels were read from y"),
            (CommandError("two\n lines   of it"), 2, "two lines of it"),
            (CommandError("\x1b[2Jcleared"), 2, "\\x1b[2Jcleared"),
        ],
    )
    def test_what_stops_a_command(self, error: Exception, code: int, said: str, cli: Cli) -> None:
        assert guarded(failing(error), as_json=True) == code
        shown = cli.read()
        assert said in shown.err
        assert shown.err.count("\n") == 1
        assert shown.err[:-1].isprintable()
        assert json.loads(shown.out)["exit_code"] == code

    def test_lines_to_copy_are_kept(self, cli: Cli) -> None:
        text = "columns: two are not declared; add:\n[columns]\nage = { bounds = [LOW, HIGH] }"
        assert guarded(failing(CommandError(text)), as_json=True) == 2
        shown = cli.read()
        assert shown.err == f"dpsvm-fast: {text}\n"
        assert json.loads(shown.out)["error"] == text

    def test_an_error_of_the_program_tells_no_value(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Other libraries quote cells: could not convert string to float: '...'."""
        error = ValueError("could not convert string to float: 'Ann Smith'")
        for shows in ("", "1"):
            monkeypatch.setenv("DPSVM_FAST_TRACEBACK", shows)
            assert guarded(failing(error), as_json=True) == 2
            shown = cli.read()
            assert "Ann" not in shown.err + shown.out
            assert "unexpected ValueError" in shown.err
            assert ("in command" in shown.err) == bool(shows)

    def test_a_warning_is_a_line(self, cli: Cli) -> None:
        def command() -> int:
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                warnings.warn("the labels\nwere read from y", UserWarning, stacklevel=1)
            return 0

        assert guarded(command, as_json=False) == 0
        shown = cli.read()
        assert shown.err == "dpsvm-fast: warning: the labels were read from y\n"
        assert not shown.out

    def test_a_reader_that_left_is_not_an_error_message(self) -> None:
        code = "import sys; from dpsvm_fast.cli import main; sys.exit(main(['--help']))"
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "wb") as closed:
            done = subprocess.run(
                [sys.executable, "-c", code], stdout=closed, stderr=subprocess.PIPE, check=False
            )
        assert done.returncode == 0
        assert not done.stderr

    def test_without_the_extra_it_says_how_to_get_it(self) -> None:
        code = (
            "import sys; sys.modules['click'] = None; from dpsvm_fast.cli import main; "
            "sys.exit(main(['verify', 'nowhere.json', '--json']))"
        )
        done = python("-c", code)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert 'needs click: pip install "dpsvm-fast[cli]"' in done.stderr
        assert 'pip install "dpsvm-fast[cli]"' in json.loads(done.stdout)["error"]

    def test_an_argument_of_the_library_is_named_by_its_option(self, cli: Cli) -> None:
        assert cli.stderr(*PLAN, "--epsilon=1e9").startswith(
            "dpsvm-fast: --epsilon: got 1000000000.0, "
        )
        assert cli.stderr(*PLAN, "--epsilon=1", "--model=output", "--data-norm=1e300").startswith(
            "dpsvm-fast: --data-norm: the bound on "
        )


class TestImports:
    @pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["plan", "--help"]])
    def test_help_and_version_wait_for_nothing(self, arguments: list[str]) -> None:
        code = (
            "import sys; from dpsvm_fast.cli import main\n"
            f"assert main({arguments}) == 0\n"
            "sys.exit(str([n for n in ('numpy', 'scipy', 'sklearn', 'rich') if n in sys.modules]))"
        )
        assert python("-c", code).stderr.strip() == "[]"

    def test_a_certificate_is_checked_without_scikit_learn(self, tmp_path: Path) -> None:
        path = tmp_path / "certificate.json"
        path.write_text(statement_of("output", "add_remove").to_json(), encoding="utf-8")
        code = (
            "import sys; from dpsvm_fast.cli import main\n"
            f"assert main(['verify', {str(path)!r}]) == 0\n"
            "sys.exit(str([n for n in ('sklearn', 'pandas', 'rich') if n in sys.modules]))"
        )
        assert python("-c", code).stderr.strip() == "[]"

    def test_a_shell_completes_commands_and_options(self) -> None:
        code = "import sys; from dpsvm_fast.cli import main; sys.exit(main())"
        script = python("-c", code, _DPSVM_FAST_COMPLETE="bash_source")
        assert "_DPSVM_FAST_COMPLETE=bash_complete" in script.stdout
        for words, place, expected in (
            ("dpsvm-fast ver", "1", "plain,verify"),
            ("dpsvm-fast plan --mod", "2", "plain,--model"),
            ("dpsvm-fast plan --model o", "3", "plain,output"),
        ):
            found = python(
                "-c", code, _DPSVM_FAST_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=place
            )
            assert expected in found.stdout.split()


class TestScreen:
    def test_json_is_one_strict_object_and_nothing_else(self, cli: Cli) -> None:
        screen = Screen(json=True)
        screen.say("text")
        screen.table(["a"], [["b"]])
        note("a remark")
        with screen.progress("working", 3) as advance:
            advance(3)
        screen.result(
            {
                "nan": math_nan(),
                "array": np.array([1.0, np.inf]),
                "whole": np.int64(3),
                "text": "\x1b",
                "several": (1, None),
                "file": Path("model.json"),
            }
        )
        shown = cli.read()
        assert json.loads(shown.out, parse_constant=pytest.fail) == {
            "nan": None,
            "array": [1.0, None],
            "whole": 3,
            "text": "\x1b",
            "several": [1, None],
            "file": "model.json",
        }
        assert shown.out[:-1].replace("\n", "").isprintable()
        assert shown.err == "dpsvm-fast: a remark\n"

    @pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
    def test_any_encoding_can_show_it(
        self, encoding: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        path = tmp_path / "shown.txt"
        with path.open("w", encoding=encoding) as stream:
            monkeypatch.setattr(sys, "stdout", stream)
            Screen(json=False).say("Grüße 東京")
        monkeypatch.undo()
        shown = path.read_text(encoding=encoding)
        assert shown.startswith("Gr")
        assert ("東京" in shown) == (encoding == "utf-8")


def math_nan() -> float:
    return float("nan")


def test_a_name_in_a_file_cannot_steer_the_terminal(cli: Cli) -> None:
    shown = cli.stderr("verify", "\x1b[2J\x07.json")
    assert shown[:-1].isprintable()
    assert "\\x1b[2J\\x07.json cannot be read" in shown


def test_a_budget_that_would_be_overspent_is_code_3(cli: Cli) -> None:
    def command() -> int:
        from dpsvm_fast import PrivateCenter

        ledger = PrivacyLedger(0.5, 1e-6)
        PrivateCenter(1.0, 1e-6, data_norm=1.0, ledger=ledger).fit(np.eye(2))
        return 0

    assert guarded(command, as_json=False) == 3
    assert cli.read().err.count("\n") == 1
