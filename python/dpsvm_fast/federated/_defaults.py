"""Public defaults: functions of what all parties know, never of data."""

from __future__ import annotations

import math

from dpsvm_fast.accounting import gaussian_sigma
from dpsvm_fast.federated._counts import PartyCounts
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._projected_sgd import loss_at_zero

__all__ = [
    "automatic_radius",
    "automatic_regularization",
    "typical_records",
]

# Standard deviation of the noise in one class score of a row of the largest norm, beside a margin
# of 1, that the regularisation is chosen for.
SCORE_NOISE = 0.2
# Regularisation below this, relative to the curvature of a hinge, gains nothing from few records.
LEAST = 1e-3
# For whole parties, whose noise follows the radius and not the regularisation.
USER_REGULARIZATION = 0.1


def typical_records(min_records: int, max_records: int) -> int:
    """Records of a party, where nobody said how many to expect: between the two bounds."""
    return max(1, round(math.sqrt(min_records * max_records)))


def automatic_regularization(
    loss: Loss,
    epsilon: float,
    delta: float,
    counts: PartyCounts,
    *,
    row_norm: float,
    records: int,
    unit: str,
    group_size: int,
) -> float:
    r"""Lambda of ``regularization="auto"``.

    .. math:: \Lambda = \frac{2 G L m \kappa_t^2}{c\, n U} \sqrt{U / h}

    so that the noise in a class score has standard deviation c = 0.2, as with one owner's rule for
    C; m is the noise multiplier, n the number of records that a party is expected to have. The
    root is what honest parties that are not counted on add.
    """
    if unit == "user":
        return USER_REGULARIZATION * row_norm * row_norm
    multiplier = gaussian_sigma(epsilon, delta)
    extra = math.sqrt(counts.n_users / counts.honest_survivors)
    moved = 2.0 * group_size * loss.lipschitz * multiplier * extra / (records * counts.n_users)
    return max(moved / SCORE_NOISE, LEAST * loss.lipschitz) * row_norm * row_norm


def automatic_radius(loss: Loss, regularization: float, row_norm: float) -> float:
    r"""A radius that holds every minimiser.

    .. math:: \min(L \kappa_t / \Lambda, \sqrt{2 \phi(0) / \Lambda})
    """
    by_gradient = loss.lipschitz * row_norm / regularization
    by_value = math.sqrt(2.0 * loss_at_zero(loss) / regularization)
    return min(by_gradient, by_value) * (1.0 + 1e-12)
