"""Errors and warnings of the package. None of their messages contains a value from the data."""

from __future__ import annotations

__all__ = [
    "BudgetExceededError",
    "CertificationError",
    "InvalidParameterError",
    "LedgerError",
    "ModelFormatError",
    "NotPrivateWarning",
    "PrivacyLeakWarning",
    "SchemaError",
    "TableError",
]


class InvalidParameterError(ValueError):
    """A public argument has the right type and a value outside the accepted range."""

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


class SchemaError(InvalidParameterError):
    """The description of a table's columns is wrong, or says too little; no row was read."""


class TableError(ValueError):
    """A file cannot be read, or does not fit its schema.

    Rows and columns are named, cells are not quoted. That this error appeared depends on the data
    and is not covered by (epsilon, delta).
    """


class BudgetExceededError(RuntimeError):
    """The ledger's budget does not allow the event; nothing was recorded and no data were read."""


class CertificationError(RuntimeError):
    """The solver could not certify its distance to the optimum.

    Nothing is released and the budget stays spent. That this error appeared depends on the data
    and is not covered by (epsilon, delta).
    """


class LedgerError(RuntimeError):
    """The ledger's store is missing, damaged or not a ledger. It never turns into a new budget."""


class ModelFormatError(ValueError):
    """A file is no saved model that this release reads, or it was changed after it was saved."""


class PrivacyLeakWarning(UserWarning):
    """Something that should have been public was taken from the data."""


class NotPrivateWarning(UserWarning):
    """The result carries no privacy guarantee, for example because its noise has a known seed."""


def _shown(value: object) -> str:
    """Text of a public value; the beginning of a long one. Thousands of digits have no text."""
    if isinstance(value, int) and value.bit_length() > 512:
        return "a number of hundreds of digits"
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
