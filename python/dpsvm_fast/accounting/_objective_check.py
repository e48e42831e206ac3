r"""Delta of noise in the objective, recomputed with NumPy and SciPy for verification.

Follows docs/proofs/objective_perturbation.md, "Recomputed", and shares no numerical code with the
compiled laws: what is returned is an upper bound, on grids of its own. With
:math:`t = 1/\sigma` and the privacy loss at most :math:`U = c_0 + V`, V >= 0,

.. math:: \delta(\epsilon) = E (1 - e^{\epsilon - U})_+
    = \begin{cases} E (1 - e^{e - V})_+ & e = \epsilon - c_0 \ge 0 \\
      1 - e^e (1 - E (1 - e^{-V})_+) & e < 0. \end{cases}
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from dpsvm_fast.accounting._gaussian_check import gaussian_delta, normal_density, normal_excess
from dpsvm_fast.accounting._joint_check import joint_delta, largest_nodes
from dpsvm_fast.accounting._sum_check import conditional_sums, one_score_delta, sum_delta

__all__ = ["jacobian_of", "objective_delta"]

Array = NDArray[np.float64]


@lru_cache(maxsize=4096)
def objective_delta(
    law: str,
    n_scores: int,
    epsilon: float,
    sigma: float,
    *,
    kappa: float | None,
    jacobian: float | None,
    replace_one: bool,
    quickly: bool = False,
) -> float:
    """Delta of one objective event: the smallest of the bounds that are proved for its law.

    ``quickly`` on coarser grids: larger by a thousandth, and still a bound.
    """
    t, K = 1.0 / sigma, n_scores
    if law == "softmax" and K == 2:
        # Only the difference of the two scores matters: one score with all of it doubled.
        law, K, t = "logistic", 1, math.sqrt(2.0) * t
        kappa = None if kappa is None else 2.0 * kappa
    c0 = float(jacobian or 0.0) if kappa is None else _smaller_price(law, K, kappa, t)
    zero = _replaced if replace_one else _added
    bounds = [_shifted(lambda e: zero(law, K, e, t, quickly), epsilon - c0 * (1.0 + 1e-14))]
    if kappa is not None and law == "logistic" and not replace_one:
        bounds.append(
            one_score_delta(epsilon, t, kappa, quickly=quickly)
            if K == 1
            else sum_delta(epsilon, t, K, kappa=kappa, quickly=quickly)
        )
    if kappa is not None and law == "softmax":
        bounds.append(joint_delta(epsilon, t, kappa, K, replace_one=replace_one, quickly=quickly))
    # What the roundings of a closed form may come to, and what underflows.
    return min(1.0, min(bounds) * (1.0 + 1e-12) + 1e-300)


def jacobian_of(law: str, n_scores: int, kappa: float) -> float:
    """c0: the largest log-determinant of one record's Hessian."""
    K = n_scores
    if law == "softmax":
        return (K - 1) * math.log1p(kappa / K)
    if law == "weston_watkins":
        return math.log1p(K * kappa / 2.0) + (K - 2) * math.log1p(kappa / 2.0)
    return K * math.log1p(kappa / 4.0)


def _smaller_price(law: str, K: int, kappa: float, t: float) -> float:
    """c0, less what the quadratic term pays where curvature is u (1 - u) or that of a softmax."""
    half = 0.5 * t * t
    if law == "softmax":
        S = min(max((K - 1) * (1.0 / half - 1.0 / kappa), 0.0), 1.0 - 1.0 / K)
        return (K - 1) * math.log1p(kappa * S / (K - 1)) - half * S
    if law == "logistic":
        g = min(max(1.0 / half - 1.0 / kappa, 0.0), 0.25)
        return K * (math.log1p(kappa * g) - half * g)
    return jacobian_of(law, K, kappa)


def _shifted(zero: Callable[[float], float], e: float) -> float:
    """Delta at e = epsilon - c0 of either sign, from the delta of V at e >= 0."""
    return zero(e) if e >= 0.0 else -math.expm1(e) + math.exp(e) * zero(0.0)


def _added(law: str, K: int, e: float, t: float, quickly: bool = False) -> float:  # noqa: FBT001, FBT002
    """``add_remove`` without a Jacobian, e >= 0."""
    if law == "softmax":
        w, masses = largest_nodes(K - 1)
        return float(masses @ normal_excess(w + t - e / t, t))
    if law == "weston_watkins":
        # Two scores have one difference.
        return gaussian_delta(e, math.sqrt(2.0) * t) if K == 2 else _in_pairs(K, e, t, quickly)
    return gaussian_delta(e, t) if K == 1 else sum_delta(e, t, K, quickly=quickly)


def _in_pairs(K: int, e: float, t: float, quickly: bool) -> float:  # noqa: FBT001
    """``add_remove`` for a loss that is a sum over the other classes."""
    z, masses = _normal_nodes(K)
    shifts = 0.5 * K * t * t - t * z
    return float(masses @ conditional_sums(e, t, K - 1, shifts, np.log(masses), quickly=quickly))


def _replaced_pairs(K: int, x: float, t: float, quickly: bool) -> float:  # noqa: FBT001
    """Twice the excess over x of one record's share of a loss in pairs, ``replace_one``."""
    if K == 2:
        scale = 2.0 * math.sqrt(2.0) * t
        return 2.0 * float(normal_excess(np.array([-x / scale]), scale)[0])
    z, masses = _normal_nodes(K)
    sums = conditional_sums(x, 2.0 * t, K - 1, -2.0 * t * z, np.log(masses), quickly=quickly)
    return 2.0 * float(masses @ sums)


def _replaced(law: str, K: int, e: float, t: float, quickly: bool = False) -> float:  # noqa: FBT001, FBT002
    """``replace_one`` without a Jacobian, e >= 0."""
    if law == "softmax":
        w, masses = largest_nodes(K - 1)
        twice = _doubled(
            e - 4.0 * t * t,
            lambda x: 2.0 * float(masses @ normal_excess(w - x / (2.0 * t), 2.0 * t)),
            t,
        )
        return min(twice, _union_of_extremes(K, e, t))
    if law == "weston_watkins":
        return _doubled(
            e - 2.0 * K * (K - 1) * t * t, lambda x: _replaced_pairs(K, x, t, quickly), K * t
        )
    if K > 1:
        return sum_delta(e, t, K, replace_one=True, quickly=quickly)
    # Two gradients add up, or one of them acts alone; no probability is above 1.
    return _doubled(e, lambda x: gaussian_delta(x, 2.0 * t) + 2.0 * gaussian_delta(x, t), t)


def _doubled(e: float, excess: Callable[[float], float], scale: float) -> float:
    r"""Delta of a loss Y >= 0 whose tail is at most 1, and at most that of ``excess``.

    ``excess(x)`` is :math:`\int_x^\infty e^{x - v} T(v) dv` of a tail T. For every s from e (and 0)
    on, :math:`\delta \le 1 - e^{e - s} + e^{e - s} \, excess(s)`; the least is where T is 1.
    """

    def bound(s: float) -> float:
        return -math.expm1(e - s) + math.exp(e - s) * excess(s)

    low = max(e, 0.0)
    found = bound(low)
    if found > 0.01:
        best = minimize_scalar(
            bound, bounds=(low, low + 8.0 * scale), method="bounded", options={"maxiter": 12}
        )
        found = min(found, float(best.fun))
    return found


def _union_of_extremes(K: int, e: float, t: float) -> float:
    """Union bound over the pairs of extreme gradients of two records."""

    def pairs(scale: float) -> float:
        return gaussian_delta(e, math.sqrt(scale) * t)

    same = _added("softmax", K, e, 2.0 * t) + (K - 1) * (K - 2) * pairs(6.0)
    other = pairs(8.0) + 3 * (K - 2) * pairs(6.0) + (K - 2) * (K - 3) * pairs(4.0)
    return 2.0 * _added("softmax", K, e, t) + max(same, other)


def _normal_nodes(K: int) -> tuple[Array, Array]:
    """Nodes and masses of a standard normal number, far into both tails.

    What is integrated is a mixture of normal densities of variance 1/K; as for the largest one.
    """
    step = math.pi * math.sqrt(2.0 / (42.0 * K))
    z = np.arange(-38.0, 38.0, step)
    return z, step * normal_density(z) * (1.0 + 1e-12)
