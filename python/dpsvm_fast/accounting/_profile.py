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
over cells of :math:`\epsilon - T`. A pair
that dominates an event outright is that of the greatest convex function below the chords: its
second derivative in alpha gives the masses of its atoms (as in Doroshenko et al., PoPETs 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable
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

__all__ = ["OtherLosses", "gaussian_mu", "loss_atoms", "mixed_curve", "profile", "profile_points"]

Array = NDArray[np.float64]

# Nodes between which chords are drawn; fewer where each costs a convolution, or meets many atoms.
MOST_NODES, FEW_NODES, MOST_PAIRS = 800, 128, 60_000
NODES_PER_DEVIATION, LEAST_NODES = 100.0, 16.0
# Where a law of atoms ends: what is beyond counts as an infinite loss.
NEGLIGIBLE = 1e-17
# Nodes of a law of atoms above 0, and its largest loss.
ATOM_NODES, LARGEST_LOSS = 512, 256.0
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


def mixed_curve(
    event: ObjectiveEvent, others: OtherLosses, low: float, high: float
) -> Callable[[float], float]:
    """Upper bound of delta of one objective event together with other losses.

    As a function of epsilon. It is close from ``low`` to ``high`` and a bound everywhere: what lies
    outside the nodes counts with the profile's value at the nearest smaller node, or 1.
    """
    if not others.mu < LARGEST_MU:
        return lambda _: 1.0
    # The rounding of epsilon - T, on numbers no larger than these.
    largest = high + float(np.abs(others.atoms[0]).max())
    slack, beyond = 8.0 * math.ulp(1.0 + largest), 1e-9 * (1.0 + largest)
    if 0.0 < others.mu < SMALLEST_MU * (1.0 + largest):
        others = replace(others, mu=SMALLEST_MU * (1.0 + largest))
    # Beyond the reach the Gaussian part weighs little beside the result.
    at_least = max(profile(event, max(high, 0.0)), 1e-300)
    reach = min(math.sqrt(25.0 - 2.0 * math.log(at_least)), 37.0)
    least, most = others.span(reach)
    count = MOST_NODES if _is_quick(event) else FEW_NODES
    count = min(count, max(FEW_NODES, MOST_PAIRS // others.atoms[0].size))
    # Over a short range the profile is nearly straight, and each node adds its rounding.
    wanted = NODES_PER_DEVIATION * event.sigma * (high + most - low - least)
    count = int(min(max(wanted, LEAST_NODES), count))
    nodes, g = _profile_between(event, low - most - beyond, high - least + beyond, count)
    return lambda epsilon: _chords(others, epsilon - slack, nodes, g)


def _profile_between(
    event: ObjectiveEvent, low: float, high: float, count: int
) -> tuple[Array, Array]:
    """Nodes from ``low`` to ``high``, of any sign, and bounds of delta there."""
    far = min(max(-low, high), MAX_EPSILON)
    near = min(max(low, -high, 0.0), 0.99 * far)
    x, g = _curve(event, near, far, count)
    if low >= 0.0:
        return x, g
    mirrored = np.minimum((-np.expm1(-x) + np.exp(-x) * g) * (1.0 + 4.0 * ERROR), 1.0)
    if high <= 0.0:
        return -x[::-1], mirrored[::-1]
    # The first point, next to 0, needs no second one on the other side.
    return np.concatenate([-x[:0:-1], x]), np.concatenate([mirrored[:0:-1], g])


@lru_cache(maxsize=256)
def _curve(event: ObjectiveEvent, low: float, high: float, count: int) -> tuple[Array, Array]:
    """Increasing epsilons from ``low >= 0`` to ``high`` and bounds of delta there."""
    x, g = _core.objective_profile(
        event.law,
        event.n_scores,
        low,
        high,
        count,
        event.sigma,
        event.kappa,
        event.jacobian,
        event.adjacency == "replace_one",
    )
    # What is known at one epsilon is known at all larger ones.
    return x, np.minimum.accumulate(np.minimum(g, 1.0))


def _chords(others: OtherLosses, epsilon: float, nodes: Array, g: Array) -> float:
    """Bound of E g(epsilon - T) by chords over the cells between the nodes."""
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
    # A larger T than the cells have, where g is at most 1; a smaller one, where g falls further.
    above, _ = others.masses_between(np.array([epsilon - nodes[0]]), np.array([math.inf]))
    below, _ = others.masses_between(np.array([-math.inf]), np.array([epsilon - nodes[-1]]))
    rest = float(above[0]) + float(below[0]) * float(g[-1]) + others.infinite
    return min(1.0, (float(chords.sum()) + rest) * (1.0 + nodes.size * ERROR))


def _is_quick(event: ObjectiveEvent) -> bool:
    """Whether many points of the profile cost little: one score, or one law for many of them."""
    return event.n_scores == 1 or (event.law == "softmax" and event.kappa is not None)


@lru_cache(maxsize=256)
def profile_points(event: ObjectiveEvent) -> tuple[Array, Array] | None:
    r"""Increasing epsilons and bounds of delta there, convex in :math:`e^\epsilon`.

    None where the loss may be so large that a grid of it says nothing.
    """
    top = _norm(event) / event.sigma * (9.0 + 0.5 * _norm(event) / event.sigma)
    while not top > LARGEST_LOSS and profile(event, top) > NEGLIGIBLE:
        top *= 1.3
    if top > LARGEST_LOSS:
        return None
    x, g = _profile_between(event, -top, top, ATOM_NODES if _is_quick(event) else FEW_NODES)
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


def _norm(event: ObjectiveEvent) -> float:
    """Length of the largest change of all scores' gradients together, about."""
    k = float(event.n_scores)
    one = math.sqrt({"softmax": 2.0, "weston_watkins": k * (k - 1.0)}.get(event.law, k))
    return 2.0 * one if event.adjacency == "replace_one" else one


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
