"""Kinds of option values. What they refuse is said as: got ..., expected ..."""

from __future__ import annotations

import difflib
import math
import os
from pathlib import Path
from typing import Any

import click

__all__ = ["FILE", "FILE_OR_STDOUT", "OneOf", "Real", "Reals", "Whole"]


class Real(click.ParamType):  # type: ignore[type-arg]
    """A finite number above, or from, ``low``.

    Parameters
    ----------
    low : float or None
    includes_low : bool, default=False
    """

    name = "number"

    def __init__(self, low: float | None = None, *, includes_low: bool = False) -> None:
        self.low, self.includes_low = low, includes_low

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a number."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        low = self.low
        above = low is None or number > low or (self.includes_low and number == low)
        if not (math.isfinite(number) and above):
            bound = "" if low is None else f" {'>=' if self.includes_low else '>'} {low:g}"
            self.fail(f"got {str(value)!r}, expected a number{bound}", param, ctx)
        return number


class Reals(Real):
    """Numbers with commas between them."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read all numbers."""
        if isinstance(value, tuple):
            return value
        return tuple(super(Reals, self).convert(part, param, ctx) for part in str(value).split(","))


class Whole(click.ParamType):  # type: ignore[type-arg]
    """A whole number from ``low`` on, to ``high`` where there is one."""

    name = "integer"

    def __init__(self, low: int, high: int | None = None) -> None:
        self.low, self.high = low, high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a whole number."""
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = self.low - 1
        if number < self.low or (self.high is not None and number > self.high):
            most = "" if self.high is None else f" and <= {self.high}"
            self.fail(f"got {str(value)!r}, expected an integer >= {self.low}{most}", param, ctx)
        return number


class OneOf(click.Choice):  # type: ignore[type-arg]
    """One of some words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Find the word."""
        if value in self.choices:
            return str(value)
        near = difflib.get_close_matches(str(value), self.choices, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise click.BadParameter(
            f"got {str(value)!r}, expected one of {', '.join(self.choices)}{hint}", ctx, param
        )


class FileName(click.Path):
    """A path. Whether it can be read or written is found out where that is done.

    Parameters
    ----------
    dash : bool, default=False
        Whether - stands for standard output.
    """

    def __init__(self, *, dash: bool = False) -> None:
        super().__init__(path_type=Path, readable=False)
        self._dash = dash

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a name."""
        if not self._dash and os.fspath(value) == "-":
            self.fail("got '-', expected the name of a file", param, ctx)
        return super().convert(value, param, ctx)


FILE, FILE_OR_STDOUT = FileName(), FileName(dash=True)
