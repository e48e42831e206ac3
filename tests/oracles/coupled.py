"""Two runs on neighbours that are made to release the same: what that costs is what they spent.

Noise of the first run is drawn and added to what the program hands to it. The second run is
answered with the sums of the first, so that every history is the same, and what it hands to the
noise is noted. A Gaussian draw then costs mu = (distance of what was handed) / (sigma it was asked
for), squares of it add up, and nothing is sampled. And since the noise hides all that differs, the
two runs must end in the same state to the last bit: whatever differs was released without noise.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.estimators import fit as training
from dpsvm_fast.estimators import inputs
from dpsvm_fast.mechanisms import gradient as descent_run
from dpsvm_fast.mechanisms import pipeline as descent_rule
from dpsvm_fast.mechanisms import rows as row_maps
from twins import noisy_descent as twin

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Draw:
    """One call of the source: what was asked for, what was drawn, and what it was added to."""

    law: str
    size: int
    scale: float
    grid: float | None
    noise: Array
    handed: list[Array]
    noisy: list[Array]

    @property
    def standard(self) -> Array:
        """The numbers drawn, in units of their scale."""
        assert self.grid is not None
        return np.asarray(self.noise * (self.grid / self.scale))


class Unadded:
    """Noise that notes what it is added to, and can do nothing else."""

    # Arrays leave the addition to this class.
    __array_ufunc__ = None

    def __init__(self, draw: Draw, answer: Array | None, factor: float = 1.0) -> None:
        self.draw, self.answer, self.factor = draw, answer, factor

    def reshape(self, _: tuple[int, ...]) -> Unadded:
        return self

    def __mul__(self, factor: float) -> Unadded:
        return Unadded(self.draw, self.answer, self.factor * factor)

    def __radd__(self, total: Array) -> Array:
        # Integers stay integers.
        noise = self.draw.noise if self.factor == 1.0 else self.draw.noise * self.factor
        noise = noise.reshape(total.shape)
        noisy = np.asarray(total + noise) if self.answer is None else self.answer
        unit = 1.0 if self.draw.grid is None else self.draw.grid / self.factor
        self.draw.handed.append(np.ravel(total) * unit)
        self.draw.noisy.append(noisy)
        return noisy


class Source:
    """A source of noise for the first run, or with the first run's draws for the second."""

    seeded = False

    def __init__(self, seed: int, first: Source | None = None) -> None:
        self.real = _core.NoiseSource(seed)
        self.seed, self.first = seed, first
        self.draws: list[Draw] = []

    def _draw(self, law: str, size: int, scale: float, grid: float | None, noise: Array) -> Any:
        answer = None
        if self.first is not None:
            before = self.first.draws[len(self.draws)]
            # What is asked for is a function of the history, which is the same.
            assert (law, size, scale, grid) == (before.law, before.size, before.scale, before.grid)
            (answer,) = before.noisy
        draw = Draw(law, size, scale, grid, noise, [], [])
        self.draws.append(draw)
        return Unadded(draw, answer)

    def gaussian_on_grid(self, size: int, sigma: float, grid: float, n_threads: int) -> Any:
        noise = self.real.gaussian_on_grid(size, sigma, grid, n_threads)
        return self._draw("gaussian", size, sigma, grid, noise)

    def gaussian(self, size: int, sigma: float, n_threads: int) -> Any:
        noise = self.real.gaussian(size, sigma, n_threads)
        return self._draw("gaussian", size, sigma, None, noise)

    def gamma_ball(self, size: int, beta: float, n_threads: int) -> Any:
        return self._draw("gamma", size, beta, None, self.real.gamma_ball(size, beta, n_threads))

    def public_seed(self) -> int:
        return self.seed


@dataclass(frozen=True, eq=False)
class Coupling:
    """Both runs: what they returned, and their draws."""

    outcomes: tuple[Any, Any]
    draws: tuple[list[Draw], list[Draw]]

    @property
    def sizes(self) -> Array:
        """Distance over scale of every draw, in their order."""
        found = []
        for one, two in zip(*self.draws, strict=True):
            # Added to exactly one thing.
            (here,), (there,) = one.handed, two.handed
            moved = float(np.linalg.norm(here - there))
            found.append(moved / one.scale if one.law == "gaussian" else moved * one.scale)
        return np.array(found)

    @property
    def spent(self) -> float:
        """What all draws together told of the difference, of Gaussian noise."""
        return float(np.linalg.norm(self.sizes))

    @property
    def alike(self) -> bool:
        """Whether both runs end in the same state: all that differs was hidden by noise."""
        here, there = map(pickle.dumps, self.outcomes)
        return here == there


def coupled(run: Callable[[Any, Any], Any], first: Any, second: Any, seed: int = 0) -> Coupling:
    """``run(data, source)`` on both data sets, with one history."""
    one = Source(seed)
    here = run(first, one)
    two = Source(seed, one)
    return Coupling((here, run(second, two)), (one.draws, two.draws))


def slow_core(source: Any = None) -> Any:
    """The compiled module, with the twins of rows and descent, and with a source if one is given.

    The compiled descent adds its noise where nobody can watch; tests of its own cover it.
    """
    changed = SimpleNamespace(**{name: getattr(_core, name) for name in dir(_core)})
    changed.Records, changed.Descent = twin.Records, twin.Descent
    if source is not None:
        changed.NoiseSource = lambda _: source
    return changed


MODULES = (inputs, training, descent_rule, descent_run, row_maps)


def use_slow_core(patch: pytest.MonkeyPatch, source: Any = None) -> None:
    """Makes the whole library use :func:`slow_core`."""
    for module in MODULES:
        patch.setattr(module, "_core", slow_core(source))


def estimator_run(make: Callable[[], Any]) -> Callable[[Any, Any], Any]:
    """Fits of whole estimators as runs, with the watched source and the twins."""

    def run(data: Any, source: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            use_slow_core(patch, source)
            return make().fit(*data)

    return run


def opposed(rows: Array, y: Array, adjacency: str) -> list[tuple[Any, Any]]:
    """Pairs among which is the worst one for each release of a recipe.

    Opposite rows move the sum, orthogonal ones the moments, other labels the gradients.
    """
    u = np.ones(rows.shape[1])

    def ending(row: Array, label: int) -> tuple[Array, Array]:
        return np.vstack([rows, row]), np.append(y, label)

    if adjacency == "add_remove":
        return [(ending(u, 1), (rows, y))]
    across = np.where(np.arange(u.size) < u.size // 2, 1.0, -1.0)
    return [(ending(u, 1), ending(*other)) for other in ((-u, 1), (across, 1), (u, 0))]


# Of so small a parameter the noise is so large that its grid is coarser than the rows'.
COARSE = 1e-10


def far_products(d: int, adjacency: str) -> Array:
    """The largest change of second moments: of a row along all axes, or to one across it."""
    sign = np.where(np.arange(d) < d // 2, 1.0, -1.0)
    change = np.full((d, d), 1.0 / d)
    return change - np.outer(sign, sign) / d if adjacency == "replace_one" else change


def split(change: Array, grid: float) -> tuple[Array, Array]:
    """Two sums no further apart than ``change``, on either side of a middle of the coarse grid.

    Every entry of one lies a little above the middle between two multiples, that of the other a
    little below: rounding moves each by nearly a whole step.
    """
    over = 2.0**-6
    whole = np.floor(np.abs(change) / grid - over)
    low = np.sign(change) * (0.5 - over / 2) * grid
    return low + np.sign(change) * (whole + over) * grid, low
