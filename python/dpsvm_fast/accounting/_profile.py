r"""Profiles of objective-perturbation events, and how they compose with other privacy losses.

Proved in docs/proofs/objective_perturbation.md, section "Composition"; in short: let
:math:`g(\epsilon)` be what is known about an event, an upper bound of its delta in both directions
of every pair of neighbours. The *profile*
:math:`\hat g`, the supremum of these deltas over all neighbours, lies below g, and as a function of
:math:`\alpha = e^\epsilon` it is convex: each :math:`P(S) - \alpha Q(S)` is linear, and it is a
supremum of such. Three consequences carry this module.

*Negative epsilon.* :math:`P(S) - e^{-x} Q(S) = 1 - e^{-x} + e^{-x} [Q(S^c) - e^x P(S^c)]`, and g
bounds the bracket too, which belongs to the other direction. So :math:`\hat g(-x) \le
1 - e^{-x} (1 - g(x))`.

*Interpolation.* Between two arguments, :math:`\hat g` lies below the chord of g in alpha: no
property of g is needed beyond being an upper bound at the two ends.

*Composition.* A convex profile belongs to a pair of laws that dominates the event, whatever was
released before and by whatever choice, as long as the event's own numbers were fixed beforehand;
and products of dominating pairs dominate the composition (Zhu, Dong and Wang, AISTATS 2022,
Theorem 10). With T the summed loss of all else,

.. math:: \delta(\epsilon) = E[\hat g(\epsilon - T)].

The right side needs :math:`\hat g` at many arguments and g may be dear, so it is bounded by chords
over cells of :math:`\epsilon - T`, on a grid that is refined where the chords lose most. A pair
that dominates an event outright is that of the greatest convex function below the chords: its
second derivative in alpha gives the masses of its atoms (as in Doroshenko et al., PoPETs 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpsvm_fast import _core
from dpsvm_fast._rounding import div_up, mul_up, round_up
from dpsvm_fast._validation import MAX_EPSILON
from dpsvm_fast.accounting._atoms import ERROR, Atoms
from dpsvm_fast.accounting.events import ObjectiveEvent

__all__ = ["OtherLosses", "gaussian_mu", "loss_atoms", "mixed_delta", "profile", "profile_points"]

Array = NDArray[np.float64]

# The chords may lose this share of delta; no more nodes are spent on it, fewer on dear laws.
LOSS_SHARE, MAX_NODES, MAX_DEAR_NODES = 5e-4, 512, 96
# Cells of the first grid, at most.
FIRST_CELLS = 12
# Where a law of atoms ends: what is beyond counts as an infinite loss.
NEGLIGIBLE = 1e-17
# Nodes of a law of atoms above 0: fewer where each costs a search. And its largest loss.
ATOM_NODES, DEAR_ATOM_NODES, LARGEST_LOSS = 512, 64, 256.0
# A Gaussian part smaller than this share of the numbers around it is replaced by a larger one.
SMALLEST_MU = 1e-9
# Beyond this delta is 1 at every epsilon worth a promise.
LARGEST_MU = 1e3


def gaussian_mu(event: ObjectiveEvent) -> float | None:
    """Parameter of the Gaussian mechanism whose profile bounds the event's everywhere, if any.

    One score (or a softmax of two) under ``add_remove`` whose change of variables is free at every
    epsilon >= 0: section "One score and one-vs-rest" of the proof page.
    """
    scores = {1: 1.0, 2: 2.0}.get(event.n_scores) if event.law == "softmax" else None
    if event.n_scores == 1:
        scores = 1.0
    if scores is None or event.adjacency != "add_remove":
        return None
    if event.kappa is None:
        free = event.jacobian == 0.0
    else:
        # kappa <= t^2 / 2; rounded so that a tie counts as not free.
        free = event.law in ("logistic", "softmax") and (
            mul_up(mul_up(2.0 * event.kappa, event.sigma), event.sigma) <= 1.0
        )
    return div_up(round_up(math.sqrt(scores)), event.sigma) if free else None


def profile(event: ObjectiveEvent, epsilon: float) -> float:
    """Upper bound of the event's delta at any real epsilon, in both directions."""
    if epsilon < 0.0:
        # Too small an exponential is the safe side, and so is too large a delta.
        return min(1.0, round_up(1.0 - math.exp(epsilon) * (1.0 - _bound(event, -epsilon)), 4))
    return _bound(event, epsilon)


@lru_cache(maxsize=65536)
def _bound(event: ObjectiveEvent, epsilon: float) -> float:
    """The compiled bound, which is known up to the largest epsilon and does not increase."""
    return min(
        1.0,
        _core.objective_delta(
            event.law,
            event.n_scores,
            min(epsilon, MAX_EPSILON),
            event.sigma,
            event.kappa,
            event.jacobian,
            event.adjacency == "replace_one",
        ),
    )


@dataclass(frozen=True)
class OtherLosses:
    """The summed loss of all other events: atoms, plus a Gaussian loss, or infinity.

    Parameters
    ----------
    atoms : losses and masses
        Masses rounded up.
    infinite : float >= 0
        Mass of an infinite loss.
    mu : float >= 0
        Parameter of the Gaussian events together.
    """

    atoms: Atoms
    infinite: float
    mu: float

    def masses_between(self, low: Any, high: Any) -> tuple[Array, Array]:
        """Mass under P, and mean of exp(-loss), of a loss in each (low, high]; P rounded up."""
        losses, masses = self.atoms
        if self.mu == 0.0:
            inside = (losses > low[:, None]) & (losses <= high[:, None])
            return inside @ masses * (1.0 + losses.size * ERROR), inside @ (
                masses * np.exp(-losses)
            )
        half = 0.5 * self.mu
        a = (low[:, None] - losses) / self.mu
        b = (high[:, None] - losses) / self.mu
        first = _normal_between(a - half, b - half) @ masses
        second = _normal_between(a + half, b + half) @ (masses * np.exp(-losses))
        # Probabilities are differences of rounded ones, at arguments that are differences too.
        doubt = 1e-13 + ERROR * (1.0 + float(np.abs(losses).max())) / self.mu
        widen = doubt * float(masses.sum()) * np.exp(-0.5 * _nearest_zero(a, b, half) ** 2)
        return first * (1.0 + losses.size * ERROR) + widen, second

    def span(self, reach: float) -> tuple[float, float]:
        """Interval outside of which the Gaussian part is beyond ``reach`` standard deviations."""
        losses = self.atoms[0]
        widest = reach * self.mu + 0.5 * self.mu * self.mu
        return float(losses.min()) - widest, float(losses.max()) + widest


def _normal_between(low: Array, high: Array) -> Array:
    """Probability of a standard normal number between, from the tails where those are smaller."""
    flip = low + high > 0.0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    return np.asarray(ndtr(high) - ndtr(low))


def _nearest_zero(a: Array, b: Array, half: float) -> Array:
    """Least absolute value of an argument of the two normal tails, over all atoms."""
    low, high = a - half, b + half
    nearest = np.maximum(np.maximum(low, -high), 0.0)
    return np.asarray(nearest.min(axis=1))


def mixed_delta(event: ObjectiveEvent, others: OtherLosses, epsilon: float) -> float:
    """Upper bound of delta of one objective event together with other losses."""
    if not others.mu < LARGEST_MU:
        return 1.0
    # The rounding of epsilon - T, on numbers no larger than these.
    largest = epsilon + float(np.abs(others.atoms[0]).max())
    epsilon -= 8.0 * math.ulp(1.0 + largest)
    if 0.0 < others.mu < SMALLEST_MU * (1.0 + largest):
        others = replace(others, mu=SMALLEST_MU * (1.0 + largest))
    # Beyond the reach the Gaussian part weighs little beside the result.
    at_least = max(profile(event, max(epsilon, 0.0)), 1e-300)
    reach = min(math.sqrt(25.0 - 2.0 * math.log(at_least)), 37.0)
    low, high = others.span(reach)
    nodes = _first_nodes(event, epsilon - high, epsilon - low)
    # With many atoms every node costs, and their own grid loses more than the chords.
    most = MAX_DEAR_NODES if _dear(event) or others.atoms[0].size > ATOM_NODES else MAX_NODES
    while True:
        total, gaps = _chords(event, others, epsilon, nodes)
        enough = float(gaps.sum()) <= LOSS_SHARE * total
        if enough or nodes.size >= most:
            return min(1.0, total)
        # Every cell with a fair share of the loss is halved: few rounds, few wasted nodes.
        worst = gaps >= max(0.25 * float(gaps.max()), LOSS_SHARE * total / most)
        middles = 0.5 * (nodes[:-1] + nodes[1:])[worst]
        nodes = np.sort(np.concatenate([nodes, middles]))


def _first_nodes(event: ObjectiveEvent, low: float, high: float) -> Array:
    """Multiples of a power of two around [low, high], at the scale of the event's own loss.

    Powers of two, so that questions at different epsilons share nodes.
    """
    step = math.ldexp(1.0, math.frexp(1.0 / event.sigma)[1] - 1)
    while (high - low) / step > FIRST_CELLS:
        step *= 2.0
    first, last = math.floor(low / step), math.ceil(high / step)
    return np.asarray(step * np.arange(first, max(last, first + 1) + 1), dtype=np.float64)


def _chords(
    event: ObjectiveEvent, others: OtherLosses, epsilon: float, nodes: Array
) -> tuple[float, Array]:
    """Bound of E g(epsilon - T) by chords over the cells, and about what each chord loses."""
    g = np.array([profile(event, float(x)) for x in nodes])
    # Cells of x = epsilon - T are cells of T, turned round.
    mass, image = others.masses_between(epsilon - nodes[1:], epsilon - nodes[:-1])
    width = np.diff(nodes)
    # Weight of the right end, where g is smaller: E (e^{x - left} - 1) / (e^{width} - 1).
    with np.errstate(over="ignore", invalid="ignore"):
        rise = np.exp(epsilon - nodes[:-1]) * image - mass
        steps = np.minimum(width / others.mu, 1.0) if others.mu else 1.0
        doubt = ERROR * (8.0 + abs(epsilon) + np.abs(nodes[:-1])) + (1e-12 + 1e-15 / steps)
        right = np.nan_to_num((rise - doubt * mass) / np.expm1(width), nan=0.0, posinf=0.0)
    right = np.clip(right, 0.0, mass)
    chords = g[:-1] * (mass - right) + g[1:] * right
    share = right / np.maximum(mass, 1e-320)
    logs = np.log(np.maximum(g, 1e-320))
    curves = mass * np.exp(logs[:-1] + share * np.diff(logs))
    # A larger T than the cells have, where g is at most 1; a smaller one, where g falls further.
    above, _ = others.masses_between(np.array([epsilon - nodes[0]]), np.array([math.inf]))
    below, _ = others.masses_between(np.array([-math.inf]), np.array([epsilon - nodes[-1]]))
    rest = float(above[0]) + float(below[0]) * float(g[-1]) + others.infinite
    total = (float(chords.sum()) + rest) * (1.0 + nodes.size * ERROR)
    return total, np.maximum(chords - curves, 0.0)


def _dear(event: ObjectiveEvent) -> bool:
    """Whether each value of the profile costs a search or a convolution for many conditions."""
    return event.law == "weston_watkins" or (event.law == "softmax" and event.kappa is not None)


@lru_cache(maxsize=256)
def profile_points(event: ObjectiveEvent) -> tuple[Array, Array] | None:
    r"""Increasing epsilons and bounds of delta there, convex in :math:`e^\epsilon`.

    None where the loss may be so large that a grid of it says nothing.
    """
    step = math.ldexp(1.0, math.frexp(1.0 / event.sigma)[1] - 1)
    top = step
    while profile(event, top) > NEGLIGIBLE:
        top *= 1.5
        if top > LARGEST_LOSS:
            return None
    count = DEAR_ATOM_NODES if _dear(event) else ATOM_NODES
    step = math.ldexp(1.0, math.frexp(top / count)[1])
    x = step * np.arange(-math.ceil(top / step), math.ceil(top / step) + 1)
    g = np.array([profile(event, float(point)) for point in x])
    # At alpha = 0 every delta is 1.
    kept = _convex_below(np.concatenate([[0.0], np.exp(x)]), np.concatenate([[1.0], g]))
    inner = np.array(kept[1:]) - 1
    return x[inner], g[inner]


@lru_cache(maxsize=256)
def loss_atoms(event: ObjectiveEvent) -> tuple[Atoms, float] | None:
    """Atoms of a loss that dominates the event's, and the mass of an infinite one, or None."""
    points = profile_points(event)
    if points is None:
        return None
    alpha = np.concatenate([[0.0], np.exp(points[0])])
    values = np.concatenate([[1.0], points[1]])
    rise, run = np.diff(values), np.diff(alpha)
    slopes = np.append(rise / run, 0.0)
    doubt = 4e-16 * np.append((values[:-1] + values[1:]) / run, 0.0)
    masses = alpha[1:] * (np.diff(slopes) + doubt[:-1] + doubt[1:])
    losses = np.log(alpha[1:])
    losses += 1e-15 * (1.0 + np.abs(losses))
    return (losses, np.maximum(masses, 0.0) * (1.0 + 1e-12)), float(values[-1])


def _convex_below(x: Array, y: Array) -> list[int]:
    """Indices of the greatest convex function below points with increasing x."""
    kept: list[int] = []
    for i in range(x.size):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[i] - x[b]) <= (y[i] - y[b]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return kept
