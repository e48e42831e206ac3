"""The spends of one budget, in memory or in a file, and what they compose to.

A history is shared by identity: a copy is the same history, and before another process sees it, its
spends move to a file that all of them read and write.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from dpsvm_fast.accounting._adaptive import AdaptiveComposition
from dpsvm_fast.accounting._sharing import remember
from dpsvm_fast.accounting._store import (
    Budget,
    Session,
    SpendRecord,
    SpendStore,
    private_directory,
)
from dpsvm_fast.accounting.accountant import Composition
from dpsvm_fast.exceptions import LedgerError

__all__ = ["SLACK", "SpendHistory", "composition_for"]

# Relative slack of every comparison with the budget. It lets ten spends of the float 0.1, whose
# exact sum is above 1, fill a budget of 1, and an event calibrated to the budget fit after its own
# upward rounding (a few units in the 16th place, times up to 1e4 for the steepest deltas).
SLACK = 1e-9

Same = TypeVar("Same", bound="SpendHistory")


class SpendHistory:
    """A budget and what was spent from it, the same for all threads and processes."""

    def _begin(self, identity: str, budget: Budget, store: SpendStore | None) -> None:
        """Set every attribute and become visible to the fork hooks."""
        self._identity = identity
        self._budget = budget
        self._store = store
        self._process = os.getpid()
        self._lock = threading.RLock()
        # All spends when in memory, those already seen when in a file. Appending is the one step
        # that spends; what follows from the list is caught up with the list afterwards.
        self._records: list[SpendRecord] = []
        self._composed: tuple[Composition | AdaptiveComposition, int] = (
            composition_for(budget),
            0,
        )
        self._spent = (0, 0.0)
        remember(identity, self)

    @property
    def epsilon(self) -> float:
        """Epsilon of the budget."""
        return self._budget.epsilon

    @property
    def delta(self) -> float:
        """Delta of the budget."""
        return self._budget.delta

    @property
    def adjacency(self) -> str:
        """Neighbouring relation of the budget."""
        return self._budget.adjacency

    @property
    def adaptive(self) -> bool:
        """Whether sizes of events may be chosen by looking at earlier results."""
        return self._budget.adaptive

    @property
    def history(self) -> tuple[SpendRecord, ...]:
        """All spends so far, in their order."""
        with self._up_to_date():
            return tuple(self._records)

    def __copy__(self: Same) -> Same:
        return self

    def __deepcopy__(self: Same, memo: dict[int, object]) -> Same:
        return self

    @contextmanager
    def _up_to_date(self) -> Iterator[Session | None]:
        """Hold the ledger, with every spend of every process in ``_records``."""
        with self._lock:
            if self._store is None:
                if os.getpid() != self._process:
                    raise LedgerError(
                        "this process was forked while the ledger could not be moved to a file; "
                        "nothing can be spent here. Give path= to the ledger"
                    )
                yield None
                return
            with self._store.transaction() as session:
                self._records.extend(session.read_after(len(self._records)))
                yield session

    def _composition(self) -> Composition | AdaptiveComposition:
        """Composition of all of ``_records``."""
        composition, count = self._composed
        if count < len(self._records):
            composition = composition.copy()
            for record in self._records[count:]:
                composition.add(record.event)
            self._composed = (composition, len(self._records))
        return composition

    def _spent_epsilon(self) -> float:
        """Epsilon of the whole history, computed once for each length of it."""
        count, spent = self._spent
        if count != len(self._records):
            spent = self._composition().epsilon(self.delta)
            self._spent = (len(self._records), spent)
        return spent

    def _in_file(self) -> SpendStore:
        """Return the store, moving the spends out of memory first; needs the lock."""
        if self._store is None:
            with self._up_to_date():
                path = private_directory() / f"{self._identity}.sqlite"
                store, _ = SpendStore.create(path, self._identity, self._budget, lasting=False)
                with store.transaction() as session:
                    session.append(1, self._records)
                self._store = store
        return self._store


def composition_for(budget: Budget) -> Composition | AdaptiveComposition:
    """Return an empty composition by the rule of the budget."""
    if budget.adaptive:
        return AdaptiveComposition(budget.epsilon, budget.delta, budget.adjacency, SLACK)
    return Composition(budget.adjacency)
