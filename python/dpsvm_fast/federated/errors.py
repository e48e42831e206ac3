"""Errors of runs with several parties. None of their messages contains a value from the data."""

from __future__ import annotations

__all__ = ["InconsistentSumError", "PartyRefusedError", "SecureSumAborted"]


class SecureSumAborted(RuntimeError):
    """Too few parties were left for the sum; nothing was released.

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
    """What came out of the sum is not a sum of what parties may contribute; nothing was released.

    Parties with another version of the protocol, or a sum that lost one of them, look like this.
    """


class PartyRefusedError(ValueError):
    """A party does not take part: its records, or what it was asked for, are not as agreed.

    The texts are constants: they may be sent to the server, and say nothing about the records.
    """
