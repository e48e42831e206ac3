"""Wrong principal components on purpose: each named fault fails a named check.

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

from dpsvm_fast import PrivatePCA, _core
from dpsvm_fast.mechanisms import noise as noisy_moments
from dpsvm_fast.mechanisms.moments import NoisyComponents, ReleasedComponents, SumPlan
from dpsvm_fast.mechanisms.noise import NoisySum, SecondMoments, gaussian_parameter
from oracles.audit import epsilon_of_separation
from oracles.coupled import Coupling, Draw, Source, coupled, estimator_run

Array = NDArray[Any]
Patch = pytest.MonkeyPatch
EPSILON, DELTA, D = 1.5, 1e-5, 6
RELATIONS = ("add_remove", "replace_one")
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
    return [float(np.linalg.norm(one.sizes)) / event.mu for one in found]


def event_is_kept(adjacency: str) -> bool:
    """Whether no pair spends more than the event says."""
    return max(shares(adjacency)) <= 1.0 + 1e-12


def budget_is_kept(adjacency: str) -> bool:
    """Whether no pair spends more than epsilon at the declared delta."""
    spent = max(float(np.linalg.norm(one.sizes)) for one in runs(adjacency))
    return epsilon_of_separation(spent, DELTA) <= EPSILON * (1.0 + 1e-9)


def all_is_noisy(adjacency: str) -> bool:
    """Whether all that differs between neighbours is hidden by noise."""
    outcomes = [one.outcomes for one in runs(adjacency)]
    return all(pickle.dumps(vars(here)) == pickle.dumps(vars(there)) for here, there in outcomes)


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
    numbers = np.concatenate([_standard(draw) for draw in source.draws])
    return np.unique(np.round(numbers, 7)).size == numbers.size


def _standard(draw: Draw) -> Array:
    assert draw.grid is not None
    return np.asarray(draw.noise * (draw.grid / draw.scale))


# Of so small a parameter the noise is so large that its grid is coarser than the rows'.
COARSE = 1e-10


def rounding_is_covered(adjacency: str) -> bool:
    """Whether sums that a coarse grid moves further apart stay within what is claimed.

    Every entry of one sum lies a little above the middle between two multiples of the grid, that of
    the other a little below: rounding moves each by nearly a whole step.
    """
    d = 60
    moments = NoisyComponents(n_features=d, adjacency=adjacency, noise_grid="exact", mu=COARSE)
    sign = np.where(np.arange(d) < d // 2, 1.0, -1.0)
    change = np.full((d, d), 1.0 / d)
    if adjacency == "replace_one":
        change -= np.outer(sign, sign) / d
    grid, over = moments.sum.grid, 2.0**-6
    assert grid is not None
    low = np.sign(change) * (0.5 - over / 2) * grid
    far = low + np.sign(change) * (np.floor(np.abs(change) / grid - over) + over) * grid
    found = coupled(lambda total, source: moments.noisy(total, source, 1), far, low).sizes
    return bool(np.linalg.norm(found) <= COARSE * (1 + 1e-12))


def returning(name: str, value: float) -> Callable[[Patch], None]:
    """Mutant: a function that the calibration calls has a constant result."""
    return lambda patch: patch.setattr(noisy_moments, name, lambda *_: value)


def smaller_scale(patch: Patch) -> None:
    """Half the variance of what the event says."""
    original = SecondMoments.noisy

    def noisy(self: SecondMoments, moments: Array, *others: Any) -> Array:
        return original(dataclasses.replace(self, mu=self.mu * 2.0**0.5), moments, *others)

    patch.setattr(SecondMoments, "noisy", noisy)


def larger_parameter(patch: Patch) -> None:
    """An event of a budget twice as large."""
    original = PrivatePCA.plan

    def plan(self: PrivatePCA, facts: Any) -> SumPlan:
        found = original(self, facts)
        total: Any = found.total
        return dataclasses.replace(found, total=dataclasses.replace(total, mu=2.0 * total.mu))

    patch.setattr(PrivatePCA, "plan", plan)


def without_noise(where: Callable[[Array], Array]) -> Callable[[Patch], None]:
    """Mutant: entries in the given places are released as they are."""

    def apply(patch: Patch) -> None:
        original = SecondMoments.noisy

        def noisy(self: SecondMoments, moments: Array, *others: Any) -> Array:
            found = original(self, moments, *others)
            return np.where(where(np.eye(D)) == 1.0, moments, found)

        patch.setattr(SecondMoments, "noisy", noisy)

    return apply


class Recycled:
    """A source whose draws are those of the diagonal's first entry, in other units."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def gaussian_on_grid(self, size: int, sigma: float, grid: float, n_threads: int) -> Any:
        draw = self.source.gaussian_on_grid(size, sigma, grid, n_threads)
        draw.draw.noise[:] = np.resize(draw.draw.noise[:1], size)
        return draw


def one_number(patch: Patch) -> None:
    """One noise number serves for many entries."""
    original = SecondMoments.noisy
    patch.setattr(
        SecondMoments,
        "noisy",
        lambda self, moments, source, n: original(self, moments, Recycled(source), n),
    )


def longer_rows(patch: Patch) -> None:
    """Rows are kept at norm sqrt 2: their moments are twice as large."""
    original = NoisyComponents.release
    patch.setattr(
        NoisyComponents,
        "release",
        lambda self, moments, *others: original(self, 2.0 * moments, *others),
    )


def exact_trace(patch: Patch) -> None:
    """Shares are those of the trace without noise."""
    original = NoisyComponents.release

    def release(self: NoisyComponents, moments: Array, *others: Any) -> ReleasedComponents:
        found = original(self, moments, *others)
        return dataclasses.replace(found, trace=float(np.trace(moments)))

    patch.setattr(NoisyComponents, "release", release)


def exact_vectors(patch: Patch) -> None:
    """Noise on the eigenvalues alone."""
    original = NoisyComponents.release

    def release(self: NoisyComponents, moments: Array, k: int, *others: Any) -> ReleasedComponents:
        found = original(self, moments, k, *others)
        return dataclasses.replace(found, vectors=_core.symmetric_eigen(moments, k)[1])

    patch.setattr(NoisyComponents, "release", release)


def taken_from_rows(patch: Patch, name: str, of: Callable[[Array], Any]) -> None:
    """A parameter follows from the rows."""
    original = PrivatePCA.fit

    def fit(self: PrivatePCA, X: Array, y: Any = None) -> PrivatePCA:
        return original(self.set_params(**{name: of(X)}), X)

    patch.setattr(PrivatePCA, "fit", fit)


def mean_as_centre(patch: Patch) -> None:
    """Rows are centred at their mean, which nobody released."""
    taken_from_rows(patch, "centre", lambda X: X.mean(axis=0))


def longest_row(patch: Patch) -> None:
    """The bound of the norm is that of the longest row."""
    taken_from_rows(patch, "data_norm", lambda X: float(np.linalg.norm(X, axis=1).max()))


def unrounded(patch: Patch) -> None:
    """What the grid's rounding moves is not counted."""
    patch.setattr(NoisySum, "contribution", property(lambda part: part.clip_norm))


BOTH, EXCHANGE = RELATIONS, ("replace_one",)
MUTANTS: dict[str, tuple[Callable[[Patch], None], Callable[[str], bool], tuple[str, ...]]] = {
    "replacement without sqrt 2": (returning("sqrt_up", 1.0), budget_is_kept, EXCHANGE),
    "sigma / sqrt 2": (smaller_scale, event_is_kept, BOTH),
    "a larger budget": (larger_parameter, budget_is_kept, BOTH),
    "off the diagonal sigma / 2": (returning("sqrt_down", 2.0), event_is_kept, BOTH),
    "rows of norm sqrt 2": (longer_rows, event_is_kept, BOTH),
    "diagonal not noisy": (without_noise(lambda eye: eye), all_is_noisy, BOTH),
    "diagonal only": (without_noise(lambda eye: 1.0 - eye), all_is_noisy, BOTH),
    "nothing noisy": (without_noise(np.ones_like), all_is_noisy, BOTH),
    "one number for many entries": (one_number, draws_are_fresh, BOTH),
    "vectors of the exact matrix": (exact_vectors, all_is_noisy, BOTH),
    "trace of the exact matrix": (exact_trace, all_is_noisy, BOTH),
    "centred at the mean": (mean_as_centre, all_is_noisy, BOTH),
    "scaled by the longest row": (longest_row, all_is_noisy, BOTH),
    "rounding not counted": (unrounded, rounding_is_covered, BOTH),
}


@pytest.mark.proof("private_pca")
@pytest.mark.parametrize(
    ("name", "adjacency"), [(n, a) for n, (_, _, relations) in MUTANTS.items() for a in relations]
)
def test_wrong_components_are_rejected(name: str, adjacency: str, monkeypatch: Patch) -> None:
    mutate, holds, _ = MUTANTS[name]
    assert holds(adjacency)
    mutate(monkeypatch)
    assert not holds(adjacency)


@pytest.mark.proof("private_pca")
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_the_worst_neighbours_spend_the_whole_budget(adjacency: str) -> None:
    """Power of the checks above: sums along one axis and along all attain the claim."""
    assert min(shares(adjacency)[:2]) > 0.999
