"""EllipsoidDisplay: the released ellipses and regions, and no private point."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dpsvm_fast as dp
from dpsvm_fast.plotting.displays import EllipsoidDisplay

pytestmark = pytest.mark.usefixtures("closed_figures")


def rows(n_features: int = 2) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(600, n_features))
    return X, np.where(np.linalg.norm(X, axis=1) > 0.75, "out", "in")


@lru_cache
def fitted(n_features: int = 2, **changes: Any) -> dp.PrivateGaussianMarginClassifier:
    settings: dict[str, Any] = {"epsilon": 50.0, "classes": ("in", "out"), "data_norm": 1.5}
    return dp.PrivateGaussianMarginClassifier(**(settings | changes)).fit(*rows(n_features))


def test_ellipses_are_level_sets_of_the_released_forms() -> None:
    model = fitted(noise="gamma", n_ellipsoids=2)
    display = EllipsoidDisplay.from_estimator(model, level=0.3)
    assert len(display.ellipses_) == len(display.centres_) == 4
    for j, curve in enumerate(display.ellipses_):
        c, m = divmod(j, 2)
        gaps = np.asarray(curve.get_xydata()) - model.means_[c, m]
        level = np.einsum("na,ab,nb->n", gaps, model.precisions_[c, m], gaps)
        assert np.allclose(level, 0.3)
        assert np.allclose(display.centres_[j].get_xydata()[0], model.means_[c, m])


def test_rows_are_drawn_only_where_they_are_passed() -> None:
    X, y = rows()
    display = EllipsoidDisplay.from_estimator(fitted(), X[:50], y=y[:50])
    drawn = np.concatenate([points.get_offsets() for points in display.points_])
    assert len(display.points_) == 2
    assert np.allclose(np.sort(drawn, axis=0), np.sort(X[:50], axis=0))


@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
def test_a_seeded_model_says_that_it_is_not_private() -> None:
    display = EllipsoidDisplay.from_estimator(fitted(random_state=1))
    assert "NOT PRIVATE" in display.ax_.get_title()
