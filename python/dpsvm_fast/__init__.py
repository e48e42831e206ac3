"""Differentially private support vector machines: fast, certified, scikit-learn compatible.

Start with `PrivateLinearSVC`; the fitted attribute ``privacy_`` states what was promised.
"""

from __future__ import annotations

from dpsvm_fast import accounting, noise
from dpsvm_fast._core import build_info as _build_info
from dpsvm_fast.accounting import PrivacyLedger, PrivacyStatement, verify
from dpsvm_fast.estimators import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateGaussianMarginClassifier,
    PrivateLinearSVC,
)
from dpsvm_fast.exceptions import (
    BudgetExceededError,
    CertificationError,
    InvalidParameterError,
    LedgerError,
    NotPrivateWarning,
    PrivacyLeakWarning,
)
from dpsvm_fast.preprocessing import (
    PrivateCenter,
    PrivateStandardScaler,
    PrivateWhitener,
    PublicScaler,
)

__version__: str = str(_build_info()["version"])

__all__ = [
    "BudgetExceededError",
    "CertificationError",
    "GradientPerturbationSVC",
    "InvalidParameterError",
    "LedgerError",
    "NotPrivateWarning",
    "ObjectivePerturbationSVC",
    "OutputPerturbationSVC",
    "PrivacyLeakWarning",
    "PrivacyLedger",
    "PrivacyStatement",
    "PrivateCenter",
    "PrivateGaussianMarginClassifier",
    "PrivateLinearSVC",
    "PrivateStandardScaler",
    "PrivateWhitener",
    "PublicScaler",
    "__version__",
    "accounting",
    "noise",
    "verify",
]
