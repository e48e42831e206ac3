"""Choices among scores with exact probabilities."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsvm_fast._arithmetic import in_usual_arithmetic
from dpsvm_fast._rounding import fraction_down
from dpsvm_fast._validation import check_bool, check_epsilon, check_integer
from dpsvm_fast.noise._arguments import make_source

# Of the rates of choices and scales of discrete noise.
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
    """Choose an index at random, a low score with more probability.

    Parameters
    ----------
    scores : array-like of int, shape (n_candidates,)
        Private numbers, low ones good, such as numbers of errors. Differences below 2**32.
    epsilon : float in (0, 1e4]
        What the choice may cost; it costs that much or up to one millionth less.
    sensitivity : int >= 1
        By how much one record changes a score at most.
    monotonic : bool, default=False
        Whether one record changes all scores in the same direction, as counts of errors do when a
        record is added. The choice is then twice as sharp for the same epsilon.
    random_state : int from 0 to 2**64 - 1, or None
        None: key from the operating system. An int: reproducible, NOT PRIVATE.

    Returns
    -------
    int
        Index i with probability proportional to ``exp(-r scores[i])``, r the rate that epsilon
        allows.

    Raises
    ------
    TypeError, ValueError
        An argument of the wrong type or outside its range; no message quotes a score.
    OSError
        The operating system gave no entropy.

    See Also
    --------
    permute_and_flip : never worse at the same epsilon.

    Notes
    -----
    Guarantees: epsilon-differential privacy with delta = 0. Probabilities are exact: the rate is
    rounded down to 20 bits, so that its products with whole numbers are exact, and coins of
    probability exp(-x) are tossed with whole numbers and random bits only.

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
    """Choose an index at random, a low score with more probability, by permute-and-flip.

    Candidates are visited in random order; candidate i is taken with probability
    ``exp(-r (scores[i] - min(scores)))``, r the rate that epsilon allows.

    Parameters
    ----------
    scores : array-like of int, shape (n_candidates,)
        Private numbers, low ones good. Differences below 2**32.
    epsilon : float in (0, 1e4]
        What the choice may cost; it costs that much or up to one millionth less.
    sensitivity : int >= 1
        By how much one record changes a score at most.
    monotonic : bool, default=False
        Whether one record changes all scores in the same direction.
    random_state : int from 0 to 2**64 - 1, or None
        None: key from the operating system. An int: reproducible, NOT PRIVATE.

    Returns
    -------
    int

    Raises
    ------
    TypeError, ValueError
        An argument of the wrong type or outside its range; no message quotes a score.
    OSError
        The operating system gave no entropy.

    Notes
    -----
    Guarantees: epsilon-differential privacy with delta = 0, with exact probabilities as
    `exponential_mechanism`. Its expected score is never larger than that one's. It is not known to
    have the smaller Renyi divergences of the exponential mechanism.

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
    """Largest number of at most 20 bits that is at most x, not 0.

    A rate of so few bits times a difference of scores is exact in double precision.
    """
    size = abs(x)
    # The size is below two to the power of this, and not below a quarter of it.
    exponent = size.numerator.bit_length() - size.denominator.bit_length() + 1
    unit = Fraction(2) ** (exponent - RATE_BITS)
    return fraction_down(math.floor(x / unit) * unit)


def _selection_rate(epsilon: float, sensitivity: int, *, monotonic: bool) -> float:
    """Rate of a choice for what it may cost."""
    factor = 1 if check_bool("monotonic", monotonic) else 2
    moved = factor * check_integer("sensitivity", sensitivity, 1, 2**31)
    return few_bits_down(Fraction(check_epsilon(epsilon)) / moved)


def _check_scores(scores: ArrayLike) -> NDArray[np.int64]:
    """Return scores as an array of int64; private, so that nothing is said about them."""
    array = np.asarray(scores)
    if array.ndim != 1 or not array.size or not np.can_cast(array.dtype, np.int64):
        raise TypeError("scores: expected whole numbers, one for each of one or more candidates")
    return np.ascontiguousarray(array, dtype=np.int64)
