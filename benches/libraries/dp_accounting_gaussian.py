"""google/differential-privacy's accounting (pip install dp-accounting), where it is installed.

It solves the same inequality (Balle and Wang 2018) at sensitivity 1, to a tolerance of 1e-12.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable


def load() -> Callable[[float, float], float] | None:
    """``gaussian_sigma(epsilon, delta)`` of that library, or None where it is not installed."""
    try:
        module = importlib.import_module("dp_accounting.gaussian_mechanism")
    except ImportError:
        return None
    sigma: Callable[[float, float], float] = module.get_sigma_gaussian
    return sigma
