"""The ledger: one budget, shared by everything that spends from it.

A ledger is shared by identity. Copying it gives the same ledger, and so does pickling it within a
process, which is what ``sklearn.base.clone``, grid searches and threads do. When it travels to
another process, by pickling or by a fork, its spends move to a file first, and from then on all
processes read and write that file.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
import threading
import uuid
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from dpsvm_fast.accounting.adaptive import AdaptiveComposition
from dpsvm_fast.accounting.composition import MAX_LOOKS, Composition, largest
from dpsvm_fast.accounting.export import dp_accounting_event
from dpsvm_fast.accounting.totals import of_events
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.certificates.events import PrivacyEvent
from dpsvm_fast.exceptions import (
    BudgetExceededError,
    InvalidParameterError,
    InvalidTypeError,
    LedgerError,
)
from dpsvm_fast.ledger.store import (
    Budget,
    Session,
    SpendRecord,
    SpendStore,
    is_mark,
    private_directory,
    read_snapshot,
    write_snapshot,
)
from dpsvm_fast.rounding import add_up, mul_down, mul_up
from dpsvm_fast.validation import (
    check_bool,
    check_delta,
    check_epsilon,
    check_items,
    check_path,
    check_type,
    warn_of_weak_numbers,
)

# Ledgers of this process, and what happens to them when it forks.
#
# Before a fork every ledger moves to a file, so that parent and child share a budget.


# By identity for unpickling, and all of them for forks (two may have been opened on one file).
_all: weakref.WeakSet[PrivacyLedger] = weakref.WeakSet()

_live: weakref.WeakValueDictionary[str, PrivacyLedger] = weakref.WeakValueDictionary()

_fork_lock = threading.RLock()

_held: list[PrivacyLedger] = []


def _before_fork() -> None:
    """Lock every ledger and move it to a file, so that parent and child share one budget."""
    _fork_lock.acquire()
    for ledger in list(_all):
        ledger._lock.acquire()
        _held.append(ledger)
        try:
            ledger._in_file()
        except (LedgerError, OSError):
            # Stays in memory here; the child notices and refuses to spend.
            continue


def _after_fork_in_parent() -> None:
    """Release the locks that ``_before_fork`` took."""
    while _held:
        _held.pop()._lock.release()
    _fork_lock.release()


def _after_fork_in_child() -> None:
    """Create new locks: the owners of the old ones do not exist in this process."""
    global _fork_lock
    while _held:
        _held.pop()._lock = threading.RLock()
    _fork_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )

# Relative slack of every comparison with the budget. It lets ten spends of the float 0.1, whose
# exact sum is above 1, fill a budget of 1, and an event calibrated to the budget fit after its own
# upward rounding (a few units in the 16th place, times up to 1e4 for the steepest deltas).
SLACK = 1e-9
# Decisions that are made while others may spend; the next one is made while they wait.
UNLOCKED_TRIES = 3

# Name of the single period if none are declared.
ALL = ("",)

Opened = TypeVar("Opened", bound="PrivacyLedger")
Events = tuple[PrivacyEvent, ...]
AnyComposition = Composition | AdaptiveComposition
Compositions = dict[str, AnyComposition]
Charges = list[tuple[PrivacyEvent, tuple[str, ...]]]


class PrivacyLedger:
    """Privacy budget and the history of its spends.

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    delta : float in [0, 1)
        With ``delta=0`` only pure events are admitted.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring relation. Events of the other relation are refused.
    unit : {"row", "person", "party"}, default="row"
        Protected unit. Releases that protect another unit are refused.
    path : str or path, optional
        File of the ledger, shared by processes and runs. An existing ledger with the same budget is
        continued. None keeps the ledger in memory; if another process shares it, in a temporary
        file until the process that created it exits.
    adaptive : bool, default=False
        Whether sizes of events may depend on earlier results. Events are then admitted while the
        sum of their squared Gaussian parameters stays within a limit that is fixed now; a pure
        event counts as the smallest Gaussian one that can simulate it. (If all are pure, they may
        add up to epsilon.) A tenth of delta is reserved for events that count by (epsilon, delta)
        only: approximate events with their own delta; objective, zCDP, random-stopping and, where
        that is less, sampled Gaussian events with a 16th of that tenth each; and distances.
        Parallel branches count by the largest of each number.
    anchor : str or path, optional
        A second file, on another disk or under another owner, that holds the number of spends and a
        digest. It is created if missing; the file at ``path`` then refers to it, and an older or
        second copy of the ledger is refused.
    strict : bool, default=True
        Whether a fit that would not be private, or whose failure would not be covered, is refused
        before anything is read or charged. With False it warns, is charged as if its noise were
        secret, and is listed as NOT PRIVATE. Also refused: ``bounds=None``, and clones with other
        settings, as in GridSearchCV. A property of this object, not of the file.
    periods : sequence of str, default=()
        Names of periods, such as weeks; every row belongs to exactly one. ``for_periods`` charges
        some periods only, and each period has the whole budget. With ``unit="row"`` only, since
        persons may return.

    Raises
    ------
    TypeError, InvalidParameterError
        An argument has the wrong type or is out of range.
    LedgerError
        ``path`` is not a ledger, has another budget or a second name (hard link), or is behind its
        anchor; or the anchor is missing.

    Notes
    -----
    Guarantees: whatever threads and processes do, the composition of all admitted events is
    (epsilon, delta)-differentially private up to a relative 1e-9 in both numbers, provided each
    event describes its release truthfully and is spent before its noise is drawn. Sizes of events
    must not depend on earlier results unless ``adaptive``, or all events are Gaussian, or all are
    pure and add up to epsilon; docs/proofs/adaptive_composition.md. A crash of the machine can
    lose a temporary ledger, but never restart it with a new budget; what ``spend`` recorded with
    ``path`` stays. docs/budget.md says what a file cannot protect from. SQLite needs file locks,
    which some network file systems do not provide.

    Examples
    --------
    >>> from dpsvm_fast.certificates import PureEvent
    >>> from dpsvm_fast.ledger import PrivacyLedger
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
        unit: str = "row",
        path: str | os.PathLike[str] | None = None,
        adaptive: bool = False,
        anchor: str | os.PathLike[str] | None = None,
        strict: bool = True,
        periods: Sequence[str] = (),
    ) -> None:
        self._strict = check_bool("strict", strict)
        names = check_items("periods", periods, "a sequence of names")
        budget = Budget(epsilon, delta, adjacency, adaptive, unit, names)
        warn_of_weak_numbers(budget.epsilon, budget.delta, stacklevel=3)
        if path is None:
            if anchor is not None:
                raise InvalidParameterError("anchor: expected None without path")
            self._begin(budget, None, [])
            return
        own = Path(check_path("path", path))
        beside = None if anchor is None else Path(check_path("anchor", anchor))
        store, records = SpendStore.create(own, uuid.uuid4().hex, budget, lasting=True)
        self._begin(budget, store, records)
        if beside is not None:
            with self._up_to_date() as session:
                assert session is not None
                session.tie(beside)

    def _begin(self, budget: Budget, store: SpendStore | None, records: list[SpendRecord]) -> None:
        """Set every attribute and become visible to the fork hooks."""
        # For a handle on some periods: the ledger that it charges, and the names of the periods.
        self._whole: PrivacyLedger = self
        self._charged: tuple[str, ...] = ()
        self._identity = uuid.uuid4().hex if store is None else store.identity
        self._budget = budget
        self._store = store
        self._process = os.getpid()
        self._lock = threading.RLock()
        # All spends when in memory, those already seen when in a file. Appending is the one step
        # that spends; what follows from the list is caught up with the list afterwards.
        self._records = records
        # One composition for each period: of what is charged to its rows.
        composed: Compositions = dict.fromkeys(budget.periods or ALL, composition_for(budget))
        self._composed = (composed, 0)
        self._spent = (0, 0.0)
        with _fork_lock:
            _live[self._identity] = self
            _all.add(self)

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
    def unit(self) -> str:
        """Unit of privacy: "row", "person" or "party"."""
        return self._budget.unit

    @property
    def adaptive(self) -> bool:
        """Whether event sizes may depend on earlier results."""
        return self._budget.adaptive

    @property
    def strict(self) -> bool:
        """Whether fits that would not be private are refused."""
        return self._strict

    @property
    def periods(self) -> tuple[str, ...]:
        """Declared periods; after ``for_periods``, the periods that are charged."""
        return self._charged or self._budget.periods

    @property
    def charged(self) -> tuple[str, ...]:
        """Periods whose rows are charged; empty for all rows."""
        return self._charged

    @property
    def anchor(self) -> Path | None:
        """Second file that counts the spends, if there is one."""
        store = self._whole._store
        return None if store is None else store.anchor

    @property
    def history(self) -> tuple[SpendRecord, ...]:
        """All spends so far on rows of these periods, in order."""
        whole = self._whole
        with whole._lock, whole._up_to_date():
            records = tuple(whole._records)
        if not self._charged:
            return records
        own = set(self._charged)
        return tuple(one for one in records if not one.periods or own & set(one.periods))

    def for_periods(self: Opened, *periods: str) -> Opened:
        """Return the same ledger, charging the rows of these periods only.

        Pass it to fits on rows of these periods. What it spends, refuses and has left refers to
        their rows; a fit on the rows of several periods is charged to each of them.

        Parameters
        ----------
        *periods : str
            One or more declared periods.

        Raises
        ------
        TypeError, InvalidParameterError
            A period is not a string, or was not declared. Nothing is spent.

        Notes
        -----
        Guarantees: docs/proofs/adaptive_composition.md, section "Periods". Every row belongs to
        exactly one declared period, which is public, as is the number of rows of each period with
        ``adjacency="replace_one"``: a row is replaced by one of the same period.

        Examples
        --------
        >>> from dpsvm_fast.certificates import PureEvent
        >>> from dpsvm_fast.ledger import PrivacyLedger
        >>> ledger = PrivacyLedger(1.0, 0.0, periods=["2026-W01", "2026-W02"])
        >>> for week in ledger.periods:
        ...     ledger.for_periods(week).spend(PureEvent(1.0, "add_remove"))
        >>> ledger.total()
        (1.0, 0.0)
        """
        if not all(isinstance(name, str) for name in periods):
            raise InvalidTypeError("periods: expected strings as separate arguments")
        # In the order in which they were declared.
        asked = set(periods)
        own = tuple(name for name in self.periods if name in asked)
        if not own or len(own) < len(asked):
            declared = ", ".join(self.periods[:3]) + (", ..." if len(self.periods) > 3 else "")
            raise InvalidParameterError.of(
                "periods",
                got=periods,
                accepted=f"some of the declared ones: {declared}"
                if self.periods
                else (
                    "none: this ledger declares none; PrivacyLedger(..., periods=[...]) does, for "
                    "unit='row' only"
                ),
            )
        handle = object.__new__(type(self))
        handle._whole, handle._charged = self._whole, own
        handle._budget, handle._strict, handle._spent = self._budget, self._strict, (0, 0.0)
        return handle

    @in_usual_arithmetic
    def spend(
        self,
        event: PrivacyEvent | tuple[PrivacyEvent, ...],
        label: str = "",
        *,
        unit: str | None = None,
        by_age: bool = False,
    ) -> None:
        """Record an event or refuse it; atomic across threads and processes.

        Parameters
        ----------
        event : PrivacyEvent or tuple of PrivacyEvent
            Several events of one release are recorded together or not at all; pass a distance with
            the events that it belongs to.
        label : str
            Free text for the history; must not be taken from the data.
        unit : {"row", "person", "party"}, optional
            Unit that the events protect; it must be that of the ledger, which is the default.
        by_age : bool, default=False
            Whether the first of several events is charged to the last of these periods, the next to
            the period before it, and so on; there must be as many events as periods.

        Raises
        ------
        BudgetExceededError
            History and event together exceed the budget. Nothing is recorded.
        TypeError, InvalidParameterError
            Not an event, an event of another relation or unit, or a label that is not a string.
        LedgerError
            The ledger's store is gone or damaged. Nothing may be released.
        """
        check_type("label", label, str, "a string")
        charges, whole = self._charges(event, unit, by_age=by_age), self._whole
        with whole._lock:
            for tries in range(UNLOCKED_TRIES, -1, -1):
                # Decided before the file is locked, and valid if nobody spends meanwhile.
                known, decision = len(whole._records), None
                refusal: BudgetExceededError | None = None
                try:
                    decision = whole._admitted(charges) if tries else None
                except BudgetExceededError as error:
                    refusal = error
                with whole._up_to_date() as session:
                    if tries and known != len(whole._records):
                        continue
                    if refusal is not None:
                        raise refusal
                    decision = decision or whole._admitted(charges)
                    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
                    records = [
                        SpendRecord(part, label, now, os.getpid(), names) for part, names in charges
                    ]
                    if session is not None:
                        session.append(len(whole._records) + 1, records)
                # The list must not get ahead of a commit.
                whole._records += records
                whole._composed = (whole._composed[0] | decision, len(whole._records))
                return

    def _charges(self, event: PrivacyEvent | Events, unit: str | None, *, by_age: bool) -> Charges:
        """Return events, each with the periods that it is charged to; none for all rows.

        Events of another unit are refused; None means that of the ledger.
        """
        if unit not in (None, self._budget.unit):
            raise InvalidParameterError(
                f"ledger: got unit={self.unit!r}, expected unit={unit!r}, as in this release"
            )
        events = tuple(event) if isinstance(event, tuple | list) else (event,)
        if not by_age:
            return [(part, self._charged) for part in events]
        if len(events) != len(self._charged):
            raise InvalidParameterError.of(
                "ledger",
                got=f"{len(self._charged)} periods",
                accepted=f"ledger.for_periods() of the {len(events)} periods so far, in order",
            )
        return [(part, (name,)) for part, name in zip(events, self._charged[::-1], strict=True)]

    @in_usual_arithmetic
    def check(
        self, event: PrivacyEvent | Events, *, unit: str | None = None, by_age: bool = False
    ) -> None:
        """Raise what ``spend`` would raise; record nothing.

        Parameters
        ----------
        event, unit, by_age
            As in ``spend``.
        """
        charges, whole = self._charges(event, unit, by_age=by_age), self._whole
        with whole._lock:
            whole._catch_up()
            whole._admitted(charges)

    @in_usual_arithmetic
    def total(self) -> tuple[float, float]:
        """Return the smallest known epsilon at the delta of the budget, and that delta.

        With several periods, the largest of them. It is rounded up: for a budget that is fully
        spent, by up to a relative 1e-9, or by more if more than six periods are. It is valid for
        events whose sizes were fixed beforehand. An adaptive ledger guarantees its budget;
        ``odometer`` bounds the loss at a moment that depends on results.
        """
        whole = self._whole
        with whole._lock:
            composed, (count, spent) = self._current(), self._spent
            known = len(whole._records)
        # No lock is held while this is computed.
        if count != known:
            parts, most = set(composed.values()), mul_up(self.epsilon, 1.0 + SLACK)
            spent = largest(
                lambda one, **how: one.epsilon(self.delta, **how),
                parts,
                lambda one: one.simple_epsilon(),
            )
            # Quick bounds of many periods may be far above what admitted their last spends.
            looks = itertools.repeat(None, MAX_LOOKS)
            shown = (isinstance(one, Composition) and one.keeps_epsilon(looks) for one in parts)
            if len(parts) > 1 and spent > most and all(shown):
                spent = most
            with whole._lock:
                self._spent = max(self._spent, (known, spent))
        return spent, self.delta

    @in_usual_arithmetic
    def remaining(self) -> float:
        """Return about the epsilon left at the delta of the budget, for a pure event.

        Beside events of other kinds a little less may fit.
        """
        with self._whole._lock:
            composed = self._current()
        return -largest(
            lambda one, **how: -one.remaining(**how),
            set(composed.values()),
            lambda one: add_up(one.simple_epsilon(), -self.epsilon),
        )

    @in_usual_arithmetic
    def odometer(
        self, delta: float | None = None, *, tuned_to: float | None = None
    ) -> tuple[float, float]:
        r"""Return epsilon and delta of all spends so far, valid at any time.

        Also if sizes of events, and the moment of the call, depend on results.

        Parameters
        ----------
        delta : float in [0, 1), optional
            Delta of the boundary, fixed beforehand. None takes nine tenths of the budget's.
        tuned_to : float > 0, optional
            Epsilon near which the boundary is tight, fixed beforehand. None takes the budget's.

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
        tuned = self.epsilon if tuned_to is None else check_epsilon("tuned_to", tuned_to)
        delta = mul_down(self.delta, 0.9) if delta is None else check_delta("delta", delta)
        read = []
        for events in self._by_period():
            composed = AdaptiveComposition(self.epsilon, self.delta, self.adjacency)
            composed.add(*events)
            read.append(composed.odometer(delta, tuned))
        return max(epsilon for epsilon, _ in read), max(delta for _, delta in read)

    def to_dp_accounting(self) -> Any:
        """Return all spends as one event of ``dp-accounting``.

        As :func:`dp_accounting_event` and, without that library, :func:`dp_accounting_tree`. Of
        several periods those of the one on which at least as much of everything was spent as on any
        other.

        Raises
        ------
        ImportError
            The library is not installed.
        InvalidParameterError
            No single period has the largest spends; export each, by ``for_periods``.
        """
        parts = self._by_period()
        totals = [of_events(events) for events in parts]
        for events, own in zip(parts, totals, strict=True):
            if all(other.within(own) for other in totals):
                return dp_accounting_event(events)
        raise InvalidParameterError(
            "periods: no single period has the largest spends; export each with "
            "ledger.for_periods(name).to_dp_accounting()"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write budget and history as JSON: a snapshot, which later spends do not change.

        Raises
        ------
        InvalidParameterError
            The path is that of the ledger itself.
        LedgerError
            The path is not a file, or the history is too long for a snapshot.
        """
        store = self._whole._store
        own, path = None if store is None else store.path, check_path("path", path)
        if os.path.realpath(path) == os.fspath(own or ""):
            raise InvalidParameterError.of(
                "path", got=path, accepted="a file other than the ledger itself"
            )
        write_snapshot(Path(path), self._budget, self._whole.history)

    def mark(self) -> str:
        """Return the number and a digest of the spends, to keep elsewhere.

        ``open(path, since=mark)`` refuses a file that lacks one of these spends, such as an older
        copy. An ``anchor`` does the same by itself.

        Raises
        ------
        LedgerError
            The ledger is not in a file.
        """
        whole = self._whole
        with whole._lock:
            if whole._store is None:
                raise LedgerError("the ledger is in memory; give path= to keep it in a file")
            whole._catch_up()
            return whole._store.mark(len(whole._records))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrivacyLedger:
        """Return the ledger of a snapshot that ``save`` wrote.

        Each call returns a separate ledger. Only one of them should continue to spend; for a budget
        that several runs share, use the constructor's ``path``.

        Raises
        ------
        LedgerError
            The file is not a ledger of a known version.
        """
        budget, records = read_snapshot(Path(check_path("path", path)))
        ledger = cls(**vars(budget))
        ledger._records.extend(records)
        return ledger

    @classmethod
    def open(
        cls: type[Opened],
        path: str | os.PathLike[str],
        *,
        since: str | None = None,
        strict: bool = True,
    ) -> Opened:
        """Open a ledger file that the constructor made with ``path``, with its own budget.

        Parameters
        ----------
        path : str or path
        since : str, optional
            What ``mark`` returned at some time.
        strict : bool, default=True
            As in the constructor.

        Raises
        ------
        LedgerError
            The file is missing, is not a ledger of a known version, or lacks spends of ``since``.
        InvalidParameterError
            ``since`` is not a mark.
        """
        if since is not None and not is_mark(since):
            raise InvalidParameterError.of(
                "since", got=since, accepted="a value that mark() returned"
            )
        path = check_path("path", path)
        if not os.path.lexists(path):
            raise LedgerError(
                f"{path}: no such file; PrivacyLedger(epsilon, delta, path=...) creates one"
            )
        store = SpendStore(Path(path), lasting=True)
        with store.transaction() as session:
            records = session.new_spends
        if since is not None and not store.continues(since):
            raise LedgerError(
                f"{path}: spends up to {since} are missing: this is an older copy of the budget, "
                "or another budget"
            )
        ledger = cls.__new__(cls)
        ledger._strict = check_bool("strict", strict)
        ledger._begin(store.budget, store, records)
        return ledger

    def __reduce__(self) -> tuple[object, ...]:
        if self._charged:
            return PrivacyLedger.for_periods, (self._whole, *self._charged)
        with self._lock:
            store = self._in_file()
        path = os.fspath(store.path)
        return _reopened, (self._identity, path, store.lasting, self._budget, self._strict)

    def __repr__(self) -> str:
        # Never open the file: a repr must not fail.
        number = len(self._whole._records)
        rule = "" if self.unit == "row" else f", unit={self.unit!r}"
        rule += ", adaptive=True" if self.adaptive else ""
        rule += f", periods={list(self._charged)!r}" if self._charged else ""
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
        if self.periods:
            shown = ", ".join(self.periods[:3]) + (", ..." if len(self.periods) > 3 else "")
            lines.append(
                f"  of the period with the most spent, of {shown}; each row has one period"
            )
        lines += [f"  {i:>4}  {record}" for i, record in enumerate(history[:20], 1)]
        if len(history) > 20:
            lines.append(f"        ... and {len(history) - 20} more")
        return "\n".join(lines)

    def __copy__(self: Opened) -> Opened:
        return self

    def __deepcopy__(self: Opened, memo: dict[int, object]) -> Opened:
        return self

    @contextmanager
    def _up_to_date(self) -> Iterator[Session | None]:
        """Lock the file and load all spends of all processes into ``_records``; needs the lock."""
        if self._store is None:
            if os.getpid() != self._process:
                raise LedgerError(
                    "this process was forked and the ledger could not move to a file, so nothing "
                    "can be spent here; give the ledger a path="
                )
            yield None
            return
        with self._store.transaction(len(self._records)) as session:
            self._records.extend(session.new_spends)
            yield session

    def _catch_up(self) -> None:
        """Bring ``_records`` up to date; needs the lock."""
        with self._up_to_date():
            pass

    def _compositions(self) -> Compositions:
        """Return for each period the composition of what ``_records`` charge it."""
        known, count = self._composed
        if count < len(self._records):
            new_events: dict[str, list[PrivacyEvent]] = {}
            for record in self._records[count:]:
                for name in record.periods or known:
                    new_events.setdefault(name, []).append(record.event)
            known = known | with_more(known, new_events)
            self._composed = (known, len(self._records))
        return known

    def _current(self) -> Compositions:
        """Return up-to-date compositions of this handle's periods; needs the lock of the whole."""
        self._whole._catch_up()
        known = self._whole._compositions()
        return {name: known[name] for name in self._charged or known}

    def _by_period(self) -> list[tuple[PrivacyEvent, ...]]:
        """Return events that touch the rows of each period."""
        history = self.history
        return [
            tuple(one.event for one in history if not one.periods or name in one.periods)
            for name in self.periods or ALL
        ]

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

    def _admitted(self, charges: Charges) -> Compositions:
        """Return the compositions with the events added; raise if any exceeds the budget."""
        before, own = self._compositions(), defaultdict[str, list[PrivacyEvent]](list)
        for part, periods in charges:
            for name in periods or before:
                own[name].append(part)
        found = with_more(before, own)
        looks = itertools.repeat(None, MAX_LOOKS)
        for composed in dict.fromkeys(found.values()):
            if not composed.fits(looks):
                name = next(name for name in found if found[name] is composed)
                raise BudgetExceededError(self._refusal(tuple(own[name]), name, before[name]))
        return found

    def _refusal(self, events: Events, name: str, before: AnyComposition) -> str:
        """Return budget, spent and asked, in one sentence each."""
        text = f"the privacy budget is epsilon={self.epsilon:g}, delta={self.delta:g} "
        # Admitted spends are within the budget.
        spent = min(before.epsilon(self.delta, quick=True), self.epsilon)
        where = f" on {name}" if name else ""
        text += f"({self.adjacency}); spent{where} at that delta: at most epsilon={spent:.6g}; "
        alone = with_more({name: composition_for(self._budget)}, {name: list(events)})
        asked = alone[name].epsilon(self.delta, quick=True)
        if math.isinf(asked) and self.delta == 0.0:
            return text + "a budget with delta=0 accepts pure events only, and this one is not pure"
        if math.isinf(asked) and self.adaptive:
            return text + (
                "this release has no known epsilon at the small delta that an adaptive ledger "
                "allows for it. Nothing was recorded"
            )
        return text + f"this release alone needs epsilon={asked:.4g}. Nothing was recorded"


def _reopened(
    identity: str,
    path: str,
    lasting: bool,  # noqa: FBT001 - pickle passes by position
    budget: Budget,
    strict: bool,  # noqa: FBT001
) -> PrivacyLedger:
    """Unpickle: the ledger of that identity in this process, or another handle on its file."""
    with _fork_lock:
        known = _live.get(identity)
    if known is not None:
        return known
    store = SpendStore(Path(path), lasting=lasting)
    with store.transaction() as session:
        records = session.new_spends
    if (store.identity, store.budget) != (identity, budget):
        raise LedgerError(f"{path} is not the ledger that was pickled")
    ledger = object.__new__(PrivacyLedger)
    ledger._strict = strict
    ledger._begin(budget, store, records)
    return ledger


def with_more(known: Compositions, more: Mapping[str, list[PrivacyEvent]]) -> Compositions:
    """Return compositions with more events; periods with equal charges share one."""
    found: Compositions = {}
    made: dict[tuple[int, Events], AnyComposition] = {}
    for name, events in more.items():
        key = id(known[name]), tuple(events)
        composed = made.get(key)
        if composed is None:
            composed = made[key] = copy.copy(known[name])
            composed.add(*events)
        found[name] = composed
    return found


def composition_for(budget: Budget) -> AnyComposition:
    """Return an empty composition by the rule of the budget."""
    rule = AdaptiveComposition if budget.adaptive else Composition
    return rule(budget.epsilon, budget.delta, budget.adjacency, SLACK)


# Validate `ledger` arguments.


def check_ledger(value: object, adjacency: str, name: str = "ledger") -> PrivacyLedger | None:
    """Return ``value`` if it is None or a ledger of the given neighbouring relation.

    Parameters
    ----------
    value : PrivacyLedger or None
    adjacency : {"add_remove", "replace_one"}
        Relation that the ledger must have.
    name : str, default="ledger"
        Its name in errors.

    Returns
    -------
    PrivacyLedger or None

    Raises
    ------
    TypeError, InvalidParameterError
        Anything else.

    Examples
    --------
    >>> from dpsvm_fast.ledger import PrivacyLedger, check_ledger
    >>> ledger = PrivacyLedger(epsilon=1.0, delta=1e-6, adjacency="add_remove")
    >>> check_ledger(ledger, "add_remove") is ledger
    True
    """
    if value is None:
        return None
    ledger = check_type(name, value, PrivacyLedger, "a PrivacyLedger or None")
    if ledger.adjacency != adjacency:
        raise InvalidParameterError.of(
            name,
            got=f"a ledger for {ledger.adjacency}",
            accepted=f"one for {adjacency}, as in this guarantee",
        )
    return ledger
