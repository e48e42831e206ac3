"""One training: what it was asked for, what is opened for it, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dpsvm_fast.cli._data_options import INPUTS, declared_schema
from dpsvm_fast.cli._errors import CommandError
from dpsvm_fast.cli._models import DENSE_ONLY
from dpsvm_fast.cli._outputs import Draft, reserved
from dpsvm_fast.cli._results import accuracy, public_rows, publish, report
from dpsvm_fast.cli._rows import Room
from dpsvm_fast.cli._screen import Screen
from dpsvm_fast.cli._spending import Spending
from dpsvm_fast.io import Table, open_table

__all__ = ["Task", "training"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a command that trains has before it reads a row.

    Parameters
    ----------
    screen : Screen
    options : dict
        Of a command with all options of ``_data_options``.
    spending : Spending
    drafts : list of Draft
        Of the model and, where asked for, its certificate.
    table : Table
        The private rows.
    tested : Table or None
        Public rows on which the model is tried.
    room : Room
    """

    screen: Screen
    options: dict[str, Any]
    spending: Spending
    drafts: list[Draft]
    table: Table
    tested: Table | None
    room: Room

    def finish(self, model: Any, statement: Any, **more: Any) -> None:
        """Write the fitted model and say what there is to say, ``more`` among it."""
        publish(model, self.table.schema, statement, self.drafts, self.spending)
        scored = None
        if self.tested is not None:
            scored = accuracy(self.screen, model, self.tested, self.options["output"])
        report(self.screen, model, statement, self.spending, self.options, scored, more)


@contextmanager
def training(screen: Screen, options: dict[str, Any]) -> Iterator[Task]:
    """What a command that trains needs before it reads a row; its failures say what was spent.

    Parameters
    ----------
    screen : Screen
    options : dict
        Of a command with all options of ``_data_options``.

    Raises
    ------
    CommandError, InvalidParameterError, TableError
        An option, the schema, the budget, a table or an output is missing or wrong. Nothing was
        spent.
    """
    if options["output"] is None:
        raise CommandError("--output is missing; name the model's file, such as -o model.json")
    schema = declared_schema(options["schema"], options["target"])
    spending = Spending(*(options[name] for name in ("epsilon", "delta", "adjacency", "budget")))
    outputs = (options["output"], options["certificate"])
    inputs = [options.get(name) for name in INPUTS]
    held = reserved(*outputs, force=options["force"], inputs=inputs)
    with held as drafts, spending.explained():
        room = Room(options["max_memory"])
        table = open_table(
            options["data"], schema, format=options["data_format"], max_memory=room.reading
        )
        if table.sparse and options["model"] in DENSE_ONLY:
            raise CommandError(
                f"--model: got {options['model']!r}, which takes dense rows only, expected another "
                "one for a LIBSVM file"
            )
        yield Task(
            screen=screen,
            options=options,
            spending=spending,
            drafts=drafts,
            table=table,
            tested=public_rows(options, table.schema),
            room=room,
        )
