"""CSV and TSV files, perhaps compressed, a block at a time."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from dpsvm_fast._optional import optional_module
from dpsvm_fast.exceptions import TableError
from dpsvm_fast.io._csv_faults import first_fault, is_unfinished, missing_cells
from dpsvm_fast.io._decode import RowDecoder
from dpsvm_fast.io._source import CountedText, Progress, is_compressed
from dpsvm_fast.io._text_format import NO_NAMES, TextFormat, may_be_a_row
from dpsvm_fast.io.schema import TableSchema

__all__ = ["CsvSource", "read_header"]

# Measured on 1,000,000 rows of 100 columns, 2 cores: blocks of 4 MiB take 1.2 times as long and
# twice the memory.
BLOCK = 2**20
BYTES_PER_CELL = 128
LARGEST_BLOCK = 2**30
# How files begin that are not what their name says.
OTHER_FILES = {
    b"\x1f\x8b": "the file is compressed: give it a name that ends in .gz",
    b"PK\x03\x04": "the file is a spreadsheet or an archive: save it as CSV",
    b"PAR1": "the file is Parquet: give it a name that ends in .parquet",
    b"ARRO": "the file is Arrow: give it a name that ends in .arrow",
}
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
    """

    sparse = False
    n_rows: int | None = None

    def __init__(self, path: str, schema: TableSchema, *, labelled: bool, delimiter: str) -> None:
        self._pa = optional_module("pyarrow", "reading CSV files", "arrow")
        self._csv = optional_module("pyarrow.csv", "reading CSV files", "arrow")
        self._path, self._file = path, os.path.basename(path)
        self._text, self._delimiter = schema.text, schema.text.delimiter or delimiter
        self._header = read_header(path, self._text, self._delimiter)
        self._names = self._header.names
        if self._text.header is True:
            self.schema = schema.of_names(self._names, labelled=labelled, file=self._file)
        else:
            self.schema = self._named(schema, len(self._names), labelled=labelled)
        self._decoder = RowDecoder(self.schema, labelled=labelled, file=self._file)
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
        if self._header.is_all:
            return
        before = 0
        block = max(BLOCK, BYTES_PER_CELL * len(self._names))
        while True:
            # Rows of earlier blocks are passed over when a longer block is tried.
            done, before = before, 0
            is_damaged = is_long = False
            try:
                for batch, n_bytes in self._batches(block):
                    skipped = min(max(done - before, 0), batch.num_rows)
                    before += skipped
                    if batch.num_rows > skipped:
                        yield self._decoded(batch.slice(skipped), before)
                        before += batch.num_rows - skipped
                    progress(n_bytes)
                return
            except DAMAGED:
                is_damaged = True
            except (self._pa.ArrowException, UnicodeError) as error:
                is_long = "straddling object" in str(error) and block < LARGEST_BLOCK
            # Raised here, so that Arrow's error, which quotes cells, does not travel along.
            if is_damaged:
                raise TableError(
                    f"{self._file}: the compressed file is cut off or damaged; copy it again"
                )
            if not is_long:
                raise self._explained(block)
            before, block = max(before, done), block * 8

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

    def _batches(
        self, block: int, types: dict[str, Any] | None = None
    ) -> Iterator[tuple[Any, int]]:
        """Record batches, and the bytes read so far; by one thread where types are given."""
        with contextlib.closing(CountedText(self._path, self._text.quote)) as source:
            reader = self._csv.open_csv(
                self._pa.PythonFile(source, mode="r"),
                read_options=self._csv.ReadOptions(
                    block_size=block,
                    use_threads=types is None,
                    column_names=[str(place) for place in range(len(self._names))],
                    skip_rows=self._header.n_blank,
                    skip_rows_after_names=int(self._text.header is True),
                    encoding=self._text.encoding,
                ),
                parse_options=self._parse_options(),
                convert_options=self._convert_options(types or self._types()),
            )
            with reader:
                for batch in reader:
                    yield batch, source.n_bytes
            if source.n_quotes % 2 and self._is_unfinished():
                raise TableError(
                    f"{self._file}: the file ends within a quoted cell: it is cut off, or a quote "
                    "is not closed"
                )

    def _is_unfinished(self) -> bool:
        """Whether the file ends within quotes."""
        with open_text(self._path, self._text) as lines:
            return is_unfinished(lines, self._text, self._delimiter)

    def _parse_options(self) -> Any:
        """How cells and rows are told apart."""
        return self._csv.ParseOptions(
            delimiter=self._delimiter,
            quote_char=self._text.quote or False,
            newlines_in_values=True,
            # A row of one empty cell is a row.
            ignore_empty_lines=len(self._names) > 1,
        )

    def _convert_options(self, types: dict[str, Any]) -> Any:
        """What cells are read as: the schema's word, never a guess from the data."""
        return self._csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=missing_cells(self._text),
            strings_can_be_null=False,
            decimal_point=self._text.decimal,
        )

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

    def _explained(self, block: int) -> TableError:
        """Return an error without cells: Arrow's own messages quote them."""
        types = dict.fromkeys(self._types(), self._pa.binary())
        names = [
            (self._names[int(place)], kind == self._pa.float32())
            for place, kind in self._types().items()
        ]
        batches = (batch for batch, _ in self._batches(block, types))
        found = first_fault(batches, names, self._text, self._file)
        return found or TableError(
            f"{self._file}: not a CSV file in {self._text.encoding} that fits {self.schema.origin}"
        )


def open_text(path: str, text: TextFormat) -> io.TextIOWrapper:
    """Open a file as text, unpacked, without a byte order mark."""
    encoding = "utf-8-sig" if text.encoding.lower() in ("utf-8", "utf8") else text.encoding
    raw: Any = gzip.open(path, "rb") if is_compressed(path) else open(path, "rb")  # noqa: SIM115
    # Rows are judged when they are read; the header is looked at by its reader.
    return io.TextIOWrapper(raw, encoding, errors="surrogateescape", newline="")


class Header(NamedTuple):
    """The start of a text file.

    Parameters
    ----------
    names : list of str
        Of the columns; without a header, the cells of the first row.
    is_all : bool
        Whether there are no rows.
    n_blank : int
        Number of blank lines before it.
    """

    names: list[str]
    is_all: bool
    n_blank: int


def read_header(path: str, text: TextFormat, delimiter: str) -> Header:
    """Return the first record.

    Raises
    ------
    TableError
        The file is empty, is not text, or names a column twice.
    """
    file = os.path.basename(path)
    found = _first_record(path, text, delimiter)
    if text.header is not True:
        return found._replace(is_all=False)
    names = [name.strip() for name in found.names]
    if len(set(names)) < len(names):
        if may_be_a_row(names):
            raise TableError(f"{file}: expected different names of columns; it has {NO_NAMES}")
        twice = ", ".join(sorted({repr(name) for name in names if names.count(name) > 1}))
        raise TableError(f"{file}: got columns named {twice} twice, expected different names")
    return found._replace(names=names)


def _first_record(path: str, text: TextFormat, delimiter: str) -> Header:
    """Cells of the first record that is no blank line."""
    file = os.path.basename(path)
    quoting = {"quotechar": text.quote} if text.quote else {"quoting": csv.QUOTE_NONE}
    first: list[str] = []
    with open_text(path, text) as lines:
        try:
            records = csv.reader(lines, delimiter=delimiter, **quoting)
            for n_blank, first in enumerate(records):
                if first:
                    # Names must be text; bytes that are none were kept apart.
                    "".join(first).encode("utf-8")
                    return Header(first, _is_over(lines, len(first)), n_blank)
        except (csv.Error, *DAMAGED, ValueError) as error:
            # Python 3.10 stops at null bytes before it looks at the rest.
            stopped = isinstance(error, csv.Error) and _is_another_file(path, text)
            if stopped or isinstance(error, UnicodeError):
                raise TableError(
                    f"{file}: the header is not {text.encoding}; {_hint(path)}"
                ) from None
            raise TableError(f"{file}: not a text file with a header, or cut off in it") from None
    raise TableError(f"{file}: the file is empty")


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


def _is_over(lines: io.TextIOWrapper, n_columns: int) -> bool:
    """Whether nothing but blank lines follows; with one column these are rows."""
    mark = lines.read(1)
    while mark in ("\r", "\n") and n_columns > 1:
        mark = lines.read(1)
    return not mark
