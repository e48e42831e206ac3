r"""Objective perturbation: release the minimiser of an objective with a random linear term.

Proved in docs/proofs/objective_perturbation.md. With rows of norm at most :math:`\kappa_t`,

.. math:: J(W) = \sum_i \phi_{y_i}(W \tilde x_i) + \tfrac{\lambda}{2} \|W\|_F^2
          + \langle B, W \rangle

has one minimiser :math:`W^*` for each B and one B for each :math:`W^*`, so that the density of
:math:`W^*` is that of B times the determinant of the Hessian: noise on the gradient and curvature
are accounted for together, over all classes at once.

The solver returns W with :math:`\|\nabla J(W)\| \le g`, hence within g / lambda of :math:`W^*`. A
small part of the budget pays for noise on W that hides which of the points so near was found.

Every number is rounded towards more noise. All of it is public: nothing here reads data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast._rounding import add_down, hypot_up
from dpsvm_fast.accounting import PrivacyEvent, PrivacyStatement, Sensitivity
from dpsvm_fast.accounting.words import FLOATING_POINT_CAVEAT, PRECISION_CAVEAT, RUNNING_TIME_CAVEAT
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._linear_noise import LinearNoise
from dpsvm_fast.mechanisms._settings import (
    RELATION_FACTOR,
    check_delta_of_gaussian,
    check_range,
    check_row_norm,
    check_solvable,
)
from dpsvm_fast.mechanisms._weight_noise import WeightNoise
from dpsvm_fast.mechanisms._weight_statement import statement_of

__all__ = ["ObjectivePerturbation", "automatic_intercept_scaling"]

# Rounding to the grid costs at most this share of the distance to the minimum, which is itself
# small beside the noise in the objective.
GRID_SHARE = 1e-3
# Share of epsilon and of delta that pays for the approximate minimum.
OUTPUT_SHARE = 0.01
# The constant feature, over the bound of the rows' norm. What did best on the data sets on which
# the rules for C were chosen: more noise in all weights asks for a smaller one.
INTERCEPT = {"gaussian": 0.1, "gamma": 0.2}


def automatic_intercept_scaling(data_norm: float, noise: str) -> float:
    """The public default of the constant feature."""
    return INTERCEPT[noise] * data_norm


class Budget(NamedTuple):
    """An epsilon and a delta."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class ObjectivePerturbation:
    r"""One release of weights, known in full before any data are read.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1)
        Must be positive for Gaussian noise; unused by Gamma noise, which is pure.
    adjacency : {"add_remove", "replace_one"}
    noise : {"gaussian", "gamma"}
        Law of B: independent Gaussians, or a density proportional to ``exp(-beta ||B||)``.
    noise_grid : {"exact", "float"}
        Exact sampling of rounded Gaussians on power-of-two grids, or floating-point noise.
    loss : Loss
        A smooth loss with its number of classes.
    n_features : int
    data_norm : float > 0
        Public bound of the rows' L2 norm.
    intercept_scaling : float >= 0
        Constant feature; 0 for none.
    C : float > 0 or None
        Multiplies the sum of the losses: ``lambda = 1 / C + extra``. None for the public rule.
    extra_regularization : float >= 0 or None
        What is added to lambda for the sake of privacy. None for the public rule.
    tol : float in (0, 1]
        The solver certifies a gradient norm of ``tol`` times the largest gradient of one record
        (or, if that is larger, 1e-5 tol times the noise in one component of B).

    Raises
    ------
    InvalidParameterError
        Settings for which no finite positive noise can be stated: among them a C so large that the
        change of variables costs more than epsilon whatever the noise.

    Notes
    -----
    Guarantees: ``release`` is (epsilon, delta)-differentially private for weights that minimise the
    objective with ``draw_linear`` to within ``gradient_tol``. With ``noise="gaussian",
    noise_grid="exact"`` this holds for the program as run on floating-point hardware; otherwise for
    ideal real arithmetic only. What is released are multiples of a public power of two.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate, JMLR 12 (2011), Algorithm 2; Kifer, Smith, Thakurta, COLT 2012;
    Iyengar et al., S&P 2019 (approximate minimum); Redberg, Koskela, Wang, NeurIPS 2023 (privacy
    loss of one score); Karney, ACM TOMS 42 (2016) (exact sampling).
    """

    epsilon: float
    delta: float
    adjacency: str
    noise: str
    noise_grid: str
    loss: Loss
    n_features: int
    data_norm: float
    intercept_scaling: float
    C: float | None
    extra_regularization: float | None
    tol: float

    def __post_init__(self) -> None:
        """Refuses settings whose noise would not be a positive finite number."""
        if self.noise == "gaussian":
            check_delta_of_gaussian(self.delta)
        check_range("epsilon", self._outside.epsilon, "one hundredth of epsilon")
        check_row_norm(self.data_norm, self.intercept_scaling, self.row_norm)
        # Building the parts refuses what they cannot do. Gamma noise is never rounded before.
        check_solvable(self.regularization, self.row_norm)
        if self.output.total > 1.01 * self.output.distance:
            raise InvalidParameterError(
                f"epsilon: got {self.epsilon!r} with delta {self.delta!r}, expected a budget whose "
                "noise can be drawn on a grid finer than the distance that it covers; use larger "
                "values or noise_grid='float'"
            )

    @property
    def score_loss(self) -> Loss:
        """The loss as a function of the scores."""
        return self.loss

    @property
    def shape(self) -> tuple[int, int]:
        """Number of scores, and of features with the constant one."""
        return (self.loss.n_scores, self.n_features + (self.intercept_scaling > 0.0))

    @property
    def n_weights(self) -> int:
        """Number of released weights, intercepts included."""
        return math.prod(self.shape)

    @cached_property
    def row_norm(self) -> float:
        """Bound of the norm of a clipped row with its constant feature."""
        return hypot_up(self.data_norm, self.intercept_scaling)

    @cached_property
    def _outside(self) -> Budget:
        """What pays for the approximate minimum."""
        return Budget(OUTPUT_SHARE * self.epsilon, OUTPUT_SHARE * self._delta)

    @property
    def _delta(self) -> float:
        """Delta of the whole release."""
        return self.delta if self.noise == "gaussian" else 0.0

    @cached_property
    def inside(self) -> LinearNoise:
        """The noise in the objective; it has the budget that is left, rounded down."""
        return LinearNoise(
            epsilon=add_down(self.epsilon, -self._outside.epsilon),
            delta=max(0.0, add_down(self._delta, -self._outside.delta)),
            adjacency=self.adjacency,
            noise=self.noise,
            exact=self.noise_grid == "exact",
            loss=self.loss,
            row_norm=self.row_norm,
            shape=self.shape,
            C=self.C,
            extra=self.extra_regularization,
            tol=self.tol,
        )

    @cached_property
    def output(self) -> WeightNoise:
        """The noise on the weights; it covers twice the solver's distance to the minimiser."""
        return WeightNoise(
            epsilon=self._outside.epsilon,
            delta=self._outside.delta,
            adjacency=self.adjacency,
            noise=self.noise,
            exact=self.noise_grid == "exact",
            distance=2.0 * self.inside.radius,
            grid_share=GRID_SHARE,
            shape=self.shape,
        )

    @property
    def regularization(self) -> float:
        """Lambda of the objective, the extra regularisation included."""
        return self.inside.regularization

    @property
    def gradient_tol(self) -> float:
        """Norm of the objective's gradient that the solver has to certify."""
        return self.inside.gradient_tol

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What a ledger records: the noise in the objective and the noise on the weights."""
        return (self.inside.event, self.output.event)

    def summary(self) -> str:
        """Public facts in one line."""
        kind = "sigma" if self.noise == "gaussian" else "beta"
        return (
            f"{self.n_weights} weights, lambda = {self.regularization:.4g}, {self.noise} noise "
            f"with {kind} = {self.inside.scale:.4g} in the objective and "
            f"{self.output.scale:.4g} on the weights"
        )

    def statement(self, **occasion: Any) -> PrivacyStatement:
        """What is promised about one release, with every number needed to recompute it.

        ``occasion`` holds the fields of the statement that are about the fit, ``library_version``
        among them.
        """
        own: tuple[str, ...] = (RUNNING_TIME_CAVEAT, PRECISION_CAVEAT)
        if self.inside.grid is None:
            own += (FLOATING_POINT_CAVEAT,)
        return statement_of(
            self,
            occasion,
            own,
            mechanism="objective_perturbation",
            loss=self.loss.name,
            sensitivity=self._derivation(),
            noise=self.output.record,
            objective=self.inside.record,
        )

    def _derivation(self) -> Sensitivity:
        """What the noise on the weights has to cover: the exact minimisers coincide."""
        return Sensitivity(
            lipschitz=self.loss.lipschitz,
            C=1.0 / self.regularization,
            data_norm=self.data_norm,
            intercept_scaling=self.intercept_scaling,
            row_norm=self.row_norm,
            relation_factor=RELATION_FACTOR[self.adjacency],
            exact=0.0,
            solver_radius=self.inside.radius,
            rounding=self.output.rounding,
            total=self.output.total,
        )

    def draw_linear(self, source: _core.NoiseSource, *, n_threads: int) -> NDArray[np.float64]:
        """B, of shape (n_scores, n_features [+ 1]). Private: whoever knows it can undo the noise.

        Parameters
        ----------
        source : NoiseSource
        n_threads : int
            Does not change the result.
        """
        return self.inside.draw(source, n_threads)

    def release(
        self, weights: NDArray[np.float64], source: _core.NoiseSource, *, n_threads: int
    ) -> NDArray[np.float64]:
        """Noisy copy of ``weights``: the only value derived from them that may leave the host.

        Parameters
        ----------
        weights : ndarray of shape (n_scores, n_features [+ 1])
            The objective with the B drawn before has a gradient of norm at most ``gradient_tol``
            there (owed by the caller: certified by the solver).
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
        return self.output.release(weights, source, n_threads)
