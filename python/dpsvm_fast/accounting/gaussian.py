"""Gaussian noise on sums of all records, or of Poisson samples: scale, epsilon and delta.

Each from the others, by the compiled calibration (docs/proofs/analytic_gaussian.md) and the
compiled accountant (docs/proofs/accountant.md).

A sampled step takes every record with probability q, independently of all else, adds up what the
records of this sample contribute, and adds Gaussian noise to the sum, also where the sample is
empty. The noise multiplier z is the standard deviation of the noise over the L2 bound of what ONE
record contributes, for both relations. Under ``replace_one`` one contribution goes and another
comes, so a sum moves by up to twice the bound; the accountant sees to that, the caller must not.
This is said so often because published accountants disagree about it: for the Gaussian mechanism
with noise multiplier 2 and delta = 1e-5 under ``replace_one``, two accountants of one widely used
library return 4.38 and 2.17, the second too small (google/differential-privacy #378).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpsvm_fast import _core
from dpsvm_fast.certificates.events import MAX_STEPS
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.rounding import div_down, mul_up, sqrt_up
from dpsvm_fast.validation import (
    MAX_EPSILON,
    check_adjacency,
    check_epsilon,
    check_fraction,
    check_integer,
    check_positive,
    check_real,
)

# Such an epsilon is vacuous.
VACUOUS_EPSILON = 1e6


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    r"""Return the smallest standard deviation of Gaussian noise for (epsilon, delta).

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    delta : float in (0, 1)
    sensitivity : float > 0
        Largest L2 distance between the noiseless values of neighbouring data sets.

    Returns
    -------
    float
        Standard deviation of each component, in the units of ``sensitivity``.

    Raises
    ------
    TypeError, InvalidParameterError
        An argument has the wrong type or is out of range.

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
    epsilon = check_epsilon("epsilon", epsilon)
    delta = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    sensitivity = check_positive("sensitivity", sensitivity)
    return _usable(
        "sensitivity", sensitivity, mul_up(_core.gaussian_sigma(epsilon, delta), sensitivity)
    )


def gaussian_delta(epsilon: float, sigma: float, sensitivity: float = 1.0) -> float:
    r"""Return the smallest delta of Gaussian noise of a given scale and epsilon.

    Parameters
    ----------
    epsilon : float in [0, 1e4]
    sigma : float > 0
        Standard deviation of each component of the noise.
    sensitivity : float > 0
        Largest L2 distance between the noiseless values of neighbouring data sets.

    Returns
    -------
    float in [0, 1]

    Raises
    ------
    TypeError, InvalidParameterError
        An argument has the wrong type or is out of range.

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
    r"""Return the smallest epsilon of Gaussian noise of a given scale and delta.

    Parameters
    ----------
    delta : float in (0, 1)
    sigma : float > 0
        Standard deviation of each component of the noise.
    sensitivity : float > 0
        Largest L2 distance between the noiseless values of neighbouring data sets.

    Returns
    -------
    float >= 0

    Raises
    ------
    TypeError, InvalidParameterError
        An argument has the wrong type or is out of range.

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
    """Return the noise scale at sensitivity 1, rounded down: a worse guarantee."""
    sigma = check_positive("sigma", sigma)
    return _usable("sigma", sigma, div_down(sigma, check_positive("sensitivity", sensitivity)))


def _usable(name: str, given: float, scale: float) -> float:
    """Refuse a scale beyond the range of floats."""
    if not 0.0 < scale < float("inf"):
        raise InvalidParameterError.of(
            name, got=given, accepted="a value whose noise scale is a positive finite float"
        )
    return scale


def subsampled_gaussian_epsilon(
    noise_multiplier: float,
    sampling_rate: float,
    n_steps: int,
    delta: float,
    adjacency: str = "add_remove",
) -> float:
    r"""Return epsilon of all steps of DP-SGD at a given delta.

    Parameters
    ----------
    noise_multiplier : float > 0
        Standard deviation of each component of the noise over the L2 bound of what ONE record
        contributes to a sum (the clipping norm of DP-SGD), for both relations.
    sampling_rate : float in (0, 1]
        Probability with which each record is in a step, independently of all else. A sample of
        fixed size, or a shuffle cut into batches, is something else.
    n_steps : int in 1..10**9
    delta : float in (0, 1)
    adjacency : {"add_remove", "replace_one"}, default="add_remove"

    Returns
    -------
    float >= 0
        An upper bound; infinity where no epsilon of any use is reached.

    Raises
    ------
    TypeError, InvalidParameterError
        An argument has the wrong type or is out of range.

    Notes
    -----
    Guarantees: all steps together, each chosen freely after the results of the earlier ones, are
    (epsilon, delta)-differentially private for both directions of every pair of neighbours. The
    composition of the pairs

    .. math:: (1-q) N(0, z^2) + q N(1, z^2) \quad\text{and}\quad N(0, z^2)

    in both orders for ``add_remove``, with :math:`(1-q) N(0, z^2) + q N(-1, z^2)` on the right for
    ``replace_one``, dominates them. Its privacy loss is moved to a grid from above, and every
    rounding is upwards (docs/proofs/accountant.md). With ``sampling_rate=1`` this is the Gaussian
    mechanism of :func:`gaussian_epsilon`.

    References
    ----------
    Zhu, Dong and Wang, AISTATS 2022, for the pairs; Doroshenko, Ghazi, Kamath, Kumar and
    Manurangsi, PoPETs 2022, for the grid; Koskela, Jalko and Honkela, AISTATS 2020, for the
    transform; Lebeda, Regehr, Kamath and Steinke, arXiv 2405.20769, for what is not the same.

    Examples
    --------
    >>> from dpsvm_fast.accounting import subsampled_gaussian_epsilon
    >>> round(subsampled_gaussian_epsilon(1.0, 128 / 7000, 600, 1e-5), 2)
    2.75
    >>> round(subsampled_gaussian_epsilon(1.0, 128 / 7000, 600, 1e-5, "replace_one"), 2)
    4.22
    """
    steps = _steps(noise_multiplier, sampling_rate, n_steps, adjacency)
    delta = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    return steps.epsilon(delta)


def subsampled_gaussian_delta(
    noise_multiplier: float,
    sampling_rate: float,
    n_steps: int,
    epsilon: float,
    adjacency: str = "add_remove",
) -> float:
    """Return delta of all steps of DP-SGD at a given epsilon.

    Parameters
    ----------
    noise_multiplier, sampling_rate, n_steps
        As in :func:`subsampled_gaussian_epsilon`.
    epsilon : float in [0, 1e4]
    adjacency
        As in :func:`subsampled_gaussian_epsilon`.

    Returns
    -------
    float in [0, 1]
        An upper bound.

    Raises
    ------
    TypeError, InvalidParameterError
        An argument has the wrong type or is out of range.

    Notes
    -----
    Guarantees: as those of :func:`subsampled_gaussian_epsilon`.

    Examples
    --------
    >>> from dpsvm_fast.accounting import subsampled_gaussian_delta
    >>> subsampled_gaussian_delta(1.0, 128 / 7000, 600, 2.75) < 1e-5
    True
    """
    steps = _steps(noise_multiplier, sampling_rate, n_steps, adjacency)
    return steps.delta(check_real("epsilon", epsilon, low=0.0, high=MAX_EPSILON))


def subsampled_gaussian_noise_multiplier(
    epsilon: float,
    delta: float,
    sampling_rate: float,
    n_steps: int,
    adjacency: str = "add_remove",
) -> float:
    """Return a noise multiplier of DP-SGD for (epsilon, delta).

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    delta : float in (0, 1)
    sampling_rate, n_steps, adjacency
        As in :func:`subsampled_gaussian_epsilon`.

    Returns
    -------
    float
        Standard deviation of each component of the noise over the L2 bound of what ONE record
        contributes to a sum, for both relations.

    Raises
    ------
    TypeError, InvalidParameterError
        An argument has the wrong type or is out of range.

    Notes
    -----
    Guarantees: :func:`subsampled_gaussian_delta` at the returned multiplier is at most ``delta``;
    the search ends on its safe side, so the noise is never too small.

    Examples
    --------
    >>> from dpsvm_fast.accounting import subsampled_gaussian_noise_multiplier
    >>> round(subsampled_gaussian_noise_multiplier(1.0, 1e-5, 128 / 7000, 600), 2)
    1.87
    """
    epsilon = check_epsilon("epsilon", epsilon)
    delta = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    steps = _steps(1.0, sampling_rate, n_steps, adjacency)
    if steps.q == 1.0:
        return mul_up(_core.gaussian_sigma(epsilon, delta), steps.moved)
    return _core.subsampled_gaussian_noise_multiplier(
        epsilon, delta, steps.q, steps.n_steps, steps.replace_one
    )


@dataclass(frozen=True)
class Steps:
    """Steps of one sampled Gaussian sum; z, q and their number were checked."""

    z: float
    q: float
    n_steps: int
    replace_one: bool

    @property
    def is_vacuous(self) -> bool:
        """Whether the steps leak so much that every bound is vacuous.

        A record in a step has a loss of about 1/(2 z^2) + log q there.
        """
        return self.n_steps * self.q * (0.5 / self.z / self.z + math.log(self.q)) > VACUOUS_EPSILON

    def delta(self, epsilon: float) -> float:
        """Return delta at an epsilon."""
        if self.q == 1.0:
            return min(1.0, _core.gaussian_delta(epsilon, self._scale))
        if self.is_vacuous:
            return min(1.0, mul_up(self.q, float(self.n_steps)))
        z, q, n_steps = self.z, self.q, self.n_steps
        return min(1.0, _core.subsampled_gaussian_delta(z, q, n_steps, epsilon, self.replace_one))

    def epsilon(self, delta: float) -> float:
        """Return epsilon at a delta."""
        if self.q == 1.0:
            return _core.gaussian_epsilon(delta, self._scale)
        if self.is_vacuous:
            # As for delta: a record that joins no step leaks nothing.
            return 0.0 if mul_up(self.q, float(self.n_steps)) <= delta else math.inf
        z, q, n_steps = self.z, self.q, self.n_steps
        return _core.subsampled_gaussian_epsilon(z, q, n_steps, delta, self.replace_one)

    @property
    def moved(self) -> float:
        """Noise multipliers of full batches per noise of one Gaussian mechanism, rounded up."""
        return mul_up(sqrt_up(float(self.n_steps)), 2.0 if self.replace_one else 1.0)

    @property
    def _scale(self) -> float:
        """Noise scale, at sensitivity 1, of the Gaussian mechanism equal to full batches."""
        return _usable("noise_multiplier", self.z, div_down(self.z, self.moved))


def _steps(
    noise_multiplier: object, sampling_rate: object, n_steps: object, adjacency: object
) -> Steps:
    """Check what all three have in common."""
    return Steps(
        check_positive("noise_multiplier", noise_multiplier),
        check_fraction("sampling_rate", sampling_rate),
        check_integer("n_steps", n_steps, 1, MAX_STEPS),
        check_adjacency("adjacency", adjacency) == "replace_one",
    )
