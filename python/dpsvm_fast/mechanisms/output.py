r"""Output perturbation: release the minimiser of a strongly convex objective plus noise.

Proved in docs/proofs/output_perturbation.md: with rows of norm at most :math:`\kappa_t`, a loss
whose score gradients have norm at most L, and an objective
:math:`\tfrac12\|W\|_F^2 + C \sum_i \phi_{y_i}(W \tilde x_i)`, neighbouring data sets have
minimisers at distance at most :math:`\Delta = f L C \kappa_t` (f = 1 for ``add_remove``, 2 for
``replace_one``). A certified distance r to the minimiser increases it to :math:`\Delta + 2r`, and
rounding p weights to a grid g adds :math:`g\sqrt{p}`. Instead of an approximate minimiser the
iterate of projected SGD may be released, with the Delta of docs/proofs/projected_sgd.md and its
rounding errors as r.

Every number is rounded towards more noise. All numbers are public: the plans read no data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from dpsvm_fast import _core
from dpsvm_fast.accounting import gaussian_sigma
from dpsvm_fast.certificates.releases import Descent, Sensitivity
from dpsvm_fast.certificates.statement import PrivacyStatement
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.noise import (
    RELATION_FACTOR,
    WeightNoise,
    check_delta_of_gaussian,
    check_range,
    check_row_norm,
    check_solvable,
)
from dpsvm_fast.mechanisms.plan import LinearPlan, Rows, certified, filled
from dpsvm_fast.rounding import (
    add_up,
    div_up,
    fraction_up,
    hypot_up,
    mul_down,
    mul_up,
    round_up,
    sqrt_up,
)
from dpsvm_fast.validation import refuse

if TYPE_CHECKING:
    from dpsvm_fast._core import NoiseSource
    from dpsvm_fast.certificates import PrivacyEvent


# Public defaults of output perturbation: functions of settings, never of data.


# automatic_C: standard deviation of the noise in one class score of a row of the largest norm.
# Chosen on digits, USPS and ISOLET with rows of norm 1, delta 1e-6 and epsilon 0.5 to 8, where
# 0.1 to 0.2 is best or within about 0.02 of it in accuracy and 0.5 already loses up to 0.15.
SCORE_NOISE = 0.2
# For margin_distance, chosen on eight data sets of 4 to 26 classes at epsilon 1 to 8, together with
# the dependence on the number of classes: more of them compete by their noise.
DISTANCE_SCORE_NOISE = 0.12


def automatic_C(plan: WeightsPlan) -> float:
    r"""Return the public default of C.

    .. math:: C = v / (f L m \kappa_t^2)

    with v = 0.2, but :math:`\min(0.12, 1/K)` for ``margin_distance`` and K classes, and with m the
    root mean square of the noise in one weight at sensitivity 1: sigma of the Gaussian mechanism,
    or :math:`\sqrt{p + 1}/\epsilon` for Gamma noise on p weights. The noise in a score of a row of
    norm :math:`\kappa_t` then has standard deviation v, compared with a margin of 1.
    """
    if plan.noise == "gamma":
        multiplier = math.sqrt(plan.n_weights + 1.0) / plan.epsilon
    else:
        multiplier = gaussian_sigma(plan.epsilon, plan.delta)
    moved = RELATION_FACTOR[plan.adjacency] * plan.loss.lipschitz * multiplier
    wanted = SCORE_NOISE
    if plan.loss.name == "margin_distance":
        wanted = min(DISTANCE_SCORE_NOISE, 1.0 / plan.loss.n_classes)
    norm = math.hypot(plan.data_norm, plan.intercept_scaling)
    # Divided one by one: the square of an extreme norm would leave the floats.
    return wanted / moved / norm / norm


# Default of the constant feature, over the bound of the rows.
INTERCEPT = 0.2


# Sensitivity and rounding of projected SGD: proved in docs/proofs/projected_sgd.md.
#
# The mean-form objective has :math:`\Lambda = 1/(nC)`. With k passes of l updates on b of n rows
# the last iterates of neighbours differ by at most :math:`2 L \kappa_t / (b l \Lambda)`, and never
# by more than the diameter of the ball. n is public: the relation is replacement.


PROJECTIONS = ("joint", "per_class")

AVERAGES = ("last", "uniform", "weighted")

# Covers the rounding of a sum of harmonic numbers, each known to a few units in the last place.
HARMONIC_SLACK = 1e-11


@dataclass(frozen=True, kw_only=True)
class ProjectedSGD:
    """Plan of one run of projected SGD.

    Parameters
    ----------
    n_samples : int >= 1
        Number of rows, or of persons; public.
    n_epochs : int >= 1
        Number of passes over the rows.
    batch_size : int >= 1
        Batch size, at most ``n_samples`` in effect.
    radius : float > 0 or None
        Radius of the ball or balls; None for the rule of :meth:`ball_radius`.
    projection : {"joint", "per_class"}
        One ball for all weights, or one per score.
    average : {"last", "uniform", "weighted"}
        Last iterate, or mean of all with equal weights or weights proportional to the update
        number.
    most_rows : int >= 1, default=1
        Rows of one record; for persons a public limit beyond which rows are left out.
    """

    n_samples: int
    n_epochs: int
    batch_size: int
    radius: float | None
    projection: str
    average: str
    most_rows: int = 1

    @property
    def batch(self) -> int:
        """Batch size b, by which a batch's sum is divided."""
        return min(self.batch_size, self.n_samples)

    @property
    def updates_per_epoch(self) -> int:
        """Number l of batches per pass, the last possibly short."""
        return -(-self.n_samples // self.batch)

    def regularization(self, C: float) -> float:
        """Return lambda of the mean-form objective, rounded up."""
        return fraction_up(1 / (Fraction(self.n_samples) * Fraction(C)))

    def ball_radius(self, loss: Loss, C: float, row_norm: float) -> float:
        r"""Return R: the given radius, or one whose ball contains the minimiser for all data.

        .. math:: \min(L \kappa_t / \Lambda, \sqrt{2 \phi(0) / \Lambda})

        The gradient vanishes at the minimiser, and the objective is at most its value at 0.
        """
        if self.radius is not None:
            return self.radius
        regularization = self.regularization(C)
        by_gradient = div_up(mul_up(loss.lipschitz, row_norm), regularization)
        by_value = math.sqrt(2.0 * loss.at_zero / regularization)
        return min(by_gradient, round_up(by_value, 8))

    def sensitivity(self, loss: Loss, C: float, row_norm: float) -> float:
        """Return a bound on the distance between iterates of neighbours in real arithmetic."""
        by_noise_in = mul_up(2.0 * mul_up(mul_up(loss.lipschitz, C), row_norm), self.factor)
        n_balls = 1 if self.projection == "joint" else loss.n_scores
        diameter = mul_up(2.0 * self.ball_radius(loss, C, row_norm), sqrt_up(float(n_balls)))
        return min(by_noise_in, diameter)

    @property
    def factor(self) -> float:
        """Return the sensitivity relative to that of the exact minimiser, 2 C L kt; rounded up."""
        n, b, k, length = self.n_samples, self.batch, self.n_epochs, self.updates_per_epoch
        if self.average == "weighted":
            return fraction_up(Fraction(n * (k + 1), b * (k * length + 1)))
        last = fraction_up(Fraction(n, b * length))
        return last if self.average == "last" else mul_up(last, mean_visits(k, length))

    def compiled(self, loss: Loss, C: float, row_norm: float) -> dict[str, Any]:
        """Return the settings of a run for the compiled core."""
        return loss.compiled | {
            "n_epochs": self.n_epochs,
            "batch_size": self.batch,
            "regularization": self.regularization(C),
            "radius": self.ball_radius(loss, C, row_norm),
            "projection": self.projection,
            "average": self.average,
            "most_rows": self.most_rows,
        }

    def rounding(self, loss: Loss, C: float, row_norm: float, **sizes: Any) -> float:
        """Return a bound on the distance of the computed weights from those of real arithmetic.

        ``sizes`` are ``n_columns``, ``data_norm`` and ``intercept_scaling``.

        Raises
        ------
        InvalidParameterError
            Updates or rows are so large that no bound is of use.
        """
        try:
            bound: float = _core.projected_sgd_rounding(
                n_samples=self.n_samples, **self.compiled(loss, C, row_norm), **sizes
            )
        except ValueError as error:
            raise InvalidParameterError(str(error)) from None
        return bound


def projected_sgd(
    X: Any, codes: NDArray[np.int64], weights: Any, owners: Any, seed: int, **options: Any
) -> NDArray[np.float64]:
    """Run projected SGD and return the weights. Private.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_rows, n_features)
    codes : ndarray of shape (n_rows,)
    weights : ndarray of shape (n_rows,) or None
        Factors of the rows' losses.
    owners : Owners or None
    seed : int
        Public seed of the row orders.
    **options
        :meth:`ProjectedSGD.compiled` and the sizes of rows.
    """
    begins = None
    if owners is not None and owners.persons.size:
        rows, begins = _in_turn(owners.persons, owners.places, seed)
        X, codes, weights = X[rows], codes[rows], weights[rows]
    options["permutation_seed"] = seed
    return certified("projected_sgd", X, codes, weights, begins, **options)


def _in_turn(
    persons: NDArray[np.int64], places: NDArray[np.int64], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of all persons in first-pass order, and where each person's rows begin.

    Persons keep their order of appearance, regardless of their numbers of rows: in the order of
    ``persons``, replacing a person of one row by one of several would move all others.
    """
    turns = places[_core.projected_sgd_orders(places.size, 1, seed)]
    begins = np.append(np.arange(persons[0]), persons)
    sizes = np.diff(begins)[turns]
    ends = np.cumsum(sizes)
    rows = np.arange(ends[-1]) + np.repeat(begins[turns] - (ends - sizes), sizes)
    return rows, np.append(0, ends)


def mean_visits(n_epochs: int, updates_per_epoch: int) -> float:
    r"""Return a bound on :math:`\tfrac1k \sum_{m=1}^{kl} \lceil m/l \rceil / m`.

    The sum is :math:`k H_{kl} - \sum_{p<k} H_{pl}` with harmonic numbers H.
    """
    ends = updates_per_epoch * np.arange(1.0, n_epochs + 1.0)
    harmonic = digamma(ends + 1.0) + np.euler_gamma
    total = n_epochs * harmonic[-1] - float(np.sum(harmonic[:-1]))
    return float(total) / n_epochs * (1.0 + HARMONIC_SLACK)


@dataclass(frozen=True, kw_only=True)
class WeightsPlan(LinearPlan):
    """Plan that releases noisy weights for rows of bounded norm.

    Parameters
    ----------
    delta : float in [0, 1)
        Must be positive for Gaussian noise; ignored with Gamma noise, which is pure.
    noise : {"gaussian", "gamma"}
        Independent Gaussians, or a density proportional to ``exp(-beta ||b||)``.
    data_norm : float > 0
        Public bound on the L2 norm of rows.
    intercept_scaling : float >= 0
        Constant feature; 0 for none.
    C : float > 0 or None
        Factor of the sum of the losses; None for a public rule.
    tol : float in (0, 1]
        Tolerance of the solver.
    max_iter : int or None, default=None
        Largest number of passes or Newton steps; None runs until certified.
    """

    noise: str
    data_norm: float
    intercept_scaling: float
    C: float | None
    tol: float
    max_iter: int | None = None

    if TYPE_CHECKING:

        @property
        def output(self) -> WeightNoise:
            """Noise on the weights."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of scores, and number of features including the constant."""
        return (self.loss.n_scores, self.n_features + (self.intercept_scaling > 0.0))

    @property
    def n_weights(self) -> int:
        """Number of released weights, including intercepts."""
        return math.prod(self.shape)

    @cached_property
    def row_norm(self) -> float:
        """Bound on the norm of a clipped row with its constant feature."""
        return hypot_up(self.data_norm, self.intercept_scaling)

    def n_numbers(self, n_rows: int) -> int:
        """Return the room for copies of the weights, and for the score of each row and class."""
        return super().n_numbers(n_rows) + n_rows * self.loss.n_classes

    def release(
        self, weights: NDArray[np.float64], source: NoiseSource, *, n_threads: int
    ) -> NDArray[np.float64]:
        """Return a noisy copy of ``weights``: the only value of them that may be released.

        Parameters
        ----------
        weights : ndarray of shape (n_classes, n_features [+ 1])
            Weights within the planned distance of the minimiser, as certified by the solver.
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

    def check_noise(self) -> None:
        """Refuse noise that is not much larger than its grid."""
        if self.output.total > 1.01 * self.output.distance:
            raise InvalidParameterError(
                f"epsilon: got {self.epsilon!r} with delta {self.delta!r}, too small for the exact "
                "sampler; use larger values or noise_grid='float'"
            )

    def stated(
        self, C: float, exact: float, solver_radius: float, **fields: Any
    ) -> PrivacyStatement:
        """Return the statement of one release, with every number to recompute it.

        Parameters
        ----------
        C, exact, solver_radius : float
            Numbers from which the sensitivity follows.
        **fields
            Further fields of :class:`PrivacyStatement`, such as ``library_version``.
        """
        sensitivity = filled(
            Sensitivity,
            self,
            self.loss,
            C=C,
            relation_factor=RELATION_FACTOR[self.adjacency],
            exact=exact,
            solver_radius=solver_radius,
            rounding=self.output.rounding,
            total=self.output.total,
        )
        return PrivacyStatement(
            adjacency=self.adjacency,
            epsilon=self.epsilon,
            delta=self.delta if self.noise == "gaussian" else 0.0,
            loss=self.loss.name,
            sensitivity=sensitivity,
            noise=self.output.record,
            **fields,
        )


# The grid costs at most this share of the sensitivity, unless the noise would have too many steps.
GRID_SHARE = 1e-6


@dataclass(frozen=True, kw_only=True)
class OutputPerturbation(WeightsPlan):
    r"""Plan of one release of weights, complete before any data are read.

    Parameters
    ----------
    C : float > 0 or None
        None is replaced by :func:`automatic_C`.
    sgd : ProjectedSGD or None
        Run whose iterate is released instead of a minimiser; only with ``replace_one`` and a smooth
        loss. None: the solver certifies a distance of ``tol * Delta`` to the minimiser.

    Raises
    ------
    InvalidParameterError
        Settings for which no positive finite noise scale exists.

    Notes
    -----
    Guarantees: ``release`` is (epsilon, delta)-differentially private for weights that satisfy its
    precondition. With ``noise="gaussian", noise_grid="exact"`` this holds for the program in
    floating-point arithmetic, otherwise only in real arithmetic.

    References
    ----------
    Balle and Wang, ICML 2018, Theorem 8 (Gaussian noise); Chaudhuri, Monteleoni, Sarwate, JMLR 12
    (2011), Algorithm 1 (Gamma-radius noise); Karney, ACM TOMS 42 (2016) (exact sampling); Park,
    Choi, Lee, NeurIPS 2025, section 4 (weight perturbation of the Crammer-Singer SVM).
    """

    C: float
    sgd: ProjectedSGD | None = None

    def __post_init__(self) -> None:
        """Refuse settings whose noise scale would not be positive and finite."""
        if self.noise == "gaussian":
            check_delta_of_gaussian(self.delta)
        check_row_norm(self.data_norm, self.intercept_scaling, self.row_norm)
        if self.C is None:
            vars(self)["C"] = automatic_C(self)
        if self.sgd is not None:
            known = "'replace_one' with solver='psgd', which needs a public number of rows"
            refuse(self, ("adjacency", self.adjacency != "replace_one", known))
            if math.isinf(self.loss.curvature):
                accepted = "a smooth loss with solver='psgd'"
                raise InvalidParameterError.of("loss", got=self.loss.name, accepted=accepted)
        check_range("C", self.C, "C")
        curvature = self.C * self.row_norm * self.row_norm
        check_range("C", curvature, "C (data_norm^2 + intercept_scaling^2)")
        if self.sgd is None and self.loss.name != "crammer_singer":
            check_solvable(self.regularization, self.row_norm)
        check_range("C", self.exact_sensitivity, "the sensitivity")
        self.check_noise()

    @cached_property
    def exact_sensitivity(self) -> float:
        """Bound Delta on the distance between results of neighbours in real arithmetic."""
        if self.sgd is not None:
            return self.sgd.sensitivity(self.loss, self.C, self.row_norm)
        per_record = mul_up(mul_up(self.loss.lipschitz, self.C), self.row_norm)
        return RELATION_FACTOR[self.adjacency] * per_record

    @cached_property
    def radius(self) -> float:
        """Distance to the minimiser that the solver certifies, or rounding error of the run."""
        if self.sgd is None:
            return self.tol * self.exact_sensitivity
        own = ("data_norm", "intercept_scaling")
        sizes: dict[str, Any] = {name: getattr(self, name) for name in own}
        facts = (self.loss, self.C, self.row_norm)
        return self.sgd.rounding(*facts, n_columns=self.shape[1], **sizes)

    @property
    def regularization(self) -> float:
        """Regularisation lambda = 1/C of the sum-form objective, rounded up, the safe side."""
        return div_up(1.0, self.C)

    @property
    def gradient_tol(self) -> float:
        """Gradient norm of the sum-form objective that certifies ``radius``, rounded down."""
        return mul_down(self.radius, self.regularization)

    @cached_property
    def output(self) -> WeightNoise:
        """Noise on the weights, which covers the distance Delta + 2 r of inexact minimisers."""
        return filled(
            WeightNoise,
            self,
            distance=add_up(self.exact_sensitivity, 2.0 * self.radius),
            grid_share=GRID_SHARE if self.noise_grid == "exact" else None,
        )

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Event of this release."""
        return (self.output.event,)

    def run(self, rows: Rows, source: NoiseSource) -> NDArray[np.float64]:
        """Return noisy weights for rows with labels."""
        weights = self.solution(
            rows.X,
            rows.codes,
            source,
            rows.n_threads,
            weights=rows.loss_weights,
            owners=rows.owners,
            low_memory=rows.low_memory,
        )
        return self.release(weights, source, n_threads=rows.n_threads)

    def solution(
        self,
        X: Any,
        codes: NDArray[np.int64],
        source: NoiseSource,
        n_threads: int,
        *,
        weights: NDArray[np.float64] | None = None,
        owners: Any = None,
        near: NDArray[np.float64] | None = None,
        low_memory: bool = False,
    ) -> NDArray[np.float64]:
        """Return weights within ``radius`` of the exact result, without noise. Private.

        Losses are multiplied by ``weights``, which sum to at most 1 per person. Batches of
        projected SGD consist of the persons in ``owners``.

        With ``near``, the objective is regularised towards previously released weights: the
        penalty, lambda times half the squared distance to them, is the usual one plus a linear
        term.
        """
        options: dict[str, Any] = {
            "data_norm": self.data_norm,
            "intercept_scaling": self.intercept_scaling,
            "low_memory": low_memory,
        }
        if self.sgd is not None:
            options |= self.sgd.compiled(self.loss, self.C, self.row_norm)
            return projected_sgd(X, codes, weights, owners, source.public_seed(), **options)
        options["n_threads"], options["max_iter"] = n_threads, self.max_iter
        options["shuffle_seed"] = source.public_seed()
        if self.loss.name == "crammer_singer":
            solver, names = "solve_crammer_singer", ("C", "radius")
            options["n_classes"] = self.loss.n_classes
        else:
            solver, names = "solve_smooth", ("regularization", "gradient_tol")
            linear = None if near is None else -self.regularization * near
            options |= self.loss.compiled | {"linear": linear}
        options |= {name: getattr(self, name) for name in names}
        return certified(solver, X, codes, weights, **options)

    def summary(self) -> str:
        """Return a one-line summary of public facts."""
        kind = "sigma" if self.noise == "gaussian" else "beta"
        return (
            f"{self.n_weights} weights, C = {self.C:.4g}, sensitivity {self.output.total:.4g}, "
            f"{self.noise} noise with {kind} = {self.output.scale:.4g}"
        )

    def statement(self, released: Any = None, **occasion: Any) -> PrivacyStatement:
        """Return the statement of one release, with every number to recompute it.

        ``occasion`` holds the statement's fields about the fit, such as ``library_version``.
        """
        sgd = self.sgd
        radius = sgd and sgd.ball_radius(self.loss, self.C, self.row_norm)
        descent = sgd and filled(Descent, sgd, batch_size=sgd.batch, radius=radius)
        numbers = (self.C, self.exact_sensitivity, self.radius)
        return self.stated(*numbers, mechanism="output_perturbation", descent=descent, **occasion)
