"""PublicImageFeatures: the features, shifts, contrast, threads, refusals, files and graphs."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import check_estimator

import dpsvm_fast as dp
from dpsvm_fast.exceptions import ModelFormatError
from dpsvm_fast.mechanisms import rows
from dpsvm_fast.persist import load_model, save_model, to_onnx
from oracles.saved import rewritten
from oracles.signals import POSIX, interrupted
from twins.images import features, features_of_order_two

rng = np.random.default_rng(3)
SHAPES = [
    ((8, 8), 4, 8),
    ((9, 7, 3), (3, 2), 5),
    ((1, 12), 4, 8),
    ((6, 1, 2), (3, 1), 4),
]


def images(n: int, shape: tuple[int, ...]) -> Any:
    return rng.normal(size=(n, math.prod(shape)))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("shape", "cells", "n_orientations"), SHAPES)
def test_features_are_those_of_the_twin(
    shape: tuple[int, ...], cells: Any, n_orientations: int, order: int
) -> None:
    X = images(30, shape)
    fitted = dp.PublicImageFeatures(shape, cells, n_orientations, order=order).fit(X)
    found = fitted.transform(X)
    grid = (min(cells, shape[0]), min(cells, shape[1])) if isinstance(cells, int) else cells
    twin = features if order == 1 else features_of_order_two
    expected = twin(X.reshape(-1, *(*shape, 1)[:3]), grid, n_orientations)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert len(fitted.get_feature_names_out()) == found.shape[1]
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-12)
    # It learns nothing: any rows fit it alike, or none.
    for other in (clone(fitted), clone(fitted).fit(X[:1])):
        np.testing.assert_array_equal(other.transform(X), found)


@pytest.mark.sampled
@pytest.mark.proof("private_scaling")
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_image_is_mapped_alone_to_the_last_bit(
    dtype: type, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Blocks of a few hundred rows.
    monkeypatch.setattr(rows, "BLOCK_SIZE", 1 << 17)
    X = images(700, (12, 10, 2)).astype(dtype)
    fitted = dp.PublicImageFeatures((12, 10, 2), order=order, n_threads=1).fit(X)
    whole = fitted.transform(X)
    assert whole.dtype == dtype
    np.testing.assert_array_equal(whole[5:6], fitted.transform(X[5:6]))
    np.testing.assert_array_equal(whole[::-1], fitted.transform(X[::-1]))
    np.testing.assert_array_equal(whole, fitted.transform(np.asfortranarray(X)))
    np.testing.assert_array_equal(whole, fitted.set_params(n_threads=4).transform(X))
    np.testing.assert_array_equal(whole, fitted.transform(sparse.csr_matrix(X)))


@pytest.mark.parametrize("order", [1, 2])
def test_brightness_and_contrast_change_nothing(order: int) -> None:
    X = rng.integers(0, 256, size=(20, 64)).astype(float)
    fitted = dp.PublicImageFeatures((8, 8), order=order).fit(X)
    found = fitted.transform(X)
    for other in (X / 255.0, 1024.0 * X, X + 64.0, X * 2.0**-1000):
        np.testing.assert_allclose(fitted.transform(other), found, atol=1e-6)
    assert np.abs(fitted.transform(-X) - found).max() > 0.1
    assert not fitted.transform(np.full((1, 64), 7.0)).any()
    assert np.isfinite(fitted.transform(X * 1e305)).all()


def test_shifts_by_cells_shift_the_features() -> None:
    """By fractions of a cell they change a little, and less than those of another image."""
    digits = load_digits().images[:50]
    canvas = np.zeros((50, 32, 32))
    canvas[:, 8:16, 8:16] = digits
    fitted = dp.PublicImageFeatures((32, 32), 8).fit(canvas.reshape(50, -1))

    def mapped(down: int, right: int) -> Any:
        moved = np.roll(canvas, (down, right), axis=(1, 2)).reshape(50, -1)
        return fitted.transform(moved).reshape(50, 8, 8, 8)

    there = mapped(0, 0)
    np.testing.assert_allclose(mapped(4, 8), np.roll(there, (1, 2), axis=(1, 2)), atol=1e-12)
    near = np.linalg.norm((mapped(1, 0) - there).reshape(50, -1), axis=1)
    others = np.linalg.norm((there[1:] - there[:-1]).reshape(49, -1), axis=1)
    assert near.mean() < 0.8 * others.mean()
    raw = np.linalg.norm((np.roll(canvas, 1, axis=1) - canvas).reshape(50, -1), axis=1)
    assert (near / math.sqrt(2.0)).mean() < (raw / np.linalg.norm(canvas, axis=(1, 2))).mean()


@pytest.mark.parametrize(
    ("settings", "error", "parameter"),
    [
        ({"shape": 64}, TypeError, "shape"),
        ({"shape": "8x8"}, TypeError, "shape"),
        ({"shape": (64,)}, dp.InvalidParameterError, "shape"),
        ({"shape": (8, 8, 1, 1)}, dp.InvalidParameterError, "shape"),
        ({"shape": (8, 7)}, dp.InvalidParameterError, "shape"),
        ({"shape": (8, 8.0)}, TypeError, "shape"),
        ({"shape": (-8, -8)}, dp.InvalidParameterError, "shape"),
        ({"shape": (8, 1 << 13)}, dp.InvalidParameterError, "shape"),
        ({"cells": 0}, dp.InvalidParameterError, "cells"),
        ({"cells": (4, 9)}, dp.InvalidParameterError, "cells"),
        ({"cells": (2, 2, 2)}, dp.InvalidParameterError, "cells"),
        ({"cells": 2.0}, TypeError, "cells"),
        ({"n_orientations": 0}, dp.InvalidParameterError, "n_orientations"),
        ({"n_orientations": True}, TypeError, "n_orientations"),
        ({"order": 0}, dp.InvalidParameterError, "order"),
        ({"order": 3}, dp.InvalidParameterError, "order"),
        ({"n_orientations": 1 << 12, "shape": (4, 8, 2), "order": 2}, ValueError, "n_orientations"),
        ({"n_threads": 0}, dp.InvalidParameterError, "n_threads"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], error: type, parameter: str) -> None:
    for method in ("fit", "transform"):
        with pytest.raises(error, match=f"^{parameter}"):
            getattr(dp.PublicImageFeatures(**{"shape": (8, 8)} | settings), method)(
                images(3, (8, 8))
            )


def test_missing_values_are_refused() -> None:
    X = images(3, (8, 8))
    X[1, 5] = math.nan
    for method in ("fit", "transform"):
        with pytest.raises(ValueError, match="missing"):
            getattr(dp.PublicImageFeatures((8, 8)), method)(X)


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("shape", "cells", "n_orientations"), SHAPES)
def test_they_are_a_free_step_that_is_saved_and_exported(
    tmp_path: Path, shape: tuple[int, ...], cells: Any, n_orientations: int, order: int
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    X = np.round(10.0 * images(60, shape))
    svc = dp.PrivateLinearSVC(5.0, classes=[0, 1], random_state=0)
    edges = dp.PublicImageFeatures(shape, cells, n_orientations, order=order)
    steps = [("edges", edges), ("svc", svc)]
    fitted = dp.PrivatePipeline(steps).fit(X, rng.integers(0, 2, size=60))
    assert [step.learned for step in dp.total_privacy(fitted).steps] == [False, False]
    assert fitted.privacy_.epsilon <= 5.0
    save_model(fitted, tmp_path / "model.json")
    for again in (load_model(tmp_path / "model.json"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))
    flat = np.vstack([X, np.zeros_like(X[:1])])
    for dtype, close in (("float64", 1e-9), ("float32", 1e-3)):
        session = onnxruntime.InferenceSession(to_onnx(fitted, dtype=dtype).SerializeToString())
        _, scores, _ = session.run(None, {"X": flat.astype(dtype)})
        np.testing.assert_allclose(scores, fitted.decision_function(flat), atol=close)


def test_a_saved_file_of_other_images_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "images.json"
    save_model(dp.PublicImageFeatures((8, 8)).fit(images(3, (8, 8))), path)
    record = json.loads(path.read_text())
    record["model"]["parameters"]["shape"] = {"tuple": [8, 7]}
    with pytest.raises(ModelFormatError, match="shape"):
        load_model(rewritten(path, record))


@POSIX
@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_signal_ends_a_long_transform(n_threads: int) -> None:
    """It would take fifteen seconds."""
    X = np.tile(images(1000, (28, 28)).astype(np.float32), (60, 1))
    fitted = dp.PublicImageFeatures((28, 28), 14, 64, n_threads=n_threads).fit(X[:1])
    assert interrupted(lambda: fitted.transform(X), 0.3) < 3.0


class Lines(dp.PublicImageFeatures):
    """Images of one line, as wide as the rows are: rows of the checks have all widths."""

    def grids(self, n_features: int) -> Any:
        line = dp.PublicImageFeatures((1, n_features), self.cells, self.n_orientations, order=2)
        return line.grids(n_features)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_common_checks() -> None:
    found = check_estimator(Lines((1, 1)))
    assert len(found) >= 40
