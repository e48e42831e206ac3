"""Failures of a command: one sentence each, and an exit code."""

from __future__ import annotations

import difflib
import errno
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import click

from dpsvm_fast import exceptions

__all__ = [
    "DOES_NOT_HOLD",
    "DONE",
    "FAILED",
    "INTERRUPTED",
    "OVERSPENT",
    "CommandError",
    "Interrupted",
    "ReaderLeft",
    "guarded",
    "note",
    "printable",
    "under_its_option",
    "unexpected",
]

DONE, DOES_NOT_HOLD, FAILED, OVERSPENT = 0, 1, 2, 3
INTERRUPTED = 130

# Set to anything, it shows where an unexpected error arose. Tracebacks name no values.
TRACEBACK = "DPSVM_FAST_TRACEBACK"
PACKAGE = Path(__file__).resolve().parents[1]

# What the system says about files, as something to do.
FILE_TROUBLE = {
    errno.ENOENT: "there is no such file or folder; check the path",
    errno.EISDIR: "is a folder; name a file in it",
    errno.ENOTDIR: "a part of this path is a file and no folder; check the path",
    errno.EACCES: "no permission; choose another place or ask its owner for access",
    errno.EPERM: "no permission; choose another place or ask its owner for access",
    errno.EROFS: "this place cannot be written to; choose another one",
    errno.ENOSPC: "the disk is full; free some space and run the command again",
    errno.EEXIST: "exists already; choose another name",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
}


# What the library says of its argument, about the option.
SEEDED = "--seed: whoever knows it can remove the noise; leave it out for a private release"


class CommandError(Exception):
    """A command cannot go on; the text is one sentence that says what to do."""

    def __init__(self, sentence: str, exit_code: int = FAILED) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class Interrupted(Exception):
    """Ctrl-C."""


class ReaderLeft(Exception):
    """Whoever read standard output has closed it."""


def guarded(command: Callable[[], int | None], *, as_json: bool) -> int:
    """Run a command and turn whatever stops it into one sentence.

    Parameters
    ----------
    command : callable
        Returns the exit code; None counts as 0.
    as_json : bool
        Also write ``{"error": ..., "exit_code": ...}`` on standard output.

    Returns
    -------
    int
        The exit code.
    """
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = command() or DONE
            sys.stdout.flush()
        except (BrokenPipeError, ReaderLeft):
            return _silenced()
        except Exception as error:
            sentence, code = _judged(error)
        else:
            return code
    sentence = _tidy(sentence)
    try:
        if as_json:
            sys.stdout.write(json.dumps({"error": sentence, "exit_code": code}) + "\n")
            sys.stdout.flush()
        note(sentence)
    except BrokenPipeError:
        return _silenced()
    return code


def note(sentence: str) -> None:
    """Write one line on standard error."""
    line = f"dpsvm-fast: {printable(sentence)}\n"
    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    sys.stderr.write(line.encode(encoding, "backslashreplace").decode(encoding))
    sys.stderr.flush()


def printable(text: str) -> str:
    """``text`` without control characters: a file must not steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def under_its_option(
    error: exceptions.InvalidParameterError, command: click.Command
) -> exceptions.InvalidParameterError:
    """The error of a library argument under the name of the option that the user typed."""
    name, colon, rest = str(error).partition(": ")
    if (name, colon) == ("path", ": "):
        # Of a table: DATA or another one.
        return exceptions.InvalidParameterError(f"file: {rest.replace('format= ', '--format ')}")
    for option in command.params:
        if colon and option.name == name and isinstance(option, click.Option):
            return exceptions.InvalidParameterError(f"{_shown_name(option)}: {rest}")
    return error


def unexpected(error: Exception) -> str:
    """The sentence for an error whose text could hold a value from the data."""
    if os.environ.get(TRACEBACK):
        traceback.print_tb(error.__traceback__)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
    place = f" ({Path(ours[-1].filename).name}, line {ours[-1].lineno})" if ours else ""
    return (
        f"unexpected {type(error).__name__}{place}; please report it with what "
        f"{TRACEBACK}=1 dpsvm-fast ... prints"
    )


def _tidy(sentence: str) -> str:
    """One line; what follows a colon at its end is kept, as lines to be copied."""
    head, _, rest = printable(sentence).partition("\n")
    if head.endswith(":") and rest:
        return f"{head}\n{rest}"
    return " ".join(f"{head} {rest}".split())


def _silenced() -> int:
    """Nobody reads any more; Python would complain once again when it closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: str | None = None,
) -> None:
    """Show a warning as a sentence, without the line of source that raised it."""
    text = " ".join(str(message).split())
    note(f"warning: {SEEDED if text.startswith('random_state is a seed') else text}")


def _judged(error: Exception) -> tuple[str, int]:
    """The sentence and the exit code of a failure."""
    if isinstance(error, Interrupted | click.Abort):
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
        return "out of memory; use a machine with more of it, or fewer columns or rows", FAILED
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "rich":
        return 'a terminal needs rich: pip install "dpsvm-fast[cli]"', FAILED
    if type(error).__module__ == exceptions.__name__ or isinstance(error, ImportError | Warning):
        return str(error), FAILED
    return unexpected(error), FAILED


def _about_a_file(error: OSError) -> str:
    """What is wrong with a file, and what to do."""
    if error.errno is None:
        return str(error)
    reason = FILE_TROUBLE.get(error.errno, error.strerror or "cannot be used")
    return reason if error.filename is None else f"{error.filename}: {reason}"


def _usage(error: click.ClickException) -> str:
    """What is wrong with the words of the command line."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    path = ctx.command_path if ctx is not None else "dpsvm-fast"
    return f"{_complaint(error)} (see {path} --help)"


def _complaint(error: click.ClickException) -> str:
    """The sentence itself."""
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        if name == "--json":
            return "--json: write it after the command"
        # The beginning of a name is meant for it before one that looks alike.
        near = sorted(error.possibilities or (), key=lambda one: not one.startswith(name))
        if error.ctx is not None and error.ctx.parent is None and not _alike(name, near):
            return f"{name}: no such option here; those of a command are written after it"
        return f"{name}: no such option" + (f"; did you mean {near[0]}?" if near else "")
    if isinstance(error, click.BadParameter) and error.param is not None:
        name = _shown_name(error.param)
        if isinstance(error, click.MissingParameter):
            return f"{name} is missing"
        return f"{name}: {error.message.rstrip('.')}"
    text = error.message.rstrip(".")
    # Not where it begins with the name of something: COMMAND.
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _alike(name: str, near: list[str]) -> bool:
    """Whether one of the options is a slip of the pen away."""
    return bool(difflib.get_close_matches(name, near, n=1, cutoff=0.8))


def _shown_name(param: click.Parameter) -> str:
    """An option as it is typed; an argument as the help text calls it."""
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return param.human_readable_name
