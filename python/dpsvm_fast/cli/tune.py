"""``dpsvm-fast tune`` and ``evaluate``: choose parameters and measure models on private rows."""

from __future__ import annotations

import difflib
from typing import Any

import click
import numpy as np
from sklearn.pipeline import Pipeline

from dpsvm_fast.certificates.events import STOPPING_LAWS
from dpsvm_fast.certificates.statement import CHOICES, STRATEGIES
from dpsvm_fast.cli import screen as ui
from dpsvm_fast.cli.files import reserved
from dpsvm_fast.cli.plan import CLASSES
from dpsvm_fast.cli.predict import model_and_table, model_options, person_option
from dpsvm_fast.cli.training import (
    PROMISED,
    STEP,
    Spending,
    budget_options,
    build,
    map_options,
    model_file_options,
    table_options,
    trainer_of,
    training,
)
from dpsvm_fast.estimators.fit import private_fit
from dpsvm_fast.metrics import TABLES, EvaluatedRows, Evaluation, PrivateEvaluation
from dpsvm_fast.model_selection import PrivateGridSearch
from dpsvm_fast.model_selection.search import RESERVED

# ``dpsvm-fast tune``: choose parameters and train, within one budget.


# Rows, the rows of the parts, and what a fit of the largest of them needs.
COPIES = 10

TUNE_EXAMPLE = ui.example(
    "dpsvm-fast tune people.csv --schema people.toml --epsilon 2 --model objective \\",
    "    --grid C=0.1,1,10 -o model.json",
)


@click.command("tune", epilog=TUNE_EXAMPLE)
@table_options
@budget_options
@ui.option("--model", ui.OneOf(CLASSES), "Pipeline, or one mechanism.", default="linear")
@map_options
@ui.option(
    "--grid",
    "param_grid",
    "Values of one parameter, chosen without the data; may be repeated.",
    multiple=True,
    metavar="NAME=A,B,...",
)
@ui.option("--strategy", ui.OneOf(STRATEGIES), "Strategy of the search.", default="partition")
@ui.option("--selection", ui.OneOf(CHOICES), "Choice of the winner.", default="permute_and_flip")
@ui.option("--stopping", ui.OneOf(STOPPING_LAWS), "Law of the number of runs.", default="geometric")
@ui.option(
    "--refit-fraction",
    ui.Real(0.0, includes_low=True),
    "Budget share for retraining the winner on all rows.",
    default=0.8,
)
@model_file_options
@ui.pass_screen
def tune_command(screen: ui.Screen, **options: Any) -> None:
    """Choose parameters by a private search on DATA, and train the winner.

    --epsilon and --delta cover all candidates, the choice and the saved model. The rows must fit
    into --max-memory.
    """
    with training(screen, options) as task:
        spending, table = task.spending, task.table
        estimator = build(table.schema, spending, options)
        names = ("strategy", "selection", "stopping", "refit_fraction", "random_state")
        search = PrivateGridSearch(
            estimator,
            _grid(estimator, options),
            spending.epsilon,
            spending.delta,
            adjacency=spending.adjacency,
            ledger=spending.ledger,
            **{name: options[name] for name in names},
        )
        # Parameters, and whether the budget has room for all of it, before any data are read.
        spending.check(search, table, n_classes=2, sparse=False)
        with task.rows(COPIES) as rows:
            X, y = task.whole(rows, COPIES, "train without a search: dpsvm-fast fit")
            with screen.progress("Searching", None):
                search.fit(X, y, **rows.owners)
        best = {name.rpartition("__")[2]: value for name, value in search.best_params_.items()}
        task.finish(search, search.privacy_, best_parameters=best)


def _grid(estimator: Any, options: dict[str, Any]) -> dict[str, list[Any]]:
    """Parse the values of each parameter, under the estimator's parameter names.

    Raises
    ------
    CommandError
        No values are given, or a name is not a parameter of the model.
    """
    trainer = trainer_of(estimator)
    known = sorted(set(trainer.get_params(deep=False)) - RESERVED)
    prefix = f"{STEP}__" if isinstance(estimator, Pipeline) else ""
    given: dict[str, list[Any]] = {}
    for text in options["param_grid"]:
        name, equals, words = text.partition("=")
        name, values = name.strip(), [_value(word.strip()) for word in words.split(",")]
        if not equals or not name or any(value == "" for value in values):
            raise ui.CommandError(f"--grid: got {text!r}, expected NAME=A,B,... such as C=0.1,1,10")
        if prefix + name in given:
            raise ui.CommandError(
                f"--grid: {name!r} is given twice; write all its values at once: {name}=A,B,..."
            )
        if len(set(map(repr, values))) < len(values):
            raise ui.CommandError(f"--grid: {name!r} repeats a value, and each value costs budget")
        if name in RESERVED:
            raise ui.CommandError(
                f"--grid: {name!r} must be the same for all candidates; give it as an option (see "
                "dpsvm-fast tune --help)"
            )
        if name not in known:
            # Capitals make a difference: C, c.
            alike = {one.lower(): one for one in known}
            near = difflib.get_close_matches(name.lower(), alike, n=1)
            expected = f"expected one of {', '.join(known)}"
            hint = f"did you mean {alike[near[0]]!r}?" if near else expected
            raise ui.CommandError(
                f"--grid: {type(trainer).__name__} has no parameter {name!r} (see --model); {hint}"
            )
        given[prefix + name] = values
    if not given:
        raise ui.CommandError("--grid is missing; give values to choose from, such as C=0.1,1,10")
    return given


def _value(word: str) -> Any:
    """Parse a number, true or false; keep any other word."""
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


# ``dpsvm-fast evaluate``: measure a model on private rows.


@click.command(
    "evaluate",
    epilog=ui.example(
        "dpsvm-fast evaluate model.json test.csv --epsilon 1 --budget test.budget",
        "dpsvm-fast evaluate model.json test.csv --epsilon 1 --metric accuracy --metric roc",
    ),
)
@model_options
@ui.option(
    "--metric",
    "metrics",
    ui.OneOf(tuple(TABLES)),
    "May be repeated; fewer metrics have less noise.  [default: all that MODEL allows]",
    multiple=True,
)
@ui.option(
    "--positive", "Positive class of roc and calibration, with several classes.", metavar="LABEL"
)
@person_option
@budget_options
@ui.option("--certificate", ui.FILE, "Write the certificate.")
@ui.pass_screen
def evaluate_command(screen: ui.Screen, **options: Any) -> None:
    """Measure a saved MODEL on the private rows of DATA, with noise; spends --epsilon.

    Every metric has a confidence interval for noise and sampling. The budget is charged for the
    rows of DATA, again if MODEL was trained on them. If the schema names persons, whole persons are
    protected and each counts once.
    """
    model, table = model_and_table(options, labelled=True)
    spending = Spending(options, table.schema)
    inputs = [options[name] for name in ("model", "data", "schema", "key", "budget")]
    held = reserved(options["certificate"], force=options["force"], inputs=inputs)
    with held as drafts, spending.explain_failures():
        evaluation = PrivateEvaluation(
            model,
            spending.epsilon,
            spending.delta,
            metrics=options["metrics"] or None,
            positive=_label(model, options["positive"]),
            adjacency=spending.adjacency,
            random_state=options["random_state"],
            ledger=spending.ledger,
            n_threads=options["n_threads"],
        ).checked()
        with spending.hide_other_messages(), screen.progress("Evaluating", None):
            rows: Any = EvaluatedRows(evaluation, table.batches, owners=table.owners)
            found = Evaluation(**private_fit(evaluation, rows))
        spending.saved = True
        for draft in drafts:
            draft.write(found.privacy_.to_json() + "\n")
    screen.say(str(found))
    screen.result(
        {
            "model": options["model"],
            **{name: getattr(found.privacy_, name) for name in PROMISED},
            "budget": spending.report(screen),
            **found.to_dict(),
        }
    )


def _label(model: Any, text: str | None) -> Any:
    """Return the class with this text, or the text if there is none."""
    labels = getattr(model, "classes_", np.empty(0)).tolist()
    return next((label for label in labels if str(label) == text), text)
