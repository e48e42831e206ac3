"""Noise with real values: Gaussian, Gaussian on a grid, Gamma-ball, symmetric Gaussian."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._arithmetic import in_usual_arithmetic
from dpsvm_fast._validation import check_integer, check_n_threads, check_positive
from dpsvm_fast.noise._arguments import MAX_SIDE, check_shape, check_sigma, make_source


@in_usual_arithmetic
def gaussian(
    shape: int | Sequence[int], sigma: float, random_state: int | None = None
) -> NDArray[np.float64]:
    """Gaussian noise in floating point, ndarray of shape ``shape``.

    Parameters
    ----------
    shape : int or sequence of int, each >= 0
        Shape of the result.
    sigma : float, 0 or from 1e-290 to 1e300
        Standard deviation.
    random_state : int from 0 to 2**64 - 1, or None
        None: key from the operating system. An int: reproducible, NOT PRIVATE.

    Returns
    -------
    ndarray of shape ``shape``, float64
        Independent draws of N(0, sigma**2); exact zeros for ``sigma=0``.

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
    gaussian_on_grid : the exact law, for releases.

    Notes
    -----
    Guarantees: independent entries; the law is that of N(0, sigma**2) up to the rounding of double
    precision. That rounding can leak the value the noise was added to (Mironov 2012), so a proof
    in real arithmetic does not cover a release with this noise.

    Examples
    --------
    >>> from dpsvm_fast.noise import gaussian
    >>> gaussian((2, 3), sigma=1.0).shape
    (2, 3)
    """
    dims = check_shape(shape)
    sigma = check_sigma(sigma)
    stream = make_source(random_state)
    return stream.gaussian(math.prod(dims), sigma, check_n_threads(None)).reshape(dims)


@in_usual_arithmetic
def gaussian_on_grid(
    shape: int | Sequence[int], sigma: float, grid: float, random_state: int | None = None
) -> NDArray[np.float64]:
    """Gaussian noise rounded to a grid, sampled exactly, ndarray of shape ``shape``.

    Parameters
    ----------
    shape : int or sequence of int, each >= 0
        Shape of the result.
    sigma : float, 0 or from 1e-290 to 1e300
        Standard deviation before rounding.
    grid : float, a power of two
        Spacing of the possible values; ``sigma / grid`` must lie between 2**-20 and 2**46.
    random_state : int from 0 to 2**64 - 1, or None
        None: key from the operating system. An int: reproducible, NOT PRIVATE.

    Returns
    -------
    ndarray of shape ``shape``, float64
        Independent multiples of ``grid``; exact zeros for ``sigma=0``.

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
    Guarantees: each entry has exactly the law of ``grid * round(Z / grid)`` with Z ~ N(0,
    sigma**2), and every value is exact in float64. The sampler uses integers and random bits only
    (docs/proofs/grid_gaussian.md; tested against Karney's, which is exact too), so no
    floating-point caveat applies to the noise itself. To keep it so, add it
    to multiples of ``grid`` in a way that does not round. (Deviates beyond 1024 sigma, of
    probability below 2**-700000, are drawn again.) The time of a draw depends on the value drawn,
    never on any data.

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
    dims = check_shape(shape)
    sigma = check_sigma(sigma)
    grid = check_positive("grid", grid)
    stream = make_source(random_state)
    multiples = stream.gaussian_on_grid(math.prod(dims), sigma, grid, check_n_threads(None))
    return (multiples * np.float64(grid)).reshape(dims)


@in_usual_arithmetic
def gamma_ball(
    shape: int | Sequence[int], beta: float, random_state: int | None = None
) -> NDArray[np.float64]:
    """One array b with density proportional to exp(-beta ||b||), ndarray of shape ``shape``.

    Parameters
    ----------
    shape : int or sequence of int, each >= 0
        Shape of the result; the norm is that of all its entries together (Frobenius).
    beta : float > 0
        Rate: the norm has mean ``size / beta``. At most 1e290, and so large that the norm is a
        finite float64.
    random_state : int from 0 to 2**64 - 1, or None
        None: key from the operating system. An int: reproducible, NOT PRIVATE.

    Returns
    -------
    ndarray of shape ``shape``, float64
        The norm is Gamma with shape parameter ``size`` and rate ``beta``; the direction is uniform
        on the sphere and independent of the norm.

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
    Guarantees: finite for every accepted ``beta``; the law holds up to the rounding of double
    precision, so a proof in real arithmetic does not cover the low bits of a release.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate, JMLR 12 (2011), Algorithm 1.

    Examples
    --------
    >>> from dpsvm_fast.noise import gamma_ball
    >>> gamma_ball((10, 4), beta=0.5).shape
    (10, 4)
    """
    dims = check_shape(shape)
    beta = check_positive("beta", beta)
    stream = make_source(random_state)
    return stream.gamma_ball(math.prod(dims), beta, check_n_threads(None)).reshape(dims)


@in_usual_arithmetic
def symmetric_gaussian(
    d: int, sigma: float, random_state: int | None = None
) -> NDArray[np.float64]:
    """Symmetric Gaussian matrix, ndarray of shape (d, d).

    Parameters
    ----------
    d : int >= 0
        Side of the matrix.
    sigma : float, 0 or from 1e-290 to 1e300
        Standard deviation of the diagonal entries; those off the diagonal have
        ``sigma / sqrt(2)``.
    random_state : int from 0 to 2**64 - 1, or None
        None: key from the operating system. An int: reproducible, NOT PRIVATE.

    Returns
    -------
    ndarray of shape (d, d), float64
        Exactly symmetric; independent on and above the diagonal: the isotropic Gaussian of the
        space of symmetric matrices with the Frobenius norm.

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
    Guarantees: as `gaussian`: independent entries, and the law up to the rounding of double
    precision.

    Examples
    --------
    >>> from dpsvm_fast.noise import symmetric_gaussian
    >>> noise = symmetric_gaussian(5, sigma=1.0)
    >>> bool((noise == noise.T).all())
    True
    """
    side = check_integer("d", d, 0, MAX_SIDE)
    sigma = check_sigma(sigma)
    return make_source(random_state).symmetric_gaussian(side, sigma, check_n_threads(None))
