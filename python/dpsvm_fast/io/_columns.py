"""What a schema says of one column, and the features that it becomes."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpsvm_fast.exceptions import SchemaError
from dpsvm_fast.io._toml_text import toml_key

__all__ = [
    "MAX_COLUMNS",
    "MAX_FEATURES",
    "NO_BOUNDS",
    "UNKNOWN",
    "Column",
    "check_keys",
    "quoted",
    "repeated",
    "shown",
]

KEYS = ("bounds", "categories", "boolean", "ignore", "missing", "unknown")
UNKNOWN = ("refuse", "none")
# The value of ``missing`` that leaves every indicator of a category at 0.
NONE = "none"
MAX_FEATURES = 2**31 - 1
# Of columns that have names, each an object of some hundred bytes here and in Arrow.
MAX_COLUMNS = 2**18
# Marks a column that says nothing of its values, until all of them have been seen.
NO_BOUNDS = "no bounds"
# Rows are stored as float32; beyond this a bound would be infinite there.
LARGEST = 3.4e38

Category = str | int


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a file. Exactly one of bounds, categories, boolean and ignore is given.

    Parameters
    ----------
    name : str
    bounds : tuple of two floats or None
        Public lowest and highest value of a number.
    categories : tuple of str and int, or None
        Public values; each becomes a feature that is 1 or 0.
    boolean : bool
        Whether cells are true and false: one feature that is 1 or 0.
    ignore : bool
        Whether the column is left out.
    missing : float, str, int, bool or None
        Public value in place of a missing one; None refuses it.
    unknown : {"refuse", "none"}
        What becomes of a category that is not declared; "none": all features are 0.
    """

    name: str
    bounds: tuple[float, float] | None = None
    categories: tuple[Category, ...] | None = None
    boolean: bool = False
    ignore: bool = False
    missing: Any = None
    unknown: str = "refuse"

    @property
    def width(self) -> int:
        """Number of features."""
        if self.ignore:
            return 0
        return 1 if self.categories is None else len(self.categories)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        if self.categories is None:
            return () if self.ignore else (self.name,)
        return tuple(f"{self.name}={category}" for category in self.categories)

    @property
    def feature_bounds(self) -> tuple[float, float]:
        """Lowest and highest value of each feature."""
        return (0.0, 1.0) if self.bounds is None else self.bounds

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without defaults."""
        record: dict[str, Any] = {}
        if self.bounds is not None:
            record["bounds"] = list(self.bounds)
        if self.categories is not None:
            record["categories"] = list(self.categories)
        for key in ("boolean", "ignore"):
            if getattr(self, key):
                record[key] = True
        if self.missing is not None:
            record["missing"] = self.missing
        if self.unknown != "refuse":
            record["unknown"] = self.unknown
        return record

    @classmethod
    def from_dict(cls, name: str, record: Any, where: str) -> Column | None:
        """Check what was written; None where bounds are missing.

        Parameters
        ----------
        name : str
        record : object
            The values of the keys.
        where : str
            The place in the file, for messages.
        """
        if not isinstance(record, Mapping):
            raise SchemaError(
                f"{where}: got {shown(record)}, expected a table such as {{ bounds = [0, 1] }}"
            )
        check_keys(where, record, KEYS)
        kinds = [key for key in KEYS[:4] if record.get(key) not in (None, False, [])]
        if not kinds and all(record.get(key) in (None, []) for key in KEYS[:4]):
            return None
        if len(kinds) != 1:
            raise SchemaError(
                f"{where}: got {' and '.join(kinds) or 'nothing'}, expected exactly one of "
                "bounds, categories, boolean = true and ignore = true"
            )
        kind = kinds[0]
        if kind == "bounds":
            values: dict[str, Any] = {"bounds": _bounds(where, record["bounds"])}
        elif kind == "categories":
            values = {"categories": _categories(where, record["categories"])}
        else:
            values = {kind: _true(where, kind, record[kind])}
        column = cls(name, **values, unknown=_unknown(where, record, kind))
        missing = record.get("missing")
        if missing is None:
            return column
        return replace(column, missing=_missing(where, missing, column))


def check_keys(where: str, record: Mapping[Any, Any], accepted: tuple[str, ...]) -> None:
    """Refuse a key that means nothing: a slip of the pen must not switch a setting off."""
    for key in record:
        if key not in accepted:
            place = ".".join(filter(None, [where, toml_key(str(key)[:60])]))
            near = difflib.get_close_matches(str(key), accepted, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SchemaError(f"{place}: unknown key, expected one of {', '.join(accepted)}{hint}")


def shown(value: Any) -> str:
    """Return a public value in a message, or its kind where it is long."""
    if value is None:
        return "nothing"
    # No long text is made to be thrown away; a number of thousands of digits has none.
    long = isinstance(value, (str, bytes, list, tuple, dict)) and len(value) > 60
    long = long or (isinstance(value, int) and value.bit_length() > 200)
    try:
        text = "" if long else repr(value)
    except ValueError:
        text = ""
    return text if 0 < len(text) <= 60 else f"a long {type(value).__name__}"


def quoted(name: str) -> str:
    """Return a name from a file for a message: its beginning where it is long."""
    return repr(name) if len(name) <= 60 else f"{name[:60]!r}..."


def repeated(names: Sequence[str]) -> str:
    """Return the names that occur more than once, for a message; "" where none does."""
    twice = sorted(name for name, n in Counter(names).items() if n > 1)
    return ", ".join(map(quoted, twice[:10])) + (", ..." if len(twice) > 10 else "")


def is_number(value: Any) -> bool:
    """Whether it is a number and no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _bounds(where: str, value: Any) -> tuple[float, float]:
    """Two finite numbers, the lower one first."""
    accepted = "[low, high] with two finite numbers, low < high"
    if (
        not isinstance(value, (list, tuple))
        or len(value) != 2
        or not all(map(is_number, value))
        or not all(abs(end) <= LARGEST for end in value)
        or not value[0] < value[1]
    ):
        raise SchemaError(f"{where}.bounds: got {shown(value)}, expected {accepted}")
    return float(value[0]), float(value[1])


def _categories(where: str, value: Any) -> tuple[Category, ...]:
    """Different strings or integers."""
    accepted = "a list of different strings or integers"
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(one, str)
        or (isinstance(one, int) and not isinstance(one, bool) and abs(one) < 2**63)
        for one in value
    ):
        raise SchemaError(f"{where}.categories: got {shown(value)}, expected {accepted}")
    # Cells are compared as text without blanks around it.
    if twice := repeated([str(one).strip() for one in value]):
        raise SchemaError(f"{where}.categories: got {twice} twice, expected {accepted}")
    return tuple(value)


def _true(where: str, key: str, value: Any) -> bool:
    """The literal true."""
    if value is not True:
        raise SchemaError(f"{where}.{key}: got {shown(value)}, expected true or false")
    return True


def _unknown(where: str, record: Mapping[str, Any], kind: str) -> str:
    """What becomes of categories that are not declared."""
    value = record.get("unknown", "refuse")
    if value not in UNKNOWN or (value != "refuse" and kind != "categories"):
        accepted = "'refuse' or, for categories, 'none' (all of its features are 0)"
        raise SchemaError(f"{where}.unknown: got {shown(value)}, expected {accepted}")
    return str(value)


def _missing(where: str, value: Any, column: Column) -> Any:
    """A public value that may stand in the column."""
    if column.bounds is not None:
        low, high = column.bounds
        if is_number(value) and low <= value <= high:
            return float(value)
        accepted = f"a number from {low:g} to {high:g}, its bounds"
    elif column.categories is not None:
        if value in column.categories and not isinstance(value, bool):
            return value
        if value == NONE:
            return NONE
        accepted = "one of its categories, or 'none' (all of its features are 0)"
    elif column.boolean:
        if isinstance(value, bool):
            return value
        accepted = "true or false"
    else:
        accepted = "no such key for a column that is ignored"
    raise SchemaError(f"{where}.missing: got {shown(value)}, expected {accepted}")
