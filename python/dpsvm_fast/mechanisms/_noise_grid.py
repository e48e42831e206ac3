"""The power-of-two grid on which weights are released, and the release on it.

Proved in docs/proofs/grid_gaussian.md: rounded weights plus exactly sampled rounded Gaussians are a
post-processing of the weights plus Gaussians of the real numbers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast._rounding import mul_up, sqrt_up
from dpsvm_fast.exceptions import CertificationError

__all__ = [
    "flat_weights",
    "grid_below",
    "grid_of_sums",
    "nearest_on_grid",
    "release_on_grid",
    "rounding_distance",
]

# A noise scale of at most this many grid steps: sums of steps stay far inside 2**53.
LARGEST_NOISE_STEPS = 2.0**44
# Rounded weights are clamped to this many grid steps, a public range: sums with noise stay exact.
LARGEST_WEIGHT_STEPS = 2.0**51


def grid_below(spacing: float, largest_scale: float = 0.0) -> float:
    """Largest power of two at most ``spacing``, unless the noise then had too many grid steps.

    Parameters
    ----------
    spacing : float > 0
    largest_scale : float >= 0
        Bound of the standard deviation of noise to be drawn on the grid; 0 for none.
    """
    exponent = math.frexp(spacing)[1] - 1
    if largest_scale > 0.0:
        exponent = max(exponent, math.frexp(largest_scale / LARGEST_NOISE_STEPS)[1])
    return math.ldexp(1.0, exponent)


def grid_of_sums(unit: float, largest_scale: float, size: int) -> tuple[float, float]:
    """Grid for noise on exact sums, and how far rounding to it moves them.

    Parameters
    ----------
    unit : float > 0
        A power of two of which all sums are multiples: on a grid as fine, nothing is rounded.
    largest_scale : float >= 0
        Bound of the standard deviation of the noise.
    size : int
        Number of sums.
    """
    grid = grid_below(unit, largest_scale)
    return grid, 0.0 if grid <= unit else rounding_distance(grid, size)


def rounding_distance(grid: float, n_weights: int) -> float:
    """How far rounding both to the grid can move two weight matrices apart, rounded up."""
    return mul_up(grid, sqrt_up(float(n_weights)))


def flat_weights(weights: NDArray[np.float64], n_weights: int) -> NDArray[np.float64]:
    """``weights`` as one row.

    Raises
    ------
    CertificationError
        They are not ``n_weights`` finite numbers, so they cannot have been certified.
    """
    if weights.size != n_weights or not np.isfinite(weights).all():
        raise CertificationError("the solver returned no usable weights; nothing is released")
    return np.ascontiguousarray(weights, dtype=np.float64).ravel()


def nearest_on_grid(noisy: NDArray[np.float64], grid: float) -> NDArray[np.float64]:
    """Post-processing: hides the low bits in which floating-point noise differs."""
    return np.asarray(np.rint(noisy / grid) * grid)


def release_on_grid(
    flat: NDArray[np.float64], sigma: float, grid: float, source: _core.NoiseSource, n_threads: int
) -> NDArray[np.float64]:
    """Round, clamp, add integer noise: no step of it rounds anything unintended.

    Dividing by a power of two is exact in this range (a result that underflows rounds to 0
    either way); ``rint`` and ``clip`` act on floats that are exact integers below 2**51, so the
    conversion to int64 is exact; the noise is an exact int64 draw of about 2**44 steps, and the
    integer sum cannot wrap. What follows, int64 to float and the product with the grid, is
    post-processing of that sum (and exact below 2**53).
    """
    steps = np.clip(np.rint(flat / grid), -LARGEST_WEIGHT_STEPS, LARGEST_WEIGHT_STEPS)
    noise = source.gaussian_on_grid(flat.size, sigma, grid, n_threads)
    return np.asarray((steps.astype(np.int64) + noise).astype(np.float64) * grid)
