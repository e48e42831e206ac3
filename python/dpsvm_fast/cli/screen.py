"""Output of commands: text and tables for people, one JSON object for programs.

Long lines are wrapped on a terminal only, so that grep and files see whole lines. Colours carry no
information, and ``NO_COLOR`` disables them. With ``--json`` standard output has only the object.
Progress and notes go to standard error.
"""

from __future__ import annotations

import difflib
import errno
import functools
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import click

from dpsvm_fast import exceptions
from dpsvm_fast.exceptions import InvalidParameterError

# Failures of a command: one sentence each, and an exit code.


DONE, DOES_NOT_HOLD, FAILED, OVERSPENT, FORBIDDEN = 0, 1, 2, 3, 4

INTERRUPTED = 130

# If set, shows where an unexpected error arose. Tracebacks name no values.
TRACEBACK = "DPSVM_FAST_TRACEBACK"

PACKAGE = Path(__file__).resolve().parents[1]

# Errors of the system about files, and what to do about them.
FILE_TROUBLE = {
    errno.ENOENT: "no such file or folder; check the path",
    errno.EISDIR: "is a folder; name a file in it",
    errno.ENOTDIR: "part of this path is a file, not a folder; check the path",
    errno.EACCES: "no permission; choose another location or ask its owner for access",
    errno.EPERM: "no permission; choose another location or ask its owner for access",
    errno.EROFS: "read-only; choose another location",
    errno.ENOSPC: "the disk is full; free some space and run the command again",
    errno.EEXIST: "already exists; choose another name",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
}


# The library's warning about ``random_state``, for the option.
SEEDED = "--seed: anyone who knows it can remove the noise; leave it out for a private release"


class CommandError(Exception):
    """A command cannot continue; the text is one sentence with a remedy."""

    def __init__(self, sentence: str, exit_code: int = FAILED) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


def guarded(command: Callable[[], int | None], *, as_json: bool) -> int:
    """Run a command and report each error as one sentence.

    Parameters
    ----------
    command : callable
        Function that returns the exit code; None counts as 0.
    as_json : bool
        Whether to also write ``{"error": ..., "exit_code": ...}`` on standard output.

    Returns
    -------
    int
        The exit code.
    """
    with warnings.catch_warnings():
        warnings.showwarning = _shown_once()
        try:
            code = command() or DONE
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            return _silenced(DONE)
        except (Exception, KeyboardInterrupt) as error:
            sentence, code = judged(error)
    sentence = _tidy(sentence)
    try:
        if as_json:
            sys.stdout.write(json.dumps({"error": sentence, "exit_code": code}) + "\n")
            sys.stdout.flush()
        note(sentence)
    except BrokenPipeError:
        return _silenced(code)
    return code


def note(sentence: str) -> None:
    """Write one line to standard error."""
    _write(sys.stderr, f"dpsvm-fast: {printable(sentence)}\n")


def printable(text: str) -> str:
    """Return ``text`` without control characters, so that no file can control the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def under_its_option(
    error: exceptions.InvalidParameterError, command: click.Command
) -> exceptions.InvalidParameterError:
    """Return an argument error of the library under the name of the typed option."""
    name, colon, rest = str(error).partition(": ")
    if (name, colon) == ("path", ": "):
        # The error is about a table: DATA or another one.
        return exceptions.InvalidParameterError(f"file: {rest.replace('format= ', '--format ')}")
    for option in command.params:
        if colon and option.name == name and isinstance(option, click.Option):
            return exceptions.InvalidParameterError(f"{_shown_name(option)}: {rest}")
    return error


def is_own_error(error: BaseException) -> bool:
    """Return whether an error's text is from this package and quotes no data."""
    return type(error).__module__ == exceptions.__name__


def unexpected(error: BaseException) -> str:
    """Return a sentence for an error whose text may quote data."""
    if os.environ.get(TRACEBACK):
        traceback.print_tb(error.__traceback__)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
    place = f" ({Path(ours[-1].filename).name}, line {ours[-1].lineno})" if ours else ""
    return (
        f"unexpected {type(error).__name__}{place}; please report it with the output of "
        f"{TRACEBACK}=1 dpsvm-fast ..."
    )


def _tidy(sentence: str) -> str:
    """Join to one line; keep lines after a final colon, which users copy."""
    head, _, rest = printable(sentence).partition("\n")
    if head.endswith(":") and rest:
        return f"{head}\n{rest}"
    return " ".join(f"{head} {rest}".split())


def _silenced(code: int) -> int:
    """Silence a closed stream, which Python would report again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _shown_once() -> Callable[..., None]:
    """Return a function that shows a warning as one sentence, without source line.

    A budget and a fit may give the same warning: each sentence is shown once.
    """
    shown: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            shown.add(text)
            note(f"warning: {SEEDED if text.startswith('random_state: anyone') else text}")

    return show


def judged(error: BaseException) -> tuple[str, int]:
    """Return the sentence and the exit code of a failure."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if isinstance(error, click.ClickException):
        return _usage(error), FAILED
    if isinstance(error, CommandError):
        return str(error), error.exit_code
    if isinstance(error, exceptions.BudgetExceededError):
        return str(error), OVERSPENT
    if isinstance(error, OSError):
        return _about_a_file(error), FAILED
    if isinstance(error, MemoryError):
        return "out of memory; use a larger machine, a smaller --max-memory, or fewer rows", FAILED
    if is_own_error(error) or isinstance(error, ImportError | Warning):
        return str(error), FAILED
    return unexpected(error), FAILED


def _about_a_file(error: OSError) -> str:
    """Describe a file error and its remedy."""
    if error.errno is None:
        return str(error)
    reason = FILE_TROUBLE.get(error.errno, error.strerror or "cannot be used")
    return reason if error.filename is None else f"{error.filename}: {reason}"


def _usage(error: click.ClickException) -> str:
    """Describe a usage error."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    path = ctx.command_path if ctx is not None else "dpsvm-fast"
    return f"{_usage_sentence(error)} (see {path} --help)"


def _usage_sentence(error: click.ClickException) -> str:
    """Return the sentence of a usage error."""
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        if name == "--json":
            return "--json: write it after the command"
        # The beginning of a name is meant for it before one that looks alike.
        near = sorted(error.possibilities or (), key=lambda one: not one.startswith(name))
        is_typo = difflib.get_close_matches(name, near, n=1, cutoff=0.8)
        if error.ctx is not None and error.ctx.parent is None and not is_typo:
            return f"{name}: no such option here; write options after the command"
        return f"{name}: no such option" + (f"; did you mean {near[0]}?" if near else "")
    if isinstance(error, click.BadParameter) and error.param is not None:
        name = _shown_name(error.param)
        if isinstance(error, click.MissingParameter):
            return f"{name} is missing"
        return f"{name}: {error.message.rstrip('.')}"
    text = error.message.rstrip(".")
    # Not where it begins with the name of something: COMMAND.
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _shown_name(param: click.Parameter) -> str:
    """Return an option as typed, or an argument as named in the help text."""
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return param.human_readable_name


# Kinds of option values. Refusals read: got ..., expected ...


class Value(click.ParamType):  # type: ignore[type-arg]
    """Option type that a function parses; an error means "not accepted"."""

    accepted: str

    def read(self, value: Any) -> Any:
        """Parse a value; a ValueError or TypeError refuses it."""
        raise NotImplementedError

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a value, or raise an error that says what is accepted."""
        try:
            return self.read(value)
        except (TypeError, ValueError):
            self.fail(f"got {str(value)!r}, expected {self.accepted}", param, ctx)


class Real(Value):
    """Finite number above, or at least, ``low``.

    Parameters
    ----------
    low : float
    includes_low : bool, default=False
    """

    name = "number"

    def __init__(self, low: float, *, includes_low: bool = False) -> None:
        self.low, self.includes_low = low, includes_low
        self.accepted = f"a number {'>=' if includes_low else '>'} {low:g}"

    def read(self, value: Any) -> float:
        """Parse a number."""
        number = float(value)
        above = number > self.low or (self.includes_low and number == self.low)
        if not (math.isfinite(number) and above):
            raise ValueError
        return number


class Reals(Real):
    """Comma-separated numbers."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse all numbers."""
        if isinstance(value, tuple):
            return value
        return tuple(super(Reals, self).convert(part, param, ctx) for part in str(value).split(","))


class Integer(Value):
    """Integer from ``low`` to ``high``, if given."""

    name = "integer"

    def __init__(self, low: int, high: int | None = None) -> None:
        self.range = range(low, sys.maxsize if high is None else high + 1)
        self.accepted = f"an integer >= {low}" + ("" if high is None else f" and <= {high}")

    def read(self, value: Any) -> int:
        """Parse an integer."""
        number = int(value)
        if number not in self.range:
            raise ValueError
        return number


class MemorySize(Value):
    """Memory size with a unit: 512MiB, 2GB."""

    name = "size"
    accepted = "a size such as 512MiB or 2GB"

    def read(self, value: Any) -> int:
        """Parse a number and its unit."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*(?:([KMGT])(IB|B)?|B)?\s*", value.upper())
        if found is None or float(found[1]) <= 0.0:
            raise ValueError
        unit = 1000 if found[3] == "B" else 1024
        return int(float(found[1]) * unit ** " KMGT".index(found[2] or " "))


class OneOf(click.Choice):  # type: ignore[type-arg]
    """Choice among words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the choice named by a word."""
        if value in self.choices:
            return str(value)
        near = difflib.get_close_matches(str(value), self.choices, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise click.BadParameter(
            f"got {str(value)!r}, expected one of {', '.join(self.choices)}{hint}", ctx, param
        )


class FileName(click.Path):
    """Path, which is not checked before it is opened.

    Parameters
    ----------
    dash : bool, default=False
        Whether "-" means standard output or input.
    """

    def __init__(self, *, dash: bool = False) -> None:
        super().__init__(path_type=Path, readable=False)
        self.name, self._dash = "file", dash

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a file name."""
        if not self._dash and os.fspath(value) == "-":
            self.fail("got '-', expected the name of a file", param, ctx)
        return super().convert(value, param, ctx)


FILE, FILE_OR_STREAM = FileName(), FileName(dash=True)

STREAM = Path("-")

BETWEEN = "  "
# Prefix whose width continuation lines are indented by: a bullet, a box, a label, or spaces.
BEGIN = re.compile(r" *(?:- |\[ \] |\w[\w ]{0,13} {2,})?")
# Erases a terminal's line, and shows the cursor that click hides behind a bar.
ERASE = "\r\x1b[K\x1b[?25h"


class Screen:
    """Output of a command.

    Parameters
    ----------
    json : bool
        Whether to write one JSON object instead of text.
    quiet : bool, default=False
        Whether to write neither text nor progress, only warnings, errors and files.

    Attributes
    ----------
    terminal : bool
        Whether standard output is a terminal.
    """

    def __init__(self, *, json: bool, quiet: bool = False) -> None:
        self.json, self.silent, self.quiet = json, json or quiet, quiet
        # Asked once: while a bar is shown, rich stands between.
        self.terminal = sys.stdout.isatty()

    def say(self, text: str = "", *, style: str = "") -> None:
        """Print text; not with ``--json``.

        Parameters
        ----------
        text : str
            One or several lines, which are wrapped on a narrower terminal.
        style : {"", "bold", "bold green", "bold red", "bold yellow"}
            On a terminal only.
        """
        if self.silent:
            return
        text = printable(text)
        if self.terminal:
            width = shutil.get_terminal_size().columns
            text = "\n".join(piece for line in text.split("\n") for piece in _fitting(line, width))
            if style and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb":
                colour = style.removeprefix("bold").strip() or None
                text = click.style(text, bold=True, fg=colour)
        _write(sys.stdout, f"{text}\n")

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1
    ) -> None:
        """Print a table; not with ``--json``.

        Parameters
        ----------
        columns : sequence of str
        rows : sequence of sequences
            Cells as text.
        left : int, default=1
            Number of leading text columns; the others are numbers, aligned right.
        """
        if self.silent:
            return
        cells = [[printable(str(cell)) for cell in row] for row in (columns, *rows)]
        for line in _aligned(cells, left):
            _write(sys.stdout, f"{line}\n")

    def result(self, record: dict[str, Any]) -> None:
        """Write the JSON object with ``--json``: NaN and infinities as null, paths as text."""
        if self.json:
            _write(sys.stdout, json.dumps(_strict(record), indent=2, allow_nan=False) + "\n")

    @contextmanager
    def progress(self, description: str, total: float | None) -> Iterator[Callable[..., None]]:
        """Show a progress bar while the body runs, if standard error is a terminal.

        Parameters
        ----------
        description : str
            Description of the work.
        total : float or None
            Last value of the progress; None if it is unknown yet.

        Yields
        ------
        callable
            Function that reports the progress, and the total if it was unknown before.
        """
        shown, label = not self.quiet and sys.stderr.isatty(), printable(description)
        bar: Any = None

        def advance(done: float, whole: float | None = total) -> None:
            nonlocal bar
            if not shown or not whole:
                return
            if bar is None:
                bar = click.progressbar(label=label, length=int(whole), file=sys.stderr)
            bar.update(int(done) - bar.pos)

        if shown:
            _write(sys.stderr, f"{label} ...\r")
        try:
            yield advance
        finally:
            if shown:
                _write(sys.stderr, ERASE)


def option(*words: Any, **how: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds an option with its default shown.

    Parameters
    ----------
    *words : object
        Names, then the type if it is not text, then the help.
    **how
        As in ``click.option``.
    """
    *names, help_text = words
    if not isinstance(names[-1], str):
        how["type"] = names.pop()
    how.setdefault("show_default", "default" in how)
    return click.option(*names, help=help_text or None, **how)


def together(*options: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Combine options into one decorator, in order."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorated


# Words of options of several commands; what they are checked against waits for numpy.
ADJACENCIES, UNITS = ("add_remove", "replace_one"), ("row", "person")


def delta_option(**how: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``--delta``."""
    text = "Delta, far below 1 / number of rows; 0 for pure epsilon."
    return option("--delta", Real(0.0, includes_low=True), text, metavar="D", **how)


def memory_option(text: str, **how: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``--max-memory``."""
    return option("--max-memory", MemorySize(), text, metavar="SIZE", **how)


# For commands that read a saved model.
model_memory_option = memory_option("Memory limit for a saved model.", default="256MiB")


def adjacency_option(**how: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``--adjacency``."""
    text = "Neighbouring relation: a row added or removed, or replaced."
    if "default" not in how:
        text += "  [default: as in the budget, or add_remove]"
    return option("--adjacency", OneOf(ADJACENCIES), text, **how)


def pass_screen(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Add ``--json`` to a command, and pass it a `Screen` as its first argument.

    An `InvalidParameterError` about an argument of the library is reported under the name of the
    command's option.
    """

    @click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
    @click.option("-q", "--quiet", is_flag=True, help="Print nothing but warnings and errors.")
    @functools.wraps(function)
    def with_screen(*args: Any, as_json: bool, quiet: bool, **options: Any) -> int | None:
        try:
            with _from_standard_input(options):
                return function(Screen(json=as_json, quiet=quiet), *args, **options)
        except InvalidParameterError as error:
            raise under_its_option(error, click.get_current_context().command) from error

    return with_screen


@contextmanager
def _from_standard_input(options: dict[str, Any]) -> Iterator[None]:
    """Copy standard input to a temporary file that only this user can read."""
    if options.get("data") != STREAM:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="dpsvm_fast-", dir=options.get("temp")) as folder:
        path = Path(folder) / f"stdin.{options.get('data_format') or 'csv'}"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        options["data"] = path
        yield


def example(*lines: str) -> str:
    """Return the epilog of a help text: example command lines, not wrapped."""
    return "\n".join(("\b", "Example:", *(f"  {line}" for line in lines)))


def typed(path: Path) -> str:
    """Return a file name quoted for a command line."""
    if sys.platform == "win32":
        return subprocess.list2cmdline([str(path)])
    return shlex.quote(str(path))


def _write(stream: TextIO, text: str) -> None:
    """Write immediately, with characters that the stream can encode."""
    encoding = getattr(stream, "encoding", None) or "ascii"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    click.echo(text, file=stream, nl=False, color=True)


def _fitting(line: str, width: int) -> list[str]:
    """Wrap one line to the terminal's width, with continuation lines under its text."""
    if len(line) <= width:
        return [line]
    begin = BEGIN.match(line)
    hanging = min(begin.end() if begin is not None else 0, width // 2)
    first = line[: len(line) - len(line.lstrip())]
    how: dict[str, Any] = {"initial_indent": first, "subsequent_indent": " " * hanging}
    return textwrap.wrap(line.strip(), width, break_on_hyphens=False, break_long_words=False, **how)


def _aligned(rows: list[list[str]], left: int) -> Iterator[str]:
    """Yield rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield BETWEEN.join(cells).rstrip()


def _strict(value: Any) -> Any:
    """Return ``value`` as JSON has it."""
    if isinstance(value, dict):
        return {str(name): _strict(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if hasattr(value, "tolist"):
        # A NumPy number or array.
        return _strict(value.tolist())
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
