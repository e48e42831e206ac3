"""Wrong objective perturbation on purpose: the exact densities see each named fault.

Every test first shows that the untouched mechanism passes the check that its mutant fails. The
numbers audited are those that the estimator's own mechanism draws its noise with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from dpsvm_fast.mechanisms import objective as linear_noise
from dpsvm_fast.mechanisms.objective import LinearNoise
from oracles.objective_density import Pair, gaussian_deltas
from oracles.objective_pairs import Setting, kernel_of, pushed
from oracles.objective_pure import pure_epsilon
from oracles.wrong_losses import (
    halved_curvature,
    no_gaussian_jacobian,
    no_jacobian,
    one_pairs_gradient,
)
from oracles.wrong_noise import forgotten_record, forgotten_relation, scaled, unused_extra

Patch = pytest.MonkeyPatch

# As in the property tests: integration error on a line, and the local search's rounding.
DELTA_TOL, EPSILON_TOL = 5e-4, 1e-9


@dataclasses.dataclass(frozen=True)
class World:
    """A pair on which the claim is met, or nearly, and the budget."""

    name: str
    kappa: float
    epsilon: float
    delta: float
    adjacency: str = "add_remove"
    target: float = 0.0
    # In units of the smoothing: how far the place of full gradients is from W = 0.
    depth: float = 20.0
    n_scores: int = 1

    @property
    def pair(self) -> Pair:
        kernel = kernel_of(self.name, self.kappa, 4.0, 0.0)
        kernel = (*kernel[:2], 1.0 + self.depth * kernel[1])
        replace_one = self.adjacency == "replace_one"
        return pushed(kernel, 4.0, self.target, replace_one=replace_one, n_scores=self.n_scores)

    def plan(self) -> LinearNoise:
        """What the mechanism decides on."""
        setting = Setting(self.pair, 1.0, self.adjacency == "replace_one")
        return LinearNoise(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            noise="gaussian" if self.delta else "gamma",
            exact=False,
            loss=setting.loss,
            row_norm=1.0,
            shape=(self.n_scores, 1),
            C=1.0 / (0.5 * self.pair.regularization),
            extra=0.5 * self.pair.regularization,
            tol=1e-3,
        )

    def holds(self) -> bool:
        """Whether the exact densities of the pair keep the claim."""
        plan = self.plan()
        pair = dataclasses.replace(self.pair, regularization=plan.regularization)
        if self.delta:
            n = 121 if pair.size == 1 else 341
            found = gaussian_deltas(pair, plan.scale, np.array([self.epsilon]), n)
            return bool(found.max() <= self.delta * (1.0 + DELTA_TOL))
        return pure_epsilon(pair, plan.scale) <= self.epsilon * (1.0 + EPSILON_TOL)


def always_free(patch: Patch) -> None:
    """The rate without a Jacobian, whatever the curvature."""
    patch.setattr(
        linear_noise, "largest_rate", lambda loss, e, _, factor: e / factor / loss.lipschitz
    )


PURE = World("huber", 2.0, 1.0, 0.0)
PURE_REPLACED = dataclasses.replace(PURE, adjacency="replace_one")
PAIR = World("huber_ww", 0.5, 1.0, 0.0, n_scores=2)
THREE = World("huber_ww", 0.3, 1.5, 0.0, n_scores=3)
MUTANTS: dict[str, tuple[Callable[[Patch], None], World]] = {
    "beta instead of beta / 2": (forgotten_record, PURE_REPLACED),
    "beta 1 percent too large": (scaled("largest_rate", 1.01), PURE),
    "no Jacobian": (no_jacobian, PURE),
    "no Jacobian, replacement": (no_jacobian, PURE_REPLACED),
    "no Jacobian, Gaussian": (
        no_gaussian_jacobian,
        World("huber", 1.0, 0.3, 0.0068, target=9.0),
    ),
    "curvature halved": (halved_curvature, PURE),
    "curvature halved, replacement": (halved_curvature, PURE_REPLACED),
    "curvature halved, logistic": (halved_curvature, World("softplus", 4.0, 1.0, 0.0)),
    "no Jacobian, pairs of two classes": (no_jacobian, PAIR),
    "no Jacobian, pairs of three classes": (no_jacobian, THREE),
    "curvature halved, pairs": (halved_curvature, THREE),
    "one pair's gradient for all": (one_pairs_gradient, THREE),
    "no Jacobian, pairs, Gaussian": (
        no_gaussian_jacobian,
        World("huber_ww", 0.25, 0.3, 1e-4, target=4.5, n_scores=2),
    ),
    "no Jacobian, pairs of three classes, Gaussian": (
        no_gaussian_jacobian,
        World("huber_ww", 0.25, 0.5, 1e-4, target=3.0, n_scores=3),
    ),
    "extra regularisation unused": (unused_extra, PURE),
    "sigma 5 percent too small": (
        scaled("noise_multiplier", 0.95),
        World("softplus", 1.0, 1.0, 1e-5, target=-20.0),
    ),
    "sigma 5 percent too small, replacement": (
        scaled("noise_multiplier", 0.95),
        World("softplus", 0.005, 4.0, 1e-3, "replace_one"),
    ),
    "replacement as addition": (
        forgotten_relation,
        World("softplus", 1.0, 1.0, 1e-5, "replace_one"),
    ),
    "replacement as addition, huber": (
        forgotten_relation,
        World("huber", 0.1, 1.0, 1e-5, "replace_one"),
    ),
    "free Jacobian beyond its threshold": (always_free, World("softplus", 4.0, 1.0, 0.0)),
    "free Jacobian beyond its threshold, Gaussian": (
        no_gaussian_jacobian,
        World("softplus", 4.0, 1.0, 0.0068, target=1.1),
    ),
}


@pytest.mark.proof("objective_perturbation", "Densities in both worlds, and the claims")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_scale_is_seen(name: str, monkeypatch: Patch) -> None:
    mutate, world = MUTANTS[name]
    assert world.holds()
    mutate(monkeypatch)
    assert not world.holds()
