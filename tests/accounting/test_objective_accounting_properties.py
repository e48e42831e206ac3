"""Objective events compose: in any order, never below a part, never above basic composition."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpsvm_fast import _core
from dpsvm_fast.accounting import (
    composed_delta,
    composed_epsilon,
    gaussian_epsilon,
    gaussian_sigma,
    objective_delta,
    objective_sigma,
)
from dpsvm_fast.accounting.objective import profile, profile_points
from dpsvm_fast.certificates import GaussianEvent, ObjectiveEvent, PrivacyEvent, PureEvent
from dpsvm_fast.exceptions import BudgetExceededError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.verification.objective import event_delta

ADJACENCIES = st.sampled_from(["add_remove", "replace_one"])
# Laws that have a formula or one integral: thousands of values are affordable.
QUICK = [("logistic", 1), ("huber", 1), ("softmax", 2)]


@st.composite
def objective_events(draw: Any, laws: Any = QUICK, adjacency: str = "add_remove") -> ObjectiveEvent:
    law, n_scores = draw(st.sampled_from(laws))
    sigma = math.exp(draw(st.floats(math.log(0.5), math.log(30.0))))
    if draw(st.booleans()):
        kappa, jacobian = math.exp(draw(st.floats(-5.0, 0.5))), None
    else:
        kappa, jacobian = None, draw(st.floats(1e-6, 0.5))
    return ObjectiveEvent(law, n_scores, sigma, kappa, jacobian, adjacency)


gaussian_events = st.floats(1.0, 1e4).map(lambda s: GaussianEvent(s, 1.0, "add_remove"))
pure_events = st.floats(0.01, 1.0).map(lambda e: PureEvent(e, "add_remove"))
mixtures = st.lists(
    st.one_of(objective_events(), gaussian_events, pure_events), min_size=1, max_size=4
)

# What the chords of two evaluations may lose, relative to one another.
CHORDS = 2e-3


@pytest.mark.proof("objective_perturbation", "Composition, and the solver's certificate")
@settings(max_examples=60)
@given(mixtures, st.floats(0.0, 6.0), st.randoms(use_true_random=False))
def test_the_order_does_not_matter(events: list[PrivacyEvent], epsilon: float, random: Any) -> None:
    shuffled = random.sample(events, len(events))
    assert composed_delta(events, epsilon) == composed_delta(shuffled, epsilon)


def delta_of_law(event: ObjectiveEvent, epsilon: float) -> float:
    """Delta of the law of finitely many losses by which an event is composed with others."""
    points = profile_points(event, 1e-17)
    assert points is not None
    law = _core.LossDistribution(
        subsampled=[],
        gaussian_mu=0.0,
        pure=[],
        zcdp_rho=0.0,
        profiles=[(*points, 1)],
        replace_one=False,
    )
    return law.delta(epsilon)


@pytest.mark.proof("objective_perturbation", "Composition, and the solver's certificate")
@settings(max_examples=40)
@given(mixtures, st.floats(0.0, 6.0))
def test_no_composition_is_below_a_part_of_it(events: list[PrivacyEvent], epsilon: float) -> None:
    whole = composed_delta(events, epsilon)
    for event in events:
        part = composed_delta([event], epsilon)
        if isinstance(event, ObjectiveEvent):
            # What is known of it at one epsilon may be less than what follows from all others.
            part = min(part, 0.95 * delta_of_law(event, epsilon) - 1e-13)
        assert whole >= part * (1 - 1e-9)


@settings(max_examples=60)
@given(mixtures, st.floats(0.0, 6.0), st.floats(1e-3, 3.0))
def test_delta_falls_with_epsilon(events: list[PrivacyEvent], epsilon: float, step: float) -> None:
    lower, upper = (composed_delta(events, e) for e in (epsilon, epsilon + step))
    assert upper <= lower * (1 + CHORDS) + 1e-16


@pytest.mark.proof("objective_perturbation", "Composition, and the solver's certificate")
@settings(max_examples=60)
@given(objective_events(), gaussian_events, st.floats(0.1, 6.0), st.floats(1e-6, 0.9))
def test_no_composition_is_above_a_basic_one(
    event: ObjectiveEvent, other: GaussianEvent, epsilon: float, share: float
) -> None:
    """Epsilon shared in any way between the two."""
    inside = share * epsilon
    basic = composed_delta([event], inside) + composed_delta([other], epsilon - inside)
    assert composed_delta([event, other], epsilon) <= basic * (1 + CHORDS)


@settings(max_examples=40)
@given(objective_events(), objective_events(), st.floats(0.1, 6.0), st.floats(0.1, 0.9))
def test_two_objective_events_are_not_above_a_basic_composition(
    one: ObjectiveEvent, other: ObjectiveEvent, epsilon: float, share: float
) -> None:
    inside = share * epsilon
    basic = composed_delta([one], inside) + composed_delta([other], epsilon - inside)
    assume(basic > 1e-10)  # below, the end of the grid of losses weighs
    # The law of atoms of one of the two is on a fixed grid.
    assert composed_delta([one, other], epsilon) <= basic * 1.05


@settings(max_examples=40)
@given(objective_events(), st.floats(1e-9, 0.1))
def test_epsilon_and_delta_invert_each_other(event: ObjectiveEvent, delta: float) -> None:
    epsilon = composed_epsilon([event], delta)
    assert composed_delta([event], epsilon) <= delta * (1 + 1e-9)
    if epsilon > 1e-6:
        assert composed_delta([event], epsilon * (1 - 1e-6)) > delta * (1 - 1e-9)


@settings(max_examples=20)
@given(objective_events(), st.floats(0.0, 8.0))
def test_the_law_that_is_composed_is_close_to_the_profile(
    event: ObjectiveEvent, epsilon: float
) -> None:
    assert delta_of_law(event, epsilon) <= profile(event, epsilon) * 1.05 + 1e-13


@pytest.mark.proof("objective_perturbation", "Composition, and the solver's certificate")
@settings(max_examples=20)
@given(st.floats(0.5, 30.0), st.floats(0.0, 8.0))
def test_the_law_that_is_composed_dominates_the_profile(sigma: float, epsilon: float) -> None:
    """Of a Gaussian mechanism by another name: a bound that is the profile of a pair of laws."""
    event = ObjectiveEvent("huber", 1, sigma, None, 1e-300, "add_remove")
    exact = profile(event, epsilon)
    assert delta_of_law(event, epsilon) >= exact * (1 - 1e-9) - 1e-16
    # Negative control: two percent more noise.
    other = ObjectiveEvent("huber", 1, 1.02 * sigma, None, 1e-300, "add_remove")
    if 1e-10 < exact < 0.1:
        assert delta_of_law(other, epsilon) < exact


@pytest.mark.proof("objective_perturbation", "Composition, and the solver's certificate")
@settings(max_examples=40)
@given(objective_events(), st.floats(0.0, 5.0))
def test_negative_epsilon_is_the_other_direction(event: ObjectiveEvent, x: float) -> None:
    """1 - e^-x (1 - delta(x)), which is between 1 - e^-x and 1."""
    low = profile(event, -x)
    assert -math.expm1(-x) <= low <= 1.0
    assert low == pytest.approx(1.0 - math.exp(-x) * (1.0 - profile(event, x)), abs=1e-14)


LAWS = [*QUICK, ("logistic", 4), ("huber", 4), ("softmax", 3), ("softmax", 10)]


@settings(max_examples=25, deadline=None)
@given(objective_events(LAWS), ADJACENCIES, st.floats(0.05, 6.0))
def test_the_recomputation_is_not_above_the_promise(
    event: ObjectiveEvent, adjacency: str, epsilon: float
) -> None:
    """Otherwise true certificates would be refused."""
    event = replace(event, adjacency=adjacency)
    promised = profile(event, epsilon)
    assume(promised > 1e-14)
    assert event_delta(event, epsilon) <= promised * (1 + (1e-6 if event.n_scores == 1 else 2e-3))


LOSSES = st.sampled_from([("logistic", 2), ("softmax_margin", 3), ("huber", 3), ("softplus", 2)])


@pytest.mark.proof("objective_perturbation", "Composition, and the solver's certificate")
@settings(max_examples=6, deadline=None)
@given(LOSSES, ADJACENCIES, st.floats(0.2, 8.0), st.floats(-9.0, -2.0), st.floats(0.01, 0.2))
def test_a_calibrated_release_fits_into_its_budget_and_no_second_one_does(
    loss: tuple[str, int], adjacency: str, epsilon: float, log_delta: float, share: float
) -> None:
    """The two events of a release, spent together, as the mechanism splits its budget."""
    delta, kappa = 10.0**log_delta, share * epsilon
    name, n_classes = loss
    price: dict[str, Any] = {"loss": name, "n_classes": n_classes, "kappa": kappa}
    price["adjacency"] = adjacency
    sigma = objective_sigma(0.99 * epsilon, 0.99 * delta, **price)
    assert objective_delta(0.99 * epsilon, sigma, **price) <= 0.99 * delta
    law = {"softmax_margin": "softmax", "huber": "huber"}.get(name, "logistic")
    inside = ObjectiveEvent(law, 1 if n_classes == 2 else n_classes, sigma, kappa, None, adjacency)
    outside = GaussianEvent(gaussian_sigma(0.01 * epsilon, 0.01 * delta), 1.0, adjacency)
    ledger = PrivacyLedger(epsilon, delta, adjacency)
    ledger.check((inside, outside))
    ledger.spend((inside, outside), label="model")
    total = ledger.total()[0]
    assert total <= epsilon * (1 + 1e-9)
    # The composition is below the sum, and above what the first event alone costs.
    assert total >= composed_epsilon([inside], delta) * (1 - 1e-6)
    with pytest.raises(BudgetExceededError):
        ledger.check((inside, outside))
    assert len(ledger.history) == 2


def test_a_part_cannot_hide_behind_the_slack() -> None:
    """Negative control: a budget two percent short is noticed."""
    sigma = objective_sigma(1.0, 1e-6, loss="huber", kappa=0.2)
    event = ObjectiveEvent("huber", 1, sigma, 0.2, None, "add_remove")
    PrivacyLedger(1.0, 1e-6).check(event)
    with pytest.raises(BudgetExceededError):
        PrivacyLedger(0.98, 1e-6).check(event)
    with pytest.raises(BudgetExceededError, match="pure events only"):
        PrivacyLedger(100.0, 0.0).check(event)
    assert gaussian_epsilon(1e-6, sigma) < 1.0
