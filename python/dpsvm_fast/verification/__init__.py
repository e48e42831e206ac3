"""Verification: recompute the guarantee of a certificate from its numbers alone.

It imports only certificates, NumPy and SciPy: no compiled module, no accountant.
"""

from dpsvm_fast.verification.verify import Policy, Verification, verify

__all__ = ["Policy", "Verification", "verify"]
