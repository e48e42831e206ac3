"""Rows as parties would hold them: features of a public map, learned from other pictures.

Distributed DP-Helmet takes features of a network trained on public pictures: cifar10_simclr.npz
where somebody supplies it. For MNIST the map is learned from another collection: components of USPS
(its training part), applied to MNIST cut to the same frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from benches.datasets import unit_rows
from benches.papers.data import load

Array = NDArray[np.float64]

# Side of a USPS picture, and the frame of an MNIST one that it shows.
SIDE, FRAME = 16, slice(4, 24)
N_COMPONENTS = 64
# Directions of small variance are stretched by the fourth root of their share.
STRETCH = 0.25
# Where a file has no official split, its last rows are the test part.
N_TEST = 10_000


@dataclass(frozen=True, eq=False)
class Features:
    """A data set through its public map.

    Parameters
    ----------
    X, X_test : ndarray of shape (n_samples, n_features)
        Rows of norm 1.
    y, y_test : ndarray of int64
    n_classes : int
    """

    X: Array
    y: NDArray[np.int64]
    X_test: Array
    y_test: NDArray[np.int64]
    n_classes: int


@lru_cache(maxsize=1)
def features_of(name: str) -> Features | None:
    """The rows of "mnist" or of a file of features; None where a data set is missing."""
    private = load(name)
    if private is None:
        return None
    rows = private.X
    if name == "mnist":
        public = load("usps")
        if public is None or public.is_train is None:
            return None
        other = public.X[public.is_train]
        other = (other - public.low) / (public.high - public.low)
        rows = (_framed(rows / 255.0) - other.mean(axis=0)) @ components(other)
    rows = unit_rows(rows)
    train = private.is_train
    if train is None:
        train = np.arange(len(rows)) < len(rows) - N_TEST
    y = private.y
    return Features(rows[train], y[train], rows[~train], y[~train], private.n_classes)


def components(other: Array) -> Array:
    """Matrix onto the principal components of public rows."""
    values, vectors = np.linalg.eigh(np.cov(other.T))
    return np.asarray(vectors[:, -N_COMPONENTS:] * values[-N_COMPONENTS:] ** -STRETCH)


def _framed(X: Array) -> Array:
    """Pictures of 28 x 28 points as 16 x 16, without their margin."""
    pictures = X.reshape(len(X), 28, 28)[:, FRAME, FRAME]
    factor = SIDE / pictures.shape[1]
    return ndimage.zoom(pictures, (1, factor, factor), order=1).reshape(len(X), -1)
