"""What neighbours move a sum over parties, against what the plan says they may move it.

The noise is left out, everything else is what parties do: fit, project, weight, round. Neighbours
are constructed to move far: opposite rows, other labels, whole parties, persons of many rows.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import PrivacyLedger, _core
from dpsvm_fast.certificates import ObjectiveEvent
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError, PartyRefusedError
from dpsvm_fast.federated import FederatedSpec, local_update, simulate
from dpsvm_fast.federated.local import checked_records, contributions
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from dpsvm_fast.verification import verify
from oracles.parties import NoNoise, helmet, reduction

# Rows, labels and, where whole persons are protected, whose each row is.
Party = tuple[Any, ...]

SIZES = (1, 5, 20)
LOCALS: dict[str, dict[str, Any]] = {
    "svm_sgd": {"local": "svm_sgd", "n_epochs": 5, "batch_size": 4, "tol": 1e-2},
    "softmax": {"local": "softmax_slp_sgd", "n_epochs": 5, "batch_size": 4, "tol": 1e-2},
    "exact": {"local": "exact"},
    "crammer_singer": {"local": "exact", "loss": "crammer_singer"},
    "huber": {"local": "exact", "loss": "huber"},
}


STUDY: dict[str, Any] = {
    "n_users": len(SIZES),
    "n_features": 4,
    "classes": [0, 1],
    "epsilon": 2.0,
    "delta": 1e-6,
    "max_records": max(SIZES),
    "honest_fraction": 1.0,
}


def plan_of(local: str, unit: str, weighting: str, **settings: Any) -> FederatedSpec:
    given = STUDY | {"unit": unit, "weighting": weighting}
    return FederatedSpec.dp_helmet(**(given | LOCALS[local] | settings))


def summed(spec: FederatedSpec, parties: list[Party], name: str) -> NDArray[np.float64]:
    """The sum in steps of the grid, without noise."""
    records = [checked_records(X, y, spec, *ids) for X, y, *ids in parties]
    sources = cast("list[_core.NoiseSource]", [NoNoise() for _ in parties])
    vectors = list(contributions(spec, name, records, None, sources, 1))
    return np.asarray(np.sum(vectors, axis=0)[:-2], dtype=np.float64)


def moved(spec: FederatedSpec, one: list[Party], other: list[Party], name: str) -> float:
    """Distance of two sums over what the plan allows."""
    noise = spec.round(name).noise
    steps = np.linalg.norm(summed(spec, one, name) - summed(spec, other, name))
    return float(steps) * noise.step / noise.total


def alike() -> list[Party]:
    """Parties all of whose rows are the same."""
    return [(np.tile([[1.0, 0.0, 0.0, 0.0]], (n, 1)), np.zeros(n, dtype=np.int64)) for n in SIZES]


def at_random(seed: int) -> list[Party]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((n, 4)), rng.integers(0, 2, n)) for n in SIZES]


def opposite(parties: list[Party], places: list[tuple[int, int]]) -> list[Party]:
    """Some rows, by party and number, turned round and made longer than allowed."""
    changed = [(X.copy(), y.copy()) for X, y in parties]
    for party, row in places:
        changed[party][0][row] *= -5.0
    return changed


def farthest(spec: FederatedSpec, unit: str, name: str = "model") -> float:
    found = []
    for parties in (alike(), at_random(1), at_random(2)):
        for places in changes(unit):
            found.append(moved(spec, parties, opposite(parties, places), name))
    return max(found)


def changes(unit: str) -> list[list[tuple[int, int]]]:
    """Places of the rows of a unit."""
    if unit == "row":
        return [[(party, 0)] for party in range(len(SIZES))]
    return [[(party, row) for row in range(n)] for party, n in enumerate(SIZES)]


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize("unit", ["row", "party"])
@pytest.mark.parametrize("weighting", ["records", "users"])
@pytest.mark.parametrize("local", LOCALS)
def test_neighbours_stay_within_the_plan(local: str, unit: str, weighting: str) -> None:
    for regularization in (0.05, 2.0):
        spec = plan_of(local, unit, weighting, regularization=regularization)
        assert farthest(spec, unit) <= 1.0


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize(
    ("unit", "weighting"),
    [
        ("row", "records"),
        ("party", "records"),
        ("row", "users"),
        ("party", "users"),
    ],
)
def test_the_plan_is_nearly_reached(unit: str, weighting: str) -> None:
    """So noise for nine tenths of it would be too little."""
    spec = plan_of("svm_sgd", unit, weighting, regularization=2.0, intercept_scaling=0.0)
    assert farthest(spec, unit) > 0.9


@pytest.mark.proof("federated", "The library")
def test_more_than_a_record_moves_further_than_a_record_may() -> None:
    """Control: the plan for one record is exceeded by a party."""
    spec = plan_of("svm_sgd", "row", "records", regularization=2.0)
    assert farthest(spec, "party") > 1.5


def owned(seed: int, place: int, m: int, *, turned: bool) -> list[Party]:
    """As many persons as SIZES says; the first of one party has m rows that agree."""
    found: list[Party] = []
    for party, (X, y) in enumerate(at_random(seed) if seed else alike()):
        ids, own = np.arange(len(y)), np.tile([[1.0, 0.0, 0.0, 0.0]], (m, 1))
        if party == place:
            X = np.concatenate([X[1:], -5.0 * own if turned else own])
            y, ids = np.concatenate([y[1:], np.zeros(m, y.dtype)]), np.append(ids[1:], [0] * m)
        found.append((X, y, ids))
    return found


# Numbers of rows of the person before and after.
EXCHANGES = ((1, 1), (1, 50), (50, 50), (7, 3))


@pytest.mark.proof("federated", "What a unit moves")
@pytest.mark.parametrize("weighting", ["records", "users"])
@pytest.mark.parametrize("local", LOCALS)
def test_whole_persons_move_a_sum_as_a_row_may(local: str, weighting: str) -> None:
    """Whatever their number of rows, before and after; nearly reached, and only by their means."""
    settings: dict[str, Any] = {"regularization": 2.0, "intercept_scaling": 0.0}
    spec = plan_of(local, "person", weighting, **settings)
    by_rows = plan_of(local, "row", weighting, **settings, max_records=100)
    found, control = [], []
    for seed in range(3):
        for place in range(len(SIZES)):
            for sizes in EXCHANGES:
                pair = [owned(seed, place, m, turned=bool(i)) for i, m in enumerate(sizes)]
                found.append(moved(spec, *pair, "model"))
                if sizes == (50, 50):
                    control.append(moved(by_rows, *([p[:2] for p in one] for one in pair), "model"))
    assert max(found) <= 1.0
    assert max(found) > (0.9 if spec.loss == "huber" else 0.3)
    # The same rows, each by itself.
    assert weighting == "users" or max(control) > 1.5


def visits(seed: int, unlike: bool) -> list[Party]:
    """Persons with 1 to 50 rows; of the last party's first person, others in an unlike world."""
    rng = np.random.default_rng(seed)
    found: list[Party] = []
    for n in SIZES:
        ids = np.repeat(np.arange(n), rng.integers(1, 51, n))
        X, y = 3.0 * rng.standard_normal((ids.size, 4)), rng.integers(0, 2, ids.size)
        found.append((X, y, ids))
    X, y, ids = found[-1]
    own = np.random.default_rng([seed, unlike])
    m = int(own.integers(1, 51))
    found[-1] = (
        np.concatenate([X[ids > 0], own.standard_normal((m, 4)) * own.choice([0.1, 5.0], 4)]),
        np.concatenate([y[ids > 0], own.integers(0, 2, m)]),
        np.append(ids[ids > 0], [0] * m),
    )
    return found


@pytest.mark.proof("federated", "What a unit moves")
@pytest.mark.parametrize("local", LOCALS)
def test_persons_of_any_rows_stay_within_the_plan(local: str) -> None:
    spec = plan_of(local, "person", "records", regularization=2.0)
    for seed in range(10):
        assert moved(spec, visits(seed, False), visits(seed, True), "model") <= 1.0


@pytest.mark.parametrize("local", LOCALS)
def test_equal_rows_of_a_person_count_as_one_row(local: str) -> None:
    """Batches of SGD are of persons, and so are sizes of parties."""
    spec = plan_of(local, "person", "records", regularization=0.05)
    single: list[Party] = [(X, y, np.arange(len(y))) for X, y in at_random(3)]
    several: list[Party] = [tuple(np.repeat(a, 3, axis=0) for a in party) for party in single]
    noise, training = spec.rounds[0].noise, spec.training
    one, other = summed(spec, single, "model"), summed(spec, several, "model")
    allowed = 1.0 if training.by_sgd else 2.0 * training.solver_radius / noise.step
    assert np.linalg.norm(one - other) <= len(SIZES) * (allowed + training.size)
    # All that is allowed is little beside the sums.
    assert np.linalg.norm(one) > 20.0 * allowed


@pytest.mark.proof("federated", "What a unit moves")
@pytest.mark.parametrize("local", ["svm_sgd", "huber"])
def test_a_person_at_two_parties_counts_twice(local: str) -> None:
    """And moves the sum by more than the plan for one party: ``for_group`` is needed."""
    settings: dict[str, Any] = {"regularization": 2.0, "intercept_scaling": 0.0}
    spec = plan_of(local, "person", "records", **settings)
    pair = []
    for turned in (False, True):
        one, other = (owned(0, place, 20, turned=turned) for place in (1, 2))
        pair.append([one[0], one[1], other[2]])
    assert 1.5 < moved(spec, *pair, "model") <= 2.0


def test_persons_are_needed_exactly_where_they_are_protected() -> None:
    X, y, ids = owned(1, 2, 5, turned=False)[2]
    spec = plan_of("exact", "person", "records", max_records=100)
    assert checked_records(X, y, spec, ids).size == 20
    for others in (ids[1:], np.where(ids == 1, np.nan, ids), [(i,) for i in ids], ids + 0.5):
        with pytest.raises(PartyRefusedError, match="groups: expected the id of a person"):
            checked_records(X, y, spec, others)
    for given, unit in ((None, "person"), (ids[:20], "row"), (ids[:20], "party")):
        with pytest.raises(InvalidParameterError) as told:
            checked_records(X[:20], y[:20], plan_of("exact", unit, "records"), given)
        assert told.value.parameter == "groups"


@pytest.mark.parametrize("how", ["missing", "short", "nan", "few"])
@pytest.mark.parametrize("kind", ["helmet", "reduction"])
def test_ids_that_are_none_spend_nothing(kind: str, how: str) -> None:
    settings: dict[str, Any] = {"n_features": 4, "n_users": 4, "unit": "person", "min_records": 2}
    spec = {"helmet": helmet, "reduction": reduction}[kind](**settings)
    X, y, ids = owned(1, 2, 5, turned=False)[2]
    good, bad = (X, y, ids), (X, y, *([] if how == "missing" else [ids]))
    if how == "short":
        bad = (X, y, ids[1:])
    elif how == "nan":
        bad = (X, y, np.where(ids == 1, np.nan, ids))
    elif how == "few":
        bad = (X, y, np.zeros_like(ids))
    ledger = PrivacyLedger(1.0, 1e-6, "replace_one", unit="person")
    given: dict[str, Any] = {"groups": bad[2]} if len(bad) > 2 else {}
    for refused in (
        lambda: simulate(spec, [good, good, bad, good], ledger=ledger),
        lambda: local_update(X, y, spec, spec.rounds[0].name, ledger=ledger, **given),
    ):
        with pytest.raises((InvalidParameterError, PartyRefusedError), match=r"groups|records"):
            refused()
    assert ledger.history == ()
    # A ledger of rows, and one with too little.
    for other in (
        PrivacyLedger(1.0, 1e-6, "replace_one"),
        PrivacyLedger(0.5, 1e-6, "replace_one", unit="person"),
    ):
        with pytest.raises((InvalidParameterError, BudgetExceededError)):
            simulate(spec, [good] * 4, ledger=other)
        assert other.history == ()


@pytest.mark.parametrize("local", ["svm_sgd", "exact"])
def test_a_simulation_of_whole_persons_is_verified_and_charged(local: str) -> None:
    settings: dict[str, Any] = {"n_users": 20, "min_records": 1, "max_records": 40}
    spec = plan_of(local, "person", "records", **settings)
    parties = [owned(1, 2, 50, turned=False)[2] for _ in range(20)]
    ledger = PrivacyLedger(2.0, 1e-6, "replace_one", unit="person")
    statement = simulate(spec, parties, ledger=ledger).privacy_
    assert statement.unit == "person"
    assert verify(statement).ok
    assert "the number of persons of every party" in statement.assumed_public
    text = " ".join(str(statement).split())
    assert "its number of persons" in text
    assert "all rows of one person at one party" in text
    assert f"at 2 parties is protected at epsilon = {statement.for_group(2)[0]:.3g}" in text
    assert FederatedSpec.from_json(spec.to_json()) == spec
    # The noise is that of a row; a tampered half of it is found.
    own, row = (
        s.round("model").noise for s in (spec, plan_of(local, "row", "records", **settings))
    )
    assert (own.distance, own.step, own.sigma_steps) == (row.distance, row.step, row.sigma_steps)
    part = statement.rounds[0]
    halved = dataclasses.replace(part, exact=part.exact / 2, total=part.total / 2)
    assert not verify(dataclasses.replace(statement, rounds=(halved,))).ok


@pytest.mark.proof("federated", "The library")
def test_with_equal_weights_the_smallest_party_counts() -> None:
    """Control: a plan made for parties of 20 is exceeded by a party of one, which it refuses."""
    small = plan_of("svm_sgd", "row", "users", regularization=2.0)
    large = plan_of("svm_sgd", "row", "users", regularization=2.0, min_records=20)
    assert small.rounds[0].noise is not None
    assert large.rounds[0].noise is not None
    assert small.rounds[0].noise.distance > 15 * large.rounds[0].noise.distance
    with pytest.raises(ValueError, match="min_records"):
        summed(large, alike(), "model")


def matrices(unit: str, **settings: Any) -> FederatedSpec:
    given = STUDY | {"unit": unit, "n_components": 2, "local": "output"}
    return FederatedSpec.fed_dpdr(**(given | settings))


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize(("unit", "rows"), [("row", 1), ("party", 20)])
def test_second_moments_stay_within_the_plan_and_reach_it(unit: str, rows: int) -> None:
    first = alike()
    second = [(X.copy(), y.copy()) for X, y in first]
    second[2][0][:rows] = [0.0, 3.0, 0.0, 0.0]
    assert 0.9 < moved(matrices(unit), first, second, "gram") <= 1.0
    if rows > 1:
        assert moved(matrices("row"), first, second, "gram") > 1.5


@pytest.mark.proof("federated", "Two rounds (FedDPDR)")
@pytest.mark.parametrize("m", [1, 2, 50])
def test_second_moments_of_a_person_are_those_of_one_row(m: int) -> None:
    spec = matrices("person")
    first, second = owned(0, 2, m, turned=False), owned(0, 2, m, turned=False)
    X, _, ids = second[2]
    X[ids == 0] = [0.0, 3.0, 0.0, 0.0]
    assert 0.9 < moved(spec, first, second, "gram") <= 1.0
    # The same rows, each by itself.
    by_rows = [[party[:2] for party in one] for one in (first, second)]
    assert m == 1 or moved(matrices("row", max_records=100), *by_rows, "gram") > 1.5


@pytest.mark.proof("federated", "Two rounds (FedDPDR)")
def test_second_moments_of_persons_of_any_rows_stay_within_the_plan() -> None:
    for seed in range(20):
        pair = (visits(seed, unlike) for unlike in (False, True))
        assert moved(matrices("person"), *pair, "gram") <= 1.0


@pytest.mark.proof("federated", "Two rounds (FedDPDR)")
@pytest.mark.parametrize("data_norm", [1.0, 5.0])
def test_a_party_s_own_matrix_is_moved_by_a_person_as_by_a_row(data_norm: float) -> None:
    """What a party adds its own noise to, before it takes components."""
    spec = matrices("person", aggregation="projectors", data_norm=data_norm)
    found, control = [], []
    for seed in range(20):
        pair = []
        for unlike in (False, True):
            X, y, ids = visits(seed, unlike)[2]
            pair.append(checked_records(X, y, spec, ids))
        sums = [records.moments(data_norm, 1) for records in pair]
        found.append(np.linalg.norm(sums[0] - sums[1]))
        rows = [dataclasses.replace(records, owners=None).moments(data_norm, 1) for records in pair]
        control.append(np.linalg.norm(rows[0] - rows[1]))
    assert 0.5 < max(found) <= np.sqrt(2.0) + 8 * (2.0**-40 + 2.0**-53)
    assert max(control) > 2.0


@pytest.mark.proof("federated", "Two rounds (FedDPDR)")
@pytest.mark.parametrize("classes", [2, 3])
def test_a_person_moves_the_minimiser_of_a_noisy_objective_as_a_row_may(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the noise inside, which hides this; the law of a person is that of the event."""
    settings: dict[str, Any] = {"max_records": 100, "n_components": 4, "classes": range(classes)}
    spec = matrices("person", local="objective", regularization=2.0, min_records=1, **settings)
    objective, components = spec.objective, np.eye(4)
    mechanism = objective.mechanism
    assert mechanism.unit == "person"
    (own,) = (event for event in spec.events() if isinstance(event, ObjectiveEvent))
    assert own.kappa is None
    assert own.jacobian
    monkeypatch.setattr(
        ObjectivePerturbation, "draw_linear", lambda *_, **__: np.zeros(mechanism.shape)
    )
    monkeypatch.setattr(ObjectivePerturbation, "release", lambda _, weights, *__, **___: weights)

    def distance(pair: list[Party], *, persons: bool) -> float:
        models = []
        for X, y, ids in pair:
            records = checked_records(X, y, spec, ids)
            if not persons:
                records = dataclasses.replace(records, owners=None)
            sources = [_core.NoiseSource(1)]
            (vector,) = contributions(spec, "model", [records], components, sources, 1)
            models.append(vector[:-2] / vector[-2] * spec.round("model").codec.step)
        # All parties have one lambda a record, so a small party shows the most.
        n = checked_records(*pair[0][:2], spec, pair[0][2]).size
        allowed = 2.0 * mechanism.loss.lipschitz * mechanism.row_norm
        return (
            float(np.linalg.norm(models[0] - models[1])) * objective.sum_regularization(n) / allowed
        )

    found, control = [], []
    for m in (1, 5, 50):
        pair = [owned(0, 1, m, turned=turned)[1] for turned in (False, True)]
        found.append(distance(pair, persons=True))
        control.append(distance(pair, persons=False))
    assert 0.1 < max(found) <= 1.0 + 1e-6
    assert max(control) > 1.5 * max(found)
