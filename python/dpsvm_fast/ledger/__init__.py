"""Ledgers: one budget, shared by everything that spends from it."""

from dpsvm_fast.ledger.ledger import PrivacyLedger, SpendRecord, check_ledger

__all__ = ["PrivacyLedger", "SpendRecord", "check_ledger"]
