"""Wrong kernel models with noise on their weights: each named fault fails a named check.

Features of a row, with the constant one, enter a solver whose minimiser gets the noise. Whole fits
on neighbours are made to release the same (oracles/coupled.py): nothing is sampled.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast.certificates import GaussianEvent
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms import output, pipeline
from dpsvm_fast.mechanisms.noise import WeightNoise
from dpsvm_fast.mechanisms.output import OutputPerturbation
from dpsvm_fast.mechanisms.pipeline import KernelChoice, PrivateKernel, Training
from dpsvm_fast.mechanisms.rows import PublicMap
from oracles.coupled import Coupling, coupled
from oracles.plans import PlainRows

Array = NDArray[Any]
Patch = pytest.MonkeyPatch
Check = Callable[[str, float], bool]
D, N_ROWS = 6, 4
RELATIONS = ("add_remove", "replace_one")
# Delta of Gaussian and of Gamma noise.
DELTAS = (1e-5, 0.0)


def plan(adjacency: str, delta: float) -> PrivateKernel:
    return PrivateKernel(
        epsilon=1.0,
        delta=delta,
        adjacency=adjacency,
        trainer="output",
        noise_grid="exact",
        loss=Loss(name="margin_distance", n_classes=2, smoothing=0.5),
        n_features=D,
        fit_intercept=True,
        whiten=False,
        centred=False,
        normalize=False,
        kernel="rbf",
        gamma=0.5,
        n_components=8,
        public=PublicMap(unit=False, data_norm=1.0),
    )


def neighbours(adjacency: str) -> tuple[Any, Any]:
    """A record more, or one of another class: so few that every margin stays violated.

    All common records are of one class: whatever a record does to all of them adds up.
    """
    rows = 0.4 * np.random.default_rng(0).normal(size=(N_ROWS, D))
    codes = np.ones(N_ROWS, dtype=np.int64)
    more = np.vstack([rows, rows[:1]])
    first = (more, np.append(codes, 0))
    return first, (rows, codes) if adjacency == "add_remove" else (more, np.append(codes, 1))


def run_of(adjacency: str, delta: float) -> Coupling:
    mechanism = plan(adjacency, delta)

    def run(data: Any, source: Any) -> Any:
        return mechanism.run(PlainRows(*data), source)

    return coupled(run, *neighbours(adjacency))


def share(adjacency: str, delta: float) -> float:
    """What the pair spent over what the events say."""
    found = run_of(adjacency, delta)
    (event,) = found.outcomes[0].training.events
    claimed = event.mu if isinstance(event, GaussianEvent) else event.epsilon
    return float(np.linalg.norm(found.sizes)) / float(claimed)


def event_is_kept(adjacency: str, delta: float) -> bool:
    """Whether the pair spends no more than the event says."""
    return share(adjacency, delta) <= 1.0 + 1e-12


def all_is_noisy(adjacency: str, delta: float) -> bool:
    """Whether all that differs between neighbours is hidden by noise."""
    here, there = run_of(adjacency, delta).outcomes
    return pickle.dumps(here) == pickle.dumps(there)


def constant_for_nothing(patch: Patch) -> None:
    """The norm of a row is that of its features, without the constant one."""
    patch.setattr(OutputPerturbation, "row_norm", property(lambda plan: plan.data_norm))


def exchanged_once(patch: Patch) -> None:
    patch.setattr(output, "RELATION_FACTOR", {"add_remove": 1, "replace_one": 1})


def one_score(patch: Patch) -> None:
    """L = sqrt(1/2), as if a record moved the weights of its own class only."""
    patch.setattr(Loss, "lipschitz", 0.5**0.5)


def unnoticed_noise(patch: Patch) -> None:
    """The minimiser is released as it is."""
    patch.setattr(WeightNoise, "release", lambda _, weights, *others: weights)


def longer_features(patch: Patch) -> None:
    """Pairs of cosine and sine that are not divided by the root of their number; nothing clips."""
    rows, solve = pipeline.feature_rows, Training.solved
    patch.setattr(pipeline, "feature_rows", lambda *a: 2.0**0.5 * rows(*a))

    def solved(training: Any, *data: Any) -> Any:
        object.__setattr__(training.solver, "data_norm", 2.0)
        return solve(training, *data)

    patch.setattr(Training, "solved", solved)


def mean_feature_subtracted(patch: Patch) -> None:
    """Features are centred by their own mean instead of a public one."""
    original = pipeline.feature_rows

    def rows(*given: Any) -> Array:
        found = original(*given)
        return np.asarray(found - 0.5 * found.mean(axis=0))

    patch.setattr(pipeline, "feature_rows", rows)


def gamma_of_number(patch: Patch) -> None:
    """Gamma follows the number of rows, which nobody released."""
    fit, choose = PrivateKernel.prepared, PrivateKernel.choice
    seen: list[int] = []

    def prepared(mechanism: Any, rows: Any, source: Any) -> Any:
        seen[:] = [rows.n_rows]
        return fit(mechanism, rows, source)

    def choice(self: PrivateKernel, count: float | None) -> KernelChoice:
        found = choose(self, count)
        return KernelChoice(kernel=found.kernel, gamma=1.0 / (seen or [1])[0], signal=None)

    patch.setattr(PrivateKernel, "prepared", prepared)
    patch.setattr(PrivateKernel, "choice", choice)


BOTH, EXCHANGE, MORE = RELATIONS, ("replace_one",), ("add_remove",)
MUTANTS: dict[str, tuple[Callable[[Patch], None], Check, tuple[str, ...]]] = {
    "constant feature not in the norm": (constant_for_nothing, event_is_kept, MORE),
    "replacement without 2": (exchanged_once, event_is_kept, EXCHANGE),
    "L of the own class": (one_score, event_is_kept, BOTH),
    "weights not noisy": (unnoticed_noise, all_is_noisy, BOTH),
    "features of norm sqrt 2": (longer_features, event_is_kept, MORE),
    "features centred by their mean": (mean_feature_subtracted, event_is_kept, MORE),
    "gamma of the number of rows": (gamma_of_number, all_is_noisy, MORE),
}


@pytest.mark.proof("random_features", "The rule and its budget")
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(
    ("name", "adjacency"), [(n, a) for n, (_, _, relations) in MUTANTS.items() for a in relations]
)
def test_a_wrong_model_is_rejected(
    name: str, adjacency: str, delta: float, monkeypatch: Patch
) -> None:
    mutate, holds, _ = MUTANTS[name]
    assert holds(adjacency, delta)
    mutate(monkeypatch)
    assert not holds(adjacency, delta)


@pytest.mark.proof("random_features", "The rule and its budget")
@pytest.mark.parametrize("delta", DELTAS)
def test_the_worst_neighbours_spend_what_the_events_say(delta: float) -> None:
    """Power of the checks above."""
    for adjacency in RELATIONS:
        assert 0.98 < share(adjacency, delta) <= 1.0 + 1e-12
