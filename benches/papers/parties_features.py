"""Rows of digits as parties would hold them: features of a public map, learned from other digits.

As Distributed DP-Helmet takes features of a network trained on public pictures, the map here is
learned from another collection: components of USPS (its training part), applied to MNIST cut to
the same frame. On top of it random Fourier features, which need no data at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from benches.datasets import unit_rows
from benches.papers.data import load
from dpsvm_fast import RandomFourierFeatures

Array = NDArray[np.float64]

# Side of a USPS picture, and the frame of an MNIST one that it shows.
SIDE, FRAME = 16, slice(4, 24)
N_COMPONENTS = 64
# Directions of small variance are stretched by the fourth root of their share.
STRETCH = 0.25
N_FOURIER, GAMMA, SEED = 1000, 1.0, 1


@dataclass(frozen=True, eq=False)
class Digits:
    """MNIST through the public map.

    Parameters
    ----------
    X, X_test : ndarray of shape (60000, n_features), (10000, n_features)
        Rows of norm 1.
    y, y_test : ndarray of int64
    """

    X: Array
    y: NDArray[np.int64]
    X_test: Array
    y_test: NDArray[np.int64]


@lru_cache(maxsize=2)
def digits(features: str) -> Digits | None:
    """MNIST by ``features``, "components" or "fourier"; None where a data set is missing."""
    private, public = load("mnist"), load("usps")
    if private is None or public is None or private.is_train is None or public.is_train is None:
        return None
    other = public.X[public.is_train]
    other = (other - public.low) / (public.high - public.low)
    centre = other.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(other.T))
    matrix = vectors[:, -N_COMPONENTS:] * values[-N_COMPONENTS:] ** -STRETCH
    rows = unit_rows((_framed(private.X / 255.0) - centre) @ matrix)
    if features == "fourier":
        lift = RandomFourierFeatures(N_FOURIER, GAMMA, random_state=SEED)
        rows = np.asarray(lift.fit_transform(rows))
    train = private.is_train
    return Digits(rows[train], private.y[train], rows[~train], private.y[~train])


def _framed(X: Array) -> Array:
    """Pictures of 28 x 28 points as 16 x 16, without their margin."""
    pictures = X.reshape(len(X), 28, 28)[:, FRAME, FRAME]
    factor = SIDE / pictures.shape[1]
    return ndimage.zoom(pictures, (1, factor, factor), order=1).reshape(len(X), -1)
