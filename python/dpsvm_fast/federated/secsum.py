"""Sums over parties: what a protocol has to offer, and the sum by someone whom all trust.

A sum is exact, modulo 2**48. Nothing falls back from a secure sum to a plain one: the caller picks
the object, and the statement says which it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from dpsvm_fast._validation import check_integer, check_positive, check_real
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated._counts import most_number
from dpsvm_fast.federated.encoding import whole_numbers
from dpsvm_fast.federated.errors import InconsistentSumError, SecureSumAborted

__all__ = ["Graph", "SecureSum", "SumResult", "TrustedSum", "choose_graph"]

MODULUS = 2**48


@dataclass(frozen=True, eq=False)
class SumResult:
    """A sum over the parties that were left.

    Parameters
    ----------
    total : ndarray of shape (length,), int64
        Sum of their vectors, modulo 2**48 (any representative).
    survivors : int
        How many they are.
    """

    total: NDArray[np.int64]
    survivors: int


@runtime_checkable
class SecureSum(Protocol):
    """Adds vectors of several parties and tells nothing but the sum."""

    @property
    def trust(self) -> str:
        """Word of the statement: ``"secure_sum"`` or ``"trusted_curator"``."""

    def sum(self, vectors: Iterable[NDArray[np.int64]]) -> SumResult:
        """The sum of one vector of each party.

        Parameters
        ----------
        vectors : iterable of ndarray of shape (length,), int64
            Each number smaller than 2**29 in size.

        Raises
        ------
        SecureSumAborted
            Too few parties were left.
        """


@dataclass(frozen=True)
class TrustedSum:
    """The sum by a curator who sees every vector, and is trusted to keep them.

    Parameters
    ----------
    min_survivors : int, default=1
        Vectors without which nothing is released.
    """

    min_survivors: int = 1

    @property
    def trust(self) -> str:
        """Word of the statement."""
        return "trusted_curator"

    def sum(self, vectors: Iterable[NDArray[np.int64]]) -> SumResult:
        """Sum modulo 2**48, by the representatives nearest to 0.

        Raises
        ------
        SecureSumAborted
            Fewer vectors than ``min_survivors``.
        InconsistentSumError
            A vector of another length or type.
        """
        total: NDArray[np.int64] | None = None
        survivors = 0
        for vector in vectors:
            if total is None:
                total = np.zeros_like(whole_numbers(vector))
            if whole_numbers(vector).size != total.size:
                raise InconsistentSumError("sum: vectors differ in length")
            # Below 2**18 terms of size below 2**29: no wrap of 64 bits, and none of 48.
            total += vector
            survivors += 1
        if total is None or survivors < self.min_survivors:
            raise SecureSumAborted("collect", survivors, self.min_survivors)
        half = MODULUS // 2
        return SumResult(((total + half) & (MODULUS - 1)) - half, survivors)


@dataclass(frozen=True)
class Graph:
    """Who shares secrets with whom.

    Parameters
    ----------
    n_shares : int
        Parties among which each one's secrets are shared; odd, or all of them.
    threshold : int
        Shares that open a secret.
    """

    n_shares: int
    threshold: int


@lru_cache(maxsize=64)
def choose_graph(n: int, gamma: float, rho: float, sec: float = 40.0, corr: float = 30.0) -> Graph:
    """Smallest number of random neighbours with which sharing is secure, and correct.

    Parameters
    ----------
    n : int >= 2
        Parties.
    gamma : float in [0, 1)
        At most floor(gamma n) collude.
    rho : float in [0, 1)
        At most floor(rho n) vanish.
    sec, corr : float > 0
        Some party has ``threshold`` colluding neighbours with probability below ``2**-sec``, and
        one has fewer than ``threshold`` left with probability below ``2**-corr``.

    Returns
    -------
    Graph
        All parties where no smaller number will do.

    Raises
    ------
    InvalidParameterError
        Even among all parties no threshold separates those who collude from those who are left.

    Notes
    -----
    A union bound over parties of hypergeometric tails. That honest neighbours who are left form a
    connected graph is not part of it: it has to hold too where ``n_shares < n``.

    Examples
    --------
    >>> from dpsvm_fast.federated import choose_graph
    >>> choose_graph(1000, gamma=0.25, rho=0.1)
    Graph(n_shares=87, threshold=56)
    """
    n = check_integer("n", n, 2)
    gamma = check_real("gamma", gamma, low=0.0, high=1.0, open_high=True)
    rho = check_real("rho", rho, low=0.0, high=1.0, open_high=True)
    sec, corr = check_positive("sec", sec), check_positive("corr", corr)
    bad = most_number(gamma, n)
    gone = most_number(rho, n)
    for k in range(3, n, 2):
        threshold = _threshold(n, k, bad, gone, sec, corr)
        if threshold is not None:
            return Graph(k, threshold)
    threshold = max(bad, n // 2) + 1
    if threshold > n - gone:
        raise InvalidParameterError(
            f"gamma: {bad} of {n} parties may collude and {gone} vanish: no threshold "
            "lies between them"
        )
    return Graph(n, threshold)


def _threshold(n: int, k: int, bad: int, gone: int, sec: float, corr: float) -> int | None:
    """A threshold for k shares, one of them the party's own; None where there is none."""
    counts = np.arange(k + 1)
    # Bits of the union bound over n parties.
    log_n = math.log2(n)
    # As if all k shares of an honest party lay with others: a little more than is there.
    open_by = hypergeom.logsf(counts - 1, n - 1, bad, k) / math.log(2.0) + log_n
    lost = hypergeom.logcdf(counts - 1, n - 1, n - 1 - gone, k) / math.log(2.0) + log_n
    able = (open_by < -sec) & (lost < -corr)
    found = counts[able]
    return int(found[0]) if found.size else None
