"""Simulations: who drops out, who is refused, what is charged, and that sums are exact."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone

from dpsvm_fast import NotPrivateWarning
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError
from dpsvm_fast.federated import (
    FederatedLinearSVC,
    FederatedSpec,
    InconsistentSumError,
    PartyRefusedError,
    SecureSum,
    SecureSumAborted,
    SumResult,
    TrustedSum,
    finalize,
    local_update,
    simulate,
)
from dpsvm_fast.ledger import PrivacyLedger
from oracles.parties import Party, helmet, reduction

pytestmark = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")

LOSSY: dict[str, Any] = {"n_users": 10, "max_dropout": 0.2}


def parties_of(n: int, size: int = 12) -> list[Party]:
    rng = np.random.default_rng(5)
    labels = [rng.integers(0, 2, size) for _ in range(n)]
    return [(rng.normal(0, 0.1, (size, 3)) + (2 * y[:, None] - 1) * 0.4, y) for y in labels]


class Shifted:
    """A protocol that gives sums as other representatives modulo 2**48."""

    trust = "secure_sum"

    def __init__(self) -> None:
        self.calls = 0

    def sum(self, vectors: Iterable[NDArray[np.int64]]) -> SumResult:
        self.calls += 1
        held = list(vectors)
        total = np.sum(held, axis=0)
        return SumResult(total % 2**48 + 2**48 * (np.arange(total.size) % 7), len(held))


def test_masks_change_no_bit() -> None:
    pytest.importorskip("cryptography", reason="masks need it")
    from oracles.secure_sums import Fault, InOneProcess

    spec, parties = helmet(**LOSSY), parties_of(10)
    adder = InOneProcess(spec.survivors_needed, spec.threshold, [Fault("unmask", [0, 1])])
    plain = simulate(spec, parties, random_state=1)
    masked = simulate(spec, parties, random_state=1, secure_sum=adder)
    assert (plain.coef_ == masked.coef_).all()


@pytest.mark.parametrize("dropouts", [(), (3,), (0, 9)])
def test_a_protocol_in_place_of_the_sum_changes_no_bit(dropouts: tuple[int, ...]) -> None:
    spec, parties = helmet(**LOSSY), parties_of(10)
    adder = Shifted()
    assert isinstance(adder, SecureSum)
    plain = simulate(spec, parties, random_state=1, dropouts=dropouts)
    secure = simulate(spec, parties, random_state=1, dropouts=dropouts, secure_sum=adder)
    assert adder.calls == 1
    assert (plain.coef_ == secure.coef_).all()
    assert plain.n_survivors_ == 10 - len(dropouts)
    # Whoever runs the process sees everything, whatever adds up.
    assert secure.privacy_.trust == "trusted_curator"


def test_threads_change_no_bit() -> None:
    spec, parties = helmet(**LOSSY), parties_of(10)
    one, two = (simulate(spec, parties, random_state=1, n_threads=n) for n in (1, 2))
    assert (one.coef_ == two.coef_).all()


def test_blocks_of_parties_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    spec, parties = reduction(n_features=3, local="output", n_users=10), parties_of(10)
    whole = simulate(spec, parties, random_state=1)
    monkeypatch.setattr(sys.modules["dpsvm_fast.federated.classifier"], "BLOCK", 200)
    blocks = simulate(spec, parties, random_state=1)
    assert (whole.coef_ == blocks.coef_).all()


def test_only_those_who_are_left_are_averaged() -> None:
    spec, parties = helmet(**LOSSY, epsilon=40.0, delta=0.01), parties_of(10)
    # The two that vanish would have taught the opposite.
    turned = [(X, 1 - y) if i in (2, 5) else (X, y) for i, (X, y) in enumerate(parties)]
    X, y = parties[0]
    kept = simulate(spec, turned, dropouts=[2, 5])
    assert kept.n_records_ == 8 * 12
    assert kept.score(X, y) > 0.9


def test_fewer_than_needed_release_nothing() -> None:
    spec, parties = helmet(**LOSSY), parties_of(10)
    ledger = PrivacyLedger(9.0, 1e-3, "replace_one")
    with pytest.raises(SecureSumAborted) as caught:
        simulate(spec, parties, dropouts=[0, 1, 2], ledger=ledger)
    assert (caught.value.survivors, caught.value.needed) == (7, 8)
    assert not ledger.history
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.stage, again.survivors, again.needed) == ("model", 7, 8)
    assert str(again) == str(caught.value)


def test_rounds_lose_parties_of_their_own() -> None:
    spec = reduction(n_features=3, local="output", **LOSSY)
    parties = parties_of(10)
    model = simulate(spec, parties, dropouts={"gram": [0], "model": [1, 2]})
    assert model.n_survivors_ == 8
    with pytest.raises(SecureSumAborted, match="gram"):
        simulate(spec, parties, dropouts={"gram": [0, 1, 2]})
    with pytest.raises(InvalidParameterError) as caught:
        simulate(spec, parties, dropouts={"other": [0]})
    assert caught.value.parameter == "dropouts"
    with pytest.raises(InvalidParameterError) as caught:
        simulate(spec, parties, dropouts=[10])
    assert caught.value.parameter == "dropouts"


def test_a_ledger_refuses_before_records_are_looked_at() -> None:
    class Untouchable:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("read")

    spec = helmet(n_users=1, honest_fraction=1.0)
    poor = PrivacyLedger(0.5, 1e-6, "replace_one")
    parties: list[Any] = [(Untouchable(), Untouchable())]
    with pytest.raises(BudgetExceededError):
        simulate(spec, parties, ledger=poor)
    with pytest.raises(BudgetExceededError):
        local_update(*parties[0], spec, "model", ledger=poor)
    rich = PrivacyLedger(1.0, 1e-6, "replace_one")
    simulate(spec, parties_of(1), ledger=rich)
    assert tuple(record.event for record in rich.history) == spec.events("trusted_curator")
    with pytest.raises(InvalidParameterError) as caught:
        simulate(spec, parties_of(1), ledger=PrivacyLedger(9.0, 1e-3, "add_remove"))
    assert caught.value.parameter == "ledger"


GOOD = parties_of(1)[0]
BAD: dict[str, tuple[Any, Any]] = {
    "nan": (np.where(np.arange(36).reshape(12, 3) == 31, np.nan, GOOD[0]), GOOD[1]),
    "infinite": (GOOD[0] * np.inf, GOOD[1]),
    "labels outside the classes": (GOOD[0], GOOD[1] + 271828),
    "labels of another kind": (GOOD[0], np.full(12, "271828")),
    "labels that are no numbers": (GOOD[0], [None] * 12),
    "fewer labels": (GOOD[0], GOOD[1][:-1]),
    "no rows": (GOOD[0][:0], GOOD[1][:0]),
    "too many rows": (np.tile(GOOD[0], (2, 1)), np.tile(GOOD[1], 2)),
    "too few rows": (GOOD[0][:1], GOOD[1][:1]),
    "more features": (np.hstack([GOOD[0], GOOD[0]]), GOOD[1]),
    "one row of numbers": (GOOD[0][0], GOOD[1]),
    "strings": (np.full((12, 3), "271828"), GOOD[1]),
    "dates": (np.full((12, 3), "2718-01-01", dtype="datetime64[D]"), GOOD[1]),
    "complex": (GOOD[0] + 271828j, GOOD[1]),
    "nothing": (None, None),
    "a table of labels": (GOOD[0], GOOD[1][:, None]),
}


@pytest.mark.parametrize("kind", BAD)
def test_records_not_as_agreed_on_are_refused_without_a_word_about_them(kind: str) -> None:
    spec = helmet(n_users=2, honest_fraction=1.0, min_records=2)
    X, y = BAD[kind]
    with pytest.raises(PartyRefusedError) as caught:
        local_update(X, y, spec, "model")
    text = str(caught.value)
    assert "2718" not in text
    assert "31" not in text
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    with pytest.raises(PartyRefusedError) as whose:
        simulate(spec, [GOOD, (X, y)])
    assert str(whose.value) == f"party 1: {text}"


@pytest.mark.parametrize("n", [0, 3, 5])
def test_another_number_of_parties_is_refused(n: int) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        simulate(helmet(), parties_of(n))
    assert caught.value.parameter == "parties"


def test_a_model_that_is_not_finite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsvm_fast.federated import local as contributions

    monkeypatch.setattr(contributions, "fit_parties", lambda *_: np.full((1, 1, 4), np.nan))
    with pytest.raises(PartyRefusedError, match="not finite"):
        local_update(*GOOD, helmet(), "model")


def test_seeds_make_results_repeatable_and_not_private() -> None:
    spec, parties = helmet(), parties_of(4)
    with pytest.warns(NotPrivateWarning):
        seeded = simulate(spec, parties, random_state=3)
    assert not seeded.privacy_.private
    assert seeded.privacy_.random_source == "seed"
    assert (simulate(spec, parties, random_state=3).coef_ == seeded.coef_).all()
    assert (simulate(spec, parties, random_state=4).coef_ != seeded.coef_).any()
    fresh = simulate(spec, parties)
    assert fresh.privacy_.private
    assert (simulate(spec, parties).coef_ != fresh.coef_).any()


def good_sum(spec: FederatedSpec) -> NDArray[np.int64]:
    vectors = [local_update(X, y, spec, "model").vector for X, y in parties_of(4)]
    return np.asarray(np.sum(vectors, axis=0))


@pytest.mark.parametrize(
    "kind", ["check", "records", "length", "survivors", "more survivors", "size", "float", "none"]
)
def test_sums_that_are_none_of_the_parties_are_refused(kind: str) -> None:
    spec = helmet()
    total: NDArray[Any] = good_sum(spec)
    survivors = 4
    assert finalize({"model": SumResult(total, 4)}, spec).n_survivors_ == 4
    if kind == "check":
        total[-1] += 1
    elif kind == "records":
        total[-2] = 81
    elif kind == "length":
        total = total[:-1]
    elif kind == "survivors":
        survivors = 3
    elif kind == "more survivors":
        survivors = total[-1] = 5
    elif kind == "size":
        total[0] = 2**40
    elif kind == "float":
        total = total.astype(np.float64)
    results = {} if kind == "none" else {"model": SumResult(total, survivors)}
    with pytest.raises((InconsistentSumError, SecureSumAborted, InvalidParameterError)):
        finalize(results, spec)


def test_a_trusted_sum_adds_up_and_counts() -> None:
    vectors = [np.array([2**29 - 1, -5, 1]), np.array([2**29 - 1, 3, 1])]
    found = TrustedSum().sum(vectors)
    assert found.total.tolist() == [2**30 - 2, -2, 2]
    assert found.survivors == 2
    with pytest.raises(SecureSumAborted):
        TrustedSum(3).sum(vectors)
    with pytest.raises(SecureSumAborted):
        TrustedSum().sum([])
    with pytest.raises(InconsistentSumError):
        TrustedSum().sum([vectors[0], vectors[1][:2]])
    with pytest.raises(InconsistentSumError):
        TrustedSum().sum([vectors[0].astype(np.int32)])


def test_the_classifier_is_an_estimator() -> None:
    spec, parties = helmet(epsilon=20.0), parties_of(4)
    model = FederatedLinearSVC(spec).fit(parties)
    X, y = parties[0]
    assert model.score(X, y) > 0.8
    assert model.decision_function(X).shape == (12,)
    copied = pickle.loads(pickle.dumps(model))
    assert (copied.predict(X) == model.predict(X)).all()
    assert copied.privacy_ == model.privacy_
    fresh = clone(model)
    assert fresh.spec == spec
    assert not hasattr(fresh, "coef_")
    assert copy.deepcopy(spec) == spec
    with pytest.raises(InvalidParameterError) as caught:
        FederatedLinearSVC().fit(parties)
    assert caught.value.parameter == "spec"


def test_labels_come_back_as_they_were() -> None:
    spec = helmet(classes=["no", "yes"])
    parties = [(X, np.array(["no", "yes"])[y]) for X, y in parties_of(4)]
    model = simulate(spec, parties)
    assert set(model.predict(parties[0][0])) <= {"no", "yes"}


def test_nothing_private_is_kept() -> None:
    model = simulate(helmet(), parties_of(4))
    kept = {name for name in vars(model) if name != "spec"}
    assert kept == {
        "coef_", "intercept_", "classes_", "n_features_in_", "n_survivors_", "n_records_",
        "privacy_", "_fitted_loss",
    }  # fmt: skip
