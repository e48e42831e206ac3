"""Types of columns in Parquet and Arrow files: public, and checked before a row is read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from dpsvm_fast.exceptions import TableError
from dpsvm_fast.io._columns import MAX_COLUMNS, Column, quoted, repeated

__all__ = ["check_type", "column_types", "hint", "reading"]


@contextlib.contextmanager
def reading(file: str) -> Iterator[None]:
    """Turn Arrow's errors, which may quote cells, into one that names the file only."""
    from pyarrow import ArrowException

    is_damaged = False
    try:
        yield
    except (ArrowException, OSError, UnicodeError) as error:
        if getattr(error, "errno", None) is not None:
            # The system's own word: no such file, no permission.
            raise
        is_damaged = True
    if is_damaged:
        # Here, and not above, so that Arrow's error does not travel along.
        raise TableError(f"{file}: the file is damaged or cut off; copy it again")


def column_types(file: str, schema: Any) -> dict[str, Any]:
    """Return types by name of column, which must be different."""
    names = list(schema.names)
    if len(names) > MAX_COLUMNS:
        raise TableError(f"{file}: got {len(names)} columns, expected at most {MAX_COLUMNS}")
    if twice := repeated(names):
        raise TableError(f"{file}: got columns named {twice} twice, expected different names")
    return dict(zip(names, schema.types, strict=True))


def check_type(file: str, column: Column, kind: Any) -> None:
    """Refuse a type that is no number, or no category."""
    if _is_number(kind) or (_is_text(kind) and column.bounds is None):
        return
    expected = "numbers" if column.bounds is not None else "text, integers or truth values"
    raise TableError(
        f"{file}: column {quoted(column.name)} has type {str(kind)[:60]}, expected {expected}; "
        "correct the file, or what the schema says of the column"
    )


def hint(kind: Any) -> str:
    """Return what a schema may say of a column of this type."""
    from pyarrow import types

    if _is_text(kind):
        return "categories = []"
    if types.is_boolean(_plain(kind)):
        return "boolean = true"
    return "bounds = []" if _is_number(kind) else "ignore = true"


def _plain(kind: Any) -> Any:
    """The type of the values, where they are kept in a dictionary."""
    from pyarrow import types

    return kind.value_type if types.is_dictionary(kind) else kind


def _is_number(kind: Any) -> bool:
    """Whether cells are numbers, truth values, or all missing."""
    from pyarrow import types

    plain = _plain(kind)
    tests = (
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_decimal,
        types.is_null,
    )
    return any(test(plain) for test in tests)


def _is_text(kind: Any) -> bool:
    """Whether cells are strings."""
    from pyarrow import types

    plain = _plain(kind)
    is_view = getattr(types, "is_string_view", None)
    tests = (types.is_string, types.is_large_string, *([is_view] if is_view else []))
    return any(test(plain) for test in tests)
