"""``dpsvm-fast predict``, ``export`` and ``schema``: commands that spend no budget."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.cli import screen as ui
from dpsvm_fast.cli.app import Group
from dpsvm_fast.cli.files import opened_model, reserved
from dpsvm_fast.data import Table, TableSchema, open_table
from dpsvm_fast.data.encoder import known_schema, leading_encoder
from dpsvm_fast.data.schema import Column
from dpsvm_fast.data.tables import FORMATS
from dpsvm_fast.validation import optional_module

SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}


format_option = ui.option(
    "--format", "data_format", ui.OneOf(FORMATS), "Format of DATA.  [default: from its name]"
)
person_option = ui.option(
    "--person-column",
    "person",
    "Column of person ids; protects whole persons.  [default: from the schema]",
    metavar="COLUMN",
)


# The model of a command, and the file that it may replace.
saved_options = ui.together(
    click.argument("model", type=ui.FILE, metavar="MODEL"),
    ui.option("--key", ui.FILE, "File with the key that MODEL was signed with."),
    ui.model_memory_option,
    ui.option("--force", "Replace an existing file.", is_flag=True),
)
# MODEL, DATA and how they are read.
model_options = ui.together(
    saved_options,
    click.argument("data", type=ui.FILE_OR_STREAM, metavar="DATA"),
    ui.option("--schema", ui.FILE, "Schema of DATA.  [default: saved with the model]"),
    format_option,
)


def refuse_json(screen: ui.Screen) -> None:
    """Refuse two results on standard output."""
    if screen.json:
        raise ui.CommandError("--json: with -o -, both would write to standard output; name a file")


@click.command(
    "predict",
    epilog=ui.example(
        "dpsvm-fast predict model.json new.csv -o predictions.csv",
        "gunzip -c new.csv.gz | dpsvm-fast predict model.json - -o - | head",
    ),
)
@model_options
@ui.option(
    "-o",
    "--output",
    ui.FILE_OR_STREAM,
    "CSV, TSV or Parquet, by file name; - is stdout.",
    metavar="FILE",
    required=True,
)
@ui.option("--scores", "Add a score column for each class.", is_flag=True)
@ui.option("--probabilities", "Add a probability column for each class.", is_flag=True)
@ui.option(
    "--digits", ui.Integer(1, 17), "Digits of scores and probabilities; 17 is exact.", default=6
)
@ui.pass_screen
def predict_command(screen: ui.Screen, **options: Any) -> None:
    """Label the rows of DATA with a saved MODEL, without spending budget.

    A label column is ignored. Rows keep their order. DATA may be - for standard input.
    """
    output = options["output"]
    if output == ui.STREAM:
        refuse_json(screen)
    kind = _kind(output)
    model, table = model_and_table(options, labelled=False)
    schema = table.schema
    names = _names(model, schema, options)
    with screen.progress("Predicting", table.n_bytes_total or None) as advance:
        batches = table.batches(on_bytes=advance)
        blocks = (_columns(model, X, options) for X, *_ in batches if X.shape[0])
        if output == ui.STREAM:
            n_rows = _write_text(sys.stdout, names, blocks, ",", options["digits"])
        else:
            inputs = [options[name] for name in ("model", "data", "schema", "key")]
            with reserved(output, force=options["force"], inputs=inputs) as (draft,):
                if kind == "parquet":
                    n_rows = _write_parquet(draft.draft, names, blocks)
                else:
                    delimiter = "," if kind == "csv" else "\t"
                    with draft.draft.open("w", encoding="utf-8", newline="") as stream:
                        n_rows = _write_text(stream, names, blocks, delimiter, options["digits"])
                draft.publish()
    if output != ui.STREAM:
        screen.say(f"{output}: {n_rows} rows")
    screen.result({"output": output, "rows": n_rows, "columns": names})


# The output columns of some rows, and of the next.
Blocks = Iterable[list[NDArray[Any]]]


def _write_text(stream: Any, names: list[str], blocks: Blocks, delimiter: str, digits: int) -> int:
    """Write lines of text, with so many digits behind the label; return their number."""
    writer, n_rows = csv.writer(stream, delimiter=delimiter, lineterminator="\n"), 0
    writer.writerow(names)
    for labels, *numbers in blocks:
        text = ([f"{value:.{digits}g}" for value in one.tolist()] for one in numbers)
        writer.writerows(zip(labels.tolist(), *text, strict=True))
        n_rows += len(labels)
    return n_rows


def _write_parquet(path: Path, names: list[str], blocks: Blocks) -> int:
    """Write each block as one row group; return the number of rows."""
    import pyarrow
    from pyarrow import parquet

    writer, n_rows = None, 0
    for columns in blocks:
        arrays = [pyarrow.array(column.tolist()) for column in columns]
        table = pyarrow.Table.from_arrays(arrays, names=names)
        if writer is None:
            writer = parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
        n_rows += table.num_rows
    if writer is None:
        raise ui.CommandError("no rows to write; Parquet needs at least one, CSV does not")
    writer.close()
    return n_rows


def _kind(output: Path) -> str:
    """Return the format of the predictions."""
    if output == ui.STREAM:
        return "csv"
    kind = SUFFIXES.get(output.suffix.lower())
    if kind is None:
        raise ui.CommandError(
            f"--output: got {output.name!r}, expected a name that ends in {', '.join(SUFFIXES)}, "
            "or - for standard output"
        )
    if kind == "parquet":
        optional_module("pyarrow.parquet", "Parquet", "arrow")
    return kind


def model_and_table(options: dict[str, Any], *, labelled: bool) -> tuple[Any, Table]:
    """Open a saved model, and DATA by its schema or the one in the options.

    With labels, persons are read too, if the schema names them.

    Returns
    -------
    model : estimator
        Model for rows as read, without a leading encoder, which reading replaces.
    table : Table

    Raises
    ------
    CommandError
        The model is not a classifier, there is no schema, or DATA has other columns than the model.
    """
    # Labels do not depend on the certificate, which takes seconds to recompute: verify does that.
    saved = opened_model(options["model"], options["key"], options["max_memory"])
    model, known = saved.estimator, saved.schema
    if not hasattr(model, "predict"):
        raise ui.CommandError(
            f"{options['model']}: is a saved {type(model).__name__}, which cannot predict; name a "
            "classifier"
        )
    if options.get("probabilities") and not hasattr(model, "predict_proba"):
        raise ui.CommandError(
            "--probabilities: the loss of this model is not a likelihood; use --scores"
        )
    encoder = leading_encoder(model)
    if encoder is not None:
        model, known = getattr(model, "best_estimator_", model)[1:], known_schema(encoder)
    if options["schema"] is None and known is None:
        raise ui.CommandError(
            f"{options['model']}: was saved without a schema; give the one it was trained with: "
            "--schema FILE"
        )
    schema: Any = known if options["schema"] is None else TableSchema.load(options["schema"])
    schema = replace(schema, person=options.get("person") or schema.person)
    if labelled and schema.weight is not None:
        # It may be present, but is ignored.
        passed = Column(schema.weight, ignore=True)
        schema = replace(schema, columns=(*schema.columns, passed), weight=None)
    table = open_table(
        options["data"], schema, format=options["data_format"], labelled=labelled, owners=labelled
    )
    if table.n_features != model.n_features_in_:
        raise ui.CommandError(
            f"{options['data']}: got {table.n_features} features, expected "
            f"{model.n_features_in_}, those of {options['model']}"
        )
    return model, table


def _names(model: Any, schema: TableSchema, options: dict[str, Any]) -> list[str]:
    """Return the names of the output columns."""
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
    """Return the output columns of some rows."""
    columns = [model.predict(X)]
    if options["scores"]:
        columns += list(np.atleast_2d(model.decision_function(X).T))
    if options["probabilities"]:
        columns += list(model.predict_proba(X).T)
    return columns


# ``dpsvm-fast export``: a saved model as an ONNX graph.


@click.command(
    "export",
    epilog=ui.example(
        "dpsvm-fast export model.json -o model.onnx",
        "dpsvm-fast export model.json -o model.onnx --features --dtype float32",
    ),
)
@saved_options
@ui.option("-o", "--output", ui.FILE_OR_STREAM, "ONNX file to write; - is stdout.", required=True)
@ui.option("--dtype", ui.OneOf(("float64", "float32")), "Precision of scores.", default="float64")
@ui.option(
    "--features",
    "One input X of encoded rows instead of one input per column.",
    is_flag=True,
)
@ui.pass_screen
def export_command(screen: ui.Screen, **options: Any) -> None:
    """Write a saved MODEL as an ONNX graph from table columns to labels and scores.

    Spends no budget: the graph contains only the released model.
    """
    from sklearn.pipeline import Pipeline

    from dpsvm_fast.data import SchemaEncoder
    from dpsvm_fast.persist import to_onnx

    piped = options["output"] == ui.STREAM
    if piped:
        refuse_json(screen)
        if sys.stdout.isatty():
            raise ui.CommandError(
                "--output: got - on a terminal, but the graph is binary; name a file"
            )
    saved = opened_model(options["model"], options["key"], options["max_memory"])
    model, schema, encoder = saved.estimator, saved.schema, leading_encoder(saved.estimator)
    if encoder is not None and options["features"]:
        model = getattr(model, "best_estimator_", model)[1:]
    elif encoder is None and not options["features"] and schema and not schema.is_positional:
        encoder = SchemaEncoder(schema).fit({one.name: [] for one in schema.features})
        rest = model.steps if isinstance(model, Pipeline) else [("model", model)]
        model = Pipeline([("columns", encoder), *rest])
    if piped:
        sys.stdout.buffer.write(to_onnx(model, dtype=options["dtype"]).SerializeToString())
        sys.stdout.flush()
        return
    inputs = [options["model"], options["key"]]
    with reserved(options["output"], force=options["force"], inputs=inputs) as (draft,):
        graph = to_onnx(model, draft.draft, dtype=options["dtype"]).graph
        draft.publish()
    names = {kind: [one.name for one in getattr(graph, kind)] for kind in ("input", "output")}
    screen.say(
        f"{options['output']}: {len(names['input'])} inputs, {', '.join(names['input'][:10])}"
        f"{', ...' if len(names['input']) > 10 else ''}; outputs {', '.join(names['output'])}"
    )
    screen.result(
        {"output": options["output"], "inputs": names["input"], "outputs": names["output"]}
    )


# ``dpsvm-fast schema``: what is declared about a table, before any row is read.


@click.group("schema", cls=Group)
def schema_command() -> None:
    """Check a schema: the public facts about a table.

    dpsvm-fast fit DATA --write-schema FILE writes a template.
    """


@schema_command.command(
    "check",
    epilog=ui.example(
        "dpsvm-fast schema check people.toml",
        "dpsvm-fast schema check people.toml people.csv --rows",
    ),
)
@click.argument("schema", type=ui.FILE, metavar="SCHEMA")
@click.argument("data", type=ui.FILE_OR_STREAM, metavar="[DATA]", required=False)
@ui.option("--rows", "Also check all rows of DATA.", is_flag=True)
@format_option
@ui.pass_screen
def schema_check(
    screen: ui.Screen, *, schema: Path, data: Path | None, rows: bool, data_format: str | None
) -> None:
    """Show what a SCHEMA declares, and check the columns of DATA against it.

    Errors have exit code 2. An error of --rows is about a private row: show it only to people who
    may see the data.
    """
    if rows and data is None:
        raise ui.CommandError("--rows: needs DATA")
    declared, n_rows = TableSchema.load(schema), None
    if data is not None:
        labelled = declared.target is not None and declared.classes is not None
        table = open_table(data, declared, format=data_format, labelled=labelled, owners=True)
        declared = table.schema
        if rows:
            with screen.progress("Reading", table.n_bytes_total or None) as advance:
                n_rows = sum(X.shape[0] for X, *_ in table.batches(on_bytes=advance))
    named = declared.all_other_columns is None
    columns = declared.to_dict().get("columns", [])
    if named:
        screen.table(["column", "declared", "features"], _declared(declared), left=2)
    classes = ", ".join(map(str, declared.classes or ())) or "not declared"
    width = f"{declared.n_features} features" if named or declared.is_positional else "columns"
    owners = "".join(f", {role} {name}" for role, name in declared.owners.items())
    screen.say(f"{schema}: {width}, target {declared.target}, classes {classes}{owners}")
    if data is not None:
        fits = "its columns fit" if n_rows is None else f"{n_rows} rows fit"
        screen.say(f"{data.name}: {fits}")
    screen.result(
        {
            "schema": schema,
            "target": declared.target,
            **{role: getattr(declared, role) for role in ("person", "weight")},
            "classes": list(declared.classes or ()),
            "n_features": declared.n_features if named or declared.is_positional else None,
            "columns": columns,
            "rows": n_rows,
        }
    )


def _declared(schema: TableSchema) -> list[list[object]]:
    """Describe each column briefly."""
    found: list[list[object]] = []
    for column in schema.columns:
        facts = [f"{key} = {value}" for key, value in column.to_dict().items()]
        text = ", ".join(facts)
        text = text if len(text) <= 70 else f"{text[:67]}..."
        found.append([column.name, text, column.width])
    return found
