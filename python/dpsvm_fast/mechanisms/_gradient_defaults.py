r"""Public defaults of gradient perturbation: functions of settings, never of data.

Everything is in units of rows divided by their norm bound, so that :math:`\kappa_t` is the norm of
such a row with its constant feature.

Noise of standard deviation sigma on each of T sums, each over a share q of the records, counts for
:math:`s = \sigma / (q \sqrt T)` on one sum over all. With full batches s is R / mu, R the clip norm
and mu the parameter of Gaussian differential privacy. The total step, over which W goes from 0 to
where it is released, is :math:`1 / \lambda` with

.. math:: \lambda = c \, \kappa_t \, s

so that the noise moves each weight by about :math:`1 / (c \kappa_t)`, whatever the data set. This
total step regularises: there is no penalty on W unless C is given.
"""

from __future__ import annotations

import math

from dpsvm_fast._rounding import mul_up
from dpsvm_fast.mechanisms._descent_rule import (
    CLIP,
    FEATURES_A_ROW,
    FEWEST_STEPS,
    INTERCEPT,
    LARGEST_C,
    MOST_STEPS,
    ROWS_A_STEP,
    SMALLEST_C,
)

__all__ = [
    "automatic_clip",
    "automatic_divisor",
    "automatic_intercept_scaling",
    "automatic_learning_rate",
    "automatic_sampling_rate",
    "automatic_steps",
]

# Of sampled batches: records in a batch, passes over the data, the rate where the number of
# records is not public.
BATCH = 128
PASSES = 20
SAMPLING_RATE = 0.1
# c where the number of records is not public.
UNKNOWN_C = 0.5
EULER = 0.5772156649015329


def automatic_intercept_scaling(data_norm: float) -> float:
    """Return the public default of the constant feature: a fifth of the bound of the rows."""
    return INTERCEPT * data_norm


def automatic_clip(row_norm: float, n_scores: int) -> float:
    """R: a quarter of the bound of the rows' norm, constant feature included.

    The one score of two classes is the difference of theirs, which move by opposite gradients of
    together sqrt(2) times the norm: clipping it at R / sqrt(2) gives the same model.
    """
    return mul_up(CLIP * _unit(n_scores), row_norm)


def automatic_sampling_rate(optimizer: str, n_records: int | None) -> float:
    """Q: 1 for gd; otherwise batches of 128, or a tenth where the number of records is unknown."""
    if optimizer == "gd":
        return 1.0
    return SAMPLING_RATE if n_records is None else min(1.0, BATCH / n_records)


def automatic_divisor(optimizer: str, sampling_rate: float, n_records: int | None) -> float:
    """Return by what noisy sums are divided: 1 for gd, else the expected size of a batch."""
    if optimizer == "gd":
        return 1.0
    return float(BATCH) if n_records is None else max(1.0, sampling_rate * n_records)


def automatic_steps(mu: float, sampling_rate: float, n_records: int | None) -> int:
    """T: 100 to 500 for full batches, growing with n mu; twenty passes for sampled ones.

    Never fewer than 100: in twenty passes over samples of half the records, steps are so long that
    the weights swing, where the budget is large and the noise does not hide it.
    """
    if sampling_rate < 1.0:
        return max(FEWEST_STEPS, math.ceil(PASSES / sampling_rate))
    if n_records is None:
        return FEWEST_STEPS
    return math.ceil(min(max(n_records * mu / ROWS_A_STEP, FEWEST_STEPS), MOST_STEPS))


def automatic_learning_rate(
    *,
    optimizer: str,
    schedule: str,
    momentum: float,
    n_steps: int,
    sampling_rate: float,
    divisor: float,
    regularization: float,
    sigma: float,
    row_norm: float,
    n_scores: int,
    n_features: int,
    n_records: int | None,
) -> float:
    """Step at which the noise moves each weight by ``1 / (c kappa_t)`` in the whole run.

    Gradient descent moves along sums; Adam by about the rate in each step, whatever their size,
    into the direction of the noise for most weights: ``sqrt(T)`` of its steps make the way.
    With a penalty on W a step is at most what makes the penalty alone settle.
    """
    steadiness = _steadiness(n_features, n_records) * _unit(n_scores) * row_norm
    steps = _schedule_sum(schedule, n_steps)
    if optimizer == "adam":
        return math.sqrt(n_steps) / (steadiness * steps)
    per_sum = sigma / (sampling_rate * math.sqrt(n_steps))
    rate = (1.0 - momentum) * divisor / (sampling_rate * steadiness * per_sum * steps)
    return min(rate, (1.0 - momentum) / regularization) if regularization > 0.0 else rate


def _unit(n_scores: int) -> float:
    """What one score is to two, see `automatic_clip`."""
    return 1.0 if n_scores > 1 else math.sqrt(0.5)


def _steadiness(n_features: int, n_records: int | None) -> float:
    """C of the module's formula: 0.5, or by features per record between 0.35 and 0.7."""
    if n_records is None:
        return UNKNOWN_C
    by_shape = math.sqrt(FEATURES_A_ROW * n_features / n_records)
    return min(LARGEST_C, max(SMALLEST_C, by_shape))


def _schedule_sum(schedule: str, n_steps: int) -> float:
    """Sum over the steps of the factors by which a schedule multiplies the learning rate."""
    if schedule == "linear":
        return 0.5 * (n_steps + 1)
    if schedule == "inverse":
        # The harmonic number, to 1 / (12 n_steps^2).
        return math.log(n_steps) + EULER + 0.5 / n_steps
    return float(n_steps)
