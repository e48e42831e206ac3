"""The parts of a statement: records of numbers, each checked by itself.

How the numbers hang together is what ``verify`` checks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dpsvm_fast._validation import (
    check_delta,
    check_epsilon,
    check_fraction,
    check_integer,
    check_non_negative,
    check_option,
    check_positive,
    check_real,
)
from dpsvm_fast.accounting._fields import check_text, store
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = [
    "LastIterate",
    "Noise",
    "ObjectiveNoise",
    "ReleasePart",
    "Sensitivity",
    "check_text",
    "store",
]


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
