"""What a statement lists as assumed public is all that its promise rests on."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dpsvm_fast import PrivacyLedger, RandomFourierFeatures, total_privacy
from oracles.statements import ESTIMATORS, MAKERS, PIPELINES, X, fitted, pipeline, statement_of

SINGLE = [kind for kind in MAKERS if kind[0] in ESTIMATORS]
every_kind = pytest.mark.parametrize("kind", SINGLE, ids=" ".join)

# Parameters that a promise does not rest on, each with the reason.
NEUTRAL = {
    "n_threads": "the same bits for any number of threads",
    "verbose": "public numbers are printed",
    "low_memory": "the same solution, certified likewise",
    "random_state": "a seed has a line of its own: the release is not private",
    "ledger": "where the events were recorded",
    "classes": "has a line of its own",
    "dense_output": "how transformed rows are returned",
}


def words(texts: tuple[str, ...]) -> set[str]:
    return set(re.findall(r"\w+", " ".join(texts)))


@every_kind
def test_every_parameter_is_named(kind: tuple[str, str]) -> None:
    make, _ = ESTIMATORS[kind[0]]
    named = words(statement_of(*kind).assumed_public)
    missing = set(make._get_param_names()) - set(NEUTRAL) - named
    assert not missing


@every_kind
def test_facts_about_the_rows_are_named(kind: tuple[str, str]) -> None:
    make, _ = ESTIMATORS[kind[0]]
    public = statement_of(*kind).assumed_public
    assert any("number and names of the features" in text for text in public)
    assert any("dense or sparse" in text for text in public)
    assert any("label set" in text for text in public) == ("classes" in make._get_param_names())
    # Under add_remove the number of rows is private.
    assert ("the number of rows" in public) == (kind[1] == "replace_one")


@every_kind
def test_the_bound_of_the_rows_comes_first(kind: tuple[str, str]) -> None:
    make, _ = ESTIMATORS[kind[0]]
    first = statement_of(*kind).assumed_public[0].split()[0]
    assert first in {"data_norm", "bounds"} & set(make._get_param_names())


def test_a_label_set_that_was_read_makes_the_release_not_private() -> None:
    with pytest.warns(match="classes: None"):
        made = fitted("output", "add_remove", classes=None).privacy_
    assert any("read from the training labels" in text for text in made.assumed_public)
    assert not made.private


def test_the_seed_of_random_features_is_named() -> None:
    made = statement_of("kernel fixed", "add_remove")
    assert any("random features" in text and "seed" in text for text in made.assumed_public)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_a_pipeline_names_what_each_step_assumes_and_what_joins_them(adjacency: str) -> None:
    for kind in PIPELINES:
        whole = statement_of(kind, adjacency)
        for step in whole.steps:
            own = step.statement.assumed_public if step.statement is not None else ()
            assert {f"{step.title}: {text}" for text in own} <= set(whole.assumed_public)
        joined = " ".join(whole.assumptions)
        assert "same private rows" in joined
        assert "parameters were chosen without looking at the rows" in joined


def test_neutral_parameters_change_no_promise() -> None:
    ledger = PrivacyLedger(100.0, 1e-3, strict=False)
    changes: dict[str, Any] = {"n_threads": 2, "ledger": ledger, "low_memory": True}
    for kind in ("output", "objective", "kernel fixed"):
        same = fitted(kind, "add_remove", **changes).privacy_
        seeds = re.compile(r'seed"?:? \d+')
        texts = [
            seeds.sub("seed", made.to_json()) for made in (same, statement_of(kind, "add_remove"))
        ]
        assert texts[0] == texts[1]


def test_parameters_with_weight_are_distinguished() -> None:
    """Negative control: a parameter that is left out is missed."""
    public = statement_of("output", "add_remove").assumed_public
    less = tuple(text.replace("intercept_scaling, ", "") for text in public)
    assert "intercept_scaling" in words(public) - words(less)


def test_steps_without_a_budget_need_no_line() -> None:
    free = RandomFourierFeatures(4).fit(X)
    assert not hasattr(free, "privacy_")
    whole = total_privacy([free, fitted("centre", "add_remove")])
    assert [step.statement is None for step in whole.steps] == [True, False]
    assert pipeline("add_remove").private
