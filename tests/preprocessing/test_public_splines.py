"""PublicSplines: the functions, what they leave sparse, what is refused, and who knows them."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline

import dpsvm_fast as dp
from dpsvm_fast.exceptions import ModelFormatError
from dpsvm_fast.mechanisms.rows import BLOCK_SIZE
from dpsvm_fast.persist import load_model, save_model, to_onnx
from oracles.saved import rewritten

rng = np.random.default_rng(5)
X = rng.uniform(-3.0, 13.0, size=(50, 3))
Y = (X[:, 0] > 2.0).astype(int)
POSITIONS = [-1.0, 0.0, 4.0]


def twin(column: Any, knots: Any) -> Any:
    """The same functions by numpy's interpolation, which clips as we do."""
    units = np.eye(len(knots))
    return np.stack([np.interp(column, knots, unit) for unit in units], axis=1)


def test_functions_are_those_of_the_twin() -> None:
    splines = dp.PublicSplines((0, [10, 1, 5]), [6, 1, POSITIONS]).fit(X)
    found = splines.transform(X)
    assert sparse.isspmatrix_csr(found)
    assert found.has_canonical_format
    expected = [
        twin(X[:, 0], np.linspace(0, 10, 6)),
        np.clip(X[:, 1:2], 0, 1),
        twin(X[:, 2], POSITIONS),
    ]
    np.testing.assert_allclose(found.toarray(), np.hstack(expected), atol=1e-15)
    names = ["x0_sp_0", "x0_sp_1", "x0_sp_2", "x0_sp_3", "x0_sp_4", "x0_sp_5", "x1"]
    names += ["x2_sp_0", "x2_sp_1", "x2_sp_2"]
    assert splines.get_feature_names_out().tolist() == names
    # It learns nothing: any rows fit it alike, or none.
    for other in (clone(splines), clone(splines).fit(X[:1])):
        assert (other.transform(X) != found).nnz == 0
    dense = clone(splines).set_params(sparse_output=False).transform(X)
    np.testing.assert_array_equal(dense, found.toarray())


def test_logarithmic_knots() -> None:
    """At equal distances of log x above 0, and of sign(x) log(1 + |x|) elsewhere."""
    splines = dp.PublicSplines(([1, 0, -99], [1000, 999, 99]), 4, log=True)
    values = np.array([[10.0, math.sqrt(1000.0) - 1.0, 0.0]])
    found = splines.fit(values).transform(values).toarray()
    assert found[0, :4] == pytest.approx([0, 1, 0, 0])
    assert found[0, 4:8].argmax() in (1, 2)
    assert found[0, 8:] == pytest.approx([0, 0.5, 0.5, 0])
    some = dp.PublicSplines((0, 999), 4, log=[1]).fit(X)
    np.testing.assert_allclose(
        some.transform(X).toarray(),
        np.hstack(
            [
                twin(X[:, 0], np.linspace(0, 999, 4)),
                twin(X[:, 1], 10.0 ** np.arange(4) - 1.0),
                twin(X[:, 2], np.linspace(0, 999, 4)),
            ]
        ),
        atol=1e-12,
    )


@given(
    knots=st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=9, unique=True),
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9),
)
def test_hats_add_up_to_one(knots: list[float], values: list[float]) -> None:
    column = np.array(values)[:, None]
    splines = dp.PublicSplines(knots=[sorted(knots)])
    try:
        found = splines.fit_transform(column)
    except dp.InvalidParameterError:
        # Knots that doubles cannot divide by the distance of.
        with np.errstate(over="ignore"):
            steps = np.diff(sorted(knots))
        assert not (np.isfinite(steps) & (steps > np.finfo(float).tiny)).all()
        return
    assert np.diff(found.indptr).max() <= 2
    assert found.data.size == 0 or (found.data.min() > 0.0 and found.data.max() <= 1.0)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-15)
    clipped = np.clip(values, min(knots), max(knots))
    np.testing.assert_array_equal(splines.transform(clipped[:, None]).toarray(), found.toarray())


@pytest.mark.sampled
@pytest.mark.proof("private_scaling")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_is_mapped_alone_to_the_last_bit(dtype: type) -> None:
    """Also across the blocks in which many rows are mapped."""
    rows = rng.normal(size=(BLOCK_SIZE // 16 + 9, 5)).astype(dtype)
    splines = dp.PublicSplines((-2, 2), [7, 1, 7, 7, 2], log=[0]).fit(rows)
    whole = splines.transform(rows)
    assert whole.dtype == dtype
    for part in (slice(0, 3), slice(7, 8), slice(-12, None)):
        assert (splines.transform(rows[part]) != whole[part]).nnz == 0
    turned = splines.transform(np.asfortranarray(rows))
    assert (turned != whole).nnz == 0
    assert (splines.transform(sparse.csr_matrix(rows)) != whole).nnz == 0


def test_columns_of_zeros_and_ones_stay_sparse() -> None:
    flags = sparse.random(200, 40, density=0.05, format="csr", random_state=0)
    flags.data[:] = 1.0
    found = dp.PublicSplines((0, 1), 1).fit_transform(flags)
    assert found.nnz == flags.nnz
    assert (found != flags).nnz == 0


@pytest.mark.parametrize(
    ("settings", "error", "parameter"),
    [
        ({"bounds": None}, dp.InvalidParameterError, "bounds"),
        ({"bounds": (1, 1)}, dp.InvalidParameterError, "bounds"),
        ({"bounds": ([0, 0], 1)}, dp.InvalidParameterError, "bounds"),
        ({"knots": 0}, dp.InvalidParameterError, "knots"),
        ({"knots": 2.5}, TypeError, "knots"),
        ({"knots": True}, TypeError, "knots"),
        ({"knots": "auto"}, TypeError, "knots"),
        ({"knots": [2, 2]}, dp.InvalidParameterError, "knots"),
        ({"knots": [2, 2, 0]}, dp.InvalidParameterError, "knots"),
        ({"knots": [2, 2, [1.0]]}, dp.InvalidParameterError, "knots"),
        ({"knots": [2, 2, [1.0, 1.0]]}, dp.InvalidParameterError, "knots"),
        ({"knots": [2, 2, [1.0, math.nan]]}, dp.InvalidParameterError, "knots"),
        ({"knots": [2, 2, [[1.0, 2.0]]]}, dp.InvalidParameterError, "knots"),
        ({"knots": [2, 2, ["a", "b"]]}, TypeError, "knots"),
        ({"knots": 9, "bounds": (1.0, 1.0 + 4 * 2.0**-52)}, dp.InvalidParameterError, "knots"),
        ({"log": 1}, TypeError, "log"),
        ({"log": [3]}, dp.InvalidParameterError, "log"),
        ({"log": [-1]}, dp.InvalidParameterError, "log"),
        ({"log": [0.5]}, TypeError, "log"),
        ({"sparse_output": None}, TypeError, "sparse_output"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], error: type, parameter: str) -> None:
    for method in ("fit", "transform"):
        with pytest.raises(error, match=f"^{parameter}"):
            getattr(dp.PublicSplines(**{"bounds": (0, 1)} | settings), method)(X)


def model(**settings: Any) -> Any:
    svc = dp.PrivateLinearSVC(5.0, bounds=(0, 1), classes=[0, 1], random_state=0)
    return make_pipeline(dp.PublicSplines((0, [10, 1, 5]), [6, 1, POSITIONS], **settings), svc)


@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
def test_they_are_a_free_step_that_is_saved_and_exported(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    fitted = model(log=np.array([0])).fit(X, Y)
    total = dp.total_privacy(fitted)
    assert [step.learned for step in total.steps] == [False, False]
    assert total.epsilon <= 5.0
    save_model(fitted, tmp_path / "model.json")
    for again in (load_model(tmp_path / "model.json"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))
    wide = np.vstack([X, 1e6 * X, [[-1.0, 0.0, 4.0]]])
    for dtype, close in (("float64", 1e-12), ("float32", 1e-4)):
        session = onnxruntime.InferenceSession(to_onnx(fitted, dtype=dtype).SerializeToString())
        _, scores, _ = session.run(None, {"X": wide.astype(dtype)})
        np.testing.assert_allclose(scores, fitted.decision_function(wide), atol=close)


def test_a_saved_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "splines.json"
    save_model(dp.PublicSplines((0, [10, 1, 5]), [6, 1, POSITIONS]).fit(X), path)
    record = json.loads(path.read_text())
    assert record["model"]["attributes"]["n_features_in_"] == 3
    record["model"]["attributes"]["n_features_in_"] = 4
    with pytest.raises(ModelFormatError, match="bounds"):
        load_model(rewritten(path, record))
    record["model"]["parameters"]["bounds"] = [0.0, 1.0]
    with pytest.raises(ModelFormatError, match="knots"):
        load_model(rewritten(path, record))


def test_a_choice_of_form_by_the_share_of_zeros_is_a_leak() -> None:
    """A ColumnTransformer that makes sparse rows of few zeros dense has looked at all rows."""
    table = pd.DataFrame(X, columns=list("abc"))
    splines = dp.PublicSplines((0, 10))
    svc = dp.PrivateLinearSVC(5.0, bounds=(0, 1), classes=[0, 1])
    for threshold, learned in ((0.3, True), (0.0, False), (1.0, True)):
        columns = make_column_transformer((splines, ["a"]), sparse_threshold=threshold)
        made = dp.PrivatePipeline([("columns", columns), ("svc", svc)])
        if learned:
            with pytest.raises(dp.InvalidParameterError, match="steps"):
                made.fit(table, Y)
        else:
            assert made.fit(table, Y).privacy_.private
    columns = make_column_transformer((splines.set_params(sparse_output=False), ["a"]))
    assert dp.PrivatePipeline([("columns", columns), ("svc", svc)]).fit(table, Y).privacy_.private
