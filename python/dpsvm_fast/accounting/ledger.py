"""The ledger: one budget, shared by everything that spends from it.

A ledger is shared by identity. Copying it gives the same ledger, and so does pickling it within a
process, which is what ``sklearn.base.clone``, grid searches and threads do. When it travels to
another process, by pickling or by a fork, its spends move to a file first, and from then on all
processes read and write that file.
"""

from __future__ import annotations

import math
import os
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from dpsvm_fast._rounding import add_down, mul_down, mul_up
from dpsvm_fast._validation import (
    check_adjacency,
    check_arithmetic,
    check_bool,
    check_delta,
    check_epsilon,
)
from dpsvm_fast.accounting._adaptive import AdaptiveComposition
from dpsvm_fast.accounting._history import SLACK, SpendHistory, composition_for
from dpsvm_fast.accounting._sharing import remembered
from dpsvm_fast.accounting._store import (
    Budget,
    SpendRecord,
    SpendStore,
    read_snapshot,
    write_snapshot,
)
from dpsvm_fast.accounting.accountant import Composition
from dpsvm_fast.accounting.events import PrivacyEvent
from dpsvm_fast.accounting.export import dp_accounting_event
from dpsvm_fast.exceptions import BudgetExceededError, LedgerError

__all__ = ["PrivacyLedger", "SpendRecord"]

Opened = TypeVar("Opened", bound="PrivacyLedger")


class PrivacyLedger(SpendHistory):
    """A privacy budget and the list of what was spent from it.

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    delta : float in [0, 1)
        With ``delta=0`` only pure events are admitted.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Events of the other relation are refused; nothing converts between them.
    path : str or path, optional
        File in which the ledger lives across processes and runs. An existing ledger there is
        continued if its budget is the same. None: in memory, and in a temporary file from the
        moment it is shared with another process until the process that made it exits.
    adaptive : bool, default=False
        Whether sizes of events may be chosen by looking at the results of earlier ones. Then
        events are admitted as long as their squared Gaussian parameters stay within a limit that
        is fixed now, pure events counting as the smallest Gaussian one that can simulate them;
        or as long as all are pure and add up to epsilon. A tenth of delta is kept for events of
        which (epsilon, delta) is all that counts: approximate ones with their own delta, and
        objective, zCDP, random-stopping and (where that is less) sampled Gaussian ones with a
        16th of that tenth each; and for what distances let be told. Of branches the largest of each
        number counts.

    Raises
    ------
    TypeError, InvalidParameterError
        An argument of another type, or outside its range.
    LedgerError
        ``path`` holds something else, or a ledger with another budget.

    Notes
    -----
    Guarantees: whatever threads and processes do, the composition of all admitted events is
    (epsilon, delta)-differentially private up to a relative 1e-9 in both numbers, provided each
    event describes its release truthfully and is spent before its noise is drawn. Sizes of events
    must not depend on earlier results unless ``adaptive``, except of Gaussian ones, and of pure
    ones that add up to epsilon; docs/proofs/adaptive_composition.md. A machine that crashes can
    lose a temporary ledger, never make it a new one. SQLite needs file locks, which some network
    file systems do not provide.

    Examples
    --------
    >>> from dpsvm_fast.accounting import PrivacyLedger, PureEvent
    >>> ledger = PrivacyLedger(epsilon=1.0, delta=0.0)
    >>> ledger.spend(PureEvent(0.75, "add_remove"), label="first model")
    >>> ledger.total(), ledger.remaining()
    ((0.75, 0.0), 0.25)
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        adjacency: str = "add_remove",
        *,
        path: str | os.PathLike[str] | None = None,
        adaptive: bool = False,
    ) -> None:
        budget = Budget(
            check_epsilon(epsilon),
            check_delta(delta),
            check_adjacency(adjacency),
            check_bool("adaptive", adaptive),
        )
        identity, store = uuid.uuid4().hex, None
        if path is not None:
            store, identity = SpendStore.create(
                Path(path).absolute(), identity, budget, lasting=True
            )
        self._begin(identity, budget, store)

    def spend(self, event: PrivacyEvent | tuple[PrivacyEvent, ...], label: str = "") -> None:
        """Record an event, or refuse it; atomic among all threads and processes.

        Parameters
        ----------
        event : PrivacyEvent or tuple of PrivacyEvent
            Several events of one release are recorded together or not at all; a distance belongs
            with those that it is about.
        label : str
            Free text for the history; must not be taken from the data.

        Raises
        ------
        BudgetExceededError
            History and event together exceed the budget. Nothing is recorded.
        TypeError, InvalidParameterError
            Not an event, an event of another relation, or a label that is no string.
        LedgerError
            The ledger's store is gone or damaged. Nothing may be released.
        """
        if not isinstance(label, str):
            raise TypeError(f"label: got {type(label).__name__}, expected a string")
        with self._up_to_date() as session:
            events, composed = self._admitted(event)
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            records = [SpendRecord(part, label, now, os.getpid()) for part in events]
            if session is not None:
                # Seen again through the file: the list here must not run ahead of a commit.
                session.append(len(self._records) + 1, records)
            else:
                self._records += records
                self._composed = (composed, len(self._records))

    def check(self, event: PrivacyEvent | tuple[PrivacyEvent, ...]) -> None:
        """Raise what ``spend`` would raise; record nothing."""
        with self._up_to_date():
            self._admitted(event)

    def total(self) -> tuple[float, float]:
        """Return the smallest known epsilon at the budget's delta, and that delta.

        Rounded up: of a budget that is spent to the last, up to a relative 1e-9 more. It is about
        events whose sizes were fixed beforehand. An adaptive ledger promises its budget; what
        was spent at a moment that is chosen by looking at results, ``odometer`` tells.
        """
        with self._up_to_date():
            return self._spent_epsilon(), self.delta

    def remaining(self) -> float:
        """Epsilon left at the budget's delta: a pure event of this size is still admitted."""
        with self._up_to_date():
            composed = self._composition()
            if isinstance(composed, AdaptiveComposition):
                return max(0.0, composed.remaining())
            if composed.has_distance:
                return composed.room(self.epsilon, self.delta)
        return max(0.0, add_down(self.epsilon, -self.total()[0]))

    def odometer(
        self, delta: float | None = None, *, tuned_to: float | None = None
    ) -> tuple[float, float]:
        r"""What has been spent so far, valid at any moment and for any ledger.

        Also where sizes of events, and the moment of asking, were chosen by looking at results.

        Parameters
        ----------
        delta : float in [0, 1), optional
            Of the boundary; fixed beforehand. None: nine tenths of the budget's.
        tuned_to : float > 0, optional
            Epsilon near which the boundary is tight; fixed beforehand. None: the budget's.

        Returns
        -------
        epsilon : float >= 0
        delta : float
            That of the boundary and of approximate events together.

        Raises
        ------
        TypeError, InvalidParameterError
            An argument of another type or outside its range, or a spend of which no epsilon is
            known at the small delta that the odometer gives it.

        Notes
        -----
        Guarantees: for neighbours D and D', a moment tau chosen by looking at results, and every
        set S of results until then, :math:`P_D(S) \le E_{D'}[e^{\epsilon_\tau} 1_S] +
        E_D[\delta_\tau]` with what is returned at tau; docs/proofs/adaptive_composition.md,
        section "The odometer". Two odometers with different arguments do not share one delta.

        References
        ----------
        Robbins, Annals of Mathematical Statistics 1970, for the mixture; Rogers, Roth, Ullman and
        Vadhan, NeurIPS 2016, for odometers; Whitehouse, Ramdas, Rogers and Wu, ICML 2023.
        """
        tuned = self.epsilon if tuned_to is None else check_epsilon(tuned_to, "tuned_to")
        delta = mul_down(self.delta, 0.9) if delta is None else check_delta(delta)
        composed = AdaptiveComposition(self.epsilon, self.delta, self.adjacency)
        for record in self.history:
            composed.add(record.event)
        return composed.odometer(delta, tuned)

    def to_dp_accounting(self) -> Any:
        """All spends as one event of the ``dp-accounting`` library, to check with its accountants.

        As :func:`dp_accounting_event` and, without that library, :func:`dp_accounting_tree`.

        Raises
        ------
        ImportError
            The library is not installed.
        """
        return dp_accounting_event(record.event for record in self.history)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write budget and history as JSON: a snapshot, which does not follow later spends."""
        write_snapshot(Path(path), self._budget, self.history)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrivacyLedger:
        """Ledger with the budget and the history of a file written by ``save``.

        Each call gives a ledger of its own. Only one of them should go on spending; for a budget
        that several runs share, use the constructor's ``path``.

        Raises
        ------
        LedgerError
            The file is no ledger of a known version.
        """
        budget, records = read_snapshot(Path(path))
        ledger = cls._with(budget, path)
        if any(record.event.adjacency != ledger.adjacency for record in records):
            raise LedgerError(f"{path}: a spend is of another neighbouring relation")
        ledger._records.extend(records)
        return ledger

    @classmethod
    def open(cls: type[Opened], path: str | os.PathLike[str]) -> Opened:
        """Continue the ledger in a file that the constructor's ``path`` made, with its own budget.

        Raises
        ------
        LedgerError
            There is no file, or it holds something else than a ledger of a known version.
        """
        file = Path(path).absolute()
        if not file.is_file():
            raise LedgerError(
                f"{path}: there is no such file; PrivacyLedger(epsilon, delta, path=...) makes one"
            )
        with SpendStore(file, lasting=True).transaction() as session:
            if session.is_empty():
                raise LedgerError(f"{path} is empty and no ledger")
            _, budget = session.header()
        return cls._with(budget, path, kept_in=file)

    @classmethod
    def _with(
        cls: type[Opened],
        budget: Budget,
        path: str | os.PathLike[str],
        kept_in: Path | None = None,
    ) -> Opened:
        """A ledger with the budget that a file at ``path`` is said to hold."""
        numbers = (budget.epsilon, budget.delta, budget.adjacency)
        try:
            return cls(*numbers, path=kept_in, adaptive=budget.adaptive)
        except (TypeError, ValueError) as error:
            raise LedgerError(f"{path}: {error}") from error

    def __reduce__(self) -> tuple[object, ...]:
        with self._lock:
            store = self._in_file()
            budget = self._budget
        return _reopened, (
            self._identity,
            os.fspath(store.path),
            store.lasting,
            (budget.epsilon, budget.delta, budget.adjacency, budget.adaptive),
        )

    def __repr__(self) -> str:
        # Never opens the file: a repr must not fail.
        number = len(self._records)
        rule = ", adaptive=True" if self.adaptive else ""
        return (
            f"PrivacyLedger(epsilon={self.epsilon!r}, delta={self.delta!r}, "
            f"adjacency={self.adjacency!r}{rule}; {number} event{'' if number == 1 else 's'} seen)"
        )

    def __str__(self) -> str:
        history = self.history
        lines = [
            f"Privacy ledger ({self.adjacency})",
            f"  budget     epsilon = {self.epsilon:g}, delta = {self.delta:g}",
            f"  spent      epsilon = {self.total()[0]:.6g} at delta = {self.delta:g}, "
            f"{len(history)} event{'' if len(history) == 1 else 's'}",
            f"  remaining  epsilon = {self.remaining():.6g}",
        ]
        lines += [f"  {i:>4}  {record}" for i, record in enumerate(history[:20], 1)]
        if len(history) > 20:
            lines.append(f"        ... and {len(history) - 20} more")
        return "\n".join(lines)

    def _admitted(
        self, event: Any
    ) -> tuple[tuple[PrivacyEvent, ...], Composition | AdaptiveComposition]:
        """Return the events and history with them; raises when the budget does not allow it."""
        check_arithmetic()
        events = event if isinstance(event, tuple) else (event,)
        composed = self._composition().copy()
        for part in events:
            composed.add(part)
        if isinstance(composed, AdaptiveComposition):
            fits = composed.fits()
        else:
            fits = composed.fits(mul_up(self.epsilon, 1.0 + SLACK), mul_up(self.delta, 1.0 + SLACK))
        if fits:
            return events, composed
        raise BudgetExceededError(self._refusal(events))

    def _refusal(self, events: tuple[PrivacyEvent, ...]) -> str:
        """Budget, spent and asked, in one sentence each."""
        text = f"the privacy budget is epsilon={self.epsilon:g}, delta={self.delta:g} "
        text += f"({self.adjacency}); spent at that delta: epsilon={self._spent_epsilon():.6g}; "
        alone = composition_for(self._budget)
        for event in events:
            alone.add(event)
        asked = alone.epsilon(self.delta)
        if math.isinf(asked) and self.delta == 0.0:
            return text + "a budget with delta=0 admits pure events only, and this one is not"
        if math.isinf(asked) and self.adaptive:
            return text + (
                "nothing is known of this release at the small delta that an adaptive ledger has "
                "for it, so it cannot be charged. Nothing was recorded"
            )
        return text + f"this release alone asks for epsilon={asked:.6g}. Nothing was recorded"


def _reopened(
    identity: str,
    path: str,
    lasting: bool,  # noqa: FBT001 - pickle passes by position
    budget: tuple[float, float, str, bool],
) -> PrivacyLedger:
    """Unpickle: the ledger of that identity in this process, or another handle on its file."""
    ledger = remembered(identity)
    if isinstance(ledger, PrivacyLedger):
        return ledger
    store = SpendStore(Path(path), lasting=lasting)
    with store.transaction() as session:
        found, found_budget = session.header()
    if (found, found_budget) != (identity, Budget(*budget)):
        raise LedgerError(f"{path} holds another ledger than the one that was pickled")
    ledger = object.__new__(PrivacyLedger)
    ledger._begin(identity, found_budget, store)
    return ledger
