"""Wrong principal components on purpose: each named fault fails a named check.

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

from dpsvm_fast import PrivatePCA, _core
from dpsvm_fast.mechanisms import noise as noisy_moments
from dpsvm_fast.mechanisms.moments import NoisyComponents
from dpsvm_fast.mechanisms.noise import SecondMoments, gaussian_parameter
from oracles.audit import epsilon_of_separation
from oracles.coupled import COARSE, Coupling, Source, coupled, estimator_run, far_products, split
from oracles.faults import BOTH, EXCHANGE, Fault, around, in_each, is_seen, put

pytestmark = pytest.mark.proof("private_pca")

Array = NDArray[Any]
Patch = pytest.MonkeyPatch
EPSILON, DELTA, D = 1.5, 1e-5, 6
BASE = 0.3 * np.random.default_rng(0).normal(size=(40, D))


def neighbours(adjacency: str) -> list[tuple[Any, Any]]:
    """Pairs among which is the worst one: rows along an axis, and along all of them."""
    even, axis, other = np.full(D, 9.0), 3.0 * np.eye(D)[0], -4.0 * np.eye(D)[1]
    across = even * np.where(np.arange(D) < D // 2, 1.0, -1.0)

    def ending(row: Array) -> tuple[Array]:
        return (np.vstack([BASE, row]),)

    if adjacency == "add_remove":
        return [(ending(row), (BASE,)) for row in (even, axis)]
    pairs = [(even, across), (axis, other), (axis, 0.0 * axis)]
    return [(ending(one), ending(two)) for one, two in pairs]


def make(adjacency: str, **options: Any) -> PrivatePCA:
    return PrivatePCA(3, EPSILON, DELTA, adjacency=adjacency, n_threads=1, **options)


def runs(adjacency: str) -> list[Coupling]:
    run = estimator_run(lambda: make(adjacency))
    return [coupled(run, *pair) for pair in neighbours(adjacency)]


def shares(adjacency: str) -> list[float]:
    """What each pair spent over what the event says; at most 1, and hardly less."""
    found = runs(adjacency)
    (event,) = found[0].outcomes[0].privacy_.events
    return [one.spent / event.mu for one in found]


def event_is_kept(adjacency: str) -> bool:
    """Whether no pair spends more than the event says."""
    return max(shares(adjacency)) <= 1.0 + 1e-12


def budget_is_kept(adjacency: str) -> bool:
    """Whether no pair spends more than epsilon at the declared delta."""
    spent = max(one.spent for one in runs(adjacency))
    return epsilon_of_separation(spent, DELTA) <= EPSILON * (1.0 + 1e-9)


def all_is_noisy(adjacency: str) -> bool:
    """Whether all that differs between neighbours is hidden by noise."""
    return all(one.alike for one in runs(adjacency))


def draws_are_fresh(adjacency: str) -> bool:
    """Whether every entry on and above the diagonal has a number of its own, of its own scale."""
    source = Source(3)
    estimator_run(lambda: make(adjacency))(neighbours(adjacency)[0][0], source)
    mu = gaussian_parameter(EPSILON, DELTA)
    plan = NoisyComponents(n_features=D, adjacency=adjacency, noise_grid="exact", mu=mu)
    scale = plan.sum.scale
    # Variance sigma^2 on the diagonal and half of it off it.
    wanted = {D: scale, D * (D - 1) // 2: scale * 0.5**0.5}
    if {draw.size: draw.scale for draw in source.draws} != pytest.approx(wanted, rel=1e-12):
        return False
    numbers = np.concatenate([draw.standard for draw in source.draws])
    return np.unique(np.round(numbers, 7)).size == numbers.size


def rounding_is_covered(adjacency: str) -> bool:
    """Whether sums that a coarse grid moves further apart stay within what is claimed."""
    d = 60
    moments = NoisyComponents(n_features=d, adjacency=adjacency, noise_grid="exact", mu=COARSE)
    pair = split(far_products(d, adjacency), moments.sum.grid)
    found = coupled(lambda total, source: moments.noisy(total, source, 1), *pair).sizes
    return bool(np.linalg.norm(found) <= COARSE * (1 + 1e-12))


def returning(name: str, value: float) -> Fault:
    """A function that the calibration calls has a constant result."""
    return put(noisy_moments, name, lambda *_: value)


def larger_budget(right: Any, self: PrivatePCA, facts: Any) -> Any:
    """The event is that of a budget twice as large."""
    found = right(self, facts)
    return dataclasses.replace(found, total=dataclasses.replace(found.total, mu=2 * found.total.mu))


def without_noise(where: Callable[[Array], Array]) -> Fault:
    """Entries in the given places are released as they are."""
    return around(
        SecondMoments,
        "noisy",
        lambda right, self, moments, *others: np.where(
            where(np.eye(D)) == 1.0, moments, right(self, moments, *others)
        ),
    )


class Recycled:
    """A source whose draws are those of the diagonal's first entry, in other units."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def gaussian_on_grid(self, size: int, sigma: float, grid: float, n_threads: int) -> Any:
        draw = self.source.gaussian_on_grid(size, sigma, grid, n_threads)
        draw.draw.noise[:] = np.resize(draw.draw.noise[:1], size)
        return draw


def released(change: Callable[[Array, int], dict[str, Any]]) -> Fault:
    """Parts of the release follow from the exact moments, or from other ones."""
    return around(
        NoisyComponents,
        "release",
        lambda right, self, moments, *others: dataclasses.replace(
            right(self, moments, *others),
            **change(moments, self.n_components or self.n_features),
        ),
    )


def taken_from_rows(name: str, of: Callable[[Array], Any]) -> Fault:
    """A parameter follows from the rows."""
    return around(
        PrivatePCA, "fit", lambda right, self, X, y=None: right(self.set_params(**{name: of(X)}), X)
    )


MUTANTS: dict[str, tuple[Fault, Callable[[str], bool], tuple[str, ...]]] = {
    "replacement without sqrt 2": (returning("sqrt_up", 1.0), budget_is_kept, EXCHANGE),
    "sigma / sqrt 2": (
        around(SecondMoments, "noisy", lambda right, self, *o: right(
            dataclasses.replace(self, mu=self.mu * 2.0**0.5), *o
        )),
        event_is_kept, BOTH,
    ),
    "a larger budget": (around(PrivatePCA, "plan", larger_budget), budget_is_kept, BOTH),
    "off the diagonal sigma / 2": (returning("sqrt_down", 2.0), event_is_kept, BOTH),
    "rows of norm sqrt 2": (
        around(NoisyComponents, "release", lambda right, self, moments, *o: right(
            self, 2.0 * moments, *o
        )),
        event_is_kept, BOTH,
    ),
    "diagonal not noisy": (without_noise(lambda eye: eye), all_is_noisy, BOTH),
    "diagonal only": (without_noise(lambda eye: 1.0 - eye), all_is_noisy, BOTH),
    "nothing noisy": (without_noise(np.ones_like), all_is_noisy, BOTH),
    "one number for many entries": (
        around(SecondMoments, "noisy", lambda right, self, moments, source, n: right(
            self, moments, Recycled(source), n
        )),
        draws_are_fresh, BOTH,
    ),
    "vectors of the exact matrix": (
        released(lambda moments, k: {"vectors": _core.symmetric_eigen(moments, k)[1]}),
        all_is_noisy, BOTH,
    ),
    "trace of the exact matrix": (
        released(lambda moments, _: {"trace": float(np.trace(moments))}), all_is_noisy, BOTH,
    ),
    "centred at the mean": (
        taken_from_rows("centre", lambda X: X.mean(axis=0)), all_is_noisy, BOTH,
    ),
    "scaled by the longest row": (
        taken_from_rows("data_norm", lambda X: float(np.linalg.norm(X, axis=1).max())),
        all_is_noisy, BOTH,
    ),
    # What the grid's rounding moves.
    "rounding not counted": (
        put(noisy_moments, "add_up", lambda clip_norm, rounding: clip_norm),
        rounding_is_covered, BOTH,
    ),
}  # fmt: skip


@pytest.mark.sampled
@in_each(MUTANTS)
def test_wrong_components_are_rejected(name: str, adjacency: str, monkeypatch: Patch) -> None:
    fault, holds, _ = MUTANTS[name]
    assert is_seen(fault, monkeypatch, holds, adjacency)


@pytest.mark.parametrize("adjacency", BOTH)
def test_the_worst_neighbours_spend_the_whole_budget(adjacency: str) -> None:
    """Power of the checks above: sums along one axis and along all attain the claim."""
    assert min(shares(adjacency)[:2]) > 0.999
