"""Blind averaging: the one round of DP-Helmet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dpsvm_fast.accounting.words import summed_over_parties
from dpsvm_fast.federated._counts import PartyCounts
from dpsvm_fast.federated.noise import delta_left, multiplier_of, plan_noise
from dpsvm_fast.federated.plans import RoundPlan
from dpsvm_fast.federated.training import LocalTraining

__all__ = ["HelmetPlan", "averaged_models"]


def averaged_models(training: LocalTraining, counts: PartyCounts, multiplier: float) -> RoundPlan:
    """The sum of noisy local models, with so much noise at sensitivity 1."""
    noise = plan_noise(
        size=training.size,
        distance=training.distance,
        bound=training.bound,
        n_affected=training.n_affected,
        counts=counts,
        multiplier=multiplier,
    )
    return RoundPlan(
        name="model",
        what=summed_over_parties("model", training.weighting),
        size=training.size,
        codec=noise.codec,
        noise=noise,
    )


@dataclass(frozen=True, kw_only=True)
class HelmetPlan:
    """Every party fits a model; one sum averages them.

    Parameters
    ----------
    epsilon, delta : float
    counts : PartyCounts
    training : LocalTraining
    """

    epsilon: float
    delta: float
    counts: PartyCounts
    training: LocalTraining

    @cached_property
    def rounds(self) -> tuple[RoundPlan, ...]:
        """The one sum."""
        left = delta_left(self.epsilon, self.delta, 1)
        return (averaged_models(self.training, self.counts, multiplier_of(self.epsilon, left)),)
