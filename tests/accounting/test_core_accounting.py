"""The analytic Gaussian mechanism of the compiled core against 25-digit references.

The three files in ``tests/stored`` were computed with mpmath at 140 digits and more from Balle and
Wang (2018), Theorem 8; each says so in its field ``about``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from mpmath import mp, mpf

from dpsvm_fast import _core

DATA = Path(__file__).parents[1] / "stored"
SIGMA_ERROR = mpf("1e-14")
CURVE_ERROR = mpf("1e-13")


def reference(name: str) -> list[Any]:
    """Points of one reference file as pytest parameters."""
    text = (DATA / f"analytic_gaussian_{name}.json").read_text(encoding="utf-8")
    content = json.loads(text)
    assert len(content["points"]) == content["count"]
    keys = ("epsilon", "delta", "sigma_over_delta")
    return [
        pytest.param(point, id="-".join(str(point[k])[:10] for k in keys))
        for point in content["points"]
    ]


def exact(text: str) -> mpf:
    with mp.workdps(40):
        return mpf(text)


@pytest.mark.proof("analytic_gaussian")
@pytest.mark.parametrize("point", reference("sigma"))
def test_sigma_matches_reference_and_is_never_below(point: dict[str, str]) -> None:
    sigma = _core.gaussian_sigma(float(point["epsilon"]), float(point["delta"]))
    true = exact(point["sigma_over_delta"])
    with mp.workdps(40):
        assert mpf(sigma) >= true - mpf(math.ulp(float(true)))
        assert mpf(sigma) <= true * (1 + SIGMA_ERROR)


@pytest.mark.proof("output_perturbation", "Noise and grid")
@pytest.mark.proof("analytic_gaussian")
@pytest.mark.parametrize("point", reference("sigma"))
def test_sigma_satisfies_its_own_inequality(point: dict[str, str]) -> None:
    epsilon, delta = float(point["epsilon"]), float(point["delta"])
    sigma = _core.gaussian_sigma(epsilon, delta)
    assert _core.gaussian_delta(epsilon, sigma) <= delta
    assert _core.gaussian_epsilon(delta, sigma) <= epsilon * (1 + 1e-9)


@pytest.mark.proof("analytic_gaussian")
@pytest.mark.parametrize("point", reference("delta"))
def test_delta_matches_reference(point: dict[str, str]) -> None:
    # Decimal arguments are rounded to doubles before the call, so both sides need a tolerance
    # here; that the value is never low is tested on exact arguments in test_gaussian_properties.py.
    epsilon, sigma = float(point["epsilon"]), float(point["sigma_over_delta"])
    with mp.workdps(40):
        delta = exact(point["delta"])
        if delta > mpf("1e-300"):
            assert abs(mpf(_core.gaussian_delta(epsilon, sigma)) - delta) <= CURVE_ERROR * delta
        else:
            assert 0 < _core.gaussian_delta(epsilon, sigma) <= 1e-299


@pytest.mark.proof("analytic_gaussian")
@pytest.mark.parametrize("point", reference("epsilon"))
def test_epsilon_matches_reference_and_is_never_below(point: dict[str, str]) -> None:
    epsilon = _core.gaussian_epsilon(float(point["delta"]), float(point["sigma_over_delta"]))
    true = exact(point["epsilon"])
    if true == 0:
        assert epsilon == 0.0
        return
    with mp.workdps(40):
        assert mpf(epsilon) >= true - mpf(math.ulp(float(true)))
        assert mpf(epsilon) <= true * (1 + CURVE_ERROR)


@pytest.mark.proof("analytic_gaussian")
@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.0, 7.0, 300.0])
@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 0.7, 3.0, 40.0])
def test_negative_epsilon_is_the_dual_divergence(epsilon: float, sigma: float) -> None:
    # The pair of Gaussians is symmetric, so the divergence at exp(-epsilon) follows from the one
    # at exp(epsilon): 1 - e^-eps + e^-eps delta(eps).
    delta, dual = _core.gaussian_delta(epsilon, sigma), _core.gaussian_delta(-epsilon, sigma)
    assert dual == pytest.approx(-math.expm1(-epsilon) + math.exp(-epsilon) * delta, rel=1e-14)
    # And against the formula of Theorem 8, which holds for either sign.
    with mp.workdps(2000 if epsilon * sigma > 30 else 200):
        eps, s = mpf(-epsilon), mpf(sigma)
        true = mp.ncdf(1 / (2 * s) - eps * s) - mp.exp(eps) * mp.ncdf(-1 / (2 * s) - eps * s)
        assert true <= dual <= true * (1 + CURVE_ERROR)


@pytest.mark.proof("analytic_gaussian")
@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 1.0, 1e4])
def test_delta_next_to_one_keeps_its_digits(epsilon: float) -> None:
    delta = 1.0 - 2.0**-53
    sigma = _core.gaussian_sigma(epsilon, delta)
    assert _core.gaussian_delta(epsilon, sigma) == delta


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        ("gaussian_sigma", (math.nan, 1e-6), "epsilon"),
        ("gaussian_sigma", (-1.0, 1e-6), "epsilon"),
        ("gaussian_sigma", (2e4, 1e-6), "epsilon"),
        ("gaussian_sigma", (1.0, 0.0), "delta"),
        ("gaussian_sigma", (1.0, 1.0), "delta"),
        ("gaussian_sigma", (1.0, math.nan), "delta"),
        ("gaussian_epsilon", (0.0, 1.0), "delta"),
        ("gaussian_epsilon", (1e-6, 0.0), "sigma"),
        ("gaussian_epsilon", (1e-6, math.inf), "sigma"),
        ("gaussian_delta", (math.inf, 1.0), "epsilon"),
        ("gaussian_delta", (1.0, -1.0), "sigma"),
        ("gaussian_delta", (math.nan, 1.0), "epsilon"),
        ("gaussian_delta", (1.0, math.nan), "sigma"),
    ],
)
def test_arguments_out_of_range_are_named(
    function: str, arguments: tuple[float, float], name: str
) -> None:
    with pytest.raises(ValueError, match=f"^{name}: must .*, got "):
        getattr(_core, function)(*arguments)
