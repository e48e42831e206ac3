"""Verification: recompute the guarantee of a certificate from its numbers alone.

Imports certificates, NumPy and SciPy and nothing else: no compiled module, no accountant.
"""

from dpsvm_fast.verification.verify import Policy, Verification, verify

__all__ = ["Policy", "Verification", "verify"]
