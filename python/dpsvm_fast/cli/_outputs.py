"""Files that a command writes: checked before anything is spent, replaced as a whole at the end."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dpsvm_fast.cli._errors import CommandError

__all__ = ["Draft", "reserved"]


class Draft:
    """A file that takes its name once it is complete.

    Parameters
    ----------
    path : Path
        The name.
    draft : Path
        An empty file beside it, of this process.
    force : bool
        Whether an existing file may be replaced.
    """

    def __init__(self, path: Path, draft: Path, *, force: bool) -> None:
        self.path, self.draft, self._force = path, draft, force

    def publish(self) -> None:
        """Give the file its name; a reader sees the old file or the new one, never half.

        Raises
        ------
        OSError
            It cannot be done, or another program has made a file of this name meanwhile.
        """
        with open(self.draft, "rb") as written:
            os.fsync(written.fileno())
        self.draft.chmod(0o666 & ~_umask())
        if not self._force and self._linked():
            return
        self.draft.replace(self.path)

    def _linked(self) -> bool:
        """Whether the file has its name without replacing any; False where there are no links."""
        try:
            os.link(self.draft, self.path)
        except (OSError, NotImplementedError):
            if os.path.lexists(self.path):
                reason = os.strerror(errno.EEXIST)
                raise FileExistsError(errno.EEXIST, reason, str(self.path)) from None
            return False
        return True


@contextmanager
def reserved(
    *paths: Path | None,
    force: bool,
    option: str = "--force",
    inputs: Sequence[Path | None] = (),
) -> Iterator[list[Draft]]:
    """Prove that files can be written, and hold a place beside each; what is not used is removed.

    Parameters
    ----------
    *paths : Path or None
        None is left out.
    force : bool
        Whether existing files may be replaced.
    option : str
        How the user says so.
    inputs : sequence of Path or None
        Files that the command reads, which are not replaced whatever the user says.

    Raises
    ------
    CommandError, OSError
        A file exists, is named twice, or cannot be made.
    """
    wanted = [path for path in paths if path is not None]
    if len({path.absolute() for path in wanted}) < len(wanted):
        raise CommandError(f"{wanted[0]}: is named for two outputs; give each a name of its own")
    for path in wanted:
        if any(_same(path, read) for read in inputs if read is not None):
            raise CommandError(
                f"{path}: is read by this command and would be lost; give the output another name"
            )
    drafts: list[Draft] = []
    try:
        for path in wanted:
            drafts.append(_draft(path, force, option))
        yield drafts
    finally:
        for draft in drafts:
            with suppress(OSError):
                draft.draft.unlink()


def _same(path: Path, other: Path) -> bool:
    """Whether both names are those of one file that exists."""
    try:
        return path.samefile(other)
    except OSError:
        return False


def _draft(path: Path, force: bool, option: str) -> Draft:  # noqa: FBT001
    """An empty file beside ``path``."""
    if path.is_dir():
        raise CommandError(f"{path}: is a folder; name a file in it")
    if path.exists() and not force:
        raise CommandError(f"{path}: exists already; choose another name, or replace it: {option}")
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent
        )
    except OSError as error:
        # Of the file that the user named, not of the one that was tried.
        raise type(error)(error.errno, error.strerror, str(path)) from None
    os.close(handle)
    return Draft(path, Path(name), force=force)


def _umask() -> int:
    """Permissions that new files of this process do not get."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
