"""Reading and writing files: a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path

from dpsvm_fast.exceptions import InvalidParameterError, ModelFormatError
from dpsvm_fast.io._model_text import LARGEST_FILE

__all__ = ["read_bytes", "write_bytes"]

# A new file may be read by others, as far as the process's umask lets them.
NEW_FILE = 0o666


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file as a whole, or leave what was there.

    Raises
    ------
    OSError
        With one sentence that names the file.
    InvalidParameterError
        More than a reader accepts.
    """
    if len(data) > LARGEST_FILE:
        raise InvalidParameterError(
            f"model: got one of {len(data)} bytes when saved, expected at most {LARGEST_FILE}"
        )
    # What a link points at is replaced, not the link.
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex}")
    try:
        if target.is_dir():
            raise IsADirectoryError(0, "is a folder")
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
        with os.fdopen(
            os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, NEW_FILE), "wb"
        ) as file:
            if mode is not None:
                draft.chmod(mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except OSError as error:
        raise _sentence("write", path, error) from None
    finally:
        draft.unlink(missing_ok=True)


def read_bytes(path: Path) -> bytes:
    """The contents of a file that is not too large.

    Raises
    ------
    OSError
        With one sentence that names the file.
    ModelFormatError
        It is too large.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(LARGEST_FILE + 1) if size <= LARGEST_FILE else b""
    except OSError as error:
        raise _sentence("read", path, error) from None
    if max(size, len(data)) > LARGEST_FILE:
        raise ModelFormatError(f"is larger than {LARGEST_FILE} bytes; no model is")
    return data


def _sentence(verb: str, path: Path, error: OSError) -> OSError:
    """The same error with a text for people: what could not be done, why, what would help."""
    reason = (error.strerror or type(error).__name__).lower()
    remedy = ""
    if isinstance(error, PermissionError):
        remedy = "; choose another place or ask for the right to it"
        reason = f"no permission to {verb} there"
    elif isinstance(error, FileNotFoundError):
        reason = "there is no such folder" if verb == "write" else "there is no such file"
    elif isinstance(error, IsADirectoryError):
        reason = "it is a folder"
    return type(error)(f"cannot {verb} {str(path)!r}: {reason}{remedy}")
