r"""Output perturbation: release the minimiser of a strongly convex objective plus noise.

Proved in docs/proofs/output_perturbation.md: with rows of norm at most :math:`\kappa_t`, a loss
whose score gradients have norm at most L, and an objective
:math:`\tfrac12\|W\|_F^2 + C \sum_i \phi_{y_i}(W \tilde x_i)`, neighbouring data sets have
minimisers at distance at most :math:`\Delta = f L C \kappa_t` (f = 1 for ``add_remove``, 2 for
``replace_one``). A certified distance r to the minimiser makes it :math:`\Delta + 2r`, rounding
the weights to a grid g adds :math:`g\sqrt{p}` for p weights. Instead of an approximate minimiser
the iterate of projected SGD may be released, with the Delta of docs/proofs/projected_sgd.md and its
rounding errors as r.

Every number is rounded towards more noise. All of it is public: nothing here reads data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._rounding import add_up, div_up, hypot_up, mul_down, mul_up
from dpsvm_fast.accounting.statement import (
    Descent,
    PrivacyStatement,
    Sensitivity,
)
from dpsvm_fast.accounting.words import FLOATING_POINT_CAVEAT, PRECISION_CAVEAT, RUNNING_TIME_CAVEAT
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._automatic import automatic_C, automatic_intercept_scaling
from dpsvm_fast.mechanisms._projected_sgd import ProjectedSGD
from dpsvm_fast.mechanisms._settings import (
    RELATION_FACTOR,
    check_delta_of_gaussian,
    check_range,
    check_row_norm,
    check_solvable,
)
from dpsvm_fast.mechanisms._weight_noise import WeightNoise
from dpsvm_fast.mechanisms._weight_statement import statement_of

if TYPE_CHECKING:
    from dpsvm_fast._core import NoiseSource
    from dpsvm_fast.accounting import PrivacyEvent

__all__ = [
    "OutputPerturbation",
    "automatic_C",
    "automatic_intercept_scaling",
]

# The grid costs at most this share of the sensitivity, unless the noise would have too many steps.
GRID_SHARE = 1e-6


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
    loss : str
        One of :data:`dpsvm_fast.losses.WEIGHT_LOSSES`.
    n_classes, n_features : int
        Shape of the weights.
    data_norm : float > 0
        Public bound of the rows' L2 norm.
    intercept_scaling : float >= 0
        Constant feature; 0 for none.
    C : float > 0
        Multiplies the sum of the losses.
    tol : float in (0, 1]
        The solver certifies a distance of ``tol * Delta`` to the minimiser. Not used with ``sgd``.
    smoothing, margin : float
        Of the loss, see :class:`dpsvm_fast.losses.Loss`.
    sgd : ProjectedSGD or None
        Release the iterate of this run instead of a minimiser; with ``replace_one`` and a smooth
        loss only.

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
    smoothing: float = 1.0
    margin: float = 1.0
    sgd: ProjectedSGD | None = None

    def __post_init__(self) -> None:
        """Refuses settings whose noise would not be a positive finite number."""
        if self.noise == "gaussian":
            check_delta_of_gaussian(self.delta)
        check_row_norm(self.data_norm, self.intercept_scaling, self.row_norm)
        if self.sgd is not None:
            self._check_sgd()
        check_range("C", self.C, "C")
        curvature = self.C * self.row_norm * self.row_norm
        check_range("C", curvature, "C (data_norm^2 + intercept_scaling^2)")
        if self.sgd is None and self.loss != "crammer_singer":
            check_solvable(self.regularization, self.row_norm)
        check_range("C", self.exact_sensitivity, "the sensitivity")
        if self.noise == "gaussian" and self.sensitivity > 1.01 * self.weight_noise.distance:
            raise InvalidParameterError(
                f"epsilon: got {self.epsilon!r} with delta {self.delta!r}, expected a budget whose "
                "noise can be drawn on a grid finer than the sensitivity; use larger values or "
                "noise_grid='float'"
            )

    def _check_sgd(self) -> None:
        """Refuses what the bound of projected SGD does not cover."""
        if self.adjacency != "replace_one":
            raise InvalidParameterError.of(
                "adjacency",
                got=self.adjacency,
                accepted="'replace_one' with solver='psgd', whose steps depend on the number of "
                "rows: it must be public",
            )
        if math.isinf(self.score_loss.curvature):
            raise InvalidParameterError.of(
                "loss", got=self.loss, accepted="a smooth loss with solver='psgd'"
            )

    @cached_property
    def score_loss(self) -> Loss:
        """The loss as a function of the scores."""
        return Loss(
            name=self.loss, n_classes=self.n_classes, smoothing=self.smoothing, margin=self.margin
        )

    @property
    def n_columns(self) -> int:
        """Number of weights of a score, the intercept included."""
        return self.n_features + (self.intercept_scaling > 0.0)

    @property
    def n_weights(self) -> int:
        """Number of released weights, intercepts included."""
        return self.score_loss.n_scores * self.n_columns

    @cached_property
    def row_norm(self) -> float:
        """Bound of the norm of a clipped row with its constant feature."""
        return hypot_up(self.data_norm, self.intercept_scaling)

    @cached_property
    def exact_sensitivity(self) -> float:
        """Delta: bound of the distance between what two neighbours give in real arithmetic."""
        if self.sgd is not None:
            return self.sgd.sensitivity(self.score_loss, self.C, self.row_norm)
        per_record = mul_up(mul_up(self.score_loss.lipschitz, self.C), self.row_norm)
        return RELATION_FACTOR[self.adjacency] * per_record

    @cached_property
    def radius(self) -> float:
        """Distance to the minimiser that the solver certifies, or rounding errors of the run."""
        if self.sgd is None:
            return self.tol * self.exact_sensitivity
        return self.sgd.rounding(
            self.score_loss,
            self.C,
            n_columns=self.n_columns,
            data_norm=self.data_norm,
            intercept_scaling=self.intercept_scaling,
            row_norm=self.row_norm,
        )

    @property
    def regularization(self) -> float:
        """Lambda = 1/C of the sum-form objective, rounded up: a larger one moves less."""
        return div_up(1.0, self.C)

    @property
    def gradient_tol(self) -> float:
        """Norm of the sum-form objective's gradient that certifies ``radius``, rounded down."""
        return mul_down(self.radius, self.regularization)

    @cached_property
    def weight_noise(self) -> WeightNoise:
        """The noise on the weights; it covers the distance of inexact minimisers, Delta + 2 r."""
        return WeightNoise(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            noise=self.noise,
            exact=self.noise_grid == "exact",
            distance=add_up(self.exact_sensitivity, 2.0 * self.radius),
            grid_share=GRID_SHARE if self.noise_grid == "exact" else None,
            shape=(self.score_loss.n_scores, self.n_columns),
        )

    @property
    def grid(self) -> float | None:
        """Spacing of the released weights, a power of two; None when they are not rounded."""
        return self.weight_noise.grid

    @property
    def rounding(self) -> float:
        """How far rounding to the grid before the noise can move two weight matrices apart."""
        return self.weight_noise.rounding

    @property
    def sensitivity(self) -> float:
        """Bound of the distance between what two neighbours hand to the noise."""
        return self.weight_noise.total

    @property
    def scale(self) -> float:
        """Standard deviation sigma of Gaussian noise, or the rate beta of Gamma noise."""
        return self.weight_noise.scale

    @property
    def event(self) -> PrivacyEvent:
        """What a ledger records."""
        return self.weight_noise.event

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

    def statement(self, **occasion: Any) -> PrivacyStatement:
        """What is promised about one release, with every number needed to recompute it.

        ``occasion`` holds the fields of the statement that are about the fit, ``library_version``
        among them.
        """
        own: tuple[str, ...] = (RUNNING_TIME_CAVEAT,)
        if self.sgd is None and self.loss != "crammer_singer":
            own += (PRECISION_CAVEAT,)
        if self.noise == "gamma" or self.noise_grid == "float":
            own += (FLOATING_POINT_CAVEAT,)
        return statement_of(
            self,
            occasion,
            own,
            mechanism="output_perturbation",
            loss=self.loss,
            sensitivity=self._derivation(),
            noise=self.weight_noise.record,
            descent=None if self.sgd is None else self._descent(self.sgd),
        )

    def _descent(self, sgd: ProjectedSGD) -> Descent:
        """The run of projected SGD."""
        return Descent(
            n_samples=sgd.n_samples,
            n_epochs=sgd.n_epochs,
            batch_size=sgd.batch,
            radius=sgd.ball_radius(self.score_loss, self.C, self.row_norm),
            projection=sgd.projection,
            average=sgd.average,
        )

    def _derivation(self) -> Sensitivity:
        """The sensitivity, factor by factor."""
        return Sensitivity(
            lipschitz=self.score_loss.lipschitz,
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
        return self.weight_noise.release(weights, source, n_threads)
