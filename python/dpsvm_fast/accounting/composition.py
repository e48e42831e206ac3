r"""From events to (epsilon, delta).

For each choice of branches that a record can meet (``totals.py``), infinite losses are set apart:
with probability ``leak`` there is one, and otherwise the rest composes, so that
:math:`\delta(\epsilon) = t + (1 - t) \, \delta_{rest}(\epsilon)`. Distances from the described laws
are added on top.

*Gaussian events* with parameters :math:`\mu_i` compose to one with :math:`\mu^2 = \sum \mu_i^2`
(Dong, Roth and Su, JRSS-B 2022, Corollary 3.3), also when each is chosen after seeing the results
of the earlier ones, as long as the sizes asked for are what is summed. *A pure event* with
parameter e is dominated by randomised response, whose privacy loss is +e with probability
:math:`1/(1 + e^{-e})` and -e otherwise (Kairouz, Oh and Viswanath, ICML 2015). *All else* goes in
by a pair of laws that dominates it in both directions: the pairs of sampled steps, and for zCDP,
objective perturbation, random stopping and alternatives the pair that belongs to an upper bound of
the profile. The compiled accountant moves their losses to a grid from above and adds them up;
docs/proofs/accountant.md, section "Mixed events". Where a closed bound covers everything it is
taken instead; charging all pure events in full is tried as well, and the smallest bound counts.
All rounding is upwards.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, log_ndtr, ndtri

from dpsvm_fast import _core
from dpsvm_fast.accounting.gaussian import VACUOUS_EPSILON, Steps
from dpsvm_fast.accounting.groups import increasing, lower_hull, path_points, step_points
from dpsvm_fast.accounting.objective import (
    HEADROOM,
    ObjectiveWithGaussian,
    crossing,
    group_points,
    is_joint,
    is_quick,
    most_kinds,
    on_chords,
    point_cost,
    profile,
    profile_points,
    reach,
)
from dpsvm_fast.accounting.stopping import (
    BaseCurve,
    StoppingKernel,
    StoppingLaw,
    stopped_zcdp_delta,
)
from dpsvm_fast.accounting.totals import (
    FEW_DIGITS,
    CurvedEvent,
    Grouped,
    Totals,
    choices,
    few_digits,
    join,
    of_events,
    uncovered,
    ungrouped,
)
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.certificates.events import (
    AlternativesEvent,
    ObjectiveEvent,
    PrivacyEvent,
    RandomStoppingEvent,
    SubsampledGaussianEvent,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.rounding import (
    SMALLEST_FLOAT,
    add_down,
    add_up,
    div_down,
    div_up,
    fraction_up,
    mul_up,
    round_up,
    sqrt_up,
    subnormal,
)
from dpsvm_fast.validation import (
    MAX_EPSILON,
    check_delta,
    check_epsilon,
    check_integer,
    check_real,
)

Array = NDArray[np.float64]
Group = tuple[float, float, int]
Function = Callable[[float], float]

# The end of grids of losses.
MIN_DELTA = 2.3e-308
# Bound of the relative error of one function of scipy.special or numpy, generously; more than all
# masses lost to underflow in one product.
ERROR, UNDERFLOW = 4e-15, subnormal("1e-310")

# Cost of a distance from the described laws.
#
# A release within T of an :math:`(\epsilon, \delta)`-private one, on every data set, is
# :math:`(\epsilon, \delta + (1 + e^\epsilon) T)`-private; docs/proofs/accountant.md, section
# "Distances". That grows with epsilon, while a promise with a smaller epsilon is also one with a
# larger epsilon: the smallest value up to epsilon counts.

# Beyond this an exponential is not computed by itself.
LARGEST_EXPONENT = 700.0
# More than the relative error of an exponential of a sum of numbers up to 1e4.
DISTANCE_ERROR, QUANTILE_ERROR = 1e-11, 1e-12
# Below this share of delta, the cost of a distance is not worth a search for a smaller epsilon.
NEGLIGIBLE_DISTANCE = 1e-9
# How closely that smaller epsilon is looked for: a share of the largest, and where it is cheap.
NEAR_LEAST, NEAREST = 3e-3, 1e-5
# Minus the logarithm of the probability that all pure events lose most, below which a quick delta
# takes that for granted.
NEARLY_SURE = 0.05
# Quick rounds in which an epsilon grows by what a distance costs at the last one, and by a margin
# that doubles at least, and the share of delta that distances have to cost notably. Where they do
# not end, shares of delta that distances may take. Then the result falls in a few close rounds.
QUICK_MARGIN, COARSER, LITTLE_LEFT = 1e-4, 2.0, 1e-4
SHARES, MAX_ROUNDS, CLOSER_ROUNDS = (0.5, 0.9), 20, 2
# A loss counts as infinite instead of at its value if its probability is at most the first share
# of delta, and the second of epsilon: section "Tiny noise".
RARE_OF_DELTA, RARE_OF_EPSILON = 0.9, 0.01
# Another round is worth its time if it leaves more delta by this factor. A close answer is hardly
# ever below this share of a quick one.
HARDLY_MORE, CLOSER_SHARE = 1.01, 0.8


def distance_delta(distance: Fraction, epsilon: float) -> float:
    r"""Return :math:`(1 + e^\epsilon) T`, rounded up, at most 1."""
    size = fraction_up(distance)
    if size == 0.0:
        return 0.0
    if epsilon <= LARGEST_EXPONENT:
        return min(1.0, mul_up(size, add_up(1.0, round_up(math.exp(epsilon), 2))))
    exponent = epsilon + math.log(size)
    # One more for the 1 next to the exponential.
    return 1.0 if exponent >= 0.0 else min(1.0, math.exp(exponent) * (1.0 + 2.0 * DISTANCE_ERROR))


def delta_without_distance(epsilon: float, delta: float, distance: float) -> float:
    r"""Return the delta that remains next to a distance, at an epsilon.

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    delta : float in (0, 1)
    distance : float in [0, 1)
        Sum of all distances.

    Returns
    -------
    float in (0, 1)
        :math:`\delta - (1 + e^\epsilon) T`, rounded down.

    Raises
    ------
    TypeError, InvalidParameterError
        An argument of another type or outside its range, or a distance that leaves nothing.

    Examples
    --------
    >>> from dpsvm_fast.accounting import delta_without_distance
    >>> delta_without_distance(1.0, 1e-5, 2.0**-80) < 1e-5
    True
    """
    epsilon = check_epsilon("epsilon", epsilon)
    delta = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    distance = check_real("distance", distance, low=0.0, high=1.0, open_high=True)
    left = add_down(delta, -distance_delta(Fraction(distance), epsilon))
    if left <= 0.0:
        raise InvalidParameterError(
            f"epsilon: a distance of {distance:.3g} uses all of delta={delta:g} at "
            f"epsilon={epsilon:g}; expected a smaller epsilon or a larger delta"
        )
    return left


def leak_near_gaussian(mu: float, distance: float) -> float:
    r"""Return the probability that a release near a Gaussian one leaks outright, rounded up.

    :math:`T + \Phi(\mu - z)` with :math:`\Phi(-z) = T`: T plus the largest probability under one
    data set of an event that has probability T under a neighbour. Concave in T.

    Parameters
    ----------
    mu : float >= 0
    distance : float in (0, 1)
    """
    quantile = float(ndtri(distance))
    # Round quantile and probability up.
    quantile += QUANTILE_ERROR * (1.0 + abs(quantile))
    tail = math.exp(float(log_ndtr(mu + quantile)) * (1.0 - DISTANCE_ERROR)) * (
        1.0 + DISTANCE_ERROR
    )
    return min(1.0, add_up(distance, tail))


# Delta and epsilon of totals, whatever is in them.

# Choices, or periods, that are looked at closely for one answer, and choices of all periods for one
# spend: for others quick bounds decide.
MAX_CLOSE_CHOICES, MAX_LOOKS = 3, 6
# An answer this many times another one is hardly larger. The square of the next is still a number.
HARDLY_LARGER, HUGE = 1.03, 1e100
# With more choices than these, basic composition tells which ones to look at.
FEW_CHOICES = 8
# A part refutes a claim if its own bound of delta exceeds the claim by this factor: no grid of all
# parts is tighter by so much.
ALONE = 1.01


def totals_delta(totals: Totals, epsilon: float) -> float:
    """Return an upper bound of delta at ``epsilon >= 0``."""

    def ask(choice: Totals, *, quick: bool = False) -> float:
        leaky = choice.with_leaks_beyond(epsilon)
        found = _choice_delta(leaky, epsilon, quick=quick)
        if leaky is choice or _leaks_rarely(leaky, epsilon, found):
            return found
        return min(found, _choice_delta(choice, epsilon, quick=quick))

    return largest(ask, choices(totals))


def totals_epsilon(totals: Totals, delta: float, *, quick: bool = False) -> float:
    """Return an upper bound of the smallest epsilon at ``delta``; a ``quick`` one may be larger."""

    def simply(choice: Totals) -> float:
        return _simple_epsilon(choice, _where_distances_take(SHARES[0], choice, delta), delta)

    def ask(choice: Totals, *, quick: bool = False) -> float:
        leaky = choice.with_leaks_beyond(0.0)
        found = _choice_epsilon(leaky, delta, quick=quick)
        if leaky is choice:
            return found
        if leaky == choice.with_leaks_beyond(found) and _leaks_rarely(leaky, found, delta):
            return found
        return min(found, _choice_epsilon(choice, delta, quick=quick))

    return _largest_of_choices(ask, choices(totals), simply, quick=quick)


def _leaks_rarely(leaky: Totals, epsilon: float, delta: float) -> bool:
    """Return whether infinite losses hardly change what is known at (epsilon, delta)."""
    return leaky.leak <= min(RARE_OF_DELTA * delta, RARE_OF_EPSILON * epsilon)


def _choices_within(totals: Totals, epsilon: float, delta: float) -> list[Totals]:
    """Return the choices of branches, for the question whether they are within (epsilon, delta)."""
    found = choices(totals)
    for i, choice in enumerate(found):
        leaky = choice.with_leaks_beyond(epsilon)
        found[i] = leaky if _leaks_rarely(leaky, epsilon, delta) else choice
    return found


def _largest_of_choices(
    ask: Callable[..., float],
    found: list[Totals],
    simply: Callable[[Any], float] = lambda _: math.inf,
    *,
    quick: bool = False,
) -> float:
    """Return the largest answer, or that about the largest sums of many if one needs nearly that.

    What ``simply`` says is asked of many only.
    """
    if len(found) <= FEW_CHOICES:
        return largest(ask, found, quick=quick)
    whole = join(tuple(found))
    top = ask(whole, quick=True)
    if top <= HARDLY_LARGER * ask(max(found, key=_weight), quick=True) < math.inf:
        return top if quick else min(top, ask(whole))
    return largest(ask, found, simply, quick=quick)


def _weight(choice: Totals) -> float:
    """Return about the variance of all losses, or more, to decide which choice is asked."""
    mixture = Mixture.of(choice)
    weight = choice.pure_epsilon + min(mixture.mu, HUGE) ** 2 + mixture.rho
    weight += sum(min(1.0 / one.sigma, HUGE) ** 2 * n for one, n in mixture.objective)
    return weight + sum(map(_size, mixture.sampled))


def largest(
    ask: Callable[..., float],
    subjects: Collection[Any],
    simply: Callable[[Any], float] = lambda _: math.inf,
    *,
    quick: bool = False,
) -> float:
    """Return the largest answer about some subjects.

    Nobody asks closely, nor quickly, where a cheaper bound says that an answer is no larger, and
    closely of a few only.
    """
    if len(subjects) == 1:
        return ask(*subjects, quick=quick)
    bounds = [(simply(one), one) for one in subjects]
    bounds = [(ask(one, quick=True) if math.isinf(top) else top, one) for top, one in bounds]
    bounds.sort(key=itemgetter(0), reverse=True)
    found, asked, most = -math.inf, 0, 0 if quick else MAX_CLOSE_CHOICES
    if len(bounds) > most and not quick:
        # One of these keeps its quick answer: an answer hardly larger needs no closer look.
        found = min(min(top, ask(one, quick=True)) for top, one in bounds[: most + 1])
    for bound, one in bounds:
        if bound <= found:
            break
        answer = min(bound, ask(one, quick=True)) if quick or found > -math.inf else math.inf
        if answer > HARDLY_LARGER * found and asked < most:
            answer, asked = min(answer, ask(one)), asked + 1
        found = max(found, answer)
    return found


def _choice_delta(choice: Totals, epsilon: float, *, quick: bool = False) -> float:
    """Return delta of one choice: the least delta of a smaller epsilon plus cost of distances."""

    def whole(x: float, *, quick: bool = quick) -> float:
        left = _exact_delta(choice, x, quick=quick)
        return add_up(left, distance_delta(choice.distance, x)) if choice.distance else left

    best, costly = whole(epsilon), bool(choice.distance) and _is_costly(choice)
    negligible = (LITTLE_LEFT if costly else NEGLIGIBLE_DISTANCE) * best
    if choice.distance and distance_delta(choice.distance, epsilon) > negligible:
        # Up to where the distance alone costs more; pure events may end the fall of the rest.
        most = math.log(min(best, 1.0) / fraction_up(choice.distance))
        top = min(epsilon, max(0.0, most))
        at = [min(choice.pure_epsilon, top)]
        if top:
            near = NEAR_LEAST * top if costly else min(NEAREST, NEAR_LEAST * top)
            look = partial(whole, quick=True)
            found = minimize_scalar(
                look, bounds=(0.0, top), method="bounded", options={"xatol": near}
            )
            at.append(float(found.x))
        best = min(best, *map(whole, at))
    return min(1.0, best)


def _choice_epsilon(
    choice: Totals, delta: float, *, quick: bool = False, enough: float = 0.0
) -> float:
    """Return epsilon of one choice: the smallest that also covers the distances.

    Nobody looks closer at what is ``enough``.
    """
    ask = partial(_epsilon_of_rest, choice, delta=delta)
    if not choice.distance:
        return ask(0.0, quick=quick)
    quickly, rounds = partial(ask, quick=True), CLOSER_ROUNDS
    found = _enough(quickly)
    if quick:
        return found
    if math.isinf(found):
        rounds, least = 1, CLOSER_SHARE * quickly(0.0)
        for share in SHARES:
            asked = _where_distances_take(share, choice, delta)
            needed = math.inf if asked < least < math.inf else ask(asked)
            if needed <= asked:
                found = needed
                break
    for _ in range(rounds if enough < found < math.inf else 0):
        # If an epsilon suffices, so does the epsilon needed there.
        before = _left(choice, found, delta)
        found = min(found, ask(found))
        if found <= enough or _left(choice, found, delta) <= HARDLY_MORE * before:
            break
    return found


def _where_distances_take(share: float, choice: Totals, delta: float) -> float:
    """Return about the epsilon at which distances take a share of delta, from 0 to the largest."""
    cost = fraction_up(choice.distance)
    if not cost or delta == 0.0:
        return 0.0 if cost else MAX_EPSILON
    return min(max(0.0, math.log(share * delta / cost)), MAX_EPSILON)


def _enough(ask: Function) -> float:
    """Return an epsilon that is enough for what is needed beside the distances at it."""
    found, margin = ask(0.0), QUICK_MARGIN
    for _ in range(MAX_ROUNDS):
        if not math.isfinite(found):
            break
        asked = found * (1.0 + margin)
        found = ask(asked)
        margin *= COARSER
        if found <= asked:
            return found
    return math.inf


def _left(choice: Totals, epsilon: float, delta: float) -> float:
    """Return delta less the cost of distances at ``epsilon`` and of infinite losses."""
    left, leak = delta, choice.leak
    if choice.distance:
        left = add_down(delta, -distance_delta(choice.distance, epsilon))
    if leak:
        left = div_down(add_down(left, -leak), add_up(1.0, -leak)) if leak < 1.0 else -1.0
    return left


def _epsilon_of_rest(choice: Totals, epsilon: float, delta: float, *, quick: bool = False) -> float:
    """Return the epsilon without distances, at the delta that these leave at ``epsilon``."""
    left = _left(choice, epsilon, delta)
    if left < 0.0:
        return math.inf
    if quick and choice.distance:
        # Few digits: the next epsilon then mostly finds a cached result.
        left = _short(left)
    found = _epsilon(Mixture.of(choice), left, quick=quick)
    # A part with a rare and huge loss makes the grid for all coarse.
    simple = BasicComposition(Mixture.of(choice.changed(few_digits)))
    found = min(found, simple.simple_epsilon(left, found))
    return min(choice.pure_epsilon, found) if choice.is_pure else found


def _simple_epsilon(choice: Totals, epsilon: float, delta: float) -> float:
    """Return epsilon by basic composition; infinity if above ``epsilon`` and not pure."""
    left = _left(choice, epsilon, delta)
    if left < 0.0:
        return math.inf
    if choice.is_pure and choice.pure_epsilon <= epsilon:
        return choice.pure_epsilon
    return BasicComposition(Mixture.of(choice)).simple_epsilon(left, epsilon)


def _is_shown_quickly(choice: Totals, epsilon: float, delta: float) -> bool:
    """Return whether a cheap bound proves (epsilon, delta)."""
    if _epsilon_of_rest(choice, epsilon, delta, quick=True) <= epsilon:
        return True
    return _gains(choice, epsilon, delta) and _choice_epsilon(choice, delta, quick=True) <= epsilon


def _gains(choice: Totals, epsilon: float, delta: float) -> bool:
    """Return whether distances cost notably less at a smaller epsilon."""
    return _left(choice, 0.0, delta) - _left(choice, epsilon, delta) > LITTLE_LEFT * delta


def _is_refuted(choice: Totals, epsilon: float, delta: float) -> bool:
    """Return whether a part of a choice alone costs more than (epsilon, delta)."""
    # Distances cost least at the smallest epsilon, and no delta is below that at the largest.
    left, mixture = _left(choice, 0.0, delta), Mixture.of(choice)
    if left < 0.0:
        return False
    largest = max((size for size, _ in mixture.pure), default=0.0)
    alone = [Gaussian(mixture.mu).delta(epsilon), -0.5 * math.expm1(min(epsilon - largest, 0.0))]
    if mixture.rho:
        alone.append(Grid(Mixture(rho=mixture.rho)).delta(epsilon))
    # The event of each kind that is likely to leak most.
    if mixture.objective:
        event, _ = min(mixture.objective, key=lambda found: found[0].sigma)
        found = profile(event, epsilon)
        if is_joint(event):
            # Its values step up and down: chords between them may be far below a value.
            one = Mixture(objective=((event, 1),), replace_one=mixture.replace_one)
            found = min(found, Grid(one).delta(epsilon))
        alone.append(found)
    if mixture.sampled and not max(alone) > ALONE * left:
        z, q, n = max(mixture.sampled, key=_size)
        # Fewer steps leak less, and what they leak is mostly known.
        rest = max(0, n.bit_length() - FEW_DIGITS)
        steps = Steps(z, q, n >> rest << rest, mixture.replace_one)
        if not steps.is_vacuous and MIN_DELTA <= ALONE * left < 1.0:
            asked = ALONE * left
            return _quickly_needed(steps, asked) > epsilon and _needed(steps, asked) > epsilon
    return max(alone) > ALONE * left


def _exact_delta(choice: Totals, epsilon: float, *, quick: bool = False) -> float:
    """Return the delta of one choice without its distances; a ``quick`` one may be larger."""
    left, leak = add_down(epsilon, -choice.pure_epsilon), choice.leak
    found = _delta(Mixture.of(choice, pure=False), left, quick=quick) if left >= 0.0 else 1.0
    # With pure events it is at least that of the rest times the probability of their largest loss.
    unlikely = sum(n * math.log1p(math.exp(-size)) for size, n in choice.pure.items())
    if found and (left < 0.0 or unlikely > (NEARLY_SURE if quick else 0.0)):
        found = min(found, _delta(Mixture.of(choice), epsilon, quick=quick))
    if leak:
        found = min(1.0, add_up(leak, mul_up(add_up(1.0, -leak), found)))
    # Never 0, even on underflow: an event that is not pure has no guarantee with delta = 0.
    return found if choice.is_pure else max(found, SMALLEST_FLOAT)


# Bounds of the summed loss of a plain list of events.

# Sampled steps that count as whole batches: their Gaussian parameter over the largest parameter of
# another event, and its square over that of a Gaussian part; the first also for the loss of an
# objective that gets the fewest points. None changes four digits.
FAINT, FAINT_AMONG_GAUSSIANS = 1e-5, Fraction(1, 10_000)
# Largest cost of a part that is charged in full: of epsilon, all together, and of delta, each.
FAINT_IN_FULL, FAINT_DELTA = 5e-6, 1e-7
# The former beside a Gaussian loss with a parameter beyond the second number, tried as well, and
# whatever can be charged in full.
MORE_IN_FULL, LARGE_MU = 0.01, 12.0
# Pure events from this size on lose nothing if they are charged in full: their loss is negative
# with a probability of e^-16 at most.
LARGE_PURE = 16.0


class Law(Hashable, Protocol):
    """Upper bounds of delta at an epsilon, and of the smallest epsilon at a delta."""

    def delta(self, epsilon: float, /) -> float:
        """Return delta at ``epsilon >= 0``."""

    def epsilon(self, delta: float, /) -> float:
        """Return epsilon at a ``delta`` for which every grid is fine enough."""


class Mixture(NamedTuple):
    """A plain list of events, without infinite losses and distances."""

    mu: float = 0.0
    pure: tuple[tuple[float, int], ...] = ()
    sampled: tuple[Group, ...] = ()
    rho: float = 0.0
    objective: tuple[tuple[ObjectiveEvent, int], ...] = ()
    curved: tuple[tuple[CurvedEvent, int], ...] = ()
    replace_one: bool = False

    @classmethod
    def of(cls, totals: Totals, *, pure: bool = True) -> Mixture:
        """Return the content of totals, with or without the pure events."""
        sampled, curved = totals.sampled, totals.curved
        if sampled and any(map(_is_step, curved)):
            # Directions in turn: steps of one record together with those of several.
            adjacency = totals.adjacency or ""
            ones = {
                Grouped(SubsampledGaussianEvent(z, q, 1, adjacency), 1): n
                for (z, q), n in sampled.items()
            }
            sampled, curved = Counter(), curved + Counter(ones)
        mixture = cls(
            mu=totals.mu,
            pure=tuple(sorted(totals.pure.items())) if pure else (),
            sampled=tuple(sorted((z, q, n) for (z, q), n in sampled.items())),
            rho=fraction_up(totals.rho),
            objective=tuple(sorted(totals.objective.items(), key=repr)),
            curved=tuple(sorted(curved.items(), key=repr)),
            replace_one=totals.adjacency == "replace_one",
        )
        return mixture.without_faint_steps(totals.mu_squared)

    def without_faint_steps(self, mu_squared: Fraction) -> Mixture:
        """Return the same with steps that are tiny next to other events as Gaussian releases.

        Many tiny steps need a fine grid: docs/proofs/accountant.md, "The whole batch".
        """
        moved = 2.0 if self.replace_one else 1.0
        others = [math.sqrt(self.rho), *(size for size, _ in self.pure)]
        others += [1.0 / event.sigma for event, _ in self.objective]
        most = max(Fraction(FAINT * max(others)) ** 2, mu_squared * FAINT_AMONG_GAUSSIANS)
        squares = {
            (z, q, n): Fraction(div_up(moved, z)) ** 2 * n for z, q, n in self.sampled if z > 1.0
        }
        faint, total = set(), Fraction(0)
        for group in sorted(squares, key=lambda group: (squares[group], group)):
            total += squares[group]
            if total > most:
                break
            faint.add(group)
        if not faint:
            return self
        sampled = tuple(group for group in self.sampled if group not in faint)
        together = mu_squared + sum((squares[group] for group in faint), Fraction(0))
        return self._replace(mu=sqrt_up(fraction_up(together)), sampled=sampled)

    @property
    def pure_epsilon(self) -> float:
        """Sum of the epsilons of pure events, rounded up."""
        return fraction_up(sum((Fraction(e) * n for e, n in self.pure), Fraction(0)))

    @property
    def has_points(self) -> bool:
        """Whether some events are known only by points of a profile, down to a delta."""
        return bool(self.objective) or any(_is_step(event) for event, _ in self.curved)


@lru_cache(maxsize=256)
def _delta(mixture: Mixture, epsilon: float, *, quick: bool = False) -> float:
    """Return the delta of a mixture: the smallest bound of its laws."""
    asked = _quick_curves(mixture) if quick else (law.delta for law in _laws(mixture))
    found = min(ask(epsilon) for ask in asked)
    return found if found < 1.0 else BasicComposition(mixture).delta(epsilon)


# Shares of the largest loss between which chords of a quick curve are drawn: over a wide range
# those of a joint law are far above it.
TABLES = ((0.0, 0.25), (0.25, 0.5), (0.5, 1.0))


@lru_cache(maxsize=64)
def _quick_curves(mixture: Mixture) -> list[Function]:
    """Return delta as a function of epsilon by each law, at less cost."""
    return list(map(_quick_curve, _laws(mixture)))


def _quick_curve(law: Law) -> Function:
    """Return delta as a function of epsilon, or a little more."""
    if isinstance(law, Steps) and not law.is_vacuous:
        law = _on_grid(law)
    if isinstance(law, Grid):
        return partial(law.delta, quick=True)
    if isinstance(law, ObjectiveWithGaussian):
        most = law.most()
        tables = [law.between(low * most, high * most) for low, high in TABLES]
        return lambda epsilon: min(table(epsilon) for table in tables)
    return (law.quickly if isinstance(law, Curve) else None) or law.delta


@lru_cache(maxsize=512)
def _epsilon(mixture: Mixture, delta: float, *, quick: bool = False) -> float:
    """Return the epsilon of a mixture: the least bound of its laws and the parts in full."""
    if delta < MIN_DELTA:
        return math.inf
    # Next to a Gaussian loss this large a grid may be far above the truth.
    shares = [FAINT_IN_FULL, *((MORE_IN_FULL, math.inf) if mixture.mu > LARGE_MU else ())]
    looks = [(_beside_in_full(mixture, delta, share, quick=True), share) for share in shares]
    found, share = min(looks)
    if not quick:
        found = min(found, _beside_in_full(mixture, delta, share, quick=False))
    pure = mixture.pure_epsilon
    if pure > (0.5 if quick else 0.02) * found:
        # A grid for the rest alone may be finer.
        rest = mixture._replace(pure=())
        needed = _epsilon(rest, delta, quick=True)
        if not quick and add_up(pure, CLOSER_SHARE * needed) < found:
            needed = min(needed, _epsilon(rest, delta))
        found = min(found, add_up(pure, needed))
    return found if found < math.inf else BasicComposition(mixture).epsilon(delta, quick=quick)


def _beside_in_full(mixture: Mixture, delta: float, share: float, *, quick: bool) -> float:
    """Return the epsilon of a mixture of which about a ``share`` of epsilon is charged in full."""
    kept, in_full, left = _in_full(mixture, delta, share)
    if left < MIN_DELTA:
        return math.inf
    return add_up(in_full, _by_laws(kept, left, quick=quick))


@lru_cache(maxsize=512)
def _by_laws(mixture: Mixture, delta: float, *, quick: bool) -> float:
    """Return the epsilon of a mixture: the smallest bound of its laws."""
    near = 0.0 if quick else _by_laws(mixture, delta, quick=True)
    return min(_by_law(law, delta, quick=quick, near=near) for law in _laws(mixture))


def _by_law(law: Law, delta: float, *, quick: bool, near: float = 0.0) -> float:
    """Return the epsilon of a law; a curve is looked at a little below ``near`` first."""
    if isinstance(law, Curve) and not quick:
        return law.epsilon(delta, near=near)
    if quick and isinstance(law, Steps):
        return _quickly_needed(law, delta)
    return (
        law.quick_epsilon(delta) if quick and isinstance(law, Grid | Curve) else law.epsilon(delta)
    )


@lru_cache(maxsize=512)
def _in_full(mixture: Mixture, delta: float, most_share: float) -> tuple[Mixture, float, float]:
    """Return the rest of a mixture, epsilon of events charged in full, and the delta they leave.

    Such as cost in full hardly more than among the others, and would need a fine grid, a wide one
    or costly points: docs/proofs/accountant.md, "Charged in full".
    """
    _, pure, sampled, rho, objective, _, replace_one = mixture
    if not (sampled or rho or objective):
        return mixture, 0.0, delta
    # About the Gaussian parameter of the largest part, and its epsilon: they only decide how much
    # is lost, not what holds.
    moved = 2.0 if replace_one else 1.0
    spread = {(z, q, n): moved * q * math.sqrt(n) / z for z, q, n in sampled}
    sizes = [mixture.mu, math.sqrt(2.0 * rho), *spread.values()]
    mu = max(*sizes, 1.0 / min((event.sigma for event, _ in objective), default=math.inf))
    largest_pure = max((size for size, _ in pure), default=0.0)
    most = most_share * max(Gaussian(mu).epsilon(delta), largest_pure)
    share, left = _share(FAINT_DELTA * delta), delta
    faint: list[tuple[float, float, object]] = []
    for group in sampled:
        if share >= MIN_DELTA and spread[group] < most:
            faint.append((_quickly_needed(Steps(*group, replace_one), share), share, group))
    for event, count in objective:
        at = mul_up(reach(event), float(count))
        if at <= most:
            cost = mul_up(profile(event, reach(event)), count * HEADROOM)
            faint.append((at, cost, (event, count)))
    faint += [(mul_up(size, float(count)), 0.0, (size, count)) for size, count in pure]
    in_full, dropped = 0.0, set()
    for needed, cost, part in sorted(faint, key=lambda found: found[:2]):
        if add_up(in_full, needed) <= most and cost <= share:
            in_full, left = add_up(in_full, needed), add_down(left, -cost)
            dropped.add(part)
    for size, count in pure:
        if size >= LARGE_PURE and (size, count) not in dropped:
            in_full = add_up(in_full, mul_up(size, float(count)))
            dropped.add((size, count))
    kept: dict[str, Any] = {
        name: tuple(part for part in getattr(mixture, name) if part not in dropped)
        for name in ("pure", "sampled", "objective")
    }
    return mixture._replace(**kept), in_full, left


def _short(delta: float) -> float:
    """Round down to twenty binary digits."""
    share, power = math.frexp(delta)
    return math.ldexp(math.floor(math.ldexp(share, 20)), power - 20)


def _share(delta: float) -> float:
    """Return the next smaller power of two: what a part needs there is mostly known already."""
    return 2.0 ** (math.frexp(delta)[1] - 1)


def _laws(mixture: Mixture) -> list[Law]:
    """Return the laws of a mixture: one if it is tight, several if any may be the smallest."""
    mu, pure, sampled, rho, objective, curved, _ = mixture
    steps = tuple((event, count) for event, count in curved if _is_step(event))
    if steps:
        return [Grid(mixture), *_laws(_of_whole_batches(mixture, steps))]
    if not (sampled or rho or objective or curved):
        if not pure:
            return [Gaussian(mu)]
        few = _outcomes(pure, OUTCOMES_WITH_GAUSSIAN if mu else MAX_OUTCOMES)
        return [Grid(mixture) if few is None else Responses(mu, *few)]
    if not (pure or sampled or objective or curved):
        # A Gaussian mechanism is zCDP, too.
        concentrated = Grid(Mixture(rho=add_up(rho, mul_up(mul_up(mu, mu), 0.5))))
        return [concentrated, Grid(mixture)] if mu else [concentrated]
    if not (mu or pure or rho) and len(sampled) + len(objective) + len(curved) == 1:
        ((law, count),) = _parts(mixture, closely=True)
        if count == 1:
            return [law]
    if not (sampled or rho or curved) and sum(count for _, count in objective) == 1:
        ((event, _),) = objective
        most = OUTCOMES_WITH_PROFILE if mu else math.ceil(LONGEST_SUM / point_cost(event))
        few = _outcomes(pure, most)
        if few is not None and not mu:
            high = reach(event) + float(few[0].max())
            return [Curve(partial(_with_responses, event, *few), high)]
        if few is not None and is_quick(event) and mu < LARGEST_MU_FOR_CHORDS:
            return [ObjectiveWithGaussian(event, mu, *few)]
    return [Grid(mixture)]


def _is_step(event: CurvedEvent) -> bool:
    """Return whether it is a sampled step for several records."""
    return isinstance(ungrouped(event)[0], SubsampledGaussianEvent)


def _of_whole_batches(mixture: Mixture, steps: tuple[tuple[CurvedEvent, int], ...]) -> Mixture:
    """Return a mixture in which every record is in all steps, which leaks more."""
    squares = Fraction(mixture.mu) ** 2
    for step, count in steps:
        event, size = ungrouped(step)
        assert isinstance(event, SubsampledGaussianEvent)
        moved = 2.0 if mixture.replace_one else 1.0
        squares += (Fraction(div_up(moved, event.noise_multiplier)) * size) ** 2 * count
    curved = tuple(item for item in mixture.curved if item not in steps)
    return mixture._replace(mu=sqrt_up(fraction_up(squares)), curved=curved)


def _parts(mixture: Mixture, *, closely: bool = False) -> list[tuple[Law, int]]:
    """Return the laws of the parts of a mixture without its pure events, each with its count.

    Profiles of objectives are looked at ``closely``, value by value, or by their points.
    """
    found: list[tuple[Law, int]] = []
    if mixture.mu:
        found.append((Gaussian(mixture.mu), 1))
    if mixture.rho:
        found.append((Grid(Mixture(rho=mixture.rho)), 1))
    groups = few_groups(mixture.sampled)
    found += [(Steps(*group, mixture.replace_one), 1) for group in groups]
    for event, count in few_objectives(mixture.objective):
        alone = Mixture(objective=((event, 1),), replace_one=mixture.replace_one)
        curve = closely or profile_points(event, FLOORS[0]) is None
        found.append((_curve_of(event) if curve else Grid(alone), count))
    for curved, count in mixture.curved:
        if _is_step(curved):
            steps = Mixture(curved=((curved, count),), replace_one=mixture.replace_one)
            found.append((Grid(steps), 1))
        else:
            found.append((Curve(_profile(curved)[0]), count))
    return found


@dataclass(frozen=True)
class Gaussian:
    """Loss of all Gaussian mechanisms together; zero at mu = 0."""

    mu: float

    def delta(self, epsilon: float) -> float:
        """Return delta at any real epsilon."""
        if self.mu == 0.0:
            return 0.0 if epsilon >= 0.0 else min(1.0, round_up(-math.expm1(epsilon), 4))
        if math.isinf(self.mu) or epsilon == -math.inf:
            return 1.0
        # Never 0, even on underflow.
        sigma = div_down(1.0, max(self.mu, MIN_MU))
        return min(1.0, max(SMALLEST_FLOAT, _core.gaussian_delta(epsilon, sigma)))

    def epsilon(self, delta: float) -> float:
        """Return epsilon at a delta."""
        if self.mu == 0.0 or math.isinf(self.mu):
            return self.mu
        return _core.gaussian_epsilon(delta, div_down(1.0, max(self.mu, MIN_MU)))


# Largest number of outcomes of randomised responses, smaller where each costs a Gaussian delta
# or meets every node of a profile; milliseconds for all, where each costs one value of a profile.
MAX_OUTCOMES, OUTCOMES_WITH_GAUSSIAN, OUTCOMES_WITH_PROFILE = 20_000, 2_000, 500
LONGEST_SUM = 10.0
# Largest relative excess of a sum through one of its terms.
HARDLY_NOTICED = 1e-9


@dataclass(frozen=True)
class Responses:
    r"""Randomised responses and a Gaussian loss: :math:`E_L[\delta_G(\epsilon - L; \mu)]`."""

    mu: float
    losses: Array
    masses: Array

    def delta(self, epsilon: float) -> float:
        """Return delta at an epsilon."""
        # The rounding of the losses and of epsilon - L, on numbers no larger than these.
        largest = float(self.losses.max())
        slack = (4.0 + 4.0 * math.log2(self.losses.size)) * math.ulp(epsilon + largest)
        left = epsilon - self.losses - slack
        if self.mu == 0.0:
            total = float(self.masses @ -np.expm1(np.minimum(left, 0.0)))
        else:
            gaussian = Gaussian(self.mu)
            total = math.fsum(
                mass * gaussian.delta(float(x))
                for mass, x in zip(self.masses, left, strict=True)
                if mass > 0.0
            )
        total = mul_up(total, 1.0 + (self.losses.size + 8.0) * ERROR)
        return min(1.0, add_up(total, UNDERFLOW * self.losses.size))

    def epsilon(self, delta: float) -> float:
        """Return epsilon at a delta."""
        high = add_up(Gaussian(self.mu).epsilon(delta), float(self.losses.max()))
        return crossing(self.delta, delta, 0.0, high) if high < math.inf else high


def _with_responses(event: ObjectiveEvent, losses: Array, masses: Array, epsilon: float) -> float:
    """Return the delta of one objective event and few outcomes of randomised responses."""
    left = epsilon - losses - 8.0 * math.ulp(1.0 + epsilon + float(losses.max()))
    total, least = 0.0, 1.0
    # From 0 outwards the profile falls: negligible terms are not computed.
    for i in np.argsort(np.abs(left)):
        x, mass = float(left[i]), float(masses[i])
        if mass * least > HARDLY_NOTICED * total:
            least = min(least, profile(event, abs(x)))
        total += mass * (least if x >= 0.0 else round_up(1.0 - math.exp(x) * (1.0 - least), 4))
    return min(1.0, add_up(mul_up(total, 1.0 + losses.size * ERROR), SMALLEST_FLOAT))


@lru_cache(maxsize=64)
def _outcomes(pure: tuple[tuple[float, int], ...], most: int) -> tuple[Array, Array] | None:
    """Return losses and masses of all outcomes of responses, rounded up; None for too many."""
    if math.prod(count + 1 for _, count in pure) > most:
        return None
    losses, masses = np.zeros(1), np.ones(1)
    for size, count in pure:
        minus = np.arange(count + 1, dtype=np.float64)
        logs = gammaln(count + 1.0) - gammaln(minus + 1.0) - gammaln(count - minus + 1.0)
        logs = logs - minus * size - count * math.log1p(math.exp(-size))
        # The absolute error of a logarithm is the relative error of its mass.
        widen = ERROR * (1.0 + 3.0 * float(gammaln(count + 1.0)) + count * (size + 1.0))
        more = np.exp(np.minimum(logs + widen, 0.0))
        losses = np.add.outer(losses, (count - 2.0 * minus) * size).ravel()
        masses = np.multiply.outer(masses, more).ravel() * (1.0 + ERROR)
    return losses, masses


# No larger epsilon is searched for: it would be vacuous. Precision of a quick answer.
LARGEST_SEARCHED, QUICKLY = 1e5, 1e-3


@dataclass(frozen=True)
class Curve:
    """An event given by its privacy profile, which falls to little at about ``end``."""

    profile: Function
    end: float = 1.0
    # Cheaper bounds: to search for epsilon, and for a quick answer.
    above: Function | None = None
    quickly: Function | None = None

    def delta(self, epsilon: float) -> float:
        """Return delta at an epsilon."""
        found = self.profile(epsilon)
        if self.above:
            found = min(found, self.above(epsilon))
        return min(1.0, found)

    def epsilon(self, delta: float, within: float = 1e-12, near: float = 0.0) -> float:
        """Return epsilon at a delta, known to be a little below ``near``, if that is given."""
        low, high = 0.0, self.end
        if 0.0 < near < math.inf:
            low, high = near * (1.0 - 2.0 * QUICKLY), near
        curve = self.above or self.profile
        while curve(high) > delta:
            high *= 2.0
            if high > LARGEST_SEARCHED:
                return math.inf
        return crossing(curve, delta, low, high, within)

    def quick_epsilon(self, delta: float) -> float:
        """Return an upper bound of epsilon at a delta, at less cost."""
        return self.epsilon(delta, QUICKLY)


@lru_cache(maxsize=256)
def _curve_of(event: ObjectiveEvent) -> Curve:
    """Return the law of one objective by value: the same object each time, as a cache key."""
    if not is_joint(event):
        return Curve(partial(profile, event), reach(event))
    many = event.n_scores > MANY_SCORES
    chords = partial(on_chords, event, parts=1 if many else QUICK_PARTS)
    return Curve(partial(profile, event), reach(event), chords if many else None, chords)


# Scores from which one value of a joint profile takes as long as a curve of few classes, and parts
# of that of fewer for a quick answer.
MANY_SCORES, QUICK_PARTS = 300, 8


# Number of events with costly points that get as many points as a single one, and for a quick
# answer.
COSTLY_EVENTS, QUICK_EVENTS = 2.0, 0.3
# Deltas that profiles of objectives go down to, the next where a result is not far above the last.
FLOORS, FAR_ABOVE = (1e-17, 1e-300), 1e4


@dataclass(frozen=True)
class Grid:
    """Losses rounded up to a grid and added; losses above the grid count as infinite."""

    mixture: Mixture

    def delta(self, epsilon: float, *, quick: bool = False) -> float:
        """Return delta at an epsilon; a ``quick`` one is mostly hardly larger."""
        law, least = _core.LossDistribution, 1.0
        ask = law.quick_delta if quick else law.delta
        for floor in FLOORS:
            laws = _distributions(self.mixture, floor)
            if laws:
                found = max(ask(law, epsilon) for law in laws)
                least = min(least, mul_up(found, self._headroom))
            # Refine if something is known by points and more of them cost little.
            events = [event for event, _ in self.mixture.objective]
            worth = self.mixture.has_points and all(map(is_quick, events))
            if least > FAR_ABOVE * floor or not worth:
                break
        return least

    def epsilon(self, delta: float) -> float:
        """Return epsilon at a delta; a finer grid is not always the tighter one."""
        law = _core.LossDistribution
        return min(self._of_laws(delta, ask) for ask in (law.epsilon, law.quick_epsilon))

    def quick_epsilon(self, delta: float) -> float:
        """Return an upper bound of epsilon at a delta, at little cost."""
        return self._of_laws(delta, _core.LossDistribution.quick_epsilon, QUICK_EVENTS)

    def _of_laws(
        self,
        delta: float,
        ask: Callable[[_core.LossDistribution, float], float],
        costly: float = COSTLY_EVENTS,
    ) -> float:
        """Ask the law of each direction; the largest answer."""
        # A point far below costs little; otherwise a curve that ends a little below does.
        quick = all(is_quick(event) for event, _ in self.mixture.objective)
        far = FAR_ABOVE if quick else 8.0 * sum(count for _, count in self.mixture.objective)
        floor = next((floor for floor in FLOORS if delta > far * floor), FLOORS[-1])
        floor = floor if self.mixture.has_points else FLOORS[0]
        laws = _distributions(self.mixture, floor, COSTLY_EVENTS if quick else costly)
        delta = max(delta / self._headroom, MIN_DELTA)
        return max((ask(law, delta) for law in laws), default=math.inf)

    @property
    def _headroom(self) -> float:
        """Slack for verifiers that use their own tables."""
        return HEADROOM if self.mixture.objective else 1.0


@lru_cache(maxsize=64)
def _distributions(
    mixture: Mixture, floor: float, costly: float = COSTLY_EVENTS
) -> tuple[_core.LossDistribution, ...]:
    """Return the loss distribution of all events: one a direction for several records.

    None of them where one may have a loss too large for any grid. Costly points are shared out as
    those of so many events.
    """
    sizes = [0.5 * mixture.mu**2, mixture.rho, *(size * n for size, n in mixture.pure)]
    steps = (Steps(*group, mixture.replace_one) for group in mixture.sampled)
    if max(sizes) > VACUOUS_EPSILON or any(one.is_vacuous for one in steps):
        return ()
    profiles = []
    objective = few_objectives(mixture.objective)
    # Next to a far larger loss the fewest points suffice.
    reaches = [count * reach(event) for event, count in objective]
    faint = FAINT * max(mixture.mu, *reaches, 0.0)
    n_costly = sum(
        at > faint and not is_quick(event)
        for at, (event, _) in zip(reaches, objective, strict=True)
    )
    for at, (event, count) in zip(reaches, objective, strict=True):
        share = min(1.0, costly / max(1, n_costly)) if at > faint else 0.0
        points = profile_points(event, floor, share)
        if points is None:
            return ()
        profiles.append((*points, count))
    joined = sum(count for event, count in mixture.curved if _is_step(event))
    ways = ("remove", "add") if joined and not mixture.replace_one else ("replace",)
    cut = floor / max(1, joined)
    return tuple(
        _core.LossDistribution(
            subsampled=few_groups(mixture.sampled),
            gaussian_mu=mixture.mu,
            pure=few_sizes(mixture.pure),
            zcdp_rho=mixture.rho,
            profiles=[
                *profiles,
                *((*_curved_points(event, way, cut), count) for event, count in mixture.curved),
            ],
            replace_one=mixture.replace_one,
        )
        for way in ways
    )


# Deltas to try with basic composition.
LAST_RESORTS = (1e-2, 1e-4, 1e-6, 1e-9, 1e-12, 1e-16)
# A Gaussian part smaller than the first counts as one of that size; beyond the second no chords are
# drawn beside it.
MIN_MU, LARGEST_MU_FOR_CHORDS = 1e-300, 1e3


@dataclass(frozen=True)
class BasicComposition:
    """Basic composition with equal shares of delta, for parts that are too large for any grid."""

    mixture: Mixture

    def delta(self, epsilon: float) -> float:
        """Return the smallest of a few deltas at which this is at most ``epsilon``."""
        found = 1.0
        for delta in LAST_RESORTS:
            if self.epsilon(delta, quick=True) > epsilon:
                break
            found = delta
        return found

    def epsilon(self, delta: float, *, quick: bool = False) -> float:
        """Return epsilon at a delta; a ``quick`` one may be larger."""
        parts = _parts(self.mixture)
        share = div_down(delta, float(max(1, sum(count for _, count in parts))))
        if share < MIN_DELTA:
            return math.inf
        needed = [_by_law(law, share, quick=True) for law, _ in parts]
        if not quick:
            # The part that costs most is looked at closely, or all without a quick answer.
            costs = [at * count for at, (_, count) in zip(needed, parts, strict=True)]
            for i, (law, _) in enumerate(parts):
                if costs[i] == max(costs):
                    needed[i] = min(needed[i], _needed(law, share))
        found = self.mixture.pure_epsilon
        for at, (_, count) in zip(needed, parts, strict=True):
            found = add_up(found, mul_up(at, float(count)))
        return found

    def simple_epsilon(self, delta: float, most: float) -> float:
        """Return epsilon with one point of each objective; infinity where it exceeds ``most``.

        Shares are powers of two, so that what a part needs is mostly known from earlier questions.
        """
        objective = few_objectives(self.mixture.objective)
        parts = _parts(self.mixture._replace(objective=()))
        n = max(1, sum(count for _, count in (*parts, *objective)))
        share, needed, cost = _share(delta / n), self.mixture.pure_epsilon, 0.0
        if share < MIN_DELTA or any(_is_step(event) for event, _ in self.mixture.curved):
            return math.inf
        points = itertools.chain(
            ((_by_law(law, share, quick=True), share, count) for law, count in parts),
            ((reach(event), profile(event, reach(event)), count) for event, count in objective),
        )
        for at, spent, count in points:
            needed = add_up(needed, mul_up(at, float(count)))
            cost = add_up(cost, mul_up(spent, count * HEADROOM))
            if needed > most or cost > delta:
                return math.inf
        return needed if needed <= most else math.inf


@lru_cache(maxsize=1024)
def _needed(law: Law, delta: float) -> float:
    """Return the epsilon of one part."""
    return law.epsilon(delta)


@lru_cache(maxsize=1024)
def _quickly_needed(steps: Steps, delta: float) -> float:
    """Return the epsilon of sampled steps, or a little more."""
    return steps.epsilon(delta) if steps.is_vacuous else _on_grid(steps).quick_epsilon(delta)


def _on_grid(steps: Steps) -> Grid:
    """Return sampled steps as a mixture."""
    sampled = ((steps.z, steps.q, steps.n_steps),)
    return Grid(Mixture(sampled=sampled, replace_one=steps.replace_one))


# Sizes of pure events that a grid distinguishes, kinds of sampled steps, and the number up to which
# the best pairs to merge are searched.
MAX_SIZES, MANY_SIZES = 64, 256
MAX_GROUPS, MANY_GROUPS = 24, 128


def few_sizes(pure: tuple[tuple[float, int], ...]) -> list[tuple[float, int]]:
    """Return pure events of at most ``MAX_SIZES`` sizes, each at least the size it replaces."""
    return _few(
        pure,
        lambda one, other: (max(one[0], other[0]), one[1] + other[1]),
        lambda _, one, other: one[1] * (other[0] - one[0]),
        (MAX_SIZES, MANY_SIZES, 1e-4),
    )


def few_groups(sampled: tuple[Group, ...]) -> list[Group]:
    """Return sampled steps of at most ``MAX_GROUPS`` kinds, merged to less noise, larger rates."""
    return _few(
        sampled,
        lambda one, other: (min(one[0], other[0]), max(one[1], other[1]), one[2] + other[2]),
        lambda both, one, other: _size(both) - _size(one) - _size(other),
        (MAX_GROUPS, MANY_GROUPS, 1e-3),
    )


def few_objectives(
    objective: tuple[tuple[ObjectiveEvent, int], ...],
) -> list[tuple[ObjectiveEvent, int]]:
    """Merge objectives of one law into few kinds, by the smallest noise and largest curvature.

    Bounds there hold for each: docs/proofs/objective_perturbation.md, "Less noise, more curvature".
    """
    laws: dict[tuple[str, int, bool], list[tuple[ObjectiveEvent, int]]] = {}
    for event, count in objective:
        law = (event.law, event.n_scores, event.kappa is None)
        laws.setdefault(law, []).append((event, count))
    found = []
    for (_, _, given), events in laws.items():
        first = events[0][0]
        most = most_kinds(first)
        if len(events) <= most:
            found += events
            continue
        kinds = _few(
            tuple((e.sigma, e.jacobian if given else e.kappa, count) for e, count in events),
            lambda one, other: (min(one[0], other[0]), max(one[1], other[1]), one[2] + other[2]),
            lambda both, one, other: _loss(both) - _loss(one) - _loss(other),
            (most, math.inf, 1e-3),
        )
        for sigma, price, count in kinds:
            kappa, jacobian = (None, price) if given else (price, None)
            found.append((replace(first, sigma=sigma, kappa=kappa, jacobian=jacobian), count))
    return found


def _loss(kind: tuple[float, float, int]) -> float:
    """Return the approximate squared loss of objectives of one kind."""
    sigma, price, count = kind
    return count * (1.0 / sigma + min(price, 1.0 / sigma)) ** 2


def _few(kinds: Any, joined: Any, cost: Any, limits: tuple[int, float, float]) -> list[Any]:
    """Merge kinds of events, each ending with its count, until there are few enough.

    ``joined`` is a kind that leaks at least as much as two, and ``cost`` the excess of its leak.
    """
    most, many, width = limits
    groups = sorted(kinds)
    while len(groups) > many:
        # Equal up to a tolerance, which grows until few enough are left.
        near: dict[tuple[int, ...], Any] = {}
        for group in groups:
            key = tuple(math.floor(math.log(number) / width) for number in group[:-1])
            near[key] = joined(near[key], group) if key in near else group
        groups, width = sorted(near.values()), 2.0 * width
    while len(groups) > most:
        pairs = [joined(one, other) for one, other in itertools.pairwise(groups)]
        costs = list(map(cost, pairs, groups[:-1], groups[1:]))
        i = costs.index(min(costs))
        groups[i : i + 2] = [pairs[i]]
    return groups


def _size(group: Group) -> float:
    """Return about the variance of the loss of a group."""
    z, q, n = group
    return n * q * min(q * math.expm1(min(1.0 / z / z, 700.0)), 1.0 / z / z)


# Profiles of events that are known by that of one run or of alternatives.

# Most points of the profile of one run, and the least step from one to the next over the numbers
# there, a larger one at a jump of what takes long.
MAX_POINTS, SMALLEST_STEP, COSTLY_STEP = 2000, 1e-9, 1e-2
# By how much its logarithm may fall between two points: more where questions take longer, and twice
# as much each time that so many of them were asked.
CHEAP_FALL, FALL, COSTLY_FALL = 0.1, 0.3, 0.8
USUAL_POINTS = 32
# Points of a profile that is composed with other events, beside about as many of those of the
# curve that it is made of.
COMPOSED_POINTS = 64
# A profile ends below this delta, or at this epsilon.
NEGLIGIBLE_DELTA, LARGEST_EPSILON = 1e-16, 256.0
# Beyond, e^epsilon overflows.
LARGEST_EXPONENT = 700.0
# A profile counts as ended where it is that close to its limit.
CLOSE = 1.0 + 1e-6


@lru_cache(maxsize=256)
def _profile(event: CurvedEvent) -> tuple[Function, Array]:
    """Return delta as a function of epsilon, and points of the curve that it is made of."""
    inner, size = ungrouped(event)
    profile: tuple[Function, Array] = inner.charge(_Profile(size))
    return profile


class _Profile(NamedTuple):
    """Makes the profile of an event for ``size`` records, by the method with its tag."""

    size: int

    def add_objective(self, event: ObjectiveEvent) -> tuple[Function, Array]:
        x, g = _of_group(event, self.size)
        return BaseCurve(np.append(x, x[-1] + 1.0), np.append(g, g[-1])).delta, x

    def add_alternatives(self, event: AlternativesEvent) -> tuple[Function, Array]:
        branches = (choices(of_events(branch, self.size)) for branch in event.branches)
        curve = base_curve(uncovered([choice for found in branches for choice in found]))
        return curve.delta, curve.epsilons

    def add_random_stopping(self, event: RandomStoppingEvent) -> tuple[Function, Array]:
        law, found = StoppingLaw.of(event), choices(of_events(event.base, self.size))
        curve = base_curve(found)
        kernel = StoppingKernel(law, curve)
        others = (c.pure or c.sampled or c.objective or c.leaks or c.curved for c in found)
        if any(others) or not any(choice.rho for choice in found):
            return kernel.delta, curve.epsilons
        # All events of one run are zCDP.
        rho = fraction_up(max(choice.rho + choice.mu_squared / 2 for choice in found))
        return (
            lambda epsilon: min(kernel.delta(epsilon), stopped_zcdp_delta(law, rho, epsilon)),
            curve.epsilons,
        )


def _of_group(event: ObjectiveEvent, size: int) -> tuple[Array, Array]:
    """Return the points of the curve of noise in one objective, for several records of one person.

    A path of as many steps is nearly exact for few records. Where few points of one step are known
    it ends with nothing for many, of which the other bound is the better one.
    """
    quick = is_quick(event)
    floor = FLOORS[-1 if quick else 0]
    points = profile_points(event, floor)
    x, g = (np.zeros(1), np.ones(1)) if points is None else path_points(*points, size)
    together = None if quick else group_points(event, size, floor)
    if together is None:
        return x, g
    x, g = increasing(np.append(x, together[0]), np.append(g, together[1]))
    # The true curve is convex in e^epsilon, so chords from a point of one to one of the other hold.
    hull, _ = lower_hull(np.exp(x[x < LARGEST_EXPONENT]), g[x < LARGEST_EXPONENT])
    return x[hull], g[hull]


def base_curve(found: list[Totals]) -> BaseCurve:
    """Return the worst profile of one run's choices; points are about even in log delta."""

    def deltas(epsilon: float, known: list[float]) -> list[float]:
        """Return delta of each choice, or that at a smaller epsilon if another is larger."""
        values, largest = list(known), 0.0
        for i in sorted(range(len(found)), key=known.__getitem__, reverse=True):
            if known[i] <= largest:
                break
            values[i] = min(known[i], _choice_delta(found[i], epsilon, quick=True))
            largest = max(largest, values[i])
        return values

    fall = max(_fall(choice) for choice in found)
    nothing = [1.0] * len(found)
    limit = max(max(deltas(LARGEST_EPSILON, nothing)) * CLOSE, NEGLIGIBLE_DELTA)
    last = deltas(0.0, nothing)
    x, g = [0.0], [max(last)]
    first = step = fall * min(max(g[0], SMALLEST_STEP), 1.0)

    def least(epsilon: float) -> float:
        costly = COSTLY_STEP * max(epsilon, first) if fall >= COSTLY_FALL else 0.0
        return max(SMALLEST_STEP * (1.0 + epsilon), costly)

    # Points that were too far away, used later.
    ahead: list[tuple[float, list[float]]] = []
    asked = 0
    while g[-1] > limit and x[-1] < LARGEST_EPSILON and len(x) < MAX_POINTS:
        at = x[-1] + step
        if ahead and at > ahead[-1][0] - 0.5 * step:
            at, values = ahead.pop()
        else:
            values, asked = deltas(at, last), asked + 1
            if fall >= COSTLY_FALL and asked % USUAL_POINTS == 0:
                fall *= 2.0
        step = at - x[-1]
        fell = math.log(g[-1] / max(*values, 0.5 * limit))
        if fell > 2.0 * fall and max(values) > limit and step > least(x[-1]):
            ahead.append((at, values))
            step *= 0.5
            continue
        x.append(at)
        g.append(max(values))
        last = values
        step *= min(2.0, max(0.5, fall / max(fell, 1e-3 * fall)))
        step = max(step, least(x[-1]))
    return BaseCurve(np.array([*x, x[-1] + 1.0]), np.array([*g, g[-1]]))


def _is_costly(choice: Totals) -> bool:
    """Return whether one quick delta takes more than some milliseconds."""
    alone = Mixture.of(choice)
    if alone.sampled:
        return True
    for event, _ in alone.objective:
        if point_cost(event) > 1.0 and (alone.pure or not is_joint(event)):
            return True
    grids = (law.mixture for law in _laws(alone) if isinstance(law, Grid))
    return any(mixture != Mixture(rho=mixture.rho) for mixture in grids)


def _fall(choice: Totals) -> float:
    """Return by how much the logarithm of a curve may fall between two points."""
    if _is_costly(choice):
        return COSTLY_FALL
    return FALL if choice.pure or choice.objective or choice.curved else CHEAP_FALL


@lru_cache(maxsize=64)
def _curved_points(event: CurvedEvent, way: str, cut: float) -> tuple[Array, Array]:
    """Return increasing epsilons and bounds of delta there, for a loss distribution.

    They start at 0, except for sampled steps in one direction.
    """
    inner, size = ungrouped(event)
    if isinstance(inner, SubsampledGaussianEvent):
        return step_points(inner.noise_multiplier, inner.sampling_rate, size, way, cut)
    if isinstance(inner, ObjectiveEvent):
        return _of_group(inner, size)
    curve, known = _profile(event)
    enough = max(curve(4.0 * LARGEST_EPSILON) * CLOSE, 1e-17)
    top = 1.0
    while curve(top) > enough and top < 4.0 * LARGEST_EPSILON:
        top *= 2.0
    while top > 1e-9 and curve(0.8 * top) <= enough:
        top *= 0.8
    known = known[: np.searchsorted(known, top)]
    if not isinstance(inner, AlternativesEvent):
        # A maximum of alternatives is a curve of chords between all of them; others have bends.
        known = known[:: 1 + known.size // COMPOSED_POINTS]
    x = np.union1d(np.linspace(0.0, top, COMPOSED_POINTS), known)
    return x, np.array([curve(float(point)) for point in x])


@in_usual_arithmetic
def composed_delta(events: Iterable[PrivacyEvent], epsilon: float, *, group_size: int = 1) -> float:
    """Return delta of a composition of events at a given epsilon.

    Parameters
    ----------
    events : iterable of PrivacyEvent
        Events of one neighbouring relation.
    epsilon : float >= 0
    group_size : int in 1..2**20, default=1
        How many of the records that the events protect belong to one person, at most.

    Returns
    -------
    float in [0, 1]
        An upper bound; of Gaussian events and pure events of few different sizes, the exact value
        up to rounding.

    Raises
    ------
    TypeError, InvalidParameterError
        An event of unknown kind, events of two relations, or an epsilon outside its range.

    Examples
    --------
    >>> from dpsvm_fast.accounting import composed_delta
    >>> from dpsvm_fast.certificates import GaussianEvent
    >>> event = GaussianEvent(sigma=4.0, sensitivity=1.0, adjacency="add_remove")
    >>> round(composed_delta([event] * 4, 1.0), 6)
    0.00683
    """
    epsilon = check_real("composed_epsilon", epsilon, low=0.0, high=math.inf)
    return totals_delta(of_events(events, _check_size(group_size)), epsilon)


@in_usual_arithmetic
def composed_epsilon(events: Iterable[PrivacyEvent], delta: float, *, group_size: int = 1) -> float:
    """Return epsilon of a composition of events at a given delta.

    Parameters
    ----------
    events : iterable of PrivacyEvent
        Events of one neighbouring relation.
    delta : float in [0, 1)
    group_size : int in 1..2**20, default=1
        How many of the records that the events protect belong to one person, at most.

    Returns
    -------
    float >= 0
        An upper bound; infinity for ``delta=0`` with a Gaussian or objective event among them, and
        where distances cost all of delta.

    Raises
    ------
    TypeError, InvalidParameterError
        An event of unknown kind, events of two relations, or a delta outside its range.

    Examples
    --------
    >>> from dpsvm_fast.accounting import composed_epsilon
    >>> from dpsvm_fast.certificates import PureEvent
    >>> composed_epsilon([PureEvent(0.5, "add_remove")] * 3, 0.0)
    1.5
    """
    delta = check_delta("delta", delta)
    return totals_epsilon(of_events(events, _check_size(group_size)), delta)


# No person has more records than that.
LARGEST_GROUP = 2**20


def _check_size(group_size: object) -> int:
    """Check a number of records of one person."""
    return check_integer("group_size", group_size, 1, LARGEST_GROUP)


# Largest excess of an epsilon: a share of the budget, and at most so much.
NEARLY, MAX_ABOVE = 0.01, 1.0


class Composition:
    """Running composition of events that are charged to a budget.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1)
    adjacency : {"add_remove", "replace_one"}
    slack : float >= 0
        Relative, in both numbers, for events that were made to fill the budget.
    """

    def __init__(self, epsilon: float, delta: float, adjacency: str, slack: float) -> None:
        self._budget = epsilon, delta
        self._most = mul_up(epsilon, 1.0 + slack), mul_up(delta, 1.0 + slack)
        self._totals = Totals(adjacency)

    def add(self, *events: PrivacyEvent) -> None:
        """Add events; refuse an unknown kind or another relation."""
        more = Totals(self._totals.adjacency)
        for event in events:
            more.add(event)
        # Copies of the composition share the earlier totals.
        self._totals = self._totals.plus(more)

    def epsilon(self, delta: float, *, quick: bool = False) -> float:
        """Return an upper bound of the smallest epsilon at ``delta``; a quick one may be larger."""
        found = totals_epsilon(self._totals, delta, quick=quick)
        epsilon, most = self._budget[0], self._most[0]
        if delta == self._budget[1] and found > epsilon:
            # Delta at the epsilon of the budget may show what admitted the last spend.
            return min(found, most) if self.keeps_epsilon(iter(()) if quick else None) else found
        return found

    def remaining(self, *, quick: bool = False) -> float:
        """Return about the largest epsilon of a pure event that still fits, rounded down.

        A quick one may be smaller.
        """
        epsilon, delta = self._budget
        asked = partial(_epsilon_of_rest, epsilon=epsilon, delta=delta)
        found = _choices_within(self._totals, epsilon, delta)
        needed = _largest_of_choices(asked, found, quick=quick)
        return max(0.0, add_down(epsilon, -needed))

    def fits(self, looks: Iterator[None] | None = None) -> bool:
        """Return whether all events together are shown to stay within the budget.

        Each closer look takes one of ``looks``, if given, which others share.
        """
        return totals_fit(self._totals, *self._most, looks)

    def keeps_epsilon(self, looks: Iterator[None] | None = None) -> bool:
        """Return whether the budget's epsilon is shown at its delta itself, as in ``fits``."""
        return totals_fit(self._totals, self._most[0], self._budget[1], looks)

    def simple_epsilon(self) -> float:
        """Return epsilon by basic composition; infinity where it exceeds the budget."""
        larger = (choice.changed(few_digits) for choice in choices(self._totals))
        return max(_simple_epsilon(choice, *self._budget) for choice in larger)


def totals_fit(
    totals: Totals, epsilon: float, delta: float, looks: Iterator[None] | None = None
) -> bool:
    """Return whether the events alone are proved to satisfy (epsilon, delta)."""
    left, found = [], _choices_within(totals, epsilon, delta)
    whole = join(tuple(found)) if len(found) > FEW_CHOICES else None
    if whole and _is_decided_quickly(whole, epsilon, delta):
        return True
    for choice in found:
        shown = _is_decided_quickly(choice, epsilon, delta)
        if shown is None:
            left.append(choice)
        if shown is False or len(left) > MAX_CLOSE_CHOICES:
            return False
    taken = left if looks is None else list(itertools.islice(looks, len(left)))
    if len(left) > len(taken):
        return False
    # Largest first: the others need not be asked if it fails.
    left.sort(key=_weight, reverse=True)
    return all(_is_shown_closely(choice, epsilon, delta) for choice in left)


def _is_decided_quickly(choice: Totals, epsilon: float, delta: float) -> bool | None:
    """Return whether (epsilon, delta) is proved for one choice; None if not decided quickly."""
    gaussian = Totals(choice.adjacency, choice.mu_squared)
    # Gaussian mechanisms alone are one Gaussian mechanism, with a formula.
    if choice == gaussian and Gaussian(choice.mu).delta(epsilon) <= delta:
        return True
    larger = choice.changed(few_digits)
    if _simple_epsilon(larger, epsilon, delta) <= epsilon:
        return True
    if _is_refuted(choice, epsilon, delta):
        return False
    return any(_is_shown_quickly(one, epsilon, delta) for one in (larger, choice)) or None


def _is_shown_closely(choice: Totals, epsilon: float, delta: float) -> bool:
    """Return whether (epsilon, delta) is proved for one choice, however long that takes."""
    nearly, alone = min(epsilon * NEARLY, MAX_ABOVE), _epsilon_of_rest(choice, epsilon, delta)
    if alone > epsilon and _gains(choice, epsilon, delta):
        alone = min(alone, _choice_epsilon(choice, delta, enough=epsilon))
    if alone <= epsilon or delta == 0.0 or alone - epsilon > nearly:
        return alone <= epsilon
    # Near the end of a budget delta may show what a rounded epsilon does not; no smaller epsilon
    # repairs an excess of the rest alone.
    return _exact_delta(choice, epsilon) <= delta and _choice_delta(choice, epsilon) <= delta
