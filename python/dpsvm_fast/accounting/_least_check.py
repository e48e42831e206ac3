r"""A lower bound of delta, for verification: no list of events tells less than what is in it.

Gaussian sums, zCDP events and noise in objectives contain Gaussian mechanisms: of an objective, the
one of a record whose gradient is the longest wherever the noise puts the weights. Together with
randomised responses these are real pairs of neighbours, so a claim below their delta is false,
whatever else is computed. docs/proofs/accountant.md, "What verify computes is an upper bound".
"""

from __future__ import annotations

import math

from dpsvm_fast.accounting._choice_check import Choice, responses
from dpsvm_fast.accounting._gaussian_check import two_sided_delta
from dpsvm_fast.accounting.events import ObjectiveEvent

__all__ = ["least_delta_of", "least_gaussian"]

# What the roundings of one Gaussian delta may come to, and of each outcome's loss.
ROUNDING = 1e-9


def least_gaussian(law: str, n_scores: int, sigma: float, *, replace_one: bool) -> float:
    """Gaussian parameter of the record with the longest gradient of a law."""
    if law == "softmax":
        square = 2.0
    elif law == "weston_watkins":
        square = n_scores * (n_scores - 1.0)
    else:
        square = float(n_scores)
    return (2.0 if replace_one else 1.0) * math.sqrt(square) / sigma


def least_delta_of(choice: Choice, epsilon: float) -> float:
    """Lower bound of delta of what one record meets."""
    squares = [*choice.squares, *(2.0 * rho for rho in choice.rho)]
    for event in choice.curved:
        if isinstance(event, ObjectiveEvent):
            mu = least_gaussian(
                event.law, event.n_scores, event.sigma, replace_one=choice.replace_one
            )
            squares.append(mu * mu)
    mu = math.sqrt(math.fsum(squares)) * (1.0 - ROUNDING)
    losses, masses = responses(choice.pure)
    if losses.size == 1:
        # Too many outcomes: without them it is less.
        losses = losses * 0.0
    found = math.fsum(
        mass * two_sided_delta(epsilon * (1.0 + ROUNDING) - loss * (1.0 - ROUNDING), mu)
        for loss, mass in zip(losses, masses, strict=True)
        if mass > 0.0
    )
    told = choice.told
    return (1.0 - ROUNDING) * (told + (1.0 - told) * min(1.0, found))
