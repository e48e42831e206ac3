"""Attacks on training across parties: each once worked, or would work on a careless design."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from dpsvm_fast.exceptions import SecureSumAborted
from dpsvm_fast.federated.flower.client import FileJournal, make_party_app
from dpsvm_fast.federated.flower.protocol import RoundTerms
from dpsvm_fast.federated.flower.secsum import LocalGrid, server_identity
from dpsvm_fast.federated.flower.server import sum_of_parties
from dpsvm_fast.federated.secsum import SumResult

TERMS = RoundTerms(
    digest="fingerprint", name="model", length=5, n_users=3, min_survivors=2, threshold=2
)
ROWS = [np.array([i, 2 * i, 3 * i, 10, 1], dtype=np.int64) for i in range(3)]


def app(row: Any, journal: FileJournal) -> Any:
    """A party with a journal that outlives a run."""
    return make_party_app(lambda _: {TERMS.name: TERMS}, lambda *_: row, lambda _: journal)


def apps(folder: Path) -> list[Any]:
    return [app(row, FileJournal(folder / f"journal-{i}")) for i, row in enumerate(ROWS)]


class Interrupted(LocalGrid):
    """Opens another sum over fewer parties while this one waits for its vectors."""

    def __init__(self, parties: list[Any]) -> None:
        super().__init__(parties)
        self.parties = parties
        self.other: SumResult | None = None
        self.begun = False

    def send_and_receive(
        self, messages: Iterable[Any], *, timeout: float | None = None
    ) -> list[Any]:
        requests = list(messages)
        configs = requests[0].content.config_records["secaggplus_configs"]
        if configs["stage"] == "collect_masked_vectors" and not self.begun:
            self.begun = True
            second = LocalGrid(self.parties)
            self.other = sum_of_parties(second, TERMS, second.get_node_ids()[:2])
        return super().send_and_receive(requests, timeout=timeout)


@pytest.mark.proof("federated", "The library")
@pytest.mark.skipif(sys.version_info < (3, 11), reason="flwr needs it")
def test_interleaved_runs_do_not_get_the_vector_twice(tmp_path: Path) -> None:
    """Two sums of the same vectors over three and two parties: their difference is one vector."""
    with server_identity():
        grid = Interrupted(apps(tmp_path))
        with pytest.raises(SecureSumAborted):
            sum_of_parties(grid, TERMS, grid.get_node_ids())
    assert grid.other is not None
    assert (grid.other.total == ROWS[0] + ROWS[1]).all()


def test_a_run_of_its_own_gets_the_sum(tmp_path: Path) -> None:
    """Control: without the other run the same parties give their vectors."""
    with server_identity():
        grid = LocalGrid(apps(tmp_path))
        found = sum_of_parties(grid, TERMS, grid.get_node_ids())
    assert (found.total == sum(ROWS)).all()
