"""Files of commands: atomic writes, figures, certificates and models."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsvm_fast.cli.screen import CommandError, note
from dpsvm_fast.exceptions import ModelFormatError
from dpsvm_fast.files import ROOM, checked_key, may_be_model, read_bytes

if TYPE_CHECKING:
    from dpsvm_fast.persist import SavedModel


# Files that a command writes: checked before anything is spent, replaced as a whole at the end.


class Draft:
    """File that is renamed into place once it is complete.

    Parameters
    ----------
    path : Path
        The name.
    draft : Path
        Empty file next to it, owned by this process.
    force : bool
        Whether an existing file may be replaced.
    """

    def __init__(self, path: Path, draft: Path, *, force: bool) -> None:
        self.path, self.draft, self._force = path, draft, force

    def write(self, text: str) -> None:
        """Write the whole file, and publish it."""
        self.draft.write_text(text, encoding="utf-8")
        self.publish()

    def publish(self) -> None:
        """Rename the file into place; a reader never sees a partial file.

        Raises
        ------
        OSError
            The file cannot be renamed, or another program has created a file of this name.
        """
        with open(self.draft, "rb") as written:
            os.fsync(written.fileno())
        # The permissions of any new file.
        mask = os.umask(0o077)
        os.umask(mask)
        self.draft.chmod(0o666 & ~mask)
        if not self._force:
            try:
                # A link never replaces a file.
                os.link(self.draft, self.path)
                return
            except (OSError, NotImplementedError):
                if os.path.lexists(self.path):
                    reason = os.strerror(errno.EEXIST)
                    raise FileExistsError(errno.EEXIST, reason, str(self.path)) from None
        self.draft.replace(self.path)


@contextmanager
def reserved(
    *paths: Path | None, force: bool, inputs: Sequence[Path | None] = ()
) -> Iterator[list[Draft]]:
    """Check that files can be written, and reserve a draft next to each.

    Parameters
    ----------
    *paths : Path or None
        Files to write; None is skipped.
    force : bool
        Whether existing files may be replaced.
    inputs : sequence of Path or None
        Files that the command reads, which are never replaced.

    Raises
    ------
    CommandError, OSError
        A file exists, is named twice, or cannot be created.
    """
    wanted = [path for path in paths if path is not None]
    if len({path.absolute() for path in wanted}) < len(wanted):
        raise CommandError(f"{wanted[0]}: names two outputs; give them different names")
    for path in wanted:
        for read in inputs:
            # A missing file is no input.
            with suppress(OSError):
                if read is not None and path.samefile(read):
                    raise CommandError(
                        f"{path}: is an input of this command; give the output another name"
                    )
    drafts: list[Draft] = []
    try:
        for path in wanted:
            drafts.append(_draft(path, force))
        yield drafts
    finally:
        for draft in drafts:
            with suppress(OSError):
                draft.draft.unlink()


def _draft(path: Path, force: bool) -> Draft:  # noqa: FBT001
    """Create an empty file next to ``path``."""
    if path.is_dir():
        raise CommandError(f"{path}: is a folder; name a file in it")
    if path.exists() and not force:
        raise CommandError(
            f"{path}: already exists; choose another name, or replace it with --force"
        )
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent
        )
    except OSError as error:
        # The error names the user's file, not the one that was tried.
        raise type(error)(error.errno, error.strerror, str(path)) from None
    os.close(handle)
    return Draft(path, Path(name), force=force)


# Figures that a command writes; nothing opens a window.


PLOT_SUFFIXES = (".png", ".pdf", ".svg")

SIZE, DPI = (6.4, 4.4), 150


def has_matplotlib() -> bool:
    """Return whether Matplotlib is installed."""
    try:
        return importlib.util.find_spec("matplotlib") is not None
    except ValueError:
        return False


def checked_plot(option: str, path: Path | None, *, needs_matplotlib: bool = True) -> None:
    """Refuse a figure that cannot be written, before any work is done."""
    if path is None:
        return
    if path.suffix.lower() not in PLOT_SUFFIXES:
        accepted = f"a file name ending in {', '.join(PLOT_SUFFIXES)}"
        raise CommandError(f"{option}: got {path.name!r}, expected {accepted}")
    if needs_matplotlib and not has_matplotlib():
        raise CommandError(f'{option} needs matplotlib: pip install "dpsvm-fast[plot]"')


def draw(draft: Draft, plot: Callable[[Any], Any]) -> None:
    """Draw one figure and publish the file.

    Parameters
    ----------
    draft : Draft
    plot : callable
        Function that draws on the given axes.
    """
    # Not through pyplot: it would look for a window.
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    plot(figure.subplots())
    figure.savefig(draft.draft, dpi=DPI, format=draft.path.suffix[1:].lower())
    draft.publish()


BOUND = "dpsvm_fast.bound_certificate"


@dataclass(frozen=True)
class Document:
    """Statement in a file.

    Parameters
    ----------
    path : Path
    record : object
        Certificate as plain values, not checked yet.
    text : str
        Text for ``verify``, with the model's digest if there is one.
    is_model : bool
        Whether the statement was part of a saved model.
    sha256 : str
        SHA-256 of the file.
    signature : str or None, default=None
        State of the signature of a model, or of a certificate bound to one, as in ``SavedModel``.
    key : bytes or None, default=None
        Key with which ``text`` was signed.
    """

    path: Path
    record: Any
    text: str
    is_model: bool
    sha256: str
    signature: str | None = None
    key: bytes | None = None


def read_document(path: Path, key: Path | None, room: int = ROOM) -> Document:
    """Read a certificate, or the certificate of a saved model.

    Parameters
    ----------
    path : Path
    key : Path or None
        Key of a signed model or certificate.
    room : int
        Most bytes of memory that this may take.

    Raises
    ------
    CommandError
        The file cannot be read, or is not JSON.
    ModelFormatError
        The file is a damaged model.
    """
    from dpsvm_fast.certificates.record import check_size

    try:
        data = read_bytes(path, room=room)
        # Anything that may be a model is checked as one: its arrays may be large.
        is_model = may_be_model(data)
        digest = hashlib.sha256(data).hexdigest()
        text, record = "", None
        if not is_model:
            text = data.decode("utf-8-sig")
            check_size(text, room)
            record = json.loads(text)
        # A large model is read again, and need not be in memory twice.
        del data
    except OSError as error:
        reason = str(error).partition(f"{str(path)!r}: ")[2] or str(error)
        raise CommandError(f"{path} cannot be read: {reason}") from error
    except ModelFormatError as error:
        raise CommandError(f"{path} cannot be read: it {error}") from error
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} cannot be read: {_not_json(error)}") from error
    if is_model:
        # The certificate is checked later.
        saved = opened_model(path, key, room)
        from dpsvm_fast.persist.model import statement_of

        own = statement_of(saved.estimator)
        how: dict[str, Any] = {"sha256": digest, "signature": saved.signature}
        return Document(path, own.to_dict(), own.to_json(), is_model=True, **how)
    if isinstance(record, dict) and record.get("format") == BOUND:
        from dpsvm_fast.persist.values import CHECKED, NOT_CHECKED, UNSIGNED

        signed = record.get("hmac_sha256") is not None
        state = (NOT_CHECKED if key is None else CHECKED) if signed else UNSIGNED
        facts: dict[str, Any] = {"sha256": digest, "signature": state, "key": checked_key(key)}
        return Document(path, record.get("certificate"), text, is_model=False, **facts)
    if key is not None:
        raise CommandError(f"--key: got a key, but {path} is not a signed model")
    return Document(path, record, text, is_model=False, sha256=digest)


def opened_model(path: Path, key: Path | None, room: int, *, quiet: bool = False) -> SavedModel:
    """Load a model without recomputing its certificate; warn about an unchecked signature.

    Raises
    ------
    ModelFormatError, OSError
        As in ``read_model``.
    """
    from dpsvm_fast.persist import read_model
    from dpsvm_fast.persist.values import NOT_CHECKED

    saved = read_model(path, key=key, verify=False, max_memory=room)
    if saved.signature == NOT_CHECKED and not quiet:
        note(f"warning: {path}: is signed, but the signature is not checked; give --key FILE")
    return saved


def _not_json(error: Exception) -> str:
    """Return why a file is not JSON, and what to do."""
    if isinstance(error, json.JSONDecodeError) and error.doc.lstrip().startswith("{"):
        text = error.doc.rstrip()
        if not text.endswith("}") or error.pos >= len(text):
            return "its JSON is cut off; copy or download the file again"
    return (
        "it is not JSON; expected a certificate, as model.privacy_.to_json() returns it, or a "
        "saved model"
    )
