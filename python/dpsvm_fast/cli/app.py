"""The commands, by the path of whoever answers for the data, and their common entry.

A module is imported when a command of it is called or asked about: a new command is a
`click.Command` called ``<name>_command`` in ``<name>.py``, and a line of ``COMMANDS``.
"""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import click

from dpsvm_fast._core import build_info
from dpsvm_fast.cli.screen import Interrupted, ReaderLeft, guarded

PROGRAM = "dpsvm-fast"


class Entry(NamedTuple):
    """A command as the list of commands shows it."""

    name: str
    part: str
    does: str


TRY, BEFORE, TRAIN, USE, AFTER, SPEED = (
    "To try it",
    "Before any data are touched",
    "Train",
    "Use a model",
    "After: what was promised, and whether it holds",
    "Speed",
)

COMMANDS = (
    Entry("demo", TRY, "train on real digits at five values of epsilon"),
    Entry("plan", BEFORE, "what noise to expect for a budget"),
    Entry("budget", BEFORE, "make a budget file, or show what was spent"),
    Entry("fit", TRAIN, "train a private model on the rows of a file"),
    Entry("tune", TRAIN, "choose parameters and train, within one budget"),
    Entry("predict", USE, "label the rows of a file"),
    Entry("evaluate", USE, "measure a model on private rows, with noise and intervals"),
    Entry("statement", AFTER, "say what a model promises, with a line to sign on"),
    Entry("verify", AFTER, "recompute the epsilon and delta of a certificate or model"),
    Entry("audit", AFTER, "try to refute what every mechanism claims"),
    Entry("bench", SPEED, "time fits on this machine, beside scikit-learn without privacy"),
)


# Modules of commands that share one.
HOMES = dict.fromkeys(("fit", "tune", "evaluate"), "training") | {"verify": "statement"}


class Formatter(click.HelpFormatter):
    """Help texts whose headings stand out on a terminal; click leaves them plain elsewhere."""

    def write_heading(self, heading: str) -> None:
        """Write a title of some options or commands."""
        dumb = os.environ.get("TERM") == "dumb"
        self.write(f"{heading}:\n" if dumb else click.style(f"{heading}:", bold=True) + "\n")


class Context(click.Context):
    """What click knows about a call."""

    formatter_class = Formatter


class Group(click.Group):
    """Commands that are found, or told from those that were perhaps meant."""

    context_class = Context
    # Words that other programs have for a command.
    also_called: ClassVar[dict[str, str]] = {"help": "--help"}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name one that was perhaps meant."""
        name = args[0]
        known = self.list_commands(ctx)
        if name in known or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        close = difflib.get_close_matches(name, known, n=1)
        near = self.also_called.get(name, close[0] if close else None)
        hint = f"did you mean {near!r}?" if near else f"expected one of {', '.join(known)}"
        raise click.UsageError(f"COMMAND: got {name!r}; {hint}", ctx)


class App(Group):
    """Commands that are imported when they are needed."""

    also_called: ClassVar[dict[str, str]] = Group.also_called | {
        "version": "--version",
        "train": "fit",
        "search": "tune",
        "score": "evaluate",
        "check": "verify",
        "benchmark": "bench",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help text."""
        return [entry.name for entry in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"dpsvm_fast.cli.{HOMES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        command.context_class = Context
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands part by part, without importing them."""
        for part in dict.fromkeys(entry.part for entry in COMMANDS):
            rows = [(entry.name, entry.does) for entry in COMMANDS if entry.part == part]
            with formatter.section(part):
                formatter.write_dl(rows, col_max=12)

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        """Read the command line; the help text is printed meanwhile."""
        with _told_apart():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with _told_apart():
            return super().invoke(ctx)


@contextmanager
def _told_apart() -> Iterator[None]:
    """An interrupt and a reader that left, before click ends the program because of them."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted from None
    except BrokenPipeError:
        raise ReaderLeft from None


@click.group(
    cls=App,
    subcommand_metavar="COMMAND [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"{PROGRAM} COMMAND --help shows a command with an example. Every command takes --json.",
)
@click.version_option(
    str(build_info()["version"]), prog_name=PROGRAM, message="%(prog)s %(version)s"
)
def app() -> None:
    """Differentially private support vector machines."""


def run(words: list[str]) -> int:
    """Run one command line.

    Parameters
    ----------
    words : list of str
        What follows the program's name.

    Returns
    -------
    int
        The exit code.
    """
    return guarded(
        lambda: app.main(words or ["--help"], prog_name=PROGRAM, standalone_mode=False),
        as_json="--json" in words,
    )
