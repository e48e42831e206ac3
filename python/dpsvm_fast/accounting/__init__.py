"""What was spent and the proof of purchase: events, accountant, ledger, statement, verification."""

from dpsvm_fast.accounting._arguments import check_ledger
from dpsvm_fast.accounting._distances import delta_without_distance
from dpsvm_fast.accounting._federated_parts import SecureRound
from dpsvm_fast.accounting.accountant import delta as composed_delta
from dpsvm_fast.accounting.accountant import epsilon as composed_epsilon
from dpsvm_fast.accounting.certificates import read_certificate
from dpsvm_fast.accounting.compound import (
    AlternativesEvent,
    ParallelEvent,
    RandomStoppingEvent,
)
from dpsvm_fast.accounting.events import (
    ApproximateEvent,
    DistanceEvent,
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PureEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from dpsvm_fast.accounting.export import dp_accounting_event, dp_accounting_tree
from dpsvm_fast.accounting.federated_statement import FederatedStatement
from dpsvm_fast.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_sigma
from dpsvm_fast.accounting.ledger import PrivacyLedger, SpendRecord
from dpsvm_fast.accounting.objective import objective_delta, objective_sigma
from dpsvm_fast.accounting.pipeline import PipelineStatement, PipelineStep
from dpsvm_fast.accounting.schema import certificate_schema
from dpsvm_fast.accounting.selection import SelectionNoise, SelectionStatement, Stopping
from dpsvm_fast.accounting.statement import (
    Descent,
    LastIterate,
    Noise,
    ObjectiveNoise,
    PrivacyStatement,
    ReleasePart,
    Sensitivity,
)
from dpsvm_fast.accounting.subsampled import (
    subsampled_gaussian_delta,
    subsampled_gaussian_epsilon,
    subsampled_gaussian_noise_multiplier,
)
from dpsvm_fast.accounting.verify import Verification, verify

__all__ = [
    "AlternativesEvent",
    "ApproximateEvent",
    "Descent",
    "DistanceEvent",
    "FederatedStatement",
    "GaussianEvent",
    "LastIterate",
    "Noise",
    "ObjectiveEvent",
    "ObjectiveNoise",
    "ParallelEvent",
    "PipelineStatement",
    "PipelineStep",
    "PrivacyEvent",
    "PrivacyLedger",
    "PrivacyStatement",
    "PureEvent",
    "RandomStoppingEvent",
    "ReleasePart",
    "SecureRound",
    "SelectionNoise",
    "SelectionStatement",
    "Sensitivity",
    "SpendRecord",
    "Stopping",
    "SubsampledGaussianEvent",
    "Verification",
    "ZCDPEvent",
    "certificate_schema",
    "check_ledger",
    "composed_delta",
    "composed_epsilon",
    "delta_without_distance",
    "dp_accounting_event",
    "dp_accounting_tree",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "objective_delta",
    "objective_sigma",
    "read_certificate",
    "subsampled_gaussian_delta",
    "subsampled_gaussian_epsilon",
    "subsampled_gaussian_noise_multiplier",
    "verify",
]
