"""Public defaults of output perturbation: functions of settings, never of data."""

from __future__ import annotations

import math

from dpsvm_fast.accounting import gaussian_sigma
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._settings import RELATION_FACTOR, check_delta_of_gaussian

__all__ = ["automatic_C", "automatic_intercept_scaling"]

# automatic_C: standard deviation of the noise in one class score of a row of the largest norm.
# Chosen on digits, USPS and ISOLET with rows of norm 1, delta 1e-6 and epsilon 0.5 to 8, where
# 0.1 to 0.2 is best or within about 0.02 of it in accuracy and 0.5 already loses up to 0.15.
SCORE_NOISE = 0.2
# Of margin_distance, chosen on eight data sets of 4 to 26 classes at epsilon 1 to 8, the number of
# classes with it: more of them compete by their noise.
DISTANCE_SCORE_NOISE = 0.12


def automatic_C(
    epsilon: float,
    delta: float,
    *,
    noise: str,
    adjacency: str,
    loss: str,
    n_weights: int,
    row_norm: float,
    n_classes: int = 2,
) -> float:
    r"""The public default of C.

    .. math:: C = v / (f L m \kappa_t^2)

    with v = 0.2, but :math:`\min(0.12, 1/K)` for ``margin_distance`` and K classes, and with m the
    root mean square of the noise in one weight at sensitivity 1: sigma of the Gaussian
    mechanism, or :math:`\sqrt{p + 1}/\epsilon` for Gamma noise on p weights. The noise in a score
    of a row of norm :math:`\kappa_t` then has standard deviation v, against a margin of 1.
    """
    if noise == "gamma":
        multiplier = math.sqrt(n_weights + 1.0) / epsilon
    else:
        check_delta_of_gaussian(delta)
        multiplier = gaussian_sigma(epsilon, delta)
    moved = RELATION_FACTOR[adjacency] * Loss(name=loss, n_classes=n_classes).lipschitz * multiplier
    # Divided one by one: the square of an extreme norm would leave the floats.
    wanted = SCORE_NOISE
    if loss == "margin_distance":
        wanted = min(DISTANCE_SCORE_NOISE, 1.0 / n_classes)
    return wanted / moved / row_norm / row_norm


def automatic_intercept_scaling(data_norm: float) -> float:
    """Return the public default of the constant feature: a fifth of the bound of the rows."""
    return 0.2 * data_norm
