"""total_privacy: the composition of a pipeline's steps, equal to the ledger's and verified."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    StandardScaler,
)

import dpsvm_fast as dp
from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.certificates import PipelineStatement
from dpsvm_fast.cli import main
from dpsvm_fast.exceptions import InvalidParameterError, PrivacyLeakWarning
from dpsvm_fast.verification import compose as choice_check

RNG = np.random.default_rng(0)
X: NDArray[np.float64] = RNG.normal(size=(300, 4))
Y: NDArray[np.int64] = (X[:, 0] > 0).astype(np.int64)
RELATIONS = ("add_remove", "replace_one")


def svc(epsilon: float = 2.0, delta: float = 1e-6, **options: Any) -> Any:
    return dp.ObjectivePerturbationSVC(epsilon, delta, **{"classes": [0, 1]} | options)


def private_steps(**shared: Any) -> tuple[Any, ...]:
    return (
        dp.PublicScaler((-4.0, 4.0)),
        dp.PrivateStandardScaler(1.0, bounds=(-1.0, 1.0), **shared),
        Normalizer(),
        dp.PrivateCenter(1.0, **shared),
        svc(**shared),
    )


@pytest.mark.proof("private_scaling")
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_it_is_what_one_ledger_has_recorded(adjacency: str) -> None:
    ledger = dp.PrivacyLedger(8.0, 1e-4, adjacency)
    model = make_pipeline(*private_steps(adjacency=adjacency, ledger=ledger)).fit(X, Y)
    total = dp.total_privacy(model, delta=ledger.delta)
    assert (total.epsilon, total.delta) == ledger.total()
    assert total.events == tuple(record.event for record in ledger.history)
    assert total.private
    assert total.epsilon < 4.0
    assert [step.name for step in total.steps] == [name for name, _ in model.steps]
    assert [step.statement is None for step in total.steps] == [True, False, True, False, False]


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_the_certificate_holds_and_no_smaller_one(adjacency: str) -> None:
    model = make_pipeline(*private_steps(adjacency=adjacency)).fit(X, Y)
    total = dp.total_privacy(model)
    assert total.delta == pytest.approx(3e-6)
    assert total.delta >= 3e-6
    for form in (total, total.to_dict(), total.to_json()):
        assert dp.verify(form), str(dp.verify(form))
    assert PipelineStatement.from_json(total.to_json()) == total
    for field, factor in (("epsilon", 0.97), ("delta", 0.8)):
        record = total.to_dict()
        record[field] *= factor
        assert not dp.verify(record), field
    record = total.to_dict()
    record["steps"][1]["statement"]["parts"][0]["sigma"] *= 0.9
    assert any(
        problem.startswith("'privatestandardscaler'") for problem in dp.verify(record).problems
    )
    # A step without its statement is a smaller total: the claim then holds, of fewer steps.
    record = total.to_dict()
    record["steps"][3] |= {"statement": None, "learned": True}
    assert not dp.verify(record | {"private": False})


COMPOSITIONS: dict[str, tuple[Any, ...]] = {
    "pure and objective": (dp.PrivateCenter(1.0, 0.0), svc(), dp.PrivateWhitener(0.5)),
    "pure": (
        dp.PrivateCenter(1.0, 0.0),
        dp.OutputPerturbationSVC(1.0, 0.0, noise="gamma", classes=[0, 1]),
    ),
    "pure objective": (dp.PrivateCenter(1.0), svc(2.0, 0.0, noise="gamma")),
    "sampled": (
        dp.PrivateCenter(1.0),
        dp.GradientPerturbationSVC(
            2.0, classes=[0, 1], max_samples=1000, optimizer="sgd", sampling_rate=0.1, n_steps=20
        ),
    ),
    "pipelines of their own": (
        dp.PrivateLinearSVC(1.0, classes=[0, 1]),
        dp.PrivateKernelSVC(1.0, n_components=20, classes=[0, 1]),
        dp.PrivatePCA(2, 1.0),
    ),
    "output and gradient": (
        dp.OutputPerturbationSVC(1.0, classes=[0, 1]),
        dp.GradientPerturbationSVC(1.0, classes=[0, 1]),
        dp.PrivateStandardScaler(1.0, 0.0, bounds=(-4.0, 4.0)),
    ),
}


@pytest.mark.parametrize("kind", COMPOSITIONS)
def test_lists_of_every_kind_of_noise_compose(kind: str) -> None:
    fitted = [estimator.fit(X, Y) for estimator in COMPOSITIONS[kind]]
    total = dp.total_privacy(fitted)
    assert dp.verify(total), str(dp.verify(total))
    assert total.epsilon == composed_epsilon(total.events, total.delta)
    assert total.epsilon <= sum(e.privacy_.epsilon for e in fitted) * (1.0 + 1e-9)
    assert [step.name for step in total.steps] == [str(i) for i in range(len(fitted))]
    larger = dp.total_privacy(fitted, delta=max(1e-3, 2.0 * total.delta))
    assert larger.epsilon <= total.epsilon
    if kind == "pure":
        assert (total.epsilon, total.delta) == (2.0, 0.0)
    else:
        with pytest.raises(InvalidParameterError, match=r"^delta: got 0\.0"):
            dp.total_privacy(fitted, delta=0.0)


@pytest.mark.parametrize("second", ["objective", "sampled sums"])
def test_what_stands_with_a_noisy_objective_is_recomputed(second: str) -> None:
    """Another noisy objective, or sampled sums: both curves are convolved."""
    sampled = dp.GradientPerturbationSVC(
        1.0, classes=[0, 1], optimizer="sgd", n_steps=5, sampling_rate=0.2
    )
    beside = svc() if second == "objective" else sampled
    total = dp.total_privacy([svc().fit(X, Y), beside.fit(X, Y)])
    assert dp.verify(total), str(dp.verify(total))
    document = total.to_dict()
    assert not dp.verify(document | {"epsilon": 0.97 * total.epsilon})
    assert not dp.verify(document | {"delta": 0.9 * total.delta})


def test_three_noisy_objectives_are_confirmed_and_of_too_many_nothing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    total = dp.total_privacy([svc().fit(X, Y), svc().fit(X, Y), svc().fit(X, Y)])
    assert total.private
    assert 3.0 < total.epsilon <= 6.0 + 1e-6
    assert dp.verify(total)
    monkeypatch.setattr(choice_check, "MAX_CURVES", 2)
    found = dp.verify(total)
    assert (found.ok, found.undecided, found.epsilon, found.delta) == (False, True, None, None)
    assert str(found).startswith("The certificate cannot be confirmed.\n  - ")
    file = tmp_path / "total.json"
    file.write_text(total.to_json(), encoding="utf-8")
    assert main(["verify", "--json", str(file)]) == 2
    shown = json.loads(capsys.readouterr().out)
    assert (shown["holds"], shown["undecided"], shown["promised"]) == (False, True, None)
    assert main(["verify", str(file)]) == 2
    assert "the certificate of each" in capsys.readouterr().out
    assert main(["statement", str(file)]) == 2
    assert "of each part" in capsys.readouterr().err


def test_what_two_of_three_noisy_objectives_refute_is_refuted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A promise smaller than that of two alone does not hold, nor does one with a wrong step."""
    total = dp.total_privacy([svc().fit(X, Y), svc().fit(X, Y), svc().fit(X, Y)])
    document = total.to_dict()
    step = document["steps"][0]
    lie = step | {"statement": step["statement"] | {"epsilon": 1.0}}
    for forged in (
        document | {"epsilon": 0.5 * total.epsilon},
        document | {"delta": 0.0},
        document | {"steps": [lie, *document["steps"][1:]]},
    ):
        found = dp.verify(forged)
        assert (found.ok, found.undecided) == (False, False)
        assert "does NOT hold" in str(found)
    file = tmp_path / "forged.json"
    file.write_text(json.dumps(document | {"epsilon": 0.5 * total.epsilon}), encoding="utf-8")
    assert main(["verify", str(file)]) == 1
    assert "Do not rely on it" in capsys.readouterr().out


def test_branches_see_the_same_rows() -> None:
    union = FeatureUnion([("a", dp.PrivateCenter(1.0)), ("b", "passthrough"), ("c", Normalizer())])
    columns = ColumnTransformer(
        [("z", dp.PrivateWhitener(0.5), [0, 1]), ("gone", "drop", [2])], remainder="passthrough"
    )
    inner = make_pipeline(dp.PublicScaler((-4.0, 4.0)), union)
    model = make_pipeline(inner, columns, "passthrough", svc()).fit(X, Y)
    total = dp.total_privacy(model)
    assert total.private
    assert dp.verify(total)
    names = [step.name for step in total.steps if step.statement is not None]
    assert names == [
        "pipeline__featureunion__a",
        "columntransformer__z",
        "objectiveperturbationsvc",
    ]
    for part, count in ((inner, 1), (union, 1), (columns, 1), (model[-1], 1)):
        assert len(dp.total_privacy(part).statements) == count


LEAKS: dict[str, Any] = {
    "StandardScaler": StandardScaler(),
    "MinMaxScaler": MinMaxScaler(),
    "PCA": PCA(3),
    "SelectKBest": SelectKBest(k=2),
    "SimpleImputer": SimpleImputer(),
}


@pytest.mark.parametrize("kind", LEAKS)
def test_a_step_that_learned_makes_the_whole_not_private(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        model = make_pipeline(LEAKS[kind], dp.PrivateCenter(1.0), svc()).fit(X, Y)
    with pytest.warns(PrivacyLeakWarning, match=kind) as caught:
        total = dp.total_privacy(model)
    assert caught[0].filename == __file__
    assert not total.private
    assert any(kind in reason for reason in total.not_private_reasons)
    assert not dp.verify(total)
    assert PipelineStatement.from_json(total.to_json()) == total
    assert "NOT PRIVATE" in str(total)


def test_learning_after_the_private_steps_is_a_leak_too() -> None:
    model = make_pipeline(dp.PrivateCenter(1.0), StandardScaler(), LogisticRegression()).fit(X, Y)
    with pytest.warns(PrivacyLeakWarning, match=r"StandardScaler.*LogisticRegression"):
        assert not dp.total_privacy(model).private
    search = GridSearchCV(svc(), {"C": [1.0, 2.0]}, cv=2).fit(X, Y)
    with pytest.warns(PrivacyLeakWarning, match="GridSearchCV"):
        assert not dp.total_privacy([dp.PrivateCenter(1.0).fit(X), search]).private


class Own(Normalizer):  # type: ignore[misc]
    """A user's class, which says of itself that it needs no fit."""


def test_what_learns_nothing_is_free() -> None:
    free = (
        Own(),
        Normalizer(),
        Binarizer(),
        dp.PublicScaler((-4.0, 4.0)),
        dp.RandomFourierFeatures(5),
        FunctionTransformer(np.tanh),
        FunctionTransformer(),
        "passthrough",
    )
    model = make_pipeline(*free, svc()).fit(X, Y)
    total = dp.total_privacy(model)
    assert total.private
    assert dp.verify(total)
    assert total.epsilon == composed_epsilon(model[-1].privacy_.events, 1e-6)
    # A function, or a class of somebody else, cannot be looked into.
    assert sum("maps each row by itself" in text for text in total.assumed_public) == 2


def test_what_cannot_be_stated_is_refused() -> None:
    with pytest.raises(NotFittedError):
        dp.total_privacy(make_pipeline(*private_steps()))
    with pytest.raises(NotFittedError):
        dp.total_privacy([dp.PrivateCenter(1.0).fit(X), StandardScaler()])
    with pytest.raises(InvalidParameterError, match=r"^pipeline: no step is private"):
        dp.total_privacy(make_pipeline(Normalizer(), dp.PublicScaler((0, 1))).fit(X))
    with pytest.raises(InvalidParameterError, match=r"^pipeline: "):
        dp.total_privacy(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y))
    mixed = [dp.PrivateCenter(1.0, adjacency=adjacency).fit(X) for adjacency in RELATIONS]
    with pytest.raises(InvalidParameterError, match=r"'1' \(PrivateCenter\).*replace_one"):
        dp.total_privacy(mixed)
    for wrong in (None, "model", 3.0, X, [X]):
        with pytest.raises((TypeError, InvalidParameterError), match=r"^pipeline: "):
            dp.total_privacy(wrong)
    fitted = dp.PrivateCenter(1.0).fit(X)
    for delta in (-0.1, 1.0, math.nan):
        with pytest.raises(InvalidParameterError, match=r"^delta: "):
            dp.total_privacy(fitted, delta=delta)
    with pytest.raises(TypeError, match=r"^delta: "):
        dp.total_privacy(fitted, delta="small")  # type: ignore[arg-type]


def test_a_seed_makes_the_whole_not_private() -> None:
    with pytest.warns(dp.NotPrivateWarning):
        seeded = dp.PrivateCenter(1.0, random_state=1).fit(X)
    total = dp.total_privacy([seeded, svc().fit(X, Y)])
    assert not total.private
    assert any(reason.startswith("'0' (PrivateCenter): ") for reason in total.not_private_reasons)


def sparse_columns(X: Any, **how: Any) -> Any:
    """A plain Pipeline, which does not look at how its rows came in, after its fit."""
    columns = ColumnTransformer([("a", "passthrough", [0, 1])], **how)
    svc = dp.OutputPerturbationSVC(2.0, classes=[0, 1])
    return make_pipeline(columns, svc).fit(X, np.arange(X.shape[0]) % 2)


def test_rows_that_came_in_sparse_are_seen_afterwards_where_they_left_sparse() -> None:
    few = sparse.csr_matrix(np.eye(40, 2))
    with pytest.warns(PrivacyLeakWarning, match=r"sparse_threshold=0"):
        found = dp.total_privacy(sparse_columns(few))
    assert not found.private
    assert [step.name for step in found.steps if step.learned] == ["columntransformer"]
    assert dp.total_privacy(sparse_columns(few, sparse_threshold=0.0)).private


def test_rows_that_left_dense_are_assumed_to_have_come_in_dense() -> None:
    full = np.full((40, 2), 0.5)
    for X in (full, sparse.csr_matrix(full)):
        found = dp.total_privacy(sparse_columns(X))
        assert found.private
        assert found.functions == ("'columntransformer' (ColumnTransformer)",)
        assert found.functions[0] in str(found)
    # A table is not sparse, and without a threshold all rows leave dense.
    assert not dp.total_privacy(sparse_columns(pd.DataFrame(full, columns=["p", "q"]))).functions
    assert not dp.total_privacy(sparse_columns(full, sparse_threshold=0.0)).functions
    # A PrivatePipeline has looked.
    columns = ColumnTransformer([("a", "passthrough", [0, 1])])
    svc = dp.OutputPerturbationSVC(2.0, classes=[0, 1])
    model = dp.PrivatePipeline([("columns", columns), ("svc", svc)]).fit(full, np.arange(40) % 2)
    assert not model.privacy_.functions
