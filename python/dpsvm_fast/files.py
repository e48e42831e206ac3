"""Atomic file access: a reader sees the old file or the new one, never a partial one."""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path

from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError, ModelFormatError

# Bytes of a file that is written.
LARGEST_FILE = 1 << 32
# Bytes of memory that a file may take unless the caller allows more, and how many at worst for each
# of text. Larger files are refused before they are read.
ROOM, OF_CHARACTER = 1 << 28, 5
# Advice on how to allow more memory.
MEMORY_ADVICE = "raise the memory limit: max_memory= of the function, --max-memory of the command"
# Lengths of a key in bytes: a shorter one can be guessed.
SHORTEST_KEY, LONGEST_KEY = 16, 1 << 16
# Bytes at the start of a file that are checked first.
START = 1 << 20
MODEL_MARK = b'"dpsvm_fast.model"'
# Most bytes of text that is not all ASCII: each character may take four bytes, several times over.
LARGEST_NON_ASCII = 1 << 23


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically; on failure the old file stays.

    Raises
    ------
    OSError
        The message is one sentence that names the file.
    InvalidParameterError
        The data are larger than a reader accepts.
    """
    if len(data) > LARGEST_FILE:
        raise InvalidParameterError(
            f"model: got {len(data)} bytes, expected at most {LARGEST_FILE}"
        )
    # Replace the target of a link, not the link.
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{uuid.uuid4().hex}.draft")
    try:
        if target.is_dir():
            raise IsADirectoryError(0, "is a folder")
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
        with draft.open("xb") as file:
            if mode is not None:
                draft.chmod(mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except OSError as error:
        raise _described_error("write", path, error) from None
    finally:
        draft.unlink(missing_ok=True)


def read_bytes(
    path: Path, largest: int | None = None, *, of_text: bool = True, room: int | None = None
) -> bytes:
    """Return the contents of a regular file of limited size.

    Parameters
    ----------
    path : Path
    largest : int or None, default=None
        Largest size in bytes; None for that of a text that the room is enough for.
    of_text : bool, default=True
        Whether the file is text. Then the rest of a large file is read only if its start is.
    room : int or None, default=None
        Most bytes of memory that a text may take; None for ``ROOM``, which the caller cannot raise.

    Raises
    ------
    OSError
        The message is one sentence that names the file.
    ModelFormatError
        The file is too large, or is a pipe or a device.
    """
    more = "" if room is None else f"; {MEMORY_ADVICE}"
    if largest is None:
        largest = min((room or ROOM) // OF_CHARACTER, LARGEST_FILE)
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise ModelFormatError("is a pipe or a device; write it to a file first")
            data = file.read(min(largest, START))
            # Endless zeros are not text, and take no space on a disk.
            if about.st_size <= largest and not (of_text and b"\0" in data):
                data += file.read(max(0, about.st_size + 1 - len(data)))
    except OSError as error:
        raise _described_error("read", path, error) from None
    if max(about.st_size, len(data)) > largest:
        raise ModelFormatError(f"is larger than {largest} bytes{more}")
    if of_text and len(data) > LARGEST_NON_ASCII and not data.isascii():
        raise ModelFormatError(
            f"has {len(data)} bytes with non-ASCII text, expected at most {LARGEST_NON_ASCII}; "
            "write other characters as JSON does, such as \\u00e9"
        )
    return data


def may_be_model(data: bytes) -> bool:
    """Return whether a file says that it is a model."""
    return MODEL_MARK in data


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file without blocking on a pipe that has no writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def checked_key(key: object) -> bytes | None:
    """Return the bytes of a key, given as bytes or as the path of a file."""
    if key is None:
        return None
    if isinstance(key, (bytes, bytearray)):
        found = bytes(key)
    elif isinstance(key, (str, os.PathLike)):
        try:
            found = read_bytes(Path(key), LONGEST_KEY, of_text=False)
        except ModelFormatError as error:
            raise InvalidParameterError(f"key: {str(key)!r} {error}") from None
        except ValueError:
            raise InvalidParameterError("key: got a path with a null character") from None
    else:
        raise InvalidTypeError.of("key", key, "bytes, the path of a file with the key, or None")
    if not SHORTEST_KEY <= len(found) <= LONGEST_KEY:
        raise InvalidParameterError(
            f"key: expected {SHORTEST_KEY} to {LONGEST_KEY} bytes, such as those of "
            "secrets.token_bytes(32)"
        )
    return found


def _described_error(verb: str, path: Path, error: OSError) -> OSError:
    """Return the same error with one sentence: what failed, why, and the remedy."""
    reason = (error.strerror or type(error).__name__).lower()
    remedy = ""
    if isinstance(error, PermissionError):
        remedy = "; choose another location or ask for access"
        reason = f"no permission to {verb} there"
    elif isinstance(error, FileNotFoundError):
        reason = "no such folder" if verb == "write" else "no such file"
    elif isinstance(error, IsADirectoryError):
        reason = "it is a folder"
    return type(error)(f"cannot {verb} {str(path)!r}: {reason}{remedy}")
