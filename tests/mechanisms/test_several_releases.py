"""Noisy weights released several times: budget, objective of each, certificate."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from conftest import three_clusters
from dpsvm_fast import PrivateKernelSVC, PrivateLinearSVC
from dpsvm_fast._core import NoiseSource
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms import pipeline as linear_pipeline
from dpsvm_fast.mechanisms.output import OutputPerturbation
from dpsvm_fast.mechanisms.pipeline import WEIGHT_RELEASES, PrivateLinear, Training
from dpsvm_fast.verification import verify
from oracles.audit import epsilon_of_separation
from oracles.coupled import coupled, use_slow_core
from oracles.descent import output_plan
from oracles.plans import PlainRows, plan_of
from oracles.tampering import with_events
from twins.smooth_erm import Problem

pytestmark = pytest.mark.proof("output_perturbation", "Several releases")

Array = NDArray[Any]
EPSILON, DELTA = 2.0, 1e-5
D, N_ROWS = 6, 40
RELATIONS = ("add_remove", "replace_one")


def plan(adjacency: str) -> PrivateLinear:
    return plan_of(
        PrivateLinear,
        epsilon=EPSILON,
        delta=DELTA,
        adjacency=adjacency,
        trainer="output",
        # A far margin: all gradients keep their largest norm, so neighbours reach the bound.
        loss=Loss(name="margin_distance", n_classes=3, smoothing=1.0, margin=1000.0),
        n_features=D,
        whiten=False,
    )


def largest_spent(adjacency: str) -> tuple[Array, Array]:
    """Largest size of each draw over two pairs of neighbours, and what the events claim."""
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(N_ROWS, D)), rng.integers(0, 3, N_ROWS)
    u = np.ones(D)
    more = (np.vstack([rows, u]), np.append(y, 1))
    if adjacency == "add_remove":
        pairs = [(more, (rows, y))]
    else:
        pairs = [(more, (np.vstack([rows, v]), np.append(y, k))) for v, k in ((-u, 1), (u, 2))]
    mechanism = plan(adjacency)

    def run(data: Any, source: Any) -> Any:
        return mechanism.run(PlainRows(data[0], data[1], 3), source)

    found = [coupled(run, *pair) for pair in pairs]
    training = found[0].outcomes[0].training
    return (
        np.max([one.sizes for one in found], axis=0),
        np.array([event.mu for event in training.events]),
    )


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_releases_together_keep_the_budget(adjacency: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact sizes on neighbours: each within its event, nearly reached, all within epsilon."""
    use_slow_core(monkeypatch)
    sizes, claimed = largest_spent(adjacency)
    assert sizes.size == claimed.size == 1 + WEIGHT_RELEASES
    assert (sizes <= claimed * (1.0 + 1e-9)).all()
    if adjacency == "add_remove":
        assert (sizes[1:] >= 0.9 * claimed[1:]).all()
    assert epsilon_of_separation(float(np.linalg.norm(claimed)), DELTA) <= EPSILON * (1 + 1e-9)


def test_an_undivided_budget_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: every release with all of what is left is far over epsilon."""
    use_slow_core(monkeypatch)
    divided = linear_pipeline.share_of

    def undivided(mu: float, share: float) -> float:
        return mu if share == 1.0 / WEIGHT_RELEASES else divided(mu, share)

    monkeypatch.setattr(linear_pipeline, "share_of", undivided)
    sizes, _ = largest_spent("add_remove")
    assert epsilon_of_separation(float(np.linalg.norm(sizes)), DELTA) > 1.5 * EPSILON


def test_each_minimiser_is_that_of_the_proximal_objective(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its gradient, from the slow twin, is as small as was certified."""
    X, codes = three_clusters()
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    mechanism = output_plan(
        epsilon=5.0,
        delta=DELTA,
        loss="margin_distance",
        n_classes=3,
        n_features=rows.shape[1],
        intercept_scaling=0.2,
        C=0.3,
        smoothing=0.5,
    )
    minimisers: list[Array] = []
    releases: list[Array] = []
    release = OutputPerturbation.release

    def watched(plan: OutputPerturbation, weights: Array, source: Any, *, n_threads: int) -> Array:
        minimisers.append(weights)
        releases.append(release(plan, weights, source, n_threads=n_threads))
        return releases[-1]

    monkeypatch.setattr(OutputPerturbation, "release", watched)
    training = Training(whitened=False, rule=None, solver=mechanism, sums=(), n_releases=3)
    last, _ = training.solved(rows, PlainRows(rows, codes, 3), NoiseSource())
    assert len(minimisers) == 3
    assert last is releases[-1]
    before = np.zeros_like(last)
    columns = np.hstack([rows, np.full((len(rows), 1), 0.2)])
    for minimiser, released in zip(minimisers, releases, strict=True):
        problem = Problem(
            columns,
            codes,
            mechanism.loss.n_scores,
            mechanism.loss.kernel,
            mechanism.regularization,
            -mechanism.regularization * before,
        )
        slope = np.linalg.norm(problem.gradient(minimiser.astype(np.longdouble)))
        assert slope <= mechanism.gradient_tol * (1.0 + 1e-6)
        # A control: the penalty of 0 alone has another minimiser.
        if before.any():
            alone = dataclasses.replace(problem, linear=None).gradient(minimiser)
            assert np.linalg.norm(alone) > 10.0 * mechanism.gradient_tol
        before = released


@pytest.mark.parametrize("estimator", [PrivateLinearSVC, PrivateKernelSVC])
def test_certificates_count_the_releases(estimator: type) -> None:
    """One event more is one release more than the budget has."""
    X, y = three_clusters()
    model = estimator(
        EPSILON, DELTA, mechanism="output", bounds=(-10.0, 10.0), classes=range(3)
    ).fit(X, y)
    statement = model.privacy_
    assert len(statement.events) == len(statement.parts) + WEIGHT_RELEASES
    assert verify(statement).ok
    assert f"{WEIGHT_RELEASES} releases" in str(statement)
    record = statement.to_dict()
    more = record["noise"] | {"n_releases": WEIGHT_RELEASES + 1}
    problems = verify(with_events(record | {"noise": more})).problems
    assert ["does not give epsilon" in problem for problem in problems] == [True]
    assert not verify(record | {"noise": more})
    assert not verify(record | {"events": [*record["events"], record["events"][-1]]})
    assert not verify(record | {"events": record["events"][: len(statement.parts)]})
    other = {**record["events"][-1], "sigma": 2.0 * record["events"][-1]["sigma"]}
    assert not verify(record | {"events": [*record["events"][:-1], other]})
