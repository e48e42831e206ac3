r"""Full-batch private gradient descent with every number from public facts and noisy counts.

With R the clip norm, :math:`\mu` the Gaussian parameter of all steps together (halved under
``replace_one``) and :math:`\hat n` a released number of rows of d features:

.. math::
    T = \lceil \hat n \mu / 300 \rceil \text{ in } [100, 500], \quad
    c = \min(0.7, \max(0.35, \sqrt{6 d / \hat n})), \quad
    \lambda = c R / \mu, \quad \eta = 1 / (\lambda T)

on the sum of clipped gradients, without weight decay, and the mean of the last
:math:`0.0875\, T / c` iterates, an eighth to a quarter of them: with many features a row noise
dominates and every step should count in full, with few the iterates oscillate and averaging calms
them. Whitened rows take c down to 0.25 and the mean of the last :math:`0.15\, T / c` iterates: they
learn all directions at one pace, so where rows are many most of the path is noise around one
place. Noise of standard deviation :math:`\sqrt T R / \mu` in the sum moves W by
:math:`1 / (c \sqrt T)` a step whatever the data; the whole step :math:`1 / \lambda` acts as
regularisation. T costs time, not privacy: once steps are small the noise of the result does not
depend on it. R is far below the largest gradient: a sum of clipped gradients keeps its direction
while the noise shrinks with R.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpsvm_fast import _core
from dpsvm_fast._rounding import add_up
from dpsvm_fast.accounting.words import CLIPPED
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._noise_grid import grid_below
from dpsvm_fast.mechanisms._noisy_sum import NoisySum
from dpsvm_fast.mechanisms._settings import RELATION_FACTOR

__all__ = ["INTERCEPT", "DescentRule"]

# R for scores of three or more classes. Between 0.1 and 0.5 the accuracy hardly changes.
CLIP = 0.25
INTERCEPT = 0.2
FEWEST_STEPS, MOST_STEPS = 100, 500
ROWS_A_STEP = 300.0
SMALLEST_C, LARGEST_C = 0.35, 0.7
FEATURES_A_ROW = 6.0
# Of the iterates, at the smallest c; inversely proportional to c.
AVERAGED_SHARE = 0.25
# For whitened rows.
SMALLEST_WHITENED_C, AVERAGED_WHITENED_SHARE = 0.25, 0.6
# Rounding to the grid costs at most this share of the clip norm, unless the noise would then have
# too many steps.
GRID_SHARE = 1e-6


@dataclass(frozen=True, kw_only=True)
class DescentRule:
    """One private training run, chosen by the rule above.

    Parameters
    ----------
    loss : Loss
    n_features : int
    fit_intercept : bool
    adjacency : {"add_remove", "replace_one"}
    noise_grid : {"exact", "float"}
    mu : float > 0
        Gaussian parameter of all steps together.
    count : float >= 1
        Number of rows, public or released.
    fixed_c : float > 0 or None
        Replaces the rule for c; public, or chosen by what was released.
    whitened : bool
        Whether the rows themselves, and not features of them, are whitened.
    """

    loss: Loss
    n_features: int
    fit_intercept: bool
    adjacency: str
    noise_grid: str
    mu: float
    count: float
    fixed_c: float | None = None
    whitened: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Number of scores, and of features with the constant one."""
        return (self.loss.n_scores, self.n_features + self.fit_intercept)

    @property
    def _unit(self) -> float:
        """The rule is about K scores; the one score of two classes is the difference of theirs.

        Two scores move by opposite gradients, of norm sqrt(2) times that of the one score.
        Clipping that at R / sqrt(2) and dividing c by sqrt(2) gives the same model.
        """
        return 1.0 if self.loss.n_scores > 1 else math.sqrt(0.5)

    @property
    def clip(self) -> float:
        """R: bound of the norm of one record's gradient."""
        return CLIP * self._unit

    @property
    def _own_mu(self) -> float:
        """The parameter at which one record would be protected."""
        return self.mu / RELATION_FACTOR[self.adjacency]

    @cached_property
    def n_steps(self) -> int:
        """T."""
        wanted = min(self.count * self._own_mu / ROWS_A_STEP, float(MOST_STEPS))
        return max(FEWEST_STEPS, math.ceil(wanted))

    @property
    def c(self) -> float:
        """The factor c of lambda, larger for more features a row."""
        if self.fixed_c is not None:
            return self.fixed_c
        by_shape = math.sqrt(FEATURES_A_ROW * self.n_features / self.count)
        return min(LARGEST_C, max(self._smallest_c, by_shape))

    @property
    def _smallest_c(self) -> float:
        return SMALLEST_WHITENED_C if self.whitened else SMALLEST_C

    @property
    def regularization(self) -> float:
        """Lambda."""
        return self.c * self._unit * self.clip / self._own_mu

    @property
    def learning_rate(self) -> float:
        """Eta."""
        return 1.0 / (self.regularization * self.n_steps)

    @property
    def average_from(self) -> int:
        """The number, from 0, of the first step whose iterate is averaged."""
        at_smallest = AVERAGED_WHITENED_SHARE if self.whitened else AVERAGED_SHARE
        share = at_smallest * self._smallest_c / self.c
        return self.n_steps - math.ceil(share * self.n_steps)

    @property
    def row_scale(self) -> float:
        """Brings rows of norm 1 with their constant feature to norm 1."""
        return 1.0 / math.hypot(1.0, self.intercept)

    @property
    def intercept(self) -> float:
        """The constant feature; 0 for none."""
        return INTERCEPT if self.fit_intercept else 0.0

    @cached_property
    def sum(self) -> NoisySum:
        """The noisy sums of clipped gradients and what their noise covers."""
        n_weights = math.prod(self.shape)
        factor = float(RELATION_FACTOR[self.adjacency])
        grid = None
        if self.noise_grid == "exact":
            fine = GRID_SHARE * self.clip / math.sqrt(n_weights)
            grid = grid_below(fine, 2.0 * math.sqrt(self.n_steps) * factor * self.clip / self.mu)
        moved = _core.clipped_sum_distance(self.clip, n_weights, grid)
        return NoisySum(
            name="training",
            what=CLIPPED,
            adjacency=self.adjacency,
            clip_norm=self.clip,
            relation_factor=factor,
            shape=self.shape,
            mu=self.mu,
            grid=grid,
            rounding=max(0.0, add_up(moved, -self.clip)),
            n_steps=self.n_steps,
        )

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in one released weight where gradients do not answer it.

        Each step moves a weight by eta times the noise; the mean of the iterates after steps
        k .. T-1 holds the steps before k in full and the others in falling shares.
        """
        k, T = self.average_from, self.n_steps
        shares = sum(((T - t) / (T - k)) ** 2 for t in range(k, T))
        return self.learning_rate * self.sum.scale * math.sqrt(k + shares)

    def descent(self) -> _core.Descent:
        """The compiled run."""
        return _core.Descent(**self.descent_options())

    def descent_options(self) -> dict[str, Any]:
        """Settings of the compiled run."""
        kernel, smoothing, margin = self.loss.kernel
        return {
            "loss": kernel,
            "n_scores": self.loss.n_scores,
            "smoothing": smoothing,
            "margin": margin,
            "n_features": self.n_features,
            "intercept": self.intercept,
            "row_scale": self.row_scale,
            "clip": self.clip,
            "sigma": self.sum.scale,
            "grid": self.sum.grid,
            "sampling_rate": 1.0,
            "divisor": 1.0,
            "regularization": 0.0,
            "optimizer": "gd",
            "learning_rate": self.learning_rate,
            "schedule": "constant",
            "horizon": self.n_steps,
            "momentum": 0.0,
            "nesterov": False,
            "beta1": 0.9,
            "beta2": 0.999,
            "stabilizer": 1e-8,
            "noise_correction": False,
            "average_from": self.average_from,
            "radius": None,
            "precision": "f32",
        }
