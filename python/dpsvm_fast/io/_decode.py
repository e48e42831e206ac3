"""Blocks of columns to rows of features and to labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.exceptions import SchemaError, TableError
from dpsvm_fast.io._cells import MISSING, UNDECLARED, Lookup, cell_error, numbers
from dpsvm_fast.io._columns import Column
from dpsvm_fast.io._source import ROOM
from dpsvm_fast.io.schema import TableSchema

__all__ = ["LabelDecoder", "RowDecoder"]

Rows = NDArray[np.float32]
# Rows that are filled at a time, column by column: they stay in the second-level cache.
TILE_BYTES = 2**18
# Parts of the room: the rows that are decoded at a time, and one row.
ROWS_SHARE, ROW_SHARE = 32, 16

UNDECLARED_CATEGORY = (
    "a value that is not one of the declared categories; add it to categories if it is public, or "
    'write unknown = "none" in the schema'
)


class LabelDecoder:
    """Turns cells into labels, each one of the declared classes.

    Parameters
    ----------
    schema : TableSchema
        With classes.
    file : str
        Its name in messages.
    """

    def __init__(self, schema: TableSchema, file: str) -> None:
        if schema.classes is None:
            raise SchemaError(
                f"{schema.origin}: classes: missing; write the public labels, for example "
                'classes = ["no", "yes"] or classes = [0, 1]'
            )
        self._file, self._target = file, schema.target
        self._classes = np.array(schema.classes)
        self._lookup = Lookup(schema.classes, schema.text.missing_values)

    def __call__(self, values: Any, before: int) -> NDArray[Any]:
        """Labels of an array or a list of words, behind so many rows."""
        codes = self._lookup.codes(values)
        wrong = np.flatnonzero(codes < 0)
        if wrong.size:
            missing = codes[wrong[0]] == MISSING
            reason = "no label" if missing else "a label that is not one of the declared classes"
            raise cell_error(
                self._file,
                before + int(wrong[0]) + 1,
                self._target if isinstance(self._target, str) else "label",
                f"{reason}; correct the file, or classes in the schema",
            )
        found: NDArray[Any] = self._classes[codes]
        return found


class RowDecoder:
    """Turns the columns of a file into rows, and checks every cell.

    Parameters
    ----------
    schema : TableSchema
        With every column named.
    labelled : bool
    file : str
        Its name in messages.
    room : int, default=ROOM
        Bytes that reading may take.
    by_place : bool, default=False
        Whether rows come as matrices only.

    Attributes
    ----------
    max_rows : int
        To be decoded at a time.
    """

    def __init__(
        self,
        schema: TableSchema,
        *,
        labelled: bool,
        file: str,
        room: int = ROOM,
        by_place: bool = False,
    ) -> None:
        self.schema, self._file = schema, file
        # Columns of a matrix that are all alike need no object each.
        self._alike = schema.all_other_columns if by_place and schema.is_uniform else None
        self._width = schema.n_features
        if 4 * self._width > room // ROW_SHARE:
            raise TableError(
                f"{file}: a row has {self._width} features, and {room // ROW_SHARE // 4} are "
                "expected at most; write so wide a table as LIBSVM text, or give more memory: "
                "max_memory= of open_table, --max-memory of a command"
            )
        self.max_rows = max(1, room // ROWS_SHARE // (4 * self._width))
        texts = schema.text.missing_values
        self._numbers: list[tuple[int, Column]] = []
        self._coded: list[tuple[int, Column, Lookup]] = []
        place = 0
        for column in schema.features if self._alike is None else ():
            if column.bounds is None:
                self._coded.append((place, column, Lookup.of_column(column, texts)))
            else:
                self._numbers.append((place, column))
            place += column.width
        self.labels = LabelDecoder(schema, file) if labelled else None

    def rows(self, column: Callable[[str], Any], n_rows: int, before: int) -> Rows:
        """Rows of features.

        Parameters
        ----------
        column : callable
            From a name to its cells, an Arrow or numpy array.
        n_rows : int
        before : int
            Number of rows before these, for messages.
        """
        X = np.empty((n_rows, self._width), dtype=np.float32)
        cells = [(place, numbers(column(one.name))) for place, one in self._numbers]
        tile = max(16, TILE_BYTES // (4 * self._width))
        for start in range(0, n_rows, tile):
            stop = start + tile
            for place, values in cells:
                X[start:stop, place] = values[start:stop]
        for place, one, lookup in self._coded:
            self._encode(X, place, one, lookup.codes(column(one.name)), before)
        self._check(X, before)
        return X

    def matrix(self, block: NDArray[Any], before: int) -> Rows:
        """Rows of a file that is a matrix, its columns in the order of the schema."""
        if self._coded:
            places = {one.name: j for j, one in enumerate(self.schema.features)}
            return self.rows(lambda name: block[:, places[name]], len(block), before)
        with np.errstate(over="ignore"):
            X = np.array(block, dtype=np.float32, order="C")
        self._check(X, before)
        return X

    def _encode(
        self, X: Rows, place: int, column: Column, codes: NDArray[np.int64], before: int
    ) -> None:
        """Indicators of categories, or one feature of truth values."""
        wrong = np.flatnonzero(codes < -1)
        if wrong.size:
            row = before + int(wrong[0]) + 1
            if codes[wrong[0]] == UNDECLARED:
                reason = "expected true or false" if column.boolean else UNDECLARED_CATEGORY
            else:
                reason = _missing_reason(column)
            raise cell_error(self._file, row, column.name, reason)
        if column.boolean:
            X[:, place] = codes
            return
        X[:, place : place + column.width] = 0.0
        rows = np.flatnonzero(codes >= 0)
        X[rows, place + codes[rows]] = 1.0

    def _check(self, X: Rows, before: int) -> None:
        """Fill in public values for missing ones; refuse what is then not a number."""
        if np.isfinite(X).all():
            return
        if self._alike is not None and self._alike.missing is not None:
            X[np.isnan(X)] = self._alike.missing
        for place, column in self._numbers:
            if column.missing is not None:
                X[np.isnan(X[:, place]), place] = column.missing
        wrong = ~np.isfinite(X)
        if wrong.any():
            row, place = divmod(int(wrong.argmax()), self._width)
            if self._alike is not None:
                column = replace(self._alike, name=f"x{place}")
            else:
                column = next(one for at, one in self._numbers if at == place)
            reason = "not a finite number of single precision"
            if np.isnan(X[row, place]):
                reason = _missing_reason(column)
            raise cell_error(self._file, before + row + 1, column.name, reason)


def _missing_reason(column: Column) -> str:
    """What can be done."""
    if column.bounds is not None:
        example = f"missing = {column.bounds[0]:g}"
    else:
        example = "missing = false" if column.boolean else 'missing = "none"'
    return (
        "a missing value; remove the row, or write a public value that takes its place, for "
        f"example {example}, in the schema"
    )
