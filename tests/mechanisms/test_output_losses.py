"""Output perturbation of the smooth losses: distances, certificates, parameters, probabilities.

The minimisers of neighbours are moved by the certified solver itself. In the constructed pairs
scores stay near 0, where a large margin keeps the gradients at their largest norm.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import OutputPerturbationSVC, _core
from dpsvm_fast.losses import WEIGHT_LOSSES, Loss
from dpsvm_fast.mechanisms.output import OutputPerturbation, automatic_C
from dpsvm_fast.verification import verify
from oracles.descent import output_plan
from oracles.neighbours import tight_pair
from twins.smooth_erm import Problem, minimise

Array = NDArray[Any]
LOSSES = tuple(loss for loss in WEIGHT_LOSSES if loss != "crammer_singer")
CASES = [(loss, n_classes) for loss in LOSSES for n_classes in (2, 3, 5)]

# Norm of the largest gradient in the scores, from the formulas of the losses.
LIPSCHITZ = {
    "softmax_margin": lambda K: 1.0 if K == 2 else math.sqrt(2.0),
    "huber": lambda K: 1.0 if K == 2 else math.sqrt(K),
    "logistic": lambda K: 1.0 if K == 2 else math.sqrt(K),
    "softplus": lambda K: 1.0 if K == 2 else math.sqrt(K),
    "m3": lambda K: math.sqrt(K * (K - 1.0)),
    "huber_ww": lambda K: math.sqrt(K * (K - 1.0)),
    "margin_distance": lambda K: 1.0,
}
# Losses with a score for each of two classes.
PAIRS = ("m3", "huber_ww", "margin_distance")
# Losses whose gradient at scores 0 is that large, with a large enough margin: all its entries are
# then those of a margin violated by everybody. Softmax shares one unit among the rivals.
STEEP_AT_ZERO = ("huber", "softplus", "m3", "huber_ww", "margin_distance")


mechanism = partial(output_plan, loss="huber", smoothing=0.5, C=0.1)


def trained(plan: OutputPerturbation, X: Any, y: Array) -> Array:
    """Certified weights without noise."""
    return plan.solution(X, y, _core.NoiseSource(1), 1)


@pytest.mark.sampled
@pytest.mark.parametrize(("loss", "n_classes"), CASES)
@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
def test_weights_are_within_the_radius_of_the_twin(loss: str, n_classes: int, C: float) -> None:
    rng = np.random.default_rng(n_classes)
    X = np.rint(rng.uniform(-0.4, 0.4, (40, 3)) * 4096) / 4096
    y = rng.integers(0, n_classes, 40)
    plan = mechanism(loss=loss, n_classes=n_classes, C=C, intercept_scaling=0.25)
    rows = np.hstack([X, np.full((40, 1), 0.25)])
    problem = Problem(rows, y, plan.loss.n_scores, plan.loss.kernel, 1.0 / C)
    expected, error = minimise(problem)
    for given_rows in (X, sparse.csr_matrix(X)):
        distance = np.linalg.norm(trained(plan, given_rows, y) - expected)
        assert distance <= plan.radius * (1 + 1e-9) + error
    # Negative control: the minimiser for 5 percent less C is further away (not where the radius,
    # proportional to C, has outgrown the weights).
    if C <= 1.0:
        other = minimise(dataclasses.replace(problem, regularization=1.0 / (0.95 * C)))[0]
        assert np.linalg.norm(other - expected) > plan.radius


@pytest.mark.proof("losses", "Lipschitz constant")
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("loss", "n_classes"), CASES)
def test_the_sensitivity_is_that_of_the_loss(loss: str, n_classes: int, adjacency: str) -> None:
    plan = mechanism(
        loss=loss, n_classes=n_classes, adjacency=adjacency, data_norm=3.0, intercept_scaling=4.0
    )
    factor = 2.0 if adjacency == "replace_one" else 1.0
    expected = factor * 0.1 * LIPSCHITZ[loss](n_classes) * 5.0
    assert plan.exact_sensitivity == pytest.approx(expected, rel=1e-14)
    assert plan.n_weights == plan.loss.n_scores * 4
    assert Fraction(plan.regularization) * Fraction(plan.C) >= 1
    assert Fraction(plan.gradient_tol) <= Fraction(plan.radius) * Fraction(plan.regularization)
    assert plan.gradient_tol == pytest.approx(plan.radius / plan.C, rel=1e-14)


def moved(
    plan: OutputPerturbation, first: tuple[Array, Array], other: tuple[Array, Array]
) -> float:
    """Distance between the certified weights of two data sets."""
    return float(np.linalg.norm(trained(plan, *first) - trained(plan, *other)))


@pytest.mark.proof("losses", "Lipschitz constant")
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("loss", STEEP_AT_ZERO)
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_constructed_neighbours_reach_the_sensitivity(
    loss: str, n_classes: int, adjacency: str
) -> None:
    plan = mechanism(
        loss=loss, n_classes=n_classes, adjacency=adjacency, C=1e-3, margin=4.0, smoothing=0.3
    )
    x = np.array([[0.6, 0.8, 0.0]])
    y = np.array([1])
    other = (-x, y) if adjacency == "replace_one" else (x[:0], y[:0])
    distance = moved(plan, (x, y), other)
    if loss == "huber":
        # Its margin is 1, where the gradient is the largest too.
        assert plan.loss.smoothing < 1.0
    assert 0.97 * plan.exact_sensitivity <= distance
    assert distance <= plan.exact_sensitivity + 2.0 * plan.radius
    # Negative control: a bound that is 5 percent smaller does not hold.
    assert distance > 0.95 * plan.exact_sensitivity + 2.0 * plan.radius


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_softmax_neighbours_reach_the_sensitivity(n_classes: int, adjacency: str) -> None:
    """At a low temperature it moves like the hinge, in the pairs that are tight for the hinge."""
    pair = tight_pair(adjacency, n_classes, 0.0)
    plan = mechanism(
        loss="softmax_margin", n_classes=n_classes, adjacency=adjacency, C=1e-3, smoothing=1e-3
    )
    distance = moved(plan, pair.first, pair.second)
    assert 0.95 * plan.exact_sensitivity <= distance
    assert distance <= plan.exact_sensitivity + 2.0 * plan.radius


def test_logistic_neighbours_come_close_to_the_sensitivity() -> None:
    """Its gradient is 1/2 at score 0, and near 1 only at rows that are badly wrong."""
    rng = np.random.default_rng(0)
    plan = mechanism(loss="logistic", adjacency="replace_one", C=0.05, n_features=1)
    closest = 0.0
    for _ in range(30):
        X = np.ones((int(rng.integers(1, 40)), 1))
        y = (rng.random(len(X)) < 0.5).astype(np.int64)
        distance = moved(plan, (X, y), (np.vstack([-X[:1], X[1:]]), y))
        assert distance <= plan.exact_sensitivity + 2.0 * plan.radius
        closest = max(closest, distance / plan.exact_sensitivity)
    # At score 0 the gradient is 1/2; a change of sign there moves the weights by half of 2 C kt.
    assert closest > 0.45


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[OutputPerturbation, tuple[Array, Array], Array, int]:
    """A mechanism, a data set and another record."""
    loss, n_classes = draw(st.sampled_from(CASES))
    plan = mechanism(
        loss=loss,
        n_classes=n_classes,
        adjacency=draw(st.sampled_from(["add_remove", "replace_one"])),
        C=10.0 ** draw(st.floats(-4.0, 3.0)),
        smoothing=draw(st.sampled_from([0.05, 0.5, 3.0])),
        margin=draw(st.sampled_from([0.0, 1.0, 5.0])) if loss != "huber" else 1.0,
        intercept_scaling=draw(st.sampled_from([0.0, 0.2, 2.0])),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 14))
    X = rng.normal(size=(n, 3)) * draw(st.sampled_from([0.1, 3.0]))
    x = draw(st.sampled_from([1.0, -1.0])) * X[0] + 0.1 * rng.normal(size=3)
    return plan, (X, rng.integers(0, n_classes, n)), x, int(rng.integers(0, n_classes))


@pytest.mark.proof("losses", "Lipschitz constant")
@given(drawn=neighbours())
def test_random_neighbours_never_exceed_the_sensitivity(
    drawn: tuple[OutputPerturbation, tuple[Array, Array], Array, int],
) -> None:
    plan, (X, y), x, label = drawn
    if plan.adjacency == "add_remove":
        other = np.vstack([X, x]), np.append(y, label)
    else:
        other = np.vstack([x, X[1:]]), np.append(label, y[1:])
    distance = moved(plan, (X, y), other)
    assert distance <= (plan.exact_sensitivity + 2.0 * plan.radius) * (1 + 1e-9)


@pytest.mark.sampled
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("loss", "n_classes"), CASES)
def test_fits_bring_certificates_that_hold(
    loss: str, n_classes: int, adjacency: str, noise: str
) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 4)), rng.integers(0, n_classes, 30)
    model = OutputPerturbationSVC(
        loss=loss, adjacency=adjacency, noise=noise, classes=range(n_classes)
    ).fit(X, y)
    statement = model.privacy_
    assert verify(statement)
    assert statement.loss == loss
    assert statement.descent is None
    assert statement.sensitivity.lipschitz == pytest.approx(LIPSCHITZ[loss](n_classes), rel=1e-15)
    n_rows = 1 if n_classes == 2 else n_classes
    assert model.coef_.shape == (n_rows, 4)
    assert statement.noise.shape == (2 if loss in PAIRS and n_classes == 2 else n_rows, 5)
    # Negative control: with the constant of another loss the numbers do not follow.
    wrong = statement.to_dict()
    wrong["sensitivity"]["lipschitz"] *= 0.9
    assert not verify(wrong)


def test_the_automatic_C_knows_the_loss() -> None:
    shared: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "noise": "gaussian",
        "adjacency": "add_remove",
        "n_weights": 100,
        "data_norm": 1.0,
        "intercept_scaling": 0.0,
    }

    def chosen(loss: Loss) -> float:
        return automatic_C(cast(Any, SimpleNamespace(loss=loss, **shared)))

    hinge = chosen(Loss(name="crammer_singer", n_classes=7))
    for loss in LOSSES:
        for n_classes in (2, 7, 50):
            C = chosen(Loss(name=loss, n_classes=n_classes))
            expected = hinge * math.sqrt(2.0) / LIPSCHITZ[loss](n_classes)
            if loss == "margin_distance":
                # Less noise in a score, and still less where many classes compete.
                expected *= 0.1 if n_classes == 50 else 0.6
            assert pytest.approx(expected, rel=1e-12) == C
