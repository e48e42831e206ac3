"""Exact densities of two noisy ellipsoids on a line: what a fit releases keeps what it claims.

One feature and two classes: three coordinates of the difference of two matrices matter. Both
worlds' densities are integrated by quasi-random points; nothing of the mechanism but its numbers is
used. Minimisers over the cone are in test_gaussian_margin_proof.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpsvm_fast.mechanisms.gaussian_margin import CONSTANT, GaussianMargin
from oracles.objective_density import Pair, sampled_deltas
from oracles.plans import plan_of
from twins.gaussian_margin import lifted_rows

# Student's t with 7 degrees of freedom at 1e-6, one-sided: 8 repetitions of each integral.
LOWER = 14.25
EPSILON, DELTA = 1.0, 1e-2


def plan(loss: str, adjacency: str) -> GaussianMargin:
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
    found = plan(loss, adjacency)
    delta = found.solver.inside.delta
    assert delta == pytest.approx(0.99 * DELTA)
    assert max(lower_ends(found, 1.0)) <= delta
    # Negative control: with noise for one score where two differ, or for one record where two do.
    # For pairwise Huber losses noise and curvature are added up, which leaves room.
    factor = math.sqrt(0.5) if adjacency == "add_remove" else 0.5
    least = factor if loss == "softmax_margin" else 0.35
    assert max(lower_ends(found, least)) > delta
