"""What parties put into each sum: from checked rows to vectors of integers with noise.

One function for one party and for thousands, so that a simulation does what parties do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.federated._dpdr_plan import DpdrPlan
from dpsvm_fast.federated._solvers import fit_objective, fit_parties
from dpsvm_fast.federated.errors import PartyRefusedError
from dpsvm_fast.federated.parties import Records
from dpsvm_fast.federated.plans import RoundPlan
from dpsvm_fast.federated.spec import FederatedSpec
from dpsvm_fast.mechanisms._row_maps import PublicMap
from dpsvm_fast.mechanisms.pca import Projection

__all__ = ["contributions", "matrix_of", "packed"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

ROOT_TWO = float(np.sqrt(2.0))


def contributions(
    spec: FederatedSpec,
    round_name: str,
    records: Records,
    public: Array | None,
    sources: Sequence[_core.NoiseSource],
    n_threads: int,
) -> Iterator[Integers]:
    """The vectors of several parties, in their order.

    Parameters
    ----------
    spec : FederatedSpec
    round_name : str
    records : Records
        Checked rows of all these parties.
    public : ndarray or None
        What the round takes from the one before.
    sources : sequence of NoiseSource
        One of each party.
    n_threads : int
        Does not change the result.
    """
    plan = spec.round(round_name)
    values = _values(spec, plan, records, public, sources, n_threads)
    by_records = spec.params["weighting"] == "records"
    for own, n, source in zip(values, records.sizes, sources, strict=True):
        steps = plan.codec.encode(np.ascontiguousarray(own).ravel())
        if plan.sigma_steps:
            drawn = source.discrete_gaussian(steps.size, plan.sigma_steps, n_threads)
            steps = plan.codec.add_noise(steps, drawn)
        vector = np.empty(plan.length, dtype=np.int64)
        vector[:-2], vector[-2], vector[-1] = steps, n if by_records else 0, 1
        yield vector


def _values(
    spec: FederatedSpec,
    plan: RoundPlan,
    records: Records,
    public: Array | None,
    sources: Sequence[_core.NoiseSource],
    n_threads: int,
) -> Iterator[Array]:
    """What each party contributes before it is encoded. Private, unless it has noise already."""
    if plan.name == "gram":
        for rows in records.of_each():
            yield packed(moments(spec, rows, n_threads) * spec.params["data_norm"] ** 2, ROOT_TWO)
    elif plan.name == "components":
        for rows, source in zip(records.of_each(), sources, strict=True):
            yield _own_components(spec, rows, source, n_threads)
    else:
        if public is not None:
            records = records.mapped(projection(spec, public).apply, n_threads)
        yield from _models(spec, records, sources, n_threads)


def _models(
    spec: FederatedSpec,
    records: Records,
    sources: Sequence[_core.NoiseSource],
    n_threads: int,
) -> Iterator[Array]:
    """Every party's model, times its weight."""
    seed = spec.public_seed("model")
    training = spec.training
    if training is not None:
        fitted = fit_parties(training, records.X, records.codes, records.offsets, seed, n_threads)
        for weights, n in zip(fitted, records.sizes, strict=True):
            if not np.isfinite(weights).all():
                raise PartyRefusedError("training: the model is not finite")
            yield training.projected(weights) * float(training.weight(n))
        return
    assert isinstance(spec.plan, DpdrPlan)
    objective = spec.plan.objective
    assert objective is not None
    for i, source in enumerate(sources):
        own = records.rows(i)
        released = fit_objective(
            objective, records.X[own], records.codes[own], source, seed, n_threads
        )
        norm = float(np.linalg.norm(released))
        released *= objective.radius / max(norm, objective.radius)
        yield released * float(objective.weight(records.sizes[i]))


def moments(spec: FederatedSpec, rows: NDArray[np.float64], n_threads: int) -> Array:
    """Sum of the outer products of clipped rows over the bound of their norm; private."""
    public = PublicMap(unit=False, data_norm=spec.params["data_norm"])
    codes = np.zeros(rows.shape[0], dtype=np.int64)
    return np.asarray(public.records(rows, codes, 2, n_threads).gram(n_threads))


def _own_components(
    spec: FederatedSpec, rows: Array, source: _core.NoiseSource, n_threads: int
) -> Array:
    """Components of a party's own noisy matrix, or their projector, times its weight."""
    assert isinstance(spec.plan, DpdrPlan)
    mechanism = spec.plan.components
    assert mechanism is not None
    k = spec.params["n_components"]
    vectors = mechanism.release(moments(spec, rows, n_threads), k, source, n_threads).vectors
    weight = float(rows.shape[0] if spec.params["weighting"] == "records" else 1)
    if spec.params["aggregation"] == "projectors":
        return packed(vectors.T @ vectors, 1.0) * weight
    if spec.params["align"]:
        signs = np.where(vectors.sum(axis=1) < 0.0, -1.0, 1.0)
    else:
        # Without a rule a solver's signs are arbitrary.
        signs = 2.0 * np.random.default_rng(source.public_seed()).integers(0, 2, k) - 1.0
    return np.asarray(vectors * (weight * signs)[:, None])


def projection(spec: FederatedSpec, components: Array) -> Projection:
    """The map of rows onto public components."""
    k, d = components.shape
    return Projection(components, np.ones(k), np.zeros(d), spec.params["data_norm"])


def packed(matrix: Array, factor: float) -> Array:
    """Diagonal of a symmetric matrix, then what is above it, times ``factor``."""
    above = np.triu_indices(matrix.shape[0], 1)
    return np.concatenate([np.diagonal(matrix), factor * matrix[above]])


def matrix_of(numbers: Array, n_features: int, factor: float) -> Array:
    """The symmetric matrix of which ``packed`` made these numbers."""
    matrix = np.zeros((n_features, n_features))
    above = np.triu_indices(n_features, 1)
    matrix[above] = numbers[n_features:] / factor
    matrix += matrix.T
    matrix[np.diag_indices(n_features)] = numbers[:n_features]
    return matrix
