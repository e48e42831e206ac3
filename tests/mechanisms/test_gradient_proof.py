"""Numbers behind docs/proofs/gradient_perturbation.md, each from first principles.

Every bound of the page is compared with something computed without it: by brute force, by exact
arithmetic, or for a case whose law is known. What a bound forbids must also be reached, or nearly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import ndtr

from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.gradient import LastIterateSums
from twins.gaussian import gaussian_delta

pytestmark = pytest.mark.proof("gradient_perturbation", "The statements as numbers")

Array = NDArray[np.float64]


def effective_steps(c: float, n_steps: int) -> float:
    """T_c of the page."""
    if c == 1.0:
        return float(n_steps)
    power = c**n_steps
    return (1 - power) / (1 + power) * (1 + c) / (1 - c)


# Last iterate


@pytest.mark.parametrize("c", [0.0, 0.3, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("n_steps", [1, 2, 5, 9])
def test_the_best_shifts_give_the_closed_formula(c: float, n_steps: int) -> None:
    weights = c ** np.arange(n_steps - 1, -1, -1.0)

    def distances(a: Array) -> Array:
        z = [0.0]
        for shift in a:
            z.append(c * z[-1] + 1.0 - shift)
        return np.array(z[1:])

    best = optimize.minimize(
        lambda a: float(a @ a),
        np.full(n_steps, weights.sum() / weights.sum() * 1.1),
        jac=lambda a: 2 * a,
        bounds=[(0.0, None)] * n_steps,
        constraints=[
            {"type": "eq", "fun": lambda a: distances(a)[-1]},
            {"type": "ineq", "fun": lambda a: distances(a)[:-1] if n_steps > 1 else np.zeros(1)},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert best.success
    assert best.fun == pytest.approx(effective_steps(c, n_steps), rel=1e-6)
    # The sequence of the page is admissible and has that sum of squares.
    shifts = weights * (1 + c) / (1 + c**n_steps)
    z = distances(shifts)
    assert z.min() >= -1e-12
    assert abs(z[-1]) < 1e-12
    assert shifts @ shifts == pytest.approx(effective_steps(c, n_steps), rel=1e-12)


@pytest.mark.parametrize("c", [0.0, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("n_steps", [1, 3, 40, 1000])
def test_a_linear_step_attains_the_bound(c: float, n_steps: int) -> None:
    mean = variance = 0.0
    for _ in range(n_steps):
        mean, variance = c * mean + 1.0, c * c * variance + 1.0
    assert mean / math.sqrt(variance) == pytest.approx(math.sqrt(effective_steps(c, n_steps)))
    assert effective_steps(c, n_steps) <= n_steps * (1 + 1e-12)
    # A contraction rounded down would promise too much.
    if n_steps > 1 and c > 0:
        assert effective_steps(c * 0.9, n_steps) < effective_steps(c, n_steps) * (1 - 1e-3)


def lattice_law(n_steps: int, shift: float, c: float, sigma: int) -> Array:
    """Probabilities of ``W_T`` for ``W <- round(c W + shift) + round(N(0, sigma^2))``."""
    half = 12 * sigma
    noise = np.diff(ndtr((np.arange(-half, half + 2) - 0.5) / sigma))
    size = 40 * sigma
    points = np.arange(-size, size + 1)
    law = (points == 0).astype(float)
    for _ in range(n_steps):
        moved = np.rint(c * points + shift).astype(int)
        pushed = np.bincount(moved + size, weights=law, minlength=2 * size + 1)
        law = np.convolve(pushed, noise, mode="same")
    return np.asarray(law)


def test_iterates_on_the_lattice_keep_the_bound_and_others_do_not() -> None:
    sigma, shift, c, n_steps = 64, 64.0, 0.5, 3
    p, q = lattice_law(n_steps, shift, c, sigma), lattice_law(n_steps, 0.0, c, sigma)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    # Rounding of c W + shift, and c times that of the last noise: at most a half each.
    e = 0.5 + c * 0.5
    mu = (shift + 2 * e) / sigma * math.sqrt(effective_steps(c, n_steps))
    ideal = shift / sigma * math.sqrt(effective_steps(c, n_steps))
    # Without a lattice every digit of noise could be read off: composition.
    leaking = shift / sigma * math.sqrt(n_steps)
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        factor = math.exp(epsilon)
        for first, second in ((p, q), (q, p)):
            delta = float(np.maximum(first - factor * second, 0.0).sum())
            assert delta <= gaussian_delta(epsilon, mu) + 1e-13
            assert delta >= 0.97 * gaussian_delta(epsilon, ideal)
        assert gaussian_delta(epsilon, leaking) > 1.05 * gaussian_delta(epsilon, mu)


def test_without_a_lattice_the_last_iterate_tells_all_noise() -> None:
    c = 1.0 - 0.37 / 7.0
    draws = np.arange(-300, 301)
    first, second = (k.ravel() for k in np.meshgrid(draws, draws))
    loose = c * first + second
    snapped = np.rint(c * first) + second
    assert len(np.unique(loose)) == len(loose)
    assert len(np.unique(snapped)) < len(snapped) / 100


def huber_slope(z: Array, h: float) -> Array:
    return np.asarray(np.clip((1 + h - z) / (2 * h), 0.0, 1.0))


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.1])
def test_gradient_steps_of_neighbours_contract_up_to_the_sensitivity(factor: float) -> None:
    rng = np.random.default_rng(5)
    n, d, h, regularization = 30, 3, 0.25, 0.4
    rows = rng.normal(size=(n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    t = rng.choice([-1.0, 1.0], n)
    smoothness = regularization + n / (2 * h)
    # Beyond 2 / (m + M) some pairs of points move apart.
    eta = factor * 2 / (regularization + smoothness)
    signed = rows * t[:, None]
    # A worst direction: rows all alike, where the whole curvature acts.
    alike = np.tile(rows[:1], (n, 1))

    def step(w: Array, x: Array) -> Array:
        return np.asarray(w - eta * (regularization * w - huber_slope(x @ w, h) @ x))

    c = max(0.0, 1.0 - eta * regularization)
    worst = -math.inf
    for x in (signed, alike):
        for _ in range(300):
            w = rng.normal(size=d)
            other = w + rng.normal(size=d) * rng.choice([1e-3, 0.1, 1.0])
            for fewer in (x[1:], x):
                moved = np.linalg.norm(step(w, x) - step(other, fewer))
                room = c * np.linalg.norm(w - other) + (eta if fewer is not x else 0.0)
                worst = max(worst, float(moved - room))
    near = alike[0] * (1.0 - h / 2)
    moved = np.linalg.norm(step(near, alike) - step(near * 1.0001, alike))
    worst = max(worst, float(moved - c * np.linalg.norm(near * 0.0001)))
    assert (worst <= 1e-12) == (factor <= 1.0)


# Poisson sampling


def hockey_stick(p: Array, q: Array, x: float, weight: float) -> float:
    return float(np.maximum(p - x * q, 0.0).sum() * weight)


def mixture(centre: tuple[float, float], rate: float, y: tuple[Array, Array], z: float) -> Array:
    def normal(a: float, b: float) -> Array:
        square = ((y[0] - a) ** 2 + (y[1] - b) ** 2) / (2 * z * z)
        return np.asarray(np.exp(-square) / (2 * math.pi * z * z))

    return (1 - rate) * normal(0.0, 0.0) + rate * normal(*centre)


@pytest.mark.proof("accountant", "The statements as numbers")
@pytest.mark.parametrize(("rate", "z"), [(0.05, 0.6), (0.3, 1.0), (0.9, 2.0)])
def test_no_two_contributions_exceed_the_pair_of_opposite_ones(rate: float, z: float) -> None:
    line = np.linspace(-8 * z - 1, 8 * z + 1, 301)
    weight = (line[1] - line[0]) ** 2
    y0, y1 = np.meshgrid(line, line, indexing="ij")
    rng = np.random.default_rng(11)

    def law(length: float, angle: float) -> Array:
        return mixture((length * math.cos(angle), length * math.sin(angle)), rate, (y0, y1), z)

    opposite = law(1.0, 0.0), law(1.0, math.pi)
    shorter = law(0.95, 0.0), law(0.95, math.pi)
    pairs = [(1.0, 1.0, math.pi / 2), (1.0, 1.0, 3.0), (1.0, 0.0, 0.0), (1.0, 0.5, math.pi)]
    pairs += [(*rng.uniform(0, 1, 2), float(rng.uniform(0, math.pi))) for _ in range(8)]
    exceeded = False
    for x in (0.5, 1.0, 1.2, 2.0):
        bound = hockey_stick(*opposite, x, weight)
        for first, second, angle in pairs:
            value = hockey_stick(law(first, 0.0), law(second, angle), x, weight)
            assert value <= bound + 1e-5
        # Negative control: five percent less noise would be noticed.
        exceeded |= bound > hockey_stick(*shorter, x, weight) + 1e-4
    assert exceeded


@pytest.mark.proof("accountant", "The statements as numbers")
@pytest.mark.parametrize("direction", ["more", "fewer"])
def test_shorter_contributions_tell_less(direction: str) -> None:
    line = np.linspace(-10, 11, 4001)
    weight = float(line[1] - line[0])

    def normal(centre: float) -> Array:
        return np.asarray(np.exp(-((line - centre) ** 2) / 2) / math.sqrt(2 * math.pi))

    for rate in (0.01, 0.2, 1.0):
        for x in (0.7, 1.0, 1.01, 1.5):
            values = []
            for length in (0.0, 0.2, 0.5, 0.9, 1.0):
                more = (1 - rate) * normal(0.0) + rate * normal(length)
                pair = (more, normal(0.0)) if direction == "more" else (normal(0.0), more)
                values.append(hockey_stick(*pair, x, weight))
            assert np.all(np.diff(values) >= -1e-12)


# Rounding of leaves


def leaf_sum(contributions: list[np.float32]) -> float:
    total = np.float32(0.0)
    for c in contributions:
        total = np.float32(total + c)
    return float(total)


def rounding_up(total: float) -> float:
    """A contribution of at most 1 after which the sum rounds by almost half a unit."""
    half = float(np.spacing(np.float32(total))) / 2
    units = math.floor((1.0 - half) / (2 * half)) if half < 0.4 else 0
    return min(1.0, 2 * half * units + half * (1 + 2**-4)) if units else 1.0


@pytest.mark.parametrize("choose", [rounding_up, lambda _: 1.0 - 2**-24, lambda _: 2 / 3])
def test_sums_of_leaves_stay_within_their_bound(choose: Callable[[float], float]) -> None:
    u = 2.0**-24
    contributions: list[np.float32] = []
    exact, total = 0.0, 0.0
    for _ in range(64):
        c = np.float32(choose(total))
        contributions.append(c)
        total, exact = leaf_sum(contributions), exact + float(c)
    assert max(contributions) <= 1.0
    error = abs(total - exact)
    assert error <= 64 * 65 / 2 * u
    if choose is rounding_up:
        # The bound is of the right size: a fraction of it is reached.
        assert error > 0.3 * 64 * 65 / 2 * u


def test_the_factor_of_the_contribution_covers_three_leaves() -> None:
    u = 2.0**-24

    def error(m: int) -> float:
        return sum((m - i + 2) * u / (1 - (m - i + 2) * u) for i in range(1, m + 1))

    split = max(error(a) + error(65 - a) for a in range(1, 65))
    assert split == pytest.approx(error(64) + error(1), rel=1e-12)
    assert error(64) + split < 2.6e-4


@pytest.mark.parametrize("n_records", [10, 10_000, 10_000_000])
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("epsilon", [0.1, 8.0])
def test_iterates_and_sums_are_exact_multiples_of_the_lattice(
    n_records: int, C: float, epsilon: float
) -> None:
    noise = LastIterateSums(
        epsilon=epsilon,
        delta=1e-6,
        adjacency="replace_one",
        noise_grid="exact",
        loss=Loss(name="huber", n_classes=3, smoothing=0.5, margin=1.0),
        row_norm=1.0,
        shape=(3, 20),
        n_steps=100,
        n_records=n_records,
        divisor=float(n_records),
        regularization=1.0 / (C * n_records),
        step=None,
    )
    assert noise.grid is not None
    assert math.frexp(noise.grid)[0] == 0.5
    step = noise.learning_rate / noise.divisor
    assert math.frexp(step)[0] == 0.5
    largest_sum = n_records * noise.acting_clip + 1024.0 * noise.sigma
    assert largest_sum / noise.grid < 2.0**52
    assert noise.radius / (step * noise.grid) + largest_sum / noise.grid < 2.0**52
    # Exactness is not bought with sensitivity.
    assert noise.grid * math.sqrt(60.0) < 1e-3 * noise.clip * max(1.0, C)
