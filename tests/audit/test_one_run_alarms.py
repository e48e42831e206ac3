"""False alarms of audits in one run, at the confidence of 0.95 that they have by default.

Each test counts refutations of right claims in many audits and fails where they are more than a
binomial law of rate 0.05 allows: its own rate of false alarms is 1e-6. The "rare" program comes
close to what the theorem allows, so a bound that is wrong by a little would be seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpsvm_fast.accounting import gaussian_sigma
from dpsvm_fast.audit import audit_scores
from dpsvm_fast.audit.one_run import gaussian_inverse, tail_refuted
from oracles.one_run import independent_scores, rare_right_guesses, shared_scores

pytestmark = [pytest.mark.statistical, pytest.mark.fresh]

EPSILON, DELTA, M = 4.0, 1e-5, 1000
MU = 1.0 / gaussian_sigma(EPSILON, DELTA)
RATE, ALARM = 0.05, 1e-6
PROGRAMS = ("independent", "shared", "rare")
# As many as the audit plans for itself.
GUESSES = 150
# The share of its runs in which the rare program tells most: the worst for this audit.
SHARE = 1.1 * RATE


def refuting() -> int:
    """The fewest right guesses that refute the claim."""
    inverse = gaussian_inverse(MU)
    return next(c for c in range(GUESSES) if tail_refuted(inverse, M, GUESSES, c, RATE))


def right_guesses(scores: Any, coins: Any) -> int:
    """As the audit counts them."""
    order = np.argsort(scores, kind="stable")
    low, high = order[: GUESSES // 2], order[M - GUESSES // 2 :]
    return int((~coins[low]).sum() + coins[high].sum())


def alarms(program: str, n: int, mu: float = MU) -> int:
    limit, rng = refuting(), np.random.default_rng()
    if program == "rare":
        return int((rare_right_guesses(mu, M, GUESSES, SHARE, rng, n) >= limit).sum())
    scores = {"independent": independent_scores, "shared": shared_scores}[program]
    return sum(right_guesses(*scores(mu, M, rng)) >= limit for _ in range(n))


def test_the_count_that_refutes_is_the_audits_own() -> None:
    limit, rng = refuting(), np.random.default_rng(5)
    seen = set()
    for mu in (MU, 1.5 * MU, 2.5 * MU, 2.5 * MU):
        scores, coins = independent_scores(mu, M, rng)
        report = audit_scores(scores, coins, (EPSILON, DELTA))
        assert sum(report.counts) == GUESSES
        assert report.counts[0] == right_guesses(scores, coins)
        assert report.exceeds_claim == (report.counts[0] >= limit)
        seen.add(report.exceeds_claim)
    assert seen == {False, True}


@pytest.mark.proof("one_run_audit")
@pytest.mark.parametrize("n", [1000, pytest.param(10_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_right_claims_are_refuted_as_rarely_as_stated(program: str, n: int) -> None:
    found = alarms(program, n)
    assert found <= stats.binom.isf(ALARM, n, RATE), f"{found} of {n}"


@pytest.mark.proof("one_run_audit")
def test_too_little_noise_is_caught() -> None:
    """With two fifths of the noise all but one audit in 1e4 refutes the claim."""
    assert alarms("independent", 200, mu=2.5 * MU) >= 195
