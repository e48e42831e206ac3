"""Steps of scikit-learn that learn nothing: free, saved, exported; and those that do learn."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.feature_extraction.image import PatchExtractor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)
from sklearn.utils.fixes import parse_version

import dpsvm_fast as dp
from dpsvm_fast import InvalidParameterError, PrivatePipeline, total_privacy
from dpsvm_fast.persist import load_model, save_model, to_onnx
from dpsvm_fast.persist.values import ModelFormatError
from dpsvm_fast.pipelines import Step
from oracles.saved import rewritten

RNG = np.random.default_rng(0)
N = 200
ROWS = pd.DataFrame(
    {
        "age": np.where(RNG.random(N) < 0.1, np.nan, RNG.uniform(-10.0, 120.0, N)),
        "hours": RNG.uniform(0.0, 80.0, N),
        "work": RNG.choice(np.array(["a", "b", np.nan], dtype=object), N),
        "school": RNG.choice(["low", "mid", "high"], N),
        "plan": RNG.choice([1, 2, 3], N),
    }
)
NUMBERS = ROWS[["hours", "plan"]].astype(float)
LABELS = np.where(ROWS["hours"] > 40.0, "yes", "no")
KNOTS = np.array([[0.0, 1.0], [20.0, 2.0], [80.0, 3.0]])
FILL = {"strategy": "constant", "keep_empty_features": True}
WORDS = [["a", "b", "?"]]


def svc() -> Any:
    return dp.OutputPerturbationSVC(5.0, classes=["no", "yes"], data_norm=100.0)


def coded(**options: Any) -> OneHotEncoder:
    return OneHotEncoder(categories=WORDS, sparse_output=False, **options)


# Of numbers, and of a mixed table.
PLAIN: dict[str, Any] = {
    "splines": SplineTransformer(knots=KNOTS),
    "linear splines": SplineTransformer(knots=KNOTS, degree=1, include_bias=False),
    "quartic splines": SplineTransformer(knots=KNOTS, degree=4),
    "powers": PolynomialFeatures(3),
    "products": PolynomialFeatures((2, 2), interaction_only=True, include_bias=False),
    "constant": PolynomialFeatures(0),
    "imputer": SimpleImputer(fill_value=-1.0, missing_values=2.0, **FILL),
    "codes": make_pipeline(
        ColumnTransformer(
            [("plan", OneHotEncoder(categories=[[1, 2, 3]], sparse_output=False), [1])],
            remainder="passthrough",
        )
    ),
}
TABLES: dict[str, Any] = {
    "mixed": ColumnTransformer(
        [
            (
                "age",
                make_pipeline(
                    SimpleImputer(fill_value=40.0, **FILL),
                    dp.PublicScaler((0, 100)),
                    PolynomialFeatures(2, include_bias=False),
                ),
                ["age"],
            ),
            ("hours", SplineTransformer(knots=KNOTS[:, :1]), ["hours"]),
            ("work", make_pipeline(SimpleImputer(fill_value="?", **FILL), coded()), ["work"]),
            ("school", OrdinalEncoder(categories=[["low", "mid", "high"]]), ["school"]),
            ("plan", OneHotEncoder(categories=[[1, 2, 3]], sparse_output=False), ["plan"]),
        ]
    ),
    "unknown": ColumnTransformer(
        [
            (
                "school",
                OrdinalEncoder(
                    categories=[["low", "mid"]],
                    handle_unknown="use_encoded_value",
                    unknown_value=-7,
                ),
                make_column_selector(pattern="school"),
            ),
            (
                "plan",
                OneHotEncoder(categories=[[1, 2, 3]], drop=[2], sparse_output=False),
                slice(4, 5),
            ),
            (
                "some",
                OneHotEncoder(categories=[[2, 3]], sparse_output=False, handle_unknown="ignore"),
                ["plan"],
            ),
            ("left", "drop", ["age"]),
            ("kept", "passthrough", [1]),
        ],
    ),
    "rest": ColumnTransformer(
        [
            ("none", coded(), []),
            (
                "work",
                make_pipeline(SimpleImputer(fill_value="?", **FILL), coded(drop="first")),
                [2],
            ),
            ("school", "drop", [3]),
        ],
        remainder=SimpleImputer(fill_value=0.5, **FILL),
        sparse_threshold=0.0,
        verbose_feature_names_out=False,
    ),
}


def fitted(step: Any, rows: Any) -> PrivatePipeline:
    return PrivatePipeline([("step", step), ("svc", svc())]).fit(rows, LABELS)


def models() -> dict[str, tuple[Any, Any]]:
    return {kind: (step, NUMBERS) for kind, step in PLAIN.items()} | {
        kind: (step, ROWS) for kind, step in TABLES.items()
    }


@pytest.mark.parametrize("kind", models())
def test_it_is_free_saved_and_exported(kind: str, tmp_path: Path) -> None:
    step, rows = models()[kind]
    model = fitted(copy.deepcopy(step), rows)
    assert total_privacy(model).private
    assert [one.learned for one in model.privacy_.steps].count(True) == 0
    save_model(model, tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    scores = model.decision_function(rows)
    assert again.decision_function(rows).tobytes() == scores.tobytes()
    assert list(again[0].get_feature_names_out()) == list(model[0].get_feature_names_out())
    save_model(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "model.json").read_bytes()
    assert again.fit(rows, LABELS).privacy_.private
    onnx_says_the_same(model, rows)


def onnx_says_the_same(model: Any, rows: pd.DataFrame) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    graph = runtime.InferenceSession(to_onnx(model).SerializeToString())
    feeds = {
        one.name: rows.to_numpy(dtype=float)
        if one.name == "X"
        else rows[[one.name]].fillna("").to_numpy(dtype=object)
        if "string" in one.type
        else rows[[one.name]].to_numpy(dtype=float)
        for one in graph.get_inputs()
    }
    scores = graph.run(None, feeds)[1]
    expected = model.decision_function(rows)
    np.testing.assert_allclose(scores, expected, atol=1e-11 * np.abs(expected).max())


@pytest.mark.proof("private_scaling", "Pipelines")
@pytest.mark.parametrize("kind", models())
def test_what_is_fitted_does_not_depend_on_values(kind: str) -> None:
    """Two tables of the same columns and types that have no cell in common: the same step."""
    step, rows = models()[kind]
    other = rows.sample(frac=1.0, random_state=1).reset_index(drop=True)
    one, two = (copy.deepcopy(step).fit(table) for table in (rows, other[:50]))
    np.testing.assert_array_equal(one.transform(rows), two.transform(rows))
    for place in range(0, N, 20):
        np.testing.assert_array_equal(
            one.transform(rows[place : place + 1])[0], one.transform(rows)[place]
        )


@pytest.mark.parametrize(
    ("step", "advice"),
    [
        (SimpleImputer(strategy="mean"), "keep_empty_features=True"),
        (SimpleImputer(strategy="constant", fill_value=0), "keep_empty_features=True"),
        (SimpleImputer(fill_value=0, add_indicator=True, **FILL), "keep_empty_features=True"),
        (SplineTransformer(), "knots"),
        (SplineTransformer(knots="quantile"), "knots"),
        # Its knots are public, but zeros in all rows decide whether its rows are dense.
        (
            ColumnTransformer(
                [("a", SplineTransformer(knots=KNOTS[:, :1], sparse_output=True), [0])]
            ),
            "sparse_output=False in a ColumnTransformer",
        ),
        (KBinsDiscretizer(), "PublicSplines"),
        (OneHotEncoder(), "categories"),
        (OneHotEncoder(categories=WORDS, min_frequency=2), "categories"),
        (OneHotEncoder(categories=WORDS, handle_unknown="warn"), "warns"),
        (OneHotEncoder(categories=WORDS, handle_unknown="ignore", drop="first"), "warns"),
        (PatchExtractor(), "a private step"),
        (StandardScaler(), "PublicScaler"),
        (
            ColumnTransformer([("a", dp.PublicScaler((0, 1)), lambda X: [int(X.sum() > 0)])]),
            "Name its columns",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_steps_that_learn_are_refused_with_what_to_take_instead(step: Any, advice: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        PrivatePipeline([("step", step), ("svc", svc())]).fit(NUMBERS, LABELS)
    assert caught.value.parameter == "steps"
    assert advice in str(caught.value)


def test_a_model_that_keeps_all_rows_is_no_public_step() -> None:
    """Its tags say that it needs no fit, since it predicts without one."""
    last = GaussianProcessRegressor()
    steps = [("scale", dp.PrivateStandardScaler(1.0, 1e-5, bounds=(0, 1))), ("process", last)]
    with pytest.raises(InvalidParameterError):
        PrivatePipeline(steps).fit(NUMBERS, LABELS)
    last.set_params(optimizer=None)
    fitted_pipeline = Pipeline(steps).fit(NUMBERS, np.zeros(len(NUMBERS)))
    assert len(last.X_train_) == len(NUMBERS)
    with pytest.warns(dp.PrivacyLeakWarning):
        assert not dp.total_privacy(fitted_pipeline).private


def test_no_encoder_that_counts_as_public_warns_of_a_category() -> None:
    """Which warnings there are would depend on one row."""
    known = np.array([["a"], ["b"], ["c"]] * 10, dtype=object)
    unknown = np.concatenate([known[1:], [["zz"]]])
    for handle in ("error", "ignore", "infrequent_if_exist", "warn"):
        for drop in (None, "first", "if_binary", ["a"]):
            step = OneHotEncoder(categories=[["a", "b", "c"]], handle_unknown=handle, drop=drop)
            if handle == "error" or Step("step", step).role != "public":
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for rows in (known, unknown):
                    step.fit(known).transform(rows)


@pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.8"), reason="kept such columns before"
)
def test_a_column_without_values_is_what_makes_an_imputer_learn() -> None:
    """Negative control: by default one record decides how many columns there are."""
    empty = np.array([[np.nan, 1.0], [np.nan, 2.0]])
    full = np.array([[np.nan, 1.0], [0.0, 2.0]])
    learns, free = (
        [
            SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=keep)
            .fit(rows)
            .statistics_.tolist()
            for rows in (empty, full)
        ]
        for keep in (False, True)
    )
    assert repr(learns[0]) != repr(learns[1])
    assert free[0] == free[1]


@pytest.mark.parametrize(
    "step",
    [
        SimpleImputer(strategy="constant", fill_value=0),
        SplineTransformer(),
        StandardScaler(),
        OneHotEncoder(categories=[[1.0, np.nan]], sparse_output=False),
        OneHotEncoder(
            categories=[[1, 2]], feature_name_combiner=lambda a, b: a, sparse_output=False
        ),
    ],
    ids=lambda step: type(step).__name__,
)
def test_what_is_not_saved(step: Any, tmp_path: Path) -> None:
    rows = NUMBERS[["plan"]].clip(1, 1)
    model = Pipeline([("step", step.fit(rows)), ("svc", svc())])
    model.fit(step.transform(rows)[:, :1] if hasattr(step, "n_bins") else rows, LABELS)
    with pytest.raises(InvalidParameterError):
        save_model(model, tmp_path / "model.json")


def change(record: Any, path: str, value: Any) -> None:
    """Set a value inside."""
    *before, last = (int(key) if key.isdigit() else key for key in path.split("/"))
    for key in before:
        record = record[key]
    record[last] = value


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("transformers/0/2", ["nobody"]),
        ("transformers/0/2", [2**40]),
        ("transformers/0/2", {"a": 1}),
        ("transformers/0/1", "reveal"),
        ("transformers/0/1/class", "StandardScaler"),
        ("transformers", {}),
        ("transformers/1/1/parameters/degree", 10**6),
        ("transformers/1/1/parameters/knots", "quantile"),
        ("transformers/1/1/attributes/n_features_in_", 2**31),
        ("transformers/3/1/parameters/categories", [[]]),
        ("transformers/3/1/parameters/categories", "auto"),
        ("transformers/3/1/attributes/categories_", ["float64"]),
        ("transformers/0/1/steps/0/1/parameters/strategy", "mean"),
        ("transformers/0/1/steps/0/1/attributes/fit_dtype", "V8"),
        ("transformers/0/1/steps/0/1/attributes/n_features_in_", 2**22),
        ("remainder", {"class": "PrivateGridSearch"}),
        ("attributes/n_features_in_", 3),
        ("attributes/feature_names_in_", ["age", "age", "x", "y", "z"]),
    ],
    ids=str,
)
def test_a_file_that_does_not_go_together_is_refused(path: str, value: Any, tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    save_model(fitted(copy.deepcopy(TABLES["mixed"]), ROWS), file)
    document = json.loads(file.read_text())
    change(document["model"]["steps"][0][1], path, value)
    rewritten(file, document)
    with pytest.raises(ModelFormatError):
        load_model(file)


def test_graphs_that_cannot_be_written() -> None:
    pytest.importorskip("onnx")
    periodic = SplineTransformer(knots=KNOTS, extrapolation="periodic", degree=2)
    both = ColumnTransformer(
        [("a", coded(handle_unknown="ignore"), ["work"]), ("b", "passthrough", ["work"])]
    )
    behind = make_pipeline(
        ColumnTransformer([("a", "passthrough", ["work"])]), coded(handle_unknown="ignore")
    )
    for step, rows in ((periodic, NUMBERS), (both, ROWS), (behind, ROWS)):
        with pytest.raises(InvalidParameterError):
            to_onnx(step.fit(rows))
