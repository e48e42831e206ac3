"""``dpsvm-fast fit``: train a private model on the rows of a file."""

from __future__ import annotations

from typing import Any

import click

from dpsvm_fast.cli._data_options import budget_options, model_file_options, table_options
from dpsvm_fast.cli._errors import CommandError
from dpsvm_fast.cli._models import KERNELS, MECHANISMS, MODELS, made, trainer_of
from dpsvm_fast.cli._outputs import reserved
from dpsvm_fast.cli._rows import training_rows
from dpsvm_fast.cli._screen import Screen, example, pass_screen, typed
from dpsvm_fast.cli._task import Task, training
from dpsvm_fast.cli._training import copies_of, train
from dpsvm_fast.cli._types import FILE, OneOf
from dpsvm_fast.io import TableSchema

__all__ = ["command"]

EXAMPLE = example(
    "dpsvm-fast fit people.csv --write-schema people.toml --target income",
    "dpsvm-fast fit people.csv --schema people.toml --epsilon 1 --delta 1e-6 -o model.json",
)


@click.command("fit", epilog=EXAMPLE)
@table_options
@click.option(
    "--write-schema",
    type=FILE,
    metavar="FILE",
    help="Write a schema to be filled in, from the names of the columns alone, and stop.",
)
@budget_options
@click.option(
    "--model",
    type=OneOf(MODELS),
    default="linear",
    show_default=True,
    help="The whole pipeline, linear or with a kernel; or one training of rows of norm 1.",
)
@click.option("--mechanism", type=OneOf(MECHANISMS), help="Where the noise goes.  [default: auto]")
@click.option("--kernel", type=OneOf(KERNELS), help="Of --model kernel.  [default: auto]")
@model_file_options
@pass_screen
def command(screen: Screen, **options: Any) -> None:
    """Train a private model on DATA: CSV, TSV, Parquet, Arrow, npz or LIBSVM text.

    Bounds, categories and classes are public facts that --schema declares; nothing is learned from
    the rows but what --epsilon and --delta pay for. All rows are checked before anything is spent.
    """
    if options["write_schema"] is not None:
        _write_schema(screen, options)
        return
    with training(screen, options) as task:
        _fit(task)


def _fit(task: Task) -> None:
    """Check everything, spend, train and save."""
    options, spending, table = task.options, task.spending, task.table
    estimator = made(
        options["model"],
        options["mechanism"],
        table.schema,
        kernel=options["kernel"],
        epsilon=spending.epsilon,
        delta=spending.delta,
        adjacency=spending.adjacency,
        random_state=options["random_state"],
        n_threads=options["n_threads"],
        ledger=spending.ledger,
    )
    n_classes = len(table.schema.classes or ())
    spending.check(estimator, n_classes=n_classes, sparse=table.sparse)
    copies = copies_of(estimator, table.n_features)
    read = training_rows(task.screen, table, task.room, copies, options["temp"])
    with spending.among_rows(), read as rows:
        train(task.screen, estimator, rows, task.room)
    task.finish(estimator, trainer_of(estimator).privacy_)


def _write_schema(screen: Screen, options: dict[str, Any]) -> None:
    """Write a template of a schema; reads the header of the file alone."""
    data, path = options["data"], options["write_schema"]
    text = TableSchema.template(data, target=options["target"], format=options["data_format"])
    with reserved(path, force=options["force"], inputs=[data]) as (draft,):
        if path.suffix.lower() != ".toml":
            raise CommandError(
                f"--write-schema: got {path.name!r}, expected a name that ends in .toml; "
                "the end says how a schema is read"
            )
        draft.draft.write_text(text, encoding="utf-8")
        draft.publish()
    screen.say(
        f"{path}: fill in public bounds or categories of every column, the target and the classes, "
        f"then\n  dpsvm-fast fit {typed(data)} --schema {typed(path)} --epsilon 1 -o model.json"
    )
    screen.result({"schema": str(path)})
