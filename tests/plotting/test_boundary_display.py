"""BoundaryDisplay: predictions between public bounds, told apart without colours."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.svm import LinearSVC

import dpsvm_fast as dp
from dpsvm_fast.model_selection import PrivateGridSearch
from dpsvm_fast.plotting.displays import BoundaryDisplay

pytestmark = pytest.mark.usefixtures("closed_figures")

RNG = np.random.default_rng(0)
X: NDArray[np.float64] = RNG.uniform(-1.0, 1.0, size=(600, 2))
Y = np.where(X[:, 0] > X[:, 1], "right", "left")
CLASSES = ["left", "right"]
BOUNDS = (-1, 1)
COARSE = {"grid_resolution": 30}


def drawn_class(display: BoundaryDisplay, points: NDArray[np.float64]) -> NDArray[np.int64]:
    """In which region each point lies; -1 for none."""
    inside = [region.get_path().contains_points(points) for region in display.regions_]
    return np.where(np.any(inside, axis=0), np.argmax(inside, axis=0), -1)


def models() -> dict[str, Any]:
    linear = {"kernel": "linear", "normalize": False, "data_norm": 2.0}
    return {
        "linear": dp.PrivateLinearSVC(50.0, classes=CLASSES, bounds=BOUNDS),
        "kernel": dp.PrivateKernelSVC(
            50.0, classes=CLASSES, bounds=BOUNDS, kernel="rbf", gamma=1.0, n_components=50
        ),
        "output": dp.OutputPerturbationSVC(50.0, classes=CLASSES, data_norm=1.5),
        "ellipsoids": dp.PrivateGaussianMarginClassifier(50.0, classes=CLASSES, data_norm=1.5),
        "pipeline": make_pipeline(
            dp.PublicScaler(BOUNDS), dp.PrivateKernelSVC(50.0, classes=CLASSES, **linear)
        ),
        "search": PrivateGridSearch(
            dp.OutputPerturbationSVC(classes=CLASSES, data_norm=1.5), {"C": [0.1]}, 50.0
        ),
    }


@pytest.mark.parametrize("name", models())
def test_every_kind_of_classifier(name: str) -> None:
    model = models()[name].fit(X, Y)
    display = BoundaryDisplay.from_estimator(model, grid_resolution=120)
    low, high = display.ax_.get_xlim()
    assert (low, high) == ((-1.0, 1.0) if name in ("linear", "kernel", "pipeline") else (-1.5, 1.5))
    found = drawn_class(display, X)
    assert (np.array(CLASSES)[found] == model.predict(X)).mean() > 0.97
    assert display.points_ == []


def test_limits_never_come_from_rows() -> None:
    far = np.vstack([X, [[40.0, -30.0]]])
    display = BoundaryDisplay.from_estimator(
        models()["linear"].fit(X, Y), far, y=np.append(Y, "right"), **COARSE
    )
    assert display.ax_.get_xlim() == display.ax_.get_ylim() == (-1.0, 1.0)
    unbounded = dp.PrivateLinearSVC(50.0, classes=CLASSES).fit(X, Y)
    for model in (unbounded, LinearSVC().fit(X, Y), make_pipeline(Normalizer(), unbounded)):
        model.fit(X, Y)
        with pytest.raises(dp.InvalidParameterError, match=r"^bounds: got None, expected public"):
            BoundaryDisplay.from_estimator(model, X)
    wide = BoundaryDisplay.from_estimator(unbounded, bounds=([-2, -3], [4, 5]), **COARSE)
    assert (wide.ax_.get_xlim(), wide.ax_.get_ylim()) == ((-2.0, 4.0), (-3.0, 5.0))


def test_the_display_holds_no_row() -> None:
    display = BoundaryDisplay.from_estimator(models()["linear"].fit(X, Y), X, y=Y, **COARSE)
    kept = {name for name in vars(display) if not name.endswith("_")}
    assert kept == {"x", "y", "codes", "classes", "names", "private"}
    assert display.codes.shape == (30, 30)


def test_a_model_that_is_not_private_says_so() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.NotPrivateWarning)
        seeded = dp.PrivateLinearSVC(50.0, classes=CLASSES, bounds=BOUNDS, random_state=1)
        seeded.fit(X, Y)
        search = make_pipeline(Normalizer(), seeded).fit(X, Y)
    for model in (seeded, search):
        display = BoundaryDisplay.from_estimator(model, bounds=BOUNDS, **COARSE)
        assert "NOT PRIVATE" in display.ax_.get_title()
    private = BoundaryDisplay.from_estimator(models()["linear"].fit(X, Y), **COARSE)
    assert private.ax_.get_title() == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bounds": (1, 0)}, "bounds: got low"),
        ({"bounds": ([0, 0, 0], [1, 1, 1])}, "bounds: got 3, expected"),
        ({"grid_resolution": 1}, "grid_resolution"),
        ({"X": X[:, :1]}, "X: got"),
        ({"X": X, "y": Y[:-1]}, "y: expected one of the model's labels"),
        ({"X": X, "y": np.array(["s3cr3t"] * len(X))}, "y: expected one of the model's labels"),
        ({"y": Y}, "y: got labels without rows"),
    ],
)
def test_what_cannot_be_drawn_is_refused(changes: dict[str, Any], words: str) -> None:
    model = models()["linear"].fit(X, Y)
    with pytest.raises(dp.InvalidParameterError, match=rf"^{words}") as caught:
        BoundaryDisplay.from_estimator(model, **(COARSE | changes))
    assert "s3cr3t" not in str(caught.value)


def test_only_fitted_classifiers_of_two_features() -> None:
    with pytest.raises(NotFittedError):
        BoundaryDisplay.from_estimator(dp.PrivateLinearSVC())
    three = dp.OutputPerturbationSVC(classes=CLASSES).fit(np.column_stack([X, X[:, 0]]), Y)
    scaler = dp.PublicScaler(BOUNDS).fit(X)
    for model in (three, scaler):
        with pytest.raises(dp.InvalidParameterError, match=r"^estimator: expected a classifier"):
            BoundaryDisplay.from_estimator(model)
    with pytest.raises(dp.InvalidParameterError, match="codes: got"):
        BoundaryDisplay(x=[0, 1], y=[0, 1, 2], codes=np.zeros((2, 3)), classes=CLASSES)
