"""Components in a first round, models in their space in a second."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated import (
    FederatedLinearSVC,
    FederatedSpec,
    InconsistentSumError,
    PartyRefusedError,
    SumResult,
    local_update,
    public_state,
    simulate,
)
from dpsvm_fast.verification import verify
from oracles.parties import NoNoise, Party, digits_of, reduction

SIZES = (20, 40, 100, 200)
DIGITS: dict[str, Any] = {
    "n_features": 64,
    "classes": range(10),
    "max_records": 200,
    "min_records": 10,
    "expected_records": 90,
    "n_components": 12,
    "epsilon": 8.0,
    "honest_fraction": 1.0,
    "local": "output",
}


def without_noise(
    spec: FederatedSpec, parties: list[Party], patch: pytest.MonkeyPatch
) -> FederatedLinearSVC:
    """A simulation whose discrete noise is zero."""
    # The package's function hides its module.
    module = sys.modules["dpsvm_fast.federated.classifier"]
    patch.setattr(module, "party_sources", lambda n, seed: [NoNoise() for _ in range(n)])
    return simulate(spec, parties)


def pooled_components(parties: list[Party], k: int) -> NDArray[np.float64]:
    rows = np.concatenate([X for X, _ in parties])
    vectors = np.linalg.eigh(rows.T @ rows)[1]
    return np.asarray(vectors[:, ::-1][:, :k].T)


def projector(components: NDArray[np.float64]) -> NDArray[np.float64]:
    return components.T @ components


def test_the_first_round_is_that_of_the_pooled_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    parties = digits_of(SIZES)
    spec = reduction(**DIGITS)
    model = without_noise(spec, parties, monkeypatch)
    pooled = pooled_components(parties, 12)
    assert np.abs(projector(model.components_) - projector(pooled)).max() < 1e-4
    # Negative control: components of the largest party alone.
    alone = pooled_components(parties[-1:], 12)
    assert np.abs(projector(model.components_) - projector(alone)).max() > 1e-2


def test_the_second_round_is_that_of_projected_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The averaged model is what one computes by hand from all rows and the components."""
    parties = digits_of(SIZES)
    spec = reduction(**DIGITS, regularization=0.01)
    model = without_noise(spec, parties, monkeypatch)
    V = model.components_
    mean = np.zeros((10, 13))
    for X, y in parties:
        weights, _ = _core.solve_smooth(
            np.ascontiguousarray(X @ V.T),
            y,
            loss="softmax_margin",
            n_scores=10,
            smoothing=0.4,
            margin=1.0,
            regularization=0.01 * len(y),
            linear=None,
            data_norm=1.0,
            intercept_scaling=0.2,
            gradient_tol=1e-6,
            max_iter=None,
            shuffle_seed=1,
            n_threads=1,
            low_memory=False,
        )
        assert weights is not None
        mean += weights * len(y)
    mean /= sum(SIZES)
    # Within the tolerance of the solvers, relative to what a record moves.
    assert np.abs(model.coef_ - mean[:, :12] @ V).max() < 2e-3
    assert np.abs(model.intercept_ - 0.2 * mean[:, 12]).max() < 2e-3
    assert model.score(*digits_of((1797,))[0]) > 0.8


@pytest.mark.parametrize("aggregation", ["gram", "projectors", "eigenvectors"])
@pytest.mark.parametrize("local", ["output", "objective"])
def test_every_variant_runs_and_verifies(aggregation: str, local: str) -> None:
    spec = reduction(**(DIGITS | {"classes": [0, 1], "local": local}), aggregation=aggregation)
    parties = [(X, y % 2) for X, y in digits_of(SIZES)]
    model = simulate(spec, parties, dropouts=())
    assert model.components_.shape == (12, 64)
    assert model.coef_.shape == (1, 64)
    assert verify(model.privacy_)
    charged = sorted(map(repr, spec.events("trusted_curator")))
    assert sorted(map(repr, model.privacy_.events)) == charged
    assert len(model.privacy_.rounds) == (aggregation == "gram") + (local == "output")


def stretched(n: int, seed: int) -> Party:
    """Rows with clear components, whose entries add up to clear numbers."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(np.ones((6, 6)) + 2.0 * np.eye(6) + np.diag([0.5] * 5, 1))[0]
    rows = rng.normal(size=(n, 6)) * [0.3, 0.15, 0.08, 0.01, 0.01, 0.01] @ basis.T
    return rows, rng.integers(0, 2, n)


def test_aggregations_agree_where_there_is_next_to_no_noise() -> None:
    parties = [stretched(400, seed) for seed in range(4)]
    settings: dict[str, Any] = {"epsilon": 500.0, "delta": 0.5, "max_records": 400}
    settings |= {"n_components": 3, "honest_fraction": 1.0}
    pooled = projector(pooled_components(parties, 3))
    missed, shortest = {}, {}
    for aggregation in ("projectors", "eigenvectors"):
        spec = reduction(**settings, aggregation=aggregation)
        assert spec.rounds[0].noise is None
        sources = [_core.NoiseSource(seed) for seed in range(4)]
        updates = [
            local_update(X, y, spec, "components", source=source).vector
            for (X, y), source in zip(parties, sources, strict=True)
        ]
        V = public_state(spec, {"components": SumResult(np.sum(updates, axis=0), 4)})
        assert V is not None
        shortest[aggregation] = np.linalg.norm(V, axis=1).min()
        missed[aggregation] = np.abs(projector(V) - pooled).max()
    assert missed["projectors"] < 0.05
    assert missed["eigenvectors"] < 0.1
    # Without the rule for signs, with one of four turned, half of a vector would be left.
    assert shortest["eigenvectors"] > 0.95


def test_uneven_parties_count_by_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    parties = digits_of((10, 200, 10, 10))
    by_records = without_noise(reduction(**DIGITS), parties, monkeypatch)
    alike = without_noise(reduction(**DIGITS, weighting="users"), parties, monkeypatch)
    test = digits_of((1797,))[0]
    assert by_records.score(*test) > alike.score(*test) + 0.02


def test_objectives_of_all_sizes_have_the_noise_of_the_smallest() -> None:
    spec = reduction(regularization=0.5, min_records=10)
    objective = spec.objective
    assert objective.mechanism.regularization >= 5.0
    for n in (10, 15, 20):
        assert objective.sum_regularization(n) >= max(n * 0.5, objective.mechanism.regularization)
    common = reduction().objective
    assert common.sum_regularization(1) == common.sum_regularization(20)


def test_public_numbers_are_looked_at() -> None:
    spec = reduction()
    X, y = np.eye(6), np.array([0, 1, 0, 1, 0, 1])
    V = np.eye(6)[:2]
    local_update(X, y, spec, "model", public=V)
    wrong: list[Any] = [None, V[:1], V.T, V * np.nan, V * 3.0, V.astype(np.float32), V.tolist()]
    for public in wrong:
        with pytest.raises(PartyRefusedError, match="public"):
            local_update(X, y, spec, "model", public=public)
    with pytest.raises(PartyRefusedError, match="public"):
        local_update(X, y, spec, "gram", public=V)


def test_sums_that_cannot_be_are_refused() -> None:
    spec = reduction()
    with pytest.raises(InconsistentSumError):
        public_state(spec, {"gram": SumResult(np.zeros(23, dtype=np.int64), 4)})
    assert public_state(spec, {}) is None


def test_whole_parties_need_one_common_noise() -> None:
    for unit in ("person", "party"):
        assert reduction(unit=unit, local="output").rounds[0].noise is not None
    for settings in ({}, {"local": "output", "aggregation": "projectors"}):
        assert reduction(unit="person", **settings).rounds
        with pytest.raises(InvalidParameterError) as caught:
            reduction(unit="party", **settings)
        assert caught.value.parameter == "unit"
