"""Plans: made once, of public facts, before values are read; what they say is what is spent."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import dpsvm_fast as dp
from dpsvm_fast.estimators.inputs import ArrayRows
from dpsvm_fast.estimators.parameters import tests_of as checks_of
from dpsvm_fast.mechanisms.plan import Facts
from oracles.odd_parameters import Unread
from oracles.plans import planned
from oracles.subjects import every_private, made, spent
from oracles.watching import fitted_names, watched

RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, size=(60, 4))
Y = np.arange(60) % 3
THREE: dict[str, Any] = {"classes": [0, 1, 2], "n_threads": 1}
KINDS: dict[str, Any] = {
    "output": dp.OutputPerturbationSVC(**THREE),
    "psgd": dp.OutputPerturbationSVC(loss="huber", solver="psgd", adjacency="replace_one", **THREE),
    "objective": dp.ObjectivePerturbationSVC(**THREE),
    "gradient": dp.GradientPerturbationSVC(n_steps=3, **THREE),
    "linear": dp.PrivateLinearSVC(bounds=(-0.5, 0.5), **THREE),
    "kernel": dp.PrivateKernelSVC(bounds=(-0.5, 0.5), n_components=5, **THREE),
    "ellipsoids": dp.PrivateGaussianMarginClassifier(**THREE),
    "centre": dp.PrivateCenter(),
    "whitener": dp.PrivateWhitener(),
    "pca": dp.PrivatePCA(2),
    "scaler": dp.PrivateStandardScaler(bounds=(-0.5, 0.5)),
}
each = pytest.mark.parametrize("kind", KINDS)


class Lying:
    """Rows of two features that say they have five."""

    shape = (60, 5)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(X[:, :2], dtype=dtype)


@each
def test_a_fit_spends_what_its_plan_says(kind: str) -> None:
    estimator = KINDS[kind]
    counted = estimator.adjacency == "replace_one"
    facts = Facts(n_features=4, n_classes=3, n_samples=60 if counted else None)
    ledger = dp.PrivacyLedger(9.0, 1e-3, estimator.adjacency)
    estimator.set_params(ledger=ledger).fit(X, Y)
    estimator.set_params(ledger=None)
    plan = estimator.checked().plan(facts)
    assert tuple(record.event for record in ledger.history) == plan.events
    assert planned(estimator, X, Y)[0].events == plan.events


@each
def test_plans_are_frozen(kind: str) -> None:
    plan, _ = planned(KINDS[kind], X, Y)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.epsilon = 100.0


@each
def test_rows_that_have_another_shape_than_they_say_cost_nothing(kind: str) -> None:
    ledger = dp.PrivacyLedger(9.0, 1e-3, KINDS[kind].adjacency)
    estimator = KINDS[kind].set_params(ledger=ledger)
    with pytest.raises(ValueError, match=r"^X: "):
        estimator.fit(Lying(), Y)
    estimator.set_params(ledger=None)
    assert not ledger.history
    assert not [name for name in vars(estimator) if name.endswith("_")]


DESCENT, KERNEL = dp.GradientPerturbationSVC, dp.PrivateKernelSVC


@pytest.mark.parametrize(
    ("estimator", "parameter"),
    [
        (dp.PrivatePCA(3), "n_components"),
        (dp.PrivatePCA(centre=[0.0] * 3), "centre"),
        (dp.PrivateStandardScaler(bounds=(0, [1, 1, 1])), "bounds"),
        (dp.PrivateLinearSVC(bounds=([0, 0, 0], 1), **THREE), "bounds"),
        (dp.PrivateLinearSVC(delta=0.0, mechanism="gradient", **THREE), "delta"),
        (dp.PrivateLinearSVC(delta=0.0, whiten=True, **THREE), "whiten"),
        (KERNEL(kernel="auto", mechanism="objective", **THREE), "kernel"),
        (KERNEL(bounds=(0.0, 1.0), normalize=False, **THREE), "bounds"),
        (KERNEL(whiten=True, normalize=False, **THREE), "whiten"),
        (KERNEL(data_norm=2.0, **THREE), "data_norm"),
        (DESCENT(momentum=0.9, optimizer="adam", **THREE), "momentum"),
        (DESCENT(nesterov=True, **THREE), "nesterov"),
        (DESCENT(betas=(0.5, 0.5), **THREE), "betas"),
        (DESCENT(stabilizer=1e-6, optimizer="sgd", **THREE), "stabilizer"),
        (DESCENT(noise_correction=True, **THREE), "noise_correction"),
        (DESCENT(sampling_rate=0.5, **THREE), "sampling_rate"),
        (DESCENT(max_samples=100, adjacency="replace_one", **THREE), "max_samples"),
        (DESCENT(loss="logistic", smoothing=1.0, **THREE), "smoothing"),
        (DESCENT(loss="huber", margin=0.5, **THREE), "margin"),
        (DESCENT(loss="crammer_singer", **THREE), "loss"),
        (dp.OutputPerturbationSVC(smoothing=0.1, **THREE), "smoothing"),
        (dp.OutputPerturbationSVC(margin=2.0, **THREE), "margin"),
        (dp.OutputPerturbationSVC(loss="logistic", smoothing=2.0, **THREE), "smoothing"),
        (dp.OutputPerturbationSVC(solver="psgd", adjacency="replace_one", **THREE), "loss"),
        (dp.OutputPerturbationSVC(loss="huber", projection="per_class", **THREE), "projection"),
        (dp.ObjectivePerturbationSVC(loss="logistic", margin=0.0, **THREE), "margin"),
        (dp.ObjectivePerturbationSVC(loss="crammer_singer", **THREE), "loss"),
    ],
)
def test_what_does_not_go_together_is_refused_before_values_are_read(
    estimator: Any, parameter: str
) -> None:
    with pytest.raises(dp.exceptions.InvalidParameterError) as caught:
        estimator.fit(Unread(), Unread())
    assert caught.value.parameter == parameter


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.proof("auto_pipeline", "Budget and paths")
@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@every_private
def test_a_fit_asks_reads_spends_and_only_then_runs(
    subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitting = made(subject).fit(X, Y)
    each = spent(fitting)
    plan = type(planned(fitting, X, Y)[0])
    seen: list[str] = []
    watched(monkeypatch, dp.PrivacyLedger, "check", seen)
    watched(monkeypatch, ArrayRows, "read", seen)
    watched(monkeypatch, dp.PrivacyLedger, "spend", seen)
    watched(monkeypatch, plan, "run", seen)
    fitting.fit(X, Y)
    assert seen == ["check", "read", "spend", "run"]
    # The budget is all used, and no more.
    assert 0.98 * fitting.epsilon < total(fitting) <= fitting.epsilon * (1.0 + 1e-9)
    # What fails on the way is paid for, and leaves nothing, not even the model before.
    monkeypatch.setattr(plan, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitting.fit(X, Y)
    assert spent(fitting) == 3 * each
    assert fitted_names(fitting) == []
    # A ledger that refuses is asked before a value is read.
    seen.clear()
    small = dp.PrivacyLedger(0.5 * fitting.epsilon, fitting.delta, fitting.adjacency)
    with pytest.raises(dp.BudgetExceededError):
        fitting.set_params(ledger=small).fit(X, Y)
    assert (seen, small.history) == (["check"], ())


def total(fitted: Any) -> float:
    """What one fit costs by a ledger's accountant, at the delta that it was given."""
    ledger = dp.PrivacyLedger(2.0 * fitted.epsilon, fitted.delta, fitted.adjacency)
    ledger.spend(fitted.privacy_.events)
    return ledger.total()[0]


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, np.ndarray.tolist])
def test_facts_are_known_before_values_are_read(form: Any) -> None:
    checked = KINDS["linear"].checked()
    rows = ArrayRows(checked, form(X), object(), classes=checked.classes)
    facts = Facts(n_features=4, n_classes=3, sparse=form is sparse.csr_matrix)
    assert rows.facts == facts
    assert rows.codes is None


@each
def test_parameters_are_those_of_the_constructor(kind: str) -> None:
    estimator = KINDS[kind]
    names = [field.name for field in dataclasses.fields(estimator) if field.init]
    assert sorted(names) == sorted(inspect.signature(type(estimator)).parameters)
    # Checked in the order of the constructor; the ledger has its own check.
    known = list(inspect.signature(type(estimator)).parameters)
    assert list(checks_of(type(estimator))) == [name for name in known if name != "ledger"]
    assert set(names) == set(estimator.get_params())
