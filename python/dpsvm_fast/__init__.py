"""Differentially private support vector machines as scikit-learn estimators, computed in Rust.

Start with `PrivateLinearSVC`. The fitted attribute ``privacy_`` states the guarantee.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpsvm_fast._core import build_info as _build_info

if TYPE_CHECKING:
    import dpsvm_fast.accounting as accounting
    import dpsvm_fast.noise as noise
    from dpsvm_fast.certificates import PrivacyStatement as PrivacyStatement
    from dpsvm_fast.estimators import GradientPerturbationSVC as GradientPerturbationSVC
    from dpsvm_fast.estimators import ObjectivePerturbationSVC as ObjectivePerturbationSVC
    from dpsvm_fast.estimators import OutputPerturbationSVC as OutputPerturbationSVC
    from dpsvm_fast.estimators import (
        PrivateGaussianMarginClassifier as PrivateGaussianMarginClassifier,
    )
    from dpsvm_fast.estimators import PrivateKernelSVC as PrivateKernelSVC
    from dpsvm_fast.estimators import PrivateLinearSVC as PrivateLinearSVC
    from dpsvm_fast.exceptions import BudgetExceededError as BudgetExceededError
    from dpsvm_fast.exceptions import CertificationError as CertificationError
    from dpsvm_fast.exceptions import InvalidParameterError as InvalidParameterError
    from dpsvm_fast.exceptions import InvalidTypeError as InvalidTypeError
    from dpsvm_fast.exceptions import LedgerError as LedgerError
    from dpsvm_fast.exceptions import NotPrivateWarning as NotPrivateWarning
    from dpsvm_fast.exceptions import PrivacyLeakWarning as PrivacyLeakWarning
    from dpsvm_fast.exceptions import WeakPrivacyWarning as WeakPrivacyWarning
    from dpsvm_fast.ledger import PrivacyLedger as PrivacyLedger
    from dpsvm_fast.pipelines import PrivatePipeline as PrivatePipeline
    from dpsvm_fast.pipelines import total_privacy as total_privacy
    from dpsvm_fast.preprocessing import PrivateCenter as PrivateCenter
    from dpsvm_fast.preprocessing import PrivatePCA as PrivatePCA
    from dpsvm_fast.preprocessing import PrivateStandardScaler as PrivateStandardScaler
    from dpsvm_fast.preprocessing import PrivateWhitener as PrivateWhitener
    from dpsvm_fast.preprocessing import PublicImageFeatures as PublicImageFeatures
    from dpsvm_fast.preprocessing import PublicScaler as PublicScaler
    from dpsvm_fast.preprocessing import PublicSplines as PublicSplines
    from dpsvm_fast.preprocessing import RandomFourierFeatures as RandomFourierFeatures
    from dpsvm_fast.verification.verify import verify as verify

__version__: str = str(_build_info()["version"])

# Modules of the public names. They are imported when first used: a program that checks a
# certificate, or asks the command line for help, does not wait for scikit-learn.
_HOMES = {
    "PrivacyStatement": "certificates",
    "PrivacyLedger": "ledger",
    "verify": "verification",
    "GradientPerturbationSVC": "estimators",
    "ObjectivePerturbationSVC": "estimators",
    "OutputPerturbationSVC": "estimators",
    "PrivateGaussianMarginClassifier": "estimators",
    "PrivateKernelSVC": "estimators",
    "PrivateLinearSVC": "estimators",
    "BudgetExceededError": "exceptions",
    "CertificationError": "exceptions",
    "InvalidParameterError": "exceptions",
    "InvalidTypeError": "exceptions",
    "LedgerError": "exceptions",
    "NotPrivateWarning": "exceptions",
    "PrivacyLeakWarning": "exceptions",
    "WeakPrivacyWarning": "exceptions",
    "PrivatePipeline": "pipelines",
    "total_privacy": "pipelines",
    "PrivateCenter": "preprocessing",
    "PrivatePCA": "preprocessing",
    "PrivateStandardScaler": "preprocessing",
    "PrivateWhitener": "preprocessing",
    "PublicImageFeatures": "preprocessing",
    "PublicScaler": "preprocessing",
    "PublicSplines": "preprocessing",
    "RandomFourierFeatures": "preprocessing",
}
__all__ = ["__version__", "accounting", "noise", *_HOMES]

_MODULES = {
    *_HOMES.values(),
    *("accounting", "audit", "data", "federated", "losses", "metrics", "model_selection"),
    *("noise", "persist", "planning", "plotting"),
}


def __getattr__(name: str) -> Any:
    """Import a public name or module on first use."""
    if name in _MODULES:
        return importlib.import_module(f"dpsvm_fast.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"dpsvm_fast.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*__all__, *_MODULES})
