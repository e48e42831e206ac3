"""Rows of one week each: every week has the whole budget, and no row is in two."""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone

from dpsvm_fast import PrivateLinearSVC, PrivateStandardScaler, verify
from dpsvm_fast.accounting import (
    composed_epsilon,
    dp_accounting_tree,
    gaussian_delta,
    gaussian_sigma,
)
from dpsvm_fast.accounting.composition import Composition
from dpsvm_fast.certificates import (
    ApproximateEvent,
    DistanceEvent,
    GaussianEvent,
    ObjectiveEvent,
    ParallelEvent,
    PureEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError, LedgerError
from dpsvm_fast.ledger import PrivacyLedger
from oracles.ledgers import assert_refused, executed

A = "add_remove"
WEEKS = ("W1", "W2", "W3", "W4")
HALF, WHOLE = PureEvent(0.5, A), PureEvent(1.0, A)


def ledger_of_weeks(epsilon: float = 1.0, delta: float = 0.0, **more: Any) -> PrivacyLedger:
    return PrivacyLedger(epsilon, delta, periods=WEEKS, **more)


# ---------------------------------------------------------------------------------- what is charged


def test_every_week_has_the_whole_budget_and_no_more() -> None:
    ledger = ledger_of_weeks()
    for week in WEEKS:
        ledger.for_periods(week).spend(WHOLE)
    assert ledger.total() == (1.0, 0.0)
    for week in WEEKS:
        with pytest.raises(BudgetExceededError, match=week):
            ledger.for_periods(week).spend(PureEvent(1e-3, A))
    assert len(ledger.history) == 4


def test_a_period_below_another_is_not_looked_at_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = PrivacyLedger(2.0, 1e-5, periods=WEEKS)
    for week, share in zip(WEEKS, (1.0, 0.99, 0.99, 0.5), strict=True):
        # The rare and large loss makes a quick grid coarse: basic composition shows more.
        rare = SubsampledGaussianEvent(0.1, 1e-7, 10, A)
        for event in (PureEvent(share, A), rare, ZCDPEvent(1e-9, A)):
            ledger.for_periods(week).spend(event)
    closely, ask = [], Composition.epsilon

    def asked(one: Composition, delta: float, *, quick: bool = False) -> float:
        closely.append(quick)
        return ask(one, delta, quick=quick)

    monkeypatch.setattr(Composition, "epsilon", asked)
    assert ledger.total()[0] == pytest.approx(1.0, rel=1e-3)
    assert closely.count(False) == 1


def test_a_total_is_that_of_the_fullest_period_at_the_delta_of_the_budget() -> None:
    """A period whose leak took nearly all of delta needs more there than the budget's epsilon."""
    weighty = [ObjectiveEvent("weston_watkins", 3, sigma, 0.1, None, A) for sigma in (25.0, 26.0)]
    ledger = PrivacyLedger(0.951, 1e-6, periods=WEEKS)
    spends = {
        "W1": [*weighty, GaussianEvent(30.0, 1.0, A)],
        "W2": [*weighty, GaussianEvent(30.1, 1.0, A)],
        "W3": [ApproximateEvent(1e-9, 1e-6 * (1 - 2e-10), A), GaussianEvent(7.84, 1.0, A)],
    }
    for week, events in spends.items():
        for event in events:
            ledger.for_periods(week).spend(event)
    totals = [ledger.for_periods(week).total()[0] for week in spends]
    assert ledger.total()[0] == max(totals) > 0.97


def test_a_window_is_charged_to_each_of_its_periods() -> None:
    ledger = ledger_of_weeks()
    ledger.for_periods("W2", "W3").spend(HALF)
    assert [ledger.for_periods(week).total()[0] for week in WEEKS] == [0.0, 0.5, 0.5, 0.0]
    assert [ledger.for_periods(week).remaining() for week in WEEKS] == [1.0, 0.5, 0.5, 1.0]
    for week in ("W2", "W3"):
        with pytest.raises(BudgetExceededError):
            ledger.for_periods(week, "W4").spend(WHOLE)
    assert ledger.for_periods("W4").history == ()
    ledger.for_periods("W3", "W4").spend(HALF)
    assert ledger.total() == (composed_epsilon([HALF, HALF], 0.0), 0.0)


def test_a_spend_without_periods_touches_every_row() -> None:
    ledger = ledger_of_weeks()
    ledger.for_periods("W1").spend(HALF)
    ledger.spend(HALF)
    assert [ledger.for_periods(week).total()[0] for week in WEEKS] == [1.0, 0.5, 0.5, 0.5]
    with pytest.raises(BudgetExceededError, match="W1"):
        ledger.check(HALF)
    ledger.for_periods("W2", "W3", "W4").spend(HALF)
    assert ledger.remaining() == 0.0


def test_the_total_is_that_of_parallel_composition() -> None:
    small, large = GaussianEvent(8.0, 1.0, A), GaussianEvent(4.0, 1.0, A)
    ledger = ledger_of_weeks(5.0, 1e-6)
    ledger.spend(small)
    ledger.for_periods("W1").spend((large, small))
    ledger.for_periods("W2").spend(PureEvent(0.2, A))
    branches = ((large, small), (PureEvent(0.2, A),))
    expected = composed_epsilon([small, ParallelEvent(branches, A)], 1e-6)
    assert ledger.total()[0] == expected
    assert ledger.odometer()[0] == max(ledger.for_periods(week).odometer()[0] for week in WEEKS)


@pytest.mark.parametrize("names", [(), ("W9",), ("W1", "w2"), ("W1 ",)])
def test_only_declared_periods_are_charged(names: tuple[Any, ...]) -> None:
    ledger = ledger_of_weeks()
    with pytest.raises(InvalidParameterError) as caught:
        ledger.for_periods(*names)
    assert caught.value.parameter == "periods"
    with pytest.raises(InvalidParameterError):
        PrivacyLedger(1.0, 0.0).for_periods("W1")
    with pytest.raises(InvalidParameterError):
        ledger.for_periods("W1", "W2").for_periods("W3")
    with pytest.raises(TypeError, match="periods"):
        ledger.for_periods(["W1"])  # type: ignore[arg-type]
    # In the order in which they were declared, however they are named.
    assert ledger.for_periods("W3", "W1", "W3").periods == ("W1", "W3")


@pytest.mark.parametrize(
    ("periods", "error"),
    [
        (("W1", "W1"), InvalidParameterError),
        (("",), InvalidParameterError),
        (("W1\n",), InvalidParameterError),
        (("a,b",), InvalidParameterError),
        (("W" * 41,), InvalidParameterError),
        ("W1", TypeError),
        ((1,), TypeError),
    ],
)
def test_names_that_could_be_mistaken_are_refused(periods: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="periods"):
        PrivacyLedger(1.0, 0.0, periods=periods)


@pytest.mark.parametrize("unit", ["person", "party"])
def test_whoever_can_return_has_no_periods(unit: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        PrivacyLedger(1.0, 0.0, unit=unit, periods=WEEKS, path=tmp_path / "a")
    assert caught.value.parameter == "periods"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidParameterError):
        PrivacyLedger(1.0, 0.0, unit=unit).for_periods("W1")


# ----------------------------------------------------------------- files, copies and other programs


def spend_elsewhere(handle: PrivacyLedger) -> float:
    handle.spend(HALF)
    return handle.remaining()


def test_handles_travel_and_share_one_budget(tmp_path: Path) -> None:
    path = tmp_path / "weeks.budget"
    ledger = ledger_of_weeks(path=path, anchor=tmp_path / "anchor")
    first = ledger.for_periods("W1")
    assert pickle.loads(pickle.dumps(first)).periods == ("W1",)
    assert clone(PrivateLinearSVC(ledger=first)).ledger is first
    pickle.loads(pickle.dumps(first)).spend(HALF)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(spend_elsewhere, (first,)) == 0.0
    with pytest.raises(BudgetExceededError):
        first.spend(HALF)
    again = PrivacyLedger.open(path)
    assert (again.periods, again.anchor) == (WEEKS, tmp_path / "anchor")
    assert again.total()[0] == composed_epsilon([HALF, HALF], 0.0)
    assert again.for_periods("W2").remaining() == 1.0
    assert again.mark() == first.mark()
    with pytest.raises(LedgerError, match="budget"):
        PrivacyLedger(1.0, 0.0, periods=WEEKS[:3], path=path)


def test_snapshots_keep_periods(tmp_path: Path) -> None:
    ledger = ledger_of_weeks(path=tmp_path / "weeks.budget")
    ledger.for_periods("W2").spend(HALF, "model")
    ledger.spend(PureEvent(0.25, A))
    ledger.for_periods("W2").save(tmp_path / "weeks.json")
    document = json.loads((tmp_path / "weeks.json").read_text())
    loaded = PrivacyLedger.load(tmp_path / "weeks.json")
    assert loaded.history == ledger.history
    assert [loaded.for_periods(week).remaining() for week in WEEKS] == [0.75, 0.25, 0.75, 0.75]
    assert "W2" in str(loaded)
    for forged in (["W9"], [], "W2", ["W2", 3]):
        document["spends"][0]["periods"] = forged
        (tmp_path / "forged.json").write_text(json.dumps(document))
        assert_refused(lambda: PrivacyLedger.load(tmp_path / "forged.json"))


def test_a_spend_in_a_file_cannot_change_its_week(tmp_path: Path) -> None:
    path = tmp_path / "weeks.budget"
    ledger = ledger_of_weeks(path=path)
    ledger.for_periods("W1").spend(HALF)
    executed(path, "UPDATE spends SET spend = replace(spend, 'W1', 'W2')")
    with pytest.raises(LedgerError, match="missing"):
        ledger.for_periods("W1").remaining()


def test_the_largest_period_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsvm_fast.ledger.ledger.dp_accounting_event", dp_accounting_tree)
    small, large = GaussianEvent(8.0, 1.0, A), GaussianEvent(4.0, 1.0, A)
    ledger = ledger_of_weeks(5.0, 1e-6)
    ledger.for_periods("W1").spend(small)
    ledger.for_periods("W3").spend(large)
    assert ledger.to_dp_accounting()["noise_multiplier"] == 4.0
    assert ledger.for_periods("W1").to_dp_accounting()["noise_multiplier"] == 8.0
    ledger.for_periods("W2").spend(PureEvent(0.1, A))
    with pytest.raises(InvalidParameterError):
        ledger.to_dp_accounting()


# --------------------------------------------------------------------------------------------- fits


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_a_weekly_model_is_charged_to_its_week_and_says_so(adjacency: str) -> None:
    rng = np.random.default_rng(0)
    ledger = PrivacyLedger(1.0, 1e-5, adjacency, periods=WEEKS)
    for week in WEEKS[:2]:
        X = rng.uniform(-1.0, 1.0, (200, 2))
        model = PrivateLinearSVC(
            1.0,
            1e-5,
            bounds=(-1, 1),
            classes=[0, 1],
            adjacency=adjacency,
            ledger=ledger.for_periods(week),
        ).fit(X, (X[:, 0] > 0).astype(int))
        assert any(week in text for text in model.privacy_.assumed_public)
        assert verify(model.privacy_.to_json()).ok
    assert ledger.total()[0] <= 1.0 + 1e-9
    whole = PrivateStandardScaler(1.0, 1e-5, bounds=(-1, 1), adjacency=adjacency, ledger=ledger)
    with pytest.raises(BudgetExceededError):
        whole.fit(X)
    whole.set_params(ledger=ledger.for_periods("W3", "W4")).fit(X)
    assert "W3, W4" in " ".join(whole.privacy_.assumed_public)
    assert [ledger.for_periods(week).remaining() < 1e-3 for week in WEEKS] == [True] * 4


# ----------------------------------------------------------------------------- laws of all releases


GRID = np.linspace(-9.0, 10.0, 700)
STEP = GRID[1] - GRID[0]


def joint(first: float, second: float, start: Callable[[Any], Any]) -> Any:
    """Exact density of two weekly releases, the second of which starts from the first.

    Each week has one row with a value in [0, 1], or none (0). Week 1 releases its sum. Week 2
    releases its sum seen from a point that week 1's result decides.
    """
    one = norm.pdf(GRID - first)
    sign = start(GRID)[:, None]
    return one[:, None] * norm.pdf(GRID[None, :] - sign * second)


def profile(p: Any, q: Any, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * STEP**2)


@pytest.mark.proof("adaptive_composition", "Periods")
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_a_warm_start_costs_the_rows_of_each_week_one_release(epsilon: float) -> None:
    def start(y: Any) -> Any:
        return np.where(y > 0.5, 1.0, -1.0)

    event = GaussianEvent(1.0, 1.0, A)
    ledger = ledger_of_weeks(8.0, gaussian_delta(epsilon, 1.0))
    for week in ("W1", "W2"):
        ledger.for_periods(week).spend(event)
    promised, delta = ledger.total()
    assert promised == pytest.approx(epsilon, rel=1e-6)
    with_both = joint(1.0, 1.0, start)
    for neighbour in (joint(0.0, 1.0, start), joint(1.0, 0.0, start)):
        for p, q in ((with_both, neighbour), (neighbour, with_both)):
            assert profile(p, q, promised) <= delta * (1.0 + 1e-3)
    # The bound is reached, and a row in both weeks is beyond it.
    assert profile(with_both, joint(0.0, 1.0, start), promised) >= delta * (1.0 - 1e-3)
    assert profile(with_both, joint(0.0, 0.0, start), promised) > 1.3 * delta
    # Charged to all rows, the same two releases are two.
    everywhere = PrivacyLedger(8.0, delta)
    everywhere.spend((event, event))
    assert profile(with_both, joint(0.0, 0.0, start), everywhere.total()[0]) <= delta * 1.001


SIZES = (0.15, 0.4, 0.7)
WINDOWS = (("W1",), ("W2",), ("W1", "W2"), ("W2", "W3"), ())


def played(seed: int, adaptive: bool) -> tuple[PrivacyLedger, dict[str, list[tuple[float, float]]]]:
    """Every history of an opponent, with its probability for each week's row there and not there.

    Releases are randomised responses about the sum of the rows that they read: one row in the week
    of interest, none elsewhere. What is asked next, of which weeks and how large, is a function of
    all earlier results, the ledger's refusals among them.
    """
    rounds = 6
    leaves: dict[str, list[tuple[float, float]]] = {week: [] for week in WEEKS[:3]}
    for results in itertools.product((0, 1), repeat=rounds):
        ledger = ledger_of_weeks(1.0, 1e-3 if adaptive else 0.0, adaptive=adaptive)
        odds = dict.fromkeys(leaves, (1.0, 1.0))
        for turn, result in enumerate(results):
            chosen = np.random.default_rng([seed, turn, *results[:turn]])
            size = SIZES[chosen.integers(len(SIZES))] if adaptive else SIZES[turn % 2]
            window = WINDOWS[chosen.integers(len(WINDOWS))]
            handle = ledger.for_periods(*window) if window else ledger
            try:
                handle.spend(PureEvent(size, A))
            except BudgetExceededError:
                size = 0.0
            told = 1.0 / (1.0 + math.exp(-size))
            for week, (there, absent) in odds.items():
                moved = week in window or not window
                yes = told if moved else 1.0 - told
                shown = (yes, 1.0 - yes)[result], (1.0 - told, told)[result]
                odds[week] = there * shown[0], absent * shown[1]
        for week, both in odds.items():
            leaves[week].append(both)
    return ledger, leaves


@pytest.mark.proof("adaptive_composition", "Periods")
@pytest.mark.parametrize("seed", range(3))
def test_no_opponent_who_interleaves_periods_exceeds_the_budget(seed: int) -> None:
    ledger, leaves = played(seed, adaptive=True)
    worst = 0.0
    for both in leaves.values():
        p, q = np.array(both).T
        assert p.sum() == pytest.approx(1.0)
        for one, other in ((p, q), (q, p)):
            lost = np.maximum(one - math.exp(ledger.epsilon) * other, 0.0).sum()
            assert lost <= ledger.delta
            worst = max(worst, float(np.log(one / other).max()))
    # The budget is not idle: some history has more loss than one release alone.
    assert worst > max(SIZES)


@pytest.mark.proof("adaptive_composition", "Periods")
def test_sizes_fixed_beforehand_stay_within_a_pure_budget() -> None:
    _, leaves = played(7, adaptive=False)
    for both in leaves.values():
        p, q = np.array(both).T
        assert np.abs(np.log(p / q)).max() <= 1.0 + 1e-9


def test_what_remains_is_that_of_the_fullest_period_where_distances_cost_more() -> None:
    """A distance costs delta at the budget's epsilon, a total at its own."""
    events = {
        "b": [DistanceEvent(0.999e-5 / (1.0 + math.exp(10.0)), A), GaussianEvent(1.5, 1.0, A)],
    }
    largest = composed_epsilon(events["b"], 1e-5)
    events["a"] = [GaussianEvent(gaussian_sigma(1.02 * largest, 1e-5), 1.0, A)]
    ledger = PrivacyLedger(10.0, 1e-5, periods=["a", "b"])
    left = []
    for name, own in events.items():
        alone = PrivacyLedger(10.0, 1e-5)
        for event in own:
            ledger.for_periods(name).spend(event)
            alone.spend(event)
        left.append(alone.remaining())
    assert ledger.remaining() == min(left)
    ledger.check(PureEvent(0.999 * ledger.remaining(), A))
