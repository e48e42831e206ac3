"""Errors and warnings of the package. None of their messages contains a value from the data."""

from __future__ import annotations

import re


class _ArgumentError(Exception):
    """An error whose message starts with the argument it is about."""

    @property
    def parameter(self) -> str:
        """Name of the argument as the user typed it."""
        return re.split(r": | has ", str(self), maxsplit=1)[0]


class InvalidTypeError(_ArgumentError, TypeError):
    """An argument has a type that is not accepted."""

    @classmethod
    def of(cls, name: str, value: object, accepted: str) -> InvalidTypeError:
        """Build the error with the standard message, which names the type of a value only.

        Parameters
        ----------
        name : str
            Name of the argument as the user typed it.
        value : object
            Value received.
        accepted : str
            Accepted types, as the end of a sentence.
        """
        return cls(f"{name}: got {type(value).__name__}, expected {accepted}")


class InvalidParameterError(_ArgumentError, ValueError):
    """An argument is outside its accepted range, or data do not have the expected form."""

    @classmethod
    def of(cls, name: str, *, got: object, accepted: str) -> InvalidParameterError:
        """Build the error with the standard message.

        Parameters
        ----------
        name : str
            Name of the argument as the user typed it.
        got : object
            Value received; it must be public, never data.
        accepted : str
            Accepted values, as the end of a sentence.
        """
        return cls(f"{name}: got {_shown(got)}, expected {accepted}")


class SchemaError(InvalidParameterError):
    """A schema is wrong or incomplete; no row was read.

    The message begins with the file of the schema and the key in it.
    """

    @property
    def parameter(self) -> str:
        """Name of the argument, always "schema"; the message names the file and the key."""
        return "schema"


class TableError(ValueError):
    """A file cannot be read, or does not fit its schema.

    The message names rows and columns but quotes no cell. Whether this error occurs depends on the
    data and is not covered by (epsilon, delta).
    """


class BudgetExceededError(RuntimeError):
    """The ledger refuses an event; nothing was recorded and no data was read."""


class CertificationError(RuntimeError):
    """The solver could not certify its distance to the optimum.

    Nothing is released and the budget stays spent. Whether this error occurs depends on the data
    and is not covered by (epsilon, delta).
    """


class LedgerError(RuntimeError):
    """A ledger file is missing, damaged or not a ledger."""


class ModelFormatError(ValueError):
    """A file is not a saved model of this version, or was changed after saving."""


class PrivacyLeakWarning(UserWarning):
    """A value that must be public was read from the data."""


class NotPrivateWarning(UserWarning):
    """The result is not private, for example because its noise has a seed."""


class WeakPrivacyWarning(NotPrivateWarning):
    """The guarantee holds but is very weak: epsilon above 10, or delta above 1e-3."""


def _shown(value: object) -> str:
    """Return a public value as short text; Python refuses to print very long integers."""
    if isinstance(value, int) and value.bit_length() > 512:
        return "a number of hundreds of digits"
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


# Errors of fits over partitions. Their texts are constant up to numbers that are no data.


class PartitionError(RuntimeError):
    """A partition could not be loaded, or does not hold what was declared.

    Nothing is released. The budget is spent, unless the failure came while persons were counted
    before the charge. Whether this error occurs depends on the data and is not covered by (epsilon,
    delta).

    Parameters
    ----------
    partition : int
        Number of the partition, from 0.
    reason : str
        Constant text; it never contains a value.
    spent : bool, default=True
        Whether the budget is spent.
    """

    def __init__(self, partition: int, reason: str, spent: bool = True) -> None:  # noqa: FBT001, FBT002
        what = "the budget is spent" if spent else "nothing was spent"
        super().__init__(f"partition {partition}: {reason}; {what}")
        self.partition, self.reason, self.spent = partition, reason, spent

    def __reduce__(self) -> tuple[type[PartitionError], tuple[int, str, bool]]:
        """Pickle the constructor's arguments, so that the error crosses processes."""
        return type(self), (self.partition, self.reason, self.spent)


class ClusterError(RuntimeError):
    """The cluster cannot be used for this fit, or could not finish it."""


# Errors of runs with several parties. None of their messages contains a value from the data.


class SecureSumAborted(RuntimeError):
    """Too few parties remained for the sum; nothing was released.

    Parameters
    ----------
    stage : str
        Stage of the protocol, such as ``"collect"``.
    survivors : int
        Number of remaining parties.
    needed : int or None
        Number of parties that the guarantee requires.
    """

    def __init__(self, stage: str, survivors: int, needed: int | None = None) -> None:
        self.stage = stage
        self.survivors = survivors
        self.needed = needed
        wanted = "" if needed is None else f" of {needed} required"
        super().__init__(
            f"the secure sum was aborted at stage {stage!r}: {survivors}{wanted} parties left"
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the constructor's arguments, so that the error crosses processes."""
        return (type(self), (self.stage, self.survivors, self.needed))


class InconsistentSumError(RuntimeError):
    """A secure sum is not a valid sum of contributions; nothing was released.

    Causes: a party with another protocol version, or a sum over other parties than those counted.
    """


class PartyRefusedError(ValueError):
    """A party refuses, because its records or the request are not as agreed.

    The messages are constants: they reveal nothing about the records and may be sent to the server.
    """
