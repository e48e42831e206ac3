"""The statement about a training across parties."""

from __future__ import annotations

import dataclasses

from dpsvm_fast import _core
from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.accounting.federated_statement import FederatedStatement, caveats_of
from dpsvm_fast.accounting.statement import Sensitivity
from dpsvm_fast.accounting.words import AGREED, SEED_REASON
from dpsvm_fast.federated._parameters import loss_of
from dpsvm_fast.federated.plans import sensitivity_record
from dpsvm_fast.federated.spec import FederatedSpec

__all__ = ["statement_of"]

# Beyond this the statement does not speak of one party's messages.
MOST_EPSILON = 200.0


def statement_of(
    spec: FederatedSpec, trust: str, random_source: str, reasons: tuple[str, ...]
) -> FederatedStatement:
    """What is promised about all sums of one training together.

    Parameters
    ----------
    spec : FederatedSpec
    trust : {"secure_sum", "trusted_curator"}
    random_source : {"operating_system", "seed"}
    reasons : tuple of str
        Why it is not private after all.
    """
    p, training = spec.params, spec.training
    if random_source == "seed" and SEED_REASON not in reasons:
        reasons = (*reasons, SEED_REASON)
    sensitivity = _sensitivity(spec)
    summed = [part.secure_round(trust) for part in spec.rounds if part.noise is not None]
    statement = FederatedStatement(
        algorithm=spec.algorithm,
        loss=p["loss"],
        n_scores=None if sensitivity is None else loss_of(p, len(spec.classes)).n_scores,
        unit=p["unit"],
        group_size=p["group_size"],
        n_users=spec.n_users,
        honest_fraction=spec.honest_fraction,
        max_dropout=spec.max_dropout,
        min_survivors=spec.survivors_needed,
        honest_survivors=spec.honest_survivors,
        threshold=spec.threshold if trust == "secure_sum" else None,
        trust=trust,
        sensitivity=sensitivity,
        weighting=p["weighting"],
        regularization=p["regularization"],
        radius=None if training is None else training.model_norm,
        min_records=p["min_records"],
        max_records=p["max_records"],
        rounds=tuple(part for part in summed if part is not None),
        local_events=tuple(event for part in spec.rounds for event in part.local_events),
        epsilon=spec.epsilon,
        delta=spec.delta,
        local_epsilon=None,
        assumed_public=AGREED,
        caveats=caveats_of(trust, p["weighting"]),
        library_version=_core.build_info()["version"],
        random_source=random_source,
        not_private_reasons=reasons,
    )
    if not statement.rounds:
        return statement
    own = composed_epsilon(statement.sent_events, spec.delta)
    return dataclasses.replace(statement, local_epsilon=own if own <= MOST_EPSILON else None)


def _sensitivity(spec: FederatedSpec) -> Sensitivity | None:
    """By how much one unit moves the models; None where parties have noise of their own."""
    models = (part.noise for part in spec.rounds if part.name == "model")
    noise = next(models, None)
    if spec.training is None or noise is None:
        return None
    return sensitivity_record(spec.training, noise)
