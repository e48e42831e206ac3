"""How a CSV file is written."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpsvm_fast.exceptions import SchemaError
from dpsvm_fast.io._columns import check_keys, shown

__all__ = ["NO_NAMES", "TextFormat", "may_be_a_row", "other_delimiter"]

MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "-nan", "null", "NULL", "None", "<NA>")
NUMBER = re.compile(r"[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
NO_NAMES = (
    "names that are numbers and not shown here: where they are the cells of a first row, write "
    "header = false in the [csv] table of the schema"
)
KEYS = ("delimiter", "decimal", "quote", "encoding", "header", "missing_values")


@dataclass(frozen=True)
class TextFormat:
    """The table ``[csv]`` of a schema.

    Parameters
    ----------
    delimiter : str or None
        Between cells; None stands for a comma, or a tab in ``.tsv`` files.
    decimal : {".", ","}
        The decimal mark.
    quote : str
        Around cells that contain a delimiter or a new line; "" for none.
    encoding : str
    header : bool or tuple of str
        Whether the first row names the columns; or their names, where the file has no header.
    missing_values : tuple of str
        Cells that stand for a missing value.
    """

    delimiter: str | None = None
    decimal: str = "."
    quote: str = '"'
    encoding: str = "utf-8"
    header: bool | tuple[str, ...] = True
    missing_values: tuple[str, ...] = MISSING

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without defaults."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in vars(self).items()
            if value != getattr(TextFormat, key)
        }

    @classmethod
    def from_dict(cls, record: Any) -> TextFormat:
        """Check what was written."""
        if not isinstance(record, Mapping):
            raise SchemaError(f"csv: got {shown(record)}, expected a table [csv]")
        check_keys("csv", record, KEYS)
        for key, value in record.items():
            accepted = _refusal(key, value)
            if accepted is not None:
                raise SchemaError(f"csv.{key}: got {shown(value)}, expected {accepted}")
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, (list, tuple)) else v for k, v in record.items()
        }
        text = cls(**values)
        if text.delimiter is None and text.decimal == ",":
            raise SchemaError("csv.decimal: got ',', which needs a delimiter such as \";\" too")
        if len({text.delimiter, text.decimal, text.quote}) != 3:
            raise SchemaError("csv: delimiter, decimal and quote: expected three different ones")
        return text


def _refusal(key: str, value: Any) -> str | None:
    """What is accepted, where this is not."""
    if key == "delimiter":
        return None if _is_mark(value) else "one ASCII character, no letter, digit or line end"
    if key == "quote":
        return None if value == "" or _is_mark(value) else "one ASCII character or ''"
    if key == "decimal":
        return None if value in (".", ",") and isinstance(value, str) else "'.' or ','"
    if key == "encoding":
        return None if _is_encoding(value) else "the name of a text encoding such as 'latin-1'"
    texts = isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)
    if key == "missing_values":
        return None if texts else "a list of strings"
    if isinstance(value, bool) or (texts and value and len(set(value)) == len(value)):
        return None
    return "true, false or the list of the columns' names, each once"


def _is_mark(value: Any) -> bool:
    """Whether it can separate or surround cells."""
    return (
        isinstance(value, str)
        and len(value) == 1
        and (value == "\t" or " " <= value <= "~")
        and not value.isalnum()
        and value not in "+-."
    )


def _is_encoding(value: Any) -> bool:
    """Whether Python knows the encoding, and it is one of text."""
    try:
        return isinstance(value, str) and codecs.lookup(value)._is_text_encoding
    except (LookupError, ValueError):
        return False


def other_delimiter(names: Sequence[str]) -> str:
    """What seems to separate the cells of a header that was read as one name, or nothing."""
    return next((mark for mark in ";\t|," if len(names) == 1 and mark in names[0]), "")


def may_be_a_row(names: Sequence[str]) -> bool:
    """Whether names of columns may be cells, which no message quotes: some are numbers.

    Numbers that say the place of a column, from 0, from 1 or behind an index, are names.
    """
    return any(
        NUMBER.fullmatch(name.strip()) and name.strip() not in map(str, range(place - 1, place + 2))
        for place, name in enumerate(names)
    )
