"""What a list of events can be for one record: parallel branches chosen, pure ones made plain.

For one record, conditionally on the branches that it meets, everything composes as a plain list of
events. Delta is a mean over such choices, hence at most the largest of them. Branches with no more
of anything than another one need not be tried. Where the choices are too many, a parallel event
counts as its join: the most of each kind that any branch has.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpsvm_fast.accounting._random_stopping import StoppingLaw, pure_stopping_epsilon
from dpsvm_fast.accounting._totals import CurvedEvent, Totals
from dpsvm_fast.accounting.compound import AlternativesEvent, ParallelEvent, RandomStoppingEvent
from dpsvm_fast.accounting.events import PrivacyEvent

__all__ = ["choices", "covers", "of_events", "stopping_law"]

# Combinations of branches that are tried.
MOST_CHOICES = 64


def of_events(events: Iterable[PrivacyEvent]) -> Totals:
    """Totals of all ``events``."""
    totals = Totals()
    for event in events:
        totals.add(event)
    return totals


def stopping_law(event: RandomStoppingEvent) -> StoppingLaw:
    """Law of the number of runs."""
    return StoppingLaw(event.stopping, event.gamma, event.mean)


def choices(totals: Totals) -> list[Totals]:
    """Totals without parallel events, one of which is at least as bad as ``totals``."""
    if not (totals.parallel or totals.curved):
        return [totals]
    plain = totals.copy()
    plain.parallel = Counter()
    plain.curved = Counter()
    for curved, count in totals.curved.items():
        simple = _without_curve(curved)
        if simple is None:
            plain.curved[curved] += count
        else:
            plain = _sum(plain, simple.enlarged(Fraction(count)))
    found = [plain]
    for event, count in sorted(totals.parallel.items(), key=repr):
        branches = _branches(event)
        if len(found) * math.comb(count + len(branches) - 1, count) > MOST_CHOICES:
            branches = (_join(branches),)
        found = [
            _sum(known, *(branch.enlarged(Fraction(n)) for branch, n in shares))
            for known in found
            for shares in _shared_out(branches, count)
        ]
    return _worst(found)


@lru_cache(maxsize=1024)
def _without_curve(event: CurvedEvent) -> Totals | None:
    """Totals of an event that needs no curve; None for one that does; nobody may change them.

    Alternatives of which one covers all others are that one, and the best of pure runs is pure.
    """
    if isinstance(event, AlternativesEvent):
        bases = list(_branches(event))
        if len(bases) == 1:
            return bases[0]
    else:
        bases = choices(of_events(event.base))
    if not all(base.is_pure and not base.certain for base in bases):
        return None
    epsilon = max(base.pure_epsilon for base in bases)
    if isinstance(event, RandomStoppingEvent):
        epsilon = pure_stopping_epsilon(stopping_law(event), epsilon)
    simple = Totals(event.adjacency)
    simple.pure[epsilon] = 1
    simple.pure_sum = Fraction(epsilon)
    return simple


@lru_cache(maxsize=1024)
def _branches(event: ParallelEvent) -> tuple[Totals, ...]:
    """Totals of the branches that no other one covers; nobody may change them."""
    return tuple(_worst([of_events(branch) for branch in event.branches]))


def _worst(found: list[Totals]) -> list[Totals]:
    """Those that no other one covers."""
    kept: list[Totals] = []
    for totals in found:
        if not any(covers(other, totals) for other in kept):
            kept = [other for other in kept if not covers(totals, other)]
            kept.append(totals)
    return kept


def covers(larger: Totals, smaller: Totals) -> bool:
    """Whether nothing is known to be worse about ``smaller``."""
    return (
        smaller.within(larger)
        and smaller.told <= larger.told
        and smaller.distance <= larger.distance
    )


def _sum(*parts: Totals) -> Totals:
    """All of it, as new totals."""
    whole = Totals(parts[0].adjacency)
    for part in parts:
        whole.adjacency = whole.adjacency or part.adjacency
        whole.mu_squared += part.mu_squared
        whole.pure_sum += part.pure_sum
        whole.rho += part.rho
        whole.distance += part.distance
        for name in ("pure", "sampled", "objective", "certain", "curved"):
            getattr(whole, name).update(getattr(part, name))
    return whole


def _join(branches: tuple[Totals, ...]) -> Totals:
    """The most of each kind that any branch has."""
    whole = Totals(branches[0].adjacency)
    whole.mu_squared = max(branch.mu_squared for branch in branches)
    whole.rho = max(branch.rho for branch in branches)
    whole.distance = max(branch.distance for branch in branches)
    whole.certain = max(branches, key=lambda branch: branch.told).certain
    for branch in branches:
        # The union of counters has the larger count of each key.
        whole.sampled |= branch.sampled
        whole.objective |= branch.objective
        whole.curved |= branch.curved
    whole.pure = _paired([branch.pure for branch in branches])
    whole.pure_sum = sum((Fraction(e) * n for e, n in whole.pure.items()), Fraction(0))
    return whole


def _paired(lists: list[Counter[float]]) -> Counter[float]:
    """Sizes of which each list is a smaller copy: the larger of the largest ones, and so on."""
    sizes = sorted({size for counts in lists for size in counts}, reverse=True)
    found: Counter[float] = Counter()
    seen = [0] * len(lists)
    placed = 0
    for size in sizes:
        seen = [known + counts[size] for known, counts in zip(seen, lists, strict=True)]
        if max(seen) > placed:
            found[size] = max(seen) - placed
            placed = max(seen)
    return found


def _shared_out(branches: tuple[Totals, ...], count: int) -> Iterator[list[tuple[Any, int]]]:
    """All ways in which ``count`` meetings can fall on branches, without those of no meeting."""
    first, *others = branches
    if not others:
        yield [(first, count)] if count else []
        return
    for n in range(count + 1):
        for rest in _shared_out(tuple(others), count - n):
            yield ([(first, n)] if n else []) + rest
