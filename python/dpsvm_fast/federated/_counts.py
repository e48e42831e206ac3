"""How many parties of each kind a run may count on, in exact arithmetic.

Of U parties at least ceil(t U) are honest, and at most floor(rho U) vanish before the sum. Who
vanishes may be chosen by the others, so the worst case is that all who vanish are honest.

Shares are typed as decimals: the float 0.9, which is a little more, of 10 parties are 9 of them. So
products are taken a little towards the number typed before they are rounded to whole parties.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpsvm_fast._validation import check_fraction, check_integer, check_real
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["MOST_PARTIES", "PartyCounts", "least_number", "most_number"]

# With contributions below 2**29 in each coordinate, sums of so many stay below half of 2**48.
MOST_PARTIES = 2**18


# Relative error of a float beside the share that was typed, and more.
TYPED = Fraction(1, 2**50)


def least_number(share: float, n: int) -> int:
    """``ceil(share * n)``, the number typed as ``share`` taken for it."""
    return math.ceil(Fraction(share) * n * (1 - TYPED))


def most_number(share: float, n: int) -> int:
    """``floor(share * n)``, the number typed as ``share`` taken for it."""
    return math.floor(Fraction(share) * n * (1 + TYPED))


@dataclass(frozen=True, kw_only=True)
class PartyCounts:
    """Parties, and what is assumed about them.

    Parameters
    ----------
    n_users : int in 1..2**18
        U, the parties that were asked.
    honest_fraction : float in (0, 1]
        t: at least ceil(t U) follow the protocol and tell nobody what they drew.
    max_dropout : float in [0, 1)
        rho: at most floor(rho U) vanish before the sum.
    min_survivors : int or None
        Parties without which nothing is released, at most U - floor(rho U), which is what None
        stands for.

    Raises
    ------
    InvalidParameterError
        Numbers with which no honest party is sure to be left, or with which those who collude
        could open the sum.
    """

    n_users: int
    honest_fraction: float
    max_dropout: float = 0.0
    min_survivors: int | None = None

    def __post_init__(self) -> None:
        """Refuse counts without a guarantee."""
        check_integer("n_users", self.n_users, 1, MOST_PARTIES)
        check_fraction("honest_fraction", self.honest_fraction)
        check_real("max_dropout", self.max_dropout, low=0.0, high=1.0, open_high=True)
        if self.min_survivors is not None:
            most = self.n_users - most_number(self.max_dropout, self.n_users)
            check_integer("min_survivors", self.min_survivors, 1, most)
        if self.honest_survivors < 1:
            raise InvalidParameterError(
                f"honest_fraction: of {self.survivors_needed} parties that are left all may be "
                f"among the {self.colluders} that are not honest; expected a larger "
                "honest_fraction, a larger min_survivors or a smaller max_dropout"
            )
        if self.threshold > self.survivors_needed:
            raise InvalidParameterError(
                f"min_survivors: got {self.survivors_needed}, expected at least {self.threshold}: "
                f"shares that {self.colluders} colluding parties, or half of all, could open "
                "protect nothing"
            )

    @property
    def colluders(self) -> int:
        """Most parties that may tell each other and the server everything."""
        return self.n_users - least_number(self.honest_fraction, self.n_users)

    @property
    def survivors_needed(self) -> int:
        """Fewest parties with which a sum is released."""
        if self.min_survivors is not None:
            return self.min_survivors
        return self.n_users - most_number(self.max_dropout, self.n_users)

    @property
    def honest_survivors(self) -> int:
        """h: honest parties in every sum that is released."""
        return self.survivors_needed - self.colluders

    @property
    def threshold(self) -> int:
        """Shares that open a mask: more than the colluders, and than half of all, together have."""
        return max(self.colluders, self.n_users // 2) + 1
