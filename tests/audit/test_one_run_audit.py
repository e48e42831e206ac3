"""Audits in one run: the bound against exact laws of programs as bad as their curve allows.

Canaries of one program may depend on each other in any way. ``shared_tails`` is the law of right
guesses for a Gaussian program whose scores all have the same absolute value, so that in some runs
all guesses are good. A bound that takes the canaries to be independent is wrong for it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, optimize, stats

from dpsvm_fast import InvalidParameterError
from dpsvm_fast.accounting import composed_epsilon, gaussian_delta, gaussian_sigma
from dpsvm_fast.audit import audit_scores
from dpsvm_fast.audit.bounds import Claim
from dpsvm_fast.audit.one_run import (
    ROUNDED_DOWN,
    gaussian_inverse,
    log_p_value,
    one_run_bound,
    one_run_epsilon,
    one_run_separation,
    profile_inverse,
    tail_refuted,
)
from dpsvm_fast.certificates import GaussianEvent
from oracles.one_run import far_chance, independent_tails, shared_tails

Array = NDArray[np.float64]

DELTA = 1e-5
MUS = (0.1, 0.5, 0.92, 3.0)


def first_refuted(mu: float, m: int, r: int, alpha: float) -> int:
    """The fewest right guesses that refute mu; r + 1 where none do."""
    inverse = gaussian_inverse(mu)
    return next((c for c in range(r + 1) if tail_refuted(inverse, m, r, c, alpha)), r + 1)


@pytest.mark.sampled
@pytest.mark.proof("one_run_audit")
@pytest.mark.parametrize("law", [independent_tails, shared_tails])
@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("m", [1, 2, 7, 40, 200])
@pytest.mark.parametrize("alpha", [0.05, 1e-3])
def test_what_is_refuted_is_as_rare_as_stated(
    law: Callable[[float, int], Array], mu: float, m: int, alpha: float
) -> None:
    """By the exact law of the number of right guesses, all canaries guessed."""
    c = first_refuted(mu, m, m, alpha)
    assert c > m or law(mu, m)[c] < alpha


@pytest.mark.sampled
@pytest.mark.proof("one_run_audit")
@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("alpha", [0.05, 1e-3])
@pytest.mark.parametrize(("m", "r"), [(2000, 2000), (20_000, 1000), (10**6, 1000), (1000, 30)])
def test_some_program_nearly_meets_the_bound(mu: float, alpha: float, m: int, r: int) -> None:
    """In a share of its runs it tells r canaries as well as mu allows, and nothing in the others.

    Its alarms are counted exactly, for shares around alpha.
    """
    refuted = first_refuted(mu, m, r, alpha)
    for share in alpha * np.array([0.5, 1.0, 1.02, 1.1, 1.3, 2.0]):
        told = stats.binom.sf(refuted - 1, r, far_chance(mu, share * r / m))
        assert share * told + (1.0 - share) * stats.binom.sf(refuted - 1, r, 0.5) < alpha
    assert refuted <= r * far_chance(mu, alpha * r / m) + 2.0 * math.sqrt(r) + 1.0


@pytest.mark.proof("one_run_audit")
def test_canaries_taken_as_independent_would_be_wrong() -> None:
    """The control: a binomial rule at 5 percent refutes a right claim in a third of the runs."""
    mu, m = 0.92, 2000
    c = int(np.argmax(independent_tails(mu, m) < 0.05))
    assert shared_tails(mu, m)[c] > 0.3


@pytest.mark.proof("one_run_audit")
def test_order_statistics_of_independent_canaries_would_be_wrong() -> None:
    """So would the law of the r clearest of m independent guesses, at the same 5 percent."""
    mu, m, r = 1.0, 10_000, 2500
    rng = np.random.default_rng(0)
    right = []
    for _ in range(200):
        x = rng.normal(0.5 * mu, 1.0, m)
        right.append(int((x[np.argpartition(-np.abs(x), r)[:r]] > 0.0).sum()))
    limit = int(np.quantile(right, 0.95)) + 1
    share = 0.4
    assert share * stats.binom.sf(limit - 1, r, far_chance(mu, share * r / m)) > 0.39
    # The bound of this library is not refuted by it more often than it says.
    refuted = first_refuted(mu, m, r, 0.05)
    assert share * stats.binom.sf(refuted - 1, r, far_chance(mu, share * r / m)) < 0.05


@pytest.mark.sampled
@pytest.mark.proof("one_run_audit")
@pytest.mark.parametrize("mu", [0.3, 1.0])
@pytest.mark.parametrize(("m", "r"), [(6, 6), (12, 6), (40, 10)])
def test_the_recursion_solves_its_programme(mu: float, m: int, r: int) -> None:
    """Against the largest P[C >= c] under the same inequalities, by linear programming."""
    xs = np.unique(np.concatenate([np.geomspace(1e-9, 0.5, 400), np.linspace(0.0, 1.0, 200)]))[1:-1]
    values = stats.norm.cdf(stats.norm.ppf(xs) + mu)
    slopes = np.exp(-mu * stats.norm.ppf(xs) - 0.5 * mu**2)
    for c in range(1, r + 1):
        rows, limits = [], []
        for i in range(c):
            met = np.where(np.arange(r + 1) > i, np.arange(r + 1), 0) / m
            missed = np.where(np.arange(r + 1) >= i, r - np.arange(r + 1), 0) / m
            for x, value, slope in zip(xs, values, slopes, strict=True):
                rows.append(met - slope * missed)
                limits.append(value - slope * x)
        found = optimize.linprog(
            -(np.arange(r + 1) >= c).astype(float),
            A_ub=np.array(rows),
            b_ub=np.array(limits),
            A_eq=np.ones((1, r + 1)),
            b_eq=[1.0],
        )
        largest = -float(found.fun)
        inverse = gaussian_inverse(mu)
        if largest < 0.98:
            assert tail_refuted(inverse, m, r, c, min(1.01 * largest + 1e-9, 0.999))
        assert not tail_refuted(inverse, m, r, c, 0.99 * largest)


@pytest.mark.proof("one_run_audit")
def test_inverse_curves_err_by_less_than_is_shaved_off() -> None:
    mpmath.mp.dps = 40
    for mu in MUS:
        inverse = gaussian_inverse(mu)
        for y in np.concatenate([np.geomspace(1e-12, 0.5, 60), [0.7, 0.9, 0.999]]):
            # The exact normal law of the float nearest to its quantile, with one step of Newton.
            z = mpmath.mpf(float(stats.norm.ppf(y)))
            z -= (mpmath.ncdf(z) - mpmath.mpf(float(y))) / mpmath.npdf(z)
            exact = mpmath.ncdf(z - mpmath.mpf(mu))
            assert float(abs(mpmath.mpf(inverse(float(y))) / exact - 1)) < ROUNDED_DOWN
    # Of one (epsilon, delta): the least x with e^epsilon x + delta >= y.
    inverse = profile_inverse(np.array([1.0]), np.array([0.1]))
    assert inverse(0.05) == 0.0
    assert inverse(0.5) == pytest.approx(0.4 / math.e)


@pytest.mark.proof("one_run_audit")
def test_a_profile_says_what_its_curve_says() -> None:
    """A Gaussian law by its closed form and by its deltas at many epsilons."""
    epsilon, m, r, c = 4.0, 10_000, 500, 380
    event = GaussianEvent(gaussian_sigma(epsilon, DELTA), 1.0, "add_remove")
    claim = Claim(epsilon, DELTA, "add_remove", (event,))
    closed, scaled = (
        one_run_epsilon(method, m, r, c, claim, 0.05) for method in ("gaussian", "profile")
    )
    assert 0.97 * closed <= scaled <= closed * (1.0 + 1e-6)
    # Least of all says the pair of numbers alone.
    assert 0.0 < one_run_epsilon("clopper_pearson", m, r, c, claim, 0.05) < scaled
    assert composed_epsilon([event], DELTA) == pytest.approx(epsilon)


def test_more_canaries_and_more_right_guesses_prove_more() -> None:
    bounds = [one_run_separation(m, m // 10, round(0.076 * m), 0.05) for m in (1000, 10**4, 10**5)]
    assert 0.0 < bounds[0] < bounds[1] < bounds[2]
    found = [one_run_separation(1000, 100, c, 0.05) for c in range(0, 101, 5)]
    assert found == sorted(found)
    assert found[0] == found[10] == 0.0
    assert found[-1] > 1.0
    # A higher confidence proves less.
    assert one_run_separation(1000, 100, 80, 1e-6) < one_run_separation(1000, 100, 80, 0.05)


class TestDefinitionAlone:
    @pytest.mark.parametrize("epsilon", [0.0, 0.7, 3.0])
    @pytest.mark.parametrize("delta", [0.0, 1e-3])
    def test_p_values_by_brute_force(self, epsilon: float, delta: float) -> None:
        """The theorem's formula with exact binomial coefficients."""
        m, r = 20, 12
        chance = math.exp(epsilon) / (1.0 + math.exp(epsilon))
        pmf = [math.comb(r, k) * chance**k * (1 - chance) ** (r - k) for k in range(r + 1)]
        for v in range(r + 1):
            slack = max((sum(pmf[max(0, v - i) : v]) / i for i in range(1, v + 1)), default=0.0)
            wanted = min(1.0, sum(pmf[v:]) + 2 * m * delta * slack)
            assert math.exp(log_p_value(m, r, v, epsilon, delta)) == pytest.approx(wanted)

    def test_randomised_response_is_never_refuted_too_often(self) -> None:
        """Coins flipped with probability 1 / (1 + e): by enumeration of all of its outcomes."""
        m, epsilon, alpha = 12, 1.0, 0.05
        keep = math.exp(epsilon) / (1.0 + math.exp(epsilon))
        refuted = [one_run_bound(m, m, right, 0.0, alpha) > epsilon for right in range(m + 1)]
        wrong = 0.0
        for kept in itertools.product((True, False), repeat=m):
            right = sum(kept)
            wrong += refuted[right] * keep**right * (1 - keep) ** (m - right)
        assert 0.0 < wrong <= alpha

    @pytest.mark.parametrize(("m", "right"), [(100, 75), (1000, 600)])
    def test_pure_bounds_are_log_odds_of_the_accuracy(self, m: int, right: int) -> None:
        accuracy = float(stats.beta.ppf(0.05, right, m - right + 1))
        wanted = math.log(accuracy / (1.0 - accuracy))
        assert one_run_bound(m, m, right, 0.0, 0.05) == pytest.approx(wanted, rel=1e-9)

    def test_delta_costs_and_few_right_guesses_prove_nothing(self) -> None:
        bounds = [one_run_bound(1000, 500, 400, delta, 0.05) for delta in (0.0, 1e-6, 1e-4)]
        assert bounds[0] > bounds[1] > bounds[2] > 0.0
        assert one_run_bound(1000, 500, 250, 0.0, 0.05) == 0.0
        # Extreme counts stay in logarithms.
        assert math.isfinite(log_p_value(10**6, 10**6, 10**6, 0.0, 1e-300))


class TestScores:
    @staticmethod
    def scores(mu: float, m: int, seed: int) -> tuple[Array, NDArray[np.bool_]]:
        rng = np.random.default_rng(seed)
        coins = rng.random(m) < 0.5
        return rng.normal(mu * coins), coins

    @pytest.mark.parametrize(("m", "least"), [(1000, 1.8), (10_000, 2.4), (100_000, 2.8)])
    def test_ideal_scores_prove_what_the_page_says(self, m: int, least: float) -> None:
        mu = 1.0 / gaussian_sigma(4.0, DELTA)
        found = [audit_scores(*self.scores(mu, m, s), (4.0, DELTA)).certified for s in range(3)]
        assert least < float(np.mean(found)) < 4.0

    @pytest.mark.parametrize("epsilon", [1.0, 4.0])
    def test_too_little_noise_is_caught(self, epsilon: float) -> None:
        mu = 2.0 / gaussian_sigma(epsilon, DELTA)
        report = audit_scores(*self.scores(mu, 100_000, 0), (epsilon, DELTA))
        assert report.exceeds_claim
        assert report.method == "one_run_gaussian"

    def test_scores_that_tell_nothing_prove_nothing(self) -> None:
        scores, coins = self.scores(0.0, 10_000, 1)
        assert audit_scores(scores, coins, (4.0, DELTA)).certified < 0.1
        # Ties are broken by position alone.
        assert audit_scores(np.zeros(10_000), coins, (4.0, DELTA)).certified < 0.1

    def test_pure_claims_are_read_by_counts(self) -> None:
        scores, coins = self.scores(1.0, 10_000, 2)
        report = audit_scores(scores, coins, (4.0, 0.0), method="clopper_pearson")
        assert report.method == "one_run"
        assert 0.5 < report.certified < 4.0

    def test_refusals_name_the_argument(self) -> None:
        scores, coins = self.scores(1.0, 10, 3)
        for arguments, options, named in (
            ((scores[:-1], coins), {}, "coins"),
            ((scores, coins.astype(float)), {}, "coins"),
            ((scores[:, None], coins), {}, "scores"),
            ((np.full(10, np.nan), coins), {}, "scores"),
            ((scores, coins), {"method": "profile"}, "method"),
            ((scores, coins), {"n_guesses": 11}, "n_guesses"),
            ((scores, coins), {"confidence": 1.0}, "confidence"),
        ):
            with pytest.raises(InvalidParameterError) as caught:
                audit_scores(*arguments, (4.0, DELTA), **options)
            assert str(caught.value).startswith(named)
        with pytest.raises(InvalidParameterError):
            audit_scores(scores, coins, (4.0, 0.0))


@pytest.mark.proof("one_run_audit")
def test_the_shared_law_has_the_curve_that_it_is_meant_to_have() -> None:
    """Mixtures of randomised responses, weighted by the absolute value: the Gaussian profile."""
    mu = 0.92
    for epsilon in (0.0, 1.0, 3.0):
        grid = np.linspace(0.0, 12.0, 400_001)
        density = stats.norm.pdf(grid - 0.5 * mu) + stats.norm.pdf(grid + 0.5 * mu)
        chance = 1.0 / (1.0 + np.exp(-mu * grid))
        over = np.maximum(0.0, chance - math.exp(epsilon) * (1.0 - chance))
        found = float(integrate.trapezoid(density * over, grid))
        assert found == pytest.approx(gaussian_delta(epsilon, 1.0 / mu), rel=1e-6)
