"""Block-wise readers of CSV, Parquet, Arrow, npz and LIBSVM files.

Arrow, NumPy and SciPy do most of the work. This module bounds their memory, and reports the row of
an invalid cell without quoting the cell.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import errno
import gzip
import hashlib
import io
import itertools
import math
import mmap
import os
import re
import secrets
import struct
import tempfile
import tokenize
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from dpsvm_fast._core import RecordEnds, TextCells
from dpsvm_fast.data.schema import (
    DAY,
    MAX_COLUMNS,
    NO_NAMES,
    NONE,
    Category,
    Column,
    TableSchema,
    TextFormat,
    days,
    is_whole,
    may_be_a_row,
    quoted,
    repeated,
)
from dpsvm_fast.estimators.frames import is_missing
from dpsvm_fast.exceptions import SchemaError, TableError
from dpsvm_fast.files import MEMORY_ADVICE, ROOM
from dpsvm_fast.validation import optional_module

# The interface of every kind of file, and reading bytes with progress.
#
# No file is trusted with memory: a reader takes a share of the memory that its caller gives, and
# records, rows and declared sizes that need more are refused before they are read.


Progress = Callable[[int], None]


class Source(ABC):
    """Opened file whose header has been read, but no row.

    Parameters
    ----------
    path : str
    schema : TableSchema
    labelled : bool
        Whether to read labels.
    owned : bool, default=False
        Whether to read persons and weights, if the schema has them.
    room : int, default=ROOM
        Memory limit for reading, in bytes.

    Attributes
    ----------
    schema : TableSchema
        Schema with every column named.
    n_rows : int or None
        Number of rows, if the file states it.
    sparse : bool
        Whether rows are CSR matrices.
    """

    sparse = False
    n_rows: int | None = None
    # True: rows come as matrices only, from files that do not name their columns.
    by_place = False

    def __init__(
        self,
        path: str,
        schema: TableSchema,
        *,
        labelled: bool,
        owned: bool = False,
        room: int = ROOM,
    ) -> None:
        self.path, self.file, self.room = path, os.path.basename(path), room
        self.labelled, self.owned = labelled, owned
        self.schema = self._named(schema)
        self._decoder = self._made_decoder()

    @abstractmethod
    def _named(self, schema: TableSchema) -> TableSchema:
        """Read the header; return the schema with every column named."""

    @abstractmethod
    def blocks(self, progress: Progress) -> Iterator[tuple[Any, ...]]:
        """Yield rows, labels and owners in order; ``progress`` receives the bytes read so far.

        Raises
        ------
        RowFault
            A row is refused.
        TableError
            The file is refused.
        """

    def _made_decoder(self) -> Any:
        """Return the decoder that converts cells to rows in every pass."""
        width, most = self.schema.n_features, self.room // ROW_SHARE // 4
        if width > most:
            raise too_wide(self.file, f"a row has {width} features", most)
        how: dict[str, Any] = {"labelled": self.labelled, "owned": self.owned, "room": self.room}
        return RowDecoder(self.schema, by_place=self.by_place, **how)


class CountedText:
    """Text file that is read once from its beginning, possibly by another thread.

    Parameters
    ----------
    path : str
        Path of the file; it is decompressed if the name ends in ``.gz``.

    Attributes
    ----------
    file : str
        File name for messages.
    """

    def __init__(self, path: str) -> None:
        self.file = os.path.basename(path)
        self._file = open(path, "rb")  # noqa: SIM115
        self._text: Any = gzip.GzipFile(fileobj=self._file) if is_compressed(path) else self._file

    @property
    def n_bytes(self) -> int:
        """Number of bytes read from the file."""
        return self._file.tell()

    def read(self, size: int) -> bytes:
        """Read the next bytes of the text."""
        with reading(self.file, *DAMAGED):
            content: bytes = self._text.read(size)
        return content

    def close(self) -> None:
        """Close the file."""
        self._text.close()
        self._file.close()


DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


def is_compressed(path: str) -> bool:
    """Return whether the name is that of a gzip file."""
    return path.lower().endswith(".gz")


@contextlib.contextmanager
def reading(file: str, *kinds: type[Exception]) -> Iterator[None]:
    """Replace errors of these kinds, which may quote cells, by one that names the file."""
    try:
        yield
    except TableError:
        raise
    except kinds as error:
        if getattr(error, "errno", None) not in (None, errno.EINVAL):
            # The system's own message: no such file, no permission, a full disk.
            raise
        # A traceback would show the error with the cell, too.
        raise _damaged(file) from None


def _damaged(file: str) -> TableError:
    """Return the error for a file that cannot be read to its end."""
    return TableError(f"{file}: the file is damaged or cut off; copy it again")


def too_wide(file: str, row: str, most: int) -> TableError:
    """Return the error for rows with too many columns."""
    return TableError(
        f"{file}: {row}, expected at most {most}; save wider tables as LIBSVM text, or "
        f"{MEMORY_ADVICE}"
    )


# Columns of cells to numbers, and to codes of declared values. No message quotes a cell.


# Codes below 0: all indicators are 0, no value, a value that is not declared.
ZEROS, MISSING, UNDECLARED = -1, -2, -3
# Python refuses to read thousands of digits, and says how many there were.
WHOLE = re.compile(r"[+-]?[0-9]{1,100}(\.0*)?", re.ASCII)

TRUTH: tuple[Category, ...] = ("false", "true")
# Texts and persons that are kept from block to block.
MAX_TEXTS = 2**12


class RowFault(Exception):
    """Row that is refused. Who reads the file knows how many rows were returned before.

    Parameters
    ----------
    reason : str
        Text that quotes no cell.
    row : int, default=0
        Number of rows before it that have not been returned.
    column : str or None, default=None
        Column, if it is the fault of one cell.
    """

    def __init__(self, reason: str, row: int = 0, column: str | None = None) -> None:
        super().__init__(reason)
        self.row, self.column = row, column

    def error(self, file: str, n_returned: int | None) -> TableError:
        """Return the error for the user; rows count from 1, without the header, or not at all."""
        place = [] if n_returned is None else [f"row {n_returned + self.row + 1}"]
        place += [] if self.column is None else [f"column {quoted(self.column)}"]
        return TableError(f"{file}: {', '.join(place)}: {self}")


def numbers(values: Any) -> NDArray[np.float32]:
    """Return the numbers of an Arrow or NumPy array: NaN if missing, inf beyond float32."""
    if isinstance(values, np.ndarray):
        with np.errstate(over="ignore"):
            return values.astype(np.float32, copy=False)
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    # Arrow itself casts neither of these.
    if not (pa.types.is_float16(values.type) or pa.types.is_null(values.type)):
        values = values.cast(pa.float32(), safe=False)
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float32)


class Numbers:
    """Column whose cells are numbers themselves, in place of codes."""

    def codes(self, values: Any) -> NDArray[Any]:
        """Return the numbers; a text file has them already, as 4 bytes each."""
        found: NDArray[Any] = values[1] if isinstance(values, tuple) else numbers(values)
        return found


class Lookup:
    """Codes of the values of one column.

    Parameters
    ----------
    declared : sequence of str and int
        Values with codes 0, 1, ...
    missing_texts : sequence of str
        Texts that mean a missing value, unless declared.
    missing, undeclared : int
        Codes of a missing value and of an undeclared value.
    """

    kind: type = np.int64

    def __init__(
        self,
        declared: Sequence[Category],
        missing_texts: Sequence[str],
        *,
        missing: float = MISSING,
        undeclared: int = UNDECLARED,
    ) -> None:
        self._codes = {str(value).strip(): code for code, value in enumerate(declared)}
        self._whole = {value: code for code, value in enumerate(declared) if is_whole(value)}
        self._missing_texts = {text.strip() for text in missing_texts}
        self._missing, self._undeclared = missing, undeclared
        self._known: tuple[Any, Any, NDArray[Any]] | None = None

    @staticmethod
    def of_column(column: Column, missing_texts: Sequence[str]) -> Lookup | Numbers:
        """Return what makes numbers or codes of the cells of a column."""
        if column.bounds is not None:
            return NUMBERS
        if column.dates is not None:
            return Dates(column.dates[0], missing_texts)
        if column.text is not None:
            return Words(column, missing_texts)
        declared = TRUTH if column.categories is None else column.categories
        undeclared = ZEROS if column.unknown == "none" else UNDECLARED
        missing, value = MISSING, column.missing
        if isinstance(value, bool):
            missing = int(value)
        elif value is not None:
            missing = declared.index(value) if value in declared else ZEROS
        found = Lookup(declared, missing_texts, missing=missing, undeclared=undeclared)
        if column.boolean:
            found._codes |= {"False": 0, "FALSE": 0, "True": 1, "TRUE": 1}
            found._whole = {0: 0, 1: 1}
        return found

    def codes(self, values: Any) -> NDArray[Any]:
        """Return a code for each cell of an Arrow or NumPy array or a list of values.

        Alternatively, return codes of distinct words and each cell's place among them.
        """
        if isinstance(values, tuple):
            words, places = values
            known_words: NDArray[Any] = self._of_unique(words)
            return known_words[places]
        if isinstance(values, list):
            # Values that are equal may have different texts: 1 and True.
            keys = [(type(value), value) for value in values]
            known = {key: self._code(key[1]) for key in dict.fromkeys(keys)}
            return np.fromiter(map(known.__getitem__, keys), self.kind, len(keys))
        if isinstance(values, np.ndarray):
            unique, places = np.unique(values, return_inverse=True)
            return self._of_unique(unique.tolist())[places.ravel()]
        if not hasattr(values, "dictionary"):
            values = values.dictionary_encode()
        codes = self._of_dictionary(values.dictionary)
        places = values.indices.fill_null(len(codes) - 1) if values.null_count else values.indices
        found: NDArray[Any] = codes[places.to_numpy(zero_copy_only=False)]
        return found

    def _of_dictionary(self, words: Any) -> NDArray[Any]:
        """Return the codes of an Arrow dictionary, and one more for missing cells.

        Slices of a batch share a dictionary, which is looked up once.
        """
        places = [None if one is None else one.address for one in words.buffers()]
        key = (str(words.type), len(words), words.offset, places)
        if self._known is None or self._known[0] != key:
            # One word at a time: all of them as Python objects take much memory.
            codes = self._of_unique(word.as_py() for word in words)
            # The words are kept, so that no other words reuse their addresses.
            self._known = (key, words, np.append(codes, self._missing))
        return self._known[2]

    def _of_unique(self, values: Iterable[Any]) -> NDArray[Any]:
        """Return the codes of distinct values."""
        return np.fromiter(map(self._code, values), dtype=self.kind)

    def _code(self, value: Any) -> float:
        """Return the code of one cell."""
        value = value.item() if isinstance(value, np.generic) else value
        value = value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value
        return self._missing if is_missing(value) else self._code_of_value(value)

    def _code_of_value(self, value: Any) -> float:
        """Return the code of one value, as text if it is text in the file."""
        if isinstance(value, bool):
            texts = [str(value), str(value).lower(), str(int(value))]
        elif isinstance(value, float) and value.is_integer():
            texts = [str(int(value))]
        else:
            texts = [str(value).strip()]
        for text in texts:
            if text in self._codes:
                return self._codes[text]
        if self._whole and WHOLE.fullmatch(texts[-1]):
            # An integer may be written as +1, 01 or 1.0.
            return self._whole.get(int(texts[-1].partition(".")[0]), self._undeclared)
        return self._missing if texts[-1] in self._missing_texts else self._undeclared


class Dates(Lookup):
    """Lookup of days since a first date: NaN if missing, infinity if not a date."""

    kind = np.float64

    def __init__(self, first: str, missing_texts: Sequence[str]) -> None:
        super().__init__((), missing_texts, missing=math.nan)
        self._first = first

    def codes(self, values: Any) -> NDArray[Any]:
        """Return the day number of each cell; dates that are not text are converted together."""
        kind = getattr(values, "type", None)
        if kind is not None and str(kind).startswith(("date", "timestamp")):
            # With a time zone: the time in UTC.
            values = values.cast("timestamp[us]", safe=False).to_numpy(zero_copy_only=False)
        if isinstance(values, np.ndarray) and values.dtype.kind == "M":
            first = np.datetime64(self._first, "us")
            found: NDArray[Any] = (values.astype("datetime64[us]") - first) / DAY
            return found
        return super().codes(values)

    def _code_of_value(self, value: Any) -> float:
        """Return the days to one date."""
        if str(value).strip() in self._missing_texts:
            return math.nan
        found = days(value, self._first)
        return math.inf if math.isnan(found) else found


class Numbered(Lookup):
    """Lookup that numbers values in order of appearance; many values are kept until ``forget``.

    Parameters
    ----------
    missing_texts : sequence of str
    *lasting : object
        Values that are always kept.
    """

    def __init__(self, missing_texts: Sequence[str], *lasting: Any) -> None:
        super().__init__((), missing_texts)
        self._kept, self._n_lasting = list(lasting), len(lasting)

    def forget(self) -> None:
        """Drop the values if there are many."""
        if len(self._kept) > MAX_TEXTS:
            self._known = None
            del self._kept[self._n_lasting :]

    def _number(self, value: Any) -> int:
        """Return the number of a new value."""
        self._kept.append(value)
        return len(self._kept) - 1


class Words(Numbered):
    """Lookup that numbers texts; their hashes are computed later."""

    def __init__(self, column: Column, missing_texts: Sequence[str]) -> None:
        super().__init__(missing_texts, column.missing or "")
        self._column = column
        if column.missing is not None:
            self._missing = ZEROS if column.missing == NONE else 0

    def features(self, places: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return the hashed words of the texts at these places; rows have norm 1 or 0."""
        from sklearn.feature_extraction.text import HashingVectorizer

        hashing = HashingVectorizer(
            n_features=self._column.text, ngram_range=self._column.ngrams, dtype=np.float32
        )
        if not places.size:
            return np.empty((0, self._column.width), dtype=np.float32)
        used, inverse = np.unique(places, return_inverse=True)
        texts = ["" if place < 0 else self._kept[place] for place in used.tolist()]
        return np.asarray(hashing.transform(texts)[inverse.ravel()].toarray())

    def _code_of_value(self, value: Any) -> float:
        """Return the place of one text."""
        if not isinstance(value, str):
            return UNDECLARED
        return self._missing if value.strip() in self._missing_texts else self._number(value)


# All columns of numbers are alike: there may be hundreds of thousands.
NUMBERS = Numbers()

# Blocks of columns to rows of features and to labels.


Rows = NDArray[np.float32]
# Cells of each column: 4 bytes each, numbers or codes.
Cells = Sequence[NDArray[np.int32]] | NDArray[np.int32]
# Rows that are filled at a time, column by column: they stay in the second-level cache.
TILE_BYTES = 2**18
# Arguments of `fit` for the columns of persons and weights.
OWNERS = {"person": "groups", "weight": "sample_weight"}
# Parts of the room: the rows that are decoded at a time, and one row.
ROWS_SHARE, ROW_SHARE = 32, 16

UNDECLARED_CATEGORY = (
    "a value outside the declared categories; add it to categories if it is public, or write "
    'unknown = "none" in the schema'
)


class LabelDecoder(Lookup):
    """Decoder from cells to labels of the declared classes.

    Parameters
    ----------
    schema : TableSchema
        Schema with classes.
    """

    def __init__(self, schema: TableSchema) -> None:
        if schema.classes is None:
            raise SchemaError(
                f"{schema.origin}: classes: missing; write the public labels, for example "
                'classes = ["no", "yes"] or classes = [0, 1]'
            )
        super().__init__(schema.classes, schema.text.missing_values)
        self._name = schema.target if isinstance(schema.target, str) else "label"
        self._classes = np.array(schema.classes)

    def decode(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return the labels of codes."""
        missing = (codes == MISSING)[codes < 0][:1].any()
        reason = "no label" if missing else "a label that is not one of the declared classes"
        reason = f"{reason}; correct the file, or classes in the schema"
        _check_cells(codes >= 0, self._name, reason)
        found: NDArray[Any] = self._classes[codes]
        return found


class PersonDecoder(Numbered):
    """Decoder from ids to keyed digests of persons; the key is stored nowhere else.

    Without the key, digests reveal only whether two ids are equal. Codes number the ids in order of
    appearance.

    Parameters
    ----------
    schema : TableSchema
        Schema with the column of persons.
    """

    def __init__(self, schema: TableSchema) -> None:
        super().__init__(schema.text.missing_values)
        self._name = str(schema.person)
        self._key = secrets.token_bytes(32)

    def decode(self, codes: NDArray[np.int32]) -> NDArray[np.bytes_]:
        """Return the digests of codes."""
        _check_cells(codes >= 0, self._name, "no person id; every row needs one")
        return np.array(self._kept, dtype="S16")[codes]

    def _code_of_value(self, value: Any) -> float:
        """Return the place of one id: stripped text, or an integer."""
        if str(value).strip() in self._missing_texts:
            return MISSING
        whole = isinstance(value, (bool, float)) and value == math.floor(value)
        text = str(int(value)) if whole else str(value).strip()
        return self._number(hashlib.blake2b(text.encode(), digest_size=16, key=self._key).digest())


class WeightDecoder(Numbers):
    """Decoder that checks weights.

    Parameters
    ----------
    schema : TableSchema
        Schema with the column of weights.
    """

    def __init__(self, schema: TableSchema) -> None:
        self._name = str(schema.weight)

    def decode(self, cells: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the weights in cells."""
        found = cells.view(np.float32).astype(np.float64)
        right = np.isfinite(found) & (found >= 0.0)
        _check_cells(right, self._name, "not a finite, non-negative weight")
        return found


def _check_cells(right: NDArray[np.bool_], column: str, reason: str) -> None:
    """Refuse the first invalid cell of a column."""
    if not right.all():
        raise RowFault(reason, int(right.argmin()), column)


class RowDecoder:
    """Decoder from the columns of a file to rows; it checks every cell.

    Parameters
    ----------
    schema : TableSchema
        Schema with every column named.
    labelled : bool
    owned : bool, default=False
        Whether to read persons and weights, if the schema has them.
    room : int, default=ROOM
        Memory limit for reading, in bytes.
    by_place : bool, default=False
        Whether rows are given as matrices only.

    Attributes
    ----------
    max_rows : int
        Largest number of rows to decode at a time.
    """

    def __init__(
        self,
        schema: TableSchema,
        *,
        labelled: bool,
        owned: bool = False,
        room: int = ROOM,
        by_place: bool = False,
    ) -> None:
        # Columns of a matrix that are all alike need no object each.
        self._alike = schema.all_other_columns if by_place and schema.is_uniform else None
        self._width = schema.n_features
        self.max_rows = max(1, room // ROWS_SHARE // (4 * self._width))
        texts = schema.text.missing_values
        # For each column its first feature, and a function from its cells to numbers or codes.
        self._columns: list[tuple[int, Column, Lookup | Numbers]] = []
        # Public replacements for missing numbers; NaN where there are none.
        self._fill = np.full(self._width, np.nan, dtype=np.float32)
        if self._alike is not None and self._alike.fill is not None:
            self._fill[:] = self._alike.fill
        place = 0
        for column in schema.features if self._alike is None else ():
            self._columns.append((place, column, Lookup.of_column(column, texts)))
            if column.is_number and column.fill is not None:
                self._fill[place] = column.fill
            place += column.width
        self._is_matrix = all(lookup is NUMBERS for _, _, lookup in self._columns)
        self.labels = LabelDecoder(schema) if labelled else None
        decoders: dict[str, Any] = {"person": PersonDecoder, "weight": WeightDecoder}
        self.owners: dict[str, Any] = {
            OWNERS[role]: decoders[role](schema) for role in (schema.owners if owned else ())
        }
        # Lookups of all columns that are read, in order.
        self._lookups: list[Any] = [lookup for _, _, lookup in self._columns]
        self._lookups += [] if self.labels is None else [self.labels]
        self._lookups += self.owners.values()

    def place(self, number: int) -> int | None:
        """Return the feature index of a numeric column; None for other columns."""
        is_feature = number < len(self._columns) and self.is_number(number)
        return self._columns[number][0] if is_feature else None

    def is_number(self, number: int) -> bool:
        """Return whether a column holds numbers, not coded values."""
        return isinstance(self._lookups[number], Numbers)

    def cells(self, number: int, values: Any) -> NDArray[np.int32]:
        """Return the cells of one column as numbers or codes of 4 bytes each.

        Input is an Arrow or NumPy array, or of a text file: words, and their places or numbers.
        """
        codes: NDArray[Any] = self._lookups[number].codes(values)
        if codes.dtype.kind == "f":
            return codes.astype(np.float32, copy=False).view(np.int32)
        return codes.astype(np.int32, copy=False)

    def forget(self) -> None:
        """Release the texts of cells that have become rows."""
        for lookup in self._lookups:
            if isinstance(lookup, Numbered):
                lookup.forget()

    def rows(self, cells: Cells) -> tuple[Any, ...]:
        """Return features, labels and, if read, persons and weights.

        Parameters
        ----------
        cells : sequence of arrays
            Cells of every column, as returned by :meth:`cells`.

        Raises
        ------
        RowFault
            A cell does not fit the schema.
        """
        X = np.zeros((len(cells[0]), self._width), dtype=np.float32)
        tile = max(16, TILE_BYTES // (4 * self._width))
        numeric = [(j, p) for j, (p, _, lookup) in enumerate(self._columns) if lookup is NUMBERS]
        for start in range(0, len(X), tile):
            stop = start + tile
            for j, place in numeric:
                X[start:stop, place] = cells[j][start:stop].view(np.float32)
        return self.finish(X, dict(enumerate(cells)))

    def finish(self, X: Rows, cells: Mapping[int, NDArray[np.int32]]) -> tuple[Any, ...]:
        """Complete the features once numbers are in place; return what :meth:`rows` returns.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)
            Features with numbers filled in and zeros elsewhere.
        cells : mapping
            Cells of the other columns by column number.
        """
        for j, (place, column, lookup) in enumerate(self._columns):
            if lookup is NUMBERS:
                continue
            codes = cells[j]
            if column.is_number:
                # Days since a date.
                X[:, place] = codes.view(np.float32)
                continue
            self._check_codes(codes, column)
            if isinstance(lookup, Words):
                X[:, place : place + column.width] = lookup.features(codes)
            elif column.is_indicated:
                rows = np.flatnonzero(codes >= 0)
                X[rows, place + codes[rows]] = 1.0
            else:
                X[:, place] = codes
        self._check(X)
        behind = (cells[number] for number in itertools.count(len(self._columns)))
        y = None if self.labels is None else self.labels.decode(next(behind))
        return X, y, {name: one.decode(next(behind)) for name, one in self.owners.items()}

    def matrix(self, block: NDArray[Any], labels: Any) -> tuple[Any, ...]:
        """Return the rows of a matrix file, with columns in schema order."""
        if not self._is_matrix:
            given = [*block.T] if self.labels is None else [*block.T, labels]
            return self.rows([self.cells(j, one) for j, one in enumerate(given)])
        with np.errstate(over="ignore"):
            X = np.array(block, dtype=np.float32, order="C")
        self._check(X)
        return X, self.labels and self.labels.decode(self.labels.codes(labels)), {}

    def _check_codes(self, codes: NDArray[np.int32], column: Column) -> None:
        """Refuse values that are missing or not declared, without a public replacement."""
        wrong = np.flatnonzero(codes < ZEROS)
        if not wrong.size:
            return
        reason = _missing_reason(column)
        if codes[wrong[0]] == UNDECLARED:
            reason = "expected true or false" if column.boolean else UNDECLARED_CATEGORY
            reason = reason if column.text is None else "expected text"
        raise RowFault(reason, int(wrong[0]), column.name)

    def _check(self, X: Rows) -> None:
        """Replace missing values by public ones; refuse cells that are not numbers."""
        if np.isfinite(X).all():
            return
        missing = np.isnan(X)
        X[missing] = np.broadcast_to(self._fill, X.shape)[missing]
        wrong = ~np.isfinite(X)
        if wrong.any():
            row, place = divmod(int(wrong.argmax()), self._width)
            if self._alike is not None:
                column = replace(self._alike, name=f"x{place}")
            else:
                column = next(one for at, one, _ in self._columns if at == place)
            reason = "not a finite single-precision number" if column.dates is None else NO_DATE
            if np.isnan(X[row, place]):
                reason = _missing_reason(column)
            raise RowFault(reason, row, column.name)


NO_DATE = "not a date such as 2024-12-31 or 2024-12-31 23:59:59"


def _missing_reason(column: Column) -> str:
    """Return the message about a missing value, with the remedy."""
    example = "missing = false" if column.boolean else 'missing = "none"'
    if column.bounds is not None:
        example = f"missing = {column.bounds[0]:g}"
    elif column.dates is not None or column.ordered:
        example = f'missing = "{(column.dates or column.categories or ("",))[0]}"'
    return (
        "a missing value; remove the row, or declare a public replacement in the schema, for "
        f"example {example}"
    )


# Memory of one digest, as an object in a container.
PERSON_BYTES = 64


class Columns:
    """Columns of equal length, written one after another and read by rows.

    They are in memory if they fit, else in an unnamed temporary file that only this process can
    read.

    Parameters
    ----------
    n_columns, n_rows : int
    dtype : dtype
    room : int
        Memory limit in bytes.
    stack : ExitStack
        Stack that removes the file.
    """

    def __init__(
        self, n_columns: int, n_rows: int, dtype: DTypeLike, room: int, stack: ExitStack
    ) -> None:
        self._shape, self._dtype = (n_columns, n_rows), np.dtype(dtype)
        self._array: NDArray[Any] | None = None
        if n_columns * n_rows * self._dtype.itemsize <= room:
            self._array = np.empty(self._shape, self._dtype)
        else:
            self._file: Any = stack.enter_context(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115

    def write(self, column: int, start: int, values: NDArray[Any]) -> None:
        """Write cells of a column from a given row on."""
        if self._array is not None:
            self._array[column, start : start + len(values)] = values
        else:
            self._file.seek((column * self._shape[1] + start) * self._dtype.itemsize)
            self._file.write(np.ascontiguousarray(values, self._dtype).view(np.uint8).data)

    def read(self, start: int, count: int) -> NDArray[Any]:
        """Return ``count`` rows as an array of shape (n_columns, count)."""
        if self._array is not None:
            return self._array[:, start : start + count]
        found = np.empty((self._shape[0], count), self._dtype)
        for j, column in enumerate(found):
            self._file.seek((j * self._shape[1] + start) * self._dtype.itemsize)
            self._file.readinto(column.view(np.uint8).data)
        return found


# CSV and TSV files, perhaps compressed, a block of whole records at a time.
#
# Blocks end where records end: nothing is read ahead without limit, and no block is read twice.

# Blocks of 4 MiB take as long and more memory.
BLOCK, BYTES_PER_CELL = 2**20, 128
# Parts of the room: a block of records, and the longest record; the decoded rows take the rest.
BLOCK_SHARE, RECORD_SHARE = 64, 32

# Before a header.
MAX_LINE_BREAKS = 1000
# First bytes of files that are not what their name says.
OTHER_FILES = {
    b"\x1f\x8b": "the file is compressed: rename it to end in .gz",
    b"PK\x03\x04": "the file is a spreadsheet or an archive: save it as CSV",
    b"PAR1": "the file is Parquet: rename it to end in .parquet",
    b"ARRO": "the file is Arrow: rename it to end in .arrow",
}

UTF_8 = ("utf-8", "utf8")

UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class CsvSource(Source):
    """Source of a delimited text file."""

    # Used if the schema names none.
    delimiter = ","

    def _named(self, schema: TableSchema) -> TableSchema:
        """Take names from the header, or from the schema, possibly without the target."""
        self._text, self._delimiter = schema.text, schema.text.delimiter or self.delimiter
        self._names = read_header(self.path, self._text, self._delimiter, room=self.room)
        header, n_cells = self._text.header, len(self._names)
        target: Any = schema.target
        if isinstance(header, tuple):
            self._names = list(header)
            if n_cells == len(header) - 1 and not self.labelled and target in header:
                self._names.remove(str(target))
            if n_cells != len(self._names):
                raise TableError(
                    f"{self.file}: row 1 has {n_cells} cells, expected {len(self._names)}, as "
                    f"csv.header in {schema.origin} says"
                )
        if header:
            how = {"labelled": self.labelled, "owned": self.owned}
            found = schema.of_names(self._names, file=self.file, **how)
            self._target = str(found.target)
            return found
        by_place = isinstance(target, int)
        if self.labelled and not (by_place and -n_cells <= target < n_cells):
            raise TableError(
                f"{self.file}: target: expected a position from 0 to {n_cells - 1}, or -1 for the "
                "last column, as the file has no header"
            )
        width = schema.declared_width
        if schema.all_other_columns is None:
            width = len(schema.features)
        has_target = by_place and (self.labelled or n_cells != width)
        found = schema.of_width(n_cells - int(has_target), file=self.file, owned=self.owned)
        self._names = [column.name for column in found.features]
        if has_target:
            place = target % n_cells
            self._target = f"column {place}"
            self._names.insert(place, self._target)
        return found

    def blocks(self, progress: Progress) -> Iterator[tuple[Any, ...]]:
        """Yield rows, labels and owners."""
        reader, coded = self._reader()
        block = min(max(BLOCK, BYTES_PER_CELL * len(self._names)), self.room // BLOCK_SHARE)
        longest, is_header = self.room // RECORD_SHARE, self._text.header is True
        with contextlib.closing(CountedText(self.path)) as source:
            for text in whole_records(source, self._text, self._delimiter, block, longest):
                self._decoder.forget()
                at = 0
                if is_header:
                    header, text = _split_header(text, self._text, self._delimiter)
                    is_header = not header
                while at < len(text):
                    most = self._decoder.max_rows
                    X, codes, n_rows, words, at, fault = reader.read(text, at, most)
                    if fault is not None:
                        raise self._fault(n_rows, *fault)
                    if not n_rows:
                        break
                    cells = {
                        number: self._decoder.cells(number, (words[j], codes[:n_rows, j]))
                        for j, number in enumerate(coded)
                    }
                    yield self._decoder.finish(X[:n_rows], cells)
                progress(source.n_bytes)

    def _reader(self) -> tuple[TextCells, list[int]]:
        """Return the cell reader, and the decoder's index of each column read as codes."""
        slots = dict.fromkeys(self._names, ("ignored", 0))
        coded: list[int] = []
        read = [column.name for column in self.schema.features]
        read += [self._target] if self.labelled else []
        read += self.schema.owners.values() if self.owned else ()
        for number, name in enumerate(read):
            if (place := self._decoder.place(number)) is not None:
                slots[name] = ("feature", place)
                continue
            slots[name] = ("number" if self._decoder.is_number(number) else "word", len(coded))
            coded.append(number)
        reader = TextCells(
            [slots[name] for name in self._names],
            n_features=self.schema.n_features,
            delimiter=self._delimiter,
            quote=self._text.quote,
            decimal=self._text.decimal,
            missing=[text.strip() for text in self._text.missing_values],
        )
        return reader, coded

    def _fault(self, row: int, place: int, reason: str, n_cells: int) -> RowFault:
        """Return the fault of an unreadable record, without its cells."""
        if reason == "cells":
            return RowFault(
                f"got {n_cells} cells, expected {len(self._names)}; the file may be cut off, or a "
                "cell with the delimiter may need quotes",
                row,
            )
        if reason == "text":
            reason = (
                f"not text in {self._text.encoding}; write the encoding, for example "
                'encoding = "latin-1", in the [csv] table of the schema'
            )
        else:
            reason = (
                f"not a number such as 1234{self._text.decimal}5, without thousands separators; "
                "declare boolean = true for true and false, and categories = [...] or ignore = "
                "true for other text"
            )
        return RowFault(reason, row, self._names[place])


def whole_records(
    source: CountedText, text: TextFormat, delimiter: str, block: int, longest: int
) -> Iterator[bytes]:
    """Yield blocks of whole records in UTF-8, with the header.

    Parameters
    ----------
    source : CountedText
    text : TextFormat
    delimiter : str
    block : int
        Number of bytes that are read at a time.
    longest : int
        Largest number of bytes of a record.

    Raises
    ------
    RowFault
        A record is too long.
    TableError
        The file is damaged, is not text, or ends within quotes.
    """
    records = RecordEnds(text.quote, delimiter)
    parts: list[bytes] = []
    length = 0
    for piece in _pieces(source, text.encoding, block):
        _, last = records.ends(piece)
        if last:
            yield b"".join([*parts, piece[:last]])
            parts, length = [], 0
        parts.append(piece[last:])
        length += len(piece) - last
        if length > longest:
            raise RowFault(
                f"longer than {longest >> 10} KiB; a line break may be missing, or a quote not "
                f"closed; else {MEMORY_ADVICE}"
            )
    if records.end_inside():
        raise TableError(
            f"{source.file}: ends inside a quoted cell: it is cut off, or a quote is not closed"
        )
    if length:
        yield b"".join(parts)


def _pieces(source: CountedText, encoding: str, block: int) -> Iterator[bytes]:
    """Yield pieces of the text in UTF-8."""
    pieces = iter(lambda: source.read(block), b"")
    if encoding.lower() in UTF_8:
        # Cells that are read as text are checked later.
        yield next(pieces, b"").removeprefix(codecs.BOM_UTF8)
        yield from pieces
        return
    try:
        for text in codecs.iterdecode(pieces, encoding):
            yield text.encode("utf-8")
    except UnicodeError:
        raise TableError(f"{source.file}: not a text file in {encoding}") from None


def _split_header(block: bytes, text: TextFormat, delimiter: str) -> tuple[bytes, bytes]:
    """Return the first record that is not blank, and the rest of a block of whole records."""
    block = block.lstrip(b"\r\n")
    end = RecordEnds(text.quote, delimiter).ends(block)[0] or len(block)
    return block[:end], block[end:]


def read_header(path: str, text: TextFormat, delimiter: str, *, room: int = ROOM) -> list[str]:
    """Return the cells of the first record: the column names, if there is a header.

    Raises
    ------
    TableError
        The file is empty, is not text, or names a column twice.
    """
    file, longest = os.path.basename(path), room // RECORD_SHARE
    with contextlib.closing(CountedText(path)) as source:
        records = whole_records(source, text, delimiter, min(BLOCK, longest), longest)
        try:
            start = next(records, b"")
        except RowFault as fault:
            raise fault.error(file, 0) from None
    header, rest = _split_header(start, text, delimiter)
    if not header or len(start) - len(header) - len(rest) > MAX_LINE_BREAKS:
        raise TableError(f"{file}: the file is empty, or begins with blank lines")
    quoting = {"quotechar": text.quote} if text.quote else {"quoting": csv.QUOTE_NONE}
    try:
        lines = io.StringIO(header.decode("utf-8"), newline="")
        found = next(csv.reader(lines, delimiter=delimiter, **quoting))
    except (csv.Error, UnicodeError):
        name = "utf-16" if header.startswith(UTF_16) else "latin-1"
        encoded = f'write the encoding, for example encoding = "{name}", in the [csv] table'
        hints = (hint for mark, hint in OTHER_FILES.items() if header.startswith(mark))
        hint = next(hints, f"{encoded} of the schema")
        raise TableError(f"{file}: the header is not {text.encoding}; {hint}") from None
    if len(found) > MAX_COLUMNS:
        raise TableError(
            f"{file}: got {len(found)} columns, expected at most {MAX_COLUMNS}; save wider tables "
            "as LIBSVM text or .npz"
        )
    if text.header is not True:
        return found
    names = [name.strip() for name in found]
    if twice := repeated(names):
        if may_be_a_row(names):
            raise TableError(f"{file}: duplicate column names; it has {NO_NAMES}")
        raise TableError(f"{file}: duplicate column name {twice}")
    return names


# Types of columns in Parquet and Arrow files: public, and checked before a row is read.


def _by_arrow(file: str, *kinds: type[Exception]) -> contextlib.AbstractContextManager[None]:
    """Replace errors of Arrow, and those of further kinds, as ``reading`` does."""
    from pyarrow import ArrowException

    return reading(file, ArrowException, EOFError, OSError, UnicodeError, *kinds)


def column_types(file: str, schema: Any) -> dict[str, Any]:
    """Return column types by name; names must be distinct."""
    names = list(schema.names)
    if len(names) > MAX_COLUMNS:
        raise TableError(f"{file}: got {len(names)} columns, expected at most {MAX_COLUMNS}")
    if twice := repeated(names):
        raise TableError(f"{file}: duplicate column name {twice}")
    return dict(zip(names, schema.types, strict=True))


# Facts that a schema may state of a column, by prefixes of its type's name in any library.
TYPES = {
    "bounds": ("int", "uint", "float", "double", "half", "decimal", "null"),
    "boolean": ("bool",),
    "categories": ("string", "large_string"),
    "dates": ("date", "timestamp"),
}
# Types that a column with this fact may have, and in words.
ACCEPTED = {
    "bounds": (("bounds", "boolean"), "numbers"),
    "dates": (("categories", "dates"), "dates or text"),
    "text": (("categories",), "text"),
    "categories": (("bounds", "boolean", "categories"), "text, integers or truth values"),
}


def kind_of(type: Any) -> str:
    """Return which of ``TYPES`` a type (or its dictionary values) is; else ""."""
    name = str(type).lower().removeprefix("dictionary<values=")
    return next((kind for kind, begins in TYPES.items() if name.startswith(begins)), "")


def check_type(file: str, column: Column, type: Any) -> None:
    """Refuse a column type that does not fit the schema."""
    fact = next((one for one in ACCEPTED if getattr(column, one) is not None), "categories")
    accepted, expected = ACCEPTED[fact]
    if kind_of(type) not in accepted and str(type) != "null":
        raise TableError(
            f"{file}: column {quoted(column.name)} has type {str(type)[:60]}, expected {expected}; "
            "correct the file or the schema"
        )


def hint(type: Any) -> str:
    """Return a schema entry that suits a column of this type."""
    kind = kind_of(type)
    return f"{kind} = {'true' if kind == 'boolean' else []}" if kind else "ignore = true"


# Parquet and Arrow IPC files, a few rows at a time.


BLOCK_ROWS = 65536
# A row group: its index, its number of rows, and the columns that can be read together.
Group = tuple[int, int, list[list[str]]]
# Pages of a column are read as they are needed: a row group need not fit into memory.
READ_BYTES = 2**16


class _Columnar(Source):
    """Base of Parquet and Arrow sources, whose columns have public names and types."""

    def _named(self, schema: TableSchema) -> TableSchema:
        """Refuse columns of other types than the schema declares."""
        types = self._types()
        how = {"labelled": self.labelled, "owned": self.owned}
        named = schema.of_names(list(types), file=self.file, **how)
        others = [Column(str(named.target), categories=())] if self.labelled else []
        for role, name in named.owners.items() if self.owned else ():
            bounds = (0.0, 1.0) if role == "weight" else None
            others.append(Column(name, bounds, None if bounds else ()))
        # Columns to read, in the order of the decoder.
        columns = [*named.features, *others]
        for column in columns:
            check_type(self.file, column, types[column.name])
        self._names = [column.name for column in columns]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        return named

    @property
    def _step(self) -> int:
        """Number of rows decoded at a time."""
        return int(min(BLOCK_ROWS, self._decoder.max_rows))

    @abstractmethod
    def _types(self) -> dict[str, Any]:
        """Return column types by name."""

    def _cells(self, batch: Any, names: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the cells of some columns."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        with _by_arrow(self.file):
            # Offsets and places of a damaged file may point anywhere.
            batch.validate(full=True)
        return [self._decoder.cells(self._numbers[name], columns[name]) for name in names]

    def _decoded(self, batch: Any) -> tuple[Any, ...]:
        """Return rows, labels and owners."""
        self._decoder.forget()
        rows: tuple[Any, ...] = self._decoder.rows(self._cells(batch, self._names))
        return rows


class ParquetSource(_Columnar):
    """Source of a Parquet file."""

    def _types(self) -> dict[str, Any]:
        types, self.n_rows = parquet_types(self.path)
        return types

    def blocks(self, progress: Progress) -> Iterator[tuple[Any, ...]]:
        """Yield rows, labels and owners."""
        parquet = optional_module("pyarrow.parquet", "reading Parquet files", "arrow")
        size, n_read = os.path.getsize(self.path), 0
        coded = [one for one in self._names if not self._decoder.is_number(self._numbers[one])]
        with ExitStack() as stack:
            groups = self._groups()
            with _by_arrow(self.file):
                # Without pre_buffer=True, which reads whole row groups.
                how = {"pre_buffer": False, "buffer_size": READ_BYTES, "read_dictionary": coded}
                file = stack.enter_context(parquet.ParquetFile(self.path, **how))
            for fits, some in itertools.groupby(groups, lambda group: len(group[2]) == 1):
                # Row groups whose columns all fit are read in sequence.
                for block in (self._at_once if fits else self._in_turn)(file, some):
                    yield block
                    n_read += len(block[0])
                    progress(size * n_read // max(n_read, self.n_rows or 0))
        if n_read != self.n_rows:
            raise _damaged(self.file)

    def _at_once(self, file: Any, groups: Iterable[Group]) -> Iterator[tuple[Any, ...]]:
        """Yield rows and labels of row groups, all columns together."""
        for batch in self._batches(file, [group[0] for group in groups], self._names, self._step):
            yield self._decoded(batch)

    def _in_turn(self, file: Any, groups: Iterable[Group]) -> Iterator[tuple[Any, ...]]:
        """Yield rows and labels of row groups, reading a few columns at a time."""
        room, most = self.room // WHOLE_SHARE, self._decoder.max_rows
        texts = any(column.text is not None for column in self.schema.features)
        for number, n_rows, parts in groups:
            persons = n_rows if "groups" in self._decoder.owners else 0
            if texts or persons * PERSON_BYTES > room:
                raise TableError(
                    f"{self.file}: row groups are too large for text and persons; write smaller "
                    f"ones (row_group_size=), or {MEMORY_ADVICE}"
                )
            self._decoder.forget()
            with ExitStack() as stack:
                kept = Columns(len(self._names), n_rows, np.int32, room, stack)
                for names in parts:
                    at, step = 0, min(BLOCK_ROWS, self._step * len(self._names) // len(names))
                    for batch in self._batches(file, [number], names, step):
                        if at + batch.num_rows <= n_rows:
                            for name, cells in zip(names, self._cells(batch, names), strict=True):
                                kept.write(self._numbers[name], at, cells)
                        at += batch.num_rows
                    if at != n_rows:
                        raise _damaged(self.file)
                for start in range(0, n_rows, most):
                    cells = kept.read(start, min(most, n_rows - start))
                    yield self._decoder.rows(cells)

    def _batches(self, file: Any, groups: list[int], names: list[str], step: int) -> Iterator[Any]:
        """Yield batches of at most ``step`` rows of some columns."""
        with _by_arrow(self.file):
            batches = file.iter_batches(step, row_groups=groups, columns=names)
        while True:
            with _by_arrow(self.file):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _groups(self) -> list[Group]:
        """Return the row groups: number, rows, and columns that can be read together.

        Arrow unpacks whole pages, and keeps one per column. The sizes in the list of row groups may
        be wrong; Arrow uses the header of each page.
        """
        room, found = self.room // PAGES_SHARE, []
        with mapped_bytes(self.path) as data, _by_arrow(self.file, *DAMAGED_SIZES):
            # The list of row groups at the end of the file. Not by Arrow's objects for it: some end
            # the process where the list is damaged.
            end = len(data) - 8
            about = _thrift(data, end - struct.unpack_from("<I", data, end)[0], MAX_NESTED)[0]
            for number, group in enumerate(about[4]):
                chunks = {b".".join(chunk[3][3]).decode(): chunk[3] for chunk in group[1]}
                parts: list[list[str]] = [[]]
                left = room
                for name in self._names:
                    size = _pages(data, chunks[name])
                    if size > room:
                        what = f"row group {number}: the pages of column {quoted(name)}"
                        raise _too_large(self.file, what, size, room, "pages (data_page_size=)")
                    if size > left:
                        parts.append([])
                        left = room
                    parts[-1].append(name)
                    left -= size
                found.append((number, group[3], parts))
                _forget(data)
        return found


class ArrowSource(_Columnar):
    """Source of an Arrow IPC file (Feather 2) or of a stored stream."""

    def _types(self) -> dict[str, Any]:
        return arrow_types(self.path)

    def blocks(self, progress: Progress) -> Iterator[tuple[Any, ...]]:
        """Yield rows, labels and owners."""
        import pyarrow as pa

        size = os.path.getsize(self.path)
        data = mapped_bytes(self.path)
        with ExitStack() as stack:
            source, names = pa.py_buffer(data), None
            # Unpacked data are mapped. Of packed data some columns are read at a time, and not
            # through a map, whose pages would stay in memory until a batch is done.
            if self._is_packed(data):
                names = self._names
                if _is_arrow_file(data):
                    source = stack.enter_context(pa.OSFile(self.path))
            with _by_arrow(self.file):
                reader = stack.enter_context(_opened(source, data, names))
            # Only a file has a number of batches, a stream has none.
            n_batches = getattr(reader, "num_record_batches", None)
            for n_read in itertools.count(1):
                with _by_arrow(self.file):
                    if n_batches is None:
                        batch = next(reader, None)
                    else:
                        batch = reader.get_batch(n_read - 1) if n_read <= n_batches else None
                    if batch is None:
                        break
                    batch = batch.select(self._names)
                for row in range(0, batch.num_rows, self._step):
                    part = batch.slice(row, self._step)
                    yield self._decoded(part)
                    _forget(data)
                # Release this batch before the next one is unpacked.
                batch = part = None
                progress(size * n_read // max(n_read, n_batches or n_read))

    def _is_packed(self, data: mmap.mmap) -> bool:
        """Return whether data are compressed; refuse what does not fit when decompressed.

        Uncompressed data take no additional memory.
        """
        with _by_arrow(self.file):
            schema = _opened(memoryview(data), data, None).schema
        if all(str(schema.field(name).type) == "null" for name in self._names):
            raise TableError(f"{self.file}: all columns have the type null, expected values")
        wanted = _places_of_buffers(schema, set(self._names))
        room, dictionaries = self.room // UNPACKED_SHARE, dict[int, int]()
        n_batches = largest = 0
        with _by_arrow(self.file, *DAMAGED_SIZES):
            for message in _messages(data):
                if message.type not in ("dictionary", "record batch"):
                    continue
                about, body = message.metadata, message.body
                root = struct.unpack_from("<I", about)[0]
                header = _child(about, _slot(about, root, 2))
                if message.type == "dictionary":
                    key = _number(about, "<q", header, 0)
                    size = _unpacked(about, _child(about, _slot(about, header, 1)), body, None)
                    if _number(about, "<b", header, 2):
                        size += dictionaries.get(key, 0)
                    dictionaries[key], what = size, f"the dictionaries up to number {key}"
                    size = sum(dictionaries.values())
                else:
                    size = _unpacked(about, header, body, wanted) + sum(dictionaries.values())
                    what = f"record batch {n_batches} with its dictionaries"
                    n_batches += 1
                largest = max(largest, size)
                _forget(data)
                if size > room:
                    raise _too_large(self.file, what, size, room, "record batches")
        return largest > 0


def parquet_types(path: str) -> tuple[dict[str, Any], int]:
    """Return column types by name, and the number of rows."""
    parquet = optional_module("pyarrow.parquet", "reading Parquet files", "arrow")
    file = os.path.basename(path)
    with open(path, "rb") as end:
        end.seek(max(0, os.path.getsize(path) - 8))
        size, mark = end.read(4), end.read(4)
    if mark == b"PAR1" and int.from_bytes(size, "little") > LARGEST_FOOTER:
        raise TableError(
            f"{file}: its footer takes {int.from_bytes(size, 'little')} bytes, expected at most "
            f"{LARGEST_FOOTER}; write fewer, larger row groups"
        )
    with _by_arrow(file), parquet.ParquetFile(path) as opened:
        return column_types(file, opened.schema_arrow), opened.metadata.num_rows


def arrow_types(path: str) -> dict[str, Any]:
    """Return column types by name."""
    file = os.path.basename(path)
    optional_module("pyarrow", "reading Arrow files", "arrow")
    with open(path, "rb") as start:
        if start.read(4) == b"FEA1":
            raise TableError(
                f"{file}: got version 1 of Feather, expected version 2: write the file again with "
                "pyarrow.feather.write_feather(table, path)"
            )
    data = mapped_bytes(path)
    with _by_arrow(file), _opened(memoryview(data), data, None) as opened:
        return column_types(file, opened.schema)


def mapped_bytes(path: str) -> mmap.mmap:
    """Map the bytes of a file until the last array on them is freed."""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _is_arrow_file(data: mmap.mmap) -> bool:
    """Return whether the bytes are an Arrow file with a list of batches, not a stream."""
    return data[: len(ARROW_MARK)] == ARROW_MARK


def _opened(source: Any, data: mmap.mmap, names: Sequence[str] | None) -> Any:
    """Return a reader of some columns, or of all."""
    import pyarrow as pa

    opener, options = pa.ipc.open_file if _is_arrow_file(data) else pa.ipc.open_stream, None
    if names is not None:
        fields = _opened(memoryview(data), data, None).schema.names
        options = pa.ipc.IpcReadOptions(included_fields=[fields.index(name) for name in names])
    return opener(source, options=options)


def _messages(data: mmap.mmap) -> Iterator[Any]:
    """Yield the messages of a stream, or the dictionaries and batches listed in a file.

    Not every file is a stream between two marks: polars omits the length of the schema.
    """
    import pyarrow as pa

    whole = pa.py_buffer(data)
    if not _is_arrow_file(data):
        yield from pa.ipc.MessageReader.open_stream(whole)
        return
    footer = len(data) - 10 - struct.unpack_from("<i", data, len(data) - 10)[0]
    table = _child(data, footer)
    for field in (2, 3):
        at = _slot(data, table, field)
        blocks = _child(data, at) if at else 0
        for place in range(struct.unpack_from("<I", data, blocks)[0] if blocks else 0):
            start = struct.unpack_from("<q", data, blocks + 4 + 24 * place)[0]
            yield pa.ipc.read_message(whole.slice(start))


def _forget(data: mmap.mmap) -> None:
    """Release the memory of pages already read, if the system supports it."""
    if hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED)


# Sizes that Parquet and Arrow files state in front of packed bytes: what their readers allocate.


# Parts of the room: a record batch with its dictionaries, unpacked; pages of columns that are read
# together.
UNPACKED_SHARE, PAGES_SHARE = 2, 2
# Copies of a page of strings: unpacked, as a dictionary, and while it is looked up.
TEXT_COPIES = 4
# Errors seen while reading the sizes of a damaged file.
DAMAGED_SIZES = (
    AttributeError,
    LookupError,
    OverflowError,
    TypeError,
    ValueError,
    struct.error,
)
# Parquet's numbers for texts, and for a page of words.
TEXT, DICTIONARY_PAGE = 6, 2
# First bytes of Arrow files.
ARROW_MARK = b"ARROW1"
# Largest depth of nested structures and lists in Parquet's metadata.
MAX_NESTED = 16
# Largest metadata of a file; Arrow's objects are ten times as large.
LARGEST_FOOTER = 2**23


def _too_large(file: str, what: str, n_bytes: int, room: int, smaller: str) -> TableError:
    """Return the error for data that would take too much memory when decompressed."""
    return TableError(
        f"{file}: {what} take {n_bytes} bytes unpacked, expected at most {room}; write the file "
        f"with smaller {smaller}, or {MEMORY_ADVICE}"
    )


def _pages(data: mmap.mmap, chunk: dict[int, Any]) -> int:
    """Return the bytes of memory to read a column chunk."""
    kind, at, first = chunk[1], chunk[9], chunk.get(11, 0)
    if 0 < first < at:
        at = first
    # A column without values has no pages and no offset.
    end = min(len(data), at + chunk[7]) if chunk[5] > 0 else at
    if at < 0:
        raise ValueError("an offset beyond the end of the file")
    words = max_packed = max_unpacked = 0
    while at < end:
        header, at = _thrift(data, at, MAX_NESTED)
        unpacked, packed = header[2], header[3]
        if min(unpacked, packed) < 0 or packed > len(data) - at:
            raise ValueError("a page is longer than the file")
        if header[1] == DICTIONARY_PAGE:
            words = max(words, 2 * unpacked)
        max_packed, max_unpacked = max(max_packed, packed), max(max_unpacked, unpacked)
        at += packed
    copies = TEXT_COPIES if kind == TEXT else 1
    return int(max_packed + copies * (max_unpacked + words))


def _thrift(data: mmap.mmap, at: int, levels: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a compact Thrift structure by number, and its end."""
    found: dict[int, Any] = {}
    number = 0
    while data[at]:
        kind, step = data[at] & 15, data[at] >> 4
        at += 1
        if step:
            number += step
        else:
            number, at = _whole(data, at)
        found[number], at = (kind == 1, at) if kind < 3 else _thrift_value(data, at, kind, levels)
    return found, at + 1


def _thrift_value(data: mmap.mmap, at: int, kind: int, levels: int) -> tuple[Any, int]:
    """Return a field of a structure or an element of a list, and its end."""
    if kind in (4, 5, 6):
        return _whole(data, at)
    if kind < 4 or kind == 7:
        return None, at + (8 if kind == 7 else 1)
    if kind == 8:
        length, at = _varint(data, at)
        return data[at : at + length], at + length
    if kind == 9 and levels:
        count, inner = data[at] >> 4, data[at] & 15
        count, at = _varint(data, at + 1) if count == 15 else (count, at + 1)
        found = []
        for _ in range(count):
            value, at = _thrift_value(data, at, inner, levels - 1)
            found.append(value)
        return found, at
    if kind == 12 and levels:
        return _thrift(data, at, levels - 1)
    raise ValueError("an unknown type of field")


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Return a number of up to 64 bits, and its end."""
    value = 0
    for shift in range(0, 70, 7):
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise ValueError("the number is too long")


def _whole(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Return a signed number, and its end."""
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _slot(data: Any, table: int, number: int) -> int:
    """Return the position of a field of a FlatBuffers table; 0 if absent."""
    about = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, about)[0]
    if 4 + 2 * number >= size:
        return 0
    offset: int = struct.unpack_from("<H", data, about + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _number(data: Any, kind: str, table: int, number: int) -> int:
    """Return a number in a FlatBuffers table; 0 if absent."""
    at = _slot(data, table, number)
    return int(struct.unpack_from(kind, data, at)[0]) if at else 0


def _child(data: Any, at: int) -> int:
    """Return the target of an offset field."""
    if not at:
        raise ValueError("a field is missing")
    return int(at + struct.unpack_from("<I", data, at)[0])


def _unpacked(data: Any, batch: int, body: Any, wanted: set[int] | None) -> int:
    """Return the decompressed size of all, or some, compressed buffers of a batch."""
    if not _slot(data, batch, 3):
        return 0
    buffers = _child(data, _slot(data, batch, 2))
    total = 0
    for place in range(struct.unpack_from("<I", data, buffers)[0]):
        start, length = struct.unpack_from("<qq", data, buffers + 4 + 16 * place)
        if length > 0 and (wanted is None or place in wanted):
            # -1 means bytes that are not packed.
            total += max(0, struct.unpack_from("<q", body, start)[0])
    return total


def _places_of_buffers(schema: Any, names: set[str]) -> set[int] | None:
    """Return which buffers of a batch belong to some columns; None if unknown."""
    import pyarrow as pa

    found: set[int] = set()
    before = 0
    for field in schema:
        if field.type.num_fields or "view" in str(field.type):
            # Nested values, and texts in any number of buffers.
            return None
        is_null = pa.types.is_null(field.type)
        n = 0 if is_null else len(pa.array([], field.type).buffers())
        if field.name in names:
            found.update(range(before, before + n))
        before += n
    return found


# numpy's .npz files with X and y, a block of rows at a time.
#
# No declaration in a file is trusted: sizes of arrays have to be those of the members that
# hold them, and rows have to fit into their share of the room before any of them is read.


# Parts of the room: rows that are read at a time, one row, and an array that is kept whole.
NPZ_BLOCK_SHARE, NPZ_ROW_SHARE, WHOLE_SHARE = 64, 16, 4

PIECE = 2**20
# Limits of a file's list of members, an array's header, and a label.
LARGEST_LIST, LONGEST_HEADER, WIDEST_LABEL = 2**20, 10_000, 4096
# numpy writes no other methods, and others are not unpacked a little at a time.
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Kinds of numpy's types, dimensions, and both in words.
ARRAYS = {
    "X": ("biuf", 2, "numbers in two dimensions"),
    "y": ("biufUS", 1, "integers or text in one dimension"),
}
# Exceptions that reading bytes of other kinds of files has been seen to raise.
NPZ_DAMAGED = (
    *(*DAMAGED, *DAMAGED_SIZES),
    *(MemoryError, OSError, RuntimeError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile),
)


class NpzSource(Source):
    """Source of an npz file with rows ``X`` of shape (n_samples, n_features) and labels ``y``."""

    by_place = True

    def _named(self, schema: TableSchema) -> TableSchema:
        """Refuse rows and labels that are too long."""
        with ExitStack() as stack:
            rows, labels = _members(self.path, stack, labelled=self.labelled)
            self.n_rows = rows.shape[0]
            self._row_bytes = max(1, rows.row_bytes)
            if labels is not None:
                if labels.shape != rows.shape[:1]:
                    raise TableError(f"{self.file}: y: expected one label for each row of X")
                if labels.row_bytes > WIDEST_LABEL:
                    raise TableError(
                        f"{self.file}: y: got labels of {labels.row_bytes} bytes each, expected "
                        f"at most {WIDEST_LABEL}"
                    )
                self._row_bytes += labels.row_bytes
            if self._row_bytes > self.room // NPZ_ROW_SHARE:
                row = f"X: a row takes {self._row_bytes} bytes"
                raise too_wide(self.file, row, self.room // NPZ_ROW_SHARE)
            return schema.of_width(rows.shape[1], file=self.file, owned=self.owned)

    def blocks(self, progress: Progress) -> Iterator[tuple[Any, ...]]:
        """Yield rows, labels and owners."""
        size, n_rows = os.path.getsize(self.path), int(self.n_rows or 0)
        step = max(1, min(self.room // NPZ_BLOCK_SHARE // self._row_bytes, self._decoder.max_rows))
        with ExitStack() as stack:
            rows, labels = _members(self.path, stack, labelled=self.labelled)
            with reading(self.file, *NPZ_DAMAGED):
                rows.unpack(self.room // WHOLE_SHARE, stack)
            for start in range(0, n_rows, step):
                count = min(step, n_rows - start)
                with reading(self.file, *NPZ_DAMAGED):
                    block = rows.read(count)
                    given = None if labels is None else labels.read(count)
                yield self._decoder.matrix(block, given)
                progress(size * (start + count) // n_rows)


def npz_width(path: str) -> int:
    """Return the number of columns of X."""
    with ExitStack() as stack:
        return int(_members(path, stack, labelled=False)[0].shape[1])


def _members(path: str, stack: ExitStack, *, labelled: bool) -> tuple[_Member, _Member | None]:
    """Open X and y."""
    file = os.path.basename(path)
    content = stack.enter_context(_File(path))
    with reading(file, *NPZ_DAMAGED):
        archive = stack.enter_context(zipfile.ZipFile(content))
        found = {name.removesuffix(".npy"): name for name in archive.namelist()}
    content.longest = -1
    opened = []
    for name in ("X", "y") if labelled else ("X",):
        if name not in found:
            has = ", ".join(map(quoted, list(found)[:10])) or "none"
            raise TableError(f"{file}: no array {name!r}; it has {has}")
        kinds, rank, expected = ARRAYS[name]
        with reading(file, *NPZ_DAMAGED):
            about = archive.getinfo(found[name])
            member = _Member(stack.enter_context(archive.open(about)), about)
        if member.dtype.kind not in kinds or len(member.shape) != rank:
            raise TableError(
                f"{file}: {name}: got {len(member.shape)} dimensions of type "
                f"{str(member.dtype)[:40]}, expected {expected}"
            )
        opened.append(member)
    return opened[0], opened[1] if labelled else None


class _File(io.FileIO):
    """File with a limit ``longest`` on single reads, if not negative."""

    longest = LARGEST_LIST

    def read(self, size: int | None = -1, /) -> Any:
        """Read the next bytes."""
        if size is None or size < 0:
            size = max(0, os.fstat(self.fileno()).st_size - self.tell())
        if 0 <= self.longest < size:
            raise EOFError("the list of members is too long")
        return super().read(size)


class _Member:
    """Array in an archive, read from its start.

    Raises
    ------
    Exception
        One of ``DAMAGED`` if the archive is damaged.
    """

    def __init__(self, stream: Any, about: zipfile.ZipInfo) -> None:
        if about.compress_type not in COMPRESSIONS:
            raise ValueError("a compression that numpy does not use")
        version = np.lib.format.read_magic(stream)
        size = stream.read(2 if version == (1, 0) else 4)
        length = int.from_bytes(size, "little")
        if length > LONGEST_HEADER:
            raise ValueError("the header is too long")
        header = io.BytesIO(size + stream.read(length))
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        self.shape, columns_first, self.dtype = read(header)
        self.row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        n_bytes = math.prod(self.shape) * self.dtype.itemsize
        differs = stream.tell() + n_bytes != about.file_size and not self.dtype.hasobject
        if differs or min(self.shape, default=0) < 0:
            raise ValueError("the size differs from the declared one")
        self._stream = stream
        # True: rows are scattered over the whole array.
        self._columns_first = columns_first and len(self.shape) == 2 and min(self.shape) > 1
        self._columns: Columns | None = None
        self._at = 0

    def unpack(self, room: int, stack: ExitStack) -> None:
        """Reorder an array in Fortran order, so that rows can be read."""
        if not self._columns_first:
            return
        n_rows, n_columns = self.shape
        self._columns = Columns(n_columns, n_rows, self.dtype, room, stack)
        step = max(1, PIECE // self.dtype.itemsize)
        for column in range(n_columns):
            for start in range(0, n_rows, step):
                cells = self._take((min(step, n_rows - start),))
                self._columns.write(column, start, cells)

    def read(self, count: int) -> NDArray[Any]:
        """Read the next rows."""
        start, self._at = self._at, self._at + count
        if self._columns is not None:
            return self._columns.read(start, count).T
        return self._take((count, *self.shape[1:]))

    def _take(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return the next numbers, or texts with valid characters."""
        n_bytes = math.prod(shape) * self.dtype.itemsize
        content: bytes = self._stream.read(n_bytes)
        if len(content) != n_bytes:
            raise EOFError
        if self.dtype.kind == "U" and self.dtype.itemsize:
            order = self.dtype.byteorder if self.dtype.byteorder in "<>" else "="
            if np.frombuffer(content, np.dtype("u4").newbyteorder(order)).max(initial=0) > 0x10FFFF:
                raise ValueError("an invalid character code")
        if not self.dtype.itemsize:
            return np.zeros(shape, dtype=self.dtype)
        return np.frombuffer(content, dtype=self.dtype).reshape(shape)


# A byte of a block takes some 40 bytes while it is read: these are shares of the room.
LIBSVM_BLOCK = 2**20

LIBSVM_BLOCK_SHARE, LIBSVM_ROW_SHARE = 256, 64

# Records are lines: nothing is quoted.
LINES = TextFormat(quote="")

COMMENT = re.compile(rb"#[^\r\n]*")

ENTRY = re.compile(
    rb"(?<!\S)([0-9]+):([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?!\S)"
)


class LibsvmSource(Source):
    """Source of a LIBSVM file, with lines "label index:value ...", as CSR matrices.

    Without ``labelled`` each row may or may not have a label. On 25 MB with 100 entries per row and
    one core, it takes 1.6 times as long as scikit-learn's reader, which checks less.
    """

    sparse = True

    def _named(self, schema: TableSchema) -> TableSchema:
        """Refuse columns that are not numeric."""
        found = schema.of_width(None, file=self.file, owned=self.owned)
        wrong = next((column.name for column in found.columns if column.bounds is None), None)
        if wrong is not None:
            raise SchemaError(
                f"{found.origin}: columns: got {wrong!r} without bounds, expected bounds for "
                "every column of a LIBSVM file, which holds numbers only"
            )
        self._first = 0 if found.zero_based else 1
        return found

    def _made_decoder(self) -> LabelDecoder | None:
        """Return a decoder for labels only."""
        return LabelDecoder(self.schema) if self.labelled else None

    def blocks(self, progress: Progress) -> Iterator[tuple[Any, ...]]:
        """Yield rows, labels and owners."""
        decoder, longest = self._decoder, self.room // LIBSVM_ROW_SHARE
        block = min(LIBSVM_BLOCK, self.room // LIBSVM_BLOCK_SHARE)
        with contextlib.closing(CountedText(self.path)) as source:
            for text in whole_records(source, LINES, " ", block, longest):
                X, labels = self._parsed(COMMENT.sub(b"", text) if b"#" in text else text)
                if X.shape[0]:
                    yield X, decoder and decoder.decode(decoder.codes(labels)), {}
                progress(source.n_bytes)

    def _parsed(self, text: bytes) -> tuple[Any, list[bytes]]:
        """Return a matrix, and labels as text."""
        labels: list[bytes] = []
        entries: list[bytes] = []
        for line in filter(None, map(bytes.strip, text.splitlines())):
            first, *more = line.split(None, 1)
            if b":" in first:
                entries.append(line)
            else:
                labels.append(first)
                entries += more or [b""]
        body = b"\n".join(entries)
        if (self.labelled and len(labels) < len(entries)) or ENTRY.sub(b"", body).strip():
            raise self._fault(text)
        n_entries = [line.count(b":") for line in entries]
        numbers = np.fromstring(body.replace(b":", b" ") or b"0", dtype=np.float64, sep=" ")
        numbers = numbers[: 2 * sum(n_entries)]
        index, value = numbers[0::2] - self._first, numbers[1::2]
        with np.errstate(over="ignore"):
            value = value.astype(np.float32)
        inside = (index >= 0).all() and (index < self.schema.n_features).all()
        if not (inside and np.isfinite(value).all()):
            raise self._fault(text)
        X = sparse.csr_matrix(
            (value, index.astype(np.int32), np.concatenate([[0], np.cumsum(n_entries)])),
            shape=(len(entries), self.schema.n_features),
        )
        X.sort_indices()
        if not X.has_canonical_format:
            raise self._fault(text)
        return X, labels

    def _fault(self, text: bytes) -> Exception:
        """Return the fault of the first invalid row."""
        rows = (line.split() for line in text.splitlines())
        for row, tokens in enumerate(filter(None, rows)):
            reason = self._reason(tokens)
            if reason is not None:
                return RowFault(reason, row)
        return TableError(f"{self.file}: not a LIBSVM file")

    def _reason(self, tokens: list[bytes]) -> str | None:
        """Return what is wrong with a row, if anything."""
        if b":" in tokens[0] and self.labelled:
            return "no label; each row starts with one"
        seen = set()
        for token in tokens[0 if b":" in tokens[0] else 1 :]:
            entry = ENTRY.fullmatch(token)
            if entry is None:
                return "expected index:value with a number for each entry"
            with np.errstate(over="ignore"):
                if not np.isfinite(np.float32(float(entry[2]))):
                    return "a value is not a finite single-precision number"
            # Digits without end would take long to convert.
            digits = entry[1].lstrip(b"0") or b"0"
            place = int(digits) - self._first if len(digits) < 12 else self.schema.n_features
            if place < 0:
                return "index 0; if indices start at 0, write zero_based = true in the schema"
            if place >= self.schema.n_features:
                return (
                    f"an index beyond the {self.schema.n_features} features that "
                    f"{self.schema.origin} declares"
                )
            if place in seen:
                return "an index is repeated"
            seen.add(place)
        return None
