"""PrivatePCA: what it releases, spends, refuses and transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone

import dpsvm_fast as dp
from dpsvm_fast.mechanisms.rows import PublicMap

Array = NDArray[np.float64]

RNG = np.random.default_rng(1)
CENTRE = np.array([0.5, -0.25, 0.0, 1.0, 0.0, 2.0])
X: Array = RNG.normal(size=(600, 6)) * np.geomspace(1.0, 0.05, 6) + CENTRE


def shortened(rows: Array, bound: float) -> Array:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows * np.minimum(1.0, bound / np.maximum(norms, 1e-300)))


def sigma(fitted: dp.PrivatePCA) -> float:
    scale = fitted.privacy_.parts[0].sigma
    assert scale is not None
    return scale


unseeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


@pytest.mark.parametrize("bound", [0.8, 5.0])
def test_with_little_noise_components_are_those_of_numpy(bound: float) -> None:
    """The twin: eigenvectors and eigenvalues of clipped rows' second moments."""
    fitted = dp.PrivatePCA(3, 1e4, data_norm=bound, centre=CENTRE).fit(X)
    clipped = shortened(X - CENTRE, bound)
    moments = clipped.T @ clipped
    values, vectors = np.linalg.eigh(moments)
    noise = bound**2 * sigma(fitted)
    assert np.allclose(fitted.eigenvalues_, values[:-4:-1], atol=20 * noise)
    agreement = np.abs(np.sum(fitted.components_ * vectors[:, :-4:-1].T, axis=1))
    assert (agreement > 0.99).all()
    shares = values[:-4:-1] / values.sum()
    assert np.allclose(fitted.explained_variance_ratio_, shares, atol=60 * noise / values.sum())
    expected = shortened(clipped @ fitted.components_.T, bound)
    assert np.allclose(fitted.transform(X), expected, atol=1e-12)


def test_components_are_orthonormal_ordered_and_oriented() -> None:
    fitted = dp.PrivatePCA(data_norm=2.0).fit(X)
    V = fitted.components_
    assert np.allclose(V @ V.T, np.eye(6), atol=1e-14)
    assert (np.diff(fitted.eigenvalues_) <= 0.0).all()
    largest = np.take_along_axis(V, np.abs(V).argmax(axis=1)[:, None], axis=1)
    assert (largest > 0.0).all()


@pytest.mark.proof("private_pca")
def test_an_exchange_with_the_noise_of_one_record_more_is_not_certified() -> None:
    added = dp.PrivatePCA(adjacency="add_remove").fit(X).privacy_.to_dict()
    exchanged = dp.PrivatePCA(adjacency="replace_one").fit(X).privacy_.to_dict()
    ratio = exchanged["parts"][0]["sigma"] / added["parts"][0]["sigma"]
    assert ratio == pytest.approx(np.sqrt(2.0), rel=1e-5)
    exchanged["parts"], exchanged["events"] = added["parts"], added["events"]
    assert not dp.verify(exchanged)


def test_little_data_and_much_noise_stay_finite() -> None:
    for rows in (X[:1], np.zeros((3, 6)), X[:2]):
        fitted = dp.PrivatePCA(epsilon=1e-3, whiten=True).fit(rows)
        assert np.isfinite(fitted.transform(X)).all()
        assert (fitted.explained_variance_ratio_ >= 0.0).all()
        assert (fitted.explained_variance_ratio_ <= 1.0).all()


@pytest.mark.proof("private_pca")
def test_projected_rows_are_no_longer_than_the_bound() -> None:
    rows = np.vstack([X * 10.0**k for k in (-300, -3, 0, 3, 150, 300)])
    for whiten in (False, True):
        fitted = dp.PrivatePCA(data_norm=0.7, whiten=whiten).fit(X)
        norms = np.linalg.norm(fitted.transform(rows), axis=1)
        assert (norms <= 0.7).all()
        assert whiten or norms.max() > 0.7 * (1.0 - 1e-9)


def test_whitened_coordinates_are_alike() -> None:
    fitted = dp.PrivatePCA(5, 1e4, data_norm=4.0, centre=CENTRE, whiten=True).fit(X)
    assert fitted.scales_.max() == 1.0
    assert (fitted.scales_ > 0.0).all()
    out = fitted.transform(X)
    assert np.linalg.cond(out.T @ out) < 1.5
    plain = clone(fitted).set_params(whiten=False).fit(X).transform(X)
    assert np.linalg.cond(plain.T @ plain) > 20.0


@pytest.mark.parametrize("whiten", [False, True])
def test_all_components_can_be_inverted(whiten: bool) -> None:
    fitted = dp.PrivatePCA(data_norm=50.0, centre=CENTRE, whiten=whiten).fit(X)
    assert np.allclose(fitted.inverse_transform(fitted.transform(X)), X, atol=1e-12)
    few = dp.PrivatePCA(2, 1e4, data_norm=50.0, centre=CENTRE, whiten=whiten).fit(X)
    V = few.components_
    back = few.inverse_transform(few.transform(X))
    assert np.allclose(back, (X - CENTRE) @ V.T @ V + CENTRE, atol=1e-12)
    with pytest.raises(ValueError, match="X: got 6 columns, expected 2"):
        few.inverse_transform(X)
    with pytest.raises(ValueError) as caught:
        few.inverse_transform([["secret", "word"]])
    assert "secret" not in str(caught.value)


@pytest.mark.proof("private_pca")
@unseeded
def test_threads_and_other_rows_change_no_bit() -> None:
    """Sizes at which the compiled sums and products are really shared out."""
    rows = np.random.default_rng(5).normal(size=(3000, 150))
    options: dict[str, Any] = {"n_components": 70, "data_norm": 9.0, "random_state": 2}
    one = dp.PrivatePCA(n_threads=1, **options).fit(rows)
    two = dp.PrivatePCA(n_threads=3, **options).fit(rows)
    for name in ("components_", "eigenvalues_", "explained_variance_ratio_"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
    whole = one.transform(rows)
    assert np.array_equal(whole, two.transform(rows))
    for part in (slice(0, 1), slice(17, 18), slice(2900, 3000)):
        assert np.array_equal(one.transform(rows[part]), whole[part])
    unit = PublicMap(unit=False, data_norm=9.0).apply(rows)
    matrix = one.components_.T.copy()
    products = dp._core.row_products(unit, matrix, 2)
    np.testing.assert_allclose(products, unit @ matrix, rtol=0.0, atol=1e-14)
    assert np.array_equal(dp._core.row_products(unit[41:42], matrix, 1), products[41:42])
