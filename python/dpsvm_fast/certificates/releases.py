"""Releases of a statement: noise, sensitivity, descent, secure sums.

One noisy secure sum over parties: a record of numbers, each checked by itself.

How the numbers hang together is what ``verify`` checks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar

import numpy as np
from scipy.special import digamma

from dpsvm_fast.certificates import record as field
from dpsvm_fast.certificates.events import (
    MAX_SCORES,
    MAX_STEPS,
    OBJECTIVE_LAWS,
    DistanceEvent,
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PureEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from dpsvm_fast.certificates.record import Record
from dpsvm_fast.certificates.words import PARTS
from dpsvm_fast.rounding import add_up, div_down, fraction_up, mul_up, sqrt_up
from dpsvm_fast.validation import check_integer

Distribution = Annotated[str, field.Options("gaussian", "gamma")]
Sampler = Annotated[str, field.Options("exact_grid", "floating_point")]
# Most releases of weights by one fit.
WEIGHT_RELEASES = 8

FEATURE, WEIGHT, SCORE = field.Unit("feature"), field.Unit("weight"), field.Unit("score")
SUMMED, NUMBER = field.Unit("that of the sum"), field.Unit("number of the sum")
GRID_STEP = field.Unit("grid step")

# The parts of a statement: records of numbers, each checked by itself.
#
# ``verify`` checks their consistency.


@dataclass(frozen=True, kw_only=True)
class Sensitivity(Record):
    """Largest distance between noiseless weights of neighbours, and how it follows.

    Parameters
    ----------
    lipschitz : float > 0
        Largest norm of the loss's gradient in the scores.
    C : float > 0
        Factor of the sum of losses.
    data_norm : float > 0
        Public bound of the rows' L2 norm.
    intercept_scaling : float >= 0
        Constant feature; 0 for none.
    row_norm : float > 0
        Bound of a row with its constant feature.
    relation_factor : {1, 2}
        1 for add_remove, 2 for replace_one.
    exact : float >= 0
        Distance of exact minimisers, ``relation_factor * C * lipschitz * row_norm``; 0 where noise
        inside the objective makes the minimisers of neighbours coincide.
    solver_radius : float >= 0
        Certified distance of the solver's weights to the minimiser.
    rounding : float >= 0
        Cost of rounding the weights to the noise's grid.
    total : float > 0
        ``exact + 2 * solver_radius + rounding``.
    """

    lipschitz: Annotated[field.Positive, field.Unit("gradient norm over score")]
    C: field.Positive
    data_norm: Annotated[field.Positive, FEATURE]
    intercept_scaling: Annotated[field.NonNegative, FEATURE]
    row_norm: Annotated[field.Positive, FEATURE]
    relation_factor: Annotated[int, field.Range(1, 2)]
    exact: Annotated[field.NonNegative, WEIGHT]
    solver_radius: Annotated[field.NonNegative, WEIGHT]
    rounding: Annotated[field.NonNegative, WEIGHT]
    total: Annotated[field.Positive, WEIGHT]


@dataclass(frozen=True, kw_only=True)
class Noise(Record):
    """Distribution, scale and sampler of the noise on the weights.

    Parameters
    ----------
    distribution : {"gaussian", "gamma"}
        Independent Gaussians of standard deviation sigma, or density ~ exp(-beta ||b||).
    sampler : {"exact_grid", "floating_point"}
    sigma, beta : float > 0 or None
        Exactly the one that belongs to the distribution.
    grid : float > 0 or None
        Spacing of the released numbers; None where they are not rounded to a grid.
    shape : tuple of int
        (number of scores, n_features, plus 1 with an intercept).
    epsilon : float or None
        What noise with a beta costs: at least beta times the distance that it hides.
    n_releases : int in 1..8, default=1
        How often weights were released, each time with such noise.
    """

    distribution: Distribution
    sampler: Sampler
    sigma: Annotated[field.Positive, WEIGHT] | None
    beta: Annotated[field.Positive, field.Unit("1 / (weight)")] | None
    grid: Annotated[field.Positive, WEIGHT] | None
    shape: tuple[field.Count, field.Count]
    epsilon: field.Epsilon | None = None
    n_releases: Annotated[int, field.Range(1, WEIGHT_RELEASES), field.COUNT] = 1

    DERIVED: ClassVar[tuple[str, ...]] = ("n_weights",)

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check that scale and sampler are those of the distribution."""
        return _rules_of_law("noise", self)

    @property
    def n_weights(self) -> field.Count:
        """Number of released weights, the product of the shape."""
        return math.prod(self.shape)

    def events(self, distance: float, adjacency: str) -> tuple[PrivacyEvent, ...]:
        """Return what all releases of weights cost.

        Parameters
        ----------
        distance : float > 0
            Largest distance between the noiseless weights of neighbours.
        adjacency : {"add_remove", "replace_one"}

        Returns
        -------
        tuple of PrivacyEvent
        """
        if self.sigma is not None:
            return self.n_releases * (GaussianEvent(self.sigma, distance, adjacency),)
        assert self.epsilon is not None
        return self.n_releases * (PureEvent(self.epsilon, adjacency),)


@dataclass(frozen=True, kw_only=True)
class ObjectiveNoise(Record):
    r"""Random linear term of an objective, and the numbers that its privacy needs.

    The objective is :math:`\sum_i \phi_{y_i}(W \tilde x_i) + \tfrac{\lambda}{2} \|W\|_F^2 +
    \langle B, W \rangle`.

    Parameters
    ----------
    n_classes : int >= 2
        Number of classes.
    law : {"softmax", "logistic", "huber", "weston_watkins"}
        What the loss is to the privacy of Gaussian noise; as in ``ObjectiveEvent``.
    n_scores : int from 1 to 100,000
        Number of scores in the loss of one record.
    smoothing : float > 0
        Smoothing of the loss: a temperature, or the half width of ``huber``.
    margin : float >= 0
        Margin of the loss.
    lipschitz : float > 0
        L: largest norm of the loss's gradient in the scores.
    curvature : float > 0
        Largest eigenvalue of the loss's Hessian in the scores.
    row_norm : float > 0
        Bound of a row with its constant feature.
    regularization : float > 0
        lambda, with ``extra_regularization`` contained in it.
    extra_regularization : float >= 0
        The part of lambda that was added for the sake of privacy.
    curvature_ratio : float > 0
        kappa = row_norm^2 / (lambda * temperature of the loss).
    jacobian : float >= 0 or None
        With Gamma noise: cost of the change of variables in addition to the noise: ``epsilon`` is
        relation factor * beta * L * row_norm + jacobian; 0 where it is free. With Gaussian noise:
        constant in the law of a person; None for rows, whose law contains it.
    distribution : {"gaussian", "gamma"}
        Law of B: independent Gaussians of standard deviation sigma, or density ~ exp(-beta ||B||).
    sampler : {"exact_grid", "floating_point"}
    sigma, beta : float > 0 or None
        Exactly the one that belongs to the distribution.
    grid : float > 0 or None
        Spacing of the numbers in B; None where they are not rounded to a grid.
    shape : tuple of int
        (number of scores, n_features, plus 1 with an intercept).
    gradient_tol : float > 0
        Certified bound of the norm of the objective's gradient at the weights.
    epsilon : float in (0, 1e4]
    delta : float in [0, 1)
        The share of the budget that this noise spends.
    """

    n_classes: Annotated[int, field.Range(2), field.COUNT]
    law: Annotated[str, field.Options(*OBJECTIVE_LAWS)]
    n_scores: Annotated[int, field.Range(1, MAX_SCORES), field.COUNT]
    smoothing: Annotated[field.Positive, SCORE]
    margin: Annotated[field.NonNegative, SCORE]
    lipschitz: Annotated[field.Positive, field.Unit("gradient norm over score")]
    curvature: Annotated[field.Positive, field.Unit("1 / score^2")]
    row_norm: Annotated[field.Positive, FEATURE]
    regularization: Annotated[field.Positive, field.Unit("1 / weight^2")]
    extra_regularization: Annotated[field.NonNegative, field.Unit("1 / weight^2")]
    curvature_ratio: field.Positive
    jacobian: Annotated[field.NonNegative, field.PRIVACY_LOSS] | None
    distribution: Distribution
    sampler: Sampler
    sigma: Annotated[field.Positive, field.Unit("1 / weight")] | None
    beta: Annotated[field.Positive, field.Unit("1 / (1 / weight)")] | None
    grid: Annotated[field.Positive, field.Unit("1 / weight")] | None
    shape: tuple[field.Count, field.Count]
    gradient_tol: Annotated[field.Positive, field.Unit("1 / weight")]
    epsilon: field.Epsilon
    delta: field.Delta

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check that scale, sampler and price are those of the distribution."""
        yield from _rules_of_law("objective", self)
        gaussian = self.distribution == "gaussian"
        unpriced = self.jacobian is None and not gaussian
        yield unpriced, "jacobian: expected a number with 'gamma'"
        mixed = (self.delta > 0.0) != gaussian
        yield mixed, "delta: expected 0 with 'gamma', above 0 with 'gaussian'"
        more = self.extra_regularization > self.regularization
        yield more, "extra_regularization: expected at most the whole regularization"
        check_integer("n_scores", self.n_scores, OBJECTIVE_LAWS[self.law], MAX_SCORES)

    def event(self, adjacency: str) -> PrivacyEvent:
        """Return the event of the exact minimiser."""
        if self.sigma is None:
            return PureEvent(self.epsilon, adjacency)
        scale = div_down(self.sigma, self.row_norm)
        kappa = None if self.jacobian is not None else self.curvature_ratio
        return ObjectiveEvent(self.law, self.n_scores, scale, kappa, self.jacobian, adjacency)


@dataclass(frozen=True, kw_only=True)
class LastIterate(Record):
    r"""Privacy of the last iterate of noisy gradient descent.

    Step t sets :math:`W \leftarrow W - \eta [(S_t + b_t) / v + m W]` with :math:`S_t` the sum of
    all records' gradients. For :math:`\eta \le 2/(m + M)` such a step, without its noise, brings
    any two points closer by the factor c, so the noise of later steps hides what earlier ones did,
    and T steps count as :math:`\frac{1 - c^T}{1 + c^T} \cdot \frac{1 + c}{1 - c} \le T` steps.

    Parameters
    ----------
    learning_rate : float > 0
        eta, the same in every step; no momentum.
    divisor : float > 0
        v, by which the noisy sum is divided.
    regularization : float > 0
        m, the coefficient of W in a step.
    smoothing : float > 0
        Smoothing of the loss; 1 for ``logistic``.
    lipschitz : float > 0
        Largest norm of the loss's gradient in the scores; at most the part's ``clip_norm`` over
        ``row_norm``, so that clipping never acts.
    curvature : float > 0
        Largest eigenvalue of the loss's Hessian in the scores.
    row_norm : float > 0
        Bound of a row with its constant feature.
    max_records : int >= 1
        Public bound of the number of records.
    smoothness : float > 0
        M = m + curvature * row_norm^2 * max_records / v, rounded up.
    contraction : float in [0, 1)
        ``c = max(|1 - eta m|, |1 - eta M|)``, rounded up.
    effective_steps : float > 0
        As how many steps the run counts, rounded up.

    References
    ----------
    Bok, Su and Altschuler, ICML 2024; docs/proofs/gradient_perturbation.md, "Last iterate".
    """

    learning_rate: Annotated[field.Positive, field.Unit("weight / gradient")]
    divisor: Annotated[field.Positive, field.COUNT]
    regularization: Annotated[field.Positive, field.Unit("1 / weight^2 over divisor")]
    smoothing: Annotated[field.Positive, SCORE]
    lipschitz: Annotated[field.Positive, field.Unit("gradient norm over score")]
    curvature: Annotated[field.Positive, field.Unit("1 / score^2")]
    row_norm: Annotated[field.Positive, FEATURE]
    max_records: field.Count
    smoothness: Annotated[field.Positive, field.Unit("1 / weight^2 over divisor")]
    contraction: Annotated[float, field.Range(0.0, 1.0, open_high=True)]
    effective_steps: Annotated[field.Positive, field.COUNT]


@dataclass(frozen=True, kw_only=True)
class ReleasePart(Record):
    """One noisy sum, or a run of them.

    Parameters
    ----------
    name : str
        Name of the part, such as "centre", "whitening" or "training".
    what : str
        What was summed over the records, in words.
    distribution : {"gaussian", "gamma"}
        Independent Gaussians of standard deviation sigma, or density ~ exp(-beta ||b||).
    sampler : {"exact_grid", "floating_point"}
    clip_norm : float > 0
        Bound of the contribution of one record to a sum.
    rounding : float >= 0
        What rounding adds to it.
    contribution : float > 0
        ``clip_norm + rounding``, rounded up.
    relation_factor : float in [1, 2]
        By how many contributions a sum of neighbours can differ: 1 for add_remove; for replace_one
        2, or sqrt(2) where a contribution is the outer product of a row with itself.
    sigma, beta : float > 0 or None
        Exactly the one that belongs to the distribution.
    grid : float > 0 or None
        Spacing of the noisy sums; None where they are not rounded to a grid.
    shape : tuple of int
        Shape of the sum.
    epsilon : float or None
        What noise with a beta costs: at least beta times the distance that it hides.
    n_steps : int in 1..10**9, default=1
        How many such sums.
    sampling_rate : float in (0, 1], default=1.0
        Probability with which a record is in a sum, drawn independently for each record and sum.
    last_iterate : LastIterate or None
        Where only the last of many iterates was released, and the promise is about it alone.
    factor : tuple of float in [0, 1]
        If each sum is one period's: weights of a record in the sum of its period, in the next
        one, and so on. Empty if a record has the same weight in all sums.
    """

    name: Annotated[str, field.Options(*PARTS)]
    what: field.Text
    distribution: Distribution
    sampler: Sampler
    clip_norm: Annotated[field.Positive, SUMMED]
    rounding: Annotated[field.NonNegative, SUMMED]
    contribution: Annotated[field.Positive, SUMMED]
    relation_factor: Annotated[float, field.Range(1.0, 2.0)]
    sigma: Annotated[field.Positive, SUMMED] | None
    beta: Annotated[field.Positive, field.Unit("1 / (that of the sum)")] | None
    grid: Annotated[field.Positive, SUMMED] | None
    shape: Annotated[tuple[field.Count, ...], field.Range(1, 2)]
    epsilon: field.Epsilon | None = None
    n_steps: Annotated[int, field.Range(1, MAX_STEPS), field.COUNT] = 1
    sampling_rate: Annotated[field.Share, field.PROBABILITY] = 1.0
    last_iterate: LastIterate | None = None
    factor: field.Several[Annotated[float, field.Range(0.0, 1.0)]] = ()

    DERIVED: ClassVar[tuple[str, ...]] = ("n_numbers",)

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check that scale, sampler and steps are those of the distribution."""
        yield from _rules_of_law(f"part {self.name!r}", self)
        full, gaussian = self.sampling_rate == 1.0, self.distribution == "gaussian"
        several = not gaussian and not (full and self.n_steps == 1)
        yield several, "n_steps: expected one full sum with 'gamma'"
        last = self.last_iterate is not None
        sampled = last and not (gaussian and full)
        yield sampled, "last_iterate: expected None without full Gaussian sums"
        whole = gaussian and full and not last and len(self.factor) == self.n_steps
        yield self.factor and not whole, "factor: expected a weight for each full Gaussian sum"

    @property
    def n_numbers(self) -> field.Count:
        """Numbers in each sum: the product of the shape."""
        return math.prod(self.shape)

    def event(self, adjacency: str) -> PrivacyEvent:
        """Return the event of all these sums."""
        if self.sampling_rate < 1.0:
            assert self.sigma is not None
            multiplier = div_down(self.sigma, self.contribution)
            return SubsampledGaussianEvent(multiplier, self.sampling_rate, self.n_steps, adjacency)
        if self.sigma is None:
            assert self.epsilon is not None
            return PureEvent(self.epsilon, adjacency)
        last = self.last_iterate
        steps = effective_sums(self.n_steps, self.factor) if last is None else last.effective_steps
        moved = mul_up(self.relation_factor, self.contribution)
        return GaussianEvent(self.sigma, mul_up(sqrt_up(steps), moved), adjacency)


def effective_sums(n_steps: int, factor: tuple[float, ...]) -> float:
    """Return the number of full sums that leak as much: the sum of squared weights."""
    if not factor:
        return float(n_steps)
    return fraction_up(sum((Fraction(weight) ** 2 for weight in factor), Fraction(0)))


def _rules_of_law(
    what: str, noise: Noise | ObjectiveNoise | ReleasePart
) -> Iterator[tuple[object, str]]:
    """Check that scale and sampler belong to the law."""
    gaussian = noise.distribution == "gaussian"
    other = (noise.sigma is not None, noise.beta is not None) != (gaussian, not gaussian)
    yield other, f"{what}: expected sigma alone with 'gaussian' and beta alone with 'gamma'"
    inside = isinstance(noise, ObjectiveNoise)
    unpriced = (noise.epsilon is None) != (noise.beta is None) and not inside
    yield unpriced, f"{what}: expected epsilon only with beta"
    gridless = noise.sampler == "exact_grid" and not (gaussian and noise.grid is not None)
    yield gridless, f"{what}: 'exact_grid' needs 'gaussian' and a grid"


# The part of a statement about projected SGD, and what its sensitivity must be.
#
# With b rows in a batch, l updates a pass, k passes and :math:`\Lambda = 1/(nC)`, iterate m of two
# neighbours differs by at most :math:`(2 L \kappa_t / (b \Lambda)) \lceil m/l \rceil / m`, and any
# two points of the ball by its diameter (docs/proofs/projected_sgd.md).


@dataclass(frozen=True, kw_only=True)
class Descent(Record):
    """A run of projected SGD.

    Parameters
    ----------
    n_samples : int >= 1
        Number of rows, or of persons; public.
    n_epochs : int >= 1
        Passes over them, each in an order that does not depend on them.
    batch_size : int >= 1
        Size of a batch, at most ``n_samples``. A short batch is divided by this number too.
    radius : float > 0
        Radius of the ball or balls onto which every iterate is projected.
    projection : {"joint", "per_class"}
        One ball for all weights, or one for each score.
    average : {"last", "uniform", "weighted"}
        The last iterate, or the mean of all with equal weights or weights proportional to their
        number.
    """

    n_samples: field.Count
    n_epochs: field.Count
    batch_size: field.Count
    radius: Annotated[field.Positive, WEIGHT]
    projection: Annotated[str, field.Options("joint", "per_class")]
    average: Annotated[str, field.Options("last", "uniform", "weighted")]

    def __post_init__(self) -> None:
        """Refuse batches of more rows than there are."""
        super().__post_init__()
        check_integer("batch_size", self.batch_size, 1, self.n_samples)


def descent_sensitivity(s: Sensitivity, descent: Descent, n_scores: int) -> float:
    """Return the distance between iterates of neighbours that the numbers imply."""
    n, b, k = descent.n_samples, descent.batch_size, descent.n_epochs
    length = math.ceil(n / b)
    visit = 2.0 * s.C * s.lipschitz * s.row_norm * n / b
    if descent.average == "weighted":
        moved = visit * (k + 1) / (k * length + 1)
    elif descent.average == "uniform":
        # In pass p the record was visited at most p times.
        p = np.arange(1.0, k + 1.0)
        share = digamma(p * length + 1.0) - digamma((p - 1.0) * length + 1.0)
        moved = visit / length * float(p @ share) / k
    else:
        moved = visit / length
    n_balls = 1 if descent.projection == "joint" else n_scores
    return min(moved, 2.0 * descent.radius * math.sqrt(n_balls))


# Noisy sums over parties.
ROUNDS = ("model", "gram")
# Every sum is for data sets in which one unit is replaced: the sizes of parties do not change.
ADJACENCY = "replace_one"
# Numbers of one party, on the grid, lie below this.
ENCODABLE = 2**29
# More parties than a sum modulo 2**48 has room for; more rows or numbers than anyone has.
MAX_PARTIES, MAX_NUMBERS = 2**18, 2**40


@dataclass(frozen=True, kw_only=True)
class SecureRound(Record):
    r"""Sum over parties of integer vectors, each with discrete Gaussian noise.

    Parameters
    ----------
    name : {"model", "gram"}
        Weights of the parties' models; or matrices of products of features.
    what : str
        What was summed, in words.
    size : int in 1..2**40
        p: how many noisy numbers one vector has.
    clip_norm : float > 0 or None
        For ``"gram"``: bound of the Frobenius norm of the outer product of a row with itself, or of
        the sum of those products of one person.
    exact : float > 0
        How far the exact sums of neighbours can be apart, with the errors of the solvers and the
        weights of the parties.
    grid : float > 0
        g: step of the grid.
    rounding : float > 0
        :math:`g \sqrt{p} (1 + 2^{-20})`: what rounding to the grid adds.
    total : float > 0
        ``exact + rounding``, rounded up.
    sigma_steps : int
        Parameter of every party's discrete Gaussian noise, in steps: a power of two from 2**4 to
        2**24.
    honest_survivors : int in 1..2**18
        h: number of noises in an opened sum that nobody can subtract.
    smoothing : float >= 1
        r, in steps: the part of the noise with which the sum is like one of real numbers.
    sigma : float > 0
        :math:`g \sqrt{h \sigma_{steps}^2 - r^2}`, rounded down: standard deviation of the Gaussian
        noise that the sum's privacy is that of.
    discreteness : float in [0, 1)
        Distance between the sum and a post-processing of such Gaussian noise on real numbers.
    overflow : float in [0, 1)
        Probability that some party's numbers leave what can be encoded.
    computational : float in [0, 1)
        Assumed advantage of any feasible observer over one who sees the sum alone; 0 where the
        parties trust who adds up.
    range_steps : int in 1..2**29
        Bound, in steps, of the norm of one party's vector before its noise.

    Notes
    -----
    Guarantees: those of docs/proofs/federated.md, provided parties draw as stated and at least
    ``honest_survivors`` of those in the sum neither reveal nor use their noise.
    """

    name: Annotated[str, field.Options(*ROUNDS)]
    what: field.Text
    size: Annotated[int, field.Range(1, MAX_NUMBERS), field.COUNT]
    clip_norm: Annotated[field.Positive, field.Unit("feature squared")] | None = None
    exact: Annotated[field.Positive, NUMBER]
    grid: Annotated[field.Positive, NUMBER]
    rounding: Annotated[field.Positive, NUMBER]
    total: Annotated[field.Positive, NUMBER]
    sigma_steps: Annotated[int, field.Range(2**4, 2**24), GRID_STEP]
    honest_survivors: Annotated[int, field.Range(1, MAX_PARTIES), field.COUNT]
    smoothing: Annotated[float, field.Range(1.0), GRID_STEP]
    sigma: Annotated[field.Positive, NUMBER]
    discreteness: field.Probability
    overflow: field.Probability
    computational: field.Probability
    range_steps: Annotated[int, field.Range(1, ENCODABLE), GRID_STEP]

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check that numbers are consistent; ``verify`` recomputes the derived ones."""
        large = self.smoothing >= self.sigma_steps
        yield large, f"smoothing: got {self.smoothing!r}, expected less than sigma_steps"
        got = f"discreteness: got {self.discreteness!r}"
        yield not 0.0 < self.distance < 1.0, f"{got}, expected a sum of distances in (0, 1)"
        clipped = (self.name == "gram") != (self.clip_norm is not None)
        yield clipped, "clip_norm: expected a number only for 'gram'"

    @property
    def distance(self) -> float:
        """Total distance of the sum from the Gaussian mechanism, rounded up."""
        return add_up(self.discreteness, self.overflow, self.computational)

    @property
    def events(self) -> tuple[GaussianEvent, DistanceEvent]:
        """Events that the sum charges to a ledger."""
        return (
            GaussianEvent(self.sigma, self.total, ADJACENCY),
            DistanceEvent(self.distance, ADJACENCY),
        )

    @property
    def local_event(self) -> ZCDPEvent:
        r"""Event of the noisy vector of one party alone.

        Its zCDP parameter is :math:`total^2 / (2 g^2 \sigma_{steps}^2)`, exactly as for real
        numbers (Canonne, Kamath and Steinke, NeurIPS 2020, Theorem 4); nothing is approximate, so
        no distance grows with a large epsilon.
        """
        ratio = Fraction(self.total) / (Fraction(self.grid) * self.sigma_steps)
        return ZCDPEvent(fraction_up(ratio * ratio / 2), ADJACENCY)
