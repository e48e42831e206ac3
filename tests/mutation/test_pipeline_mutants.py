"""Wrong pipelines on purpose: each named fault of an automatic recipe fails a named check.

Faults are put into the mechanism itself. Checks compose exactly what is drawn on the worst
neighbours of each release (oracles/coupled.py): what differs in the end was released without noise,
and what was hidden by noise was paid for. Nothing is sampled and there are no false alarms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.certificates import GaussianEvent
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms import moments, noise, pipeline
from dpsvm_fast.mechanisms.moments import NoisyMean, NoisyMoments
from dpsvm_fast.mechanisms.pipeline import (
    KernelChoice,
    NoisyCount,
    PrivateKernel,
    PrivateLinear,
    Training,
)
from dpsvm_fast.mechanisms.rows import PublicMap
from dpsvm_fast.rounding import div_up, sqrt_down
from oracles.audit import epsilon_of_separation
from oracles.coupled import (
    COARSE,
    Coupling,
    Source,
    coupled,
    far_products,
    opposed,
    split,
    use_slow_core,
)
from oracles.faults import BOTH, EXCHANGE, MORE, ONCE, Fault, around, in_each, is_seen, put
from oracles.plans import PlainRows
from twins.noisy_descent import Records

pytestmark = pytest.mark.proof("auto_pipeline", "Budget and paths")

Array = NDArray[Any]
Patch = pytest.MonkeyPatch
EPSILON, DELTA = 4.0, 1e-5
# Gradients of records on either side of a far margin never fall below the clip norm.
LOSS = Loss(name="softmax_margin", n_classes=2, margin=50.0)


@pytest.fixture(autouse=True)
def slow(monkeypatch: Patch) -> None:
    use_slow_core(monkeypatch)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A pipeline with the ways that it may take, and neighbours that are the worst for it."""

    kind: type[PrivateLinear]
    n_features: int
    labels: Array
    paths: dict[str, dict[str, Any]]
    # Ways on which single parts, and all that is released, are looked at.
    parts: tuple[str, ...]
    shown: tuple[dict[str, Any], ...]

    def plan(self, adjacency: str, **settings: Any) -> Any:
        return self.kind(
            epsilon=EPSILON,
            delta=DELTA,
            adjacency=adjacency,
            trainer="gradient",
            noise_grid="exact",
            loss=LOSS,
            n_features=self.n_features,
            fit_intercept=True,
            **settings,
        )

    def neighbours(self, adjacency: str) -> list[tuple[Any, Any]]:
        rows = np.random.default_rng(0).normal(size=(self.labels.size, self.n_features))
        return opposed(rows, self.labels, adjacency)

    def run(self, mechanism: Any) -> Callable[[Any, Any], Any]:
        if self is KERNEL:
            mechanism = dataclasses.replace(mechanism, public=PublicMap(unit=mechanism.normalize))
        return lambda data, source: mechanism.run(PlainRows(*data), source)

    def runs(self, adjacency: str, **settings: Any) -> list[Coupling]:
        run = self.run(self.plan(adjacency, **settings))
        return [coupled(run, *pair) for pair in self.neighbours(adjacency)]

    def spent(self, adjacency: str, path: str) -> tuple[Training, Array]:
        """The way taken, and the largest squared size of each of its parts over all pairs."""
        found = self.runs(adjacency, **self.paths[path])
        training = found[0].outcomes[0].training
        counts = {"count": 1, "centre": 1, "whitening": 2, "training": training.rule.n_steps}
        ends = np.cumsum([0] + [counts[part.name] for part in training.sums])[:-1]
        return training, np.max([np.add.reduceat(one.sizes**2, ends) for one in found], axis=0)

    def shares(self, adjacency: str, path: str) -> tuple[Training, Array, float]:
        """What each part spent over what its event says, and the epsilon of all of them."""
        training, squares = self.spent(adjacency, path)
        claimed = [event.mu for event in training.events if isinstance(event, GaussianEvent)]
        total = epsilon_of_separation(float(np.sqrt(squares.sum())), DELTA)
        return training, np.asarray(np.sqrt(squares) / claimed), total


LABELS = np.random.default_rng(7).integers(0, 2, 120)
# Too few rows for the whitening to be worth while: "auto" leaves its share to the training.
LINEAR = Recipe(
    PrivateLinear,
    20,
    LABELS,
    {str(whiten): {"whiten": whiten} for whiten in (True, False, "auto")},
    ("True",),
    ({"whiten": True},),
)
RBF: dict[str, Any] = {"kernel": "rbf", "n_components": 8}
WAYS: dict[str, dict[str, Any]] = {
    "centred": RBF | {"whiten": False},
    "whitened": RBF | {"whiten": True},
    "lengths": RBF | {"normalize": False, "centred": False},
}
# All common records are of one class: what one does to all others adds up in gradients.
KERNEL = Recipe(
    PrivateKernel,
    6,
    np.zeros(60, dtype=np.int64),
    WAYS,
    tuple(WAYS),
    tuple(way | {"kernel": name} for way in WAYS.values() for name in ("rbf", "laplacian", "auto")),
)


def parts_are_covered(recipe: Recipe, adjacency: str) -> bool:
    """Whether no part spends more than its event says."""
    found = [recipe.shares(adjacency, path)[1] for path in recipe.parts]
    return all((shares <= 1.0 + 1e-12).all() for shares in found)


def budget_is_kept(recipe: Recipe, adjacency: str) -> bool:
    """Whether all parts together spend no more than the declared budget, on each path."""
    totals = (recipe.shares(adjacency, path)[2] for path in recipe.paths)
    return all(total <= EPSILON * (1.0 + 1e-9) for total in totals)


def all_is_noisy(recipe: Recipe, adjacency: str) -> bool:
    """Whether all that differs between neighbours is hidden by noise."""
    return all(one.alike for shown in recipe.shown for one in recipe.runs(adjacency, **shown))


def draws_are_fresh(recipe: Recipe, adjacency: str) -> bool:
    """Whether no number serves twice, and sizes and scales are those of the statement."""
    source, d = Source(3), recipe.n_features
    run = recipe.run(recipe.plan(adjacency, whiten=True))
    training = run(recipe.neighbours(adjacency)[0][0], source).training
    first, *matrices, last = training.sums
    wanted = [(first.size, first.scale)]
    for matrix in matrices:
        wanted += [(d * (d - 1) // 2, matrix.scale * 0.5**0.5), (d, matrix.scale)]
    wanted += [(last.size, last.scale)] * training.rule.n_steps
    asked = [(draw.size, draw.scale) for draw in source.draws]
    if len(asked) != len(wanted) or not np.allclose(asked, wanted, rtol=1e-12):
        return False
    # Of 24 or more bits each: of an honest source hardly two numbers are alike.
    numbers = np.concatenate([draw.standard for draw in source.draws])
    return np.unique(np.round(numbers, 7)).size > 0.99 * numbers.size


def sums_are_on_their_grid(recipe: Recipe, adjacency: str) -> bool:
    """Whether exact noise hides the low bits of all that is released."""
    source = Source(4)
    run = recipe.run(recipe.plan(adjacency, whiten=True))
    run(recipe.neighbours(adjacency)[0][0], source)
    steps = [draw.handed[0] / draw.grid for draw in source.draws if draw.grid is not None]
    return all(np.array_equal(one, np.rint(one)) for one in steps)


def rounding_is_covered(recipe: Recipe, adjacency: str) -> bool:
    """Whether sums that a coarse grid moves further apart stay within what is claimed."""
    d = 60
    settings: dict[str, Any] = {"n_features": d, "adjacency": adjacency, "noise_grid": "exact"}
    mean, matrix = NoisyMean(mu=COARSE, **settings), NoisyMoments(mu=COARSE, **settings)
    factor = 1.0 if adjacency == "add_remove" else 2.0
    here, there = split(np.full(d, factor / d**0.5), mean.sum.grid)
    rows = int(adjacency == "add_remove")

    def mean_run(total: Array, source: Any) -> Any:
        return mean.release(total, 4 + rows * int(total is here), source, 1)

    within = coupled(mean_run, here, there).spent <= COARSE * (1 + 1e-12)
    pair = split(far_products(d, adjacency), matrix.sum.grid)
    found = coupled(lambda total, source: matrix.release(total, source, 1), *pair)
    within &= found.spent <= COARSE * (1 + 1e-12)
    rule = dataclasses.replace(recipe.plan(adjacency, whiten=True).training(1e3).rule, mu=1e-6)
    moved = _core.clipped_sum_distance(rule.clip, rule.sum.size, rule.sum.grid)
    return bool(within and rule.sum.contribution >= moved)


def left_to_training(*parts: str) -> Fault:
    """From the budget of the training only ``parts`` are taken away."""

    def divided(right: Any, self: PrivateLinear) -> None:
        right(self)
        spent = sum(getattr(self, part).sum.event.mu ** 2 for part in parts if getattr(self, part))
        left = sqrt_down(self.mu**2 - spent)
        event = GaussianEvent(sigma=div_up(1.0, left), sensitivity=1.0, adjacency=self.adjacency)
        vars(self)["left"] = event.mu

    return around(PrivateLinear, "__post_init__", divided)


def count_for_nothing(right: Any, self: PrivateLinear) -> None:
    """The number of rows is released, but neither charged nor taken from the training."""
    right(self)
    sums = tuple(part for part in self.sums if part.name != "count")
    before = tuple(part.event for part in sums)
    vars(self).update(sums=sums, before=before, left=self._left_by(before).mu)


def whitening_left(right: Any, self: PrivateLinear, count: float | None) -> Training:
    """The share of the whitening goes to the training although it was done."""
    found: Training = right(self, count)
    if not found.whitened or found.rule is None:
        return found
    mu = float(np.hypot(found.rule.mu, found.sums[1].mu or 0.0))
    rule = dataclasses.replace(found.rule, mu=mu)
    return dataclasses.replace(found, rule=rule, sums=(*found.sums[:-1], rule.sum))


class Recycled:
    """A source whose draws are those of the first release, in other units."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def gaussian_on_grid(self, size: int, sigma: float, grid: float, _: int) -> Any:
        steps = np.rint(np.resize(self.source.draws[0].standard, size) * (sigma / grid))
        return self.source._draw("gaussian", size, sigma, grid, steps.astype(np.int64))


def gamma_of_records(patch: Patch) -> None:
    """Gamma is one over the median squared distance of the rows."""
    seen: list[float] = []

    def prepared(right: Any, mechanism: Any, raw: Any, source: Any) -> Any:
        ready = right(mechanism, raw, source)
        rows = ready.records.rows
        seen[:] = [float(np.median(np.square(rows[:, None] - rows).sum(axis=2)))]
        return ready

    def choice(right: Any, self: PrivateKernel, count: float | None) -> KernelChoice:
        found: KernelChoice = right(self, count)
        if not seen or found.gamma is None:
            return found
        return dataclasses.replace(found, gamma=1.0 / seen[0])

    around(PrivateKernel, "prepared", prepared)(patch)
    around(PrivateKernel, "choice", choice)(patch)


def mean_subtracted(right: Any, self: Records, *given: Any) -> None:
    """Features are centred by their own mean instead of a public one."""
    right(self, *given)
    self.rows = np.trunc((self.rows - self.rows.mean(axis=0)) * 2.0**19) * 2.0**-20


def noisier(factor: float) -> Callable[..., Any]:
    """The release of a plan for another parameter than the event's."""
    return lambda right, self, *o: right(dataclasses.replace(self, mu=factor * self.mu), *o)


def with_count(right: Any, self: Any, total: Array, n: int, *others: Any) -> Any:
    return dataclasses.replace(right(self, total, n, *others), count=float(n))


def plain(
    where: Callable[[int], Array],
) -> Callable[..., Array]:
    """Noise is drawn, and not added in some places of the matrix."""
    return lambda right, self, matrix, *others: np.where(
        where(len(matrix)) == 1.0, matrix, right(self, matrix, *others)
    )


def count_of_rows(right: Any, mechanism: Any, rows: Any, source: Any) -> Any:
    return dataclasses.replace(right(mechanism, rows, source), count=float(rows.n_rows))


# The fault, a check that sees it, and where it does.
MUTANTS: dict[str, tuple[Fault, Callable[[Recipe, str], bool], Recipe, tuple[str, ...]]] = {
    "centre: the count costs nothing": (
        put(moments, "sqrt_up", lambda _: 1.0), parts_are_covered, LINEAR, MORE,
    ),
    "centre: replacement without 2": (
        put(moments, "RELATION_FACTOR", ONCE), parts_are_covered, LINEAR, EXCHANGE,
    ),
    "centre: sigma / sqrt 2": (
        around(noise.NoisySum, "release", noisier(2.0**0.5)), parts_are_covered, LINEAR, BOTH,
    ),
    "centre: count not noisy": (
        around(NoisyMean, "release", with_count), all_is_noisy, LINEAR, MORE,
    ),
    "whitening: replacement without sqrt 2": (
        around(noise, "sqrt_up", lambda right, x: 1.0 if x == 2.0 else right(x)),
        parts_are_covered, LINEAR, EXCHANGE,
    ),
    "whitening: half the variance off the diagonal": (
        around(noise, "sqrt_down", lambda right, x: 2.0 if x == 2.0 else right(x)),
        parts_are_covered, LINEAR, BOTH,
    ),
    "whitening: moments not noisy": (
        around(NoisyMoments, "noisy", plain(lambda d: np.ones((d, d)))),
        all_is_noisy, LINEAR, BOTH,
    ),
    "whitening: diagonal not noisy": (
        around(NoisyMoments, "noisy", plain(np.eye)), all_is_noisy, LINEAR, MORE,
    ),
    "whitening: noise of the centre": (
        around(NoisyMoments, "noisy", lambda right, self, m, source, n: right(
            self, m, Recycled(source), n
        )),
        draws_are_fresh, LINEAR, BOTH,
    ),
    "training: without sqrt(T)": (
        around(noise, "sqrt_up", lambda right, x: 1.0 if x != 2.0 else right(x)),
        budget_is_kept, LINEAR, BOTH,
    ),
    "training: replacement without 2": (
        put(pipeline, "RELATION_FACTOR", ONCE), parts_are_covered, LINEAR, EXCHANGE,
    ),
    "shares: nothing taken away": (left_to_training(), budget_is_kept, LINEAR, BOTH),
    "shares: the centre for nothing": (
        left_to_training("whitening"), budget_is_kept, LINEAR, BOTH,
    ),
    "shares: the whitening for nothing": (
        left_to_training("centre"), budget_is_kept, LINEAR, BOTH,
    ),
    "shares: whitening and its share": (
        around(PrivateLinear, "training", whitening_left), budget_is_kept, LINEAR, BOTH,
    ),
    "shares: unspent share twice": (
        around(pipeline, "joined_parameter", lambda right, mu, *o: right(mu, *o, *o)),
        budget_is_kept, LINEAR, BOTH,
    ),
    "rounding: sums off the grid": (
        around(noise, "release_on_grid", lambda _, flat, sigma, grid, source, threads: np.asarray(
            flat + source.gaussian_on_grid(flat.size, sigma, grid, threads) * grid
        )),
        sums_are_on_their_grid, LINEAR, BOTH,
    ),
    "rounding: not in the centre": (
        put(noise, "rounding_distance", lambda *_: 0.0), rounding_is_covered, LINEAR, BOTH,
    ),
    "rounding: not in the whitening": (
        around(noise.SecondMoments, "sum", lambda right, self: dataclasses.replace(
            right(self), rounding=0.0
        )),
        rounding_is_covered, LINEAR, BOTH,
    ),
    "rounding: not in the training": (
        put(pipeline, "add_up", lambda *_: 0.0), rounding_is_covered, LINEAR, BOTH,
    ),
    "kernel: count not noisy": (
        around(NoisyCount, "release", lambda right, self, n, *o: (right(self, n, *o), float(n))[1]),
        all_is_noisy, KERNEL, MORE,
    ),
    "kernel: count for nothing": (
        around(PrivateLinear, "__post_init__", count_for_nothing), budget_is_kept, KERNEL, MORE,
    ),
    "kernel: count with half the noise": (
        around(NoisyCount, "release", noisier(2.0)), parts_are_covered, KERNEL, MORE,
    ),
    "kernel: gamma of the number of rows": (
        around(PrivateKernel, "prepared", count_of_rows), all_is_noisy, KERNEL, MORE,
    ),
    "kernel: gamma of the distances": (gamma_of_records, all_is_noisy, KERNEL, BOTH),
    "kernel: features centred by their mean": (
        around(Records, "lift", mean_subtracted), parts_are_covered, KERNEL, BOTH,
    ),
    "kernel: replacement without 2": (
        put(pipeline, "RELATION_FACTOR", ONCE), parts_are_covered, KERNEL, EXCHANGE,
    ),
}  # fmt: skip


@pytest.mark.sampled
@in_each(MUTANTS)
def test_a_wrong_pipeline_is_rejected(name: str, adjacency: str, monkeypatch: Patch) -> None:
    fault, holds, recipe, _ = MUTANTS[name]
    assert is_seen(fault, monkeypatch, holds, recipe, adjacency)


@pytest.mark.sampled
@pytest.mark.sampled
@pytest.mark.parametrize("adjacency", BOTH)
@pytest.mark.parametrize(
    ("recipe", "path"), [(r, path) for r in (LINEAR, KERNEL) for path in r.paths]
)
def test_the_worst_neighbours_spend_the_whole_budget(
    adjacency: str, recipe: Recipe, path: str
) -> None:
    """Power of the checks above: every part attains its claim, and all together the budget."""
    training, found, total = recipe.shares(adjacency, path)
    assert (found <= 1.0 + 1e-12).all()
    names = [part.name for part in training.sums]
    # No pair of rows stays orthogonal when all are turned by what earlier noise made of them.
    again = [i for i, name in enumerate(names) if name == "whitening" and name in names[:i]]
    assert (found[again] >= 0.85).all()
    least, budget = (0.995, 0.99) if recipe is LINEAR else (0.99, 0.98)
    assert (np.delete(found, again) >= least).all()
    assert budget * EPSILON <= total <= EPSILON * (1.0 + 1e-9)


@pytest.mark.parametrize("adjacency", BOTH)
def test_what_calibrates_is_paid_for(adjacency: str) -> None:
    mechanism = dataclasses.replace(LINEAR.plan(adjacency, whiten=True), calibrated=True)
    for pair in LINEAR.neighbours(adjacency):
        one = coupled(LINEAR.run(mechanism), *pair)
        here, there = one.outcomes
        # Two draws for each whitening.
        training = here.training
        assert one.sizes.size == 2 * len(training.sums) - 3 + training.rule.n_steps
        assert epsilon_of_separation(one.spent, DELTA) <= EPSILON * (1.0 + 1e-9)
        assert dataclasses.replace(one, outcomes=(here.temperature, there.temperature)).alike
