r"""Epsilon and delta of a release that is made of noisy sums, recomputed from its numbers.

Gaussian noise alone composes by a formula. Sampled sums, and pure noise among others, are added up
by ``_tilted_check.py``. Gaussian noise in an objective has a profile g, and beside a Gaussian loss
T with parameter mu the whole has :math:`\delta(\epsilon) \le E[g(\epsilon - T)]`, integrated here
by the trapezoidal rule, exact to many digits for smooth integrands with Gaussian weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpsvm_fast.accounting._gaussian_check import gaussian_delta, gaussian_epsilon
from dpsvm_fast.accounting._objective_verify import GRID_SLACK, objective_profile
from dpsvm_fast.accounting._parts_verify import steps_of
from dpsvm_fast.accounting._tilted_check import Losses, composed_delta, composed_epsilon
from dpsvm_fast.accounting.statement import PrivacyStatement

__all__ = ["recomputed_total"]

# The recomputation rounds to nearest and the promise outward: how far delta may be off.
EXACT_SLACK, SUM_SLACK = 1e-9, 3e-4
# Of sums of epsilons.
EPSILON_SLACK = 1e-12
# Spacing and number of the nodes on either side, in standard deviations of the Gaussian loss.
SPACING, SIDE = 0.75, 13


def recomputed_total(statement: PrivacyStatement) -> tuple[float, float, bool]:
    """Epsilon at the claimed delta, delta at the claimed epsilon, and whether the claim holds."""
    losses, known = _losses(statement)
    epsilon, delta = statement.epsilon, statement.delta
    inside = statement.objective
    if not known:
        return math.inf, 1.0, False
    if inside is not None and inside.sigma is not None:
        g = objective_profile(statement, inside)
        if g is None or losses.pure or losses.sampled or not delta:
            return math.inf, 1.0, False
        found = _beside_gaussian(g, losses.mu, epsilon)
        return epsilon, found, found <= delta * (1.0 + GRID_SLACK)
    total = math.fsum(size * count for size, count in losses.pure)
    if not (losses.mu or losses.sampled):
        holds = total <= epsilon * (1.0 + EPSILON_SLACK)
        return total, 0.0 if holds else 1.0, holds
    if not delta:
        return math.inf, 1.0, False
    if losses.sampled or losses.pure:
        found = composed_delta(epsilon, losses)
        return composed_epsilon(delta, losses, epsilon), found, found <= delta * (1.0 + SUM_SLACK)
    found = gaussian_delta(epsilon, losses.mu)
    return gaussian_epsilon(delta, losses.mu), found, found <= delta * (1.0 + EXACT_SLACK)


def _losses(statement: PrivacyStatement) -> tuple[Losses, bool]:
    """All noise but the Gaussian one inside an objective, and whether each has its numbers."""
    squares: list[float] = []
    pure: list[tuple[float, int]] = []
    sampled: list[tuple[float, float, int]] = []
    for part in statement.parts:
        moved = part.relation_factor * part.contribution
        if part.beta is not None:
            pure.append((part.beta * moved, 1))
        elif part.sigma is not None and part.sampling_rate < 1.0:
            sampled.append((part.sigma / part.contribution, part.sampling_rate, part.n_steps))
        elif part.sigma is not None:
            squares.append(steps_of(part) * (moved / part.sigma) ** 2)
    s, noise, inside = statement.sensitivity, statement.noise, statement.objective
    if s is not None and noise is not None:
        if noise.beta is not None:
            pure.append((noise.beta * s.total, 1))
        elif noise.sigma is not None:
            squares.append((s.total / noise.sigma) ** 2)
    if inside is not None and inside.beta is not None:
        pure.append((inside.epsilon, 1))
    losses = Losses(
        mu=math.sqrt(math.fsum(squares)),
        sampled=tuple(sampled),
        pure=tuple(pure),
        replace_one=statement.adjacency == "replace_one",
    )
    numbers = [losses.mu, *(size for size, _ in pure), *(z for z, _, _ in sampled)]
    return losses, all(map(math.isfinite, numbers)) and all(z > 0.0 for z, _, _ in sampled)


def _beside_gaussian(g: Callable[[float], float], mu: float, epsilon: float) -> float:
    """Mean of the profile at epsilon less a Gaussian loss."""
    if mu == 0.0:
        return g(epsilon)
    nodes = SPACING * np.arange(-SIDE, SIDE + 1)
    weights = SPACING * np.exp(-0.5 * nodes**2) / math.sqrt(2.0 * math.pi)
    values = [g(epsilon - mu * (0.5 * mu + float(x))) for x in nodes]
    return float(weights @ np.array(values))
