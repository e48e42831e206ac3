"""Columns of cells to numbers, and to codes of declared values. No message quotes a cell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.exceptions import TableError
from dpsvm_fast.io._columns import NONE, Category, Column, quoted

__all__ = ["ZEROS", "Lookup", "cell_error", "numbers"]

# Codes below 0: all indicators are 0, no value, a value that is not declared.
ZEROS, MISSING, UNDECLARED = -1, -2, -3
# Python refuses to read thousands of digits, and says how many there were.
WHOLE = re.compile(r"[+-]?[0-9]{1,100}(\.0*)?", re.ASCII)
TRUTH: tuple[Category, ...] = ("false", "true")


def cell_error(file: str, row: int, column: str, reason: str) -> TableError:
    """Return an error that says where: rows count from 1, without the header."""
    return TableError(f"{file}: row {row}, column {quoted(column)}: {reason}")


def numbers(values: Any) -> NDArray[np.float32]:
    """Cells of an Arrow or numpy array of numbers; NaN where there is none, inf beyond float32."""
    if isinstance(values, np.ndarray):
        with np.errstate(over="ignore"):
            return values.astype(np.float32, copy=False)
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not pa.types.is_float32(values.type):
        values = _cast(values, pa)
    found: NDArray[np.float32] = values.to_numpy(zero_copy_only=False)
    return found


def _cast(values: Any, pa: Any) -> Any:
    """As float32; some types have no way there but through float64."""
    if pa.types.is_float16(values.type) or pa.types.is_null(values.type):
        found = values.to_numpy(zero_copy_only=False)
        return pa.array(found.astype(np.float32))
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    return values.cast(pa.float32(), safe=False)


class Lookup:
    """Codes of the values of one column.

    Parameters
    ----------
    declared : sequence of str and int
        Code 0, 1, ...
    missing_texts : sequence of str
        Texts that stand for no value, unless they are declared.
    missing, undeclared : int
        Codes of no value, and of one that is not declared.
    """

    def __init__(
        self,
        declared: Sequence[Category],
        missing_texts: Sequence[str],
        *,
        missing: int = MISSING,
        undeclared: int = UNDECLARED,
    ) -> None:
        self._codes = {str(value).strip(): code for code, value in enumerate(declared)}
        self._whole = {value: code for code, value in enumerate(declared) if _is_whole(value)}
        self._missing_texts = {text.strip() for text in missing_texts}
        self._missing, self._undeclared = missing, undeclared

    @classmethod
    def of_column(cls, column: Column, missing_texts: Sequence[str]) -> Lookup:
        """For a column of categories or of truth values."""
        declared = TRUTH if column.categories is None else column.categories
        undeclared = ZEROS if column.unknown == "none" else UNDECLARED
        missing, value = MISSING, column.missing
        if isinstance(value, bool):
            missing = int(value)
        elif value is not None:
            missing = declared.index(value) if value in declared else ZEROS
            assert missing >= 0 or value == NONE
        found = cls(declared, missing_texts, missing=missing, undeclared=undeclared)
        if column.boolean:
            found._codes |= {"False": 0, "FALSE": 0, "True": 1, "TRUE": 1}
            found._whole = {0: 0, 1: 1}
        return found

    def codes(self, values: Any) -> NDArray[np.int64]:
        """Return a code for each cell of an Arrow or numpy array, or of a list of words."""
        if isinstance(values, list):
            known = {value: self._code(value) for value in set(values)}
            return np.fromiter(map(known.__getitem__, values), np.int64, len(values))
        if isinstance(values, np.ndarray):
            unique, places = np.unique(values, return_inverse=True)
            return self._of_unique(unique.tolist())[places.ravel()]
        if not hasattr(values, "dictionary"):
            values = values.dictionary_encode()
        codes = self._of_unique(values.dictionary.to_pylist())
        # One more, for cells without a value.
        codes = np.append(codes, self._missing)
        places = values.indices.fill_null(len(codes) - 1) if values.null_count else values.indices
        found: NDArray[np.int64] = codes[places.to_numpy(zero_copy_only=False)]
        return found

    def _of_unique(self, values: Iterable[Any]) -> NDArray[np.int64]:
        """Codes of different values."""
        return np.fromiter(map(self._code, values), dtype=np.int64)

    def _code(self, value: Any) -> int:
        """Code of one value, as text where it is text in the file."""
        if value is None or value != value:
            return self._missing
        if isinstance(value, bytes):
            value = value.decode("utf-8", errors="replace")
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


def _is_whole(value: Any) -> bool:
    """Whether it was declared as an integer."""
    return isinstance(value, int) and not isinstance(value, bool)
