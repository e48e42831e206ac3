"""Encoding of data frames and dicts of arrays as rows of features, by a schema."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import validation as check
from dpsvm_fast.data.readers import ACCEPTED, TYPES, RowDecoder, RowFault, kind_of
from dpsvm_fast.data.schema import Bounds, Column, TableSchema, quoted, repeated, template_lines
from dpsvm_fast.estimators.frames import column_names, is_missing, of_numpy, tabular
from dpsvm_fast.exceptions import InvalidTypeError, TableError
from dpsvm_fast.preprocessing import PublicTransformer


@dataclass(eq=False, repr=False)
class SchemaEncoder(PublicTransformer):
    """Encode a table by its schema; learns nothing from the rows and costs no budget.

    Numbers are kept, categories become indicators or positions on a scale, booleans 1 and 0, dates
    the days since the first declared date, and texts hashed words. Declared values replace missing
    ones. `open_table` and the command line use the same encoding.

    Parameters
    ----------
    schema : TableSchema or mapping
        Public facts about the columns, as a schema or as plain values of its file.

    Attributes
    ----------
    bounds : tuple of two ndarrays of shape (n_columns_out,)
        Lowest and highest value of each feature, for ``bounds=`` of the following estimator.
    schema_ : TableSchema
        Schema with every column named.
    n_features_in_ : int
        Number of columns read.
    feature_names_in_ : ndarray of shape (n_columns,)
        Names of the columns, in the order of the features.

    Notes
    -----
    Guarantees: each row is encoded independently by public facts, so this step costs no privacy and
    ``total_privacy`` counts it as free. An error names a column, never a cell or a row. Whether an
    error occurs depends on the data and is not covered by (epsilon, delta). Proof:
    docs/proofs/private_scaling.md, section "Pipelines".

    Columns are found by name, in any order. The schema's target, person and weight columns may be
    present and are skipped. Rows are dense, in single precision.

    Examples
    --------
    >>> from dpsvm_fast.data import SchemaEncoder
    >>> columns = {"age": {"bounds": [0, 100], "missing": 40}, "work": {"categories": ["a", "b"]}}
    >>> encoder = SchemaEncoder({"columns": columns})
    >>> encoder.fit_transform({"age": [31, None], "work": ["b", "a"]}).tolist()
    [[31.0, 0.0, 1.0], [40.0, 1.0, 0.0]]
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'work=a', 'work=b']
    """

    schema: Any

    schema_: TableSchema = field(init=False)

    def fit(self, X: Any, y: Any = None) -> SchemaEncoder:
        """Check that the columns fit the schema; no cell is read.

        Parameters
        ----------
        X : DataFrame, Table, RecordBatch or mapping of str to arrays
            A table of pandas, polars or pyarrow, or one array for each column.
        y : ignored

        Returns
        -------
        SchemaEncoder
            This transformer.

        Raises
        ------
        SchemaError, TableError
            The schema is wrong, or a column is missing or undeclared.
        TypeError
            X is not a table.
        """
        named = _named(checked_schema(self.schema), _table(X)[1])
        self.__dict__.update(schema_=named, **read_columns(named))
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Encode rows; ``fit`` is not required if the schema names all columns.

        Parameters
        ----------
        X : DataFrame, Table, RecordBatch or mapping of str to arrays
            As for ``fit``.

        Returns
        -------
        ndarray of shape (n_samples, n_columns_out)

        Raises
        ------
        SchemaError, TableError
            A column is missing or undeclared, or a cell violates the schema.
        TypeError
            X is not a table.
        """
        table, names = _table(X)
        schema = _named(known_schema(self), names)
        decoder = RowDecoder(schema, labelled=False)
        try:
            cells = [
                decoder.cells(number, _cells(table[one.name], one))
                for number, one in enumerate(schema.features)
            ]
            if len({len(column) for column in cells}) > 1:
                raise TableError("X: columns have different lengths")
            rows: NDArray[np.float32] = decoder.rows(cells)[0]
        except RowFault as fault:
            raise fault.error("X", None) from None
        return rows

    @property
    def bounds(self) -> Bounds:
        """Lowest and highest value of each feature."""
        return known_schema(self).bounds

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the feature names: ``column``, ``column=category``, ``column[place]``.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str
        """
        return np.array(known_schema(self).feature_names, dtype=object)

    @property
    def _n_features_out(self) -> int:
        """Number of features."""
        return known_schema(self).n_features

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether the columns are known."""
        return "schema_" in vars(self) or not self.__sklearn_tags__().requires_fit

    def __sklearn_tags__(self) -> Any:
        """Declare that any cells are accepted, and whether a fit is needed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse, tags.input_tags.two_d_array = False, False
        tags.transformer_tags.preserves_dtype = []
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        given = self.schema
        other = given.get("all_other_columns") if isinstance(given, Mapping) else None
        tags.requires_fit = getattr(given, "all_other_columns", other) is not None
        return tags


def read_columns(schema: TableSchema) -> dict[str, Any]:
    """Return the declared columns that a fitted encoder reads."""
    names = [column.name for column in schema.features]
    return {"n_features_in_": len(names), "feature_names_in_": np.array(names, dtype=object)}


def known_schema(encoder: SchemaEncoder) -> TableSchema:
    """Return the schema of the fit, or the given one if it names all columns."""
    fitted: TableSchema | None = vars(encoder).get("schema_")
    if fitted is not None:
        return fitted
    schema = checked_schema(encoder.schema)
    if schema.all_other_columns is not None:
        check_is_fitted(encoder)
    return schema


def leading_encoder(model: Any) -> SchemaEncoder | None:
    """Return the encoder at the start of a model; None if its rows are numbers."""
    model = getattr(model, "best_estimator_", model)
    steps = getattr(model, "steps", None)
    if steps:
        return leading_encoder(steps[0][1])
    return model if isinstance(model, SchemaEncoder) else None


def checked_schema(value: Any) -> TableSchema:
    """Return the schema, built from plain values if these are given."""
    if isinstance(value, TableSchema):
        return value
    if not isinstance(value, Mapping):
        accepted = 'a TableSchema or a dict such as {"columns": {"age": {"bounds": [0, 100]}}}'
        raise InvalidTypeError.of("schema", value, f"{accepted}; TableSchema.load reads a file")
    return TableSchema.from_dict(value)


def frame_template(
    frame: Any, *, target: str | None, person: str | None, public: Sequence[str]
) -> str:
    """Implement ``TableSchema.from_frame``."""
    target, person = check.check_column("target", target), check.check_column("person", person)
    public = check.check_items("public", public, "a list of column names")
    for name in public:
        check.check_type("public", name, str, "a list of column names")
    (table, names), named = _table(frame), filter(None, (target, person))
    present, values_shown = set(names), set(public)
    if unknown := [name for name in (*public, *named) if name not in present]:
        raise TableError(f"X: no column {quoted(str(unknown[0]))}")
    facts = {name: _facts(table[name], known=name in values_shown) for name in names}
    classes = []
    if target is not None:
        classes = _values(table[target]) if target in values_shown else []
        classes = sorted({one for one in classes if not is_missing(one)})
    return template_lines(target, facts, classes, person)


def _facts(column: Any, *, known: bool) -> str:
    """Return the schema entry of a column, with its values if they are public."""
    kind = _kind(column)
    found = [one for one in _values(column) if not is_missing(one)] if known else []
    if kind == "boolean" or (found and all(isinstance(one, bool) for one in found)):
        return "boolean = true"
    if found and all(isinstance(one, datetime.date) for one in found):
        kind = "dates"
    try:
        found = sorted(set(found))
    except TypeError:
        # Values of several types.
        found = []
    if kind != "categories" and found:
        found = [str(one) if kind == "dates" else one for one in (found[0], found[-1])]
    return f"{kind} = {json.dumps(found, ensure_ascii=False)}"


def _named(schema: TableSchema, names: list[str]) -> TableSchema:
    """Return the schema of a table with these columns, without labels."""
    if isinstance(schema.target, int):
        # A place in a file.
        schema = replace(schema, target=None)
    return schema.of_names(names, labelled=False, file="X")


def _table(X: Any) -> tuple[Any, list[str]]:
    """Return a table whose columns are items, with their names; no column is taken out yet."""
    table = tabular(X)
    if table is None and not isinstance(X, Mapping):
        accepted = "a data frame of pandas, polars or pyarrow, or a dict of arrays"
        raise InvalidTypeError.of("X", X, f"{accepted}: columns are found by name")
    names = list(X) if table is None else column_names(table)
    if not all(isinstance(name, str) for name in names):
        raise InvalidTypeError("X: expected strings as column names")
    if twice := repeated(names):
        raise TableError(f"X: duplicate column name {twice}")
    return X if table is None else table, names


def _kind(column: Any) -> str:
    """Return the kind of schema entry for a column, from its type only."""
    dtype = getattr(column, "type", None) or getattr(column, "dtype", None)
    if dtype is None:
        dtype = np.asarray(column).dtype
    # Only the name for polars, since that of an Enum has its categories; for sparse columns the
    # type of their values.
    dtype = dtype.base_type() if hasattr(dtype, "base_type") else getattr(dtype, "subtype", dtype)
    return kind_of(dtype) or "categories"


def _values(column: Any) -> list[Any]:
    """Return cells as Python objects."""
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)


def _cells(values: Any, column: Column) -> Any:
    """Return cells of a column of any library, in the form for ``RowDecoder``.

    Raises
    ------
    RowFault
        The type of the cells does not fit the schema.
    """
    dtype: Any = getattr(values, "dtype", None)
    is_numpy = isinstance(dtype, np.dtype) and not isinstance(values, np.ma.MaskedArray)
    if is_numpy and dtype.kind in "biuf":
        # First, since asking pandas for what it does not have takes long.
        return np.asarray(values)
    if hasattr(values, "combine_chunks"):
        # An array of pyarrow, which has known types: one chunk, or several combined.
        values = values.combine_chunks()
    if hasattr(values, "to_pylist"):
        kind = kind_of(values.type)
        if kind in (ACCEPTED["bounds"][0] if column.bounds is not None else TYPES):
            return values
    kind = getattr(dtype, "kind", "") or ""
    if kind == "M" and column.dates is not None:
        if getattr(dtype, "tz", None) is not None:
            values = values.dt.tz_convert(None)
        if isinstance(values.dtype, np.dtype):
            return np.asarray(values)
    if (
        not is_numpy
        and column.bounds is not None
        and hasattr(values, "to_numpy")
        and dtype is not None
    ):
        # pandas' own types say their kind; polars has NaN for what is missing.
        how = {"dtype": np.float64, "na_value": np.nan} if kind and kind in "biuf" else {}
        found = of_numpy(values).to_numpy(**how)
        if found.dtype.kind in "biuf":
            return found
    return _of_objects(_values(values), column)


def _of_objects(cells: list[Any], column: Column) -> Any:
    """Return cells that are Python objects; for a numeric column as an array of numbers."""
    if column.bounds is None:
        try:
            hash(tuple(cells))
        except TypeError:
            raise _not_of(column, "a list or another value that is not a cell") from None
        return cells
    found = np.full(len(cells), np.nan)
    for place, cell in enumerate(cells):
        if not is_missing(cell):
            if not isinstance(cell, (int, float, Decimal, np.number, np.bool_)):
                raise _not_of(column, "text or another value that is not a number")
            try:
                found[place] = float(cell)
            except OverflowError:
                found[place] = np.inf
    return found


def _not_of(column: Column, got: str) -> RowFault:
    """Return the fault of a column of another type than declared."""
    return RowFault(f"got {got}; convert it, or correct the schema", column=column.name)
