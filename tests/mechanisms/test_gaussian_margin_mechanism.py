"""Ellipsoids: the mechanism, its sensitivity, its solver against the twin, and its densities."""

from __future__ import annotations

import itertools
import json
import math
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logit

from dpsvm_fast import _core, verify
from dpsvm_fast.accounting import composed_delta, gaussian_sigma, objective_sigma
from dpsvm_fast.estimators.gaussian_margin import (
    centres_of,
    quadratic_forms,
    released_ellipsoids,
    symmetric_matrices,
)
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.gaussian_margin import (
    CONSTANT,
    STEPS,
    GaussianMargin,
    NoisyAnchors,
    n_coordinates,
    nearest_ellipsoids,
)
from oracles.objective_density import Pair, sampled_deltas
from oracles.plans import plan_of, promised
from twins import gaussian_margin as twin
from twins.gaussian_margin import lifted_rows, margin_gradient, svec

plan = partial(
    plan_of,
    GaussianMargin,
    epsilon=2.0,
    loss="softmax_margin",
    smoothing=0.4,
    margin=0.6,
    n_classes=4,
)


@lru_cache
def mixture(adjacency: str = "add_remove") -> GaussianMargin:
    """Exact composition beside a law of noise in an objective takes seconds: once a relation."""
    found = plan(n_classes=2, n_ellipsoids=2, adjacency=adjacency)
    assert found.events
    return found


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize(("K", "M", "count"), [(2, 1, 2), (4, 1, 4), (2, 2, 3), (3, 4, 9)])
def test_scores_of_a_record_are_its_own_and_those_of_other_classes(
    K: int, M: int, count: int
) -> None:
    found = plan(n_classes=K, n_ellipsoids=M, noise="gamma")
    assert found.score_loss.n_scores == count
    assert found.solver.shape == (K * M, n_coordinates(3))
    assert n_coordinates(3) == 10


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
def test_two_classes_pay_for_two_scores() -> None:
    """One score moves by sqrt(2) when two do: noise as for rows of norm sqrt(2)."""
    two = plan(n_classes=2).solver.inside
    one = objective_sigma(
        two.epsilon, two.delta, loss="softplus", n_classes=2, kappa=2.0 * two.curvature_ratio
    )
    assert two.scale == pytest.approx(np.sqrt(2.0) * one, rel=1e-6)
    loss = Loss(name="softmax_margin", n_classes=2)
    assert (loss.n_scores, loss.lipschitz) == (1, 1.0)


def test_the_automatic_price_of_margins() -> None:
    """lambda = 0.6 times the lambda at which lambda * smoothing = sigma."""
    whole = _core.objective_sigma("softmax", 4, 2.0, 1e-6, None, 1.0, None, False)
    assert plan().regularization == pytest.approx(0.6 * whole / 0.4, rel=1e-9)
    # The law that a ledger is asked for, before the number of features is known.
    assert plan(n_features=1).events[0] == plan(n_features=40).events[0]
    assert plan(C=0.25).regularization == 4.0


def test_traces_are_a_public_part_of_the_linear_term() -> None:
    plain, traced = plan(), plan(trace_weight=2.5)
    assert plain.events == traced.events
    gap = traced.draw_linear(_core.NoiseSource(1), n_threads=1) - plain.draw_linear(
        _core.NoiseSource(1), n_threads=1
    )
    # Upper triangle of a 4 x 4 matrix row by row; the constant's place is last.
    expected = np.zeros(10)
    expected[[0, 4, 7]] = 2.5
    assert np.allclose(gap, expected, atol=1e-9)


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize(
    "adjacency", ["add_remove", pytest.param("replace_one", marks=pytest.mark.nightly)]
)
def test_everything_together_is_within_the_budget(adjacency: str) -> None:
    found = mixture(adjacency)
    assert len(found.events) == STEPS + 2
    spent = composed_delta(found.events, 2.0)
    assert 0.88e-6 < spent <= 1e-6
    # Anchors have 15 % of the squared parameter of Gaussian noise.
    mu = 1.0 / gaussian_sigma(2.0, 1e-6)
    share = sum(event.mu**2 for event in found.events[:STEPS]) / mu**2  # type: ignore[attr-defined]
    assert share == pytest.approx(0.15, rel=1e-9)
    assert verify(promised(found))


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_pure_epsilons_add_up(adjacency: str) -> None:
    found = plan(noise="gamma", n_ellipsoids=3, adjacency=adjacency)
    epsilons = [event.epsilon for event in found.events]  # type: ignore[attr-defined]
    assert 2.0 - 1e-12 < sum(epsilons) <= 2.0
    assert sum(epsilons[:STEPS]) == pytest.approx(0.3)


LIES: dict[str, tuple[str, ...]] = {
    "less noise in the objective": ("objective", "beta"),
    "a shorter row": ("objective", "row_norm"),
    "less noise on anchors": ("parts", "beta"),
    "a smaller contribution": ("parts", "clip_norm"),
}


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize("lie", LIES)
def test_lies_are_found(lie: str) -> None:
    record = json.loads(promised(plan(noise="gamma", n_ellipsoids=2)).to_json())
    assert verify(record)
    place, field = LIES[lie]
    target = record[place][0] if place == "parts" else record[place]
    target[field] *= 2.0 if field == "beta" else 0.9
    assert not verify(record)


# -- Anchors -------------------------------------------------------------------------------------


anchors = partial(NoisyAnchors, n_classes=2, mu=1.0, n_ellipsoids=3, n_features=4)


def unit_rows(rng: np.random.Generator, n: int, dtype: type) -> NDArray[Any]:
    """Rows of norm at most 1 up to the rounding of their type, some of them exactly on axes."""
    rows = rng.normal(size=(n, 4))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[rng.random(n) < 0.2] = np.eye(4)[1]
    rows[rng.random(n) < 0.2] = 0.5
    rows[rng.random(n) < 0.3] *= 0.3
    return rows.astype(dtype)


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("first", [True, False])
def test_one_record_moves_the_sums_by_its_bound_at_most(dtype: type, first: bool) -> None:
    rng = np.random.default_rng(3)
    found, largest = anchors(), 0.0
    for _ in range(40):
        rows, codes = unit_rows(rng, 30, dtype), rng.integers(0, 2, 30)
        points = None if first else rng.normal(size=(6, 4)) * 0.4
        whole = found._total(rows, codes, points)
        kept = rng.permutation(30)[:-1]
        moved = whole - found._total(rows[kept], codes[kept], points)
        # One cell, whatever the others do; sums are exact, in any order.
        assert (np.abs(moved).sum(axis=1) > 0.0).sum() == 1
        largest = max(largest, float(np.linalg.norm(moved)))
    assert 0.999 * found.sum.clip_norm < largest <= found.sum.clip_norm


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
def test_an_exchanged_record_moves_two_cells_at_most() -> None:
    rng = np.random.default_rng(4)
    found, largest = anchors(adjacency="replace_one"), 0.0
    for _ in range(200):
        rows, codes = unit_rows(rng, 2, np.float64), rng.integers(0, 2, 2)
        points = rng.normal(size=(6, 4)) * 0.4
        here, there = (found._total(rows[i : i + 1], codes[i : i + 1], points) for i in (0, 1))
        largest = max(largest, float(np.linalg.norm(here - there)))
    assert 1.5 < largest <= found.sum.sensitivity


def test_rows_go_to_the_nearest_anchor_of_their_class() -> None:
    rng = np.random.default_rng(5)
    rows, codes = unit_rows(rng, 200, np.float64), rng.integers(0, 2, 200)
    points = rng.normal(size=(6, 4))
    gaps = np.linalg.norm(rows[:, None] - points, axis=2)
    gaps[np.arange(6) // 3 != codes[:, None]] = np.inf
    assert (nearest_ellipsoids(rows, codes, points, 3) == gaps.argmin(axis=1)).all()
    # What one record gets depends on no other one.
    alone = [nearest_ellipsoids(rows[i : i + 1], codes[i : i + 1], points, 3) for i in range(200)]
    assert (np.concatenate(alone) == nearest_ellipsoids(rows, codes, points, 3)).all()


def test_anchors_find_separate_groups() -> None:
    rng = np.random.default_rng(6)
    centres = np.array([[0.6, 0.0], [-0.6, 0.0], [0.0, 0.7], [0.0, -0.7]])
    which = rng.integers(0, 4, 4000)
    rows = centres[which] + 0.05 * rng.normal(size=(4000, 2))
    found = anchors(n_features=2, n_ellipsoids=2, mu=1.0)
    points = found.release(rows, which // 2, _core.NoiseSource(2), 1)
    gaps = np.linalg.norm(points[:, None] - centres, axis=2)
    assert (gaps.min(axis=0) < 0.1).all()
    again = found.release(rows[::-1].copy(), (which // 2)[::-1], _core.NoiseSource(2), 2)
    assert (again == points).all()


def test_anchors_of_noise_alone_stay_finite() -> None:
    rows, codes = np.zeros((2, 4)), np.array([0, 1])
    for mu in (1e-6, 1e6):
        points = anchors(mu=mu, n_ellipsoids=7).release(rows, codes, _core.NoiseSource(1), 1)
        assert points.shape == (14, 4)
        assert np.isfinite(points).all()


Array = NDArray[np.float64]
SETTINGS = list(itertools.product(["softmax_margin", "huber_ww"], [2, 4], [1, 3]))
SMOOTHING, MARGIN = 0.4, 0.6


def declared(loss: str, K: int, M: int) -> Loss:
    return Loss(
        name=loss, n_classes=(K - 1) * M + 1, smoothing=SMOOTHING, margin=MARGIN, per_class=True
    )


def records(rng: np.random.Generator, n: int, d: int) -> Array:
    """Rows as the solver gets them: divided by the constant, some at the bound and some beyond."""
    rows = rng.normal(size=(n, d))
    rows *= (
        rng.choice([0.0, 0.5, 1.0, 3.0], size=(n, 1))
        / CONSTANT
        / np.linalg.norm(rows, axis=1)[:, None]
    )
    return rows


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize(("loss", "K", "M"), SETTINGS)
def test_no_gradient_is_longer_than_declared(loss: str, K: int, M: int) -> None:
    rng = np.random.default_rng(K * 10 + M)
    bound, largest = declared(loss, K, M).lipschitz, 0.0
    for d in (1, 2, 5):
        rows = records(rng, 200, d)
        u = lifted_rows(rows, 1.0 / CONSTANT)
        assert np.linalg.norm(u, axis=1).max() <= 1.0 + 1e-12
        target = rng.integers(0, K * M, 200)
        for size in (0.0, 1.0, 30.0, 1e3):
            Phi = size * rng.normal(size=(K * M, u.shape[1]))
            a = margin_gradient(-(u @ Phi.T), target, M, (loss, SMOOTHING, MARGIN))
            lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(u, axis=1)
            largest = max(largest, float(lengths.max()))
            # Of a record's matrices, those of its own class but its own are left alone.
            others = (np.arange(K * M) // M == (target // M)[:, None]) & (
                np.arange(K * M) != target[:, None]
            )
            assert (a[others] == 0.0).all()
    assert 0.9 * bound < largest <= bound * (1.0 + 1e-12)


@pytest.mark.sampled
@pytest.mark.proof("losses", "Log-determinant")
@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize(("loss", "K", "M"), SETTINGS)
def test_no_curvature_is_larger_than_declared(loss: str, K: int, M: int) -> None:
    """log det(1 + H/lambda) of one record by differences of its gradient in the scores."""
    rng = np.random.default_rng(K * 10 + M + 5)
    table, largest = declared(loss, K, M), 0.0
    kappa = table.curvature_ratio(1.0, 0.9)
    J, step = K * M, 1e-5
    for trial in range(300):
        target = np.array([rng.integers(0, J)])
        rivals = np.arange(J) // M != target[0] // M
        scores = rng.normal(size=(1, J)) * rng.choice([0.1, 1.0])
        if trial < 5:
            # Where all that meet have the same probability, and hinges are in their parabolas.
            scores[0, rivals] = scores[0, target] - MARGIN + 1e-3 * logit(0.3) * (trial > 2)
        H = np.empty((J, J))
        for k in range(J):
            moved = step * np.eye(J)[k]
            above, below = (
                margin_gradient(scores + sign * moved, target, M, (loss, SMOOTHING, MARGIN))[0]
                for sign in (1.0, -1.0)
            )
            H[k] = (above - below) / (2.0 * step)
        price = np.linalg.slogdet(np.eye(J) + H / 0.9)[1]
        largest = max(largest, float(price))
    bound = table.jacobian(kappa)
    assert 0.99 * bound < largest <= bound * (1.0 + 1e-6)


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize("psd", ["constraint", "project"])
@pytest.mark.parametrize("data_norm", [0.3, 1.0, 40.0])
def test_released_forms_are_those_of_the_lifted_rows(psd: str, data_norm: float) -> None:
    """Up to what makes them semidefinite, which is common to all or hardly anything."""
    rng = np.random.default_rng(7)
    d, J = 3, 4
    noisy = rng.normal(size=(J, (d + 1) * (d + 2) // 2))
    if psd == "constraint":
        noisy = svec(np.einsum("jab,jcb->jac", *2 * (rng.normal(size=(J, d + 1, d + 1)),)))
    ellipsoids = released_ellipsoids(noisy, data_norm, psd=psd)
    assert np.linalg.eigvalsh(ellipsoids).min() >= -1e-12 * np.abs(ellipsoids).max()
    x = rng.normal(size=(50, d))
    x *= data_norm * rng.uniform(0.0, 1.0, (50, 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    forms = quadratic_forms(x, ellipsoids)
    u = lifted_rows(x / (CONSTANT * data_norm), 1.0 / CONSTANT)
    gaps = forms - u @ noisy.T
    common = gaps[:, :1] if psd == "project" else 0.0
    assert np.allclose(gaps, common, atol=1e-9)


def test_centres_are_where_the_forms_are_least() -> None:
    rng = np.random.default_rng(8)
    factors = rng.normal(size=(2, 3, 4, 4))
    ellipsoids = factors @ np.swapaxes(factors, -1, -2)
    # A slab: no curvature along two of three axes.
    ellipsoids[1, 2] = np.diag([4.0, 0.0, 0.0, 5.0])
    ellipsoids[1, 2, 0, 3] = ellipsoids[1, 2, 3, 0] = -2.0
    centres, least = centres_of(ellipsoids)
    for c, m in itertools.product(range(2), range(3)):
        lifted = np.append(centres[c, m], 1.0)
        gradient = (ellipsoids[c, m] @ lifted)[:-1]
        assert np.linalg.norm(gradient) <= 1e-8 * np.abs(ellipsoids[c, m]).max()
        assert lifted @ ellipsoids[c, m] @ lifted == pytest.approx(least[c, m], abs=1e-9)
    assert np.allclose(centres[1, 2], [0.5, 0.0, 0.0])
    assert least[1, 2] == pytest.approx(4.0)


def test_matrices_of_coordinates_are_symmetric_and_isometric() -> None:
    rng = np.random.default_rng(9)
    for side in (1, 2, 6):
        flat = rng.normal(size=(5, side * (side + 1) // 2))
        matrices = symmetric_matrices(flat)
        assert (matrices == np.swapaxes(matrices, -1, -2)).all()
        assert np.allclose(svec(matrices), flat)
        norms = np.sqrt((matrices**2).sum(axis=(1, 2)))
        assert np.allclose(norms, np.linalg.norm(flat, axis=1))
        assert math.isclose(float(np.trace(matrices[0] @ matrices[1])), float(flat[0] @ flat[1]))


LOSSES = ["softmax_margin", "huber_ww"]


def problem(seed: int, **changes: Any) -> dict[str, Any]:
    """Few rows, some longer than the bound; K classes of M ellipsoids; a random linear term."""
    rng = np.random.default_rng(seed)
    settings: dict[str, Any] = {"n": 60, "d": 3, "n_classes": 3, "n_ellipsoids": 1}
    own = {name: changes.pop(name, value) for name, value in settings.items()}
    J, d = own["n_classes"] * own["n_ellipsoids"], own["d"]
    p = (d + 1) * (d + 2) // 2
    case: dict[str, Any] = {
        "X": rng.normal(size=(own["n"], d)),
        "target": rng.integers(0, J, own["n"]),
        "loss": "softmax_margin",
        "n_classes": own["n_classes"],
        "n_ellipsoids": own["n_ellipsoids"],
        "smoothing": 0.4,
        "margin": 0.6,
        "regularization": 0.7,
        "linear": rng.normal(size=(J, p)),
        "data_norm": 2.0,
        "psd": False,
        "gradient_tol": 1e-6,
        "max_iter": None,
        "n_threads": 1,
    }
    return case | changes


CASES = [
    problem(0),
    problem(1, psd=True),
    problem(2, n_classes=2, d=1, psd=True, regularization=0.1),
    problem(3, n_ellipsoids=2, psd=True),
    problem(4, n_ellipsoids=3, n_classes=2, regularization=5.0),
    problem(5, data_norm=0.3, margin=0.0, psd=True),
    problem(6, n=1, psd=True),
]


def split(case: dict[str, Any]) -> tuple[Array, NDArray[np.int64], dict[str, Any]]:
    options = {name: value for name, value in case.items() if name not in ("X", "target")}
    return case["X"], case["target"], options


@pytest.mark.sampled
@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_compiled_minimisers_are_the_twin_s(case: dict[str, Any], loss: str) -> None:
    X, target, options = split(case | {"loss": loss})
    found, radius = _core.solve_gaussian_margin(X, target, **options)
    slow, distance = twin.solve_gaussian_margin(X, target, **options)
    assert found is not None
    assert slow is not None
    assert radius <= options["gradient_tol"] / options["regularization"]
    # The compiled solver rounds rows to single precision, which moves the objective.
    lipschitz = np.sqrt(2.0) if loss == "softmax_margin" else len(options["linear"])
    rows = 2.0**-21 * lipschitz * len(X) / options["regularization"]
    assert np.linalg.norm(found - slow) <= radius + distance + rows
    again, _ = _core.solve_gaussian_margin(X, target, **(options | {"n_threads": 3}))
    assert np.array_equal(found, again)


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_in_single_precision_give_the_same(loss: str) -> None:
    X, target, options = split(problem(7, loss=loss, psd=True))
    X = X.astype(np.float32)
    narrow, _ = _core.solve_gaussian_margin(X, target, **options)
    wide, _ = _core.solve_gaussian_margin(X.astype(np.float64), target, **options)
    assert np.allclose(narrow, wide, atol=1e-5)


def test_too_few_steps_are_no_minimiser() -> None:
    X, target, options = split(problem(8, max_iter=1, gradient_tol=1e-10))
    found, radius = _core.solve_gaussian_margin(X, target, **options)
    assert found is None
    assert radius == np.inf


def value(case: dict[str, Any], Phi: Array) -> float:
    """J from its formula."""
    X, target, options = split(case)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    rows = X * np.minimum(1.0, options["data_norm"] / norms)
    lifted = np.column_stack([rows, np.ones(len(rows))]) / np.hypot(options["data_norm"], 1.0)
    scores = -np.einsum("na,jab,nb->nj", lifted, twin.unsvec(Phi), lifted)
    total = 0.0
    for own, s in zip(target, scores, strict=True):
        g = [
            options["margin"] - s[own] + s[k]
            for k in range(len(s))
            if k // options["n_ellipsoids"] != own // options["n_ellipsoids"]
        ]
        h = options["smoothing"]
        if options["loss"] == "softmax_margin":
            total += h * np.log1p(np.exp(np.array(g) / h).sum())
        else:
            total += sum(x if x > h else max(0.0, x + h) ** 2 / (4.0 * h) for x in g)
    squares = 0.5 * options["regularization"] * (Phi**2).sum()
    return float(total + squares + (options["linear"] * Phi).sum())


# Student's t with 7 degrees of freedom at 1e-6, one-sided: 8 repetitions of each integral.
LOWER = 14.25
EPSILON, DELTA = 1.0, 1e-2


def line_plan(loss: str, adjacency: str) -> GaussianMargin:
    sizes = {"n_features": 1, "smoothing": 0.4, "margin": 0.6}
    return plan_of(
        GaussianMargin, loss=loss, adjacency=adjacency, epsilon=EPSILON, delta=DELTA, **sizes
    )


def neighbours(found: GaussianMargin) -> list[Pair]:
    """A record at the bound or at the origin is added, or takes another's place."""
    x = np.array([[1.0], [0.0], [-1.0], [0.4], [-0.6]]) / CONSTANT
    rows = -lifted_rows(x, 1.0 / CONSTANT)
    others = np.array([0.0, 0.0, 0.0, 3.0, 20.0])
    exchanged = found.adjacency == "replace_one"
    pairs = []
    for added, gone in ((0, 2), (0, 1), (1, 0)):
        first, second = others + np.eye(5)[added], others.copy()
        if exchanged:
            second = others + np.eye(5)[gone]
        pairs.append(
            Pair(
                rows,
                np.array([1, 0, 0, 0, 1]),
                first,
                second,
                (found.loss, found.smoothing, found.margin),
                2,
                found.regularization,
            )
        )
    return pairs


def lower_ends(found: GaussianMargin, factor: float) -> list[float]:
    """Surely no more than the delta of each pair, at the share of epsilon, with scaled noise."""
    inside, ends = found.solver.inside, []
    for seed, pair in enumerate(neighbours(found)):
        for way in (pair, pair.swapped()):
            mean, error = sampled_deltas(
                way, factor * inside.scale, np.array([inside.epsilon]), seed=seed, n=512
            )
            ends += [float(end) for end in (mean - LOWER * error).ravel()]
    return ends


@pytest.mark.sampled
@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.statistical
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("loss", ["softmax_margin", "huber_ww"])
def test_the_noise_in_the_objective_keeps_its_share(loss: str, adjacency: str) -> None:
    found = line_plan(loss, adjacency)
    delta = found.solver.inside.delta
    assert delta == pytest.approx(0.99 * DELTA)
    assert max(lower_ends(found, 1.0)) <= delta
    # Negative control: with noise for one score where two differ, or for one record where two do.
    # For pairwise Huber losses noise and curvature are added up, which leaves room.
    factor = math.sqrt(0.5) if adjacency == "add_remove" else 0.5
    least = factor if loss == "softmax_margin" else 0.35
    assert max(lower_ends(found, least)) > delta
