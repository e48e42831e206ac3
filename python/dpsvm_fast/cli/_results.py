"""After a fit: its files, and what the user is told."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from dpsvm_fast.cli._documents import certificate_text
from dpsvm_fast.cli._errors import CommandError
from dpsvm_fast.cli._models import trainer_of
from dpsvm_fast.cli._outputs import Draft
from dpsvm_fast.cli._screen import Screen, typed
from dpsvm_fast.cli._spending import Spending
from dpsvm_fast.exceptions import TableError
from dpsvm_fast.io import TableSchema, open_table, save_model

__all__ = ["accuracy", "public_rows", "publish", "report"]


def publish(
    model: Any, schema: TableSchema, statement: Any, drafts: list[Draft], spending: Spending
) -> None:
    """Write the model and, where asked for, its certificate, bound to that file by its digest.

    Raises
    ------
    CommandError
        A file could not be written to its place; the text says where the model is, because what
        it cost cannot be had back.
    """
    model_draft, *others = drafts
    try:
        save_model(model, model_draft.draft, schema=schema)
        model_draft.publish()
    except OSError as error:
        place = _rescued(model, schema)
        spending.saved = place is not None
        told = "nor anywhere else" if place is None else f"but is in {place}: move it"
        reason = error.strerror or str(error)
        raise CommandError(
            f"{model_draft.path}: the model cannot be written ({reason}), {told}"
        ) from None
    spending.saved = True
    for certificate in others:
        try:
            text = certificate_text(statement, model_draft.path)
            certificate.draft.write_text(text, encoding="utf-8")
            certificate.publish()
        except OSError as error:
            reason = error.strerror or str(error)
            raise CommandError(
                f"{certificate.path}: the certificate cannot be written ({reason}); the model is "
                f"saved as {model_draft.path}, and dpsvm-fast statement {typed(model_draft.path)} "
                "--certificate FILE writes it"
            ) from None


def _rescued(model: Any, schema: TableSchema) -> Path | None:
    """Save the model to a temporary folder, if that is possible."""
    try:
        path = Path(tempfile.mkdtemp(prefix="dpsvm_fast-model-")) / "model.json"
        save_model(model, path, schema=schema)
    except OSError:
        return None
    return path


def public_rows(options: dict[str, Any], schema: TableSchema) -> Any:
    """The table of ``--test-data``, or None.

    Raises
    ------
    CommandError
        It is the file that is trained on: what is printed about its rows would not be protected.
    """
    path = options["test_data"]
    if path is None:
        return None
    table = open_table(path, schema)
    if path.samefile(options["data"]):
        raise CommandError(
            f"--test-data: got {path}, whose rows are private as they are trained on, expected a "
            "file of public rows"
        )
    return table


def accuracy(screen: Screen, model: Any, table: Any, saved: Path) -> float:
    """Share of public rows whose label is predicted.

    Raises
    ------
    CommandError
        A row is not what the schema says.
    """
    right = total = 0
    try:
        with screen.progress("Testing", table.n_bytes_total or None, unit="bytes") as bar:
            for X, y in table.batches(on_bytes=bar.advance_to):
                right += int(np.count_nonzero(model.predict(X) == y))
                total += len(y)
    except TableError as error:
        raise CommandError(f"{error}; the model is saved as {saved}") from None
    if total == 0:
        raise CommandError(f"{table.path}: has no rows to test on; the model is saved as {saved}")
    return right / total


def report(
    screen: Screen,
    model: Any,
    statement: Any,
    spending: Spending,
    options: dict[str, Any],
    scored: float | None,
    more: dict[str, dict[str, Any]] | None = None,
) -> None:
    """Say what was promised, what is where, and what can be done next."""
    name, budget = type(trainer_of(model)).__name__, spending.record()
    screen.result(
        {
            "model": str(options["output"]),
            "certificate": None if options["certificate"] is None else str(options["certificate"]),
            "estimator": name,
            "private": statement.private,
            "epsilon": statement.epsilon,
            "delta": statement.delta,
            "adjacency": statement.adjacency,
            "budget": budget,
            "public_test_accuracy": scored,
            **(more or {}),
        }
    )
    _tell(screen, name, statement, budget, options, scored, more or {})


def _tell(
    screen: Screen,
    name: str,
    statement: Any,
    budget: dict[str, Any] | None,
    options: dict[str, Any],
    scored: float | None,
    more: dict[str, dict[str, Any]],
) -> None:
    """The same for people."""
    output, data = options["output"], options["data"]
    private = "private" if statement.private else "NOT PRIVATE"
    screen.say(
        f"{output}: {name}, {private}, epsilon = {statement.epsilon:g}, delta = "
        f"{statement.delta:g} ({statement.adjacency})",
        style="bold",
    )
    for title, value in more.items():
        facts = ", ".join(f"{one} = {own}" for one, own in value.items())
        screen.say(f"{title.replace('_', ' ')}: {facts}")
    if scored is not None:
        screen.say(
            f"accuracy on the rows of {options['test_data']}: {scored:.4f} (these rows count as "
            "public: nothing protects them)"
        )
    if budget is not None:
        screen.say(
            f"{budget['file']}: epsilon = {budget['remaining_epsilon']:.6g} is left of "
            f"{budget['epsilon']:g} at delta = {budget['delta']:g}"
        )
    screen.say(
        f"next: dpsvm-fast statement {typed(output)}\n"
        f"      dpsvm-fast predict {typed(output)} NEW{_suffixes(data)} -o predictions.csv"
    )


def _suffixes(data: Path) -> str:
    """How the name of a file says its format: .csv, or .csv.gz."""
    packed = data.suffix.lower() == ".gz"
    return f"{Path(data.stem).suffix}{data.suffix}" if packed else data.suffix
