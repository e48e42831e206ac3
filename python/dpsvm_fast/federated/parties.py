"""Records of parties, checked: one array of the rows of all, and where each party's begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.estimators._frames import label_values
from dpsvm_fast.estimators._training_data import checked_numbers, encoded_labels
from dpsvm_fast.federated.errors import PartyRefusedError
from dpsvm_fast.federated.spec import FederatedSpec

__all__ = ["Records", "checked_records"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """Rows of one or more parties. Private.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features), float64 or float32
    codes : ndarray of shape (n_rows,)
        Indices of the labels.
    offsets : ndarray of shape (n_parties + 1,)
        Rows of party i are ``offsets[i]:offsets[i + 1]``.
    """

    X: NDArray[Any]
    codes: Integers
    offsets: Integers

    @cached_property
    def sizes(self) -> list[int]:
        """Records of each party."""
        return [int(n) for n in np.diff(self.offsets)]

    def rows(self, i: int) -> slice:
        """Where party i's are."""
        return slice(int(self.offsets[i]), int(self.offsets[i + 1]))

    def of_each(self) -> Iterator[NDArray[Any]]:
        """Rows of one party after the other."""
        for i in range(len(self.sizes)):
            yield self.X[self.rows(i)]

    def mapped(self, f: Callable[[Any, int], Array], n_threads: int) -> Records:
        """With each row mapped: ``f`` must be a function of the row alone, to the last bit."""
        return Records(np.ascontiguousarray(f(self.X, n_threads)), self.codes, self.offsets)

    @classmethod
    def joined(cls, parts: Sequence[Records]) -> Records:
        """All parties of several."""
        sizes = [n for part in parts for n in part.sizes]
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.X for part in parts]),
            np.concatenate([part.codes for part in parts]),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        )


def checked_records(X: Any, y: Any, spec: FederatedSpec) -> Records:
    """One party's rows and labels, as agreed on.

    Raises
    ------
    PartyRefusedError
        They are not. The texts are constants.
    """
    numbers = _numbers(X)
    if numbers.shape[1] != spec.n_features:
        raise PartyRefusedError("records: another number of features was agreed on")
    codes = _codes(y, spec)
    if codes.size != numbers.shape[0]:
        raise PartyRefusedError("records: expected one label for each row")
    n = numbers.shape[0]
    if not spec.params["min_records"] <= n <= spec.params["max_records"]:
        raise PartyRefusedError("records: fewer than min_records, or more than max_records")
    if (
        spec.training is not None
        and spec.training.solver == "psgd"
        and not spec.training.accurate(n)
    ):
        raise PartyRefusedError("records: rounding errors of SGD on so many are too large")
    return Records(numbers, codes, np.array([0, n], dtype=np.int64))


def _numbers(X: Any) -> NDArray[Any]:
    """Finite dense rows, C-ordered; float32 stays."""
    if hasattr(X, "toarray"):
        X = X.toarray()
    plain = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype in (np.float64, np.float32)
    try:
        rows = X if plain and type(X) is np.ndarray else checked_numbers(X)
    except (TypeError, ValueError):
        raise PartyRefusedError("records: expected a table of finite numbers") from None
    if not np.isfinite(rows).all():
        raise PartyRefusedError("records: expected a table of finite numbers")
    return np.require(rows, requirements=["C_CONTIGUOUS", "ALIGNED"])


def _codes(y: Any, spec: FederatedSpec) -> Integers:
    """Indices of labels."""
    try:
        labels = np.asarray(label_values(y))
        if labels.ndim != 1 or not labels.size:
            raise ValueError
        return encoded_labels(labels, np.asarray(spec.classes))
    except (TypeError, ValueError):
        raise PartyRefusedError("labels: expected one of the classes for each row") from None
