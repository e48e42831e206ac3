"""What a command shows: text and tables for people, one JSON object for machines.

On a terminal tables and headings come from rich; elsewhere they are plain aligned text of any
width, for grep and for files. Colours carry no meaning of their own, and ``NO_COLOR`` turns them
off. With ``--json`` nothing but the object is on standard output. Progress and notes go to
standard error.
"""

from __future__ import annotations

import functools
import json
import math
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import click

from dpsvm_fast.cli._errors import note, printable, under_its_option
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["Progress", "Screen", "example", "pass_screen", "typed"]

BETWEEN = "  "


class Progress:
    """How far some work has come; shown on a terminal and nowhere else."""

    def __init__(self, advance: Callable[[float, float | None], None] | None = None) -> None:
        self._advance = advance

    def advance_to(self, done: float, total: float | None = None) -> None:
        """Tell how much is done, and of how much where it was not known before."""
        if self._advance is not None:
            self._advance(done, total)


class Screen:
    """Where a command writes.

    Parameters
    ----------
    json : bool
        Whether the caller wants one JSON object instead of text.

    Attributes
    ----------
    terminal : bool
        Whether standard output is one.
    """

    def __init__(self, *, json: bool) -> None:
        self.json = json
        # Asked once: while a bar is shown, rich stands between.
        self.terminal = sys.stdout.isatty()

    def say(self, text: str = "", *, style: str = "") -> None:
        """Print text, one or several lines; not with ``--json``.

        Parameters
        ----------
        text : str
            On a terminal, lines are broken anew where it is narrower than they are.
        style : str
            Of rich; on a terminal only.
        """
        if self.json:
            return
        if not self.terminal:
            _write(sys.stdout, printable(text) + "\n")
            return
        from rich.text import Text

        from dpsvm_fast.cli._reflow import reflowed

        console = self._console()
        lines = reflowed(printable(text), console.width)
        console.print(Text(lines, style=style), soft_wrap=True)

    def heading(self, text: str) -> None:
        """Print the title of what follows, after an empty line."""
        self.say(f"\n{text}", style="bold")

    def note(self, text: str) -> None:
        """Print a remark on standard error."""
        note(text)

    def table(
        self,
        title: str | None,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        left: int = 1,
    ) -> None:
        """Print a table; not with ``--json``.

        Parameters
        ----------
        title : str or None
        columns : sequence of str
        rows : sequence of sequences
            Cells as they are to be read.
        left : int, default=1
            Number of leading columns that are text; the others are numbers, on the right.
        """
        if self.json:
            return
        cells = [[printable(str(cell)) for cell in row] for row in rows]
        if self.terminal:
            self._rich_table(title, columns, cells, left)
            return
        if title is not None:
            _write(sys.stdout, f"{title}\n")
        for line in _aligned([list(columns), *cells], left):
            _write(sys.stdout, f"{line}\n")

    def result(self, record: dict[str, Any]) -> None:
        """Write the JSON object, with ``--json``; numbers that are none become null."""
        if self.json:
            _write(sys.stdout, json.dumps(_strict(record), indent=2, allow_nan=False) + "\n")

    @contextmanager
    def progress(
        self, description: str, total: float | None, *, unit: str = ""
    ) -> Iterator[Progress]:
        """Show a bar while the body runs, where standard error is a terminal.

        Parameters
        ----------
        description : str
            What is being done.
        total : float or None
            What ``advance_to`` reaches at the end; None, a bar that only moves, until it is told.
        unit : {"", "bytes"}, default=""
            What is counted: "bytes" are shown as MB.

        Yields
        ------
        Progress
        """
        if not sys.stderr.isatty():
            yield Progress()
            return
        # What is printed meanwhile must not leave standard output, which may be a file.
        with _bars(unit, redirect_stdout=self.terminal) as bars:
            task = bars.add_task(printable(description), total=total)
            yield Progress(lambda done, new: bars.update(task, completed=done, total=new))

    def _console(self) -> Any:
        """Rich's console on standard output as it is now."""
        from rich.console import Console

        return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)

    def _rich_table(
        self, title: str | None, columns: Sequence[str], cells: list[list[str]], left: int
    ) -> None:
        """Print a table on a terminal."""
        from rich import box
        from rich.table import Table

        table = Table(
            title=title,
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            pad_edge=False,
            show_edge=False,
        )
        for number, name in enumerate(columns):
            table.add_column(name, justify="left" if number < left else "right", overflow="fold")
        for row in cells:
            table.add_row(*row)
        self._console().print(table)


def pass_screen(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a command ``--json`` and, as its first argument, the `Screen` that it writes to.

    An `InvalidParameterError` about an argument of the library is told under the name of the
    command's option.
    """

    @click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
    @functools.wraps(function)
    def with_screen(*args: Any, as_json: bool, **options: Any) -> int | None:
        try:
            return function(Screen(json=as_json), *args, **options)
        except InvalidParameterError as error:
            raise under_its_option(error, click.get_current_context().command) from error

    return with_screen


def example(*lines: str) -> str:
    """Epilog of a help text: command lines to start from, kept as they are."""
    return "\n".join(("\b", "Example:", *(f"  {line}" for line in lines)))


def typed(path: Path) -> str:
    """A file's name as it is typed in a command that the user is to copy."""
    if sys.platform == "win32":
        return subprocess.list2cmdline([str(path)])
    return shlex.quote(str(path))


def _bars(unit: str, *, redirect_stdout: bool) -> Any:
    """Progress bars of rich on standard error."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Counted(MofNCompleteColumn):
        """Nothing as long as nobody knows of how many."""

        def render(self, task: Task) -> Text:
            return super().render(task) if task.total is not None else Text()

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn() if unit == "bytes" else Counted(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=redirect_stdout,
    )


def _write(stream: TextIO, text: str) -> None:
    """Write at once, and in whatever the stream can encode."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _aligned(rows: list[list[str]], left: int) -> Iterator[str]:
    """Rows as lines with columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield BETWEEN.join(cells).rstrip()


def _strict(value: Any) -> Any:
    """``value`` without what JSON has no word for."""
    if isinstance(value, dict):
        return {str(name): _strict(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if hasattr(value, "tolist"):
        # Of numpy.
        return _strict(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
