"""The four stages of Flower's protocol, and what a party demands of each message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpsvm_fast.federated.flower._refusals import TOO_FEW_PARTIES, WRONG_PARTIES, WRONG_TERMS
from dpsvm_fast.federated.flower.terms import RoundTerms

__all__ = ["BEFORE", "CHECKS", "REPLIES", "Seen"]

# Flower's words.
CONFIGS = "secaggplus_configs"
STATE = "secaggplus_state"
SETUP, SHARE, COLLECT, UNMASK = "setup", "share_keys", "collect_masked_vectors", "unmask"

# Stage that must have been passed before; restarts begin anew.
BEFORE = {SETUP: "", SHARE: SETUP, COLLECT: SHARE, UNMASK: COLLECT}

# Fields of a party's reply.
REPLIES = {
    SETUP: {"pk1", "pk2"},
    SHARE: {"dsts", "ctxts"},
    COLLECT: {"masked_params"},
    UNMASK: {"nids", "shares"},
}

# A public key, a private key's share in its envelope: far below.
MAX_KEY_BYTES = 4096


@dataclass
class Seen:
    """What a party remembers of a round in progress.

    Parameters
    ----------
    session : str
        The server's name of this attempt.
    round_name : str
    own : int
        The party's own number.
    stage : str
        Last stage passed.
    sampled : int
        Parties that were asked in this attempt.
    parties : list of int
        Those whose keys were shown.
    sources : list of int
        Those with whom masks are shared.
    """

    session: str = ""
    round_name: str = ""
    own: int = 0
    stage: str = ""
    sampled: int = 0
    parties: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, record: Mapping[str, Any] | None) -> Seen:
        """Read what :meth:`write` has written; nothing where there is nothing."""
        return cls() if record is None else cls(**dict(record))

    def write(self) -> dict[str, Any]:
        """The fields, as a record takes them."""
        return dict(vars(self))


def check_setup(configs: Mapping[str, Any], terms: RoundTerms, seen: Seen) -> str | None:
    """Ranges, modulus, weight, threshold, number of parties."""
    expected = {
        "clipping_range": float(terms.limit),
        "target_range": terms.target,
        "mod_range": terms.modulus,
        "max_weight": 1.0,
    }
    if set(configs) != {*expected, "stage", "sample_num", "share_num", "threshold"}:
        return WRONG_TERMS
    if any(type(configs[k]) is not type(v) or configs[k] != v for k, v in expected.items()):
        return WRONG_TERMS
    sampled, shares, threshold = (configs[k] for k in ("sample_num", "share_num", "threshold"))
    if any(type(number) is not int for number in (sampled, shares, threshold)):
        return WRONG_TERMS
    # Everyone shares with everyone: only then can a party count who is left.
    if shares != sampled or sampled > terms.n_users or not terms.threshold <= threshold <= sampled:
        return WRONG_TERMS
    if sampled < terms.min_survivors:
        return TOO_FEW_PARTIES
    seen.sampled = sampled
    return None


def check_share(configs: Mapping[str, Any], terms: RoundTerms, seen: Seen) -> str | None:
    """The parties' public keys."""
    keys = {name: pair for name, pair in configs.items() if name != "stage"}
    parties = [int(name) for name in keys if name.isascii() and name.isdigit()]
    # "7" and "07" are two names of one party.
    if [str(party) for party in parties] != list(keys) or seen.own not in parties:
        return WRONG_PARTIES
    if len(parties) > seen.sampled or not all(_are_keys(pair) for pair in keys.values()):
        return WRONG_PARTIES
    if len(parties) < terms.min_survivors:
        return TOO_FEW_PARTIES
    seen.parties = parties
    return None


def check_collect(configs: Mapping[str, Any], terms: RoundTerms, seen: Seen) -> str | None:
    """The packets from those with whom masks will be shared."""
    if set(configs) != {"stage", "ctxts", "srcs"}:
        return WRONG_PARTIES
    sources, packets = configs["srcs"], configs["ctxts"]
    if not _are_parties(sources) or not isinstance(packets, list) or len(packets) != len(sources):
        return WRONG_PARTIES
    if not set(sources) <= set(seen.parties) - {seen.own}:
        return WRONG_PARTIES
    if not all(isinstance(p, bytes) and len(p) <= MAX_KEY_BYTES for p in packets):
        return WRONG_PARTIES
    if len(sources) + 1 < terms.min_survivors:
        return TOO_FEW_PARTIES
    seen.sources = list(sources)
    return None


def check_unmask(configs: Mapping[str, Any], terms: RoundTerms, seen: Seen) -> str | None:
    """Who is in the sum and who is gone: nobody both, everybody one of them."""
    if set(configs) != {"stage", "active_nids", "dead_nids"}:
        return WRONG_PARTIES
    active, dead = configs["active_nids"], configs["dead_nids"]
    if not _are_parties(active) or not _are_parties(dead) or set(active) & set(dead):
        return WRONG_PARTIES
    if set(active) | set(dead) != {*seen.sources, seen.own} or seen.own not in active:
        return WRONG_PARTIES
    return TOO_FEW_PARTIES if len(active) < terms.min_survivors else None


CHECKS: dict[str, Callable[[Mapping[str, Any], RoundTerms, Seen], str | None]] = {
    SETUP: check_setup,
    SHARE: check_share,
    COLLECT: check_collect,
    UNMASK: check_unmask,
}


def _are_keys(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(key, bytes) and 0 < len(key) <= MAX_KEY_BYTES for key in pair)
    )


def _are_parties(numbers: Sequence[object]) -> bool:
    """Tell whether these are distinct numbers of parties."""
    if not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
        return False
    return len(set(numbers)) == len(numbers)
