"""The public calibration functions: scaling by the sensitivity, checks, and mutual inverses."""

from __future__ import annotations

import math

import pytest

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
