"""Wrong centres of several ellipsoids on purpose: each named fault fails a named check.

Checks compose exactly what is drawn on the worst neighbours (oracles/coupled.py): nothing is
sampled and there are no false alarms.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast.mechanisms import gaussian_margin
from dpsvm_fast.mechanisms import gaussian_margin as anchors
from dpsvm_fast.mechanisms.gaussian_margin import STEPS, GaussianMargin, NoisyAnchors
from dpsvm_fast.mechanisms.noise import NoisySum
from oracles.coupled import coupled

Array = NDArray[Any]
Patch = pytest.MonkeyPatch


@dataclasses.dataclass(frozen=True)
class Cells:
    """Centres of several ellipsoids, and neighbours as far apart as any for them."""

    adjacency: str = "add_remove"
    mu: float | None = 0.4

    def anchors(self) -> NoisyAnchors:
        return NoisyAnchors(
            n_classes=2,
            n_ellipsoids=2,
            n_features=4,
            adjacency=self.adjacency,
            noise_grid="exact",
            mu=self.mu,
            epsilon=None if self.mu else 0.4,
        )

    def neighbours(self) -> list[tuple[Any, Any]]:
        """Rows twice as long as allowed, which the estimator shortens; and their opposites."""
        base = 0.5 * np.random.default_rng(2).normal(size=(500, 4))
        axis = 2.0 * np.eye(4)[:1]
        codes = np.arange(500) % 2
        first = (np.vstack([base, axis]), np.append(codes, 1))
        if self.adjacency == "add_remove":
            return [(first, (base, codes))]
        others = [
            (np.vstack([base, sign * axis]), np.append(codes, c)) for sign, c in ((-1, 1), (1, 0))
        ]
        return [(first, other) for other in others]

    def are_covered(self) -> bool:
        """Whether all steps together spend no more than their events say, and nothing is told."""

        def run(data: Any, source: Any) -> Array:
            rows = gaussian_margin.unit_rows(data[0], 1.0)
            return found.release(rows, data[1], source, 1)

        found = self.anchors()
        for pair in self.neighbours():
            one = coupled(run, *pair)
            if not np.array_equal(*one.outcomes):
                return False
            if self.mu:
                spent = float(np.linalg.norm(one.sizes))
                claimed = math.sqrt(sum(part.event.mu**2 for part in found.sums))  # type: ignore[union-attr]
            else:
                spent = float(one.sizes.sum())
                claimed = sum(part.event.epsilon for part in found.sums)  # type: ignore[union-attr]
            if spent > claimed * (1.0 + 1e-12):
                return False
        return True


def budget_is_kept() -> bool:
    """Whether the epsilons of all that is drawn add up to no more than the budget."""
    found = GaussianMargin(
        epsilon=2.0,
        delta=0.0,
        adjacency="add_remove",
        noise="gamma",
        noise_grid="exact",
        loss="huber_ww",
        smoothing=0.5,
        margin=1.0,
        n_classes=2,
        n_ellipsoids=2,
        n_features=2,
        data_norm=1.0,
        trace_weight=0.0,
        C=0.5,
        extra_regularization=2.0,
        tol=1e-5,
    )
    assert found.anchors is not None
    rates = [part.scale * part.sensitivity for part in (found.anchors.sum,) * STEPS]
    solver = found.solver
    rates += [solver.inside.epsilon, solver.output.scale * solver.output.total]
    return sum(rates) <= found.epsilon * (1.0 + 1e-12)


def count_for_nothing(patch: Patch) -> None:
    """The sensitivity is that of the rows alone."""
    patch.setattr(anchors, "sqrt_up", lambda _: 1.0)


def anchors_without_factor(patch: Patch) -> None:
    patch.setattr(anchors, "RELATION_FACTOR", {"add_remove": 1, "replace_one": 1})


def one_step_counted(patch: Patch) -> None:
    """Three sums are released, and one is accounted for."""
    patch.setattr(NoisyAnchors, "sums", property(lambda anchors: (anchors.sum,)))


def long_rows(patch: Patch) -> None:
    """Rows are not shortened to norm 1."""
    patch.setattr(gaussian_margin, "unit_rows", lambda X, data_norm: X / data_norm)


def plain_sums(patch: Patch) -> None:
    """Noise is drawn and not added."""
    original = NoisySum.release

    def release(self: NoisySum, total: Array, *others: Any) -> Array:
        original(self, total, *others)
        return total

    patch.setattr(NoisySum, "release", release)


def exact_means(patch: Patch) -> None:
    """The first cells meet in the exact mean of the rows."""
    original = NoisyAnchors.release

    def release(self: NoisyAnchors, rows: Array, *others: Any) -> Array:
        return np.asarray(original(self, rows, *others) + rows.mean(axis=0))

    patch.setattr(NoisyAnchors, "release", release)


def anchors_for_nothing(patch: Patch) -> None:
    """The matrices get the whole budget."""
    patch.setattr(
        GaussianMargin,
        "solver",
        property(lambda found: found._with_budget(found.epsilon, found.delta)),
    )


CELLS = [Cells().are_covered, Cells(mu=None).are_covered]
EXCHANGED = [Cells("replace_one").are_covered, Cells("replace_one", None).are_covered]
MUTANTS: dict[str, tuple[Callable[[Patch], None], list[Callable[[], bool]]]] = {
    "count for nothing": (count_for_nothing, CELLS),
    "replacement without 2": (anchors_without_factor, EXCHANGED),
    "one step counted": (one_step_counted, CELLS + EXCHANGED),
    "rows not shortened": (long_rows, CELLS + EXCHANGED),
    "sums not noisy": (plain_sums, CELLS + EXCHANGED),
    "exact means": (exact_means, CELLS + EXCHANGED),
    "for nothing": (anchors_for_nothing, [budget_is_kept]),
}


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@pytest.mark.parametrize(
    ("name", "i"), [(name, i) for name, (_, checks) in MUTANTS.items() for i in range(len(checks))]
)
def test_wrong_centres_are_rejected(name: str, i: int, monkeypatch: Patch) -> None:
    mutate, checks = MUTANTS[name]
    assert checks[i]()
    mutate(monkeypatch)
    assert not checks[i]()
