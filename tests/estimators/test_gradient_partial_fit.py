"""partial_fit: every call spends, goes on from noisy numbers, and answers for all calls."""

from __future__ import annotations

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import (
    BudgetExceededError,
    GradientPerturbationSVC,
    PrivacyLeakWarning,
    PrivacyLedger,
    verify,
)
from dpsvm_fast.accounting import composed_epsilon, gaussian_delta
from dpsvm_fast.certificates.events import SubsampledGaussianEvent
from dpsvm_fast.estimators.inputs import ArrayRows
from dpsvm_fast.exceptions import InvalidParameterError
from oracles.odd_inputs import X as ROWS
from oracles.odd_inputs import Y as LABELS
from oracles.odd_parameters import Unread, bad_parameters
from oracles.odd_rows import REFUSED
from oracles.subjects import assert_refused, spent
from oracles.subjects import released as published

TrainingSet = tuple[NDArray[np.float64], NDArray[np.int64]]
Patch = pytest.MonkeyPatch
seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
OPTIMIZERS = ("gd", "sgd", "adam")


def model(**changes: Any) -> GradientPerturbationSVC:
    settings = {"classes": [0, 1, 2], "n_threads": 1, "n_steps": 20}
    return GradientPerturbationSVC(**(settings | changes))


def released(estimator: Any) -> dict[str, Any]:
    """What a fit has published, copied."""
    names = (name for name in vars(estimator) if name.endswith("_") or name == "_continuation")
    return {name: copy.deepcopy(vars(estimator)[name]) for name in names}


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return set(first) == set(second) and pickle.dumps(first) == pickle.dumps(second)


@pytest.mark.proof("gradient_perturbation", "Noise, sampling, whole runs")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_the_statement_composes_all_calls(
    optimizer: str, adjacency: str, clusters: TrainingSet
) -> None:
    X, y = clusters
    ledger = PrivacyLedger(epsilon=20.0, delta=1e-5, adjacency=adjacency)
    estimator = model(
        ledger=ledger, optimizer=optimizer, adjacency=adjacency, epsilon=2.0,
        sampling_rate="auto" if optimizer == "gd" else 0.2,
    )  # fmt: skip
    epsilons = []
    for call in range(1, 4):
        # Other rows, whose number the statement does not tell.
        half = slice(0, 45) if call == 2 else slice(None)
        estimator.partial_fit(X[half], y[half])
        statement = estimator.privacy_
        assert len(ledger.history) == len(statement.events) == len(statement.parts) == call
        assert tuple(record.event for record in ledger.history) == statement.events
        expected = composed_epsilon(statement.events, 1e-6) if call > 1 else 2.0
        assert statement.epsilon == expected
        assert statement.delta == 1e-6
        assert verify(statement).ok
        epsilons.append(statement.epsilon)
    assert epsilons[0] < epsilons[1] < epsilons[2] < 6.0
    if optimizer == "gd":
        # Three Gaussian mechanisms of one size are one of sqrt(3) times the size.
        mu = math.sqrt(3.0) * statement.events[0].mu  # type: ignore[attr-defined]
        assert gaussian_delta(epsilons[2], 1.0 / mu) == pytest.approx(1e-6, rel=1e-6)
    else:
        # Three calls of 20 steps are one of 60 steps.
        (event,) = {*statement.events}
        assert isinstance(event, SubsampledGaussianEvent)
        rate, z = event.sampling_rate, event.noise_multiplier
        whole = SubsampledGaussianEvent(z, rate, 60, adjacency)
        assert epsilons[2] == pytest.approx(composed_epsilon([whole], 1e-6), rel=1e-4)


@seeded
@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        *((name, {}) for name in OPTIMIZERS),
        *((name, {"schedule": "inverse"}) for name in OPTIMIZERS),
        ("gd", {"momentum": 0.8}),
        ("sgd", {"momentum": 0.8, "nesterov": True}),
    ],
)
def test_two_calls_are_one_run_but_for_the_noise(
    optimizer: str, settings: dict[str, Any], clusters: TrainingSet
) -> None:
    """With a huge budget: 2 x 20 steps are 40 steps, moments and the step number included."""
    common: dict[str, Any] = {
        "optimizer": optimizer, "epsilon": 4e3, "delta": 0.5, "learning_rate": 0.02, "average": 0.0,
        "expected_batch_size": 30.0, "random_state": 1, "C": 1.0, **settings,
    }  # fmt: skip
    if optimizer != "gd":
        common["sampling_rate"] = 1.0
    twice = model(**common).partial_fit(*clusters)
    once = twice.coef_.copy()
    twice.partial_fit(*clusters)
    whole = model(**(common | {"n_steps": 40})).fit(*clusters)
    scale = np.abs(whole.coef_).max()
    np.testing.assert_allclose(twice.coef_, whole.coef_, atol=0.05 * scale)
    # Negative control: the second call made a difference, and it was not a first one again.
    assert np.abs(once - whole.coef_).max() > 0.1 * scale


def test_momentum_comes_and_goes_with_the_number_of_rows(clusters: TrainingSet) -> None:
    """It is public under replace_one, and automatic momentum follows it."""
    X, y = clusters
    estimator = model(epsilon=64.0, adjacency="replace_one")
    # Few rows, all, all, few.
    for call, rows in enumerate((slice(0, 4), slice(None), slice(None), slice(0, 4)), 1):
        estimator.partial_fit(X[rows], y[rows])
        velocity = vars(estimator)["_continuation"].state["first"]
        assert velocity.size == (18 if call in (2, 3) else 0)
        assert np.isfinite(estimator.coef_).all()
        assert len(estimator.privacy_.parts) == call
        assert verify(estimator.privacy_).ok


@seeded
def test_the_velocity_goes_on(clusters: TrainingSet) -> None:
    """A call whose noise drowns all: its first step is along the velocity of the call before."""
    settings: dict[str, Any] = {
        "epsilon": 64.0, "adjacency": "replace_one", "n_steps": 1, "average": 0.0,
        "random_state": 1,
    }  # fmt: skip
    estimator = model(**settings).partial_fit(*clusters)
    state = vars(estimator)["_continuation"].state
    # What the first step went along, a thousandfold.
    state["first"] *= 1e3
    before = state["weights"].copy()
    estimator.partial_fit(*clusters)
    moved = vars(estimator)["_continuation"].state["weights"] - before
    assert np.corrcoef(moved.ravel(), -state["first"].ravel())[0, 1] > 0.99


@seeded
def test_the_mean_is_over_the_iterates_of_the_last_call(clusters: TrainingSet) -> None:
    common: dict[str, Any] = {
        "epsilon": 4e3, "delta": 0.5, "learning_rate": 0.003, "random_state": 1, "average": 0.1,
    }  # fmt: skip
    estimator = model(**common).fit(*clusters)
    first = estimator.coef_.copy()
    estimator.partial_fit(*clusters)
    last = model(**(common | {"n_steps": 40, "average": 0.05})).fit(*clusters).coef_
    distance = np.abs(estimator.coef_ - last).max()
    # The mean over both calls would lie half way.
    assert distance < 0.2 * np.abs(first - last).max()


@seeded
def test_calls_with_a_seed_draw_different_noise() -> None:
    X, y = np.zeros((6, 500)), np.arange(6) % 3
    settings: dict[str, Any] = {
        "random_state": 3, "n_steps": 1, "learning_rate": 1.0, "fit_intercept": False,
    }  # fmt: skip
    estimator = model(**settings)
    first = estimator.partial_fit(X, y).coef_.copy()
    second = estimator.partial_fit(X, y).coef_ - first
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.2
    again = model(**settings).partial_fit(X, y).partial_fit(X, y)
    np.testing.assert_array_equal(again.coef_, estimator.coef_)
    assert not estimator.privacy_.private


def test_fit_begins_anew(clusters: TrainingSet) -> None:
    estimator = model().partial_fit(*clusters).partial_fit(*clusters)
    assert len(estimator.privacy_.parts) == 2
    estimator.fit(*clusters)
    assert len(estimator.privacy_.parts) == 1
    assert estimator.privacy_.epsilon == 1.0
    # And may be continued.
    assert len(estimator.partial_fit(*clusters).privacy_.parts) == 2


@pytest.mark.parametrize("late", [False, True])
def test_a_failure_leaves_what_was_released_and_the_budget_spent(
    late: bool, clusters: TrainingSet, monkeypatch: Patch
) -> None:
    ledger = PrivacyLedger(epsilon=10.0, delta=1e-4)
    estimator = model(ledger=ledger).partial_fit(*clusters)
    before, descend = released(estimator), ArrayRows.descend

    def fail(*given: Any) -> None:
        # Steps that were taken before the failure must not count as the model's.
        if late:
            descend(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ArrayRows, "descend", fail)
        with pytest.raises(KeyboardInterrupt):
            estimator.partial_fit(*clusters)
    assert same(released(estimator), before)
    assert len(ledger.history) == 2
    estimator.partial_fit(*clusters)
    assert len(ledger.history) == 3
    # Nothing of the failed call was released.
    assert len(estimator.privacy_.parts) == 2


def test_an_exhausted_budget_ends_it(clusters: TrainingSet) -> None:
    ledger = PrivacyLedger(epsilon=1.8, delta=1e-6)
    estimator = model(ledger=ledger)
    estimator.partial_fit(*clusters).partial_fit(*clusters)
    before = released(estimator)
    with pytest.raises(BudgetExceededError):
        estimator.partial_fit(Unread(), Unread())
    assert same(released(estimator), before)
    assert len(ledger.history) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 2.0),
        ("delta", 1e-7),
        ("loss", "m3"),
        ("optimizer", "sgd"),
        ("n_steps", 21),
        ("max_grad_norm", 1.0),
        ("learning_rate", 0.1),
        ("classes", [0, 1, 2, 3]),
        ("data_norm", 2.0),
        ("adjacency", "replace_one"),
        ("momentum", 0.5),
        ("random_state", 1),
        ("max_samples", 100),
    ],
)
@seeded
def test_parameters_must_not_change_between_calls(
    name: str, value: Any, clusters: TrainingSet
) -> None:
    estimator = model().partial_fit(*clusters)
    before = released(estimator)
    with pytest.raises(InvalidParameterError, match=f"^{name}: .*between calls"):
        estimator.set_params(**{name: value}).partial_fit(object(), object())
    assert same(released(estimator), before)
    # A new fit may.
    estimator.fit(*clusters)


def test_what_changes_no_result_may_change(clusters: TrainingSet) -> None:
    estimator = model().partial_fit(*clusters)
    estimator.set_params(n_threads=2, ledger=PrivacyLedger(epsilon=1.0, delta=1e-6))
    estimator.partial_fit(*clusters)
    assert len(estimator.ledger.history) == 1


def test_the_label_set_in_the_first_call(clusters: TrainingSet) -> None:
    X, y = clusters
    estimator = model(classes=None)
    with pytest.raises(InvalidParameterError, match=r"^classes: got None"):
        estimator.partial_fit(X, y)
    estimator.partial_fit(X, y, classes=[2, 1, 0])
    assert estimator.privacy_.private
    np.testing.assert_array_equal(estimator.classes_, [0, 1, 2])
    estimator.partial_fit(X, y)
    estimator.partial_fit(X, y, classes=range(3))
    assert estimator.privacy_.private
    with pytest.raises(InvalidParameterError, match=r"^classes: expected the label set"):
        estimator.partial_fit(X, y, classes=range(4))
    with pytest.raises(InvalidParameterError, match=r"^classes: expected the label set"):
        model().partial_fit(X, y, classes=range(4))
    # A batch without some of the classes is a batch like any other.
    estimator.partial_fit(X[y == 1], y[y == 1])
    assert estimator.coef_.shape == (3, 5)


def test_labels_read_from_the_first_batch_stay_a_leak(clusters: TrainingSet) -> None:
    with pytest.warns(PrivacyLeakWarning):
        estimator = model(classes=None).fit(*clusters)
    with pytest.warns(PrivacyLeakWarning):
        estimator.partial_fit(*clusters)
    assert not estimator.privacy_.private
    assert len(estimator.privacy_.not_private_reasons) == 1


def test_another_number_of_features_is_refused(clusters: TrainingSet) -> None:
    X, y = clusters
    ledger = PrivacyLedger(epsilon=5.0, delta=1e-5)
    estimator = model(ledger=ledger).partial_fit(X, y)
    with pytest.raises(ValueError, match="features"):
        estimator.partial_fit(X[:, :4], y)
    assert len(ledger.history) == 1
    estimator.partial_fit(sparse.csr_matrix(X), y)
    estimator.partial_fit(X.astype(np.float32), y)


def test_a_rate_that_has_come_down_to_0_ends_it(clusters: TrainingSet) -> None:
    estimator = model(schedule="linear").partial_fit(*clusters)
    with pytest.raises(InvalidParameterError, match=r"^schedule: .*second call"):
        estimator.partial_fit(*clusters)


def test_the_accountant_of_the_last_iterate_has_no_second_call(clusters: TrainingSet) -> None:
    settings: dict[str, Any] = {"C": 0.1, "max_samples": 100, "accountant": "last_iterate"}
    estimator = model(**settings)
    for _ in range(2):
        with pytest.raises(AttributeError, match="partial_fit") as caught:
            estimator.partial_fit(*clusters)
        assert "composition" in str(caught.value.__cause__ or caught.value)
        estimator.fit(*clusters)
    estimator.set_params(accountant="composition")
    with pytest.raises(InvalidParameterError, match=r"^accountant: this model cannot be continued"):
        estimator.partial_fit(*clusters)


def test_a_first_call_needs_no_fit_and_accounts_for_all_iterates(clusters: TrainingSet) -> None:
    """accountant="auto" would take the last iterate in a fit of these settings."""
    settings: dict[str, Any] = {
        "C": 0.1, "max_samples": 100, "average": 0.0, "max_grad_norm": 1.5, "n_steps": 300,
    }  # fmt: skip
    assert model(**settings).fit(*clusters).privacy_.parts[0].last_iterate is not None
    estimator = model(**settings).partial_fit(*clusters)
    assert estimator.privacy_.parts[0].last_iterate is None
    estimator.partial_fit(*clusters)


def test_a_pickle_can_be_continued(clusters: TrainingSet) -> None:
    estimator = model(optimizer="adam").partial_fit(*clusters)
    twin = pickle.loads(pickle.dumps(estimator))
    assert twin.partial_fit(*clusters).privacy_ == estimator.partial_fit(*clusters).privacy_
    assert (twin.coef_ != estimator.coef_).all()


@pytest.mark.proof("adaptive_composition", "Periods")
def test_other_rows_each_week_are_one_promise_each(clusters: TrainingSet) -> None:
    X, y = clusters
    ledger = PrivacyLedger(1.0, 1e-5, periods=["W1", "W2", "W3"])
    going = model(epsilon=1.0, delta=1e-5)
    for week, rows in (("W1", slice(0, 40)), ("W2", slice(40, 80)), ("W3", slice(80, None))):
        going.set_params(ledger=ledger.for_periods(week)).partial_fit(X[rows], y[rows])
        # Of the rows of this week, though the start is last week's model.
        assert (going.privacy_.epsilon, len(going.privacy_.parts)) == (1.0, 1)
        assert verify(going.privacy_.to_json()).ok
        started = [text for text in going.privacy_.assumed_public if "the starting point" in text]
        assert len(started) == (week != "W1")
        going = pickle.loads(pickle.dumps(going))
    assert vars(going)["_continuation"].n_steps == 60
    assert ledger.total()[0] == pytest.approx(1.0)
    # What was said of the first week is no longer in the statement.
    wide = PrivacyLedger(9.0, 1e-5, periods=["W1", "W4"])
    for other in (wide.for_periods("W1"), wide, None):
        with pytest.raises(InvalidParameterError) as caught:
            going.set_params(ledger=other).partial_fit(X, y)
        assert caught.value.parameter == "ledger"
    assert wide.history == ()


def test_rows_that_come_back_are_summed_up(clusters: TrainingSet) -> None:
    X, y = clusters
    ledger = PrivacyLedger(9.0, 1e-5, periods=["W1", "W2"])
    going = model(epsilon=1.0, delta=1e-5, ledger=ledger.for_periods("W1")).partial_fit(X, y)
    going.set_params(ledger=ledger.for_periods("W1", "W2")).partial_fit(X, y)
    assert len(going.privacy_.parts) == 2
    assert going.privacy_.epsilon == pytest.approx(ledger.for_periods("W1").total()[0])
    # After a call on all rows no period is a new one.
    going = model(epsilon=1.0, delta=1e-5).partial_fit(X, y)
    going.set_params(ledger=ledger.for_periods("W2")).partial_fit(X, y)
    assert len(going.privacy_.parts) == 2


@seeded
def test_a_start_that_is_not_private_stays_in_the_statement(clusters: TrainingSet) -> None:
    X, y = clusters
    ledger = PrivacyLedger(9.0, 1e-5, periods=["W1", "W2"], strict=False)
    going = model(random_state=3, ledger=ledger.for_periods("W1")).partial_fit(X, y)
    going.set_params(ledger=ledger.for_periods("W2")).partial_fit(X, y)
    assert len(going.privacy_.parts) == 2
    assert not going.privacy_.private


def test_many_calls_on_one_estimator_at_once(clusters: TrainingSet) -> None:
    """Calls may overtake each other; every state that is left is a whole one."""
    ledger = PrivacyLedger(epsilon=100.0, delta=1e-4)
    one = model(ledger=ledger, n_steps=5)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: one.partial_fit(*clusters), range(24)))
    assert len(ledger.history) == 24
    assert np.isfinite(one.coef_).all()
    assert len(one.privacy_.parts) == vars(one)["_continuation"].n_calls
    one.partial_fit(*clusters)


def generous(**settings: Any) -> Any:
    """An estimator with a budget that nothing exhausts."""
    common = {"n_steps": 10, "ledger": PrivacyLedger(epsilon=1e4, delta=0.5, strict=False)}
    return model(**(common | settings))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_continued_fits_refuse_the_same_parameters(optimizer: str) -> None:
    for subject, name, value in bad_parameters():
        # Full batches have no rate.
        unused = name == "sampling_rate" and optimizer == "gd"
        if subject != "gradient" or name == "optimizer" or unused:
            continue
        fitted = generous(**({"optimizer": optimizer} | {name: value}))
        with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
            fitted.partial_fit(Unread(), Unread())
        assert spent(fitted) == 0


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_continued_fits_refuse_the_same_data(name: str) -> None:
    case, fitted = REFUSED[name], generous()
    call = fitted.partial_fit
    assert_refused(lambda: call(case.rows, case.labels), fitted, case.words)
    first = published(fitted.partial_fit(ROWS, LABELS))
    with pytest.raises((ValueError, TypeError, RuntimeError), match=case.words):
        call(case.rows, case.labels)
    # What was released before stays.
    assert spent(fitted) == 1
    assert all((value == first[key]).all() for key, value in published(fitted).items())
