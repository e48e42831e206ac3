"""CSV files headed by the machine's facts as comment lines, and tables for the terminal."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Row = dict[str, str]


def text(value: object) -> str:
    """A value as stored: floats with six significant digits, None as nothing."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def as_rows(records: Iterable[Mapping[str, object]]) -> list[Row]:
    """Records with every value as stored, so that fresh and reread rows are the same."""
    return [{name: text(value) for name, value in record.items()} for record in records]


def write(path: Path, rows: Sequence[Row], facts: Mapping[str, str]) -> None:
    """Store rows that share their columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        stream.writelines(f"# {name}: {value}\n" for name, value in facts.items())
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(path: Path) -> tuple[list[Row], dict[str, str]]:
    """Rows and facts of a stored file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    facts = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    return list(csv.DictReader(line for line in lines if not line.startswith("# "))), facts


def printed(rows: Sequence[Row]) -> str:
    """Rows as an aligned text table, numbers with three significant digits."""
    names = list(rows[0])
    lines = [names, *([_short(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def _short(cell: str) -> str:
    """A stored float with fewer digits; anything else as it is."""
    return f"{float(cell):.3g}" if re.fullmatch(r"-?\d*\.\d+(e-?\d+)?", cell) else cell
