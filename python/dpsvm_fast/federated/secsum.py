"""Sums over parties: encoding, protocol interface, and the sum by a trusted curator.

A sum is exact, modulo 2**48. There is no fallback from a secure sum to a plain one: the caller
chooses the object, and the statement names it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.exceptions import (
    InconsistentSumError,
    InvalidParameterError,
    PartyRefusedError,
    SecureSumAborted,
)
from dpsvm_fast.rounding import mul_up, sqrt_up
from dpsvm_fast.validation import check_fraction, check_integer, check_positive, check_real

# Number of parties of each kind that a run may count on, in exact arithmetic.
#
# Of U parties at least ceil(t U) are honest, and at most floor(rho U) vanish before the sum. Who
# vanishes may be chosen by the others, so the worst case is that all who vanish are honest.
#
# Shares are typed as decimals: the float 0.9, which is a little more, of 10 parties are 9 of them.
# So products are taken a little towards the number typed before they are rounded to whole parties.


# Numbers that parties contribute are smaller than this in size, so that with their signs they have
# 30 bits; sums are known modulo this; and sums of so many are smaller than half of that.
LIMIT = 2**29
MODULUS = 2**48
MAX_PARTIES = 2**18


def centred(total: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the representatives nearest to 0 of numbers modulo 2**48."""
    half = MODULUS // 2
    return ((total + half) & (MODULUS - 1)) - half


# More than the relative error of a float against the share that was typed.
TYPED = Fraction(1, 2**50)


def min_number(share: float, n: int) -> int:
    """Return ``ceil(share * n)``, with ``share`` as the typed decimal number."""
    return math.ceil(Fraction(share) * n * (1 - TYPED))


def max_number(share: float, n: int) -> int:
    """Return ``floor(share * n)``, with ``share`` as the typed decimal number."""
    return math.floor(Fraction(share) * n * (1 + TYPED))


@dataclass(frozen=True, kw_only=True)
class PartyCounts:
    """Number of parties, and assumptions about them.

    Parameters
    ----------
    n_users : int in 1..2**18
        Number U of parties asked.
    honest_fraction : float in (0, 1], default=0.5
        Share t: at least ceil(t U) parties follow the protocol and keep their noise secret.
    max_dropout : float in [0, 1)
        Share rho: at most floor(rho U) parties drop out before the sum.
    min_survivors : int or None
        Smallest number of parties in a released sum, at most U - floor(rho U), the value for None.

    Raises
    ------
    InvalidParameterError
        With these numbers possibly no honest party is left, or colluding parties could open the
        sum.
    """

    n_users: int
    honest_fraction: float = 0.5
    max_dropout: float = 0.0
    min_survivors: int | None = None

    def __post_init__(self) -> None:
        """Refuse counts without a guarantee."""
        check_integer("n_users", self.n_users, 1, MAX_PARTIES)
        check_fraction("honest_fraction", self.honest_fraction)
        check_real("max_dropout", self.max_dropout, low=0.0, high=1.0, open_high=True)
        if self.min_survivors is not None:
            most = self.n_users - max_number(self.max_dropout, self.n_users)
            check_integer("min_survivors", self.min_survivors, 1, most)
        if self.honest_survivors < 1:
            raise InvalidParameterError(
                f"honest_fraction: all {self.survivors_needed} survivors may be among the "
                f"{self.colluders} colluding parties; expected a larger honest_fraction, a larger "
                "min_survivors or a smaller max_dropout"
            )
        if self.threshold > self.survivors_needed:
            raise InvalidParameterError(
                f"min_survivors: got {self.survivors_needed}, expected at least {self.threshold}: "
                f"fewer could let {self.colluders} colluding parties, or half of all, open the "
                "shares"
            )

    @property
    def colluders(self) -> int:
        """Largest number of parties that may collude with each other and the server."""
        return self.n_users - min_number(self.honest_fraction, self.n_users)

    @property
    def survivors_needed(self) -> int:
        """Smallest number of parties in a released sum."""
        if self.min_survivors is not None:
            return self.min_survivors
        return self.n_users - max_number(self.max_dropout, self.n_users)

    @property
    def honest_survivors(self) -> int:
        """Number h of honest parties in every released sum."""
        return self.survivors_needed - self.colluders

    @property
    def threshold(self) -> int:
        """Number of shares that open a mask: more than the colluders, and more than half of all."""
        return max(self.colluders, self.n_users // 2) + 1


# Fixed-point numbers: what parties contribute are integers, so that a sum of them is exact.
#
# A contribution v becomes :math:`z = \mathrm{rint}(v / g)` with a public step g. Two vectors at
# distance s become vectors of integers at distance at most
#
# .. math:: s / g + \sqrt p\, (1 + 2^{-20})
#
# for p coordinates: half a step for each of the two in every coordinate, and the rounding of the
# division, much less than :math:`2^{-21}` for :math:`|v / g| \le 2^{29}`.


# Distance of two coordinates by rounding alone, in steps, rounding of the division included.
ROUNDED_STEPS = 1.0 + 2.0**-20


@dataclass(frozen=True, kw_only=True)
class FixedPointCodec:
    """Codec from numbers to multiples of a step, below 2**29 in magnitude, modulo 2**48.

    Parameters
    ----------
    step : float > 0
        g.

    Raises
    ------
    TypeError, InvalidParameterError
        A parameter outside its range.
    """

    step: float

    def __post_init__(self) -> None:
        """Refuse a step that is not positive and finite."""
        object.__setattr__(self, "step", check_positive("step", self.step))

    def encode(self, x: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the nearest multiples of the step.

        Parameters
        ----------
        x : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (n,), int64

        Raises
        ------
        PartyRefusedError
            The value is not one row of finite numbers within the range; the message quotes none.
        """
        if not isinstance(x, np.ndarray) or x.ndim != 1 or x.dtype != np.float64:
            raise PartyRefusedError("contribution: expected one row of float64 numbers")
        if not np.isfinite(x).all():
            raise PartyRefusedError("contribution: expected finite numbers")
        with np.errstate(over="ignore", under="ignore"):
            steps = np.rint(x / self.step)
        if not (np.abs(steps) < LIMIT).all():
            raise PartyRefusedError("contribution: expected numbers in the agreed range")
        return np.asarray(steps.astype(np.int64))

    def add_noise(self, steps: NDArray[np.int64], noise: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the encoded vector plus noise, clipped to the range.

        Parameters
        ----------
        steps : ndarray of int64
            Encoded vector.
        noise : ndarray of int64, of the same shape
            Noise in the same unit.

        Returns
        -------
        ndarray of int64

        Clipping has a tiny probability, which the guarantee includes.
        """
        return np.asarray(np.clip(steps + noise, 1 - LIMIT, LIMIT - 1))

    def decode_sum(self, total: NDArray[np.int64], survivors: int) -> NDArray[np.float64]:
        """Return the sum of ``survivors`` contributions, in encoded units.

        Parameters
        ----------
        total : ndarray of shape (n,), int64
            Modulo 2**48.
        survivors : int

        Returns
        -------
        ndarray of shape (n,), float64

        Raises
        ------
        InconsistentSumError
            The value is not a sum of that many numbers within the range.
        """
        check_integer("survivors", survivors, 1, MAX_PARTIES)
        whole = centred(whole_numbers(total))
        if not (np.abs(whole) < survivors * LIMIT).all():
            raise InconsistentSumError("sum: larger than the parties can contribute")
        # Below 2**47: exact as floats.
        return np.asarray(whole.astype(np.float64) * self.step)

    def bound_steps(self, bound: float) -> int:
        """Return R_g, an upper bound on the steps of an encoded number of magnitude ``bound``."""
        return math.ceil(bound / self.step * (1.0 + 1e-9)) + 1

    def rounding(self, size: int) -> float:
        """Return what encoding adds to the distance between two vectors of ``size`` numbers."""
        return mul_up(self.step, mul_up(ROUNDED_STEPS, sqrt_up(float(size))))


def whole_numbers(total: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one row of int64.

    Raises
    ------
    InconsistentSumError
        The value is anything else.
    """
    if not isinstance(total, np.ndarray) or total.ndim != 1 or total.dtype != np.int64:
        raise InconsistentSumError("sum: expected one row of int64 numbers")
    return total


@dataclass(frozen=True, eq=False)
class SumResult:
    """Sum over the surviving parties.

    Parameters
    ----------
    total : ndarray of shape (length,), int64
        Sum of the vectors, modulo 2**48 (any representative).
    survivors : int
        Number of surviving parties.
    """

    total: NDArray[np.int64]
    survivors: int


@runtime_checkable
class SecureSum(Protocol):
    """Interface of a protocol that sums the parties' vectors and reveals only the sum."""

    def sum(self, vectors: Iterable[NDArray[np.int64]]) -> SumResult:
        """Return the sum of one vector of each party.

        Parameters
        ----------
        vectors : iterable of ndarray of shape (length,), int64
            Vectors with numbers below 2**29 in magnitude.

        Raises
        ------
        SecureSumAborted
            Too few parties were left.
        """


@dataclass(frozen=True)
class TrustedSum:
    """Sum by a trusted curator, who sees every vector.

    Parameters
    ----------
    min_survivors : int, default=1
        Smallest number of vectors for a release.
    """

    min_survivors: int = 1

    def sum(self, vectors: Iterable[NDArray[np.int64]]) -> SumResult:
        """Return the sum modulo 2**48, as the representatives nearest to 0.

        Raises
        ------
        SecureSumAborted
            There are fewer vectors than ``min_survivors``.
        InconsistentSumError
            A vector has a different length or type.
        """
        total: NDArray[np.int64] | None = None
        survivors = 0
        for vector in vectors:
            if total is None:
                total = np.zeros_like(whole_numbers(vector))
            if whole_numbers(vector).size != total.size:
                raise InconsistentSumError("sum: vectors differ in length")
            # Below 2**18 terms of size below 2**29: no wrap of 64 bits, and none of 48.
            total += vector
            survivors += 1
        if total is None or survivors < self.min_survivors:
            raise SecureSumAborted("collect", survivors, self.min_survivors)
        return SumResult(centred(total), survivors)
