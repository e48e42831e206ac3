"""Privacy audits: certified lower bounds on epsilon, compared with the claim."""

from dpsvm_fast.audit.density import audit_density
from dpsvm_fast.audit.one_run import audit_one_run, audit_scores
from dpsvm_fast.audit.pair_audit import AuditReport, Pair, audit

__all__ = ["AuditReport", "Pair", "audit", "audit_density", "audit_one_run", "audit_scores"]
