"""The private pipeline's budget: sensitivities, noise as it is drawn, composition on every path."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast import (
    GradientPerturbationSVC,
    OutputPerturbationSVC,
    PrivateLinearSVC,
    _core,
    noise,
)
from dpsvm_fast.accounting import composed_delta, composed_epsilon
from dpsvm_fast.certificates import GaussianEvent
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms import noise as budget
from dpsvm_fast.mechanisms.moments import NoisyMean, NoisyMoments
from dpsvm_fast.mechanisms.noise import (
    NoisySum,
    gaussian_parameter,
    joined_parameter,
    scale_for,
    share_of,
)
from dpsvm_fast.mechanisms.pipeline import WEIGHT_RELEASES, DescentRule, PrivateLinear
from dpsvm_fast.mechanisms.plan import Facts
from dpsvm_fast.model_selection.plan import covers
from dpsvm_fast.pipelines import planned_events
from oracles import noisy_descent
from oracles.plans import plan_of
from twins import noisy_descent as twin

ALPHA = 1e-6
RELATIONS = ("add_remove", "replace_one")
SOFTMAX = Loss(name="softmax_margin", n_classes=3, margin=0.0)
either = pytest.mark.parametrize("adjacency", RELATIONS)
Array = NDArray[np.float64]


mean_release = partial(NoisyMean, n_features=6, mu=0.3)
moments_release = partial(NoisyMoments, n_features=6, mu=0.3)
rule = partial(plan_of, DescentRule, loss=SOFTMAX, n_features=20, mu=0.25, count=1000.0)
pipeline = partial(plan_of, PrivateLinear, loss=SOFTMAX, delta=1e-5, n_features=12)


def unit_rows(n_rows: int, n_features: int, seed: int = 0) -> Array:
    rows = np.random.default_rng(seed).normal(size=(n_rows, n_features))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.proof("auto_pipeline", "Budget and paths")
@either
def test_neighbours_move_the_sums_by_at_most_the_sensitivity(adjacency: str) -> None:
    mean, moments = mean_release(adjacency=adjacency), moments_release(adjacency=adjacency)
    rows = unit_rows(400, 6)
    if adjacency == "add_remove":
        sums = np.column_stack([rows, np.full(400, 0.5)])
        outer = [np.outer(u, u) for u in rows]
    else:
        # The worst pair of each is among these: opposite rows, and orthogonal ones.
        pairs = [*zip(rows[:200], rows[200:], strict=True), (rows[0], -rows[0])]
        pairs.append((np.eye(6)[0], np.eye(6)[1]))
        sums = np.array([u - v for u, v in pairs])
        outer = [np.outer(u, u) - np.outer(v, v) for u, v in pairs]
    moved = np.linalg.norm(sums, axis=1).max()
    assert moved * (1.0 - 1e-12) <= mean.sum.sensitivity <= moved * 1.0001
    assert sums.shape[1] == mean.sum.size
    moved = max(float(np.linalg.norm(matrix)) for matrix in outer)
    assert moved * (1.0 - 1e-12) <= moments.sum.sensitivity <= moved * 1.0001


@pytest.mark.proof("auto_pipeline", "Budget and paths")
@either
def test_what_is_rounded_stays_within_the_sensitivity(adjacency: str) -> None:
    """Moments of many rows are floats that are not exact; the grid is coarse for huge noise."""
    rng = np.random.default_rng(2)
    for mu in (10.0, 1e-3, 1e-9):
        moments = moments_release(adjacency=adjacency, mu=mu).sum
        assert moments.grid is not None
        total = rng.normal(size=(6, 6)) * 2.0**30
        total = total + total.T
        for u, v in zip(unit_rows(20, 6, 3), unit_rows(20, 6, 4), strict=True):
            change = np.outer(u, u) - (np.outer(v, v) if adjacency == "replace_one" else 0.0)
            steps = [np.rint(matrix / moments.grid) for matrix in (total, total + change)]
            moved = np.linalg.norm(steps[1] - steps[0]) * moments.grid
            assert moved <= moments.sensitivity
        mean = mean_release(adjacency=adjacency, mu=mu).sum
        assert mean.grid is not None
        # Sums are multiples of 2**-20: only a coarser grid rounds them.
        assert (mean.rounding > 0.0) == (mean.grid > 2.0**-20)


class Recorded:
    """A source of noise that notes what it is asked for."""

    def __init__(self) -> None:
        self.source = _core.NoiseSource(1)
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def draw(*arguments: Any) -> Any:
            self.asked.append((name, *arguments[:-1]))
            return getattr(self.source, name)(*arguments)

        return draw


@pytest.mark.proof("auto_pipeline", "Budget and paths")
@either
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
def test_noise_is_drawn_as_the_events_say(adjacency: str, noise_grid: str) -> None:
    source: Any = Recorded()
    mean = mean_release(adjacency=adjacency, noise_grid=noise_grid)
    moments = moments_release(adjacency=adjacency, noise_grid=noise_grid)
    mean.release(np.zeros(6), 10, source, 1)
    moments.release(np.zeros((6, 6)), source, 1)
    name = "gaussian_on_grid" if noise_grid == "exact" else "gaussian"
    sums = [mean.sum, moments.sum, moments.sum]
    for (asked, size, sigma, *grid), expected, n in zip(
        source.asked, sums, (mean.sum.size, 15, 6), strict=True
    ):
        assert (asked, size) == (name, n)
        assert grid == ([] if noise_grid == "float" else [expected.grid])
        off = n == 15
        assert sigma >= expected.scale / (math.sqrt(2.0) if off else 1.0)
        assert sigma == pytest.approx(expected.scale / (math.sqrt(2.0) if off else 1.0))
    for event in (mean.sum.event, moments.sum.event):
        assert isinstance(event, GaussianEvent)
        assert 0.3 * (1.0 - 1e-12) <= event.mu <= 0.3
    source.asked.clear()
    mean_release(adjacency=adjacency, mu=None, epsilon=0.4).release(np.zeros(6), 10, source, 1)
    factor = math.sqrt(1.25) if adjacency == "add_remove" else 2.0
    (asked, _, beta) = source.asked[0]
    assert (asked, beta) == ("gamma_ball", pytest.approx(0.4 / factor))


def in_bounds(squares: float, degrees: int) -> bool:
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], df=degrees)
    return bool(low <= squares <= high)


@pytest.mark.proof("auto_pipeline", "Budget and paths")
@pytest.mark.statistical
def test_released_sums_have_the_law_of_the_noise() -> None:
    """Sums of squares over sigma^2 are chi-square: bounds at ALPHA, and sqrt 1.25 is outside."""
    source = _core.NoiseSource(7)
    released = mean_release(n_features=4000)
    noisy = released.sum.release(np.zeros(4001), source, 1)
    sigma = math.sqrt(1.25) / 0.3
    assert in_bounds(float(((noisy / sigma) ** 2).sum()), 4001)
    assert not in_bounds(float(((noisy * 0.3) ** 2).sum()), 4001)
    moments = moments_release(n_features=90).noisy(np.zeros((90, 90)), source, 1)
    assert np.array_equal(moments, moments.T)
    # Isotropic: the Frobenius norm has as many degrees as the space of symmetric matrices.
    assert in_bounds(float(((moments * 0.3) ** 2).sum()), 90 * 91 // 2)
    off = moments[np.triu_indices(90, 1)]
    assert in_bounds(float((2.0 * (off * 0.3) ** 2).sum()), off.size)
    assert not in_bounds(float(((off * 0.3) ** 2).sum()), off.size)


def test_the_mean_shrinks_by_its_noise_and_counts_rows() -> None:
    released = mean_release(n_features=400, mu=100.0)
    total = 1000.0 * np.full(400, 0.04)
    source = _core.NoiseSource(3)
    mean = released.release(total, 1000, source, 1)
    assert mean.count == pytest.approx(1000.0, abs=0.2)
    assert np.allclose(mean.mean, 0.04, atol=2e-4)
    assert np.array_equal(mean.mean * 2.0**20, np.rint(mean.mean * 2.0**20))
    # Whatever the noise does, the centre is no longer than the rows.
    lost = mean_release(n_features=400, mu=1e-5).release(total, 1000, source, 1)
    assert np.linalg.norm(lost.mean) <= 1.0
    assert lost.count >= 1.0
    known = mean_release(adjacency="replace_one", mu=1e-5).release(np.zeros(6), 123, source, 1)
    assert known.count == 123.0


def test_whitening_equalises_what_is_above_the_noise() -> None:
    rows = unit_rows(3000, 6) * np.geomspace(0.05, 1.0, 6)
    moments = rows.T @ rows
    released = moments_release(mu=50.0)
    matrix = released.release(moments, _core.NoiseSource(4), 1)
    assert np.array_equal(matrix, matrix.T)
    assert np.linalg.norm(matrix, 2) == pytest.approx(1.0)
    values = np.linalg.eigvalsh(matrix @ moments @ matrix)
    assert values[-1] / values[0] < 1.05
    assert np.linalg.cond(moments) > 100.0


@pytest.mark.parametrize(("d", "mu", "share"), [(20, 1e4, 0.0), (21, 1e4, 0.3), (21, 0.02, 0.0)])
def test_small_directions_of_many_columns_stay_small(d: int, mu: float, share: float) -> None:
    released = moments_release(n_features=d, mu=mu, scaled=True)
    moments = np.diag(np.geomspace(1.0, 1e4, d))
    matrix = released.release(moments, _core.NoiseSource(4), 1)
    values, vectors = np.linalg.eigh(released.noisy(moments, _core.NoiseSource(4), 1))
    values = np.maximum(values, 0.0)
    # With much noise, or few columns, the ridge is that of the noise alone.
    roots = np.sqrt(values + 0.35 * released.spectral_noise + share * values.mean())
    expected = vectors * (roots.min() / roots) @ vectors.T
    assert np.allclose(matrix, expected, atol=2e-3)
    as_long_as_they_are = moments_release(n_features=d, mu=mu)
    same = as_long_as_they_are.release(moments, _core.NoiseSource(4), 1)
    assert np.array_equal(same, matrix) == (share == 0.0)
    assert pipeline(n_features=30).whitenings[-1].scaled


def test_whitening_needs_rows_and_budget() -> None:
    assert moments_release(n_features=20, mu=0.3).precise(1000.0)
    assert not moments_release(n_features=50, mu=0.3).precise(1000.0)
    assert not moments_release(n_features=20, mu=0.03).precise(1000.0)


@either
def test_whitening_needs_a_signal_of_every_class_in_every_direction(adjacency: str) -> None:
    for n_classes, n_features in ((10, 20), (10, 40), (30, 20)):
        loss = Loss(name="softmax_margin", n_classes=n_classes, margin=0.0)
        mechanism = pipeline(adjacency=adjacency, n_features=n_features, loss=loss)
        relation = 1.0 if adjacency == "add_remove" else 2.0
        needed = relation * 2.0 * n_classes * n_features / mechanism.mu
        assert mechanism.training(1.001 * needed).whitened
        assert not mechanism.training(0.999 * needed).whitened


@pytest.mark.proof("auto_pipeline", "Budget and paths")
@either
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.01, 1e-9), (1.0, 1e-5), (8.0, 1e-5), (50.0, 0.1)]
)
@pytest.mark.parametrize("trainer", ["gradient", "output"])
def test_every_path_stays_within_the_budget_and_uses_it(
    adjacency: str, epsilon: float, delta: float, trainer: str
) -> None:
    loss = SOFTMAX if trainer == "gradient" else Loss(name="crammer_singer", n_classes=3)
    settings = {"adjacency": adjacency, "trainer": trainer, "loss": loss}
    mechanism = pipeline(epsilon=epsilon, delta=delta, **settings)
    mu = gaussian_parameter(epsilon, delta)
    paths = [
        pipeline(epsilon=epsilon, delta=delta, whiten=whiten, **settings).training(5000.0).events
        for whiten in (False, True)
    ]
    paths += [mechanism.training(count).events for count in (1.0, 1e6, 1e9)]
    # Twelve features and three classes: rows are whitened twice.
    releases = 1 if trainer == "gradient" else WEIGHT_RELEASES
    assert {len(path) for path in paths} == {1 + releases, 3 + releases}
    for events in (mechanism.events, *paths):
        squares = sum(event.mu**2 for event in events if isinstance(event, GaussianEvent))
        assert mu**2 * (1.0 - 1e-9) <= squares <= mu**2 * (1.0 + 1e-12)
        assert composed_delta(events, epsilon) <= delta * (1.0 + 1e-9)


@pytest.mark.proof("auto_pipeline", "Budget and paths")
def test_shares_are_those_of_the_recipe() -> None:
    twice = ([0.07, 0.05, 0.10, 0.78], 2)
    once = ([0.07, 0.10, 0.83], 1)
    for n_features, (shares, times) in {7: twice, 20: twice, 6: once, 21: once}.items():
        whitened = pipeline(whiten=True, n_features=n_features).training(1000.0)
        squares = [event.mu**2 for event in whitened.events if isinstance(event, GaussianEvent)]
        assert np.array(squares) / sum(squares) == pytest.approx(shares, rel=1e-6)
        names = [part.name for part in whitened.sums]
        assert names == ["centre", *times * ["whitening"], "training"]


@either
@pytest.mark.parametrize("trainer", ["gradient", "output"])
def test_a_ledger_records_the_same_for_any_number_of_features(adjacency: str, trainer: str) -> None:
    """A plan of several steps does not know it."""
    loss = SOFTMAX if trainer == "gradient" else Loss(name="crammer_singer", n_classes=3)
    settings = {"adjacency": adjacency, "trainer": trainer, "loss": loss}
    one, few, many = (pipeline(n_features=d, **settings).events for d in (1, 12, 40))
    for events in (few, many):
        mus = [[event.mu for event in found] for found in (one, events)]  # type: ignore[union-attr]
        assert mus[0] == pytest.approx(mus[1], rel=1e-6)


@pytest.mark.sampled(times=2)
@pytest.mark.proof("auto_pipeline", "Budget and paths")
@pytest.mark.parametrize("delta", [1e-5, 1e-6, 3e-7])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (OutputPerturbationSVC, {"class_weight": "balanced"}),
        (GradientPerturbationSVC, {"class_weight": "balanced"}),
        (PrivateLinearSVC, {"mechanism": "objective"}),
    ],
)
def test_what_is_paid_for_beforehand_covers_any_number_of_features(
    model: Any, parameters: dict[str, Any], adjacency: str, delta: float
) -> None:
    """A search pays before it knows the features, and what is not covered is not fitted."""
    facts = Facts(n_classes=3, n_samples=300 if adjacency == "replace_one" else None)
    for epsilon in (0.5, 1.0, 2.0, 5.0):
        own = parameters | {"epsilon": epsilon, "delta": delta, "adjacency": adjacency}
        estimator = model(classes=range(3), **own)
        planned = planned_events(estimator, facts)
        for n_features in (4, 57):
            known = dataclasses.replace(facts, n_features=n_features)
            spent = estimator.checked().plan(known).events
            assert len(planned) == len(spent)
            assert all(map(covers, planned, spent)), (epsilon, n_features)


def test_noise_in_the_objective_reserves_one_whitening() -> None:
    loss = Loss(name="softmax_margin", n_classes=2, smoothing=0.4, margin=1.0)
    mechanism = pipeline(trainer="objective", loss=loss, n_features=8)
    assert len(mechanism.whitenings) == 1
    assert len(pipeline(trainer="output", loss=loss, n_features=8).whitenings) == 2


@pytest.mark.proof("auto_pipeline", "Budget and paths")
def test_the_objective_gets_what_exact_composition_leaves() -> None:
    # One score: its law is a closed form, so that this is quick.
    loss = Loss(name="softmax_margin", n_classes=2, smoothing=0.4, margin=1.0)
    mechanism = pipeline(epsilon=2.0, trainer="objective", loss=loss, n_features=5)
    assert 0.98e-5 <= composed_delta(mechanism.events, 2.0) <= 1e-5 * (1.0 + 1e-9)
    for count in (1.0, 1e6):
        training = mechanism.training(count)
        assert composed_delta(training.events, 2.0) <= 1e-5
        assert training.solver is not None
        # What whitening does not spend is lost: its law may not depend on the branch.
        assert training.solver.events == mechanism.events[2:]
    # Negative control: one percent more for the model is too much.
    own = mechanism.training(1.0).solver
    assert own is not None
    more = mechanism.with_budget(1.01 * own.epsilon, 1e-5).events
    assert composed_delta([*mechanism.events[:2], *more], 2.0) > 1e-5


@pytest.mark.proof("auto_pipeline", "Budget and paths")
def test_pure_epsilons_add_up() -> None:
    mechanism = pipeline(
        delta=0.0, trainer="objective", loss=Loss(name="huber", n_classes=2, smoothing=0.5)
    )
    events = mechanism.training(1000.0).events
    assert events == mechanism.events
    assert 1.0 - 1e-9 <= composed_epsilon(events, 0.0) <= 1.0
    assert mechanism.whitening is None


@pytest.mark.parametrize(("at", "slope"), [(0.2, 1.0), (0.7, 30.0), (0.99, 1e3), (0.5, 1e-3)])
def test_search_ends_on_the_safe_side(at: float, slope: float) -> None:
    def search(excess: Callable[[float], float]) -> float | None:
        return budget.largest_within(excess, at, slope, (0.1, 1.0), 0.01)

    found = search(lambda x: 3.0 * math.log(x / 0.7))
    assert found is not None
    assert 0.69 < found <= 0.7
    found = search(lambda x: 1e3 * (x - 0.3) if x > 0.3 else -1e-9)
    assert found is not None
    assert 0.1 <= found <= 0.3
    assert search(lambda x: x - 2.0) == 1.0
    assert search(lambda x: x) is None


def test_search_ends_soon_where_values_jump_up_and_down() -> None:
    asked = []

    def excess(x: float) -> float:
        asked.append(x)
        return 2.4 * math.log(x / 0.65) + (0.012 if len(asked) % 2 else -0.012)

    found = budget.largest_within(excess, 0.85, 1.4, (0.1, 1.0), 0.01)
    assert found is not None
    assert 0.63 < found <= 0.654
    # Twice as many at one tolerance all the way.
    assert len(asked) <= 8


@pytest.mark.proof("auto_pipeline", "Budget and paths")
def test_parameters_are_rounded_towards_more_noise() -> None:
    rng = np.random.default_rng(5)
    for mu, part in rng.uniform(1e-3, 10.0, size=(50, 2)):
        sigma = scale_for(part, mu)
        assert GaussianEvent(sigma=sigma, sensitivity=part, adjacency="add_remove").mu <= mu
        assert sigma <= part / mu * (1.0 + 1e-15)
        shared = [share_of(mu, 0.3), share_of(mu, 0.7)]
        assert mu * (1.0 - 1e-15) <= joined_parameter(*shared) <= mu


def test_the_training_run_follows_its_rule() -> None:
    run = rule()
    assert (run.n_steps, run.clip, run.average_from) == (100, 0.25, 75)
    assert run.c == 0.35
    assert run.regularization == pytest.approx(0.35 * 0.25 / 0.25)
    assert run.learning_rate == pytest.approx(1.0 / (run.regularization * 100))
    assert run.sum.scale == pytest.approx(10.0 * 0.25 / 0.25, rel=1e-3)
    assert rule(count=150.0 * 321.0, mu=2.0).n_steps == 321
    assert (rule(count=1e5, mu=2.0).n_steps, rule(count=1e5, mu=2.0).pace) == (200, 2.5)
    assert rule(count=100.0).c == 0.7
    assert rule(count=100.0).average_from == 87
    assert rule(count=240.0 / 0.5).c == 0.5
    whitened = rule(whitened=True, count=1e5)
    assert (whitened.c, whitened.average_from) == (0.25, 40)
    assert rule(whitened=True, count=240.0 / 0.5).average_from == 70
    swapped = rule(adjacency="replace_one")
    assert swapped.regularization == 2.0 * run.regularization
    assert swapped.sum.scale == pytest.approx(2.0 * run.sum.scale)


def test_fewer_steps_with_momentum_go_as_far_under_as_much_noise() -> None:
    """The end of a path along one gradient, and the noise in it, are those of T steps."""
    many = rule(count=1e6, mu=0.5)
    assert (many.n_steps, many.pace) == (100, 5.0)
    options = many.descent_options()
    assert options["momentum"] == pytest.approx(0.8)

    def path(run: DescentRule, noise: Array) -> float:
        options = run.descent_options()
        w = velocity = total = 0.0
        for t in range(run.n_moves):
            velocity = options["momentum"] * velocity + 1.0 + noise[t]
            w -= options["learning_rate"] * velocity
            total += w * (t >= run.average_from)
        return total / (run.n_moves - run.average_from)

    def deviation(run: DescentRule) -> float:
        still = path(run, np.zeros(run.n_moves))
        moved = [path(run, one) - still for one in np.eye(run.n_moves)]
        return run.sum.scale * float(np.linalg.norm(moved))

    plain = rule(count=4e4, mu=5.0)
    assert (plain.n_steps, plain.pace) == (500, 1.0)
    for run in (many, plain, rule(count=3e5, mu=0.5), rule()):
        assert run.deviation == pytest.approx(deviation(run))
    # The same path in more steps: 500 of the same length.
    still = {"n_steps": 500, "n_moves": 500, "pace": 1.0, "average_from": 5 * many.average_from}
    slow = dataclasses.replace(many)
    vars(slow).update(still)
    vars(slow).pop("sum", None)
    assert path(many, np.zeros(100)) == pytest.approx(path(slow, np.zeros(500)), rel=0.06)
    assert many.deviation == pytest.approx(slow.deviation, rel=0.06)


def test_many_short_rows_are_summed_exactly() -> None:
    """Decided by the released count alone, and covered by the same bound."""

    def exact(**facts: Any) -> bool:
        return bool(rule(**facts).descent_options()["exact_sums"])

    assert exact(count=1.1e5)
    assert exact(count=1.1e5, n_features=100)
    assert not exact(count=9e4)
    assert not exact(count=1.1e5, n_features=784 * 3)


@either
def test_one_score_is_trained_as_two_would_be(adjacency: str) -> None:
    """Without noise: the run of one score has the difference of the two scores' weights."""
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 2, 60).astype(np.int64)
    records = twin.Records(
        unit_rows(60, 3) * 0.9, labels, n_classes=2, offset=None, scale=None, low=-math.inf,
        floor=None, high=math.inf, constant=0.0, data_norm=1.0, unit=False, n_threads=1,
    )  # fmt: skip
    loss = Loss(name="softmax_margin", n_classes=2, margin=0.5)
    one = rule(loss=loss, n_features=3, adjacency=adjacency, count=60.0, mu=3.0)
    two = rule(n_features=3, adjacency=adjacency, count=60.0, mu=3.0)

    def trained(run: DescentRule, kernel: str, n_scores: int) -> Array:
        descent = twin.Descent(
            **noisy_descent.settings(
                loss=kernel,
                n_scores=n_scores,
                smoothing=1.0,
                margin=0.5,
                n_features=3,
                intercept=run.intercept,
                row_scale=run.row_scale,
                clip=run.clip,
                learning_rate=run.learning_rate,
                average_from=run.average_from,
                precision="f64",
            )
        )
        descent.run(records, noise, run.n_steps, 1)
        return descent.weights()

    pair = trained(two, "softmax_margin", 2)
    assert np.allclose(trained(one, "softplus", 1)[0], pair[1] - pair[0])
    assert one.sum.scale * one.learning_rate == pytest.approx(
        math.sqrt(2.0) * two.sum.scale * two.learning_rate, rel=1e-3
    )


def test_a_sum_of_several_steps_is_charged_for_all_of_them() -> None:
    steps = NoisySum(
        name="training",
        what="sums",
        adjacency="replace_one",
        clip_norm=0.25,
        relation_factor=2.0,
        shape=(3, 4),
        mu=0.5,
        rounding=0.01,
        n_steps=49,
    )
    assert steps.sensitivity == pytest.approx(7.0 * 2.0 * 0.26)
    assert steps.scale == pytest.approx(7.0 * 2.0 * 0.26 / 0.5)
    assert steps.part.n_steps == 49
    event = steps.event
    assert isinstance(event, GaussianEvent)
    assert (event.sigma, event.mu) == (steps.scale, pytest.approx(0.5))
