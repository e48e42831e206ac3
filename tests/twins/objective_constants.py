r"""Published constants of binary objective perturbation with pure epsilon, step by step.

Slow twins for tests: rows of norm at most 1, a loss with first derivative at most 1 and second
derivative at most c, the mean form :math:`\tfrac1n \sum_i \phi + \tfrac{\Lambda}{2} \|f\|^2 +
\tfrac1n \langle b, f \rangle + \tfrac{\Delta}{2} \|f\|^2`, replacement of one record, and noise of
density proportional to :math:`\exp(-\beta \|b\|)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["PureConstants", "single_factor_constants", "threshold_constants"]


@dataclass(frozen=True)
class PureConstants:
    r"""What a rule decides.

    Parameters
    ----------
    epsilon_1 : float
        Epsilon less the price of the change of variables, before any extra regularisation.
    epsilon_prime : float > 0
        What the noise is calibrated to.
    extra : float >= 0
        Delta, the extra regularisation.
    beta : float > 0
        Rate of the noise: ``epsilon_prime / 2``, as two gradients differ by at most 2.
    """

    epsilon_1: float
    epsilon_prime: float
    extra: float
    beta: float


def threshold_constants(epsilon: float, n: int, Lambda: float, c: float) -> PureConstants:
    r"""Algorithm 2 of Chaudhuri, Monteleoni and Sarwate, JMLR 12 (2011).

    :math:`\epsilon_1 = \epsilon - 2 \log(1 + c / (n \Lambda))` for the noise where that is
    positive; otherwise half of epsilon, with :math:`\Delta = c / (n (e^{\epsilon/4} - 1)) -
    \Lambda`.
    """
    epsilon_1 = epsilon - 2.0 * math.log1p(c / (n * Lambda))
    if epsilon_1 > 0.0:
        return PureConstants(epsilon_1, epsilon_1, 0.0, epsilon_1 / 2.0)
    extra = max(0.0, c / (n * math.expm1(epsilon / 4.0)) - Lambda)
    return PureConstants(epsilon_1, epsilon / 2.0, extra, epsilon / 4.0)


def single_factor_constants(epsilon: float, n: int, Lambda: float, c: float) -> PureConstants:
    r"""One determinant factor instead of two, and never less than half of epsilon for the noise.

    The Jacobians of two neighbours are A + c1 x x^T and A + c2 z z^T with the same A, so their
    determinants differ by a factor of at most :math:`1 + c / (n \Lambda)`, not by its square.
    With less than half of epsilon left, :math:`\Delta = c / (n (e^{\epsilon/2} - 1)) - \Lambda`
    leaves exactly half.
    """
    epsilon_1 = epsilon - math.log1p(c / (n * Lambda))
    if epsilon_1 >= epsilon / 2.0:
        return PureConstants(epsilon_1, epsilon_1, 0.0, epsilon_1 / 2.0)
    extra = max(0.0, c / (n * math.expm1(epsilon / 2.0)) - Lambda)
    return PureConstants(epsilon_1, epsilon / 2.0, extra, epsilon / 4.0)
