"""Projected SGD: the compiled run against its twin, the numbers of its sensitivity, its statement.

The twin runs in extended precision on rows that quantising leaves as they are, so the distance of
the two is the rounding error of the compiled run alone (and of step sizes, which the bound covers).
"""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from conftest import three_clusters
from dpsvm_fast import OutputPerturbationSVC
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.output import mean_visits
from dpsvm_fast.verification import verify
from oracles.descent import compiled, mechanism, twin
from twins.smooth_erm import score_loss

LOSSES = [
    ("huber", 2),
    ("softplus", 2),
    ("logistic", 3),
    ("huber", 4),
    ("softmax_margin", 2),
    ("softmax_margin", 5),
    ("m3", 3),
    ("huber_ww", 3),
    ("margin_distance", 4),
]


def rows(n: int, n_classes: int, n_features: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows of norm below 1 whose entries are multiples of 2**-12; a third of them zeros."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features)) * (rng.random((n, n_features)) > 1 / 3)
    X /= 1.1 * max(1e-3, np.linalg.norm(X, axis=1).max())
    return np.rint(X * 4096) / 4096, rng.integers(0, n_classes, n).astype(np.int64)


@pytest.mark.sampled
@pytest.mark.proof("projected_sgd")
@pytest.mark.parametrize(("loss", "n_classes"), LOSSES)
@pytest.mark.parametrize("projection", ["joint", "per_class"])
@pytest.mark.parametrize("average", ["last", "uniform", "weighted"])
def test_compiled_runs_stay_within_the_rounding_bound_of_the_twin(
    loss: str, n_classes: int, projection: str, average: str
) -> None:
    X, y = rows(23, n_classes, 7, seed=n_classes)
    cases = [(1, 0.5, None), (4, 20.0, None), (5, 3.0, 0.05), (23, 1e-3, None)]
    for batch_size, C, radius in cases:
        plan = mechanism(
            23,
            n_epochs=3,
            batch_size=batch_size,
            radius=radius,
            projection=projection,
            average=average,
            loss=loss,
            n_classes=n_classes,
            n_features=7,
            C=C,
            intercept_scaling=0.25,
        )
        expected = twin(plan, X, y, seed=8)
        for given in (X, sparse.csr_matrix(X), X.astype(np.float32)):
            error = np.linalg.norm(compiled(plan, given, y, seed=8) - expected)
            assert error <= plan.radius
        # Far below what the noise has to cover anyway.
        assert plan.radius <= 1e-5 * plan.exact_sensitivity


@pytest.mark.proof("projected_sgd")
def test_the_comparison_rejects_another_run() -> None:
    """Negative control: another order, step size, divisor or average is no rounding error."""
    X, y = rows(23, 2, 7, seed=0)
    plan = mechanism(23, batch_size=4, n_features=7, C=5.0)
    expected = twin(plan, X, y, seed=8)
    assert np.linalg.norm(compiled(plan, X, y, seed=8) - expected) <= plan.radius
    for wrong in (
        compiled(plan, X, y, seed=9),
        compiled(plan, X, y, seed=8, regularization=1.0 / (23 * 5.0) * (1 + 1e-4)),
        compiled(plan, X, y, seed=8, batch_size=5),
        compiled(plan, X, y, seed=8, average="weighted"),
        twin(plan, X, y, seed=8, own_size=True),
    ):
        assert np.linalg.norm(wrong - expected) > plan.radius


def test_runs_do_not_depend_on_the_memory_mode() -> None:
    X, y = rows(40, 3, 5, seed=3)
    plan = mechanism(40, batch_size=7, loss="softmax_margin", n_classes=3, n_features=5)
    again = compiled(plan, X, y, seed=1, low_memory=True)
    np.testing.assert_array_equal(compiled(plan, X, y, seed=1), again)


@pytest.mark.proof("projected_sgd")
@pytest.mark.parametrize("n_samples", [1, 10, 997])
@pytest.mark.parametrize("batch_size", [1, 7, 10_000])
@pytest.mark.parametrize("n_epochs", [1, 4])
def test_sensitivity_from_first_principles(n_samples: int, batch_size: int, n_epochs: int) -> None:
    """The sums of the proof, term by term, in exact arithmetic."""
    shape: dict[str, Any] = {"n_epochs": n_epochs, "batch_size": batch_size}
    b = min(batch_size, n_samples)
    updates = -(-n_samples // b)
    total = n_epochs * updates
    visits = [Fraction(-(-m // updates), m) for m in range(1, total + 1)]
    weights = Fraction(total * (total + 1), 2)
    mean = {
        "last": visits[-1],
        "uniform": sum(visits) / total,
        "weighted": sum(m * v for m, v in enumerate(visits, start=1)) / weights,
    }
    for average, distance in mean.items():
        plan = mechanism(n_samples, average=average, C=0.3, intercept_scaling=0.75, **shape)
        # 2 L kt / (b Lambda) with L = 1, kt = 5/4 and Lambda = 1/(0.3 n).
        expected = 2 * 1.25 * 0.3 * n_samples / b * float(distance)
        assert plan.exact_sensitivity == pytest.approx(expected, rel=1e-10)
        assert Fraction(plan.exact_sensitivity) >= (
            2 * Fraction(5, 4) * Fraction(plan.C) * Fraction(n_samples, b) * distance
        )
        small = mechanism(n_samples, average=average, C=0.3, radius=1e-3, **shape)
        assert small.exact_sensitivity == pytest.approx(2e-3, rel=1e-12)
    separate = mechanism(
        n_samples, radius=1e-3, projection="per_class", loss="m3", n_classes=4, **shape
    )
    assert separate.exact_sensitivity == pytest.approx(2e-3 * math.sqrt(4.0), rel=1e-12)


def test_last_iterates_of_full_batches_move_like_exact_minimisers() -> None:
    for loss, n_classes in LOSSES:
        run = mechanism(1000, loss=loss, n_classes=n_classes, batch_size=50)
        exact = dataclasses.replace(run, sgd=None)
        assert run.exact_sensitivity == pytest.approx(exact.exact_sensitivity, rel=1e-12)


def test_mean_visits_of_many_passes() -> None:
    assert mean_visits(1, 1) == pytest.approx(1.0, rel=1e-9)
    # One update a pass: every term is 1.
    assert mean_visits(100_000, 1) == pytest.approx(1.0, rel=1e-9)
    direct = sum(-(-m // 30) / m for m in range(1, 6001)) / 200
    assert direct <= mean_visits(200, 30) <= direct * (1 + 1e-10)


@pytest.mark.sampled
@pytest.mark.proof("projected_sgd")
@pytest.mark.parametrize(("loss", "n_classes"), LOSSES)
def test_the_automatic_radius_holds_the_minimiser(loss: str, n_classes: int) -> None:
    """Both bounds are what they should be, and the larger C the closer the second."""
    X, y = rows(60, n_classes, 4, seed=1)
    for C in (1e-3, 1.0, 1e3):
        plan = mechanism(60, loss=loss, n_classes=n_classes, n_features=4, C=C)
        assert plan.sgd is not None
        radius = plan.sgd.ball_radius(plan.loss, C, plan.row_norm)
        reach = plan.loss.lipschitz * plan.row_norm * 60 * C
        assert radius <= reach * (1 + 1e-12)
        # Twin at C with many passes: the minimiser's distance is far below what would matter.
        many = mechanism(
            60, n_epochs=150, batch_size=60, loss=loss, n_classes=n_classes, n_features=4, C=C
        )
        W = twin(many, X, y, seed=0)
        assert np.linalg.norm(W) <= radius


@pytest.mark.parametrize(("loss", "n_classes"), LOSSES)
@pytest.mark.parametrize(("smoothing", "margin"), [(0.5, 1.0), (2.0, 1.0), (0.1, 0.0)])
def test_the_loss_at_zero(loss: str, n_classes: int, smoothing: float, margin: float) -> None:
    chosen = Loss(name=loss, n_classes=n_classes, smoothing=smoothing, margin=margin)
    zeros = np.zeros((n_classes, chosen.n_scores))
    values = score_loss(zeros, np.arange(n_classes), chosen.kernel)
    np.testing.assert_allclose(values, chosen.at_zero, rtol=1e-13)


@pytest.mark.proof("projected_sgd")
def test_add_remove_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match=r"adjacency: got 'add_remove'.*psgd"):
        mechanism(10, adjacency="add_remove")
    model = OutputPerturbationSVC(loss="huber", solver="psgd", classes=range(3))
    with pytest.raises(InvalidParameterError, match=r"adjacency: got 'add_remove'"):
        model.fit(*three_clusters())


@pytest.mark.proof("projected_sgd")
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
@pytest.mark.parametrize("average", ["last", "uniform", "weighted"])
def test_certificates_are_recomputed(noise: str, average: str) -> None:
    X, y = three_clusters()
    model = OutputPerturbationSVC(
        loss="softmax_margin",
        solver="psgd",
        adjacency="replace_one",
        noise=noise,
        average=average,
        classes=range(3),
    ).fit(X, y)
    statement = model.privacy_
    assert statement.private
    assert verify(statement)
    assert statement.descent is not None
    assert statement.descent.n_samples == len(y)
    assert "projected SGD, 10 passes in batches of 50 over 90 rows" in str(statement)
    assert "projected_sgd.md" in statement.theorem
    # Each number that the sensitivity follows from.
    for name, value in {
        "n_samples": 99,
        "n_epochs": 9,
        "batch_size": 9,
        "radius": 1e-3,
        "average": "uniform" if average != "uniform" else "last",
        "projection": None,
    }.items():
        record = json.loads(statement.to_json())
        record["descent"][name] = value
        same = average == "last" and name == "n_epochs"
        assert bool(verify(record)) is same, name
    for name, value in (("adjacency", "add_remove"), ("loss", "crammer_singer")):
        assert not verify(json.loads(statement.to_json()) | {name: value})
