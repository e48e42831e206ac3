"""Rows of fits into means with their standard errors, and those into Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from benches.tables import Row


def cells(rows: Iterable[Row], names: Sequence[str]) -> dict[tuple[str, ...], list[Row]]:
    """Rows that agree in these columns, in the order of their first ones."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def error(values: Sequence[float]) -> float | None:
    """Standard error of a mean; None of a single value."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def accuracy(members: Sequence[Row]) -> dict[str, object]:
    """Columns of a summary: number of fits, mean accuracy and its standard error."""
    found = [float(row["accuracy"]) for row in members]
    return {"fits": len(found), "accuracy": mean(found), "standard_error": error(found)}


def shown(row: Mapping[str, str] | None) -> str:
    """A mean accuracy with its standard error, for a Markdown table."""
    if row is None:
        return ""
    value = f"{float(row['accuracy']):.3f}"
    return f"{value} ± {float(row['standard_error']):.3f}" if row["standard_error"] else value


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    ruled = ["|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in (head, *rows)]
    return "\n".join([ruled[0], "|" + "---|" * len(head), *ruled[1:]])


@dataclass(frozen=True)
class Statement:
    """A sentence of a paper, without figures of its own, and how often it is true here.

    Parameters
    ----------
    text : str
        What the paper says, in our words, with the place.
    checks : callable
        From a part of the summary to one truth value a comparison.
    """

    text: str
    checks: Callable[[Sequence[Row]], Iterable[bool]]

    def counted(self, table: Sequence[Row]) -> str:
        """How many comparisons come out as the paper says."""
        found = list(self.checks(table))
        return f"{sum(found)} of {len(found)}" if found else ""


def statements(said: Sequence[Statement], table: Sequence[Row], column: str, heading: str) -> str:
    """A Markdown table of statements, one column for each value of ``column``."""
    parts = cells(table, [column])
    return grid(
        (heading, *(name for (name,) in parts)),
        ((one.text, *(one.counted(part) for part in parts.values())) for one in said),
    )
