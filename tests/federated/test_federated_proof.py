"""Numbers behind docs/proofs/federated.md, noise and distances, each from first principles.

Laws are summed exactly (up to double precision) in small dimension, with noise far smaller than any
that is used, so that every term of the page is large enough to be seen. What a statement forbids is
searched for; what it says is needed is left out once, and must then be missed.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import erf

from oracles.federated_laws import (
    Array,
    claimed,
    discrete_gaussian,
    gaussian_delta,
    hockey_stick,
    kinks,
    merge_exponent,
    plane,
    shifted,
    smoothing_exponent,
    summed,
    theta_error,
)

pytestmark = pytest.mark.proof("federated", "Laws of noise, distances")

# The sum of discrete Gaussians


@pytest.mark.parametrize("sigma", [0.35, 0.5, 0.8, 1.0, 2.0])
@pytest.mark.parametrize("parties", [2, 3, 5, 8])
def test_sums_stay_within_the_factors_of_the_merges(sigma: float, parties: int) -> None:
    law = discrete_gaussian(sigma, 40)
    total = summed(law, parties)
    wanted = discrete_gaussian(math.sqrt(parties) * sigma, 40 * parties)
    inside = wanted > 1e-200
    ratio = np.abs(np.log(total[inside] / wanted[inside]))
    near = wanted[inside] > 1e-6
    assert ratio[near].max() <= merge_exponent(sigma, parties) + 1e-9


def test_the_first_merge_is_the_narrow_one() -> None:
    """Control: with sigma^2 in place of k/(k + 1) sigma^2 the factors are too small."""
    sigma = 0.5
    total = summed(discrete_gaussian(sigma, 40), 3)
    wanted = discrete_gaussian(math.sqrt(3) * sigma, 120)
    near = wanted > 1e-6
    distance = np.abs(np.log(total[near] / wanted[near])).max()
    e = theta_error(sigma)
    assert distance > 2 * math.log((1 + e) / (1 - e))
    assert distance > 0.2 * merge_exponent(sigma, 3)


@pytest.mark.parametrize("s", [0.3, 0.5, 1.0, 3.0])
def test_theta_is_constant_up_to_its_error(s: float) -> None:
    x = np.linspace(0, 1, 101)[:, None]
    z = np.arange(-60.0, 61.0)
    theta = np.exp(-((z - x) ** 2) / (2 * s * s)).sum(axis=1) / (s * math.sqrt(2 * math.pi))
    assert np.abs(theta - 1).max() == pytest.approx(theta_error(s), rel=1e-6, abs=4e-15)


# Discrete noise as a continuous Gaussian, rounded at random


def rounded_at_random(deviation: float, r: float, half_width: int) -> Array:
    """Law of z ~ exp(-(z - X)^2/2r^2) for X ~ N(0, deviation^2), by a fine trapezoidal sum."""
    span = 9 * deviation + 1
    x = np.linspace(-span, span, 20_001)
    density = np.exp(-(x**2) / (2 * deviation**2))
    density /= density.sum()
    z = np.arange(-half_width, half_width + 1.0)
    kernel = np.exp(-((z[None, :] - x[:, None]) ** 2) / (2 * r * r))
    total = kernel.sum(axis=1)
    return np.asarray((density / total) @ kernel)


@pytest.mark.parametrize(("big", "r"), [(1.0, 0.4), (1.0, 0.5), (2.0, 0.6), (3.0, 1.0)])
def test_random_rounding_of_a_narrower_gaussian_gives_the_discrete_one(
    big: float, r: float
) -> None:
    made = rounded_at_random(math.sqrt(big**2 - r**2), r, 30)
    wanted = discrete_gaussian(big, 30)
    near = wanted > 1e-7
    assert np.abs(np.log(made[near] / wanted[near])).max() <= smoothing_exponent(r) + 1e-8
    assert 0.5 * np.abs(made - wanted).sum() <= smoothing_exponent(r) + 1e-8


def test_random_rounding_that_keeps_the_variance_gives_another_law() -> None:
    """Control: r^2 has to be taken from the continuous Gaussian."""
    made = rounded_at_random(2.0, 0.6, 30)
    assert 0.5 * np.abs(made - discrete_gaussian(2.0, 30)).sum() > 5 * smoothing_exponent(0.6)


def test_random_rounding_commutes_with_whole_shifts_only() -> None:
    def kernel(x: float, half_width: int = 20) -> Array:
        z = np.arange(-half_width, half_width + 1.0)
        weights = np.exp(-((z - x) ** 2) / 2)
        return np.asarray(weights / weights.sum())

    for x, shift in itertools.product([0.0, 0.25, 0.5, 0.9], [-3, 1, 4]):
        moved = np.roll(kernel(x), shift)
        assert np.abs(moved - kernel(x + shift)).sum() < 1e-12
    half = np.roll(kernel(0.25), 1)
    assert np.abs(half - kernel(0.75)).sum() > 0.1


# The whole claim: parties' noise, whole shifts, exact profiles


@pytest.mark.parametrize("sigma", [1.0, 1.5, 2.0, 4.0])
@pytest.mark.parametrize("h", [1, 2, 3, 5])
@pytest.mark.parametrize("r", [0.6, 0.9])
def test_no_whole_shift_breaks_the_claim(sigma: float, h: int, r: float) -> None:
    law = summed(discrete_gaussian(sigma, 60), h)
    for shift in (1, 2, 3, 5):
        p, q = shifted(law, 0, 8), shifted(law, shift, 8)
        for epsilon in [0.01, 0.1, 0.5, 1.0, 2.0, *kinks(shift, h * sigma**2)]:
            bound = claimed(epsilon, shift, sigma, h, r, 1)
            assert hockey_stick(p, q, epsilon) <= bound + 1e-13
            assert hockey_stick(q, p, epsilon) <= bound + 1e-13


def excess(shift: tuple[int, int], epsilon: float, sigma: float, h: int, r: float) -> float:
    law = summed(discrete_gaussian(sigma, 12), h)
    p, q = plane(law, (0, 0), 6), plane(law, shift, 6)
    return hockey_stick(p, q, epsilon) - claimed(epsilon, math.hypot(*shift), sigma, h, r, 2)


def test_climbing_over_shifts_and_epsilons_in_the_plane() -> None:
    rng = np.random.default_rng(3)
    for sigma, h in ((1.0, 2), (1.5, 1), (1.0, 3)):
        shift, epsilon = (1, 1), 0.5
        best = excess(shift, epsilon, sigma, h, 0.8)
        for _ in range(120):
            trial = (
                int(np.clip(shift[0] + rng.integers(-1, 2), 0, 5)),
                int(np.clip(shift[1] + rng.integers(-1, 2), 0, 5)),
            )
            e = abs(epsilon + 0.3 * rng.standard_normal())
            found = excess(trial, e, sigma, h, 0.8)
            if found > best:
                shift, epsilon, best = trial, e, found
        assert best <= 1e-13


def test_without_the_r_term_the_claim_fails() -> None:
    """Control: a discrete Gaussian is NOT dominated by the continuous one of its own parameter."""
    worst = -math.inf
    for sigma in (1.0, 2.0, 4.0):
        law = discrete_gaussian(sigma, 60)
        p, q = shifted(law, 0, 8), shifted(law, 1, 8)
        for epsilon in kinks(1, sigma**2, 40):
            plain = gaussian_delta(epsilon, 1 / sigma)
            distance = (1 + math.exp(epsilon)) * smoothing_exponent(3.0)
            worst = max(worst, hockey_stick(p, q, epsilon) / (plain + distance))
    assert worst > 1.001


def test_sums_of_rounded_gaussians_have_no_such_claim() -> None:
    """Control: rounding each party's continuous noise leaves a narrower sum."""
    z = np.arange(-40, 41.0)
    tiny = 0.2
    edges = 0.5 * (1 + erf((np.append(z - 0.5, z[-1] + 0.5)) / (tiny * math.sqrt(2))))
    law = summed(np.diff(edges), 8)
    p, q = shifted(law, 0, 4), shifted(law, 1, 4)
    assert hockey_stick(p, q, 1.0) > 1.5 * gaussian_delta(1.0, 1 / (tiny * math.sqrt(8)))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0, 16.0])
def test_the_tail_that_could_leave_the_range(sigma: float) -> None:
    width = int(12 * sigma) + 2
    law = discrete_gaussian(sigma, width)
    z = np.arange(-width, width + 1)
    for m in range(int(8 * sigma)):
        assert law[np.abs(z) >= m].sum() <= 2 * math.exp(-(m**2) / (2 * sigma**2)) + 1e-15


def test_noise_for_all_honest_parties_is_too_little_after_drop_outs() -> None:
    """Control: h counted without the drop-outs, in exact laws."""
    users, survivors, h = 6, 4, 4
    sigma = 2.0
    law = discrete_gaussian(sigma, 60)
    for alive, bound_holds in ((h, True), (survivors - (users - h), False)):
        total = summed(law, alive)
        p, q = shifted(total, 0, 8), shifted(total, 4, 8)
        worst = max(
            hockey_stick(p, q, e) - claimed(e, 4, sigma, h, 0.9, 1) for e in (0.2, 0.5, 1.0, 2.0)
        )
        assert (worst <= 1e-13) is bound_holds


def test_a_single_vector_keeps_its_own_noise() -> None:
    """If the secure sum failed: h = 1, and neither more nor less."""
    sigma, r = 4.0, 0.9
    law = discrete_gaussian(sigma, 80)
    p, q = shifted(law, 0, 8), shifted(law, 4, 8)
    for epsilon in (0.2, 0.5, 1.0):
        found = hockey_stick(p, q, epsilon)
        assert found <= claimed(epsilon, 4, sigma, 1, r, 1)
        assert found > 2 * claimed(epsilon, 4, sigma, 9, r, 1)


# Distances


def test_a_law_nearby_costs_one_and_e_to_the_epsilon_distances() -> None:
    epsilon, tau = 0.7, 0.01
    x = math.exp(epsilon)
    # Q has mass a where P has e^epsilon a: the pair is epsilon-DP and every gain shows at once.
    a = 0.3
    p = np.array([x * a, 1 - x * a, 0.0])
    q = np.array([a, 1 - a, 0.0])
    assert hockey_stick(p, q, epsilon) <= 1e-15
    moved_p = p + tau * np.array([1.0, -1.0, 0.0])
    moved_q = q + tau * np.array([-1.0, 1.0, 0.0])
    found = hockey_stick(moved_p, moved_q, epsilon)
    assert found == pytest.approx((1 + x) * tau)
    assert found > 1.4 * x * tau  # control: e^epsilon tau alone, or tau alone, is too little


def test_two_rounds_chosen_adaptively() -> None:
    """The second shift depends on the first release; both rounds are discrete Gaussian sums."""
    sigma, h, r = 1.0, 2, 0.8
    law = summed(discrete_gaussian(sigma, 10), h)
    room = 4
    first = [shifted(law, s, room) for s in (0, 1)]
    size = first[0].size
    shifts = [1 + 2 * (k % 2) for k in range(size)]
    joint = []
    for world in (0, 1):
        second = np.array([shifted(law, world * s, room) for s in shifts])
        joint.append((first[world][:, None] * second).ravel())
    deviation = math.sqrt(h * sigma**2 - r**2)
    mu = math.hypot(1 / deviation, max(shifts) / deviation)
    distance = 2 * (merge_exponent(sigma, h) + smoothing_exponent(r))
    for epsilon in (0.1, 0.5, 1.0, 2.0, 3.0):
        bound = gaussian_delta(epsilon, mu) + (1 + math.exp(epsilon)) * distance
        for p, q in (joint, joint[::-1]):
            assert hockey_stick(p, q, epsilon) <= bound + 1e-13
    one_round = gaussian_delta(1.0, max(shifts) / deviation)
    assert hockey_stick(joint[0], joint[1], 1.0) > one_round * 0.5


def test_distances_of_rounds_add() -> None:
    p, moved = np.array([0.5, 0.5]), np.array([0.45, 0.55])
    single = 0.5 * np.abs(p - moved).sum()
    double = 0.5 * np.abs(np.outer(p, p) - np.outer(moved, moved)).sum()
    assert single < double <= 2 * single


@pytest.mark.parametrize("sigma", [0.6, 1.0, 3.0])
@pytest.mark.parametrize("order", [1.1, 2.0, 5.0, 20.0])
def test_renyi_divergences_of_a_single_vector(sigma: float, order: float) -> None:
    """The closed bound holds for whole shifts, and a bound for one step less does not."""
    z = np.arange(-400.0, 401.0)

    def log_law(shift: int) -> Array:
        return -((z - shift) ** 2) / (2 * sigma**2) - math.log(
            np.exp(-((z / sigma) ** 2) / 2).sum()
        )

    for shift in (1, 2, 6):
        terms = order * log_law(0) + (1 - order) * log_law(shift)
        found = float(np.logaddexp.reduce(terms)) / (order - 1)
        assert found <= order * shift**2 / (2 * sigma**2) * (1 + 1e-9)
        assert shift == 1 or found > order * (shift - 1) ** 2 / (2 * sigma**2)
