"""White-box audit of private descent: what its final weights prove about epsilon.

All gradients are zero but for one canary at the clip bound, in one weight, so the final weight of a
run of T steps is normal with deviation sqrt(T) sigma and its mean moves by T times the clip between
the neighbours: the pair attains the claim. False-alarm rate ALPHA = 1e-6, fixed seeds.

With n runs a world, mu = sqrt(T) clip / sigma is known to sqrt(2/n + mu^2/(4n)), 4.75 of which the
bound takes away. Expected of an honest mechanism (delta 1e-5): claim 4 with n = 40,000: 3.64, and
claim 1: 0.86; n = 500,000: 3.90 and 0.96.
"""

from __future__ import annotations

import math

import pytest

from oracles.noisy_checks import FACTOR, claimed_sigma, proved_epsilon

pytestmark = pytest.mark.statistical

STEPS = 3
GRID = 2.0**-20
# (claim, runs, least share of the claim that must be proved); the shares lie more than
# 4.75 standard errors below what is expected.
FAST = [(4.0, 40_000, 0.85), (1.0, 40_000, 0.7)]
LONG = [(4.0, 500_000, 0.95), (1.0, 500_000, 0.9)]


def audit(claim: float, runs: int, share: float, adjacency: str, grid: float | None) -> None:
    sigma = claimed_sigma(claim, STEPS, adjacency, grid)
    proved = proved_epsilon(runs, sigma, adjacency, STEPS, grid=grid)
    assert share * claim <= proved <= claim
    # Power: noise too small by sqrt 2 proves more than the claim.
    wrong = sigma / math.sqrt(2.0)
    assert proved_epsilon(runs // 4, wrong, adjacency, STEPS, grid=grid) > claim


@pytest.mark.sampled(every=2)
@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
@pytest.mark.parametrize("adjacency", FACTOR)
@pytest.mark.parametrize(("claim", "runs", "share"), FAST)
def test_final_weights_prove_most_of_the_claim_and_never_more(
    claim: float, runs: int, share: float, adjacency: str
) -> None:
    audit(claim, runs, share, adjacency, GRID)


@pytest.mark.nightly
@pytest.mark.parametrize("grid", [GRID, None])
@pytest.mark.parametrize("adjacency", FACTOR)
@pytest.mark.parametrize(("claim", "runs", "share"), LONG)
def test_many_runs_prove_the_claim_to_within_ten_percent(
    claim: float, runs: int, share: float, adjacency: str, grid: float | None
) -> None:
    audit(claim, runs, share, adjacency, grid)


@pytest.mark.parametrize("adjacency", FACTOR)
def test_the_sum_of_the_squares_of_the_steps_is_spent(adjacency: str) -> None:
    """Noise of one step spread over three proves more than the claim: sqrt(T) belongs there."""
    sigma = claimed_sigma(4.0, 1, adjacency, GRID)
    assert proved_epsilon(4000, sigma, adjacency, 1, grid=GRID) <= 4.0
    assert proved_epsilon(4000, sigma, adjacency, STEPS, grid=GRID) > 4.0
