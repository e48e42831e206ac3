"""Wrong objective perturbation on purpose: the exact densities see each named fault.

Every test first shows that the untouched mechanism passes the check that its mutant fails. The
numbers audited are those that the estimator's own mechanism draws its noise with.
"""

from __future__ import annotations

import dataclasses

import pytest

from dpsvm_fast.mechanisms import objective
from dpsvm_fast.mechanisms.objective import LinearNoise
from oracles.faults import (
    Fault,
    around,
    forgotten_record,
    forgotten_relation,
    halved_curvature,
    is_seen,
    no_gaussian_jacobian,
    no_jacobian,
    one_pairs_gradient,
    scaled,
    unused_extra,
)
from oracles.objective_pairs import Setting, World


def holds(world: World) -> bool:
    """Whether the exact densities of the pair keep what the mechanism claims."""
    pair = world.pair
    plan = LinearNoise(
        epsilon=world.epsilon,
        delta=world.delta,
        adjacency=world.adjacency,
        noise="gaussian" if world.delta else "gamma",
        noise_grid="float",
        loss=Setting(pair, 1.0, world.adjacency == "replace_one").loss,
        row_norm=1.0,
        shape=(world.n_scores, 1),
        C=2.0 / pair.regularization,
        extra=0.5 * pair.regularization,
        tol=1e-3,
    )
    return world.is_kept_by(plan.regularization, plan.scale)


# The rate without a Jacobian, whatever the curvature.
always_free = around(
    objective, "largest_rate", lambda _, loss, e, ratio, factor: e / factor / loss.lipschitz
)
PURE = World("huber", 2.0, 1.0)
PURE_REPLACED = dataclasses.replace(PURE, adjacency="replace_one")
PAIR = World("huber_ww", 0.5, 1.0, n_scores=2)
THREE = World("huber_ww", 0.3, 1.5, n_scores=3)
SOFT = World("softplus", 4.0, 1.0)
MUTANTS: dict[str, tuple[Fault, World]] = {
    "beta instead of beta / 2": (forgotten_record, PURE_REPLACED),
    "beta 1 percent too large": (scaled(objective, "largest_rate", 1.01), PURE),
    "no Jacobian": (no_jacobian, PURE),
    "no Jacobian, replacement": (no_jacobian, PURE_REPLACED),
    "no Jacobian, Gaussian": (no_gaussian_jacobian, World("huber", 1.0, 0.3, 0.0068, target=9.0)),
    "curvature halved": (halved_curvature, PURE),
    "curvature halved, replacement": (halved_curvature, PURE_REPLACED),
    "curvature halved, logistic": (halved_curvature, SOFT),
    "no Jacobian, pairs of two classes": (no_jacobian, PAIR),
    "no Jacobian, pairs of three classes": (no_jacobian, THREE),
    "curvature halved, pairs": (halved_curvature, THREE),
    "one pair's gradient for all": (one_pairs_gradient, THREE),
    "no Jacobian, pairs, Gaussian": (
        no_gaussian_jacobian, World("huber_ww", 0.25, 0.3, 1e-4, target=4.5, n_scores=2),
    ),
    "no Jacobian, pairs of three classes, Gaussian": (
        no_gaussian_jacobian, World("huber_ww", 0.25, 0.5, 1e-4, target=3.0, n_scores=3),
    ),
    "extra regularisation unused": (unused_extra, PURE),
    "sigma 5 percent too small": (
        scaled(objective, "noise_multiplier", 0.95),
        World("softplus", 1.0, 1.0, 1e-5, target=-20.0),
    ),
    "sigma 5 percent too small, replacement": (
        scaled(objective, "noise_multiplier", 0.95),
        World("softplus", 0.005, 4.0, 1e-3, "replace_one"),
    ),
    "replacement as addition": (
        forgotten_relation, World("softplus", 1.0, 1.0, 1e-5, "replace_one"),
    ),
    "replacement as addition, huber": (
        forgotten_relation, World("huber", 0.1, 1.0, 1e-5, "replace_one"),
    ),
    "free Jacobian beyond its threshold": (always_free, SOFT),
    "free Jacobian beyond its threshold, Gaussian": (
        no_gaussian_jacobian, World("softplus", 4.0, 1.0, 0.0068, target=1.1),
    ),
}  # fmt: skip


@pytest.mark.proof("objective_perturbation", "Densities in both worlds, and the claims")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_scale_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, world = MUTANTS[name]
    assert is_seen(fault, monkeypatch, holds, world)
