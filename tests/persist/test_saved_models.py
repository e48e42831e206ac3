"""Saved models come back as they were, to the last bit, with their certificate."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)

import dpsvm_fast as dp
from dpsvm_fast import InvalidParameterError, PrivacyLedger
from dpsvm_fast.data import TableSchema
from dpsvm_fast.estimators import parameters as param
from dpsvm_fast.exceptions import ModelFormatError
from dpsvm_fast.model_selection import DeclaredTrainer, PrivateGridSearch
from dpsvm_fast.persist import load_model, model_schema, read_model, save_certificate, save_model
from dpsvm_fast.persist.classes import SAVED_CLASSES, declared_parameters, read_entries, written
from oracles.saved import COMPOSED, LABELS, ROWS, answers, fitted, rewritten
from oracles.subjects import SUBJECTS, every_recipe

every_composition = pytest.mark.parametrize("kind", COMPOSED)
not_private = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
SVC = dp.OutputPerturbationSVC


def there_and_back(model: Any, folder: Path, **options: Any) -> Any:
    save_model(model, folder / "model.json", **options)
    return load_model(folder / "model.json", verify=False)


def assert_same(model: Any, again: Any) -> None:
    assert type(again) is type(model)
    expected, said = answers(model), answers(again)
    assert set(expected) == set(said)
    for name, values in expected.items():
        assert said[name].dtype == values.dtype
        assert said[name].tobytes() == values.tobytes(), name
    assert_same_attributes(model, again)


def assert_same_attributes(model: Any, again: Any) -> None:
    """Everything but what is left out on purpose."""
    left_out = {"ledger", "n_threads", "n_jobs", "_continuation"}
    if hasattr(model, "privacy_"):
        left_out.add("random_state")
    assert set(vars(model)) - set(vars(again)) <= {"_continuation"}
    assert set(vars(again)) <= set(vars(model))
    for name in set(vars(again)) - left_out:
        assert_same_value(vars(model)[name], vars(again)[name])


def assert_same_value(value: Any, other: Any) -> None:
    if hasattr(value, "get_params"):
        assert_same_attributes(value, other)
    elif isinstance(value, np.ndarray):
        assert np.array_equal(value, np.asarray(other))
        assert value.dtype.kind == np.asarray(other).dtype.kind
    elif isinstance(value, (list, tuple, range)):
        assert len(value) == len(other)
        for one, two in zip(value, other, strict=True):
            assert_same_value(one, two)
    else:
        assert value == other


@every_recipe
def test_every_recipe_comes_back_as_it_was(tmp_path: Path, subject: str) -> None:
    model = fitted(subject)
    assert_same(model, there_and_back(model, tmp_path))


@every_composition
@not_private
def test_what_is_made_of_others_comes_back_as_it_was(tmp_path: Path, kind: str) -> None:
    model = fitted(kind)
    again = there_and_back(model, tmp_path)
    rows = ROWS
    if kind == "pipeline of names":
        import pandas as pd

        rows = pd.DataFrame(ROWS, columns=model.feature_names_in_)
        assert list(again.feature_names_in_) == ["age", "höhe", "a\nb", "x"]
        assert isinstance(again[0].transform(rows), pd.DataFrame)
    assert np.array_equal(model.predict(rows), again.predict(rows))
    assert np.array_equal(model.decision_function(rows), again.decision_function(rows))
    if kind != "pipeline of names":
        assert_same(model, again)


@pytest.mark.parametrize(
    "labels",
    [
        *([0, 1], [-5, 7], ["b", "ä"], [False, True], [1.0, 4.0]),
        *(list(np.array([0, 1], dtype=kind)) for kind in (np.int8, np.uint64, np.float32)),
    ],
    ids=str,
)
def test_labels_keep_their_type(tmp_path: Path, labels: list[Any]) -> None:
    model = SVC(2.0, classes=labels).fit(ROWS, np.array(labels)[LABELS % 2])
    again = there_and_back(model, tmp_path)
    assert again.predict(ROWS).dtype == model.predict(ROWS).dtype
    assert np.array_equal(again.predict(ROWS), model.predict(ROWS))


def test_a_label_set_read_from_the_labels_is_saved_as_not_private(tmp_path: Path) -> None:
    with pytest.warns(dp.PrivacyLeakWarning):
        model = SVC(2.0).fit(ROWS, LABELS.astype(np.int16))
    again = there_and_back(model, tmp_path)
    assert not again.privacy_.private
    assert again.classes_.dtype == np.int16


def test_a_seeded_model_stays_marked_and_its_seed_is_not_in_the_file(tmp_path: Path) -> None:
    with pytest.warns(dp.NotPrivateWarning):
        model = SVC(2.0, classes=range(3), random_state=918273645).fit(ROWS, LABELS)
    save_model(model, tmp_path / "model.json")
    assert "918273645" not in (tmp_path / "model.json").read_text()
    again = load_model(tmp_path / "model.json")
    assert again.random_state is None
    assert not again.privacy_.private
    assert again.privacy_ == model.privacy_


def test_the_public_seed_of_features_is_kept(tmp_path: Path) -> None:
    model = dp.RandomFourierFeatures(5, random_state=77).fit(ROWS)
    again = there_and_back(model, tmp_path)
    assert (again.random_state, again.seed_, again.structure_) == (77, 77, "orthogonal")


def test_a_ledger_is_not_saved(tmp_path: Path) -> None:
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-3)
    model = SVC(2.0, classes=range(3), ledger=ledger, n_threads=1).fit(ROWS, LABELS)
    again = there_and_back(model, tmp_path)
    assert again.ledger is None
    assert again.n_threads is None
    assert "ledger" not in json.loads((tmp_path / "model.json").read_text())["model"]["parameters"]


def test_a_loaded_model_is_an_estimator_like_any_other(tmp_path: Path) -> None:
    again = there_and_back(fitted("linear"), tmp_path)
    fresh = clone(again).set_params(epsilon=3.0).fit(ROWS, LABELS)
    assert fresh.privacy_.epsilon == 3.0
    assert_same(again, there_and_back(again, tmp_path))
    assert_same(again, copy.deepcopy(again))


def test_a_loaded_model_cannot_be_continued_and_says_so(tmp_path: Path) -> None:
    again = there_and_back(fitted("gradient"), tmp_path)
    with pytest.raises(InvalidParameterError, match="comes from load_model"):
        again.partial_fit(ROWS, LABELS)
    assert np.array_equal(again.coef_, fitted("gradient").coef_)
    assert again.fit(ROWS, LABELS).partial_fit(ROWS, LABELS).privacy_.epsilon > again.epsilon


def test_more_calls_of_partial_fit_are_in_the_certificate(tmp_path: Path) -> None:
    model = dp.GradientPerturbationSVC(1.0, classes=range(3), n_steps=4)
    model.partial_fit(ROWS, LABELS).partial_fit(ROWS, LABELS)
    again = there_and_back(model, tmp_path)
    assert again.privacy_.epsilon == model.privacy_.epsilon > 1.0


@pytest.mark.parametrize(
    "change",
    [{"epsilon": 9.0}, {"delta": 1e-3}, {"adjacency": "replace_one"}, {"classes": [0, 1, 5]}],
    ids=str,
)
def test_parameters_changed_after_the_fit_are_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    model = copy.deepcopy(fitted("output")).set_params(**change)
    with pytest.raises(InvalidParameterError):
        save_model(model, tmp_path / "model.json")
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    model = copy.deepcopy(fitted("output"))
    model.coef_[0, 0] = np.nan
    with pytest.raises(InvalidParameterError, match="finite"):
        save_model(model, tmp_path / "model.json")


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (StandardScaler(), "StandardScaler"),
        (make_pipeline(Normalizer(), StandardScaler()), "StandardScaler"),
        (make_pipeline(FunctionTransformer(), SVC()), "FunctionTransformer"),
        (Pipeline([("a", SVC())], transform_input=["y"]), "transform_input"),
        (PrivateGridSearch(DeclaredTrainer(print, ()), {}), "DeclaredTrainer"),
        (type("OutputPerturbationSVC", (SVC,), {})(), "OutputPerturbationSVC"),
        ("text", "str"),
        (None, "NoneType"),
    ],
)
def test_other_classes_are_refused_by_name(tmp_path: Path, model: Any, word: str) -> None:
    with pytest.raises(InvalidParameterError, match=word):
        save_model(model, tmp_path / "model.json")


@pytest.mark.parametrize("kind", [name for name, s in SUBJECTS.items() if not s.variant])
def test_what_is_not_fitted_is_refused(tmp_path: Path, kind: str) -> None:
    model = clone(fitted(kind))
    if kind in ("public scaler", "splines"):
        assert_same(model, there_and_back(model, tmp_path))
        return
    with pytest.raises(NotFittedError, match="call fit"):
        save_model(model, tmp_path / "model.json")


TEXTS = ["a private rose", "is a rose", "and a public one", "wine is wine", "of wine", "no"] * 50


def test_pipelines_of_hashed_texts(tmp_path: Path) -> None:
    words = HashingVectorizer(n_features=64, ngram_range=(1, 2), stop_words=["a"], dtype=np.float32)
    model = make_pipeline(words, SVC(2.0, classes=range(3))).fit(TEXTS, LABELS)
    again = there_and_back(model, tmp_path)
    assert np.array_equal(model.decision_function(TEXTS), again.decision_function(TEXTS))
    assert again[0].get_params() == words.get_params()


@pytest.mark.parametrize(
    "change",
    [
        *({"tokenizer": str.split}, {"preprocessor": str.lower}, {"analyzer": str.split}),
        *({"token_pattern": "(a*)*b"}, {"input": "filename"}, {"dtype": object}),
        *({"stop_words": (1,)}, {"ngram_range": 3}),
    ],
    ids=str,
)
def test_code_in_a_vectorizer_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    vectorizer = HashingVectorizer(n_features=64).set_params(**change)
    with pytest.raises((InvalidParameterError, TypeError), match=next(iter(change))):
        save_model(vectorizer, tmp_path / "model.json")


def test_attributes_of_ones_own_stay_out(tmp_path: Path) -> None:
    model = copy.deepcopy(fitted("output"))
    model.rows_ = "the training rows"
    save_model(model, tmp_path / "model.json")
    assert "training rows" not in (tmp_path / "model.json").read_text()


SCHEMA = {
    "target": "kind",
    "classes": ["0", "1", "2"],
    "columns": {name: {"bounds": [0.0, 1.0]} for name in "abcd"},
}


def test_a_schema_goes_with_the_model(tmp_path: Path) -> None:
    schema = TableSchema.from_dict(SCHEMA)
    model = SVC(2.0, classes=["0", "1", "2"]).fit(ROWS, LABELS.astype(str))
    save_model(model, tmp_path / "model.json", schema=schema)
    found = read_model(tmp_path / "model.json")
    assert found.schema == schema
    assert (found.format_version, found.library_version) == (5, dp.__version__)
    assert_same(model, found.estimator)
    save_model(model, tmp_path / "model.json")
    assert read_model(tmp_path / "model.json").schema is None


@every_composition
def test_files_satisfy_the_published_schema(tmp_path: Path, kind: str) -> None:
    save_model(fitted(kind), tmp_path / "model.json")
    document = json.loads((tmp_path / "model.json").read_text())
    validator = jsonschema.Draft202012Validator(model_schema())
    validator.validate(document)
    document["model"]["attributes"] = 3
    assert not validator.is_valid(document)


def test_a_private_pipeline_is_loaded_as_one(tmp_path: Path) -> None:
    steps = [("centre", dp.PrivateCenter(1.0)), ("svc", dp.OutputPerturbationSVC(classes=range(3)))]
    model = dp.PrivatePipeline(steps).fit(ROWS, LABELS)
    save_model(model, tmp_path / "model.json")
    save_certificate(tmp_path / "model.json", tmp_path / "certificate.json")
    loaded = load_model(tmp_path / "model.json")
    assert type(loaded) is dp.PrivatePipeline
    assert loaded.privacy_ == model.privacy_
    certificate = (tmp_path / "certificate.json").read_text()
    result = dp.verify(certificate, model=tmp_path / "model.json")
    assert result.ok, result
    assert "steps, classes and certificate of every step" in result.matches


def test_a_model_with_noisy_class_weights_goes_with_its_certificate(tmp_path: Path) -> None:
    model = dp.PrivateLinearSVC(2.0, bounds=(0, 1), classes=range(3), class_weight="balanced")
    save_model(model.fit(ROWS, LABELS), tmp_path / "model.json")
    save_certificate(tmp_path / "model.json", tmp_path / "certificate.json")
    result = dp.verify((tmp_path / "certificate.json").read_text(), model=tmp_path / "model.json")
    assert result.ok, result


def test_a_model_without_releases_before_its_weights_goes_with_its_certificate(
    tmp_path: Path,
) -> None:
    model = dp.PrivateLinearSVC(2.0, bounds=(0, 1), classes=range(3), mechanism="output")
    model.fit(sparse.csr_matrix(ROWS), LABELS)
    save_model(model, tmp_path / "model.json")
    result = dp.verify(model.privacy_, model=tmp_path / "model.json")
    assert result.ok, result


@pytest.mark.parametrize(
    ("step", "change"),
    [
        (Normalizer(), {"norm": "l3"}),
        (HashingVectorizer(), {"n_features": 0}),
        (HashingVectorizer(), {"strip_accents": "all"}),
        (HashingVectorizer(), {"encoding": "utf-16"}),
        (SplineTransformer(knots=np.array([[0.0], [1.0]])), {"extrapolation": "far"}),
        (OneHotEncoder(categories=[["a", "b"]]), {"handle_unknown": "guess"}),
        (PolynomialFeatures(), {"degree": 10**9}),
    ],
    ids=str,
)
def test_odd_parameters_of_public_steps_are_refused(
    tmp_path: Path, step: Any, change: dict[str, Any]
) -> None:
    rows = [["a"]] if isinstance(step, OneHotEncoder) else [[0.5], [0.7]]
    if not isinstance(step, HashingVectorizer):
        step = step.fit(rows)
    save_model(step, tmp_path / "model.json")
    document = json.loads((tmp_path / "model.json").read_text())
    document["model"]["parameters"] |= change
    with pytest.raises(ModelFormatError):
        load_model(rewritten(tmp_path / "model.json", document))


def test_the_published_schema_knows_every_class() -> None:
    assert set(model_schema()["$defs"]["class"]["enum"]) == set(SAVED_CLASSES)


@pytest.mark.parametrize("kind", ["output", "linear", "kernel", "ellipsoids", "pca", "pipeline"])
def test_skops_works_with_the_types_that_the_page_lists(kind: str) -> None:
    skops = pytest.importorskip("skops.io", exc_type=ImportError)
    model = copy.copy(fitted(kind))
    if "ledger" in vars(model):
        model.ledger = None
    data = skops.dumps(model)
    page = (Path(__file__).parents[2] / "docs" / "model_format.md").read_text("utf-8")
    needed = skops.get_untrusted_types(data=data)
    assert [name for name in needed if f'"{name}"' not in page] == []
    assert_same(model, skops.loads(data, trusted=needed))


def test_a_younger_parameter_may_be_absent_from_a_file() -> None:
    @dataclass
    class Younger:
        old: param.Flag = True
        new: Annotated[param.Flag, param.ADDED] = True

    entries = declared_parameters(Younger)
    # Files at the default are those from before it.
    assert written(entries, {"old": False, "new": True}) == {"old": False}
    assert written(entries, {"old": False, "new": False}) == {"old": False, "new": False}
    assert Younger(**read_entries(entries, {"old": False}, "")) == Younger(old=False)
    assert read_entries(entries, {"old": True, "new": False}, "") == {"old": True, "new": False}
    for record in ({"new": True}, {"old": True, "new": 1}, {"old": True, "newer": True}):
        with pytest.raises(ModelFormatError):
            read_entries(entries, record, "")
