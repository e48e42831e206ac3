"""One budget for several steps of a pipeline, composed exactly.

Steps with Gaussian noise get shares of the squared Gaussian parameter; what follows them gets the
largest epsilon of its own at which everything together is within the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from dpsvm_fast.accounting import gaussian_epsilon, gaussian_sigma
from dpsvm_fast.certificates import PrivacyEvent
from dpsvm_fast.mechanisms.noise import within_budget

# Own epsilons stay this much below what the exact parameters allow: roundings add up.
ROUNDING = 1e-6


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
        What the rest spends.
    events : callable
        From an own epsilon to what is spent with it.
    """
    plan = within_budget(
        SimpleNamespace(epsilon=epsilon, delta=delta),
        tuple(before),
        lambda own: SimpleNamespace(epsilon=own, events=tuple(events(own))),
        least=1e-3,
    )
    return float(plan.epsilon)
