"""Differentially private support vector machines as scikit-learn estimators, computed in Rust.

Start with `PrivateLinearSVC`; the fitted attribute ``privacy_`` states what was promised.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpsvm_fast._core import build_info as _build_info

if TYPE_CHECKING:
    import dpsvm_fast.accounting as accounting
    import dpsvm_fast.noise as noise
    from dpsvm_fast.certificates import PrivacyStatement
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
        WeakPrivacyWarning,
    )
    from dpsvm_fast.ledger import PrivacyLedger
    from dpsvm_fast.pipelines import PrivatePipeline, total_privacy
    from dpsvm_fast.preprocessing import (
        PrivateCenter,
        PrivatePCA,
        PrivateStandardScaler,
        PrivateWhitener,
        PublicImageFeatures,
        PublicScaler,
        PublicSplines,
        RandomFourierFeatures,
    )
    from dpsvm_fast.verification.verify import verify

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
    "PrivatePipeline",
    "PrivateStandardScaler",
    "PrivateWhitener",
    "PublicImageFeatures",
    "PublicScaler",
    "PublicSplines",
    "RandomFourierFeatures",
    "WeakPrivacyWarning",
    "__version__",
    "accounting",
    "noise",
    "total_privacy",
    "verify",
]

# Where the public names live. They are imported when they are first used: a program that checks a
# certificate, or asks the command line for help, does not wait for scikit-learn.
_HOMES = {
    "certificates": ("PrivacyStatement",),
    "ledger": ("PrivacyLedger",),
    "verification": ("verify",),
    "estimators": (
        "GradientPerturbationSVC",
        "ObjectivePerturbationSVC",
        "OutputPerturbationSVC",
        "PrivateGaussianMarginClassifier",
        "PrivateKernelSVC",
        "PrivateLinearSVC",
    ),
    "exceptions": (
        "BudgetExceededError",
        "CertificationError",
        "InvalidParameterError",
        "LedgerError",
        "NotPrivateWarning",
        "PrivacyLeakWarning",
        "WeakPrivacyWarning",
    ),
    "pipelines": ("PrivatePipeline", "total_privacy"),
    "preprocessing": (
        "PrivateCenter",
        "PrivatePCA",
        "PrivateStandardScaler",
        "PrivateWhitener",
        "PublicImageFeatures",
        "PublicScaler",
        "PublicSplines",
        "RandomFourierFeatures",
    ),
}
_MODULES = frozenset(
    {
        "accounting",
        "audit",
        "certificates",
        "data",
        "estimators",
        "exceptions",
        "federated",
        "ledger",
        "losses",
        "metrics",
        "model_selection",
        "noise",
        "persist",
        "pipelines",
        "planning",
        "plotting",
        "preprocessing",
        "verification",
    }
)


def __getattr__(name: str) -> Any:
    """Import a public name or module at its first use."""
    if name in _MODULES:
        return importlib.import_module(f"dpsvm_fast.{name}")
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"dpsvm_fast.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Public names, imported or not."""
    return sorted({*__all__, *_MODULES})
