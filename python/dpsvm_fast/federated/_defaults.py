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
# of 1, that the regularisation is chosen for. On USPS and MNIST (unit rows of pixels, and 64 public
# components), 50 records a party, 10 to 1,000 parties and epsilon from 0.1 to 8 the best lies
# between 0.06 and 0.35, for the softmax as for the hinge, and 0.1 is within 0.03 of it in accuracy.
SCORE_NOISE = 0.12
# Less regularisation, relative to the gradient of the loss, gained nothing there without noise.
LEAST = 5e-4
# For whole parties the noise follows the radius alone. Models of 50 records do best with little
# regularisation, cut to about half of their usual norm; the constants are of 100 and 1,000 parties
# and epsilon from 0.5 to 8, where anything from a third to three times of them does nearly as well.
USER_REGULARIZATION = 0.01
USER_RADIUS = 0.12


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

    so that the noise in a class score has standard deviation c = 0.12; m is the
    noise multiplier, n the number of records that a party is expected to have. The root is what
    honest parties that are not counted on add.
    """
    if unit == "user":
        return USER_REGULARIZATION * row_norm * row_norm
    multiplier = gaussian_sigma(epsilon, delta)
    extra = math.sqrt(counts.n_users / counts.honest_survivors)
    moved = 2.0 * group_size * loss.lipschitz * multiplier * extra / (records * counts.n_users)
    return max(moved / SCORE_NOISE, LEAST * loss.lipschitz) * row_norm * row_norm


def automatic_radius(loss: Loss, regularization: float, row_norm: float, unit: str) -> float:
    r"""Radius of ``radius="auto"``: one that holds every minimiser, 0.12 of it for whole parties.

    .. math:: \min(L \kappa_t / \Lambda, \sqrt{2 \phi(0) / \Lambda})
    """
    by_gradient = loss.lipschitz * row_norm / regularization
    by_value = math.sqrt(2.0 * loss_at_zero(loss) / regularization)
    share = USER_RADIUS if unit == "user" else 1.0 + 1e-12
    return min(by_gradient, by_value) * share
