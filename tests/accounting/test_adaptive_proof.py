"""Numbers behind docs/proofs/adaptive_composition.md: the worst strategies, by dynamic programming.

An opponent who chooses every next event by looking at all earlier results needs to remember two
numbers: the privacy loss so far, and what is left of the budget. So its best value is computed
from the end backwards on a net of losses. What is done between the points of the net is linear, and
the net is so fine that it moves values by less than ``SLACK``.
"""

from __future__ import annotations

import copy
import math
from functools import cache

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from dpsvm_fast.accounting.adaptive import AdaptiveComposition, boundary, pure_of_mu
from dpsvm_fast.accounting.adaptive import pure_mu as library_pure_mu
from dpsvm_fast.certificates import ApproximateEvent, GaussianEvent, PrivacyEvent, PureEvent
from twins.gaussian import gaussian_delta

pytestmark = pytest.mark.proof("adaptive_composition", "Statements as numbers")

Array = NDArray[np.float64]

EPSILON = 1.0
DELTA = 1e-3
SLACK = 2e-3
# Steps into which the budget of squared parameters is cut.
UNITS = 8
LOSSES = np.linspace(-6.0, 6.0, 2401)
NODES = np.linspace(-8.0, 8.0, 401)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()


def largest_mu(epsilon: float, delta: float) -> float:
    """The mu with that delta."""
    return float(brentq(lambda mu: float(gaussian_delta(epsilon, mu)) - delta, 1e-3, 20.0))


def pure_mu(epsilon: float) -> float:
    """Parameter of the Gaussian mechanism that says more than any pure one."""
    return 2.0 * float(ndtri(1.0 / (1.0 + math.exp(-epsilon))))


def pure_of(mu: float) -> float:
    """Inverse of ``pure_mu``."""
    high = float(ndtr(mu / 2))
    return math.log(high / (1.0 - high))


# --------------------------------------------------------------------- what is simulated by what


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0])
def test_randomised_response_is_a_function_of_a_gaussian_release(epsilon: float) -> None:
    at = np.linspace(-8.0, 8.0, 3201)
    high = 1.0 / (1.0 + math.exp(-epsilon))
    up = -np.expm1(np.minimum(at - epsilon, 0.0))
    response = high * up - (1.0 - high) * np.expm1(np.minimum(at + epsilon, 0.0))
    mu = pure_mu(epsilon)
    assert np.all(response <= gaussian_delta(at, mu) + 1e-12)
    # They meet at one place, where less is not enough.
    assert 1.0 - 2.0 * (1.0 - high) == pytest.approx(float(gaussian_delta(0.0, mu)), rel=1e-12)
    assert float(gaussian_delta(0.0, 0.999 * mu)) < 2.0 * high - 1.0


def test_a_sampled_sum_is_a_function_of_the_sum_of_all() -> None:
    at = np.linspace(-6.0, 6.0, 121)
    y = np.linspace(-40.0, 41.0, 20_001)

    def density(mean: float) -> Array:
        return np.asarray(np.exp(-((y - mean) ** 2) / 2) / math.sqrt(2 * math.pi))

    for q in (0.05, 0.7):
        sampled = (1 - q) * density(0.0) + q * density(1.0)
        opposite = (1 - q) * density(0.0) + q * density(-1.0)
        for p, other, mu in (
            (sampled, density(0.0), 1.0),
            (density(0.0), sampled, 1.0),
            (sampled, opposite, 2.0),
        ):
            values = np.maximum(p - np.exp(at)[:, None] * other, 0.0).sum(axis=1) * (y[1] - y[0])
            assert np.all(values <= gaussian_delta(at, mu) + 1e-6)


def test_concentrated_is_not_gaussian() -> None:
    """Negative control: rho = mu^2/2 of randomised response would be too small a mu."""
    epsilon = 1.0
    rho = epsilon**2 / 2
    high = 1.0 / (1.0 + math.exp(-epsilon))
    assert 2 * high - 1 > float(gaussian_delta(0.0, math.sqrt(2 * rho))) + 1e-3


# ------------------------------------------------------------------------------------ the filter


def after_gaussian(value: Array, mu: float) -> Array:
    """Mean of a value of the loss after a Gaussian release."""
    later = LOSSES[:, None] + mu * mu / 2 + mu * NODES
    return np.asarray(_between(value, later) @ WEIGHTS)


def after_response(value: Array, epsilon: float) -> Array:
    """Mean of a value of the loss after a randomised response."""
    high = 1.0 / (1.0 + math.exp(-epsilon))
    up, down = _between(value, LOSSES + epsilon), _between(value, LOSSES - epsilon)
    return np.asarray(high * up + (1.0 - high) * down)


def _between(value: Array, at: Array) -> Array:
    """Linear between the points of the net; certain knowledge above, nothing below."""
    inside = np.interp(at, LOSSES, value)
    return np.asarray(np.where(at > LOSSES[-1], 1.0, np.where(at < LOSSES[0], value[0], inside)))


STOP = np.maximum(-np.expm1(EPSILON - LOSSES), 0.0)


@cache
def gaussian_values(mu: float) -> tuple[tuple[float, ...], ...]:
    """Best value with k of the units left, from Gaussian and pure releases."""
    unit = mu * mu / UNITS
    values = [STOP]
    for k in range(1, UNITS + 1):
        best = STOP
        for j in range(1, k + 1):
            size = math.sqrt(j * unit)
            best = np.maximum(best, after_gaussian(values[k - j], size))
            best = np.maximum(best, after_response(values[k - j], pure_of(size)))
        values.append(best)
    return tuple(map(tuple, values))


def at_start(value: Array) -> float:
    """Value where nothing was told."""
    return float(np.interp(0.0, LOSSES, value))


def test_no_choice_of_sizes_exceeds_one_gaussian_release() -> None:
    mu = largest_mu(EPSILON, DELTA)
    best = at_start(np.array(gaussian_values(mu)[-1]))
    assert best == pytest.approx(DELTA, rel=SLACK)


def with_leaks(*, fixed: bool) -> float:
    """Best value where a budget of outright leaks comes on top; with a fixed share, or on demand.

    On demand, whatever was not yet needed by Gaussian releases may be spent on a leak: the check
    of both totals against the budget is made anew at every step.
    """
    share = DELTA / 2 if fixed else 0.0
    mu = largest_mu(EPSILON, DELTA - share)
    if fixed:
        before = np.array(gaussian_values(mu)[-1])
        # A leak can be chosen at any time, and waiting never helps to know less.
        return at_start(share + (1.0 - share) * before)
    unit = mu * mu / UNITS
    value = STOP
    for k in range(1, UNITS + 1):
        # Time runs backwards: k units are left, UNITS - k are used.
        used = gaussian_delta(EPSILON, math.sqrt((UNITS - k) * unit)) if k < UNITS else 0.0
        leak = DELTA - float(used)
        value = after_gaussian(value, math.sqrt(unit))
        value = np.maximum(value, leak + (1.0 - leak) * STOP)
    return at_start(value)


def test_a_fixed_share_of_delta_is_enough_for_leaks() -> None:
    assert with_leaks(fixed=True) <= DELTA * (1.0 + SLACK)


def test_a_share_of_delta_chosen_on_the_way_is_refuted() -> None:
    """Negative control: totals that always fit the budget, and yet 1.5 times its delta."""
    assert with_leaks(fixed=False) > 1.5 * DELTA


def test_basic_and_gaussian_totals_may_take_turns() -> None:
    """Paths whose pure epsilons add up to epsilon give nothing, and may go on for ever."""
    mu = largest_mu(EPSILON, DELTA)
    unit = mu * mu / UNITS
    size = pure_of(math.sqrt(unit))
    most = int(EPSILON / size)
    # State: pure releases only so far, k of them; a Gaussian one ends the basic rule.
    value = STOP
    for k in range(max(UNITS, most), -1, -1):
        options = [STOP]
        if k < most or k < UNITS:
            options.append(after_response(value, size))
        if k < UNITS:
            options.append(np.array(gaussian_values(mu)[UNITS - k]))
        value = np.max(options, axis=0)
    assert at_start(value) <= DELTA * (1.0 + SLACK)


def test_a_leaking_release_is_dominated_by_its_pair() -> None:
    rng = np.random.default_rng(3)
    epsilon, delta = 0.5, 0.05
    high = 1.0 / (1.0 + math.exp(-epsilon))
    leaking = np.array([delta, 0.0, (1 - delta) * high, (1 - delta) * (1 - high)])
    other = leaking[[1, 0, 3, 2]]
    at = np.exp(np.linspace(-4.0, 4.0, 401))[:, None]
    worst = np.maximum(leaking - at * other, 0.0).sum(axis=1)
    seen = 0
    while seen < 200:
        p, q = rng.dirichlet(np.full(4, 2.0), 2)
        p = 0.2 * p + 0.8 * q
        x = math.exp(epsilon)
        if max(np.maximum(p - x * q, 0).sum(), np.maximum(q - x * p, 0).sum()) > delta:
            continue
        seen += 1
        assert np.all(np.maximum(p - at * q, 0.0).sum(axis=1) <= worst + 1e-12)


# ----------------------------------------------------------------------------------- the odometer


def mixture_boundary(v: Array, delta: float, s: float) -> Array:
    """Bound of a Brownian path at all times, by the mixture over theta ~ |N(0, 1/s)|."""

    def log_value(w: Array) -> Array:
        scaled = w / np.sqrt(v + s)
        half = np.log(2.0 * ndtr(scaled))
        return np.asarray(0.5 * np.log(s / (v + s)) + scaled**2 / 2 + half)

    low, high = np.zeros_like(v), 50.0 * np.sqrt(v + s)
    for _ in range(80):
        middle = 0.5 * (low + high)
        below = log_value(middle) < -math.log(delta)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high


def crossing(boundary: Array, times: Array) -> float:
    """Probability that a Brownian path is above the boundary at any of the times."""
    w = np.linspace(-12.0, 12.0, 4801)
    step = w[1] - w[0]
    alive = np.zeros_like(w)
    alive[len(w) // 2] = 1.0
    crossed, before = 0.0, 0.0
    for time, bound in zip(times, boundary, strict=True):
        spread = math.sqrt(time - before)
        kernel = np.exp(-((w / spread) ** 2) / 2)
        kernel = kernel / kernel.sum()
        alive = np.convolve(alive, kernel, mode="same")
        above = w >= bound - step / 2
        crossed += float(alive[above].sum())
        alive[above] = 0.0
        before = time
    return crossed


TIMES = np.geomspace(0.01, 4.0, 120)


def test_no_path_crosses_the_boundary_more_often_than_stated() -> None:
    delta = 1e-3
    found = crossing(mixture_boundary(TIMES, delta, 0.3), TIMES)
    assert 0.1 * delta < found <= delta


def test_what_is_right_at_one_time_is_not_right_at_a_chosen_one() -> None:
    """Negative control: the level of each time by itself, whoever stops where it is crossed."""
    delta = 1e-3
    pointwise = np.sqrt(TIMES) * float(ndtri(1.0 - delta))
    assert crossing(pointwise, TIMES) > 3.0 * delta


def test_steps_chosen_by_what_was_seen_do_not_help_to_cross() -> None:
    """The best strategy in choosing times, by dynamic programming."""
    delta, units, s = 1e-2, 12, 0.3
    unit = 1.0 / units
    w = np.linspace(-6.0, 6.0, 2401)
    times: Array = unit * np.arange(1.0, units + 1.0)
    bound = mixture_boundary(times, delta, s)
    values = [np.where(w >= bound[-1], 1.0, 0.0)]
    for k in range(units - 1, -1, -1):
        best = np.zeros_like(w)
        for j in range(1, units - k + 1):
            later = w[:, None] + math.sqrt(j * unit) * NODES
            reached = np.interp(later, w, values[len(values) - j])
            best = np.maximum(best, reached @ WEIGHTS)
        values.append(best if k == 0 else np.where(w >= bound[k - 1], 1.0, best))
    assert float(np.interp(0.0, w, values[-1])) <= delta


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("prior", [1e-3, 0.3, 5.0])
def test_the_odometer_s_boundary_is_that_of_the_page(delta: float, prior: float) -> None:
    times = np.geomspace(1e-4, 30.0, 9)
    expected = times / 2 + mixture_boundary(times, delta, prior)
    found = [boundary(float(v), delta, prior) for v in times]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 0.5, 1.9999, 2.0, 7.0, 300.0])
def test_the_ledger_s_size_of_a_pure_release_is_that_of_the_page(epsilon: float) -> None:
    found = mpmath.mpf(library_pure_mu(epsilon))
    with mpmath.workdps(200):
        # The Gaussian release of this size meets randomised response, or says more.
        share = mpmath.ncdf(found / 2)
        needed = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        assert share >= needed
        less = found * (1 - mpmath.mpf("1e-10"))
        assert mpmath.ncdf(less / 2) < needed
    assert pure_of_mu(float(found)) <= epsilon * (1.0 + 1e-10)


def test_the_filter_of_a_ledger_has_the_limits_of_the_page() -> None:
    """An opponent fills either limit, in every order, and never gets beyond one of them."""
    rng = np.random.default_rng(8)
    share = DELTA / 10
    mu = largest_mu(EPSILON, DELTA - share)
    for _ in range(20):
        composed = AdaptiveComposition(EPSILON, DELTA, "add_remove")
        square, told, pure, spent = 0.0, 0.0, True, 0.0
        for _ in range(60):
            size = float(np.exp(rng.normal(-2.0, 1.0)))
            kind = rng.integers(3)
            event: PrivacyEvent
            if kind == 0:
                event, more = GaussianEvent(1.0 / size, 1.0, "add_remove"), (size, 0.0, None)
            elif kind == 1:
                event, more = PureEvent(size, "add_remove"), (pure_mu(size), 0.0, size)
            else:
                leak = share * float(rng.random()) / 3
                event, more = (
                    ApproximateEvent(size, leak, "add_remove"),
                    (pure_mu(size), leak, size),
                )
            trial = copy.copy(composed)
            trial.add(event)
            if trial.fits():
                composed = trial
                square, told = square + more[0] ** 2, told + more[1]
                pure, spent = pure and more[2] is not None, spent + (more[2] or 0.0)
        assert told <= share * (1.0 + 1e-9)
        assert square <= mu * mu * (1.0 + 1e-9) or (pure and spent <= EPSILON * (1.0 + 1e-9))
        assert square > 0.3 * mu * mu
