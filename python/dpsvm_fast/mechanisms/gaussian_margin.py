r"""Large-margin Gaussian ellipsoids: one noisy objective over positive semidefinite matrices.

Proved in docs/proofs/gaussian_margin.md. A row x clipped to norm :math:`\kappa` becomes
:math:`\hat x = (x / \kappa, s) / \sqrt{1 + s^2}`, of norm at most 1, and its coordinates
:math:`u` in an orthonormal basis of symmetric matrices, those of :math:`\hat x \hat x^T`, too. The
score of an ellipsoid, :math:`-\hat x^T \Phi_j \hat x = -\langle \Phi_j, u \rangle`, is linear in
its matrix. What is minimised is the objective of
:class:`~dpsvm_fast.mechanisms.objective.ObjectivePerturbation` with rows u and a public linear
term, the weighted traces; its noise is independent in the coordinates, hence symmetric with half
the variance off the diagonal. Demanding positive semidefinite matrices changes nothing in the
proof.

With several ellipsoids a class, :mod:`dpsvm_fast.mechanisms._anchors` releases one centre for each
first, and a record competes for the ellipsoid with the nearest one of its class.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpsvm_fast import _core
from dpsvm_fast._rounding import add_down, div_down
from dpsvm_fast.accounting import (
    PrivacyEvent,
    PrivacyStatement,
    composed_delta,
    gaussian_delta,
    gaussian_epsilon,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._anchors import STEPS, NoisyAnchors
from dpsvm_fast.mechanisms._gaussian_objective import automatic_regularization
from dpsvm_fast.mechanisms._noisy_sum import (
    NoisySum,
    gaussian_parameter,
    joined_parameter,
    share_of,
)
from dpsvm_fast.mechanisms._settings import check_delta_of_gaussian, check_range
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation

__all__ = ["CONSTANT", "GaussianMargin", "MatrixPerturbation", "n_coordinates"]

# The constant feature beside rows of norm at most 1.
CONSTANT = 0.5
# C="auto" with Gaussian noise: this share of the regularisation that a linear model gets. The
# coordinates of lifted rows vary less than rows do; two features do best with 0.4, thirty with all
# of it. Curvature of pairwise Huber losses costs more. No function of the number of features: the
# budget is asked for before that is known, and the law of the noise depends on it.
REGULARIZATION_SHARE = {"softmax_margin": 0.6, "huber_ww": 1.0}
# Of the squared Gaussian parameter, or of epsilon: what the centres of several ellipsoids cost.
ANCHOR_SHARE = 0.15
# Delta may be missed by this share, from below: half a percent of the noise.
DELTA_UNUSED = 0.1
# By how much delta answers more to epsilon than with Gaussian noise alone, about.
STEEPER = 1.25
TRIALS = 12
# Epsilon is looked for from this share of the whole upwards.
LEAST_SHARE = 0.05
# Steps of the noise's grid in the weight of the traces: with noise added they stay below 2**53.
MOST_STEPS = 2.0**52


def n_coordinates(n_features: int) -> int:
    """Coordinates of the symmetric matrix of an ellipsoid."""
    return (n_features + 1) * (n_features + 2) // 2


@dataclass(frozen=True)
class MatrixPerturbation(ObjectivePerturbation):
    """Objective perturbation of more score rows than one record's loss has classes.

    Parameters
    ----------
    n_matrices : int
        Rows of weights. ``loss.n_classes`` of them meet in the loss of a record.
    """

    n_matrices: int

    @property
    def shape(self) -> tuple[int, int]:
        """Number of matrices, and of the coordinates of each."""
        return (self.n_matrices, self.n_features)


@dataclass(frozen=True, kw_only=True)
class GaussianMargin:
    """All releases of one fit, known in full before any data are read.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1)
        Positive with Gaussian noise; unused by Gamma noise, which is pure.
    adjacency : {"add_remove", "replace_one"}
    noise : {"gaussian", "gamma"}
    noise_grid : {"exact", "float"}
    loss : {"softmax_margin", "huber_ww"}
    smoothing, margin : float
        Of the loss.
    n_classes, n_ellipsoids, n_features : int
        Ellipsoids are counted for each class.
    data_norm : float > 0
        Public bound of the rows' norm.
    trace_weight : float >= 0
        Factor of the traces in the objective.
    C : float > 0 or None
        ``lambda = 1 / C + extra``; None for the public rule.
    extra_regularization : float >= 0 or None
    tol : float in (0, 1]

    Raises
    ------
    InvalidParameterError
        Settings for which no finite positive noise can be stated.

    Notes
    -----
    Guarantees: the anchors (with more than one ellipsoid a class) and the matrices that
    ``solver.release`` returns, from a minimiser certified over all symmetric or over all positive
    semidefinite matrices, are (epsilon, delta)-differentially private together.
    """

    epsilon: float
    delta: float
    adjacency: str
    noise: str
    noise_grid: str
    loss: str
    smoothing: float
    margin: float
    n_classes: int
    n_ellipsoids: int
    n_features: int
    data_norm: float
    trace_weight: float
    C: float | None
    extra_regularization: float | None
    tol: float

    def __post_init__(self) -> None:
        """Refuses settings whose noise would not be a positive finite number."""
        if not self.pure:
            check_delta_of_gaussian(self.delta)
        # What the solver takes, before anything is spent.
        check_range("data_norm", self.data_norm, "the bound of the rows' norm", 1e-15, 1e15)
        if self.trace_weight:
            check_range("trace_weight", self.trace_weight, "the value given")
        # Building it refuses what it cannot do.
        grid = self._with_budget(self.epsilon, self.delta).inside.grid
        check_range("C", self.regularization, "the whole regularisation", 1e-30, 1e30)
        if grid is not None and self.trace_weight > MOST_STEPS * grid:
            raise InvalidParameterError.of(
                "trace_weight",
                got=self.trace_weight,
                accepted=f"at most {MOST_STEPS * grid:.3g} beside noise on a grid this fine",
            )

    @property
    def pure(self) -> bool:
        """Whether delta is 0."""
        return self.noise == "gamma"

    @property
    def n_matrices(self) -> int:
        """Ellipsoids of all classes together."""
        return self.n_classes * self.n_ellipsoids

    @property
    def intercept_scaling(self) -> float:
        """Constant feature in units of the rows."""
        return CONSTANT * self.data_norm

    @property
    def score_loss(self) -> Loss:
        """The loss of a record as a function of the scores that take part.

        These are its own ellipsoid's and those of the other classes' ellipsoids.
        """
        return Loss(
            name=self.loss,
            n_classes=self.n_matrices - self.n_ellipsoids + 1,
            smoothing=self.smoothing,
            margin=self.margin,
            per_class=True,
        )

    @cached_property
    def anchors(self) -> NoisyAnchors | None:
        """The noisy centres; None with one ellipsoid a class."""
        if self.n_ellipsoids == 1:
            return None
        share = ANCHOR_SHARE / STEPS
        return NoisyAnchors(
            n_classes=self.n_classes,
            n_ellipsoids=self.n_ellipsoids,
            n_features=self.n_features,
            adjacency=self.adjacency,
            noise_grid=self.noise_grid,
            mu=None if self.pure else share_of(gaussian_parameter(self.epsilon, self.delta), share),
            epsilon=share * self.epsilon if self.pure else None,
        )

    @property
    def _sums(self) -> tuple[NoisySum, ...]:
        """All noisy sums."""
        return () if self.anchors is None else self.anchors.sums

    @property
    def _before(self) -> tuple[PrivacyEvent, ...]:
        """What a ledger is charged before the noise in the objective."""
        return tuple(part.event for part in self._sums)

    @cached_property
    def solver(self) -> MatrixPerturbation:
        """The noisy objective and the noise on its minimiser."""
        if self.anchors is None:
            return self._with_budget(self.epsilon, self.delta)
        if self.pure:
            return self._with_budget(add_down(self.epsilon, *(-e for e in self._pure_shares)), 0.0)
        return _composed_solver(self)

    @property
    def _pure_shares(self) -> tuple[float, ...]:
        """Epsilons of the noisy sums."""
        return tuple(part.epsilon or 0.0 for part in self._sums)

    def _with_budget(self, own: float, delta: float) -> MatrixPerturbation:
        """The noisy objective with an epsilon and a delta of its own."""
        settings: dict[str, Any] = {
            "epsilon": own,
            "delta": delta,
            "adjacency": self.adjacency,
            "noise": self.noise,
            "noise_grid": self.noise_grid,
            "loss": self.score_loss,
            "n_features": n_coordinates(self.n_features),
            "n_matrices": self.n_matrices,
            "data_norm": 1.0,
            "intercept_scaling": 0.0,
            "extra_regularization": self.extra_regularization,
            "tol": self.tol,
        }
        C = self._automatic_C(own, delta) if self.C is None and not self.pure else self.C
        return MatrixPerturbation(C=C, **settings)

    def _automatic_C(self, own: float, delta: float) -> float:
        """C="auto" of Gaussian noise."""
        automatic = automatic_regularization(self.score_loss, own, delta, self.adjacency, 1.0)
        check_range("C", automatic, "the whole regularisation")
        return 1.0 / (REGULARIZATION_SHARE[self.loss] * automatic)

    @property
    def regularization(self) -> float:
        """Lambda of the objective, the extra regularisation included."""
        return self.solver.regularization

    @cached_property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What a ledger records."""
        return self._before + self.solver.events

    def summary(self) -> str:
        """Public facts in one line."""
        return f"{self.n_matrices} ellipsoids in {self.n_features} dimensions, " + (
            self.solver.summary()
        )

    def statement(self, **occasion: Any) -> PrivacyStatement:
        """What is promised about all releases together.

        ``occasion`` holds the fields of the statement that are about the fit, ``library_version``
        among them.
        """
        own = self.solver.statement(**occasion)
        return dataclasses.replace(
            own,
            mechanism="gaussian_margin",
            epsilon=self.epsilon,
            delta=0.0 if self.pure else self.delta,
            events=self.events,
            parts=tuple(part.part for part in self._sums),
        )

    def draw_linear(self, source: _core.NoiseSource, *, n_threads: int) -> NDArray[np.float64]:
        """The linear term of the objective, of shape (n_matrices, n_coordinates): noise and traces.

        Private: whoever knows it can undo the noise.

        Parameters
        ----------
        source : NoiseSource
        n_threads : int
            Does not change the result.
        """
        side = self.n_features + 1
        rows, columns = np.triu_indices(side)
        traced = (rows == columns) & (rows < self.n_features)
        noise = self.solver.draw_linear(source, n_threads=n_threads)
        grid, weight = self.solver.inside.grid, self.trace_weight
        if grid is not None:
            # To the noise's grid: then the sum is exact, and the noise in it the one of the proof.
            weight = round(weight / grid) * grid
        return np.asarray(noise + weight * traced)


@lru_cache(maxsize=256)
def _composed_solver(mechanism: GaussianMargin) -> MatrixPerturbation:
    """The noisy objective for what exact composition leaves to it.

    Composing takes a second or two: the next epsilon to be tried is found by the slope that
    Gaussian noise would have, less than that of the noise in the objective.
    """
    epsilon, delta = mechanism.epsilon, mechanism.delta
    mu = gaussian_parameter(epsilon, delta)
    anchors = share_of(mu, ANCHOR_SHARE)

    def log_delta(own: float) -> float:
        together = joined_parameter(anchors, gaussian_parameter(own, delta))
        return math.log(gaussian_delta(epsilon, div_down(1.0, together)))

    own = gaussian_epsilon(delta, div_down(1.0, share_of(mu, 1.0 - ANCHOR_SHARE)))
    best: MatrixPerturbation | None = None
    for _ in range(TRIALS):
        solver = mechanism._with_budget(own, delta)
        found = composed_delta((*mechanism._before, *solver.events), epsilon)
        excess = math.log(found / delta)
        if excess <= 0.0 and (best is None or own > best.epsilon):
            best = solver
        if -DELTA_UNUSED <= excess <= 0.0:
            break
        step = (-0.5 * DELTA_UNUSED - excess) / STEEPER
        own = _where(log_delta, log_delta(own) + step, epsilon)
    if best is None:
        raise InvalidParameterError(
            f"n_ellipsoids: the centres of {mechanism.n_ellipsoids} ellipsoids a class leave too "
            f"little of epsilon = {epsilon!r}, delta = {delta!r} to the training; use 1"
        )
    return best


def _where(increasing: Callable[[float], float], value: float, most: float) -> float:
    """Where an increasing function has a value, between a small share of ``most`` and ``most``."""
    least = LEAST_SHARE * most
    if value <= increasing(least):
        return least
    if value >= increasing(most):
        return most
    return float(brentq(lambda x: increasing(x) - value, least, most, rtol=1e-6))
