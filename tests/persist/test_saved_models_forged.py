"""Files changed by somebody who writes a digest of his own: refused, or sound models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from dpsvm_fast import PrivateLinearSVC
from dpsvm_fast.certificates.words import SEED_REASON
from dpsvm_fast.data import TableSchema
from dpsvm_fast.exceptions import ModelFormatError
from dpsvm_fast.persist import load_model, read_model, save_model
from oracles.forging import (
    ODD,
    assert_refused,
    changed,
    coefficients,
    document_of,
    places,
)
from oracles.saved import QUICK, answers, fitted, rewritten
from oracles.tampering import with_events

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
every_kind = pytest.mark.parametrize("kind", QUICK)
# Something else, or nothing.
either = st.sampled_from([..., *ODD])


@given(data=st.data())
@in_one_folder
def test_forged_files_are_refused_or_give_a_sound_model(tmp_path: Path, data: Any) -> None:
    """Whatever is loaded is an estimator whose answers are numbers."""
    kind = data.draw(st.sampled_from(QUICK))
    document = document_of(kind, tmp_path)
    for _ in range(data.draw(st.integers(1, 2))):
        ways = list(places(document))
        document = changed(document, data.draw(st.sampled_from(ways)), data.draw(either))
    if not isinstance(document, dict):
        return
    path = rewritten(tmp_path / "forged.json", document)
    try:
        model = load_model(path, verify=False)
    except ModelFormatError as error:
        assert len(str(error)) < 1500  # noqa: PT017
        return
    for values in answers(model).values():
        assert values.dtype.kind != "f" or np.isfinite(values).all()


SCHEMA = {
    "target": "kind",
    "classes": [0, 1, 2],
    "columns": {
        "a": {"bounds": [0.0, 1.0], "missing": 0.5},
        "b": {"categories": ["x", "y"], "unknown": "none"},
        "c": {"bounds": [-2, 3]},
        "d": {"ignore": True},
    },
}


@given(data=st.data())
@in_one_folder
def test_forged_schemas_are_refused_or_read(tmp_path: Path, data: Any) -> None:
    path = tmp_path / "model.json"
    save_model(fitted("output"), path, schema=TableSchema.from_dict(SCHEMA))
    document = json.loads(path.read_text())
    ways = [way for way in places(document) if way[0] == "schema"]
    document = changed(document, data.draw(st.sampled_from(ways)), data.draw(either))
    try:
        found = read_model(rewritten(path, document), verify=False)
    except ModelFormatError as error:
        assert len(str(error)) < 1500  # noqa: PT017
    else:
        assert found.schema is None or found.schema.n_features == 4


@every_kind
def test_what_is_taken_out_or_added_is_missed(tmp_path: Path, kind: str) -> None:
    document = document_of(kind, tmp_path)
    path = tmp_path / "forged.json"
    ways = [way for way in places(document) if isinstance(way[-1], str) and "privacy" not in way]
    optional = {"feature_names_in_", "best_score_", "output", "sha256", "mu_"}
    # A search may have candidates that do not say these of themselves.
    optional |= {"n_features_in_", "classes_"} if kind == "search" else set()
    for way in ways:
        if way[-1] in optional or "mu_" in way or "pairs" in way:
            continue
        assert_refused(rewritten(path, changed(document, way, ...)), ".", verify=False)
        more = changed(document, (*way[:-1], "more"), 1)
        assert_refused(rewritten(path, more), ".", verify=False)


@pytest.mark.parametrize("name", ["os.system", "eval", "SVC", "StandardScaler", "", 3, None])
def test_no_other_class_is_made(tmp_path: Path, name: Any) -> None:
    document = document_of("output", tmp_path)
    forged = changed(document, ("model", "class"), name)
    assert_refused(rewritten(tmp_path / "forged.json", forged), "which this version cannot load")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (coefficients(np.full((3, 4), np.nan)), "finite"),
        (coefficients(np.full((3, 4), np.inf)), "finite"),
        (coefficients(np.zeros((3, 5))), r"got the shape \(3, 5\), expected \(3, 4\)"),
        (coefficients(np.zeros((3, 4)), [3, 4, 1]), "shape"),
        (coefficients(np.zeros((3, 3)), [3, 4]), "got 72 bytes"),
        (coefficients(np.zeros((3, 4)), [2**40, 2**40]), "shape"),
        (coefficients(np.zeros((3, 4)), [-3, -4]), "shape: got -3"),
        (coefficients(np.zeros((3, 4))) | {"dtype": "|O"}, "dtype"),
        (coefficients(np.zeros((3, 4))) | {"data": "äöü"}, "base64"),
        (coefficients(np.zeros((3, 4))) | {"data": None}, "data: got NoneType"),
        ([[0.0] * 4] * 3, "expected a mapping"),
    ],
    ids=range(11),
)
def test_odd_weights_are_refused(tmp_path: Path, value: Any, words: str) -> None:
    document = document_of("output", tmp_path)
    forged = changed(document, ("model", "attributes", "coef_"), value)
    sentence = assert_refused(rewritten(tmp_path / "forged.json", forged), words)
    assert "model.attributes.coef_" in sentence


@pytest.mark.parametrize(
    ("way", "value", "words"),
    [
        (("epsilon",), 0.1, "another epsilon: 1.0, the certificate 0.1"),
        (("delta",), 1e-9, "delta"),
        (("adjacency",), "replace_one", "assumed_public"),
        (("private",), False, "private"),
        (("mechanism",), "objective_perturbation", "another mechanism"),
        (("loss",), "huber", "loss|caveats"),
        (("noise", "shape"), [3, 40], "n_weights|noisy numbers"),
        (("noise", "sigma"), 1e-3, "events"),
        (("events", 0, "sigma"), 1e3, "events"),
        (("version",), 6, "newer version"),
        (("version",), 1, "expected 5"),
    ],
    ids=lambda value: str(value) if isinstance(value, tuple) else "",
)
def test_certificates_that_do_not_go_with_the_model_are_refused(
    tmp_path: Path, way: tuple[Any, ...], value: Any, words: str
) -> None:
    document = document_of("output", tmp_path)
    forged = changed(document, ("model", "privacy", *way), value)
    assert_refused(rewritten(tmp_path / "forged.json", forged), words)


HUGE = 2**24 + 1
INCONSISTENT: list[tuple[str, dict[tuple[Any, ...], Any], str]] = [
    (
        "output",
        {("privacy", "noise", "shape"): [3, 40], ("privacy", "noise", "n_weights"): 120},
        "another shape of the weights",
    ),
    ("output", {("attributes", "fitted_loss", "n_classes"): 4}, "another number of classes"),
    ("output", {("attributes", "fitted_loss", "name"): "huber"}, "another loss"),
    ("output", {("attributes", "classes_", "values"): [2, 1, 0]}, "expected sorted labels"),
    ("output", {("attributes", "classes_", "values"): [0, 1, 1]}, "without repetitions"),
    ("output", {("attributes", "classes_", "values"): [0, 1, 2.0]}, "labels of one type"),
    (
        "output",
        {("attributes", "classes_"): {"dtype": "uint8", "values": [0, 1, 256]}},
        "out of range of its type|sorted labels",
    ),
    ("linear", {("attributes", "mechanism_"): "gradient", ("attributes", "n_steps_"): None},
     "another number of steps"),
    ("linear whitened", {("attributes", "whitened_"): False}, "whitened_ does not go with"),
    ("linear", {("parameters", "bounds"): [coefficients([0.0] * 3), 1.0]}, "bounds, or a centre"),
    ("linear", {("attributes", "bounds_"): [1.0, 0.0]}, "low < high"),
    ("pca", {("parameters", "centre"): coefficients([0.0] * 3)}, "bounds, or a centre"),
    ("pca", {("attributes", "scales_"): coefficients([1.0, 1.0, 1.0, 0.0])}, "numbers > 0"),
    ("kernel", {("attributes", "gamma_"): 0.123}, "differs from features_"),
    ("kernel", {("attributes", "features_", "n_features"): 5}, "as many features"),
    ("kernel", {("attributes", "features_", "structure"): "slow"}, "expected one of"),
    ("features", {("attributes", "features", "kernel"): "laplacian"}, "frequencies of 'rbf'"),
    ("federated", {("parameters", "spec", "classes"): [0, 2]}, "of the specification"),
    ("federated", {("parameters", "spec", "n_users"): 5}, "another n_users: 5, the certificate 4"),
    ("federated", {("parameters", "spec"): None}, "does not have the form"),
    ("search", {("parameters", "strategy"): "random_stopping"}, "another strategy"),
    ("search", {("parameters", "epsilon"): 9.0}, "another epsilon: 9.0, the certificate 8.0"),
    ("search", {("best_estimator", "parameters", "epsilon"): 9.0}, "larger than that of the"),
    (
        "kernel with norms",
        {
            ("attributes", "n_features_in_"): HUGE,
            ("attributes", "features_", "n_features"): HUGE,
            ("attributes", "bounds_"): [0.0, 1.0],
        },
        "expected an array for that number of features",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    INCONSISTENT,
    ids=[f"{i}-{c[0]}" for i, c in enumerate(INCONSISTENT)],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, kind: str, changes: dict[tuple[Any, ...], Any], words: str
) -> None:
    document = document_of(kind, tmp_path)
    for way, value in changes.items():
        document = changed(document, ("model", *way), value)
    assert_refused(rewritten(tmp_path / "forged.json", document), words, verify=False)


def test_a_pipeline_has_the_certificate_of_its_own_trainer(tmp_path: Path) -> None:
    """Of sparse rows, without a release before the weights, it is that of the trainer alone."""
    path = tmp_path / "sparse.json"
    X = sparse.csr_matrix(np.eye(6, 4))
    model = PrivateLinearSVC(2.0, 1e-6, bounds=(0, 1), classes=[0, 1], mechanism="output")
    save_model(model.fit(X, [0, 1] * 3), path)
    assert load_model(path).privacy_.mechanism == "output_perturbation"
    document = json.loads(path.read_text())
    other = changed(document, ("model", "attributes", "mechanism_"), "objective")
    assert_refused(rewritten(tmp_path / "forged.json", other), "another mechanism")


def test_names_are_as_many_as_features(tmp_path: Path) -> None:
    document = document_of("pipeline of names", tmp_path)
    way = ("model", "steps", 0, 1, "attributes", "feature_names_in_")
    forged = changed(document, way, ["age", "x"])
    assert_refused(rewritten(tmp_path / "forged.json", forged), "got 2 names, expected 4")


def test_a_smaller_epsilon_everywhere_does_not_hold(tmp_path: Path) -> None:
    document = document_of("output", tmp_path)
    for way in (("privacy", "epsilon"), ("parameters", "epsilon")):
        document = changed(document, ("model", *way), 0.1)
    path = rewritten(tmp_path / "forged.json", document)
    assert_refused(path, "the certificate does not hold")
    assert load_model(path, verify=False).epsilon == 0.1


def test_a_seeded_model_whose_numbers_do_not_follow_is_refused(tmp_path: Path) -> None:
    document = document_of("output", tmp_path)
    reasons = {"not_private_reasons": [SEED_REASON], "random_source": "seed", "private": False}
    forged = changed(document, ("model", "privacy"), document["model"]["privacy"] | reasons)
    path = rewritten(tmp_path / "forged.json", forged)
    assert not load_model(path).privacy_.private
    forged = changed(forged, ("model", "privacy", "noise", "sigma"), 1e-3)
    forged["model"]["privacy"] = with_events(forged["model"]["privacy"])
    assert_refused(rewritten(path, forged), "does not hold")


def test_the_certificate_of_another_model_is_refused(tmp_path: Path) -> None:
    document = document_of("output", tmp_path)
    other = document_of("pca", tmp_path)["model"]["privacy"]
    forged = changed(document, ("model", "privacy"), other)
    assert_refused(rewritten(tmp_path / "forged.json", forged), "mechanism|epsilon")


def test_the_best_of_a_search_has_the_certificate_of_the_search(tmp_path: Path) -> None:
    document = document_of("search", tmp_path)
    way = ("model", "best_estimator", "privacy", "epsilon")
    forged = changed(document, way, 8.5)
    assert_refused(rewritten(tmp_path / "forged.json", forged), "certificate of the search")


@pytest.mark.parametrize("name", ["n_features_in_", "classes_"])
def test_a_search_is_about_the_rows_of_its_model(tmp_path: Path, name: str) -> None:
    document = document_of("search", tmp_path)
    other = {"n_features_in_": 9, "classes_": {"dtype": "int64", "values": [0, 1, 5]}}[name]
    forged = changed(document, ("model", "attributes", name), other)
    assert_refused(rewritten(tmp_path / "forged.json", forged), f"another {name}")


def test_steps_have_to_fit_each_other(tmp_path: Path) -> None:
    document = document_of("pipeline", tmp_path)
    steps = document["model"]["steps"]
    without = changed(document, ("model", "steps"), [steps[0], steps[1], steps[3]])
    assert_refused(rewritten(tmp_path / "forged.json", without), "takes 2 features")
    turned = changed(document, ("model", "steps"), steps[::-1])
    assert_refused(rewritten(tmp_path / "forged.json", turned), "expected a transformer")
    many = [[f"nothing {k}", None] for k in range(30_000)]
    idle = changed(document, ("model", "steps"), [*many, *steps])
    assert_refused(rewritten(tmp_path / "forged.json", idle), "expected a list of 1 to 1000 steps")
