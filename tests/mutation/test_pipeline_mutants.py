"""Wrong pipelines on purpose: each named fault of the automatic recipe fails a named check.

Faults are put into the mechanism itself. Checks compose exactly what is drawn on the worst
neighbours of each release (oracles/coupled.py): nothing is sampled and there are no false alarms.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.certificates import GaussianEvent
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms import moments as moments_module
from dpsvm_fast.mechanisms import noise, pipeline
from dpsvm_fast.mechanisms.pipeline import PrivateLinear, Training
from dpsvm_fast.rounding import div_up, sqrt_down
from oracles.audit import epsilon_of_separation
from oracles.coupled import Coupling, Draw, Source, coupled, opposed, use_slow_core
from oracles.plans import PlainRows

Array = NDArray[Any]
Patch = pytest.MonkeyPatch
EPSILON, DELTA = 4.0, 1e-5
# Too few rows for the whitening to be worth while: "auto" leaves its share to the training.
D, N_ROWS = 20, 120
RELATIONS = ("add_remove", "replace_one")
# Gradients of records on either side of a far margin never fall below the clip norm.
LOSS = Loss(name="softmax_margin", n_classes=2, margin=50.0)


@pytest.fixture(autouse=True)
def slow(monkeypatch: Patch) -> None:
    use_slow_core(monkeypatch)


def plan(adjacency: str, whiten: bool | str = True) -> PrivateLinear:
    return PrivateLinear(
        epsilon=EPSILON,
        delta=DELTA,
        adjacency=adjacency,
        trainer="gradient",
        noise_grid="exact",
        loss=LOSS,
        n_features=D,
        fit_intercept=True,
        whiten=whiten,
    )


def neighbours(adjacency: str) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(N_ROWS, D)), rng.integers(0, 2, N_ROWS)
    return opposed(rows, y, adjacency)


def run(mechanism: PrivateLinear) -> Callable[[Any, Any], Any]:
    return lambda data, source: mechanism.run(PlainRows(*data[:2]), source)


def runs(adjacency: str, whiten: bool | str = True) -> list[Coupling]:
    mechanism = plan(adjacency, whiten)
    return [coupled(run(mechanism), *pair) for pair in neighbours(adjacency)]


def spent(adjacency: str, whiten: bool | str = True) -> tuple[Training, Array]:
    """The path, and the largest squared size of each of its parts over all pairs."""
    found = runs(adjacency, whiten)
    training = found[0].outcomes[0].training
    counts = {"centre": 1, "whitening": 2, "training": training.rule.n_steps}
    ends = np.cumsum([0] + [counts[part.name] for part in training.sums])[:-1]
    squares = [np.add.reduceat(one.sizes**2, ends) for one in found]
    return training, np.max(squares, axis=0)


def shares(adjacency: str, whiten: bool | str = True) -> Array:
    """What each part spent over what its event says; at most 1, and hardly less."""
    training, squares = spent(adjacency, whiten)
    claimed = [event.mu for event in training.events if isinstance(event, GaussianEvent)]
    return np.asarray(np.sqrt(squares) / claimed)


def parts_are_covered(adjacency: str) -> bool:
    """Whether no part spends more than its event says."""
    return bool((shares(adjacency) <= 1.0 + 1e-12).all())


def budget_is_kept(adjacency: str) -> bool:
    """Whether all parts together spend no more than the declared budget, on each path."""
    for whiten in (True, False, "auto"):
        total = float(np.sqrt(spent(adjacency, whiten)[1].sum()))
        if epsilon_of_separation(total, DELTA) > EPSILON * (1.0 + 1e-9):
            return False
    return True


def all_is_noisy(adjacency: str) -> bool:
    """Whether all that differs between neighbours is hidden by noise."""
    outcomes = [one.outcomes for one in runs(adjacency)]
    return all(pickle.dumps(here) == pickle.dumps(there) for here, there in outcomes)


def draws_are_fresh(adjacency: str) -> bool:
    """Whether no number serves twice, and sizes and scales are those of the statement."""
    source = Source(3)
    training = run(plan(adjacency))(neighbours(adjacency)[0][0], source).training
    first, *matrices, last = training.sums
    above = D * (D - 1) // 2
    wanted = [(first.size, first.scale)]
    for matrix in matrices:
        wanted += [(above, matrix.scale * 0.5**0.5), (D, matrix.scale)]
    wanted += [(last.size, last.scale)] * training.rule.n_steps
    if [draw.size for draw in source.draws] != [size for size, _ in wanted]:
        return False
    asked = np.array([draw.scale for draw in source.draws])
    if not np.allclose(asked, [scale for _, scale in wanted], rtol=1e-12):
        return False
    # Of 24 or more bits each: of an honest source hardly two numbers are alike.
    numbers = np.concatenate([_standard(draw) for draw in source.draws])
    return np.unique(np.round(numbers, 7)).size > 0.99 * numbers.size


def _standard(draw: Draw) -> Array:
    assert draw.grid is not None
    return np.asarray(draw.noise * (draw.grid / draw.scale))


def sums_are_on_their_grid(adjacency: str) -> bool:
    """Whether exact noise hides the low bits of all that is released."""
    source = Source(4)
    run(plan(adjacency))(neighbours(adjacency)[0][0], source)
    steps = [draw.handed[0] / draw.grid for draw in source.draws if draw.grid is not None]
    return all(np.array_equal(one, np.rint(one)) for one in steps)


# Of so small a parameter the noise is so large that its grid is coarser than the rows'.
COARSE = 1e-10


def rounding_is_covered(adjacency: str) -> bool:
    """Whether sums that a coarse grid moves further apart stay within what is claimed.

    Every entry of one sum lies a little above the middle between two multiples of the grid, that of
    the other a little below: rounding moves each by nearly a whole step.
    """
    d = 60
    settings: dict[str, Any] = {"n_features": d, "adjacency": adjacency, "noise_grid": "exact"}
    mean = moments_module.NoisyMean(mu=COARSE, **settings)
    moments = moments_module.NoisyMoments(mu=COARSE, **settings)
    factor = 1.0 if adjacency == "add_remove" else 2.0
    here, there = split(np.full(d, factor / d**0.5), mean.sum.grid)
    rows = int(adjacency == "add_remove")

    def mean_run(total: Array, source: Any) -> Any:
        return mean.release(total, 4 + rows * int(total is here), source, 1)

    found = coupled(mean_run, here, there).sizes
    within = np.linalg.norm(found) <= COARSE * (1 + 1e-12)
    # Outer products of (1, ..., 1) and of (1, ..., 1, -1, ..., -1), both over sqrt(d), or of one.
    sign = np.where(np.arange(d) < d // 2, 1.0, -1.0)
    change = np.full((d, d), 1.0 / d)
    if adjacency == "replace_one":
        change -= np.outer(sign, sign) / d
    pair = split(change, moments.sum.grid)
    found = coupled(lambda total, source: moments.release(total, source, 1), *pair).sizes
    within &= np.linalg.norm(found) <= COARSE * (1 + 1e-12)
    rule = dataclasses.replace(_rule(adjacency), mu=1e-6)
    moved = _core.clipped_sum_distance(rule.clip, rule.sum.size, rule.sum.grid)
    return bool(within and rule.sum.contribution >= moved)


def split(change: Array, grid: float | None) -> tuple[Array, Array]:
    """Two sums no further apart than ``change``, on either side of a middle of the grid."""
    assert grid is not None
    over = 2.0**-6
    whole = np.floor(np.abs(change) / grid - over)
    low = np.sign(change) * (0.5 - over / 2) * grid
    return low + np.sign(change) * (whole + over) * grid, low


def _rule(adjacency: str) -> pipeline.DescentRule:
    rule = plan(adjacency).training(1000.0).rule
    assert rule is not None
    return rule


def returning(
    module: Any, name: str, value: Any, at: Callable[[Any], bool] = lambda _: True
) -> Callable[[Patch], None]:
    """Mutant: a function of the module has a constant result, for some first arguments."""
    original = getattr(module, name)
    return lambda patch: patch.setattr(
        module, name, lambda *given: value if at(given[0]) else original(*given)
    )


def moments_not_rounded(patch: Patch) -> None:
    """Mutant: the sum of moments is taken for an exact one."""
    original = noise.SecondMoments.sum.func
    exact = property(lambda self: dataclasses.replace(original(self), rounding=0.0))
    patch.setattr(noise.SecondMoments, "sum", exact)


def no_factor(module: Any) -> Callable[[Patch], None]:
    """Mutant: an exchanged record counts once."""
    return lambda patch: patch.setattr(
        module, "RELATION_FACTOR", {"add_remove": 1, "replace_one": 1}
    )


def left_to_training(*parts: str) -> Callable[[Patch], None]:
    """Mutant: from the budget of the training only ``parts`` are taken away."""

    def rest(self: PrivateLinear) -> GaussianEvent:
        spent = sum(getattr(self, part).event.mu ** 2 for part in parts if getattr(self, part))
        left = sqrt_down(self.mu**2 - spent)
        return GaussianEvent(sigma=div_up(1.0, left), sensitivity=1.0, adjacency=self.adjacency)

    return lambda patch: patch.setattr(PrivateLinear, "_rest", property(rest))


def share_spent_twice(patch: Patch) -> None:
    """The share of the whitening goes to the training although it was done."""
    original = PrivateLinear.training

    def training(self: PrivateLinear, count: float | None) -> Training:
        found = original(self, count)
        if not found.whitened or found.rule is None:
            return found
        mu = float(np.hypot(found.rule.mu, found.sums[1].mu or 0.0))
        rule = dataclasses.replace(found.rule, mu=mu)
        return dataclasses.replace(found, rule=rule, sums=(*found.sums[:-1], rule.sum))

    patch.setattr(PrivateLinear, "training", training)


def share_joined_twice(patch: Patch) -> None:
    """What the whitening did not spend is added to the training twice."""
    patch.setattr(
        pipeline,
        "joined_parameter",
        lambda mu, *unspent: noise.joined_parameter(mu, *unspent, *unspent),
    )


def plain_count(patch: Patch) -> None:
    """The number of rows is released as it is."""
    original = moments_module.NoisyMean.release

    def release(
        self: moments_module.NoisyMean, total: Array, n: int, source: Any, threads: int
    ) -> Any:
        return dataclasses.replace(original(self, total, n, source, threads), count=float(n))

    patch.setattr(moments_module.NoisyMean, "release", release)


def plain_moments(patch: Patch) -> None:
    """Noise is drawn and not added."""
    original = moments_module.NoisyMoments.noisy

    def noisy(self: moments_module.NoisyMoments, moments: Array, *others: Any) -> Array:
        original(self, moments, *others)
        return moments

    patch.setattr(moments_module.NoisyMoments, "noisy", noisy)


def plain_diagonal(patch: Patch) -> None:
    """Only what lies above the diagonal is noisy."""
    original = moments_module.NoisyMoments.noisy

    def noisy(self: moments_module.NoisyMoments, moments: Array, *others: Any) -> Array:
        found = original(self, moments, *others)
        np.fill_diagonal(found, np.diagonal(moments))
        return found

    patch.setattr(moments_module.NoisyMoments, "noisy", noisy)


class Recycled:
    """A source whose draws are those of the first release, in other units."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def gaussian_on_grid(self, size: int, sigma: float, grid: float, _: int) -> Any:
        numbers = np.resize(_standard(self.source.draws[0]), size)
        steps = np.rint(numbers * (sigma / grid)).astype(np.int64)
        return self.source._draw("gaussian", size, sigma, grid, steps)


def recycled_noise(patch: Patch) -> None:
    """The noise of the centre serves for the whitening again."""
    original: Callable[..., Array] = moments_module.NoisyMoments.noisy
    patch.setattr(
        moments_module.NoisyMoments,
        "noisy",
        lambda self, moments, source, n: original(self, moments, Recycled(source), n),
    )


def unrounded(patch: Patch) -> None:
    """Noise on the grid is added to a sum that is not on it."""

    def release(flat: Array, sigma: float, grid: float, source: Any, threads: int) -> Array:
        return np.asarray(flat + source.gaussian_on_grid(flat.size, sigma, grid, threads) * grid)

    patch.setattr(noise, "release_on_grid", release)


def smaller_scale(patch: Patch) -> None:
    """Half the variance: the event says less than is spent."""
    original = noise.NoisySum.release

    def release(self: Any, total: Array, source: Any, n_threads: int) -> Array:
        halved = dataclasses.replace(self, mu=self.mu * 2.0**0.5)
        return original(halved, total, source, n_threads)

    patch.setattr(noise.NoisySum, "release", release)


BOTH, EXCHANGE, MORE = RELATIONS, ("replace_one",), ("add_remove",)
MUTANTS: dict[str, tuple[Callable[[Patch], None], Callable[[str], bool], tuple[str, ...]]] = {
    "centre: the count costs nothing": (
        returning(moments_module, "sqrt_up", 1.0), parts_are_covered, MORE,
    ),
    "centre: replacement without 2": (no_factor(moments_module), parts_are_covered, EXCHANGE),
    "centre: sigma / sqrt 2": (smaller_scale, parts_are_covered, BOTH),
    "centre: count not noisy": (plain_count, all_is_noisy, MORE),
    "whitening: replacement without sqrt 2": (
        returning(noise, "sqrt_up", 1.0, lambda x: x == 2.0), parts_are_covered, EXCHANGE,
    ),
    "whitening: half the variance off the diagonal": (
        returning(noise, "sqrt_down", 2.0, lambda x: x == 2.0), parts_are_covered, BOTH,
    ),
    "whitening: moments not noisy": (plain_moments, all_is_noisy, BOTH),
    "whitening: diagonal not noisy": (plain_diagonal, all_is_noisy, MORE),
    "whitening: noise of the centre": (recycled_noise, draws_are_fresh, BOTH),
    "training: without sqrt(T)": (
        returning(noise, "sqrt_up", 1.0, lambda x: x != 2.0), budget_is_kept, BOTH,
    ),
    "training: replacement without 2": (no_factor(pipeline), parts_are_covered, EXCHANGE),
    "shares: nothing taken away": (left_to_training(), budget_is_kept, BOTH),
    "shares: the centre for nothing": (left_to_training("whitening"), budget_is_kept, BOTH),
    "shares: the whitening for nothing": (left_to_training("centre"), budget_is_kept, BOTH),
    "shares: whitening and its share": (share_spent_twice, budget_is_kept, BOTH),
    "shares: unspent share twice": (share_joined_twice, budget_is_kept, BOTH),
    "rounding: sums off the grid": (unrounded, sums_are_on_their_grid, BOTH),
    "rounding: not in the centre": (
        returning(noise, "rounding_distance", 0.0), rounding_is_covered, BOTH,
    ),
    "rounding: not in the whitening": (
        moments_not_rounded, rounding_is_covered, BOTH,
    ),
    "rounding: not in the training": (
        returning(pipeline, "add_up", 0.0), rounding_is_covered, BOTH,
    ),
}  # fmt: skip


@pytest.mark.proof("auto_pipeline", "Budget and paths")
@pytest.mark.parametrize(
    ("name", "adjacency"), [(n, a) for n, (_, _, relations) in MUTANTS.items() for a in relations]
)
def test_a_wrong_pipeline_is_rejected(name: str, adjacency: str, monkeypatch: Patch) -> None:
    mutate, holds, _ = MUTANTS[name]
    assert holds(adjacency)
    mutate(monkeypatch)
    assert not holds(adjacency)


@pytest.mark.proof("auto_pipeline", "Budget and paths")
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("whiten", [True, False, "auto"])
def test_the_worst_neighbours_spend_the_whole_budget(adjacency: str, whiten: bool | str) -> None:
    """Power of the checks above: every part attains its claim, and all together the budget."""
    found = shares(adjacency, whiten)
    assert (found <= 1.0 + 1e-12).all()
    assert (found >= 0.995).all()
    total = float(np.sqrt(spent(adjacency, whiten)[1].sum()))
    assert 0.99 * EPSILON <= epsilon_of_separation(total, DELTA) <= EPSILON * (1.0 + 1e-9)


@pytest.mark.proof("auto_pipeline", "Budget and paths")
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_what_calibrates_is_paid_for(adjacency: str) -> None:
    mechanism = dataclasses.replace(plan(adjacency), calibrated=True)
    for pair in neighbours(adjacency):
        one = coupled(run(mechanism), *pair)
        training = one.outcomes[0].training
        # Two draws for each whitening.
        assert one.sizes.size == 2 * len(training.sums) - 3 + training.rule.n_steps
        total = float(np.sqrt((one.sizes**2).sum()))
        assert epsilon_of_separation(total, DELTA) <= EPSILON * (1.0 + 1e-9)
        here, there = (pickle.dumps(outcome.temperature) for outcome in one.outcomes)
        assert here == there
