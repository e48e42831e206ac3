"""Nothing but noise lets parties' records reach the outside; see oracles/taint.py.

Two worlds with other rows and labels, the same sizes. Every vector that has its noise is answered,
in the second world, with that of the first: what is seen must then be the same to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import PrivacyLedger
from dpsvm_fast.federated import FederatedSpec, local_update, simulate
from dpsvm_fast.federated.secsum import FixedPointCodec
from dpsvm_fast.mechanisms.moments import NoisyComponents
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from oracles.taint import compared

SIZES = (4, 9, 6)
SHARED: dict[str, Any] = {
    "n_users": len(SIZES),
    "n_features": 3,
    "classes": ["no", "yes"],
    "epsilon": 2.0,
    "delta": 1e-6,
    "max_records": 10,
    "honest_fraction": 1.0,
}
SPECS = {
    "helmet": FederatedSpec.dp_helmet(**SHARED, n_epochs=2),
    "exact": FederatedSpec.dp_helmet(**SHARED, local="exact"),
    "users": FederatedSpec.dp_helmet(**SHARED, unit="party"),
    "gram": FederatedSpec.fed_dpdr(**SHARED, n_components=2, local="output"),
    "projectors": FederatedSpec.fed_dpdr(
        **SHARED, n_components=2, local="output", aggregation="projectors"
    ),
    "objective": FederatedSpec.fed_dpdr(**SHARED, n_components=2),
    "persons": FederatedSpec.dp_helmet(**SHARED, n_epochs=2, unit="person"),
    "exact persons": FederatedSpec.dp_helmet(**SHARED, local="exact", unit="person"),
}


class Answers:
    """What was released in the first run, given again in all others."""

    def __init__(self) -> None:
        self.first: list[Any] = []
        self.filled = False
        self.at = 0

    def __call__(self, found: Any) -> Any:
        if not self.filled:
            self.first.append(found)
            return found
        self.at += 1
        return self.first[self.at - 1]

    def run_is_over(self) -> None:
        assert self.first
        assert not self.filled or self.at == len(self.first)
        self.filled, self.at = True, 0


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Every passage through noise."""
    told = Answers()
    noisy, release = FixedPointCodec.add_noise, NoisyComponents.release
    objective = ObjectivePerturbation.trained
    monkeypatch.setattr(FixedPointCodec, "add_noise", lambda *a: told(noisy(*a)))
    monkeypatch.setattr(NoisyComponents, "release", lambda *a: told(release(*a)))
    monkeypatch.setattr(ObjectivePerturbation, "trained", lambda *a, **k: told(objective(*a, **k)))
    return told


def parties(world: int, unit: str = "row") -> list[tuple[NDArray[Any], ...]]:
    """With as many persons as SIZES says, who have other numbers of rows in each world."""
    rng = np.random.default_rng(world)
    scale = 0.3 if world == 0 else 40.0
    made: list[tuple[NDArray[Any], ...]] = []
    for n_records in SIZES:
        ids = rng.permutation(np.repeat(np.arange(n_records), 2 + 3 * world)) + 1000 * world
        n = ids.size if unit == "person" else n_records
        labels = rng.integers(0, 2, n) if world == 0 else np.zeros(n, dtype=int)
        party = (rng.normal(size=(n, 3)) * scale, np.array(["no", "yes"])[labels])
        made.append((*party, ids) if unit == "person" else party)
    return made


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize("name", SPECS)
def test_a_simulation_shows_nothing_but_what_has_noise(name: str, answers: Answers) -> None:
    def run(data: Any, kept: list[Any]) -> None:
        kept.append(simulate(SPECS[name], data, n_threads=1))
        answers.run_is_over()

    unit = SPECS[name].unit
    assert compared(run, parties(0, unit), parties(1, unit)) == []


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize("name", SPECS)
def test_a_party_shows_nothing_but_what_has_noise(name: str, answers: Answers) -> None:
    spec = SPECS[name]
    components = np.eye(3)[:2]

    def run(data: Any, kept: list[Any]) -> None:
        ledger = PrivacyLedger(10.0, 1e-4, "replace_one", unit=spec.unit)
        for plan in spec.rounds:
            public = components if len(spec.rounds) == 2 and plan.name == "model" else None
            X, y, *ids = data[1]
            own: dict[str, Any] = {"groups": ids[0]} if ids else {}
            made = local_update(X, y, spec, plan.name, public=public, ledger=ledger, **own)
            kept.append(made.vector)
            kept.append(made)
        kept.append(ledger)
        answers.run_is_over()

    assert compared(run, parties(0, spec.unit), parties(1, spec.unit)) == []


def test_a_count_with_the_noise_is_seen(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: were a number of the labels released without noise, this file would notice."""
    from dpsvm_fast.federated import FederatedLinearSVC

    def run(data: Any, kept: list[Any]) -> None:
        model = simulate(SPECS["helmet"], data, n_threads=1)
        assert isinstance(model, FederatedLinearSVC)
        model.n_positive_ = sum(int((y == "yes").sum()) for _, y in data)
        kept.append(model)
        answers.run_is_over()

    assert compared(run, parties(0), parties(1))


def broken(world: int, how: str) -> list[tuple[Any, ...]]:
    """Party 1 cannot take part; what is wrong with its records differs between the worlds."""
    made: list[tuple[Any, ...]] = parties(world, "person" if how.startswith("id") else "row")
    X, y, *ids = made[1]
    if how == "nan":
        X[2 + world, world] = np.nan
        X[0, 0] = 123.456 + world
    elif how == "label":
        y = y.astype(object)
        y[3 + world] = f"secret {world}"
    elif how == "text":
        X = X.astype(object)
        X[1, 1] = f"secret {world}"
    elif how == "infinite":
        X[world, world] = np.inf if world else -np.inf
    elif how == "id missing":
        ids = [np.where(np.arange(ids[0].size) == world, np.nan, ids[0])]
    elif how == "ids of another length":
        ids = [ids[0][1 + world :]]
    made[1] = (X, y, *ids)
    return made


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize(
    "how", ["nan", "label", "text", "infinite", "id missing", "ids of another length"]
)
def test_refusals_do_not_say_what_was_wrong_with_which_record(how: str, answers: Answers) -> None:
    spec = SPECS["persons" if how.startswith("id") else "helmet"]

    def run(data: Any, kept: list[Any]) -> None:
        simulate(spec, data, n_threads=1)

    assert compared(run, broken(0, how), broken(1, how), fails=True) == []

    def alone(data: Any, kept: list[Any]) -> None:
        X, y, *ids = data[1]
        local_update(X, y, spec, "model", groups=ids[0] if ids else None)

    assert compared(alone, broken(0, how), broken(1, how), fails=True) == []
