"""The commands in order of use, and their common entry point.

A module is imported only when one of its commands is called or its help is shown. A new command is
a `click.Command` named ``<name>_command``, and a line in ``COMMANDS``.
"""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import click

from dpsvm_fast._core import build_info
from dpsvm_fast.cli.screen import CommandError

PROGRAM = "dpsvm-fast"
# Set by the shell for completion.
COMPLETION = "_DPSVM_FAST_COMPLETE"

# The module of each command and what it does, in the order in which the data owner works.
COMMANDS = {
    "Try it": {"demo": ("trials", "train on real digits at five values of epsilon")},
    "Before any data are read": {
        "plan": ("plan", "show the noise to expect for a budget"),
        "schema": ("predict", "check a schema, and that a file fits it"),
        "budget": ("budget", "create a budget file, or show what is spent"),
    },
    "Train": {
        "fit": ("training", "train a private model on the rows of a file"),
        "tune": ("tune", "choose parameters and train within one budget"),
    },
    "Use a model": {
        "predict": ("predict", "label the rows of a file"),
        "evaluate": ("tune", "measure a model on private rows"),
        "export": ("predict", "write a model as an ONNX graph"),
    },
    "Statements and checks": {
        "statement": ("statement", "print the privacy statement of a model"),
        "verify": ("statement", "recompute epsilon and delta of a certificate or model"),
        "audit": ("trials", "try to refute the claims of all mechanisms"),
    },
    "Speed": {"bench": ("trials", "time private fits against scikit-learn")},
}
MODULES = {name: module for part in COMMANDS.values() for name, (module, _) in part.items()}
NAMES = tuple(MODULES)


class Context(click.Context):
    """Context of a call; options not typed come from the environment and the project file."""

    def __init__(self, command: click.Command, *arguments: Any, **settings: Any) -> None:
        super().__init__(command, *arguments, **settings)
        if not self.resilient_parsing and not isinstance(command, click.Group):
            self.default_map = defaults(command, self.command_path.split()[1:])


# Defaults of options, in the folder where the program is called: a separate file, or a table of
# the one that projects in Python have.
PROJECT, OTHER_PROJECT, TABLE = Path("dpsvm.toml"), Path("pyproject.toml"), "dpsvm-fast"


def defaults(command: click.Command, words: list[str]) -> dict[str, Any]:
    """Return option values from the environment and the project file.

    Parameters
    ----------
    command : click.Command
    words : list of str
        Words of the command, such as ["budget", "create"].
    """
    prefix = "_".join(("DPSVM_FAST", *words, "")).upper().replace("-", "_")
    options, variables = {}, {}
    for param in command.params:
        if isinstance(param, click.Option):
            name = max(param.opts, key=len).lstrip("-")
            options[name] = param
            variables[prefix + name.upper().replace("-", "_")] = name
    found = _project(words, options)
    for variable, value in os.environ.items():
        if variable in variables:
            found[variables[variable]] = value
        elif variable.startswith(prefix):
            # A typing error must not disable a setting.
            near = difflib.get_close_matches(variable, variables, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise CommandError(f"{variable}: the command has no such option{hint}")
    return {
        str(options[name].name): [value]
        if options[name].multiple and not isinstance(value, list)
        else value
        for name, value in found.items()
    }


def _project(words: list[str], options: Iterable[str]) -> dict[str, Any]:
    """Return the values of the project file for one command.

    Raises
    ------
    CommandError
        The file has a table for an unknown command or an unknown option; a typing error must not
        disable a setting.
    """
    path = PROJECT if PROJECT.is_file() else OTHER_PROJECT
    try:
        if f"[tool.{TABLE}".encode() not in path.read_bytes() and path == OTHER_PROJECT:
            return {}
    except OSError:
        return {}
    from dpsvm_fast.data.schema import check_keys, read_record
    from dpsvm_fast.exceptions import SchemaError

    try:
        record: Any = read_record(path)
        record = record if path == PROJECT else record["tool"][TABLE]
        check_keys("", record, NAMES)
        for word in words:
            record = record.get(word, {})
            if not isinstance(record, dict):
                raise SchemaError(f"{word}: expected a table [{'.'.join(words)}]")
        inner = {name: value for name, value in record.items() if not isinstance(value, dict)}
        check_keys(".".join(words), inner, tuple(options))
    except SchemaError as error:
        raise CommandError(f"{path}: {error}".replace("a schema file", "a project file")) from None
    return inner


class Group(click.Group):
    """Group of commands that suggests a name for an unknown one."""

    context_class = Context
    # Words of other programs for a command.
    also_called: ClassVar[dict[str, str]] = {"help": "--help"}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help text if no command is given."""
        return super().parse_args(ctx, args if args or ctx.resilient_parsing else ["--help"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.context_class = Context
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest one."""
        name = args[0]
        known = self.list_commands(ctx)
        if name in known or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        close = difflib.get_close_matches(name, known, n=1)
        near = self.also_called.get(name, close[0] if close else None)
        hint = f"did you mean {near!r}?" if near else f"expected one of {', '.join(known)}"
        raise click.UsageError(f"COMMAND: got {name!r}; {hint}", ctx)


class App(Group):
    """Group of commands that are imported on demand."""

    also_called: ClassVar[dict[str, str]] = Group.also_called | {
        "version": "--version",
        "train": "fit",
        "search": "tune",
        "score": "evaluate",
        "check": "verify",
        "benchmark": "bench",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help text."""
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name in MODULES and cmd_name not in self.commands:
            module = importlib.import_module(f"dpsvm_fast.cli.{MODULES[cmd_name]}")
            self.add_command(getattr(module, f"{cmd_name}_command"))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands section by section, without importing them."""
        for part, commands in COMMANDS.items():
            with formatter.section(part):
                formatter.write_dl([(name, does) for name, (_, does) in commands.items()], 12)


@click.group(
    cls=App,
    subcommand_metavar="COMMAND [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=(
        f"{PROGRAM} COMMAND --help explains a command, with an example. Every command takes --json "
        "and --quiet. Set your own defaults in dpsvm.toml or DPSVM_FAST_COMMAND_OPTION."
    ),
)
@click.version_option(
    str(build_info()["version"]), prog_name=PROGRAM, message="%(prog)s %(version)s"
)
def app() -> None:
    """Differentially private support vector machines."""


def run(words: list[str]) -> int | None:
    """Run a command, or answer a shell that completes one; return the exit code."""
    asked = os.environ.get(COMPLETION)
    if asked:
        from click.shell_completion import shell_complete

        return shell_complete(app, {}, PROGRAM, COMPLETION, asked)
    try:
        with app.make_context(PROGRAM, words) as context:
            code: int | None = app.invoke(context)
            return code
    except click.exceptions.Exit as after_help:
        return after_help.exit_code
