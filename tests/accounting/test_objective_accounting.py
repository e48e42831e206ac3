"""Accounting of objective perturbation: reference values, other computations, any composition.

Objective events compose in any order, never below a part, never above basic composition.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpsvm_fast import _core
from dpsvm_fast.accounting import (
    composed_delta,
    composed_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    objective_delta,
    objective_sigma,
)
from dpsvm_fast.accounting.objective import (
    on_chords,
    profile,
    profile_points,
    reach,
)
from dpsvm_fast.certificates import GaussianEvent, ObjectiveEvent, PrivacyEvent, PureEvent
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.verification.objective import event_delta
from oracles.stored import stored
from twins.objective_constants import (
    PureConstants,
    single_factor_constants,
    threshold_constants,
)

POINTS = {rule: stored(f"objective_perturbation_{rule}")["points"] for rule in ("cms", "tight")}
GAUSSIAN, JOINT = (stored(f"objective_perturbation_{name}") for name in ("gaussian", "joint"))
RULES = {"cms": threshold_constants, "tight": single_factor_constants}
# A few roundings of numbers of the size of epsilon and of Lambda + Delta.
TWIN_TOL = 1e-13


def constants(rule: str, point: dict[str, str]) -> PureConstants:
    numbers = float(point["epsilon"]), int(point["n"]), float(point["Lambda"]), float(point["c"])
    return RULES[rule](*numbers)


@pytest.mark.proof("objective_perturbation", "Laws as numbers")
@pytest.mark.parametrize("rule", RULES)
def test_the_published_rules_against_many_digits(rule: str) -> None:
    compared = 0
    for point in POINTS[rule]:
        epsilon, Lambda = float(point["epsilon"]), float(point["Lambda"])
        got = constants(rule, point)
        exact = float(point.get("epsilon1") or point["epsilon_minus_log_term"])
        assert got.epsilon_1 == pytest.approx(exact, abs=TWIN_TOL * (epsilon - exact + epsilon))
        threshold = 0.0 if rule == "cms" else 0.5 * epsilon
        if abs(exact - threshold) < 1e-12 * epsilon:
            continue  # the stored decimal and its float lie on different sides of the branch
        compared += 1
        assert got.epsilon_prime == pytest.approx(
            float(point["epsilon_prime"]), abs=TWIN_TOL * epsilon
        )
        assert got.beta == pytest.approx(float(point["beta"]), abs=TWIN_TOL * epsilon)
        extra = float(point["Delta"])
        assert got.extra == pytest.approx(extra, abs=TWIN_TOL * (Lambda + extra))
    assert compared >= 18


@pytest.mark.proof("objective_perturbation", "Laws as numbers")
@pytest.mark.parametrize(
    ("n", "Lambda", "c"), [(150, 0.01, 1.0), (7000, 1e-3, 0.5), (20, 1.0, 2.0)]
)
@pytest.mark.parametrize("epsilon", [0.05, 0.4, 1.0, 6.0])
def test_both_rules_keep_their_budget(epsilon: float, n: int, Lambda: float, c: float) -> None:
    """Noise and change of variables together cost epsilon, with the regularisation they add."""
    for rule, factors in ((threshold_constants, 2), (single_factor_constants, 1)):
        got = rule(epsilon, n, Lambda, c)
        jacobian = factors * math.log1p(c / (n * (Lambda + got.extra)))
        assert 2.0 * got.beta + jacobian <= epsilon * (1 + 1e-12)
    two, one = (
        rule(epsilon, n, Lambda, c) for rule in (threshold_constants, single_factor_constants)
    )
    assert one.extra <= two.extra
    # Never the cliff at a vanishing share for the noise.
    assert one.beta >= 0.25 * epsilon * (1 - 1e-12)


# Section of the reference values: law, relation, accuracy of the recomputed delta.
SECTIONS = {
    "softmax_margin_add_remove": ("softmax", "add_remove", 1e-9),
    "softmax_margin_replace_one_union": ("softmax", "replace_one", 1e-9),
    "one_vs_rest_add_remove": ("huber", "add_remove", 1e-5),
    "logistic_joint_add_remove": ("logistic", "add_remove", 1e-6),
}


@pytest.mark.proof("objective_perturbation", "Laws as numbers")
@pytest.mark.parametrize("section", SECTIONS)
def test_the_independent_recomputation_against_reference_values(section: str) -> None:
    law, relation, accuracy = SECTIONS[section]
    for point in GAUSSIAN[section]:
        price = point["sigma_over_kt"], point.get("kappa"), point.get("c0"), relation
        event = ObjectiveEvent(law, point.get("classes", 1), *price)
        delta = event_delta(event, point["epsilon"])
        # From above, and close.
        assert delta >= point["delta"] * (1.0 - 1e-10)
        assert delta == pytest.approx(point["delta"], rel=accuracy, abs=1e-12 * point["delta"])


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("point", JOINT["softmax_margin_joint_add_remove"][::3], ids=str)
def test_the_recomputed_joint_law_lies_between_its_bounds(point: dict[str, float]) -> None:
    """Below the reference, which rounds up on a grid, and above the exact pathwise supremum."""
    price = point["sigma_over_kt_upper"], point["kappa"], None, "add_remove"
    delta = event_delta(ObjectiveEvent("softmax", int(point["classes"]), *price), point["epsilon"])
    assert delta <= point["delta"] * (1 + 1e-4)
    least = point.get("mc_delta_exact_logdet")
    if least is not None:
        assert delta >= least - 5 * point["mc_delta_exact_logdet_error"]
    # The recomputation has to be useful, too.
    assert delta >= 0.7 * point["delta"]


@pytest.mark.sampled
@pytest.mark.proof("objective_perturbation", "Laws as numbers")
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize(
    ("loss", "n_classes"),
    [
        ("softmax_margin", 2),
        ("softmax_margin", 5),
        ("logistic", 2),
        ("softplus", 4),
        ("huber", 3),
        ("m3", 3),
        ("huber_ww", 2),
        ("huber_ww", 4),
        ("m3", 60),
    ],
)
def test_two_implementations_agree(loss: str, n_classes: int, adjacency: str) -> None:
    pairs = "weston_watkins"
    law = {"softmax_margin": "softmax", "huber": "huber", "m3": pairs, "huber_ww": pairs}.get(
        loss, "logistic"
    )
    n_scores = 1 if n_classes == 2 and law != pairs else n_classes
    law = "logistic" if n_scores == 1 else law
    for epsilon, delta, kappa in [(0.5, 1e-3, 0.02), (2.0, 1e-6, 0.2), (8.0, 1e-9, 1.0)]:
        # The Jacobian of many classes is larger.
        kappa *= min(1.0, 25.0 / n_classes**2)
        price = {"kappa": kappa, "adjacency": adjacency, "loss": loss, "n_classes": n_classes}
        sigma = objective_sigma(epsilon, delta, **price)
        got = objective_delta(epsilon, sigma, **price)
        assert delta * 0.99 <= got <= delta
        again = event_delta(ObjectiveEvent(law, n_scores, sigma, kappa, None, adjacency), epsilon)
        # The promise is rounded up, on a grid for the joint law; for replaced records it is the
        # plain law, where the recomputation knows a slightly smaller price.
        # Many pairs are summed over cells, here finer ones.
        many = n_scores > 49
        loose = law == "softmax" or (law == "logistic" and adjacency == "replace_one") or many
        assert got * (0.7 if loose else 1 - 2e-3) <= again <= got * (1 + 2e-3)


@pytest.mark.proof("objective_perturbation", "Composition")
def test_chords_keep_the_digits_of_the_smaller_end(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.array([0.0, 1.0]), np.array([1.0, 1e-30])
    monkeypatch.setattr("dpsvm_fast.accounting.objective._curve", lambda *_: points)
    event = ObjectiveEvent("softmax", 400, 1.0, 0.3, None, "add_remove")
    nearly = math.nextafter(1.0, 0.0)
    exact = 1e-30 + math.exp(nearly) * math.expm1(1.0 - nearly) / math.expm1(1.0)
    assert exact * (1.0 - 1e-14) <= on_chords(event, nearly) <= exact * (1.0 + 1e-12)


@pytest.mark.proof("objective_perturbation", "Composition")
def test_chords_of_many_classes_are_above_the_profile() -> None:
    event = ObjectiveEvent("softmax", 400, 1e5, 0.3, None, "add_remove")
    x, _ = _core.objective_profile("softmax", 400, 0.0, reach(event), 512, 1e5, 0.3, None, False)
    for i in range(1, x.size - 1, 31):
        middle = 0.5 * (x[i] + x[i + 1])
        assert profile(event, middle) * (1.0 - 1e-2) <= on_chords(event, middle)
    beyond = 1.1 * float(x[-1])
    assert on_chords(event, beyond) == profile(event, beyond)


@pytest.mark.proof("objective_perturbation", "Laws as numbers")
def test_the_least_noise_is_that_of_the_gaussian_mechanism() -> None:
    """One score with a free change of variables, and what any change of variables costs."""
    for loss in ("logistic", "softplus", "softmax_margin"):
        got = objective_sigma(1.0, 1e-5, loss=loss, kappa=0.9)
        assert got == pytest.approx(gaussian_sigma(1.0, 1e-5), rel=1e-9)
        assert got >= gaussian_sigma(1.0, 1e-5) * (1 - 1e-12)
    paid = objective_delta(1.0, 4.0, loss="huber", kappa=0.9)
    assert paid == pytest.approx(gaussian_delta(1.0 - math.log1p(0.225), 4.0), rel=1e-9)
    assert objective_delta(1.0, 4.0, loss="huber", jacobian=math.log1p(0.225)) == pytest.approx(
        paid, rel=1e-9
    )


@pytest.mark.parametrize(
    ("changes", "word", "error"),
    [
        ({"loss": "crammer_singer"}, "loss", InvalidParameterError),
        ({"loss": "hinge"}, "loss", InvalidParameterError),
        ({"loss": None}, "loss", TypeError),
        ({"n_classes": 1}, "n_classes", InvalidParameterError),
        ({"n_classes": 3.0}, "n_classes", TypeError),
        ({"kappa": None}, "exactly one", InvalidParameterError),
        ({"jacobian": 0.1}, "exactly one", InvalidParameterError),
        ({"kappa": -1.0}, "kappa", InvalidParameterError),
        ({"kappa": "1"}, "kappa", TypeError),
        ({"kappa": None, "jacobian": -0.1}, "jacobian", InvalidParameterError),
        ({"adjacency": "both"}, "adjacency", InvalidParameterError),
        ({"epsilon": -0.5}, "epsilon", InvalidParameterError),
        ({"epsilon": 2e4}, "epsilon", InvalidParameterError),
    ],
    ids=str,
)
def test_bad_arguments(changes: dict[str, object], word: str, error: type[Exception]) -> None:
    good = {"epsilon": 1.0, "loss": "huber", "n_classes": 3, "kappa": 0.5} | changes
    with pytest.raises(error, match=word):
        objective_delta(sigma=4.0, **good)  # type: ignore[arg-type]
    with pytest.raises(error, match=word):
        objective_sigma(delta=1e-5, **good)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0.0, -1.0, 1.0, float("nan")])
def test_bad_sigma_and_delta(value: float) -> None:
    if value != 1.0:
        with pytest.raises(InvalidParameterError, match="sigma"):
            objective_delta(1.0, value, loss="huber", kappa=0.5)
    with pytest.raises(InvalidParameterError, match="delta"):
        objective_sigma(1.0, value, loss="huber", kappa=0.5)


@pytest.mark.proof("objective_perturbation", "Laws as numbers")
def test_no_noise_is_enough_where_the_change_of_variables_costs_everything() -> None:
    with pytest.raises(InvalidParameterError):
        objective_sigma(0.1, 1e-6, loss="huber", n_classes=4, jacobian=0.2)


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
@settings(max_examples=30)
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


@settings(max_examples=30)
@given(mixtures, st.floats(0.0, 6.0), st.floats(1e-3, 3.0))
def test_delta_falls_with_epsilon(events: list[PrivacyEvent], epsilon: float, step: float) -> None:
    lower, upper = (composed_delta(events, e) for e in (epsilon, epsilon + step))
    assert upper <= lower * (1 + CHORDS) + 1e-16


@pytest.mark.proof("objective_perturbation", "Composition, and the solver's certificate")
@settings(max_examples=30)
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
