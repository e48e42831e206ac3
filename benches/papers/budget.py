"""What is left for a model after the pre-processing, by exact composition.

The Gaussian releases, the noise in the objective and the noise on the weights are composed with
each other; the model gets the largest epsilon with which the whole stays within the total.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from benches.papers.preprocessing import CENTRE_SHARE, WHITEN_SHARE
from dpsvm_fast.accounting import GaussianEvent, PrivacyEvent, composed_delta, gaussian_sigma
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation

ADJACENCY = "add_remove"
# Delta may be missed by this share, always from below; each step of the search costs about 1 s.
SHARE_UNUSED = 0.005
STEPS = 20


def gaussian_parameter(epsilon: float, delta: float) -> float:
    """Mu of the Gaussian mechanism that is exactly (epsilon, delta)-private."""
    return 1.0 / gaussian_sigma(epsilon, delta)


@cache
def left_for_model(
    epsilon: float, delta: float, loss: Loss, n_features: int, intercept: float, *, whitened: bool
) -> float:
    """Epsilon at which the model may be trained, with the same delta, after the pre-processing."""
    share = CENTRE_SHARE + (WHITEN_SHARE if whitened else 0.0)
    mu = math.sqrt(share) * gaussian_parameter(epsilon, delta)
    spent = GaussianEvent(sigma=1.0 / mu, sensitivity=1.0, adjacency=ADJACENCY)

    def log_excess(own: float) -> float:
        return math.log(
            composed_delta([spent, *_events(own, delta, loss, n_features, intercept)], epsilon)
            / delta
        )

    return largest_within(log_excess, 0.5 * epsilon, epsilon)


def largest_within(log_excess: Callable[[float], float], low: float, high: float) -> float:
    """A point at which an increasing function is at most 0, and hardly less.

    ``low`` must be one; regula falsi with the Illinois rule.
    """
    at_low, at_high = log_excess(low), log_excess(high)
    if at_low > 0.0:
        raise ValueError("the pre-processing leaves less than half of epsilon to the model")
    if at_high <= 0.0:
        return high
    weight_low, weight_high = at_low, at_high
    for _ in range(STEPS):
        if at_low >= -SHARE_UNUSED:
            break
        # Aimed a little below the root, so that the safe side moves too.
        aim = -0.5 * SHARE_UNUSED
        middle = low + (high - low) * (aim - weight_low) / (weight_high - weight_low)
        if not low < middle < high:
            middle = 0.5 * (low + high)
        value = log_excess(middle)
        if value <= 0.0:
            low, at_low, weight_low = middle, value, value
            weight_high *= 0.5
        else:
            high, weight_high = middle, value
            weight_low *= 0.5
    return low


def _events(
    epsilon: float, delta: float, loss: Loss, n_features: int, intercept: float
) -> tuple[PrivacyEvent, ...]:
    """What one model with the estimator's defaults releases."""
    return ObjectivePerturbation(
        epsilon=epsilon,
        delta=delta,
        adjacency=ADJACENCY,
        noise="gaussian",
        noise_grid="exact",
        loss=loss,
        n_features=n_features,
        data_norm=1.0,
        intercept_scaling=intercept,
        C=None,
        extra_regularization=None,
        tol=1e-5,
    ).events
