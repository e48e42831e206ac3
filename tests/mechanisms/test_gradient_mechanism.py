"""The mechanism of noisy descent: scales, defaults and statements from first principles."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from dpsvm_fast.accounting import composed_epsilon, gaussian_delta
from dpsvm_fast.certificates import GaussianEvent, PrivacyStatement
from dpsvm_fast.certificates.events import SubsampledGaussianEvent
from dpsvm_fast.certificates.words import CAVEATS
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import SMOOTH_LOSSES, Loss
from dpsvm_fast.mechanisms.gradient import GradientPerturbation, LastIterateSums
from dpsvm_fast.verification import verify
from oracles.plans import plan_of, promised
from twins import gaussian as gaussian_twin

SOFTMAX = Loss(name="softmax_margin", n_classes=4)
LAST: dict[str, Any] = {"accountant": "last_iterate", "C": 0.05, "n_records": 200, "n_steps": 400}
KT = math.hypot(1.0, 0.2)


mechanism = partial(
    plan_of,
    GradientPerturbation,
    loss=SOFTMAX,
    n_features=50,
    data_norm=2.0,
    intercept_scaling=0.4,
)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
def test_full_batches_are_one_gaussian_mechanism(adjacency: str, noise_grid: str) -> None:
    plan = mechanism(adjacency=adjacency, noise_grid=noise_grid)
    factor = 2.0 if adjacency == "replace_one" else 1.0
    noise = plan.noise
    assert plan.steps == 100
    assert noise.clip == pytest.approx(0.25 * KT, rel=1e-15)
    assert noise.clip <= noise.contribution <= 1.001 * noise.clip
    expected = gaussian_twin.sigma(1.0, 1e-6) * 10.0 * factor * noise.contribution
    assert noise.sigma == pytest.approx(expected, rel=1e-7)
    (event,) = plan.events
    assert isinstance(event, GaussianEvent)
    assert event.sensitivity == pytest.approx(10.0 * factor * noise.contribution, rel=1e-14)
    assert gaussian_delta(1.0, event.sigma, event.sensitivity) <= 1e-6
    # Negative control: one part in ten thousand less noise would not do.
    assert gaussian_delta(1.0, 0.9999 * event.sigma, event.sensitivity) > 1e-6
    assert (noise.grid is None) == (noise_grid == "float")


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_samples_are_charged_by_the_accountant(adjacency: str, optimizer: str) -> None:
    plan = mechanism(optimizer=optimizer, adjacency=adjacency, sampling_rate=0.05, n_steps=300)
    (event,) = plan.events
    assert isinstance(event, SubsampledGaussianEvent)
    assert (event.sampling_rate, event.n_steps, event.adjacency) == (0.05, 300, adjacency)
    # The multiplier is over ONE record's contribution for both relations, and never flattered.
    exact = Fraction(plan.noise.sigma) / Fraction(plan.noise.contribution)
    assert Fraction(event.noise_multiplier) <= exact
    assert event.noise_multiplier == pytest.approx(float(exact), rel=1e-15)
    assert composed_epsilon([event], 1e-6) <= 1.0
    assert composed_epsilon([event], 1e-6) > 0.99
    # Sampling costs less than all rows in every step would.
    full = mechanism(optimizer="sgd", adjacency=adjacency, sampling_rate=1.0, n_steps=300)
    assert plan.noise.sigma < 0.2 * full.noise.sigma
    assert isinstance(full.events[0], GaussianEvent)


def test_replacing_a_record_doubles_the_noise() -> None:
    for changes in ({}, {"noise_grid": "float"}, LAST):
        one, two = (mechanism(adjacency=a, **changes) for a in ("add_remove", "replace_one"))
        assert two.noise.sigma / one.noise.sigma == pytest.approx(2.0, rel=1e-3)


def test_the_grid_is_a_power_of_two_far_below_the_noise() -> None:
    for epsilon in (1e-4, 0.1, 1.0, 100.0, 1e4):
        for n_features in (1, 100, 100_000):
            noise = mechanism(epsilon=epsilon, n_features=n_features).noise
            assert noise.grid is not None
            assert math.frexp(noise.grid)[0] == 0.5
            assert 2.0**30 < noise.sigma / noise.grid <= 2.0**44
            assert noise.contribution <= 1.002 * noise.clip


def test_a_budget_too_small_for_a_grid_is_refused_by_name() -> None:
    with pytest.raises(InvalidParameterError, match=r"^epsilon: got 1e-14"):
        mechanism(epsilon=1e-14, delta=1e-14, n_features=10**6)
    plan = mechanism(epsilon=1e-14, delta=1e-14, n_features=10**6, noise_grid="float")
    assert plan.noise.sigma > 1e10


def test_more_budget_takes_more_steps_and_none_of_the_whole_way() -> None:
    for n in (None, 800):
        small, large = (mechanism(epsilon=epsilon, n_records=n) for epsilon in (1.0, 16.0))
        assert small.steps == 100 < 300 < large.steps
        assert small.inertia == 0.0
        ways = [
            plan.step / (1.0 - plan.inertia) * plan.steps**0.5 * plan.noise.sigma
            for plan in (small, large)
        ]
        assert ways[1] == pytest.approx(ways[0], rel=1e-3)
        assert mechanism(epsilon=16.0, n_records=n, learning_rate=0.1).steps == 100


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_the_public_rules(adjacency: str) -> None:
    """Written out once more: the noise moves a weight by 1 / (c kt) on the whole way."""
    kinds = set()
    for n, d, given in (
        *((n, 50, None) for n in (None, 100, 2000, 20_000, 100_000)),
        *((None, 50, T) for T in (1, 30)),
        *((5000, 50, T) for T in (1, 10, 100, 1000)),
    ):
        plan = mechanism(n_records=n, n_features=d, n_steps=given, adjacency=adjacency)
        c = 0.5 if n is None else min(0.7, max(0.35, math.sqrt(6 * d / n)))
        mu = 1.0 / gaussian_twin.sigma(1.0, 1e-6) / (2.0 if adjacency == "replace_one" else 1.0)
        regularization = c * KT * 0.25 * KT / mu
        longest = 0.021 if n is None else 24.0 / n
        wanted = max(100.0, 1.0 / (regularization * longest), (n or 0) * mu / 300.0)
        steps = given or math.ceil(min(500.0, wanted))
        assert plan.steps == steps
        # Too long a step is cut and has momentum. Beyond ten times, half of the rest of the factor
        # goes into less clipping.
        too_long = max(1.0, 1.0 / (regularization * steps) / longest)
        farther, excess = min(10.0, too_long), max(1.0, too_long / 10.0)
        kinds.add((given is None, too_long > 1.0, excess > 1.0))
        wider = min(2.8, math.sqrt(excess))
        assert plan.clip == pytest.approx(0.25 * KT * wider, rel=1e-12)
        assert plan.step == pytest.approx(1.0 / (regularization * steps * too_long), rel=1e-3)
        moved = plan.step * farther * plan.noise.sigma * math.sqrt(steps)
        assert moved == pytest.approx(wider / (c * KT * excess), rel=1e-3)
        options = plan.descent_options()
        assert options["momentum"] == pytest.approx(1.0 - 1.0 / farther, abs=1e-12)
        assert options["average_from"] == steps - math.ceil(steps / 4)
        assert options["regularization"] == 0.0
        assert options["divisor"] == 1.0
        # Nothing declared: the number of records plays no part.
        same = plan.noise.sigma == mechanism(adjacency=adjacency).noise.sigma
        assert same == (steps == 100 and excess == 1.0)
    # Steps of every kind were there, by the rule and given.
    assert len(kinds) == 6


def test_what_is_given_holds() -> None:
    """Momentum and lengths of steps that the user gives, and settings without the rule."""
    large: dict[str, Any] = {"epsilon": 64.0, "n_records": 20_000}
    assert mechanism(**large).inertia == pytest.approx(0.9)
    for momentum in (0.0, 0.1, 0.7, 0.97):
        plan = mechanism(momentum=momentum, **large)
        assert plan.descent_options()["momentum"] == momentum
        # Steps are short enough in any case, and as many.
        assert plan.step <= 24.0 / 20_000
        assert plan.steps == 500
    given = mechanism(learning_rate=0.3, n_steps=10, **large)
    assert (given.step, given.clip) == (0.3, mechanism().clip)
    last = LAST | {"average": 0.0, "max_grad_norm": 1.5, "accountant": "auto", "epsilon": 64.0}
    assert not mechanism(**last).keeps_state
    for plan in (given, mechanism(**LAST), mechanism(**last)):
        assert plan.descent_options()["momentum"] == 0.0
    for optimizer in ("sgd", "adam"):
        plan = mechanism(optimizer=optimizer, n_steps=10, **large)
        assert plan.descent_options()["momentum"] == 0.0
        assert plan.clip == mechanism().clip


def test_many_rows_of_full_batches_are_summed_exactly() -> None:
    """Decided by the declared number alone, and covered by the same bound."""

    def exact(**changes: Any) -> bool:
        return bool(mechanism(n_features=16, **changes).descent_options()["exact_sums"])

    assert exact(n_records=200_000)
    assert exact(n_records=200_000, adjacency="replace_one")
    assert not exact(n_records=90_000)
    assert not exact(n_records=None)
    assert not exact(n_records=200_000, optimizer="sgd")
    assert not mechanism(n_records=200_000, n_features=2500).descent_options()["exact_sums"]


def test_one_score_is_clipped_to_half_the_square() -> None:
    """Two classes: the gradient of one score is 1 / sqrt(2) of that of two opposite ones."""
    two = mechanism(loss=Loss(name="softmax_margin", n_classes=2))
    assert two.loss.n_scores == 1
    assert two.clip == pytest.approx(mechanism().clip / math.sqrt(2.0), rel=1e-15)
    assert two.step * two.steps == pytest.approx(200.0 * mechanism().step, rel=1e-3)


def test_rules_for_samples() -> None:
    known, unknown = (mechanism(optimizer="sgd", n_records=n) for n in (12_800, None))
    assert (known.rate, known.steps, known.divisor) == (0.01, 2000, 128.0)
    assert (unknown.rate, unknown.steps, unknown.divisor) == (0.1, 200, 128.0)
    few = mechanism(optimizer="sgd", n_records=100)
    assert (few.rate, few.steps, few.divisor) == (1.0, 100, 100.0)
    for rate, steps in ((0.1, 200), (0.2, 100), (0.21, 100), (0.5, 100), (0.999, 100)):
        assert mechanism(optimizer="adam", sampling_rate=rate).steps == steps
    # The divisor scales the learning rate and nothing else.
    other = mechanism(optimizer="sgd", expected_batch_size=1.0)
    assert other.step / other.divisor == pytest.approx(unknown.step / unknown.divisor, rel=1e-12)


def test_samples_of_an_unknown_number_have_no_long_steps() -> None:
    """As full batches: momentum, then a shorter path and a larger clip; Adam the clip alone."""
    for optimizer in ("sgd", "adam"):
        small, large = (mechanism(optimizer=optimizer, epsilon=e) for e in (1.0, 1000.0))
        assert (small.inertia, small.clip) == (0.0, mechanism().clip)
        assert small.clip < large.clip < 2.81 * small.clip
        if optimizer == "adam":
            assert (large.inertia, large.step) == (0.0, small.step)
        else:
            assert large.inertia == pytest.approx(0.9)
            # A sum is over a tenth of the rows.
            assert large.step / large.divisor * large.rate <= 0.021
        known = mechanism(optimizer=optimizer, epsilon=1000.0, n_records=12_800)
        assert (known.inertia, known.clip) == (0.0, small.clip)


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ("constant", np.ones(200)),
        ("linear", 1.0 - np.arange(200) / 200),
        ("inverse", 1.0 / np.arange(1, 201)),
    ],
)
@pytest.mark.parametrize("optimizer", ["gd", "adam"])
def test_every_schedule_goes_the_same_way(schedule: str, factors: Any, optimizer: str) -> None:
    plan = mechanism(schedule=schedule, n_steps=200, optimizer=optimizer)
    flat = mechanism(n_steps=200, optimizer=optimizer)
    assert plan.step * factors.sum() == pytest.approx(200 * flat.step, rel=1e-4)
    assert mechanism(momentum=0.9, n_steps=200).step == pytest.approx(
        0.1 * mechanism(n_steps=200).step, rel=1e-12
    )


@pytest.mark.parametrize("data_norm", [0.1, 1.0, 30.0])
def test_c_multiplies_the_sum_of_the_losses(data_norm: float) -> None:
    """g is q / v times the gradient of sum phi + |W|^2 / (2 C kappa^2), W for divided rows."""
    plan = mechanism(
        C=0.3, data_norm=data_norm, optimizer="sgd", sampling_rate=0.25, expected_batch_size=7.0
    )
    assert plan.regularization == pytest.approx(0.25 / (0.3 * data_norm**2 * 7.0), rel=1e-15)
    assert Fraction(plan.regularization) * Fraction(0.3) * Fraction(data_norm) ** 2 * 7 >= Fraction(
        0.25
    )
    # A large penalty: a step is no longer than what brings W to where the penalty wants it.
    assert mechanism(C=1e-9).step == pytest.approx(1.0 / mechanism(C=1e-9).regularization)


@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
@pytest.mark.parametrize("name", SMOOTH_LOSSES)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_the_last_iterate_is_accounted_for_as_the_linear_recursion(
    name: str, adjacency: str
) -> None:
    """A quadratic attains the bound: its last iterates are two normal laws with known means."""
    loss = Loss(name=name, n_classes=3, smoothing=1.0, margin=0.0 if name == "logistic" else 1.0)
    plan = mechanism(loss=loss, adjacency=adjacency, **LAST)
    noise = plan.noise
    assert isinstance(noise, LastIterateSums)
    m = 1.0 / (0.05 * 4.0)
    M = m + loss.curvature * KT**2 * 200
    # Iterates stay on a grid only for powers of two.
    assert plan.step == 2.0 ** math.floor(math.log2(2.0 / (m + M)))
    floating = mechanism(loss=loss, adjacency=adjacency, noise_grid="float", **LAST)
    assert floating.step == pytest.approx(2.0 / (m + M), rel=1e-13)
    c = 1.0 - plan.step * m
    assert noise.contraction == pytest.approx(c, rel=1e-14)
    factor = 2.0 if adjacency == "replace_one" else 1.0
    moved = factor * noise.contribution * (1 - c**400) / (1 - c)
    spread = noise.sigma * math.sqrt((1 - c**800) / (1 - c * c))
    mu = moved / spread
    (event,) = plan.events
    assert isinstance(event, GaussianEvent)
    assert event.mu == pytest.approx(mu, rel=1e-10)
    assert event.mu >= mu * (1 - 1e-13)
    assert gaussian_delta(1.0, 1.0 / mu) == pytest.approx(1e-6, rel=1e-6)
    # Unclipped gradients, rounding included.
    largest = loss.lipschitz * KT
    assert largest <= noise.contribution <= 1.01 * largest
    options = plan.descent_options()
    assert (1.0 + 1e-7) * largest <= options["clip"] <= (1.0 + 1e-5) * largest
    assert options["precision"] == "f64"
    assert options["average_from"] is None
    assert options["radius"] == noise.radius > 0.0


def test_the_last_iterate_costs_no_more_for_more_steps() -> None:
    sigma = [mechanism(**(LAST | {"n_steps": T})).noise.sigma for T in (1, 100, 10_000, 10**9)]
    assert sigma == sorted(sigma)
    assert sigma[3] <= sigma[2] * 1.001
    composed = mechanism(**(LAST | {"n_steps": 1, "accountant": "composition", "max_grad_norm": 2}))
    assert sigma[0] == pytest.approx(composed.noise.sigma * 2**0.5 * KT / 2.0, rel=1e-2)


@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"optimizer": "sgd", "sampling_rate": 1.0}, "optimizer"),
        ({"momentum": 0.5}, "momentum"),
        ({"schedule": "inverse"}, "schedule"),
        ({"average": 0.25}, "average"),
        ({"C": None}, "C"),
        ({"n_records": None}, "max_samples"),
        ({"max_grad_norm": 1.0}, "max_grad_norm"),
        ({"learning_rate": 1.0}, "learning_rate"),
        ({"learning_rate": 0.003}, "learning_rate"),
        ({"C": 1e30}, "learning_rate"),
        ({"n_records": 10**9}, "max_samples"),
    ],
)
def test_what_the_last_iterate_needs(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"^{name}: .*last_iterate"):
        mechanism(**(LAST | changes))
    asked = LAST | {"average": 0.0, "max_grad_norm": 10.0} | changes
    chosen = mechanism(**(asked | {"accountant": "auto"}))
    assert chosen.keeps_state


def test_auto_takes_the_accountant_with_less_noise_where_it_may() -> None:
    asked = LAST | {"average": 0.0, "max_grad_norm": 1.5, "accountant": "auto"}
    chosen = mechanism(**asked)
    assert not chosen.keeps_state
    composed = mechanism(**(asked | {"accountant": "composition"}))
    assert chosen.noise.sigma < 0.5 * composed.noise.sigma
    # Which it is not by default: the mean of the last iterates is released.
    assert mechanism(**(asked | {"average": None})).keeps_state
    assert mechanism(**(asked | {"max_grad_norm": None})).keeps_state


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"adjacency": "replace_one", "noise_grid": "float"},
        {"optimizer": "sgd"},
        {"optimizer": "adam", "adjacency": "replace_one", "n_records": 5000},
        LAST,
        LAST
        | {"adjacency": "replace_one", "noise_grid": "float", "loss": Loss(name="m3", n_classes=5)},
    ],
)
def test_the_statement_is_the_noise_and_can_be_checked(changes: dict[str, Any]) -> None:
    plan = mechanism(**changes)
    found = promised(plan)
    (part,) = found.parts
    assert found.events == plan.events
    assert (part.sigma, part.grid, part.shape) == (plan.noise.sigma, plan.noise.grid, (4, 51)) or (
        part.shape == (5, 51)
    )
    assert part.n_steps == plan.steps
    assert part.sampling_rate == plan.rate
    assert (found.epsilon, found.delta) == (1.0, 1e-6)
    assert found.private
    assert (CAVEATS["floating_point"] in found.caveats) == (plan.noise_grid == "float")
    last = plan.accountant == "last_iterate"
    assert (part.last_iterate is not None) == last
    # The number of rows is public under replace_one, and is not under add_remove.
    bounded = last and plan.adjacency == "add_remove"
    assert any("max_samples" in caveat for caveat in found.caveats) == bounded
    assert PrivacyStatement.from_json(found.to_json()) == found
    checked = verify(found.to_json())
    assert checked.ok, str(checked)


def test_a_statement_about_several_calls() -> None:
    plan = mechanism(n_steps=10)
    first = promised(plan)
    second = mechanism(n_steps=10, continues=first)
    found = promised(second, random_source="seed")
    assert found.parts == (plan.noise.part, second.noise.part)
    assert found.events == plan.events + second.events
    assert found.epsilon == composed_epsilon(found.events, 1e-6)
    # Two Gaussian mechanisms of the same size are one of sqrt(2) times the size.
    mu = math.sqrt(2.0) * plan.events[0].mu  # type: ignore[attr-defined]
    assert gaussian_delta(found.epsilon, 1.0 / mu) == pytest.approx(1e-6, rel=1e-6)
    third = promised(mechanism(n_steps=10, continues=found))
    assert len(third.parts) == 3
    assert third.not_private_reasons == found.not_private_reasons != ()
    assert third.epsilon > found.epsilon
    with pytest.raises(InvalidParameterError, match="epsilon"):
        promised(mechanism(epsilon=9000.0, continues=promised(mechanism(epsilon=9000.0))))


def test_extreme_settings_are_refused_by_name() -> None:
    for changes, name in (
        ({"max_grad_norm": 1e-40}, "max_grad_norm"),
        ({"max_grad_norm": 1e40}, "max_grad_norm"),
        ({"data_norm": 1e-300, "intercept_scaling": 0.0}, "data_norm"),
        ({"C": 1e-300}, "C"),
        ({"delta": 0.0}, "delta"),
    ):
        with pytest.raises(InvalidParameterError, match=f"^{name}: "):
            mechanism(**changes)
