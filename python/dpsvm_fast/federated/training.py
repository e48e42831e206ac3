r"""What a party fits, and by how much it can move what the party contributes.

Party i holds n_i rows of norm at most :math:`\kappa_t` and contributes :math:`w_i \Pi_R(f_i)`,

.. math:: f_i \approx \arg\min_W \tfrac{\Lambda}{2} \|W\|_F^2
          + \frac{1}{n_i} \sum_j \phi_{y_j}(W \tilde x_j)

with w_i = n_i (``weighting="records"``) or 1 (``"users"``) and the projection onto a ball or a
product of balls. One row exchanged moves it by at most :math:`2 L \kappa_t / \Lambda`, whatever
n_i, or :math:`2 L \kappa_t / (n_{min} \Lambda)`, and by no more than the diameter of the balls.
docs/proofs/federated.md. All numbers are rounded towards more noise; none of them reads data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._rounding import (
    add_up,
    div_down,
    div_up,
    fraction_down,
    fraction_up,
    hypot_up,
    mul_down,
    mul_up,
    sqrt_up,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._projected_sgd import ProjectedSGD
from dpsvm_fast.mechanisms._settings import RELATION_FACTOR, check_range, check_row_norm

__all__ = ["LocalTraining"]

Array = NDArray[np.float64]

ADJACENCY = "replace_one"
# Rounding errors of norms, of the projection and of the product with the weight, relative to the
# norm: a few units in the last place for each weight.
ROUNDING_PER_WEIGHT = 2.0**-51


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """One party's training, the same for all parties but for the number of their rows.

    Parameters
    ----------
    loss : Loss
    n_users : int
    n_features : int
    data_norm : float > 0
    intercept_scaling : float >= 0
    regularization : float > 0
        Lambda of the mean-form objective.
    radius : float > 0
        R.
    projection : {"joint", "per_class"}
    weighting : {"records", "users"}
    unit : {"record", "group", "user"}
        In what neighbours differ: one row, ``group_size`` rows of any parties, or all of one party.
    group_size : int >= 1
    min_records, max_records : int
        Rows that a party may have.
    tol : float in (0, 1]
        Distance to the minimiser, and rounding errors, relative to what one row moves.
    solver : {"exact", "psgd"}
    n_epochs, batch_size : int
        Of ``"psgd"``.
    """

    loss: Loss
    n_users: int
    n_features: int
    data_norm: float
    intercept_scaling: float
    regularization: float
    radius: float
    projection: str
    weighting: str
    unit: str
    group_size: int
    min_records: int
    max_records: int
    tol: float
    solver: str
    n_epochs: int = 10
    batch_size: int = 50

    def __post_init__(self) -> None:
        """Refuse settings whose products leave the floats, or whose rounding is too large."""
        check_row_norm(self.data_norm, self.intercept_scaling, self.row_norm)
        check_range("regularization", self.regularization, "regularization")
        check_range("radius", self.radius, "radius")
        check_range("regularization", self.by_record, "what one record moves")
        if self.solver == "psgd":
            if math.isinf(self.loss.curvature):
                raise InvalidParameterError.of(
                    "loss", got=self.loss.name, accepted="a smooth loss with projected SGD"
                )
            for n in {self.min_records, self.max_records}:
                if not self.accurate(n):
                    raise InvalidParameterError(
                        f"tol: the rounding errors of projected SGD on {n} records exceed "
                        f"{self.tol:g} of what one record moves; expected a larger tol or fewer "
                        "updates"
                    )

    @property
    def shape(self) -> tuple[int, int]:
        """Of the weights."""
        return (self.loss.n_scores, self.n_features + (self.intercept_scaling > 0.0))

    @property
    def size(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)

    @cached_property
    def row_norm(self) -> float:
        """Bound of a row with its constant feature."""
        return hypot_up(self.data_norm, self.intercept_scaling)

    @property
    def n_balls(self) -> int:
        """Balls onto which weights are projected."""
        return 1 if self.projection == "joint" else self.loss.n_scores

    @cached_property
    def model_norm(self) -> float:
        """Norm of projected weights at most."""
        return mul_up(self.radius, sqrt_up(float(self.n_balls)))

    @property
    def most_weight(self) -> int:
        """Largest factor of a model in its party's contribution."""
        return self.max_records if self.weighting == "records" else 1

    @cached_property
    def C(self) -> float:
        """Factor of one record in what is minimised, times its party's weight; rounded up."""
        least = 1 if self.weighting == "records" else self.min_records
        return fraction_up(1 / (Fraction(self.regularization) * least))

    @cached_property
    def by_record(self) -> float:
        """What one record moves by strong convexity, ``2 L C kt``."""
        factor = RELATION_FACTOR[ADJACENCY]
        return factor * mul_up(mul_up(self.loss.lipschitz, self.C), self.row_norm)

    @cached_property
    def diameter(self) -> float:
        """What a party's contribution moves at most, whatever its records."""
        return mul_up(2.0 * self.most_weight, self.model_norm)

    @cached_property
    def solver_radius(self) -> float:
        """Distance of a computed contribution from that of real arithmetic, rounded up."""
        rounded = mul_up(float(self.most_weight), mul_up(self._projection_error, self.largest))
        return add_up(mul_up(self.tol, self.by_record), rounded)

    @property
    def _projection_error(self) -> float:
        """Rounding of a norm, a projection and a product with a weight, relative to the norm."""
        return ROUNDING_PER_WEIGHT * (self.size + 16.0)

    @cached_property
    def largest(self) -> float:
        """Norm of weights before the projection at most."""
        natural = div_up(mul_up(self.loss.lipschitz, self.row_norm), self.regularization)
        return mul_up(2.0, max(natural, self.model_norm))

    @property
    def n_affected(self) -> int:
        """Parties in which neighbours may differ."""
        return min(self.group_size, self.n_users) if self.unit == "group" else 1

    @cached_property
    def distance(self) -> float:
        """What a unit moves, errors of every affected party included; rounded up."""
        if self.unit == "user":
            return self.diameter
        parties = self.n_affected
        errors = mul_up(2.0 * parties, self.solver_radius)
        by_records = add_up(mul_up(float(self.group_size), self.by_record), errors)
        return min(by_records, mul_up(float(parties), self.diameter))

    @property
    def bound(self) -> float:
        """Norm of a contribution at most."""
        return mul_up(float(self.most_weight), self.model_norm)

    # One party's own numbers.

    def weight(self, n_records: int) -> int:
        """Factor of the party's model in its contribution."""
        return n_records if self.weighting == "records" else 1

    def sum_regularization(self, n_records: int) -> float:
        """Lambda of the sum-form objective, rounded up: a larger one moves less."""
        return fraction_up(Fraction(self.regularization) * n_records)

    def own_radius(self, n_records: int) -> float:
        """Distance to the minimiser that the party's solver certifies, rounded down."""
        return div_down(mul_down(self.tol, self.by_record), float(self.weight(n_records)))

    def gradient_tol(self, n_records: int) -> float:
        """Norm of the sum-form objective's gradient that certifies ``own_radius``, down."""
        return mul_down(self.own_radius(n_records), self.sum_regularization(n_records))

    def own_C(self, n_records: int) -> float:
        """1 over ``sum_regularization``, rounded down."""
        return fraction_down(1 / (Fraction(self.regularization) * n_records))

    def sgd(self, n_records: int) -> ProjectedSGD:
        """The party's run."""
        return ProjectedSGD(
            n_samples=n_records,
            n_epochs=self.n_epochs,
            batch_size=self.batch_size,
            radius=self.radius,
            projection=self.projection,
            average="last",
        )

    def accurate(self, n_records: int) -> bool:
        """Whether rounding errors of the run are within the tolerance."""
        return _sgd_rounding(self, n_records) <= self.own_radius(n_records)

    def projected(self, weights: Array) -> Array:
        """Weights of the norm allowed: the nearest ones in the ball or balls."""
        rows = weights.reshape(self.n_balls, -1)
        with np.errstate(over="ignore"):
            norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        # A little smaller, so that what is computed is within the radius.
        radius = self.radius * (1.0 - self._projection_error)
        factors = radius / np.maximum(norms, radius)
        return np.asarray(rows * factors[:, None]).reshape(weights.shape)


@lru_cache(maxsize=4096)
def _sgd_rounding(training: LocalTraining, n_records: int) -> float:
    """Bound of the distance of the computed iterate from that of real arithmetic."""
    run = training.sgd(n_records)
    return run.rounding(
        training.loss,
        training.own_C(n_records),
        n_columns=training.shape[1],
        data_norm=training.data_norm,
        intercept_scaling=training.intercept_scaling,
        row_norm=training.row_norm,
    )
