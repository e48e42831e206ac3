"""The Gaussian mechanism: noise scale, epsilon and delta, each from the other two.

Thin shells around the compiled calibration: they check the arguments and scale by the sensitivity.
Proved in docs/proofs/analytic_gaussian.md.
"""

from __future__ import annotations

from dpsvm_fast import _core
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.rounding import div_down, mul_up
from dpsvm_fast.validation import MAX_EPSILON, check_epsilon, check_positive, check_real


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    r"""Smallest standard deviation of Gaussian noise for an (epsilon, delta) guarantee.

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    delta : float in (0, 1)
    sensitivity : float > 0
        L2 distance between what neighbouring data sets hand to the noise.

    Returns
    -------
    float
        Standard deviation of each component, in the units of ``sensitivity``.

    Raises
    ------
    TypeError, InvalidParameterError
        An argument of another type, or outside its range.

    Notes
    -----
    Guarantees: the smallest sigma with

    .. math:: \Phi(\tfrac{1}{2s} - \epsilon s) - e^\epsilon \Phi(-\tfrac{1}{2s} - \epsilon s)
        \le \delta, \qquad s = \sigma / \text{sensitivity},

    up to rounding, and all rounding is towards more noise. It holds for noise in real arithmetic
    and for noise drawn exactly on a grid, for every dimension.

    References
    ----------
    Balle and Wang, ICML 2018, Theorem 8.

    Examples
    --------
    >>> from dpsvm_fast.accounting import gaussian_sigma
    >>> round(gaussian_sigma(1.0, 1e-6), 4)
    4.2247
    """
    epsilon = check_epsilon(epsilon)
    delta = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    sensitivity = check_positive("sensitivity", sensitivity)
    return _usable(
        "sensitivity", sensitivity, mul_up(_core.gaussian_sigma(epsilon, delta), sensitivity)
    )


def gaussian_delta(epsilon: float, sigma: float, sensitivity: float = 1.0) -> float:
    r"""Smallest delta of Gaussian noise of a given scale, at a given epsilon.

    Parameters
    ----------
    epsilon : float in [0, 1e4]
    sigma : float > 0
        Standard deviation of each component of the noise.
    sensitivity : float > 0
        L2 distance between what neighbouring data sets hand to the noise.

    Returns
    -------
    float in [0, 1]

    Raises
    ------
    TypeError, InvalidParameterError
        An argument of another type, or outside its range.

    Notes
    -----
    Guarantees: at least the true value of the expression in :func:`gaussian_sigma`; rounded up.

    References
    ----------
    Balle and Wang, ICML 2018, Theorem 8.

    Examples
    --------
    >>> from dpsvm_fast.accounting import gaussian_delta
    >>> round(gaussian_delta(1.0, 2.0), 6)
    0.00683
    """
    epsilon = check_real("epsilon", epsilon, low=0.0, high=MAX_EPSILON)
    return min(1.0, _core.gaussian_delta(epsilon, _multiplier(sigma, sensitivity)))


def gaussian_epsilon(delta: float, sigma: float, sensitivity: float = 1.0) -> float:
    r"""Smallest epsilon of Gaussian noise of a given scale, at a given delta.

    Parameters
    ----------
    delta : float in (0, 1)
    sigma : float > 0
        Standard deviation of each component of the noise.
    sensitivity : float > 0
        L2 distance between what neighbouring data sets hand to the noise.

    Returns
    -------
    float >= 0

    Raises
    ------
    TypeError, InvalidParameterError
        An argument of another type, or outside its range.

    Notes
    -----
    Guarantees: at least the smallest epsilon for which the inequality of :func:`gaussian_sigma`
    holds; rounded up.

    References
    ----------
    Balle and Wang, ICML 2018, Theorem 8.

    Examples
    --------
    >>> from dpsvm_fast.accounting import gaussian_epsilon
    >>> round(gaussian_epsilon(1e-6, 4.3), 4)
    0.9811
    """
    delta = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    return _core.gaussian_epsilon(delta, _multiplier(sigma, sensitivity))


def _multiplier(sigma: object, sensitivity: object) -> float:
    """Noise scale at sensitivity 1, rounded towards less noise, hence a worse guarantee."""
    sigma = check_positive("sigma", sigma)
    return _usable("sigma", sigma, div_down(sigma, check_positive("sensitivity", sensitivity)))


def _usable(name: str, given: float, scale: float) -> float:
    """Refuses a scale that left the range of the floats."""
    if not 0.0 < scale < float("inf"):
        raise InvalidParameterError.of(
            name, got=given, accepted="a value whose noise scale is a positive finite float"
        )
    return scale
