"""Wrong scalers on purpose: each named fault of the noisy moments fails a named check.

Checks compose exactly what is drawn on the worst neighbours (oracles/coupled.py): nothing is
sampled and there are no false alarms.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import PrivateStandardScaler, _core, verify
from dpsvm_fast.mechanisms import moments as mechanism
from dpsvm_fast.mechanisms.noise import NoisySum
from dpsvm_fast.rounding import sqrt_up
from oracles.audit import epsilon_of_separation
from oracles.coupled import Coupling, coupled, estimator_run

Array = NDArray[Any]
Patch = pytest.MonkeyPatch
EPSILON, DELTA, D = 2.0, 1e-5, 5
RELATIONS = ("add_remove", "replace_one")
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
    spent = max(float(np.linalg.norm(one.sizes)) for one in found)
    (event,) = found[0].outcomes[0].privacy_.events
    return spent / (event.mu if hasattr(event, "mu") else event.epsilon)


def event_covers(adjacency: str) -> bool:
    """Whether no pair spends more than the event says."""
    return largest_share(adjacency) <= 1.0 + 1e-12


def budget_is_kept(adjacency: str) -> bool:
    """Whether the worst pair spends no more than epsilon and delta."""
    total = max(float(np.linalg.norm(one.sizes)) for one in runs(adjacency))
    return epsilon_of_separation(total, DELTA) <= EPSILON * (1.0 + 1e-9)


def all_is_noisy(adjacency: str) -> bool:
    """Whether all that differs between neighbours is hidden by noise."""
    pairs = [one.outcomes for one in runs(adjacency)]
    return all(pickle.dumps(here) == pickle.dumps(there) for here, there in pairs)


def certificate_holds(adjacency: str) -> bool:
    options: dict[str, Any] = {"bounds": (-1.0, 1.0), "adjacency": adjacency}
    return bool(verify(PrivateStandardScaler(EPSILON, DELTA, **options).fit(BASE).privacy_))


CHECKS: tuple[Callable[[str], bool], ...] = (
    event_covers,
    budget_is_kept,
    all_is_noisy,
    certificate_holds,
)


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("check", CHECKS)
def test_the_scaler_passes(check: Callable[[str], bool], adjacency: str) -> None:
    assert check(adjacency)


@pytest.mark.proof("private_scaling")
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("options", [{}, {"with_std": False}, {"delta": 0.0}], ids=str)
def test_the_whole_budget_is_spent_and_no_more(adjacency: str, options: dict[str, Any]) -> None:
    assert 1.0 - 1e-9 <= largest_share(adjacency, **options) <= 1.0 + 1e-12


def of_the_sum(**changes: Any) -> Callable[[Patch], None]:
    """Mutant: the noise is calibrated to other numbers."""
    original = mechanism.NoisyColumnMoments.sum.func

    def mutate(patch: Patch) -> None:
        def wrong(self: mechanism.NoisyColumnMoments) -> NoisySum:
            found = original(self)
            given = {k: v(self) if callable(v) else v for k, v in changes.items()}
            return dataclasses.replace(found, **given)

        patch.setattr(mechanism.NoisyColumnMoments, "sum", property(wrong))

    return mutate


def without_the_count(plan: mechanism.NoisyColumnMoments) -> float:
    return sqrt_up(float(plan.n_features * mechanism.PAIR_NORM**2))


def other_sums(clip: bool, rounded: Callable[[Array], Array]) -> Callable[[Patch], None]:
    """Mutant: sums of entries that are not clipped, or of squares rounded otherwise."""

    def sums(X: Array, *, offset: Array, scale: Array, n_threads: int) -> tuple[Array, Array]:
        z = (X - offset) * scale
        k = np.rint((np.clip(z, -1.0, 1.0) if clip else z) * 2**20).astype(np.int64)
        squares = rounded(k.astype(np.float64) ** 2 / 2**20).astype(np.int64)
        return k.sum(axis=0), squares.sum(axis=0)

    return lambda patch: patch.setattr(_core, "column_moments", sums)


def bounds_of_the_rows(patch: Patch) -> None:
    """Smallest and largest entries are taken for bounds."""
    original = PrivateStandardScaler.fit

    def fit(self: PrivateStandardScaler, X: Array, y: Any = None) -> PrivateStandardScaler:
        return original(self.set_params(bounds=(X.min(axis=0), X.max(axis=0))), X)

    patch.setattr(PrivateStandardScaler, "fit", fit)


def changed_release(change: Callable[..., Any]) -> Callable[[Patch], None]:
    """Mutant: the mechanism's release is another one."""
    original = mechanism.NoisyColumnMoments.release

    def release(self: Any, first: Array, second: Array, n: int, source: Any, threads: int) -> Any:
        found = original(self, first, second, n, source, threads)
        return dataclasses.replace(found, **change(first, second, n))

    return lambda patch: patch.setattr(mechanism.NoisyColumnMoments, "release", release)


def exact_count(patch: Patch) -> None:
    """The number of rows is not noisy."""
    changed_release(lambda first, second, n: {"count": float(n)})(patch)


def exact_means(patch: Patch) -> None:
    """Means without noise."""
    changed_release(lambda first, second, n: {"mean": first * 2.0**-20 / n})(patch)


# Mutant, the relation in which it is wrong, and a check that must fail.
MUTANTS: list[tuple[str, Callable[[Patch], None], str, Callable[[str], bool]]] = [
    ("exchanged counts once", of_the_sum(relation_factor=1.0), "replace_one", event_covers),
    ("exchanged counts once", of_the_sum(relation_factor=1.0), "replace_one", certificate_holds),
    ("count for nothing", of_the_sum(clip_norm=without_the_count), "add_remove", event_covers),
    ("count for nothing", of_the_sum(clip_norm=without_the_count), "add_remove", certificate_holds),
    (
        "half the length",
        of_the_sum(clip_norm=lambda p: 0.5 * p.n_features),
        "add_remove",
        event_covers,
    ),
    ("twice mu", of_the_sum(mu=lambda p: 2.0 * p.mu), "add_remove", budget_is_kept),
    ("twice mu", of_the_sum(mu=lambda p: 2.0 * p.mu), "replace_one", certificate_holds),
    ("not clipped", other_sums(False, np.ceil), "add_remove", event_covers),
    ("not clipped", other_sums(False, np.ceil), "replace_one", event_covers),
    ("squares rounded down", other_sums(True, np.floor), "add_remove", event_covers),
    ("bounds of the rows", bounds_of_the_rows, "add_remove", all_is_noisy),
    ("bounds of the rows", bounds_of_the_rows, "replace_one", all_is_noisy),
    ("count without noise", exact_count, "add_remove", all_is_noisy),
    ("means without noise", exact_means, "add_remove", all_is_noisy),
    ("means without noise", exact_means, "replace_one", all_is_noisy),
]


@pytest.mark.proof("private_scaling")
@pytest.mark.parametrize(
    ("mutate", "adjacency", "check"),
    [pytest.param(*rest, id=f"{name}, {rest[1]}, {rest[2].__name__}") for name, *rest in MUTANTS],
)
def test_a_mutant_is_caught(
    monkeypatch: Patch,
    mutate: Callable[[Patch], None],
    adjacency: str,
    check: Callable[[str], bool],
) -> None:
    mutate(monkeypatch)
    assert not check(adjacency)


def test_sums_by_hand_are_the_compiled_ones(monkeypatch: Patch) -> None:
    """Negative control: the substitute of the mutants, without their fault, passes."""
    other_sums(True, np.ceil)(monkeypatch)
    assert all(check(adjacency) for check in CHECKS for adjacency in RELATIONS)
