"""Distances from the laws that other events describe: what they cost, wherever costs add up."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest

from dpsvm_fast.accounting import (
    composed_delta,
    composed_epsilon,
    delta_without_distance,
    dp_accounting_tree,
    gaussian_delta,
    gaussian_sigma,
)
from dpsvm_fast.accounting.composition import distance_delta, leak_near_gaussian
from dpsvm_fast.certificates import (
    AlternativesEvent,
    ApproximateEvent,
    DistanceEvent,
    GaussianEvent,
    ParallelEvent,
    PrivacyEvent,
    PureEvent,
    RandomStoppingEvent,
    SubsampledGaussianEvent,
)
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.verification.compose import recomputed_events

ADJACENCY = "replace_one"
GAUSSIAN = GaussianEvent(4.0, 1.0, ADJACENCY)
PURE = PureEvent(1.0, ADJACENCY)


def distance(size: float) -> DistanceEvent:
    return DistanceEvent(size, ADJACENCY)


def hockey_stick(p: list[Fraction], q: list[Fraction], alpha: Fraction) -> Fraction:
    """Sum of what p has more than alpha times q."""
    return sum((max(a - alpha * b, Fraction(0)) for a, b in zip(p, q, strict=True)), Fraction(0))


def total_variation(p: list[Fraction], q: list[Fraction]) -> Fraction:
    """Half the sum of absolute differences."""
    return sum((abs(a - b) for a, b in zip(p, q, strict=True)), Fraction(0)) / 2


# --- the statement as numbers ---------------------------------------------------------------------


@pytest.mark.proof("accountant", "The statements as numbers")
@pytest.mark.parametrize("alpha", [Fraction(2), Fraction(20), Fraction(5, 4)])
def test_the_bound_is_attained_and_no_less_would_do(alpha: Fraction) -> None:
    """Randomised response, moved by T on each data set: the factor in front of T is 1 + e^eps.

    Without e^eps, with 2 or with e^eps alone in its place, this pair is a counterexample.
    """
    T = Fraction(1, 1000)
    p, q = alpha / (1 + alpha), 1 / (1 + alpha)
    exact, exact_of_neighbour = [p, q], [q, p]
    moved, moved_of_neighbour = [p + T, q - T], [q - T, p + T]
    assert total_variation(exact, moved) == T
    assert total_variation(exact_of_neighbour, moved_of_neighbour) == T
    assert hockey_stick(exact, exact_of_neighbour, alpha) == 0
    found = hockey_stick(moved, moved_of_neighbour, alpha)
    assert found == (1 + alpha) * T
    assert found > max(2, alpha) * T
    # And the accountant says so, rounded up.
    epsilon = math.log(alpha)
    stated = composed_delta([PureEvent(epsilon, ADJACENCY), distance(float(T))], epsilon)
    assert float(found) * (1.0 - 1e-12) <= stated <= float(found) * (1.0 + 1e-9)


def random_law(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.asarray(rng.dirichlet(np.ones(n)))


def within(law: np.ndarray, T: float, rng: np.random.Generator) -> np.ndarray:
    """A law within T in total variation: a part of T thrown away and put somewhere else."""
    less = law * rng.uniform(size=law.size)
    less *= min(T, less.sum()) / less.sum()
    return np.asarray(law - less + less.sum() * random_law(rng, law.size))


@pytest.mark.proof("accountant", "The statements as numbers")
def test_chosen_one_after_the_other_distances_add_up() -> None:
    """Two rounds on three outcomes each; the second law depends on the first outcome."""
    rng = np.random.default_rng(1)
    T = (0.01, 0.02)
    for _ in range(300):
        alpha = float(rng.uniform(1.0, 4.0))
        first = random_law(rng, 3), random_law(rng, 3)
        second = [(random_law(rng, 3), random_law(rng, 3)) for _ in range(3)]
        ideal = [np.concatenate([first[d][i] * second[i][d] for i in range(3)]) for d in range(2)]
        real = []
        for d in range(2):
            start = within(first[d], T[0], rng)
            rest = [within(second[i][d], T[1], rng) for i in range(3)]
            real.append(np.concatenate([start[i] * rest[i] for i in range(3)]))
        delta = np.maximum(ideal[0] - alpha * ideal[1], 0.0).sum()
        found = np.maximum(real[0] - alpha * real[1], 0.0).sum()
        assert found <= delta + (1.0 + alpha) * sum(T) + 1e-12


@pytest.mark.proof("accountant", "The statements as numbers")
def test_the_sum_of_two_distances_is_attained() -> None:
    """The second round is looked at where the first told nothing; the larger alone is refuted."""
    alpha, T = Fraction(3), (Fraction(1, 10**4), Fraction(2, 10**4))

    def both(first: Fraction, second: Fraction) -> list[Fraction]:
        """Told in the first round, told in the second, told nothing."""
        return [first, (1 - first) * second, (1 - first) * (1 - second)]

    ideal = both(alpha * T[0], alpha * T[1]), both(T[0], T[1])
    real = both((alpha + 1) * T[0], (alpha + 1) * T[1]), both(Fraction(0), Fraction(0))
    assert hockey_stick(*ideal, alpha) == 0
    found = hockey_stick(*real, alpha)
    assert (1 + alpha) * max(T) < found <= (1 + alpha) * sum(T)
    assert found > Fraction(99, 100) * (1 + alpha) * sum(T)


@pytest.mark.proof("accountant", "The statements as numbers")
def test_the_leak_near_a_gaussian_is_the_most_that_an_unlikely_event_can_have() -> None:
    """An event of probability T, on the side where the neighbour's law lies: at most that."""
    for mu, T in ((0.5, 1e-3), (2.0, 1e-8), (4.0, 2.0**-80)):
        z = -mpmath.findroot(lambda x, T=T: mpmath.log(mpmath.ncdf(x)) - mpmath.log(T), -3.0)
        exact = mpmath.ncdf(mu - z)
        stated = leak_near_gaussian(mu, T)
        assert exact + T <= stated <= (exact + T) * (1 + 1e-9)
        # Concave: two releases cost no more than two at the mean of their distances.
        other = leak_near_gaussian(mu, 3.0 * T)
        assert stated + other <= 2.0 * leak_near_gaussian(mu, 2.0 * T)


@pytest.mark.proof("accountant", "The statements as numbers")
def test_what_is_killed_tells_no_more_than_stated() -> None:
    """A Gaussian pair on a grid, each law moved by T: the worst way, and random ones."""
    mu, T = 1.5, 1e-3
    x = np.linspace(-9.0, 9.0, 3601)
    width = x[1] - x[0]
    laws = [np.exp(-0.5 * (x - shift) ** 2) * width / math.sqrt(2.0 * math.pi) for shift in (mu, 0)]
    ideal = [law / law.sum() for law in laws]
    rng = np.random.default_rng(2)
    found = []
    for kind in range(40):
        real = [within(law, T, rng) for law in ideal]
        if kind == 0:
            # All that the neighbour has above a quantile is gone.
            tail = np.cumsum(ideal[1][::-1])[::-1] <= T
            real[1] = np.where(tail, 0.0, ideal[1])
            real[1] /= real[1].sum()
        left = np.minimum(1.0, np.minimum(real[0] / ideal[0], real[1] / ideal[1]))
        for d in range(2):
            # What is left lies below the real law, so that the rest can be made up for.
            assert np.all(ideal[d] * left <= real[d] * (1.0 + 1e-12))
        found.append(float((ideal[0] * (1.0 - left)).sum()))
    stated = leak_near_gaussian(mu, T)
    assert max(found) <= stated * (1.0 + 1e-6)
    # The first one is not far, and well above twice the distance.
    assert found[0] > 0.9 * (stated - T) > 2.0 * T


# --- the accountant -------------------------------------------------------------------------------


@pytest.mark.proof("accountant", "The accountant")
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0, 40.0])
def test_delta_is_the_least_of_the_sum_up_to_epsilon(epsilon: float) -> None:
    T = 1e-9
    x = np.linspace(0.0, epsilon, 2001)
    exact = [gaussian_delta(float(e), 4.0) + (1.0 + math.exp(e)) * T for e in x]
    found = composed_delta([GAUSSIAN, distance(T)], epsilon)
    assert min(exact) * (1.0 - 1e-3) <= found <= min(exact) * (1.0 + 1e-9)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "others",
    [
        (GAUSSIAN,),
        (PURE, PURE),
        (GAUSSIAN, PURE),
        (GAUSSIAN, ApproximateEvent(0.5, 1e-7, ADJACENCY)),
    ],
    ids=str,
)
@pytest.mark.parametrize("T", [2.0**-80, 1e-8])
def test_epsilon_and_delta_belong_together(others: tuple[PrivacyEvent, ...], T: float) -> None:
    events = (*others, distance(T))
    for delta in (1e-5, 3e-7):
        epsilon = composed_epsilon(events, delta)
        assert composed_delta(events, epsilon) <= delta * (1.0 + 1e-9)
        assert composed_delta(events, epsilon * (1.0 - 1e-6)) > delta
        assert epsilon >= composed_epsilon(others, delta)
        # The other side finds the same, by other ways.
        assert recomputed_events(events, epsilon, delta)[2]
        assert not recomputed_events(events, 0.97 * epsilon, delta)[2]


@pytest.mark.slow
@pytest.mark.parametrize("T", [1e-8, 2.0**-80])
def test_with_sampled_sums(T: float) -> None:
    """Where delta is known on a grid only: both sides still find the same."""
    events = (SubsampledGaussianEvent(2.0, 0.1, 50, ADJACENCY), distance(T))
    epsilon = composed_epsilon(events, 1e-6)
    assert epsilon >= composed_epsilon(events[:1], 1e-6 - 2.0 * T)
    assert epsilon <= composed_epsilon(events[:1], 1e-6) * (1.0 + 20.0 * T / 1e-6)
    recomputed = recomputed_events(events, epsilon, 1e-6)
    assert recomputed[2]
    assert recomputed[0] == pytest.approx(epsilon, rel=1e-3)


def test_distances_add_up_exactly() -> None:
    once = composed_delta([PURE, distance(3e-9)], 1.0)
    assert composed_delta([PURE, *[distance(1e-9)] * 3], 1.0) == pytest.approx(once, rel=1e-14)
    assert composed_delta([PURE, *[distance(1e-9)] * 2], 1.0) < 0.67 * once


def test_there_may_be_no_epsilon() -> None:
    assert math.isinf(composed_epsilon([GAUSSIAN, distance(5e-7)], 1e-6))
    assert math.isinf(composed_epsilon([PURE, distance(1e-9)], 0.0))
    assert composed_epsilon([distance(1e-9)], 3e-9) == 0.0
    assert math.isinf(composed_epsilon([distance(1e-9)], 1.9e-9))


@pytest.mark.parametrize("T", [5e-324, 1e-300, 2.0**-80, 1e-3, 0.999])
def test_nothing_overflows(T: float) -> None:
    for epsilon in (0.0, 1.0, 699.0, 701.0, 745.0, 1e4):
        size = distance_delta(Fraction(T), epsilon)
        exact = min(mpmath.mpf(1), (1 + mpmath.exp(epsilon)) * mpmath.mpf(T))
        assert exact <= size <= exact * (1 + mpmath.mpf(10) ** -9) + mpmath.mpf(2) ** -1074
        found = composed_delta([GAUSSIAN, distance(T)], epsilon)
        most = composed_delta([GAUSSIAN], 0.0) + 2.0 * T
        assert 0.0 < found <= min(1.0, most * (1.0 + 1e-12))
        assert 0.0 <= recomputed_events((GAUSSIAN, distance(T)), max(epsilon, 0.1), 0.5)[1] <= 1.0


def test_a_large_loss_is_found_between_two_plateaus() -> None:
    """Below, delta is 1 for the Gaussian; above, for the distance: the promise is in between."""
    events = [GaussianEvent(1.0, 30.0, ADJACENCY), distance(1e-300)]
    assert composed_delta(events, 690.0) < 1e-6
    assert composed_delta(events, 1e4) < 1e-6
    assert recomputed_events(tuple(events), 690.0, 1e-6)[2]


# --- events with events inside --------------------------------------------------------------------


@pytest.mark.proof("accountant", "The accountant")
def test_of_parallel_branches_the_farthest_counts() -> None:
    near, far = (GAUSSIAN, distance(1e-9)), (GAUSSIAN, distance(1e-8))
    for kind in (ParallelEvent, AlternativesEvent):
        whole = kind((near, far, (GAUSSIAN,)), ADJACENCY)
        for epsilon in (0.5, 1.0):
            assert composed_delta([whole], epsilon) == composed_delta(far, epsilon)
            # Of a claim that holds: below a false one the check stops as soon as it shows that.
            recomputed = recomputed_events((whole,), epsilon, 1e-2)[1]
            assert recomputed == pytest.approx(composed_delta(far, epsilon), rel=1e-8)
        twice = composed_delta([whole, whole], 1.0)
        assert twice == pytest.approx(composed_delta([*far, *far], 1.0), rel=1e-12)


@pytest.mark.proof("accountant", "The accountant")
def test_the_farthest_alternative_need_not_be_the_most_expensive() -> None:
    """Then both the dearest law and the farthest distance count."""
    mixed = AlternativesEvent(((GAUSSIAN,), (PureEvent(0.1, ADJACENCY), distance(1e-8))), ADJACENCY)
    found = composed_delta([mixed], 1.0)
    # The largest of two deltas is known by a table.
    exact = composed_delta([GAUSSIAN, distance(1e-8)], 1.0)
    assert exact <= found <= 1.01 * exact
    only = AlternativesEvent(((distance(1e-8),), (distance(1e-9),)), ADJACENCY)
    assert composed_delta([only], 0.0) == pytest.approx(2e-8, rel=1e-9)
    assert recomputed_events((only, mixed), 1.0, 1e-3)[1] == pytest.approx(
        composed_delta([only, mixed], 1.0), rel=1e-2
    )


@pytest.mark.parametrize(
    "base", [(PURE, distance(1e-9)), (ParallelEvent(((PURE, distance(1e-9)),), ADJACENCY),)]
)
def test_the_best_of_many_runs_is_refused(base: tuple[PrivacyEvent, ...]) -> None:
    with pytest.raises(InvalidParameterError, match="DistanceEvent"):
        RandomStoppingEvent(base, "geometric", 5.0, ADJACENCY)


# --- ledgers --------------------------------------------------------------------------------------


def test_a_ledger_admits_what_was_calibrated_with_the_distance() -> None:
    T = 1e-8
    left = delta_without_distance(1.0, 1e-6, T)
    noise = GaussianEvent(gaussian_sigma(1.0, left), 1.0, ADJACENCY)
    ledger = PrivacyLedger(1.0, 1e-6, ADJACENCY)
    ledger.spend((noise, distance(T)))
    assert ledger.total()[0] == pytest.approx(1.0, rel=1e-8)
    # Without leaving room for it, it would not fit.
    other = PrivacyLedger(1.0, 1e-6, ADJACENCY)
    full = GaussianEvent(gaussian_sigma(1.0, 1e-6), 1.0, ADJACENCY)
    with pytest.raises(BudgetExceededError):
        other.spend((full, distance(T)))
    other.spend(full)


def test_what_remains_is_admitted() -> None:
    ledger = PrivacyLedger(1.0, 1e-6, ADJACENCY)
    ledger.spend((GaussianEvent(12.0, 1.0, ADJACENCY), distance(1e-7)))
    rest = ledger.remaining()
    assert 0.1 < rest < 1.0 - ledger.total()[0]
    ledger.spend(PureEvent(rest, ADJACENCY))


def test_a_larger_budget_admits_what_a_smaller_one_does() -> None:
    """At epsilon = 60 the distance would cost all of delta; the promise is made below it."""
    events = (GaussianEvent(6.0, 1.0, ADJACENCY), distance(2.0**-80))
    PrivacyLedger(1.0, 1e-6, ADJACENCY).spend(events)
    ledger = PrivacyLedger(60.0, 1e-6, ADJACENCY)
    ledger.spend(events)
    assert ledger.total()[0] < 1.0


def test_a_pure_budget_admits_no_distance() -> None:
    for adaptive in (False, True):
        ledger = PrivacyLedger(1.0, 0.0, ADJACENCY, adaptive=adaptive)
        with pytest.raises(BudgetExceededError):
            ledger.spend((PureEvent(0.1, ADJACENCY), distance(1e-300)))


def test_an_adaptive_ledger_pays_from_the_leak() -> None:
    """A tenth of delta is for what is told outright, at most; distances come out of it."""
    ledger = PrivacyLedger(1.0, 1e-6, ADJACENCY, adaptive=True)
    noise = GaussianEvent(20.0, 1.0, ADJACENCY)
    for _ in range(5):
        ledger.spend((noise, distance(2.0**-80)))
    plain = PrivacyLedger(1.0, 1e-6, ADJACENCY, adaptive=True)
    for _ in range(5):
        plain.spend(noise)
    assert ledger.remaining() == plain.remaining()
    at_any_time = plain.odometer()
    found = ledger.odometer()
    assert found[0] == at_any_time[0]
    assert at_any_time[1] < found[1] + 1e-30 < at_any_time[1] * (1.0 + 1e-9)
    # (1 + e) T = 1.1e-7 is more than a tenth of delta, and so is what a Gaussian lets such an event
    # have; of a tenth of that distance it is less.
    with pytest.raises(BudgetExceededError):
        ledger.spend((noise, distance(3e-8)))
    ledger.spend((noise, distance(3e-9)))


@pytest.mark.proof("accountant", "The accountant")
def test_many_small_distances_cost_an_adaptive_ledger_what_they_have_to() -> None:
    """A Gaussian release of the whole budget's size may be behind each of them."""
    ledger = PrivacyLedger(1.0, 1e-6, ADJACENCY, adaptive=True)
    size = 1.0 / gaussian_sigma(1.0, 0.9e-6)
    T = 1e-10
    admitted = int(1e-7 / leak_near_gaussian(size, T))
    for _ in range(admitted):
        ledger.spend(distance(T))
    assert 50 < admitted < 500
    with pytest.raises(BudgetExceededError):
        ledger.spend((GaussianEvent(1e3, 1.0, ADJACENCY), *[distance(T)] * admitted))


def test_an_odometer_adds_what_distances_tell() -> None:
    pure, noisy = (PrivacyLedger(1.0, 1e-6, ADJACENCY) for _ in range(2))
    pure.spend((PureEvent(0.2, ADJACENCY), distance(1e-8)))
    epsilon, delta = pure.odometer(1e-7)
    assert epsilon == pytest.approx(0.2)
    assert delta - 1e-7 == pytest.approx((1.0 + math.exp(0.2)) * 1e-8, rel=1e-6)
    noisy.spend((GaussianEvent(10.0, 1.0, ADJACENCY), distance(1e-8)))
    epsilon, delta = noisy.odometer(1e-7)
    assert delta - 1e-7 == pytest.approx(leak_near_gaussian(0.1, 1e-8), rel=1e-6)


def test_distances_survive_files(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = PrivacyLedger(1.0, 1e-6, ADJACENCY, path=path)
    events = (GaussianEvent(6.0, 1.0, ADJACENCY), distance(0.1 + 2.0**-54))
    with pytest.raises(BudgetExceededError):
        ledger.spend(events)
    events = (events[0], distance(0.1 * 2.0**-60))
    ledger.spend(events)
    again = PrivacyLedger(1.0, 1e-6, ADJACENCY, path=path)
    assert tuple(record.event for record in again.history) == events
    again.save(tmp_path / "copy.json")
    loaded = PrivacyLedger.load(tmp_path / "copy.json")
    assert loaded.total() == ledger.total()
    assert PrivacyEvent.from_dict(json.loads(json.dumps(events[1].to_dict()))) == events[1]


# --- the rest -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0.0, 1.0, -0.1, math.nan, math.inf, "1", None, True])
def test_what_is_no_distance_is_refused(size: object) -> None:
    with pytest.raises((TypeError, InvalidParameterError), match="distance"):
        DistanceEvent(size, ADJACENCY)  # type: ignore[arg-type]


def test_what_is_left_for_everything_else() -> None:
    exact = Fraction(1e-6) - (1 + Fraction(math.exp(2.0))) * Fraction(1e-8)
    left = delta_without_distance(2.0, 1e-6, 1e-8)
    assert float(exact) * (1.0 - 1e-12) <= left <= float(exact) * (1.0 + 1e-12)
    assert delta_without_distance(2.0, 1e-6, 0.0) == 1e-6
    for epsilon, T in ((2.0, 2e-7), (50.0, 2.0**-80), (1e4, 1e-300)):
        with pytest.raises(InvalidParameterError, match="smaller epsilon"):
            delta_without_distance(epsilon, 1e-6, T)


def test_the_other_library_refuses_a_distance() -> None:
    tree = dp_accounting_tree([GAUSSIAN, distance(1e-9)])
    assert {"type": "UnsupportedDpEvent"} in tree["events"]
    for kind in (ParallelEvent, AlternativesEvent):
        branches = ((GAUSSIAN, GAUSSIAN), (GAUSSIAN, distance(1e-9)))
        assert dp_accounting_tree([kind(branches, ADJACENCY)]) == {"type": "UnsupportedDpEvent"}
        covered = kind((branches[0], (GAUSSIAN,)), ADJACENCY)
        assert dp_accounting_tree([covered])["type"] == "SelfComposedDpEvent"
