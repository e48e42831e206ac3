r"""Objective perturbation with Gaussian noise: noise scale and delta, each from the other.

The release is the exact minimiser of :math:`\sum_i \phi_{y_i}(W \tilde x_i) + \tfrac{\lambda}{2}
\|W\|_F^2 + \langle B, W \rangle`, rows of norm at most :math:`\kappa_t`, B with independent
Gaussian components of standard deviation sigma. Everything here is in the unit
:math:`\kappa_t = 1`: a sigma is a multiple of the bound of the rows' norm.

Thin shells around the compiled laws: they check the arguments and look up the law of the loss.
Proved in docs/proofs/objective_perturbation.md and docs/proofs/joint_bound.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dpsvm_fast import _core
from dpsvm_fast.certificates.events import ObjectiveEvent
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import SMOOTH_LOSSES, Loss
from dpsvm_fast.rounding import SMALLEST_FLOAT, add_up, div_down, mul_up, round_up
from dpsvm_fast.validation import (
    MAX_EPSILON,
    check_adjacency,
    check_epsilon,
    check_integer,
    check_non_negative,
    check_option,
    check_positive,
    check_real,
)

Array = NDArray[np.float64]

# Bound of the relative error of one function of scipy.special or numpy, generously.
ERROR = 4e-15
# Points of a profile that costs little. Where each costs a convolution: least and most of them, and
# about the milliseconds for all.
POINTS = 512
MIN_COSTLY, MAX_COSTLY, COSTLY_TOTAL = 12, 96, 500.0
# Number of events of one law that are distinguished: those with a cheap curve, with one of a tenth
# of a second, and at most of those whose every point costs.
MAX_CHEAP_KINDS, MAX_KINDS, MAX_COSTLY_KINDS = 64, 12, 4
# Jacobian of one score over the deviation of its loss from which it is counted in full: then it
# is nearly all of the loss, and a point would cost 50 ms.
MOSTLY_JACOBIAN = 300.0
# With this many scores, one value of a joint law may take a fifth of a second.
VERY_MANY_SCORES = 10_000
# A larger loss is too large for a useful grid.
LARGEST_LOSS = 256.0

# Beside a Gaussian loss: nodes between which chords are drawn, fewer where each takes a joint law
# or meets many atoms, or the profile is nearly straight.
MAX_NODES, JOINT_NODES, FEW_NODES, MAX_PAIRS = 800, 400, 128, 60_000
NODES_PER_DEVIATION, MIN_NODES = 100.0, 16.0
# Precision of the end of a curve; where a second curve starts, and its end.
ROUGHLY, NEAR_END, CLOSELY = 1e-3, 0.9, 1e-9
# A Gaussian part smaller than this share of the numbers around it is replaced by a larger one.
SMALLEST_MU_SHARE = 1e-9
# Delta of noise in an objective among other events is raised by this factor, for verifiers
# with separate tables.
HEADROOM = 1.0005


def objective_sigma(
    epsilon: float,
    delta: float,
    *,
    loss: str,
    n_classes: int = 2,
    kappa: float | None = None,
    jacobian: float | None = None,
    adjacency: str = "add_remove",
) -> float:
    r"""Return the noise scale of objective perturbation for (epsilon, delta).

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    delta : float in (0, 1)
    loss : str
        A smooth loss of :class:`dpsvm_fast.losses.Loss` but ``margin_distance``. Two classes
        have one score, except with ``m3`` and ``huber_ww``.
    n_classes : int >= 2, default=2
    kappa : float > 0, optional
        Curvature ratio :math:`\kappa_t^2 / (\lambda \tau)` with tau the temperature of the loss:
        its smoothing, 1 for ``logistic``, half its smoothing for ``huber``.
    jacobian : float >= 0, optional
        A bound of :math:`\log \det (I + H / \lambda)` over the Hessians H of one record, in place
        of ``kappa``. Exactly one of the two must be given.
    adjacency : {"add_remove", "replace_one"}

    Returns
    -------
    float
        Standard deviation of each component of B, over the bound of the rows' norm.

    Raises
    ------
    TypeError, InvalidParameterError
        An argument of another type, outside its range, or both or none of kappa and jacobian; a
        change of variables that alone costs more than epsilon, so that no noise is enough.

    Notes
    -----
    Guarantees: :func:`objective_delta` at the returned sigma is at most ``delta``; the search for
    the smallest such sigma ends on its safe side, so the noise is never too small. The guarantee is
    about the exact minimiser in real arithmetic; what an approximate one costs on top is in
    docs/proofs/objective_perturbation.md, section "Approximate minimum".

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate, JMLR 12 (2011), section 3.3; Kifer, Smith and Thakurta, COLT
    2012; Redberg, Koskela and Wang, NeurIPS 2023, for one score.

    Examples
    --------
    >>> from dpsvm_fast.accounting import objective_sigma
    >>> round(objective_sigma(1.0, 1e-5, loss="logistic", kappa=0.5), 3)
    3.731
    """
    law, n_scores, kappa, jacobian, replace_one = _settings(
        loss, n_classes, kappa, jacobian, adjacency
    )
    epsilon = check_epsilon("epsilon", epsilon)
    delta = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    try:
        return _core.objective_sigma(
            law, n_scores, epsilon, delta, kappa, None, jacobian, replace_one
        )
    except ValueError as error:
        raise InvalidParameterError(str(error)) from None


def objective_delta(
    epsilon: float,
    sigma: float,
    *,
    loss: str,
    n_classes: int = 2,
    kappa: float | None = None,
    jacobian: float | None = None,
    adjacency: str = "add_remove",
) -> float:
    r"""Return delta of objective perturbation at a given epsilon and noise scale.

    Parameters
    ----------
    epsilon : float in [0, 1e4]
    sigma : float > 0
        Standard deviation of each component of B, over the bound of the rows' norm.
    loss, n_classes, kappa, jacobian, adjacency
        As in :func:`objective_sigma`.

    Returns
    -------
    float in [0, 1]
        Rounded up.

    Raises
    ------
    TypeError, InvalidParameterError
        An argument of another type, outside its range, or both or none of kappa and jacobian.

    Notes
    -----
    Guarantees: an upper bound of the delta of both directions of every pair of neighbours. The
    privacy loss is at most U on every path, and

    .. math:: \delta(\epsilon) \le E (1 - e^{\epsilon - U})_+.

    With :math:`t = 1/\sigma`, independent standard normal z and :math:`c_0` the Jacobian,
    for ``add_remove``:

    - one score: :math:`U = c_0 + \max(0, t^2/2 + t z)`, the Gaussian mechanism at
      :math:`\epsilon - c_0`. For ``logistic``, ``softplus`` and ``softmax_margin`` curvature and
      gradient share one supremum, :math:`U = \sup_{0 \le u \le 1} [t u z + t^2 u^2/2 +
      \log(1 + \kappa u (1 - u))]`, and :math:`c_0` disappears when
      :math:`\kappa \le \epsilon + t^2/2`;
    - one-vs-rest: the sum of as many independent terms of that kind;
    - ``softmax_margin``, K > 2: the smaller of :math:`c_0 + \max(0, t^2 + t \max_{k \ne y}
      (z_k - z_y))` with :math:`c_0 = (K - 1) \log(1 + \kappa/K)`, and the joint bound of
      docs/proofs/joint_bound.md;
    - ``m3``, ``huber_ww``: :math:`c_0 + \sum_{k \ne y} \max(0, K t^2/2 + t (z_k - z_y))` with
      :math:`c_0 = \log(1 + K \kappa/2) + (K - 2) \log(1 + \kappa/2)`.

    ``replace_one`` is in docs/proofs/objective_perturbation.md, section "Replacement".

    References
    ----------
    As for :func:`objective_sigma`.

    Examples
    --------
    >>> from dpsvm_fast.accounting import gaussian_delta, objective_delta
    >>> delta = objective_delta(1.0, 4.0, loss="logistic", kappa=0.5)
    >>> abs(delta / gaussian_delta(1.0, 4.0) - 1.0) < 1e-9
    True
    """
    law, n_scores, kappa, jacobian, replace_one = _settings(
        loss, n_classes, kappa, jacobian, adjacency
    )
    epsilon = check_real("epsilon", epsilon, low=0.0, high=MAX_EPSILON)
    sigma = check_positive("sigma", sigma)
    try:
        bound = _core.objective_delta(law, n_scores, epsilon, sigma, kappa, jacobian, replace_one)
    except ValueError as error:
        raise InvalidParameterError(str(error)) from None
    return min(1.0, bound)


def _settings(
    loss: object, n_classes: object, kappa: object, jacobian: object, adjacency: object
) -> tuple[str, int, float | None, float | None, bool]:
    """Return law and scores of a loss, kappa or Jacobian, and whether records are replaced."""
    name = check_option("loss", loss, SMOOTH_LOSSES)
    table = Loss(name=name, n_classes=check_integer("n_classes", n_classes, 2))
    if (kappa is None) == (jacobian is None):
        raise InvalidParameterError("kappa: expected exactly one of kappa and jacobian")
    ratio = None if kappa is None else check_positive("kappa", kappa)
    given = None if jacobian is None else check_non_negative("jacobian", jacobian)
    replace_one = check_adjacency("adjacency", adjacency) == "replace_one"
    return table.law, table.n_scores, ratio, given, replace_one


# The profile of an event: upper bounds of its delta, in both directions of every pair of
# neighbours. docs/proofs/objective_perturbation.md, "Composition": as a function of e^epsilon the
# true one is convex, so it lies below every chord of its bounds, and it belongs to a pair of laws
# that dominates the event.


def profile(event: ObjectiveEvent, epsilon: float) -> float:
    """Return an upper bound of the event's delta at any real epsilon, in both directions."""
    if epsilon < 0.0:
        # Too small an exponential is the safe side, and so is too large a delta.
        return min(1.0, round_up(1.0 - math.exp(epsilon) * (1.0 - _bound(event, -epsilon)), 4))
    return _bound(event, epsilon)


@lru_cache(maxsize=65536)
def _bound(event: ObjectiveEvent, epsilon: float) -> float:
    """Return the compiled bound, computed up to the largest epsilon, made non-increasing."""
    at = min(epsilon, MAX_EPSILON)
    return min(1.0, _core.objective_delta(event.law, event.n_scores, at, *_noise_of(event)))


def _noise_of(event: ObjectiveEvent) -> tuple[float, float | None, float | None, bool]:
    """Return arguments of the compiled bounds after the law and the epsilons."""
    return event.sigma, event.kappa, event.jacobian, event.adjacency == "replace_one"


@lru_cache(maxsize=256)
def profile_points(
    event: ObjectiveEvent, floor: float, share: float = 1.0
) -> tuple[Array, Array] | None:
    """Return increasing epsilons from 0 and bounds of delta there, down to about ``floor``.

    None if the loss may be too large for any grid. Costly points get a ``share`` of the time for
    one event.
    """
    top = _top(event)
    if not is_quick(event):
        x, g = _costly_points(event, top, floor, share)
        return (x, g) if x[-1] <= LARGEST_LOSS else None
    if event.n_scores > VERY_MANY_SCORES:
        top = reach(event)
    while not top > LARGEST_LOSS and profile(event, top) > floor:
        top *= 1.3
    return _curve(event, 0.0, top, POINTS) if top <= LARGEST_LOSS else None


def _top(event: ObjectiveEvent) -> float:
    """Return about the largest loss without the Jacobian: nine deviations above the mean."""
    k, records = float(event.n_scores), 2.0 if event.adjacency == "replace_one" else 1.0
    square = {"softmax": 2.0, "weston_watkins": k * (k - 1.0)}.get(event.law, k)
    # About the length of the largest change of all scores' gradients together.
    norm = records * math.sqrt(square) / event.sigma
    return norm * (9.0 + 0.5 * norm)


def reach(event: ObjectiveEvent) -> float:
    """Return about the largest loss, at most 1e4."""
    return min(add_up(_top(event), _largest_jacobian(event)), MAX_EPSILON)


def group_points(event: ObjectiveEvent, size: int, floor: float) -> tuple[Array, Array] | None:
    """Return points of the curve of several records of one person, bounded together.

    Their gradient is the mean of what each gives ``size`` times, and their Jacobians add up:
    docs/proofs/accountant.md, "Groups of records". None as in :func:`profile_points`.
    """
    sigma = div_down(event.sigma, float(size))
    points = profile_points(replace(event, sigma=sigma, kappa=None, jacobian=0.0), floor)
    if points is None:
        return None
    x, g = points
    # For one record's loss V, cut at the last point: E(V - x)_+ is g and its integral from x on,
    # here of chords in e^x.
    width = np.diff(x)
    bend = width / np.expm1(width)
    pieces = g[:-1] * (width - 1.0 + bend) + g[1:] * (1.0 - bend) + g[:-1] * (1.0 + width) * ERROR
    excess = g + np.append(np.cumsum(pieces[::-1])[::-1], 0.0)
    # That of any record is beyond that point.
    rest = size * float(np.min(g[:-1] / -np.expm1(x[:-1] - x[-1])))
    deltas = -np.expm1(-excess) + rest
    whole = mul_up(_largest_jacobian(event), float(size))
    return (x + whole) * (1.0 + ERROR), np.minimum(deltas * (1.0 + x.size * ERROR), 1.0)


def _largest_jacobian(event: ObjectiveEvent) -> float:
    """Return the largest log-determinant of one record, rounded up."""
    if event.kappa is None:
        assert event.jacobian is not None
        return event.jacobian
    return _core.objective_log_determinant(event.law, event.n_scores, event.kappa)


def on_chords(event: ObjectiveEvent, epsilon: float, parts: int = 1) -> float:
    """Return a bound of the profile at ``epsilon >= 0`` by chords between many points.

    They are found together for each of some ``parts`` of the range, the more closely the more.
    """
    width = reach(event) / parts
    part = int(min(epsilon / width, parts - 1.0))
    x, g = _curve(event, part * width, (part + 1) * width, POINTS)
    i = int(np.searchsorted(x, epsilon, "right")) - 1
    if i < 0 or i + 1 >= x.size:
        return profile(event, epsilon)
    # All terms are positive, also where g falls by many orders in one cell.
    left = math.exp(epsilon - x[i]) * math.expm1(x[i + 1] - epsilon) / math.expm1(x[i + 1] - x[i])
    return mul_up(float(g[i + 1] + (g[i] - g[i + 1]) * left), 1.0 + 8.0 * ERROR)


def is_quick(event: ObjectiveEvent) -> bool:
    """Return whether many points of the profile are cheap: one score, or one shared law."""
    return event.n_scores == 1 or (event.law == "softmax" and event.kappa is not None)


def is_joint(event: ObjectiveEvent) -> bool:
    """Return whether the gradient and Jacobian of several scores of a softmax count together."""
    return event.law == "softmax" and event.kappa is not None and event.n_scores > 2


def most_kinds(event: ObjectiveEvent) -> int:
    """Return how many kinds of events of one law are kept apart: fewer if they are costly."""
    if event.n_scores == 1:
        return MAX_CHEAP_KINDS
    if is_quick(event):
        return MAX_KINDS
    return int(min(max(COSTLY_TOTAL / (MIN_COSTLY * point_cost(event)), 1.0), MAX_COSTLY_KINDS))


# Scores in pairs up to which a point is a convolution.
MAX_CONVOLVED = 49


def point_cost(event: ObjectiveEvent) -> float:
    """Estimate the milliseconds that one point of the profile takes, or can take."""
    if is_joint(event):
        # Alone; with all others of a curve it is cheap.
        return 50.0
    if is_quick(event):
        return 0.1
    if event.law == "weston_watkins":
        # With more pairs their sum is not convolved.
        return 10.0 + 1.3 * event.n_scores if event.n_scores <= MAX_CONVOLVED else 3.0
    return 1.0 + event.n_scores / 2500.0 + min(0.55 * _jacobian_share(event), 80.0)


@lru_cache(maxsize=256)
def _curve(event: ObjectiveEvent, low: float, high: float, count: int) -> tuple[Array, Array]:
    """Return increasing epsilons from ``low >= 0`` to ``high`` and bounds of delta there."""
    x, g = _core.objective_profile(event.law, event.n_scores, low, high, count, *_noise_of(event))
    # A bound at one epsilon holds at all larger ones.
    return x, np.minimum.accumulate(np.minimum(g, 1.0))


def _costly_points(
    event: ObjectiveEvent, top: float, floor: float, share: float
) -> tuple[Array, Array]:
    """Return few epsilons >= 0 and bounds of delta there, dense where delta falls to ``floor``.

    Each is put where the chord may lie farthest above the curve, as a difference of epsilons.
    """
    if event.kappa is not None and _jacobian_share(event) > MOSTLY_JACOBIAN:
        # Nearly all of the loss: it is counted in full.
        event = replace(event, kappa=None, jacobian=_largest_jacobian(event))
    jacobian = event.n_scores * _jacobian_share(event) / event.sigma
    at = sorted({0.0, min(jacobian, MAX_EPSILON), min(jacobian + top, MAX_EPSILON)})
    values = [profile(event, x) for x in at]
    while values[-1] > floor and at[-1] < MAX_EPSILON:
        at.append(min(2.0 * at[-1], MAX_EPSILON))
        values.append(profile(event, at[-1]))
    enough = share * COSTLY_TOTAL / point_cost(event)
    for _ in range(int(min(max(enough, MIN_COSTLY), MAX_COSTLY))):
        i = int(np.argmax(_missed(np.array(at), np.maximum(values, floor))))
        at.insert(i + 1, 0.5 * (at[i] + at[i + 1]))
        values.insert(i + 1, profile(event, at[i + 1]))
    return np.array(at), np.minimum.accumulate(values)


def _missed(x: Array, g: Array) -> Array:
    """Estimate how much larger an epsilon the chord of each cell gives than the curve.

    A convex curve lies above the neighbouring chords, drawn on into the cell.
    """
    alpha = np.exp(x - x[-1])
    middle, half = 0.5 * (g[:-1] + g[1:]), 0.5 * np.diff(alpha)
    # Powers far below the largest epsilon underflow.
    with np.errstate(all="ignore"):
        slopes = np.diff(g) / np.diff(alpha)
        from_left = np.append(0.0, g[1:-1] + slopes[:-1] * half[1:])
        from_right = np.append(g[1:-1] - slopes[1:] * half[:-1], 0.0)
        least = np.maximum(np.maximum(from_left, from_right), g[1:])
        share = np.nan_to_num(np.log(middle / least) / np.log(g[:-1] / g[1:]))
    # Tiny deltas count less.
    share = np.clip(share, 0.0, 1.0)
    return np.asarray(np.diff(x) * share * np.where(g[:-1] < 1e-13, 0.25, 1.0))


def _jacobian_share(event: ObjectiveEvent) -> float:
    """Return Jacobian over deviation of the loss of one score; 0 if not computed jointly."""
    if event.law != "logistic" or event.kappa is None or event.adjacency == "replace_one":
        return 0.0
    return event.sigma * math.log1p(0.25 * event.kappa)


# Steps to where a curve crosses delta; about ten are usual. What a jump needs more is not worth its
# time: from then on each step may end the search a few times sooner than the one before.
USUAL_CROSSINGS, SOONER, MAX_CROSSINGS = 10, 3.0, 200
# A search ends where the sides of a jump are that near to each other, relatively.
NEAR_JUMP = 5e-7
# No smaller epsilon is tried first.
SMALLEST_HIGH = 1e-3


def crossing(
    curve: Callable[[float], float], delta: float, low: float, high: float, within: float = 1e-12
) -> float:
    """Return roughly the smallest epsilon in [low, high] where a falling curve is <= ``delta``.

    By steps between logarithms, which are nearly straight. The curve was evaluated at what is
    returned and is low enough there, unless that is ``high``.
    """
    wanted = math.log(delta)
    weight_low = math.log(max(curve(low), SMALLEST_FLOAT)) - wanted
    weight_high = math.log(max(curve(high), SMALLEST_FLOAT)) - wanted
    if weight_low <= 0.0:
        return low
    log_low, flat = weight_low, False
    for step in range(MAX_CROSSINGS):
        near = min(within * SOONER ** max(0, step - USUAL_CROSSINGS), max(within, NEAR_JUMP))
        if weight_high >= 0.0 or high - low <= near * high:
            break
        share = 0.5 if flat or step % 4 == 3 else weight_low / (weight_low - weight_high)
        margin = 2e-13 * high / (high - low)
        middle = low + (high - low) * min(max(share, margin), 1.0 - margin)
        found = math.log(max(curve(middle), SMALLEST_FLOAT)) - wanted
        # There is no slope to follow before a jump.
        flat = found == log_low
        if found <= 0.0:
            weight_low *= 0.5 if weight_high <= 0.0 else 1.0
            high, weight_high = middle, found
        else:
            low, weight_low, log_low = middle, found, found
            weight_high *= 0.5
    return high


# One event with a Gaussian loss, more sharply than on a grid: with T the summed loss of all else,
# :math:`\delta(\epsilon) = E[g(\epsilon - T)]`, and g lies below its chords.


@dataclass(frozen=True)
class ObjectiveWithGaussian:
    """Delta of one quick objective event with a Gaussian loss and losses with few values.

    Parameters
    ----------
    event : ObjectiveEvent
    mu : float > 0
        Parameter of the Gaussian events together.
    losses, masses : ndarray
        Values of the other losses, and their probabilities, rounded up.
    """

    event: ObjectiveEvent
    mu: float
    losses: Array
    masses: Array

    def delta(self, epsilon: float) -> float:
        """Return delta at an epsilon."""
        return self.between(epsilon, epsilon)(epsilon)

    def epsilon(self, delta: float) -> float:
        """Return epsilon at a delta."""
        # Each try draws a curve.
        high = self.most()
        while self.delta(high) > delta:
            high *= 2.0
            if high > MAX_EPSILON:
                return math.inf
        # The nodes of a curve are spread over its whole range: a second one is drawn where it
        # counts.
        high = crossing(self.between(0.0, high), delta, 0.0, high, ROUGHLY)
        low = NEAR_END * high
        return crossing(self.between(low, high), delta, low, high, CLOSELY)

    def most(self) -> float:
        """Return about the largest loss."""
        most = reach(self.event) + self.mu * (8.0 + 0.5 * self.mu)
        return min(max(most + float(self.losses.max()), SMALLEST_HIGH), MAX_EPSILON)

    def between(self, low: float, high: float) -> Callable[[float], float]:
        """Return an upper bound of delta by epsilon, close to it from ``low`` to ``high``.

        It is a bound everywhere: what lies outside the nodes counts with the profile's value at
        the nearest smaller node, or 1.
        """
        # The rounding of epsilon - T, on numbers no larger than these.
        largest = high + float(np.abs(self.losses).max())
        slack, beyond = 8.0 * math.ulp(1.0 + largest), 1e-9 * (1.0 + largest)
        larger = replace(
            self,
            mu=max(self.mu, SMALLEST_MU_SHARE * (1.0 + largest)),
            # A little more than probabilities, whatever they were multiplied from.
            masses=self.masses * (1.0 + 3.0 * ERROR),
        )
        # Beyond the reach the Gaussian part is small compared with the result.
        at_least = max(profile(self.event, max(high, 0.0)), 1e-300)
        reach = min(math.sqrt(25.0 - 2.0 * math.log(at_least)), 37.0)
        widest = reach * larger.mu + 0.5 * larger.mu * larger.mu
        least, most = float(self.losses.min()) - widest, float(self.losses.max()) + widest
        most_nodes = JOINT_NODES if is_joint(self.event) else MAX_NODES
        count = min(most_nodes, max(FEW_NODES, MAX_PAIRS // self.losses.size))
        # Over a short range the profile is nearly straight, and each node adds its rounding.
        enough = NODES_PER_DEVIATION * self.event.sigma * (high + most - low - least)
        count = int(min(max(enough, MIN_NODES), count))
        nodes, g = _profile_between(self.event, low - most - beyond, high - least + beyond, count)
        return lambda epsilon: min(1.0, mul_up(larger._chords(epsilon - slack, nodes, g), HEADROOM))

    def _chords(self, epsilon: float, nodes: Array, g: Array) -> float:
        """Bound of E g(epsilon - T) by chords over the cells between the nodes."""
        # Cells of x = epsilon - T are cells of T, turned round. Beyond them a larger T, where g is
        # at most 1, and a smaller one, where g falls further.
        masses, images = self._masses(np.concatenate([[-np.inf], epsilon - nodes[::-1], [np.inf]]))
        (below, *_, above), mass, image = masses, masses[-2:0:-1], images[-2:0:-1]
        width = np.diff(nodes)
        # Weight of the right end, where g is smaller: E (e^{x - left} - 1) / (e^{width} - 1).
        with np.errstate(over="ignore", invalid="ignore"):
            rise = np.exp(epsilon - nodes[:-1]) * image - mass
            steps = np.minimum(width / self.mu, 1.0)
            doubt = ERROR * (8.0 + abs(epsilon) + np.abs(nodes[:-1])) + (1e-12 + 1e-15 / steps)
            sure = rise - doubt * (mass + np.abs(rise))
            right = np.nan_to_num(sure / np.expm1(width), nan=0.0, posinf=0.0)
        right = np.clip(right, 0.0, mass)
        chords = g[:-1] * (mass - right) + g[1:] * right
        rest = float(above) + float(below) * float(g[-1])
        return min(1.0, (float(chords.sum()) + rest) * (1.0 + nodes.size * ERROR))

    def _masses(self, edges: Array) -> tuple[Array, Array]:
        """Return the mass under P, and the mean of exp(-loss), of a loss between increasing edges.

        P is rounded up.
        """
        losses, masses, half = self.losses, self.masses, 0.5 * self.mu
        places = (edges[:, None] - losses) / self.mu
        first = _normal_cells(places - half) @ masses
        second = _normal_cells(places + half) @ (masses * np.exp(-losses))
        # Probabilities are differences of rounded ones, at arguments that are differences too.
        doubt = 1e-13 + ERROR * (1.0 + float(np.abs(losses).max())) / self.mu
        nearest = np.maximum(np.maximum(places[:-1] - half, -(places[1:] + half)), 0.0).min(axis=1)
        widen = doubt * float(masses.sum()) * np.exp(-0.5 * nearest**2)
        return first * (1.0 + losses.size * ERROR) + widen, second


def _normal_cells(edges: Array) -> Array:
    """Return the normal probability between neighbours, from the smaller tails."""
    tails, left = ndtr(-np.abs(edges)), edges <= 0.0
    first, second = tails[:-1], tails[1:]
    upper = np.where(left[:-1], 1.0 - first - second, first - second)
    return np.asarray(np.where(left[1:], second - first, upper))


# Nine deviations are within one reach. The widest cell, in epsilon.
MANY_REACHES, WIDEST_CELL = 5.0, 50.0


def _profile_between(
    event: ObjectiveEvent, low: float, high: float, count: int
) -> tuple[Array, Array]:
    """Return nodes from ``low`` to ``high``, of any sign, and bounds of delta there."""
    far = min(max(-low, high), MAX_EPSILON)
    near = min(max(low, -high, 0.0), 0.99 * far)
    # Beyond 37 deviations a profile is negligible, and costly to compute.
    last = min(far, MANY_REACHES * reach(event))
    if near < last:
        x, g = _curve(event, near, last, count)
    else:
        x, g = np.array([near]), np.array([profile(event, last)])
    if max(last, x[-1]) < far:
        # A constant is its own chord, here and mirrored: few cells do.
        more = np.linspace(x[-1], far, 2 + int((far - x[-1]) / WIDEST_CELL))[1:]
        x, g = np.append(x, more), np.append(g, np.full(more.size, g[-1]))
    if low >= 0.0:
        return x, g
    mirrored = np.minimum((-np.expm1(-x) + np.exp(-x) * g) * (1.0 + 4.0 * ERROR), 1.0)
    if high <= 0.0:
        return -x[::-1], mirrored[::-1]
    # The first node, next to 0, needs no second one.
    return np.concatenate([-x[:0:-1], x]), np.concatenate([mirrored[:0:-1], g])
