r"""Sensitivity and rounding of projected SGD: proved in docs/proofs/projected_sgd.md.

The mean-form objective has :math:`\Lambda = 1/(nC)`. With k passes of l updates on b of n rows the
last iterates of neighbours differ by at most :math:`2 L \kappa_t / (b l \Lambda)`, and never by
more than the diameter of the ball. n is public: the relation is replacement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import digamma

from dpsvm_fast import _core
from dpsvm_fast._rounding import div_up, fraction_up, mul_up, round_up, sqrt_up
from dpsvm_fast.losses import Loss

__all__ = ["AVERAGES", "PROJECTIONS", "ProjectedSGD"]

PROJECTIONS = ("joint", "per_class")
AVERAGES = ("last", "uniform", "weighted")

# Covers the rounding of a sum of harmonic numbers, each known to a few units in the last place.
HARMONIC_SLACK = 1e-11


@dataclass(frozen=True, kw_only=True)
class ProjectedSGD:
    """One run, known in full before any data are read.

    Parameters
    ----------
    n_samples : int >= 1
        Number of rows; public.
    n_epochs : int >= 1
        Passes over the rows.
    batch_size : int >= 1
        Rows in a batch; more than ``n_samples`` count as ``n_samples``.
    radius : float > 0 or None
        Of the ball or balls. None is :meth:`automatic_radius`.
    projection : {"joint", "per_class"}
        One ball for all weights, or one for each score.
    average : {"last", "uniform", "weighted"}
        The last iterate, or the mean of all, with equal weights or proportional to their number.
    """

    n_samples: int
    n_epochs: int
    batch_size: int
    radius: float | None
    projection: str
    average: str

    @property
    def batch(self) -> int:
        """b: rows by which a batch is divided."""
        return min(self.batch_size, self.n_samples)

    @property
    def updates_per_epoch(self) -> int:
        """l: batches of one pass, the last one possibly short."""
        return -(-self.n_samples // self.batch)

    def regularization(self, C: float) -> float:
        """Lambda of the mean-form objective, rounded up."""
        return fraction_up(1 / (Fraction(self.n_samples) * Fraction(C)))

    def ball_radius(self, loss: Loss, C: float, row_norm: float) -> float:
        """R: the radius given, or the automatic one."""
        return self.automatic_radius(loss, C, row_norm) if self.radius is None else self.radius

    def automatic_radius(self, loss: Loss, C: float, row_norm: float) -> float:
        r"""A radius that holds the minimiser for all data.

        .. math:: \min(L \kappa_t / \Lambda, \sqrt{2 \phi(0) / \Lambda})

        The gradient vanishes at the minimiser, and the objective is at most its value at 0.
        """
        regularization = self.regularization(C)
        by_gradient = div_up(mul_up(loss.lipschitz, row_norm), regularization)
        by_value = math.sqrt(2.0 * loss_at_zero(loss) / regularization)
        return min(by_gradient, round_up(by_value, 8))

    def sensitivity(self, loss: Loss, C: float, row_norm: float) -> float:
        """Bound of the distance between the iterates of neighbours in real arithmetic."""
        by_noise_in = mul_up(2.0 * mul_up(mul_up(loss.lipschitz, C), row_norm), self.factor)
        n_balls = 1 if self.projection == "joint" else loss.n_scores
        diameter = mul_up(2.0 * self.ball_radius(loss, C, row_norm), sqrt_up(float(n_balls)))
        return min(by_noise_in, diameter)

    @property
    def factor(self) -> float:
        """Sensitivity relative to that of the exact minimiser, 2 C L kt; rounded up."""
        n, b, k, length = self.n_samples, self.batch, self.n_epochs, self.updates_per_epoch
        if self.average == "weighted":
            return fraction_up(Fraction(n * (k + 1), b * (k * length + 1)))
        last = fraction_up(Fraction(n, b * length))
        return last if self.average == "last" else mul_up(last, mean_visits(k, length))

    def rounding(
        self,
        loss: Loss,
        C: float,
        *,
        n_columns: int,
        data_norm: float,
        intercept_scaling: float,
        row_norm: float,
    ) -> float:
        """Bound of the distance of the computed weights from those of real arithmetic."""
        kernel, smoothing, margin = loss.kernel
        bound: float = _core.projected_sgd_rounding(
            n_samples=self.n_samples,
            n_columns=n_columns,
            loss=kernel,
            n_scores=loss.n_scores,
            smoothing=smoothing,
            margin=margin,
            n_epochs=self.n_epochs,
            batch_size=self.batch,
            regularization=self.regularization(C),
            radius=self.ball_radius(loss, C, row_norm),
            projection=self.projection,
            average=self.average,
            data_norm=data_norm,
            intercept_scaling=intercept_scaling,
        )
        return bound


def mean_visits(n_epochs: int, updates_per_epoch: int) -> float:
    r"""Bound of :math:`\tfrac1k \sum_{m=1}^{kl} \lceil m/l \rceil / m`, by partial summation.

    The sum is :math:`k H_{kl} - \sum_{p<k} H_{pl}` with harmonic numbers H.
    """
    ends = updates_per_epoch * np.arange(1.0, n_epochs + 1.0)
    harmonic = digamma(ends + 1.0) + np.euler_gamma
    total = n_epochs * harmonic[-1] - float(np.sum(harmonic[:-1]))
    return float(total) / n_epochs * (1.0 + HARMONIC_SLACK)


def loss_at_zero(loss: Loss) -> float:
    """Value of the loss at scores 0, the same for every label."""
    tau, m, K = loss.smoothing, loss.margin, loss.n_classes
    if loss.name == "m3":
        return (K - 1) * 0.5 * (m + math.hypot(m, tau))
    if loss.name in ("huber", "huber_ww"):
        inside = max(m + tau, 0.0) ** 2 / (4.0 * tau)
        n_terms = loss.n_scores if loss.name == "huber" else K - 1
        return n_terms * (m if m > tau else inside)
    if loss.name == "margin_distance":
        # The own score would rise to the mean of 0 and K - 1 margins, the others fall to it less m.
        distance = m * math.sqrt((K - 1.0) / K)
        return distance - 0.5 * tau if distance > tau else 0.5 * distance**2 / tau
    if loss.joint:
        return _softplus(m / tau + math.log(K - 1.0)) * tau
    _, tau, m = loss.kernel
    return loss.n_scores * _softplus(m / tau) * tau


def _softplus(z: float) -> float:
    """``log(1 + exp(z))`` without overflow."""
    return max(z, 0.0) + math.log1p(math.exp(-abs(z)))
