"""Gaussian objective perturbation: noise scales in the unit "bound of the rows' norm", and lambda.

The laws are those of :func:`dpsvm_fast.accounting.objective_sigma`, on the proof pages
docs/proofs/objective_perturbation.md and docs/proofs/joint_bound.md. Calibrations are remembered:
each depends on public settings only, and those of many classes take a good part of a second.
"""

from __future__ import annotations

import math
from functools import lru_cache

from dpsvm_fast import _core
from dpsvm_fast._rounding import div_down, round_up
from dpsvm_fast.losses import Loss

__all__ = ["automatic_regularization", "noise_multiplier", "regularization_for"]

# lambda * temperature = CURVE * sigma * row norm with C="auto". Between 0.7 and 1.4 of it the
# accuracy on six data sets (epsilon 1 to 8) hardly changes.
CURVE = 1.0
# extra_regularization="auto" adds nothing while the Jacobian makes the noise at most this much
# larger than it would be without one.
LARGEST_PRICE = 2.0


def noise_multiplier(
    loss: Loss, epsilon: float, delta: float, adjacency: str, kappa: float
) -> float | None:
    """Sigma over row norm at a given curvature ratio; None when no noise is enough."""
    return _calibrated(loss, epsilon, delta, adjacency, kappa=kappa)


def automatic_regularization(
    loss: Loss, epsilon: float, delta: float, adjacency: str, row_norm: float
) -> float:
    r"""Lambda of C="auto": :math:`\lambda \tau = \sigma \kappa_t`, tau the temperature of the loss.

    The curvature ratio is then :math:`\kappa_t / \sigma`, so sigma is calibrated along that curve,
    on which there is always one: less curvature and more noise go together. Infinity where it is
    beyond the floats.
    """
    multiplier = _calibrated(loss, epsilon, delta, adjacency, kappa_per_t=1.0 / CURVE)
    if multiplier is None:
        return math.inf
    # In the unit row_norm = 1; upwards, so that the curvature ratio stays at or below the curve.
    lam = multiplier * CURVE / loss.temperature
    while loss.curvature_ratio(1.0, lam) > div_down(1.0 / CURVE, multiplier):
        lam = round_up(lam)
    scaled = row_norm * lam * row_norm
    while loss.curvature_ratio(row_norm, scaled) > loss.curvature_ratio(1.0, lam):
        scaled = round_up(scaled)
    return scaled


def regularization_for(
    loss: Loss, epsilon: float, delta: float, adjacency: str, row_norm: float, least: float
) -> float:
    """Lambda of extra_regularization="auto": ``least`` unless its curvature makes noise too dear.

    Too dear is more than twice the noise without a Jacobian; then the lambda of C="auto", at which
    the Jacobian costs a few percent. It is larger than ``least``: the price grows with curvature.
    """
    kappa = loss.curvature_ratio(row_norm, least)
    found = noise_multiplier(loss, epsilon, delta, adjacency, kappa)
    free = _calibrated(loss, epsilon, delta, adjacency, jacobian=0.0)
    if found is not None and free is not None and found <= LARGEST_PRICE * free:
        return least
    return max(least, automatic_regularization(loss, epsilon, delta, adjacency, row_norm))


@lru_cache(maxsize=1024)
def _calibrated(
    loss: Loss,
    epsilon: float,
    delta: float,
    adjacency: str,
    *,
    kappa: float | None = None,
    kappa_per_t: float | None = None,
    jacobian: float | None = None,
) -> float | None:
    """The compiled calibration; None where it finds no sigma."""
    law, replace_one = (loss.law, loss.n_scores), adjacency == "replace_one"
    try:
        return _core.objective_sigma(
            *law, epsilon, delta, kappa, kappa_per_t, jacobian, replace_one
        )
    except ValueError:
        return None
