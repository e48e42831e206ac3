"""What the parties of one secure sum have agreed on, each for itself, before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from dpsvm_fast._validation import check_integer
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.flower.prg import PROTOCOL
from dpsvm_fast.federated.spec import FederatedSpec

__all__ = ["RoundTerms", "terms_of_rounds"]

# Vectors of more numbers would not fit one message.
MAX_LENGTH = 2**27


@dataclass(frozen=True, kw_only=True)
class RoundTerms:
    """Terms of one round. A party refuses whatever differs from its own copy.

    Parameters
    ----------
    digest : str
        Fingerprint of the whole specification.
    name : str
        Name of the round within it.
    length : int
        Numbers of a vector; the last one is 1 and counts the parties in the sum.
    n_users : int >= 2
        Parties that are asked. ``n_users * 2**bits`` must stay below ``modulus``: no overflow.
    min_survivors : int
        A party gives its shares for unmasking only if so many parties are in the sum.
    threshold : int
        Shares that open a mask: more than half of the parties, so that the shares of no two
        disjoint groups suffice, and at most ``min_survivors``.
    bits : int, default=30
        Numbers are smaller than ``2**(bits - 1)`` in size.
    modulus : int, default=2**48
        Sums are known modulo this power of two.
    protocol : str
        How masks are made.

    Raises
    ------
    TypeError, InvalidParameterError
        Terms that would not protect the parties, or that could not be summed.
    """

    digest: str
    name: str
    length: int
    n_users: int
    min_survivors: int
    threshold: int
    bits: int = 30
    modulus: int = 2**48
    protocol: str = PROTOCOL

    def __post_init__(self) -> None:
        """Refuse terms under which a sum would be wrong or its parts known."""
        if self.protocol != PROTOCOL:
            raise InvalidParameterError.of("protocol", got=self.protocol, accepted=repr(PROTOCOL))
        check_integer("length", self.length, 2, MAX_LENGTH)
        check_integer("bits", self.bits, 2, 30)
        check_integer("modulus", self.modulus, 2**3, 2**62)
        if self.modulus & (self.modulus - 1):
            raise InvalidParameterError.of("modulus", got=self.modulus, accepted="a power of two")
        # A secure sum of one is its own vector.
        check_integer("n_users", self.n_users, 2, (self.modulus >> self.bits) - 1)
        check_integer("min_survivors", self.min_survivors, 2, self.n_users)
        check_integer("threshold", self.threshold, self.n_users // 2 + 1, self.min_survivors)

    @property
    def limit(self) -> int:
        """Numbers of a vector are smaller in size than this."""
        return 1 << (self.bits - 1)

    @property
    def target(self) -> int:
        """Flower's quantisation range with which its step is exactly 1."""
        return 1 << self.bits


def terms_of_rounds(spec: FederatedSpec) -> dict[str, RoundTerms]:
    """Terms of all rounds of a specification, by their names.

    Parameters
    ----------
    spec : FederatedSpec
        Of two parties or more.

    Returns
    -------
    dict of str to RoundTerms
    """
    digest = spec.digest()
    return {
        plan.name: RoundTerms(
            digest=digest,
            name=plan.name,
            length=plan.length,
            n_users=spec.n_users,
            min_survivors=spec.survivors_needed,
            threshold=spec.threshold,
            bits=plan.codec.bits,
            modulus=plan.codec.modulus,
            protocol=spec.protocol,
        )
        for plan in spec.rounds
    }
