r"""Fixed-point numbers: what parties contribute are integers, so that a sum of them is exact.

A contribution v becomes :math:`z = \mathrm{rint}(v / g)` with a public step g. Two vectors at
distance s become vectors of integers at distance at most

.. math:: s / g + \sqrt p\, (1 + 2^{-20})

for p coordinates: half a step for each of the two in every coordinate, and the rounding of the
division, much less than :math:`2^{-21}` for :math:`|v / g| \le 2^{29}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._rounding import add_up, mul_up, sqrt_up
from dpsvm_fast._validation import check_integer, check_positive
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.errors import InconsistentSumError, PartyRefusedError

__all__ = ["ROUNDED_STEPS", "FixedPointCodec"]

# Distance of two coordinates by rounding alone, in steps, rounding of the division included.
ROUNDED_STEPS = 1.0 + 2.0**-20


@dataclass(frozen=True, kw_only=True)
class FixedPointCodec:
    """Numbers as multiples of a step, within a range, summed modulo a power of two.

    Parameters
    ----------
    step : float > 0
        g.
    bits : int in 2..30
        Numbers are integers z with ``|z| < 2**(bits - 1)``.
    modulus : int
        A power of two above ``2**bits``: sums are known modulo it.

    Raises
    ------
    TypeError, InvalidParameterError
        A parameter outside its range.
    """

    step: float
    bits: int = 30
    modulus: int = 2**48

    def __post_init__(self) -> None:
        """Refuse what could not be summed."""
        object.__setattr__(self, "step", check_positive("step", self.step))
        check_integer("bits", self.bits, 2, 30)
        check_integer("modulus", self.modulus, 2 ** (self.bits + 1), 2**62)
        if self.modulus & (self.modulus - 1):
            raise InvalidParameterError.of("modulus", got=self.modulus, accepted="a power of two")

    @property
    def limit(self) -> int:
        """Numbers are smaller in size than this."""
        return 1 << (self.bits - 1)

    @property
    def most_parties(self) -> int:
        """Numbers that can be summed without ambiguity."""
        return self.modulus >> self.bits

    def encode(self, x: NDArray[np.float64]) -> NDArray[np.int64]:
        """Nearest multiples of the step.

        Parameters
        ----------
        x : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (n,), int64

        Raises
        ------
        PartyRefusedError
            Not one row of finite numbers within the range; the text tells none of them.
        """
        if not isinstance(x, np.ndarray) or x.ndim != 1 or x.dtype != np.float64:
            raise PartyRefusedError("contribution: expected one row of float64 numbers")
        if not np.isfinite(x).all():
            raise PartyRefusedError("contribution: expected finite numbers")
        with np.errstate(over="ignore", under="ignore"):
            steps = np.rint(x / self.step)
        if not (np.abs(steps) < self.limit).all():
            raise PartyRefusedError("contribution: expected numbers within the range agreed on")
        return np.asarray(steps.astype(np.int64))

    def add_noise(self, steps: NDArray[np.int64], noise: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sum, held within the range.

        Parameters
        ----------
        steps : ndarray of int64
            An encoded vector.
        noise : ndarray of int64, of the same shape
            Noise in the same unit.

        Returns
        -------
        ndarray of int64

        Noise that would leave it is cut off: the probability of that is part of the guarantee.
        """
        most = self.limit - 1
        return np.asarray(np.clip(steps + noise, -most, most))

    def wrap(self, total: NDArray[np.int64]) -> NDArray[np.int64]:
        """Representatives nearest to 0 of numbers modulo ``modulus``."""
        half = self.modulus >> 1
        return np.asarray(((total + half) & (self.modulus - 1)) - half)

    def decode_sum(self, total: NDArray[np.int64], survivors: int) -> NDArray[np.float64]:
        """The sum of ``survivors`` contributions, in units of the numbers encoded.

        Parameters
        ----------
        total : ndarray of shape (n,), int64
            Modulo ``modulus``.
        survivors : int

        Returns
        -------
        ndarray of shape (n,), float64

        Raises
        ------
        InconsistentSumError
            No sum of so many numbers within the range.
        """
        check_integer("survivors", survivors, 1, self.most_parties)
        whole = self.wrap(whole_numbers(total))
        if not (np.abs(whole) < survivors * self.limit).all():
            raise InconsistentSumError("sum: larger than the parties could have contributed")
        # Below 2**47: exact as floats.
        return np.asarray(whole.astype(np.float64) * self.step)

    def bound_steps(self, bound: float) -> int:
        """R_g: steps of an encoded number of size at most ``bound``, generously."""
        return math.ceil(bound / self.step * (1.0 + 1e-9)) + 1

    def sensitivity_after_rounding(self, distance: float, size: int) -> float:
        """Distance of ``size`` encoded numbers, in their unit, from that of the numbers; up.

        Parameters
        ----------
        distance : float >= 0
            Of the numbers before they are encoded.
        size : int >= 1
            How many numbers.

        Returns
        -------
        float
        """
        return add_up(distance, self.rounding(size))

    def rounding(self, size: int) -> float:
        """How far encoding can move two vectors of ``size`` numbers apart, rounded up."""
        return mul_up(self.step, mul_up(ROUNDED_STEPS, sqrt_up(float(size))))


def whole_numbers(total: NDArray[np.int64]) -> NDArray[np.int64]:
    """One row of int64, as sums are.

    Raises
    ------
    InconsistentSumError
        Anything else.
    """
    if not isinstance(total, np.ndarray) or total.ndim != 1 or total.dtype != np.int64:
        raise InconsistentSumError("sum: expected one row of int64 numbers")
    return total
