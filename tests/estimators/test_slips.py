"""Slips of the pen in Python: files under a wrong name, habits of other libraries."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import VotingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpsvm_fast import PrivacyLedger, PrivateKernelSVC, PrivateLinearSVC, PrivatePipeline
from dpsvm_fast.data import TableSchema, open_table
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError, TableError
from dpsvm_fast.model_selection import PrivateGridSearch
from dpsvm_fast.persist import load_model, save_model

SCHEMA = TableSchema.from_dict(
    {"target": "y", "classes": ["a", "b"], "columns": {"x": {"bounds": [0, 1]}}}
)
TEXT = "x,y\n0.25,a\n0.5,b\n"
X, Y = np.array([[0.0, 1.0], [1.0, 0.0]] * 20), np.array(["a", "b"] * 20)


def svc(**settings: object) -> PrivateLinearSVC:
    return PrivateLinearSVC(**({"bounds": (0, 1), "classes": ["a", "b"]} | settings))


PEOPLE = pd.DataFrame(
    {"age": [31.0, 52.0] * 20, "hours": [40.0, 38.0] * 20, "work": ["a", "b"] * 20}
)
NUMBERS = PEOPLE[["age", "hours"]]
WORDS = ["to be", "or not"] * 20
GAPS = NUMBERS.assign(age=[None, 52.0] * 20)


def piped(step: Any, ledger: PrivacyLedger) -> PrivatePipeline:
    return PrivatePipeline([("step", step), ("svc", svc(ledger=ledger))])


# What a newcomer does first, the error, and the parameter that it names.
MISTAKES: dict[str, tuple[Callable[[PrivacyLedger], Any], type[Exception], str | None]] = {
    "a seed": (
        lambda b: svc(ledger=b, random_state=0).fit(X, Y),
        InvalidParameterError,
        "random_state",
    ),
    "no classes": (
        lambda b: svc(ledger=b, classes=None).fit(X, Y),
        InvalidParameterError,
        "classes",
    ),
    "scaling by the rows": (
        lambda b: piped(StandardScaler(), b).fit(X, Y),
        InvalidParameterError,
        "steps",
    ),
    "scaling by the rows in a plain Pipeline": (
        lambda b: make_pipeline(StandardScaler(), svc(ledger=b, bounds=None)).fit(X, Y),
        InvalidParameterError,
        "bounds",
    ),
    "weights of words by the rows": (
        lambda b: make_pipeline(TfidfVectorizer(), svc(ledger=b, bounds=None)).fit(WORDS, Y),
        InvalidParameterError,
        "bounds",
    ),
    "means for gaps": (
        lambda b: piped(SimpleImputer(), b).fit(GAPS, Y),
        InvalidParameterError,
        "steps",
    ),
    "gaps": (lambda b: svc(ledger=b).fit(GAPS, Y), InvalidParameterError, "X"),
    "a column of text": (lambda b: svc(ledger=b).fit(PEOPLE, Y), InvalidParameterError, "X"),
    "a label that is not declared": (
        lambda b: svc(ledger=b).fit(X, np.where(X[:, 0] > 0, "a", "c")),
        InvalidParameterError,
        "y",
    ),
    "bounds that lack a column": (
        lambda b: svc(ledger=b, bounds={"age": (0, 100)}).fit(NUMBERS, Y),
        InvalidParameterError,
        "bounds",
    ),
    "no bounds for ages and hours": (
        lambda b: svc(ledger=b, bounds=None).fit(NUMBERS, Y),
        InvalidParameterError,
        "bounds",
    ),
    "no bounds in a candidate": (
        lambda b: PrivateGridSearch(svc(), {"bounds": [None, (0, 100)]}, ledger=b).fit(NUMBERS, Y),
        InvalidParameterError,
        "bounds",
    ),
    "more than is left": (
        lambda b: svc(ledger=b, epsilon=5.0).fit(X, Y),
        BudgetExceededError,
        None,
    ),
    "choosing settings on rows that the step before learns from": (
        lambda b: PrivateGridSearch(
            make_pipeline(StandardScaler(), svc()),
            {"privatelinearsvc__whiten": [True, False]},
            ledger=b,
        ).fit(X, Y),
        InvalidParameterError,
        "estimator",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_costs_nothing(name: str) -> None:
    """And the next fit, done right, has the whole budget."""
    make, kind, parameter = MISTAKES[name]
    ledger = PrivacyLedger(4.0, 1e-5)
    with pytest.raises(kind) as told:
        make(ledger)
    assert getattr(told.value, "parameter", None) == parameter
    assert ledger.history == ()
    assert svc(ledger=ledger, epsilon=4.0, delta=1e-5).fit(X, Y).privacy_.private


@pytest.mark.parametrize("steps", [(), (StandardScaler(),)], ids=["alone", "scaled by the rows"])
def test_a_search_without_noise_costs_nothing(steps: tuple[Any, ...]) -> None:
    """Also where the estimator is a step of a Pipeline, which it cannot know."""
    ledger = PrivacyLedger(4.0, 1e-5)
    grid = {"privatelinearsvc__margin": [0.0, 1.0]}
    with pytest.raises(ValueError, match="InvalidParameterError: margin"):
        GridSearchCV(make_pipeline(*steps, svc(ledger=ledger)), grid, cv=2).fit(X, Y)
    assert ledger.history == ()


def test_other_clones_are_fitted() -> None:
    ledger = PrivacyLedger(4.0, 1e-5)
    same = clone(svc(ledger=ledger)).set_params(n_threads=1, random_state=None)
    own = clone(svc(margin=1.0)).set_params(margin=0.0, ledger=ledger)
    plain = svc(ledger=ledger).set_params(margin=1.0)
    again = clone(clone(svc(ledger=ledger)).set_params(margin=1.0))
    for model in (same, own, plain, again):
        before = len(ledger.history)
        assert model.fit(X, Y).privacy_.private
        assert len(ledger.history) > before


@pytest.mark.parametrize("kind", [PrivateLinearSVC, PrivateKernelSVC])
@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
def test_directions_are_chosen_on_purpose(kind: Any, tmp_path: Path) -> None:
    """No bounds are missing, and every number is that of None."""
    model = kind(classes=["a", "b"], bounds="unit_norm", ledger=PrivacyLedger(4.0, 1e-5))
    assert model.fit(X, Y).privacy_.private
    assert model.bounds_ is None
    save_model(model, tmp_path / "model.json")
    assert load_model(tmp_path / "model.json").bounds == "unit_norm"
    same, other = (
        kind(classes=["a", "b"], bounds=bounds, random_state=1).fit(X, Y)
        for bounds in (None, "unit_norm")
    )
    assert same.coef_.tobytes() == other.coef_.tobytes()
    with pytest.raises(TypeError, match="None or 'unit_norm' or a tuple"):
        kind(bounds="unit").fit(X, Y)


def test_a_table_without_bounds_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="bounds: None scales") as told:
        svc(bounds=None).fit(NUMBERS, Y)
    # It points at the line that fits.
    assert {one.filename for one in told} == {__file__}
    # Directions of rows, as of embeddings; what has bounds; a sparse table.
    svc(bounds="unit_norm").fit(NUMBERS, Y)
    svc(bounds=None).fit(NUMBERS.to_numpy(), Y)
    svc(bounds=(0, 100)).fit(NUMBERS, Y)
    svc(bounds=None).fit(NUMBERS.astype(pd.SparseDtype(float, 0.0)), Y)


class TestFilesOfAnotherKind:
    def test_the_encoding_that_is_advised_reads_the_file(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        (tmp_path / "t.csv").write_bytes(TEXT.encode("utf-16"))
        schema = TableSchema.from_dict(SCHEMA.to_dict() | {"csv": {"encoding": "utf-16"}})
        rows, labels = open_table(tmp_path / "t.csv", schema).read()
        assert rows.tolist() == [[0.25], [0.5]]
        assert labels.tolist() == ["a", "b"]

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
    def test_pipes_are_no_files(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "t.csv")
        assert stat.S_ISFIFO((tmp_path / "t.csv").stat().st_mode)
        with pytest.raises(TableError, match=r"is a pipe or a device; write it to a file first"):
            open_table(tmp_path / "t.csv", SCHEMA)


class TestHabits:
    def test_codes_of_meta_estimators_are_explained(self) -> None:
        ledger = PrivacyLedger(4.0, 1e-5)
        with pytest.raises(ValueError, match=r"VotingClassifier.*use classes=range"):
            VotingClassifier([("one", svc(ledger=ledger))]).fit(X, Y)
        assert not ledger.history
        inside = svc(ledger=ledger, classes=range(2))
        assert set(VotingClassifier([("one", inside)]).fit(X, Y).predict(X)) <= {"a", "b"}
