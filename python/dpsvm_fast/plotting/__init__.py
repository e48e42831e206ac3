"""Plots of what privacy costs and what a statement promises, as scikit-learn Display objects.

Needs matplotlib (``pip install "dpsvm-fast[plot]"``), imported when something is drawn and not
before. Nothing about privacy is computed here: the numbers come from estimators, from
:mod:`dpsvm_fast.planning` and from :mod:`dpsvm_fast.accounting`. Every figure can be read in black
and white.
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
