"""The losses, and the table of their constants that every guarantee uses.

A loss is a convex function of the scores s = W x, one score for each row of W. Its gradient in W is
the gradient a in s times the row x. The constants are proved in docs/proofs/losses.md: the largest
norm L of a, the largest eigenvalue beta of the Hessian in s, and the largest log-determinant c0 of
``1 + rho * Hessian``, the cost of the change of variables in objective perturbation.

Two classes share one score, s > 0 for the second class, except for losses over pairs of classes.
For more classes ``huber``, ``softplus`` and ``logistic`` are one-vs-rest sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.rounding import div_up, mul_up, round_up, sqrt_up

__all__ = ["SMOOTH_LOSSES", "WEIGHT_LOSSES", "Loss"]


class Kind(NamedTuple):
    """Properties that determine the constants of a loss.

    Parameters
    ----------
    terms : {"each score", "pairs", "all scores"}
        One term for each score, one for each other class, or one term for all scores.
    law : str or None
        Privacy law of objective perturbation for three or more classes; None if none is proved.
    smoothing : float or None
        Smoothing for "auto"; None if the loss has neither smoothing nor margin.
    margin : float
        Margin for "auto", in units of the smoothing if ``likelihood``.
    temperature : float
        Factor from the smoothing to the temperature of the privacy laws.
    smooth : bool
        Whether the gradient is Lipschitz.
    likelihood : bool
        Whether the loss with margin 0 is a negative log-likelihood, so that it gives probabilities.
    one_score : bool
        Whether two classes share one score.
    """

    terms: str
    law: str | None
    smoothing: float | None
    margin: float = 1.0
    temperature: float = 1.0
    smooth: bool = True
    likelihood: bool = False
    one_score: bool = True


# Margins of 2 to 5 temperatures are equally accurate for a softmax; the scale of the margin is a
# choice of units, here that of the hinge.
KINDS = {
    "crammer_singer": Kind("all scores", None, None, smooth=False, one_score=False),
    "softmax_margin": Kind("all scores", "softmax", 0.4, 2.5, likelihood=True),
    "huber": Kind("each score", "huber", 0.5, temperature=0.5),
    "logistic": Kind("each score", "logistic", None, likelihood=True),
    "softplus": Kind("each score", "logistic", 0.4, 2.5, likelihood=True),
    "m3": Kind("pairs", "weston_watkins", 0.5, one_score=False),
    "huber_ww": Kind("pairs", "weston_watkins", 0.5, one_score=False),
    "margin_distance": Kind("all scores", None, 0.5, one_score=False),
}

# Losses for noise in the objective, which needs a law, and for noise on the weights.
SMOOTH_LOSSES = tuple(name for name, kind in KINDS.items() if kind.law)
WEIGHT_LOSSES = tuple(KINDS)


@dataclass(frozen=True, kw_only=True)
class Loss:
    r"""A loss with its parameters and the constants of its guarantees.

    Parameters
    ----------
    name : str
        Name of the loss. With y the true class, t = +1 for it and -1 for the others:

        - ``crammer_singer``: :math:`\max_k (1[k \ne y] + s_k - s_y)`
        - ``softmax_margin``: :math:`\tau \log \sum_k \exp((m 1[k \ne y] + s_k - s_y) / \tau)`
        - ``softplus``: :math:`\sum_k \tau \log(1 + \exp((m - t_k s_k) / \tau))`
        - ``logistic``: ``softplus`` with tau = 1, m = 0
        - ``huber``: :math:`\sum_k H(t_k s_k)`, H(z) = 0 for z > m + h, m - z for z < m - h and
          (m + h - z)^2 / (4h) between
        - ``m3``: :math:`\sum_{k \ne y} (g_k + \sqrt{g_k^2 + \tau^2}) / 2`, g_k = m - s_y + s_k
        - ``huber_ww``: :math:`\sum_{k \ne y} H(s_y - s_k)` with the H of ``huber``
        - ``margin_distance``: d - h/2, and d^2 / (2h) for d < h, d the Euclidean distance of s to
          the scores with :math:`s_y \ge s_k + m` for all :math:`k \ne y`

        ``m3`` and ``huber_ww`` are smoothed hinges of Weston and Watkins.
    n_classes : int >= 2
    smoothing : float > 0
        tau; or h, the half width of ``huber`` and ``huber_ww`` and the h of ``margin_distance``.
        Not used by ``crammer_singer`` and ``logistic``.
    margin : float >= 0
        m. Not used by ``crammer_singer`` and ``logistic``.
    per_class : bool, default=False
        Whether two classes have two scores instead of one, as when weights are constrained class by
        class.
    averaged : bool, default=False
        Whether neighbouring data sets differ by a mean of several losses (the rows of a person)
        instead of a single loss.
    """

    name: str
    n_classes: int
    smoothing: float = 1.0
    margin: float = 1.0
    per_class: bool = False
    averaged: bool = False

    @property
    def n_scores(self) -> int:
        """Number of scores: the number of rows of W."""
        shared = self.n_classes == 2 and KINDS[self.name].one_score and not self.per_class
        return 1 if shared else self.n_classes

    @property
    def joint(self) -> bool:
        """Whether all scores enter one term, rather than a sum of one-score terms."""
        return self.n_scores > 1 and KINDS[self.name].terms != "each score"

    @property
    def is_likelihood(self) -> bool:
        """Whether the loss is a negative log-likelihood, up to the temperature."""
        free = self.name == "logistic" or self.margin == 0.0
        return KINDS[self.name].likelihood and free

    @property
    def temperature(self) -> float:
        """Temperature in the privacy laws of objective perturbation.

        The curvature is at most ``1 / (4 temperature)`` in one score, and at most
        ``1 / (2 temperature)`` in the difference of a pair of scores (``m3``, ``huber_ww``).
        """
        smoothing = 1.0 if self.name == "logistic" else self.smoothing
        return KINDS[self.name].temperature * smoothing

    @property
    def kernel(self) -> tuple[str, float, float]:
        """Name, smoothing and margin of this loss in the compiled solvers."""
        if self.name == "logistic":
            return ("softplus", 1.0, 0.0)
        if self.name == "softmax_margin" and self.n_scores == 1:
            # log(e^0 + e^{m - s}): the difference of the two scores is the one score.
            return ("softplus", self.smoothing, self.margin)
        return (self.name, self.smoothing, self.margin)

    @property
    def compiled(self) -> dict[str, Any]:
        """Arguments that pass this loss to the compiled solvers."""
        kernel, smoothing, margin = self.kernel
        return {"loss": kernel, "n_scores": self.n_scores, "smoothing": smoothing, "margin": margin}

    @property
    def law(self) -> str:
        """Name of this loss in the accounting of objective perturbation."""
        law = KINDS[self.name].law
        if law is None:
            raise InvalidParameterError.of(
                "loss", got=self.name, accepted="one of " + ", ".join(map(repr, SMOOTH_LOSSES))
            )
        # The softmax of two scores is the logistic function of their difference.
        return "logistic" if law == "softmax" and not self.joint else law

    @cached_property
    def lipschitz(self) -> float:
        """Largest norm L of the gradient in the scores, rounded up."""
        if KINDS[self.name].terms == "pairs":
            return sqrt_up(float(self.n_classes * (self.n_classes - 1)))
        if self.name == "margin_distance":
            return 1.0
        return sqrt_up(2.0 if self.joint else float(self.n_scores))

    @cached_property
    def curvature(self) -> float:
        """Largest eigenvalue beta of the Hessian in the scores, rounded up."""
        kind = KINDS[self.name]
        if not kind.smooth:
            return math.inf
        if kind.terms == "pairs":
            return div_up(0.5 * self.n_classes, self.smoothing)
        if self.name == "margin_distance":
            return div_up(1.0, self.smoothing)
        return div_up(0.5 if self.joint else 0.25, self.temperature)

    def curvature_ratio(self, row_norm: float, regularization: float) -> float:
        """Return kappa = row_norm^2 / (regularization * temperature), rounded up.

        Parameters
        ----------
        row_norm : float > 0
            Bound on the norm of a row with its constant feature.
        regularization : float > 0
            Regularisation lambda of the objective.

        Returns
        -------
        float
        """
        square = mul_up(row_norm, row_norm)
        return div_up(div_up(square, regularization), self.temperature)

    def jacobian(self, curvature_ratio: float) -> float:
        """Return c0, the largest log-determinant of ``1 + rho * Hessian``, rounded up.

        With ``averaged``, return the largest trace of ``rho * Hessian``, which is no smaller.

        Parameters
        ----------
        curvature_ratio : float >= 0
            Result of :meth:`curvature_ratio`.
        """
        K, kappa, kind = self.n_classes, curvature_ratio, KINDS[self.name]
        if kind.law is None:
            return math.inf
        if self.averaged:
            trace = 0.25 * self.n_scores
            if self.joint:
                trace = K - 1.0 if kind.terms == "pairs" else 1.0 - 1.0 / K
            bound = trace * kappa
        elif kind.terms == "pairs":
            bound = math.log1p(0.5 * K * kappa) + (K - 2) * math.log1p(0.5 * kappa)
        elif self.joint:
            bound = (K - 1) * math.log1p(kappa / K)
        else:
            bound = self.n_scores * math.log1p(0.25 * kappa)
        # Two functions, two products and a sum of positive terms, each exact to an ulp.
        return round_up(bound, 8)

    @property
    def at_zero(self) -> float:
        """Value of the loss at scores 0, the same for every label."""
        tau, m, K = self.smoothing, self.margin, self.n_classes
        match self.name:
            case "crammer_singer":
                return 1.0
            case "m3":
                return (K - 1) * 0.5 * (m + math.hypot(m, tau))
            case "huber" | "huber_ww":
                inside = max(m + tau, 0.0) ** 2 / (4.0 * tau)
                n_terms = self.n_scores if self.name == "huber" else K - 1
                return n_terms * (m if m > tau else inside)
            case "margin_distance":
                # At the nearest point the row's own score is the mean of 0 and K - 1 margins, and
                # every other is m below it.
                distance = m * math.sqrt((K - 1.0) / K)
                return distance - 0.5 * tau if distance > tau else 0.5 * distance**2 / tau
        if self.joint:
            return _softplus(m / tau + math.log(K - 1.0)) * tau
        _, tau, m = self.kernel
        return self.n_scores * _softplus(m / tau) * tau


def _softplus(z: float) -> float:
    """Return ``log(1 + exp(z))`` without overflow."""
    return max(z, 0.0) + math.log1p(math.exp(-abs(z)))
