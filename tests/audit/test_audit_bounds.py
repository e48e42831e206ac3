"""Bounds of audits: coverage by enumeration, known laws, and what they must come to."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from dpsvm_fast import InvalidParameterError
from dpsvm_fast.accounting import composed_delta, composed_epsilon, gaussian_epsilon, gaussian_sigma
from dpsvm_fast.audit.bounds import (
    Claim,
    Counts,
    certified_epsilon,
    event_score,
    hockey_stick_bound,
    proportion_above,
    proportion_below,
    resolved_method,
    separation_bound,
)
from dpsvm_fast.audit.pair_audit import Event, chosen_event, learned_statistics
from dpsvm_fast.certificates import (
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PureEvent,
    SubsampledGaussianEvent,
)
from dpsvm_fast.certificates.record import Positive

ALPHA = 1e-6
DELTA = 1e-5


@pytest.mark.parametrize("n", [1, 2, 7, 30])
@pytest.mark.parametrize("alpha", [0.05, 1e-3])
def test_proportions_are_covered(n: int, alpha: float) -> None:
    """By the binomial law itself, at every probability of a grid and just beside every bound."""
    k = np.arange(n + 1)
    low = np.array([proportion_below(int(i), n, alpha) for i in k])
    high = np.array([proportion_above(int(i), n, alpha) for i in k])
    beside = np.concatenate([low * (1 - 1e-9), high * (1 + 1e-9)])
    for p in np.clip(np.concatenate([np.linspace(0, 1, 201), beside]), 0.0, 1.0):
        mass = stats.binom.pmf(k, n, p)
        assert mass[low > p].sum() <= alpha * (1 + 1e-6)
        assert mass[high < p].sum() <= alpha * (1 + 1e-6)
    # And not wastefully: some probability is missed almost as often as allowed.
    worst = max(
        stats.binom.pmf(k, n, p)[low > p].sum() for p in np.clip(low * (1 - 1e-6), 0.0, 1.0)
    )
    assert worst >= 0.99 * alpha


def test_events_that_never_or_always_happen() -> None:
    assert proportion_below(0, 10, ALPHA) == 0.0
    assert proportion_above(10, 10, ALPHA) == 1.0
    # (1 - p)^n = alpha.
    assert proportion_above(0, 10, ALPHA) == pytest.approx(1.0 - ALPHA**0.1)
    assert hockey_stick_bound(Counts(0, 0, 10), 0.0, ALPHA) == 0.0
    assert separation_bound(Counts(10, 10, 10), ALPHA) == 0.0


def expected(likely: float, rare: float, n: int) -> Counts:
    return Counts(round(likely * n), round(rare * n), n)


# What an exact mechanism comes to on average at the best cut, for n runs of each world.
GAUSSIAN = {
    (1.0, 10_000): 0.509,
    (1.0, 100_000): 0.842,
    (1.0, 1_000_000): 0.950,
    (4.0, 10_000): 3.374,
    (4.0, 100_000): 3.800,
    (4.0, 1_000_000): 3.937,
}
PURE = {(1.0, 10_000): 0.852, (1.0, 100_000): 0.952, (1.0, 1_000_000): 0.985}


@pytest.mark.sampled
@pytest.mark.parametrize(("case", "figure"), GAUSSIAN.items())
def test_gaussian_bounds_come_to_what_they_should(case: tuple[float, int], figure: float) -> None:
    epsilon, n = case
    mu = 1.0 / gaussian_sigma(epsilon, DELTA)
    event = GaussianEvent(sigma=1.0, sensitivity=mu, adjacency="add_remove")
    claim = Claim(epsilon, DELTA, "add_remove", (event,))
    cuts = np.linspace(-1.0, 2.0, 61) * mu
    found = [
        certified_epsilon(
            "gaussian",
            expected(float(stats.norm.sf(c - mu)), float(stats.norm.sf(c)), n),
            claim,
            ALPHA,
        )
        for c in cuts
    ]
    assert max(found) == pytest.approx(figure, abs=0.006)
    assert max(found) < epsilon


@pytest.mark.parametrize(("case", "figure"), PURE.items())
def test_pure_bounds_come_to_what_they_should(case: tuple[float, int], figure: float) -> None:
    epsilon, n = case
    found = hockey_stick_bound(expected(0.5, 0.5 * math.exp(-epsilon), n), 0.0, ALPHA)
    assert found == pytest.approx(figure, abs=0.006)


def test_the_complement_says_the_same_of_the_other_world() -> None:
    counts = Counts(9000, 3000, 10_000)
    mirrored = Counts(7000, 1000, 10_000)
    assert hockey_stick_bound(counts, 0.0, ALPHA) == pytest.approx(
        hockey_stick_bound(mirrored, 0.0, ALPHA)
    )


LAWS: dict[str, PrivacyEvent] = {
    "gaussian": GaussianEvent(sigma=2.0, sensitivity=1.0, adjacency="add_remove"),
    "sampled": SubsampledGaussianEvent(1.0, 0.3, 4, "add_remove"),
    "replaced": SubsampledGaussianEvent(1.0, 0.3, 4, "replace_one"),
    "objective": ObjectiveEvent("huber", 1, 3.0, 0.5, None, "add_remove"),
    "pure": PureEvent(1.0, "add_remove"),
}


@pytest.mark.parametrize("name", LAWS)
def test_noise_grows_by_the_factor(name: str) -> None:
    event = LAWS[name]
    delta = 0.0 if name == "pure" else DELTA
    claim = Claim(1.0, delta, event.adjacency, (event,))
    assert claim.with_noise(1.0) == (event,)
    epsilons = [composed_epsilon(claim.with_noise(s), delta) for s in (0.5, 1.0, 2.0)]
    assert epsilons[0] > epsilons[1] > epsilons[2]


def test_nested_events_are_scaled_where_they_have_noise() -> None:
    @dataclasses.dataclass(frozen=True)
    class Nested(PrivacyEvent):
        branches: tuple[tuple[PrivacyEvent, ...], ...]
        mean: Positive
        adjacency: str

    event = Nested(((LAWS["gaussian"],), (LAWS["pure"],)), 3.0, "add_remove")
    (scaled,) = Claim(1.0, DELTA, "add_remove", (event,)).with_noise(2.0)
    assert isinstance(scaled, Nested)
    assert scaled.mean == 3.0
    (gaussian,), (pure,) = scaled.branches
    assert isinstance(gaussian, GaussianEvent)
    assert gaussian.sigma == 4.0
    assert isinstance(pure, PureEvent)
    assert pure.epsilon == 0.5


def test_a_profile_of_gaussians_says_what_their_curve_says() -> None:
    """The method that scales the claimed law, against the closed form."""
    claim = Claim(1.0, DELTA, "add_remove", (LAWS["gaussian"],))
    for counts in (Counts(60_000, 40_000, 100_000), Counts(20_000, 10_000, 100_000)):
        closed, scaled = (
            certified_epsilon(method, counts, claim, ALPHA) for method in ("gaussian", "profile")
        )
        # A finite number of epsilons is compared: never more, and little less.
        assert 0.985 * closed <= scaled <= closed * (1.0 + 1e-5)


@pytest.mark.parametrize(
    "name", ["objective", "sampled", pytest.param("replaced", marks=pytest.mark.slow)]
)
def test_a_law_is_not_refuted_by_itself(name: str) -> None:
    """Counts that the claimed profile just allows, at every epsilon where it may be touched."""
    event = LAWS[name]
    claim = Claim(0.0, DELTA, event.adjacency, (event,))
    epsilon = composed_epsilon([event], DELTA)
    grid = np.linspace(0.0, 8.0, 801)
    profile = np.array([composed_delta([event], e) for e in grid])
    for rare in (0.01, 0.5):
        likely = float((np.exp(grid) * rare + profile).min())
        likely = min(likely, float((1.0 - np.exp(-grid) * (1.0 - rare - profile)).min()))
        # Very many runs: the intervals are points.
        counts = expected(likely, rare, 10**12)
        found = certified_epsilon(
            "profile", counts, dataclasses.replace(claim, epsilon=epsilon), 0.5
        )
        assert 0.9 * epsilon <= found <= epsilon * (1.0 + 2e-3)


def test_methods_follow_from_the_claim() -> None:
    def resolved(delta: float, *events: PrivacyEvent) -> str:
        return resolved_method("auto", Claim(1.0, delta, "add_remove", events))

    assert resolved(DELTA, LAWS["gaussian"], LAWS["gaussian"]) == "gaussian"
    assert resolved(DELTA, LAWS["gaussian"], LAWS["pure"]) == "profile"
    assert resolved(0.0, LAWS["pure"]) == "clopper_pearson"
    assert resolved(DELTA) == "clopper_pearson"
    for method, claim in (
        ("gaussian", Claim(1.0, 0.0, "add_remove", (LAWS["pure"],))),
        ("profile", Claim(1.0, 0.0, "add_remove")),
        ("other", Claim(1.0, 0.0, "add_remove")),
    ):
        with pytest.raises(InvalidParameterError, match="method"):
            resolved_method(method, claim)


def test_the_chosen_event_is_the_one_that_tells_most() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(1.0, 1.0, 20_000), rng.normal(0.0, 1.0, 20_000)
    score_of = event_score("gaussian", Claim(1.0, DELTA, "add_remove"))
    _, event = chosen_event(first, second, 100_000, score_of, smooth=True)
    assert isinstance(event, Event)
    # Anywhere near the middle is as good.
    assert abs(event.threshold - 0.5) < 0.5
    inside = [event.count(v) / v.size for v in (first, second)]
    assert inside[event.likely] > inside[1 - event.likely]
    laplace = rng.laplace(1.0, 1.0, 20_000), rng.laplace(0.0, 1.0, 20_000)
    score_of = event_score("clopper_pearson", Claim(1.0, 0.0, "add_remove"))
    score, event = chosen_event(*laplace, 100_000, score_of, smooth=False)
    # Beyond either mode the ratio is e.
    assert event.threshold > 0.8 if event.above else event.threshold < 0.2
    assert 0.8 < score < 1.0


def test_fishers_direction_undoes_correlated_noise() -> None:
    rng = np.random.default_rng(1)
    common = rng.normal(size=(2, 5000, 1)) * 10.0
    drawn = common + np.concatenate([np.zeros((2, 5000, 1)), rng.normal(size=(2, 5000, 1))], axis=2)
    first, second = drawn[0] + [0.0, 1.0], drawn[1]
    (statistic,) = learned_statistics(first, second, pure=False)
    values = statistic.of(first), statistic.of(second)
    separation = (values[0].mean() - values[1].mean()) / values[1].std()
    # Without the common part they are one deviation apart, with it a tenth.
    assert separation == pytest.approx(1.0, abs=0.1)
    assert len(learned_statistics(first, second, pure=True)) == 2


def test_one_number_is_taken_as_it_is() -> None:
    values = np.arange(10.0)[:, None]
    (statistic,) = learned_statistics(values, values + 1.0, pure=True)
    assert np.array_equal(statistic.of(values), values[:, 0])
    assert gaussian_epsilon(DELTA, 1.0) > 0.0
