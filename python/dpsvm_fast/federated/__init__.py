"""Private classifiers of several parties who keep their records."""

from dpsvm_fast.federated.encoding import FixedPointCodec
from dpsvm_fast.federated.errors import InconsistentSumError, PartyRefusedError, SecureSumAborted
from dpsvm_fast.federated.plans import RoundPlan
from dpsvm_fast.federated.secsum import SecureSum, SumResult, TrustedSum, choose_graph
from dpsvm_fast.federated.spec import FederatedSpec

__all__ = [
    "FederatedSpec",
    "FixedPointCodec",
    "InconsistentSumError",
    "PartyRefusedError",
    "RoundPlan",
    "SecureSum",
    "SecureSumAborted",
    "SumResult",
    "TrustedSum",
    "choose_graph",
]
