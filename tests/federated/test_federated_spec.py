"""What parties agree on: counts of parties, parameters, text, and that the budget suffices."""

from __future__ import annotations

import json
import math
import pickle
from fractions import Fraction
from typing import Any

import pytest

from dpsvm_fast.accounting import composed_delta
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated import FederatedSpec
from dpsvm_fast.federated.secsum import PartyCounts
from dpsvm_fast.ledger import PrivacyLedger
from oracles.parties import helmet, reduction

VARIANTS: dict[str, FederatedSpec] = {
    "helmet": helmet(),
    "softmax": helmet(local="softmax_slp_sgd", classes=["a", "b", "c"]),
    "exact": helmet(local="exact", loss="crammer_singer", classes=[3, 1, 2]),
    "persons": helmet(unit="person"),
    "exact persons": helmet(unit="person", local="exact"),
    "user": helmet(unit="party"),
    "large epsilon": helmet(epsilon=20.0),
    "small epsilon": helmet(epsilon=0.01),
    "gram, output": reduction(local="output"),
    "gram, output, user": reduction(local="output", unit="party"),
    "gram, objective": reduction(),
    "gram, objective, persons": reduction(unit="person"),
    "projectors, objective": reduction(aggregation="projectors"),
    "eigenvectors, output": reduction(aggregation="eigenvectors", local="output"),
    "objective, own regularization": reduction(regularization=0.5, min_records=10),
}


@pytest.mark.parametrize(
    ("n_users", "honest", "dropout", "needed", "left", "threshold"),
    [
        (1, 0.5, 0.0, 1, 1, 1),
        (10, 0.9, 0.0, 10, 9, 6),
        (10, 0.9, 0.1, 9, 8, 6),
        (6, 5 / 6, 0.0, 6, 5, 4),
        (3, 1 / 3, 0.0, 3, 1, 3),
        (100, 0.07, 0.0, 100, 7, 94),
        (100, 0.5, 0.1, 90, 40, 51),
        (100, 0.5, 0.29, 71, 21, 51),
        (1000, 1.0, 0.25, 750, 750, 501),
    ],
)
def test_counts_are_those_of_the_shares_as_typed(
    n_users: int, honest: float, dropout: float, needed: int, left: int, threshold: int
) -> None:
    counts = PartyCounts(n_users=n_users, honest_fraction=honest, max_dropout=dropout)
    assert counts.survivors_needed == needed
    assert counts.honest_survivors == left
    assert counts.threshold == threshold
    assert counts.colluders < counts.threshold <= needed


def test_every_share_of_hundredths_gives_the_count_of_the_decimal_number() -> None:
    for hundredths in range(1, 101):
        for n_users in (7, 100, 1000):
            counts = PartyCounts(n_users=n_users, honest_fraction=hundredths / 100)
            exact = math.ceil(Fraction(hundredths, 100) * n_users)
            assert counts.colluders == n_users - exact


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"honest_fraction": 0.2, "max_dropout": 0.5}, "honest_fraction"),
        ({"honest_fraction": 0.9, "min_survivors": 4}, "min_survivors"),
        ({"max_dropout": 0.1, "min_survivors": 10}, "min_survivors"),
        ({"honest_fraction": 0.0}, "honest_fraction"),
        ({"max_dropout": 1.0}, "max_dropout"),
        ({"n_users": 0}, "n_users"),
        ({"n_users": 2**18 + 1}, "n_users"),
    ],
)
def test_counts_without_a_guarantee_are_refused(settings: dict[str, Any], name: str) -> None:
    given: dict[str, Any] = {"n_users": 10, "honest_fraction": 0.5}
    with pytest.raises(InvalidParameterError) as caught:
        PartyCounts(**(given | settings))
    assert caught.value.parameter == name


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_specification_survives_text_and_pickle(variant: str) -> None:
    spec = VARIANTS[variant]
    for copy in (FederatedSpec.from_json(spec.to_json()), pickle.loads(pickle.dumps(spec))):
        assert copy == spec
        assert copy.digest() == spec.digest()
        assert hash(copy) == hash(spec)
        assert copy.rounds == spec.rounds


def test_digests_differ_where_anything_does() -> None:
    settings: list[dict[str, Any]] = [
        {},
        {"study": "second"},
        {"epsilon": 1.1},
        {"classes": [0, 2]},
        {"tol": 2e-3},
        {"max_dropout": 0.25, "honest_fraction": 0.9},
    ]
    assert len({helmet(**given).digest() for given in settings}) == len(settings)


@pytest.mark.parametrize("change", ["unknown", "missing", "algorithm", "text"])
def test_text_that_is_no_specification_is_refused(change: str) -> None:
    record = json.loads(helmet().to_json())
    if change == "unknown":
        record["more"] = 1
    elif change == "missing":
        del record["epsilon"]
    elif change == "algorithm":
        record["algorithm"] = "fed_dpdr"
    text = "[" if change == "text" else json.dumps(record)
    with pytest.raises(InvalidParameterError):
        FederatedSpec.from_json(text)


def test_a_specification_cannot_be_changed() -> None:
    spec = helmet()
    with pytest.raises(AttributeError):
        spec.epsilon = 2.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1e-23}, "delta"),
        ({"epsilon": 60.0}, "epsilon: got 60.0, expected at most"),
        ({"classes": [1]}, "classes"),
        ({"n_features": 0}, "n_features"),
        ({"min_records": 21}, "min_records"),
        ({"max_records": 2**29}, "max_records"),
        ({"expected_records": 0}, "expected_records"),
        ({"data_norm": -1.0}, "data_norm"),
        ({"local": "sgd"}, "local"),
        ({"loss": "logistic"}, "loss"),
        ({"local": "exact", "smoothing": -1.0}, "smoothing"),
        ({"regularization": 0.0}, "regularization"),
        ({"radius": math.inf}, "radius"),
        ({"projection": "both"}, "projection"),
        ({"weighting": "equal"}, "weighting"),
        ({"unit": "record"}, "unit"),
        ({"tol": 2.0}, "tol"),
        ({"n_epochs": 0}, "n_epochs"),
        ({"study": "x" * 300}, "study"),
        ({"radius": 1e12, "max_records": 2**28, "epsilon": 9.0, "local": "exact"}, "radius"),
    ],
)
def test_wrong_parameters_are_named(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        helmet(**settings)


def test_persons_need_no_bound_of_their_rows() -> None:
    with pytest.raises(TypeError, match="group_size"):
        helmet(unit="person", group_size=3)
    record = json.loads(helmet().to_json()) | {"group_size": 1}
    with pytest.raises(InvalidParameterError, match="group_size"):
        FederatedSpec.from_dict(record)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"n_components": 7}, "n_components"),
        ({"aggregation": "sum"}, "aggregation"),
        ({"first_share": 1.0}, "first_share"),
        ({"unit": "party"}, "unit"),
        ({"local": "output", "aggregation": "projectors", "unit": "party"}, "unit"),
        ({"loss": "crammer_singer"}, "loss"),
        ({"n_features": 2**20}, "n_features"),
    ],
)
def test_wrong_parameters_of_a_reduction_are_named(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        reduction(**settings)
    assert caught.value.parameter == name


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_rounds_together_are_within_the_budget(variant: str) -> None:
    spec = VARIANTS[variant]
    delta = composed_delta(spec.events(), spec.epsilon)
    # And hardly below it: nothing was given away.
    assert 0.85 * spec.delta <= delta <= spec.delta
    ledger = PrivacyLedger(spec.epsilon, spec.delta, "replace_one")
    ledger.spend(spec.events())
    assert ledger.total()[0] <= spec.epsilon


def test_a_share_for_the_objective_that_is_too_large_is_refused() -> None:
    record = json.loads(reduction().to_json())
    record["objective_epsilon"] *= 1.2
    with pytest.raises(InvalidParameterError) as caught:
        FederatedSpec.from_json(json.dumps(record))
    assert caught.value.parameter == "objective_epsilon"


def test_default_regularization_follows_what_is_public() -> None:
    def found(**settings: Any) -> float:
        return float(helmet(**({"min_records": 20} | settings)).regularization)

    base = found()
    assert found(n_users=8) == pytest.approx(base / 2)
    assert found(unit="person") == base
    assert found(data_norm=2.0, n_users=4) == pytest.approx(4 * base)
    assert found(epsilon=2.0) < base
    assert found(honest_fraction=1.0) == pytest.approx(base / math.sqrt(2))
    assert found(min_records=5) == pytest.approx(2 * base)
    assert found(min_records=5, expected_records=20) == pytest.approx(base)
    # Whole parties: noise follows the radius.
    assert found(unit="party") == found(unit="party", epsilon=9.0)
    assert helmet(unit="party").weighting == "users"


def test_lists_of_rounds_are_found_by_name() -> None:
    spec = reduction()
    assert [part.name for part in spec.rounds] == ["gram", "model"]
    assert spec.round("model") is spec.rounds[1]
    assert spec.round("gram").length == 6 * 7 // 2 + 2
    with pytest.raises(InvalidParameterError) as caught:
        spec.round("components")
    assert caught.value.parameter == "round_name"
    assert spec.public_seed("gram") != spec.public_seed("model")
