"""What a release made for one row promises to a person with several, against brute force."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.special import expit, ndtr
from scipy.stats import binom, norm

from dpsvm_fast import (
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateCenter,
    PrivateLinearSVC,
    _core,
    verify,
)
from dpsvm_fast.accounting import (
    composed_delta,
    composed_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
)
from dpsvm_fast.accounting.groups import path_points, step_points
from dpsvm_fast.accounting.objective import group_points, profile_points
from dpsvm_fast.certificates import (
    AlternativesEvent,
    ApproximateEvent,
    DistanceEvent,
    GaussianEvent,
    ObjectiveEvent,
    ParallelEvent,
    PipelineStatement,
    PipelineStep,
    PrivacyEvent,
    PrivacyStatement,
    PureEvent,
    RandomStoppingEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
    read_certificate,
)
from dpsvm_fast.certificates.statement import bound_certificate
from dpsvm_fast.exceptions import InvalidParameterError, LedgerError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.persist import save_model
from dpsvm_fast.planning import plan_noise
from dpsvm_fast.verification import Policy

Array = NDArray[np.float64]
RELATIONS = ("add_remove", "replace_one")
SETTINGS = ((1.0, 0.02, 10), (0.7, 0.3, 3), (4.0, 0.5, 25), (0.5, 0.001, 100))
# Places of the noise, dense enough for sums over them to be integrals.
PLACES = np.linspace(-60.0, 120.0, 90_001)
# What sums over cells of the plane may exceed integrals by.
QUADRATURE = 1.003
paths = pytest.mark.proof("accountant", "Groups of records: paths")
sampled = pytest.mark.proof("accountant", "Groups of records: sampled sums")


def excess(p: Array, q: Array, epsilon: float) -> float:
    """Hockey-stick divergence of two vectors of masses."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def step_masses(z: float, q: float, m: int, relation: str) -> list[tuple[Array, Array]]:
    """Masses of both laws of the worst sampled step at the places, for each direction."""
    k = np.arange(m + 1)
    joins = binom.pmf(k, m, q)
    step = PLACES[1] - PLACES[0]
    still = norm.pdf(PLACES, 0.0, z) * step
    moved, other = (
        sum(
            b * norm.pdf(PLACES, s * j, z) * step
            for j, b in zip(k, joins, strict=True)
            if b > 1e-20
        )
        for s in (1.0, -1.0)
    )
    if relation == "replace_one":
        return [(np.asarray(moved), np.asarray(other))]
    return [(np.asarray(moved), still), (still, np.asarray(moved))]


@paths
def test_a_gaussian_release_costs_m_times_its_parameter() -> None:
    sigma = gaussian_sigma(1.0, 1e-5)
    for relation in RELATIONS:
        events = [GaussianEvent(sigma * math.sqrt(2.0), 1.0, relation)] * 2
        for m in (1, 2, 10, 57):
            epsilon = composed_epsilon(events, 1e-5, group_size=m)
            assert epsilon == pytest.approx(gaussian_epsilon(1e-5, sigma / m), rel=1e-9)
        assert composed_delta(events, 10.0, group_size=10) == pytest.approx(0.0040547, rel=1e-4)
        assert composed_epsilon(events, 1e-5, group_size=10) == pytest.approx(14.42927, rel=1e-6)


@paths
def test_other_events_cost_what_is_known_of_groups() -> None:
    for relation in RELATIONS:
        pure = [PureEvent(0.1, relation)] * 3
        assert composed_epsilon(pure, 0.0, group_size=4) == pytest.approx(1.2, rel=1e-12)
        rough = [ApproximateEvent(0.1, 1e-9, relation)]
        whole = 1e-9 * math.expm1(0.5) / math.expm1(0.1)
        assert composed_delta(rough, 0.5, group_size=5) == pytest.approx(whole, rel=1e-9)
        assert composed_delta([ApproximateEvent(5.0, 0.1, relation)], 9.0, group_size=500) == 1.0
        rho = [ZCDPEvent(0.25, relation)]
        assert composed_epsilon([ZCDPEvent(0.01, relation)], 1e-6, group_size=5) == (
            composed_epsilon(rho, 1e-6)
        )
        far = [DistanceEvent(1e-9, relation)]
        assert composed_delta(far, 1.0, group_size=9) == composed_delta(far, 1.0)


@paths
def test_events_about_others_are_those_of_the_group() -> None:
    for relation in RELATIONS:
        one, five = (GaussianEvent(7.0 / m, 1.0, relation) for m in (1, 5))
        small, large = (PureEvent(e, relation) for e in (0.125, 0.625))
        for wrap in (
            lambda a, b, r: ParallelEvent(((a, a, b),), r),
            lambda a, b, r: AlternativesEvent(((a,), (b,)), r),
            lambda a, _, r: RandomStoppingEvent((a,), "geometric", 5.0, r),
            lambda _, b, r: RandomStoppingEvent((b, b), "logarithmic", 5.0, r),
        ):
            found = composed_epsilon([wrap(one, small, relation)], 1e-6, group_size=5)
            expected = composed_epsilon([wrap(five, large, relation)], 1e-6)
            assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.proof("accountant", "Groups of records: branches")
def test_rows_of_one_person_may_lie_in_several_branches() -> None:
    for relation in RELATIONS:
        pure, noisy = PureEvent(0.3, relation), GaussianEvent(3.0, 1.0, relation)
        event = ParallelEvent(((pure,), (noisy,)), relation)
        alone: list[list[PrivacyEvent]] = [[PureEvent(1.2, relation)]]
        alone += [[GaussianEvent(3.0, 4.0 - k, relation)] for k in range(4)]
        for k in range(1, 4):
            alone[k + 1].append(PureEvent(0.3 * k, relation))
        ways = [composed_delta(events, 1.0) for events in alone]
        assert composed_delta([event], 1.0, group_size=4) == pytest.approx(max(ways), rel=1e-9)
        # Too many ways: one list of events covers them.
        far = DistanceEvent(1e-7, relation)
        many = ParallelEvent(
            tuple((GaussianEvent(3.0 + i, 1.0, relation), far) for i in range(3))
            + tuple((PureEvent(0.1 * i, relation),) for i in range(1, 5)),
            relation,
        )
        most = composed_delta(
            [GaussianEvent(3.0 / 9, 1.0, relation), DistanceEvent(3e-7, relation)], 8.0
        )
        assert composed_delta([many], 8.0, group_size=9) >= most
        assert composed_delta([many], 8.0, group_size=9) < 1.0
        told = ParallelEvent(
            tuple((ApproximateEvent(0.1 * i, 1e-9, relation),) for i in range(1, 9)), relation
        )
        assert composed_delta([told], 8.0, group_size=9) == 1.0


@sampled
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("z", "q", "m"), SETTINGS)
def test_one_sampled_step_is_that_of_its_mixtures(
    z: float, q: float, m: int, relation: str
) -> None:
    event = SubsampledGaussianEvent(z, q, 1, relation)
    for epsilon in (0.01, 0.3, 2.0):
        truth = max(excess(a, b, epsilon) for a, b in step_masses(z, q, m, relation))
        found = composed_delta([event], epsilon, group_size=m)
        assert truth * (1.0 - 1e-7) <= found <= truth * 1.001 + 1e-15


@pytest.mark.sampled
@sampled
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("z", "q", "m"), SETTINGS)
def test_composed_steps_are_not_below_their_losses(
    z: float, q: float, m: int, relation: str
) -> None:
    event = SubsampledGaussianEvent(z, q, 8, relation)
    step = 2e-4
    lower = {}
    for first, second in step_masses(z, q, m, relation):
        # Losses rounded down, and left out where they are very negative: never more than the truth.
        kept = (first > 1e-18) & (second > 1e-300)
        places = np.floor(np.log(first[kept] / second[kept]) / step).astype(int)
        places = np.minimum(places, 60_000)
        inside = places > -60_000
        start = int(places[inside].min())
        law = np.bincount(places[inside] - start, first[kept][inside])
        for _ in range(3):
            law = np.maximum(fftconvolve(law, law), 0.0)
        losses = step * (8 * start + np.arange(law.size))
        for epsilon in (0.2, 1.0, 4.0):
            gain = float(law @ np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0))
            lower[epsilon] = max(lower.get(epsilon, 0.0), gain)
    for epsilon, least in lower.items():
        found = composed_delta([event], epsilon, group_size=m)
        assert found >= least - 1e-12
        assert found <= 1.02 * least + 1e-9


@sampled
def test_one_record_is_a_group_of_one_and_everybody_is_a_gaussian_release() -> None:
    for relation, direction in zip(RELATIONS, ("remove", "replace"), strict=True):
        x, g = step_points(1.3, 0.1, 1, direction, 1e-17)
        event = SubsampledGaussianEvent(1.3, 0.1, 1, relation)
        for epsilon, delta in list(zip(x, g, strict=True))[::97]:
            if epsilon > 0.0:
                assert delta == pytest.approx(composed_delta([event], epsilon), rel=1e-5, abs=1e-13)
        whole = [SubsampledGaussianEvent(20.0, 1.0, 9, relation)]
        mu = 3.0 * 4.0 * (2.0 if relation == "replace_one" else 1.0) / 20.0
        assert composed_delta(whole, 1.0, group_size=4) == pytest.approx(
            gaussian_delta(1.0, 1.0 / mu), rel=1e-9
        )
        nearly = [SubsampledGaussianEvent(20.0, 1.0 - 1e-12, 9, relation)]
        assert composed_delta(nearly, 1.0, group_size=4) == pytest.approx(
            gaussian_delta(1.0, 1.0 / mu), rel=1e-3
        )


@sampled
def test_points_of_a_step_bound_both_directions_down_to_tiny_deltas() -> None:
    for z, q, m in SETTINGS:
        joins = binom.pmf(np.arange(m + 1), m, q)
        for direction in ("remove", "add"):
            x, g = step_points(z, q, m, direction, 1e-30)
            assert x[0] < 0.0
            assert np.all(np.diff(x) > 0.0)
            # Every half-line of the noise is a set: none may say more than the curve does.
            for u in np.linspace(-6.0 * z, m + 6.0 * z, 50):
                mixed = float(joins @ ndtr((np.arange(m + 1) - u) / z))
                still = float(ndtr(-u / z))
                own, other = (mixed, still) if direction == "remove" else (1 - still, 1 - mixed)
                for epsilon, delta in zip(x[::200], g[::200], strict=True):
                    assert own - math.exp(min(epsilon, 500.0)) * other <= delta + 1e-15


def random_contributions(rng: np.random.Generator, m: int) -> tuple[Array, Array]:
    """Two sets of m contributions in the plane, of norm at most 1, often of norm 1."""
    angles, norms = rng.uniform(0.0, 2.0 * np.pi, (2, m)), rng.uniform(0.0, 1.0, (2, m))
    norms[rng.random((2, m)) < 0.6] = 1.0
    angles[rng.random((2, m)) < 0.4] = 0.0
    both = norms[..., None] * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return both[0], both[1] * rng.choice([-1.0, 1.0])


def sums(contributions: Array, q: float) -> list[tuple[float, Array]]:
    """Sums of all subsets with their probabilities."""
    found = []
    for chosen in itertools.product((0, 1), repeat=len(contributions)):
        k = sum(chosen)
        weight = q**k * (1.0 - q) ** (len(contributions) - k)
        found.append((weight, np.asarray(chosen) @ contributions))
    return found


def most_excess(rng: np.random.Generator, relation: str, *, stretch: float = 1.0) -> float:
    """Largest quotient of a true divergence in the plane and its bound, of one random case."""
    m, z, q = int(rng.integers(1, 5)), float(rng.uniform(0.5, 2.0)), float(rng.uniform(0.02, 0.9))
    one, other = random_contributions(rng, m)
    side = np.linspace(-m - 5.5 * z, m + 5.5 * z, 140)
    x, y = np.meshgrid(side, side)
    cell = (side[1] - side[0]) ** 2 / (2.0 * math.pi * z * z)

    def density(parts: list[tuple[float, Array]]) -> Array:
        found = np.zeros_like(x)
        for weight, (a, b) in parts:
            found += weight * np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2.0 * z * z))
        return found * cell

    own = density(sums(stretch * one, q))
    rest = density(sums(stretch * other, q) if relation == "replace_one" else [(1.0, np.zeros(2))])
    event = SubsampledGaussianEvent(z, q, 1, relation)
    worst = 0.0
    for epsilon in rng.uniform(0.0, 3.0, 2):
        bound = composed_delta([event], float(epsilon), group_size=m)
        truth = max(excess(own, rest, epsilon), excess(rest, own, epsilon))
        worst = max(worst, truth / (bound + 1e-4))
    return worst


@sampled
@pytest.mark.parametrize("relation", RELATIONS)
def test_no_contributions_in_the_plane_cost_more(relation: str) -> None:
    rng = np.random.default_rng(22)
    assert max(most_excess(rng, relation) for _ in range(25)) <= QUADRATURE


@sampled
@pytest.mark.slow
@pytest.mark.parametrize("relation", RELATIONS)
def test_thousands_of_contributions_in_the_plane_cost_no_more(relation: str) -> None:
    rng = np.random.default_rng(2200)
    found = [most_excess(rng, relation) for _ in range(2000)]
    assert 0.98 < max(found) <= QUADRATURE


@sampled
def test_the_search_finds_contributions_that_are_too_long() -> None:
    rng = np.random.default_rng(22)
    assert max(most_excess(rng, "add_remove", stretch=1.1) for _ in range(25)) > 1.02


def chain_excess(rng: np.random.Generator, *, share: float = 1.0) -> float:
    """Largest quotient along a random chain of finite laws, bounded from the profile of its steps.

    With a ``share`` below 1 the profile is too small by it.
    """
    m, size = int(rng.integers(2, 7)), int(rng.integers(2, 6))
    laws = [rng.dirichlet(np.full(size, 0.7))]
    for _ in range(m):
        moved = laws[-1] * np.exp(rng.uniform(-0.5, 0.5, size))
        laws.append(0.999 * moved / moved.sum() + 0.001 * rng.dirichlet(np.ones(size)))
    epsilons = np.linspace(0.0, 3.0, 60)
    steps = [pair for a, b in itertools.pairwise(laws) for pair in ((a, b), (b, a))]
    deltas = np.array([share * max(excess(a, b, e) for a, b in steps) for e in epsilons])
    x, g = path_points(epsilons, np.minimum.accumulate(deltas), m)
    worst = 0.0
    for epsilon, delta in zip(x, g, strict=True):
        truth = max(excess(laws[0], laws[-1], epsilon), excess(laws[-1], laws[0], epsilon))
        worst = max(worst, truth - delta)
    return worst


@paths
@pytest.mark.parametrize("n", [60, pytest.param(3000, marks=pytest.mark.slow)])
def test_paths_of_finite_laws_are_within_their_bound(n: int) -> None:
    rng = np.random.default_rng(7)
    assert max(chain_excess(rng) for _ in range(n)) <= 1e-12


@paths
def test_paths_with_too_small_a_profile_are_found() -> None:
    rng = np.random.default_rng(7)

    def response(m: int) -> float:
        """Randomised response, whose paths of two laws go nowhere; a staircase does not."""
        law = np.array([math.exp(-0.3 * abs(i)) for i in range(-40, 41)])
        first, last = law / law.sum(), np.roll(law, m) / law.sum()
        x, g = path_points(np.array([0.0, 0.3]), np.array([math.tanh(0.15), 1e-4]), m)
        return max(excess(first, last, e) - d for e, d in zip(x, g, strict=True))

    assert response(4) <= 1e-12
    assert max(chain_excess(rng, share=0.3) for _ in range(60)) > 1e-3


@paths
def test_the_path_of_a_gaussian_curve_is_nearly_the_gaussian_one() -> None:
    epsilons = np.linspace(0.0, 12.0, 512)
    deltas = np.array([gaussian_delta(e, 4.0) for e in epsilons])
    for m in (1, 2, 10, 30):
        x, g = path_points(epsilons, deltas, m)
        for i in range(0, x.size - 1, 37):
            if 1e-9 < g[i] < 0.9 and 0.0 < x[i] < 1e3:
                truth = gaussian_delta(float(x[i]), 4.0 / m)
                assert truth <= g[i] * (1.0 + 1e-12)
                assert g[i] <= 1.1 * truth


def minimiser_masses(rows: Array, sigma: float, kappa: float, w: Array) -> Array:
    """Masses of the minimiser of a logistic objective of one weight, noise in its linear term."""
    lam = 1.0 / kappa
    slopes = lam * w
    curvature = np.full_like(w, lam)
    for x in rows:
        p = expit(-x * w)
        slopes = slopes - x * p
        curvature = curvature + x * x * p * (1.0 - p)
    return np.asarray(norm.pdf(slopes, 0.0, sigma) * curvature * (w[1] - w[0]))


@pytest.mark.sampled
@paths
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kappa", [0.02, 1.0])
def test_minimisers_of_objectives_cost_no_more(relation: str, kappa: float) -> None:
    rng, sigma = np.random.default_rng(3), 2.0
    event = ObjectiveEvent("logistic", 1, sigma, kappa, None, relation)
    w = np.linspace(-60.0 * kappa, 60.0 * kappa, 40_001)
    closest = 0.0
    for m in (2, 3, 6):
        for trial in range(12):
            others = rng.choice([-1.0, 1.0], int(rng.integers(0, 4)))
            own, new = rng.uniform(-1.0, 1.0, (2, m))
            if trial % 2:
                own, new = np.ones(m), -np.ones(m)
            new = new if relation == "replace_one" else new[:0]
            a = minimiser_masses(np.append(others, own), sigma, kappa, w)
            b = minimiser_masses(np.append(others, new), sigma, kappa, w)
            for epsilon in (0.0, 0.5, 2.0):
                truth = max(excess(a, b, epsilon), excess(b, a, epsilon))
                bound = composed_delta([event], epsilon, group_size=m)
                assert truth <= bound + 1e-9
                closest = max(closest, truth / bound)
    # Near enough to see a bound that forgets the size of the group.
    assert closest > 0.4


def shifted(event: ObjectiveEvent, size: int) -> tuple[Array, Array]:
    """Levels and powers of tests for ``size`` shifts of a noise of which one has the event's curve.

    Thresholds are the best tests: a shift more turns the level G of one into F(G), F the largest
    power at a level that the curve allows.
    """
    known = profile_points(event, 1e-300) or pytest.fail("no points")
    how = (event.sigma, event.kappa, event.jacobian, event.adjacency == "replace_one")
    top = float(known[0][-1])
    x, g = _core.objective_profile(event.law, event.n_scores, 0.0, top, 4096, *how)
    slopes = np.exp(np.concatenate([-x[:0:-1], x]))
    lines = np.concatenate([(-np.expm1(-x) + np.exp(-x) * g)[:0:-1], g])
    powers = levels = np.geomspace(1e-14, 0.5, 1000)
    for _ in range(size):
        powers = np.array([np.min(lines + slopes * a) for a in powers])
    return levels, powers


@pytest.mark.sampled
@pytest.mark.proof("accountant", "Groups of records")
@pytest.mark.parametrize(
    ("law", "n", "sigma", "kappa", "relation"),
    [
        ("logistic", 1, 3.8, 0.27, "add_remove"),
        ("logistic", 1, 7.5, 0.5, "replace_one"),
        ("huber", 1, 4.0, 0.3, "add_remove"),
        ("softmax", 3, 5.5, 0.4, "add_remove"),
    ],
)
def test_rows_of_a_person_cost_the_least_that_follows_from_one_row(
    law: str, n: int, sigma: float, kappa: float, relation: str
) -> None:
    event = ObjectiveEvent(law, n, sigma, kappa, None, relation)
    for size in (1, 2, 5, 10):
        levels, powers = shifted(event, size)
        epsilon = composed_epsilon([event], 1e-5, group_size=size)
        assert float(np.max(powers - math.exp(epsilon) * levels)) <= 1.02e-5
        assert float(np.max(powers - math.exp(0.998 * epsilon) * levels)) >= 1e-5


@pytest.mark.proof("accountant", "Groups of records: noise in an objective")
def test_records_together_cost_their_jacobians_and_the_mean_of_their_losses() -> None:
    """Of one score all is known in closed form: V is a normal number, cut off at 0."""
    for size, sigma, kappa in ((2, 9.0, 0.4), (10, 33.0, 2.0), (50, 70.0, 0.01)):
        event = ObjectiveEvent("huber", 1, sigma, kappa, None, "add_remove")
        x, g = group_points(event, size, 1e-17) or pytest.fail("no points")
        t = size / sigma
        e = x - size * math.log1p(kappa / 4.0)
        d = e / t - t / 2.0
        exact = -np.expm1(-t * (norm.pdf(d) - d * norm.sf(d)))
        assert np.abs(e[0]) < 1e-9
        seen = exact > 1e-12
        assert (exact[seen] <= g[seen] * (1.0 + 1e-9)).all()
        assert (g[seen] <= exact[seen] * 1.001 + 1e-14).all()


@pytest.mark.slow
@pytest.mark.proof("accountant", "Groups of records: noise in an objective")
@pytest.mark.parametrize("relation", RELATIONS)
def test_many_records_of_one_score_a_class_get_a_number(relation: str) -> None:
    """At least the price in Gaussian noise of gradients of the largest length, and not far off."""
    for law, n, square in (("huber", 4, 4.0), ("weston_watkins", 3, 6.0)):
        length = math.sqrt(square) * (2.0 if relation == "replace_one" else 1.0)
        event = ObjectiveEvent(law, n, 4.0 * length, 0.05, None, relation)
        before = 0.0
        for size in (5, 40):
            found = composed_epsilon([event], 1e-5, group_size=size)
            least = gaussian_epsilon(1e-5, event.sigma / (size * length))
            assert least <= found <= 1.25 * least
            assert before < found
            before = found


@pytest.mark.proof("accountant", "Groups of records")
def test_more_records_cost_more_and_mixtures_are_composed() -> None:
    for relation in RELATIONS:
        events: list[PrivacyEvent] = [
            GaussianEvent(6.0, 1.0, relation),
            SubsampledGaussianEvent(2.0, 0.05, 20, relation),
            ObjectiveEvent("huber", 1, 9.0, None, 0.05, relation),
            PureEvent(0.1, relation),
        ]
        found = [composed_epsilon(events, 1e-6, group_size=m) for m in (1, 2, 3, 5)]
        assert found == sorted(found)
        alone = [composed_epsilon([event], 1e-6, group_size=3) for event in events]
        assert (
            max(alone) < found[2] < sum(composed_epsilon([e], 2.5e-7, group_size=3) for e in events)
        )
        # Parts of a person in a branch of samples: one record beside several.
        parted = ParallelEvent(((events[1],), (events[0], events[1])), relation)
        assert composed_epsilon([parted], 1e-6, group_size=3) >= max(
            composed_epsilon([events[1]], 1e-6, group_size=3),
            composed_epsilon([events[0]], 1e-6, group_size=3),
        )


def test_statements_tell_the_price_of_a_person() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    statement = PrivateCenter(epsilon=1.0, delta=1e-5).fit(X).privacy_
    assert statement.for_group(1) == (pytest.approx(1.0, rel=1e-6), 1e-5)
    epsilon, delta = statement.for_group(10)
    assert (round(epsilon, 2), delta) == (14.43, 1e-5)
    assert statement.for_group(10, epsilon=10.0)[1] == pytest.approx(0.0040547, rel=1e-4)
    assert statement.for_group(10, delta=1e-3)[0] < epsilon
    assert "10 rows is protected at epsilon = 14.4" in " ".join(str(statement).split())
    pure = OutputPerturbationSVC(1.0, 0.0, noise="gamma", data_norm=1.0, classes=[0, 1])
    assert pure.fit(X, np.arange(50) % 2).privacy_.for_group(7) == (pytest.approx(7.0), 0.0)
    for wrong in ({"size": 0}, {"size": 2**20 + 1}, {"size": 2, "epsilon": 1.0, "delta": 0.1}):
        with pytest.raises(InvalidParameterError):
            statement.for_group(**wrong)
    with pytest.raises(TypeError):
        statement.for_group(2.5)


def test_plans_tell_the_price_of_a_person() -> None:
    estimator = OutputPerturbationSVC(1.0, 1e-5, data_norm=1.0, classes=[0, 1])
    plan = plan_noise(estimator, 4, rows_per_person=10)
    assert plan.epsilon_of_person == pytest.approx(14.42927, rel=1e-5)
    assert re.search(r"^epsilon of a person with N rows +14\.4293$", str(plan), re.M)
    assert plan_noise(estimator, 4).epsilon_of_person is None
    with pytest.raises(InvalidParameterError) as caught:
        plan_noise(estimator, 4, rows_per_person=0)
    assert caught.value.parameter == "rows_per_person"


# --- one word: what is protected ------------------------------------------------------------------


def of_persons(statement: PrivacyStatement) -> PrivacyStatement:
    return dataclasses.replace(statement, unit="person")


def test_a_ledger_holds_one_unit(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    event = GaussianEvent(9.0, 1.0, "add_remove")
    persons = PrivacyLedger(9.0, 1e-5, unit="person", path=tmp_path / "persons.sqlite")
    rows = PrivacyLedger(9.0, 1e-5)
    for ledger, unit in ((persons, "row"), (rows, "person"), (rows, "party")):
        for use in (ledger.check, ledger.spend):
            with pytest.raises(InvalidParameterError) as caught:
                use(event, unit=unit)
            assert caught.value.parameter == "ledger"
    # A fit of rows asks a ledger of persons before anything is read.
    with pytest.raises(InvalidParameterError) as caught:
        PrivateCenter(1.0, 1e-6, ledger=persons).fit(X * math.nan)
    assert caught.value.parameter == "ledger"
    assert persons.history == rows.history == ()
    persons.spend(event, unit="person")
    persons.spend(event)
    rows.spend(event, unit="row")
    # The unit stays with the ledger: in its file, in copies of it, and in pickles.
    for again in (
        PrivacyLedger.open(tmp_path / "persons.sqlite"),
        pickle.loads(pickle.dumps(persons)),
        PrivacyLedger(9.0, 1e-5, unit="person", path=tmp_path / "persons.sqlite"),
    ):
        assert (again.unit, len(again.history)) == ("person", 2)
    with pytest.raises(LedgerError):
        PrivacyLedger(9.0, 1e-5, path=tmp_path / "persons.sqlite")
    persons.save(tmp_path / "copy.json")
    assert json.loads((tmp_path / "copy.json").read_text())["unit"] == "person"
    assert PrivacyLedger.load(tmp_path / "copy.json").unit == "person"
    rows.save(tmp_path / "rows.json")
    assert "unit" not in json.loads((tmp_path / "rows.json").read_text())
    anchored = PrivacyLedger.open(tmp_path / "persons.sqlite")
    anchored = PrivacyLedger(
        9.0, 1e-5, unit="person", path=tmp_path / "persons.sqlite", anchor=tmp_path / "anchor"
    )
    assert PrivacyLedger.open(tmp_path / "persons.sqlite").unit == anchored.unit == "person"
    with pytest.raises(InvalidParameterError) as caught:
        PrivacyLedger(1.0, 0.0, unit="record")
    assert caught.value.parameter == "unit"


def test_statements_say_what_is_protected() -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    for relation in RELATIONS:
        row = PrivateCenter(1.0, 1e-6, adjacency=relation).fit(X).privacy_
        person = of_persons(row)
        assert (row.unit, person.unit) == ("row", "person")
        assert verify(person)
        assert read_certificate(person.to_json()) == person
        assert "one person and all their rows" in " ".join(str(person).split())
        assert "weaker protection" not in str(person)
        assert of_persons(person) == person
        assert ("the number of persons" in person.assumed_public) == (relation == "replace_one")
        # A promise for m units: m persons, such as a household.
        assert person.for_group(3) == row.for_group(3)
        policy = Policy(epsilon=1.0, delta=1e-6, unit=("person",))
        assert verify(person, policy=policy)
        assert not verify(row, policy=policy).ok
        with pytest.raises(InvalidParameterError):
            PipelineStatement(
                epsilon=2.0,
                delta=1e-5,
                adjacency=relation,
                steps=tuple(
                    PipelineStep(name=str(i), estimator="PrivateCenter", statement=statement)
                    for i, statement in enumerate((row, person))
                ),
                library_version="0",
            )


def test_forged_units_are_found(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = PrivateLinearSVC(1.0, 1e-5, bounds=(-4, 4), classes=[0, 1]).fit(X, np.arange(40) % 2)
    record = model.privacy_.to_dict()
    for changes in (
        {"unit": "person"},
        {"protected": "one person and all their rows"},
        {"unit": "party", "protected": "all rows of one party"},
        {"unit": "one row of the training data"},
        {"unit": None},
    ):
        assert not verify(record | changes).ok, changes
    # A whole forgery holds by itself, as its maker says it, and is not about the model.
    forged = of_persons(model.privacy_)
    save_model(model, tmp_path / "model.json")
    found = verify(forged, model=tmp_path / "model.json")
    assert not found.ok
    assert any("another certificate" in problem for problem in found.problems)
    key = b"0123456789abcdef"
    document = json.loads((tmp_path / "model.json").read_text())
    signed = bound_certificate(record, document, key)
    assert verify(signed, model=tmp_path / "model.json", key=key)
    assert not verify(signed | {"certificate": forged.to_dict()}, key=key).ok
    # Influences of one row bound no person.
    single = ObjectivePerturbationSVC(1.0, 1e-5, data_norm=1.0, classes=[0, 1])
    statement = single.fit(X, np.arange(40) % 2).privacy_
    with pytest.raises(InvalidParameterError):
        of_persons(statement)
    sentence = {"unit": "person", "protected": "one person and all their rows"}
    assert not verify(statement.to_dict() | sentence).ok
