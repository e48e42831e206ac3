"""Accounting of objective perturbation against reference values and independent computations."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from dpsvm_fast.accounting import gaussian_delta, gaussian_sigma, objective_delta, objective_sigma
from dpsvm_fast.certificates import ObjectiveEvent
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.verification.objective import event_delta
from twins.objective_constants import (
    PureConstants,
    single_factor_constants,
    threshold_constants,
)

DATA = Path(__file__).parents[1] / "stored"
POINTS = {
    rule: json.loads((DATA / f"objective_perturbation_{rule}.json").read_text("utf-8"))["points"]
    for rule in ("cms", "tight")
}
GAUSSIAN, JOINT = (
    json.loads((DATA / f"objective_perturbation_{name}.json").read_text("utf-8"))
    for name in ("gaussian", "joint")
)
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


@pytest.mark.sampled(times=2)
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


@pytest.mark.sampled(times=2)
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
        price = {"kappa": kappa, "adjacency": adjacency, "loss": loss, "n_classes": n_classes}
        sigma = objective_sigma(epsilon, delta, **price)
        got = objective_delta(epsilon, sigma, **price)
        assert delta * 0.99 <= got <= delta
        again = event_delta(ObjectiveEvent(law, n_scores, sigma, kappa, None, adjacency), epsilon)
        # The promise is rounded up, on a grid for the joint law; for replaced records it is the
        # plain law, where the recomputation knows a slightly smaller price.
        loose = law == "softmax" or (law == "logistic" and adjacency == "replace_one")
        assert got * (0.7 if loose else 1 - 2e-3) <= again <= got * (1 + 2e-3)


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
