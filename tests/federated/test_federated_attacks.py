"""Attacks on training across parties: each once worked, or would work on a careless design."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="secure sums need it")

from dpsvm_fast.exceptions import SecureSumAborted
from dpsvm_fast.federated.party import FileJournal
from dpsvm_fast.federated.protocol import RoundTerms
from dpsvm_fast.federated.secsum import SumResult
from dpsvm_fast.federated.server import ServerRound, sum_of_parties
from oracles.secure_sums import Room, party

TERMS = RoundTerms(
    digest="fingerprint", name="model", length=5, n_users=3, min_survivors=2, threshold=2
)
ROWS = [np.array([i, 2 * i, 3 * i, 10, 1], dtype=np.int64) for i in range(3)]


def room(folder: Path) -> Room:
    """One run of parties with journals that outlive it."""
    return Room([party(i, TERMS, row, FileJournal(folder / f"{i}")) for i, row in enumerate(ROWS)])


class Interrupted(Room):
    """Opens another sum over fewer parties while this one waits for its vectors."""

    def __init__(self, folder: Path) -> None:
        super().__init__(room(folder).parties)
        self.folder = folder
        self.other: SumResult | None = None

    def __call__(self, requests: Mapping[int, bytes]) -> dict[int, bytes]:
        if b"masked_input" in requests[1001] and self.other is None:
            second = room(self.folder)
            self.other = sum_of_parties(second, TERMS, second.numbers[:2])
        return super().__call__(requests)


@pytest.mark.proof("federated", "The library")
def test_interleaved_runs_do_not_get_the_vector_twice(tmp_path: Path) -> None:
    """Two sums of the same vectors over three and two parties: their difference is one vector."""
    attacked = Interrupted(tmp_path)
    with pytest.raises(SecureSumAborted):
        sum_of_parties(attacked, TERMS, attacked.numbers)
    assert (attacked.other.total == ROWS[0] + ROWS[1]).all()


def test_a_run_of_its_own_gets_the_sum(tmp_path: Path) -> None:
    """Control: without the other run the same parties give their vectors."""
    alone = room(tmp_path)
    found = sum_of_parties(alone, TERMS, alone.numbers)
    assert (found.total == sum(ROWS)).all()


@pytest.mark.proof("federated", "The library")
def test_a_server_that_opens_its_sum_twice_gets_shares_once(tmp_path: Path) -> None:
    """Told that party 2 is gone, who has given shares of its seed would open its vector alone."""
    parties = room(tmp_path)
    attempt = ServerRound(TERMS, parties.numbers)
    for _ in range(3):
        attempt.receive(parties(attempt.requests()))
    opened = attempt.requests()
    replies = parties(opened)
    assert all(b"refused" not in reply for reply in replies.values())
    lie = {
        number: data.replace(b'"active": [1001, 1002, 1003], "gone": []', b"LIE").replace(
            b"LIE", b'"active": [1001, 1002], "gone": [1003]'
        )
        for number, data in opened.items()
    }
    assert lie != opened
    for number in (1001, 1002):
        (reply,) = parties({number: lie[number]}).values()
        assert b"refused" in reply


@pytest.mark.proof("federated", "The library")
def test_keys_of_one_attempt_do_not_open_vectors_of_another(tmp_path: Path) -> None:
    """Packets of an attempt that came to nothing are of no use in the next one."""
    parties = room(tmp_path)
    first, second = (ServerRound(TERMS, parties.numbers) for _ in range(2))
    for _ in range(2):
        first.receive(parties(first.requests()))
    for _ in range(2):
        second.receive(parties(second.requests()))
    # The vectors of the second attempt, asked for with the packets of the first.
    old, new = first.requests(), second.requests()
    session = [data[data.index(b'"session": "') + 12 :][:32] for data in (old[1001], new[1001])]
    for number in parties.numbers:
        (reply,) = parties({number: old[number].replace(*session)}).values()
        assert b"refused" in reply
