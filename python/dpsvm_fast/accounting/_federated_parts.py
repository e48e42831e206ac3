"""One noisy secure sum over parties: a record of numbers, each checked by itself.

How the numbers hang together is what ``verify`` checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsvm_fast._rounding import fraction_up
from dpsvm_fast._validation import (
    check_integer,
    check_non_negative,
    check_option,
    check_positive,
    check_real,
)
from dpsvm_fast.accounting._fields import check_text, store
from dpsvm_fast.accounting.events import DistanceEvent, GaussianEvent, ZCDPEvent
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["ROUNDS", "SecureRound"]

# What parties sum up under noise.
ROUNDS = ("model", "gram")
# Every sum is about data sets of which one row is exchanged: sizes of parties stay what they are.
ADJACENCY = "replace_one"
# Numbers of one party, on the grid, lie below this.
ENCODABLE = 2**29
# More parties than sums modulo 2**48 have room for; more rows or numbers than anyone has.
MOST_PARTIES, MOST_NUMBERS = 2**18, 2**40


@dataclass(frozen=True, kw_only=True)
class SecureRound:
    r"""A sum over parties of vectors on a grid, each party adding its own discrete Gaussian noise.

    Parameters
    ----------
    name : {"model", "gram"}
        Weights of the parties' models; or matrices of products of features.
    what : str
        What was summed up, for people.
    size : int in 1..2**40
        p: how many noisy numbers one vector has.
    clip_norm : float > 0 or None
        Of ``"gram"``: bound of the Frobenius norm of one row's outer product with itself.
    exact : float > 0
        How far the exact sums of neighbours can be apart, with the errors of the solvers and the
        weights of the parties.
    grid : float > 0
        g: what one step on the grid is worth.
    parties : int in 1..2**18
        m: in how many parties what is exchanged can lie; each of them rounds its own vector.
    rounding : float > 0
        :math:`m g \sqrt{p} (1 + 2^{-20})`: what rounding to the grid adds.
    total : float > 0
        ``exact + rounding``, rounded up.
    sigma_steps : int
        Parameter of every party's discrete Gaussian noise, in steps: a power of two from 2**4 to
        2**24.
    honest_survivors : int in 1..2**18
        h: how many of the noises in a sum that was opened nobody can take out again.
    smoothing : float >= 1
        r, in steps: the part of the noise with which the sum is like one of real numbers.
    sigma : float > 0
        :math:`g \sqrt{h \sigma_{steps}^2 - r^2}`, rounded down: standard deviation of the Gaussian
        noise that the sum's privacy is that of.
    discreteness : float in [0, 1)
        Distance between the sum and a post-processing of such Gaussian noise on real numbers.
    overflow : float in [0, 1)
        Probability that some party's numbers leave what can be encoded.
    computational : float in [0, 1)
        Assumed advantage of any feasible observer over one who sees the sum alone; 0 where the
        parties trust who adds up.
    range_steps : int in 1..2**29
        Bound, in steps, of the norm of one party's vector before its noise.

    Notes
    -----
    Guarantees: those of docs/proofs/federated.md, provided parties draw as stated and at least
    ``honest_survivors`` of those in the sum neither reveal nor use their noise.
    """

    name: str
    what: str
    size: int
    clip_norm: float | None = None
    exact: float
    grid: float
    parties: int
    rounding: float
    total: float
    sigma_steps: int
    honest_survivors: int
    smoothing: float
    sigma: float
    discreteness: float
    overflow: float
    computational: float
    range_steps: int

    def __post_init__(self) -> None:
        """Check every field by itself; how they hang together is what ``verify`` checks."""
        check_option("name", self.name, ROUNDS)
        check_text("what", self.what)
        for name in ("parties", "honest_survivors"):
            store(self, name, check_integer(name, getattr(self, name), 1, MOST_PARTIES))
        store(self, "size", check_integer("size", self.size, 1, MOST_NUMBERS))
        for name in ("exact", "grid", "rounding", "total", "sigma"):
            store(self, name, check_positive(name, getattr(self, name)))
        store(self, "sigma_steps", check_integer("sigma_steps", self.sigma_steps, 2**4, 2**24))
        store(self, "range_steps", check_integer("range_steps", self.range_steps, 1, ENCODABLE))
        smoothing = check_non_negative("smoothing", self.smoothing)
        if not 1.0 <= smoothing < self.sigma_steps:
            raise InvalidParameterError.of(
                "smoothing", got=smoothing, accepted="at least 1, and less than sigma_steps"
            )
        store(self, "smoothing", smoothing)
        for name in ("discreteness", "overflow", "computational"):
            value = check_real(name, getattr(self, name), low=0.0, high=1.0, open_high=True)
            store(self, name, value)
        if not 0.0 < self.distance < 1.0:
            raise InvalidParameterError.of(
                "discreteness", got=self.discreteness, accepted="a sum of distances in (0, 1)"
            )
        if (self.name == "gram") != (self.clip_norm is not None):
            raise InvalidParameterError("clip_norm: expected a number for 'gram' alone")
        if self.clip_norm is not None:
            store(self, "clip_norm", check_positive("clip_norm", self.clip_norm))

    @property
    def distance(self) -> float:
        """How far the sum is from the Gaussian mechanism altogether, rounded up."""
        parts = (self.discreteness, self.overflow, self.computational)
        return fraction_up(sum(map(Fraction, parts), Fraction(0)))

    @property
    def events(self) -> tuple[GaussianEvent, DistanceEvent]:
        """What the sum charges to a ledger, at once."""
        return (
            GaussianEvent(self.sigma, self.total, ADJACENCY),
            DistanceEvent(self.distance, ADJACENCY),
        )

    @property
    def local_event(self) -> ZCDPEvent:
        r"""What one party's noisy vector alone costs: discrete Gaussian noise on whole numbers.

        Its zCDP parameter is :math:`total^2 / (2 g^2 \sigma_{steps}^2)`, exactly as for real
        numbers (Canonne, Kamath and Steinke, NeurIPS 2020, Theorem 4); nothing is approximate, so
        no distance grows with a large epsilon.
        """
        ratio = Fraction(self.total) / (Fraction(self.grid) * self.sigma_steps)
        return ZCDPEvent(fraction_up(ratio * ratio / 2), ADJACENCY)
