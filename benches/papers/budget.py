"""One budget for several steps of a pipeline, composed exactly.

Steps with Gaussian noise get shares of the squared Gaussian parameter; what follows them gets the
largest epsilon of its own at which everything together is within the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import log
from typing import Any

import numpy as np

from dpsvm_fast.accounting import (
    PrivacyEvent,
    composed_delta,
    gaussian_epsilon,
    gaussian_sigma,
)
from dpsvm_fast.mechanisms._composed_budget import largest_within

# Own epsilons stay this much below what the exact parameters allow: roundings add up.
ROUNDING = 1e-6
# The search for an own epsilon begins at these shares of the whole.
LEAST, MOST = 0.02, 1.0


def share_of_budget(epsilon: float, delta: float, share: float) -> float:
    """Epsilon, at the same delta, of Gaussian noise with a share of the squared parameter.

    Parameters
    ----------
    epsilon, delta : float
        Of everything together.
    share : float in (0, 1)
    """
    sigma = gaussian_sigma(epsilon, delta)
    return (1.0 - ROUNDING) * float(gaussian_epsilon(delta, sigma / share**0.5))


def events_of(model: Any, n_features: int, n_classes: int) -> tuple[PrivacyEvent, ...]:
    """What a fit on that many features and classes spends: no function of the rows."""
    n_rows = 2 * n_classes
    fitted = model.fit(np.zeros((n_rows, n_features)), np.arange(n_rows) % n_classes)
    spent: tuple[PrivacyEvent, ...] = fitted.privacy_.events
    return spent


def epsilon_beside(
    epsilon: float,
    delta: float,
    before: Sequence[PrivacyEvent],
    events: Callable[[float], Sequence[PrivacyEvent]],
) -> float:
    """About the largest own epsilon that keeps the whole within (epsilon, delta).

    Parameters
    ----------
    epsilon, delta : float
        Of everything together.
    before : sequence of PrivacyEvent
        What else is spent.
    events : callable
        From an own epsilon to what is spent with it.
    """

    @cache
    def log_excess(own: float) -> float:
        return log(composed_delta([*before, *events(own)], epsilon) / delta)

    return float(largest_within(log_excess, LEAST * epsilon, MOST * epsilon))
