"""Plots of the cost of privacy and of statements, as scikit-learn Display objects.

The plots need matplotlib (``pip install "dpsvm-fast[plot]"``), which is imported only to draw. All
privacy numbers come from estimators, from :mod:`dpsvm_fast.planning` and from
:mod:`dpsvm_fast.accounting`. Every figure is readable in black and white.
"""

from __future__ import annotations

from dpsvm_fast.plotting.displays import (
    AuditDisplay,
    BoundaryDisplay,
    EllipsoidDisplay,
    EvaluationDisplay,
    NoisePlanDisplay,
    PrivacyProfileDisplay,
    PrivacyUtilityDisplay,
    private_scores,
)

__all__ = [
    "AuditDisplay",
    "BoundaryDisplay",
    "EllipsoidDisplay",
    "EvaluationDisplay",
    "NoisePlanDisplay",
    "PrivacyProfileDisplay",
    "PrivacyUtilityDisplay",
    "private_scores",
]
