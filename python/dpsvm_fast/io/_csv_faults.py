"""Where a CSV file does not fit: a second, slower pass that finds the row and the column.

Arrow's messages quote cells, and name no row when it reads with several threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from dpsvm_fast.exceptions import TableError
from dpsvm_fast.io._cells import cell_error
from dpsvm_fast.io._text_format import TextFormat

__all__ = ["first_fault", "missing_cells"]

# The start of Arrow's message; what follows it quotes the row.
LENGTH = re.compile(
    r"CSV parse error: Row #(?P<row>\d+): Expected (?P<columns>\d+) columns, got (?P<cells>\d+)"
)


def missing_cells(text: TextFormat) -> list[str]:
    """Return spellings of a missing number, perhaps with a blank on either side."""
    sides = [(before, after) for before in ("", " ") for after in ("", " ")]
    return [before + one + after for one in text.missing_values for before, after in sides]


def first_fault(
    read: Callable[[], Any],
    names: Sequence[tuple[str, bool]],
    text: TextFormat,
    file: str,
    before: int,
) -> TableError | None:
    """Return an error for the first row that cannot be read; None if all can.

    Parameters
    ----------
    read : callable
        Returns a table of bytes, one column for each name, read by one thread.
    names : sequence of (str, bool)
        The columns, and whether they hold numbers.
    text : TextFormat
    file : str
        Its name in messages.
    before : int
        Number of rows before these.
    """
    import pyarrow as pa

    try:
        table = read().combine_chunks()
    except pa.ArrowException as error:
        wrong = LENGTH.match(str(error))
    else:
        spellings = pa.array(missing_cells(text), pa.string())
        found = [
            (fault[0], name, fault[1])
            for column, (name, is_number) in zip(table.columns, names, strict=True)
            if column.num_chunks
            and (fault := _fault(column.chunk(0), text, spellings, pa, is_number=is_number))
        ]
        if found:
            row, name, reason = min(found)
            return cell_error(file, before + row + 1, name, reason)
        wrong = None
    if wrong is None:
        return None
    return TableError(
        f"{file}: row {before + int(wrong['row'])} has {wrong['cells']} cells, expected "
        f"{wrong['columns']}; the file may be cut off, or a cell that contains the delimiter may "
        "need quotes"
    )


def _fault(
    column: Any, text: TextFormat, spellings: Any, pa: Any, *, is_number: bool
) -> tuple[int, str] | None:
    """Place and kind of the first cell that cannot be read."""
    try:
        cells = column.cast(pa.string())
    except pa.ArrowException:
        return next(
            (
                row,
                f"not text in {text.encoding}; write the encoding, for example "
                'encoding = "latin-1", in the [csv] table of the schema',
            )
            for row, cell in enumerate(column.to_pylist())
            if not _is_text(cell)
        )
    if not is_number or _are_numbers(cells, text, spellings, pa):
        return None
    low, high = 0, len(cells)
    while high - low > 1:
        middle = (low + high) // 2
        if _are_numbers(cells[low:middle], text, spellings, pa):
            low = middle
        else:
            high = middle
    return low, (
        f"not a number; one is written like 1234{text.decimal}5, without marks between thousands; "
        "for true and false the schema must say boolean = true, for other text categories = [...] "
        "or ignore = true"
    )


def _is_text(cell: bytes) -> bool:
    """Whether it is UTF-8."""
    try:
        cell.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _are_numbers(cells: Any, text: TextFormat, spellings: Any, pa: Any) -> bool:
    """Whether all can be read as numbers or stand for none."""
    import pyarrow.compute as pc

    given = pc.utf8_trim_whitespace(cells.filter(pc.invert(pc.is_in(cells, value_set=spellings))))
    if text.decimal != ".":
        if pc.any(pc.match_substring(given, ".")).as_py():
            return False
        given = pc.replace_substring(given, text.decimal, ".")
    try:
        given.cast(pa.float32())
    except pa.ArrowException:
        return False
    return True
