"""Wrong kernel pipelines on purpose: each named fault fails a check of what neighbours spend.

As for the linear pipeline, whole fits on neighbours are made to release the same
(oracles/coupled.py): what differs in the end was released without noise, and what was hidden by
noise was paid for. Nothing is sampled.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast.certificates import GaussianEvent, PrivacyEvent
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms import pipeline as descent_rule
from dpsvm_fast.mechanisms.pipeline import KernelChoice, NoisyCount, PrivateKernel, PrivateLinear
from dpsvm_fast.mechanisms.rows import PublicMap
from oracles.audit import epsilon_of_separation
from oracles.coupled import Coupling, coupled, opposed, use_slow_core
from oracles.plans import PlainRows
from twins.noisy_descent import Records

Array = NDArray[Any]
Patch = pytest.MonkeyPatch
EPSILON, DELTA = 4.0, 1e-5
D, N_ROWS = 6, 60
RELATIONS = ("add_remove", "replace_one")
# Gradients of records on either side of a far margin never fall below the clip norm.
LOSS = Loss(name="softmax_margin", n_classes=2, margin=50.0)
PATHS: dict[str, dict[str, Any]] = {
    "centred": {"whiten": False},
    "whitened": {"whiten": True},
    "lengths": {"normalize": False, "centred": False},
}


@pytest.fixture(autouse=True)
def slow(monkeypatch: Patch) -> None:
    use_slow_core(monkeypatch)


def plan(adjacency: str, path: str, kernel: str = "rbf") -> PrivateKernel:
    return PrivateKernel(
        epsilon=EPSILON,
        delta=DELTA,
        adjacency=adjacency,
        trainer="gradient",
        noise_grid="exact",
        loss=LOSS,
        n_features=D,
        fit_intercept=True,
        kernel=kernel,
        n_components=8,
        **PATHS[path],
    )


def neighbours(adjacency: str) -> list[tuple[Any, Any]]:
    """All common records are of one class: what one does to all others adds up in gradients."""
    rows = np.random.default_rng(0).normal(size=(N_ROWS, D))
    y = np.zeros(N_ROWS, dtype=np.int64)
    return opposed(rows, y, adjacency)


def run(mechanism: PrivateKernel) -> Callable[[Any, Any], Any]:
    plan = dataclasses.replace(mechanism, public=PublicMap(unit=mechanism.normalize))
    return lambda data, source: plan.run(PlainRows(*data), source)


def runs(adjacency: str, path: str, kernel: str = "rbf") -> list[Coupling]:
    mechanism = plan(adjacency, path, kernel)
    return [coupled(run(mechanism), *pair) for pair in neighbours(adjacency)]


def spent(adjacency: str, path: str) -> tuple[list[PrivacyEvent], Array]:
    """Events of the path, and the largest squared size of each over all pairs."""
    found = runs(adjacency, path)
    training = found[0].outcomes[0].training
    counts = {"count": 1, "centre": 1, "whitening": 2, "training": training.rule.n_steps}
    ends = np.cumsum([0] + [counts[part.name] for part in training.sums])[:-1]
    squares = np.max([np.add.reduceat(one.sizes**2, ends) for one in found], axis=0)
    return list(training.events), squares


def shares(adjacency: str, path: str) -> Array:
    """What each part spent over what its event says; at most 1, and hardly less."""
    events, squares = spent(adjacency, path)
    claimed = [event.mu for event in events if isinstance(event, GaussianEvent)]
    return np.asarray(np.sqrt(squares) / claimed)


def parts_are_covered(adjacency: str) -> bool:
    """Whether no part spends more than its event says."""
    return all((shares(adjacency, path) <= 1.0 + 1e-12).all() for path in PATHS)


def budget_is_kept(adjacency: str) -> bool:
    """Whether all parts together spend no more than the declared budget, on each path."""
    for path in PATHS:
        total = float(np.sqrt(spent(adjacency, path)[1].sum()))
        if epsilon_of_separation(total, DELTA) > EPSILON * (1.0 + 1e-9):
            return False
    return True


def all_is_noisy(adjacency: str) -> bool:
    """Whether all that differs between neighbours is hidden by noise."""
    outcomes = [
        one.outcomes
        for path in PATHS
        for kernel in ("rbf", "laplacian", "auto")
        for one in runs(adjacency, path, kernel)
    ]
    return all(pickle.dumps(here) == pickle.dumps(there) for here, there in outcomes)


def plain_count(patch: Patch) -> None:
    """The number of rows is released as it is."""
    original = NoisyCount.release

    def release(self: NoisyCount, n_rows: int, source: Any, n_threads: int) -> float:
        original(self, n_rows, source, n_threads)
        return float(n_rows)

    patch.setattr(NoisyCount, "release", release)


def free_count(patch: Patch) -> None:
    """The number of rows is released and nothing is taken away for it."""
    patch.setattr(PrivateKernel, "_first", PrivateLinear._first)


def halved_count(patch: Patch) -> None:
    """The number of rows has a quarter of the noise's variance."""
    original = NoisyCount.release

    def release(self: NoisyCount, n_rows: int, source: Any, n_threads: int) -> float:
        assert self.mu is not None
        return original(dataclasses.replace(self, mu=2.0 * self.mu), n_rows, source, n_threads)

    patch.setattr(NoisyCount, "release", release)


def rule_of_rows(patch: Patch) -> None:
    """Gamma follows the number of rows itself."""
    fit = PrivateKernel.prepared

    def prepared(mechanism: Any, rows: Any, source: Any) -> Any:
        return dataclasses.replace(fit(mechanism, rows, source), count=float(rows.n_rows))

    patch.setattr(PrivateKernel, "prepared", prepared)


def gamma_of_records(patch: Patch) -> None:
    """Gamma is one over the median squared distance of the rows."""
    fit, choose = PrivateKernel.prepared, PrivateKernel.choice
    seen: list[float] = []

    def prepared(mechanism: Any, raw: Any, source: Any) -> Any:
        ready = fit(mechanism, raw, source)
        rows = ready.records.rows
        seen[:] = [float(np.median(np.square(rows[:, None] - rows).sum(axis=2)))]
        return ready

    def choice(self: PrivateKernel, count: float | None) -> KernelChoice:
        found = choose(self, count)
        if not seen or found.gamma is None:
            return found
        return dataclasses.replace(found, gamma=1.0 / seen[0])

    patch.setattr(PrivateKernel, "prepared", prepared)
    patch.setattr(PrivateKernel, "choice", choice)


def mean_feature_subtracted(patch: Patch) -> None:
    """Features are centred by their own mean instead of a public one."""
    lift = Records.lift

    def lifted(self: Records, *given: Any) -> None:
        lift(self, *given)
        self.rows = np.trunc((self.rows - self.rows.mean(axis=0)) * 2.0**19) * 2.0**-20

    patch.setattr(Records, "lift", lifted)


def no_factor(patch: Patch) -> None:
    """An exchanged record counts once in the training."""
    factors = {"add_remove": 1, "replace_one": 1}
    patch.setattr(descent_rule, "RELATION_FACTOR", factors)


BOTH, EXCHANGE, MORE = RELATIONS, ("replace_one",), ("add_remove",)
MUTANTS: dict[str, tuple[Callable[[Patch], None], Callable[[str], bool], tuple[str, ...]]] = {
    "count: not noisy": (plain_count, all_is_noisy, MORE),
    "count: for nothing": (free_count, budget_is_kept, MORE),
    "count: half the noise": (halved_count, parts_are_covered, MORE),
    "rule: of the rows themselves": (rule_of_rows, all_is_noisy, MORE),
    "gamma: of the distances": (gamma_of_records, all_is_noisy, BOTH),
    "features: centred by their mean": (mean_feature_subtracted, parts_are_covered, BOTH),
    "training: replacement without 2": (no_factor, parts_are_covered, EXCHANGE),
}


@pytest.mark.parametrize(
    ("name", "adjacency"), [(n, a) for n, (_, _, relations) in MUTANTS.items() for a in relations]
)
def test_a_wrong_pipeline_is_rejected(name: str, adjacency: str, monkeypatch: Patch) -> None:
    mutate, holds, _ = MUTANTS[name]
    assert holds(adjacency)
    mutate(monkeypatch)
    assert not holds(adjacency)


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("path", PATHS)
def test_the_worst_neighbours_spend_the_whole_budget(adjacency: str, path: str) -> None:
    """Power of the checks above: every part attains its claim, and all together the budget."""
    found = shares(adjacency, path)
    assert (found <= 1.0 + 1e-12).all()
    names = [part.name for part in runs(adjacency, path)[0].outcomes[0].training.sums]
    # No pair of rows stays orthogonal when all are turned by what earlier noise made of them.
    again = [i for i, name in enumerate(names) if name == "whitening" and name in names[:i]]
    assert (found[again] >= 0.85).all()
    assert (np.delete(found, again) >= 0.99).all()
    total = float(np.sqrt(spent(adjacency, path)[1].sum()))
    assert 0.98 * EPSILON <= epsilon_of_separation(total, DELTA) <= EPSILON * (1.0 + 1e-9)
