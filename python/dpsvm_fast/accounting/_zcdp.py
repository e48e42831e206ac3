r"""Zero-concentrated differential privacy as (epsilon, delta), and Renyi divergences in general.

A release whose Renyi divergences of order alpha between neighbours are at most tau has

.. math:: \delta \le \frac{e^{(\alpha - 1)(\tau - \epsilon)}}{\alpha - 1} (1 - 1/\alpha)^\alpha

for every alpha > 1 (Canonne, Kamath and Steinke, NeurIPS 2020, Proposition 12), here with
:math:`\tau = \alpha \rho`. Every order gives a bound, so a search for the best may end anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import minimize_scalar

__all__ = ["ERROR", "best_order", "log_factor", "zcdp_delta", "zcdp_epsilon"]

# Logarithms of alpha - 1 between which the best order is sought.
LOWEST, HIGHEST = -30.0, 30.0
# A larger rho promises nothing that anyone could use.
LARGEST_RHO = 1e8
# More than all rounding errors of the formulas, relative to the largest number in them.
ERROR = 1e-13


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Upper bound of delta at ``epsilon >= 0`` of a rho-zCDP release."""
    if not rho <= LARGEST_RHO:
        return 1.0

    def log_delta(u: float) -> float:
        a = math.exp(float(u))
        first, second = a * (1.0 + a) * rho, a * epsilon
        third = log_factor(a) - u
        return first - second + third + ERROR * (1.0 + first + second + abs(third))

    best = best_order(log_delta)
    return math.exp(best) if best < 0.0 else 1.0


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Upper bound of epsilon at ``delta`` of a rho-zCDP release."""
    if delta == 0.0 or not rho <= LARGEST_RHO:
        return math.inf
    wanted = -math.log(delta)

    def epsilon(u: float) -> float:
        a = math.exp(float(u))
        first, factor = (1.0 + a) * rho, log_factor(a)
        value = first + (wanted + factor - u) / a
        return value + ERROR * (first + (abs(wanted) + abs(factor) + abs(u)) / a)

    return max(0.0, best_order(epsilon))


def log_factor(a: float) -> float:
    """Logarithm of (1 - 1/alpha)^alpha at alpha = 1 + a."""
    return -(1.0 + a) * math.log1p(1.0 / a)


def best_order(f: Callable[[float], float]) -> float:
    """About the least value of a function of log(alpha - 1) with one valley; a value anyway."""
    found = minimize_scalar(f, bounds=(LOWEST, HIGHEST), method="bounded", options={"xatol": 1e-9})
    return float(found.fun)
