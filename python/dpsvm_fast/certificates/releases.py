"""What a statement says of each release: noise, sensitivity, descent, secure sums.

One noisy secure sum over parties: a record of numbers, each checked by itself.

How the numbers hang together is what ``verify`` checks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import digamma

from dpsvm_fast.certificates.events import DistanceEvent, GaussianEvent, ZCDPEvent
from dpsvm_fast.certificates.record import check_text, store
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.rounding import fraction_up
from dpsvm_fast.validation import (
    check_delta,
    check_epsilon,
    check_fraction,
    check_integer,
    check_non_negative,
    check_option,
    check_positive,
    check_real,
)

# The parts of a statement: records of numbers, each checked by itself.
#
# How the numbers hang together is what ``verify`` checks.


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """How far apart neighbouring data sets can hand their weights to the noise, and why.

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
        Price of rounding the weights to the noise's grid.
    total : float > 0
        ``exact + 2 * solver_radius + rounding``.
    """

    lipschitz: float
    C: float
    data_norm: float
    intercept_scaling: float
    row_norm: float
    relation_factor: int
    exact: float
    solver_radius: float
    rounding: float
    total: float

    def __post_init__(self) -> None:
        """Check every field by itself; how they hang together is what ``verify`` checks."""
        for name in ("lipschitz", "C", "data_norm", "row_norm", "total"):
            store(self, name, check_positive(name, getattr(self, name)))
        for name in ("intercept_scaling", "exact", "solver_radius", "rounding"):
            store(self, name, check_non_negative(name, getattr(self, name)))
        store(self, "relation_factor", check_integer("relation_factor", self.relation_factor, 1, 2))


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The law of the noise and how it was drawn.

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
    """

    distribution: str
    sampler: str
    sigma: float | None
    beta: float | None
    grid: float | None
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        """Check every field, and that scale and sampler belong to the distribution."""
        _check_law("noise", self)

    @property
    def n_weights(self) -> int:
        """Number of released weights."""
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class ObjectiveNoise:
    r"""The random linear term of an objective, and the numbers its privacy rests on.

    The objective is :math:`\sum_i \phi_{y_i}(W \tilde x_i) + \tfrac{\lambda}{2} \|W\|_F^2 +
    \langle B, W \rangle`.

    Parameters
    ----------
    n_classes : int >= 2
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
        With Gamma noise: what the change of variables costs beside the noise, so that ``epsilon``
        is relation factor * beta * L * row_norm + jacobian; 0 where it is free. None with Gaussian
        noise, whose law contains it.
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

    n_classes: int
    smoothing: float
    margin: float
    lipschitz: float
    curvature: float
    row_norm: float
    regularization: float
    extra_regularization: float
    curvature_ratio: float
    jacobian: float | None
    distribution: str
    sampler: str
    sigma: float | None
    beta: float | None
    grid: float | None
    shape: tuple[int, int]
    gradient_tol: float
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Check every field, and that scale, sampler and price belong to the distribution."""
        store(self, "n_classes", check_integer("n_classes", self.n_classes, 2))
        for name in ("margin", "extra_regularization"):
            store(self, name, check_non_negative(name, getattr(self, name)))
        for name in (
            "smoothing",
            "lipschitz",
            "curvature",
            "row_norm",
            "regularization",
            "curvature_ratio",
            "gradient_tol",
        ):
            store(self, name, check_positive(name, getattr(self, name)))
        store(self, "epsilon", check_epsilon(self.epsilon))
        store(self, "delta", check_delta(self.delta))
        _check_law("objective", self)
        if (self.jacobian is not None) != (self.distribution == "gamma"):
            raise InvalidParameterError(
                "jacobian: expected a number with 'gamma' and None with 'gaussian'"
            )
        if self.jacobian is not None:
            store(self, "jacobian", check_non_negative("jacobian", self.jacobian))
        if (self.delta > 0.0) != (self.distribution == "gaussian"):
            raise InvalidParameterError("delta: expected 0 with 'gamma', above 0 with 'gaussian'")
        if self.extra_regularization > self.regularization:
            raise InvalidParameterError(
                "extra_regularization: expected at most the whole regularization"
            )


@dataclass(frozen=True, kw_only=True)
class LastIterate:
    r"""Why the last iterate of noisy gradient descent tells less than all of them.

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

    learning_rate: float
    divisor: float
    regularization: float
    smoothing: float
    lipschitz: float
    curvature: float
    row_norm: float
    max_records: int
    smoothness: float
    contraction: float
    effective_steps: float

    def __post_init__(self) -> None:
        """Check every field by itself; how they hang together is what ``verify`` checks."""
        for name in (
            "learning_rate",
            "divisor",
            "regularization",
            "smoothing",
            "lipschitz",
            "curvature",
            "row_norm",
            "smoothness",
            "effective_steps",
        ):
            store(self, name, check_positive(name, getattr(self, name)))
        store(self, "max_records", check_integer("max_records", self.max_records, 1))
        contraction = check_real("contraction", self.contraction, low=0.0, high=1.0, open_high=True)
        store(self, "contraction", contraction)


@dataclass(frozen=True, kw_only=True)
class ReleasePart:
    """One of the noisy sums that a release is made of.

    Parameters
    ----------
    name : str
        Of what, as in "centre", "whitening" or "training".
    what : str
        What was summed over the records, for people.
    distribution : {"gaussian", "gamma"}
        Independent Gaussians of standard deviation sigma, or density ~ exp(-beta ||b||).
    sampler : {"exact_grid", "floating_point"}
    clip_norm : float > 0
        Bound of what one record contributes to a sum.
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
        Of the sum.
    n_steps : int in 1..10**9, default=1
        How many such sums.
    sampling_rate : float in (0, 1], default=1.0
        Probability with which a record is in a sum, drawn independently for each record and sum.
    last_iterate : LastIterate or None
        Where only the last of many iterates was released, and the promise is about it alone.
    """

    name: str
    what: str
    distribution: str
    sampler: str
    clip_norm: float
    rounding: float
    contribution: float
    relation_factor: float
    sigma: float | None
    beta: float | None
    grid: float | None
    shape: tuple[int, ...]
    n_steps: int = 1
    sampling_rate: float = 1.0
    last_iterate: LastIterate | None = None

    def __post_init__(self) -> None:
        """Check every field, and that scale, sampler and steps belong to the distribution."""
        for name in ("name", "what"):
            check_text(name, getattr(self, name))
        for name in ("clip_norm", "contribution"):
            store(self, name, check_positive(name, getattr(self, name)))
        store(self, "rounding", check_non_negative("rounding", self.rounding))
        factor = check_real("relation_factor", self.relation_factor, low=1.0, high=2.0)
        store(self, "relation_factor", factor)
        _check_law(f"part {self.name!r}", self, dimensions=None)
        store(self, "n_steps", check_integer("n_steps", self.n_steps, 1, 10**9))
        store(self, "sampling_rate", check_fraction("sampling_rate", self.sampling_rate))
        full_batches = self.sampling_rate == 1.0
        if self.distribution == "gamma" and not (full_batches and self.n_steps == 1):
            raise InvalidParameterError("n_steps: expected one full sum with 'gamma'")
        if self.last_iterate is None:
            return
        if not isinstance(self.last_iterate, LastIterate):
            kind = type(self.last_iterate).__name__
            raise TypeError(f"last_iterate: got {kind}, expected LastIterate or None")
        if self.distribution != "gaussian" or not full_batches:
            raise InvalidParameterError("last_iterate: expected None without full Gaussian sums")

    @property
    def n_numbers(self) -> int:
        """How many numbers each sum has."""
        return math.prod(self.shape)


def _check_law(what: str, noise: Any, dimensions: int | None = 2) -> None:
    """Check what every noise has: its law, its scale, its sampler, its grid and its shape."""
    check_option("distribution", noise.distribution, ("gaussian", "gamma"))
    check_option("sampler", noise.sampler, ("exact_grid", "floating_point"))
    for name in ("sigma", "beta", "grid"):
        if getattr(noise, name) is not None:
            store(noise, name, check_positive(name, getattr(noise, name)))
    scales = (noise.sigma is not None, noise.beta is not None)
    if scales != (noise.distribution == "gaussian", noise.distribution == "gamma"):
        raise InvalidParameterError(
            f"{what}: expected sigma alone with 'gaussian' and beta alone with 'gamma'"
        )
    if noise.sampler == "exact_grid" and (noise.distribution != "gaussian" or noise.grid is None):
        raise InvalidParameterError(f"{what}: 'exact_grid' needs 'gaussian' and a grid")
    if not isinstance(noise.shape, (tuple, list)) or len(noise.shape) not in (
        (1, 2) if dimensions is None else (dimensions,)
    ):
        raise TypeError(f"shape: expected {'one or two' if dimensions is None else 'two'} integers")
    store(noise, "shape", tuple(check_integer("shape", size, 1) for size in noise.shape))


# The part of a statement about projected SGD, and what its sensitivity must be.
#
# With b rows in a batch, l updates a pass, k passes and :math:`\Lambda = 1/(nC)`, iterate m of two
# neighbours differs by at most :math:`(2 L \kappa_t / (b \Lambda)) \lceil m/l \rceil / m`, and any
# two points of the ball by its diameter (docs/proofs/projected_sgd.md).


@dataclass(frozen=True, kw_only=True)
class Descent:
    """A run of projected SGD.

    Parameters
    ----------
    n_samples : int >= 1
        Number of rows, public.
    n_epochs : int >= 1
        Passes over the rows, each in an order that does not depend on them.
    batch_size : int >= 1
        Rows in a batch, at most ``n_samples``. A short batch is divided by this number too.
    radius : float > 0
        Of the ball or balls onto which every iterate is projected.
    projection : {"joint", "per_class"}
        One ball for all weights, or one for each score.
    average : {"last", "uniform", "weighted"}
        The last iterate, or the mean of all, with equal weights or proportional to their number.
    """

    n_samples: int
    n_epochs: int
    batch_size: int
    radius: float
    projection: str
    average: str

    def __post_init__(self) -> None:
        """Check every field by itself."""
        for name in ("n_samples", "n_epochs"):
            store(self, name, check_integer(name, getattr(self, name), 1))
        store(self, "batch_size", check_integer("batch_size", self.batch_size, 1, self.n_samples))
        store(self, "radius", check_positive("radius", self.radius))
        check_option("projection", self.projection, ("joint", "per_class"))
        check_option("average", self.average, ("last", "uniform", "weighted"))


def descent_sensitivity(s: Sensitivity, descent: Descent, n_scores: int) -> float:
    """Distance between the iterates of neighbours that follows from the other numbers."""
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


# What parties sum up under noise.
ROUNDS = ("model", "gram")
# Every sum is about data sets of which one row is exchanged: sizes of parties stay what they are.
ADJACENCY = "replace_one"
# Numbers of one party, on the grid, lie below this.
ENCODABLE = 2**29
# More parties than sums modulo 2**48 have room for; more rows or numbers than anyone has.
MOST_PARTIES, MOST_NUMBERS = 2**18, 2**40


@dataclass(frozen=True, kw_only=True)
class SecureRound:
    r"""A sum over parties of vectors on a grid, each party adding its own discrete Gaussian noise.

    Parameters
    ----------
    name : {"model", "gram"}
        Weights of the parties' models; or matrices of products of features.
    what : str
        What was summed up, for people.
    size : int in 1..2**40
        p: how many noisy numbers one vector has.
    clip_norm : float > 0 or None
        Of ``"gram"``: bound of the Frobenius norm of one row's outer product with itself.
    exact : float > 0
        How far the exact sums of neighbours can be apart, with the errors of the solvers and the
        weights of the parties.
    grid : float > 0
        g: what one step on the grid is worth.
    parties : int in 1..2**18
        m: in how many parties what is exchanged can lie; each of them rounds its own vector.
    rounding : float > 0
        :math:`m g \sqrt{p} (1 + 2^{-20})`: what rounding to the grid adds.
    total : float > 0
        ``exact + rounding``, rounded up.
    sigma_steps : int
        Parameter of every party's discrete Gaussian noise, in steps: a power of two from 2**4 to
        2**24.
    honest_survivors : int in 1..2**18
        h: how many of the noises in a sum that was opened nobody can take out again.
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

    name: str
    what: str
    size: int
    clip_norm: float | None = None
    exact: float
    grid: float
    parties: int
    rounding: float
    total: float
    sigma_steps: int
    honest_survivors: int
    smoothing: float
    sigma: float
    discreteness: float
    overflow: float
    computational: float
    range_steps: int

    def __post_init__(self) -> None:
        """Check every field by itself; how they hang together is what ``verify`` checks."""
        check_option("name", self.name, ROUNDS)
        check_text("what", self.what)
        for name in ("parties", "honest_survivors"):
            store(self, name, check_integer(name, getattr(self, name), 1, MOST_PARTIES))
        store(self, "size", check_integer("size", self.size, 1, MOST_NUMBERS))
        for name in ("exact", "grid", "rounding", "total", "sigma"):
            store(self, name, check_positive(name, getattr(self, name)))
        store(self, "sigma_steps", check_integer("sigma_steps", self.sigma_steps, 2**4, 2**24))
        store(self, "range_steps", check_integer("range_steps", self.range_steps, 1, ENCODABLE))
        smoothing = check_non_negative("smoothing", self.smoothing)
        if not 1.0 <= smoothing < self.sigma_steps:
            raise InvalidParameterError.of(
                "smoothing", got=smoothing, accepted="at least 1, and less than sigma_steps"
            )
        store(self, "smoothing", smoothing)
        for name in ("discreteness", "overflow", "computational"):
            value = check_real(name, getattr(self, name), low=0.0, high=1.0, open_high=True)
            store(self, name, value)
        if not 0.0 < self.distance < 1.0:
            raise InvalidParameterError.of(
                "discreteness", got=self.discreteness, accepted="a sum of distances in (0, 1)"
            )
        if (self.name == "gram") != (self.clip_norm is not None):
            raise InvalidParameterError("clip_norm: expected a number for 'gram' alone")
        if self.clip_norm is not None:
            store(self, "clip_norm", check_positive("clip_norm", self.clip_norm))

    @property
    def distance(self) -> float:
        """How far the sum is from the Gaussian mechanism altogether, rounded up."""
        parts = (self.discreteness, self.overflow, self.computational)
        return fraction_up(sum(map(Fraction, parts), Fraction(0)))

    @property
    def events(self) -> tuple[GaussianEvent, DistanceEvent]:
        """What the sum charges to a ledger, at once."""
        return (
            GaussianEvent(self.sigma, self.total, ADJACENCY),
            DistanceEvent(self.distance, ADJACENCY),
        )

    @property
    def local_event(self) -> ZCDPEvent:
        r"""What one party's noisy vector alone costs: discrete Gaussian noise on whole numbers.

        Its zCDP parameter is :math:`total^2 / (2 g^2 \sigma_{steps}^2)`, exactly as for real
        numbers (Canonne, Kamath and Steinke, NeurIPS 2020, Theorem 4); nothing is approximate, so
        no distance grows with a large epsilon.
        """
        ratio = Fraction(self.total) / (Fraction(self.grid) * self.sigma_steps)
        return ZCDPEvent(fraction_up(ratio * ratio / 2), ADJACENCY)
