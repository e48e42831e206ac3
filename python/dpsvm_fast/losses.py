"""The losses: the one table of the numbers that every guarantee takes from them.

With scores s = W x, one row of W a score, a loss is a convex function of s; its gradient in W is
the gradient a in s times the row. What is tabulated here is proved in docs/notation.md, section
"Losses": the largest norm L of a, the largest eigenvalue beta of the Hessian in s, and the largest
log-determinant c0 of ``1 + rho * Hessian``, which is the price of the change of variables in
objective perturbation.

Two classes need one score, s > 0 for the second class, except with the losses that compare classes
in pairs. For more classes ``huber``, ``softplus`` and ``logistic`` are one-vs-rest sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.rounding import div_up, mul_up, round_up, sqrt_up

__all__ = ["LIKELIHOODS", "SMOOTH_LOSSES", "WEIGHT_LOSSES", "Loss"]

# Losses with a Hessian, or (Huber) a Lipschitz gradient.
SMOOTH_LOSSES = ("softmax_margin", "huber", "logistic", "softplus", "m3", "huber_ww")

# Losses for noise on the weights, which needs no law of its own for the loss.
WEIGHT_LOSSES = ("crammer_singer", *SMOOTH_LOSSES, "margin_distance")

# Losses that can be negative log-likelihoods: with margin 0 they give probabilities.
LIKELIHOODS = ("logistic", "softmax_margin", "softplus")

# Sums over the other classes of a smoothed hinge of the difference to the own score.
_WESTON_WATKINS = ("m3", "huber_ww")

# Losses over all classes at once, which have K scores for K = 2 too.
_PAIRWISE = ("crammer_singer", "margin_distance", *_WESTON_WATKINS)


@dataclass(frozen=True, kw_only=True)
class Loss:
    r"""A loss with its parameters and the constants that guarantees need.

    Parameters
    ----------
    name : str
        With t = +1 for the own class and -1 for others, y the own class:

        - ``crammer_singer``: :math:`\max_k (1[k \ne y] + s_k - s_y)`
        - ``softmax_margin``: :math:`\tau \log \sum_k \exp((m 1[k \ne y] + s_k - s_y) / \tau)`
        - ``softplus``: :math:`\sum_k \tau \log(1 + \exp((m - t_k s_k) / \tau))`
        - ``logistic``: ``softplus`` with tau = 1, m = 0
        - ``huber``: :math:`\sum_k H(t_k s_k)`, H(z) = 0 for z > m + h, m - z for z < m - h and
          (m + h - z)^2 / (4h) between
        - ``m3``: :math:`\sum_{k \ne y} (g_k + \sqrt{g_k^2 + \tau^2}) / 2`, g_k = m - s_y + s_k
        - ``huber_ww``: :math:`\sum_{k \ne y} H(s_y - s_k)` with the H of ``huber``
        - ``margin_distance``: d - h/2, and d^2 / (2h) for d < h, with d the Euclidean distance of s
          to the scores with :math:`s_y \ge s_k + m` for all :math:`k \ne y`
    n_classes : int >= 2
    smoothing : float > 0
        tau, the half width h of ``huber`` and ``huber_ww``, or the h of ``margin_distance``. Not
        used by ``crammer_singer`` and ``logistic``.
    margin : float >= 0
        m. Not used by ``crammer_singer`` and ``logistic``.
    per_class : bool, default=False
        Whether every class has a score also where one would do for two: where weights are
        constrained class by class.
    averaged : bool, default=False
        Whether neighbours differ in a mean of several such losses, those of the rows of a person,
        instead of one.
    """

    name: str
    n_classes: int
    smoothing: float = 1.0
    margin: float = 1.0
    per_class: bool = False
    averaged: bool = False

    @property
    def n_scores(self) -> int:
        """Number of scores, which is the number of rows of W."""
        shared = self.n_classes == 2 and self.name not in _PAIRWISE and not self.per_class
        return 1 if shared else self.n_classes

    @property
    def joint(self) -> bool:
        """Whether all scores enter one term, rather than a sum of one-score terms."""
        return self.n_scores > 1 and self.name in (*_PAIRWISE, "softmax_margin")

    @property
    def is_likelihood(self) -> bool:
        """Whether the loss is a negative log-likelihood, up to its temperature."""
        return self.name == "logistic" or (self.name in LIKELIHOODS and self.margin == 0.0)

    @property
    def temperature(self) -> float:
        """Smoothing in the unit of the laws of objective perturbation.

        One score has curvature at most ``1 / (4 temperature)``, a pair of scores (``m3``,
        ``huber_ww``) ``1 / (2 temperature)`` in their difference.
        """
        if self.name == "logistic":
            return 1.0
        return 0.5 * self.smoothing if self.name == "huber" else self.smoothing

    @property
    def kernel(self) -> tuple[str, float, float]:
        """Name, smoothing and margin under which the compiled solvers know this loss."""
        if self.name == "logistic":
            return ("softplus", 1.0, 0.0)
        if self.name == "softmax_margin" and self.n_scores == 1:
            # log(e^0 + e^{m - s}): the difference of the two scores is the one score.
            return ("softplus", self.smoothing, self.margin)
        return (self.name, self.smoothing, self.margin)

    @property
    def compiled(self) -> dict[str, Any]:
        """The loss as the compiled solvers take it."""
        kernel, smoothing, margin = self.kernel
        return {"loss": kernel, "n_scores": self.n_scores, "smoothing": smoothing, "margin": margin}

    @property
    def law(self) -> str:
        """Name under which the accounting of objective perturbation knows this loss."""
        if self.name not in SMOOTH_LOSSES:
            raise InvalidParameterError.of(
                "loss", got=self.name, accepted="one of " + ", ".join(map(repr, SMOOTH_LOSSES))
            )
        if self.name in _WESTON_WATKINS:
            return "weston_watkins"
        return {"softmax_margin": "softmax", "softplus": "logistic", "huber": "huber"}[
            self.kernel[0]
        ]

    @cached_property
    def lipschitz(self) -> float:
        """L: largest norm of the gradient in the scores, rounded up."""
        if self.name in _WESTON_WATKINS:
            return sqrt_up(float(self.n_classes * (self.n_classes - 1)))
        if self.name == "margin_distance":
            return 1.0
        return sqrt_up(2.0 if self.joint else float(self.n_scores))

    @cached_property
    def curvature(self) -> float:
        """Largest eigenvalue beta of the Hessian in the scores, rounded up."""
        if self.name == "crammer_singer":
            return math.inf
        if self.name in _WESTON_WATKINS:
            return div_up(0.5 * self.n_classes, self.smoothing)
        if self.name == "margin_distance":
            return div_up(1.0, self.smoothing)
        return div_up(0.5 if self.joint else 0.25, self.temperature)

    def curvature_ratio(self, row_norm: float, regularization: float) -> float:
        """Return kappa = row_norm^2 / (regularization * temperature), rounded up.

        Parameters
        ----------
        row_norm : float > 0
            Bound of a row with its constant feature.
        regularization : float > 0
            Lambda of the objective.

        Returns
        -------
        float
        """
        square = mul_up(row_norm, row_norm)
        return div_up(div_up(square, regularization), self.temperature)

    def jacobian(self, curvature_ratio: float) -> float:
        """Return c0, the largest log-determinant of ``1 + rho * Hessian``, rounded up.

        With ``averaged``, the largest trace of ``rho * Hessian``, which is no smaller.

        Parameters
        ----------
        curvature_ratio : float >= 0
            What :meth:`curvature_ratio` returns.
        """
        K, kappa = self.n_classes, curvature_ratio
        if self.name not in SMOOTH_LOSSES:
            return math.inf
        if self.averaged:
            trace = 0.25 * self.n_scores
            if self.joint:
                trace = K - 1.0 if self.name in _WESTON_WATKINS else 1.0 - 1.0 / K
            bound = trace * kappa
        elif self.name in _WESTON_WATKINS:
            bound = math.log1p(0.5 * K * kappa) + (K - 2) * math.log1p(0.5 * kappa)
        elif self.joint:
            bound = (K - 1) * math.log1p(kappa / K)
        else:
            bound = self.n_scores * math.log1p(0.25 * kappa)
        # Two functions, two products and a sum of positive terms, each within an ulp.
        return round_up(bound, 8)
