"""The certificate of a search: complete, strict, checked from its numbers alone."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from dpsvm_fast import OutputPerturbationSVC, PrivateCenter, total_privacy, verify
from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.certificates import (
    GaussianEvent,
    PipelineStatement,
    PureEvent,
    SelectionNoise,
    SelectionStatement,
    Stopping,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.model_selection import PrivateGridSearch


@lru_cache(maxsize=8)
def statement_of(
    strategy: str, adjacency: str = "add_remove", delta: float = 1e-6
) -> SelectionStatement:
    """That of a real search."""
    return fitted(strategy, adjacency, delta).privacy_


def fitted(strategy: str, adjacency: str, delta: float) -> PrivateGridSearch:
    """A search over two candidates."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    noise = "gaussian" if delta else "gamma"
    svc = OutputPerturbationSVC(classes=[0, 1], adjacency=adjacency, noise=noise)
    return PrivateGridSearch(
        svc, {"C": [0.1, 0.5]}, 2.0, delta, strategy=strategy, adjacency=adjacency, mean_runs=2.0
    ).fit(X, (X[:, 0] > 0).astype(int))


def test_the_factor_of_replace_one_cannot_be_left_out() -> None:
    statement = statement_of("partition", "replace_one")
    assert statement.selection.relation_factor == 2
    halved = replace(statement.selection, relation_factor=1)
    assert not verify(replace(statement, selection=halved)).ok


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["row", "person"])
def test_pure_candidates_with_noisy_scores_verify(unit: str) -> None:
    """A run tells little: what its best of many tells is decided near one half."""
    X = np.random.default_rng(0).normal(size=(200, 3))
    svc = OutputPerturbationSVC(classes=[0, 1], noise="gamma")
    search = PrivateGridSearch(svc, {"C": [0.1, 0.5]}, 1.0, 1e-6, strategy="random_stopping")
    groups = np.arange(200) // 4 if unit == "person" else None
    statement = search.fit(X, (X[:, 0] > 0).astype(int), groups=groups).privacy_
    assert statement.unit == unit
    assert verify(statement).ok
    assert not verify(replace(statement, delta=0.5e-6)).ok


def test_pretending_that_the_search_was_one_fit_is_caught() -> None:
    """Tuning charged as one run: the events of the search replaced by those of the winner."""
    statement = statement_of("random_stopping")
    fit = statement.branches[0]
    once = composed_epsilon(fit, statement.delta)
    assert once < 0.9 * statement.epsilon
    assert not verify(replace(statement, epsilon=once)).ok


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", 0.0),
        ("delta", 1.0),
        ("adjacency", "both"),
        ("adjacency", "replace_one"),
        ("strategy", "luck"),
        ("candidates", ()),
        ("candidates", "C=1"),
        ("candidates", (1, 2)),
        ("branches", ()),
        ("branches", ((), ())),
        ("branches", ((3,), (4,))),
        ("branches", ((PureEvent(1.0, "replace_one"),), (PureEvent(1.0, "replace_one"),))),
        ("selection", 3),
        ("selection", SelectionNoise(
            mechanism="discrete_laplace", sensitivity=1, relation_factor=1, rate=0.5)),
        ("stopping", Stopping(law="geometric", mean=2.0)),
        ("stopping", 3),
        ("refit", (3,)),
        ("library_version", 3),
        ("random_source", "dice"),
        ("occasion", 3),
    ],
)  # fmt: skip
def test_fields_are_checked(field: str, value: Any) -> None:
    with pytest.raises((TypeError, InvalidParameterError)):
        replace(statement_of("partition"), **{field: value})


@pytest.mark.parametrize(
    "fields",
    [
        {"mechanism": "best"},
        {"sensitivity": 0},
        {"sensitivity": 1.0},
        {"relation_factor": 3},
        {"rate": None},
        {"rate": -1.0},
        {"sigma": 1.0},
        {"mechanism": "gaussian_on_grid"},
    ],
)
def test_noise_of_a_choice_is_checked(fields: dict[str, Any]) -> None:
    good = {"mechanism": "exponential", "sensitivity": 1, "relation_factor": 1, "rate": 0.5}
    assert SelectionNoise(**good).event("add_remove") == PureEvent(0.5, "add_remove")
    with pytest.raises((TypeError, InvalidParameterError)):
        SelectionNoise(**good | fields)


def test_stopping_is_checked() -> None:
    for law, mean in (("fixed", 2.0), ("geometric", 0.0), ("geometric", float("inf"))):
        with pytest.raises(InvalidParameterError):
            Stopping(law=law, mean=mean)


def test_a_search_counts_within_a_pipeline() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 4))
    y = (X[:, 0] > 0).astype(int)
    search = PrivateGridSearch(OutputPerturbationSVC(classes=[0, 1]), {"C": [0.1, 0.5]}, 1.0)
    model = make_pipeline(Normalizer(), PrivateCenter(1.0), Normalizer(), search).fit(X, y)
    whole = total_privacy(model)
    assert whole.private
    assert 1.0 < whole.epsilon < 2.0
    assert whole.events == (*model[1].privacy_.events, *model[-1].privacy_.events)
    assert verify(whole).ok
    assert PipelineStatement.from_json(whole.to_json()) == whole
    assert not verify(replace(whole, epsilon=0.95 * whole.epsilon)).ok
    alone = total_privacy(model[-1])
    assert alone.epsilon == pytest.approx(1.0, rel=1e-2)
    # The released model cannot be passed off as one fit.
    assert total_privacy(model[-1].best_estimator_).events == alone.events


def test_the_cost_of_noisy_scores() -> None:
    noise = SelectionNoise(
        mechanism="gaussian_on_grid", sensitivity=3, relation_factor=1, sigma=6.0
    )
    assert noise.event("replace_one") == GaussianEvent(6.0, 3.0, "replace_one")
