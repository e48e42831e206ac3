"""Planned noise of sums over parties against the formulas of docs/proofs/federated.md.

The plan's numbers are compared with the same quantities from the definitions, in rationals where a
square root does not stand in the way, for many plans at the edges of what is accepted.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from dpsvm_fast.accounting import gaussian_delta, gaussian_sigma
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.plans import SMOOTHING, SumNoise, plan_noise
from dpsvm_fast.federated.secsum import PartyCounts
from oracles.federated_laws import merge_exponent, smoothing_exponent
from oracles.parties import helmet, reduction

SIZES = (1, 3, 7850)
PARTIES = ((1, 1.0, 0.0), (3, 1.0, 0.0), (10, 0.5, 0.1), (1000, 0.7, 0.05), (2**18, 0.6, 0.0))
BUDGETS = ((0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-9))


def plans() -> list[tuple[SumNoise, float]]:
    found = []
    for size, (users, honest, lost), (epsilon, delta) in itertools.product(SIZES, PARTIES, BUDGETS):
        counts = PartyCounts(n_users=users, honest_fraction=honest, max_dropout=lost)
        multiplier = gaussian_sigma(epsilon, delta)
        shared: dict[str, Any] = {"counts": counts, "multiplier": multiplier}
        found.append((plan_noise(size=size, distance=0.37, bound=11.0, **shared), multiplier))
    return found


PLANS = plans()


def stated_too_little(noise: SumNoise, multiplier: float) -> list[str]:
    """What is stated as less than it is."""
    wrong = []
    h, g = noise.honest_survivors, Fraction(noise.step)
    square = g**2 * (h * noise.sigma_steps**2 - Fraction(SMOOTHING) ** 2)
    if Fraction(noise.sigma) ** 2 > square:
        wrong.append("sigma")
    rounded = Fraction(noise.total) - Fraction(noise.distance)
    if (rounded / (g * (1 + Fraction(1, 2**20)))) ** 2 < noise.size:
        wrong.append("total")
    if Fraction(noise.sigma) < Fraction(multiplier) * Fraction(noise.total):
        wrong.append("multiplier")
    exponents = merge_exponent(noise.sigma_steps, min(h, 50)) + smoothing_exponent(SMOOTHING)
    if noise.discreteness < noise.size * exponents:
        wrong.append("discreteness")
    room = 2**29 - noise.bound_steps
    tail = math.exp(max(-((room / noise.sigma_steps) ** 2) / 2, -700.0))
    if tail > math.exp(-699.0) and noise.overflow < (
        2 * noise.counts.n_users * noise.size * tail * (1 - 1e-9)
    ):
        wrong.append("overflow")
    if noise.bound_steps < noise.bound / noise.step + math.sqrt(noise.size) / 2:
        wrong.append("range")
    if not room > 13 * noise.sigma_steps:
        wrong.append("room")
    return wrong


@pytest.mark.proof("federated", "The library")
def test_no_number_of_a_plan_is_too_small() -> None:
    for noise, multiplier in PLANS:
        assert stated_too_little(noise, multiplier) == [], noise


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize("share", [0.9, 0.999999])
def test_a_finer_grid_than_planned_is_noticed(share: float) -> None:
    """Control: with a step that is a little too small the noise is not what was wanted."""
    for noise, multiplier in PLANS:
        finer = replace(noise, step=noise.step * share)
        assert "multiplier" in stated_too_little(finer, multiplier)


def test_h_from_all_honest_parties_is_noticed() -> None:
    """Control: the sigma of a plan for one honest party more is more than there is."""
    for noise, _ in PLANS:
        h, g = noise.honest_survivors, Fraction(noise.step)
        more = g**2 * ((h + 1) * noise.sigma_steps**2 - Fraction(SMOOTHING) ** 2)
        assert Fraction(noise.sigma) ** 2 < more


@pytest.mark.proof("federated", "The library")
def test_the_profile_of_a_plan_is_within_the_budget() -> None:
    for (epsilon, delta), (noise, multiplier) in itertools.product(BUDGETS, PLANS):
        if multiplier == gaussian_sigma(epsilon, delta):
            spent = gaussian_delta(epsilon, noise.sigma, noise.total)
            assert spent <= delta
            assert spent > 0.9 * delta


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize(
    ("users", "honest", "lost", "needed", "h"),
    [
        (100, 0.07, 0.0, None, 7),
        (100, 0.29, 0.0, None, 29),
        (10, 0.9, 0.1, None, 8),
        (6, 5 / 6, 0.0, None, 5),
        (10, 0.6, 0.0, 7, 3),
        (3, 1.0, 0.0, None, 3),
    ],
)
def test_honest_survivors_in_the_worst_case(
    users: int, honest: float, lost: float, needed: int | None, h: int
) -> None:
    counts = PartyCounts(
        n_users=users, honest_fraction=honest, max_dropout=lost, min_survivors=needed
    )
    assert counts.honest_survivors == h
    assert counts.colluders < counts.threshold <= counts.survivors_needed
    assert 2 * counts.threshold > users


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize(
    ("users", "honest", "lost"), [(10, 0.1, 0.1), (4, 0.5, 0.5), (10, 0.5, 0.5), (100, 0.07, 0.07)]
)
def test_counts_without_an_honest_noise_or_a_threshold_are_refused(
    users: int, honest: float, lost: float
) -> None:
    with pytest.raises(InvalidParameterError):
        PartyCounts(n_users=users, honest_fraction=honest, max_dropout=lost)


@pytest.mark.proof("federated", "Two rounds (FedDPDR)")
@pytest.mark.parametrize("d", [1, 4, 300])
def test_matrices_of_persons_are_planned_with_their_rounding(d: int) -> None:
    """Of d^2 entries, each rounded by at most 2**-40 and by the products in both worlds."""
    found = reduction(n_features=d, n_components=1, local="output", unit="person").rounds[0].noise
    exact = Fraction(found.distance) - 2 * d * (Fraction(1, 2**40) + Fraction(1, 2**53))
    assert exact > 0
    assert exact**2 >= 2


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize("unit", ["row", "person"])
@pytest.mark.parametrize("local", ["svm_sgd", "exact"])
def test_a_person_is_planned_like_a_row(unit: str, local: str) -> None:
    spec = helmet(n_users=5, n_features=4, local=local, unit=unit)
    noise, training = spec.rounds[0].noise, spec.training
    assert noise.rounding == pytest.approx(noise.step * math.sqrt(training.size), rel=1e-5)
    assert noise.distance == pytest.approx(training.by_record + 2 * training.solver_radius)
