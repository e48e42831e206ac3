"""A slow reader of CSV tables, a cell at a time, and random tables in every format."""

from __future__ import annotations

import csv
import datetime
import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.utils import murmurhash3_32

MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "-nan", "null", "NULL", "None", "<NA>")
# Tables are small: what is looked for is a cell that is read otherwise than it is written.
NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], include_characters="\n"),
    min_size=1,
    max_size=6,
).filter(lambda word: word == word.strip() and word not in MISSING)

DATES = st.dates(datetime.date(1980, 1, 1), datetime.date(2030, 12, 31)).map(str)
TIMES = st.datetimes(datetime.datetime(1980, 1, 1), datetime.datetime(2030, 1, 1)).map(
    lambda time: str(time.replace(microsecond=0))
)


class Refused(Exception):
    """The table does not fit; where is the argument."""


def slow_rows(text: str, record: dict[str, Any]) -> tuple[NDArray[np.float32], list[Any]]:
    """Rows and labels of a CSV text by the rules of docs/your_data.md, written for a reader."""
    settings = record.get("csv", {})
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=settings.get("delimiter", ","))
    names, *cells = [row for row in rows if row]
    features: list[list[float]] = []
    labels: list[Any] = []
    for place, row in enumerate(cells, start=1):
        named = dict(zip((name.strip() for name in names), row, strict=True))
        values: list[float] = []
        for name, column in record["columns"].items():
            if column.get("ignore"):
                continue
            values += slow_cell(named[name], column, settings, (place, name))
        features.append(values)
        label = named[record["target"]].strip()
        if label not in map(str, record["classes"]):
            raise Refused(place, record["target"])
        labels.append(next(one for one in record["classes"] if str(one) == label))
    width = sum(map(slow_width, record["columns"].values()))
    return np.array(features, dtype=np.float32).reshape(-1, width), labels


def slow_width(column: dict[str, Any]) -> int:
    """How many features a column becomes."""
    if column.get("ignore"):
        return 0
    indicated = "categories" in column and not column.get("ordered")
    return len(column["categories"]) if indicated else column.get("text", 1)


def slow_words(text: str, width: int, ngrams: Sequence[int]) -> list[float]:
    """Words and runs of them, each with a sign at a place, to length 1."""
    words = re.findall(r"\b\w\w+\b", text.lower())
    found = np.zeros(width)
    for n in range(ngrams[0], ngrams[1] + 1):
        for start in range(len(words) - n + 1):
            code = murmurhash3_32(" ".join(words[start : start + n]))
            found[abs(code) % width] += 1.0 if code >= 0 else -1.0
    return list(found / (np.linalg.norm(found) or 1.0))


def slow_days(text: str, first: str) -> float:
    """Days between two dates."""
    since = datetime.datetime.fromisoformat(text) - datetime.datetime.fromisoformat(first)
    return since.total_seconds() / 86400.0


def slow_cell(cell: str, column: dict[str, Any], settings: Any, where: Any) -> list[float]:
    """The features of one cell."""
    missing = column.get("missing")
    text = cell.strip()
    if "bounds" in column:
        if text in MISSING:
            if missing is None:
                raise Refused(*where)
            return [float(missing)]
        try:
            return [float(text.replace(settings.get("decimal", "."), "."))]
        except ValueError:
            raise Refused(*where) from None
    if text in MISSING and missing is None:
        raise Refused(*where)
    if "text" in column:
        text = cell if text not in MISSING else "" if missing == "none" else missing
        return slow_words(text, column["text"], column.get("ngrams", (1, 1)))
    if "dates" in column:
        try:
            return [slow_days(missing if text in MISSING else text, column["dates"][0])]
        except ValueError:
            raise Refused(*where) from None
    declared = [str(one) for one in column["categories"]]
    if text in MISSING:
        text = str(missing)
    if text in declared and column.get("ordered"):
        return [float(declared.index(text))]
    if text in declared or text == "none":
        return [float(text == one) for one in declared]
    if column.get("unknown") == "none":
        return [0.0] * len(declared)
    raise Refused(*where)


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, Any], list[str], list[list[Any]]]:
    """A schema's tree, the names of the columns in the order of the file, and cells."""
    names = draw(st.lists(WORDS, min_size=2, max_size=5, unique=True))
    target, *features = names
    columns: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for name in features:
        kind = draw(st.sampled_from(["bounds", "categories", "ordered", "dates", "text", "ignore"]))
        if kind == "bounds" or (name == features[-1] and not any("bounds" in c for c in columns)):
            columns[name] = {"bounds": [-1, 1]}
            values[name] = NUMBERS
            if draw(st.booleans()):
                columns[name]["missing"] = 0.5
                values[name] = st.one_of(NUMBERS, st.none())
        elif kind == "categories":
            declared = draw(st.lists(WORDS, min_size=1, max_size=3, unique=True))
            columns[name] = {"categories": declared}
            values[name] = st.sampled_from(declared)
            if draw(st.booleans()):
                columns[name] |= {"missing": declared[0], "unknown": "none"}
                values[name] = st.one_of(st.sampled_from(declared), WORDS, st.none())
        elif kind == "ordered":
            declared = draw(st.lists(WORDS, min_size=2, max_size=4, unique=True))
            columns[name] = {"categories": declared, "ordered": True}
            values[name] = st.sampled_from(declared)
            if draw(st.booleans()):
                columns[name]["missing"] = declared[-1]
                values[name] = st.one_of(values[name], st.none())
        elif kind == "dates":
            columns[name] = {"dates": ["1990-01-31", "2024-02-29"]}
            values[name] = st.one_of(DATES, TIMES)
            if draw(st.booleans()):
                columns[name]["missing"] = "2000-02-29"
                values[name] = st.one_of(values[name], st.none())
        elif kind == "text":
            columns[name] = {"text": draw(st.integers(1, 5)), "ngrams": [1, 2]}
            values[name] = (
                st.lists(WORDS, min_size=1, max_size=4)
                .map(" ".join)
                .filter(lambda text: text not in MISSING)
            )
            if draw(st.booleans()):
                columns[name]["missing"] = draw(st.sampled_from(["none", "no words"]))
                values[name] = st.one_of(values[name], st.none())
        else:
            columns[name] = {"ignore": True}
            values[name] = WORDS
    classes = draw(st.sampled_from([["no", "yes"], [0, 1], [-1, 1, 3]]))
    values[target] = st.sampled_from(classes)
    order = draw(st.permutations(names))
    rows = draw(st.lists(st.tuples(*(values[name] for name in order)).map(list), max_size=8))
    record = {"target": target, "classes": classes, "columns": columns}
    return record, list(order), rows


def csv_text(
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    delimiter: str = ",",
    end: str = "\n",
    decimal: str = ".",
) -> str:
    """What the standard library writes for these rows; a missing value is empty."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end)
    writer.writerow(names)
    for row in rows:
        writer.writerow(
            [repr(cell).replace(".", decimal) if isinstance(cell, float) else cell for cell in row]
        )
    return out.getvalue()
