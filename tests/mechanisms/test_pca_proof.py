"""Numbers behind docs/proofs/private_pca.md, each from first principles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast.mechanisms.moments import NoisyComponents

pytestmark = pytest.mark.proof("private_pca")

Array = NDArray[np.float64]


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
