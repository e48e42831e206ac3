"""Exact audit of sampled steps: densities of the true output, integrated, against the accountant.

Nothing is drawn, so there are no false alarms and no statistical slack.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpsvm_fast import _core
from oracles.noisy_checks import worlds
from oracles.noisy_descent import clipped_sum, distance_bound, records_of
from oracles.sampled_law import step_delta, sums_delta, two_steps_delta

pytestmark = pytest.mark.statistical

RATES = [0.1, 0.5, 1.0]
SIGMAS = [0.6, 1.0, 3.0, 10.0]
EPSILONS = [0.01, 0.3, 1.0, 4.0]
RELATIONS = pytest.mark.parametrize("replace_one", [False, True])


def claimed(epsilon: float, z: float, rate: float, n_steps: int, replace_one: bool) -> float:
    return _core.subsampled_gaussian_delta(z, rate, n_steps, epsilon, replace_one)


@pytest.mark.sampled
@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
@RELATIONS
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("sigma", SIGMAS)
def test_one_step_is_accounted_exactly_and_never_below(
    sigma: float, rate: float, replace_one: bool
) -> None:
    for epsilon in EPSILONS:
        exact = step_delta(epsilon, sigma, rate, 1.0, replace_one)
        if exact < 1e-250:
            continue
        stated = claimed(epsilon, sigma, rate, 1, replace_one)
        # The integrals agree with 25-digit values to 1e-10 down to 1e-224.
        assert exact * (1 - 1e-10) <= stated <= exact * (1 + 1e-6)


@pytest.mark.sampled
@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
@RELATIONS
@pytest.mark.parametrize("rate", RATES)
def test_the_canary_of_a_real_step_is_covered(rate: float, replace_one: bool) -> None:
    """How far the descent itself moves between the neighbours, with the noise it would be given."""
    pair = worlds("replace_one" if replace_one else "add_remove")
    grid = 2.0**-20
    first, second = (clipped_sum(world, grid=grid) for world in pair)
    moved = float(np.abs(first - second).max()) / (2.0 if replace_one else 1.0)
    bound = distance_bound(1.0, 1, grid)
    for z in SIGMAS:
        for epsilon in EPSILONS:
            sigma = z * bound
            exact = step_delta(epsilon, sigma, rate, moved, replace_one)
            assert exact <= claimed(epsilon, z, rate, 1, replace_one) * (1 + 1e-10)
            # Negative control: a contribution 5 percent longer than declared.
            longer = step_delta(epsilon, sigma, rate, 1.05 * moved, replace_one)
            # (The accountant states no delta below 1e-300.)
            assert longer < 1e-290 or longer > claimed(epsilon, z, rate, 1, replace_one)


SETS = [[0.4, -1.0], [1.0, 1.0, 1.0], [-0.3, 0.7, -0.9, 0.2]]


@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
@RELATIONS
@pytest.mark.parametrize("others", SETS)
def test_other_records_never_help_the_attacker(others: list[float], replace_one: bool) -> None:
    """Clipped contributions of a step on real records, whole law of the noisy sum."""
    rate, z = 0.3, 0.8
    bound = distance_bound(1.0, 1, None)
    found = []
    for value in [*others, 1.0, -1.0]:
        one = records_of(np.array([[abs(value)]]), [0 if value > 0.0 else 1])
        found.append(float(clipped_sum(one)[0, 0]))
    *rest, plus, minus = found
    for epsilon in EPSILONS:
        second = [*rest, minus] if replace_one else rest
        exact = sums_delta(epsilon, z * bound, rate, [*rest, plus], second)
        assert exact <= claimed(epsilon, z, rate, 1, replace_one) * (1 + 1e-6)
    alone = sums_delta(0.3, z, rate, [1.0], [-1.0] if replace_one else [])
    assert alone == pytest.approx(step_delta(0.3, z, rate, 1.0, replace_one), rel=1e-7)


@pytest.mark.sampled
@pytest.mark.proof("accountant", "The accountant")
@RELATIONS
@pytest.mark.parametrize(("rate", "sigma"), [(0.1, 0.8), (0.4, 1.5), (1.0, 2.0)])
def test_two_steps_are_accounted_to_a_thousandth(
    rate: float, sigma: float, replace_one: bool
) -> None:
    for epsilon in (0.1, 1.0):
        exact = two_steps_delta(epsilon, sigma, rate, 1.0, replace_one)
        stated = claimed(epsilon, sigma, rate, 2, replace_one)
        assert exact * (1 - 1e-5) <= stated <= exact * (1 + 1e-3)
        # Negative control: one step is not enough for two.
        assert claimed(epsilon, sigma, rate, 1, replace_one) < 0.9 * exact


@RELATIONS
def test_a_full_batch_is_the_gaussian_mechanism(replace_one: bool) -> None:
    for epsilon in EPSILONS:
        distance = 2.0 if replace_one else 1.0
        expected = _core.gaussian_delta(epsilon, 2.5 / distance)
        assert step_delta(epsilon, 2.5, 1.0, 1.0, replace_one) == pytest.approx(expected, rel=1e-11)
