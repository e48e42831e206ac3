"""Three classes in no dimension: minimisers over phi >= 0, their exact laws, and the claims.

The matrices are three numbers phi_k >= 0 with scores -q phi_k for rows q in [0, 1]. Noise is N(0,
sigma^2 I). On each face of the orthant, with the coordinates of F free and the others 0, the law of
the minimiser has the density nu(B_F) det H_FF times the chance that the noise in the other
coordinates keeps them at 0: a product, as the coordinates of B are independent.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from dpsvm_fast import _core

pytestmark = pytest.mark.proof("gaussian_margin")

Array = NDArray[np.float64]
Records = list[tuple[float, int]]

TAU, MARGIN = 0.5, 1.0
# Cells of each free coordinate, for one to three of them.
CELLS = {1: 1000, 2: 200, 3: 64}
EPSILONS = np.array([0.0, 0.5, 1.0])


def slopes(phi: Array, records: Records, lam: float) -> tuple[Array, Array]:
    """Gradients without noise and Hessians at points, the rows of ``phi``."""
    gradient = lam * phi
    hessian = np.tile(lam * np.eye(3), (len(phi), 1, 1))
    for q, label in records:
        scores = -q * phi + MARGIN * (np.arange(3) != label)
        p = np.exp((scores - scores.max(axis=1, keepdims=True)) / TAU)
        p /= p.sum(axis=1, keepdims=True)
        gradient -= q * (p - (np.arange(3) == label))
        hessian += q * q * (p[:, :, None] * np.eye(3) - p[:, :, None] * p[:, None, :]) / TAU
    return gradient, hessian


def face(free: tuple[int, ...], records: Records, lam: float, sigma: float) -> Array:
    """Masses of the cells of one face."""
    far = (7.5 * sigma + len(records) + 1.0) / lam
    phi = np.zeros((CELLS[len(free)] ** len(free) if free else 1, 3))
    volume = 1.0
    if free:
        n = CELLS[len(free)]
        middles = (np.arange(n, dtype=np.float64) + 0.5) * (far / n)
        grids = np.meshgrid(*([middles] * len(free)), indexing="ij")
        phi[:, free] = np.column_stack([grid.ravel() for grid in grids])
        volume = (far / n) ** len(free)
    gradient, hessian = slopes(phi, records, lam)
    held = [k for k in range(3) if k not in free]
    mass = np.full(len(phi), volume) * np.prod(ndtr(gradient[:, held] / sigma), axis=1)
    if free:
        noise = np.exp(-0.5 * np.square(gradient[:, free] / sigma).sum(axis=1))
        mass *= noise / (sigma * math.sqrt(2.0 * math.pi)) ** len(free)
        mass *= np.linalg.det(hessian[:, free][:, :, free])
    return np.asarray(mass)


FACES = [free for size in range(4) for free in itertools.combinations(range(3), size)]


def profiles(world: Records, other: Records, lam: float, sigma: float) -> tuple[Array, Array]:
    """Largest P(S) - e^epsilon Q(S) in both directions, and how far the integration may be off."""
    found, totals = np.zeros((2, EPSILONS.size)), np.zeros(2)
    for free in FACES:
        # Of one face only: all of them are some ten million numbers.
        p, q = (face(free, records, lam, sigma) for records in (world, other))
        totals += [p.sum(), q.sum()]
        for at, factor in enumerate(np.exp(EPSILONS)):
            found[0, at] += np.maximum(p - factor * q, 0.0).sum()
            found[1, at] += np.maximum(q - factor * p, 0.0).sum()
    errors = np.abs(totals - 1.0)
    assert errors.max() < 5e-3
    return found.max(axis=0), errors.max() * (1.0 + np.exp(EPSILONS))


def claims(lam: float, sigma: float, *, replace_one: bool) -> Array:
    """What the library promises for three scores."""
    kappa = 1.0 / (lam * TAU)
    return np.array(
        [_core.objective_delta("softmax", 3, e, sigma, kappa, None, replace_one) for e in EPSILONS]
    )


SETTINGS: list[tuple[Records, float, float]] = [
    ([], 4.0, 2.0),
    ([], 1.0, 2.0),
    ([(0.8, 1), (0.6, 2)], 2.0, 1.5),
]


@pytest.mark.parametrize(("common", "lam", "sigma"), SETTINGS)
def test_minimisers_over_the_orthant_keep_the_claim(
    common: Records, lam: float, sigma: float
) -> None:
    found, error = profiles([*common, (1.0, 0)], common, lam, sigma)
    bounds = claims(lam, sigma, replace_one=False)
    assert (found <= bounds + error).all()
    assert (found / bounds).max() > 0.3
    # A third of the noise would not do; with much curvature a claim has more room.
    if lam > 1.0:
        assert (found > claims(lam, 3.0 * sigma, replace_one=False) + error).any()


def test_exchanged_records_keep_the_claim() -> None:
    found, error = profiles([(1.0, 0)], [(1.0, 2)], 4.0, 4.0)
    assert (found <= claims(4.0, 4.0, replace_one=True) + error).all()
    assert (found > claims(4.0, 14.0, replace_one=True) + error).any()


def test_much_of_the_law_lies_on_the_boundary() -> None:
    """What a density alone would miss."""
    inside = float(face((0, 1, 2), [(1.0, 0)], 1.0, 2.0).sum())
    vertex = float(face((), [(1.0, 0)], 1.0, 2.0).sum())
    assert inside < 0.3
    assert vertex > 0.05
