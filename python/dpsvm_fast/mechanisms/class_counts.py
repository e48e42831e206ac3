"""Class weights by noisy numbers of rows: the release of those, and the training after it.

Proved in docs/proofs/persons.md, section "Class counts". Weights are functions of what was
released, and at most 1 whatever that is: to the training they are public numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from dpsvm_fast import _core
from dpsvm_fast.certificates import PrivacyEvent, PrivacyStatement
from dpsvm_fast.mechanisms.noise import (
    NoisySum,
    SumRelease,
    gaussian_parameter,
    share_of,
    within_budget,
)
from dpsvm_fast.mechanisms.plan import Facts, Plan, Rows, filled
from dpsvm_fast.rounding import sqrt_up

# Of the squared Gaussian parameter, for the counts; and what they are taken for at least, in
# deviations of their noise.
CLASS_SHARE, MIN_COUNT = 0.02, 3.0


@dataclass(frozen=True, kw_only=True)
class ClassCounts(SumRelease):
    """Release of the number of rows of each class.

    Parameters
    ----------
    n_classes : int >= 2
    """

    n_classes: int

    @classmethod
    def before(cls, whole: Any, n_classes: int) -> ClassCounts:
        """Return the release that takes its share of a budget with ``epsilon`` and ``delta``."""
        mu = share_of(gaussian_parameter(whole.epsilon, whole.delta), CLASS_SHARE)
        return filled(cls, whole, mu=mu, epsilon=None, n_classes=n_classes)

    @cached_property
    def sum(self) -> NoisySum:
        """The noise and what it covers."""
        factor = 1.0 if self.adjacency == "add_remove" else sqrt_up(2.0)
        facts: Any = {"clip_norm": 1.0, "relation_factor": factor, "shape": (self.n_classes,)}
        return NoisySum.of_multiples(2.0**-20, name="classes", **facts, **self.budget)

    def balance(self, rows: Rows, source: _core.NoiseSource) -> None:
        """Weigh each class by the inverse of its noisy number of rows; the rarest by 1."""
        noisy = self.sum.release(rows.class_counts(), source, rows.n_threads)
        # What noise alone would be no more than counts as so much.
        counts = np.maximum(noisy, max(1.0, MIN_COUNT * self.sum.scale))
        rows.balance(counts.min() / counts)


@dataclass(frozen=True, kw_only=True)
class BalancedPlan(Plan):
    """Plan of class counts and of training on rows that they weigh.

    Parameters
    ----------
    epsilon, delta : float
        Of both together.
    class_counts : ClassCounts
    training : Plan
        With a ``statement``, and a budget that exact composition leaves it.
    """

    epsilon: float
    delta: float
    class_counts: ClassCounts
    training: Any

    @classmethod
    def of(cls, whole: Any, facts: Facts, plan_of: Callable[..., Plan]) -> BalancedPlan:
        """Return the plan within a budget; ``plan_of`` plans training for a given epsilon."""
        counts = ClassCounts.before(whole, facts.n_classes)
        spent, one = (counts.event,), replace(facts, n_features=None)
        like = (spent, partial(plan_of, facts=one))
        training = within_budget(whole, spent, partial(plan_of, facts=facts), like=like)
        return filled(cls, whole, class_counts=counts, training=training)

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Event of the class counts, and events of the training."""
        return (self.class_counts.event, *self.training.events)

    @property
    def weighed_training(self) -> Any:
        """The plan that trains, after the class counts."""
        return self.training

    def run(self, rows: Rows, source: _core.NoiseSource) -> Any:
        """Release the class counts, then train and return the training's release."""
        self.class_counts.balance(rows, source)
        return self.training.run(rows, source)

    def summary(self) -> str:
        """Return public facts in one line."""
        return f"{self.training.summary()}, after noisy class counts"

    def statement(self, **occasion: Any) -> PrivacyStatement:
        """Return the statement about both together."""
        own: PrivacyStatement = self.training.statement(**occasion)
        parts = (self.class_counts.sum.part, *own.parts)
        return replace(own, epsilon=self.epsilon, delta=self.delta, parts=parts)
