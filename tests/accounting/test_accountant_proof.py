"""Numbers behind docs/proofs/accountant.md, each from first principles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import roots_legendre

from twins.gaussian import gaussian_delta

pytestmark = pytest.mark.proof("accountant", "The statements as numbers")

Array = NDArray[np.float64]


def curve(x: Array, p: Array, q: Array) -> Array:
    """H_x of two laws with finitely many values."""
    return np.asarray(np.maximum(p - x[:, None] * q, 0.0).sum(axis=1))


def dots(p: Array, q: Array, step: float) -> tuple[Array, Array]:
    """Both laws with their losses moved to the multiples of ``step``, both masses kept."""
    loss = np.log(p / q)
    index = np.floor(loss / step).astype(int)
    low, high = np.exp(index * step), np.exp((index + 1) * step)
    right = (p / q - low) * high / ((high - low) * (p / q)) * p
    first = int(index.min())
    new_p = np.zeros(int(index.max()) - first + 2)
    np.add.at(new_p, index - first, p - right)
    np.add.at(new_p, index + 1 - first, right)
    return new_p, new_p * np.exp(-(first + np.arange(len(new_p))) * step)


@pytest.mark.parametrize("step", [0.01, 0.3, 2.0])
def test_connected_dots_dominate_and_touch(step: float) -> None:
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(30), 2)
    moved_p, moved_q = dots(p, q, step)
    assert moved_p.sum() == pytest.approx(1.0)
    assert moved_q.sum() == pytest.approx(1.0)
    x = np.exp(np.linspace(-6.0, 6.0, 997))
    assert np.all(curve(x, moved_p, moved_q) >= curve(x, p, q) - 1e-12)
    grid = np.exp(np.arange(-4, 5) * step)
    np.testing.assert_allclose(curve(grid, moved_p, moved_q), curve(grid, p, q), atol=1e-12)
    # Negative control: to the nearer multiple, Q-mass is not kept and nothing dominates.
    nearest = np.exp(np.rint(np.log(p / q) / step) * step)
    assert np.any(curve(x, p, p / nearest) < curve(x, p, q) - 1e-6)


def test_products_of_pairs_dominate_adaptive_steps() -> None:
    rng = np.random.default_rng(2)
    x = np.exp(np.linspace(-4.0, 4.0, 201))
    # Randomised response dominates every pure mechanism.
    epsilon = 0.7
    high = 1.0 / (1.0 + math.exp(-epsilon))
    worst = np.array([high, 1.0 - high])
    bound = curve(x, np.outer(worst, worst).ravel(), np.outer(worst[::-1], worst[::-1]).ravel())
    for _ in range(200):

        def mechanism(size: int) -> tuple[Array, Array]:
            q = rng.dirichlet(np.ones(size))
            # Two likelihood ratios in [exp(-epsilon), exp(epsilon)].
            up = rng.random(size) < 0.5
            if up.all() or not up.any():
                return q, q
            share = q[up].sum()
            a = min(math.exp(epsilon), (1 - math.exp(-epsilon) * (1 - share)) / share)
            return np.where(up, a * q, (1 - a * share) / (1 - share) * q), q

        p1, q1 = mechanism(3)
        rows = [mechanism(3) for _ in range(3)]
        p = np.concatenate([p1[i] * rows[i][0] for i in range(3)])
        q = np.concatenate([q1[i] * rows[i][1] for i in range(3)])
        assert np.all(curve(x, p, q) <= bound + 1e-12)


def zcdp(rho: float, epsilon: Array) -> Array:
    """g_rho of the page, on a net of a."""
    a = np.exp(np.linspace(-9.0, 9.0, 4001))[:, None]
    log = -a * np.log1p(1 / a) - np.log1p(a) + a * ((a + 1) * rho - epsilon)
    return np.asarray(np.minimum(np.exp(log.min(axis=0)), 1.0))


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_concentrated_events_with_another_between_are_one(epsilon: float) -> None:
    mu, pure = 0.8, 0.6
    # A Gaussian step, randomised response, a Gaussian step that depends on what came before.
    loss = np.array([pure, -pure])
    mass = np.exp(loss) / (1.0 + np.exp(loss))
    bound = float(mass @ zcdp(2 * mu**2 / 2, epsilon - loss))
    y = np.linspace(-10.0, 11.0, 2001)
    density = np.exp(-((y - mu) ** 2) / 2) / math.sqrt(2 * math.pi) * (y[1] - y[0])
    first = mu * y - mu**2 / 2
    for keep in (np.ones_like(y), (y > 0.3).astype(float)):
        exact = 0.0
        for weight, extra in zip(mass, loss, strict=True):
            # Randomised response takes place only on some of the first results.
            left = epsilon - first - keep * extra
            exact += weight * float(density @ gaussian_delta(left, mu))
        assert exact <= bound
    # The sum of rho is needed: one of the two steps costs less than both.
    assert float(mass @ zcdp(mu**2 / 2, epsilon - loss)) < bound


def gauss(n: int, left: float, width: float, z: float, q: float) -> float:
    """Integral over a cell of the density times the right end's ratio over that at u, less 1."""
    nodes, weights = roots_legendre(n)
    offset = width * (nodes + 1) / 2
    u = left + offset
    scaled = np.exp(u / z - 1 / (2 * z * z))
    density = (1 - q) * np.exp(-u * u / 2) + q * np.exp(-((u - 1 / z) ** 2) / 2)
    rise = q * scaled / (1 - q + q * scaled) * np.expm1((width - offset) / z)
    return float((density * rise * weights).sum() * width / 2)


@pytest.mark.parametrize(("n", "share"), [(6, 0.5), (3, 0.01)])
def test_quadrature_of_a_cell_is_within_its_bound(n: int, share: float) -> None:
    worst = 0.0
    for q in (1e-3, 0.3, 1.0):
        for z in (0.3, 1.0, 5.0):
            for left in (-12.0, -3.0, 0.0, 1.0, 6.0, 20.0):
                width = share / (2 + abs(left) + 2 / z)
                exact = gauss(16, left, width, z, q)
                worst = max(worst, abs(gauss(n, left, width, z, q) / exact - 1))
    # What is proven is 6e-12; the truth is lost in the rounding of this sum.
    assert worst < 1e-13
    assert abs(gauss(2, 6.0, 0.5, 1.0, 0.3) / gauss(16, 6.0, 0.5, 1.0, 0.3) - 1) > 1e-4
