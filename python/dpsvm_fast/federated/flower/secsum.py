"""The secure sum as an object: the whole protocol in one process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.flower._party import make_party_app
from dpsvm_fast.federated.flower._round import sum_of_parties
from dpsvm_fast.federated.flower.terms import RoundTerms
from dpsvm_fast.federated.flower.testing import Fault, LocalGrid, server_identity
from dpsvm_fast.federated.secsum import SumResult
from dpsvm_fast.federated.spec import FederatedSpec

__all__ = ["FlowerSum"]


@dataclass(frozen=True)
class FlowerSum:
    """Adds vectors with Flower's secure aggregation, all parties in this process.

    The messages, masks and shares are those of a real run; only the network is missing. Whoever
    holds this process holds all vectors, so it protects nobody: it is for experiments, and for
    tests of what a real run would give.

    Parameters
    ----------
    min_survivors : int or None, default=None
        Parties without which nothing comes out; None for all.
    threshold : int or None, default=None
        Shares that open a mask; None for the smallest that is more than half.
    faults : sequence of Fault, default=()
        What goes wrong.
    attempts : int, default=2
        How often to begin while no vector has been sent.
    """

    min_survivors: int | None = None
    threshold: int | None = None
    faults: Sequence[Fault] = ()
    attempts: int = 2

    @classmethod
    def for_spec(cls, spec: FederatedSpec, faults: Sequence[Fault] = ()) -> FlowerSum:
        """The sum as a specification wants it: its threshold, its number of survivors.

        Parameters
        ----------
        spec : FederatedSpec
        faults : sequence of Fault, default=()
            What a test lets go wrong.

        Returns
        -------
        FlowerSum
        """
        return cls(spec.survivors_needed, spec.threshold, faults)

    @property
    def trust(self) -> str:
        """Word of the statement."""
        return "secure_sum"

    def sum(self, vectors: Iterable[NDArray[np.int64]]) -> SumResult:
        """The sum of one vector of each party.

        Parameters
        ----------
        vectors : iterable of ndarray of shape (length,), int64
            Below 2**29 in size, the last number 1.

        Raises
        ------
        SecureSumAborted
            Too few parties were left.
        InvalidParameterError
            Fewer than two vectors.
        """
        rows = list(vectors)
        if len(rows) < 2:
            raise InvalidParameterError.of("vectors", got=len(rows), accepted="at least 2")
        needed = len(rows) if self.min_survivors is None else self.min_survivors
        terms = RoundTerms(
            digest="in one process",
            name="sum",
            length=len(rows[0]),
            n_users=len(rows),
            min_survivors=needed,
            threshold=len(rows) // 2 + 1 if self.threshold is None else self.threshold,
        )
        apps = [
            make_party_app(lambda _: {terms.name: terms}, lambda *_, row=row: row) for row in rows
        ]
        with server_identity():
            grid = LocalGrid(apps, faults=self.faults)
            return sum_of_parties(grid, terms, grid.get_node_ids(), attempts=self.attempts)
