"""One round of one party: charge the ledger, fit, round and add noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.estimators.fit import charge
from dpsvm_fast.estimators.frames import label_values
from dpsvm_fast.estimators.inputs import Owners, checked_numbers, encoded_labels, owners
from dpsvm_fast.exceptions import (
    CertificationError,
    InvalidParameterError,
    PartyRefusedError,
)
from dpsvm_fast.federated.plans import LocalTraining
from dpsvm_fast.federated.spec import DpdrSpec, FederatedSpec
from dpsvm_fast.ledger import PrivacyLedger, check_ledger
from dpsvm_fast.mechanisms.moments import Projection
from dpsvm_fast.mechanisms.output import projected_sgd
from dpsvm_fast.mechanisms.plan import certified
from dpsvm_fast.mechanisms.rows import PublicMap
from dpsvm_fast.validation import check_option

# Local models of many parties in one call: rows of all of them, one after the other.


Array = NDArray[np.float64]

Integers = NDArray[np.int64]

UNCERTIFIED = "training: the minimum could not be certified in double precision"


def fit_parties(
    training: LocalTraining, parties: Sequence[Records], seed: int, n_threads: int
) -> Array:
    """Fit every party's model; return weights (n_parties, n_scores, n_columns). Private.

    Parameters
    ----------
    training : LocalTraining
    parties : sequence of Records
        Records without persons.
    seed : int
        Public seed of the row orders.
    n_threads : int
        Does not change the result.

    Raises
    ------
    PartyRefusedError
        A party's minimum was not certified.
    """
    spec: Any = training.spec
    sizes = [party.size for party in parties]
    shared: dict[str, Any] = {
        "X": rows_of(parties),
        "y": np.concatenate([party.codes for party in parties]),
        "offsets": np.cumsum([0, *sizes], dtype=np.int64),
        "data_norm": spec.data_norm,
        "intercept_scaling": spec.intercept_scaling,
        "n_threads": n_threads,
    }

    def of_each(number: Callable[[int], float]) -> Array:
        return np.array([number(n) for n in sizes])

    if training.by_sgd:
        last = _core.projected_sgd_parties(
            regularizations=of_each(lambda _: spec.regularization),
            n_epochs=spec.n_epochs,
            batch_size=spec.batch_size,
            radius=spec.radius,
            projection=spec.projection,
            average="last",
            permutation_seed=seed,
            **training.loss.compiled,
            **shared,
        )
        return np.asarray(last)
    if training.loss.name == "crammer_singer":
        weights, found = _core.solve_crammer_singer_parties(
            n_classes=training.loss.n_classes,
            C=of_each(training.own_C),
            radius=of_each(training.own_radius),
            shuffle_seed=seed,
            **shared,
        )
    else:
        weights, found = _core.solve_smooth_parties(
            regularizations=of_each(training.sum_regularization),
            gradient_tols=of_each(training.gradient_tol),
            shuffle_seed=seed,
            **training.loss.compiled,
            **shared,
        )
    if not found.all():
        raise PartyRefusedError(UNCERTIFIED)
    return np.asarray(weights)


def fit_persons(
    training: LocalTraining, parties: Sequence[Records], seed: int, n_threads: int
) -> Iterator[Array]:
    """Fit every party's model with the mean loss of each person. Private.

    Parameters
    ----------
    training, seed, n_threads
        As in :func:`fit_parties`.
    parties : sequence of Records
        Records with persons.

    Yields
    ------
    ndarray of shape (n_scores, n_columns)

    Raises
    ------
    CertificationError
        A party's minimum was not certified.
    """
    spec: Any = training.spec
    shared: dict[str, Any] = {
        "data_norm": spec.data_norm,
        "intercept_scaling": spec.intercept_scaling,
        "low_memory": False,
    }
    goal: dict[str, Any]
    exact = shared | {"n_threads": n_threads, "max_iter": None, "shuffle_seed": seed}
    for party in parties:
        X, codes, factors, own, n = party.X, party.codes, party.factors, party.owners, party.size
        if training.by_sgd:
            goal = training.run(n).compiled(training.loss, training.own_C(n), training.row_norm)
            yield projected_sgd(X, codes, factors, own, seed, **goal, **shared)
            continue
        if training.loss.name == "crammer_singer":
            solver, goal = "solve_crammer_singer", {"n_classes": training.loss.n_classes}
            goal |= {"C": training.own_C(n), "radius": training.own_radius(n)}
        else:
            solver, goal = "solve_smooth", training.loss.compiled | {"linear": None}
            goal["regularization"] = training.sum_regularization(n)
            goal["gradient_tol"] = training.gradient_tol(n)
        yield certified(solver, X, codes, factors, **goal, **exact)


# Records of a party, checked.


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """Rows of one party. Private.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features), float64 or float32
    codes : ndarray of shape (n_rows,)
        Class indices.
    owners : Owners or None
        Persons of the rows; None if rows or parties are protected.
    """

    X: NDArray[Any]
    codes: Integers
    owners: Owners | None = None

    @property
    def size(self) -> int:
        """Number of records, or of persons."""
        return self.codes.size if self.owners is None else self.owners.n_persons

    @property
    def factors(self) -> Array | None:
        """Factors of the rows' losses, at most 1 in sum per person; None if all are 1."""
        return None if self.owners is None else self.owners.shares(self.codes.size)

    def moments(self, data_norm: float, n_threads: int) -> Array:
        """Return second moments of the clipped rows, divided by the squared bound. Private.

        The second moments of each person are clipped to Frobenius norm 1.
        """
        public = PublicMap(unit=False, data_norm=data_norm)
        labels = np.zeros_like(self.codes)
        records = public.records(self.X, labels, 2, n_threads, self.owners)
        return np.asarray(records.gram(n_threads))


def rows_of(parties: Sequence[Records]) -> NDArray[Any]:
    """Return the rows of all parties; those of a single one are not copied."""
    return parties[0].X if len(parties) == 1 else np.concatenate([party.X for party in parties])


def checked_records(X: Any, y: Any, spec: FederatedSpec, groups: Any = None) -> Records:
    """Check one party's rows, labels and persons against the specification.

    Raises
    ------
    InvalidParameterError
        Groups are given although rows or parties are protected, or missing for persons.
    PartyRefusedError
        The records are not as agreed. The messages are constants.
    """
    if (spec.unit == "person") != (groups is not None):
        raise InvalidParameterError(
            f"groups: got {'none' if groups is None else 'some'} with unit={spec.unit!r}, expected "
            "the id of a person for each row with unit='person', and none otherwise"
        )
    numbers = _numbers(X)
    if numbers.shape[1] != spec.n_features:
        raise PartyRefusedError("records: the number of features differs from the specification")
    codes = _codes(y, spec)
    if codes.size != numbers.shape[0]:
        raise PartyRefusedError("records: expected one label for each row")
    found: Owners | None = None
    if groups is not None:
        try:
            found = owners(groups, None, codes.size, 1.0)
        except (TypeError, ValueError):
            raise PartyRefusedError("groups: expected the id of a person for each row") from None
        numbers, codes = found.ordered(numbers, codes)
    records = Records(numbers, codes, found)
    n = records.size
    if not spec.min_records <= n <= spec.max_records:
        raise PartyRefusedError("records: fewer than min_records, or more than max_records")
    if spec.training is not None and spec.training.by_sgd and not spec.training.accurate(n):
        raise PartyRefusedError("records: too many: rounding errors of SGD exceed the tolerance")
    return records


def _numbers(X: Any) -> NDArray[Any]:
    """Return finite dense rows in C order; float32 is kept."""
    if hasattr(X, "toarray"):
        X = X.toarray()
    plain = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype in (np.float64, np.float32)
    try:
        rows = X if plain and type(X) is np.ndarray else checked_numbers(X)
        if not np.isfinite(rows).all():
            raise ValueError
    except (TypeError, ValueError):
        raise PartyRefusedError("records: expected a table of finite numbers") from None
    return np.require(rows, requirements=["C_CONTIGUOUS", "ALIGNED"])


def _codes(y: Any, spec: FederatedSpec) -> Integers:
    """Return the class index of each label."""
    try:
        labels = np.asarray(label_values(y))
        if labels.ndim != 1 or not labels.size:
            raise ValueError
        return encoded_labels(labels, np.asarray(spec.classes))
    except (TypeError, ValueError):
        raise PartyRefusedError("labels: expected one of the classes for each row") from None


# Contributions of parties to each sum: from checked rows to vectors of integers with noise.
#
# One implementation for one party and for thousands, so that a simulation does what parties do.


ROOT_TWO = float(np.sqrt(2.0))


def contributions(
    spec: FederatedSpec,
    round_name: str,
    parties: Sequence[Records],
    public: Array | None,
    sources: Sequence[_core.NoiseSource],
    n_threads: int,
) -> Iterator[Integers]:
    """Yield the vectors of several parties, in order.

    Parameters
    ----------
    spec : FederatedSpec
    round_name : str
    parties : sequence of Records
        Checked rows of the parties.
    public : ndarray or None
        Public result of the previous round.
    sources : sequence of NoiseSource
        One noise source per party.
    n_threads : int
        Does not change the result.
    """
    plan = spec.round(round_name)
    values = _values(spec, round_name, parties, public, sources, n_threads)
    by_records = spec.weighting == "records"
    for own, party, source in zip(values, parties, sources, strict=True):
        steps = plan.codec.encode(np.ascontiguousarray(own).ravel())
        if plan.sigma_steps:
            drawn = source.discrete_gaussian(steps.size, plan.sigma_steps, n_threads)
            steps = plan.codec.add_noise(steps, drawn)
        vector = np.empty(plan.length, dtype=np.int64)
        vector[:-2], vector[-2], vector[-1] = steps, party.size if by_records else 0, 1
        yield vector


def _values(
    spec: FederatedSpec,
    round_name: str,
    parties: Sequence[Records],
    public: Array | None,
    sources: Sequence[_core.NoiseSource],
    n_threads: int,
) -> Iterator[Array]:
    """Yield each party's contribution before encoding. Private, unless it is already noisy."""
    if round_name == "gram":
        for party in parties:
            yield packed(party.moments(spec.data_norm, n_threads) * spec.data_norm**2, ROOT_TWO)
    elif round_name == "components":
        assert isinstance(spec, DpdrSpec)
        assert spec.components is not None
        for party, source in zip(parties, sources, strict=True):
            moments = party.moments(spec.data_norm, n_threads)
            released = spec.components.release(moments, source, n_threads)
            vectors, weight = released.vectors, float(spec.weight(party.size))
            if spec.aggregation == "projectors":
                yield packed(vectors.T @ vectors, 1.0) * weight
            else:
                signs = np.where(vectors.sum(axis=1) < 0.0, -1.0, 1.0)
                yield vectors * (weight * signs)[:, None]
    else:
        if public is not None:
            # Each row by itself, to the last bit.
            mapped = projection(spec, public).apply(rows_of(parties), n_threads)
            ends = np.cumsum([party.codes.size for party in parties])
            own_rows = zip(parties, np.split(mapped, ends[:-1]), strict=True)
            parties = [replace(party, X=X) for party, X in own_rows]
        try:
            yield from _models(spec, parties, sources, n_threads)
        except CertificationError:
            raise PartyRefusedError(UNCERTIFIED) from None


def _models(
    spec: FederatedSpec,
    parties: Sequence[Records],
    sources: Sequence[_core.NoiseSource],
    n_threads: int,
) -> Iterator[Array]:
    """Yield every party's model times its weight."""
    seed = spec.public_seed("model")
    training = spec.training
    if training is not None:
        fit: Callable[..., Iterable[Array]] = fit_persons if spec.unit == "person" else fit_parties
        for weights, party in zip(fit(training, parties, seed, n_threads), parties, strict=True):
            if not np.isfinite(weights).all():
                raise PartyRefusedError("training: the model is not finite")
            yield training.projected(weights) * float(spec.weight(party.size))
        return
    objective = spec.objective
    assert objective is not None
    for party, source in zip(parties, sources, strict=True):
        released = objective.mechanism.trained(
            party.X,
            party.codes,
            source,
            n_threads,
            weights=party.factors,
            regularization=objective.sum_regularization(party.size),
            shuffle_seed=seed,
        )
        norm = float(np.linalg.norm(released))
        released *= objective.radius / max(norm, objective.radius)
        yield released * float(spec.weight(party.size))


def projection(spec: FederatedSpec, components: Array) -> Projection:
    """Return the map of rows onto public components."""
    k, d = components.shape
    return Projection(components, np.ones(k), np.zeros(d), spec.data_norm)


def packed(matrix: Array, factor: float) -> Array:
    """Pack a symmetric matrix: the diagonal, then the upper triangle times ``factor``."""
    above = np.triu_indices(matrix.shape[0], 1)
    return np.concatenate([np.diagonal(matrix), factor * matrix[above]])


def matrix_of(numbers: Array, n_features: int, factor: float) -> Array:
    """Return the symmetric matrix from numbers returned by ``packed``."""
    matrix = np.zeros((n_features, n_features))
    above = np.triu_indices(n_features, 1)
    matrix[above] = numbers[n_features:] / factor
    matrix += matrix.T
    matrix[np.diag_indices(n_features)] = numbers[:n_features]
    return matrix


TRUSTS = ("secure_sum", "trusted_curator")


@dataclass(frozen=True, eq=False, repr=False)
class LocalUpdate:
    """Contribution of a party to a sum; only the sum protocol may read it.

    Parameters
    ----------
    vector : ndarray of shape (length,), int64
        Noisy numbers of the contribution, the party's number of records (0 if parties have equal
        weight), and 1.
    """

    vector: NDArray[np.int64]


@in_usual_arithmetic
def local_update(
    X: Any,
    y: Any,
    spec: FederatedSpec,
    round_name: str,
    *,
    groups: Any = None,
    public: NDArray[np.float64] | None = None,
    source: _core.NoiseSource | None = None,
    ledger: PrivacyLedger | None = None,
    trust: str = "secure_sum",
    n_threads: int = 1,
) -> LocalUpdate:
    """Compute the vector of one party for one round.

    Parameters
    ----------
    X : array-like of shape (n_records, n_features)
    y : array-like of shape (n_records,)
    spec : FederatedSpec
    round_name : str
        A name of ``spec.rounds``.
    groups : array-like of shape (n_records,), optional
        Id of the person that each row belongs to; required for ``unit="person"`` and only then.
    public : ndarray of shape (n_components, n_features) or None
        Input of a later round from the sums of earlier rounds, see
        :func:`dpsvm_fast.federated.public_state`.
    source : NoiseSource or None
        None takes entropy from the operating system. With a seeded source the result is not
        private.
    ledger : PrivacyLedger or None
        The party's own ledger, checked before its records are read, and charged for the round
        before noise is drawn.
    trust : {"secure_sum", "trusted_curator"}
    n_threads : int
        Does not change the result.

    Returns
    -------
    LocalUpdate

    Raises
    ------
    InvalidParameterError, TypeError
        A parameter is outside its range, or ``groups`` is missing. Nothing was read or spent.
    BudgetExceededError
        The ledger refuses. Nothing was read or spent.
    PartyRefusedError
        Records or public numbers are not as agreed: nothing was spent or released. Or training
        failed: the budget is spent and nothing was released. The messages are constants.

    Notes
    -----
    Guarantees: those of the statement hold for sums of the vectors of at least
    ``spec.survivors_needed`` parties; a single vector has only the statement's ``local_epsilon``.
    Every call draws fresh noise and is another release. A vector may be in only one opened sum:
    ``dpsvm_fast.federated.party.Party`` answers each round once.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast.federated import DpdrSpec, FederatedSpec, local_update
    >>> spec = FederatedSpec.dp_helmet(
    ...     n_users=20, n_features=2, classes=[0, 1], epsilon=1.0, delta=1e-6, max_records=50
    ... )
    >>> X = np.random.default_rng(0).uniform(-0.7, 0.7, size=(50, 2))
    >>> update = local_update(X, (X[:, 0] > 0).astype(int), spec, "model")
    >>> update.vector.dtype
    dtype('int64')
    """
    check_option("trust", trust, TRUSTS)
    plan = spec.round(round_name)
    ledger = check_ledger(ledger, "replace_one")
    public = checked_public(public, spec, round_name)
    events = plan.events(trust)
    if ledger is not None:
        ledger.check(events, unit=spec.unit)
    records = checked_records(X, y, spec, groups)
    charge(ledger, events, f"{spec.algorithm}, round {round_name!r}", unit=spec.unit)
    source = _core.NoiseSource(None) if source is None else source
    (vector,) = contributions(spec, round_name, [records], public, [source], n_threads)
    return LocalUpdate(vector)


def checked_public(
    public: NDArray[np.float64] | None, spec: FederatedSpec, round_name: str
) -> NDArray[np.float64] | None:
    """Check the components of earlier rounds, if the round needs them.

    Raises
    ------
    PartyRefusedError
        The components have a wrong shape or are too large.
    """
    if not isinstance(spec, DpdrSpec) or round_name == spec.rounds[0].name:
        if public is not None:
            raise PartyRefusedError("public: expected none in this round")
        return None
    shape = (spec.n_components, spec.n_features)
    fits = isinstance(public, np.ndarray) and public.shape == shape
    if not fits or public is None or public.dtype != np.float64:
        raise PartyRefusedError("public: expected components of the specified shape")
    if not (np.abs(public) <= 2.0).all():
        raise PartyRefusedError("public: expected finite components of norm about 1")
    return np.require(public, requirements=["C_CONTIGUOUS", "ALIGNED"])
