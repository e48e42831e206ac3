"""Numbers behind docs/proofs/private_pca.md, each from first principles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast.accounting import gaussian_delta, gaussian_sigma
from dpsvm_fast.mechanisms.moments import NoisyComponents
from dpsvm_fast.mechanisms.rows import PublicMap

pytestmark = pytest.mark.proof("private_pca")

Array = NDArray[np.float64]


def moments(rows: Array) -> Array:
    """The exact second moments of rows of norm at most 1, as the library forms them."""
    codes = np.zeros(len(rows), dtype=np.int64)
    records = PublicMap(unit=False, data_norm=1.0).records(rows, codes, 2, 1)
    return np.asarray(records.gram(1))


@pytest.mark.parametrize("d", [1, 2, 5])
def test_no_pair_of_rows_is_further_apart_than_the_bound(d: int) -> None:
    rng = np.random.default_rng(d)
    bound = 1.0 if d == 1 else math.sqrt(2.0)
    common = rng.normal(size=(20, d))
    largest = 0.0
    for trial in range(60):
        first, second = rng.normal(size=(2, d)) * rng.uniform(0.1, 30.0)
        if trial % 2 and d > 1:
            # Orthogonal to the first row, the worst case; and no row at all.
            second = second - first * (second @ first) / (first @ first)
        elif trial % 3 == 0:
            second = np.zeros(d)
        with_first = moments(np.vstack([common, first]))
        difference = with_first - moments(np.vstack([common, second]))
        largest = max(largest, float(np.linalg.norm(difference)))
        assert np.linalg.norm(with_first - moments(common)) <= 1.0
    assert 0.99 * bound < largest <= bound


def test_noise_for_one_record_more_does_not_do_for_one_exchanged() -> None:
    """Two orthogonal unit rows: the Gaussian mechanism's profile is attained at distance sqrt 2."""
    for epsilon, delta in ((0.5, 1e-5), (2.0, 1e-6)):
        sigma = gaussian_sigma(epsilon, delta)
        distance = float(np.linalg.norm(moments(np.eye(2)[:1]) - moments(np.eye(2)[1:])))
        assert gaussian_delta(epsilon, sigma, distance) > 20.0 * delta
        right = gaussian_sigma(epsilon, delta, math.sqrt(2.0))
        assert gaussian_delta(epsilon, right, distance) <= delta


def covariance(diagonal: float, above: float, d: int) -> Array:
    """Covariance of the entries of a symmetric matrix, row after row."""
    found = np.zeros((d, d, d, d))
    for j in range(d):
        for k in range(d):
            found[j, k, j, k] = found[j, k, k, j] = diagonal if j == k else above
    return found.reshape(d * d, d * d)


def test_symmetric_noise_is_the_same_in_every_basis() -> None:
    rng = np.random.default_rng(4)
    d = 4
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    both = np.kron(rotation, rotation)
    isotropic = covariance(1.0, 0.5, d)
    np.testing.assert_allclose(both @ isotropic @ both.T, isotropic, atol=1e-12)
    # Entries of one variance everywhere are not.
    plain = covariance(1.0, 1.0, d)
    assert np.abs(both @ plain @ both.T - plain).max() > 0.05


def test_average_eigenvectors_mean_nothing() -> None:
    """Two halves of the same data may report opposite vectors; their projectors agree."""
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(4000, 3)) * [3.0, 1.0, 1.0]
    halves = [np.linalg.eigh(part.T @ part)[1][:, -1] for part in (rows[:2000], rows[2000:])]
    first, second = halves[0], -np.sign(halves[0] @ halves[1]) * halves[1]
    assert np.linalg.norm(0.5 * (first + second)) < 0.1
    projector = 0.5 * (np.outer(first, first) + np.outer(second, second))
    assert abs(float(np.linalg.eigh(projector)[1][0, -1])) > 0.99


@pytest.mark.parametrize("noise_grid", ["exact", "float"])
def test_the_code_has_the_sensitivity_of_the_page(noise_grid: str) -> None:
    for d in (2, 50):
        for adjacency, exact in (("add_remove", 1.0), ("replace_one", math.sqrt(2.0))):
            found = NoisyComponents(
                n_features=d, adjacency=adjacency, noise_grid=noise_grid, mu=0.3
            ).sum
            room = exact * 2.0 * (found.grid or 0.0) * d
            assert exact + 0.999 * room <= found.sensitivity <= (exact + room) * (1.0 + 1e-12)
            assert found.sensitivity / found.scale <= 0.3
