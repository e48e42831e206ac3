"""Noise on weights and sums: scales, grids, events, and remaining budgets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.accounting import composed_delta, gaussian_delta, gaussian_epsilon, gaussian_sigma
from dpsvm_fast.certificates import Noise, PrivacyEvent, ReleasePart
from dpsvm_fast.certificates.releases import effective_sums
from dpsvm_fast.certificates.words import PRODUCTS, summed
from dpsvm_fast.exceptions import CertificationError, InvalidParameterError
from dpsvm_fast.mechanisms.plan import Rows, filled
from dpsvm_fast.rounding import (
    SMALLEST_FLOAT,
    add_down,
    add_up,
    div_down,
    div_up,
    fraction_down,
    mul_up,
    round_down,
    round_up,
    sqrt_down,
    sqrt_up,
)

if TYPE_CHECKING:
    from dpsvm_fast.mechanisms.rows import PublicMap

# Common public settings of the mechanisms: words, factors and ranges.


# Add or remove changes the objective by one record's loss, a replacement by two of them.
RELATION_FACTOR = {"add_remove": 1, "replace_one": 2}

NOISES = ("gaussian", "gamma")

NOISE_GRIDS = ("exact", "float")

# Beyond these a product of settings could overflow or lose its digits to underflow.
SMALLEST, LARGEST = 1e-100, 1e100
# Rows are stored in single precision next to the intercept: a smaller one would vanish.
SMALLEST_INTERCEPT = 1e-30
# The solver takes 1e-60 to 1e60, after scaling by a power of two.
SMALLEST_RATIO, LARGEST_RATIO = 1e-59, 1e59


def check_range(
    name: str, value: float, what: str, low: float = SMALLEST, high: float = LARGEST
) -> None:
    """Refuse settings whose products would overflow or underflow."""
    if not low <= value <= high:
        raise InvalidParameterError(
            f"{name}: {what} is {value!r}, expected a number in [{low:g}, {high:g}]"
        )


def check_solvable(regularization: float, row_norm: float) -> None:
    """Refuse early what the smooth solver would refuse after the budget is spent."""
    check_range("C", regularization, "the total regularisation", SMALLEST_RATIO, LARGEST_RATIO)
    ratio = regularization / row_norm / row_norm
    check_range("C", ratio, "regularisation / data_norm^2", SMALLEST_RATIO, LARGEST_RATIO)


def check_delta_of_gaussian(delta: float) -> None:
    """Refuse delta = 0 with Gaussian noise, which gives no pure guarantee."""
    if not delta > 0.0:
        raise InvalidParameterError(
            f"delta: got {delta!r}, expected a number in (0, 1) with noise='gaussian'; "
            "noise='gamma' gives delta = 0"
        )


def check_row_norm(data_norm: float, intercept_scaling: float, row_norm: float) -> None:
    """Refuse norm bounds whose squares, or whose constant feature, would underflow."""
    check_range("data_norm", data_norm, "the bound on the norm of rows")
    check_range("data_norm", row_norm, "sqrt(data_norm^2 + intercept_scaling^2)")
    if 0.0 < intercept_scaling < SMALLEST_INTERCEPT * data_norm:
        raise InvalidParameterError(
            f"intercept_scaling: got {intercept_scaling!r}, expected at least "
            f"{SMALLEST_INTERCEPT:g} data_norm"
        )


# The power-of-two grid on which weights are released, and the release on it.
#
# Proved in docs/proofs/grid_gaussian.md: rounded weights plus exactly sampled rounded Gaussians are
# a post-processing of the weights plus Gaussians of the real numbers.


# A noise scale of at most this many grid steps: sums of steps stay far inside 2**53.
LARGEST_NOISE_STEPS = 2.0**44
# Rounded weights are clamped to this many grid steps, a public range: sums with noise stay exact.
LARGEST_WEIGHT_STEPS = 2.0**51


def grid_below(spacing: float, largest_scale: float = 0.0) -> float:
    """Return the largest power of two <= ``spacing``, or a larger one to limit the noise steps.

    Parameters
    ----------
    spacing : float > 0
    largest_scale : float >= 0
        Bound on the standard deviation of the noise on the grid; 0 for none.
    """
    exponent = math.frexp(spacing)[1] - 1
    if largest_scale > 0.0:
        exponent = max(exponent, math.frexp(largest_scale / LARGEST_NOISE_STEPS)[1])
    return math.ldexp(1.0, exponent)


def rounding_distance(grid: float, n_weights: int) -> float:
    """Return what rounding to the grid adds to the distance between two weight matrices."""
    return mul_up(grid, sqrt_up(float(n_weights)))


def release_on_grid(
    flat: NDArray[np.float64],
    sigma: float,
    grid: float | None,
    source: _core.NoiseSource,
    n_threads: int,
) -> NDArray[np.float64]:
    """Round to the grid, clamp and add integer noise, without any other rounding.

    Without a grid, add floating-point noise to the numbers as they are.

    Division by a power of two is exact in this range (an underflow rounds to 0 either way).
    ``rint`` and ``clip`` give floats that are integers below 2**51, so the conversion to int64 is
    exact. The noise is an exact int64 draw of about 2**44 steps, and the integer sum cannot
    overflow. Converting the sum to float and multiplying by the grid is post-processing (and exact
    below 2**53).
    """
    if grid is None:
        return np.asarray(flat + source.gaussian(flat.size, sigma, n_threads))
    steps = np.clip(np.rint(flat / grid), -LARGEST_WEIGHT_STEPS, LARGEST_WEIGHT_STEPS)
    noise = source.gaussian_on_grid(flat.size, sigma, grid, n_threads)
    return np.asarray((steps.astype(np.int64) + noise).astype(np.float64) * grid)


# Noise that covers a known distance between the weights of neighbours, released on a grid.


@dataclass(frozen=True, kw_only=True)
class CalibratedNoise:
    """Noise on a matrix with one row per score, calibrated to (epsilon, delta).

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1)
        Positive with Gaussian noise.
    adjacency : {"add_remove", "replace_one"}
    noise_grid : {"exact", "float"}
        Whether Gaussian noise is drawn exactly on a grid.
    shape : tuple of int
        (n_scores, n_features), with one more column for an intercept.
    """

    epsilon: float
    delta: float
    adjacency: str
    noise_grid: str
    shape: tuple[int, int]

    @property
    def exact(self) -> bool:
        """Whether Gaussian noise is drawn exactly on a grid."""
        return self.noise_grid == "exact"

    @property
    def n_weights(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    @property
    def factor(self) -> int:
        """Number of records by which neighbours differ."""
        return RELATION_FACTOR[self.adjacency]


@dataclass(frozen=True, kw_only=True)
class WeightNoise(CalibratedNoise):
    """Gaussian or Gamma noise on weights with a given sensitivity.

    Noise that is not ``exact`` is added in floating point; the sum is then rounded to the grid,
    which is post-processing.

    Parameters
    ----------
    noise : {"gaussian", "gamma"}
    distance : float > 0
        Bound on the distance between the weights of neighbours.
    grid_share : float > 0 or None
        Share of the distance that rounding may add: the grid is as coarse as that allows, or
        coarser if the noise would have too many steps. None: no rounding, for floating-point noise.
    """

    noise: str
    distance: float
    grid_share: float | None

    @cached_property
    def grid(self) -> float | None:
        """Spacing of the released weights, a power of two; None if they are not rounded."""
        if self.grid_share is None:
            return None
        fine = self.grid_share * self.distance / math.sqrt(self.n_weights)
        # Twice what is known so far: the scale itself still grows with the grid.
        return grid_below(fine, 2.0 * self._multiplier * self.distance)

    @cached_property
    def rounding(self) -> float:
        """Distance between two weight matrices that rounding before the noise adds."""
        if self.noise == "gamma" or not self.exact or self.grid is None:
            # Noise is added before the rounding, which is then post-processing.
            return 0.0
        return rounding_distance(self.grid, self.n_weights)

    @cached_property
    def total(self) -> float:
        """Bound on the distance between the rounded weights of two neighbours."""
        return add_up(self.distance, self.rounding)

    @cached_property
    def scale(self) -> float:
        """Standard deviation sigma of Gaussian noise, or rate beta of Gamma noise."""
        if self.noise == "gaussian":
            return gaussian_sigma(self.epsilon, self.delta, self.total)
        return div_down(self.epsilon, self.total)

    @cached_property
    def _multiplier(self) -> float:
        """Root mean square of the noise in one weight at sensitivity 1."""
        if self.noise == "gaussian":
            return gaussian_sigma(self.epsilon, self.delta)
        return math.sqrt(self.n_weights + 1.0) / self.epsilon

    @property
    def deviation(self) -> float:
        """Root mean square of the noise in one weight."""
        return self.scale if self.noise == "gaussian" else self._multiplier * self.total

    @property
    def event(self) -> PrivacyEvent:
        """Privacy event of the release."""
        return self.record.events(self.total, self.adjacency)[0]

    @property
    def record(self) -> Noise:
        """Record of the noise for the statement."""
        epsilon = None if self.noise == "gaussian" else self.epsilon
        law = law_of(self.noise, self.scale, self.grid, exact=self.exact)
        return Noise(shape=self.shape, epsilon=epsilon, **law)

    def release(
        self, weights: NDArray[np.float64], source: _core.NoiseSource, n_threads: int
    ) -> NDArray[np.float64]:
        """Return a noisy copy of ``weights``, of the same shape.

        For audits there may be several matrices along a first axis: each of them spends the budget.

        Raises
        ------
        CertificationError
            ``weights`` are not finite, so they were not certified.
        """
        if weights.shape[-2:] != self.shape or not np.isfinite(weights).all():
            raise CertificationError("the solver returned no usable weights; nothing is released")
        if self.noise == "gamma" and weights.ndim > 2:
            # One draw of Gamma noise belongs to all weights of one release together.
            return np.array([self.release(one, source, n_threads) for one in weights])
        flat = np.ascontiguousarray(weights, dtype=np.float64).ravel()
        if self.noise == "gaussian" and self.exact:
            released = release_on_grid(flat, self.scale, self.grid, source, n_threads)
            return released.reshape(weights.shape)
        draw = source.gamma_ball if self.noise == "gamma" else source.gaussian
        released = flat + draw(flat.size, self.scale, n_threads)
        if self.grid is not None:
            # Post-processing: hides the low bits in which floating-point noise differs.
            released = np.rint(released / self.grid) * self.grid
        return np.asarray(released.reshape(weights.shape))


# A sum over records to which noise is added: how far neighbours move it, and the noise for that.
#
# Gaussian noise is calibrated to a parameter of Gaussian differential privacy, mu = sensitivity
# over sigma, because the squares of such parameters add up under composition. Every number is
# rounded towards more noise; nothing here reads data.


# A standard deviation of more grid steps is refused by the exact sampler.
MAX_NOISE_STEPS = 2.0**46


def gaussian_parameter(epsilon: float, delta: float) -> float:
    """Return the largest mu of an (epsilon, delta)-private Gaussian mechanism, rounded down."""
    mu = div_down(1.0, gaussian_sigma(epsilon, delta))
    check_range("epsilon", mu, "the Gaussian parameter of the budget")
    return mu


def share_of(mu: float, share: float) -> float:
    """Return the parameter whose square is ``share`` times that of ``mu``, rounded down."""
    return sqrt_down(fraction_down(Fraction(share) * Fraction(mu) ** 2))


def joined_parameter(*parameters: float) -> float:
    """Return the parameter of the composition of Gaussian mechanisms, rounded down."""
    return sqrt_down(fraction_down(sum((Fraction(mu) ** 2 for mu in parameters), Fraction(0))))


def scale_for(sensitivity: float, mu: float) -> float:
    """Return the smallest sigma at which ``sensitivity / sigma``, rounded up, is at most ``mu``."""
    sigma = div_up(sensitivity, mu)
    while div_up(sensitivity, sigma) > mu:
        sigma = round_up(sigma)
    return sigma


def law_of(
    distribution: str, scale: float, grid: float | None, *, exact: bool = True
) -> dict[str, Any]:
    """Return the fields of noise records: distribution, scale and sampling.

    Noise that is not ``exact`` is rounded to the grid after sampling.
    """
    gaussian = distribution == "gaussian"
    return {
        "distribution": distribution,
        "sampler": "exact_grid" if gaussian and exact and grid is not None else "floating_point",
        "sigma": scale if gaussian else None,
        "beta": None if gaussian else scale,
        "grid": grid,
    }


@dataclass(frozen=True, kw_only=True)
class NoisySum:
    """Plan of one noisy sum over the records, or of several of the same kind.

    Parameters
    ----------
    name, what : str
        Name and description for the statement.
    adjacency : {"add_remove", "replace_one"}
    clip_norm : float > 0
        Bound on the norm of one record's contribution.
    relation_factor : float
        Number of contributions by which the sums of neighbours can differ.
    shape : tuple of int
    mu : float > 0 or None
        Gaussian parameter of all steps together.
    epsilon : float > 0 or None
        Epsilon of Gamma noise; exactly one of ``mu`` and ``epsilon`` is given.
    grid : float > 0 or None
        Power of two to which the sum is rounded, and on which Gaussian noise is drawn exactly; None
        for floating-point noise.
    rounding : float >= 0
        Bound on what rounding adds to a contribution.
    n_steps : int >= 1
        Number of sums.
    factor : tuple of float in [0, 1]
        For sums of one period each: weights of a record in the sums of its period and of later
        ones.
    """

    name: str
    what: str
    adjacency: str
    clip_norm: float
    relation_factor: float
    shape: tuple[int, ...]
    mu: float | None = None
    epsilon: float | None = None
    grid: float | None = None
    rounding: float = 0.0
    n_steps: int = 1
    factor: tuple[float, ...] = ()

    # Derived: the bound of one record's contribution, rounding included; that on
    # the distance between the noise inputs of neighbours, over all steps; and the standard
    # deviation sigma of Gaussian noise, or the rate beta of Gamma noise.
    contribution: float = field(init=False)
    sensitivity: float = field(init=False)
    scale: float = field(init=False)

    def __post_init__(self) -> None:
        """Refuse budgets so small that no float or no grid can represent the noise."""
        own = vars(self)
        own["contribution"] = add_up(self.clip_norm, self.rounding)
        moved = mul_up(self.relation_factor, self.contribution)
        own["sensitivity"] = mul_up(sqrt_up(effective_sums(self.n_steps, self.factor)), moved)
        if self.mu is not None:
            own["scale"] = scale_for(self.sensitivity, self.mu)
        else:
            assert self.epsilon is not None
            check_range("epsilon", self.epsilon, "the budget of the noise")
            own["scale"] = div_down(self.epsilon, self.sensitivity)
        if self.mu is None or self.grid is None:
            return
        if self.scale > MAX_NOISE_STEPS * self.grid:
            raise InvalidParameterError(
                f"epsilon: the Gaussian parameter of the noise in {self.what} is {self.mu!r}, too "
                "small for the exact sampler; use a larger epsilon and delta, or noise_grid='float'"
            )

    @property
    def size(self) -> int:
        """Number of components."""
        return math.prod(self.shape)

    @property
    def deviation(self) -> float:
        """Root mean square of the noise in one component."""
        if self.mu is not None:
            return self.scale
        return math.sqrt(self.size + 1.0) / self.scale

    @cached_property
    def event(self) -> PrivacyEvent:
        """Privacy event of the release."""
        return self.part.event(self.adjacency)

    @cached_property
    def part(self) -> ReleasePart:
        """Return the record of the noise for the statement."""
        law = law_of("gamma" if self.mu is None else "gaussian", self.scale, self.grid)
        return filled(ReleasePart, self, **law)

    def release(
        self, total: NDArray[np.float64], source: _core.NoiseSource, n_threads: int
    ) -> NDArray[np.float64]:
        """Return a noisy copy of a flat sum: the only value of it that may be released.

        For audits there may be several sums along a first axis: each of them spends the budget.
        """
        if self.mu is not None:
            flat = release_on_grid(total.ravel(), self.scale, self.grid, source, n_threads)
            return flat.reshape(total.shape)
        if total.ndim > 1:
            # One draw of Gamma noise belongs to all components of one sum together.
            return np.array([self.release(one, source, n_threads) for one in total])
        return np.asarray(total + source.gamma_ball(total.size, self.scale, n_threads))


@dataclass(frozen=True, kw_only=True)
class SumRelease:
    """Release of one exact sum over the rows; subclasses define sum and post-processing.

    Parameters
    ----------
    adjacency : {"add_remove", "replace_one"}
    noise_grid : {"exact", "float"}
        Sampling of Gaussian noise.
    mu : float > 0 or None
        Gaussian parameter of Gaussian noise.
    epsilon : float > 0 or None
        Epsilon of pure Gamma noise; exactly one of ``mu`` and ``epsilon`` is given.
    """

    adjacency: str = "add_remove"
    noise_grid: str = "exact"
    mu: float | None = None
    epsilon: float | None = None

    if TYPE_CHECKING:

        @property
        def sum(self) -> NoisySum:
            """Noisy sum with its sensitivity."""

    @property
    def counts(self) -> bool:
        """Whether the number of rows is private and released with noise."""
        return self.adjacency == "add_remove"

    def of_multiples(self, unit: float, *, name: str, **facts: Any) -> NoisySum:
        """Return the noise for an exact sum, on a grid if it is Gaussian and exact.

        Parameters
        ----------
        unit : float > 0
            Power of two of which the sum is a multiple: a grid as fine needs no rounding.
        name : str
        **facts
            Fields of :class:`NoisySum`: bounds, shape and steps.
        """
        law: dict[str, Any] = {"mu": self.mu, "epsilon": self.epsilon}
        what, adjacency = summed(name, self.adjacency), self.adjacency
        plan = NoisySum(name=name, what=what, adjacency=adjacency, **law, **facts)
        if plan.mu is None or self.noise_grid == "float":
            return plan
        grid = grid_below(unit, 2.0 * plan.sensitivity / plan.mu)
        rounding = 0.0 if grid <= unit else rounding_distance(grid, plan.size)
        return replace(plan, grid=grid, rounding=rounding)


# A symmetric matrix of second moments of private rows, with symmetric Gaussian noise.
#
# Proved in docs/proofs/private_pca.md, sections "Second moments" and "Symmetric noise". One row u
# of norm at most 1 moves :math:`\sum_i u_i u_i^\top` by :math:`\|u\|^2 \le 1` in Frobenius norm. A
# replacement moves it by at most :math:`\sqrt2`, because
#
# .. math:: \|u u^\top - v v^\top\|_F^2 = \|u\|^4 + \|v\|^4 - 2 \langle u, v \rangle^2 \le 2.
#
# In the space of symmetric matrices with that norm the isotropic Gaussian has variance
# :math:`\sigma^2` on the diagonal and :math:`\sigma^2 / 2` off it (Dwork, Talwar, Thakurta and
# Zhang, STOC 2014, with half the variance off the diagonal).


# Rounding to the grid costs at most this share of the sensitivity, unless the noise would then
# have too many steps.
GRID_SHARE = 1e-6
# Clamped to 2**51 grid steps, an exact entry and its rounded one are less than 5/8 of a step apart:
# 1/8 for the sum's conversion to a float, 1/2 for the grid. Two of them, generously.
ROUNDED_STEPS = 2.0
# A matrix of 8 GB, of which several are needed: beyond, memory would surely be lacking, and only
# once the budget is spent.
MAX_FEATURES = 2**15


@dataclass(frozen=True, kw_only=True)
class SecondMoments(SumRelease):
    """Release of second moments of rows of norm at most 1; subclasses define post-processing.

    Parameters
    ----------
    n_features : int
    adjacency : {"add_remove", "replace_one"}
    noise_grid : {"exact", "float"}
    mu : float > 0
        Gaussian parameter of the release.

    Notes
    -----
    Guarantees: ``noisy`` is a Gaussian mechanism with parameter ``mu`` for exact sums over rows of
    norm at most 1.
    """

    n_features: int
    mu: float

    # The part's name in a statement.
    part_name: ClassVar[str]

    def __post_init__(self) -> None:
        """Refuse matrices too large to hold in memory several times."""
        if self.n_features > MAX_FEATURES:
            raise InvalidParameterError(
                f"X: got {self.n_features} features, expected at most {MAX_FEATURES} where a "
                "matrix of second moments is released"
            )

    @cached_property
    def sum(self) -> NoisySum:
        """Noisy sum with its sensitivity; sigma is for the diagonal."""
        d = self.n_features
        factor = 1.0 if self.adjacency == "add_remove" else sqrt_up(2.0)
        grid = None
        if self.noise_grid == "exact":
            grid = grid_below(GRID_SHARE / d, 2.0 * factor / self.mu)
        return NoisySum(
            name=self.part_name,
            what=PRODUCTS,
            adjacency=self.adjacency,
            clip_norm=1.0,
            relation_factor=factor,
            shape=(d, d),
            mu=self.mu,
            grid=grid,
            rounding=0.0 if grid is None else mul_up(ROUNDED_STEPS * grid, float(d)),
        )

    def summed(self, rows: Rows, public: PublicMap) -> tuple[Any, ...]:
        """Return the exact second moments of mapped rows."""
        return (rows.records(public).gram(rows.n_threads),)

    def exact(self, moments: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the exact input of the noise."""
        return moments

    @property
    def spectral_noise(self) -> float:
        """Estimate of the spectral norm of the noise."""
        return math.sqrt(2.0 * self.n_features) * self.sum.scale

    def noisy(
        self, moments: NDArray[np.float64], source: _core.NoiseSource, n_threads: int
    ) -> NDArray[np.float64]:
        """Return the noisy diagonal and upper triangle, mirrored.

        Parameters
        ----------
        moments : ndarray of shape (..., n_features, n_features)
            Symmetric; entries that are not exact are rounded to nearest. Several matrices are for
            audits: each of them spends the budget.
        source : NoiseSource
        n_threads : int
            Does not change the result.

        Returns
        -------
        ndarray of the shape of ``moments``
            Exactly symmetric.
        """
        rows, columns = np.triu_indices(self.n_features, 1)
        places = np.arange(self.n_features)
        above, diagonal = moments[..., rows, columns], moments[..., places, places]
        # Upwards: a little more noise than isotropic.
        off_scale = self.sum.scale / sqrt_down(2.0)
        off_scale = math.nextafter(off_scale, math.inf)
        off = release_on_grid(above.ravel(), off_scale, self.sum.grid, source, n_threads)
        on = release_on_grid(diagonal.ravel(), self.sum.scale, self.sum.grid, source, n_threads)
        noisy = np.zeros(moments.shape)
        noisy[..., places, places] = on.reshape(diagonal.shape)
        noisy[..., rows, columns] = noisy[..., columns, rows] = off.reshape(above.shape)
        return noisy


# Share of epsilon that has to be left for training, and of delta that may stay unused.
MIN_REMAINING, UNUSED = 0.5, 0.01
# Steps of a search, the share of epsilon by which a slope is measured, and how close the two sides
# of a jump are looked for.
STEPS, ASIDE, NEAR_JUMP = 20, 0.03, 2e-4

# Least share of epsilon that a smaller parameter should leave at the same delta.
GOOD_PART = 0.1


def within_budget(
    whole: Any,
    spent: tuple[PrivacyEvent, ...],
    plan_of: Callable[[float], Any],
    *,
    like: tuple[tuple[PrivacyEvent, ...], Callable[[float], Any]] | None = None,
    least: float = MIN_REMAINING,
    unused: float = UNUSED,
) -> Any:
    """Return the plan with nearly the largest epsilon that keeps the total within a budget.

    Parameters
    ----------
    whole : object with ``epsilon`` and ``delta``
        Total budget.
    spent : tuple of PrivacyEvent
        Events before the plan.
    plan_of : callable
        Function that returns a plan with ``events`` for a given epsilon.
    like : tuple, optional
        ``spent`` and ``plan_of`` for rows of one feature, to search with. The number of features
        affects events only by rounding, but could change the path of the search, and is unknown to
        a search that pays beforehand.
    least : float in (0, 1)
        Smallest useful share of epsilon.
    unused : float > 0
        Share of delta that may stay unused, because each search step is slow.

    Raises
    ------
    InvalidParameterError
        Less than ``least`` of epsilon would be left.
    """
    epsilon, delta = whole.epsilon, whole.delta
    before, like_of = like or (spent, plan_of)

    def log_excess(own: float) -> float:
        # A delta that underflows is not zero.
        found = max(composed_delta((*before, *like_of(own).events), epsilon), SMALLEST_FLOAT)
        return math.log(found) - math.log(delta)

    mus = [event.mu for event in before if event.mu is not None]
    left = gaussian_parameter(epsilon, delta) ** 2 - sum(mu * mu for mu in mus)
    # Epsilon left for Gaussian noise: likely a little too much, or else all. No rounding decides.
    lowest, at = least * epsilon, gaussian_epsilon(delta, left**-0.5) if left > 0.0 else 0.0
    at = at * (1.0 - 1e-9) if lowest < at < epsilon else lowest + 0.5 * (epsilon - lowest)

    def log_delta(own: float) -> float:
        """Return the log of delta of Gaussian noise of that epsilon after earlier events."""
        mu = math.sqrt(sum(mu * mu for mu in mus) + gaussian_parameter(own, delta) ** 2)
        return math.log(max(gaussian_delta(epsilon, 1.0 / mu), SMALLEST_FLOAT))

    # Other curves are about as steep.
    slope = max(1.0, (log_delta(at) - log_delta(at * (1.0 - ASIDE))) / ASIDE) / at
    own = largest_within(log_excess, at, slope, (lowest, epsilon), unused)
    if own is None:
        raise InvalidParameterError(
            f"epsilon: got {epsilon!r} with delta {delta!r}, expected larger values: the releases "
            f"before training would leave less than {least:g} of epsilon"
        )
    while True:
        plan = plan_of(own)
        if composed_delta((*spent, *plan.events), epsilon) <= delta:
            return plan
        own *= 1.0 - 1e-6


def pure_rest(whole: Any) -> float:
    """Return the epsilon that a plan's pure ``sums`` leave, rounded down."""
    return add_down(whole.epsilon, *(-one.epsilon for one in whole.sums if one.epsilon is not None))


@lru_cache(maxsize=256)
def composed_solver(mechanism: Any) -> Any:
    """Return a mechanism's solver with the budget that exact composition leaves."""
    one = mechanism if mechanism.n_features == 1 else replace(mechanism, n_features=1)

    def costs(each: Any) -> Any:
        return each.before, lambda own: each.with_budget(own, each.delta)

    return within_budget(mechanism, *costs(mechanism), like=costs(one))


def largest_within(
    excess: Callable[[float], float],
    at: float,
    slope: float,
    ends: tuple[float, float],
    unused: float,
) -> float | None:
    """Return a point where an increasing function is in [-unused, 0], or the upper end.

    Secants start from ``at``; bisection is used if they leave the interval, and the lower side of a
    jump will do. After a few steps more may stay unused: the function may jump up and down a
    little. The result is None if the function is positive at the lower end.
    """
    low, high, last = -math.inf, math.inf, None
    for step in range(STEPS):
        value = excess(at)
        if value <= 0.0:
            low = at
        else:
            high = at
        if low >= ends[1] or high <= ends[0] or -unused * max(1, step - 1) <= value <= 0.0:
            break
        if math.isfinite(high) and high - low <= NEAR_JUMP * high:
            break
        if last is not None and (value - last[1]) / (at - last[0]) > 0.0:
            slope = (value - last[1]) / (at - last[0])
        last = (at, value)
        # Aimed a little below the root, on the safe side.
        at = min(max(at - (value + 0.5 * unused) / slope, ends[0]), ends[1])
        if not low < at < high:
            at = 0.5 * (max(low, ends[0]) + min(high, ends[1]))
    return low if math.isfinite(low) else None


def budget_of(mu: float, epsilon: float, delta: float) -> tuple[float, float]:
    """Return epsilon and delta whose Gaussian mechanism has a parameter just below ``mu``.

    Delta is kept if enough of epsilon remains; for tiny budgets epsilon is kept.
    """
    own = gaussian_epsilon(delta, div_down(1.0, mu))
    if own >= GOOD_PART * epsilon:
        while div_down(1.0, gaussian_sigma(own, delta)) > mu:
            own = round_down(own * (1.0 - 1e-14))
        return own, delta
    own = gaussian_delta(epsilon, div_down(1.0, mu))
    while div_down(1.0, gaussian_sigma(epsilon, own)) > mu:
        own = round_down(own * (1.0 - 1e-14))
    return epsilon, own
