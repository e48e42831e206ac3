"""Audits: certified lower bounds of epsilon, beside what is claimed."""

from dpsvm_fast.audit._density import audit_density
from dpsvm_fast.audit._one_run import audit_one_run
from dpsvm_fast.audit._pair_audit import audit
from dpsvm_fast.audit._pairs import Pair
from dpsvm_fast.audit._report import AuditReport

__all__ = ["AuditReport", "Pair", "audit", "audit_density", "audit_one_run"]
