r"""The best of K runs of a rho-zCDP mechanism, by Renyi divergences of every order alpha.

For geometric and logarithmic K (Papernot and Steinke, ICLR 2022, Theorem 2), for every
:math:`\hat\alpha \ge 1`,

.. math:: \tau_A = \alpha \rho + (1 + \eta) \left[(\hat\alpha - 1) \rho +
    \frac{\log(1/\gamma)}{\hat\alpha}\right] + \frac{\log E[K]}{\alpha - 1},

so delta is that of zCDP at epsilon less the middle term, times E[K]. For Poisson K with mean m
(Theorem 6), :math:`\tau_A = \alpha \rho + m \delta_\rho(\log(1 + 1/(\alpha - 1))) + \log(m) /
(\alpha - 1)`. Better than the bounds of ``_random_stopping.py`` in a few cases only, where nothing
but rho is known of a run.
"""

from __future__ import annotations

import math

from dpsvm_fast._rounding import mul_up
from dpsvm_fast.accounting._random_stopping import StoppingLaw
from dpsvm_fast.accounting._zcdp import ERROR, best_order, log_factor, zcdp_delta

__all__ = ["stopped_zcdp_delta"]

# A larger rho promises nothing.
LARGEST_RHO = 1e3


def stopped_zcdp_delta(law: StoppingLaw, rho: float, epsilon: float) -> float:
    """Upper bound of delta at ``epsilon`` of any sign of the best run of a rho-zCDP mechanism."""
    if not 0.0 < rho <= LARGEST_RHO:
        return 1.0
    if law.kind == "poisson":
        return _poisson_delta(law, rho, epsilon)
    power = 2.0 if law.kind == "geometric" else 1.0
    rarity = -math.log(law.gamma)
    order = max(1.0, math.sqrt(rarity / rho))
    middle = power * ((order - 1.0) * rho + rarity / order) * (1.0 + ERROR)
    mean = law.expected * (1.0 + ERROR)
    left = epsilon - middle - ERROR * (1.0 + abs(epsilon))
    return min(1.0, mul_up(mean, zcdp_delta(rho, left))) if left > 0.0 else 1.0


def _poisson_delta(law: StoppingLaw, rho: float, epsilon: float) -> float:
    """Delta for a Poisson number of runs."""
    log_mean = math.log(law.mean)

    def log_delta(u: float) -> float:
        a = math.exp(float(u))
        near = zcdp_delta(rho, math.log1p(1.0 / a) * (1.0 - ERROR))
        moved, asked = a * ((1.0 + a) * rho + law.mean * near), a * epsilon
        factor = log_factor(a) - u + log_mean
        return moved - asked + factor + ERROR * (1.0 + moved + abs(asked) + abs(factor) + abs(u))

    best = best_order(log_delta)
    return math.exp(best) if best < 0.0 else 1.0
