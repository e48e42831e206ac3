"""The best of K runs: against its exact law on small spaces, reference values, and closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate

from dpsvm_fast.accounting import composed_delta, composed_epsilon
from dpsvm_fast.accounting.stopping import (
    BaseCurve,
    StoppingKernel,
    StoppingLaw,
    pure_stopping_epsilon,
)
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
from oracles.stored import stored

Array = NDArray[np.float64]

LAWS = [
    StoppingLaw("geometric", 0.5, 2.0),
    StoppingLaw("geometric", 0.1, 10.0),
    StoppingLaw("geometric", 0.01, 100.0),
    StoppingLaw("logarithmic", 0.3, 0.0),
    StoppingLaw("logarithmic", 0.003, 0.0),
    StoppingLaw("poisson", math.nan, 1.0),
    StoppingLaw("poisson", math.nan, 10.0),
    StoppingLaw("poisson", math.nan, 4.0),
]
EPSILONS = np.array([0.0, 0.1, 0.3, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0])


def generating(law: StoppingLaw, x: Array) -> Array:
    """E x^K, from the definition of the law."""
    if law.kind == "poisson":
        return np.exp(law.mean * (x - 1.0))
    if law.kind == "geometric":
        return law.gamma * x / (1.0 - (1.0 - law.gamma) * x)
    return np.log(1.0 - (1.0 - law.gamma) * x) / math.log(law.gamma)


def best_of_runs(law: StoppingLaw, q: Array, rank: NDArray[np.intp]) -> Array:
    """Law of the best run on a finite space, and of nothing at all in the last place.

    Outputs of one rank are tied, and the first best run is released.
    """
    result = np.zeros(q.size + 1)
    for level in np.unique(rank):
        tied = rank == level
        below, upto = q[rank < level].sum(), q[rank <= level].sum()
        rise = generating(law, np.array([upto])) - generating(law, np.array([below]))
        result[:-1][tied] = rise[0] * q[tied] / q[tied].sum()
    result[-1] = generating(law, np.zeros(1))[0]
    return result


def hockey_stick(p: Array, q: Array, epsilon: float) -> float:
    """Delta of a pair of laws, in both directions."""
    scale = math.exp(epsilon)
    return float(max(np.maximum(p - scale * q, 0.0).sum(), np.maximum(q - scale * p, 0.0).sum()))


def profile(p: Array, q: Array) -> BaseCurve:
    """Profile of a pair on a grid that contains all its kinks."""
    kinks = np.abs(np.log(p / q))
    x = np.unique(np.concatenate([[0.0], kinks, np.linspace(0.0, kinks.max() + 1.0, 200)]))
    return BaseCurve(x, np.array([hockey_stick(p, q, float(e)) for e in x]))


def random_pair(rng: np.random.Generator) -> tuple[Array, Array, NDArray[np.intp]]:
    """Two laws on up to six points, and a ranking with ties."""
    size = int(rng.integers(2, 7))
    p = rng.dirichlet(np.full(size, rng.choice([0.3, 1.0, 3.0]))) + 1e-9
    q = p * np.exp(rng.normal(0.0, rng.choice([0.05, 0.3, 1.0]), size))
    return p / p.sum(), q / q.sum(), rng.integers(0, size, size)


@pytest.mark.proof("private_selection", "The accountant")
@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_bound_holds_for_every_small_pair(law: StoppingLaw) -> None:
    rng = np.random.default_rng(20261121)
    sharpest = 0.0
    for _ in range(60):
        p, q, rank = random_pair(rng)
        kernel = StoppingKernel(law, profile(p, q))
        best, other = best_of_runs(law, p, rank), best_of_runs(law, q, rank)
        assert best.sum() == pytest.approx(1.0, rel=1e-12)
        for epsilon in EPSILONS:
            exact, bound = hockey_stick(best, other, epsilon), kernel.delta(float(epsilon))
            assert exact <= bound + 1e-14
            if bound < 1.0:
                sharpest = max(sharpest, exact / bound)
    assert sharpest > 0.5


@pytest.mark.proof("private_selection", "The accountant")
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_price_of_one_run_is_not_enough(law: StoppingLaw) -> None:
    # Negative control: charging the best run as one run is refuted by the same enumeration.
    rng = np.random.default_rng(20261121)
    refuted = False
    for _ in range(60):
        p, q, rank = random_pair(rng)
        best, other = best_of_runs(law, p, rank), best_of_runs(law, q, rank)
        refuted |= any(
            hockey_stick(best, other, float(e)) > 1.01 * hockey_stick(p, q, float(e)) + 1e-12
            for e in EPSILONS
        )
    assert refuted


@pytest.mark.sampled
@pytest.mark.proof("private_selection", "The accountant")
@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0])
def test_pure_runs_have_a_pure_best_run(law: StoppingLaw, epsilon: float) -> None:
    bound = pure_stopping_epsilon(law, epsilon)
    power = {"geometric": 2.0, "logarithmic": 1.0}.get(law.kind, 0.0)
    if power:
        assert bound <= (1.0 + power) * epsilon
    worst = 0.0
    rng = np.random.default_rng(7)
    low = 1.0 / (1.0 + math.exp(epsilon))
    pairs = [(np.array([low, 1.0 - low]), np.array([1.0 - low, low]))]
    # Three points with the largest ratio one way, the other way, and in between.
    for _ in range(200):
        x = rng.dirichlet(np.ones(3))
        y = x * np.exp(epsilon * rng.uniform(-1.0, 1.0, 3))
        y /= y.sum()
        if np.abs(np.log(y / x)).max() <= epsilon:
            pairs.append((x, y))
    # The worst pair: a likely loss just below a top that the other law likes.
    top = low * 0.999
    p = np.array([1.0 - low, low - top, top])
    q = np.array([p[0] * math.exp(-epsilon), p[1] * math.exp(-epsilon), top * math.exp(epsilon)])
    q[0] += 1.0 - q.sum()
    pairs.append((p, q))
    for x, y in pairs:
        rank = np.arange(x.size)
        best, other = best_of_runs(law, x, rank), best_of_runs(law, y, rank)
        inner = best > 0.0
        worst = max(worst, float(np.abs(np.log(best[inner] / other[inner])).max()))
    assert worst <= bound * (1.0 + 1e-12)
    # And the worst pair comes close.
    assert worst >= 0.95 * bound


REFERENCE = stored("private_selection")
NAMES = {"0": "logarithmic", "1": "geometric", "inf": "poisson"}
POINTS = [p for p in REFERENCE["points"][0]["points"] if p["shape"] in NAMES]


@pytest.mark.proof("private_selection", "The accountant")
@pytest.mark.parametrize(
    "point", POINTS, ids=lambda p: f"{p['base_rho']}-{p['shape']}-{p['delta']}"
)
def test_published_bounds_are_never_exceeded(point: dict[str, Any]) -> None:
    # What is known of a run is rho alone, or that it is a Gaussian mechanism, which is better.
    rho, delta = float(point["base_rho"]), float(point["delta"])
    found = []
    for run in (ZCDPEvent(rho, "add_remove"), GaussianEvent((2 * rho) ** -0.5, 1.0, "add_remove")):
        event = RandomStoppingEvent(
            (run,), NAMES[point["shape"]], point["mean_repetitions"], "add_remove"
        )
        found.append(composed_epsilon([event], delta))
    assert found[0] <= point["epsilon"] * (1.0 + 1e-9)
    assert found[1] <= found[0]
    # The best of several runs costs more than one.
    assert found[1] > composed_epsilon([run], delta)


@pytest.mark.parametrize("point", REFERENCE["points"][1]["points"], ids=str)
def test_pure_runs_cost_no_more_than_published(point: dict[str, Any]) -> None:
    stopping = {"0": "logarithmic", "1": "geometric"}[point["eta"]]
    published = float(point["epsilon"])
    for mean in (2.0, 10.0, 1e8):
        run = PureEvent(float(point["base_epsilon"]), "add_remove")
        found = composed_epsilon([RandomStoppingEvent((run,), stopping, mean, "add_remove")], 0.0)
        assert run.epsilon < found <= published * (1.0 + 1e-9)
    # With many runs nothing is left of the difference.
    assert found == pytest.approx(published, rel=1e-6)


def exact_gaussian_lower_bound(law: StoppingLaw, mu: float, epsilon: float) -> float:
    """Delta of the best of Gaussian runs whose score is their privacy loss, either way."""
    from scipy.stats import norm

    x = np.linspace(-12.0, 12.0 + mu, 40_001)
    worst = 0.0
    for sign in (1.0, -1.0):
        p, q = norm.pdf(x - mu), norm.pdf(x)
        up, uq = norm.sf(sign * (x - mu)), norm.sf(sign * x)
        p, q = p * law.weight(up), q * law.weight(uq)
        for one, other in ((p, q), (q, p)):
            gap = np.maximum(one - math.exp(epsilon) * other, 0.0)
            worst = max(worst, float(integrate.trapezoid(gap, x)))
    return worst


@pytest.mark.sampled
@pytest.mark.proof("private_selection", "The accountant")
@pytest.mark.parametrize("law", LAWS[:4] + LAWS[5:7], ids=str)
@pytest.mark.parametrize("mu", [0.14, 1.0])
def test_gaussian_runs_are_bounded_from_below_too(law: StoppingLaw, mu: float) -> None:
    mean = law.mean if law.kind != "logarithmic" else law.expected
    run = GaussianEvent(1.0, mu, "add_remove")
    event = RandomStoppingEvent((run,), law.kind, mean, "add_remove")
    for epsilon in (0.0, mu, 3.0 * mu):
        lower = exact_gaussian_lower_bound(law, mu, epsilon)
        bound = composed_delta([event], epsilon)
        assert lower <= bound * (1.0 + 1e-6)


def best(run: PrivacyEvent, stopping: str = "geometric", mean: float = 10.0) -> PrivacyEvent:
    return RandomStoppingEvent((run,), stopping, mean, "add_remove")


def test_delta_falls_and_epsilon_is_its_inverse() -> None:
    for event in (
        best(GaussianEvent(7.0, 1.0, "add_remove")),
        best(ApproximateEvent(0.3, 1e-9, "add_remove"), "poisson", 5.0),
        best(
            ParallelEvent(
                ((PureEvent(0.4, "add_remove"),), (ZCDPEvent(0.01, "add_remove"),)), "add_remove"
            ),
            "logarithmic",
            5.0,
        ),
    ):
        deltas = [composed_delta([event], e) for e in (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)]
        assert deltas == sorted(deltas, reverse=True)
        assert all(0.0 < d <= 1.0 for d in deltas)
        found = composed_epsilon([event], 1e-5)
        assert composed_delta([event], found) <= 1e-5 * (1.0 + 1e-9)
        assert composed_delta([event], 0.999 * found) > 1e-5


def test_more_runs_and_more_noise_move_epsilon_the_right_way() -> None:
    few, many = (best(GaussianEvent(7.0, 1.0, "add_remove"), mean=m) for m in (2.0, 50.0))
    louder = best(GaussianEvent(14.0, 1.0, "add_remove"), mean=50.0)
    epsilons = [composed_epsilon([e], 1e-6) for e in (louder, few, many)]
    assert epsilons == sorted(epsilons)


def test_a_certain_leak_in_a_run_is_one_in_the_best() -> None:
    event = best(ApproximateEvent(0.1, 1e-4, "add_remove"))
    # All of u = 1e-4 may be on top: then the best run is among it this often.
    told = 1e-4 / (0.1 + 0.9 * 1e-4)
    assert composed_delta([event], 100.0) == pytest.approx(told, rel=1e-6)
    assert composed_delta([event], 100.0) >= told
    assert composed_epsilon([event], 0.9 * told) == math.inf


def test_sampled_runs_have_a_bound_above_one_run() -> None:
    run = SubsampledGaussianEvent(2.0, 0.01, 100, "add_remove")
    one, several = composed_epsilon([run], 1e-6), composed_epsilon([best(run, mean=5.0)], 1e-6)
    assert one < several < 3.0 * one


@pytest.mark.proof("private_selection", "The accountant")
def test_composed_with_others_it_costs_more_and_less_than_the_sum() -> None:
    event, other = best(GaussianEvent(7.0, 1.0, "add_remove")), PureEvent(0.3, "add_remove")
    alone = composed_epsilon([event], 1e-6)
    assert alone < composed_epsilon([event, other], 1e-6) <= alone + 0.3
    twice = composed_epsilon([event, event], 1e-6)
    assert alone < twice < composed_epsilon([event], 5e-7) * 2.0


@pytest.mark.parametrize("mean", [1e3, 1e6, 1e9])
def test_hopeless_numbers_of_runs_say_so(mean: float) -> None:
    event = best(GaussianEvent(0.5, 1.0, "add_remove"), "poisson", mean)
    assert composed_delta([event], 1.0) == 1.0
    assert composed_epsilon([event], 1e-6) > 100.0
    assert composed_epsilon([event, GaussianEvent(1.0, 1.0, "add_remove")], 1e-6) > 100.0


def steps(z: float, q: float, n: int) -> SubsampledGaussianEvent:
    return SubsampledGaussianEvent(z, q, n, "add_remove")


def noisy_objective(n_scores: int, sigma: float) -> ObjectiveEvent:
    return ObjectiveEvent("softmax", n_scores, sigma, 1.0 / sigma, None, "add_remove")


def gaussian(mu: float) -> GaussianEvent:
    return GaussianEvent(1.0, mu, "add_remove")


def alternatives(*branches: tuple[PrivacyEvent, ...]) -> AlternativesEvent:
    return AlternativesEvent(branches, "add_remove")


def geometric(*run: PrivacyEvent) -> RandomStoppingEvent:
    return RandomStoppingEvent(run, "geometric", 10.0, "add_remove")


# What curves with a point at each 0.3 of log delta, closely computed, gave: small epsilons, where a
# coarse first step was all there was, and joint laws, which are far above themselves on wide ones.
CLOSE_CURVES: list[tuple[PrivacyEvent, float, float]] = [
    (geometric(steps(5.0, 1e-4, 10)), 1e-5, 0.000237487),
    (geometric(steps(5.0, 1e-4, 100)), 1e-4, 0.000604564),
    (
        alternatives((steps(3.13, 1.06e-4, 27),), (steps(4.69, 2.12e-4, 27),)),
        1e-5,
        0.000333377,
    ),
    (
        alternatives((noisy_objective(3, 5.0), gaussian(0.3)), (PureEvent(0.01, "add_remove"),)),
        1e-4,
        1.4512,
    ),
    (geometric(noisy_objective(3, 20.0), gaussian(0.1)), 1e-4, 0.679712),
    (
        RandomStoppingEvent((noisy_objective(3, 5.0),), "poisson", 10.0, "add_remove"),
        1e-4,
        2.51946,
    ),
    (geometric(noisy_objective(10, 5.0), gaussian(0.5)), 1e-4, 3.89937),
]


@pytest.mark.proof("accountant", "Termination")
@pytest.mark.parametrize(("event", "delta", "epsilon"), CLOSE_CURVES)
def test_curves_with_few_and_quick_points_are_close(
    event: PrivacyEvent, delta: float, epsilon: float
) -> None:
    assert 0.98 * epsilon < composed_epsilon([event], delta) < 1.01 * epsilon
