"""Ledgers for events whose sizes are chosen on the way: what is admitted, and the odometer."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm

from dpsvm_fast.accounting import composed_epsilon, gaussian_delta, gaussian_sigma
from dpsvm_fast.accounting.adaptive import boundary, pure_mu, pure_of_mu
from dpsvm_fast.certificates import (
    AlternativesEvent,
    ApproximateEvent,
    GaussianEvent,
    ObjectiveEvent,
    ParallelEvent,
    PrivacyEvent,
    PureEvent,
    RandomStoppingEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from dpsvm_fast.exceptions import BudgetExceededError, LedgerError
from dpsvm_fast.ledger import PrivacyLedger
from oracles.ledgers import admitted, spend_all
from oracles.loss_grid import lower_delta

A = "add_remove"


def ledger(epsilon: float = 1.0, delta: float = 1e-5) -> PrivacyLedger:
    return PrivacyLedger(epsilon, delta, adaptive=True)


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 0.01, 0.5, 1.999, 2.001, 10.0, 700.0, 1e4])
def test_a_pure_event_is_simulated_by_the_smallest_gaussian_one(epsilon: float) -> None:
    mu = pure_mu(epsilon)
    # Least error of the second kind at the kink of randomised response, where the curves touch.
    if 1e-3 < epsilon < 30.0:
        kink = 1.0 / (1.0 + math.exp(epsilon))
        assert norm.cdf(norm.ppf(1.0 - kink) - mu) <= kink
        assert norm.cdf(norm.ppf(1.0 - kink) - mu * (1.0 - 1e-9)) > kink
    if epsilon < 1e-3:
        assert mu == pytest.approx(epsilon * math.sqrt(math.pi / 2.0), rel=1e-6)
    assert pure_of_mu(mu) == pytest.approx(epsilon, rel=1e-9)
    assert pure_of_mu(mu * (1.0 - 1e-10)) < epsilon


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
def test_gaussian_events_fill_the_fixed_limit_and_no_more() -> None:
    count = spend_all(ledger(), GaussianEvent(40.0, 1.0, A), 150)
    sigma = gaussian_sigma(1.0, 0.9e-5)
    assert count == math.floor(40.0**2 / sigma**2)
    # A tenth of delta is hardly anything in epsilon.
    assert gaussian_delta(1.0, 40.0 / math.sqrt(count)) > 0.5e-5


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
def test_sizes_may_follow_from_results_and_the_limit_still_holds() -> None:
    rng = np.random.default_rng(3)
    target = ledger()
    squares = 0.0
    for _ in range(300):
        sigma = float(rng.uniform(10.0, 200.0))
        if admitted(target, GaussianEvent(sigma, 1.0, A)):
            squares += sigma**-2
    assert gaussian_delta(1.0, squares**-0.5) <= 0.9e-5 * (1.0 + 1e-6)
    assert target.total()[0] <= 1.0 + 1e-9


def test_pure_events_fill_epsilon_though_their_gaussian_sizes_do_not() -> None:
    assert spend_all(ledger(), PureEvent(0.1, A), 20) == 10
    assert spend_all(PrivacyLedger(1.0, 0.0, adaptive=True), PureEvent(0.1, A), 20) == 10


def test_pure_and_gaussian_events_share_the_limit() -> None:
    target = ledger()
    target.spend(GaussianEvent(20.0, 1.0, A))
    left = target.remaining()
    assert 0.0 < left < 0.5
    with pytest.raises(BudgetExceededError):
        target.spend(PureEvent(left * 1.001, A))
    target.spend(PureEvent(left, A))
    assert target.remaining() < 1e-3 * left
    with pytest.raises(BudgetExceededError):
        target.spend(PureEvent(0.01, A))


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
def test_past_the_gaussian_limit_only_pure_events_go_on() -> None:
    target = ledger()
    target.spend(PureEvent(0.9, A))
    with pytest.raises(BudgetExceededError):
        target.spend(GaussianEvent(1e4, 1.0, A))
    target.spend(PureEvent(0.09, A))
    assert target.total()[0] == pytest.approx(0.99)


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
def test_deltas_have_a_share_of_their_own() -> None:
    target = ledger()
    tenth = ApproximateEvent(1e-3, 1e-7, A)
    assert spend_all(target, tenth, 20) == 10
    # What was kept for them cannot be used otherwise, and what is left is not theirs.
    target.spend(PureEvent(0.5, A))
    with pytest.raises(BudgetExceededError):
        target.spend(ApproximateEvent(1e-3, 1e-12, A))


CURVED = [
    ZCDPEvent(1e-5, A),
    ObjectiveEvent("huber", 1, 500.0, None, 1e-4, A),
    RandomStoppingEvent((GaussianEvent(300.0, 1.0, A),), "geometric", 3.0, A),
    SubsampledGaussianEvent(2.0, 1e-4, 10, A),
]


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
@pytest.mark.parametrize("event", CURVED, ids=lambda e: e.tag)
def test_events_with_a_profile_count_by_one_point_of_it(event: PrivacyEvent) -> None:
    # Each takes a sixteenth of the share of delta.
    assert spend_all(ledger(), event, 20) == 16


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
def test_a_sampled_sum_counts_as_the_whole_sum_where_that_is_less() -> None:
    target = ledger()
    for _ in range(40):
        target.spend(SubsampledGaussianEvent(300.0, 0.9, 1, A))
    assert target.total()[0] < 1.0
    doubled = PrivacyLedger(1.0, 1e-5, "replace_one", adaptive=True)
    once = SubsampledGaussianEvent(30.0, 0.99, 1, "replace_one")
    whole = GaussianEvent(15.0, 1.0, "replace_one")
    doubled.spend(once)
    other = PrivacyLedger(1.0, 1e-5, "replace_one", adaptive=True)
    other.spend(whole)
    assert doubled.total() == other.total()


def test_objective_events_that_are_gaussian_by_another_name_count_as_such() -> None:
    target = ledger()
    target.spend(ObjectiveEvent("logistic", 1, 50.0, 1e-5, None, A))
    other = ledger()
    other.spend(GaussianEvent(50.0, 1.0, A))
    assert target.total()[0] == pytest.approx(other.total()[0], rel=1e-14)


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
@pytest.mark.parametrize("kind", [ParallelEvent, AlternativesEvent])
def test_branches_count_by_the_largest_of_each(kind: type[ParallelEvent]) -> None:
    parts = kind(((GaussianEvent(20.0, 1.0, A),), (ApproximateEvent(1e-4, 3e-7, A),)), A)
    target, other = ledger(), ledger()
    target.spend(parts)
    for event in (GaussianEvent(20.0, 1.0, A), ApproximateEvent(1e-9, 3e-7, A)):
        other.spend(event)
    assert target.total()[0] == pytest.approx(other.total()[0], rel=1e-6)
    assert spend_all(target, ApproximateEvent(1e-9, 3e-7, A), 10) == 2


@pytest.mark.parametrize(
    "event",
    [
        GaussianEvent(1e5, 1.0, A),
        ZCDPEvent(1e-9, A),
        ApproximateEvent(1e-9, 1e-300, A),
        RandomStoppingEvent((GaussianEvent(1e5, 1.0, A),), "geometric", 3.0, A),
    ],
    ids=lambda e: e.tag,
)
def test_a_pure_budget_admits_pure_events_only(event: PrivacyEvent) -> None:
    target = PrivacyLedger(1.0, 0.0, adaptive=True)
    with pytest.raises(BudgetExceededError, match="pure events only"):
        target.spend(event)
    target.spend(PureEvent(1.0, A))
    assert target.odometer() == (1.0, 0.0)


def test_a_release_of_which_nothing_is_known_is_refused_in_words() -> None:
    with pytest.raises(BudgetExceededError, match="no known epsilon"):
        ledger().spend(ZCDPEvent(1e9, A))


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
def test_a_filter_never_admits_more_than_fixed_sizes_allow() -> None:
    event = GaussianEvent(40.0, 1.0, A)
    assert spend_all(ledger(), event, 150) <= spend_all(PrivacyLedger(1.0, 1e-5), event, 150)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize("delta", [0.0, 2.3e-308, 1e-300, 1e-20, 0.5, 1.0 - 2.0**-53])
def test_budgets_at_the_ends_of_their_ranges(epsilon: float, delta: float) -> None:
    target = PrivacyLedger(epsilon, delta, adaptive=True)
    assert target.remaining() >= epsilon
    spend_all(target, GaussianEvent(1e3, 1.0, A), 3)
    spend_all(target, PureEvent(0.5 * epsilon, A), 3)
    spend_all(target, ZCDPEvent(1e-9, A), 3)
    assert target.total()[0] <= max(epsilon, target.epsilon) * (1.0 + 1e-9)
    epsilon, delta = target.odometer()
    assert epsilon >= 0.0
    assert 0.0 <= delta < 1.0


class TestFiles:
    """What an adaptive ledger is stays with it."""

    def test_snapshots_keep_the_rule(self, tmp_path: Path) -> None:
        target = ledger()
        target.spend(GaussianEvent(20.0, 1.0, A))
        target.save(tmp_path / "ledger.json")
        loaded = PrivacyLedger.load(tmp_path / "ledger.json")
        assert loaded.adaptive
        assert loaded.total() == target.total()
        assert loaded.remaining() == target.remaining()

    def test_a_file_is_not_continued_by_the_other_rule(self, tmp_path: Path) -> None:
        path = tmp_path / "ledger.sqlite"
        PrivacyLedger(1.0, 1e-5, path=path, adaptive=True).spend(PureEvent(0.1, A))
        assert len(PrivacyLedger(1.0, 1e-5, path=path, adaptive=True).history) == 1
        with pytest.raises(LedgerError, match="adaptive"):
            PrivacyLedger(1.0, 1e-5, path=path)


class TestOdometer:
    """A running total that holds at any time."""

    def test_it_costs_more_than_a_total_at_a_fixed_time(self) -> None:
        target = PrivacyLedger(2.0, 1e-5)
        previous = 0.0
        for _ in range(8):
            target.spend(GaussianEvent(12.0, 1.0, A))
            epsilon, delta = target.odometer()
            assert delta == pytest.approx(0.9e-5)
            assert epsilon > max(previous, target.total()[0])
            previous = epsilon
        # And not absurdly more near the budget that it is tuned to.
        assert previous < 1.6 * target.total()[0]

    def test_pure_events_cost_at_most_their_sum(self) -> None:
        target = ledger()
        target.spend(PureEvent(0.01, A))
        assert target.odometer()[0] == 0.01

    def test_leaks_are_counted_on_top(self) -> None:
        target = ledger()
        target.spend(ApproximateEvent(0.01, 1e-7, A))
        assert target.odometer(1e-6)[1] == pytest.approx(1.1e-6)
        assert PrivacyLedger(1.0, 1e-5).odometer() == (0.0, pytest.approx(0.9e-5))

    def test_tuning_moves_where_it_is_tight(self) -> None:
        target = PrivacyLedger(8.0, 1e-5)
        target.spend(GaussianEvent(40.0, 1.0, A))
        small, large = (target.odometer(tuned_to=t)[0] for t in (0.3, 8.0))
        assert small < large

    def test_the_boundary_is_where_the_mixture_reaches_one_over_delta(self) -> None:
        for square, delta, prior in ((0.1, 1e-5, 0.02), (4.0, 1e-9, 1.0), (1e-6, 0.5, 1e-6)):
            w = boundary(square, delta, prior) - 0.5 * square

            def log_mixture(w: float, v: float = square, s: float = prior) -> float:
                scale = v + s
                half = norm.logcdf(w / math.sqrt(scale))
                return 0.5 * math.log(s / scale) + 0.5 * w * w / scale + math.log(2.0) + half

            assert log_mixture(w) >= -math.log(delta)
            assert log_mixture(w * (1.0 - 1e-6)) < -math.log(delta)

    def test_the_mixture_is_the_mean_of_its_exponentials(self) -> None:
        v, s, w = 0.3, 0.1, 0.7
        theta = np.linspace(0.0, 60.0, 400_001)
        density = 2.0 * norm.pdf(theta, scale=s**-0.5)
        mean = integrate.trapezoid(np.exp(theta * w - 0.5 * theta**2 * v) * density, theta)
        closed = math.sqrt(s / (v + s)) * math.exp(0.5 * w * w / (v + s))
        assert mean == pytest.approx(2.0 * closed * norm.cdf(w / math.sqrt(v + s)), rel=1e-8)


@pytest.mark.proof("adaptive_composition", "The odometer")
def test_a_total_with_leaks_that_fill_their_share_is_known() -> None:
    """Rounding puts sixteen shares a little above the limit, which the slack of a spend covers."""
    ledger = PrivacyLedger(2.0, 1e-5, adaptive=True)
    for _ in range(16):
        ledger.spend(ApproximateEvent(0.01, 1e-6 / 16 * (1.0 + 1e-12), A))
    ledger.spend(GaussianEvent(6.0, 1.0, A))
    events = [record.event for record in ledger.history]
    total, delta = ledger.total()
    assert lower_delta(events, total) <= delta
    assert composed_epsilon(events, delta) < total < 1.1 * composed_epsilon(events, delta)
