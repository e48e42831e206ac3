r"""Composition of Gaussian, pure and objective events, by formulas.

*Gaussian events* with parameters :math:`\mu_i` compose to one with :math:`\mu^2 = \sum \mu_i^2`
(Dong, Roth and Su, JRSS-B 2022, Corollary 3.3), also when each is chosen after seeing the
results of the earlier ones, as long as the sizes asked for are what is summed.

*A pure event* with parameter e is dominated by randomised response, whose privacy loss is +e with
probability :math:`1/(1 + e^{-e})` and -e otherwise (Kairouz, Oh and Viswanath, ICML 2015).

*Both together*: the pair of product measures has, with L the sum of the randomised-response
losses,

.. math:: \delta(\epsilon) = E_L[\delta_G(\epsilon - L; \mu)],

where :math:`\delta_G` is the delta of the Gaussian mechanism, and :math:`(1 - e^t)_+` without
one. Basic composition, :math:`\delta_G(\epsilon - \sum e_i; \mu)`, also holds; the smaller of the
two is returned. All rounding is upwards.

*An objective event* has a profile, bounded at every epsilon by what is proved about it. One of them
takes the place of :math:`\delta_G`, with the Gaussian loss among the others; further ones become
losses with finitely many atoms. How, and why these are bounds, is told in ``_profile.py``. Basic
composition holds too: :math:`\sum_i \delta_i(\epsilon_i)` with :math:`\sum_i \epsilon_i =
\epsilon`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpsvm_fast import _core
from dpsvm_fast._rounding import add_down, add_up, div_down, mul_up, round_up
from dpsvm_fast.accounting._atoms import (
    ERROR,
    Atoms,
    randomised_response_losses,
    sum_of_losses,
    thinned,
)
from dpsvm_fast.accounting._profile import (
    NEGLIGIBLE,
    OtherLosses,
    loss_atoms,
    mixed_curve,
    profile,
)
from dpsvm_fast.accounting._totals import Totals
from dpsvm_fast.accounting.events import ObjectiveEvent

__all__ = ["formula_delta", "formula_epsilon", "formula_fits", "gaussian_delta", "smallest"]

# Atoms of the loss of all pure events together; fewer where they are of many sizes, or each costs
# one Gaussian evaluation.
MAX_ATOMS, MANY_SIZES, ATOMS_OF_MANY = 20_000, 8, 6_000
MAX_ATOMS_WITH_GAUSSIAN = 2_000
# The same where each meets every node of a profile, for every epsilon.
MAX_ATOMS_WITH_PROFILE = 500

# More than all masses lost to underflow in one convolution.
UNDERFLOW = 1e-310

# The smallest positive float.
SMALLEST_DELTA = math.ulp(0.0)

# Below this, mu is replaced by it: its inverse would overflow, and a larger mu is an upper bound.
SMALLEST_MU = 1e-300

# Atoms of the loss of several objective events, and the loss that is none.
MAX_ATOMS_OF_SUM = 4_000
NO_LOSS: Atoms = (np.zeros(1), np.ones(1))

# No epsilon beyond this is searched for: it would say nothing.
LARGEST_SEARCHED = 1e5

# What is promised of noise in an objective beside others leaves this much of delta to those who
# check it with tables of their own.
HEADROOM = 1.0005

# Steps to where a curve crosses delta; about ten are usual.
MOST_CROSSINGS = 60

# Shares of delta that basic composition tries for the Gaussian events beside an objective one.
BASIC_SHARES = (0.01, 0.1, 0.5)


def formula_delta(totals: Totals, epsilon: float) -> float:
    """Upper bound of delta at ``epsilon >= 0``."""
    if totals.objective:
        split = _split_delta(totals, epsilon)
        if _is_alone(totals):
            return split
        return min(split, _objective_curve(totals, epsilon, epsilon)(epsilon))
    bound = _basic_delta(totals, epsilon)
    if bound == 0.0 or not totals.pure:
        return bound
    return min(bound, _mixture_delta(totals, epsilon))


def formula_epsilon(totals: Totals, delta: float) -> float:
    """Upper bound of the smallest epsilon at ``delta``."""
    if totals.objective:
        return _searched_epsilon(totals, delta)
    gaussian = _gaussian_epsilon(totals, delta)
    high = add_up(gaussian, totals.pure_epsilon)
    if delta == 0.0 or not totals.pure or math.isinf(high):
        return high
    return smallest(lambda e: formula_delta(totals, e) <= delta, high)


def formula_fits(totals: Totals, epsilon: float, delta: float) -> bool:
    """Whether basic composition alone shows (epsilon, delta); cheap and sufficient."""
    if totals.objective:
        return _split_fits(totals, epsilon, delta)
    return _basic_delta(totals, epsilon) <= delta


def _most_atoms(sizes: int) -> int:
    """Atoms for the sum of losses of so many sizes."""
    return MAX_ATOMS if sizes <= MANY_SIZES else ATOMS_OF_MANY


def _basic_delta(totals: Totals, epsilon: float) -> float:
    """Delta when every pure event is charged in full."""
    return gaussian_delta(add_down(epsilon, -totals.pure_epsilon), totals.mu)


def _gaussian_epsilon(totals: Totals, delta: float) -> float:
    """Epsilon of the Gaussian events alone."""
    if totals.is_pure:
        return 0.0
    if delta == 0.0 or math.isinf(totals.mu):
        return math.inf
    return _core.gaussian_epsilon(delta, _inverse(totals.mu))


def _mixture_delta(totals: Totals, epsilon: float) -> float:
    """Delta with the exact law of the randomised-response losses."""
    mu = totals.mu
    groups = tuple(sorted(totals.pure.items()))
    cap = _most_atoms(len(groups)) if mu == 0.0 else MAX_ATOMS_WITH_GAUSSIAN
    losses, masses = randomised_response_losses(groups, cap)
    # The rounding of the losses and of epsilon - L, on numbers no larger than these.
    slack = (4.0 + 4.0 * len(groups)) * math.ulp(epsilon + totals.pure_epsilon)
    shifted = epsilon - losses - slack
    if mu == 0.0:
        total = float(masses @ -np.expm1(np.minimum(shifted, 0.0)))
    else:
        total = math.fsum(
            mass * gaussian_delta(float(e), mu)
            for mass, e in zip(masses, shifted, strict=True)
            if mass > 0.0
        )
    total = mul_up(total, 1.0 + (losses.size + 8.0) * ERROR)
    return min(1.0, add_up(total, UNDERFLOW * len(groups)))


def _split_delta(totals: Totals, epsilon: float) -> float:
    """Delta by basic composition, epsilon shared in proportion to the size of the noise."""
    left = add_down(epsilon, -totals.pure_epsilon)
    sizes = [1.0 / event.sigma for event in totals.objective]
    whole = math.fsum(
        size * count for size, count in zip(sizes, totals.objective.values(), strict=True)
    )
    whole = (whole + totals.mu) * (1.0 + ERROR)
    if left <= 0.0 or math.isinf(whole):
        return 1.0
    total = gaussian_delta(left * totals.mu / whole, totals.mu) if totals.mu else 0.0
    for size, (event, count) in zip(sizes, totals.objective.items(), strict=True):
        total = add_up(total, mul_up(float(count), profile(event, left * size / whole)))
    return min(1.0, total)


def _split_fits(totals: Totals, epsilon: float, delta: float) -> bool:
    """Whether a few ways of sharing epsilon and delta show the bound."""
    left = add_down(epsilon, -totals.pure_epsilon)
    if totals.objective.total() > 1 or not totals.mu:
        return _split_delta(totals, epsilon) <= delta
    if delta == 0.0 or math.isinf(totals.mu):
        return False
    (event,) = totals.objective
    for share in BASIC_SHARES:
        outside = add_up(_core.gaussian_epsilon(share * delta, _inverse(totals.mu)), 0.0)
        rest = add_down(left, -outside)
        if rest > 0.0 and profile(event, rest) <= add_down(delta, -share * delta):
            return True
    return False


def _is_alone(totals: Totals) -> bool:
    """Whether one objective event is all there is."""
    return totals.objective.total() == 1 and not (totals.mu_squared or totals.pure)


def _objective_curve(totals: Totals, low: float, high: float) -> Callable[[float], float]:
    """Delta from ``low`` to ``high`` by the profile of one event, all others being losses."""
    events = sorted(totals.objective, key=lambda event: (event.sigma, repr(event)))
    last = events[0]
    cap = _most_atoms(len(totals.pure) + len(events))
    atoms = randomised_response_losses(tuple(sorted(totals.pure.items())), cap)
    infinite = 0.0
    for event in events:
        power = _repeated(event, totals.objective[event] - (event == last))
        if power is None:
            return lambda _: 1.0
        atoms, cut = thinned(sum_of_losses(atoms, power[0], cap), NEGLIGIBLE)
        infinite = add_up(infinite, power[1], cut)
    atoms = sum_of_losses(atoms, NO_LOSS, MAX_ATOMS_WITH_PROFILE)
    curve = mixed_curve(last, OtherLosses(atoms, infinite, totals.mu), low, high)
    return lambda epsilon: min(1.0, mul_up(curve(epsilon), HEADROOM))


def _searched_epsilon(totals: Totals, delta: float) -> float:
    """Smallest epsilon at ``delta`` with objective events among the others."""
    if delta == 0.0:
        return math.inf
    high = max(1.0, totals.pure_epsilon)
    while formula_delta(totals, high) > delta:
        high *= 2.0
        if high > LARGEST_SEARCHED:
            return math.inf
    if _is_alone(totals):
        return crossing(lambda e: formula_delta(totals, e), delta, 0.0, high)
    low = 0.0
    # The nodes of a curve are spread over its whole range: a second one is drawn where it counts.
    for narrower in (0.9, 0.0):
        curve = _objective_curve(totals, low, high)
        high = crossing(curve, delta, low, high)
        low = narrower * high
    return high


def _repeated(event: ObjectiveEvent, count: int) -> tuple[Atoms, float] | None:
    """Atoms of the summed loss of ``count`` equal events, and the mass of an infinite one."""
    total: tuple[Atoms, float] = (NO_LOSS, 0.0)
    if count == 0:
        return total
    square = loss_atoms(event)
    if square is None:
        return None
    while True:
        if count % 2:
            total = _both(total, square)
        count //= 2
        if not count:
            return total
        square = _both(square, square)


def _both(one: tuple[Atoms, float], other: tuple[Atoms, float]) -> tuple[Atoms, float]:
    """Sum of two losses, either of which may be infinite."""
    atoms, cut = thinned(sum_of_losses(one[0], other[0], MAX_ATOMS_OF_SUM), NEGLIGIBLE)
    return atoms, add_up(one[1], other[1], cut)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Upper bound of delta of a Gaussian mechanism, for epsilon of any sign, mu 0 included."""
    if mu == 0.0:
        return 0.0 if epsilon >= 0.0 else min(1.0, round_up(-math.expm1(epsilon), 4))
    if math.isinf(mu) or epsilon == -math.inf:
        return 1.0
    # Never 0, also where the value underflows: Gaussian noise has no guarantee with delta = 0.
    return min(1.0, max(SMALLEST_DELTA, _core.gaussian_delta(epsilon, _inverse(mu))))


def _inverse(mu: float) -> float:
    """Noise scale at sensitivity 1, rounded towards a worse guarantee."""
    return div_down(1.0, max(mu, SMALLEST_MU))


def crossing(curve: Callable[[float], float], delta: float, low: float, high: float) -> float:
    """Return about the smallest epsilon in [low, high] where a falling curve is at most ``delta``.

    By steps between logarithms, which are nearly straight. The curve was evaluated at what is
    returned and is low enough there, unless that is ``high``.
    """
    at_low = math.log(max(curve(low), SMALLEST_DELTA))
    at_high = math.log(max(curve(high), SMALLEST_DELTA))
    wanted = math.log(delta)
    if at_low <= wanted:
        return low
    weight_low, weight_high = at_low - wanted, at_high - wanted
    for step in range(MOST_CROSSINGS):
        if weight_high >= 0.0 or high - low <= 1e-9 * high:
            break
        share = weight_low / (weight_low - weight_high) if step % 4 < 3 else 0.5
        margin = 2e-10 * high / (high - low)
        middle = low + (high - low) * min(max(share, margin), 1.0 - margin)
        found = math.log(max(curve(middle), SMALLEST_DELTA)) - wanted
        if found <= 0.0:
            weight_low *= 0.5 if weight_high <= 0.0 else 1.0
            high, weight_high = middle, found
        else:
            low, weight_low = middle, found
            weight_high *= 0.5
    return high


def smallest(holds: Callable[[float], bool], high: float, accuracy: float = 1e-12) -> float:
    """Smallest epsilon in [0, high] at which a monotone condition holds; it does at ``high``."""
    low = 0.0
    if holds(low):
        return low
    while high - low > accuracy * high:
        middle = low + 0.5 * (high - low)
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
