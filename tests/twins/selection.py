"""Exact probabilities of private choices, by enumeration."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def selection_probabilities(scores: Any, rate: float, law: str) -> Array:
    r"""Exact probabilities of a choice by integer scores, the lowest of which is best.

    Parameters
    ----------
    scores : array-like of shape (n_candidates,)
    rate : float > 0
        Factor of the scores in the exponent.
    law : {"exponential", "permute_and_flip"}

    Returns
    -------
    ndarray of shape (n_candidates,)

    Notes
    -----
    Permute-and-flip visits the candidates in a random order and takes i with probability
    :math:`p_i = e^{-r (z_i - \min z)}`: with times of visit uniform on [0, 1], i is taken with the
    probability :math:`p_i \int_0^1 \prod_{j \ne i} (1 - t p_j) dt`, the integral of a polynomial.
    """
    z = np.asarray(scores, dtype=np.float64)
    p = np.exp(-rate * (z - z.min()))
    if law == "exponential":
        return np.asarray(p / p.sum())
    nodes, weights = np.polynomial.legendre.leggauss(p.size // 2 + 1)
    rejected = 1.0 - np.outer(0.5 * (nodes + 1.0), p)
    found = [np.delete(rejected, i, axis=1).prod(axis=1) @ weights * 0.5 for i in range(p.size)]
    return np.asarray(p * found)


def selection_epsilon(first: Any, second: Any, rate: float, law: str) -> float:
    """Largest log-ratio of the probabilities of any candidate under two vectors of scores."""
    p, q = (selection_probabilities(scores, rate, law) for scores in (first, second))
    return float(np.abs(np.log(p) - np.log(q)).max())
