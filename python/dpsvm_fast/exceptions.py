"""Errors and warnings of the package. None of their messages contains a value from the data."""

from __future__ import annotations


class InvalidParameterError(ValueError):
    """An argument is outside its accepted range."""

    @classmethod
    def of(cls, name: str, *, got: object, accepted: str) -> InvalidParameterError:
        """Build the error with its usual sentence.

        Parameters
        ----------
        name : str
            The argument as the user typed it.
        got : object
            What came; must be a public value, never data.
        accepted : str
            What is accepted, as the end of a sentence.
        """
        return cls(f"{name}: got {_shown(got)}, expected {accepted}")

    @property
    def parameter(self) -> str:
        """Name of the argument as the user typed it; every message starts with it."""
        return str(self).partition(":")[0]


class SchemaError(InvalidParameterError):
    """A schema is wrong or incomplete; no row was read.

    The message begins with the file of the schema and the key in it.
    """

    @property
    def parameter(self) -> str:
        """Name of the argument, wherever a schema is one; the message tells the rest."""
        return "schema"


class TableError(ValueError):
    """A file cannot be read, or does not fit its schema.

    Rows and columns are named, cells are not quoted. That this error appeared depends on the data
    and is not covered by (epsilon, delta).
    """


class BudgetExceededError(RuntimeError):
    """The ledger refuses an event; nothing was recorded and no data was read."""


class CertificationError(RuntimeError):
    """The solver could not certify its distance to the optimum.

    Nothing is released and the budget stays spent. That this error appeared depends on the data
    and is not covered by (epsilon, delta).
    """


class LedgerError(RuntimeError):
    """A ledger file is missing, damaged or not a ledger."""


class ModelFormatError(ValueError):
    """A file is not a saved model of this version, or was changed after saving."""


class PrivacyLeakWarning(UserWarning):
    """A fact that must be public was read from the data."""


class NotPrivateWarning(UserWarning):
    """The result is not private, for example because its noise has a seed."""


class WeakPrivacyWarning(NotPrivateWarning):
    """The guarantee holds but is very weak: epsilon above 10, or delta above 1e-3."""


def _shown(value: object) -> str:
    """Return the text of a public value, shortened; Python refuses to print thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 512:
        return "a number of hundreds of digits"
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


# Errors of fits over partitions. Their texts are constant up to numbers that are no data.


class PartitionError(RuntimeError):
    """A partition could not be loaded, or does not hold what was declared.

    Nothing is released. The budget is spent, unless partitions were looked at before that to see
    whose rows they hold. That this happened depends on the data and is not covered by (epsilon,
    delta).

    Parameters
    ----------
    partition : int
        Its number, from 0.
    reason : str
        A constant text; never a value.
    spent : bool, default=True
        Whether the budget is spent.
    """

    def __init__(self, partition: int, reason: str, spent: bool = True) -> None:  # noqa: FBT001, FBT002
        what = "the budget is spent" if spent else "nothing was spent"
        super().__init__(f"partition {partition}: {reason}; {what}")
        self.partition, self.reason, self.spent = partition, reason, spent

    def __reduce__(self) -> tuple[type[PartitionError], tuple[int, str, bool]]:
        """Rebuild from the constructor's arguments, so that errors cross processes."""
        return type(self), (self.partition, self.reason, self.spent)


class ClusterError(RuntimeError):
    """The cluster cannot be used for this fit, or could not finish it."""


# Errors of runs with several parties. None of their messages contains a value from the data.


class SecureSumAborted(RuntimeError):
    """Too few parties remained for the sum; nothing was released.

    Parameters
    ----------
    stage : str
        Where it ended, such as ``"collect"``.
    survivors : int
        Parties that were left.
    needed : int or None
        Parties that the guarantee asks for.
    """

    def __init__(self, stage: str, survivors: int, needed: int | None = None) -> None:
        self.stage = stage
        self.survivors = survivors
        self.needed = needed
        wanted = "" if needed is None else f" of {needed} needed"
        super().__init__(
            f"the sum was aborted at stage {stage!r}: {survivors}{wanted} parties left"
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the facts: errors cross processes."""
        return (type(self), (self.stage, self.survivors, self.needed))


class InconsistentSumError(RuntimeError):
    """A secure sum is not a valid sum of contributions; nothing was released.

    Parties with another version of the protocol, or a sum without one of them, cause this error.
    """


class PartyRefusedError(ValueError):
    """A party refuses, because its records or the request are not as agreed.

    The messages are constants: they may be sent to the server and reveal nothing about the records.
    """
