r"""Output perturbation: release the minimiser of a strongly convex objective plus noise.

Proved in docs/proofs/output_perturbation.md: with rows of norm at most :math:`\kappa_t`, a loss
whose score gradients have norm at most L, and an objective
:math:`\tfrac12\|W\|_F^2 + C \sum_i \phi_{y_i}(W \tilde x_i)`, neighbouring data sets have
minimisers at distance at most :math:`\Delta = f L C \kappa_t` (f = 1 for ``add_remove``, 2 for
``replace_one``). A certified distance r to the minimiser makes it :math:`\Delta + 2r`, rounding
the weights to a grid g adds :math:`g\sqrt{p}` for p weights.

Every number is rounded towards more noise. All of it is public: nothing here reads data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._rounding import add_up, div_down, hypot_up, mul_up, sqrt_up
from dpsvm_fast.accounting import GaussianEvent, PureEvent, gaussian_sigma
from dpsvm_fast.accounting.statement import (
    FLOATING_POINT_CAVEAT,
    RUNNING_TIME_CAVEAT,
    Noise,
    PrivacyStatement,
    Sensitivity,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms._noise_grid import (
    flat_weights,
    grid_below,
    nearest_on_grid,
    release_on_grid,
    rounding_distance,
)
from dpsvm_fast.mechanisms._settings import (
    RELATION_FACTOR,
    check_delta_of_gaussian,
    check_range,
    check_row_norm,
)

if TYPE_CHECKING:
    from dpsvm_fast._core import NoiseSource
    from dpsvm_fast.accounting import PrivacyEvent

__all__ = [
    "OutputPerturbation",
    "automatic_C",
    "automatic_intercept_scaling",
]

# Largest norm of a loss's gradient in the scores (Lipschitz constant), rounded up.
# crammer_singer: the gradient is p - e_y with p in the simplex, so its norm is at most sqrt(2).
LIPSCHITZ = {"crammer_singer": sqrt_up(2.0)}
# The grid costs at most this share of the sensitivity, unless the noise would have too many steps.
GRID_SHARE = 1e-6
# automatic_C: standard deviation of the noise in one class score of a row of the largest norm.
# Chosen on digits, USPS and ISOLET with rows of norm 1, delta 1e-6 and epsilon 0.5 to 8, where
# 0.1 to 0.2 is best or within about 0.02 of it in accuracy and 0.5 already loses up to 0.15.
SCORE_NOISE = 0.2

THEOREMS = {
    "gaussian": "Balle and Wang 2018, Theorem 8 (analytic Gaussian mechanism), with the "
    "sensitivity of docs/proofs/output_perturbation.md",
    "gamma": "Chaudhuri, Monteleoni and Sarwate 2011 (noise density proportional to "
    "exp(-beta ||b||)), with the sensitivity of docs/proofs/output_perturbation.md",
}


def automatic_C(
    epsilon: float,
    delta: float,
    *,
    noise: str,
    adjacency: str,
    loss: str,
    n_weights: int,
    row_norm: float,
) -> float:
    r"""The public default of C.

    .. math:: C = 0.2 / (f L m \kappa_t^2)

    with m the root mean square of the noise in one weight at sensitivity 1: sigma of the Gaussian
    mechanism, or :math:`\sqrt{p + 1}/\epsilon` for Gamma noise on p weights. The noise in a score
    of a row of norm :math:`\kappa_t` then has standard deviation 0.2, against a margin of 1.
    """
    if noise == "gamma":
        multiplier = math.sqrt(n_weights + 1.0) / epsilon
    else:
        check_delta_of_gaussian(delta)
        multiplier = gaussian_sigma(epsilon, delta)
    moved = RELATION_FACTOR[adjacency] * LIPSCHITZ[loss] * multiplier
    # Divided one by one: the square of an extreme norm would leave the floats.
    return SCORE_NOISE / moved / row_norm / row_norm


def automatic_intercept_scaling(data_norm: float) -> float:
    """Return the public default of the constant feature: a fifth of the bound of the rows."""
    return 0.2 * data_norm


@dataclass(frozen=True)
class OutputPerturbation:
    r"""One release of weights, known in full before any data are read.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1)
        Must be positive for Gaussian noise; unused by Gamma noise, which is pure.
    adjacency : {"add_remove", "replace_one"}
    noise : {"gaussian", "gamma"}
        Independent Gaussians, or a density proportional to ``exp(-beta ||b||)``.
    noise_grid : {"exact", "float"}
        Exact sampling of rounded Gaussians on a power-of-two grid, or floating-point noise.
    loss : {"crammer_singer"}
    n_classes, n_features : int
        Shape of the weights.
    data_norm : float > 0
        Public bound of the rows' L2 norm.
    intercept_scaling : float >= 0
        Constant feature; 0 for none.
    C : float > 0
        Multiplies the sum of the losses.
    tol : float in (0, 1]
        The solver certifies a distance of ``tol * Delta`` to the minimiser.

    Raises
    ------
    InvalidParameterError
        Settings for which no finite positive noise can be stated.

    Notes
    -----
    Guarantees: ``release`` is (epsilon, delta)-differentially private for weights that
    satisfy its precondition. With ``noise="gaussian", noise_grid="exact"`` this holds for the
    program as run on floating-point hardware; otherwise for ideal real arithmetic only.

    References
    ----------
    Balle and Wang, ICML 2018, Theorem 8 (Gaussian noise); Chaudhuri, Monteleoni, Sarwate, JMLR 12
    (2011), Algorithm 1 (Gamma-radius noise); Karney, ACM TOMS 42 (2016) (exact sampling); Park,
    Choi, Lee, NeurIPS 2025, section 4 (weight perturbation of the Crammer-Singer SVM).
    """

    epsilon: float
    delta: float
    adjacency: str
    noise: str
    noise_grid: str
    loss: str
    n_classes: int
    n_features: int
    data_norm: float
    intercept_scaling: float
    C: float
    tol: float

    def __post_init__(self) -> None:
        """Refuses settings whose noise would not be a positive finite number."""
        if self.noise == "gaussian":
            check_delta_of_gaussian(self.delta)
        check_row_norm(self.data_norm, self.intercept_scaling, self.row_norm)
        check_range("C", self.C, "C")
        curvature = self.C * self.row_norm * self.row_norm
        check_range("C", curvature, "C (data_norm^2 + intercept_scaling^2)")
        check_range("C", self.exact_sensitivity, "the sensitivity")
        if self.noise == "gaussian" and self.sensitivity > 1.01 * self._before_rounding:
            raise InvalidParameterError(
                f"epsilon: got {self.epsilon!r} with delta {self.delta!r}, expected a budget whose "
                "noise can be drawn on a grid finer than the sensitivity; use larger values or "
                "noise_grid='float'"
            )

    @property
    def n_weights(self) -> int:
        """Number of released weights, intercepts included."""
        return self.n_classes * (self.n_features + (self.intercept_scaling > 0.0))

    @cached_property
    def row_norm(self) -> float:
        """Bound of the norm of a clipped row with its constant feature."""
        return hypot_up(self.data_norm, self.intercept_scaling)

    @cached_property
    def exact_sensitivity(self) -> float:
        """Delta: bound of the distance between the exact minimisers of two neighbours."""
        per_record = mul_up(mul_up(LIPSCHITZ[self.loss], self.C), self.row_norm)
        return RELATION_FACTOR[self.adjacency] * per_record

    @cached_property
    def radius(self) -> float:
        """Distance to the minimiser that the solver has to certify."""
        return self.tol * self.exact_sensitivity

    @cached_property
    def grid(self) -> float | None:
        """Spacing of the released weights, a power of two; None when they are not rounded."""
        if self.noise_grid == "float":
            return None
        fine = GRID_SHARE * self.exact_sensitivity / math.sqrt(self.n_weights)
        if self.noise == "gamma":
            return grid_below(fine)
        # Twice what is known so far: the scale itself still grows with the grid.
        return grid_below(fine, 2.0 * self._noise_multiplier * self._before_rounding)

    @cached_property
    def rounding(self) -> float:
        """How far rounding to the grid before the noise can move two weight matrices apart."""
        if self.noise == "gamma" or self.grid is None:
            # Gamma noise is added before the rounding, which is then post-processing.
            return 0.0
        return rounding_distance(self.grid, self.n_weights)

    @cached_property
    def sensitivity(self) -> float:
        """Bound of the distance between what two neighbours hand to the noise."""
        return add_up(self._before_rounding, self.rounding)

    @cached_property
    def scale(self) -> float:
        """Standard deviation sigma of Gaussian noise, or the rate beta of Gamma noise."""
        if self.noise == "gaussian":
            return gaussian_sigma(self.epsilon, self.delta, self.sensitivity)
        return div_down(self.epsilon, self.sensitivity)

    @cached_property
    def _before_rounding(self) -> float:
        """Sensitivity of the inexact minimiser: Delta + 2 r."""
        return add_up(self.exact_sensitivity, 2.0 * self.radius)

    @cached_property
    def _noise_multiplier(self) -> float:
        """Standard deviation of Gaussian noise at sensitivity 1."""
        return gaussian_sigma(self.epsilon, self.delta)

    @property
    def event(self) -> PrivacyEvent:
        """What a ledger records."""
        if self.noise == "gamma":
            return PureEvent(epsilon=self.epsilon, adjacency=self.adjacency)
        return GaussianEvent(
            sigma=self.scale, sensitivity=self.sensitivity, adjacency=self.adjacency
        )

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """The one event of this release."""
        return (self.event,)

    def summary(self) -> str:
        """Public facts in one line."""
        kind = "sigma" if self.noise == "gaussian" else "beta"
        return (
            f"{self.n_weights} weights, C = {self.C:.4g}, sensitivity {self.sensitivity:.4g}, "
            f"{self.noise} noise with {kind} = {self.scale:.4g}"
        )

    def statement(
        self,
        *,
        library_version: str,
        random_source: str = "operating_system",
        assumed_public: tuple[str, ...] = (),
        caveats: tuple[str, ...] = (),
        not_private_reasons: tuple[str, ...] = (),
    ) -> PrivacyStatement:
        """What is promised about one release, with every number needed to recompute it."""
        exact_sampler = self.noise == "gaussian" and self.noise_grid == "exact"
        own = (
            (RUNNING_TIME_CAVEAT,)
            if exact_sampler
            else (
                RUNNING_TIME_CAVEAT,
                FLOATING_POINT_CAVEAT,
            )
        )
        return PrivacyStatement(
            mechanism="output_perturbation",
            theorem=THEOREMS[self.noise],
            loss=self.loss,
            adjacency=self.adjacency,
            sensitivity=self._derivation(),
            noise=self._noise_description(),
            epsilon=self.epsilon,
            delta=self.delta if self.noise == "gaussian" else 0.0,
            events=self.events,
            assumed_public=assumed_public,
            caveats=own + caveats,
            library_version=library_version,
            random_source=random_source,
            not_private_reasons=not_private_reasons,
        )

    def _derivation(self) -> Sensitivity:
        """The sensitivity, factor by factor."""
        return Sensitivity(
            lipschitz=LIPSCHITZ[self.loss],
            C=self.C,
            data_norm=self.data_norm,
            intercept_scaling=self.intercept_scaling,
            row_norm=self.row_norm,
            relation_factor=RELATION_FACTOR[self.adjacency],
            exact=self.exact_sensitivity,
            solver_radius=self.radius,
            rounding=self.rounding,
            total=self.sensitivity,
        )

    def _noise_description(self) -> Noise:
        """The noise as it is drawn."""
        gaussian = self.noise == "gaussian"
        return Noise(
            distribution=self.noise,
            sampler="exact_grid" if gaussian and self.grid is not None else "floating_point",
            sigma=self.scale if gaussian else None,
            beta=None if gaussian else self.scale,
            grid=self.grid,
            shape=(self.n_classes, self.n_weights // self.n_classes),
        )

    def release(
        self, weights: NDArray[np.float64], source: NoiseSource, *, n_threads: int
    ) -> NDArray[np.float64]:
        """Noisy copy of ``weights``: the only value derived from them that may leave the host.

        Parameters
        ----------
        weights : ndarray of shape (n_classes, n_features [+ 1])
            Within ``radius`` of the exact minimiser (owed by the caller: certified by the solver).
        source : NoiseSource
        n_threads : int
            Does not change the result.

        Returns
        -------
        ndarray of the shape of ``weights``

        Raises
        ------
        CertificationError
            ``weights`` are not finite numbers, so they cannot have been certified.
        """
        flat = flat_weights(weights, self.n_weights)
        if self.noise == "gamma":
            noisy = flat + source.gamma_ball(flat.size, self.scale, n_threads)
            released = noisy if self.grid is None else nearest_on_grid(noisy, self.grid)
        elif self.grid is None:
            released = flat + source.gaussian(flat.size, self.scale, n_threads)
        else:
            released = release_on_grid(flat, self.scale, self.grid, source, n_threads)
        return np.asarray(released.reshape(weights.shape))
