"""Wrong kernel models with noise on their weights: each named fault fails a named check.

Features of a row, with the constant one, enter a solver whose minimiser gets the noise. Whole fits
on neighbours are made to release the same (oracles/coupled.py): nothing is sampled.
"""

from __future__ import annotations

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
from oracles.faults import BOTH, EXCHANGE, MORE, ONCE, Fault, around, in_each, is_seen, put, scaled
from oracles.plans import PlainRows, plan_of

pytestmark = pytest.mark.proof("random_features", "The rule and its budget")

Array = NDArray[Any]
Patch = pytest.MonkeyPatch
Check = Callable[[str, float], bool]
D, N_ROWS = 6, 4
# Delta of Gaussian and of Gamma noise.
DELTAS = (1e-5, 0.0)


def plan(adjacency: str, delta: float) -> PrivateKernel:
    return plan_of(
        PrivateKernel,
        delta=delta,
        adjacency=adjacency,
        trainer="output",
        loss=Loss(name="margin_distance", n_classes=2, smoothing=0.5),
        n_features=D,
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
    return found.spent / float(claimed)


def event_is_kept(adjacency: str, delta: float) -> bool:
    """Whether the pair spends no more than the event says."""
    return share(adjacency, delta) <= 1.0 + 1e-12


def all_is_noisy(adjacency: str, delta: float) -> bool:
    """Whether all that differs between neighbours is hidden by noise."""
    return run_of(adjacency, delta).alike


def longer_features(patch: Patch) -> None:
    """Pairs of cosine and sine that are not divided by the root of their number; nothing clips."""
    scaled(pipeline, "feature_rows", 2.0**0.5)(patch)

    def solved(right: Any, training: Any, *data: Any) -> Any:
        object.__setattr__(training.solver, "data_norm", 2.0)
        return right(training, *data)

    around(Training, "solved", solved)(patch)


def gamma_of_number(patch: Patch) -> None:
    """Gamma follows the number of rows, which nobody released."""
    seen: list[int] = []

    def prepared(right: Any, mechanism: Any, rows: Any, source: Any) -> Any:
        seen[:] = [rows.n_rows]
        return right(mechanism, rows, source)

    def choice(right: Any, self: PrivateKernel, count: float | None) -> KernelChoice:
        kernel = right(self, count).kernel
        return KernelChoice(kernel=kernel, gamma=1.0 / (seen or [1])[0], signal=None)

    around(PrivateKernel, "prepared", prepared)(patch)
    around(PrivateKernel, "choice", choice)(patch)


def centred(right: Any, *given: Any) -> Array:
    """Features are centred by their own mean instead of a public one."""
    found = right(*given)
    return np.asarray(found - 0.5 * found.mean(axis=0))


MUTANTS: dict[str, tuple[Fault, Check, tuple[str, ...]]] = {
    # The norm of a row is that of its features.
    "constant feature not in the norm": (
        put(OutputPerturbation, "row_norm", property(lambda plan: plan.data_norm)),
        event_is_kept, MORE,
    ),
    "replacement without 2": (put(output, "RELATION_FACTOR", ONCE), event_is_kept, EXCHANGE),
    # As if a record moved the weights of its own class only.
    "L of the own class": (put(Loss, "lipschitz", 0.5**0.5), event_is_kept, BOTH),
    "weights not noisy": (
        put(WeightNoise, "release", lambda _, weights, *others: weights), all_is_noisy, BOTH,
    ),
    "features of norm sqrt 2": (longer_features, event_is_kept, MORE),
    "features centred by their mean": (
        around(pipeline, "feature_rows", centred), event_is_kept, MORE,
    ),
    "gamma of the number of rows": (gamma_of_number, all_is_noisy, MORE),
}  # fmt: skip


@pytest.mark.parametrize("delta", DELTAS)
@in_each(MUTANTS)
def test_a_wrong_model_is_rejected(
    name: str, adjacency: str, delta: float, monkeypatch: Patch
) -> None:
    fault, holds, _ = MUTANTS[name]
    assert is_seen(fault, monkeypatch, holds, adjacency, delta)


@pytest.mark.parametrize("delta", DELTAS)
def test_the_worst_neighbours_spend_what_the_events_say(delta: float) -> None:
    """Power of the checks above."""
    for adjacency in BOTH:
        assert 0.98 < share(adjacency, delta) <= 1.0 + 1e-12
