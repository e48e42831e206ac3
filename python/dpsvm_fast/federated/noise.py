r"""How much discrete noise each party adds, and on which grid: known before any data are read.

Every party adds independent noise :math:`D_{\mathbb Z}(\sigma)`, :math:`P(k) \propto
\exp(-k^2 / (2 \sigma^2))` with a power of two for sigma, to its integers. In any sum that is
released at least h of these noises are unknown to everybody, and the sum is within total variation
distance tau of a post-processing of the Gaussian mechanism with standard deviation :math:`g
\sqrt{h \sigma^2 - r^2}`: docs/proofs/federated.md. So the step g follows from the deviation that is
wanted. All numbers are rounded towards more noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpsvm_fast._rounding import (
    add_down,
    add_up,
    div_up,
    fraction_down,
    fraction_up,
    mul_down,
    mul_up,
    round_up,
    sqrt_down,
    sqrt_up,
)
from dpsvm_fast.accounting import gaussian_sigma
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated._counts import PartyCounts
from dpsvm_fast.federated.encoding import ROUNDED_STEPS, FixedPointCodec

__all__ = [
    "COMPUTATIONAL",
    "DEVIATIONS",
    "SMOOTHING",
    "SumNoise",
    "delta_left",
    "delta_overhead",
    "plan_noise",
]

# r: the part of the noise, in steps, that makes the sum like one of real numbers.
SMOOTHING = 3.0
# Noise of so many standard deviations still has room beside every contribution.
DEVIATIONS = 14
# Powers of two that the noise may have for its parameter, in steps.
LEAST_BITS, MOST_BITS = 4, 24
# Assumed advantage of any feasible observer of the protocol over one who sees the sum alone.
COMPUTATIONAL = 2.0**-80
# What a round is allowed for all its distances together; that of a round is below.
DISTANCE_ALLOWED = 2.0**-79
# A share of zero is stated as this: the formulas are positive, however small.
LEAST_DISTANCE = 1e-300


@dataclass(frozen=True, kw_only=True)
class SumNoise:
    """Noise of one sum over parties.

    Parameters
    ----------
    size : int >= 1
        p: noisy numbers of a vector.
    distance : float > 0
        How far the sums of neighbours can be apart before they are encoded.
    bound : float > 0
        Norm of one party's vector at most.
    n_affected : int >= 1
        m: parties in which neighbours may differ.
    counts : PartyCounts
    step : float > 0
        g.
    sigma_steps : int
        A power of two from 2**4 to 2**24.
    """

    size: int
    distance: float
    bound: float
    n_affected: int
    counts: PartyCounts
    step: float
    sigma_steps: int

    @property
    def codec(self) -> FixedPointCodec:
        """How contributions become integers."""
        return FixedPointCodec(step=self.step)

    @property
    def honest_survivors(self) -> int:
        """Honest parties in every sum that is released."""
        return self.counts.honest_survivors

    @property
    def bound_steps(self) -> int:
        """R_g: norm of one party's integers at most, half a step for rounding each included."""
        return self.codec.bound_steps(self.bound) + math.isqrt(self.size) + 1

    @property
    def fits(self) -> bool:
        """Whether noise of ``DEVIATIONS`` standard deviations stays in the range."""
        return self.bound_steps + DEVIATIONS * self.sigma_steps <= self.codec.limit - 1

    @cached_property
    def rounding(self) -> float:
        """How far encoding moves the sums of neighbours apart, rounded up."""
        return mul_up(float(self.n_affected), self.codec.rounding(self.size))

    @cached_property
    def total(self) -> float:
        """How far the sums of integers of neighbours can be apart, in units of the numbers."""
        return add_up(self.distance, self.rounding)

    @cached_property
    def sigma(self) -> float:
        """Standard deviation of the Gaussian mechanism that the sum is like; rounded down."""
        return mul_down(self.step, _root(self.honest_survivors, self.sigma_steps))

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in a sum over all parties, for people."""
        return self.step * self.sigma_steps * math.sqrt(self.counts.n_users)

    @cached_property
    def discreteness(self) -> float:
        """Distance of the sum from a post-processing of real Gaussian noise, rounded up.

        Sums of h discrete Gaussians, one merge after the other, and the randomised rounding that
        takes real noise to discrete noise: each changes the probability of a whole number by a
        factor within ``exp(+-a)``.
        """
        sigma, h = float(self.sigma_steps), self.honest_survivors
        merges = (h - 1) * _log_ratio(0.5 * sigma * sigma)
        # For one noise alone; more of them are closer.
        smooth = SMOOTHING**2 * (1.0 - SMOOTHING**2 / (sigma * sigma))
        bound = self.size * (merges + _log_ratio(smooth))
        return max(bound * (1.0 + 1e-9), LEAST_DISTANCE)

    @cached_property
    def overflow(self) -> float:
        """Probability that some party's noise leaves the range, rounded up."""
        room = float(self.codec.limit - self.bound_steps - 1)
        exponent = -0.5 * (room / self.sigma_steps) ** 2
        # Beyond the floats' exponents, the largest value that such a tail can have.
        tail = math.exp(max(exponent, -700.0) * (1.0 - 1e-12))
        return 2.0 * self.counts.n_users * self.size * tail * (1.0 + 1e-9)


def plan_noise(
    *,
    size: int,
    distance: float,
    bound: float,
    n_affected: int,
    counts: PartyCounts,
    multiplier: float,
) -> SumNoise:
    """The finest grid on which noise and contributions fit.

    Parameters
    ----------
    size, distance, bound, n_affected, counts
        Of :class:`SumNoise`.
    multiplier : float > 0
        Standard deviation of the Gaussian mechanism that is wanted, at sensitivity 1.

    Raises
    ------
    InvalidParameterError
        No grid is coarse enough for the contributions and fine enough for the noise.
    """
    for bits in range(MOST_BITS, LEAST_BITS - 1, -1):
        step = _step(size, distance, n_affected, counts.honest_survivors, multiplier, 2**bits)
        if step is None:
            break
        noise = SumNoise(
            size=size,
            distance=distance,
            bound=bound,
            n_affected=n_affected,
            counts=counts,
            step=step,
            sigma_steps=2**bits,
        )
        if noise.fits:
            return noise
    raise InvalidParameterError(
        "radius: contributions and noise find no room on a common grid of 30 bits: contributions "
        "are too large for the noise; expected a smaller radius or max_records, fewer weights or a "
        "smaller epsilon"
    )


def delta_overhead(epsilon: float, distance: float) -> float:
    """What a total variation distance adds to delta, ``(1 + e**epsilon) distance``; rounded up."""
    if epsilon > 700.0:
        return math.inf
    return mul_up(add_up(1.0, round_up(math.exp(epsilon), 2)), distance)


def delta_left(epsilon: float, delta: float, n_rounds: int) -> float:
    """Delta that is left to noise when ``n_rounds`` sums took what their distances cost.

    Raises
    ------
    InvalidParameterError
        Nothing is left.
    """
    left = add_down(delta, -delta_overhead(epsilon, n_rounds * DISTANCE_ALLOWED))
    if not left > 0.5 * delta:
        needed = 2.0 * delta_overhead(epsilon, n_rounds * DISTANCE_ALLOWED)
        if needed >= 1e-3:
            most = math.floor(math.log(0.5 * delta / (n_rounds * DISTANCE_ALLOWED)))
            raise InvalidParameterError.of(
                "epsilon",
                got=epsilon,
                accepted=f"at most {most} with this delta: what the sum's cryptography may fail "
                "by counts (1 + e^epsilon)-fold",
            )
        raise InvalidParameterError.of(
            "delta",
            got=delta,
            accepted=f"at least {needed:.3g} with this epsilon: what the sum's cryptography may "
            "fail by counts (1 + e^epsilon)-fold",
        )
    return left


def multiplier_of(epsilon: float, delta: float) -> float:
    """Standard deviation of the Gaussian mechanism at sensitivity 1, a little more than enough.

    Ratios of rounded numbers are compared later; the last digits belong to them.
    """
    return round_up(gaussian_sigma(epsilon, delta), 8)


def _root(h: int, sigma_steps: int) -> float:
    """``sqrt(h sigma^2 - r^2)``, rounded down."""
    square = fraction_down(Fraction(h * sigma_steps * sigma_steps) - Fraction(SMOOTHING) ** 2)
    return sqrt_down(square)


def _step(
    size: int, distance: float, n_affected: int, h: int, multiplier: float, sigma_steps: int
) -> float | None:
    """Smallest step, a little more, at which the noise is enough; None where rounding wins."""
    rounded = mul_up(
        mul_up(float(n_affected), multiplier), mul_up(ROUNDED_STEPS, sqrt_up(float(size)))
    )
    left = add_down(_root(h, sigma_steps), -rounded)
    if not left > 0.0:
        return None
    step = div_up(mul_up(multiplier, distance), left)
    # Products rounded on the other side still have to agree.
    return fraction_up(Fraction(step) * (1 + Fraction(1, 2**40)))


def _log_ratio(square: float) -> float:
    r"""Bound of ``log((1 + e) / (1 - e))``, :math:`e = 2 \sum_{m \ge 1} \exp(-2 \pi^2 s m^2)`.

    For s of at least 1/2: the first term, twice that of the series, times 1.001; log adds 0.1
    percent at most. An exponential below the floats is bounded by the smallest of them.
    """
    exponent = -2.0 * math.pi**2 * square * (1.0 - 1e-12)
    first = math.exp(exponent) if exponent > -740.0 else 5e-324
    return 4.0 * first * 1.01
