r"""Pre-processing whose every look at the private rows is a release with an event of its own.

1. *Public map*: features to [0, 1] by public bounds ([-b, b] to [-1, 1]), each row to norm 1.
2. *Centre*: :math:`(\sum_i x_i, a n)` with noise, a = 1/2. One row changes it by at most
   :math:`\sqrt{1 + a^2}`. The noisy mean, shrunk by what noise alone would add to its length, is
   subtracted and rows are scaled to norm 1 again.
3. *Whiten*, where there are enough rows for the noise to be small beside them: :math:`A = X^T X`
   with symmetric Gaussian noise. One row of norm 1 changes A by at most 1 in Frobenius norm.

Whether to whiten is decided by the published size of a data set, so that all shares of the budget
are fixed before a row is read. The noisy count would decide alike on all sets used here, but what
follows a private decision has to be composed adaptively.

Noise is drawn in floating point: these are experiments, not releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import noise
from dpsvm_fast.accounting import GaussianEvent, PrivacyEvent, PureEvent

Array = NDArray[np.float64]
Map = Callable[[Array], Array]

ADJACENCY = "add_remove"
# The count beside the sum of rows of norm 1.
COUNT_SCALE = 0.5
COUNT_SENSITIVITY = math.hypot(1.0, COUNT_SCALE)
# Shares of the squared Gaussian parameter, and of epsilon without Gaussian noise.
CENTRE_SHARE, WHITEN_SHARE, PURE_CENTRE_SHARE = 0.07, 0.10, 0.10
# Whitening needs this many rows a squared dimension, and noise at most this share of the rows.
ROWS_A_SQUARE, LARGEST_NOISE = 0.5, 0.15
# The ridge below the noisy eigenvalues, in units of the norm of the noise.
RIDGE = 0.5


def unit_rows(X: Array) -> Array:
    """Rows of norm 1; rows of zeros stay zero."""
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > 0.0, norms, 1.0)


def public_map(low: Array, high: Array) -> Map:
    """Rows of norm 1, from features clipped to public bounds and brought to a common range."""
    signed = np.array_equal(low, -high)

    def apply(X: Array) -> Array:
        clipped = np.clip(X, low, high)
        return unit_rows(clipped / high if signed else (clipped - low) / (high - low))

    return apply


@dataclass(frozen=True)
class Prepared:
    """A fitted pre-processing.

    Parameters
    ----------
    transform : callable
        From rows of norm 1 to rows of norm 1, by released numbers only.
    events : tuple of PrivacyEvent
        What fitting it released.
    whitened : bool
    """

    transform: Map
    events: tuple[PrivacyEvent, ...] = field(default=())
    whitened: bool = False


def worth_whitening(n_rows: float, n_features: int, mu: float) -> bool:
    """Whether the noise would be small beside the rows, for a published number of them."""
    enough = n_rows >= ROWS_A_SQUARE * n_features**2
    sigma = 1.0 / (math.sqrt(WHITEN_SHARE) * mu)
    return enough and math.sqrt(2.0 * n_features) * sigma <= LARGEST_NOISE * n_rows


def gaussian(X: Array, mu: float, *, whiten: bool, seed: int | None = None) -> Prepared:
    """Centre and perhaps whiten rows of norm 1, for shares of a Gaussian parameter ``mu``."""
    centre_mu, whiten_mu = math.sqrt(CENTRE_SHARE) * mu, math.sqrt(WHITEN_SHARE) * mu
    sigma = COUNT_SENSITIVITY / centre_mu
    drawn = noise.gaussian(X.shape[1] + 1, sigma, seed)
    count = max(1.0, X.shape[0] + float(drawn[-1]) / COUNT_SCALE)
    shift = _centred(X.sum(axis=0) + drawn[:-1], count, X.shape[1] * sigma * sigma)
    event = GaussianEvent(sigma=sigma, sensitivity=COUNT_SENSITIVITY, adjacency=ADJACENCY)
    if not whiten:
        return Prepared(shift, (event,))
    turn = _whitening(shift(X), 1.0 / whiten_mu, None if seed is None else seed + 1)
    second = GaussianEvent(sigma=1.0 / whiten_mu, sensitivity=1.0, adjacency=ADJACENCY)
    return Prepared(lambda rows: unit_rows(shift(rows) @ turn), (event, second), whitened=True)


def pure(X: Array, epsilon: float, n_rows: float, seed: int | None = None) -> Prepared:
    """Centre rows of norm 1 for a share of a pure ``epsilon``; ``n_rows`` is a published number.

    Without the count in the release, one row changes it by at most 1: with noise of this size that
    is worth more than the count.
    """
    share, size = PURE_CENTRE_SHARE * epsilon, X.shape[1]
    drawn = noise.gamma_ball(size, share, seed)
    # The squared norm of the noise has mean size (size + 1) / rate^2.
    shift = _centred(X.sum(axis=0) + drawn, n_rows, size * (size + 1) / share**2)
    return Prepared(shift, (PureEvent(epsilon=share, adjacency=ADJACENCY),))


def _centred(total: Array, count: float, squared_noise: float) -> Map:
    """The map that subtracts the noisy mean.

    ``squared_noise`` is the mean of the squared norm of the noise in the sum.
    """
    # Of the squared length of the noisy sum, this much is noise on average.
    mean = total / count * max(0.0, 1.0 - squared_noise / float(total @ total))
    return lambda rows: unit_rows(rows - mean)


def _whitening(X: Array, sigma: float, seed: int | None) -> Array:
    """Inverse square root of the noisy second moments, of shape (n_features, n_features)."""
    n_features = X.shape[1]
    moments = X.T @ X + noise.symmetric_gaussian(n_features, sigma, seed)
    values, vectors = np.linalg.eigh(moments)
    ridge = RIDGE * sigma * math.sqrt(2.0 * n_features)
    scaled = vectors / np.sqrt(np.maximum(values, 0.0) + ridge)
    return np.asarray(scaled @ vectors.T)
