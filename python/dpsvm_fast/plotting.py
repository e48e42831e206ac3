"""Plots of what privacy costs and what a statement promises, as scikit-learn Display objects.

Needs matplotlib (``pip install "dpsvm-fast[plot]"``), imported when something is drawn and not
before. Nothing about privacy is computed here: the numbers come from estimators, from
:mod:`dpsvm_fast.planning` and from :mod:`dpsvm_fast.accounting`. Every figure can be read in black
and white.
"""

from __future__ import annotations

from dpsvm_fast._audit_display import AuditDisplay
from dpsvm_fast._boundary_display import BoundaryDisplay
from dpsvm_fast._ellipsoid_display import EllipsoidDisplay
from dpsvm_fast._plan_display import NoisePlanDisplay
from dpsvm_fast._profile_display import PrivacyProfileDisplay
from dpsvm_fast._utility_display import PrivacyUtilityDisplay, private_scores

__all__ = [
    "AuditDisplay",
    "BoundaryDisplay",
    "EllipsoidDisplay",
    "NoisePlanDisplay",
    "PrivacyProfileDisplay",
    "PrivacyUtilityDisplay",
    "private_scores",
]
