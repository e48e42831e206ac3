"""Wrong scalers on purpose: each named fault of the noisy moments fails a named check.

Checks compose exactly what is drawn on the worst neighbours (oracles/coupled.py): nothing is
sampled and there are no false alarms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import PrivateStandardScaler, _core, verify
from dpsvm_fast.mechanisms.moments import PAIR_NORM, NoisyColumnMoments
from dpsvm_fast.rounding import sqrt_up
from oracles.audit import epsilon_of_separation
from oracles.coupled import Coupling, coupled, estimator_run
from oracles.faults import BOTH, EXCHANGE, MORE, Fault, around, in_each, is_seen, put

Array = NDArray[Any]
Patch = pytest.MonkeyPatch
EPSILON, DELTA, D = 2.0, 1e-5, 5
BASE = np.random.default_rng(0).uniform(-0.5, 0.5, (40, D))


def neighbours(adjacency: str) -> list[tuple[Any, Any]]:
    """Pairs among which is the worst one: records in the middle, at the ends, and far outside."""
    # Just above zero: a square rounded down there would be 0 beside an entry that is not.
    entries = (0.0, 1023.0 * 2.0**-20, 1.0, -1.0, 6.0)
    records = [np.full(D, z) for z in entries]

    def ending(record: Array) -> tuple[Array]:
        return (np.vstack([BASE, record]),)

    if adjacency == "add_remove":
        return [(ending(record), (BASE,)) for record in records]
    return [(ending(one), ending(two)) for one in records for two in records if one is not two]


def runs(adjacency: str, **options: Any) -> list[Coupling]:
    def make() -> PrivateStandardScaler:
        settings = {"delta": DELTA, "bounds": (-1.0, 1.0), "adjacency": adjacency} | options
        return PrivateStandardScaler(EPSILON, **settings)

    return [coupled(estimator_run(make), *pair) for pair in neighbours(adjacency)]


def largest_share(adjacency: str, **options: Any) -> float:
    """What was spent on the worst pair over what the event says."""
    found = runs(adjacency, **options)
    spent = max(one.spent for one in found)
    (event,) = found[0].outcomes[0].privacy_.events
    return spent / (event.epsilon if event.mu is None else event.mu)


def event_covers(adjacency: str) -> bool:
    """Whether no pair spends more than the event says."""
    return largest_share(adjacency) <= 1.0 + 1e-12


def budget_is_kept(adjacency: str) -> bool:
    """Whether the worst pair spends no more than epsilon and delta."""
    total = max(one.spent for one in runs(adjacency))
    return epsilon_of_separation(total, DELTA) <= EPSILON * (1.0 + 1e-9)


def all_is_noisy(adjacency: str) -> bool:
    """Whether all that differs between neighbours is hidden by noise."""
    return all(one.alike for one in runs(adjacency))


def certificate_holds(adjacency: str) -> bool:
    options: dict[str, Any] = {"bounds": (-1.0, 1.0), "adjacency": adjacency}
    return bool(verify(PrivateStandardScaler(EPSILON, DELTA, **options).fit(BASE).privacy_))


CHECKS = (event_covers, budget_is_kept, all_is_noisy, certificate_holds)


@pytest.mark.proof("private_scaling")
@pytest.mark.parametrize("adjacency", BOTH)
@pytest.mark.parametrize("options", [{}, {"with_std": False}, {"delta": 0.0}], ids=str)
def test_the_whole_budget_is_spent_and_no_more(adjacency: str, options: dict[str, Any]) -> None:
    assert 1.0 - 1e-9 <= largest_share(adjacency, **options) <= 1.0 + 1e-12


def of_the_sum(**changes: Any) -> Fault:
    """The noise is calibrated to other numbers."""

    def wrong(right: Any, self: NoisyColumnMoments) -> Any:
        given = {k: v(self) if callable(v) else v for k, v in changes.items()}
        return dataclasses.replace(right(self), **given)

    return around(NoisyColumnMoments, "sum", wrong)


def without_the_count(plan: NoisyColumnMoments) -> float:
    return sqrt_up(float(plan.n_features * PAIR_NORM**2))


def other_sums(clip: bool, rounded: Callable[[Array], Array]) -> Fault:
    """Sums of entries that are not clipped, or of squares rounded otherwise."""

    def sums(X: Array, *, offset: Array, scale: Array, n_threads: int) -> tuple[Array, Array]:
        z = (X - offset) * scale
        k = np.rint((np.clip(z, -1.0, 1.0) if clip else z) * 2**20).astype(np.int64)
        squares = rounded(k.astype(np.float64) ** 2 / 2**20).astype(np.int64)
        return k.sum(axis=0), squares.sum(axis=0)

    return put(_core, "column_moments", sums)


def range_of_rows(right: Any, self: PrivateStandardScaler, X: Array, y: Any = None) -> Any:
    """Smallest and largest entries are taken for bounds."""
    return right(self.set_params(bounds=(X.min(axis=0), X.max(axis=0))), X)


def released(change: Callable[[Array, int], dict[str, Any]]) -> Fault:
    """Parts of the release have no noise."""
    return around(
        NoisyColumnMoments,
        "release",
        lambda right, self, first, second, n, *others: dataclasses.replace(
            right(self, first, second, n, *others), **change(first, n)
        ),
    )


# Mutant, a check that must fail, and the relations in which it is wrong.
MUTANTS: dict[str, tuple[Fault, Callable[[str], bool], tuple[str, ...]]] = {
    "exchanged counts once": (of_the_sum(relation_factor=1.0), event_covers, EXCHANGE),
    "exchanged counts once, certified": (
        of_the_sum(relation_factor=1.0), certificate_holds, EXCHANGE,
    ),
    "count for nothing": (of_the_sum(clip_norm=without_the_count), event_covers, MORE),
    "count for nothing, certified": (
        of_the_sum(clip_norm=without_the_count), certificate_holds, MORE,
    ),
    "half the length": (of_the_sum(clip_norm=lambda p: 0.5 * p.n_features), event_covers, MORE),
    "twice mu": (of_the_sum(mu=lambda p: 2.0 * p.mu), budget_is_kept, MORE),
    "twice mu, certified": (of_the_sum(mu=lambda p: 2.0 * p.mu), certificate_holds, EXCHANGE),
    "not clipped": (other_sums(False, np.ceil), event_covers, BOTH),
    "squares rounded down": (other_sums(True, np.floor), event_covers, MORE),
    "bounds of the rows": (
        around(PrivateStandardScaler, "fit", range_of_rows), all_is_noisy, BOTH,
    ),
    "count without noise": (released(lambda _, n: {"count": float(n)}), all_is_noisy, MORE),
    "means without noise": (
        released(lambda first, n: {"mean": first * 2.0**-20 / n}), all_is_noisy, BOTH,
    ),
}  # fmt: skip


@pytest.mark.proof("private_scaling")
@in_each(MUTANTS)
def test_a_mutant_is_caught(name: str, adjacency: str, monkeypatch: Patch) -> None:
    fault, holds, _ = MUTANTS[name]
    assert is_seen(fault, monkeypatch, holds, adjacency)


def test_sums_by_hand_are_the_compiled_ones(monkeypatch: Patch) -> None:
    """Negative control: the substitute of the mutants, without their fault, passes."""
    other_sums(True, np.ceil)(monkeypatch)
    assert all(check(adjacency) for check in CHECKS for adjacency in BOTH)
