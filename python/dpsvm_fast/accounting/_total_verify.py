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

from dpsvm_fast.accounting._event_verify import recomputed_events
from dpsvm_fast.accounting._gaussian_check import gaussian_delta, gaussian_epsilon
from dpsvm_fast.accounting._objective_verify import objective_profile
from dpsvm_fast.accounting._parts_verify import reserved_events, steps_of, weight_releases
from dpsvm_fast.accounting._tilted_check import Losses, composed_delta, composed_epsilon
from dpsvm_fast.accounting.statement import PrivacyStatement

__all__ = ["recomputed_composition", "recomputed_events", "recomputed_total"]

# The recomputation rounds to nearest and the promise outward: how far delta may be off.
EXACT_SLACK, SUM_SLACK, GRID_SLACK = 1e-9, 3e-4, 2e-3
# Of sums of epsilons.
EPSILON_SLACK = 1e-12
# Spacing and number of the nodes on either side, in standard deviations of the Gaussian loss.
SPACING, SIDE = 0.75, 13
# Pure events beside noise in an objective of which every outcome is gone through.
MOST_RESPONSES = 8


def recomputed_total(statement: PrivacyStatement) -> tuple[float, float, bool]:
    """Epsilon at the claimed delta, delta at the claimed epsilon, and whether the claim holds."""
    return recomputed_composition((statement,), statement.epsilon, statement.delta)


def recomputed_composition(
    statements: tuple[PrivacyStatement, ...], epsilon: float, delta: float
) -> tuple[float, float, bool]:
    """The same for releases on the same records together, and a claim about all of them.

    Parameters
    ----------
    statements : tuple of PrivacyStatement
        Of one neighbouring relation; with Gaussian noise in the objective of one of them at most,
        and of none beside sampled sums. Nothing is confirmed otherwise.
    epsilon, delta : float
        The claim.
    """
    losses, known = _losses(statements)
    inside = [s for s in statements if s.objective is not None and s.objective.sigma is not None]
    if not known or len(inside) > 1:
        return math.inf, 1.0, False
    for statement in inside:
        return _with_objective(statement, losses, epsilon, delta)
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


def _with_objective(
    statement: PrivacyStatement, losses: Losses, epsilon: float, delta: float
) -> tuple[float, float, bool]:
    """Gaussian noise in one objective, all other losses beside it."""
    inside = statement.objective
    g = None if inside is None else objective_profile(statement, inside)
    if g is None or losses.sampled or not delta:
        return math.inf, 1.0, False
    found = math.fsum(
        mass * _beside_gaussian(g, losses.mu, epsilon - loss)
        for loss, mass in _responses(losses.pure)
    )
    return epsilon, found, found <= delta * (1.0 + GRID_SLACK)


def _responses(pure: tuple[tuple[float, int], ...]) -> list[tuple[float, float]]:
    """Loss and mass of every outcome of randomised responses; of many, their largest loss alone."""
    sizes = [size for size, count in pure for _ in range(count)]
    if len(sizes) > MOST_RESPONSES:
        return [(math.fsum(sizes), 1.0)]
    outcomes = [(0.0, 1.0)]
    for size in sizes:
        likely = 1.0 / (1.0 + math.exp(-size))
        outcomes = [
            (loss + sign * size, mass * (likely if sign > 0.0 else 1.0 - likely))
            for loss, mass in outcomes
            for sign in (1.0, -1.0)
        ]
    return outcomes


def _losses(statements: tuple[PrivacyStatement, ...]) -> tuple[Losses, bool]:
    """All noise but the Gaussian one inside objectives, and whether each has its numbers."""
    squares: list[float] = []
    pure: list[tuple[float, int]] = []
    sampled: list[tuple[float, float, int]] = []
    for statement in statements:
        _add_losses(statement, squares, pure, sampled)
    losses = Losses(
        mu=math.sqrt(math.fsum(squares)),
        sampled=tuple(sampled),
        pure=tuple(pure),
        replace_one=statements[0].adjacency == "replace_one",
    )
    numbers = [losses.mu, *(size for size, _ in pure), *(z for z, _, _ in sampled)]
    return losses, all(map(math.isfinite, numbers)) and all(z > 0.0 for z, _, _ in sampled)


def _add_losses(
    statement: PrivacyStatement,
    squares: list[float],
    pure: list[tuple[float, int]],
    sampled: list[tuple[float, float, int]],
) -> None:
    """Add the noises of one statement to squared Gaussian, pure and sampled sizes."""
    for part in statement.parts:
        moved = part.relation_factor * part.contribution
        if part.beta is not None:
            pure.append((part.beta * moved, 1))
        elif part.sigma is not None and part.sampling_rate < 1.0:
            sampled.append((part.sigma / part.contribution, part.sampling_rate, part.n_steps))
        elif part.sigma is not None:
            squares.append(steps_of(part) * (moved / part.sigma) ** 2)
    squares.extend(event.mu**2 for event in reserved_events(statement))
    s, noise, inside = statement.sensitivity, statement.noise, statement.objective
    if s is not None and noise is not None:
        times = weight_releases(statement)
        if noise.beta is not None:
            pure.append((noise.beta * s.total, times))
        elif noise.sigma is not None:
            squares.append(times * (s.total / noise.sigma) ** 2)
    if inside is not None and inside.beta is not None:
        pure.append((inside.epsilon, 1))


def _beside_gaussian(g: Callable[[float], float], mu: float, epsilon: float) -> float:
    """Mean of the profile at epsilon less a Gaussian loss."""
    if mu == 0.0:
        return g(epsilon)
    nodes = SPACING * np.arange(-SIDE, SIDE + 1)
    weights = SPACING * np.exp(-0.5 * nodes**2) / math.sqrt(2.0 * math.pi)
    values = [g(epsilon - mu * (0.5 * mu + float(x))) for x in nodes]
    return float(weights @ np.array(values))
