"""No record's gradient, in the coordinates in which the noise is drawn, is longer than declared.

A search over records, own ellipsoids and matrices; its best finds come close to the bound.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logit

from dpsvm_fast.estimators.gaussian_margin import (
    centres_of,
    quadratic_forms,
    released_ellipsoids,
    symmetric_matrices,
)
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.gaussian_margin import CONSTANT
from twins.gaussian_margin import lifted_rows, margin_gradient, svec

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


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.proof("losses", "Log-determinant")
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
