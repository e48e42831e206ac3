"""What a command spends: the budget file, and whether a failure came before or after the spend."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpsvm_fast import _validation as check
from dpsvm_fast.accounting import PrivacyEvent, PrivacyLedger
from dpsvm_fast.cli._budget import opened_budget
from dpsvm_fast.cli._errors import INTERRUPTED, OVERSPENT, CommandError, unexpected
from dpsvm_fast.distributed import PartitionError
from dpsvm_fast.estimators._planned_events import Planned, planned_events
from dpsvm_fast.exceptions import (
    BudgetExceededError,
    CertificationError,
    InvalidParameterError,
    LedgerError,
    TableError,
)

__all__ = ["Spending"]

# Their texts are of this package and quote no data.
OURS = (
    InvalidParameterError,
    TableError,
    BudgetExceededError,
    PartitionError,
    CertificationError,
    LedgerError,
)
# What is wrong with options and parameters, before there are rows that a text could quote.
TOLD = (*OURS, ValueError, TypeError)


class AskedLedger(PrivacyLedger):
    """A ledger that knows whether this process has asked it for anything."""

    asked = False

    def spend(self, event: PrivacyEvent | tuple[PrivacyEvent, ...], label: str = "") -> None:
        """Spend as ever."""
        self.asked = True
        super().spend(event, label)


class Spending:
    """The (epsilon, delta) of one command, and where it is written down.

    Parameters
    ----------
    epsilon : float or None
        As the user gave it.
    delta : float
    adjacency : str or None
        None takes that of the budget.
    path : Path or None
        The budget file; None for no other record than the model's statement.

    Raises
    ------
    CommandError, InvalidParameterError
        A number is missing or outside its range, or the file is no budget for it.
    """

    def __init__(
        self, epsilon: float | None, delta: float, adjacency: str | None, path: Path | None
    ) -> None:
        if epsilon is None:
            raise CommandError("--epsilon is missing; give the privacy parameter, such as 1")
        self.epsilon, self.delta = check.check_epsilon(epsilon), check.check_delta(delta)
        self.path = path
        if path is None:
            self.adjacency = adjacency or "add_remove"
            # Asked like a file would be: it knows whether the spend has happened.
            self.ledger = AskedLedger(self.epsilon, self.delta, self.adjacency)
        else:
            self.ledger = opened_budget(path, AskedLedger, to_spend=True)
            self.adjacency = adjacency or self.ledger.adjacency
            if self.adjacency != self.ledger.adjacency:
                raise CommandError(
                    f"--adjacency: got {self.adjacency!r}, expected {self.ledger.adjacency!r}, the "
                    f"relation of {path}; leave it out"
                )
        self._before = len(self.ledger.history)
        # Set once there is a model.
        self.saved = False

    def check(self, estimator: Any, *, n_classes: int, sparse: bool) -> None:
        """Refuse a fit that the budget has no room for, before any data are read.

        Raises
        ------
        BudgetExceededError, InvalidParameterError, TypeError
            There is none, or a parameter is outside its range.
        """
        events = planned_events(estimator, Planned(n_classes=n_classes, sparse=sparse))
        self.ledger.check(events)

    @property
    def spent(self) -> bool:
        """Whether this process has charged the ledger."""
        if not self.ledger.asked:
            return False
        own = os.getpid()
        return any(record.process == own for record in self.ledger.history[self._before :])

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Say of every failure inside whether the budget is spent."""
        try:
            with _terminated_like_interrupted():
                yield
        except BudgetExceededError as error:
            raise CommandError(self._refusal(error), OVERSPENT) from None
        except KeyboardInterrupt:
            raise CommandError(f"interrupted; {self.what_is_spent()}", INTERRUPTED) from None
        except CommandError as error:
            if not self.spent:
                raise
            raise CommandError(f"{error}; {self.what_is_spent()}", error.exit_code) from None
        except MemoryError:
            raise CommandError(
                f"out of memory; {self.what_is_spent()}; give a smaller --max-memory or use a "
                "machine with more of it"
            ) from None
        except InvalidParameterError as error:
            if not self.spent:
                # The name of the argument is still to be put as that of an option.
                raise
            raise CommandError(f"{_sentence(error)}; {self.what_is_spent()}") from None
        except OSError as error:
            if not self.spent:
                raise
            where = "" if error.filename is None else f"{error.filename}: "
            reason = error.strerror or str(error)
            raise CommandError(f"{where}{reason}; {self.what_is_spent()}") from None
        except TOLD as error:
            raise CommandError(f"{_sentence(error)}; {self.what_is_spent()}") from None

    @contextmanager
    def among_rows(self) -> Iterator[None]:
        """Where private rows are at hand: a text that is not of this package may quote a cell.

        Raises
        ------
        CommandError
            In the place of an error of another package, or of one that nobody thought of.
        """
        try:
            yield
        except (CommandError, MemoryError, ImportError, *OURS):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            sentence = unexpected(error)
        else:
            return
        # Raised here, so that the error does not travel along.
        raise CommandError(sentence if self.spent else f"{sentence}; {self.what_is_spent()}")

    def what_is_spent(self) -> str:
        """The end of a sentence."""
        if not self.spent:
            return "nothing was spent"
        amount = f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"
        where = "" if self.path is None else f" of {self.path}"
        end = "" if self.saved else ", though there is no model"
        return f"the budget{where} is spent ({amount}){end}"

    def record(self) -> dict[str, Any] | None:
        """What is left in the budget file, for ``--json``."""
        if self.path is None:
            return None
        return {
            "file": str(self.path),
            "epsilon": self.ledger.epsilon,
            "delta": self.ledger.delta,
            "remaining_epsilon": self.ledger.remaining(),
        }

    def _refusal(self, error: BudgetExceededError) -> str:
        """What is left, and what to do."""
        ledger = self.ledger
        left = _rounded_down(ledger.remaining(), least=1e-3 * ledger.epsilon)
        if self.path is None:
            return str(error)
        have = (
            f"{self.path}: epsilon = {left:g} is left of {ledger.epsilon:g} at delta = "
            f"{ledger.delta:g}, and this command asks for epsilon = {self.epsilon:g}, delta = "
            f"{self.delta:g}; nothing was spent"
        )
        if self.delta > ledger.delta:
            return f"{have}; give --delta {ledger.delta:g} or less"
        if left > 0.0:
            return f"{have}; give --epsilon {left:g} or less"
        return f"{have}; these data cannot be used again within this budget"


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM and SIGHUP as a KeyboardInterrupt: no private rows stay on the disk."""
    names = ("SIGTERM", "SIGHUP")
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    # What was told to go on, as by nohup, goes on.
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: Any) -> None:
    """Signal handler."""
    raise KeyboardInterrupt


def _sentence(error: Exception) -> str:
    """The text of an error without its full stop or the end that is said here."""
    text = str(error).removesuffix(".").removesuffix("; the budget is spent")
    return text.removesuffix(". The budget is spent")


def _rounded_down(value: float, least: float) -> float:
    """Three digits, so that it can be typed; 0 where nobody can do anything with so little."""
    if value < least:
        return 0.0
    digits = 2 - math.floor(math.log10(value))
    return math.floor(value * 10.0**digits) / 10.0**digits
