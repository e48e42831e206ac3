"""Pure objective perturbation: its price by brute force, and the choice of the regularisation."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import SMOOTH_LOSSES, Loss
from dpsvm_fast.mechanisms.objective import (
    ObjectivePerturbation,
    largest_rate,
    pure_epsilon,
    smallest_regularization,
)
from oracles.plans import plan_of

Array = NDArray[np.float64]


def loss(name: str, n_classes: int) -> Loss:
    logistic = name == "logistic"
    return Loss(
        name=name,
        n_classes=n_classes,
        smoothing=1.0 if logistic else 0.5,
        margin=0.0 if logistic else 1.0,
    )


def one_record(name: str, n_classes: int, kappa: float, points: int) -> tuple[Array, Array]:
    """Norm of the gradient and log-determinant of the Hessian, over many scores of a record.

    Straight from the losses' derivatives; kappa is in units of 1 / temperature.
    """
    rng = np.random.default_rng(0)
    if name in ("logistic", "softplus", "huber") or (n_classes == 2 and name != "huber_ww"):
        n_scores = 1 if n_classes == 2 else n_classes
        u = rng.uniform(size=(points, n_scores))
        u[: points // 4] = np.linspace(0.0, 1.0, points // 4)[:, None]
        curvature = u * (1.0 - u) if name != "huber" else np.full_like(u, 0.25)
        return np.linalg.norm(u, axis=1), np.log1p(kappa * curvature).sum(axis=1)
    if name == "huber_ww":
        return pairs_of_one_record(n_classes, kappa, points)
    p = rng.dirichlet(np.full(n_classes, 0.3), size=points)
    # The largest gradient, and even probabilities of all the other classes.
    p[0], p[1, 0], p[1, 1:] = np.eye(n_classes)[1], 0.0, 1.0 / (n_classes - 1)
    hessians = p[:, :, None] * np.eye(n_classes) - p[:, :, None] * p[:, None, :]
    determinants = np.linalg.slogdet(np.eye(n_classes) + kappa * hessians)[1]
    return np.linalg.norm(p - np.eye(n_classes)[0], axis=1), determinants


def pairs_of_one_record(n_classes: int, kappa: float, points: int) -> tuple[Array, Array]:
    """The same for a Huber hinge of each pair: a slope in [0, 1], a curvature of 0 or 1/2.

    The Hessian is the Laplacian of a star with these curvatures as weights.
    """
    rng = np.random.default_rng(0)
    shape = (points, n_classes - 1)
    u, weights = rng.uniform(size=shape), 0.5 * rng.integers(0, 2, shape)
    # The end of the parabola at the side of the line has the full slope and the full curvature.
    u[: points // 4] = 1.0
    edges = np.hstack([-np.ones((n_classes - 1, 1)), np.eye(n_classes - 1)])
    hessians = np.einsum("pk,ka,kb->pab", weights, edges, edges)
    determinants = np.linalg.slogdet(np.eye(n_classes) + kappa * hessians)[1]
    return np.linalg.norm(u @ edges, axis=1), determinants


CASES = [
    ("logistic", 2), ("softplus", 2), ("softmax_margin", 2), ("huber", 2),
    ("logistic", 3), ("softplus", 4), ("huber", 3), ("softmax_margin", 3), ("softmax_margin", 10),
    ("huber_ww", 2), ("huber_ww", 3), ("huber_ww", 6),
]  # fmt: skip


@pytest.mark.sampled(times=2)
@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@pytest.mark.parametrize(("name", "n_classes"), CASES)
@pytest.mark.parametrize("factor", [1, 2])
def test_no_record_costs_more_than_epsilon(name: str, n_classes: int, factor: int) -> None:
    table = loss(name, n_classes)
    for kappa, rate in itertools.product((0.1, 1.0, 5.0, 100.0), (0.01, 0.3, 3.0)):
        norms, determinants = one_record(name, n_classes, kappa, 20_000)
        other = (factor - 1) * table.lipschitz
        worst = float((rate * (norms + other) + determinants).max())
        bound = pure_epsilon(table, rate, kappa, factor)
        assert worst <= bound
        if not table.joint or name == "huber_ww":
            # All scores alike (all pairs) is among the records above: nothing is given away.
            assert bound <= worst * (1.0 + 1e-6)
        assert bound <= (factor * rate * table.lipschitz + table.jacobian(kappa)) * (1.0 + 1e-12)


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@pytest.mark.parametrize("name", SMOOTH_LOSSES)
@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("factor", [1, 2])
def test_the_largest_rate_spends_epsilon_and_no_more(
    name: str, n_classes: int, factor: int
) -> None:
    table = loss(name, n_classes)
    for epsilon, kappa in itertools.product((0.05, 1.0, 20.0), (1e-3, 0.3, 2.0, 1e3)):
        rate = largest_rate(table, epsilon, kappa, factor)
        if table.jacobian(kappa) >= epsilon * (1.0 + 1e-9):
            assert rate == 0.0
            continue
        assert pure_epsilon(table, rate, kappa, factor) <= epsilon
        assert pure_epsilon(table, rate * (1.0 + 1e-9), kappa, factor) >= epsilon * (1.0 - 1e-8)


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("factor", [1, 2])
def test_the_change_of_variables_is_free_where_curvature_is_low(
    epsilon: float, factor: int
) -> None:
    for name, n_classes, limit in (
        ("logistic", 2, epsilon / factor),
        ("softplus", 4, epsilon / factor / 4),
        ("softmax_margin", 2, epsilon / factor),
        ("softmax_margin", 5, epsilon / factor / 4),
    ):
        table = loss(name, n_classes)
        free = epsilon / (factor * table.lipschitz)
        assert largest_rate(table, epsilon, limit, factor) == pytest.approx(free, rel=1e-12)
        # Negative control: it is not free at any curvature.
        assert largest_rate(table, epsilon, 8.0 * limit, factor) < 0.999 * free
        assert largest_rate(loss("huber", 2), epsilon, limit, factor) < 0.99 * epsilon / factor


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@pytest.mark.parametrize("n_classes", [2, 6])
@pytest.mark.parametrize("name", SMOOTH_LOSSES)
def test_the_smallest_regularisation_is_where_the_jacobian_takes_epsilon(
    name: str, n_classes: int
) -> None:
    table = loss(name, n_classes)
    for epsilon in (1e-3, 1.0, 30.0):
        lam = smallest_regularization(table, epsilon, 1.3)
        kappa = table.curvature_ratio(1.3, lam)
        assert table.jacobian(kappa) < epsilon
        assert table.jacobian(kappa * 1.00001) > epsilon


plan = partial(
    plan_of,
    ObjectivePerturbation,
    epsilon=0.5,
    noise="gamma",
    loss=loss("huber", 2),
    n_features=20,
    intercept_scaling=0.2,
    C=1.0,
)


@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
@pytest.mark.parametrize("extra", [0.0, 0.1])
@pytest.mark.parametrize("name", ["huber", "logistic"])
def test_a_refused_C_names_the_largest_that_works(noise: str, extra: float, name: str) -> None:
    settings = {"noise": noise, "extra_regularization": extra, "loss": loss(name, 2)}
    with pytest.raises(InvalidParameterError, match=r"^C: got 10\.0 .* expected at most") as caught:
        plan(C=10.0, **settings)
    largest = float(str(caught.value).split("at most ")[1].split(":")[0])
    assert plan(C=largest, **settings).inside.scale > 0.0
    if noise == "gamma":
        with pytest.raises(InvalidParameterError, match=r"^C: "):
            plan(C=1.001 * largest, **settings)


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
def test_there_is_no_cliff_of_noise(noise: str) -> None:
    """Between harmless and impossible curvature the noise grows, but never explodes."""
    plans = [plan(noise=noise, C=float(C)) for C in np.geomspace(1e-3, 1e3, 61)]
    deviations = np.array([p.inside.deviation for p in plans])
    added = np.array([p.regularization - 1.0 / p.C for p in plans])
    assert deviations.max() <= 2.001 * deviations.min()
    assert added[0] == 0.0
    assert added[-1] > 1.0
    # Whatever is added, the whole of lambda does not grow with C.
    whole = np.array([p.regularization for p in plans])
    tail = whole[added > 0.0]
    np.testing.assert_allclose(tail, tail[-1], rtol=1e-6)
    # Negative control: the classical rule pays more and more just before the threshold.
    limit = 1.0 / smallest_regularization(loss("huber", 2), 0.495, plans[0].row_norm)
    near = plan(noise=noise, C=0.999 * limit, extra_regularization=0.0)
    assert near.inside.deviation > 10.0 * deviations.min()


@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_automatic_C_is_equivariant(noise: str, adjacency: str) -> None:
    """Rows in other units need lambda in their squares, and give the same model but for the unit.

    So do a temperature and a margin in other units, which scale the scores.
    """
    settings = {"noise": noise, "adjacency": adjacency, "C": None, "intercept_scaling": 0.0}
    soft = Loss(name="softplus", n_classes=2, smoothing=0.4, margin=1.0)
    base = plan(loss=soft, **settings)
    larger = plan(loss=soft, data_norm=8.0, **settings)
    assert larger.regularization == pytest.approx(64.0 * base.regularization, rel=1e-6)
    assert larger.inside.deviation == pytest.approx(8.0 * base.inside.deviation, rel=1e-6)
    wide = Loss(name="softplus", n_classes=2, smoothing=1.2, margin=3.0)
    wider = plan(loss=wide, **settings)
    assert wider.regularization == pytest.approx(base.regularization / 3.0, rel=1e-6)
    assert wider.inside.deviation == pytest.approx(base.inside.deviation, rel=1e-6)
    if noise == "gaussian":
        expected = base.inside.scale * base.row_norm / 0.4
        assert base.regularization == pytest.approx(expected, rel=1e-6)
