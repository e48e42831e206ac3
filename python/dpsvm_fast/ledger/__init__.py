"""Ledgers: one budget, shared by everything that spends from it."""

from dpsvm_fast.ledger.ledger import PrivacyLedger, check_ledger
from dpsvm_fast.ledger.store import SpendRecord

__all__ = ["PrivacyLedger", "SpendRecord", "check_ledger"]
