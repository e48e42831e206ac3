"""The Gaussian mechanism's calibration: checks, inverses, and random points against mpmath.

The oracle evaluates Theorem 8 of Balle and Wang (2018) as printed, with enough digits that its
subtraction loses nothing; it shares no formula with the core.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from dpsvm_fast import _core
from dpsvm_fast.accounting import gaussian_delta, gaussian_epsilon, gaussian_sigma
from dpsvm_fast.exceptions import InvalidParameterError


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 10.0, 1e4])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-5, 0.3])
@pytest.mark.parametrize("sensitivity", [1e-12, 1 / 3, 1.0, 7e8])
def test_sigma_epsilon_and_delta_invert_each_other(
    epsilon: float, delta: float, sensitivity: float
) -> None:
    sigma = gaussian_sigma(epsilon, delta, sensitivity)
    assert gaussian_delta(epsilon, sigma, sensitivity) == pytest.approx(delta, rel=1e-9)
    assert gaussian_delta(epsilon, sigma * (1 - 1e-6), sensitivity) > delta
    # With so small an epsilon, delta is nearly constant in it.
    tolerance = 1e-9 if epsilon > 1e-3 else 1e-2
    assert gaussian_epsilon(delta, sigma, sensitivity) == pytest.approx(epsilon, rel=tolerance)


def test_the_sensitivity_only_scales() -> None:
    assert gaussian_sigma(1.0, 1e-6, 8.0) == 8.0 * gaussian_sigma(1.0, 1e-6)
    assert gaussian_delta(1.0, 24.0, 8.0) == gaussian_delta(1.0, 3.0)
    # A third is not a float: the ratio goes towards less noise, sigma towards more.
    assert gaussian_sigma(1.0, 1e-6, 1 / 3) >= gaussian_sigma(1.0, 1e-6) / 3


def test_enough_noise_costs_nothing() -> None:
    assert gaussian_epsilon(0.5, 10.0) == 0.0
    assert gaussian_delta(0.0, 1e-3) == 1.0


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: gaussian_sigma(0.0, 1e-6), "epsilon"),
        (lambda: gaussian_sigma(1e5, 1e-6), "epsilon"),
        (lambda: gaussian_sigma(1.0, 0.0), "delta"),
        (lambda: gaussian_sigma(1.0, 1.0), "delta"),
        (lambda: gaussian_sigma(1.0, 1e-6, 0.0), "sensitivity"),
        (lambda: gaussian_sigma(1e-6, 1e-300, 1e308), "sensitivity"),
        (lambda: gaussian_delta(-1.0, 1.0), "epsilon"),
        (lambda: gaussian_delta(1.0, math.nan), "sigma"),
        (lambda: gaussian_delta(1.0, 1e-300, 1e300), "sigma"),
        (lambda: gaussian_epsilon(0.0, 1.0), "delta"),
        (lambda: gaussian_epsilon(1e-6, -1.0), "sigma"),
    ],
)
def test_ranges(call: object, name: str) -> None:
    assert callable(call)
    with pytest.raises(InvalidParameterError, match=f"^{name}"):
        call()


def test_types() -> None:
    with pytest.raises(TypeError, match="epsilon"):
        gaussian_sigma("1", 1e-6)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sigma"):
        gaussian_delta(1.0, None)  # type: ignore[arg-type]


SIGMA_ERROR = 1e-14
CURVE_ERROR = 1e-13

# Fixed examples in every run; a slow machine is not a failure.
checked = settings(
    deadline=None,
    derandomize=True,
    max_examples=200,
    suppress_health_check=[HealthCheck.filter_too_much],
)

epsilons = st.floats(-6, 4).map(lambda x: 10.0**x) | st.just(0.0)
deltas = (
    st.floats(-300, -1).map(lambda x: 10.0**x)
    | st.floats(-12, 0, exclude_max=True).map(lambda x: 10.0**x)
    | st.floats(-15.5, -0.5).map(lambda x: 1 - 10.0**x)
).filter(lambda delta: delta < 1)
sigmas = st.floats(math.log10(0.02), math.log10(2e8)).map(lambda x: 10.0**x)


def curve(epsilon: mpf, sigma: mpf) -> tuple[mpf, mpf]:
    """Exact delta and 1 - delta, to about 40 digits each."""
    # Both terms of a difference are of the order phi(u) R(u): what cancels is log10(epsilon
    # sigma^2) digits, whatever delta is.
    with mp.workdps(80 + 2 * abs(int(mp.log10(sigma)))):
        epsilon, sigma = mpf(epsilon), mpf(sigma)
        half = 1 / (2 * sigma)
        second = mp.exp(epsilon) * mp.erfc((half + epsilon * sigma) / mp.sqrt(2)) / 2
        delta = mp.erfc((epsilon * sigma - half) / mp.sqrt(2)) / 2 - second
        return delta, mp.erfc((half - epsilon * sigma) / mp.sqrt(2)) / 2 + second


def sigma_at(epsilon: float, u: float) -> float:
    """The sigma with epsilon * sigma - 1 / (2 sigma) = u."""
    root = math.sqrt(u * u + 2 * epsilon)
    return 1 / (root - u) if u < 0 else (u + root) / (2 * epsilon)


@pytest.mark.proof("analytic_gaussian")
@checked
@given(epsilons, deltas)
def test_sigma_is_safe_and_tight(epsilon: float, delta: float) -> None:
    sigma = _core.gaussian_sigma(epsilon, delta)
    assert _core.gaussian_delta(epsilon, sigma) <= delta
    with mp.workdps(60):
        assert curve(mpf(epsilon), mpf(sigma))[0] <= mpf(delta)
        assert curve(mpf(epsilon), mpf(sigma) * (1 - mpf(SIGMA_ERROR)))[0] > mpf(delta)


@pytest.mark.proof("analytic_gaussian")
@checked
@given(deltas, sigmas)
def test_epsilon_is_safe_and_tight(delta: float, sigma: float) -> None:
    epsilon = _core.gaussian_epsilon(delta, sigma)
    with mp.workdps(60):
        assert curve(mpf(epsilon), mpf(sigma))[0] <= mpf(delta)
        if epsilon > 0:
            # Backward error: a hair less epsilon, and a hair less delta, do not fit.
            above, below = curve(mpf(epsilon) * (1 - mpf(CURVE_ERROR)), mpf(sigma))
            slack = mpf(CURVE_ERROR)
            assert above > delta * (1 - slack) or below < (1 - mpf(delta)) * (1 + slack)


@pytest.mark.proof("analytic_gaussian")
@checked
@given(epsilons, st.floats(-25, 37), st.booleans())
def test_curve_is_enclosed(epsilon: float, u: float, negative: bool) -> None:
    assume(u < -1e-9 or epsilon > 0)
    sigma = sigma_at(epsilon, u)
    signed = -epsilon if negative and epsilon < 700 else epsilon
    delta, _ = curve(mpf(signed), mpf(sigma))
    with mp.workdps(60):
        value = mpf(_core.gaussian_delta(signed, sigma))
        assert delta <= value
        assert value <= delta * (1 + mpf(CURVE_ERROR)) or value <= mpf("1e-300")


@pytest.mark.proof("analytic_gaussian")
@checked
@given(sigmas, deltas)
def test_round_trip_never_under_protects(sigma: float, delta: float) -> None:
    """Ten orders of magnitude of sigma, to epsilon and back."""
    epsilon = _core.gaussian_epsilon(delta, sigma)
    assert _core.gaussian_delta(epsilon, sigma) <= delta
    assume(0 < epsilon <= 1e4)
    back = _core.gaussian_sigma(epsilon, delta)
    assert abs(back / sigma - 1) <= CURVE_ERROR
    assert _core.gaussian_delta(epsilon, back) <= delta


@checked
@given(epsilons, epsilons, deltas, deltas)
def test_sigma_falls_with_epsilon_and_delta(e1: float, e2: float, d1: float, d2: float) -> None:
    more = _core.gaussian_sigma(min(e1, e2), min(d1, d2))
    less = _core.gaussian_sigma(max(e1, e2), max(d1, d2))
    assert more >= less * (1 - SIGMA_ERROR)


@checked
@given(deltas, deltas, sigmas, sigmas)
def test_epsilon_falls_with_delta_and_sigma(d1: float, d2: float, s1: float, s2: float) -> None:
    more = _core.gaussian_epsilon(min(d1, d2), min(s1, s2))
    less = _core.gaussian_epsilon(max(d1, d2), max(s1, s2))
    # Near zero epsilon is a small difference: its error is a few roundoffs of h / sigma.
    assert more >= less * (1 - CURVE_ERROR) - CURVE_ERROR / max(s1, s2)


@checked
@given(epsilons, epsilons, sigmas, sigmas, st.booleans())
def test_delta_falls_with_epsilon_and_sigma(
    e1: float, e2: float, s1: float, s2: float, negative: bool
) -> None:
    low, high = sorted((-e1, -e2) if negative else (e1, e2))
    assert _core.gaussian_delta(low, min(s1, s2)) >= (
        _core.gaussian_delta(high, max(s1, s2)) * (1 - CURVE_ERROR)
    )


@pytest.mark.proof("analytic_gaussian")
@checked
@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(min_value=0, exclude_min=True, allow_infinity=False),
)
def test_every_finite_argument_gives_a_probability(epsilon: float, sigma: float) -> None:
    assert 0 < _core.gaussian_delta(epsilon, sigma) <= 1
    assert 0 <= _core.gaussian_epsilon(1e-6, sigma) <= math.inf
