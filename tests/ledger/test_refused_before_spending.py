"""What the compiled parts would refuse is refused before a ledger is charged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpsvm_fast import (
    InvalidParameterError,
    PrivacyLedger,
    PrivateGaussianMarginClassifier,
    PrivateKernelSVC,
    PrivateLinearSVC,
    PrivatePCA,
    PrivateStandardScaler,
    PublicScaler,
    RandomFourierFeatures,
    _core,
)

X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(30, 3))
Y = np.arange(30) % 2
# Beyond what rows may be moved by, and divided by.
FAR, NARROW = (1e308, 1.5e308), (0.0, 1e-150)


def fit(estimator: Any, rows: Any = X) -> Any:
    return estimator.fit(rows, Y[: len(rows)])


@pytest.mark.parametrize("estimator", [PrivateLinearSVC, PrivateKernelSVC])
@pytest.mark.parametrize("bounds", [FAR, NARROW])
def test_bounds_beyond_the_range_of_rows(estimator: Any, bounds: Any) -> None:
    ledger = PrivacyLedger(1.0, 1e-6)
    with pytest.raises(ValueError, match=r"^bounds: expected low from -1e\+100 to 1e\+100"):
        fit(estimator(classes=[0, 1], bounds=bounds, ledger=ledger))
    assert ledger.history == ()


@pytest.mark.parametrize("bounds", [FAR, NARROW])
def test_scalers_take_such_bounds(bounds: Any) -> None:
    rows = bounds[0] + 0.5 * (bounds[1] - bounds[0]) * (X + 1.0)
    assert np.abs(PublicScaler(bounds).fit_transform(rows) - 0.5 * (X + 1.0)).max() < 1e-9
    scaled = PrivateStandardScaler(1e3, bounds=bounds, adjacency="replace_one").fit_transform(rows)
    assert 0.5 < scaled.std() < 2.0


def test_a_centre_beyond_the_range_of_rows() -> None:
    ledger = PrivacyLedger(1.0, 1e-6)
    with pytest.raises(ValueError, match=r"^centre: expected numbers from -1e\+100 to 1e\+100"):
        PrivatePCA(centre=[1e101, 0.0, 0.0], ledger=ledger).fit(X)
    assert ledger.history == ()


def test_more_features_than_matrices_can_have() -> None:
    ledger = PrivacyLedger(1.0, 1e-6)
    model = PrivateGaussianMarginClassifier(classes=[0, 1], ledger=ledger)
    with pytest.raises(InvalidParameterError, match=r"^X: got 4095 features, .* expected at most"):
        fit(model, np.zeros((2, 4095)))
    assert ledger.history == ()


@pytest.mark.parametrize(("features", "refused"), [(4094, "linear"), (4095, "X: got 4095")])
def test_that_is_the_limit_of_the_solver(features: int, refused: str) -> None:
    numbers = {"smoothing": 1.0, "margin": 1.0, "regularization": 1.0, "data_norm": 1.0}
    with pytest.raises(ValueError, match=f"^{refused}"):
        _core.solve_gaussian_margin(
            np.zeros((2, features)),
            np.array([0, 1]),
            loss="softmax_margin",
            n_classes=2,
            n_ellipsoids=1,
            linear=np.zeros((2, 1)),
            psd=False,
            gradient_tol=1.0,
            max_iter=None,
            n_threads=1,
            **numbers,
        )


def test_a_refit_that_is_refused_leaves_no_mixture_of_two_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitted = RandomFourierFeatures(5, random_state=0).fit(X)
    expected = fitted.transform(X)
    with pytest.raises(ValueError, match="NaN"):
        fitted.fit(np.full((2, 4), np.nan))
    np.testing.assert_array_equal(fitted.transform(X), expected)

    def lacking(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("dpsvm_fast.mechanisms.rows.FourierFeatures.map", lacking)
    with pytest.raises(MemoryError):
        fitted.fit(X[:, :2])
    monkeypatch.undo()
    assert fitted.n_features_in_ == 3
    np.testing.assert_array_equal(fitted.transform(X), expected)
