"""Federated classifiers, computed from sums over parties."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.certificates.releases import Sensitivity
from dpsvm_fast.certificates.statement import FederatedStatement
from dpsvm_fast.estimators.base import PrivateLinearClassifier, linear_attributes
from dpsvm_fast.estimators.fit import SEEDED, charge, refuse_or_warn
from dpsvm_fast.estimators.inputs import public_classes
from dpsvm_fast.exceptions import (
    InconsistentSumError,
    InvalidParameterError,
    NotPrivateWarning,
    PartyRefusedError,
    SecureSumAborted,
)
from dpsvm_fast.federated.local import (
    ROOT_TWO,
    checked_records,
    contributions,
    matrix_of,
)
from dpsvm_fast.federated.plans import RoundPlan
from dpsvm_fast.federated.secsum import SecureSum, SumResult, TrustedSum, centred, whole_numbers
from dpsvm_fast.federated.spec import DpdrSpec, FederatedSpec
from dpsvm_fast.ledger import PrivacyLedger, check_ledger
from dpsvm_fast.mechanisms.noise import RELATION_FACTOR
from dpsvm_fast.mechanisms.plan import filled
from dpsvm_fast.rounding import add_up
from dpsvm_fast.validation import check_integer, check_n_threads, check_random_state


class FederatedLinearSVC(PrivateLinearClassifier):
    """Linear classifier from sums over parties; see ``finalize`` and ``simulate``.

    Parameters
    ----------
    spec : FederatedSpec or None
        Specification that the parties agreed on.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Averaged noisy weights for the original features, multiplied by the components.
    intercept_ : ndarray of shape (n_classes,), or (1,)
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    components_ : ndarray of shape (n_components, n_features)
        Released components, only with ``fed_dpdr``.
    n_survivors_ : int
        Number of parties in the sum of models.
    n_records_ : int or None
        Number of records, or of persons, of these parties; None if parties have equal weight.
    privacy_ : FederatedStatement
        Privacy statement of the fit, with every number to recompute it.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast.federated import FederatedLinearSVC, FederatedSpec
    >>> spec = FederatedSpec.dp_helmet(
    ...     n_users=20, n_features=2, classes=[0, 1], epsilon=1.0, delta=1e-6, max_records=50
    ... )
    >>> X = np.random.default_rng(0).uniform(-0.7, 0.7, size=(1000, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> parties = [(X[part], y[part]) for part in np.array_split(np.arange(1000), 20)]
    >>> FederatedLinearSVC(spec).fit(parties).coef_.shape
    (1, 2)
    """

    privacy_: FederatedStatement  # type: ignore[assignment]
    components_: NDArray[np.float64]
    n_survivors_: int
    n_records_: int | None

    def __init__(self, spec: FederatedSpec | None = None) -> None:
        self.spec = spec

    def fit(self, parties: Sequence[tuple[Any, ...]], y: None = None) -> FederatedLinearSVC:
        """Train on the records of all parties in this process, as :func:`simulate` does.

        Parameters
        ----------
        parties : sequence of (X, y) or (X, y, groups)
            One of each party.
        y : ignored

        Returns
        -------
        FederatedLinearSVC
            This object.
        """
        if self.spec is None:
            raise InvalidParameterError("spec: expected the specification of the parties")
        fitted = simulate(self.spec, parties)
        self._forget()
        self.__dict__.update(vars(fitted))
        return self


# The statement about a training across parties.


# A larger epsilon of one party's messages is not stated.
MAX_EPSILON = 200.0


def statement_of(spec: FederatedSpec, trust: str, random_source: str) -> FederatedStatement:
    """Return the statement of all sums of one training.

    Parameters
    ----------
    spec : FederatedSpec
    trust : {"secure_sum", "trusted_curator"}
    random_source : {"operating_system", "seed"}
    """
    training = spec.training
    noise = next((part.noise for part in spec.rounds if part.name == "model"), None)
    sensitivity = None
    if training is not None and noise is not None:
        # Sensitivity of one party's weighted model to one row or person, factor by factor.
        rounding = noise.codec.rounding(noise.size)
        sensitivity = filled(
            Sensitivity,
            training,
            training.loss,
            spec,
            relation_factor=RELATION_FACTOR["replace_one"],
            exact=training.by_record,
            rounding=rounding,
            total=add_up(training.by_record, 2.0 * training.solver_radius, rounding),
        )
    summed = [part.secure_round(trust) for part in spec.rounds]
    statement = filled(
        FederatedStatement,
        spec,
        n_scores=None if sensitivity is None else spec.trained_loss.n_scores,
        threshold=spec.threshold if trust == "secure_sum" else None,
        trust=trust,
        sensitivity=sensitivity,
        radius=None if training is None else training.model_norm,
        rounds=tuple(part for part in summed if part is not None),
        local_events=tuple(event for part in spec.rounds for event in part.local_events),
        local_epsilon=None,
        library_version=_core.build_info()["version"],
        random_source=random_source,
    )
    if not statement.rounds:
        return statement
    own = composed_epsilon(statement.sent_events, spec.delta)
    return dataclasses.replace(statement, local_epsilon=own if own <= MAX_EPSILON else None)


# From sums to a classifier: arithmetic on released numbers, without randomness.


Array = NDArray[np.float64]


def checked_sum(spec: FederatedSpec, plan: RoundPlan, result: SumResult) -> tuple[Array, int]:
    """Check a sum; return the contributions in their own unit, and the number of records.

    Raises
    ------
    SecureSumAborted
        The sum has fewer parties than the guarantee requires.
    InconsistentSumError
        The sum has a wrong length, or numbers that such parties cannot have sent.
    """
    survivors = result.survivors
    if survivors < spec.survivors_needed:
        raise SecureSumAborted("finalize", survivors, spec.survivors_needed)
    total = centred(whole_numbers(result.total))
    if total.size != plan.length or survivors > spec.n_users:
        raise InconsistentSumError("sum: wrong length, or too many parties")
    n_records = int(total[-2])
    if spec.weighting == "records":
        least, most = spec.min_records, spec.max_records
    else:
        least = most = 0
    if total[-1] != survivors or not least * survivors <= n_records <= most * survivors:
        raise InconsistentSumError(
            "sum: wrong check numbers: a party runs another version of the protocol, or the sum is "
            "of other parties"
        )
    return plan.codec.decode_sum(total[:-2], survivors), n_records


def mean_of(spec: FederatedSpec, plan: RoundPlan, result: SumResult) -> tuple[Array, int]:
    """Return the weighted average of the contributions, and the number of records."""
    total, n_records = checked_sum(spec, plan, result)
    return total / float(n_records if n_records else result.survivors), n_records


def public_state(spec: FederatedSpec, results: Mapping[str, SumResult]) -> Array | None:
    """Return the public input of the next round, computed from the sums so far.

    Parameters
    ----------
    spec : FederatedSpec
    results : mapping of round names to SumResult
        Results of all rounds so far.

    Returns
    -------
    ndarray of shape (n_components, n_features), or None
        Components, before the second round of ``fed_dpdr``; else None.

    Raises
    ------
    SecureSumAborted, InconsistentSumError
        A sum has too few parties, or is not a sum of valid contributions.

    Examples
    --------
    >>> from dpsvm_fast.federated import DpdrSpec, FederatedSpec, public_state
    >>> spec = FederatedSpec.dp_helmet(
    ...     n_users=20, n_features=2, classes=[0, 1], epsilon=1.0, delta=1e-6, max_records=50
    ... )
    >>> public_state(spec, {}) is None  # its one round takes nothing
    True
    """
    first = spec.rounds[0]
    if not isinstance(spec, DpdrSpec) or first.name not in results:
        return None
    k, d = spec.n_components, spec.n_features
    if first.name == "gram":
        total, _ = checked_sum(spec, first, results[first.name])
        return np.asarray(_core.symmetric_eigen(matrix_of(total, d, ROOT_TWO), k)[1])
    mean, _ = mean_of(spec, first, results[first.name])
    if spec.aggregation == "eigenvectors":
        return mean.reshape(k, d)
    return np.asarray(_core.symmetric_eigen(matrix_of(mean, d, 1.0), k)[1])


def finalize(
    results: Mapping[str, SumResult],
    spec: FederatedSpec,
    *,
    trust: str = "secure_sum",
    random_source: str = "operating_system",
) -> FederatedLinearSVC:
    """Return the classifier from the sums of all rounds.

    Parameters
    ----------
    results : mapping of round names to SumResult
    spec : FederatedSpec
    trust : {"secure_sum", "trusted_curator"}
        Protocol of the sums.
    random_source : {"operating_system", "seed"}

    Returns
    -------
    FederatedLinearSVC
        Classifier, bit-identical for identical sums.

    Raises
    ------
    InvalidParameterError
        A round is missing.
    SecureSumAborted, InconsistentSumError
        As in :func:`public_state`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast.federated import DpdrSpec, FederatedSpec, TrustedSum, finalize, local_update
    >>> spec = FederatedSpec.dp_helmet(
    ...     n_users=20, n_features=2, classes=[0, 1], epsilon=1.0, delta=1e-6, max_records=50
    ... )
    >>> X = np.random.default_rng(0).uniform(-0.7, 0.7, size=(20, 50, 2))
    >>> vectors = [
    ...     local_update(own, (own[:, 0] > 0).astype(int), spec, "model").vector for own in X
    ... ]
    >>> total = TrustedSum(spec.survivors_needed).sum(vectors)
    >>> finalize({"model": total}, spec, trust="trusted_curator").coef_.shape
    (1, 2)
    """
    missing = sorted({part.name for part in spec.rounds} - set(results))
    if missing:
        raise InvalidParameterError(f"results: the sums of rounds {missing} are missing")
    mean, n_records = mean_of(spec, spec.round("model"), results["model"])
    loss = spec.trained_loss
    weights = mean.reshape(loss.n_scores, -1)
    facts: dict[str, Any] = {}
    components = public_state(spec, results)
    if components is not None:
        facts["components_"] = components
        k = components.shape[0]
        weights = np.hstack([weights[:, :k] @ components, weights[:, k:]])
    model = FederatedLinearSVC(spec)
    model.__dict__.update(
        linear_attributes(weights, spec.intercept_scaling),
        classes_=public_classes("classes", list(spec.classes)),
        n_features_in_=spec.n_features,
        n_survivors_=results["model"].survivors,
        n_records_=n_records or None,
        privacy_=statement_of(spec, trust, random_source),
        _fitted_loss=loss,
        **facts,
    )
    return model


# Simulation of all parties in one process.


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
    """Simulate training across parties whose records are all in this process.

    Each party fits, rounds and adds noise from its own stream, as on its own machine. The sum is
    exact, so a secure protocol gives the same bits.

    Parameters
    ----------
    spec : FederatedSpec
    parties : sequence of (X, y) or (X, y, groups)
        The records of each party; with ``unit="person"`` also groups, see :func:`local_update`.
    random_state : int or None, default=None
        None: each party's noise has its own key from the operating system. A seed makes the result
        reproducible but not private: a ``NotPrivateWarning`` is issued.
    n_threads : int or None, default=None
        Number of threads; None for all cores of this process. Never changes the result.
    dropouts : iterable of int, or mapping of round names to such, default=()
        Indices of the parties that drop out before the sum.
    secure_sum : SecureSum or None, default=None
        Protocol of the sum; None for a plain sum with the same bits. Either way the operator of
        this process sees all records, and the statement says that the operator is trusted.
    ledger : PrivacyLedger or None, default=None
        Budget ledger, checked before records are read, and charged for all rounds before noise is
        drawn.

    Returns
    -------
    FederatedLinearSVC

    Raises
    ------
    InvalidParameterError, TypeError
        The number of parties is not as agreed, or a parameter is outside its range.
    PartyRefusedError
        A party's records are not as agreed. Nothing was spent or released.
    BudgetExceededError
        The ledger refuses. Nothing was read or spent.
    SecureSumAborted
        Too few parties remained. Nothing was released.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast.federated import FederatedSpec, simulate
    >>> spec = FederatedSpec.dp_helmet(
    ...     n_users=20, n_features=2, classes=[0, 1], epsilon=1.0, delta=1e-6, max_records=50
    ... )
    >>> X = np.random.default_rng(0).uniform(-0.7, 0.7, size=(20, 50, 2))
    >>> simulate(spec, [(own, (own[:, 0] > 0).astype(int)) for own in X]).n_survivors_
    20
    """
    threads = check_n_threads("n_threads", n_threads)
    seed = check_random_state("random_state", random_state)
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
            # Raised here, so that the first error is not chained.
            raise PartyRefusedError(refusal)
    label = f"{spec.algorithm} of {spec.n_users} parties"
    charge(ledger, events, label, private=seed is None, unit=spec.unit)
    sources = party_sources(spec.n_users, seed)
    results: dict[str, SumResult] = {}

    def vectors(plan: RoundPlan) -> Iterator[NDArray[np.int64]]:
        """Yield the vectors of the remaining parties, a few parties at a time."""
        public = public_state(spec, results)
        left = [i for i in range(spec.n_users) if i not in gone[plan.name]]
        step = max(1, BLOCK // (plan.length + spec.max_records * spec.n_features))
        for start in range(0, len(left), step):
            block = left[start : start + step]
            rows, streams = [records[i] for i in block], [sources[i] for i in block]
            yield from contributions(spec, plan.name, rows, public, streams, threads)

    for plan in spec.rounds:
        results[plan.name] = adder.sum(vectors(plan))
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
