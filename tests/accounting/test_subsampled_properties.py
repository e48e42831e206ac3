"""Sampled Gaussian sums at settings that nobody chose: bounds, monotony, composition."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dpsvm_fast.accounting import (
    composed_epsilon,
    gaussian_epsilon,
    subsampled_gaussian_epsilon,
    subsampled_gaussian_noise_multiplier,
)
from dpsvm_fast.certificates import GaussianEvent, PrivacyEvent, PureEvent, SubsampledGaussianEvent
from dpsvm_fast.exceptions import BudgetExceededError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.verification.sampled import Losses, composed_delta
from oracles.composed_losses import composed_epsilon as checked_epsilon
from oracles.renyi import renyi_epsilon

# What an upper bound may lie above the value that it bounds: two of them may be out of order by it.
TIGHT = 2e-3

# The independent values cost a tenth of a second each.
few = settings(max_examples=max(8, settings().max_examples // 4))
relations = st.sampled_from(["add_remove", "replace_one"])
multipliers = st.floats(0.5, 20.0)
rates = st.floats(-7.0, -0.05).map(lambda x: float(2.0**x))
steps = st.integers(1, 2000)
deltas = st.floats(-9.0, -2.0).map(lambda x: float(10.0**x))
step_settings = st.tuples(multipliers, rates, steps)


@few
@given(step_settings, deltas, relations)
def test_between_the_independent_value_and_a_little_more(
    setting: tuple[float, float, int], delta: float, adjacency: str
) -> None:
    got = subsampled_gaussian_epsilon(*setting, delta, adjacency)
    losses = Losses(sampled=(setting,), replace_one=adjacency == "replace_one")
    # A value is checked where it is asked for: epsilon may be as good as 0.
    assert composed_delta(got, losses) <= delta * (1.0 + 3e-4) + 1e-14
    if got > 1e-3:
        assert got <= checked_epsilon(delta, losses, got) * (1.0 + TIGHT)


@few
@given(step_settings, deltas, relations)
def test_renyi_divergences_never_say_less(
    setting: tuple[float, float, int], delta: float, adjacency: str
) -> None:
    got = subsampled_gaussian_epsilon(*setting, delta, adjacency)
    by_renyi = renyi_epsilon(*setting, delta, replace_one=adjacency == "replace_one")
    assert got <= by_renyi * (1.0 + TIGHT) + 1e-6


@given(step_settings, deltas, relations, st.floats(1.05, 2.0))
def test_monotone_in_everything(
    setting: tuple[float, float, int], delta: float, adjacency: str, more: float
) -> None:
    z, q, n = setting
    got = subsampled_gaussian_epsilon(z, q, n, delta, adjacency) * (1.0 - TIGHT) - 1e-6
    assert subsampled_gaussian_epsilon(z / more, q, n, delta, adjacency) >= got
    assert subsampled_gaussian_epsilon(z, min(1.0, more * q), n, delta, adjacency) >= got
    assert subsampled_gaussian_epsilon(z, q, n + 1, delta, adjacency) >= got
    assert subsampled_gaussian_epsilon(z, q, n, delta / more, adjacency) >= got


@given(step_settings, deltas)
def test_sampling_never_costs_and_exchanging_is_never_free(
    setting: tuple[float, float, int], delta: float
) -> None:
    z, q, n = setting
    one, both = (
        subsampled_gaussian_epsilon(z, q, n, delta, adjacency)
        for adjacency in ("add_remove", "replace_one")
    )
    assert one <= both * (1.0 + TIGHT) + 1e-6
    for got, moved in ((one, 1.0), (both, 2.0)):
        assert got <= gaussian_epsilon(delta, z, moved * n**0.5) * (1.0 + TIGHT) + 1e-6


@few
@given(st.floats(0.05, 8.0), deltas, rates, steps, relations)
def test_a_calibrated_multiplier_keeps_its_promise(
    epsilon: float, delta: float, q: float, n: int, adjacency: str
) -> None:
    z = subsampled_gaussian_noise_multiplier(epsilon, delta, q, n, adjacency)
    losses = Losses(sampled=((z, q, n),), replace_one=adjacency == "replace_one")
    assert composed_delta(epsilon, losses) <= delta * (1.0 + 3e-4)
    # And is the smallest, nearly.
    fewer = Losses(sampled=((0.99 * z, q, n),), replace_one=adjacency == "replace_one")
    assert composed_delta(epsilon, fewer) > delta


events = st.one_of(
    st.floats(0.01, 0.3).map(lambda e: PureEvent(e, "add_remove")),
    st.floats(3.0, 50.0).map(lambda s: GaussianEvent(s, 1.0, "add_remove")),
    st.integers(1, 50).map(lambda n: SubsampledGaussianEvent(1.5, 0.02, n, "add_remove")),
)


@few
@given(st.lists(events, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_spends_does_not_matter(spends: list[PrivacyEvent], random: object) -> None:
    delta = 1e-6
    whole = composed_epsilon(spends, delta)
    shuffled = list(spends)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert composed_epsilon(shuffled, delta) == whole
    # A budget of the total admits all of it, whatever comes first.
    ledger = PrivacyLedger(max(whole, 1e-3), delta)
    for event in shuffled:
        ledger.spend(event)
    try:
        ledger.spend(GaussianEvent(1.0, 1.0, "add_remove"))
    except BudgetExceededError:
        return
    raise AssertionError("a release beyond the whole budget was admitted")
