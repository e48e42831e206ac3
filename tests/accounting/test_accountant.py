"""Composition against the reference values, brute force, and what it must never undercut."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from dpsvm_fast.accounting import (
    composed_delta,
    composed_epsilon,
    composition,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
)
from dpsvm_fast.accounting.objective import HEADROOM, ObjectiveWithGaussian
from dpsvm_fast.accounting.totals import gaussian_mu
from dpsvm_fast.certificates import GaussianEvent, ObjectiveEvent, PrivacyEvent, PureEvent
from dpsvm_fast.exceptions import InvalidParameterError
from oracles.stored import stored

SECTIONS = {section["section"]: section["points"] for section in stored("composition")["points"]}
# The bound is computed in double precision and widened by a few hundred units in the last place.
TIGHT = 1e-11


def pure(*epsilons: float) -> list[PrivacyEvent]:
    return [PureEvent(epsilon, "add_remove") for epsilon in epsilons]


def gaussian(*sigmas: float) -> list[PrivacyEvent]:
    return [GaussianEvent(sigma, 1.0, "add_remove") for sigma in sigmas]


def responses(sizes: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Probability and loss of all outcomes of independent randomised responses."""
    for losses in itertools.product(*((e, -e) for e in sizes)):
        yield math.prod(1 / (1 + math.exp(-loss)) for loss in losses), sum(losses)


def brute_force_delta(epsilons: Sequence[float], epsilon: float) -> float:
    """Their hockey-stick divergence."""
    return sum(p * max(0.0, -math.expm1(epsilon - loss)) for p, loss in responses(epsilons))


@pytest.mark.parametrize(
    "point", [p for p in SECTIONS["kov_frontier"] if p["delta"] == "0"], ids=lambda p: p["k"]
)
def test_the_optimal_frontier_of_equal_pure_events(point: dict[str, object]) -> None:
    events = pure(float(str(point["epsilon"]))) * int(str(point["k"]))
    frontier = point["frontier"]
    assert isinstance(frontier, list)
    for epsilon, delta in frontier:
        got = composed_delta(events, float(epsilon))
        assert got >= float(delta) * (1 - 1e-15)
        if float(delta):
            # The stored epsilon is a decimal that no sum of floats meets exactly.
            assert got <= float(delta) * (1 + TIGHT)


@pytest.mark.parametrize(
    "point",
    # A million events take seconds to add one by one.
    [p for p in SECTIONS["sequential"] if p["delta"] == "0" and int(p["k"]) <= 10**5],
    ids=lambda p: f"{p['epsilon']}-{p['k']}",
)
def test_sequential_composition_is_between_zero_and_the_simple_formulas(
    point: dict[str, str],
) -> None:
    events = pure(float(point["epsilon"])) * int(point["k"])
    assert composed_epsilon(events, 0.0) == pytest.approx(float(point["basic_epsilon"]), rel=1e-12)
    optimal = composed_epsilon(events, float(point["delta_slack"]))
    assert 0.0 < optimal <= float(point["kov_epsilon_simple"]) * (1 + 1e-12)


@given(
    st.lists(st.floats(0.01, 3.0), min_size=1, max_size=7),
    st.floats(0.0, 1.0),
)
def test_unequal_pure_events_against_brute_force(epsilons: list[float], share: float) -> None:
    epsilon = share * sum(epsilons)
    exact = brute_force_delta(epsilons, epsilon)
    got = composed_delta(pure(*epsilons), epsilon)
    assert got >= exact * (1 - 1e-12) - 1e-15
    # Near the largest loss delta is a difference of numbers near 1: its error is absolute.
    assert got <= exact * (1 + TIGHT) + 1e-13


def test_a_wrong_size_would_be_noticed() -> None:
    """Negative control of the comparison above: one percent of epsilon is far outside."""
    got = composed_delta(pure(0.505, 0.707, 1.111), 1.0)
    assert got > brute_force_delta([0.5, 0.7, 1.1], 1.0) * (1 + 1e3 * TIGHT)


@given(st.lists(st.floats(0.3, 30.0), min_size=1, max_size=6), st.floats(0.0, 8.0))
def test_gaussian_events_are_one_gaussian_event(sigmas: list[float], epsilon: float) -> None:
    joint = 1 / math.sqrt(math.fsum(1 / s**2 for s in sigmas))
    got = composed_delta(gaussian(*sigmas), epsilon)
    assert got == pytest.approx(gaussian_delta(epsilon, joint), rel=1e-10, abs=1e-300)
    assert got >= gaussian_delta(epsilon, joint * (1 + 1e-14))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.5])
def test_a_mixture_against_integration(epsilon: float) -> None:
    """Integrate (p - e^eps q)_+ of the product pair, outcome by outcome of the discrete part."""
    sigma, sizes = 1.3, (0.4, 0.9)
    exact = 0.0
    for p, loss in responses(sizes):
        start = sigma * (epsilon - loss) * sigma + 0.5

        def excess(x: float, loss: float = loss) -> float:
            ratio = math.exp(epsilon - loss)
            return float(norm.pdf(x, 1.0, sigma) - ratio * norm.pdf(x, 0.0, sigma))

        exact += p * quad(excess, start, start + 40 * sigma, epsabs=1e-13)[0]
    got = composed_delta([*gaussian(sigma), *pure(*sizes)], epsilon)
    assert got == pytest.approx(exact, rel=1e-7)


@given(
    st.lists(st.floats(0.5, 20.0), min_size=0, max_size=3),
    st.lists(st.floats(0.01, 2.0), min_size=0, max_size=4),
    st.floats(1e-9, 0.1),
)
def test_epsilon_and_delta_invert_each_other(
    sigmas: list[float], sizes: list[float], delta: float
) -> None:
    events = gaussian(*sigmas) + pure(*sizes)
    epsilon = composed_epsilon(events, delta)
    assert composed_delta(events, epsilon) <= delta * (1 + 1e-10)
    if epsilon > 0:
        assert composed_delta(events, epsilon * (1 - 1e-6)) > delta * (1 - 1e-10)
    basic = sum(sizes) + (
        gaussian_epsilon(delta, 1 / math.hypot(*(1 / s for s in sigmas))) if sigmas else 0.0
    )
    assert epsilon <= basic * (1 + 1e-10)


def test_many_distinct_sizes_stay_an_upper_bound_and_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Moving atoms to a grid may only enlarge delta, and by little."""
    sizes = [0.05 + 0.013 * i for i in range(12)]
    exact = brute_force_delta(sizes, 0.6)
    monkeypatch.setattr(composition, "MAX_OUTCOMES", 300)
    assert 2 ** len(sizes) > composition.MAX_OUTCOMES
    got = composed_delta(pure(*sizes), 0.6)
    assert exact <= got <= exact * 1.01
    # Rounding losses up to the same grid instead would cost far more than this.
    assert composed_delta(pure(*(e + sum(sizes) / 300 for e in sizes)), 0.6) > exact * 1.05


def test_a_mixture_with_many_atoms_stays_close() -> None:
    events = [*gaussian(2.0), *pure(*(0.01 + 0.001 * i for i in range(60)))]
    sizes = [e.epsilon for e in events if isinstance(e, PureEvent)]
    # Variance-matched equal sizes give nearly the same law.
    equal = math.sqrt(math.fsum(e * e for e in sizes) / len(sizes))
    reference = composed_delta([*gaussian(2.0), *pure(*[equal] * len(sizes))], 2.0)
    assert composed_delta(events, 2.0) == pytest.approx(reference, rel=0.01)


def test_pure_sums_are_exact() -> None:
    assert composed_epsilon(pure(1.0, 1.0, 1.0), 0.0) == 3.0
    exact = 10 * Fraction(0.1)
    assert exact <= Fraction(composed_epsilon(pure(*[0.1] * 10), 0.0))
    assert composed_delta(pure(1.0, 2.0), 3.0) == 0.0
    assert composed_delta(pure(1.0, 2.0), 3.0 - 1e-9) > 0.0
    assert composed_epsilon(pure(1e4, 1e4), 0.0) == 2e4


def test_nothing_costs_nothing_and_gaussian_noise_is_never_pure() -> None:
    assert composed_epsilon([], 0.0) == 0.0
    assert composed_delta([], 0.0) == 0.0
    assert composed_epsilon(gaussian(1.0), 0.0) == math.inf
    assert composed_delta([GaussianEvent(1e-200, 1.0, "add_remove")], 1.0) == 1.0
    assert composed_delta([GaussianEvent(1e300, 1e-8, "add_remove")], 0.0) <= 1e-150


def test_a_calibrated_event_composes_to_its_own_budget() -> None:
    for epsilon, delta in [(1.0, 1e-6), (0.01, 1e-12), (30.0, 1e-300), (1e4, 1e-9)]:
        events = gaussian(gaussian_sigma(epsilon, delta))
        assert composed_delta(events, epsilon) <= delta * (1 + 1e-9)
        assert composed_epsilon(events, delta) <= epsilon * (1 + 1e-9)


def test_what_is_unknown_is_refused() -> None:
    class Invented(PrivacyEvent):
        adjacency = "add_remove"

    with pytest.raises(TypeError, match="Invented"):
        composed_delta([Invented()], 1.0)
    with pytest.raises(TypeError, match="float"):
        composed_delta([1.0], 1.0)  # type: ignore[list-item]
    mixed = [PureEvent(1.0, "add_remove"), PureEvent(1.0, "replace_one")]
    with pytest.raises(InvalidParameterError, match="relations"):
        composed_epsilon(mixed, 0.0)
    with pytest.raises(InvalidParameterError, match="epsilon"):
        composed_delta(mixed[:1], -1.0)
    with pytest.raises(InvalidParameterError, match="delta"):
        composed_epsilon(mixed[:1], 1.0)


def objective(
    law: str,
    n_scores: int,
    sigma: float,
    kappa: float | None = None,
    jacobian: float | None = None,
    adjacency: str = "add_remove",
) -> ObjectiveEvent:
    return ObjectiveEvent(law, n_scores, sigma, kappa, jacobian, adjacency)


# A Gaussian mechanism by another name: its Jacobian is too small to change a digit, and not 0.
DISGUISE = 1e-300
# What chords over adaptively chosen nodes may lose, and a law of atoms on a fixed grid.
CHORDS, ATOMS = 1e-3, 0.02


@pytest.mark.parametrize(("sigma", "other"), [(4.0, 4.0), (4.0, 400.0), (4.0, 1e12), (1.0, 3.0)])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
def test_an_objective_event_with_a_gaussian_one(sigma: float, other: float, epsilon: float) -> None:
    exact = gaussian_delta(epsilon, 1 / math.hypot(1 / sigma, 1 / other))
    got = composed_delta(
        [objective("huber", 1, sigma, jacobian=DISGUISE), *gaussian(other)], epsilon
    )
    assert exact * (1 - 1e-12) <= got <= exact * (1 + CHORDS) * HEADROOM
    # Negative control: one percent more noise is far outside.
    more = [objective("huber", 1, 1.01 * sigma, jacobian=DISGUISE), *gaussian(1.01 * other)]
    assert composed_delta(more, epsilon) < exact * (1 - 3 * CHORDS)


@given(st.floats(0.0, 6.0), st.floats(0.5, 4.0))
def test_a_curve_is_a_bound_outside_the_range_it_was_drawn_for(epsilon: float, end: float) -> None:
    event = objective("huber", 1, 4.0, jacobian=DISGUISE)
    curve = ObjectiveWithGaussian(event, 0.25, np.zeros(1), np.ones(1)).between(0.9 * end, end)
    assert curve(epsilon) >= gaussian_delta(epsilon, 1 / math.hypot(0.25, 0.25)) * (1 - 1e-12)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("t", "jacobian", "mu", "epsilon"),
    [
        *((0.25, 0.1, 0.1, 1.0), (0.25, 0.1, 0.003, 0.05), (1.0, 0.5, 0.5, 5.0)),
        # Beyond its reach a profile counts as constant.
        *((0.25, 0.1, 0.8, 0.0), (0.02, 0.01, 3.0, 2.0), (0.02, 0.01, 12.0, 0.1)),
    ],
)
def test_a_jacobian_with_a_gaussian_loss_against_integration(
    t: float, jacobian: float, mu: float, epsilon: float
) -> None:
    def profile(e: float) -> float:
        """The proof page's g, negative arguments by the symmetry of the two directions."""
        if e < 0:
            return 1 - math.exp(e) * (1 - profile(-e))
        if e < jacobian:
            return 1 - math.exp(e - jacobian) * (1 - gaussian_delta(0.0, 1 / t))
        return gaussian_delta(e - jacobian, 1 / t)

    # Cells of a quarter of a deviation; the profile has kinks where the loss is epsilon and less
    # the Jacobian.
    kinks = [epsilon, epsilon - jacobian, epsilon + jacobian]
    kinks += [epsilon + sign * (jacobian + t * k) for sign in (-1, 1) for k in range(1, 10)]
    edges = sorted([mu * i / 4 for i in range(-50, 51)] + kinks)
    exact = math.fsum(
        quad(lambda x: profile(epsilon - x) * norm.pdf(x, mu * mu / 2, mu), a, b, epsabs=1e-16)[0]
        for a, b in itertools.pairwise(edges)
    )
    got = composed_delta(
        [objective("huber", 1, 1 / t, jacobian=jacobian), *gaussian(1 / mu)], epsilon
    )
    assert exact * (1 - 1e-9) <= got <= exact * (1 + CHORDS)


@pytest.mark.parametrize("sizes", [(0.3,), (0.4, 0.9)])
def test_an_objective_event_with_pure_ones(sizes: tuple[float, ...]) -> None:
    event = objective("logistic", 3, 6.0, kappa=0.4)
    epsilon = 2.0
    exact = sum(p * composed_delta([event], epsilon - loss) for p, loss in responses(sizes))
    got = composed_delta([event, *pure(*sizes)], epsilon)
    assert exact * (1 - 1e-12) <= got <= exact * (1 + CHORDS)


@pytest.mark.parametrize(
    ("count", "sigma", "epsilon"), [(2, 4.0, 1.0), (5, 8.0, 1.0), (5, 1.0, 9.0), (300, 60.0, 1.0)]
)
def test_many_equal_objective_events(count: int, sigma: float, epsilon: float) -> None:
    """Such as the fits of a cross-validation."""
    events = [objective("huber", 1, sigma, jacobian=DISGUISE)] * count
    exact = gaussian_delta(epsilon, sigma / math.sqrt(count))
    assert exact * (1 - 1e-12) <= composed_delta(events, epsilon) <= exact * (1 + ATOMS)
    wanted = gaussian_epsilon(1e-6, sigma / math.sqrt(count))
    assert wanted * (1 - 1e-9) <= composed_epsilon(events, 1e-6) <= wanted * (1 + ATOMS)


def test_five_fits_with_the_joint_law_cost_less_than_basic_composition() -> None:
    """Each is (1, 1e-5)-private; basic composition says (5, 5e-5) for five of them."""
    event = objective("softmax", 3, 5.5548, kappa=0.25)
    assert 0.98e-5 <= composed_delta([event], 1.0) <= 1e-5
    five = composed_delta([event] * 5, 2.9)
    assert five <= 5e-5
    # Two scores with no change of variables are a part of three.
    assert five >= gaussian_delta(2.9, 5.5548 / math.sqrt(2 * 5))


def test_a_free_change_of_variables_is_a_gaussian_event() -> None:
    sigma = 2.0
    for event, size in [
        (objective("logistic", 1, sigma, kappa=0.125), 1.0),
        (objective("huber", 1, sigma, jacobian=0.0), 1.0),
        (objective("softmax", 2, sigma, kappa=0.125), math.sqrt(2.0)),
    ]:
        assert composed_delta([event] * 3, 1.0) == pytest.approx(
            gaussian_delta(1.0, sigma / size / math.sqrt(3)), rel=1e-9
        )
    for event in (
        objective("logistic", 1, sigma, kappa=0.1251),
        objective("huber", 1, sigma, kappa=1e-9),
        objective("huber", 1, sigma, jacobian=0.0, adjacency="replace_one"),
        objective("huber", 2, sigma, jacobian=0.0),
        objective("softmax", 3, sigma, kappa=1e-9),
    ):
        assert gaussian_mu(event) is None


def test_objective_events_have_no_pure_guarantee() -> None:
    event = objective("huber", 1, 1e6, jacobian=0.1)
    assert composed_epsilon([event], 0.0) == math.inf
    assert composed_delta([event], 0.05) > 0.04
    # Hopeless noise is hopeless, not an error.
    for other in gaussian(1e-200, 1e-3, 0.05):
        assert composed_delta([event, other], 1.0) > 0.999
    assert composed_delta([objective("softmax", 3, 1e-3, kappa=1.0)] * 2, 1.0) == 1.0
    assert composed_epsilon([objective("softmax", 3, 1e-9, kappa=1.0)] * 2, 1e-6) == math.inf
