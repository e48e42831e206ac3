"""Secure sums in one process: parties and a server, with faults put in at any stage.

What the network would do is done: a party's state and every message are bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.federated.party import FileJournal, Party
from dpsvm_fast.federated.protocol import RoundTerms
from dpsvm_fast.federated.secsum import SumResult
from dpsvm_fast.federated.server import sum_of_parties

FIRST = 1001


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong with some parties at one stage.

    ``parties`` are positions from 0. Kinds: a party is ``"silent"`` (vanishes before the message),
    ``"lost"`` (its reply is), it ``"raises"`` (its process fails), or its reply is ``"changed"``.
    With ``times`` the fault meets so many messages only; else who has vanished stays away.
    """

    stage: str
    parties: Sequence[int]
    kind: str = "silent"
    change: Callable[[dict[str, Any]], Any] | None = None
    times: int | None = None


@dataclass(frozen=True)
class Sent:
    """A message as it went over the line."""

    stage: str
    party: int
    upwards: bool
    data: bytes

    @property
    def record(self) -> dict[str, Any]:
        return dict(json.loads(self.data))


class Room:
    """Parties that are asked by calling them; an exchange for ``sum_of_parties``."""

    def __init__(self, parties: Sequence[Party], faults: Sequence[Fault] = ()) -> None:
        self.parties = list(parties)
        self.states = [b""] * len(self.parties)
        self.traffic: list[Sent] = []
        self._faults = list(faults)
        self._met = [dict.fromkeys(fault.parties, 0) for fault in faults]
        self._gone: set[int] = set()

    @property
    def numbers(self) -> list[int]:
        return [party.number for party in self.parties]

    def __call__(self, requests: Mapping[int, bytes]) -> dict[int, bytes]:
        replies = {}
        for number, request in requests.items():
            reply = self.deliver(self.numbers.index(number), request)
            if reply is not None:
                replies[number] = reply
        return replies

    def deliver(self, i: int, request: bytes) -> bytes | None:
        stage = str(json.loads(request).get("stage"))
        fault = self._fault(stage, i)
        self.traffic.append(Sent(stage, i, False, request))
        kind = "" if fault is None else fault.kind
        if kind in ("silent", "raises"):
            return None if kind == "silent" else b""
        self.states[i], reply = self.parties[i].respond(self.states[i], request)
        if kind == "lost":
            return None
        if fault is not None and fault.change is not None:
            record = json.loads(reply)
            fault.change(record)
            reply = json.dumps(record).encode()
        self.traffic.append(Sent(stage, i, True, reply))
        return reply

    def _fault(self, stage: str, i: int) -> Fault | None:
        for fault, met in zip(self._faults, self._met, strict=True):
            if fault.stage != stage or i not in met:
                continue
            if fault.times is None or met[i] < fault.times:
                met[i] += 1
                if fault.kind in ("silent", "lost") and fault.times is None:
                    self._gone.add(i)
                return fault
        return Fault(stage, [i]) if i in self._gone else None


def party(
    i: int,
    terms: RoundTerms | Sequence[RoundTerms],
    contribute: Any,
    journal: FileJournal | None = None,
) -> Party:
    """Party i, with a vector or a function that makes one."""
    agreed = [terms] if isinstance(terms, RoundTerms) else terms
    make = contribute if callable(contribute) else lambda *_: contribute
    return Party(FIRST + i, lambda: {t.name: t for t in agreed}, make, lambda: journal)


def room_of(
    vectors: Iterable[NDArray[np.int64]], terms: RoundTerms, faults: Sequence[Fault] = ()
) -> Room:
    """One party for each vector."""
    return Room([party(i, terms, vector) for i, vector in enumerate(vectors)], faults)


@dataclass(frozen=True)
class InOneProcess:
    """The secure sum for ``simulate``: with masks, and all parties in this process."""

    min_survivors: int | None = None
    threshold: int | None = None
    faults: Sequence[Fault] = ()
    attempts: int = 2

    def sum(self, vectors: Iterable[NDArray[np.int64]]) -> SumResult:
        rows = list(vectors)
        n = len(rows)
        terms = RoundTerms(
            digest="in one process",
            name="sum",
            length=len(rows[0]),
            n_users=n,
            min_survivors=n if self.min_survivors is None else self.min_survivors,
            threshold=n // 2 + 1 if self.threshold is None else self.threshold,
        )
        room = room_of(rows, terms, self.faults)
        return sum_of_parties(room, terms, room.numbers, attempts=self.attempts)
