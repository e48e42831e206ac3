r"""The random linear term of an objective: lambda, the law of B, and how near the minimum counts.

The privacy of the minimiser of :math:`\sum_i \phi_{y_i}(W \tilde x_i) + \tfrac{\lambda}{2}
\|W\|_F^2 + \langle B, W \rangle` rests on B and on lambda, which bounds the share of one record in
the curvature. Proved in docs/proofs/objective_perturbation.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast._rounding import add_up, div_down, div_up, mul_down, mul_up
from dpsvm_fast.accounting import ObjectiveEvent, ObjectiveNoise, PrivacyEvent, PureEvent
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._gaussian_objective import (
    automatic_regularization,
    noise_multiplier,
    regularization_for,
)
from dpsvm_fast.mechanisms._noise_grid import grid_below, rounding_distance
from dpsvm_fast.mechanisms._pure_objective import (
    best_regularization,
    largest_rate,
    pure_epsilon,
    smallest_regularization,
)
from dpsvm_fast.mechanisms._settings import RELATION_FACTOR, check_range

__all__ = ["LinearNoise"]

# The numbers in B are rounded by at most this share of the gradient's tolerance.
GRID_SHARE = 1e-3
# The gradient's tolerance is at least this share of tol times the noise in one component of B:
# double precision could not certify much less when epsilon is tiny.
NOISE_SHARE = 1e-5
# A price of the change of variables below this share of epsilon is the rounding of a free one.
FREE = 1e-12


@dataclass(frozen=True)
class LinearNoise:
    """Noise inside an objective, calibrated to (epsilon, delta).

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1)
        0 with Gamma noise.
    adjacency : {"add_remove", "replace_one"}
    noise : {"gaussian", "gamma"}
    exact : bool
        Whether Gaussian noise is drawn exactly on a grid.
    loss : Loss
    row_norm : float > 0
        Bound of a row with its constant feature.
    shape : tuple of int
        (number of scores, n_features, plus 1 with an intercept).
    C : float > 0 or None
        ``lambda = 1 / C + extra``; None for the public rule.
    extra : float >= 0 or None
        What is added to lambda for the sake of privacy; None for the public rule.
    tol : float in (0, 1]
        Tolerance of the gradient, relative to the largest gradient of one record.

    Raises
    ------
    InvalidParameterError
        Settings for which no finite positive noise can be stated.
    """

    epsilon: float
    delta: float
    adjacency: str
    noise: str
    exact: bool
    loss: Loss
    row_norm: float
    shape: tuple[int, int]
    C: float | None
    extra: float | None
    tol: float

    def __post_init__(self) -> None:
        """Refuses settings whose noise would not be a positive finite number."""
        if self.C is not None:
            check_range("C", self.C, "C")
            # Before the calibrations, which are about ordinary numbers.
            ratio = self.loss.curvature_ratio(self.row_norm, 1.0 / self.C)
            check_range("C", ratio, "C (data_norm^2 + intercept_scaling^2) / temperature")
        if self.extra:
            check_range("extra_regularization", self.extra, "the value given")
        check_range("C", self.regularization, "the whole regularisation")
        check_range("C", self.curvature_ratio, "the ratio of curvature to regularisation")
        if not 0.0 < self.scale < math.inf:
            raise InvalidParameterError(self._refusal())
        check_range("C", self.deviation, "the noise in one component of the objective")
        check_range("C", self.radius, "the distance to the minimiser")

    def _refusal(self) -> str:
        """Says which C would do."""
        extra = self.extra or 0.0
        needed = smallest_regularization(self.loss, self.epsilon, self.row_norm) - extra
        if not needed > 0.0:
            return f"epsilon: got {self.epsilon!r}, for which no scale of the noise was found"
        # Six digits, and never above the exact value.
        largest = float(f"{0.999999 / needed:.6g}")
        return (
            f"C: got {self.C!r} with extra_regularization {self.extra!r}, expected at most "
            f"{largest!r}: with less regularisation the change of variables alone may cost all of "
            f"epsilon = {self.epsilon!r}; extra_regularization='auto' adds what is best"
        )

    @property
    def n_weights(self) -> int:
        """Number of components of B."""
        return math.prod(self.shape)

    @property
    def factor(self) -> int:
        """Records in which neighbours differ."""
        return RELATION_FACTOR[self.adjacency]

    @property
    def _target(self) -> tuple[Loss, float, float, str]:
        """What Gaussian noise is calibrated to."""
        return (self.loss, self.epsilon, self.delta, self.adjacency)

    @cached_property
    def own_regularization(self) -> float:
        """1 / C, or lambda by the public rule."""
        if self.C is not None:
            return 1.0 / self.C
        if self.noise == "gamma":
            return self._best_regularization(0.0)
        return automatic_regularization(*self._target, self.row_norm)

    def _best_regularization(self, least: float) -> float:
        """Lambda of pure noise by the public rule."""
        return best_regularization(
            self.loss, self.epsilon, self.factor, self.row_norm, self.n_weights, least
        )

    @cached_property
    def regularization(self) -> float:
        """Lambda of the objective, the extra regularisation included."""
        own = self.own_regularization
        if self.extra is not None:
            return own + self.extra
        if self.C is None:
            return own
        if self.noise == "gamma":
            return self._best_regularization(own)
        return regularization_for(*self._target, self.row_norm, own)

    @cached_property
    def curvature_ratio(self) -> float:
        """Kappa: what one record may add to the curvature, relative to lambda; rounded up."""
        return self.loss.curvature_ratio(self.row_norm, self.regularization)

    @cached_property
    def multiplier(self) -> float:
        """Sigma over row norm, or beta times row norm; infinity or 0 where there is none."""
        if self.noise == "gamma":
            return largest_rate(self.loss, self.epsilon, self.curvature_ratio, self.factor)
        found = noise_multiplier(*self._target, self.curvature_ratio)
        return math.inf if found is None else found

    @cached_property
    def scale(self) -> float:
        """Standard deviation sigma of Gaussian B, or the rate beta of its Gamma law."""
        if self.noise == "gamma":
            return div_down(self.multiplier, self.row_norm)
        return mul_up(self.multiplier, self.row_norm)

    @cached_property
    def deviation(self) -> float:
        """Root mean square of the noise in one component of B."""
        if self.noise == "gaussian":
            return self.scale
        return math.sqrt(self.n_weights + 1.0) / self.scale

    @cached_property
    def gradient_tol(self) -> float:
        """Norm of the gradient that the solver has to certify."""
        return self.tol * max(self.loss.lipschitz * self.row_norm, NOISE_SHARE * self.deviation)

    @cached_property
    def grid(self) -> float | None:
        """Spacing of the numbers in B, a power of two; None when they are not rounded."""
        if self.noise == "gamma" or not self.exact:
            return None
        fine = 2.0 * GRID_SHARE * self.gradient_tol / math.sqrt(self.n_weights)
        return grid_below(fine, self.scale)

    @cached_property
    def radius(self) -> float:
        """Distance of the weights to the minimiser for an unrounded B.

        The rounded B is at most half a grid step in each component from a Gaussian one, which moves
        the gradient by as much.
        """
        missed = self.gradient_tol
        if self.grid is not None:
            missed = add_up(missed, 0.5 * rounding_distance(self.grid, self.n_weights))
        return div_up(missed, self.regularization)

    @property
    def event(self) -> PrivacyEvent:
        """What a ledger records."""
        if self.noise == "gamma":
            return PureEvent(epsilon=self.epsilon, adjacency=self.adjacency)
        return ObjectiveEvent(
            law=self.loss.law,
            n_scores=self.loss.n_scores,
            sigma=self.multiplier,
            kappa=self.curvature_ratio,
            jacobian=None,
            adjacency=self.adjacency,
        )

    @property
    def _jacobian(self) -> float | None:
        """What the change of variables costs beside the noise; rounded up."""
        if self.noise == "gaussian":
            return None
        whole = pure_epsilon(self.loss, self.multiplier, self.curvature_ratio, self.factor)
        noise = mul_down(mul_down(self.factor * self.loss.lipschitz, self.scale), self.row_norm)
        price = add_up(whole, -noise)
        return price if price > FREE * self.epsilon else 0.0

    @property
    def record(self) -> ObjectiveNoise:
        """The noise as it is drawn, for the statement."""
        gaussian = self.noise == "gaussian"
        return ObjectiveNoise(
            n_classes=self.loss.n_classes,
            smoothing=self.loss.smoothing,
            margin=self.loss.margin,
            lipschitz=self.loss.lipschitz,
            curvature=self.loss.curvature,
            row_norm=self.row_norm,
            regularization=self.regularization,
            extra_regularization=self.regularization - self.own_regularization,
            curvature_ratio=self.curvature_ratio,
            jacobian=self._jacobian,
            distribution=self.noise,
            sampler="floating_point" if self.grid is None else "exact_grid",
            sigma=self.scale if gaussian else None,
            beta=None if gaussian else self.scale,
            grid=self.grid,
            shape=self.shape,
            gradient_tol=self.gradient_tol,
            epsilon=self.epsilon,
            delta=self.delta,
        )

    def draw(self, source: _core.NoiseSource, n_threads: int) -> NDArray[np.float64]:
        """B, of shape ``shape``. Private: whoever knows it can undo the noise."""
        return np.asarray(self.draw_many(1, source, n_threads)[0])

    def draw_many(self, n: int, source: _core.NoiseSource, n_threads: int) -> NDArray[np.float64]:
        """``n`` independent ones, of shape (n, n_scores, n_columns). More than one for audits."""
        size = n * self.n_weights
        if self.noise == "gamma":
            # One draw of Gamma noise belongs to all components of one B together.
            draws = [source.gamma_ball(self.n_weights, self.scale, n_threads) for _ in range(n)]
            flat = np.array(draws)
        elif self.grid is None:
            flat = source.gaussian(size, self.scale, n_threads)
        else:
            # Below 2**53 steps, times a power of two: no rounding.
            steps = source.gaussian_on_grid(size, self.scale, self.grid, n_threads)
            flat = steps.astype(np.float64) * self.grid
        return np.asarray(flat.reshape(n, *self.shape))
