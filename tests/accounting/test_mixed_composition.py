"""Sampled Gaussian sums and zCDP among other events: composition and ledger."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsvm_fast import _core
from dpsvm_fast.accounting import (
    composed_delta,
    composed_epsilon,
    composition,
    gaussian_delta,
    gaussian_epsilon,
    subsampled_gaussian_epsilon,
    subsampled_gaussian_noise_multiplier,
)
from dpsvm_fast.accounting.composition import totals_epsilon, totals_fit
from dpsvm_fast.accounting.objective import profile
from dpsvm_fast.accounting.totals import Totals, choices, of_events
from dpsvm_fast.certificates import (
    AlternativesEvent,
    ApproximateEvent,
    DistanceEvent,
    GaussianEvent,
    ObjectiveEvent,
    ParallelEvent,
    PrivacyEvent,
    PureEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.verification.compose import recomputed_events
from dpsvm_fast.verification.sampled import Losses
from dpsvm_fast.verification.sampled import composed_delta as checked_delta
from oracles.composed_losses import composed_epsilon as checked_epsilon
from oracles.ledgers import spend_all
from oracles.stored import stored

RELATIONS = ("add_remove", "replace_one")
# The check rounds to nearest, the accountant up; how far it may be above.
BELOW, ABOVE = 1e-4, 2e-2
ZCDP = [
    point
    for section in stored("composition")["points"]
    if section["section"] == "zcdp"
    for point in section["points"]
]


def sampled(z: float, q: float, n_steps: int, adjacency: str = "add_remove") -> PrivacyEvent:
    return SubsampledGaussianEvent(z, q, n_steps, adjacency)


MIXTURES: list[Any] = [
    pytest.param(Losses(mu=0.3, sampled=((1.5, 0.02, 300),)), 1.5, marks=pytest.mark.slow),
    pytest.param(
        Losses(mu=0.01, sampled=((1.5, 0.02, 300), (0.8, 0.01, 20))), 2.5, marks=pytest.mark.slow
    ),
    (Losses(sampled=((2.0, 0.1, 50),), pure=((0.3, 2),)), 2.0),
    (Losses(mu=0.5, sampled=((1.0, 0.05, 10),), pure=((0.2, 1), (0.05, 40))), 4.0),
]


def events_of(losses: Losses, adjacency: str) -> list[PrivacyEvent]:
    """The same as a list of events."""
    events = [sampled(*group, adjacency) for group in losses.sampled]
    events += [PureEvent(size, adjacency) for size, count in losses.pure for _ in range(count)]
    if losses.mu:
        events.append(GaussianEvent(1.0, losses.mu, adjacency))
    return events


@pytest.mark.sampled(every=2)
@pytest.mark.proof("accountant", "The accountant")
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize(("losses", "epsilon"), MIXTURES, ids=str)
def test_mixtures_against_the_independent_check(
    losses: Losses, epsilon: float, adjacency: str
) -> None:
    events = events_of(losses, adjacency)
    exact = Losses(**vars(losses) | {"replace_one": adjacency == "replace_one"})
    delta = checked_delta(epsilon, exact)
    assert 1e-14 < delta < 1.0
    got = composed_delta(events, epsilon)
    assert delta * (1.0 - BELOW) <= got <= delta * (1.0 + ABOVE)
    wanted = checked_epsilon(1e-6, exact, epsilon)
    found = composed_epsilon(events, 1e-6)
    assert wanted * (1.0 - 1e-5) <= found <= wanted * (1.0 + 2e-3)
    # Negative control: two percent less noise in one group is outside of what is allowed.
    (z, q, n), *rest = losses.sampled
    fewer = events_of(Losses(**vars(losses) | {"sampled": ((0.98 * z, q, n), *rest)}), adjacency)
    assert composed_epsilon(fewer, 1e-6) > found


@pytest.mark.proof("accountant", "The accountant")
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_equal_steps_add_up(adjacency: str) -> None:
    one, all_steps = sampled(1.3, 0.01, 50, adjacency), sampled(1.3, 0.01, 400, adjacency)
    assert composed_epsilon([one] * 8, 1e-5) == composed_epsilon([all_steps], 1e-5)
    assert composed_epsilon([all_steps], 1e-5) == subsampled_gaussian_epsilon(
        1.3, 0.01, 400, 1e-5, adjacency
    )


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_a_sample_of_everyone_is_a_gaussian_event(adjacency: str) -> None:
    moved = {"add_remove": 1.0, "replace_one": 2.0}[adjacency] * 5.0
    events = [sampled(9.0, 1.0, 25, adjacency), GaussianEvent(9.0, moved, adjacency)]
    exact = gaussian_epsilon(1e-6, 9.0, math.sqrt(2.0) * moved)
    assert composed_epsilon(events, 1e-6) == pytest.approx(exact, rel=1e-12)


@pytest.mark.proof("accountant", "The accountant")
@pytest.mark.parametrize("point", ZCDP, ids=lambda p: f"{p['rho']}-{p['delta']}")
def test_zcdp_alone(point: dict[str, Any]) -> None:
    event = ZCDPEvent(float(point["rho"]), "add_remove")
    reference = float(point["epsilon_cks"])
    got = composed_epsilon([event], float(point["delta"]))
    assert reference * (1.0 - 1e-12) <= got <= reference * (1.0 + 1e-6) + 1e-12
    assert composed_delta([event], got) <= float(point["delta"]) * (1.0 + 1e-6)
    halves = [ZCDPEvent(0.5 * float(point["rho"]), "add_remove")] * 2
    assert composed_epsilon(halves, float(point["delta"])) == got


@pytest.mark.proof("accountant", "The accountant")
def test_zcdp_among_gaussian_events_is_at_most_what_rho_says_of_both() -> None:
    """A Gaussian mechanism is zCDP with rho = mu^2 / 2, and more is known about it."""
    mu, rho, delta = 0.4, 0.05, 1e-6
    events = [GaussianEvent(1.0, mu, "add_remove"), ZCDPEvent(rho, "add_remove")]
    together = composed_epsilon(events, delta)
    by_rho = composed_epsilon([ZCDPEvent(rho + mu * mu / 2.0, "add_remove")], delta)
    as_gaussian = gaussian_epsilon(delta, 1.0, math.sqrt(mu * mu + 2.0 * rho))
    assert as_gaussian < together <= by_rho
    # The mixture gains by the exact law of the Gaussian part.
    assert together < by_rho * (1.0 - 1e-3)


@pytest.mark.sampled(every=2)
@pytest.mark.proof("accountant", "The accountant")
@pytest.mark.parametrize("kappa", [None, 0.2])
def test_an_objective_event_with_sampled_steps(kappa: float | None) -> None:
    """Between the Gaussian loss that its gradient has at least, and basic composition."""
    jacobian = None if kappa else 0.1
    inside = ObjectiveEvent("huber", 1, 4.0, kappa, jacobian, "add_remove")
    steps, delta = sampled(1.5, 0.02, 300), 1e-5
    got = composed_epsilon([inside, steps], delta)
    at_least = checked_epsilon(delta, Losses(mu=0.25, sampled=((1.5, 0.02, 300),)))
    basic = composed_epsilon([inside], delta / 2) + composed_epsilon([steps], delta / 2)
    assert at_least < got < basic


def test_what_has_gaussian_noise_is_never_pure() -> None:
    for event in (sampled(30.0, 0.001, 1), ZCDPEvent(1e-6, "add_remove")):
        assert composed_epsilon([event], 0.0) == math.inf
        with pytest.raises(BudgetExceededError, match="pure"):
            PrivacyLedger(1.0, 0.0).spend(event)
    # Hopeless noise is hopeless, not an error.
    assert composed_delta([sampled(1e-3, 0.5, 10)], 1.0) > 0.99
    assert composed_delta([ZCDPEvent(1e300, "add_remove")], 1.0) == 1.0
    mixed = [sampled(1e-3, 0.5, 10), GaussianEvent(1e-200, 1e-3, "add_remove")]
    assert composed_delta(mixed, 1.0) > 0.99
    relations = [sampled(1.0, 0.1, 1), sampled(1.0, 0.1, 1, "replace_one")]
    with pytest.raises(InvalidParameterError, match="relations"):
        composed_epsilon(relations, 1e-5)


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_a_calibrated_event_fills_a_ledger(adjacency: str) -> None:
    z = subsampled_gaussian_noise_multiplier(1.0, 1e-5, 0.02, 400, adjacency)
    ledger = PrivacyLedger(1.0, 1e-5, adjacency)
    ledger.spend(sampled(z, 0.02, 400, adjacency), label="DP-SGD")
    assert ledger.total()[0] == pytest.approx(1.0, rel=2e-3)
    assert "subsampled_gaussian" in str(ledger)
    with pytest.raises(BudgetExceededError, match="needs"):
        ledger.spend(sampled(z, 0.02, 40, adjacency))
    # What remains is admitted.
    more = PrivacyLedger(1.5, 1e-5, adjacency)
    more.spend(sampled(z, 0.02, 400, adjacency))
    assert more.remaining() == pytest.approx(0.5, rel=5e-3)
    more.spend(PureEvent(more.remaining(), adjacency))


def test_thousands_of_equal_events_need_few_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand steps one by one cost as much as all of them, and are told apart from none."""
    calls = []

    def counted(compiled: Callable[..., float], *arguments: Any) -> float:
        calls.append(arguments)
        return compiled(*arguments)

    for name in ("subsampled_gaussian_epsilon", "subsampled_gaussian_delta"):
        monkeypatch.setattr(_core, name, partial(counted, getattr(_core, name)))
    quick = composition.Grid.quick_epsilon
    monkeypatch.setattr(composition.Grid, "quick_epsilon", lambda *asked: counted(quick, *asked))
    budget = subsampled_gaussian_epsilon(1.0, 0.011, 1000, 1e-5)
    ledger = PrivacyLedger(budget, 1e-5)
    for _ in range(1000):
        ledger.spend(sampled(1.0, 0.011, 1))
    assert ledger.total()[0] == pytest.approx(budget, rel=1e-9)
    # Each is one step of a growing number, and what was shown to fit is remembered.
    assert 10 < len(calls) < 300
    with pytest.raises(BudgetExceededError):
        ledger.spend(sampled(1.0, 0.011, 20))
    assert len(ledger.history) == 1000


def test_a_proof_of_what_fits_is_not_stretched() -> None:
    """Negative control of the memory: other sizes, rates and kinds are looked at afresh."""
    epsilon = subsampled_gaussian_epsilon(1.0, 0.01, 1000, 1e-5)
    ledger = PrivacyLedger(epsilon, 1e-5)
    ledger.spend(sampled(1.0, 0.01, 900))
    for event in (
        sampled(1.0, 0.01, 200),
        sampled(0.8, 0.01, 300),
        sampled(1.0, 0.02, 200),
        GaussianEvent(1.0, 0.5, "add_remove"),
        ZCDPEvent(0.1, "add_remove"),
        PureEvent(0.5 * epsilon, "add_remove"),
    ):
        with pytest.raises(BudgetExceededError):
            ledger.check(event)
    ledger.check(sampled(1.0, 0.01, 95))


@pytest.mark.sampled
@pytest.mark.proof("accountant", "Termination")
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("seed", range(4))
def test_quick_and_close_bounds_decide_alike(seed: int, adjacency: str) -> None:
    """What fits is what epsilon says, whichever bound is looked at first, and however often."""
    rng = np.random.default_rng(seed)
    decided = 0
    for _ in range(8):
        sigma = 10.0 ** rng.uniform(0.3, 1.5)
        events = [
            GaussianEvent(1.0, 10.0 ** rng.uniform(-1.0, 0.5), adjacency),
            DistanceEvent(10.0 ** rng.uniform(-9.0, -5.0), adjacency),
            PureEvent(10.0 ** rng.uniform(-2.0, 0.5), adjacency),
            sampled(10.0 ** rng.uniform(-0.1, 8.0), 10.0 ** rng.uniform(-4.0, -1.0), 50, adjacency),
            ObjectiveEvent("logistic", 1, sigma, 1.0 / sigma, None, adjacency),
            ZCDPEvent(10.0 ** rng.uniform(-6.0, -1.0), adjacency),
        ]
        kept = rng.choice(len(events), int(rng.integers(2, 6)), replace=False)
        delta = 10.0 ** rng.uniform(-6.0, -3.0)
        totals = of_events([events[i] for i in kept])
        epsilon = totals_epsilon(totals, delta)
        if not 0.0 < epsilon < math.inf:
            continue
        decided += 1
        for share in (0.97, 1.001, 0.97, 1.5, 1.001):
            assert totals_fit(totals, share * epsilon, delta) == (share > 1.0)
    assert decided > 2


@pytest.mark.proof("accountant", "Termination")
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize(("losses", "epsilon"), MIXTURES, ids=str)
def test_a_quick_delta_is_a_close_bound(losses: Losses, epsilon: float, adjacency: str) -> None:
    (choice,) = choices(of_events(events_of(losses, adjacency)))
    close = composition._choice_delta(choice, epsilon)
    quick = composition._choice_delta(choice, epsilon, quick=True)
    exact = checked_delta(
        epsilon, Losses(**vars(losses) | {"replace_one": adjacency == "replace_one"})
    )
    assert exact * (1.0 - BELOW) <= quick <= close * 1.01


@pytest.mark.proof("accountant", "Termination")
def test_many_branches_that_no_grid_suits_are_bounded_by_basic_composition() -> None:
    """Of each branch a quick bound says 1394, and only three of five are looked at closely."""
    rare = (
        sampled(0.04390217643119719, 2.282098638344828e-08, 1),
        sampled(3.9878985100641557, 7.660341263101138e-05, 39966),
        sampled(7.594586540091908, 9.235513364715975e-06, 111531),
        ObjectiveEvent("softmax", 2, 11722.77, 2.3282628694505327e-4, None, "add_remove"),
    )
    more = [(PureEvent(1e-3 * k, "add_remove"), 1e-4 * (6 - k)) for k in range(1, 6)]
    branches = tuple((*rare, pure, GaussianEvent(1.0, mu, "add_remove")) for pure, mu in more)
    event, delta = ParallelEvent(branches, "add_remove"), 2.2862802550863572e-06
    epsilon = composed_epsilon([event], delta)
    assert epsilon < 0.0225
    ledger = PrivacyLedger(1.0, delta)
    ledger.spend(event)
    assert ledger.total()[0] == epsilon
    assert ledger.remaining() == pytest.approx(1.0 - epsilon, rel=1e-6)


def test_where_many_choices_are_close_a_spend_is_refused_rather_than_waited_for() -> None:
    """Four histories that only a closer look admits, of which one spend may take three."""
    looked: list[float] = []

    def closely(_: Totals, epsilon: float, delta: float) -> bool:
        looked.append(epsilon * delta)
        return True

    branches = tuple((sampled(1.0, 0.01 + 0.0001 * i, 1000 - 20 * i),) for i in range(4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composition, "_is_decided_quickly", lambda *_: None)
        patch.setattr(composition, "_is_shown_closely", closely)
        for n, fits in ((3, True), (4, False)):
            totals = of_events([ParallelEvent(branches[:n], "add_remove")])
            assert len(choices(totals)) == n
            assert totals_fit(totals, 1.0, 1e-5) == fits
        assert len(looked) == 3
        ledger = PrivacyLedger(1.0, 1e-5, periods=list("abcdefgh"))
        for i, name in enumerate("abcdefg"):
            ledger.for_periods(name).spend(PureEvent(0.01 * (i + 1), "add_remove"))
        looked.clear()
        with pytest.raises(BudgetExceededError):
            ledger.spend(sampled(1.0, 0.01, 10))
        assert len(looked) == composition.MAX_LOOKS


def test_distances_far_below_a_large_budget_need_no_closer_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At epsilon = 100 distances cost more than delta, at the 2 that are enough they do not."""
    monkeypatch.setattr(composition, "_is_shown_closely", lambda *_: pytest.fail("looked closely"))
    branches = tuple((sampled(1.0, 0.01 + 0.001 * i, 1000),) for i in range(3))
    events = [ParallelEvent(branches, "add_remove"), DistanceEvent(1e-9, "add_remove")]
    assert len(choices(of_events(events))) == 3
    assert totals_fit(of_events(events), 100.0, 1e-5)


def test_close_looks_beside_distances_end_at_what_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Quick answers are too large here: more than delta allows distances to take."""
    (choice,) = choices(of_events([DistanceEvent(1e-5 * math.exp(-20.6), "add_remove")]))
    looks = []

    def needed(one: Totals, epsilon: float, delta: float, *, quick: bool = False) -> float:
        left = composition._left(one, epsilon, delta)
        looks.extend([] if quick or left <= 0.0 else [epsilon])
        close = 20.0 + 0.2 * math.log(delta / left) if left > 0.0 else math.inf
        return 1.03 * close if quick else close

    monkeypatch.setattr(composition, "_epsilon_of_rest", needed)
    assert composition._choice_epsilon(choice, 1e-5, quick=True) == math.inf
    found = composition._choice_epsilon(choice, 1e-5, enough=25.0)
    assert (len(looks), needed(choice, found, 1e-5)) == (2, pytest.approx(20.4, abs=0.1))
    closer = composition._choice_epsilon(choice, 1e-5)
    assert needed(choice, closer, 1e-5) <= closer < found
    # Nobody looks where even what is needed without distances is far more than they allow.
    (choice,) = choices(of_events([DistanceEvent(1e-5 * math.exp(-15.0), "add_remove")]))
    looks.clear()
    assert composition._choice_epsilon(choice, 1e-5) == math.inf
    assert looks == []


def test_pure_events_beyond_what_distances_leave_have_no_epsilon() -> None:
    """Seven pure events and a distance, which costs more than delta where their loss is covered."""
    pure, distance = PureEvent(1.4724540856485937, "add_remove"), 1.4725005913560034e-09
    branches = ((pure,), (DistanceEvent(distance, "add_remove"),))
    events = [ApproximateEvent(3.337903908211752, 1.54e-6, "add_remove")]
    alone = [*events, *[pure] * 7, DistanceEvent(distance, "add_remove")]
    assert composed_epsilon(alone, 3.1e-5) == math.inf
    together = [*events, *[ParallelEvent(branches, "add_remove")] * 8]
    for delta in (3.1e-5, 5e-5, 1e-4):
        assert composed_epsilon(together, delta) == math.inf


@pytest.mark.proof("accountant", "Dominating pairs")
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_a_rare_join_of_little_noise_counts_as_an_infinite_loss(adjacency: str) -> None:
    # A record that joins, with probability 2e-5, loses about 36, which makes a grid for all coarse.
    kinds = ((0.094, 1e-9, 20_000), (2.0, 0.01, 300))
    events = tuple(sampled(*kind, adjacency) for kind in kinds)
    joined = -math.expm1(20_000 * math.log1p(-1e-9)) * (1.0 + 1e-12)
    leak = ApproximateEvent(1e-300, joined, adjacency)
    for epsilon in (0.5, 3.0):
        found = composed_delta(events, epsilon)
        assert found == pytest.approx(composed_delta([leak, *events[1:]], epsilon), rel=1e-3)
        replace_one = adjacency == "replace_one"
        one_grid = checked_delta(epsilon, Losses(sampled=kinds, replace_one=replace_one))
        rest = checked_delta(epsilon, Losses(sampled=kinds[1:], replace_one=replace_one))
        # Of those who join, one in 700 may lose less than epsilon by it.
        least = (joined + (1.0 - joined) * rest) * (1.0 - 1.5e-3)
        assert least * (1.0 - BELOW) <= found <= one_grid * 1.0015
        recomputed, _, holds = recomputed_events(events, epsilon, found)
        assert holds
        assert recomputed <= epsilon * (1.0 + 1e-9)
        assert recomputed_events(events, epsilon, 0.98 * least)[2] is not True
    assert composed_epsilon(events, 3e-5) == pytest.approx(
        composed_epsilon([leak, *events[1:]], 3e-5), rel=1e-3
    )
    # Where less than the probability of a join is left, its loss counts as what it is.
    assert 30.0 < composed_epsilon(events, 1e-5) < 60.0


@pytest.mark.proof("accountant", "Dominating pairs")
def test_joins_that_cost_most_of_delta_count_as_what_they_lose_too() -> None:
    rare, rest = sampled(0.12, 1e-3, 1), GaussianEvent(1.0, 0.3, "add_remove")
    # Counted as infinite alone, the losses of a join cost 40 % of epsilon where they fill delta.
    found = [
        composed_epsilon([rare, rest], 1e-3 * share) for share in (0.999, 1.0 + 1e-7, 1.01, 2.0)
    ]
    assert all(first >= second for first, second in pairwise(found))
    assert found[1] < 1.29
    for share in (0.999, 1.0 + 1e-7, 1.1, 2.0):
        epsilon = composed_epsilon([rare, rest], 1e-3 * share)
        assert composed_delta([rare, rest], epsilon) <= 1e-3 * share * (1.0 + 2e-4)
    ledger = PrivacyLedger(1.3, 1e-3)
    ledger.spend(rare)
    ledger.spend(rest)
    assert ledger.total()[0] == pytest.approx(found[1], abs=1e-4)
    # A record that does not join gains a little, which counts near epsilon = 0.
    often = [sampled(0.05, 7e-3, 1), GaussianEvent(1.0, 0.01, "add_remove")]
    exact = 7e-3 + (1.0 - 7e-3) * gaussian_delta(-math.log1p(-7e-3), 100.0)
    assert exact * (1.0 - 1e-6) <= composed_delta(often, 0.0) <= exact * 1.001


@pytest.mark.proof("accountant", "Connect the dots")
def test_a_curve_that_reaches_far_is_known_where_it_falls() -> None:
    # Points at equal distances alone said a thousand times as much.
    rare = sampled(0.0676, 2.2e-6, 3)
    either = AlternativesEvent(((rare,), (PureEvent(0.07, "add_remove"),)), "add_remove")
    others = [sampled(7.32, 9.8e-3, 7), GaussianEvent(30.0, 1.0, "add_remove")]
    found = composed_delta([either, *others], 0.2)
    both = composed_delta([PureEvent(0.07, "add_remove"), rare, *others], 0.2)
    assert max(composed_delta([one], 0.2) for one in others) < found <= 1.01 * both
    # A kink stays where it is.
    steps = sampled(1.0, 0.01, 100)
    either = AlternativesEvent(((steps,), (PureEvent(0.5, "add_remove"),)), "add_remove")
    found = composed_delta([either, GaussianEvent(30.0, 1.0, "add_remove")], 0.6)
    least = composed_delta(
        [PureEvent(0.5, "add_remove"), GaussianEvent(30.0, 1.0, "add_remove")], 0.6
    )
    # What the verifier's own curves and grids say, in a minute.
    assert least < found <= 1.03 * 4.946e-5


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_outcomes_beside_an_objective_are_all_counted(adjacency: str) -> None:
    """Those too far out to be computed count as a little more, never as less."""
    event = ObjectiveEvent("logistic", 4, 119.0, 3.4e-5, None, adjacency)
    sizes = (0.95, 0.067, 0.95)
    for epsilon in (0.01, 0.9, 1.5, 1.97, 2.1):
        every = 0.0
        for signs in itertools.product((1.0, -1.0), repeat=len(sizes)):
            loss = sum(sign * size for sign, size in zip(signs, sizes, strict=True))
            mass = math.prod(
                1.0 / (1.0 + math.exp(-s * size)) for s, size in zip(signs, sizes, strict=True)
            )
            every += mass * profile(event, epsilon - loss)
        found = composed_delta([event, *(PureEvent(size, adjacency) for size in sizes)], epsilon)
        assert every * (1.0 - 1e-9) <= found <= every * (1.0 + 1e-6)


def test_nobody_looks_closely_at_equal_answers() -> None:
    """With one more than are looked at closely, the quick answer of one decides anyway."""
    looks = []

    def ask(subject: float, *, quick: bool = False) -> float:
        looks.extend([] if quick else [subject])
        return subject if quick else 0.5 * subject

    assert composition.largest(ask, [1.0, 1.0002, 1.0001, 1.0003, 0.2]) == pytest.approx(1.0, 1e-3)
    assert looks == []
    assert composition.largest(ask, [4.0, 3.0, 1.0001, 1.0, 0.2]) == 2.0
    assert looks == [4.0, 3.0]
    assert composition.largest(ask, [4.0, 3.0]) == 2.0


def test_one_question_does_for_many_choices_that_need_nearly_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is about the largest sums of all of them, and not asked where these need far more."""
    asked, one_by_one = composition._choice_epsilon, []

    def count(choice: Totals, *args: Any, **how: Any) -> float:
        one_by_one.append(choice)
        return asked(choice, *args, **how)

    monkeypatch.setattr(composition, "_choice_epsilon", count)
    common = sampled(1.0, 0.01, 1000)
    for share, most in ((1e-6, 3), (0.02, 100)):
        branches = tuple(
            (
                common,
                PureEvent(share * (i + 1), "add_remove"),
                GaussianEvent(1.0 / share / (i + 1), 1.0, "add_remove"),
            )
            for i in range(12)
        )
        events = [ParallelEvent(branches, "add_remove")]
        one_by_one.clear()
        found = totals_epsilon(of_events(events), 1e-5)
        assert 0 < len(one_by_one) <= most
        single = [composed_epsilon(branch, 1e-5) for branch in branches]
        assert max(single) * (1.0 - 1e-3) <= found <= max(single) * 1.03
        for epsilon in (0.98 * max(single), 1.04 * max(single)):
            fits = totals_fit(of_events(events), epsilon, 1e-5)
            assert fits == all(one <= epsilon for one in single)


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_a_new_handle_decides_as_one_that_lives(adjacency: str) -> None:
    """Whatever the living one has computed: near the end of the budget, in another order."""
    rng = np.random.default_rng(8)
    ledger = PrivacyLedger(1.2, 1e-5, adjacency)
    kinds = [
        GaussianEvent(1.0, 0.2, adjacency),
        sampled(1.5, 0.02, 60, adjacency),
        PureEvent(0.05, adjacency),
        ZCDPEvent(0.004, adjacency),
    ]
    decisions = []
    for event in rng.permutation(np.array([*kinds] * 3, dtype=object)):
        before = [record.event for record in ledger.history]
        decisions.append(spend_all(ledger, event, 1))
        for found in vars(composition).values():
            if hasattr(found, "cache_clear"):
                found.cache_clear()
        new = PrivacyLedger(1.2, 1e-5, adjacency)
        new.spend(tuple(before[::-1]))
        assert spend_all(new, event, 1) == decisions[-1]
    assert 3 < sum(decisions) < len(decisions)


def test_saved_and_loaded_ledgers_go_on(tmp_path: Path) -> None:
    events = [
        sampled(1.2, 0.02, 100),
        GaussianEvent(10.0, 1.0, "add_remove"),
        sampled(1.2, 0.02, 100),
        ZCDPEvent(0.001, "add_remove"),
        PureEvent(0.1, "add_remove"),
    ]
    shared = PrivacyLedger(3.0, 1e-5, path=tmp_path / "ledger.sqlite")
    for event in events:
        shared.spend(event, label="part")
    shared.save(tmp_path / "ledger.json")
    for ledger in (
        PrivacyLedger.load(tmp_path / "ledger.json"),
        PrivacyLedger(3.0, 1e-5, path=tmp_path / "ledger.sqlite"),
    ):
        assert [record.event for record in ledger.history] == events
        assert ledger.total() == shared.total()
        assert ledger.total()[0] == composed_epsilon(events, 1e-5)
        with pytest.raises(BudgetExceededError):
            ledger.check(sampled(0.5, 0.5, 100))


@pytest.mark.parametrize(
    ("n_scores", "sigma", "kappa", "delta", "size"),
    [(30, 41.258, 0.357, 1.8e-9, 1e-3), (10, 1.0, 10.0, 1e-6, 0.1), (3, 300.0, 0.03, 1e-5, 1e-3)],
)
@pytest.mark.parametrize("relation", RELATIONS)
def test_what_a_budget_was_made_for_fits_it(
    n_scores: int, sigma: float, kappa: float, delta: float, size: float, relation: str
) -> None:
    """One value of the joint law alone may be above what chords between others show."""
    objective = ObjectiveEvent("softmax", n_scores, sigma, kappa, None, relation)
    events = (objective, PureEvent(size, relation))
    ledger = PrivacyLedger(composed_epsilon(events, delta) * (1.0 + 1e-9), delta, relation)
    ledger.spend(events)
