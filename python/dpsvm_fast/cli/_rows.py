"""Training rows of a command: whole in memory where they fit, else decoded to a private folder.

Every cell is checked here, before anything is spent. Sizes are judged by public facts and by the
size of the file, which whoever runs the command can see.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dpsvm_fast.cli._errors import CommandError, note
from dpsvm_fast.cli._screen import Screen
from dpsvm_fast.distributed import Partitions
from dpsvm_fast.io._source import ROOM

__all__ = ["Room", "TrainingRows", "training_rows"]

MIB = 1 << 20
# Of the whole program before it has read anything, where the system does not tell.
PROGRAM = 200 * MIB
# Below, there is no use in cutting rows into parts.
LEAST_ROOM = 16 * MIB
# Blocks of rows in double precision, and what allocators keep.
TEMPORARIES = 72 * MIB
# Of a number of a dense row: as it is decoded, and as records are packed.
NUMBER = 4
# Of a stored entry of a sparse row: number and column.
ENTRY = 12
# Copies of a part of the rows while its sums are made, and more than anyone gains by.
PART_COPIES = 6
MOST_ROWS_OF_PART = 131_072
# A compressed file says nothing of its size; this is for the estimate of the disk alone.
USUAL_COMPRESSION = 5


class Room:
    """How much memory is left for rows.

    Parameters
    ----------
    max_memory : int
        Bytes of the whole program.

    Raises
    ------
    CommandError
        The program itself needs more.
    """

    def __init__(self, max_memory: int) -> None:
        self._max_memory = max_memory
        if self.left < LEAST_ROOM:
            least = -(-(max_memory - self.left + LEAST_ROOM) // MIB)
            raise CommandError(
                f"--max-memory: got {max_memory // MIB} MiB, expected at least {least} MiB: the "
                "program itself takes most of that"
            )

    @property
    def left(self) -> int:
        """Bytes that are left now."""
        return self._max_memory - _resident_size() - TEMPORARIES

    @property
    def reading(self) -> int:
        """Bytes for the reading of files."""
        return min(ROOM, max(LEAST_ROOM // 4, self.left // 2))

    def holds(self, n_bytes: float, copies: int) -> bool:
        """Whether so many copies of so many bytes fit."""
        return n_bytes * copies <= self.left

    def part(self, n_features: int) -> int:
        """Rows of a part with which half of the room is left to what is kept."""
        fitting = self.left // (2 * PART_COPIES * NUMBER * n_features)
        return int(min(MOST_ROWS_OF_PART, max(1, fitting)))

    def kept_parts(self, n_bytes: int, n_parts: int) -> int:
        """How many parts of equal size can be kept beside the work on one."""
        size = -(-n_bytes // n_parts)
        return max(0, min(n_parts, self.left // size - PART_COPIES))


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Checked rows with labels.

    Parameters
    ----------
    partitions : Partitions
        The rows in parts.
    folder : Path or None
        Where they were decoded to; None where they are in memory.
    X : ndarray, CSR matrix or None
        The whole; None where it has not been put together.
    y : ndarray or None
    """

    partitions: Partitions
    folder: Path | None = None
    X: Any = None
    y: Any = None

    @property
    def n_bytes(self) -> int:
        """About what records of the rows take."""
        if self.X is not None and not sparse.issparse(self.X):
            return int(self.X.shape[0] * (self.X.shape[1] * NUMBER + 16))
        if self.folder is None:
            return int(self.X.nnz * ENTRY)
        return sum(file.stat().st_size for file in self.folder.iterdir())

    def whole(self) -> tuple[Any, Any]:
        """All rows and labels: in memory, mapped, or put together from parts."""
        if self.X is not None:
            return self.X, self.y
        parts = [loader() for loader in self.partitions.loaders]
        return sparse.vstack([X for X, _ in parts], "csr"), np.concatenate([y for _, y in parts])


@contextmanager
def training_rows(
    screen: Screen, table: Any, room: Room, copies: int, temp: Path | None
) -> Iterator[TrainingRows]:
    """Read and check all rows; a temporary folder is removed whatever happens.

    Parameters
    ----------
    screen : Screen
    table : Table
    room : Room
    copies : int
        Of the rows that a fit in memory needs.
    temp : Path or None
        Where the folder is made, if there is need of one.

    Raises
    ------
    TableError, CommandError, OSError
        A row is not what the schema says, or cannot be read. Nothing was spent.
    """
    size = _largest_size(table)
    if size is not None and room.holds(size, max(2, copies)):
        with _reading(screen, table) as bar:
            X, y = table.read(on_bytes=bar.advance_to)
        if X.shape[0] == 0:
            raise CommandError(f"{table.path}: has no rows; name a file with rows to train on")
        rows = room.part(table.n_features)
        yield TrainingRows(Partitions.from_arrays(X, y, rows_per_partition=rows), X=X, y=y)
        return
    with _private_folder(temp, table) as folder:
        try:
            with _reading(screen, table) as bar:
                parts = table.to_partitions(
                    folder,
                    on_bytes=bar.advance_to,
                    rows_per_partition=room.part(table.n_features),
                )
        except OSError as error:
            if error.filename is None or folder in Path(str(error.filename)).parents:
                raise _about_folder(error, folder.parent, table) from None
            raise
        if table.sparse:
            yield TrainingRows(parts, folder)
            return
        X, y = (np.load(folder / name, mmap_mode="r") for name in ("X.npy", "y.npy"))
        yield TrainingRows(parts, folder, X, y)


def _reading(screen: Screen, table: Any) -> Any:
    """A bar of bytes."""
    return screen.progress("Reading", table.n_bytes_total or None, unit="bytes")


def _largest_size(table: Any) -> float | None:
    """Bytes that decoded rows take at most; None where nobody knows."""
    n_rows = table.n_rows
    label = np.array(table.schema.classes or ()).itemsize
    if n_rows is None:
        # Arrow's files may be compressed, or have types whose values take no room at all.
        if _compressed(table) or table.format == "arrow" or table.n_bytes_total is None:
            return None
        if table.sparse:
            # An entry is four characters at least: 1:1 and a space. A row without any is two.
            return max(ENTRY / 4, (8 + label) / 2) * float(table.n_bytes_total)
        # A cell is one character at least: what separates it from the next.
        n_rows = table.n_bytes_total / len(table.schema.features)
    return float(n_rows * (table.n_features * NUMBER + label))


def _compressed(table: Any) -> bool:
    """Whether the size of the file says nothing about the size of its text."""
    return Path(table.path).suffix.lower() in (".gz", ".bz2", ".xz", ".zst")


def _usual_size(table: Any) -> float:
    """Bytes that decoded rows take where numbers have a few digits."""
    if table.n_rows is not None:
        return float(table.n_rows * table.n_features * NUMBER)
    size = (table.n_bytes_total or 0) * (USUAL_COMPRESSION if _compressed(table) else 1)
    return float(size * max(1.0, table.n_features / len(table.schema.features)))


def _about_folder(error: OSError, place: Path, table: Any) -> CommandError:
    """What to do where rows could not be decoded."""
    free = shutil.disk_usage(place).free
    return CommandError(
        f"{place}: rows could not be decoded there ({error.strerror or error}): about "
        f"{_megabytes(_usual_size(table))} are needed and {_megabytes(free)} are free; name "
        "another folder with --temp, or give more --max-memory"
    )


def _megabytes(n_bytes: float) -> str:
    """A size for people."""
    return f"{max(1, round(n_bytes / 1e6))} MB"


@contextmanager
def _private_folder(temp: Path | None, table: Any) -> Iterator[Path]:
    """A folder that nobody else can read, removed at the end.

    Raises
    ------
    CommandError
        It cannot be made, or has clearly too little room.
    """
    place = Path(tempfile.gettempdir() if temp is None else temp)
    try:
        folder = Path(tempfile.mkdtemp(prefix="dpsvm_fast-rows-", dir=place))
    except OSError as error:
        raise CommandError(
            f"{place}: no temporary folder can be made there ({error.strerror}); name another one "
            "with --temp"
        ) from None
    try:
        if shutil.disk_usage(folder).free < _usual_size(table) / 4:
            raise _about_folder(OSError("too little room"), place, table)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            note(f"warning: {folder}: could not be removed; it holds private rows, remove it")


def _resident_size() -> int:
    """Bytes of memory that this process holds."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        import resource

        return pages * resource.getpagesize()
    except (OSError, ImportError, ValueError, IndexError):
        pass
    if sys.platform == "darwin":
        import resource

        return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return PROGRAM
