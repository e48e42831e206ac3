"""Blind averaging: what parties contribute, and what comes out of the sum."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from dpsvm_fast import OutputPerturbationSVC, _core
from dpsvm_fast.federated import FederatedSpec, SumResult, finalize, local_update, simulate
from dpsvm_fast.federated.local import checked_records, contributions
from dpsvm_fast.federated.plans import LocalTraining
from dpsvm_fast.verification import verify
from oracles.parties import NoNoise, Party, digits_of, helmet

SIZES = (30, 5, 60, 20)
DIGITS: dict[str, Any] = {
    "n_features": 64,
    "classes": range(10),
    "max_records": 60,
    "expected_records": 30,
    "epsilon": 8.0,
    "honest_fraction": 1.0,
}
LOCALS: dict[str, dict[str, Any]] = {
    "svm_sgd": {"local": "svm_sgd"},
    "softmax": {"local": "softmax_slp_sgd"},
    "exact": {"local": "exact"},
    "crammer_singer": {"local": "exact", "loss": "crammer_singer"},
    "per class": {"local": "svm_sgd", "projection": "per_class", "radius": 0.5},
}


def sums(spec: FederatedSpec, parties: list[Any]) -> SumResult:
    """The sum without noise."""
    records = [checked_records(X, y, spec, *ids) for X, y, *ids in parties]
    sources = cast("list[_core.NoiseSource]", [NoNoise() for _ in parties])
    vectors = list(contributions(spec, "model", records, None, sources, 1))
    return SumResult(np.sum(vectors, axis=0), len(vectors))


def weights_of(spec: FederatedSpec, party: Party) -> Any:
    """One party's contribution without noise, over its number of records."""
    total = sums(spec, [party]).total
    return total[:-2] * spec.rounds[0].codec.step / len(party[1])


@pytest.mark.parametrize("local", LOCALS)
def test_the_model_is_the_average_by_records(local: str) -> None:
    spec = helmet(**DIGITS, **LOCALS[local])
    parties = digits_of(SIZES)
    fitted = finalize({"model": sums(spec, parties)}, spec)
    each = np.array([weights_of(spec, party) for party in parties])
    mean = (np.array(SIZES)[:, None] * each).sum(axis=0) / sum(SIZES)
    plain = each.mean(axis=0)
    steps = spec.rounds[0].codec.step
    coef = mean.reshape(10, 65)[:, :64]
    assert np.abs(fitted.coef_ - coef).max() <= steps
    # Negative control: sizes forgotten.
    assert np.abs(fitted.coef_ - plain.reshape(10, 65)[:, :64]).max() > 100 * steps
    assert fitted.n_records_ == sum(SIZES)
    assert fitted.n_survivors_ == 4


def test_with_equal_weights_nobody_tells_how_many_records_there_are() -> None:
    spec = helmet(**DIGITS, weighting="users", min_records=5)
    parties = digits_of(SIZES)
    total = sums(spec, parties)
    assert total.total[-2] == 0
    fitted = finalize({"model": total}, spec)
    assert fitted.n_records_ is None
    assert "The number of rows" not in str(fitted.privacy_.caveats)


@pytest.mark.parametrize("local", LOCALS)
def test_models_stay_within_the_radius(local: str) -> None:
    spec = helmet(**(DIGITS | LOCALS[local] | {"radius": 0.05}))
    for party in digits_of(SIZES):
        weights = weights_of(spec, party).reshape(-1, spec.training.shape[1])
        slack = spec.rounds[0].codec.step * weights.size
        if spec.projection == "joint":
            assert np.linalg.norm(weights) <= 0.05 + slack
        else:
            assert (np.linalg.norm(weights, axis=1) <= 0.05 + slack).all()


def test_one_party_fits_what_one_owner_fits() -> None:
    """The local objective is that of output perturbation, with C = 1 / (n Lambda)."""
    spec = helmet(**(DIGITS | {"n_users": 1, "local": "exact", "regularization": 0.02}))
    ((X, y),) = digits_of((60,))
    estimator = OutputPerturbationSVC(
        1e4,
        1e-6,
        loss="softmax_margin",
        adjacency="replace_one",
        classes=range(10),
        C=1.0 / (60 * 0.02),
        tol=1e-4,
    ).fit(X, y)
    weights = weights_of(spec, (X, y)).reshape(10, 65)
    # At such an epsilon the noise has a deviation of 0.017; six of them are passed once in 1e6.
    assert np.abs(weights[:, :64] - estimator.coef_).max() < 0.11
    # Negative control: the objective of half as many records.
    half = helmet(**(DIGITS | {"n_users": 1, "local": "exact", "regularization": 0.04}))
    others = weights_of(half, (X, y)).reshape(10, 65)
    assert np.abs(others[:, :64] - estimator.coef_).max() > 0.15


@pytest.mark.parametrize("local", ["svm_sgd", "softmax", "exact"])
def test_simulated_parties_learn(local: str) -> None:
    parties = digits_of((50,) * 30)
    spec = helmet(**(DIGITS | LOCALS[local] | {"n_users": 30, "min_records": 50, "epsilon": 4.0}))
    ((X, y),) = digits_of((1797,))
    accuracies = [simulate(spec, parties).score(X, y) for _ in range(3)]
    # 0.55 to 0.75; one in ten guesses right.
    assert np.mean(accuracies) > 0.4


@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
@pytest.mark.parametrize("local", LOCALS)
def test_a_party_sends_what_its_simulation_says(local: str) -> None:
    """One by one and all together: the same vectors to the last bit."""
    spec = helmet(**DIGITS, **LOCALS[local])
    parties = digits_of(SIZES)
    root = _core.NoiseSource(11)
    sources = [_core.NoiseSource(root.public_seed()) for _ in SIZES]
    vectors = [
        local_update(X, y, spec, "model", source=source).vector
        for (X, y), source in zip(parties, sources, strict=True)
    ]
    one = finalize({"model": SumResult(np.sum(vectors, axis=0), 4)}, spec)
    all_together = simulate(spec, parties, random_state=11, n_threads=2)
    assert (one.coef_ == all_together.coef_).all()
    assert (one.intercept_ == all_together.intercept_).all()
    assert not all_together.privacy_.private
    assert one.privacy_.private


def test_single_precision_and_sparse_rows_are_welcome() -> None:
    from scipy import sparse

    spec = helmet(**DIGITS)
    ((X, y),) = digits_of((30,))
    found = [
        local_update(rows, y, spec, "model", source=_core.NoiseSource(3)).vector
        for rows in (X, np.asfortranarray(X), sparse.csr_matrix(X), X.tolist())
    ]
    assert all((vector == found[0]).all() for vector in found)
    single = local_update(
        X.astype(np.float32), y, spec, "model", source=_core.NoiseSource(3)
    ).vector
    assert single.shape == found[0].shape


@pytest.mark.parametrize("unit", ["row", "person", "party"])
@pytest.mark.parametrize("weighting", ["records", "users"])
def test_statements_verify(unit: str, weighting: str) -> None:
    settings = {"unit": unit, "weighting": weighting, "max_dropout": 0.25, "min_records": 2}
    spec = helmet(**(DIGITS | settings))
    parties: list[Any] = digits_of(SIZES)
    if unit == "person":
        parties = [(X, y, np.arange(len(y)) // 2) for X, y in parties]
    model = simulate(spec, parties, dropouts=[2])
    assert verify(model.privacy_)
    assert model.privacy_.unit == unit
    assert model.privacy_.trust == "trusted_curator"
    assert model.privacy_.events == spec.events("trusted_curator")
    secure = finalize({"model": sums(spec, parties)}, spec).privacy_
    assert verify(secure)
    assert secure.trust == "secure_sum"
    assert secure.threshold == spec.threshold
    assert secure.events == spec.events()


def test_a_smaller_radius_needs_less_noise_once_it_binds() -> None:
    def moved(radius: float, **settings: Any) -> float:
        spec = helmet(**(DIGITS | {"radius": radius, "local": "exact"} | settings))
        noise = spec.rounds[0].noise
        return noise.distance

    assert moved(1e-3) == pytest.approx(2e-3 * 60)
    assert moved(1e-3, unit="party", weighting="users") == pytest.approx(2e-3)
    assert moved(1e3) == pytest.approx(moved(2e3), rel=1e-6)
    assert moved(2e3, unit="party") == pytest.approx(2 * moved(1e3, unit="party"))


def test_every_call_draws_fresh_noise_and_is_paid() -> None:
    from dpsvm_fast.ledger import PrivacyLedger

    spec = helmet(**DIGITS)
    ((X, y),) = digits_of((30,))
    ledger = PrivacyLedger(80.0, 1e-5, "replace_one")
    first, second = (local_update(X, y, spec, "model", ledger=ledger).vector for _ in range(2))
    assert (first != second).any()
    assert len(ledger.history) == 2 * len(spec.events())


def test_training_is_the_same_object_for_every_party() -> None:
    training = helmet(**DIGITS).training
    assert isinstance(training, LocalTraining)
    for n in (5, 30, 60):
        # What certifies a contribution does not depend on its size.
        assert training.own_radius(n) * n == pytest.approx(training.own_radius(1))
        assert training.sum_regularization(n) >= n * training.spec.regularization
        assert training.own_C(n) * training.sum_regularization(n) <= 1.0
