"""The noise distributions of the mechanisms, for direct use.

Without a seed, every call takes a fresh key from the operating system and expands it with ChaCha20.
A seed makes the noise reproducible by everyone who knows it: use seeds in tests only. Results do
not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsvm_fast import _core
from dpsvm_fast import validation as check
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError
from dpsvm_fast.rounding import fraction_down

# Checks of the arguments of noise, and the source that it is drawn from.
__all__ = [
    "discrete_gaussian",
    "discrete_laplace",
    "exponential_mechanism",
    "gamma_ball",
    "gaussian",
    "gaussian_on_grid",
    "permute_and_flip",
    "symmetric_gaussian",
]


_MIN_SIGMA, _MAX_SIGMA = 1e-290, 1e300

MAX_SIDE = 2**63 - 1


def make_source(random_state: int | None) -> _core.NoiseSource:
    """Create a noise source; drawing from it requires the default floating-point mode."""
    return _core.NoiseSource(check.check_random_state("random_state", random_state))


def check_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return `shape` as a tuple whose product is a valid array size."""
    sides = shape if isinstance(shape, (tuple, list)) else (shape,)
    dims = tuple(check.check_integer("shape", side, 0, MAX_SIDE) for side in sides)
    if math.prod(dims) > MAX_SIDE:
        raise InvalidParameterError(f"shape: got {dims}, expected at most {MAX_SIDE} entries")
    return dims


def check_sigma(sigma: float) -> float:
    """Return `sigma` as 0 or a positive float in the representable range."""
    number = check.check_real("sigma", sigma, low=0.0, high=_MAX_SIGMA)
    if 0.0 < number < _MIN_SIGMA:
        raise InvalidParameterError(
            f"sigma: got {number}, expected 0 or a number from {_MIN_SIGMA} to {_MAX_SIGMA}"
        )
    return number


def _drawn(
    method: str, shape: int | Sequence[int], random_state: int | None, *parameters: float
) -> NDArray[Any]:
    """Return an array of this shape, drawn by a method of a fresh source."""
    dims = check_shape(shape)
    draw = getattr(make_source(random_state), method)
    drawn = draw(math.prod(dims), *parameters, check.check_n_threads("n_threads", None))
    return np.asarray(drawn).reshape(dims)


# Noise with whole values: discrete Gaussian and discrete Laplace.


MAX_SIGMA = 2**40 - 1


@in_usual_arithmetic
def discrete_gaussian(
    shape: int | Sequence[int], sigma: int, random_state: int | None = None
) -> NDArray[np.int64]:
    """Draw exact discrete Gaussian noise, ndarray of shape ``shape``.

    Parameters
    ----------
    shape : int or sequence of int, each >= 0
        Shape of the result.
    sigma : int from 1 to 2**40 - 1
        Parameter of ``P(k)`` proportional to ``exp(-k**2 / (2 sigma**2))``. The standard deviation
        is slightly smaller: by a relative 1.1e-7 for sigma = 1 and by less than 1e-31 from sigma =
        2 on.
    random_state : int from 0 to 2**64 - 1, or None
        None takes a key from the operating system. An int gives reproducible noise: NOT PRIVATE.

    Returns
    -------
    ndarray of shape ``shape``, int64
        Independent integers.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is outside its range.
    OSError
        The operating system provides no entropy.
    MemoryError
        The result does not fit into memory.

    See Also
    --------
    gaussian_on_grid : a rounded Gaussian. A sum of rounded Gaussians is not a rounded Gaussian; a
        sum of discrete Gaussians is very nearly a discrete Gaussian.

    Notes
    -----
    Guarantees: the distribution is exact, because the sampler uses only integers and random bits
    (docs/proofs/discrete_gaussian.md). Values beyond 1024 sigma, of probability below 2**-700000,
    are redrawn. The time of a draw depends on the value drawn, never on data.

    References
    ----------
    Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.

    Examples
    --------
    >>> from dpsvm_fast.noise import discrete_gaussian
    >>> discrete_gaussian((2, 3), sigma=1024).shape
    (2, 3)
    """
    sigma = check.check_integer("sigma", sigma, 1, MAX_SIGMA)
    return _drawn("discrete_gaussian", shape, random_state, sigma)


@in_usual_arithmetic
def discrete_laplace(
    shape: int | Sequence[int], scale: float, random_state: int | None = None
) -> NDArray[np.int64]:
    """Draw exact discrete Laplace noise, ndarray of shape ``shape``.

    Parameters
    ----------
    shape : int or sequence of int, each >= 0
        Shape of the result.
    scale : float from 2**-20 to 2**30
        Scale b of ``P(k)`` proportional to ``exp(-|k| / b)``, rounded up to 20 bits. Added to an
        integer of sensitivity s, the noise costs epsilon = s / b.
    random_state : int from 0 to 2**64 - 1, or None
        None takes a key from the operating system. An int gives reproducible noise: NOT PRIVATE.

    Returns
    -------
    ndarray of shape ``shape``, int64
        Independent integers.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is outside its range.
    OSError
        The operating system provides no entropy.
    MemoryError
        The result does not fit into memory.

    Notes
    -----
    Guarantees: the distribution is exact, because the sampler uses only integers and random bits.
    The time of a draw depends on the value drawn, never on data.

    References
    ----------
    Canonne, Kamath and Steinke, NeurIPS 2020, Algorithm 2.

    Examples
    --------
    >>> from dpsvm_fast.noise import discrete_laplace
    >>> discrete_laplace((2, 3), scale=4.0).shape
    (2, 3)
    """
    number = check.check_real("scale", scale, low=2.0**-20, high=2.0**30)
    rounded_up = -few_bits_down(-Fraction(number))
    return _drawn("discrete_laplace", shape, random_state, *rounded_up.as_integer_ratio())


# Noise with real values: Gaussian, Gaussian on a grid, Gamma-ball, symmetric Gaussian.


@in_usual_arithmetic
def gaussian(
    shape: int | Sequence[int], sigma: float, random_state: int | None = None
) -> NDArray[np.float64]:
    """Draw Gaussian noise in floating point, ndarray of shape ``shape``.

    Parameters
    ----------
    shape : int or sequence of int, each >= 0
        Shape of the result.
    sigma : float, 0 or from 1e-290 to 1e300
        Standard deviation.
    random_state : int from 0 to 2**64 - 1, or None
        None takes a key from the operating system. An int gives reproducible noise: NOT PRIVATE.

    Returns
    -------
    ndarray of shape ``shape``, float64
        Independent draws of N(0, sigma**2); exact zeros for ``sigma=0``.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is outside its range.
    OSError
        The operating system provides no entropy.
    MemoryError
        The result does not fit into memory.

    See Also
    --------
    gaussian_on_grid : the exact distribution, for releases.

    Notes
    -----
    Guarantees: entries are independent and follow N(0, sigma**2) up to double-precision rounding.
    That rounding can leak the value that the noise was added to (Mironov 2012), so a proof in real
    arithmetic does not cover a release with this noise.

    Examples
    --------
    >>> from dpsvm_fast.noise import gaussian
    >>> gaussian((2, 3), sigma=1.0).shape
    (2, 3)
    """
    return _drawn("gaussian", shape, random_state, check_sigma(sigma))


@in_usual_arithmetic
def gaussian_on_grid(
    shape: int | Sequence[int], sigma: float, grid: float, random_state: int | None = None
) -> NDArray[np.float64]:
    """Draw Gaussian noise rounded to a grid, exactly, ndarray of shape ``shape``.

    Parameters
    ----------
    shape : int or sequence of int, each >= 0
        Shape of the result.
    sigma : float, 0 or from 1e-290 to 1e300
        Standard deviation before rounding.
    grid : float, a power of two
        Spacing of the possible values; ``sigma / grid`` must lie between 2**-20 and 2**46.
    random_state : int from 0 to 2**64 - 1, or None
        None takes a key from the operating system. An int gives reproducible noise: NOT PRIVATE.

    Returns
    -------
    ndarray of shape ``shape``, float64
        Independent multiples of ``grid``; exact zeros for ``sigma=0``.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is outside its range.
    OSError
        The operating system provides no entropy.
    MemoryError
        The result does not fit into memory.

    Notes
    -----
    Guarantees: each entry follows the distribution of ``grid * round(Z / grid)`` exactly, with Z ~
    N(0, sigma**2), and every value is exact in float64. The sampler uses only integers and random
    bits (docs/proofs/grid_gaussian.md; tested against Karney's exact sampler), so no floating-point
    caveat applies to the noise itself. To keep a release exact, add the noise to multiples of
    ``grid`` without rounding. Values beyond 1024 sigma, of probability below 2**-700000, are
    redrawn. The time of a draw depends on the value drawn, never on data.

    References
    ----------
    Karney, "Sampling exactly from the normal distribution", ACM TOMS 42 (2016).

    Examples
    --------
    >>> from dpsvm_fast.noise import gaussian_on_grid
    >>> noise = gaussian_on_grid(1000, sigma=1.0, grid=2.0**-20)
    >>> bool((noise * 2.0**20 % 1 == 0).all())
    True
    """
    sigma, grid = check_sigma(sigma), check.check_positive("grid", grid)
    multiples = _drawn("gaussian_on_grid", shape, random_state, sigma, grid)
    return np.asarray(multiples * np.float64(grid))


@in_usual_arithmetic
def gamma_ball(
    shape: int | Sequence[int], beta: float, random_state: int | None = None
) -> NDArray[np.float64]:
    """Draw one array b with density proportional to exp(-beta ||b||), of shape ``shape``.

    Parameters
    ----------
    shape : int or sequence of int, each >= 0
        Shape of the result; the norm is taken over all its entries (Frobenius).
    beta : float > 0
        Rate: the norm has mean ``size / beta``. At most 1e290, and large enough that the norm is a
        finite float64.
    random_state : int from 0 to 2**64 - 1, or None
        None takes a key from the operating system. An int gives reproducible noise: NOT PRIVATE.

    Returns
    -------
    ndarray of shape ``shape``, float64
        The norm is Gamma with shape parameter ``size`` and rate ``beta``; the direction is uniform
        on the sphere and independent of the norm.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is outside its range.
    OSError
        The operating system provides no entropy.
    MemoryError
        The result does not fit into memory.

    Notes
    -----
    Guarantees: the result is finite for every accepted ``beta``. The distribution holds up to
    double-precision rounding, so a proof in real arithmetic does not cover the low bits of a
    release.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate, JMLR 12 (2011), Algorithm 1.

    Examples
    --------
    >>> from dpsvm_fast.noise import gamma_ball
    >>> gamma_ball((10, 4), beta=0.5).shape
    (10, 4)
    """
    return _drawn("gamma_ball", shape, random_state, check.check_positive("beta", beta))


@in_usual_arithmetic
def symmetric_gaussian(
    d: int, sigma: float, random_state: int | None = None
) -> NDArray[np.float64]:
    """Draw a symmetric Gaussian matrix, ndarray of shape (d, d).

    Parameters
    ----------
    d : int >= 0
        Side of the matrix.
    sigma : float, 0 or from 1e-290 to 1e300
        Standard deviation of the diagonal entries; off-diagonal entries have ``sigma / sqrt(2)``.
    random_state : int from 0 to 2**64 - 1, or None
        None takes a key from the operating system. An int gives reproducible noise: NOT PRIVATE.

    Returns
    -------
    ndarray of shape (d, d), float64
        Exactly symmetric, with independent entries on and above the diagonal: the isotropic
        Gaussian on symmetric matrices with the Frobenius norm.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is outside its range.
    OSError
        The operating system provides no entropy.
    MemoryError
        The result does not fit into memory.

    Notes
    -----
    Guarantees: those of `gaussian`: independent entries, distributed as stated up to
    double-precision rounding.

    Examples
    --------
    >>> from dpsvm_fast.noise import symmetric_gaussian
    >>> noise = symmetric_gaussian(5, sigma=1.0)
    >>> bool((noise == noise.T).all())
    True
    """
    side = check.check_integer("d", d, 0, MAX_SIDE)
    sigma = check_sigma(sigma)
    n_threads = check.check_n_threads("n_threads", None)
    return make_source(random_state).symmetric_gaussian(side, sigma, n_threads)


# Choices among scores with exact probabilities.


# Bits of the rates of choices and of the scales of discrete noise.
RATE_BITS = 20


@in_usual_arithmetic
def exponential_mechanism(
    scores: ArrayLike,
    epsilon: float,
    sensitivity: int = 1,
    *,
    monotonic: bool = False,
    random_state: int | None = None,
) -> int:
    """Draw an index by the exponential mechanism; low scores are likely.

    Parameters
    ----------
    scores : array-like of int, shape (n_candidates,)
        Private scores, lower is better, such as numbers of errors. Differences must be below 2**32.
    epsilon : float in (0, 1e4]
        Privacy cost of the choice; the actual cost is at most a relative 1e-6 lower.
    sensitivity : int >= 1
        Largest change of a score by one record.
    monotonic : bool, default=False
        Whether one record changes all scores in the same direction, as an added record changes
        error counts. The choice is then twice as sharp for the same epsilon.
    random_state : int from 0 to 2**64 - 1, or None
        None takes a key from the operating system. An int gives reproducible noise: NOT PRIVATE.

    Returns
    -------
    int
        Index i with probability proportional to ``exp(-r scores[i])``, r the rate that epsilon
        allows.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is outside its range; no message quotes a score.
    OSError
        The operating system provides no entropy.

    See Also
    --------
    permute_and_flip : never worse at the same epsilon.

    Notes
    -----
    Guarantees: epsilon-differential privacy with delta = 0. Probabilities are exact: the rate is
    rounded down to 20 bits, so that its products with integers are exact, and coins of probability
    exp(-x) are tossed with integers and random bits only.

    References
    ----------
    McSherry and Talwar, FOCS 2007.

    Examples
    --------
    >>> from dpsvm_fast.noise import exponential_mechanism
    >>> exponential_mechanism([500, 20, 400], epsilon=1.0, monotonic=True)
    1
    """
    rate = _selection_rate(epsilon, sensitivity, monotonic=monotonic)
    return make_source(random_state).exponential_choice(_check_scores(scores), rate)


@in_usual_arithmetic
def permute_and_flip(
    scores: ArrayLike,
    epsilon: float,
    sensitivity: int = 1,
    *,
    monotonic: bool = False,
    random_state: int | None = None,
) -> int:
    """Draw an index by permute-and-flip; low scores are likely.

    Candidates are visited in random order; candidate i is accepted with probability
    ``exp(-r (scores[i] - min(scores)))``, r the rate that epsilon allows.

    Parameters
    ----------
    scores : array-like of int, shape (n_candidates,)
        Private scores, lower is better. Differences must be below 2**32.
    epsilon : float in (0, 1e4]
        Privacy cost of the choice; the actual cost is at most a relative 1e-6 lower.
    sensitivity : int >= 1
        Largest change of a score by one record.
    monotonic : bool, default=False
        Whether one record changes all scores in the same direction.
    random_state : int from 0 to 2**64 - 1, or None
        None takes a key from the operating system. An int gives reproducible noise: NOT PRIVATE.

    Returns
    -------
    int

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or is outside its range; no message quotes a score.
    OSError
        The operating system provides no entropy.

    Notes
    -----
    Guarantees: epsilon-differential privacy with delta = 0, with exact probabilities as in
    `exponential_mechanism`. The expected score is never larger than with `exponential_mechanism`,
    but the mechanism is not known to have the smaller Renyi divergences of `exponential_mechanism`.

    References
    ----------
    McKenna and Sheldon, NeurIPS 2020.

    Examples
    --------
    >>> from dpsvm_fast.noise import permute_and_flip
    >>> permute_and_flip([500, 20, 400], epsilon=1.0, monotonic=True)
    1
    """
    rate = _selection_rate(epsilon, sensitivity, monotonic=monotonic)
    return make_source(random_state).permute_and_flip(_check_scores(scores), rate)


def few_bits_down(x: Fraction) -> float:
    """Return x rounded down to 20 significant bits, but not to 0.

    The product of such a rate and a difference of scores is exact in double precision.
    """
    size = abs(x)
    # The size is below this power of two, and not below a quarter of it.
    exponent = size.numerator.bit_length() - size.denominator.bit_length() + 1
    unit = Fraction(2) ** (exponent - RATE_BITS)
    return fraction_down(math.floor(x / unit) * unit)


def _selection_rate(epsilon: float, sensitivity: int, *, monotonic: bool) -> float:
    """Return the rate of a choice with the given epsilon."""
    factor = 1 if check.check_bool("monotonic", monotonic) else 2
    moved = factor * check.check_integer("sensitivity", sensitivity, 1, 2**31)
    return few_bits_down(Fraction(check.check_epsilon("epsilon", epsilon)) / moved)


def _check_scores(scores: ArrayLike) -> NDArray[np.int64]:
    """Return scores as an int64 array; they are private, so errors do not quote them."""
    array = np.asarray(scores)
    if array.ndim != 1 or not array.size or not np.can_cast(array.dtype, np.int64):
        raise InvalidTypeError(
            "scores: expected a non-empty vector of integers, one for each candidate"
        )
    return np.ascontiguousarray(array, dtype=np.int64)
