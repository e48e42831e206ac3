"""Checks of a schema's tree of plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsvm_fast.exceptions import SchemaError
from dpsvm_fast.io._columns import MAX_FEATURES, Category, Column, check_keys, shown
from dpsvm_fast.io._text_format import TextFormat
from dpsvm_fast.io._toml_text import column_lines, toml_key

__all__ = ["schema_values"]

# Every label takes as much memory as the longest one.
LONGEST_CLASS, MOST_CHARACTERS = 1000, 1 << 24
KEYS = (
    "target",
    "classes",
    "n_features",
    "zero_based",
    "extra_columns",
    "csv",
    "columns",
    "all_other_columns",
)


def schema_values(record: Any) -> dict[str, Any]:
    """Return what ``TableSchema`` is built from."""
    if not isinstance(record, Mapping):
        raise SchemaError(f"got {shown(record)}, expected a table of keys and values")
    check_keys("", record, KEYS)
    values: dict[str, Any] = {
        "target": _target(record.get("target")),
        "classes": _classes(record.get("classes")),
        "declared_width": _width(record.get("n_features")),
        "zero_based": _flag("zero_based", record.get("zero_based", False)),
        "extra_columns": _option(record.get("extra_columns", "refuse")),
        "text": TextFormat.from_dict(record.get("csv", {})),
    }
    other = record.get("all_other_columns")
    columns, lacking = _columns(record.get("columns", {}))
    if other is not None:
        values["all_other_columns"] = _other_columns(other)
        # A column that is only named takes what is said of all others, in its place.
        columns = _filled(columns, other)
    elif lacking:
        raise SchemaError(
            f"no bounds for {len(lacking)} column{'s' if len(lacking) > 1 else ''}: write public "
            "ones (or categories = [...], or ignore = true) in [columns]:\n"
            f"{column_lines(lacking)}"
        )
    elif not columns:
        raise SchemaError(
            "columns: missing; say what each column is, for example:\n"
            "[columns]\n  age = { bounds = [0, 100] }"
        )
    if other is not None and values["extra_columns"] == "ignore":
        raise SchemaError(
            "extra_columns: got 'ignore', expected it only without all_other_columns, which "
            "leaves no column over"
        )
    values["columns"] = tuple(columns.values())
    if isinstance(values["target"], str) and values["target"] in columns:
        raise SchemaError(target_is_feature(values["target"]))
    return values


def target_is_feature(name: str, origin: str | None = None) -> str:
    """Return the sentence about a label among the features, which would be no learning at all."""
    place = f"{origin}: columns" if origin else "columns"
    return f"{place}.{toml_key(name[:60])}: it is the target and cannot be a feature: remove it"


def _columns(record: Any) -> tuple[dict[str, Any], list[str]]:
    """Columns by name, None where nothing is said of their values, and the names of these."""
    if isinstance(record, list):
        record = _named_columns(record)
    if not isinstance(record, Mapping):
        raise SchemaError(f"columns: got {shown(record)}, expected a table [columns]")
    found: dict[str, Any] = {}
    for name, one in record.items():
        if not isinstance(name, str) or not name.strip():
            raise SchemaError(f"columns: got the name {shown(name)}, expected text")
        if name != name.strip():
            raise SchemaError(f"columns: got the name {shown(name)}, expected no blanks around it")
        found[name] = Column.from_dict(name, one, f"columns.{toml_key(name[:60])}")
    return found, [name for name, column in found.items() if column is None]


def _named_columns(records: list[Any]) -> dict[str, Any]:
    """Columns by name, from a list of tables that say their name."""
    found: dict[str, Any] = {}
    for place, one in enumerate(records):
        name = one.get("name") if isinstance(one, Mapping) else None
        if not isinstance(name, str) or name in found:
            raise SchemaError(
                f"columns[{place}]: got {shown(one)}, expected a table with a name of its own, "
                'such as { name = "age", bounds = [0, 100] }'
            )
        found[name] = {key: value for key, value in one.items() if key != "name"}
    return found


def _filled(columns: Mapping[str, Any], other: Any) -> dict[str, Any]:
    """Columns that say nothing, with what is said of all others."""
    where = "all_other_columns"
    return {
        name: Column.from_dict(name, other, where) if column is None else column
        for name, column in columns.items()
    }


def _other_columns(record: Any) -> Column:
    """Numbers within bounds."""
    column = Column.from_dict("", record, "all_other_columns")
    if column is None or column.bounds is None:
        raise SchemaError(
            f"all_other_columns: got {shown(record)}, expected bounds = [low, high] and perhaps "
            "missing"
        )
    return column


def _target(value: Any) -> str | int | None:
    """A name or a place."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if not isinstance(value, str) or not value.strip():
        raise SchemaError(
            f"target: got {shown(value)}, expected the name of the column of labels, or its place "
            "(0 is the first column, -1 the last)"
        )
    return value.strip()


def _classes(value: Any) -> tuple[Category, ...] | None:
    """At least two strings, or at least two integers."""
    if value is None:
        return None
    strings = isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)
    integers = isinstance(value, (list, tuple)) and all(
        isinstance(one, int) and not isinstance(one, bool) and abs(one) < 2**63 for one in value
    )
    if not (strings or integers) or len({str(one).strip() for one in value}) != len(value):
        raise SchemaError(
            f"classes: got {shown(value)}, expected a list of different strings, or of different "
            "integers; true and false are written as strings"
        )
    if len(value) < 2:
        raise SchemaError(f"classes: got {shown(value)}, expected at least two classes")
    longest = max(map(len, map(str, value)))
    if longest > LONGEST_CLASS or longest * len(value) > MOST_CHARACTERS:
        raise SchemaError(f"classes: expected names of at most {LONGEST_CLASS} characters")
    return tuple(value)


def _width(value: Any) -> int | None:
    """A number of features."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_FEATURES:
        raise SchemaError(f"n_features: got {shown(value)}, expected an integer >= 1")
    return value


def _flag(key: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise SchemaError(f"{key}: got {shown(value)}, expected true or false")
    return value


def _option(value: Any) -> str:
    """What becomes of columns that are not named."""
    if value not in ("refuse", "ignore") or not isinstance(value, str):
        raise SchemaError(f"extra_columns: got {shown(value)}, expected 'refuse' or 'ignore'")
    return value
