"""Convert tables of pandas, polars and pyarrow to one array of numbers.

The libraries are never imported here: a caller with such a table has imported its library.

A pandas frame of one NumPy float type, or with a sparse column, is left to scikit-learn, which
copies the frame unless it is in C order, and converts a frame of sparse columns to CSR. Every other
table is written column by column into one new C-ordered array: one copy of X, plus copies of
columns with missing values, several chunks or a type that NumPy lacks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import _safe_indexing

from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError

# Rows that are written at a time: small enough to stay in cache, whatever the number of columns.
BLOCK = 1024

_PUBLIC_CATEGORIES = "encode it, for example by OneHotEncoder(categories=...)"

_REMEDIES = (
    (("date", "time", "duration", "period"), "convert it to a number first"),
    (("object",), f"convert it to numbers first, or {_PUBLIC_CATEGORIES}"),
    (("cat", "enum", "dictionary", "string", "utf8"), f"first {_PUBLIC_CATEGORIES}"),
)


def tabular(X: Any) -> Any:
    """Return ``X`` as a table of a known library; None for other types.

    Raises
    ------
    TypeError
        A polars LazyFrame, which has no rows yet.
    """
    if _is(X, "polars", "LazyFrame"):
        raise InvalidTypeError(
            "X: got a polars LazyFrame, expected a DataFrame; call .collect() first"
        )
    if _is(X, "pyarrow", "RecordBatch"):
        return sys.modules["pyarrow"].Table.from_batches([X])
    framed = _is(X, "pandas", "DataFrame") or _is(X, "polars", "DataFrame")
    return X if framed or _is(X, "pyarrow", "Table") else None


def public_shape(X: Any) -> tuple[int, int] | None:
    """Return the numbers of rows and columns from metadata of ``X``; None if it has none."""
    if isinstance(X, (list, tuple)) and X and hasattr(X[0], "__len__"):
        shape: Any = (len(X), len(X[0]))
    else:
        shape = getattr(X, "shape", None)
    match shape:
        case (int(n_rows), int(n_columns)) if min(n_rows, n_columns) > 0:
            return n_rows, n_columns
    return None


def sparse_table(X: Any) -> bool:
    """Return whether ``X`` is a sparse matrix, or a pandas frame of sparse columns."""
    if _is(X, "pandas", "DataFrame"):
        return len(X.columns) > 0 and all(map(_is_sparse, X.dtypes))
    return bool(sparse.issparse(X))


def has_sparse(X: Any) -> bool:
    """Return whether ``X`` is a sparse matrix, or a pandas frame with a sparse column."""
    return bool(sparse.issparse(X)) or (
        _is(X, "pandas", "DataFrame") and any(map(_is_sparse, X.dtypes))
    )


def refuse_columns(table: Any) -> None:
    """Refuse the first column that is neither numeric nor boolean, by metadata alone.

    Raises
    ------
    ValueError
        The message has the name and type of the column.
    """
    sparse = True
    for name, dtype, numeric in _columns(table):
        if not numeric:
            words = "string" if str(dtype) == "str" else str(dtype).lower()
            remedy = next((r for keys, r in _REMEDIES if any(k in words for k in keys)), None)
            raise InvalidParameterError(
                f"X: column {name!r} has dtype {dtype}, expected numbers or booleans; "
                f"{remedy or 'leave it out'}"
            )
        sparse = sparse and _is_sparse(dtype)
    if sparse and _is(table, "pandas", "DataFrame"):
        for name, dtype in table.dtypes.items():
            if dtype.fill_value != 0:
                raise InvalidParameterError(
                    f"X: sparse column {name!r} has a fill value other than 0; convert it by "
                    "astype(pandas.SparseDtype(float, 0))"
                )


def table_rows(X: Any) -> Any:
    """Return C-ordered rows of a table, NaN for missing values; ``X`` if scikit-learn converts it.

    The result has single precision if that is exact for every column type, else double precision.
    """
    table = tabular(X)
    if table is None:
        return X
    if _is(table, "pandas", "DataFrame"):
        kinds = set(table.dtypes)
        if any(map(_is_sparse, kinds)) or kinds in ({np.dtype("f4")}, {np.dtype("f8")}):
            return X
    columns = list(_arrays(table))
    if not columns:
        return np.empty(table.shape)
    common = np.result_type(*(column.dtype for column in columns))
    rows = np.empty(table.shape, dtype=np.float32 if common == np.float32 else np.float64)
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        for j, column in enumerate(columns):
            block[:, j] = column[start : start + BLOCK]
    return rows


def named_array(X: Any) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Return dense rows, possibly with missing values, and column names if all are strings.

    Raises
    ------
    ValueError, TypeError
        A column does not hold numbers.
    """
    table = tabular(X)
    if table is None:
        return np.asarray(X), None
    refuse_columns(table)
    return np.asarray(table_rows(table)), feature_names(table)


def rows_at(X: Any, positions: NDArray[np.int64]) -> Any:
    """Return the rows at the given indices of an array, matrix, table or list."""
    # Older versions of scikit-learn do not take rows of Arrow tables.
    return X.take(positions) if _is(X, "pyarrow", "Table") else _safe_indexing(X, positions)


def column_names(X: Any) -> list[Any]:
    """Return the column names, which are public; empty if there are none."""
    if _is(X, "pyarrow", "Table") or _is(X, "pyarrow", "RecordBatch"):
        return list(X.schema.names)
    return list(getattr(X, "columns", ()))


def feature_names(X: Any) -> tuple[str, ...] | None:
    """Return the column names of a table if all are strings."""
    names = [] if tabular(X) is None else column_names(X)
    named = bool(names) and all(isinstance(name, str) for name in names)
    return tuple(names) if named else None


def label_values(y: Any) -> Any:
    """Convert ``y`` to an array if it is a table column or an array of NumPy strings.

    Scikit-learn would convert nullable integers to floats, and does not support NumPy 2 strings.

    Raises
    ------
    ValueError
        A label is missing.
    """
    if isinstance(y, np.ndarray):
        labels = y.astype(object) if y.dtype.kind == "T" else y
    elif _is(y, "pyarrow", "Array") or _is(y, "pyarrow", "ChunkedArray"):
        labels = np.asarray(y.to_pylist(), dtype=object) if y.null_count else np.asarray(y)
    elif _is(y, "pandas", "Series") or _is(y, "polars", "Series"):
        labels = np.asarray(of_numpy(y))
    else:
        return y
    if labels.dtype.kind == "O" and any(map(is_missing, labels.ravel())):
        raise InvalidParameterError("y: a label is missing; drop rows without a label")
    return labels


def of_numpy(column: Any) -> Any:
    """Return a column in a type that NumPy has; polars has 128-bit integers."""
    wide = str(getattr(column, "dtype", "")).endswith("Int128")
    return column.cast(sys.modules["polars"].Float64) if wide else column


def is_missing(item: Any) -> bool:
    """Return whether a cell is None, NaN, NaT or pandas' NA, which must not be compared."""
    if item is None or type(item).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(item, (float, np.floating, Decimal)) and math.isnan(item)


def _is(value: Any, library: str, name: str) -> bool:
    """Return whether the value has this type of an already imported library."""
    kind = getattr(sys.modules.get(library), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def _is_sparse(dtype: Any) -> bool:
    """Return whether the type is that of pandas' sparse columns."""
    return type(dtype).__name__ == "SparseDtype"


def _columns(table: Any) -> Iterator[tuple[Any, Any, bool]]:
    """Yield name and type of each column, and whether it is numeric or boolean.

    For polars the type is given by name only, because the repr of an Enum contains its categories.
    """
    if _is(table, "pandas", "DataFrame"):
        numeric: Callable[[Any], bool] = sys.modules["pandas"].api.types.is_numeric_dtype
        for name, dtype in table.dtypes.items():
            yield name, dtype, numeric(dtype) or dtype.kind == "b"
    elif _is(table, "polars", "DataFrame"):
        for name, dtype in table.schema.items():
            kind = str(dtype.base_type())
            yield name, kind, dtype.is_numeric() or kind == "Boolean"
    else:
        types = sys.modules["pyarrow"].types
        for field in table.schema:
            tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
            yield field.name, field.type, any(test(field.type) for test in tests)


def _arrays(table: Any) -> Iterator[NDArray[Any]]:
    """Yield every column as numbers, without a copy if the library can avoid it."""
    if _is(table, "pandas", "DataFrame"):
        for _, column in table.items():
            if isinstance(column.dtype, np.dtype):
                yield column.to_numpy()
            else:
                # Nullable columns; double precision except for the smallest types.
                single = column.dtype.kind == "f" and column.dtype.itemsize <= 4
                kind = np.float32 if single else np.float64
                yield column.to_numpy(dtype=kind, na_value=np.nan)
        return
    columns = table.columns if _is(table, "pyarrow", "Table") else table.get_columns()
    for column in columns:
        values = of_numpy(column).to_numpy()
        # Decimals, and booleans with missing ones, have no type in numpy; None becomes NaN.
        yield values.astype(np.float64) if values.dtype.kind == "O" else values
