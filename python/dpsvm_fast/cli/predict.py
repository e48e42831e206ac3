"""``dpsvm-fast predict``: label the rows of a file, a block at a time."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.cli.files import opened_model, reserved
from dpsvm_fast.cli.screen import (
    FILE,
    FILE_OR_STDOUT,
    CommandError,
    OneOf,
    Screen,
    example,
    pass_screen,
)
from dpsvm_fast.data import Table, TableSchema, open_table
from dpsvm_fast.data.encoder import known_schema, leading_encoder
from dpsvm_fast.data.tables import FORMATS

STDOUT = Path("-")

SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}


@click.command(
    "predict", epilog=example("dpsvm-fast predict model.json new.csv -o predictions.csv")
)
@click.argument("model", type=FILE, metavar="MODEL")
@click.argument("data", type=FILE, metavar="DATA")
@click.option(
    "-o",
    "--output",
    type=FILE_OR_STDOUT,
    metavar="FILE",
    required=True,
    help="CSV, TSV or Parquet, as its name says; - is standard output.",
)
@click.option("--scores", is_flag=True, help="Also a column of the score of each class.")
@click.option("--probabilities", is_flag=True, help="Also a column of the probability of each.")
@click.option(
    "--schema",
    type=FILE,
    metavar="FILE",
    help="Columns of DATA.  [default: the schema that was saved with the model]",
)
@click.option(
    "--format",
    "data_format",
    type=OneOf(FORMATS),
    help="Format of DATA, if its name does not say it.",
)
@click.option("--key", type=FILE, help="File with the key that MODEL was signed with.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@pass_screen
def predict_command(screen: Screen, **options: Any) -> None:
    """Label the rows of DATA with a saved MODEL; costs no budget.

    DATA may have a column of labels, which is not looked at. Rows come out in their order.
    """
    output = options["output"]
    if output == STDOUT and screen.json:
        raise CommandError("--json: got it with -o -, and both are standard output; name a file")
    kind = _kind(output)
    # Labels do not depend on the certificate, which takes seconds to recompute: verify does that.
    saved = opened_model(options["model"], options["key"])
    model = saved.estimator
    if not hasattr(model, "predict"):
        raise CommandError(
            f"{options['model']}: is a saved {type(model).__name__}, which labels no rows; name a "
            "classifier"
        )
    if options["probabilities"] and not hasattr(model, "predict_proba"):
        raise CommandError(
            "--probabilities: this model has none, because its loss is no likelihood; take --scores"
        )
    model, table = model_and_table(saved, options, labelled=False)
    schema = table.schema
    names = _names(model, schema, options)
    n_rows = 0
    with (
        _written(output, kind, names, options) as append,
        screen.progress("Predicting", table.n_bytes_total or None, unit="bytes") as bar,
    ):
        for X, _ in table.batches(on_bytes=bar.advance_to):
            if X.shape[0]:
                append(_columns(model, X, options))
                n_rows += X.shape[0]
    if output != STDOUT:
        screen.say(f"{output}: {n_rows} rows")
    screen.result({"output": str(output), "rows": n_rows, "columns": names})


Append = Callable[[list[NDArray[Any]]], None]


@contextmanager
def _written(
    output: Path, kind: str, names: list[str], options: dict[str, Any]
) -> Iterator[Append]:
    """Write columns block by block; the file takes its name once all rows are in it."""
    if output == STDOUT:
        yield _csv_rows(sys.stdout, names, ",")
        return
    inputs = [options[name] for name in ("model", "data", "schema", "key")]
    with reserved(output, force=options["force"], inputs=inputs) as (draft,):
        if kind == "parquet":
            with _parquet_blocks(draft.draft, names) as append:
                yield append
        else:
            with draft.draft.open("w", encoding="utf-8", newline="") as stream:
                yield _csv_rows(stream, names, "," if kind == "csv" else "\t")
        draft.publish()


def _csv_rows(stream: Any, names: list[str], delimiter: str) -> Append:
    """Lines of text."""
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    return lambda columns: writer.writerows(zip(*(one.tolist() for one in columns), strict=True))


@contextmanager
def _parquet_blocks(path: Path, names: list[str]) -> Iterator[Append]:
    """Row groups of one block each."""
    import pyarrow
    from pyarrow import parquet

    writer: Any = None

    def append(columns: list[NDArray[Any]]) -> None:
        nonlocal writer
        arrays = [pyarrow.array(column.tolist()) for column in columns]
        table = pyarrow.Table.from_arrays(arrays, names=names)
        if writer is None:
            writer = parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)

    yield append
    if writer is None:
        raise CommandError("there are no rows to write; Parquet needs one, CSV does not")
    writer.close()


def _kind(output: Path) -> str:
    """Format of the predictions."""
    if output == STDOUT:
        return "csv"
    kind = SUFFIXES.get(output.suffix.lower())
    if kind is None:
        raise CommandError(
            f"--output: got {output.name!r}, expected a name that ends in {', '.join(SUFFIXES)}, "
            "or - for standard output"
        )
    if kind == "parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise CommandError(
                'Parquet needs pyarrow, which is not installed: pip install "dpsvm-fast[arrow]"'
            ) from None
    return kind


def model_and_table(saved: Any, options: dict[str, Any], *, labelled: bool) -> tuple[Any, Table]:
    """Open DATA for a saved model, by its schema or the one of the options.

    Returns
    -------
    model : estimator
        What takes the rows as they are read: without an encoder that reading does the work of.
    table : Table

    Raises
    ------
    CommandError
        There is no schema, or DATA has other columns than the model knows.
    """
    model, known = saved.estimator, saved.schema
    encoder = leading_encoder(model)
    if encoder is not None:
        model, known = getattr(model, "best_estimator_", model)[1:], known_schema(encoder)
    if options["schema"] is None and known is None:
        raise CommandError(
            f"{options['model']}: was saved without a schema, so that the columns of DATA are not "
            "known; give the one that it was trained with: --schema FILE"
        )
    schema = known if options["schema"] is None else TableSchema.load(options["schema"])
    table = open_table(options["data"], schema, format=options["data_format"], labelled=labelled)
    if table.n_features != model.n_features_in_:
        raise CommandError(
            f"{options['data']}: got {table.n_features} features, expected "
            f"{model.n_features_in_}, those of {options['model']}"
        )
    return model, table


def _names(model: Any, schema: TableSchema, options: dict[str, Any]) -> list[str]:
    """Names of the columns that are written."""
    target = schema.target if isinstance(schema.target, str) else "label"
    classes = [str(label) for label in model.classes_.tolist()]
    names = [target]
    if options["scores"]:
        two = len(classes) == 2
        names += [f"score_{classes[1]}"] if two else [f"score_{label}" for label in classes]
    if options["probabilities"]:
        names += [f"probability_{label}" for label in classes]
    return names


def _columns(model: Any, X: Any, options: dict[str, Any]) -> list[NDArray[Any]]:
    """What is written about some rows."""
    columns = [model.predict(X)]
    if options["scores"]:
        columns += list(np.atleast_2d(model.decision_function(X).T))
    if options["probabilities"]:
        columns += list(model.predict_proba(X).T)
    return columns
