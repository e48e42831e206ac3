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
    PrivateKernelSVC,
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
from dpsvm_fast.pipelines import total_privacy
from dpsvm_fast.preprocessing import (
    PrivateCenter,
    PrivatePCA,
    PrivateStandardScaler,
    PrivateWhitener,
    PublicScaler,
    RandomFourierFeatures,
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
    "PrivateKernelSVC",
    "PrivateLinearSVC",
    "PrivatePCA",
    "PrivateStandardScaler",
    "PrivateWhitener",
    "PublicScaler",
    "RandomFourierFeatures",
    "__version__",
    "accounting",
    "noise",
    "total_privacy",
    "verify",
]
