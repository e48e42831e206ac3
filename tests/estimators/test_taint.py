"""Nothing but noise lets records reach the outside; see oracles/taint.py for what is looked at.

Two worlds: other rows, other labels, and under add_remove another number of rows; the columns,
their names, the label set, the parameters, and under replace_one the number of rows are public and
the same. What passes through noise is the same by force.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline

from dpsvm_fast import (
    GradientPerturbationSVC,
    OutputPerturbationSVC,
    PrivacyLedger,
    PrivateCenter,
    PrivateLinearSVC,
    PublicScaler,
    total_privacy,
)
from dpsvm_fast.model_selection import PrivateGridSearch
from oracles.statements import ADJACENCIES, ESTIMATORS, ONE_RELATION
from oracles.taint import Run, compared, seen_of_exception

KINDS = [
    (kind, adjacency)
    for kind in ESTIMATORS
    for adjacency in ADJACENCIES
    if ONE_RELATION.get(kind, adjacency) == adjacency
]
# One of each class: what happens around a fit is the same for all kinds of one.
CLASSES = {make.__name__: kind for kind, (make, _) in reversed(ESTIMATORS.items())}
every_class = pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
COLUMNS = ["age", "income", "height"]
PUBLIC_ROWS = np.random.default_rng(9).uniform(-1.0, 1.0, size=(4, 3))


def records(world: int, adjacency: str, n_classes: int = 3, *, names: bool = False) -> Any:
    """Rows and labels of one of the two worlds."""
    rng = np.random.default_rng(world)
    n = 40 if world == 0 or adjacency == "replace_one" else 23
    rows = rng.normal(size=(n, 3)) * (0.3 if world == 0 else 2.0)
    labels = rng.integers(0, n_classes, n) if world == 0 else np.full(n, n_classes - 1)
    return (pd.DataFrame(rows, columns=COLUMNS) if names else rows), labels


def n_classes_of(kind: str) -> int:
    return len(ESTIMATORS[kind][1].get("classes", range(2)))


def fit_of(kind: str, adjacency: str, **changes: Any) -> Run:
    """A fit with a ledger, and everything that comes of it."""
    make, parameters = ESTIMATORS[kind]
    settings = {"epsilon": 2.0} | parameters | {"adjacency": adjacency} | changes
    if "verbose" in make._get_param_names():
        settings["verbose"] = 1

    def run(data: Any, kept: list[Any]) -> None:
        ledger = PrivacyLedger(100.0, 1e-3, adjacency, strict=False)
        model = make(**settings, ledger=ledger)
        kept += [model, ledger]
        try:
            model.fit(*data)
        finally:
            # A ledger is looked at by itself: its file has a random name.
            model.set_params(ledger=None)
        method = "decision_function" if hasattr(model, "decision_function") else "transform"
        public = PUBLIC_ROWS
        if hasattr(model, "feature_names_in_"):
            public = pd.DataFrame(public, columns=COLUMNS)
        kept += [model.privacy_, getattr(model, method)(public)]

    return run


def worlds(kind: str, adjacency: str, **options: Any) -> tuple[Any, Any]:
    n_classes = n_classes_of(kind)
    return (
        records(0, adjacency, n_classes, **options),
        records(1, adjacency, n_classes, **options),
    )


def slow_kinds(names: tuple[str, ...]) -> list[Any]:
    """All kinds, those whose law is searched for a long time marked."""
    return [
        pytest.param(kind, id=" ".join(kind), marks=[pytest.mark.slow] * (kind[0] in names))
        for kind in KINDS
    ]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", slow_kinds(("ellipsoids several", "ellipsoids three")))
def test_a_fit_shows_nothing_but_noise(kind: tuple[str, str]) -> None:
    assert compared(fit_of(*kind), *worlds(*kind)) == []


@every_class
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_names_of_columns_are_public_and_nothing_else(kind: str, adjacency: str) -> None:
    assert compared(fit_of(kind, adjacency), *worlds(kind, adjacency, names=True)) == []


@every_class
def test_an_interrupted_fit_shows_nothing(kind: str) -> None:
    run = fit_of(kind, "add_remove")
    assert compared(run, *worlds(kind, "add_remove"), interrupted=True) == []


@pytest.mark.parametrize("kind", ["output", "objective", "ellipsoids"])
def test_a_refused_certificate_shows_nothing_else(kind: str) -> None:
    """That it was refused depends on the records, and is said to; here it is in both worlds."""
    least = 1e-4 if kind == "output" else 1e-8
    run = fit_of(kind, "add_remove", tol=least, max_iter=1, C=100.0)
    found: list[Any] = []

    def checked(data: Any, kept: list[Any]) -> None:
        try:
            run(data, kept)
        except Exception as error:
            found.append(type(error).__name__)
            raise

    assert compared(checked, *worlds(kind, "add_remove"), fails=True) == []
    assert found == ["CertificationError"] * 2


def changed(array: Any, place: Any, value: Any, dtype: Any = None) -> Any:
    """A copy with one value replaced."""
    other = np.array(array, dtype=dtype)
    other[place] = value
    return other


# How rows or labels are wrong, for a world: in another place, with another value.
Spoil = Callable[[Any, Any, int], tuple[Any, Any]]
SPOILED: dict[str, Spoil] = {
    "nan": lambda X, y, w: (changed(X, (3 + w, w), np.nan), y),
    "infinity": lambda X, y, w: (changed(X, (3 + w, w), (-1) ** w * np.inf), y),
    "sparse nan": lambda X, y, w: (sparse.csr_matrix(changed(X, (3 + w, w), np.nan)), y),
    "text": lambda X, y, w: (changed(X, (3 + w, w), f"secret {w}", object), y),
    "all text": lambda X, y, w: (np.array(X).astype("U30"), y),
    "frame text": lambda X, y, w: (pd.DataFrame(changed(X, (3 + w, w), f"s{w}", object)), y),
    "object": lambda X, y, w: (changed(X, (3 + w, w), {"secret": w}, object), y),
    "complex": lambda X, y, w: (X + 1j * w, y),
    "one-dimensional": lambda X, y, w: (X[:, 0], y),
    "dates": lambda X, y, w: ((1e9 * X).astype("datetime64[s]"), y),
    "ragged": lambda X, y, w: ([[0.5 + w], [1.0, 2.0], [3.0]], [0, 1, 0]),
}
SPOILED_LABELS: dict[str, Spoil] = {
    "unknown label": lambda X, y, w: (X, changed(y, 3 + w, 7 + w)),
    "text label": lambda X, y, w: (X, changed(y, 3 + w, f"secret {w}", object)),
    "all text labels": lambda X, y, w: (X, np.array(y).astype("U9")),
    "fraction": lambda X, y, w: (X, changed(y, 3 + w, 1.5 + w, float)),
    "nan label": lambda X, y, w: (X, changed(y, 3 + w, np.nan, float)),
    "no label": lambda X, y, w: (X, changed(y, 3 + w, None, object)),
    "object label": lambda X, y, w: (X, changed(y, 3 + w, {"secret": w}, object)),
    "two columns": lambda X, y, w: (X, np.stack([y, y], axis=1)),
    "no labels": lambda X, y, w: (X, None),
    "another number": lambda X, y, w: (X, y[: 30 + w]),
}


def check_refusal(kind: str, spoil: Spoil) -> None:
    """Both worlds spoiled alike; the fits fail alike, and say the same."""
    here, there = (
        spoil(*records(world, "replace_one", n_classes_of(kind)), world) for world in (0, 1)
    )
    errors: list[Exception] = []
    run = fit_of(kind, ADJACENCIES[1])

    def checked(data: Any, kept: list[Any]) -> None:
        try:
            run(data, kept)
        except Exception as error:
            errors.append(error)
            raise

    assert compared(checked, here, there, fails=True) == []
    assert len(errors) == 2
    for error in errors:
        text = "".join(seen_of_exception(error).values())
        assert "secret 0" not in text
        assert "secret 1" not in text


@pytest.mark.sampled(times=2)
@every_class
@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_refusal_of_rows_does_not_quote_them(kind: str, spoiled: str) -> None:
    check_refusal(kind, SPOILED[spoiled])


@pytest.mark.sampled(times=2)
@every_class
@pytest.mark.parametrize("spoiled", SPOILED_LABELS)
def test_a_refusal_of_labels_does_not_quote_them(kind: str, spoiled: str) -> None:
    if "classes" in ESTIMATORS[kind][1]:
        check_refusal(kind, SPOILED_LABELS[spoiled])


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_pipeline_and_its_total_show_nothing_but_noise(adjacency: str) -> None:
    def run(data: Any, kept: list[Any]) -> None:
        ledger = PrivacyLedger(100.0, 1e-3, adjacency, strict=False)
        model = make_pipeline(
            PublicScaler((-1.0, 1.0)),
            PrivateCenter(1.0, adjacency=adjacency, ledger=ledger),
            PrivateLinearSVC(1.0, classes=range(3), adjacency=adjacency, ledger=ledger),
        ).fit(*data)
        for step in (model[1], model[2]):
            step.set_params(ledger=None)
        total = total_privacy(model)
        kept += [model, total, str(total), ledger, model.decision_function(PUBLIC_ROWS)]

    assert compared(run, records(0, adjacency), records(1, adjacency)) == []


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_training_that_is_taken_up_again_shows_nothing_but_noise(adjacency: str) -> None:
    def run(data: Any, kept: list[Any]) -> None:
        model = GradientPerturbationSVC(
            1.0, classes=range(3), n_steps=3, adjacency=adjacency, n_threads=1, verbose=1
        )
        kept += [model.partial_fit(*data).partial_fit(*data), model.privacy_]

    assert compared(run, records(0, adjacency), records(1, adjacency)) == []


SEARCHES: dict[str, dict[str, Any]] = {
    "partition": {"refit_fraction": 0.0},
    "partition and refit": {"selection": "exponential", "refit_fraction": 0.5},
    "random stopping": {"strategy": "random_stopping", "delta": 0.0},
}


def search_of(options: dict[str, Any], adjacency: str, kind: Any = PrivateGridSearch) -> Run:
    """A search with a ledger, and everything that comes of it."""

    def run(data: Any, kept: list[Any]) -> None:
        ledger = PrivacyLedger(100.0, 1e-3, adjacency, strict=False)
        pure = {"noise": "gamma", "delta": 0.0} if options.get("delta") == 0.0 else {}
        found = kind(
            OutputPerturbationSVC(classes=range(3), n_threads=1, adjacency=adjacency, **pure),
            {"C": [0.1, 1.0]},
            2.0,
            **{"adjacency": adjacency, "ledger": ledger, "verbose": 1} | options,
        )
        kept += [found, ledger]
        try:
            found.fit(*data)
        finally:
            found.set_params(ledger=None)
        kept += [found.privacy_, str(found.privacy_), found.decision_function(PUBLIC_ROWS)]

    return run


def many_records(world: int, adjacency: str) -> Any:
    """Enough rows for the parts of a search."""
    rows, labels = (np.concatenate([part] * 12) for part in records(world, adjacency))
    return rows, labels


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_shows_nothing_but_noise(name: str, adjacency: str) -> None:
    run = search_of(SEARCHES[name], adjacency)
    assert compared(run, many_records(0, adjacency), many_records(1, adjacency)) == []


@pytest.mark.parametrize("name", SEARCHES)
def test_an_interrupted_search_shows_nothing(name: str) -> None:
    run = search_of(SEARCHES[name], "add_remove")
    data = (many_records(world, "add_remove") for world in (0, 1))
    assert compared(run, *data, interrupted=True) == []
