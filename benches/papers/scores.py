"""Four measures of models on rows left out, beside chance and the linear model that is not private.

The rows of a benchmark have columns data, model, epsilon and split; those of ``REFERENCES`` have no
epsilon. All means are over splits, since models of one split are not independent.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benches.papers.cells import cells, error, grid
from benches.papers.data import DataSet
from benches.tables import Row, as_rows

METRICS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "auroc": "AUROC",
    "log_loss": "log-loss",
}
REFERENCES = ("majority class", "linear, not private")
PROTOCOL: tuple[str, ...] = (
    "Adult, `mnist` and `usps, official` have their official split and fresh noise in each fit.",
    "Balanced accuracy is the mean over classes, AUROC the mean over classes of one against the "
    "rest, both over the classes with test rows. Log-loss is in nats, with probabilities of at "
    "least 1e-6.",
    "“Majority class” predicts the shares of the classes. “Linear, not private” is scikit-learn's "
    "logistic regression on standardised columns, C = 1 (MNIST: 0.01). Both have the same splits.",
)
TEST_SHARE = 0.2
# Of the linear model: as usual with so many constant pixels.
REFERENCE_C = {"mnist": 0.01}
LEAST = 1e-6


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows left out, with public bounds."""

    number: int
    official: bool
    X: NDArray[Any]
    y: NDArray[np.int64]
    X_test: NDArray[Any]
    y_test: NDArray[np.int64]
    n_classes: int
    bounds: tuple[Any, Any] | None


def split_of(data: DataSet, number: int, *, official: bool = False) -> Split:
    """A random split by its number, or the official one, whose number tells fits apart."""
    if official and data.is_train is not None:
        train, test = np.flatnonzero(data.is_train), np.flatnonzero(~data.is_train)
    else:
        places = np.arange(data.y.size)
        train, test = train_test_split(places, test_size=TEST_SHARE, random_state=number)
    rows = data.X[train], data.y[train], data.X[test], data.y[test]
    bounds = (data.low, data.high) if data.low.size else None
    return Split(number, official, *rows, data.n_classes, bounds)


def scores(model: Any, split: Split) -> dict[str, float | None]:
    """Every measure of a fitted model; no log-loss where it has no probabilities."""
    y, predicted = split.y_test, model.predict(split.X_test)
    likely = np.full((y.size, split.n_classes), LEAST)
    loss = None
    if hasattr(model, "predict_proba"):
        # Of all classes, also those without a row to train on.
        likely[:, model.classes_] = np.maximum(model.predict_proba(split.X_test), LEAST)
        likely /= likely.sum(axis=1, keepdims=True)
        loss = float(log_loss(y, likely, labels=range(split.n_classes)))
    else:
        likely[:, model.classes_] = model.decision_function(split.X_test)
    present = np.unique(y)
    found = (
        np.mean(predicted == y),
        np.mean([np.mean(predicted[y == one] == one) for one in present]),
        np.mean([roc_auc_score(y == one, likely[:, one]) for one in present]),
    )
    return dict(zip(METRICS, (*map(float, found), loss), strict=True))


def references(name: str, split: Split) -> list[dict[str, object]]:
    """Chance and the linear model; nothing for a second look at the official split."""
    if split.official and split.number:
        return []
    C = REFERENCE_C.get(name.split(",")[0], 1.0)
    linear = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000))
    models = dict(zip(REFERENCES, (DummyClassifier(strategy="prior"), linear), strict=True))
    with warnings.catch_warnings():
        # Far enough for a reference.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [
            {"model": label, "split": split.number} | scores(model.fit(split.X, split.y), split)
            for label, model in models.items()
        ]


def stored(name: str, n_rows: int, records: Iterable[Mapping[str, object]]) -> list[Row]:
    """Records of one data set with the same columns in all; says what was found."""
    columns = dict.fromkeys(("model", "epsilon", "split", *METRICS))
    for record in (records := list(records)):
        columns |= dict.fromkeys(record)
    first = {"data": name, "n_rows": n_rows}
    rows = as_rows(first | {one: record.get(one) for one in columns} for record in records)
    for row in summary(rows):
        print(name, row["model"], row["epsilon"], one(row), three(row), flush=True)
    return rows


def summary(
    rows: Sequence[Row],
    base: str = "",
    more: Callable[[Sequence[Row]], Mapping[str, object]] = lambda _: {},
) -> list[Row]:
    """Means and standard errors of each data set, model and epsilon.

    Parameters
    ----------
    rows : sequence of Row
    base : str, default=""
        The model over which others gain accuracy on the same splits.
    more : callable
        From the rows of a cell to further columns.

    Returns
    -------
    list of Row
    """
    found = cells(rows, ("data", "model", "epsilon"))
    table = []
    for (name, model, epsilon), own in found.items():
        line: dict[str, object] = {"data": name, "n_rows": own[0]["n_rows"], "model": model}
        line |= {"epsilon": epsilon, "splits": len({row["split"] for row in own})}
        line["models"] = len(own)
        for metric in METRICS:
            values = list(_of_splits(own, metric).values())
            line[metric] = mean(values) if values else None
            line[_error_of(metric)] = error(values)
        if base:
            theirs = _of_splits(found.get((name, base, epsilon), []), "accuracy")
            ours = _of_splits(own, "accuracy") if model != base and theirs else {}
            gains = [ours[split] - theirs[split] for split in ours]
            line |= {"gain": mean(gains) if gains else None, "gain_error": error(gains)}
        table.append(line | dict(more(own)))
    return as_rows(table)


def _of_splits(members: Sequence[Row], metric: str) -> dict[str, float]:
    """Mean of each split that has the measure."""
    found = cells((row for row in members if row[metric]), ("split",))
    return {split: mean(float(row[metric]) for row in own) for (split,), own in found.items()}


def _error_of(metric: str) -> str:
    """The column of a standard error."""
    return "standard_error" if metric == "accuracy" else f"{metric}_error"


def beside(table: Sequence[Row]) -> list[Row]:
    """Private models alone, with the accuracies of ``REFERENCES`` as majority and linear."""
    found = {(row["data"], row["model"]): row["accuracy"] for row in table if not row["epsilon"]}
    return [
        row | {at: found[row["data"], one] for at, one in zip(("majority", "linear"), REFERENCES)}  # noqa: B905
        for row in table
        if row["epsilon"]
    ]


def one(row: Row, metric: str = "accuracy", digits: int = 3) -> str:
    """A mean with its standard error; a dash where there is none."""
    if not row[metric]:
        return "-"
    spread = row[_error_of(metric)]
    value = f"{float(row[metric]):.{digits}f}"
    return f"{value} ± {float(spread):.{digits}f}" if spread else value


def gained(row: Row) -> str:
    """Accuracy, in parentheses the gain over the base."""
    if not row["gain"]:
        return one(row)
    spread = f" ± {float(row['gain_error']):.3f}" if row["gain_error"] else ""
    return f"{one(row)} ({round(float(row['gain']), 3) + 0.0:+.3f}{spread})"


def three(row: Row) -> str:
    """The measures beside accuracy, without errors."""
    return " / ".join(one(row, metric).partition(" ")[0] for metric in list(METRICS)[1:])


def by_epsilon(
    table: Sequence[Row],
    cell: Callable[[Row], str] = one,
    label: Callable[[Row], str] = lambda row: row["data"],
    head: str = "",
) -> str:
    """A line for each data set and private model; its first line ends with the references."""
    private = [row for row in table if row["epsilon"]]
    ends = {(row["data"], row["model"]): cell(row) for row in table if not row["epsilon"]}
    epsilons = sorted({row["epsilon"] for row in private}, key=float)
    lines = []
    for (name, _), own in cells(private, ("data", "model")).items():
        found = {row["epsilon"]: cell(row) for row in own}
        last = (ends.pop((name, reference), "") for reference in REFERENCES)
        lines.append((label(own[0]), *(found.get(at, "") for at in epsilons), *last))
    return grid((head, *(f"ε = {at}" for at in epsilons), *REFERENCES), lines)


def compact(table: Sequence[Row], label: Callable[[Row], str] = lambda row: row["data"]) -> str:
    """Every measure but accuracy in one table."""
    errors = [
        f"{max((float(row[_error_of(metric)] or 0.0) for row in table), default=0.0):.3f}"
        for metric in list(METRICS)[1:]
    ]
    lines = by_epsilon(table, three, label, " / ".join(list(METRICS.values())[1:]))
    return f"{lines}\n\nStandard errors are at most {' / '.join(errors)}."


def counted(table: Sequence[Row]) -> str:
    """How many splits, or fits on the official split, each data set has: a sentence."""
    found: dict[str, list[str]] = {}
    for (name,), own in cells((row for row in table if row["epsilon"]), ("data",)).items():
        found.setdefault(own[0]["splits"], []).append(name)
    parts = (f"{count} ({'; '.join(names)})" for count, names in found.items())
    return f"Splits, or fits on the official split: {', '.join(parts)}."


def full(table: Sequence[Row], accuracy: Callable[[Row], str] = one) -> str:
    """One table a measure, with standard errors; accuracies may have a cell of their own."""
    several = len({row["model"] for row in table if row["epsilon"]}) > 1

    def label(row: Row) -> str:
        return f"{row['data']}, {row['model']}" if several else row["data"]

    parts = [
        by_epsilon(
            table, accuracy if metric == "accuracy" else partial(one, metric=metric), label, head
        )
        for metric, head in METRICS.items()
    ]
    return "\n\n".join([*parts, counted(table)])
