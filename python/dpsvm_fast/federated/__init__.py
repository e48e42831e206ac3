"""Federated training: private classifiers across parties that keep their records."""

from dpsvm_fast.exceptions import InconsistentSumError, PartyRefusedError, SecureSumAborted
from dpsvm_fast.federated.classifier import FederatedLinearSVC, finalize, public_state, simulate
from dpsvm_fast.federated.local import LocalUpdate, local_update
from dpsvm_fast.federated.plans import RoundPlan
from dpsvm_fast.federated.secsum import (
    FixedPointCodec,
    SecureSum,
    SumResult,
    TrustedSum,
)
from dpsvm_fast.federated.spec import DpdrSpec, FederatedSpec, HelmetSpec

__all__ = [
    "DpdrSpec",
    "FederatedLinearSVC",
    "FederatedSpec",
    "FixedPointCodec",
    "HelmetSpec",
    "InconsistentSumError",
    "LocalUpdate",
    "PartyRefusedError",
    "RoundPlan",
    "SecureSum",
    "SecureSumAborted",
    "SumResult",
    "TrustedSum",
    "finalize",
    "local_update",
    "public_state",
    "simulate",
]
