"""Options of commands that read data, and what they stand for."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dpsvm_fast._validation import ADJACENCIES
from dpsvm_fast.cli._errors import CommandError
from dpsvm_fast.cli._types import FILE, OneOf, Real, Whole
from dpsvm_fast.io import TableSchema
from dpsvm_fast.io.tables import FORMATS

__all__ = [
    "INPUTS",
    "MemorySize",
    "budget_options",
    "declared_schema",
    "model_file_options",
    "table_options",
]

# Options that name files to be read, of fit and of tune.
INPUTS = ("data", "schema", "budget", "test_data", "grid_file")

UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    UNITS |= {f"{_letter}B": 1000**_power, f"{_letter}IB": 1024**_power, _letter: 1024**_power}

DECLARE_TARGET = (
    "{path}: no column of labels is declared; give --target COLUMN, or write the line "
    'target = "COLUMN" at the top of the file'
)
DECLARE_CLASSES = (
    "{path}: the classes are not declared, and are not read from private data; write a line such "
    'as classes = ["no", "yes"] at the top of the file'
)


class MemorySize(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes with a unit: 512MiB, 2GB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a number and its unit."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([A-Za-z]*)\s*", str(value))
        unit = UNITS.get(found[2].upper()) if found else None
        if found is None or unit is None or float(found[1]) <= 0.0:
            self.fail(f"got {str(value)!r}, expected a size such as 512MiB or 2GB", param, ctx)
        return int(float(found[1]) * unit)


def table_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command DATA and the options that say how it is read."""
    options = (
        click.argument("data", type=FILE, metavar="DATA"),
        click.option(
            "--schema",
            type=FILE,
            metavar="FILE",
            help="TOML or JSON: columns with public bounds or categories, labels, classes.",
        ),
        click.option(
            "--target", metavar="COLUMN", help="Column of the labels, if FILE does not say it."
        ),
        click.option(
            "--format",
            "data_format",
            type=OneOf(FORMATS),
            help="Format of DATA, if its name does not say it.",
        ),
        click.option(
            "--max-memory",
            type=MemorySize(),
            default="2GiB",
            show_default=True,
            metavar="SIZE",
            help="Memory of the whole program; what does not fit goes to a temporary folder.",
        ),
        click.option(
            "--temp", type=FILE, metavar="DIR", help="Where that folder is made.  [default: TMPDIR]"
        ),
    )
    return _decorated(function, options)


def budget_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say what may be spent, and where that is written down."""
    options = (
        click.option("--epsilon", type=Real(0.0), metavar="E", help="Privacy parameter."),
        click.option(
            "--delta",
            type=Real(0.0, includes_low=True),
            default=1e-6,
            metavar="D",
            help="Far below one over the number of rows; 0 is pure.  [default: 1e-6]",
        ),
        click.option(
            "--adjacency",
            type=OneOf(ADJACENCIES),
            help="What one record may change.  [default: that of the budget, or add_remove]",
        ),
        click.option(
            "--budget", type=FILE, metavar="FILE", help="Spend from a file of 'budget create'."
        ),
        click.option(
            "--seed", "random_state", type=Whole(0), help="Repeatable noise: NOT PRIVATE."
        ),
        click.option("--threads", "n_threads", type=Whole(1), help="[default: all cores]"),
    )
    return _decorated(function, options)


def model_file_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that trains the options that name its results."""
    options = (
        click.option("-o", "--output", type=FILE, metavar="FILE", help="The model, JSON."),
        click.option("--certificate", type=FILE, metavar="FILE", help="Its statement, for verify."),
        click.option(
            "--test-data",
            type=FILE,
            metavar="FILE",
            help="PUBLIC rows to measure accuracy on: what is printed about them is not protected.",
        ),
        click.option("--force", is_flag=True, help="Replace files that exist."),
    )
    return _decorated(function, options)


def declared_schema(path: Path | None, target: str | None) -> TableSchema:
    """The schema that the user declared, with labels and classes.

    Raises
    ------
    CommandError, InvalidParameterError
        There is none, or something in it is missing or wrong. No data were read.
    """
    if path is None:
        raise CommandError(
            "--schema is missing: bounds and classes are declared, never read from private data; "
            "write a template with --write-schema FILE, fill it in and give it with --schema FILE"
        )
    schema = TableSchema.load(path)
    if target is not None:
        schema = dataclasses.replace(schema, target=target)
    if schema.classes is None:
        raise CommandError(DECLARE_CLASSES.format(path=path))
    return schema


def _decorated(function: Callable[..., Any], options: tuple[Any, ...]) -> Callable[..., Any]:
    """The function under all options, in their order."""
    for option in reversed(options):
        function = option(function)
    return function
