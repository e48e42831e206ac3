"""Simulation of all parties in one process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.estimators.fit import SEEDED, charge, refuse_or_warn
from dpsvm_fast.exceptions import (
    InvalidParameterError,
    NotPrivateWarning,
    PartyRefusedError,
    SecureSumAborted,
)
from dpsvm_fast.federated.classifier import FederatedLinearSVC, finalize, public_state
from dpsvm_fast.federated.local import Records, checked_records, contributions
from dpsvm_fast.federated.secsum import SecureSum, SumResult, TrustedSum
from dpsvm_fast.federated.spec import FederatedSpec
from dpsvm_fast.ledger import PrivacyLedger, check_ledger
from dpsvm_fast.validation import check_integer, check_n_threads, check_random_state

# Numbers that a block of parties may hold at a time: half a gigabyte.
BLOCK = 2**26


@in_usual_arithmetic
def simulate(
    spec: FederatedSpec,
    parties: Sequence[tuple[Any, ...]],
    *,
    random_state: int | None = None,
    n_threads: int | None = None,
    dropouts: Iterable[int] | Mapping[str, Iterable[int]] = (),
    secure_sum: SecureSum | None = None,
    ledger: PrivacyLedger | None = None,
) -> FederatedLinearSVC:
    """Train across parties whose records are all in this process.

    Each party fits, rounds and adds noise as it would on its own machine, from its own stream. The
    sum is exact, so a secure protocol gives the same bits.

    Parameters
    ----------
    spec : FederatedSpec
    parties : sequence of (X, y) or (X, y, groups)
        The records of each party; with ``unit="person"`` also groups, see :func:`local_update`.
    random_state : int or None, default=None
        None: each party's noise has its own key from the operating system. A seed makes the result
        reproducible and not private: ``NotPrivateWarning``.
    n_threads : int or None, default=None
        None uses all cores of this process. Never changes the result.
    dropouts : iterable of int, or mapping of round names to such, default=()
        Numbers of the parties that drop out before the sum.
    secure_sum : SecureSum or None, default=None
        Protocol of the sum; None for a plain sum. The result has the same bits. Either way the
        operator of this process sees all records, and the statement says that they are trusted.
    ledger : PrivacyLedger or None, default=None
        Asked before any records are read, and charged with everything before noise is drawn.

    Returns
    -------
    FederatedLinearSVC

    Raises
    ------
    InvalidParameterError, TypeError
        The number of parties is not as agreed, or a parameter is out of range.
    PartyRefusedError
        A party's records are not as agreed; nothing is spent or released.
    BudgetExceededError
        The ledger refuses. Nothing was read or spent.
    SecureSumAborted
        Too few parties remained; nothing is released.
    """
    threads = check_n_threads(n_threads)
    seed = check_random_state(random_state)
    ledger = check_ledger(ledger, "replace_one")
    if len(parties) != spec.n_users:
        raise InvalidParameterError.of("parties", got=len(parties), accepted=f"{spec.n_users}")
    gone = _dropped(spec, dropouts)
    adder = TrustedSum(spec.survivors_needed) if secure_sum is None else secure_sum
    for name, lost in gone.items():
        if spec.n_users - len(lost) < spec.survivors_needed:
            raise SecureSumAborted(name, spec.n_users - len(lost), spec.survivors_needed)
    if seed is not None:
        refuse_or_warn(ledger, "random_state", SEEDED, NotPrivateWarning, stacklevel=4)
    events = spec.events("trusted_curator")
    if ledger is not None:
        ledger.check(events, unit=spec.unit)
    records, refusal = [], None
    for i, party in enumerate(parties):
        try:
            X, y, *ids = party
            records.append(checked_records(X, y, spec, *ids))
        except PartyRefusedError as error:
            refusal = f"party {i}: {error}"
        if refusal is not None:
            # Here, so that nothing of the first error travels along.
            raise PartyRefusedError(refusal)
    label = f"{spec.algorithm} of {spec.n_users} parties"
    charge(ledger, events, label, private=seed is None, unit=spec.unit)
    sources = party_sources(spec.n_users, seed)
    results: dict[str, SumResult] = {}
    for plan in spec.rounds:
        left = [i for i in range(spec.n_users) if i not in gone[plan.name]]
        vectors = _vectors(spec, plan.name, records, sources, left, results, threads)
        results[plan.name] = adder.sum(vectors)
    return finalize(
        results,
        spec,
        trust="trusted_curator",
        random_source="operating_system" if seed is None else "seed",
    )


def party_sources(n: int, seed: int | None) -> list[_core.NoiseSource]:
    """Return one noise stream per party, keyed by the operating system or by a seed."""
    if seed is None:
        return [_core.NoiseSource(None) for _ in range(n)]
    root = _core.NoiseSource(seed)
    return [_core.NoiseSource(root.public_seed()) for _ in range(n)]


def _dropped(
    spec: FederatedSpec, dropouts: Iterable[int] | Mapping[str, Iterable[int]]
) -> dict[str, set[int]]:
    """Return the parties that drop out before the sum of each round."""
    names = [part.name for part in spec.rounds]
    if not isinstance(dropouts, Mapping):
        gone = list(dropouts)
        dropouts = dict.fromkeys(names, gone)
    unknown = sorted(map(str, set(dropouts) - set(names)))
    if unknown:
        raise InvalidParameterError(f"dropouts: got {unknown}, expected rounds of spec")
    most = spec.n_users - 1
    return {
        name: {check_integer("dropouts", i, 0, most) for i in dropouts.get(name, ())}
        for name in names
    }


def _vectors(
    spec: FederatedSpec,
    round_name: str,
    records: Sequence[Records],
    sources: Sequence[_core.NoiseSource],
    left: Sequence[int],
    results: Mapping[str, SumResult],
    n_threads: int,
) -> Iterator[NDArray[np.int64]]:
    """Yield vectors of the remaining parties, some parties at a time."""
    public = public_state(spec, results)
    numbers = spec.round(round_name).length + max(spec.max_records, 1) * spec.n_features
    step = max(1, BLOCK // numbers)
    for start in range(0, len(left), step):
        block = left[start : start + step]
        yield from contributions(
            spec,
            round_name,
            Records.joined([records[i] for i in block]),
            public,
            [sources[i] for i in block],
            n_threads,
        )
