"""What ``verify`` recomputes is an upper bound: no claim below the truth is confirmed."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from dpsvm_fast.accounting import (
    composed_delta,
    composed_epsilon,
    gaussian_sigma,
    objective_sigma,
    subsampled_gaussian_noise_multiplier,
)
from dpsvm_fast.certificates import (
    ApproximateEvent,
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PureEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from dpsvm_fast.verification import losses
from dpsvm_fast.verification import objective as joint
from dpsvm_fast.verification.compose import choice_of, least_delta_of, recomputed_events
from dpsvm_fast.verification.losses import Curve, normal_density
from dpsvm_fast.verification.objective import event_delta

A, R = "add_remove", "replace_one"
Array = NDArray[np.float64]


def normal_tail_delta(epsilon: float, mu: float) -> float:
    """Delta of the Gaussian mechanism by the functions of the standard library."""

    def tail(x: float) -> float:
        return 0.5 * math.erfc(x / math.sqrt(2.0))

    first, second = epsilon / mu - 0.5 * mu, epsilon / mu + 0.5 * mu
    return tail(first) - math.exp(epsilon) * tail(second)


def objective(law: str, n: int, sigma: float, kappa: float, relation: str = A) -> ObjectiveEvent:
    return ObjectiveEvent(law, n, sigma, kappa, None, relation)


# A softmax whose record moves the noise by sqrt(2) t: its delta is at least that of the Gaussian
# mechanism. The claims are what a quadrature that misses the peak of its integrand comes to.
PEAKS = [
    (4.0, 0.192, 4.92e3, 0.147),
    (6.0, 0.167, 1.43e4, 1.08e-4),
    (8.0, 0.167, 1.19e5, 1e-30),
]


@pytest.mark.proof("accountant", "What verify computes")
@pytest.mark.parametrize(("epsilon", "sigma", "kappa", "claim"), PEAKS)
def test_large_curvature_does_not_hide_the_record(
    epsilon: float, sigma: float, kappa: float, claim: float
) -> None:
    event = objective("softmax", 3, sigma, kappa)
    least = normal_tail_delta(epsilon, math.sqrt(2.0) / sigma)
    assert least > 0.99
    _, delta, holds = recomputed_events((event,), epsilon, claim)
    assert holds is False
    assert delta >= least * (1.0 - 1e-6)


# What costs next to nothing beside a sum of mu = 1.
CHEAP = objective("logistic", 1, 1e6, 1e-9)


@pytest.mark.proof("accountant", "What verify computes")
@pytest.mark.parametrize("beside", [(CHEAP,), (CHEAP, PureEvent(1e-9, A)), (ZCDPEvent(1e-18, A),)])
@pytest.mark.parametrize(
    ("epsilon", "claim"), [(5.001, 1.7e-7), (6.501, 2.1e-11), (12.5, 1e-299), (12.5, 1e-34)]
)
def test_a_sum_is_not_hidden_with_what_costs_nothing(
    epsilon: float, claim: float, beside: tuple[PrivacyEvent, ...]
) -> None:
    least = normal_tail_delta(epsilon, 1.0)
    assert claim < least
    _, delta, holds = recomputed_events((GaussianEvent(1.0, 1.0, A), *beside), epsilon, claim)
    assert holds is False
    assert delta >= least * (1.0 - 1e-6)


LENGTHS = [
    ("logistic", 1, 1.0),
    ("huber", 3, math.sqrt(3.0)),
    ("softmax", 2, math.sqrt(2.0)),
    ("softmax", 4, math.sqrt(2.0)),
    ("weston_watkins", 3, math.sqrt(6.0)),
]


@pytest.mark.proof("accountant", "What verify computes")
@pytest.mark.parametrize(
    "times", [2, pytest.param(40, marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("law", "n_scores", "length"), LENGTHS)
def test_what_is_recomputed_is_not_below_the_gaussian_mechanism_inside(
    law: str, n_scores: int, length: float, relation: str, times: int
) -> None:
    moved = length * (2.0 if relation == "replace_one" else 1.0)
    rng = np.random.default_rng(n_scores)
    for _ in range(times):
        epsilon, kappa = 10.0 ** rng.uniform(-1.0, 1.0), 10.0 ** rng.uniform(-3.0, 5.0)
        sigma = moved * 10.0 ** rng.uniform(-1.0, 0.8) / epsilon
        least = normal_tail_delta(epsilon, moved / sigma)
        # For many bounds on coarse grids; one alone on fine ones takes long.
        for quickly in (False, True) if times > 2 else (True,):
            event = objective(law, n_scores, sigma, kappa, relation)
            found = event_delta(event, epsilon, quickly=quickly)
            assert found >= least * (1.0 - 1e-9) - 1e-15


@pytest.mark.proof("accountant", "What verify computes")
def test_two_curves_are_not_less_than_one() -> None:
    """Beside a curve with many values the other one must not be left out."""
    steep = objective("logistic", 1, 2.0, 1.0)
    epsilon = composed_epsilon((steep, ZCDPEvent(0.1, A)), 1e-5)
    _, one, _ = recomputed_events((steep,), epsilon, 0.5)
    _, two, holds = recomputed_events((steep, ZCDPEvent(0.1, A)), epsilon, 0.5)
    assert holds
    assert two > one
    assert recomputed_events((steep, ZCDPEvent(0.1, A)), epsilon, 0.9 * two)[2] is not True


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_steps_without_noise_tell_that_a_record_joined(relation: str) -> None:
    loud = SubsampledGaussianEvent(5e-5, 1e-3, 5, relation)
    plain = SubsampledGaussianEvent(12.0, 0.1, 50, relation)
    claim = composed_delta((loud, plain), 1.0)
    _, delta, holds = recomputed_events((loud, plain), 1.0, claim)
    assert holds
    assert delta >= 1.0 - (1.0 - 1e-3) ** 5
    assert recomputed_events((loud, plain), 1.0, 0.9 * delta)[2] is False


# Claims exactly as low as the accountant makes them, whose tables were once too coarse to confirm.
TIGHT: list[tuple[list[PrivacyEvent], float]] = [
    ([ZCDPEvent(0.016035778555272183, A)], 1.4578868509664855e-05),
    ([objective("softmax", 3, 0.9627, 1.039), GaussianEvent(2.6, 1.0, A)], 1e-5),
    (
        [
            GaussianEvent(10.318749560608095, 1.0, A),
            SubsampledGaussianEvent(1.8512640127025755, 0.006898991758050823, 341, A),
            objective("softmax", 3, 13.810184497526963, 0.02362002622475335),
        ],
        7.813293134037126e-06,
    ),
    (
        [
            PureEvent(0.0761709003634067, "replace_one"),
            objective("softmax", 3, 6.31417137920083, 0.13627035681602256, "replace_one"),
            GaussianEvent(17.265983491195957, 1.0, "replace_one"),
        ],
        1.935110550393179e-08,
    ),
    (
        [
            GaussianEvent(3.734267678265983, 1.0, A),
            objective("softmax", 5, 0.7940171399536338, 2.1270462056110206),
            GaussianEvent(0.0010739186213369542, 2.409148431968471e-05, A),
        ],
        2.5849129128882054e-06,
    ),
]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("events", "delta"), TIGHT, ids=["zcdp", "sum", "sampled", "response", "between"]
)
def test_claims_as_low_as_the_accountant_makes_them_are_confirmed(
    events: list[PrivacyEvent], delta: float
) -> None:
    epsilon = composed_epsilon(events, delta)
    assert recomputed_events(tuple(events), epsilon, delta)[2] is True
    assert not recomputed_events(tuple(events), 0.97 * epsilon, delta)[2]


# Tiny deltas and epsilons: tables once ended above them, constants stood for what underflows.
EXTREME: list[tuple[float, float, list[PrivacyEvent]]] = [
    (5.0, 1e-22, [objective("logistic", 1, 3.0, 0.4), GaussianEvent(6.0, 1.0, A)]),
    (5.0, 1e-250, [objective("logistic", 1, 9.0, 0.04, R), GaussianEvent(20.0, 1.0, R)]),
    (0.5, 1e-30, [objective("softmax", 3, 70.0, 0.01), GaussianEvent(90.0, 1.0, A)]),
    (600.0, 1e-6, [objective("huber", 1, 0.05, 0.3), GaussianEvent(0.1, 1.0, A)]),
    (1e-6, 1e-300, [GaussianEvent(5e7, 1.0, A)]),
    (0.01, 1e-300, [objective("logistic", 1, 5e3, 1e-6)]),
    (71.0, 6e-25, [ObjectiveEvent("logistic", 4, 2.0, None, 4.5, R)]),
]


@pytest.mark.parametrize(("epsilon", "delta", "events"), EXTREME)
def test_extreme_claims_are_confirmed_where_they_hold(
    epsilon: float, delta: float, events: list[PrivacyEvent]
) -> None:
    """As much noise as the claim needs, by the accountant, and a tenth less."""
    low, high = 0.0, 64.0

    def with_noise(factor: float) -> tuple[PrivacyEvent, ...]:
        return tuple(dataclasses.replace(e, sigma=e.sigma * factor) for e in events)  # type: ignore

    while high > low * 1.001:
        middle = 0.5 * (low + high)
        enough = composed_delta(list(with_noise(middle)), epsilon) <= delta
        low, high = (low, middle) if enough else (middle, high)
    found = recomputed_events(with_noise(high * 1.001), epsilon, delta)
    assert found[2] is True
    assert found[1] <= delta
    assert recomputed_events(with_noise(0.9 * high), epsilon, delta)[2] is False


@pytest.mark.proof("accountant", "What verify computes")
@pytest.mark.parametrize("mu", [1e-12, 2.7e-8, 9e-5, 1.1e-4, 0.3])
def test_differences_of_nearly_equal_tails_lose_no_digits(mu: float) -> None:
    """Against an integral of the slope, of which no digits cancel."""
    epsilon = mu * np.linspace(0.0, 37.0, 200)
    exact = np.array([losses.gaussian_delta(float(e), mu) for e in epsilon])
    found = losses.two_sided_deltas(epsilon, mu)
    assert (found >= exact * (1.0 - 1e-13)).all()
    assert (found <= exact * (1.0 + 1e-8)).all()
    # Far on the other side: 1 - exp(epsilon) nearly.
    for far in (5.5, 40.0, 1e3 / mu):
        deltas = losses.two_sided_deltas(np.array([-far * mu]), mu)
        assert -math.expm1(-far * mu) <= deltas[0] <= -math.expm1(-far * mu) * (1.0 + 1e-6)


@pytest.mark.parametrize("delta", [1e-3, 1e-30, 1e-300])
def test_epsilon_of_nearly_no_noise_is_found(delta: float) -> None:
    for epsilon in (1e-9, 1e-6, 1.0, 1e4):
        mu = 1.0 / gaussian_sigma(epsilon, delta)
        assert losses.gaussian_epsilon(delta, mu) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.proof("accountant", "What verify computes")
def test_more_points_of_a_curve_never_lower_it_below_what_it_bounds() -> None:
    def exact(epsilon: float) -> float:
        return normal_tail_delta(epsilon, 0.4)

    def below(x: np.ndarray) -> np.ndarray:
        return np.asarray(1.0 / (1.0 + np.exp(-40.0 * x)))

    coarse = Curve.of(exact, 0.5)
    fine = coarse.closer(exact, 1.5, below, 150.0)
    points = np.linspace(0.0, 2.0, 500)
    true = np.array([exact(float(x)) for x in points])
    assert (fine.at(points) >= true * (1.0 - 1e-9)).all()
    near = np.abs(points - 1.5) < 0.05
    assert (coarse.at(points) / true)[near].max() > 1.005
    assert (fine.at(points) / true)[near].max() < 1.0005


SEVERAL_SCORES: list[list[PrivacyEvent]] = [
    [ObjectiveEvent("logistic", 1, 9.32, 5.0, None, A), GaussianEvent(4.0, 1.0, A)],
    [
        ObjectiveEvent("logistic", 3, 6.47, 0.01, None, A),
        SubsampledGaussianEvent(1.2, 0.02, 100, A),
    ],
    [ObjectiveEvent("weston_watkins", 3, 29.3, 0.01, None, A), GaussianEvent(13.0, 1.0, A)],
    [ObjectiveEvent("weston_watkins", 3, 19.4, 0.01, None, R), GaussianEvent(4.0, 1.0, R)],
    # The sum over many pairs, one value at a time.
    [
        ObjectiveEvent("weston_watkins", 60, 900.0, None, 0.1, R),
        ObjectiveEvent("weston_watkins", 60, 1000.0, None, 0.1, R),
    ],
    [ObjectiveEvent("weston_watkins", 60, 500.0, None, 0.1, A), GaussianEvent(4.0, 1.0, A)],
]


@pytest.mark.parametrize("delta", [1e-6, 1e-50, 1e-100])
def test_calibrated_noise_of_many_pairs_is_confirmed(delta: float) -> None:
    sigma = objective_sigma(1.0, delta, loss="m3", n_classes=60, jacobian=0.1)
    events = (ObjectiveEvent("weston_watkins", 60, sigma, None, 0.1, A),)
    assert recomputed_events(events, 1.0, delta)[2]
    # Negative control: less noise is not.
    less = (dataclasses.replace(events[0], sigma=0.9 * sigma),)
    assert not recomputed_events(less, 1.0, delta)[2]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("events", SEVERAL_SCORES, ids=str)
def test_tight_claims_of_several_scores_with_others_take_little(
    events: list[PrivacyEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    epsilon = composed_epsilon(events, 1e-5)
    # A fifth of what any certificate may take.
    monkeypatch.setattr(losses, "MAX_WORK", 1e9)
    with losses.limited_work():
        assert recomputed_events(tuple(events), epsilon * 1.0001, 1e-5)[2]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("relation", [A, R])
@pytest.mark.parametrize(
    ("noise", "rate", "steps", "pure", "told", "delta"),
    [
        (8.24, 1.19e-3, 2, 0.5251, 4.1e-6, 1e-5),
        (24.7, 1.54e-3, 3, 0.4549, 1.9e-9, 1e-8),
        (12.5, 1.95e-3, 1, 0.8417, 1.5e-7, 1e-6),
    ],
)
def test_few_rare_steps_with_an_approximate_event_take_little(
    relation: str,
    noise: float,
    rate: float,
    steps: int,
    pure: float,
    told: float,
    delta: float,
) -> None:
    events = (
        SubsampledGaussianEvent(noise, rate, steps, relation),
        ApproximateEvent(pure, told, relation),
    )
    epsilon = composed_epsilon(events, delta)
    start = time.process_time()
    assert recomputed_events(events, epsilon, delta)[2]
    assert recomputed_events(events, epsilon, 0.5 * delta)[2] is not True
    # Each took five seconds on a quiet machine; a busy one takes up to eight for both.
    assert time.process_time() - start < 20.0


@pytest.mark.proof("accountant", "Termination")
@pytest.mark.parametrize("relation", [A, R])
def test_faint_steps_with_a_gaussian_sum_are_confirmed(relation: str) -> None:
    large = [
        SubsampledGaussianEvent(1.1, 0.02, 300, relation),
        GaussianEvent(1.0, 0.83, relation),
    ]
    faint = [
        SubsampledGaussianEvent(2.88e7, 2.1e-5, 229, relation),
        SubsampledGaussianEvent(4.4e6, 4.4e-3, 197_875, relation),
    ]
    epsilon = composed_epsilon([*large, *faint], 1e-9)
    assert recomputed_events((*large, *faint), epsilon, 1e-9)[2]
    # What they are confirmed with is no less than without them.
    alone = recomputed_events(tuple(large), epsilon, 1e-12)[1]
    assert recomputed_events((*large, *faint), epsilon, 1e-12)[1] >= alone
    # Noise that is not large beside anything stays what it is.
    loud = SubsampledGaussianEvent(30.0, 4.4e-3, 197_875, relation)
    assert choice_of((*large, loud)).without_faint_steps() == choice_of((*large, loud))


@pytest.mark.proof("accountant", "What verify computes")
@pytest.mark.parametrize("relation", [A, R])
def test_what_refutes_claims_about_sampled_steps_is_a_lower_bound(relation: str) -> None:
    rng = np.random.default_rng(5)
    close = 0
    for _ in range(60):
        noise, rate = 10.0 ** rng.uniform(-0.5, 1.5), 10.0 ** rng.uniform(-5.0, -0.1)
        steps, epsilon = int(10.0 ** rng.uniform(0.0, 4.0)), 10.0 ** rng.uniform(-1.0, 1.0)
        events = (
            SubsampledGaussianEvent(noise, rate, steps, relation),
            GaussianEvent(10.0 ** rng.uniform(0.0, 2.0), 1.0, relation),
        )
        least = least_delta_of(choice_of(events), epsilon)
        bound = composed_delta(list(events), epsilon)
        assert least <= bound * (1.0 + 1e-9)
        close += least > 0.5 * bound
    assert close >= 15


def test_a_claim_between_the_bounds_is_neither_confirmed_nor_refuted() -> None:
    """Sampled steps: what a test shows is below what their composition is bounded by."""
    events = (SubsampledGaussianEvent(1.0, 0.01, 1000, A),)
    bound = composed_delta(list(events), 1.0)
    assert recomputed_events(events, 1.0, 1.001 * bound)[2] is True
    epsilon, delta, holds = recomputed_events(events, 1.0, 0.7 * bound)
    assert holds is None
    assert (epsilon, delta) == (pytest.approx(1.09, abs=0.05), pytest.approx(bound, rel=1e-3))
    assert recomputed_events(events, 1.0, 0.001 * bound)[2] is False
    # Gaussian mechanisms have no room between the two.
    sums = (GaussianEvent(2.0, 1.0, A),)
    assert recomputed_events(sums, 1.0, composed_delta(list(sums), 1.0) * (1.0 - 1e-6))[2] is False


@pytest.mark.parametrize("relation", [A, R])
@pytest.mark.parametrize(
    ("epsilon", "rate", "steps"), [(1e-7, 0.1, 20), (1e-5, 0.5, 5), (1e-5, 0.1, 20)]
)
def test_sampled_steps_at_tiny_epsilon_are_confirmed(
    relation: str, epsilon: float, rate: float, steps: int
) -> None:
    """Their cells are as narrow as their losses, which stay far from -log(1 - rate)."""
    noise = subsampled_gaussian_noise_multiplier(epsilon, 1e-6, rate, steps, relation)
    events = (SubsampledGaussianEvent(noise, rate, steps, relation),)
    _, delta, holds = recomputed_events(events, epsilon, 1e-6)
    assert holds is True
    assert least_delta_of(choice_of(events), epsilon) <= delta
    assert delta > 0.99e-6


@pytest.mark.proof("joint_bound", "Independent recomputation")
def test_the_cut_of_a_sum_at_its_cap_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three terms that end at the cap exactly: moved to the ends of their cells they lose."""
    n, ratio, t, level = 4, 0.6, 0.3, 1.0
    setting = joint._Setting(t, t * ratio + 0.5 * t * t, n, 0.5 * t * t, 1.0)
    cell, cap = ratio / 6.0, 0.75 * ratio

    def bound(may_pass: bool) -> float:
        def laws(w: Array, *_: object) -> Iterator[tuple[Array, Array, Array, bool]]:
            # Each term is 1.5 cells: one or two.
            values = np.broadcast_to(cell * np.arange(3.0, 7.0), (w.size, 4))
            masses = np.broadcast_to(np.array([1.0, 3.0, 3.0, 1.0]) / 8.0, values.shape)
            yield np.arange(w.size), values, masses, may_pass

        monkeypatch.setattr(joint, "_laws_of_xi", laws)
        levels = (level, level, level)
        return joint._Sum(setting, setting.kappa, levels, (0.01, 6, 1.0), logarithmic=True).at(
            level
        )

    w, masses = joint.largest_nodes(n)
    knots = np.arange(-joint.BEYOND, joint.BEYOND + 1.0, 0.001)
    heights = joint._Payoff(knots, setting, ratio, 0.001, logarithmic=True).heights(level)
    exact = float(masses @ np.interp(w + cap, knots, heights))
    assert exact <= bound(may_pass=True) < 1.6 * exact
    # Without that the bound would be none.
    assert bound(may_pass=False) < 0.99 * exact


@pytest.mark.proof("joint_bound", "The law of Ξ given w")
@pytest.mark.parametrize("exponent", [1, 2, 7, 99])
def test_powers_of_rows_are_bounds_and_err_by_no_more_than_said(exponent: int) -> None:
    points, size = 60, 128
    base = np.exp(-np.outer([0.3, 1.0, 6.0], np.arange(points)))
    base /= base.sum(axis=1, keepdims=True) * 1.001
    exact = np.zeros_like(base)
    for row, power in zip(base, exact, strict=True):
        power[0] = 1.0
        for _ in range(exponent):
            power[:] = np.convolve(power, row)[:points]
    beyond = joint._beyond(base, exponent, size)[:, None]
    powers, error = joint._power_at_once(base, exponent, size)
    more = (powers - exact).sum(axis=1, keepdims=True)
    assert (powers >= exact * (1.0 - 1e-12)).all()
    assert (more <= error + beyond + 1e-12).all()
    powers, error = joint._power_by_squares(base, exponent, size)
    assert (powers >= exact * (1.0 - 1e-12)).all()
    assert (powers.sum(1) <= exact.sum(1) + error + 1e-12).all()
    # Both ways are taken, and only the steepest row's power is at once where there are many.
    at_once = beyond[:, 0] <= joint.WRAPPED
    assert at_once[2]
    assert exponent < 99 or not at_once[0]


@pytest.mark.parametrize(
    ("n_classes", "t", "kappa", "epsilon", "relation"),
    [
        (300, 0.2, 1.5, 2.7, A),
        (800, 0.3, 0.4, 2.5, A),
        (4_000, 0.25, 0.3, 2.0, A),
        pytest.param(1_130, 0.201, 0.727, 2.093, A, marks=pytest.mark.nightly),
        pytest.param(10_000, 0.3, 0.5, 3.0, A, marks=pytest.mark.nightly),
        pytest.param(100_000, 0.25, 0.4, 2.5, A, marks=pytest.mark.nightly),
        pytest.param(100_000, 0.25, 0.4, 4.0, R, marks=pytest.mark.nightly),
    ],
)
def test_claims_about_many_classes_are_confirmed_within_the_limit(
    n_classes: int, t: float, kappa: float, epsilon: float, relation: str
) -> None:
    event = objective("softmax", n_classes, 1.0 / t, kappa, relation)
    claim = composed_delta([event], epsilon)
    with losses.limited_work():
        _, found, holds = recomputed_events((event,), epsilon, claim)
    assert holds is True
    assert 0.7 * claim < found <= claim


@pytest.mark.proof("joint_bound", "Independent recomputation")
def test_nodes_that_are_thinned_keep_mass_and_mean() -> None:
    w, masses = joint.largest_nodes(5_000)
    counted = masses > 1e-9
    w, masses = w[counted], masses[counted]
    kept, shares, between = joint._thinned(w, masses)
    assert kept.size < 0.3 * w.size
    assert (shares >= 0.0).all()
    assert shares.sum() == pytest.approx(masses.sum(), rel=1e-12)
    mean = shares[0] @ kept + shares[1] @ (kept + between)
    assert mean == pytest.approx(masses @ w, rel=1e-12)
    assert between <= joint.TOGETHER


@pytest.mark.proof("joint_bound", "Independent recomputation")
@pytest.mark.parametrize("rate", [1.0, 2.0])
def test_laws_that_many_nodes_share_are_bounds_and_close(
    monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    t, level = 0.2, 1.5
    setting = joint._Setting(t, 0.4, 2_500, 0.5 * rate * t * t, rate)

    def bound() -> float:
        levels = (level, level, level)
        return joint._Sum(setting, 0.3, levels, joint.COARSE, logarithmic=True).at(level)

    shared = bound()
    monkeypatch.setattr(joint, "TOGETHER", 0.0)
    assert bound() < shared < 1.1 * bound()


def three_classes(setting: joint._Setting, theta1: float, logarithmic: bool, e: float) -> float:
    """(e) of the proof by nested sums: of three classes one gap decides, and Xi has a formula."""
    t, omega, kappa = setting.t, setting.quadratic, setting.kappa
    ratio, rank = (theta1 - omega) / t, 1.0 if logarithmic else 2.0
    S = np.linspace(0.0, rank / (rank + 1.0), 2001)
    e = e - float(np.max(rank * np.log1p(kappa * S / rank) - theta1 * S))
    x, u = np.linspace(-9.0, 10.0 + ratio, 1201), np.linspace(0.0, 1.0, 801)
    own = np.minimum(2.0 * u * (1.0 - u), max(1.0 / omega - 1.0 / kappa, 0.0))
    price = np.log1p(kappa * own) - omega * own
    if not logarithmic:
        price = 2.0 * (theta1 - omega) * u * (1.0 - u)
    psi = (np.multiply.outer(2.0 * omega + t * x, u) + price).max(axis=1)
    payoff = -np.expm1(np.minimum(setting.rate * (e - psi), 0.0))
    h = normal_density(np.subtract.outer(x, x)) @ payoff * (x[1] - x[0])
    w, gap = np.linspace(-8.0, 8.0, 401)[:, None], (np.arange(400.0) + 0.5) / 200.0 * ratio
    moved = np.interp(w + (2.0 * ratio - gap) ** 2 / (8.0 * ratio), x, h)
    near = (normal_density(w - gap) * moved).sum(1) * ratio / 200.0
    far = ndtr(w - 2.0 * ratio)[:, 0] * np.interp(w[:, 0], x, h)
    return float(2.0 * normal_density(w[:, 0]) @ (near + far) * 0.04)


@pytest.mark.proof("joint_bound", "Independent recomputation")
@pytest.mark.parametrize("logarithmic", [True, False])
@pytest.mark.parametrize(
    ("t", "kappa", "share", "rate", "epsilon"),
    [
        (0.28, 4.43, 0.137, 1.0, 1.9),
        (0.0054, 0.152, 0.3, 1.0, 0.09),
        (0.0085, 0.051, 0.98, 2.0, 0.05),
        (0.6, 1.2, 1.0, 2.0, 1.0),
    ],
)
def test_the_joint_law_of_three_classes_is_what_quadrature_says(
    t: float, kappa: float, share: float, rate: float, epsilon: float, logarithmic: bool
) -> None:
    setting = joint._Setting(t, kappa, 2, 0.5 * rate * t * t, rate)
    theta1 = share * kappa
    price = joint._price(theta1, kappa, 2 if logarithmic else 3)
    # No nearer to the price than a level of the first loss.
    level = max(epsilon - price, t)
    exact = three_classes(setting, theta1, logarithmic, level + price)
    for grid in (joint.QUICK, joint.FINE):
        levels = (level, level, level)
        found = joint._Sum(setting, theta1, levels, grid, logarithmic=logarithmic).at(level)
        assert exact * (1.0 - 3e-4) <= found <= exact * 1.004


@pytest.mark.parametrize(
    ("n_classes", "epsilon", "delta", "kappa", "relation"),
    [
        (5, 2.796434257704975, 0.00012568424390145577, 2.3091159248266533, A),
        (10, 0.24744312770096719, 3.1013858712724806e-08, 0.10243875137144764, A),
        pytest.param(
            *(772, 0.047993372865952066, 1.4543643464666123e-07, 0.04284762682009976, A),
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_calibrated_noise_is_confirmed_where_coarse_grids_mislead(
    n_classes: int, epsilon: float, delta: float, kappa: float, relation: str
) -> None:
    options: dict[str, Any] = {"n_classes": n_classes, "kappa": kappa, "adjacency": relation}
    sigma = objective_sigma(epsilon, delta, loss="softmax_margin", **options)
    event = objective("softmax", n_classes, sigma, kappa, relation)
    _, found, holds = recomputed_events((event,), epsilon, delta)
    assert holds is True
    assert found > 0.5 * delta
