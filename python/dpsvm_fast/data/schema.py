"""Schemas: public facts about a table, such as label, classes, columns and their bounds."""

from __future__ import annotations

import codecs
import datetime
import difflib
import importlib
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import validation as check
from dpsvm_fast.certificates import record as strict_json
from dpsvm_fast.exceptions import ModelFormatError, SchemaError, TableError
from dpsvm_fast.files import read_bytes
from dpsvm_fast.mechanisms.rows import MAX_KNOTS

# Text that goes into a TOML file.


# Limits of a message.
MAX_LINES, LONGEST_NAME = 50, 100

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_string(text: str) -> str:
    """Return a TOML basic string; its escapes are JSON's, plus one for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(text: str) -> str:
    """Return a TOML key, in quotes if needed."""
    return text if BARE_KEY.fullmatch(text) else toml_string(text)


def column_lines(names: Sequence[str]) -> str:
    """Return one line per column to fill in; only the first lines if there are many."""
    lines = [
        f"  {toml_key(name)} = {{ bounds = [LOW, HIGH] }}"
        if len(name) <= LONGEST_NAME
        else f"  # a name of {len(name)} characters"
        for name in names[:MAX_LINES]
    ]
    more = [f"  # and {len(names) - MAX_LINES} more"] if len(names) > MAX_LINES else []
    return "\n".join([*lines, *more])


CLASSES = "classes = []   # its public values"

HINTS = (
    "# bounds = [low, high], categories = [...] (ordered = true: one feature), boolean = true,",
    "# dates = [first, last], text = N (features of hashed words) or ignore = true.",
    "# Write what is publicly known, not the range of the values.",
)


def template_lines(
    target: str | None,
    columns: Mapping[str, str],
    classes: Sequence[Any] = (),
    person: str | None = None,
) -> str:
    """Return the lines of a schema to fill in, with the known facts of each column."""
    owner = [f"person = {toml_string(person)}   # whose rows they are"] if person else []
    lines = [
        f"target = {toml_string(target or '')}   # the column of labels",
        *owner,
        f"classes = {json.dumps(list(classes), ensure_ascii=False)}" if classes else CLASSES,
        "",
        "[columns]",
        *HINTS,
        *(f"{toml_key(n)} = {{ {it} }}" for n, it in columns.items() if n not in (target, person)),
    ]
    return "\n".join(lines) + "\n"


# The entry of a schema for one column, and the features made from it.


KINDS = ("bounds", "categories", "boolean", "dates", "text", "ignore")

UNKNOWN = ("refuse", "none")
# The value of ``missing`` that leaves every indicator of a category at 0.
NONE = "none"

MAX_FEATURES = 2**31 - 1
# Most columns with names, each an object of some hundred bytes here and in Arrow.
MAX_COLUMNS = 2**18
# Rows are stored as float32; beyond this a bound would be infinite there.
LARGEST = 3.4e38
# Features of a column of text, and words of an n-gram.
MAX_HASHES, MAX_WORDS = 2**20, 10

Category = str | int


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table, with exactly one of the first six facts.

    Parameters
    ----------
    name : str
    bounds : tuple of two floats or None
        Public lowest and highest value of a numeric column.
    categories : tuple of str and int, or None
        Public values; each becomes a feature with values 1 and 0.
    boolean : bool
        Whether cells are true or false: one feature with values 1 and 0.
    dates : tuple of two str or None
        Public first and last date (ISO 8601): one feature, the days since the first.
    text : int or None
        Number of features to which words are hashed.
    ignore : bool
        Whether the column is ignored.
    ordered : bool
        Whether categories are ordered: one feature, the position of the category from 0.
    ngrams : tuple of two int
        For text: smallest and largest number of words hashed together.
    missing : float, str, int, bool or None
        Public replacement for missing values; None refuses missing values.
    unknown : {"refuse", "none"}
        Treatment of undeclared categories; "none" sets all features of the column to 0.
    log : bool
        Whether spline knots are equidistant on a logarithmic scale; only with bounds.
    knots : int or None
        Number of spline knots; only with bounds. None leaves it to the command.
    """

    name: str
    bounds: tuple[float, float] | None = None
    categories: tuple[Category, ...] | None = None
    boolean: bool = False
    dates: tuple[str, str] | None = None
    text: int | None = None
    ignore: bool = False
    ordered: bool = False
    ngrams: tuple[int, int] = (1, 1)
    missing: Any = None
    unknown: str = "refuse"
    log: bool = False
    knots: int | None = None

    @property
    def is_number(self) -> bool:
        """Whether cells hold the feature's value, not a code."""
        return self.bounds is not None or self.dates is not None

    @property
    def is_indicated(self) -> bool:
        """Whether each category has its own feature."""
        return self.categories is not None and not self.ordered

    @property
    def width(self) -> int:
        """Number of features."""
        if self.is_indicated:
            return len(self.categories or ())
        return 0 if self.ignore else self.text or 1

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        if self.is_indicated:
            return tuple(f"{self.name}={category}" for category in self.categories or ())
        if self.text is not None:
            return tuple(f"{self.name}[{place}]" for place in range(self.text))
        return () if self.ignore else (self.name,)

    @property
    def feature_bounds(self) -> tuple[float, float]:
        """Lowest and highest value of each feature."""
        if self.bounds is not None:
            return self.bounds
        if self.dates is not None:
            return 0.0, days(self.dates[1], self.dates[0])
        if self.ordered:
            return 0.0, len(self.categories or ()) - 1.0
        return (0.0, 1.0) if self.text is None else (-1.0, 1.0)

    @property
    def fill(self) -> float | None:
        """Number that replaces missing values."""
        if self.dates is not None and self.missing is not None:
            return days(self.missing, self.dates[0])
        return None if self.missing is None else float(self.missing)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without defaults."""
        return _without_defaults(
            {key: getattr(self, key) for key in (*COLUMN, "missing")}, DEFAULTS
        )

    @classmethod
    def from_dict(cls, name: str, record: Any, where: str) -> Column | None:
        """Check the values of a column; return None if its bounds are missing.

        Parameters
        ----------
        name : str
        record : object
            Values by key.
        where : str
            Place in the file, for messages.
        """
        if not isinstance(record, Mapping):
            raise SchemaError(
                f"{where}: got {shown(record)}, expected a table such as {{ bounds = [0, 1] }}"
            )
        check_keys(where, record, (*COLUMN, "missing"))
        kinds = [key for key in KINDS if record.get(key) not in (None, False, [])]
        if not kinds and all(record.get(key) in (None, []) for key in KINDS):
            return None
        if len(kinds) != 1:
            raise SchemaError(
                f"{where}: got {' and '.join(kinds) or 'nothing'}, expected exactly one of "
                "bounds, categories, boolean = true, dates, text and ignore = true"
            )
        # Not by equality: 0 is a value, and a wrong one.
        details = [key for key in DETAILS if not (record.get(key) is None or record[key] is False)]
        for key in details:
            owner = DETAILS[key]
            if kinds[0] != owner and record[key] != DEFAULTS.get(key):
                raise SchemaError(f"{where}.{key}: needs {owner},")
        facts = {key: COLUMN[key].read(f"{where}.{key}", record[key]) for key in kinds + details}
        column = cls(name, **facts)
        if column.ordered and len(column.categories or ()) < 2:
            raise SchemaError(f"{where}.ordered: expected at least two categories")
        if column.ordered and column.unknown != "refuse":
            raise SchemaError(
                f"{where}.unknown: got 'none', expected 'refuse' with ordered = true: an unknown "
                "value has no position on the scale"
            )
        missing = record.get("missing")
        if missing is None:
            return column
        return replace(column, missing=_missing(f"{where}.missing", missing, column))


def check_keys(where: str, record: Mapping[Any, Any], accepted: tuple[str, ...]) -> None:
    """Refuse an unknown key, so that a misspelling cannot disable a setting."""
    for key in record:
        if key not in accepted:
            place = ".".join(filter(None, [where, toml_key(str(key)[:60])]))
            near = difflib.get_close_matches(str(key), accepted, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SchemaError(f"{place}: unknown key, expected one of {', '.join(accepted)}{hint}")


def shown(value: Any) -> str:
    """Return a public value as text for a message; only its type if it is long."""
    if value is None:
        return "nothing"
    # Build no long text only to discard it; integers of thousands of digits have none.
    long = isinstance(value, (str, bytes, list, tuple, dict)) and len(value) > 60
    long = long or (isinstance(value, int) and value.bit_length() > 200)
    try:
        text = "" if long else repr(value)
    except ValueError:
        text = ""
    return text if 0 < len(text) <= 60 else f"a long {type(value).__name__}"


def quoted(name: str) -> str:
    """Return a quoted name from a file for a message; only its beginning if it is long."""
    return repr(name) if len(name) <= 60 else f"{name[:60]!r}..."


def repeated(names: Sequence[str]) -> str:
    """Return the names that occur more than once, for a message; "" if none."""
    twice = sorted(name for name, n in Counter(names).items() if n > 1)
    return ", ".join(map(quoted, twice[:10])) + (", ..." if len(twice) > 10 else "")


def is_number(value: Any) -> bool:
    """Return whether the value is a number and not a boolean."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Return whether the value is an integer and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def _without_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain JSON values of the fields that are not None or default."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in values.items()
        if value is not None and value != defaults.get(key)
    }


class Key(NamedTuple):
    """Accepted values of a schema key.

    Parameters
    ----------
    accepted : str
        For messages.
    test : callable
        Function that returns whether a value is accepted.
    made : callable
        Function from an accepted value to the stored one.
    """

    accepted: str
    test: Callable[[Any], bool]
    made: Callable[[Any], Any] = lambda value: value

    def read(self, where: str, value: Any) -> Any:
        """Check a value and return the stored one."""
        if not self.test(value):
            raise SchemaError(f"{where}: got {shown(value)}, expected {self.accepted}")
        return self.made(value)


def _is_list(value: Any, test: Callable[[Any], bool]) -> bool:
    """Return whether the value is a list of accepted values."""
    return isinstance(value, (list, tuple)) and all(map(test, value))


def _is_text(value: Any) -> bool:
    """Return whether the value is text."""
    return isinstance(value, str)


def _is_label(value: Any) -> bool:
    """Return whether the value is text or a 64-bit integer."""
    return _is_text(value) or (is_whole(value) and abs(value) < 2**63)


def _differ(values: Sequence[Any]) -> bool:
    """Return whether values differ when compared as stripped text, like cells."""
    return len({str(one).strip() for one in values}) == len(values)


def _are_bounds(value: Any) -> bool:
    """Return whether the value is two increasing numbers, finite in single precision."""
    two = _is_list(value, is_number) and len(value) == 2
    return two and bool(-LARGEST <= value[0] < value[1] <= LARGEST)


def _are_dates(value: Any) -> bool:
    """Return whether the value is two dates in increasing order."""
    ends = [_date(end) for end in value] if isinstance(value, (list, tuple)) else []
    return len(ends) == 2 and None not in ends and days(str(ends[1]), str(ends[0])) > 0.0


def _are_lengths(value: Any) -> bool:
    """Return whether the value is a minimum and a maximum number of words."""
    two = _is_list(value, is_whole) and len(value) == 2
    return two and bool(1 <= value[0] <= value[1] <= MAX_WORDS)


def _date(value: Any) -> str | None:
    """Return a TOML or JSON date as ISO 8601 text; None if it is not a date."""
    value = str(value) if isinstance(value, datetime.date) else value
    return value if isinstance(value, str) and not math.isnan(days(value, value)) else None


def days(cell: Any, first: str) -> float:
    """Return the days from a first date to a date, in UTC; NaN if it is not a date."""
    if isinstance(cell, datetime.datetime) and cell.tzinfo is not None:
        cell = cell.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    elif not isinstance(cell, datetime.date):
        cell = str(cell).strip()
        if not DATE.fullmatch(cell):
            return math.nan
    try:
        return float((np.datetime64(cell, "us") - np.datetime64(first, "us")) / DAY)
    except ValueError:
        return math.nan


TRUE = Key("true or false", lambda value: value is True)
# Keys of a column.
COLUMN = {
    "bounds": Key(
        "[low, high] with two finite numbers, low < high",
        _are_bounds,
        lambda value: (float(value[0]), float(value[1])),
    ),
    "categories": Key(
        "a list of different strings or integers",
        lambda value: _is_list(value, _is_label) and _differ(value),
        tuple,
    ),
    "boolean": TRUE,
    "dates": Key(
        '[first, last] such as ["1990-01-01", "2030-12-31"]',
        _are_dates,
        lambda value: tuple(map(_date, value)),
    ),
    "text": Key(
        f"a number of features from 1 to {MAX_HASHES}, such as 256",
        lambda value: is_whole(value) and 1 <= value <= MAX_HASHES,
    ),
    "ignore": TRUE,
    "ordered": TRUE,
    "ngrams": Key(f"[least, most] words, 1 to {MAX_WORDS}", _are_lengths, tuple),
    "log": TRUE,
    "knots": Key(
        f"a number of knots from 1 to {MAX_KNOTS}",
        lambda value: is_whole(value) and 1 <= value <= MAX_KNOTS,
    ),
    "unknown": Key(
        "'refuse' or, for categories, 'none' (all of its features are 0)",
        lambda value: _is_text(value) and value in UNKNOWN,
    ),
}
# Keys that describe another key further.
DETAILS = {
    "ordered": "categories",
    "ngrams": "text",
    "log": "bounds",
    "knots": "bounds",
    "unknown": "categories",
}

DEFAULTS = {one.name: one.default for one in fields(Column)}

DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?")

DAY = np.timedelta64(1, "D")


def _missing(where: str, value: Any, column: Column) -> Any:
    """Check a public replacement value of a column."""
    low, high = column.feature_bounds
    known = not isinstance(value, bool) and value in (column.categories or ())
    if column.bounds is not None:
        fits = is_number(value) and low <= value <= high
        accepted = f"a number from {low:g} to {high:g}, its bounds"
    elif column.dates is not None:
        value = _date(value) or value
        fits = _is_text(value) and 0.0 <= days(value, column.dates[0]) <= high
        accepted = f"a date from {column.dates[0]} to {column.dates[1]}"
    elif column.text is not None:
        fits, accepted = _is_text(value), "text, or 'none' (all of its features are 0)"
    elif column.is_indicated:
        fits = known or value == NONE
        accepted = "one of its categories, or 'none' (all of its features are 0)"
    elif column.ordered:
        fits, accepted = known, "one of its categories"
    else:
        fits = column.boolean and isinstance(value, bool)
        accepted = "true or false" if column.boolean else "no such key for an ignored column"
    made = float if column.bounds is not None else lambda value: value
    return Key(accepted, lambda _: fits, made).read(where, value)


# Format of a CSV file.


MISSING_TEXTS = ("", "NA", "N/A", "#N/A", "NaN", "nan", "-nan", "null", "NULL", "None", "<NA>")

NUMBER = re.compile(r"[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)

NO_NAMES = (
    "numbers as names (not shown); if they are cells of a first row, write header = false in the "
    "[csv] table of the schema"
)


@dataclass(frozen=True)
class TextFormat:
    """Table ``[csv]`` of a schema.

    Parameters
    ----------
    delimiter : str or None
        Delimiter of cells; None means a comma, or a tab in ``.tsv`` files.
    decimal : {".", ","}
        Decimal mark.
    quote : str
        Quote around cells that contain a delimiter or line break; "" for none.
    encoding : str
    header : bool or tuple of str
        Whether the first row names the columns; or the column names, if the file has no header.
    missing_values : tuple of str
        Texts of cells that mean a missing value.
    """

    delimiter: str | None = None
    decimal: str = "."
    quote: str = '"'
    encoding: str = "utf-8"
    header: bool | tuple[str, ...] = True
    missing_values: tuple[str, ...] = MISSING_TEXTS

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without defaults."""
        return _without_defaults(vars(self), vars(TextFormat))

    @classmethod
    def from_dict(cls, record: Any) -> TextFormat:
        """Check the values of the table."""
        if not isinstance(record, Mapping):
            raise SchemaError(f"csv: got {shown(record)}, expected a table [csv]")
        check_keys("csv", record, tuple(TEXT))
        text = cls(**{key: TEXT[key].read(f"csv.{key}", one) for key, one in record.items()})
        if text.delimiter is None and text.decimal == ",":
            raise SchemaError("csv.decimal: got ',', which needs another delimiter, such as \";\"")
        if len({text.delimiter, text.decimal, text.quote}) != 3:
            raise SchemaError("csv: delimiter, decimal and quote must differ")
        return text


def _is_mark(value: Any) -> bool:
    """Return whether the character can separate or quote cells."""
    return (
        isinstance(value, str)
        and len(value) == 1
        and (value == "\t" or " " <= value <= "~")
        and not value.isalnum()
        and value not in "+-."
    )


def _is_encoding(value: Any) -> bool:
    """Return whether the value is a text encoding of Python."""
    try:
        return isinstance(value, str) and codecs.lookup(value)._is_text_encoding
    except (LookupError, ValueError):
        return False


def _is_header(value: Any) -> bool:
    """Return whether the value is true, false or a list of column names."""
    if isinstance(value, bool):
        return True
    return _is_list(value, _is_text) and 0 < len(value) == len(set(value))


# Keys for the format of a CSV file.
TEXT = {
    "delimiter": Key("one ASCII character other than a letter, digit or line break", _is_mark),
    "decimal": Key("'.' or ','", lambda value: _is_text(value) and value in (".", ",")),
    "quote": Key("one ASCII character or ''", lambda value: value == "" or _is_mark(value)),
    "encoding": Key("the name of a text encoding such as 'latin-1'", _is_encoding),
    "header": Key(
        "true, false or the list of column names, each once",
        _is_header,
        lambda value: value if isinstance(value, bool) else tuple(value),
    ),
    "missing_values": Key("a list of strings", lambda value: _is_list(value, _is_text), tuple),
}


def other_delimiter(names: Sequence[str]) -> str:
    """Guess the delimiter of a header that was read as one name; "" if none fits."""
    return next((mark for mark in ";\t|," if len(names) == 1 and mark in names[0]), "")


def may_be_a_row(names: Sequence[str]) -> bool:
    """Return whether column names may be cells, because some are numbers; then do not quote them.

    Numbers that are column positions, from 0, from 1 or after an index, are names.
    """
    return any(
        NUMBER.fullmatch(name.strip()) and name.strip() not in map(str, range(place - 1, place + 2))
        for place, name in enumerate(names)
    )


# Schema files: bytes to plain values.


# The largest number of named columns takes less. Python reads some MB of TOML in a second.
LARGEST_FILES = {".json": 2**25, ".toml": 2**22}
# Limits of a TOML file's keys: parts of one, for which Python's parser takes quadratic time, and
# parts of all, which take about 300 bytes each, and three times as many in the header of a table.
# Dots of numbers count as parts, and so do backslashes.
MAX_PARTS_OF_A_KEY, MAX_PARTS = 8, 450_000
TOML_HEADER = re.compile(r"^[ \t]*\[[^\n]*", re.MULTILINE)
# Text and comments in TOML, also those that no mark ends.
TOML_TEXT = re.compile(
    r'""".*?(?<!\\)(?:\\\\)*(?:"{3,5}|\\?\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"[^\n]*?(?<!\\)(?:\\\\)*(?:"|\\?(?:(?=\n)|\Z))'
    r"|'[^'\n]*'?|#[^\n]*",
    re.DOTALL,
)
LONG_KEY = re.compile(rf"(?<![\w-])[\w-]+(?:[ \t]*\.[ \t]*[\w-]+){{{MAX_PARTS_OF_A_KEY}}}")


def read_record(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the contents of a TOML or JSON file."""
    name = os.path.basename(check.check_path("path", path))
    suffix = os.path.splitext(name)[1].lower()
    if suffix not in (".toml", ".json"):
        raise SchemaError(f"{name}: expected a schema file that ends in .toml or .json")
    try:
        content = read_bytes(Path(path), LARGEST_FILES[suffix])
    except ModelFormatError as error:
        raise SchemaError(f"{name}: {error}; expected a schema file") from None
    try:
        text = content.decode("utf-8-sig")
        return _json(text) if suffix == ".json" else _toml(text)
    except (ValueError, RecursionError) as error:
        language = suffix[1:].upper()
        reason = str(error) if isinstance(error, ValueError) else "nested too deeply"
        reason = re.sub("Can ?not overwrite a value", "a key occurs twice", reason)
        reason = reason if len(reason) <= 200 else f"{reason[:200]}..."
        raise SchemaError(f"{name}: expected {language}, but: {reason}") from None


def _json(text: str) -> Mapping[str, Any]:
    """Parse JSON; refuse duplicate keys and non-finite numbers."""
    try:
        value = strict_json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        raise ValueError(f"the text {error}") from None
    if not isinstance(value, dict):
        raise ValueError("expected an object { ... }")
    return value


def _toml(text: str) -> Mapping[str, Any]:
    """Parse TOML, with the standard library from Python 3.11 on."""
    try:
        reader = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError:
        raise ImportError(
            'schema files in TOML need tomli with Python 3.10: pip install "dpsvm-fast[cli]", or '
            "write the schema as JSON"
        ) from None
    bare = TOML_TEXT.sub("t", text) if text.count("\\") <= MAX_PARTS else text
    if LONG_KEY.search(bare):
        raise ValueError(f"a key has more than {MAX_PARTS_OF_A_KEY} parts")
    headers = sum(3 + 2 * found[0].count(".") for found in TOML_HEADER.finditer(bare))
    if bare.count(".") + bare.count("\\") + headers > MAX_PARTS:
        raise ValueError("too many tables, dotted keys or escapes; write the file as JSON")
    return dict(reader.loads(text))


# Checks of a schema's tree of plain values.


# Every label takes as much memory as the longest.
LONGEST_CLASS, MAX_CHARACTERS = 1000, 1 << 24

# Columns that are not features, and their roles.
ROLES = {"target": "labels", "person": "persons", "weight": "weights of rows"}


def _is_name(value: Any) -> bool:
    """Return whether the value is a column name."""
    return _is_text(value) and bool(value.strip())


def _are_classes(value: Any) -> bool:
    """Return whether the value is at least two strings, or at least two integers."""
    same = _is_list(value, _is_text) or (_is_list(value, _is_label) and _is_list(value, is_whole))
    if not same or len(value) < 2 or not _differ(value):
        return False
    longest = max(map(len, map(str, value)))
    return longest <= LONGEST_CLASS and longest * len(value) <= MAX_CHARACTERS


# Keys of a table other than its columns: the key in a file, and the name here.
NAMES = {"n_features": "declared_width", "csv": "text"}

TABLE = {
    "target": Key(
        "the name of the label column, or its position (0 is the first column, -1 the last)",
        lambda value: is_whole(value) or _is_name(value),
        lambda value: value.strip() if _is_text(value) else value,
    ),
    "classes": Key(
        f"a list of two or more different strings or integers of at most {LONGEST_CLASS} "
        "characters; write true and false as strings",
        _are_classes,
        tuple,
    ),
    "person": Key("the name of the column of person ids", _is_name, str.strip),
    "weight": Key("the name of the column of weights of rows", _is_name, str.strip),
    "n_features": Key(
        "an integer >= 1", lambda value: is_whole(value) and 1 <= value <= MAX_FEATURES
    ),
    "zero_based": Key("true or false", lambda value: isinstance(value, bool)),
    "image": Key(
        "[height, width] or [height, width, channels] of an image",
        lambda value: _is_list(value, is_whole) and len(value) in (2, 3) and min(value) >= 1,
        tuple,
    ),
    "extra_columns": Key(
        "'refuse' or 'ignore'", lambda value: _is_text(value) and value in ("refuse", "ignore")
    ),
}
KEYS = (*TABLE, "csv", "columns", "all_other_columns")


def schema_values(record: Any) -> dict[str, Any]:
    """Return the arguments of ``TableSchema``."""
    if not isinstance(record, Mapping):
        raise SchemaError(f"got {shown(record)}, expected a table of keys and values")
    check_keys("", record, KEYS)
    values: dict[str, Any] = {
        NAMES.get(key, key): one.read(key, record[key])
        for key, one in TABLE.items()
        if record.get(key) is not None
    }
    values["text"] = TextFormat.from_dict(record.get("csv", {}))
    other = record.get("all_other_columns")
    columns = _column_records(record.get("columns", {}))
    lacking = [name for name, column in columns.items() if column is None]
    if other is not None:
        if values.get("extra_columns") == "ignore":
            raise SchemaError(
                "extra_columns: got 'ignore' with all_other_columns, expected only one of them"
            )
        others = values["all_other_columns"] = _other_columns(other)
        # A column that is only named takes the defaults of all others, in its place.
        columns |= {name: replace(others, name=name) for name in lacking}
    elif lacking:
        raise SchemaError(
            f"no bounds for {len(lacking)} column{'s' if len(lacking) > 1 else ''}: write public "
            "ones (or categories = [...], or ignore = true) in [columns]:\n"
            f"{column_lines(lacking)}"
        )
    elif not columns:
        raise SchemaError(
            "columns: missing; declare each column, for example:\n[columns]\n  age = { bounds = "
            "[0, 100] }"
        )
    values["columns"] = tuple(columns.values())
    check_roles({role: values.get(role) for role in ROLES}, columns)
    return values


def check_roles(names: Mapping[str, Any], features: Iterable[str], origin: str = "") -> None:
    """Refuse label, person or weight columns among the features, and columns with two roles."""
    known, where = dict.fromkeys(features, "a feature"), f"{origin}: " if origin else ""
    for role, name in names.items():
        if isinstance(name, str):
            if name in known:
                raise SchemaError(
                    f"{where}columns.{toml_key(name[:60])}: is the {role} and cannot be "
                    f"{known[name]}: remove it"
                )
            known[name] = f"the {role}"


def _column_records(record: Any) -> dict[str, Any]:
    """Return the records of columns by name; None if their values are not declared."""
    if isinstance(record, list):
        record = _named_columns(record)
    if not isinstance(record, Mapping):
        raise SchemaError(f"columns: got {shown(record)}, expected a table [columns]")
    found: dict[str, Any] = {}
    for name, one in record.items():
        if not isinstance(name, str) or not name or name != name.strip():
            raise SchemaError(
                f"columns: got the name {shown(name)}, expected text without spaces around it"
            )
        found[name] = Column.from_dict(name, one, f"columns.{toml_key(name[:60])}")
    return found


def _named_columns(records: list[Any]) -> dict[str, Any]:
    """Return columns by name, from a list of tables with names."""
    found: dict[str, Any] = {}
    for place, one in enumerate(records):
        name = one.get("name") if isinstance(one, Mapping) else None
        if not isinstance(name, str) or name in found:
            raise SchemaError(
                f"columns[{place}]: got {shown(one)}, expected a table with a name, such as {{ "
                'name = "age", bounds = [0, 100] }'
            )
        found[name] = {key: value for key, value in one.items() if key != "name"}
    return found


def _other_columns(record: Any) -> Column:
    """Return the entry for all other columns: numbers within bounds."""
    column = Column.from_dict("", record, "all_other_columns")
    if column is None or column.bounds is None:
        raise SchemaError(
            f"all_other_columns: got {shown(record)}, expected bounds = [low, high] and optionally "
            "missing"
        )
    return column


# The origin of a schema that was saved with a model.
OF_MODEL = "the model"

Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class TableSchema:
    """Public facts about a table; nothing is learned from rows.

    Use :meth:`load` for a TOML or JSON file, or :meth:`from_dict`. ``open_table`` returns the
    schema with every column named as ``table.schema``: save that one with a model.

    Parameters
    ----------
    columns : tuple of Column
        Columns in the order of the features.
    target : str, int or None
        Name of the label column, or its position in the file.
    classes : tuple of str or of int, or None
        Declared labels.
    all_other_columns : Column or None
        Entry for every column of the file that is not named.
    extra_columns : {"refuse", "ignore"}
        Treatment of undeclared columns.
    declared_width : int or None
        Declared ``n_features``; needed if a file does not name its columns.
    zero_based : bool
        Whether indices in LIBSVM files start at 0 instead of 1.
    text : TextFormat
        Format of CSV files.
    origin : str
        Source of the schema, for messages.
    person : str or None
        Column of person ids; whole persons are then protected.
    weight : str or None
        Column of row weights.
    image : tuple of int or None
        Shape of the image that the features of a row are.
    """

    columns: tuple[Column, ...] = ()
    target: str | int | None = None
    classes: tuple[Category, ...] | None = None
    all_other_columns: Column | None = None
    extra_columns: str = "refuse"
    declared_width: int | None = None
    zero_based: bool = False
    text: TextFormat = field(default_factory=TextFormat)
    origin: str = field(default="the schema", compare=False)
    person: str | None = None
    weight: str | None = None
    image: tuple[int, ...] | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TableSchema:
        """Read a schema from a file.

        Parameters
        ----------
        path : str or path
            TOML (``.toml``) or JSON (``.json``).

        Returns
        -------
        TableSchema

        Raises
        ------
        SchemaError
            The file is not a schema; the message names the key, its value and what is accepted.
        OSError
            The file cannot be opened.
        """
        return cls.from_dict(read_record(path), origin=os.path.basename(os.fspath(path)))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], *, origin: str = "the schema") -> TableSchema:
        """Build a schema from plain values, as in a file.

        Parameters
        ----------
        record : mapping
            Values as in a file, or as returned by :meth:`to_dict`.
        origin : str, default="the schema"
            Source of the values, for messages.

        Returns
        -------
        TableSchema

        Raises
        ------
        SchemaError
        """
        try:
            return cls(**schema_values(record), origin=origin)
        except SchemaError as error:
            raise SchemaError(f"{origin}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values for :meth:`from_dict`."""
        own = {key: getattr(self, NAMES.get(key, key)) for key in TABLE}
        record = _without_defaults(
            own | {"csv": self.text.to_dict()}, vars(TableSchema) | {"csv": {}}
        )
        if self.columns:
            # A list: the order of the features must survive a program that sorts keys.
            record["columns"] = [{"name": one.name, **one.to_dict()} for one in self.columns]
        if self.all_other_columns is not None:
            record["all_other_columns"] = self.all_other_columns.to_dict()
        return record

    @staticmethod
    def template(
        path: str | os.PathLike[str],
        *,
        target: str | None = None,
        person: str | None = None,
        format: str | None = None,
    ) -> str:
        """Return a schema template with the column names of a file.

        Parameters
        ----------
        path : str or path
            Table file. Only the header is read, no row.
        target : str or None, default=None
            Label column.
        person : str or None, default=None
            Column of person ids.
        format : str or None, default=None
            As in `open_table`.

        Returns
        -------
        str
            TOML text. Loading it unchanged raises an error that says what is missing.
        """
        from dpsvm_fast.data.tables import template

        return template(path, target=target, person=person, format=format)

    @staticmethod
    def from_frame(
        frame: Any,
        *,
        target: str | None = None,
        person: str | None = None,
        public: Sequence[str] = (),
    ) -> str:
        r"""Return a schema template with the names and types of a data frame's columns.

        Parameters
        ----------
        frame : DataFrame, Table, RecordBatch or mapping of str to arrays
            A table of pandas, polars or pyarrow, or one array for each column.
        target : str or None, default=None
            Label column.
        person : str or None, default=None
            Column of person ids, which is not a feature.
        public : sequence of str, default=()
            Columns with public values, possibly the target: their bounds, categories, dates or
            classes are taken from the values. No cell of other columns is read.

        Returns
        -------
        str
            TOML text. Unless all columns are public, loading it raises an error that says what is
            missing.

        Examples
        --------
        >>> from dpsvm_fast.data import TableSchema
        >>> people = {"age": [31, 52], "work": ["a", "b"]}
        >>> print(TableSchema.from_frame(people, public=["work"]).partition("the values.\n")[2])
        age = { bounds = [] }
        work = { categories = ["a", "b"] }
        <BLANKLINE>
        """
        from dpsvm_fast.data.encoder import frame_template

        return frame_template(frame, target=target, person=person, public=public)

    @property
    def is_positional(self) -> bool:
        """Whether features are known by position only: x0, x1, ..."""
        return self.declared_width is not None and self.all_other_columns is not None

    @property
    def is_uniform(self) -> bool:
        """Whether no individual feature is described."""
        return self.is_positional and not self.columns

    @cached_property
    def features(self) -> tuple[Column, ...]:
        """Columns that become features, in order."""
        if self.all_other_columns is None:
            found = tuple(column for column in self.columns if not column.ignore)
            if not found:
                raise SchemaError(f"{self.origin}: columns: all are ignored")
            return found
        if self.declared_width is None:
            raise SchemaError(
                f"{self.origin}: all_other_columns: columns are known only once a file is opened; "
                "use open_table(path, schema).schema, or declare n_features"
            )
        self._check_places()
        if self.declared_width > MAX_COLUMNS:
            raise SchemaError(
                f"{self.origin}: n_features: got {self.declared_width}, expected at most "
                f"{MAX_COLUMNS} where columns are named"
            )
        named = {column.name: column for column in self.columns}
        return tuple(
            named.get(name) or replace(self.all_other_columns, name=name)
            for name in (f"x{j}" for j in range(self.declared_width))
        )

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features; "column=category" for categories."""
        return tuple(name for column in self.features for name in column.feature_names)

    @cached_property
    def n_features(self) -> int:
        """Number of features."""
        if self.is_positional:
            # Without iterating over features: a schema from a file may declare billions.
            self._check_places()
            assert self.declared_width is not None
            return self.declared_width + sum(column.width - 1 for column in self.columns)
        return sum(column.width for column in self.features)

    @cached_property
    def bounds(self) -> Bounds:
        """Lowest and highest value of each feature: two float64 arrays of shape (n_features,)."""
        if self.is_uniform:
            assert self.all_other_columns is not None
            low, high = self.all_other_columns.feature_bounds
            return np.full(self.n_features, low), np.full(self.n_features, high)
        widths = [column.width for column in self.features]
        ends = np.array([column.feature_bounds for column in self.features])
        low, high = np.repeat(ends, widths, axis=0).T.copy()
        return low, high

    def of_names(
        self, names: Sequence[str], *, labelled: bool, file: str, owned: bool = False
    ) -> TableSchema:
        """Return the schema of a file with the given column names.

        Parameters
        ----------
        names : sequence of str
            Names of the columns, in the order of the file.
        labelled : bool
            Whether the target must be among the names.
        file : str
            File name for messages.
        owned : bool, default=False
            Whether the person and weight columns must be among the names.

        Returns
        -------
        TableSchema
            Schema without ``all_other_columns``.

        Raises
        ------
        TableError
            The file lacks a column.
        SchemaError
            The file has undeclared columns.
        """
        known, found = {column.name for column in self.columns}, set(names)
        target = self._target_name(names, labelled=labelled, file=file)
        label = {"target": target} if labelled and target is not None else {}
        check_roles(label | self.owners, known, self.origin)
        for role, name in (label | (self.owners if owned else {})).items():
            if name not in found:
                raise TableError(
                    f"{file}: {role}: no column {quoted(name)}; it has {_found(names)}"
                )
        absent = [c.name for c in self.columns if not c.ignore and c.name not in found]
        if absent:
            raise TableError(
                f"{file}: lacks {columns_in_words(absent)}, declared in {self.origin}; it has "
                f"{_found(names)}"
            )
        outside = known | {target, *self.owners.values()}
        others = [name for name in names if name not in outside]
        columns = self.columns
        if self.all_other_columns is not None:
            columns = self._with_others(others)
        elif others and self.extra_columns == "refuse":
            raise self._undescribed(others, file)
        named = replace(
            self,
            columns=columns,
            target=self.target if target is None else target,
            all_other_columns=None,
            declared_width=None,
        )
        if self.declared_width is not None and named.n_features != self.declared_width:
            raise TableError(
                f"{file}: got {named.n_features} features, expected {self.declared_width}, as "
                f"n_features in {self.origin} says"
            )
        return named

    @property
    def owners(self) -> dict[str, str]:
        """Names of the person and weight columns, by role."""
        given = {"person": self.person, "weight": self.weight}
        return {role: name for role, name in given.items() if name is not None}

    def of_width(self, width: int | None, *, file: str, owned: bool = False) -> TableSchema:
        """Return the schema of a file without column names, of the given width if known.

        Parameters
        ----------
        width : int or None
            Number of feature columns.
        file : str
            File name for messages.
        owned : bool, default=False
            Whether the person and weight columns are needed.

        Returns
        -------
        TableSchema
            Schema with a number of features.

        Raises
        ------
        TableError
            The width of the file differs from the declared one.
        SchemaError
            The schema does not state the width, or ignores columns.
        """
        found = self
        if owned and self.owners:
            raise SchemaError(
                f"{self.origin}: {next(iter(self.owners))}: expected a file with column names "
                f"(CSV, Parquet or Arrow), which {file} lacks"
            )
        if width == 0:
            raise TableError(f"{file}: has no feature columns")
        if self.all_other_columns is not None and self.declared_width is None:
            if width is None:
                raise SchemaError(
                    f"{self.origin}: n_features: missing, and {file} does not say; write for "
                    "example n_features = 100"
                )
            found = replace(self, declared_width=width)
        if found.is_positional and any(column.ignore for column in self.columns):
            raise SchemaError(
                f"{self.origin}: columns: got ignore = true, expected only for a file with column "
                f"names, which {file} lacks"
            )
        expected = found.declared_width if found.is_positional else len(found.features)
        if width is not None and width != expected:
            raise TableError(
                f"{file}: got {width} columns of features, expected {expected}, as {self.origin} "
                "says"
            )
        return found

    def _check_places(self) -> None:
        """Refuse names that are not positions, for a file without column names."""
        width = self.declared_width or 0
        for column in self.columns:
            place = column.name[1:]
            known = column.name[:1] == "x" and place.isascii() and place.isdecimal()
            if not (known and len(place) < 12 and place == str(int(place)) and int(place) < width):
                raise SchemaError(
                    f"{self.origin}: columns: got {quoted(column.name)}, expected names "
                    f"from 'x0' to 'x{width - 1}' for a file that does not name its columns"
                )

    def _with_others(self, names: Sequence[str]) -> tuple[Column, ...]:
        """Return all columns; undeclared ones get the entry for all other columns."""
        assert self.all_other_columns is not None
        if self.is_positional and len(names) + len(self.columns) == self.declared_width:
            known = {column.name for column in self.columns}
            if {f"x{j}" for j in range(self.declared_width)} == {*names, *known}:
                # Names that say the place, in whatever order the file has them.
                return self.features
        return (*self.columns, *(replace(self.all_other_columns, name=name) for name in names))

    def _target_name(self, names: Sequence[str], *, labelled: bool, file: str) -> str | None:
        """Return the label column; None if there is none and none is required."""
        target = self.target
        if target is None and labelled:
            raise SchemaError(
                f"{self.origin}: target: missing; name the label column, for example target = "
                f'"label"; {file} has {_found(names)}'
            )
        if not isinstance(target, int):
            return target
        if -len(names) <= target < len(names):
            return names[target]
        if labelled:
            raise TableError(
                f"{file}: target: got {shown(target)}, but there are {len(names)} columns"
            )
        return None

    def _undescribed(self, names: Sequence[str], file: str) -> ValueError:
        """Return the error that lists missing lines, or columns unknown to a model."""
        if may_be_a_row(names):
            return TableError(f"{file}: {self.origin} does not declare it; it has {NO_NAMES}")
        unknown = f"{file}: {self.origin} does not declare {columns_in_words(names)}"
        if self.origin == OF_MODEL:
            return TableError(
                f"{unknown}: remove from the file what the model does not know, or give a schema "
                'with extra_columns = "ignore"'
            )
        return SchemaError(
            f"{unknown}: add public bounds (or categories = [...], or ignore = true), or write "
            f'extra_columns = "ignore":\n[columns]\n{column_lines(names)}'
        )


def _found(names: Sequence[str]) -> str:
    """Return the column names of a file, for a sentence."""
    if mark := other_delimiter(names):
        return (
            f"one column whose name contains {mark!r}: if that separates cells, write delimiter = "
            f"{toml_string(mark)} in the [csv] table of the schema"
        )
    return NO_NAMES if may_be_a_row(names) else columns_in_words(names)


def columns_in_words(names: Sequence[str]) -> str:
    """Return names of columns for a sentence."""
    shown = ", ".join(map(quoted, names[:50]))
    more = ", ..." if len(names) > 50 else ""
    return f"column{'s' if len(names) != 1 else ''} {shown}{more}" if names else "no columns"
