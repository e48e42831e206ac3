"""docs/command_line.md: what it shows is what the commands print, and every command is there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from dpsvm_fast import PrivateLinearSVC
from dpsvm_fast.cli import main

pytest.importorskip("click")

import click

from dpsvm_fast.cli.app import NAMES, app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command_line.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n\$ (.*)\n((?:.*\n)*?)```$", TEXT, flags=re.MULTILINE)
SHOWN = [(command, output) for command, output in BLOCKS if output]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the certificate of the demonstration: it depends on no value of a row."""
    model = PrivateLinearSVC(1.0, 1e-5, bounds=(0, 16), classes=range(10))
    model.fit(np.zeros((1347, 64)), np.zeros(1347, dtype=int))
    (tmp_path / "certificate.json").write_text(model.privacy_.to_json(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_is_something_to_compare() -> None:
    assert {command.split()[1] for command, _ in SHOWN} == {"plan", "statement", "verify"}


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_what_is_shown_is_printed(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, output: str
) -> None:
    program, *words = shlex.split(command)
    assert program == "dpsvm-fast"
    assert main(words) == 0
    pieces = [re.escape(piece) for piece in output.split("...\n")]
    assert re.fullmatch("(?:.*\n)*?".join(pieces), capsys.readouterr().out)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_a_section_with_its_options(name: str) -> None:
    section = re.search(rf"^## [^\n]*`{name}`\n(.*?)(?=^## )", TEXT, flags=re.M | re.S)
    assert section is not None
    assert f"dpsvm-fast {name}" in section[1]
    command = app.get_command(click.Context(app), name)
    known = {option for each in command.params for option in each.opts}  # type: ignore[union-attr]
    if isinstance(command, click.Group):
        for each in command.commands.values():
            known |= {option for param in each.params for option in param.opts}
    elsewhere = {"--json", "--budget", "--help"}
    for option in re.findall(r"`(--[a-zA-Z][\w-]*)", section[1]):
        assert option in known | elsewhere, f"{name} has no {option}"


def test_the_commands_of_other_examples_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Options and values of every line that is not run here are read without complaint."""
    lines = re.findall(r"^(?:\$ )?dpsvm-fast (.*)$", TEXT, flags=re.MULTILINE)
    assert len(lines) >= 10
    for line in lines:
        words = shlex.split(line)
        command = app.get_command(click.Context(app), words[0])
        assert command is not None
        rest = words[1:]
        if isinstance(command, click.Group):
            command, rest = command.commands[rest[0]], rest[1:]
        command.make_context(words[0], rest)


# In this order: each uses files of those before. The others take too long here.
FOR_PROGRAMS = [
    ("plan", "plan --epsilon 1 --delta 1e-5 --features 2 --classes 2"),
    ("fit --write-schema", "fit people.csv --write-schema new.toml --target income"),
    ("budget", "budget create b.sqlite --epsilon 4 --delta 1e-5"),
    (
        "fit",
        "fit people.csv --schema p.toml --epsilon 1 --delta 1e-6 --budget b.sqlite -o m.json",
    ),
    ("schema check", "schema check p.toml people.csv --rows"),
    ("predict", "predict m.json people.csv -o predictions.csv"),
    ("evaluate", "evaluate m.json people.csv --epsilon 1 --budget b.sqlite"),
    ("statement", "statement m.json"),
    ("verify", "verify m.json"),
    ("budget", "budget show b.sqlite"),
]


def test_fields_for_programs_are_those_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("age,income\n" + "39,low\n50,high\n" * 40, encoding="utf-8")
    Path("p.toml").write_text(
        'target = "income"\nclasses = ["low", "high"]\n[columns]\nage = { bounds = [0, 100] }\n',
        encoding="utf-8",
    )
    table = TEXT.partition("| Command | Fields |\n|---|---|\n")[2].partition("\n\n")[0]
    named: dict[str, set[str]] = {}
    for row in table.splitlines():
        _, commands, fields, _ = row.split("|")
        # Fields of fields, and of one of two commands, are told in brackets or behind a semicolon.
        own = re.sub(r"\([^)]*\)", "", fields).partition(";")[0]
        for name in re.findall(r"`([^`]+)`", commands):
            named[name] = set(re.findall(r"`(\w+)`", own))
    for name, line in FOR_PROGRAMS:
        assert main([*shlex.split(line), "--json"]) == 0, line
        shown = json.loads(capsys.readouterr().out)
        assert named[name], name
        # A file's own name is not always told again.
        assert named[name] - {"file"} == set(shown) - {"file", "certificate_file"}, name
