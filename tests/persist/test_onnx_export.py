"""Graphs say what Python says: scores up to rounding, labels away from ties exactly."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import dpsvm_fast as dp
from dpsvm_fast import InvalidParameterError, verify
from dpsvm_fast.model_selection import ConstantClassifier
from dpsvm_fast.persist import to_onnx
from oracles.saved import COMPOSED, LABELS, ROWS, fitted
from oracles.subjects import SUBJECTS

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

# Largest difference of scores, relative to the largest score, and of probabilities.
TOLERANCE = {"float64": 1e-12, "float32": 2e-4}
KINDS = [*(name for name, s in SUBJECTS.items() if not s.slow), *COMPOSED]
rng = np.random.default_rng(5)
FRESH = rng.normal(size=(200, 4)) * rng.choice([0.01, 1.0, 100.0], size=(200, 1))


def session(proto: Any) -> Any:
    return runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])


def said(model: Any, rows: Any, dtype: str = "float64") -> dict[str, Any]:
    """All outputs of the graph."""
    running = session(to_onnx(model, dtype=dtype))
    names = [output.name for output in running.get_outputs()]
    return dict(zip(names, running.run(names, {"X": rows.astype(dtype)}), strict=True))


def framed(model: Any, rows: Any) -> Any:
    import pandas as pd

    names = getattr(model, "feature_names_in_", None)
    return rows if names is None else pd.DataFrame(rows, columns=names)


def assert_close(one: Any, two: Any, tolerance: float) -> None:
    one, two = np.asarray(one), np.asarray(two)
    assert one.shape == two.shape
    assert np.abs(one - two).max() <= tolerance * max(1.0, np.abs(one).max())


def lead(scores: Any) -> Any:
    """By how much the best class leads."""
    if scores.ndim == 1:
        return np.abs(scores)
    ordered = np.sort(scores, axis=1)
    return ordered[:, -1] - ordered[:, -2]


def assert_same(model: Any, rows: Any, dtype: str = "float64") -> None:
    found = said(model, rows, dtype)
    rows = framed(model, rows.astype(dtype))
    tolerance = TOLERANCE[dtype]
    if not hasattr(model, "predict"):
        assert set(found) == {"transformed"}
        assert_close(model.transform(rows), found["transformed"], tolerance)
        return
    scores = model.decision_function(rows)
    assert_close(scores, found["scores"], tolerance)
    clear = lead(scores) > 2.0 * tolerance * max(1.0, np.abs(scores).max())
    assert clear.mean() > (0.9 if dtype == "float64" else 0.5)
    expected = model.predict(rows)
    assert np.array_equal(found["label"][clear], expected[clear])
    assert (
        np.asarray(found["label"]).dtype.kind == expected.dtype.kind or expected.dtype.kind == "U"
    )
    assert ("probabilities" in found) == hasattr(model, "predict_proba")
    if "probabilities" in found:
        assert_close(model.predict_proba(rows), found["probabilities"], tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_says_the_same(kind: str) -> None:
    assert_same(fitted(kind), FRESH)


@pytest.mark.parametrize("kind", ["output", "linear", "kernel", "ellipsoids", "pca", "pipeline"])
def test_single_precision_says_about_the_same(kind: str) -> None:
    assert_same(fitted(kind), FRESH, "float32")


RECIPES = {
    "two classes": (dp.PrivateLinearSVC, {"bounds": ([0, -1, -2, -3], 3)}),
    "symmetric bounds": (dp.PrivateLinearSVC, {"bounds": (-2, 2), "whiten": True}),
    "margin": (dp.PrivateLinearSVC, {"margin": 1.0}),
    "kernel": (dp.PrivateKernelSVC, {"kernel": "rbf", "n_components": 9, "bounds": (-4, 4)}),
    "laplacian": (dp.PrivateKernelSVC, {"kernel": "laplacian", "n_components": 9}),
    "additive": (dp.PrivateKernelSVC, {"kernel": "additive", "bounds": (-2, [1, 2, 3, 4])}),
    "linear kernel": (dp.PrivateKernelSVC, {"kernel": "linear"}),
    "ellipsoids": (dp.PrivateGaussianMarginClassifier, {"data_norm": 1.7}),
    "logistic": (dp.ObjectivePerturbationSVC, {"loss": "logistic"}),
    "huber": (dp.OutputPerturbationSVC, {"loss": "huber", "fit_intercept": False}),
}


WORDS: list[Any] = ["no", "yes"]
TYPES: list[list[Any]] = [[False, True], [3, 7], [1.0, 2.0]]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("recipe", "labels"),
    [
        *((recipe, WORDS) for recipe in RECIPES),
        *((recipe, labels) for recipe in ("two classes", "ellipsoids") for labels in TYPES),
    ],
    ids=str,
)
def test_two_classes_of_every_type(recipe: str, labels: list[Any]) -> None:
    kind, settings = RECIPES[recipe]
    model = kind(20.0, classes=labels, **settings).fit(ROWS, np.array(labels)[LABELS % 2])
    assert_same(model, FRESH)


@pytest.mark.parametrize("loss", ["logistic", "softplus"])
def test_probabilities_of_sums_over_classes(loss: str) -> None:
    settings = {} if loss == "logistic" else {"margin": 0.0}
    model = dp.OutputPerturbationSVC(20.0, classes=range(3), loss=loss, **settings)
    assert_same(model.fit(ROWS, LABELS), FRESH)


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_steps_of_pipelines(norm: str) -> None:
    steps = (dp.PrivateStandardScaler(3.0, bounds=(-3, [3, 4, 5, 6])), dp.PrivateCenter(3.0))
    more = (Normalizer(norm=norm), dp.PrivatePCA(3, 3.0, centre=[0.1, 0, 0, 0], whiten=True))
    last = (dp.PublicScaler((-1, 1)), dp.RandomFourierFeatures(7, kernel="laplacian"))
    whitener = dp.PrivateWhitener(3.0)
    model = make_pipeline(
        *steps, *more, *last, whitener, dp.OutputPerturbationSVC(2.0, classes=range(3))
    )
    model.fit(ROWS, LABELS)
    assert_same(model, FRESH)
    assert_same(model[:-1], FRESH)


def test_a_structured_map_is_written_out() -> None:
    wide = rng.normal(size=(40, 70))
    model = dp.RandomFourierFeatures(100, random_state=3).fit(wide)
    assert model.structure_ == "fast"
    assert_same(model, wide)


SESSIONS: dict[str, Any] = {}


@given(
    rows=st.lists(st.lists(st.floats(-1e30, 1e30), min_size=4, max_size=4), min_size=1, max_size=5)
)
def test_extreme_rows_say_the_same(rows: list[list[float]]) -> None:
    model = fitted("linear whitened")
    if "whitened" not in SESSIONS:
        SESSIONS["whitened"] = session(to_onnx(model))
    found = SESSIONS["whitened"].run(None, {"X": np.array(rows)})
    assert_close(model.decision_function(np.array(rows)), found[1], 1e-11)


def test_rows_near_the_centre_are_not_stretched_to_norm_1() -> None:
    rows = np.array([1.0, 0.2, 0.2, 0.2]) + 0.01 * ROWS
    model = dp.PrivateLinearSVC(1000.0, classes=range(3), whiten=False).fit(rows, LABELS)
    near = np.vstack([model.centre_, rows[:20]])
    lengths = np.linalg.norm(near / np.linalg.norm(near, axis=1)[:, None] - model.centre_, axis=1)
    assert lengths[0] < 1.0 / 16.0
    assert_close(model.decision_function(near), said(model, near)["scores"], 1e-12)


@pytest.mark.parametrize("kind", ["pca", "linear", "ellipsoids", "standard scaler", "features"])
def test_rows_of_zeros_and_huge_rows(kind: str) -> None:
    rows = np.array([[0.0] * 4, [1e200, 0.0, 0.0, 0.0], [1e-200] * 4, [-1e300, 1e300, 1.0, 0.0]])
    if kind == "features":
        rows = rows[[0, 2]]
    model = fitted(kind)
    found = said(model, rows)
    expected = (
        model.decision_function(rows) if kind in ("linear", "ellipsoids") else model.transform(rows)
    )
    assert_close(expected, found["scores" if "scores" in found else "transformed"], 1e-12)


def test_the_certificate_goes_along(tmp_path: Path) -> None:
    to_onnx(fitted("output"), tmp_path / "model.onnx")
    proto = onnx.load(tmp_path / "model.onnx")
    properties = {p.key: p.value for p in proto.metadata_props}
    assert properties["dpsvm_fast.model"] == "OutputPerturbationSVC"
    assert verify(properties["dpsvm_fast.certificate"])
    assert (proto.opset_import[0].version, proto.ir_version) == (13, 7)
    whole = {p.key: p.value for p in to_onnx(fitted("pipeline")).metadata_props}
    record = json.loads(whole["dpsvm_fast.certificate"])
    assert record["format"] == "dpsvm_fast.pipeline_certificate"
    names = {p.key: p.value for p in to_onnx(fitted("pipeline of names")).metadata_props}
    assert json.loads(names["dpsvm_fast.feature_names"]) == ["age", "höhe", "a\nb", "x"]


def test_other_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    search = copy.deepcopy(fitted("search"))
    search.best_estimator_ = ConstantClassifier([0, 1, 2])
    with pytest.raises(InvalidParameterError, match="ConstantClassifier"):
        to_onnx(search)
    with pytest.raises(NotFittedError):
        to_onnx(dp.OutputPerturbationSVC())
    with pytest.raises(InvalidParameterError, match="dtype: got 'float16'"):
        to_onnx(fitted("output"), dtype="float16")
    monkeypatch.setattr("dpsvm_fast.persist.onnx.MAX_BYTES", 100)
    with pytest.raises(InvalidParameterError, match="more than 100 bytes of weights"):
        to_onnx(fitted("kernel"))
