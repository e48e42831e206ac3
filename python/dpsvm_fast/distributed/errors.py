"""Errors of fits over partitions. Their texts are constant up to numbers that are no data."""

from __future__ import annotations

__all__ = ["ClusterError", "PartitionError"]


class PartitionError(RuntimeError):
    """A partition could not be loaded or holds something else than was declared.

    Nothing is released and the budget is spent. That this happened depends on the data and is not
    covered by (epsilon, delta).

    Parameters
    ----------
    partition : int
        Its number, from 0.
    reason : str
        A constant text; never a value.
    """

    def __init__(self, partition: int, reason: str) -> None:
        super().__init__(f"partition {partition}: {reason}; the budget is spent")
        self.partition = partition
        self.reason = reason

    def __reduce__(self) -> tuple[type[PartitionError], tuple[int, str]]:
        """Made again from what it was made of: errors cross processes."""
        return type(self), (self.partition, self.reason)


class ClusterError(RuntimeError):
    """The cluster cannot be used for this fit, or could not finish it."""
