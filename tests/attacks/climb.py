"""Hill-climbing over anything that has numbers: points are JSON, and each gets a ratio.

The ratio of a look is what is true, or a lower bound of it, over what was claimed: delta over
delta, epsilon over epsilon, distance over distance. Above ``allowed`` it is a violation.
"""

from __future__ import annotations

import json
import math
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsvm_fast.exceptions import CertificationError, InvalidParameterError

Rng = np.random.Generator
Point = dict[str, Any]

# The share of looks at new points; the others change the best one of some kind.
FRESH = 0.3
# CPU time after which a look is given up and noted.
PATIENCE = 20.0
# What a look at a point may say instead of a ratio: it is refused, or cannot be computed exactly.
REFUSED = (InvalidParameterError, CertificationError, ArithmeticError)


class Slow(Exception):
    """A look took longer than ``PATIENCE``."""


def give_up(*_: object) -> None:
    """Handler of the timer."""
    raise Slow


@dataclass(frozen=True)
class Look:
    """What a point came to.

    Parameters
    ----------
    ratio : float >= 0
        True over claimed.
    true, claimed : float
    tries : int, default=1
        Claims that were looked at; this is the closest of them.
    """

    ratio: float
    true: float
    claimed: float
    tries: int = 1


@dataclass(frozen=True)
class Target:
    """One promise to attack.

    Parameters
    ----------
    name : str
    fresh : callable
        A random point.
    look : callable
        What a point comes to; raises what is in ``REFUSED`` where it is no point.
    allowed : float
        Ratios up to this are numerical errors of the true side.
    """

    name: str
    fresh: Callable[[Rng], Point]
    look: Callable[[Point], Look]
    allowed: float = 1.0 + 1e-6


@dataclass
class Climb:
    """A search on one target, which can be continued."""

    target: Target
    rng: Rng
    best: dict[str, tuple[Point, Look]] = field(default_factory=dict)
    found: list[tuple[Point, Look]] = field(default_factory=list)
    crashes: list[tuple[Point, str]] = field(default_factory=list)
    slow: list[Point] = field(default_factory=list)
    tries: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    refused: int = 0

    def run(self, seconds: float) -> None:
        """Look at points for so many seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.step()

    def run_claims(self, count: int) -> None:
        """Look at points until so many claims were looked at."""
        while self.tries.total() < count:
            self.step()

    def step(self) -> None:
        """Look at one point."""
        if not self.best or self.rng.random() < FRESH:
            point = self.target.fresh(self.rng)
        else:
            kinds = sorted(self.best)
            point = moved(self.best[kinds[int(self.rng.integers(len(kinds)))]][0], self.rng)
        self.looks += 1
        signal.signal(signal.SIGPROF, give_up)
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)
        try:
            look = self.target.look(point)
        except Slow:
            self.slow.append(point)
            return
        except REFUSED:
            self.refused += 1
            return
        except Exception:  # whatever else leaves a function of the library is a finding of its own
            self.crashes.append((point, traceback.format_exc(limit=-2)))
            return
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        if math.isnan(look.ratio) or look.ratio > self.target.allowed:
            self.found.append((point, look))
        kind = kind_of(point)
        self.tries[kind] += look.tries
        if kind not in self.best or look.ratio > self.best[kind][1].ratio:
            self.best[kind] = (point, look)

    def closest(self, n: int) -> list[tuple[Point, Look]]:
        """The best points of the n kinds that came closest."""
        return sorted(self.best.values(), key=lambda found: -found[1].ratio)[:n]


def kind_of(point: Point) -> str:
    """What a point is about, its numbers apart: each kind is climbed by itself."""
    events = sorted(record["type"] for record in point.get("events", ()))
    fixed = (
        value
        for name, value in point.items()
        if isinstance(value, (str, bool)) or (name.startswith("_") and isinstance(value, int))
    )
    return json.dumps([events, *fixed])


def moved(point: Point, rng: Rng) -> Point:
    """A copy with one to three of its numbers changed, by little or by much."""
    changed = json.loads(json.dumps(point))
    places = list(numbers_in(changed))
    width = 10.0 ** rng.uniform(-3.0, 0.5)
    for _ in range(int(rng.integers(1, 4))):
        inner, name = places[int(rng.integers(len(places)))]
        value = inner[name]
        if isinstance(value, int):
            inner[name] = max(1, value + int(rng.integers(-1, 2)))
        elif value > 0.0 and not isinstance(inner, list):
            inner[name] = value * math.exp(width * rng.standard_normal())
        else:
            # Coordinates of rows: some go to where bounds are met.
            inner[name] = float(rng.choice([0.0, 1.0, -1.0, value + width * rng.standard_normal()]))
    return changed


def numbers_in(value: Any) -> Any:
    """Where the numbers of a point are; names that begin with an underscore stay as they are."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in items:
        if isinstance(name, str) and name.startswith("_"):
            continue
        if isinstance(inner, (dict, list)):
            yield from numbers_in(inner)
        elif isinstance(inner, (int, float)) and not isinstance(inner, bool):
            yield value, name
