"""numpy's floating-point noise, for orientation: neither exact nor from a cryptographic source.

The Gaussian has the same sigma as ours; the Gamma-radius vector has the same law, density
proportional to exp(-beta ||b||): a Gamma(size, 1/beta) radius times a uniform direction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def gaussian(rng: np.random.Generator, size: int, sigma: float) -> NDArray[np.float64]:
    """Independent normal draws."""
    return rng.normal(0.0, sigma, size)


def gamma_ball(rng: np.random.Generator, size: int, beta: float) -> NDArray[np.float64]:
    """One vector with Gamma radius and uniform direction."""
    direction = rng.standard_normal(size)
    direction *= rng.gamma(size, 1.0 / beta) / np.linalg.norm(direction)
    return direction
