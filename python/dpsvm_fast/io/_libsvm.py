"""LIBSVM's text format, "label index:value index:value ..." in each row, as CSR matrices.

A block is read with numpy alone: positions of words and colons say whether it has the right form,
and one conversion reads all numbers. Measured on 25 MB with 100 entries a row, one core: 0.56 s;
scikit-learn's reader takes 0.60 s and checks less, splitting lines in Python takes 1.1 s.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast.exceptions import SchemaError, TableError
from dpsvm_fast.io._decode import LabelDecoder
from dpsvm_fast.io._source import ROOM, CountedText, Progress, too_long
from dpsvm_fast.io.schema import TableSchema

__all__ = ["LibsvmSource"]

# A byte of a block takes some 40 while it is read: these are shares of the room.
BLOCK = 2**20
BLOCK_SHARE, ROW_SHARE = 256, 64
COMMENT = re.compile(rb"#[^\n]*")
ENTRY = re.compile(rb"([0-9]+):([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
IS_WORD = np.ones(256, dtype=bool)
IS_WORD[list(b" \t\n\r\x0b\x0c")] = False
NEW_LINE, COLON = ord("\n"), ord(":")


class LibsvmSource:
    """Rows of a LIBSVM file.

    Parameters
    ----------
    path : str
    schema : TableSchema
        With ``n_features``, or with all columns in order.
    labelled : bool
        Whether labels are read; otherwise each row may have one or not.
    room : int, default=ROOM
        Bytes that reading may take.
    """

    sparse = True
    n_rows: int | None = None

    def __init__(self, path: str, schema: TableSchema, *, labelled: bool, room: int = ROOM) -> None:
        self._path, self._file, self._room = path, os.path.basename(path), room
        self.schema = schema.of_width(None, file=self._file)
        wrong = next((c.name for c in self.schema.columns if c.bounds is None), None)
        if wrong is not None:
            raise SchemaError(
                f"{self.schema.origin}: columns: got {wrong!r} without bounds, expected bounds for "
                "every column of a LIBSVM file, which holds numbers only"
            )
        self._labels = LabelDecoder(self.schema, self._file) if labelled else None
        self._first = 0 if self.schema.zero_based else 1

    def blocks(self, progress: Progress) -> Iterator[tuple[Any, Any]]:
        """Rows and labels."""
        before = 0

        def row() -> int:
            return before + 1

        with contextlib.closing(CountedText(self._path)) as source:
            for text in self._texts(source, row):
                X, labels = self._parsed(COMMENT.sub(b"", text) if b"#" in text else text, before)
                if X.shape[0]:
                    yield X, None if self._labels is None else self._labels(labels, before)
                before += X.shape[0]
                progress(source.n_bytes)

    def _texts(self, source: CountedText, row: Callable[[], int]) -> Iterator[bytes]:
        """Blocks of whole lines; ``row`` tells the next one."""
        rest: list[bytes] = []
        block, longest = min(BLOCK, self._room // BLOCK_SHARE), self._room // ROW_SHARE
        while True:
            try:
                text = source.read(block)
            except (EOFError, gzip.BadGzipFile, zlib.error):
                raise TableError(
                    f"{self._file}: the compressed file is cut off or damaged; copy it again"
                ) from None
            if not text:
                break
            cut = text.rfind(b"\n") + 1
            if cut:
                yield b"".join([*rest, text[:cut]])
                rest = []
            rest.append(text[cut:])
            if sum(map(len, rest)) > longest:
                raise too_long(self._file, row(), longest, "a line end may be missing")
        if any(rest):
            yield b"".join(rest)

    def _parsed(self, text: bytes, before: int) -> tuple[Any, list[bytes]]:
        """A matrix, and labels as text."""
        tokens = _Tokens(text)
        is_label = tokens.is_first
        if self._labels is None:
            is_label = is_label & ~tokens.first_has_colon()
        labels = tokens.texts(is_label)
        if any(b":" in label for label in labels):
            raise self._fault(text, before)
        entries = ~is_label
        numbers = tokens.numbers(entries)
        if numbers is None:
            raise self._fault(text, before)
        index, value = numbers[0::2] - self._first, numbers[1::2]
        with np.errstate(over="ignore"):
            value = value.astype(np.float32)
        inside = (index >= 0).all() and (index < self.schema.n_features).all()
        if not (inside and np.isfinite(value).all()):
            raise self._fault(text, before)
        n_before = np.concatenate([[0], np.cumsum(entries)])
        starts = np.append(np.flatnonzero(tokens.is_first), len(entries))
        X = sparse.csr_matrix(
            (value, index.astype(np.int32), n_before[starts]),
            shape=(len(starts) - 1, self.schema.n_features),
        )
        X.sort_indices()
        if not X.has_canonical_format:
            raise self._fault(text, before)
        return X, labels

    def _fault(self, text: bytes, before: int) -> TableError:
        """Return an error for the first row that is wrong."""
        rows = (line.split() for line in text.split(b"\n"))
        for row, tokens in enumerate(filter(None, rows), start=before + 1):
            reason = self._reason(tokens)
            if reason is not None:
                return TableError(f"{self._file}: row {row}: {reason}")
        return TableError(f"{self._file}: not a LIBSVM file")

    def _reason(self, tokens: list[bytes]) -> str | None:
        """What is wrong with a row."""
        if b":" in tokens[0] and self._labels is not None:
            return "no label; each row starts with one"
        seen = set()
        for token in tokens[0 if b":" in tokens[0] else 1 :]:
            entry = ENTRY.fullmatch(token)
            if entry is None:
                return "expected index:value with a number for each entry"
            with np.errstate(over="ignore"):
                if not np.isfinite(np.float32(float(entry[2]))):
                    return "a value is not a finite number of single precision"
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
                return "an index comes twice"
            seen.add(place)
        return None


class _Tokens:
    """Where the words of a text start and end.

    Attributes
    ----------
    is_first : ndarray of bool
        For each word, whether it is the first one of its line.
    """

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._bytes = np.frombuffer(text, dtype=np.uint8)
        edges = np.concatenate([[False], IS_WORD[self._bytes], [False]])
        turns = np.flatnonzero(edges[1:] != edges[:-1])
        self._starts, self._ends = turns[0::2], turns[1::2]
        self.is_first = np.zeros(len(self._starts) + 1, dtype=bool)
        self.is_first[0] = True
        new_lines = np.flatnonzero(self._bytes == NEW_LINE)
        self.is_first[np.searchsorted(self._starts, new_lines)] = True
        self.is_first = self.is_first[:-1]

    def texts(self, chosen: NDArray[np.bool_]) -> list[bytes]:
        """These words."""
        ends = zip(self._starts[chosen].tolist(), self._ends[chosen].tolist(), strict=True)
        return [self._text[start:end] for start, end in ends]

    def first_has_colon(self) -> NDArray[np.bool_]:
        """Whether a word is the first of its line and contains a colon."""
        found = np.zeros(len(self.is_first), dtype=bool)
        found[self.is_first] = [b":" in word for word in self.texts(self.is_first)]
        return found

    def numbers(self, chosen: NDArray[np.bool_]) -> NDArray[np.float64] | None:
        """Two numbers for each of these words; None unless all are index:value."""
        starts, ends = self._starts[chosen], self._ends[chosen]
        is_chosen = np.repeat(
            np.append(np.column_stack([np.zeros(len(chosen), bool), chosen]).ravel(), False),
            np.diff(np.concatenate([[0], self._turns(), [len(self._bytes)]])),
        )
        colons = np.flatnonzero((self._bytes == COLON) & is_chosen)
        # One colon in each word, neither first nor last.
        if len(colons) != len(starts) or not ((starts < colons) & (colons < ends - 1)).all():
            return None
        not_digit = np.cumsum((self._bytes < ord("0")) | (self._bytes > ord("9")), dtype=np.int32)
        if not (not_digit[colons] == not_digit[starts] + 1).all():
            return None
        plain = np.where(is_chosen & (self._bytes != COLON), self._bytes, ord(" "))
        return _read(plain.astype(np.uint8).tobytes(), 2 * len(starts))

    def _turns(self) -> NDArray[np.int64]:
        """Starts and ends, in order."""
        return np.column_stack([self._starts, self._ends]).ravel()


def _read(text: bytes, count: int) -> NDArray[np.float64] | None:
    """Numbers between blanks; None where there are not so many."""
    if count == 0:
        return np.empty(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            found = np.fromstring(text, dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            return None
    return found if len(found) == count else None
