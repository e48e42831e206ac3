"""``dpsvm-fast tune``: choose parameters and train, within one budget."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import click
from sklearn.pipeline import Pipeline

from dpsvm_fast.accounting.compound import STOPPING_LAWS
from dpsvm_fast.accounting.selection import CHOICES, STRATEGIES
from dpsvm_fast.cli._data_options import budget_options, model_file_options, table_options
from dpsvm_fast.cli._errors import CommandError
from dpsvm_fast.cli._models import MODELS, STEP, made, trainer_of
from dpsvm_fast.cli._rows import training_rows
from dpsvm_fast.cli._screen import Screen, example, pass_screen
from dpsvm_fast.cli._spending import Spending
from dpsvm_fast.cli._task import Task, training
from dpsvm_fast.cli._types import FILE, OneOf, Real
from dpsvm_fast.io import TableSchema
from dpsvm_fast.io._schema_file import read_record
from dpsvm_fast.model_selection import PrivateGridSearch
from dpsvm_fast.model_selection._grid import RESERVED
from dpsvm_fast.model_selection._settings import checked_settings

__all__ = ["command"]

# Rows, the rows of the parts, and what a fit of the largest of them needs.
COPIES = 10

EXAMPLE = example(
    "dpsvm-fast tune people.csv --schema people.toml --epsilon 2 --model objective \\",
    "    --grid C=0.1,1,10 -o model.json",
)


@click.command("tune", epilog=EXAMPLE)
@table_options
@budget_options
@click.option("--model", type=OneOf(MODELS), default="linear", show_default=True)
@click.option(
    "--grid",
    "param_grid",
    multiple=True,
    metavar="NAME=A,B,...",
    help="Values of one parameter, which must not come from the data; several times for more.",
)
@click.option(
    "--grid-file", type=FILE, metavar="FILE", help="TOML or JSON, NAME = [A, B] for each."
)
@click.option("--strategy", type=OneOf(STRATEGIES), default="partition", show_default=True)
@click.option("--selection", type=OneOf(CHOICES), default="permute_and_flip", show_default=True)
@click.option("--stopping", type=OneOf(STOPPING_LAWS), default="geometric", show_default=True)
@click.option(
    "--refit-fraction",
    type=Real(0.0, includes_low=True),
    default=0.8,
    show_default=True,
    help="Share of the budget with which the winner is trained again on all rows.",
)
@model_file_options
@pass_screen
def command(screen: Screen, **options: Any) -> None:
    """Choose parameters by a private search on DATA, and train with them.

    --epsilon and --delta are those of everything together: all candidates, the choice and the model
    that is saved. The rows have to fit into --max-memory.
    """
    with training(screen, options) as task:
        _tune(task)


def _tune(task: Task) -> None:
    """Check everything, search, spend and save."""
    search = _search(task.table.schema, task.spending, task.options)
    # Parameters, and whether the budget has room for all of it, before any data are read.
    checked_settings(search)
    read = training_rows(task.screen, task.table, task.room, COPIES, task.options["temp"])
    with task.spending.among_rows(), read as rows:
        if rows.folder is not None and not task.room.holds(rows.n_bytes, COPIES):
            raise CommandError(
                "--max-memory: a search needs all rows in memory, several times; give it more, or "
                "train without a search: dpsvm-fast fit"
            )
        X, y = rows.whole()
        with task.screen.progress("Searching", None):
            search.fit(X, y)
    best = {name.rpartition("__")[2]: value for name, value in search.best_params_.items()}
    task.finish(search, search.privacy_, best_parameters=best)


def _search(schema: TableSchema, spending: Spending, options: dict[str, Any]) -> PrivateGridSearch:
    """The search over the user's grid."""
    estimator = made(
        options["model"],
        None,
        schema,
        delta=spending.delta,
        adjacency=spending.adjacency,
        n_threads=options["n_threads"],
    )
    names = ("strategy", "selection", "stopping", "refit_fraction", "random_state")
    return PrivateGridSearch(
        estimator,
        _grid(estimator, options),
        spending.epsilon,
        spending.delta,
        adjacency=spending.adjacency,
        ledger=spending.ledger,
        **{name: options[name] for name in names},
    )


def _grid(estimator: Any, options: dict[str, Any]) -> dict[str, list[Any]]:
    """Values of each parameter, under the names that the estimator has for them.

    Raises
    ------
    CommandError
        There are none, or a name is not a parameter of the model.
    """
    given: dict[str, list[Any]] = {}
    for text in options["param_grid"]:
        name, values = _parsed(text)
        if name in given:
            raise CommandError(
                f"--grid: {name!r} comes twice; write all its values at once: {name}=A,B,..."
            )
        given[name] = values
    path = options["grid_file"]
    if path is not None:
        found = read_record(path)
        if not all(isinstance(values, list) for values in found.values()):
            raise CommandError(f"{path}: expected a line NAME = [A, B] for each parameter")
        given = dict(found) | given
    if not given:
        raise CommandError("--grid is missing; give the values to choose from, such as C=0.1,1,10")
    for name, values in given.items():
        if len(set(map(repr, values))) < len(values):
            raise CommandError(f"--grid: {name!r} has a value twice, and each costs budget")
    trainer = trainer_of(estimator)
    known = sorted(set(trainer.get_params(deep=False)) - RESERVED)
    prefix = f"{STEP}__" if isinstance(estimator, Pipeline) else ""
    for name in given:
        if name in RESERVED:
            raise CommandError(
                f"--grid: {name!r} is the same for all candidates; give it as an option of its own "
                "where there is one (see dpsvm-fast tune --help)"
            )
        if name not in known:
            raise CommandError(_unknown(name, type(trainer).__name__, known))
    return {prefix + name: values for name, values in given.items()}


def _unknown(name: str, model: str, known: Sequence[str]) -> str:
    """What to write instead of a name that is none."""
    # Capitals make a difference: C, c.
    alike = {one.lower(): one for one in known}
    near = [alike[one] for one in difflib.get_close_matches(name.lower(), alike, n=1)]
    hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}"
    return f"--grid: {model} has no parameter {name!r} (see --model); {hint}"


def _parsed(text: str) -> tuple[str, list[Any]]:
    """One NAME=A,B,..."""
    name, equals, values = text.partition("=")
    found = [_value(word.strip()) for word in values.split(",")]
    if not equals or not name.strip() or any(value == "" for value in found):
        raise CommandError(f"--grid: got {text!r}, expected NAME=A,B,... such as C=0.1,1,10")
    return name.strip(), found


def _value(word: str) -> Any:
    """A number, true or false; any other word is itself."""
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
