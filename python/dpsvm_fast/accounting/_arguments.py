"""Ledgers as arguments of what spends from them."""

from __future__ import annotations

from dpsvm_fast.accounting.ledger import PrivacyLedger
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["check_ledger"]


def check_ledger(value: object, adjacency: str, name: str = "ledger") -> PrivacyLedger | None:
    """``value`` if it is None or a ledger of the given neighbouring relation.

    Parameters
    ----------
    value : PrivacyLedger or None
    adjacency : {"add_remove", "replace_one"}
        Relation that the ledger has to have.
    name : str, default="ledger"
        What errors call it.

    Returns
    -------
    PrivacyLedger or None

    Raises
    ------
    TypeError, InvalidParameterError
        Anything else.

    Examples
    --------
    >>> from dpsvm_fast.accounting import PrivacyLedger, check_ledger
    >>> ledger = PrivacyLedger(epsilon=1.0, delta=1e-6, adjacency="add_remove")
    >>> check_ledger(ledger, "add_remove") is ledger
    True
    """
    if value is None:
        return None
    if not isinstance(value, PrivacyLedger):
        raise TypeError(f"{name}: got {type(value).__name__}, expected a PrivacyLedger or None")
    if value.adjacency != adjacency:
        raise InvalidParameterError.of(
            name,
            got=f"a ledger for {value.adjacency}",
            accepted=f"one for {adjacency}, the relation of this guarantee",
        )
    return value
