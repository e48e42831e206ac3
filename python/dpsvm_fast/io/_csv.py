"""CSV and TSV files, perhaps compressed, a block of whole records at a time.

Blocks end where records end, so that Arrow reads each by itself: nothing is read ahead without
limit, no block is read twice, and no thread reads the file behind our back.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import itertools
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._optional import optional_module
from dpsvm_fast.exceptions import TableError
from dpsvm_fast.io._columns import MAX_COLUMNS, repeated
from dpsvm_fast.io._csv_faults import first_fault, missing_cells
from dpsvm_fast.io._decode import RowDecoder
from dpsvm_fast.io._source import ROOM, CountedText, Progress, is_compressed, too_long
from dpsvm_fast.io._text_format import NO_NAMES, TextFormat, may_be_a_row
from dpsvm_fast.io.schema import TableSchema

__all__ = ["CsvSource", "read_header"]

# Measured on 1,000,000 rows of 100 columns, 2 cores: blocks of 4 MiB take 1.2 times as long and
# twice the memory.
BLOCK, BYTES_PER_CELL = 2**20, 128
# Parts of the room: a block of records, and the longest record; Arrow's arrays and the decoded
# rows take the rest.
BLOCK_SHARE, RECORD_SHARE = 64, 32
MAX_BLANK_LINES = 1000
# How files begin that are not what their name says.
OTHER_FILES = {
    b"\x1f\x8b": "the file is compressed: give it a name that ends in .gz",
    b"PK\x03\x04": "the file is a spreadsheet or an archive: save it as CSV",
    b"PAR1": "the file is Parquet: give it a name that ends in .parquet",
    b"ARRO": "the file is Arrow: give it a name that ends in .arrow",
}
UTF_8 = ("utf-8", "utf8")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


class CsvSource:
    """Rows of a text file with one record a line.

    Parameters
    ----------
    path : str
    schema : TableSchema
    labelled : bool
    delimiter : str
        Where the schema names none.
    room : int, default=ROOM
        Bytes that reading may take.
    """

    sparse = False
    n_rows: int | None = None

    def __init__(
        self, path: str, schema: TableSchema, *, labelled: bool, delimiter: str, room: int = ROOM
    ) -> None:
        self._pa = optional_module("pyarrow", "reading CSV files", "arrow")
        self._csv = optional_module("pyarrow.csv", "reading CSV files", "arrow")
        self._path, self._file, self._room = path, os.path.basename(path), room
        self._text, self._delimiter = schema.text, schema.text.delimiter or delimiter
        self._names = read_header(path, self._text, self._delimiter, room=room)
        if self._text.header is True:
            self.schema = schema.of_names(self._names, labelled=labelled, file=self._file)
        else:
            self.schema = self._named(schema, len(self._names), labelled=labelled)
        self._decoder = RowDecoder(self.schema, labelled=labelled, file=self._file, room=room)
        self._places = {name: str(place) for place, name in enumerate(self._names)}

    def _named(self, schema: TableSchema, n_cells: int, *, labelled: bool) -> TableSchema:
        """Take the names of columns from the schema, perhaps without the target."""
        header, target = self._text.header, schema.target
        if isinstance(header, tuple):
            self._names = list(header)
            if n_cells == len(header) - 1 and not labelled and target in header:
                self._names.remove(str(target))
            if n_cells != len(self._names):
                raise TableError(
                    f"{self._file}: row 1 has {n_cells} cells, expected {len(self._names)}, as "
                    f"csv.header in {schema.origin} says"
                )
            return schema.of_names(self._names, labelled=labelled, file=self._file)
        if labelled and not (isinstance(target, int) and -n_cells <= target < n_cells):
            raise TableError(
                f"{self._file}: target: expected its place, 0 to {n_cells - 1}, or -1 for the last "
                "column, as the file has no header"
            )
        has_target = isinstance(target, int)
        width = schema.declared_width
        if schema.all_other_columns is None:
            width = len(schema.features)
        if has_target and not labelled and n_cells == width:
            has_target = False
        found = schema.of_width(n_cells - int(has_target), file=self._file)
        self._names = [column.name for column in found.features]
        if has_target:
            place = int(target or 0) % n_cells
            self._names.insert(place, f"column {place}")
        return found

    def blocks(self, progress: Progress) -> Iterator[tuple[Any, Any]]:
        """Rows and labels."""
        before, types = 0, self._types()
        how = self._how(types)

        def row() -> int:
            return before + 1

        with contextlib.closing(CountedText(self._path)) as source:
            for text in self._texts(source, row):
                if len(self._names) > 1 and not text.strip(b"\r\n"):
                    continue
                try:
                    table = self._read(text, how)
                except self._pa.ArrowException:
                    table = None
                # Raised here, so that Arrow's error, which quotes cells, does not travel along.
                if table is None:
                    raise self._explained(text, types, before)
                for batch in table.to_batches(max_chunksize=self._decoder.max_rows):
                    yield self._decoded(batch, before)
                    before += batch.num_rows
                progress(source.n_bytes)

    def _texts(self, source: CountedText, row: Callable[[], int]) -> Iterator[bytes]:
        """Blocks of whole records in UTF-8, without the header.

        Raises
        ------
        TableError
            The file is damaged, is no text, ends within quotes, or has a record that is too long;
            ``row`` tells which.
        """
        records = Records(self._text.quote, self._delimiter)
        is_header, longest = self._text.header is True, self._room // RECORD_SHARE
        parts: list[bytes] = []
        length = 0
        for text in self._pieces(source):
            if not length:
                text = text.lstrip(b"\r\n") if is_header else text
            first, last = records.ends(text)
            if is_header:
                length += len(text)
                if not first:
                    continue
                is_header = False
                text, last, length = text[first:], last - first, 0
            if last:
                yield b"".join([*parts, text[:last]])
                parts, length = [], 0
            parts.append(text[last:])
            length += len(text) - last
            if length > longest:
                raise too_long(self._file, row(), longest, "a quote may not be closed")
        if records.end_inside():
            raise TableError(
                f"{self._file}: the file ends within a quoted cell: it is cut off, or a quote is "
                "not closed"
            )
        if length and not is_header:
            yield b"".join(parts)

    def _pieces(self, source: CountedText) -> Iterator[bytes]:
        """The text in UTF-8, some of it at a time."""
        block = min(max(BLOCK, BYTES_PER_CELL * len(self._names)), self._room // BLOCK_SHARE)
        encoding = self._text.encoding
        is_plain = encoding.lower() in UTF_8
        decoder = codecs.getincrementaldecoder("utf-8-sig" if is_plain else encoding)()
        is_start = True
        try:
            while text := source.read(block):
                if is_plain:
                    # Arrow checks the cells that it reads as text.
                    yield text.removeprefix(codecs.BOM_UTF8) if is_start else text
                else:
                    yield decoder.decode(text).encode("utf-8")
                is_start = False
            if not is_plain:
                yield decoder.decode(b"", final=True).encode("utf-8")
        except DAMAGED:
            raise TableError(
                f"{self._file}: the compressed file is cut off or damaged; copy it again"
            ) from None
        except UnicodeError:
            raise TableError(f"{self._file}: not a text file in {encoding}") from None

    def _read(self, text: bytes, how: dict[str, Any]) -> Any:
        """An Arrow table of a block."""
        how["read_options"].block_size = len(text) + 1
        return self._csv.read_csv(self._pa.BufferReader(text), **how)

    def _decoded(self, batch: Any, before: int) -> tuple[Any, Any]:
        """Rows and labels of a batch."""
        X = self._decoder.rows(
            lambda name: batch.column(self._places[name]), batch.num_rows, before
        )
        labels = self._decoder.labels
        if labels is None:
            return X, None
        return X, labels(batch.column(self._places[self._target]), before)

    @property
    def _target(self) -> str:
        """Name of the column of labels."""
        target = self.schema.target
        if isinstance(target, int):
            return self._names[target % len(self._names)]
        return str(target)

    def _how(self, types: dict[str, Any], *, use_threads: bool = True) -> dict[str, Any]:
        """How Arrow tells cells and rows apart, and what it reads cells as: the schema's word."""
        return {
            "read_options": self._csv.ReadOptions(
                use_threads=use_threads,
                column_names=[str(place) for place in range(len(self._names))],
            ),
            "parse_options": self._csv.ParseOptions(
                delimiter=self._delimiter,
                quote_char=self._text.quote or False,
                newlines_in_values=True,
                # A row of one empty cell is a row.
                ignore_empty_lines=len(self._names) > 1,
            ),
            "convert_options": self._csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=missing_cells(self._text),
                strings_can_be_null=False,
                decimal_point=self._text.decimal,
            ),
        }

    def _types(self) -> dict[str, Any]:
        """Arrow types of the columns that are read."""
        text = self._pa.dictionary(self._pa.int32(), self._pa.string())
        types = {
            self._places[column.name]: text if column.bounds is None else self._pa.float32()
            for column in self.schema.features
        }
        if self._decoder.labels is not None:
            types[self._places[self._target]] = text
        return types

    def _explained(self, text: bytes, types: dict[str, Any], before: int) -> TableError:
        """Return an error without cells: Arrow's own messages quote them."""
        how = self._how(dict.fromkeys(types, self._pa.binary()), use_threads=False)
        names = [
            (self._names[int(place)], kind == self._pa.float32()) for place, kind in types.items()
        ]
        found = first_fault(lambda: self._read(text, how), names, self._text, self._file, before)
        return found or TableError(
            f"{self._file}: not a CSV file in {self._text.encoding} that fits {self.schema.origin}"
        )


class Records:
    """Tells where records end in a text that comes in pieces, by Arrow's rules for quotes.

    A quote opens a quoted cell where a cell starts, and is a character like others elsewhere. Two
    quotes within a quoted cell stand for one. So only runs of an odd number of quotes matter.

    Parameters
    ----------
    quote, delimiter : str
        One ASCII character each; no quote is "".
    """

    def __init__(self, quote: str, delimiter: str) -> None:
        self._quote = quote.encode("ascii")
        self._separators = np.frombuffer(delimiter.encode("ascii") + b"\r\n", np.uint8)
        self._inside = False
        # Quotes at the end of the last piece, and the character before them.
        self._n_open, self._before = 0, b"\n"

    def ends(self, text: bytes) -> tuple[int, int]:
        """Where the first and the last record that end in this piece do; 0 where none does."""
        if not (self._quote and (self._inside or self._n_open or self._quote in text)):
            if text:
                self._before = text[-1:]
            # What follows a carriage return at the end is not known yet.
            last = max(text.rfind(b"\n"), text.rfind(b"\r", 0, max(0, len(text) - 1))) + 1
            return (self._first(text), last) if last else (0, 0)
        body = text.rstrip(self._quote)
        if not body:
            self._n_open += len(text)
            return 0, 0
        # As many quotes as say the same.
        prefix = self._quote * (2 - self._n_open % 2) if self._n_open else b""
        ends = self._outside(prefix + body)
        self._n_open, self._before = len(text) - len(body), body[-1:]
        if len(ends) and ends[-1] == len(prefix + text) - 1 and text.endswith(b"\r"):
            ends = ends[:-1]
        if not len(ends):
            return 0, 0
        first, last = int(ends[0]) + 1 - len(prefix), int(ends[-1]) + 1 - len(prefix)
        return first + (text[first - 1 : first + 1] == b"\r\n"), last

    def end_inside(self) -> bool:
        """Whether the text ends within a quoted cell."""
        if self._n_open % 2 == 0:
            return self._inside
        return not self._inside and self._before[0] in self._separators

    def _first(self, text: bytes) -> int:
        """Where the first line ends."""
        found = [at for mark in (b"\n", b"\r") if (at := text.find(mark)) >= 0]
        first = min(found) + 1
        return first + (text[first - 1 : first + 1] == b"\r\n")

    def _outside(self, text: bytes) -> NDArray[np.intp]:
        """Places of line ends that are not within quotes; remembers whether the end is."""
        marks = np.frombuffer(text, np.uint8)
        is_quote = np.zeros(len(marks) + 2, dtype=bool)
        is_quote[1:-1] = marks == self._quote[0]
        edges = np.flatnonzero(is_quote[1:] != is_quote[:-1])
        starts = edges[0::2][(edges[1::2] - edges[0::2]) % 2 == 1]
        before = np.where(starts > 0, marks[starts - 1], self._before[0])
        opens = np.isin(before, self._separators)
        # One that may open toggles, any other one closes.
        n_toggles = np.cumsum(opens)
        at_close = np.maximum.accumulate(np.where(opens, 0, n_toggles))
        closed = np.logical_or.accumulate(~opens)
        inside = np.where(closed, n_toggles - at_close, n_toggles + self._inside) % 2 == 1
        states = np.concatenate([[self._inside], inside])
        self._inside = bool(states[-1])
        lines = np.flatnonzero((marks == ord("\n")) | (marks == ord("\r")))
        outside: NDArray[np.intp] = lines[~states[np.searchsorted(starts, lines)]]
        return outside


def open_text(path: str, text: TextFormat) -> io.TextIOWrapper:
    """Open a file as text, unpacked, without a byte order mark."""
    encoding = "utf-8-sig" if text.encoding.lower() in UTF_8 else text.encoding
    raw: Any = gzip.open(path, "rb") if is_compressed(path) else open(path, "rb")  # noqa: SIM115
    # Rows are judged when they are read; the header is looked at by its reader.
    return io.TextIOWrapper(raw, encoding, errors="surrogateescape", newline="")


def read_header(path: str, text: TextFormat, delimiter: str, *, room: int = ROOM) -> list[str]:
    """Return the cells of the first record: names of the columns, unless there is no header.

    Raises
    ------
    TableError
        The file is empty, is not text, or names a column twice.
    """
    file = os.path.basename(path)
    found = _first_record(path, text, delimiter, room // RECORD_SHARE)
    if len(found) > MAX_COLUMNS:
        raise TableError(
            f"{file}: got {len(found)} columns, expected at most {MAX_COLUMNS}; write so wide a "
            "table as LIBSVM text or .npz"
        )
    if text.header is not True:
        return found
    names = [name.strip() for name in found]
    if twice := repeated(names):
        if may_be_a_row(names):
            raise TableError(f"{file}: expected different names of columns; it has {NO_NAMES}")
        raise TableError(f"{file}: got columns named {twice} twice, expected different names")
    return names


def _first_record(path: str, text: TextFormat, delimiter: str, longest: int) -> list[str]:
    """Cells of the first record that is no blank line."""
    file = os.path.basename(path)
    quoting = {"quotechar": text.quote} if text.quote else {"quoting": csv.QUOTE_NONE}
    with open_text(path, text) as stream:
        try:
            records = csv.reader(_lines(stream, file, longest), delimiter=delimiter, **quoting)
            first = next(filter(None, records), None)
            if first is not None:
                # Names must be text; bytes that are none were kept apart.
                "".join(first).encode("utf-8")
                return first
        except TableError:
            raise
        except (csv.Error, *DAMAGED, ValueError) as error:
            # Python 3.10 stops at null bytes before it looks at the rest.
            stopped = isinstance(error, csv.Error) and _is_another_file(path, text)
            if stopped or isinstance(error, UnicodeError):
                raise TableError(
                    f"{file}: the header is not {text.encoding}; {_hint(path)}"
                ) from None
            raise TableError(f"{file}: not a text file with a header, or cut off in it") from None
    raise TableError(f"{file}: the file is empty")


def _lines(stream: io.TextIOWrapper, file: str, longest: int) -> Iterator[str]:
    """The lines of a first record, with not too many blank ones before it."""
    left = longest
    for n_blank in itertools.count():
        line = stream.readline(left + 1)
        left -= len(line)
        if left < 0:
            raise too_long(file, 1, longest, "it has no line ends, or a quote is not closed")
        if not line:
            return
        if n_blank == MAX_BLANK_LINES and left >= longest - 2 * MAX_BLANK_LINES:
            raise TableError(f"{file}: expected a header, got {MAX_BLANK_LINES} blank lines")
        yield line


def _is_another_file(path: str, text: TextFormat) -> bool:
    """Whether a file begins as one of another kind, or of another encoding than declared."""
    if path.endswith(".gz"):
        return False
    with open(path, "rb") as file:
        start = file.read(4)
    return start.startswith((*OTHER_FILES, *(() if "16" in text.encoding else UTF_16)))


def _hint(path: str) -> str:
    """What to do about a file that is no text of the declared encoding."""
    with open(path, "rb") as file:
        start = file.read(4)
    for mark, hint in OTHER_FILES.items():
        if start.startswith(mark):
            return hint
    name = "utf-16" if start.startswith(UTF_16) else "latin-1"
    return f'write the encoding, for example encoding = "{name}", in the [csv] table of the schema'
