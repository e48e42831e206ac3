"""`plan_noise`: records that prose, JSON and figures share, and what it refuses."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from dpsvm_fast import (
    GradientPerturbationSVC,
    InvalidParameterError,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateKernelSVC,
    PrivateLinearSVC,
)
from dpsvm_fast.mechanisms.noise import MAX_FEATURES
from dpsvm_fast.planning import plan_noise

CLASSES = range(3)


def linear(**settings: Any) -> PrivateLinearSVC:
    return PrivateLinearSVC(1.0, 1e-5, classes=CLASSES, **settings)


def release_of(model: Any, name: str) -> Any:
    """A part of a fitted model's statement."""
    return next(part for part in model.privacy_.parts if part.name == name)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("n_samples", [150, 3000])
def test_the_record_has_the_noise_that_a_fit_then_adds(adjacency: str, n_samples: int) -> None:
    plan = plan_noise(linear(adjacency=adjacency), 5, n_samples=n_samples)
    X = np.random.default_rng(0).normal(size=(n_samples, 5))
    model = linear(adjacency=adjacency).fit(X, np.arange(n_samples) % 3)
    assert plan.centre is not None
    assert plan.whitening is not None
    assert plan.descent is not None
    assert plan.centre.sum_deviation == pytest.approx(release_of(model, "centre").sigma)
    assert plan.whitening.whitened is model.whitened_ is (n_samples == 3000)
    # A fit takes the noisy number of rows: the clip may differ a little, and the noise with it.
    ratio = plan.descent.step_deviation / plan.descent.clip_norm
    assert ratio == pytest.approx(release_of(model, "training").sigma / model.max_grad_norm_)
    assert plan.descent.clip_norm == pytest.approx(model.max_grad_norm_, rel=0.1)
    assert plan.n_weights is not None
    assert plan.descent.flops == 4.0 * n_samples * plan.n_weights * plan.descent.n_steps
    added = 0 if model.lift_coef_ is None else model.lift_coef_.size
    assert plan.n_weights == model.coef_.size + added + model.intercept_.size
    assert plan.mu == pytest.approx(np.sqrt(sum(mu**2 for mu in model.mu_.values())))
    shares = [plan.centre.mu_share, plan.descent.mu_share]
    shares += [plan.whitening.mu_share] if plan.whitening.whitened else []
    assert sum(share for share in shares if share is not None) == pytest.approx(1.0)


@pytest.mark.parametrize("estimator", [PrivateLinearSVC, OutputPerturbationSVC])
def test_the_record_has_the_noise_of_class_counts(estimator: Any) -> None:
    balanced = estimator(1.0, 1e-5, classes=CLASSES, class_weight="balanced")
    deviation = plan_noise(balanced, 5, n_samples=300).class_count_deviation
    model = balanced.fit(np.random.default_rng(0).normal(size=(300, 5)) / 9.0, np.arange(300) % 3)
    assert deviation == pytest.approx(release_of(model, "classes").sigma)
    assert plan_noise(linear(), 5, n_samples=300).class_count_deviation is None


def root_mean_square(noise: Any, n_weights: int) -> float:
    """Of the noise in one weight; the radius of Gamma noise has the law Gamma(n_weights, beta)."""
    return noise.sigma if noise.beta is None else np.sqrt(n_weights + 1.0) / noise.beta


@pytest.mark.parametrize("kind", [ObjectivePerturbationSVC, OutputPerturbationSVC])
@pytest.mark.parametrize("C", ["auto", 0.25])
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_estimators_with_one_noise(kind: Any, C: Any, noise: str) -> None:
    estimator = kind(1.0, 1e-5, classes=CLASSES, C=C, noise=noise)
    plan = plan_noise(estimator, 4)
    statement = estimator.fit(np.eye(3, 4), [0, 1, 2]).privacy_
    assert plan.decision is not None
    assert (
        plan.decision.largest_lead
        is plan.decision.noise_dominates
        is plan.decision.lead_ratio
        is None
    )
    if plan.output is not None:
        expected = root_mean_square(statement.noise, 15)
        assert plan.output.deviation == plan.decision.weight_deviation
        assert plan.output.deviation == pytest.approx(expected, rel=1e-12)
        assert plan.output.sensitivity == statement.sensitivity.total
        assert not plan.decision.is_bound
    else:
        assert plan.objective is not None
        expected = root_mean_square(statement.objective, 15)
        assert plan.objective.linear_deviation == pytest.approx(expected, rel=1e-12)
        assert plan.objective.regularization == statement.objective.regularization
        assert plan.decision.is_bound


@pytest.mark.parametrize("kind", [ObjectivePerturbationSVC, OutputPerturbationSVC])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_a_plan_for_persons_has_the_noise_of_a_fit_for_persons(kind: Any, adjacency: str) -> None:
    estimator = kind(1.0, 1e-5, classes=CLASSES, adjacency=adjacency)
    plan, of_rows = (plan_noise(estimator, 4, unit=unit) for unit in ("person", "row"))
    assert (plan.unit, of_rows.unit) == ("person", "row")
    assert "whole persons" in str(plan)
    statement = estimator.fit(np.eye(6, 4), [0, 1, 2] * 2, groups=[0, 0, 0, 1, 1, 1]).privacy_
    if plan.output is not None:
        assert plan.output == of_rows.output
        assert plan.output.deviation == statement.noise.sigma
    else:
        assert plan.objective is not None
        assert of_rows.objective is not None
        assert plan.objective.linear_deviation == statement.objective.sigma
        assert plan.objective.linear_deviation > of_rows.objective.linear_deviation
    for wrong, named in (
        ({"unit": "party"}, "unit"),
        ({"unit": "person", "rows_per_person": 3}, "rows_per_person"),
    ):
        with pytest.raises(InvalidParameterError) as caught:
            plan_noise(estimator, 4, **wrong)
        assert caught.value.parameter == named


def test_a_plan_leaves_the_estimator_and_the_budget_alone() -> None:
    from dpsvm_fast import PrivacyLedger

    ledger = PrivacyLedger(0.1, 1e-6)
    estimator = linear(ledger=ledger)
    before = estimator.get_params()
    plan_noise(estimator, 5, n_samples=100)
    assert estimator.get_params() == before
    assert not ledger.history
    assert not hasattr(estimator, "n_features_in_")


@pytest.mark.parametrize(
    "estimator",
    [
        linear(),
        PrivateLinearSVC(1.0, 0.0, classes=[0, 1]),
        linear(whiten=False),
        linear(whiten=True),
        linear(fit_intercept=False),
        PrivateKernelSVC(1.0, 1e-5, classes=CLASSES),
        PrivateKernelSVC(1.0, 1e-5, classes=CLASSES, kernel="rbf"),
        ObjectivePerturbationSVC(1.0, 1e-5, classes=CLASSES),
        OutputPerturbationSVC(1.0, 0.0, noise="gamma", classes=CLASSES),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize("n_samples", [None, 1, 10_000])
@pytest.mark.parametrize("n_features", [5, 2000])
def test_prose_and_json_are_the_same_record(
    estimator: Any, n_samples: int | None, n_features: int
) -> None:
    plan = plan_noise(estimator, n_features, n_samples=n_samples)
    record = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert record["estimator"] == type(estimator).__name__
    assert record["n_samples"] == n_samples
    text = str(plan)
    assert f"delta = {plan.delta:g} ({plan.adjacency})" in text
    assert re.search(rf"^epsilon +{plan.epsilon:g}$", text, re.M)
    if plan.decision is None:
        assert "give --samples" in text
        assert record["decision"] is None
    else:
        lead = f"{record['decision']['lead']:.6g}"
        assert re.search(rf"^lead that survives the noise, 95 % +{lead}$", text, re.M)
        assert (
            record["decision"]["noise_dominates"] == ("Use a larger" in text) or n_samples is None
        )
    assert (plan.n_weights is None) == (re.search(r"^weights ", text, re.M) is None)
    if plan.n_weights is not None:
        assert re.search(rf"^weights +{plan.n_weights}$", text, re.M)


@pytest.mark.parametrize(
    ("estimator", "n_features", "why"),
    [
        (PrivateLinearSVC(1.0, 0.0, classes=[0, 1]), 5, "it needs delta > 0"),
        (linear(whiten=False), 5, "switched off"),
        (linear(), MAX_FEATURES + 1, "features"),
    ],
)
def test_the_reason_not_to_whiten_is_reported(estimator: Any, n_features: int, why: str) -> None:
    plan = plan_noise(estimator, n_features, n_samples=100_000)
    assert plan.whitening is None
    line = next(line for line in str(plan).splitlines() if "whitened" in line)
    assert why in line


def test_more_budget_leaves_more_room() -> None:
    rooms = []
    for epsilon in (0.1, 1.0, 10.0):
        plan = plan_noise(PrivateLinearSVC(epsilon, 1e-5, classes=CLASSES), 5, n_samples=500)
        assert plan.decision is not None
        assert plan.decision.lead_ratio is not None
        rooms.append(plan.decision.lead_ratio)
    assert rooms == sorted(rooms)
    assert rooms[0] < rooms[-1]


@pytest.mark.parametrize(
    ("estimator", "named"),
    [
        (PrivateLinearSVC(1.0, 1e-5), "classes"),
        (PrivateLinearSVC(1.0, 1e-5, classes=CLASSES, mechanism="output"), "mechanism"),
        (OutputPerturbationSVC(1.0, 1e-5, classes=[0, 1], loss="huber", solver="psgd"), "solver"),
        (PrivateLinearSVC(-1.0, 1e-5, classes=CLASSES), "epsilon"),
    ],
)
def test_what_cannot_be_planned(estimator: Any, named: str) -> None:
    with pytest.raises(InvalidParameterError, match=named):
        plan_noise(estimator, 5)


@pytest.mark.parametrize("n_features", [0, -1])
def test_sizes_are_checked(n_features: int) -> None:
    with pytest.raises(InvalidParameterError, match="n_features"):
        plan_noise(linear(), n_features)
    with pytest.raises(InvalidParameterError, match="n_samples"):
        plan_noise(linear(), 5, n_samples=n_features)
    for other in (GradientPerturbationSVC(classes=CLASSES), object(), None):
        with pytest.raises(TypeError, match="estimator"):
            plan_noise(other, 5)


@pytest.mark.parametrize(("n_classes", "noted"), [(2, False), (1000, True)])
def test_training_of_hours_is_told_before_it_starts(n_classes: int, noted: bool) -> None:
    model = PrivateLinearSVC(1.0, 1e-7, classes=range(n_classes))
    plan = plan_noise(model, 1408, n_samples=1_300_000)
    assert ("hours of one core" in str(plan)) is noted
