r"""Epsilon and delta of a list of events, recomputed for verification.

Shares no numerical code with the accountant: a record's choices of branches are gone through one
by one, and whatever has no closed form goes in as a curve, a table of log delta that is smooth
between its points. Besides Gaussian loss T and randomised responses, one curve g gives
:math:`E[g(\epsilon - T)]`; a second one becomes a law of many small atoms first. All is rounded to
nearest where the promise rounded up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpsvm_fast.accounting._choice_check import (
    Choice,
    CurvedEvent,
    choice_of,
    choices_of,
    responses,
)
from dpsvm_fast.accounting._curve_check import Curve, atoms_of, stopped_curve, zcdp_curve
from dpsvm_fast.accounting._distance_check import cost, least_delta
from dpsvm_fast.accounting._gaussian_check import two_sided_delta
from dpsvm_fast.accounting._least_check import least_delta_of
from dpsvm_fast.accounting._objective_check import objective_delta
from dpsvm_fast.accounting._tilted_check import Losses, composed_delta
from dpsvm_fast.accounting._work_check import work
from dpsvm_fast.accounting.compound import AlternativesEvent, RandomStoppingEvent
from dpsvm_fast.accounting.events import ObjectiveEvent, PrivacyEvent

__all__ = ["recomputed_events"]

Array = NDArray[np.float64]

# The recomputation rounds to nearest and the promise outward: how far delta may be off.
# Tables of curves with kinks are good to a percent of delta, a thousandth of epsilon.
EXACT_SLACK, SUM_SLACK, CURVE_SLACK, KINK_SLACK = 1e-9, 3e-4, 2e-3, 1e-2
# Of sums of epsilons.
EPSILON_SLACK = 1e-12
# Atoms of everything but one curve.
MOST_ATOMS = 200_000
# Logarithm of the smallest delta of a curve each point of which takes long.
DEAR_DEPTH = -34.0
# Spacing and number of the nodes on either side, in standard deviations of a Gaussian loss.
SPACING, SIDE = 0.05, 220


def recomputed_events(
    events: tuple[PrivacyEvent, ...], epsilon: float, delta: float
) -> tuple[float, float, bool | None]:
    """Epsilon at the claimed delta, delta at the claimed epsilon, and whether the claim holds.

    Parameters
    ----------
    events : tuple of PrivacyEvent
        Of one neighbouring relation, on the same records together.
    epsilon, delta : float
        The claim.

    Returns
    -------
    epsilon, delta : float
    holds : bool or None
        None where there is more than can be composed here, and what can be does not refute the
        claim; epsilon and delta are those of nothing private then.
    """
    whole = choices_of(events)
    if whole is None:
        return math.inf, 1.0, None
    if all(choice.is_pure for choice in whole):
        total = max(math.fsum(choice.pure) for choice in whole)
        if total <= epsilon * (1.0 + EPSILON_SLACK):
            return total, 0.0, True
    elif delta == 0.0:
        # Delta may underflow; it is never 0.
        return math.inf, 1.0, False
    least = max(least_delta_of(choice, epsilon) for choice in whole)
    if least > delta:
        return math.inf, least, False
    # Fewer events tell less: what these exceed, all of them do.
    choices = [choice.composable() for choice in whole]
    found, best = max(_least_delta(choice, epsilon) for choice in choices)
    holds = found <= delta * (1.0 + max(map(_slack, choices)))
    if holds and choices != whole:
        return math.inf, 1.0, None
    return _epsilon(choices, delta, best), found, holds


def _epsilon(choices: list[Choice], delta: float, near: float) -> float:
    """Epsilon at ``delta``, to four digits; of distances it is the least one that is looked for."""
    if delta == 0.0:
        pure = all(choice.is_pure for choice in choices)
        return max(math.fsum(choice.pure) for choice in choices) if pure else math.inf

    def excess(epsilon: float) -> float:
        return max(math.log(max(_whole_delta(c, epsilon), 1e-320) / delta) for c in choices)

    low, high = 0.0, near
    if 0.0 < excess(near) <= math.log1p(max(map(_slack, choices))):
        return near
    while excess(high) > 0.0:
        low, high = high, max(1.5 * high, 1e-3)
        if high > 1e4 or max(cost(c.distance, high) for c in choices) > delta:
            return math.inf
    if excess(low) <= 0.0:
        return low
    return float(brentq(excess, low, high, xtol=1e-12, rtol=1e-4))


def _slack(choice: Choice) -> float:
    """By how much delta may be off."""
    if any(not isinstance(event, ObjectiveEvent) for event in choice.curved):
        return KINK_SLACK
    if choice.curved or choice.rho:
        return CURVE_SLACK
    return SUM_SLACK if choice.sampled or choice.pure else EXACT_SLACK


def _least_delta(choice: Choice, epsilon: float) -> tuple[float, float]:
    """Delta at the best epsilon up to a given one, and which; larger ones make distances dear."""
    kink = math.fsum(choice.pure)
    return least_delta(lambda x: _delta(choice, x), choice.distance, kink, epsilon)


def _whole_delta(choice: Choice, epsilon: float) -> float:
    """Delta of one choice with its distances."""
    return min(1.0, _delta(choice, epsilon) + cost(choice.distance, epsilon))


def _delta(choice: Choice, epsilon: float) -> float:
    """Delta of one choice, distances apart."""
    told = choice.told
    return told + (1.0 - told) * min(1.0, _rest(choice, epsilon))


def _rest(choice: Choice, epsilon: float) -> float:
    """Delta of one choice without infinite losses."""
    curves = _curves(choice)
    if choice.sampled and not curves:
        return _tilted(choice, epsilon)
    if not curves:
        outcomes = responses(choice.pure)
        work(500 * outcomes[0].size)
        return math.fsum(
            mass * two_sided_delta(epsilon - loss, choice.mu)
            for loss, mass in zip(*outcomes, strict=True)
        )
    bounds = [1.0]
    if choice.rho and not (choice.sampled or choice.curved):
        closed = zcdp_curve(math.fsum(choice.rho) + 0.5 * choice.mu**2)
        bounds.append(float(closed.at(np.array([epsilon - math.fsum(choice.pure)]))[0]))
    if choice.sampled:
        # All but the curves as one more curve.
        curves.append(Curve.of(lambda x: _tilted(choice, x), fall=0.4, depth=DEAR_DEPTH))
        bounds.append(_of_curves(curves, 0.0, [], epsilon))
    else:
        bounds.append(_of_curves(curves, choice.mu, choice.pure, epsilon))
    return min(bounds)


def _tilted(choice: Choice, epsilon: float) -> float:
    """Delta of Gaussian, sampled and pure losses."""
    counts = tuple(Counter(choice.pure).items())
    losses = Losses(
        mu=choice.mu,
        sampled=tuple(choice.sampled),
        pure=counts,
        replace_one=choice.replace_one,
    )
    return composed_delta(epsilon, losses)


def _curves(choice: Choice) -> list[Curve]:
    """Curves of one choice; more than two cannot be composed here."""
    curves = [zcdp_curve(math.fsum(choice.rho))] if choice.rho else []
    return curves + [_curve(event) for event in choice.curved]


_known: dict[PrivacyEvent, Curve] = {}


def _curve(event: CurvedEvent) -> Curve:
    """Curve of one event; the last few are remembered."""
    if event not in _known:
        if len(_known) >= 32:
            _known.clear()
        _known[event] = _made_curve(event)
    return _known[event]


def _made_curve(event: CurvedEvent) -> Curve:
    """Curve of one event."""
    if isinstance(event, (AlternativesEvent, RandomStoppingEvent)):
        if isinstance(event, RandomStoppingEvent):
            bases = choices_of(event.base)
        else:
            bases = [choice_of(branch) for branch in event.branches]
        if bases is None:
            return Curve.hopeless()
        dear = any(base.sampled for base in bases)
        kind = {"fall": 0.4, "depth": DEAR_DEPTH} if dear else {"fall": 0.1}
        base = Curve.of(_largest(bases), **kind)
        if isinstance(event, AlternativesEvent):
            return base
        rho = None
        if all(b.rho and not (b.pure or b.stays or b.sampled or b.curved) for b in bases):
            rho = max(math.fsum(b.rho) + 0.5 * b.mu**2 for b in bases)
        return stopped_curve(event.stopping, event.gamma, event.mean, base, rho)

    def delta(epsilon: float) -> float:
        return objective_delta(
            event.law,
            event.n_scores,
            epsilon,
            event.sigma,
            kappa=event.kappa,
            jacobian=event.jacobian,
            replace_one=event.adjacency == "replace_one",
        )

    return Curve.of(delta, fall=0.4, depth=DEAR_DEPTH)


def _largest(choices: list[Choice]) -> Callable[[float], float]:
    """Delta of the worst of several choices."""
    return lambda epsilon: max(_delta(choice, epsilon) for choice in choices)


def _of_curves(curves: list[Curve], mu: float, pure: list[float], epsilon: float) -> float:
    """Delta of one or two curves beside a Gaussian loss and randomised responses.

    Atoms of a curve weigh too much where it has a kink, so each of two is made atoms in turn.
    """
    if len(curves) > 2:
        return 1.0
    return min(
        _in_order(order, mu, pure, epsilon) for order in {tuple(curves), tuple(curves[::-1])}
    )


def _in_order(curves: tuple[Curve, ...], mu: float, pure: list[float], epsilon: float) -> float:
    """Return the same, the last of two curves as atoms."""
    g = curves[0]
    losses, masses = responses(pure)
    lost = 0.0
    if len(curves) == 2:
        more, their_masses, lost = atoms_of(curves[1])
        if losses.size * more.size > MOST_ATOMS:
            losses, masses = np.array([math.fsum(pure)]), np.ones(1)
        losses = np.add.outer(losses, more).ravel()
        masses = np.multiply.outer(masses, their_masses).ravel()
    total = 0.0
    work(3 * losses.size * (1 if mu == 0.0 else 2 * SIDE + 1))
    for node, weight in _gaussian_nodes(mu):
        total += weight * float(masses @ g.at(epsilon - mu * (0.5 * mu + node) - losses))
    return total + lost


def _gaussian_nodes(mu: float) -> Iterator[tuple[float, float]]:
    """Nodes and weights of the trapezoidal rule for a standard normal mean."""
    if mu == 0.0:
        yield 0.0, 1.0
        return
    for k in range(-SIDE, SIDE + 1):
        node = SPACING * k
        yield node, SPACING * math.exp(-0.5 * node * node) / math.sqrt(2.0 * math.pi)
