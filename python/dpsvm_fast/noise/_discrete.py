"""Noise with whole values: discrete Gaussian and discrete Laplace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._arithmetic import in_usual_arithmetic
from dpsvm_fast._validation import check_integer, check_n_threads, check_real
from dpsvm_fast.noise._arguments import check_shape, make_source
from dpsvm_fast.noise._selection import few_bits_down

MAX_SIGMA = 2**40 - 1


@in_usual_arithmetic
def discrete_gaussian(
    shape: int | Sequence[int], sigma: int, random_state: int | None = None
) -> NDArray[np.int64]:
    """Discrete Gaussian noise, sampled exactly, ndarray of shape ``shape``.

    Parameters
    ----------
    shape : int or sequence of int, each >= 0
        Shape of the result.
    sigma : int from 1 to 2**40 - 1
        Parameter of ``P(k)`` proportional to ``exp(-k**2 / (2 sigma**2))``. The standard deviation
        is a little smaller: by 1.1e-7 of it for 1, by less than 1e-31 from 2 on.
    random_state : int from 0 to 2**64 - 1, or None
        None: key from the operating system. An int: reproducible, NOT PRIVATE.

    Returns
    -------
    ndarray of shape ``shape``, int64
        Independent whole numbers.

    Raises
    ------
    TypeError, ValueError
        An argument of the wrong type or outside its range.
    OSError
        The operating system gave no entropy.
    MemoryError
        The result does not fit.

    See Also
    --------
    gaussian_on_grid : a Gaussian that is rounded. The sum of several is no Gaussian that is
        rounded; the sum of several discrete Gaussians is very nearly a discrete Gaussian.

    Notes
    -----
    Guarantees: the law is exact: whole numbers and random bits only
    (docs/proofs/discrete_gaussian.md). (Whole numbers beyond 1024 sigma, of probability below
    2**-700000, are drawn again.) The time of a draw depends on the value drawn, never on any data.

    References
    ----------
    Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.

    Examples
    --------
    >>> from dpsvm_fast.noise import discrete_gaussian
    >>> discrete_gaussian((2, 3), sigma=1024).shape
    (2, 3)
    """
    dims = check_shape(shape)
    sigma = check_integer("sigma", sigma, 1, MAX_SIGMA)
    stream, threads = make_source(random_state), check_n_threads(None)
    return stream.discrete_gaussian(math.prod(dims), sigma, threads).reshape(dims)


@in_usual_arithmetic
def discrete_laplace(
    shape: int | Sequence[int], scale: float, random_state: int | None = None
) -> NDArray[np.int64]:
    """Discrete Laplace noise, sampled exactly, ndarray of shape ``shape``.

    Parameters
    ----------
    shape : int or sequence of int, each >= 0
        Shape of the result.
    scale : float from 2**-20 to 2**30
        b of ``P(k)`` proportional to ``exp(-|k| / b)``; rounded up to 20 bits. Added to a whole
        number of sensitivity s, it costs epsilon = s / b.
    random_state : int from 0 to 2**64 - 1, or None
        None: key from the operating system. An int: reproducible, NOT PRIVATE.

    Returns
    -------
    ndarray of shape ``shape``, int64
        Independent whole numbers.

    Raises
    ------
    TypeError, ValueError
        An argument of the wrong type or outside its range.
    OSError
        The operating system gave no entropy.
    MemoryError
        The result does not fit.

    Notes
    -----
    Guarantees: the law is exact: whole numbers and random bits only. The time of a draw depends on
    the value drawn, never on any data.

    References
    ----------
    Canonne, Kamath and Steinke, NeurIPS 2020, Algorithm 2.

    Examples
    --------
    >>> from dpsvm_fast.noise import discrete_laplace
    >>> discrete_laplace((2, 3), scale=4.0).shape
    (2, 3)
    """
    dims = check_shape(shape)
    number = check_real("scale", scale, low=2.0**-20, high=2.0**30)
    numerator, denominator = (-few_bits_down(-Fraction(number))).as_integer_ratio()
    stream, threads = make_source(random_state), check_n_threads(None)
    drawn = stream.discrete_laplace(math.prod(dims), numerator, denominator, threads)
    return np.asarray(drawn).reshape(dims)
