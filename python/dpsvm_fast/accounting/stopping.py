r"""Privacy of the best of K runs, K random: from the profile of one run to that of the best one.

Let Q and Q' be the laws of one run on two neighbours, :math:`\delta(\cdot)` an upper bound of their
deltas in both directions, and :math:`f(x) = E[x^K]`. Ties are broken by a coin of each run, so
that no output has any probability of its own. With :math:`u = Q(> y)`, the best run has density
:math:`Q(y) a(u)` for :math:`a(u) = f'(1 - u)`, which falls in u.

*What u can become.* From the profile alone, :math:`Q'(> y) \le B(u) = \inf_x (e^x u + \delta(x))`
over all real x, where :math:`\delta(-x) = 1 - e^{-x} (1 - \delta(x))`.

*Bound by the kernel.* With :math:`h(s) = \sup_u (a(u) - a(B(u)) s)_+`, convex and falling in s,

.. math:: \delta_A(\epsilon) \le E_Q[h(e^\epsilon Q'/Q)]
    \le \sum_j w_j \delta(\epsilon - \log s_j)

for every :math:`\sum_j w_j (1 - s / s_j)_+ \ge h(s)`; such a sum is what chords of h are.

*Bound by the largest ratio.* With :math:`R = \sup_u a(u) / a(B(u))`, also
:math:`\delta_A(\epsilon) \le 1 - f(1 - \delta(\epsilon - \log R))`; and if a run is pure with
:math:`\epsilon_0`, the best one is pure with :math:`\epsilon_0 + \log R`.

===========  ==========================  ==========================================
law of K     a(u)                        1 - f(1 - u)
===========  ==========================  ==========================================
geometric    g / (g + (1-g) u)^2         u / (g + (1-g) u)
logarithmic  (1-g) / l / (g + (1-g) u)   log(1 + u (1-g) / g) / l
Poisson      m exp(-m u)                 1 - exp(-m u)
===========  ==========================  ==========================================

with g the parameter gamma, l = log(1/g), and m the mean. All rounding is outward.
Proof: docs/proofs/private_selection.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from dpsvm_fast import _core
from dpsvm_fast.certificates.events import RandomStoppingEvent
from dpsvm_fast.rounding import add_up, mul_up, round_up

Array = NDArray[np.float64]

# More than the rounding of one formula here, relative to the numbers in it.
ERROR = 1e-13
# Error of chords of several hundred nodes: proportional to their number, not their distances.
SUM_ERROR = 1e-11
# Cells of u, and the least u but 0. Lines that bound B, and nodes of the chords of h.
CELLS, FAR_CELLS, EVEN_CELLS, MIN_U, MAX_LINES, NODES = 400, 100, 100, 1e-20, 400, 1500
# A number of runs is never so skewed that a ratio beyond this says anything.
LARGEST_LOG_RATIO = 600.0
# Weights that fall more slowly than this do not end for any purpose.
MIN_FALL = 1e-280
# A larger rho is vacuous.
LARGEST_RHO = 1e3
# Logarithms of alpha - 1 between which the best order of a Renyi divergence is sought.
LOWEST, HIGHEST = -30.0, 30.0


@dataclass(frozen=True)
class StoppingLaw:
    """The law of the number of runs.

    Parameters
    ----------
    kind : {"geometric", "logarithmic", "poisson"}
    gamma : float in (0, 1)
        Parameter of the first two.
    mean : float
        Mean of the last.
    """

    kind: str
    gamma: float
    mean: float

    @classmethod
    def of(cls, event: RandomStoppingEvent) -> StoppingLaw:
        """Return the law of an event."""
        return cls(event.stopping, event.gamma, event.mean)

    @property
    def expected(self) -> float:
        """Mean of K, to nearest."""
        return float(self.weight(np.zeros(1))[0])

    def weight(self, u: Array) -> Array:
        """Return the density a(u) of the best run over that of one run, rounded up."""
        if self.kind == "poisson":
            return np.asarray(
                self.mean * np.exp(-self.mean * u) * (1.0 + ERROR * (1.0 + self.mean * u))
            )
        rest = self.gamma + (1.0 - self.gamma) * u
        if self.kind == "geometric":
            return np.asarray(self.gamma / rest**2 * (1.0 + ERROR))
        return np.asarray((1.0 - self.gamma) / -math.log(self.gamma) / rest * (1.0 + ERROR))

    def log_ratio(self, u: Array, moved: Array) -> Array:
        """Return the log of a(u) over a(moved), rounded up; a moved u beyond 1 is harmless."""
        if self.kind == "poisson":
            return np.asarray(self.mean * (moved - u) + ERROR * self.mean * (moved + u))
        g = self.gamma
        power = 2.0 if self.kind == "geometric" else 1.0
        ratio = np.log((g + (1.0 - g) * moved) / (g + (1.0 - g) * u))
        return np.asarray(power * ratio + ERROR * (1.0 + np.abs(ratio)))

    def upper_tail(self, u: float) -> float:
        """Return the probability that the best of K runs is among the top u, rounded up."""
        if self.kind == "poisson":
            tail = -math.expm1(-self.mean * u)
        elif self.kind == "geometric":
            tail = u / (self.gamma + (1.0 - self.gamma) * u)
        else:
            tail = math.log1p(u * ((1.0 - self.gamma) / self.gamma)) / -math.log(self.gamma)
        return min(1.0, mul_up(tail, 1.0 + ERROR))


def pure_stopping_epsilon(law: StoppingLaw, epsilon: float) -> float:
    r"""Return epsilon of the best of K pure runs, rounded up.

    B has its kink at u = 1/(1 + e^epsilon), where it is e^epsilon/(1 + e^epsilon) and where the
    ratio is largest: :math:`\epsilon + (1 + \eta) \log \frac{\gamma + e^\epsilon}{1 + \gamma
    e^\epsilon}` with :math:`\eta` = 1 for geometric and 0 for logarithmic K, which is less than
    :math:`(2 + \eta) \epsilon`; and :math:`\epsilon + m \tanh(\epsilon/2)` for Poisson.
    """
    if law.kind == "poisson":
        more = law.mean * math.tanh(0.5 * epsilon)
    else:
        small = math.exp(-epsilon)
        power = 2.0 if law.kind == "geometric" else 1.0
        # At most epsilon, which it nears as gamma goes to 0.
        more = power * min(epsilon, math.log((law.gamma * small + 1.0) / (small + law.gamma)))
    return add_up(epsilon, mul_up(more, 1.0 + ERROR), ERROR * min(1.0, epsilon))


class BaseCurve:
    r"""Upper bounds of the delta of one run, at every real epsilon.

    Between two points, delta lies below the chord in :math:`e^\epsilon`; beyond the last one it
    does not rise.

    Parameters
    ----------
    epsilons : ndarray, increasing from 0
    deltas : ndarray
        Upper bounds there, in both directions of the relation.
    """

    def __init__(self, epsilons: Array, deltas: Array) -> None:
        self.epsilons = epsilons
        self.deltas = np.minimum(np.minimum.accumulate(deltas), 1.0)

    def at(self, epsilon: Array) -> Array:
        """Return bounds at any real arguments, minus infinity included."""
        size = np.abs(epsilon)
        cell = np.searchsorted(self.epsilons, size, side="right") - 1
        last = cell >= self.epsilons.size - 1
        cell = np.minimum(cell, self.epsilons.size - 2)
        low, high = self.epsilons[cell], self.epsilons[cell + 1]
        with np.errstate(over="ignore", invalid="ignore"):
            share = np.expm1(size - low) / np.expm1(high - low) * (1.0 - 1e-12)
        share = np.where(last, 1.0, np.clip(share - 1e-14, 0.0, 1.0))
        bound = self.deltas[cell] * (1.0 - share) + self.deltas[cell + 1] * share
        mirrored = -np.expm1(-size) + np.exp(-size) * bound
        return np.minimum(np.where(epsilon < 0.0, mirrored, bound) * (1.0 + ERROR), 1.0)

    def delta(self, epsilon: float) -> float:
        """Return the bound at one epsilon."""
        return float(self.at(np.array([epsilon]))[0])

    def lines(self) -> tuple[Array, Array]:
        """Return slopes and intercepts of lines in u above B(u)."""
        step = max(1, math.ceil(2 * self.epsilons.size / MAX_LINES))
        x = np.unique(np.append(self.epsilons[::step], self.epsilons[-1]))
        d = self.at(x)
        slopes = np.concatenate([np.exp(x), np.exp(-x), [0.0]])
        starts = np.concatenate([d, -np.expm1(-x) + np.exp(-x) * d, [1.0]])
        return slopes * (1.0 + ERROR), starts * (1.0 + ERROR)


class StoppingKernel:
    """The profile of the best run.

    Parameters
    ----------
    law : StoppingLaw
    base : BaseCurve
        Curve of one run.
    """

    def __init__(self, law: StoppingLaw, base: BaseCurve) -> None:
        self._law, self._base = law, base
        # Ends of the cells of u: fine where the weight of the best run changes, and near 1.
        scale = 1e-3 / max(1.0, law.expected)
        far, near = np.geomspace(MIN_U, scale, FAR_CELLS), np.geomspace(scale, 1.0, CELLS)
        u = np.unique(np.concatenate([far, near, np.linspace(0.0, 1.0, EVEN_CELLS)]))
        # Upper bound of log(a(u) / a(B(u))) in each cell. Along one line above B the ratio is
        # monotone in u for each of the laws, so its ends suffice.
        slopes, starts = base.lines()
        ratios = law.log_ratio(u[:, None], u[:, None] * slopes + starts)
        logs = np.maximum(ratios[:-1], ratios[1:]).min(axis=1)
        tops = law.weight(u[:-1])
        # Cells without a known bound count with all of their weight.
        hopeless = (logs > LARGEST_LOG_RATIO) | (
            tops * np.exp(-np.minimum(logs, LARGEST_LOG_RATIO)) < MIN_FALL
        )
        self._lost = float(tops[hopeless].max(initial=0.0))
        self.log_ratio = float(logs[~hopeless].max(initial=0.0))
        self._shifts, self._masses = _chord_weights(tops[~hopeless], logs[~hopeless])

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta at ``epsilon >= 0``.

        Not below: a Poisson K of 0 releases the same for all data, which counts there.
        """
        parts = self._masses * self._base.at(epsilon - self._shifts)
        bound = float(parts.sum()) * (1.0 + ERROR * (1.0 + self._shifts.size))
        bound = add_up(bound, self._lost)
        if self._lost == 0.0:
            top = self._base.delta(epsilon - self.log_ratio - ERROR * (1.0 + abs(epsilon)))
            bound = min(bound, self._law.upper_tail(top))
        return min(1.0, round_up(bound))


def _chord_weights(tops: Array, logs: Array) -> tuple[Array, Array]:
    """Return the logarithms of nodes s_j and weights w_j of a sum of hinges above h.

    Each cell gives a line ``tops * (1 - s / ratio)``; h lies below the largest of them and 0, which
    is convex in s: any nodes will do.
    """
    if not tops.size:
        return np.zeros(0), np.zeros(0)
    fall = tops * np.exp(-logs)
    last = float(logs.max()) + ERROR
    nodes = np.append(0.0, np.exp(np.linspace(min(float(logs.min()), 0.0) - 2.0, last, NODES)))
    heights = np.maximum((tops - fall * nodes[:, None]).max(axis=1), 0.0) * (1.0 + ERROR)
    heights[-1] = 0.0
    slopes = np.append(np.diff(heights) / np.diff(nodes), 0.0)
    # The weight at a node is what the chord loses of its slope there, times the node.
    masses = nodes[1:] * np.maximum(np.diff(slopes), 0.0) * (1.0 + SUM_ERROR)
    return np.log(nodes[1:]) + ERROR, masses


def stopped_zcdp_delta(law: StoppingLaw, rho: float, epsilon: float) -> float:
    r"""Return an upper bound of delta at ``epsilon`` of the best run of a rho-zCDP mechanism.

    For geometric and logarithmic K (Papernot and Steinke, ICLR 2022, Theorem 2), for every
    :math:`\hat\alpha \ge 1`,

    .. math:: \tau_A = \alpha \rho + (1 + \eta) \left[(\hat\alpha - 1) \rho +
        \frac{\log(1/\gamma)}{\hat\alpha}\right] + \frac{\log E[K]}{\alpha - 1},

    so delta is that of zCDP at epsilon less the middle term, times E[K]. For Poisson K with mean m
    (Theorem 6), :math:`\tau_A = \alpha \rho + m \delta_\rho(\log(1 + 1/(\alpha - 1))) + \log(m) /
    (\alpha - 1)`. Better than the kernel in a few cases only, where nothing but rho is known.
    """
    if not 0.0 < rho <= LARGEST_RHO:
        return 1.0
    if law.kind == "poisson":
        return _poisson_zcdp_delta(law, rho, epsilon)
    power = 2.0 if law.kind == "geometric" else 1.0
    minus_log_gamma = -math.log(law.gamma)
    order = max(1.0, math.sqrt(minus_log_gamma / rho))
    middle = power * ((order - 1.0) * rho + minus_log_gamma / order) * (1.0 + ERROR)
    left = epsilon - middle - ERROR * (1.0 + abs(epsilon))
    if left <= 0.0:
        return 1.0
    return min(1.0, mul_up(law.expected * (1.0 + ERROR), zcdp_delta(rho)(left)))


def zcdp_delta(rho: float) -> Callable[[float], float]:
    """Return delta of a rho-zCDP release as a function of epsilon."""
    return _core.LossDistribution(
        subsampled=[], gaussian_mu=0.0, pure=[], zcdp_rho=rho, profiles=[], replace_one=False
    ).delta


def _poisson_zcdp_delta(law: StoppingLaw, rho: float, epsilon: float) -> float:
    """Return delta for a Poisson number of runs; every order gives a valid bound."""
    one, log_mean = zcdp_delta(rho), math.log(law.mean)

    def log_delta(u: float) -> float:
        a = math.exp(float(u))
        near = one(math.log1p(1.0 / a) * (1.0 - ERROR))
        moved, asked = a * ((1.0 + a) * rho + law.mean * near), a * epsilon
        factor = -(1.0 + a) * math.log1p(1.0 / a) - u + log_mean
        size = 1.0 + moved + abs(asked) + abs(factor) + abs(u)
        return moved - asked + factor + ERROR * size

    found = minimize_scalar(
        log_delta, bounds=(LOWEST, HIGHEST), method="bounded", options={"xatol": 1e-9}
    )
    return math.exp(float(found.fun)) if found.fun < 0.0 else 1.0
