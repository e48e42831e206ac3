"""Private training of a linear classifier: centring, whitening and training in one budget.

Proved in docs/proofs/auto_pipeline.md. With delta > 0 all noise of the standard recipe is Gaussian,
and Gaussian mechanisms compose exactly: the squares of their parameters add up, even if later
mechanisms are chosen by results of earlier ones, as long as the sum is fixed (sections "Whitening"
and "Composition"). The sum is the same on both paths: if whitening is skipped because there are too
few rows for its noise, its share goes to the training. Rows of few features are whitened twice.

Objective perturbation has another privacy law, so its budget cannot be exchanged with others: a
share reserved for whitening that does not happen is lost. With delta = 0 epsilons add up, and there
is no whitening.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.certificates import GaussianEvent, PrivacyEvent, PrivacyStatement
from dpsvm_fast.certificates.words import CALIBRATED, CLIPPED
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.moments import ClassCounts, NoisyMean, NoisyMoments, whitening_shares
from dpsvm_fast.mechanisms.noise import (
    MAX_FEATURES,
    RELATION_FACTOR,
    NoisySum,
    SumRelease,
    budget_of,
    composed_solver,
    gaussian_parameter,
    grid_below,
    joined_parameter,
    pure_rest,
    scale_for,
    share_of,
)
from dpsvm_fast.mechanisms.objective import INTERCEPT as OBJECTIVE_INTERCEPT
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from dpsvm_fast.mechanisms.output import INTERCEPT, OutputPerturbation
from dpsvm_fast.mechanisms.plan import COPIES, LinearPlan, Rows, filled, sums_exactly
from dpsvm_fast.mechanisms.rows import (
    FourierFeatures,
    PublicMap,
    ReleasedMap,
    feature_rows,
    mapped_rows,
    structure_of,
)
from dpsvm_fast.rounding import add_up, fraction_down, sqrt_down
from dpsvm_fast.validation import refuse

# Full-batch private gradient descent with every number from public facts and noisy counts.
#
# With R the clip norm, :math:`\mu` the Gaussian parameter of all steps together (halved under
# ``replace_one``) and :math:`\hat n` a released number of rows of d features:
#
# .. math::
#     T = \lceil \hat n \mu / 300 \rceil \text{ in } [100, 500], \quad
#     c = \min(0.7, \max(0.35, \sqrt{6 d / \hat n})), \quad
#     \lambda = c R / \mu, \quad \eta = \min(1 / (\lambda T), 4 m / \hat n)
#
# on the sum of clipped gradients, without weight decay, and the mean of the last
# :math:`0.0875\, T / c` iterates, an eighth to a quarter of them: with many features a row noise
# dominates and every step should count in full, with few the iterates oscillate and averaging calms
# them. Whitened rows take c down to 0.25 and the mean of the last :math:`0.15\, T / c` iterates:
# they learn all directions at one pace, so where rows are many most of the path is noise around one
# place. Noise of standard deviation :math:`\sqrt T R / \mu` in the sum moves W by
# :math:`1 / (c \sqrt T)` a step whatever the data; the whole step :math:`1 / \lambda` acts as
# regularisation. T costs time, not privacy: once steps are small the noise of the result does not
# depend on it. R is far below the largest gradient: a sum of clipped gradients keeps its direction
# while the noise shrinks with R.
#
# Many rows make every step slow. Beyond MAX_VISITS visits of rows, though not below FEWEST_STEPS,
# steps are fewer by a factor p and have momentum :math:`1 - 1 / p`: each goes p times as far where
# gradients agree, under noise that is as large on the whole, and the same path follows. T above is
# that of the path. Forced on smaller sets, p of 1.7 to 5 changed accuracy by -0.0002 to +0.002,
# and by -0.0009 at an epsilon of 100. On 200,000 rows, p of 5 in place of 2 changed it by -0.0004
# to 0, AUROC by at most -0.0001, and halved the time.
#
# With little noise that would go wrong twice. Likelihoods of n rows of norm 1 that spread over m
# directions have second derivatives of n / (4 m): steps of more than 4 m / n swing from side to
# side, which spoils the order of scores and makes them too large. And a clip that always acts has
# no calibrated end. So steps have that bound, with m = d for whitened rows, at least 16, and 64 for
# others and random features; of the factor x that it takes away the clip gets the square root, up
# to R = 0.7, and as much goes into less noise.


# R for scores of three or more classes. Between 0.1 and 0.5 accuracy is almost the same. The larger
# ones are for small noise; the last is for two classes and few features, where a clip that acts
# takes the rare class for noise.
CLIP, LARGEST_CLIP, NO_CLIP = 0.25, 0.7, math.sqrt(2.0)

FEWEST_STEPS, MAX_STEPS, ROWS_A_STEP, MAX_VISITS = 100, 500, 300.0, 2e7

SMALLEST_C, LARGEST_C = 0.35, 0.7

FEATURES_A_ROW = 6.0
# Share of the iterates that is averaged at the smallest c; inversely proportional to c.
AVERAGED_SHARE = 0.25
# For whitened rows.
SMALLEST_WHITENED_C, AVERAGED_WHITENED_SHARE = 0.25, 0.6
# Factor of the longest step; least directions of whitened rows; directions of those that keep a
# constant, and of other rows.
LONGEST_STEP, FEWEST_DIRECTIONS, STRAIGHT_DIRECTIONS, PLAIN_DIRECTIONS = 4.0, 16, 6, 64
# Longest path, and that on random features, which fit any rows in the end; twice as long for one
# score.
LONGEST_PATH, LONGEST_LIFTED_PATH = 20.0, 4.0
# Rounding to the grid costs at most this share of the clip norm, unless the noise would then have
# too many steps.
GRID_SHARE = 1e-6

# One temperature of the probabilities, from two more sums at the trained weights.
#
# The last steps do not move. A hundredth of all takes each of the sums, with the clip and the noise
# of the others. A row gives to the first sum how sure the softmax of the scores over
# USUAL_TEMPERATURE is of its answer, to the second whether the answer is right, each less 1/2 and
# as long as the clip allows. Both appear in the weights of a constant feature, next to which the
# row is small. With the means over the rows, and the odds :math:`o(p) = \log((K - 1) p / (1 - p))`,
# the temperature is USUAL_TEMPERATURE times :math:`(o(sure) / o(right))^{1.7}`: rows differ in
# their odds, so that the odds of means move less than in proportion. What noise would tell is drawn
# to the usual one.
CHECKS_A_STEP, CHECK_CONSTANT = 0.01, 8.0

USUAL_TEMPERATURE, TEMPERATURE_SPREAD, ODDS_EXPONENT = 1.25, 0.4, 1.7

LARGEST_FACTOR = 5.0
# Share of earlier velocities kept in a sum: all but the last digits.
ALL_KEPT = 1.0 - 1e-12
# Rounding should not make the clip act.
WITHIN_THE_CLIP = 1.0 - 2.0**-20


Array = NDArray[np.float64]


def unit_of(n_scores: int) -> float:
    """Return the factor of the clip norm and c for one score instead of two.

    The single score of two classes is the difference of their scores, which have opposite gradients
    with sqrt(2) times the norm together: clipping at R / sqrt(2) and dividing c by sqrt(2) gives
    the same model.
    """
    return 1.0 if n_scores > 1 else math.sqrt(0.5)


def usual_c(n_features: int, n_rows: float, smallest: float = SMALLEST_C) -> float:
    """Return c of the rule for the numbers of features and rows."""
    by_shape = math.sqrt(FEATURES_A_ROW * n_features / n_rows)
    return min(LARGEST_C, max(smallest, by_shape))


@dataclass(frozen=True, kw_only=True)
class DescentRule:
    """Plan of one private descent, by the rule above.

    Parameters
    ----------
    loss : Loss
    n_features : int
    fit_intercept : bool
    adjacency : {"add_remove", "replace_one"}
    noise_grid : {"exact", "float"}
    mu : float > 0
        Gaussian parameter of all steps together.
    count : float >= 1
        Number of rows, public or released.
    fixed_c : float > 0 or None
        Replaces the rule for c; public, or a function of releases.
    lifted : bool
        Whether the training is on random features, whose path is shorter.
    whitened : bool
        Whether the rows, not random features of them, are whitened.
    straightened : bool
        Whether rows are whitened and keep a constant.
    calibrated : bool
        Whether two more sums release a temperature of the probabilities.
    """

    loss: Loss
    n_features: int
    fit_intercept: bool
    adjacency: str
    noise_grid: str
    mu: float
    count: float
    fixed_c: float | None = None
    lifted: bool = False
    whitened: bool = False
    straightened: bool = False
    calibrated: bool = False

    # Derived: number of scores, and of features with the constant one; the bound R
    # of one record's gradient; the steps and the factor p by which they are fewer than T, and of
    # these how many move the weights and how many take each of the two sums that give the
    # temperature.
    shape: tuple[int, int] = field(init=False)
    clip: float = field(init=False)
    n_steps: int = field(init=False)
    pace: float = field(init=False)
    n_moves: int = field(init=False)
    n_checks: int = field(init=False)
    # The factor c of lambda, lambda, and eta.
    c: float = field(init=False)
    regularization: float = field(init=False)
    learning_rate: float = field(init=False)
    # The number, from 0, of the first step whose iterate is averaged.
    average_from: int = field(init=False)
    # The constant feature, 0 for none, and what brings rows of norm 1 with it to norm 1.
    intercept: float = field(init=False)
    row_scale: float = field(init=False)

    def __post_init__(self) -> None:
        """Derive all settings from the rule."""
        # The parameter at which one record would be protected.
        mu = self.mu / RELATION_FACTOR[self.adjacency]
        path = math.ceil(max(FEWEST_STEPS, min(self.count * mu / ROWS_A_STEP, MAX_STEPS)))
        n_steps = min(path, max(FEWEST_STEPS, math.ceil(MAX_VISITS / self.count)))
        smallest_c, share, directions = SMALLEST_C, AVERAGED_SHARE, PLAIN_DIRECTIONS
        if self.whitened:
            smallest_c, share = SMALLEST_WHITENED_C, AVERAGED_WHITENED_SHARE
            directions = max(FEWEST_DIRECTIONS, self.n_features)
        if self.straightened:
            directions = STRAIGHT_DIRECTIONS
        c = self.fixed_c
        if c is None:
            c = usual_c(self.n_features, self.count, smallest_c)
        unit = unit_of(self.loss.n_scores)
        # Beyond it, gradients of many rows oscillate.
        longest_path = (LONGEST_LIFTED_PATH if self.lifted else LONGEST_PATH) / unit**2
        longest_step = min(LONGEST_STEP * directions / self.count, longest_path / path)
        free = mu / (c * unit**2 * CLIP * path)
        largest = NO_CLIP if self.straightened else LARGEST_CLIP
        clip = unit * min(largest, CLIP * math.sqrt(max(1.0, free / longest_step)))
        regularization = c * unit * clip / mu
        n_checks = math.ceil(CHECKS_A_STEP * n_steps) if self.calibrated else 0
        n_moves = n_steps - 2 * n_checks
        intercept = INTERCEPT if self.fit_intercept else 0.0
        vars(self).update(
            shape=(self.loss.n_scores, self.n_features + self.fit_intercept),
            clip=clip,
            n_steps=n_steps,
            pace=path / n_steps,
            n_moves=n_moves,
            n_checks=n_checks,
            c=c,
            regularization=regularization,
            learning_rate=min(1.0 / (regularization * path), longest_step),
            average_from=n_moves - math.ceil(share * smallest_c / c * n_moves),
            intercept=intercept,
            row_scale=1.0 / math.hypot(1.0, intercept),
        )

    @cached_property
    def sum(self) -> NoisySum:
        """Noisy sums of clipped gradients, with their sensitivity."""
        n_weights = math.prod(self.shape)
        factor = float(RELATION_FACTOR[self.adjacency])
        grid = None
        if self.noise_grid == "exact":
            fine = GRID_SHARE * self.clip / math.sqrt(n_weights)
            grid = grid_below(fine, 2.0 * math.sqrt(self.n_steps) * factor * self.clip / self.mu)
        moved = _core.clipped_sum_distance(self.clip, n_weights, grid)
        return filled(
            NoisySum,
            self,
            name="training",
            what=CALIBRATED if self.calibrated else CLIPPED,
            clip_norm=self.clip,
            relation_factor=factor,
            grid=grid,
            rounding=max(0.0, add_up(moved, -self.clip)),
        )

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in a released weight if no gradient counteracts it.

        Each step moves a weight by eta times the noise, and further by momentum. The mean over the
        iterates of steps k .. T-1 averages the effect of a step on each of them.
        """
        k, T, momentum = self.average_from, self.n_moves, 1.0 - 1.0 / self.pace
        # By one step, added up over the iterates since it.
        together = np.cumsum(self.pace * (1.0 - momentum ** np.arange(1.0, T + 1.0)))
        before = np.concatenate([together[:k][::-1], np.zeros(T - k)])
        shares = (together[::-1] - before) / (T - k)
        return self.learning_rate * self.sum.scale * float(np.linalg.norm(shares))

    def descended(self, records: Any, rows: Rows, source: _core.NoiseSource) -> tuple[Array, float]:
        """Return weights of rows before scaling for the constant feature, and a temperature."""
        options = self.descent_options()
        descent = _core.Descent(**options)
        rows.weigh(records)
        rows.descend(records, descent, options, source, self.n_moves, rows.on_step)
        weights = np.asarray(self.row_scale * descent.weights())
        if not self.calibrated:
            return weights, 1.0
        sure = self.check("confidence", weights, records, rows, source)
        right = self.check("correctness", weights, records, rows, source)
        return weights, self._temperature(float(sure[0, -1]), float(right[0, -1]))

    def check(
        self, kind: str, weights: Array, records: Any, rows: Rows, source: _core.NoiseSource
    ) -> Array:
        """Return noisy sums of ``n_checks`` steps; the last column counts correct predictions.

        Parameters
        ----------
        kind : {"confidence", "correctness"}
            What is summed: the confidence of predictions, or whether they are correct.
        weights : ndarray of shape (n_scores, n_features + 1)
            Noisy.
        records : Records
        rows : Rows
        source : NoiseSource
        """
        scale = 1.0 / math.hypot(1.0, CHECK_CONSTANT)
        options = self.descent_options() | {
            "loss": kind,
            "smoothing": USUAL_TEMPERATURE,
            "margin": 2.0 * self.clip * WITHIN_THE_CLIP,
            "intercept": CHECK_CONSTANT,
            "row_scale": scale,
            # The weights stay, and the velocity is the sum of all noisy sums.
            "learning_rate": 0.0,
            "momentum": ALL_KEPT,
            "average_from": None,
        }
        at = weights / scale
        at[:, -1] *= self.intercept / CHECK_CONSTANT
        state = _core.Descent(**options).state() | {"weights": at}
        descent = _core.Descent(**options, state=state)
        rows.descend(records, descent, options, source, self.n_checks)
        return np.asarray(descent.state()["first"])

    def _temperature(self, sure: float, right: float) -> float:
        """Return the temperature at which mean confidence equals accuracy."""
        K = self.loss.n_classes
        # Sum over all rows, each of full confidence.
        whole = 2.0 * self.clip * WITHIN_THE_CLIP * CHECK_CONSTANT / math.hypot(1.0, CHECK_CONSTANT)
        whole *= self.n_checks * self.count
        lowest = 1.0 / K + 0.05 * (1.0 - 1.0 / K)
        highest = 1.0 - max(0.002, min(0.2, 1.0 / self.count))

        sure = min(highest, max(lowest, 0.5 + sure / whole))
        right = min(highest, max(lowest, 0.5 + right / whole))
        odds = math.log((K - 1) * sure / (1.0 - sure))
        # Change of the difference by one standard deviation of log temperature, and by the noise.
        slope = TEMPERATURE_SPREAD * sure * (1.0 - sure) * odds / ODDS_EXPONENT
        noise = self.sum.scale * math.sqrt(2.0 * self.n_checks) / whole
        right = sure - (sure - right) / (1.0 + (noise / slope) ** 2)
        factor = math.pow(odds / math.log((K - 1) * right / (1.0 - right)), ODDS_EXPONENT)
        return USUAL_TEMPERATURE * min(LARGEST_FACTOR, max(1.0 / LARGEST_FACTOR, factor))

    def descent_options(self) -> dict[str, Any]:
        """Return the settings of the compiled descent."""
        own = ("n_features", "intercept", "row_scale", "clip", "learning_rate", "average_from")
        options = self.loss.compiled | {name: getattr(self, name) for name in own}
        return options | {
            "exact_sums": sums_exactly(self.count, math.prod(self.shape)),
            "sigma": self.sum.scale,
            "grid": self.sum.grid,
            "sampling_rate": 1.0,
            "divisor": 1.0,
            "regularization": 0.0,
            "optimizer": "gd",
            "schedule": "constant",
            "horizon": self.n_steps,
            "momentum": 1.0 - 1.0 / self.pace,
            "nesterov": False,
            "beta1": 0.9,
            "beta2": 0.999,
            "stabilizer": 1e-8,
            "noise_correction": False,
            "radius": None,
            "precision": "f32",
        }


# The path that a private pipeline takes once its first release is there.


Solver = ObjectivePerturbation | OutputPerturbation


@dataclass(frozen=True, kw_only=True)
class Training:
    """Plan of the training, as decided by the first release.

    Parameters
    ----------
    whitened : bool
    straightened : bool
        Whether whitened rows keep a constant.
    rule : DescentRule or None
        Private descent.
    solver : ObjectivePerturbation, OutputPerturbation or None
        Solver with its noise, for one release; exactly one of ``rule`` and ``solver`` is given.
    n_releases : int >= 1
        Number of releases of the solver's weights; each minimiser is regularised towards the
        previous release.
    sums : tuple of NoisySum
        All noisy sums of this path, in order.
    reserved : tuple of NoisySum
        Sums charged but not released on this path. A released number chose the path, so the fit
        costs as much as its most expensive path.
    """

    whitened: bool
    rule: DescentRule | None
    solver: Solver | None
    sums: tuple[NoisySum, ...]
    n_releases: int = 1
    reserved: tuple[NoisySum, ...] = ()
    straightened: bool = False

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Events of this path, including reserved ones."""
        own = () if self.solver is None else self.n_releases * self.solver.events
        kept = tuple(part.event for part in self.reserved)
        return tuple(part.event for part in self.sums) + own + kept

    def solved(self, mapped: Any, rows: Rows, source: _core.NoiseSource) -> tuple[Array, float]:
        """Return certified weights of mapped rows, with noise in the objective or on the weights.

        With several releases, the last one is returned. The constant feature is returned too.
        """
        solver, n_threads = self.solver, rows.n_threads
        assert solver is not None
        if isinstance(solver, ObjectivePerturbation):
            own = rows.loss_weights
            noisy = solver.trained(mapped, rows.codes, source, n_threads, weights=own)
            return noisy, solver.intercept_scaling
        near = None
        for _ in range(self.n_releases):
            weights = solver.solution(
                mapped, rows.codes, source, n_threads, weights=rows.loss_weights, near=near
            )
            near = solver.release(weights, source, n_threads=n_threads)
        assert near is not None
        return near, solver.intercept_scaling


TRAINERS = ("gradient", "objective", "output")
# Shares of the squared Gaussian parameter, and of epsilon without Gaussian noise.
CENTRE_SHARE, PURE_CENTRE_SHARE = 0.07, 0.10
# Rows times mu that whitening needs for each class and feature. It makes directions that tell
# little as large as others, and with less signal most of what they bring is the noise of training.
WHITENED_SIGNAL = 2.0
# Whitened rows of at most so many features z and two classes keep a constant: they are
# (W (z - c), KEPT), scaled to norm 1. Without it a row of one feature is hardly more than the sign
# of z - c. With more features its length tells less, and with more classes the noise costs more.
MOST_STRAIGHTENED, KEPT = 2, 2.0
# Tolerances of the solvers, as in their own estimators.
OBJECTIVE_TOL, OUTPUT_TOL = 1e-5, 1e-3
# Releases of weights with noise on them: later minimisers see the noise of earlier ones, and
# correct what of it costs the rows.
WEIGHT_RELEASES = 4
# Below, noise on a grid would have more steps than the sampler draws, once the budget is spent.
SMALLEST_EXACT_MU = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class Prepared:
    """State before training: releases, and the rows mapped by them.

    Parameters
    ----------
    count : float or None
        Noisy or public number of rows.
    centre : ndarray of shape (n_features,) or None
    whitening : ndarray of shape (n_features, n_features) or None
    training : Training
        Training on the selected path.
    records : Records or None
        Mapped rows for a descent. Private.
    """

    count: float | None
    centre: Array | None
    whitening: Array | None
    training: Training
    records: Any = None


@dataclass(frozen=True, eq=False, kw_only=True)
class ReleasedPipeline(Prepared):
    """All releases of one fit.

    Parameters
    ----------
    weights : ndarray of shape (n_scores, n_columns [+ 1])
        Weights of the centred row, including whitening, or of its features; the last column is for
        the constant feature.
    scaling : float
        Constant feature; 0 for none.
    choice : KernelChoice or None
        Choice of the kernel; None in a linear pipeline.
    features : FourierFeatures or None
        Public feature map; None for weights of the rows themselves.
    temperature : float
        Divisor of the scores in probabilities.
    """

    weights: Array
    scaling: float
    choice: KernelChoice | None = None
    features: FourierFeatures | None = None
    temperature: float = 1.0


@dataclass(frozen=True, kw_only=True)
class PrivateLinear(LinearPlan):
    """Plan of all releases of one fit.

    Parameters
    ----------
    delta : float in [0, 1)
        0 for the pure recipe.
    trainer : {"gradient", "objective", "output"}
    fit_intercept : bool
    centred : bool
        Whether rows are centred (and perhaps whitened) before training.
    whiten : bool or "auto"
        "auto" decides by the released number of rows.
    public : PublicMap
        Map of raw rows to rows of norm at most 1.
    calibrated : bool
        Whether a descent also releases the temperature of its probabilities.
    lifted : bool
        Whether the training is on random features: a kernel's rule decides after the number of rows
        is released.

    Notes
    -----
    Guarantees: the releases of :meth:`training`, made in order from rows of norm at most 1, are
    together (epsilon, delta)-differentially private on either path.
    """

    kind: ClassVar[str] = "private_linear"

    trainer: str
    fit_intercept: bool
    centred: bool = True
    whiten: bool | str = "auto"
    # True: classes are weighted by their noisy numbers of rows.
    balanced: bool = False
    # Unit of the neighbouring relation: "row" or "person".
    unit: str = "row"
    # No noise depends on it.
    public: PublicMap = field(default=PublicMap(), compare=False)
    calibrated: bool = False
    lifted: bool = False

    # Derived, in the order of a fit: whether delta is 0; the Gaussian parameter of the budget, 0 if
    # there is none; the releases before the training, None for those that are not made; possible
    # whitenings, each of rows whitened before; the noisy sums of all of these, those of every path
    # first, with their events; and the Gaussian parameter that they leave to the training.
    pure: bool = field(init=False, repr=False, compare=False)
    mu: float = field(init=False, repr=False, compare=False)
    count: NoisyCount | None = field(init=False, repr=False, compare=False)
    class_counts: ClassCounts | None = field(init=False, repr=False, compare=False)
    centre: NoisyMean | None = field(init=False, repr=False, compare=False)
    whitenings: tuple[NoisyMoments, ...] = field(init=False, repr=False, compare=False)
    sums: tuple[NoisySum, ...] = field(init=False, repr=False, compare=False)
    before: tuple[PrivacyEvent, ...] = field(init=False, repr=False, compare=False)
    left: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Divide the budget between the releases; refuse one that is too small."""
        own = vars(self)
        pure = own["pure"] = self.delta == 0.0
        mu = own["mu"] = 0.0 if pure else gaussian_parameter(self.epsilon, self.delta)
        if not pure and self.noise_grid == "exact" and mu < SMALLEST_EXACT_MU:
            raise InvalidParameterError(
                f"epsilon: the Gaussian parameter of the budget is {mu!r}, expected at least "
                f"{SMALLEST_EXACT_MU:g}; use larger values of epsilon and delta, or "
                "noise_grid='float'"
            )

        own["count"] = own["class_counts"] = own["centre"] = None
        if self._counts_rows():
            share: dict[str, Any] = {"mu": None if pure else share_of(mu, COUNT_SHARE)}
            share["epsilon"] = COUNT_SHARE * self.epsilon if pure else None
            own["count"] = filled(NoisyCount, self, **share)
        if self.balanced:
            own["class_counts"] = ClassCounts.before(self, self.loss.n_classes)
        if self.centred:
            share = {"mu": None if pure else share_of(mu, CENTRE_SHARE)}
            share["epsilon"] = PURE_CENTRE_SHARE * self.epsilon if pure else None
            own["centre"] = filled(NoisyMean, self, lifted=self.public.constant > 0.0, **share)
        shares: tuple[float, ...] = ()
        wide = self.whiten == "auto" and self.n_features > MAX_FEATURES
        if self.centred and not pure and self.whiten is not False and not wide:
            n_features = self.n_features - self.public.n_added
            shares = whitening_shares(n_features, self.loss.n_classes)
        if self.trainer == "objective":
            # Noise in the objective would lose every share where rows are not whitened.
            shares = shares[-1:]
        own["whitenings"] = tuple(
            filled(NoisyMoments, self, mu=share_of(mu, one), epsilon=None, scaled=True)
            for one in shares
        )
        releases = (self.count, self.class_counts, self.centre, *self.whitenings)
        own["sums"] = tuple(map(attrgetter("sum"), filter(None, releases)))
        own["before"] = tuple(map(attrgetter("event"), self.sums))
        own["left"] = 0.0 if pure else self._left_by(self.before).mu

    def _counts_rows(self) -> bool:
        """Return whether the number of rows needs a release of its own."""
        return False

    @property
    def n_columns(self) -> int:
        """Number of columns of the training rows."""
        return self.n_features

    @property
    def whitening(self) -> NoisyMoments | None:
        """Last whitening, whose noise decides whether rows are whitened."""
        return self.whitenings[-1] if self.whitenings else None

    def _left_by(self, events: tuple[PrivacyEvent, ...]) -> GaussianEvent:
        """Return the event of all that earlier ones leave of the Gaussian parameter."""
        squares = [Fraction(event.mu) ** 2 for event in events if event.mu is not None]
        left = sqrt_down(fraction_down(Fraction(self.mu) ** 2 - sum(squares, Fraction(0))))
        return GaussianEvent(sigma=scale_for(1.0, left), sensitivity=1.0, adjacency=self.adjacency)

    @cached_property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Privacy events, which cover either path.

        Each sum, and the training after them, refuses a budget that is too small.
        """
        before = self.before
        alone = self.pure or self.trainer == "objective" or not before
        if alone and self.trainer != "gradient":
            return (*before, *self._solver(1.0).events)
        if self.trainer == "output":
            # The solver refuses invalid settings before anything is spent.
            self._solver(self.left)
        # A plan does not know the number of features: earlier whitenings count as training.
        n_first = len(before) - len(self.whitenings)
        recorded = (*before[:n_first], *before[n_first:][-1:])
        return (*recorded, self._left_by(recorded))

    def known_count(self, rows: Rows, source: _core.NoiseSource) -> float | None:
        """Return the number of rows if it is public or released without a centre."""
        return None

    def training(self, count: float | None) -> Training:
        """Return the training for the released number of rows; None without a centre."""
        whitened, sums, mu = self._path(count)
        # Few features, two classes, no kernel.
        few = self.loss.n_classes == 2 and self.n_features <= MOST_STRAIGHTENED + 1
        straightened = whitened and few and self.public.n_added > 0 and not self.lifted
        if self.trainer != "gradient":
            # A skipped whitening, if its budget cannot move to the training.
            skipped = self.whitening if self.trainer == "objective" and not whitened else None
            return Training(
                whitened=whitened,
                straightened=straightened,
                rule=None,
                solver=self._solver(mu),
                sums=sums,
                n_releases=self.n_releases,
                reserved=() if skipped is None else (skipped.sum,),
            )
        assert count is not None
        fixed_c = None
        if self.lifted:
            fixed_c = WHITENED_C if whitened else PLAIN_C
        rule = filled(
            DescentRule,
            self,
            n_features=self.n_columns,
            mu=mu,
            count=count,
            fixed_c=fixed_c,
            whitened=whitened and not self.lifted,
            straightened=straightened,
        )
        return Training(
            whitened=whitened,
            straightened=straightened,
            rule=rule,
            solver=None,
            sums=(*sums, rule.sum),
        )

    def _path(self, count: float | None) -> tuple[bool, tuple[NoisySum, ...], float]:
        """Return whether to whiten, all noisy sums before the training, and the rest for it."""
        wanted = self.whiten is True or self.worth_whitening(count or 0.0)
        whitened = bool(self.whitenings) and wanted
        if whitened or not self.whitenings:
            return whitened, self.sums, self.left
        n_first = len(self.sums) - len(self.whitenings)
        unspent = map(attrgetter("mu"), self.before[n_first:])
        return whitened, self.sums[:n_first], joined_parameter(self.left, *unspent)

    def worth_whitening(self, count: float) -> bool:
        """Return whether whitening helps with this released or public number of rows."""
        if not self.whitenings:
            return False
        signal = count * self.mu / RELATION_FACTOR[self.adjacency]
        needed = WHITENED_SIGNAL * self.loss.n_classes * self.n_features
        return signal >= needed and self.whitenings[-1].precise(count)

    def _solver(self, mu: float) -> Solver:
        """Return the objective or output perturbation with the remaining budget."""
        if self.pure:
            return self.with_budget(pure_rest(self), 0.0)
        if not self.before:
            return self.with_budget(self.epsilon, self.delta)
        if self.trainer == "output":
            each = share_of(mu, 1.0 / self.n_releases)
            return self.with_budget(*budget_of(each, self.epsilon, self.delta))
        return composed_solver(self)  # type: ignore[no-any-return]

    @property
    def n_releases(self) -> int:
        """Number of releases of noisy weights."""
        several = self.trainer == "output" and not self.pure and self.before
        return WEIGHT_RELEASES if several else 1

    def with_budget(self, own: float, delta: float) -> Solver:
        """Return the solver's mechanism with the given epsilon and delta."""
        noise, objective = "gamma" if self.pure else "gaussian", self.trainer == "objective"
        scaling = OBJECTIVE_INTERCEPT[noise] if objective else INTERCEPT
        shared: dict[str, Any] = {
            "epsilon": own,
            "delta": delta,
            "noise": noise,
            "n_features": self.n_columns,
            "data_norm": 1.0,
            "intercept_scaling": scaling if self.fit_intercept else 0.0,
            "C": None,
            "tol": OBJECTIVE_TOL if objective else OUTPUT_TOL,
        }
        if objective:
            return filled(ObjectivePerturbation, self, extra_regularization=None, **shared)
        return filled(OutputPerturbation, self, **shared)

    def n_numbers(self, n_rows: int) -> int:
        """Return the room for copies of the weights and of a kernel's frequencies; solvers more."""
        learned = self.loss.n_classes * (self.n_columns + 1) + self.n_features
        scores = 0 if self.trainer == "gradient" else self.loss.n_classes
        return COPIES * learned + n_rows * scores

    def run(self, rows: Rows, source: _core.NoiseSource) -> ReleasedPipeline:
        """Make the releases of one path; keep nothing else."""
        return self.trained(self.prepared(rows, source), rows, source)

    def prepared(self, rows: Rows, source: _core.NoiseSource) -> Prepared:
        """Make the releases before the training."""
        n_threads = rows.n_threads
        count: float | None
        centre = whitening = None
        records: Any = None
        if self.class_counts is not None:
            self.class_counts.balance(rows, source)
        if self.centre is not None or self.trainer == "gradient":
            records = rows.records(self.public)
        if self.centre is not None:
            mean = self.centre.release(records.sums(n_threads), rows.n_rows, source, n_threads)
            count, centre = mean.count, mean.mean
        else:
            count = self.known_count(rows, source)
        training = self.training(count)
        descends = training.rule is not None
        kept = KEPT if training.straightened else 0.0
        if kept and self.centre is not None:
            # The matrix centres, too.
            first = self.whitenings[-1].constant_for(mean.count)
            whitening = self.centre.straightened(mean, self.public.constant, first)
            centre = np.zeros_like(mean.mean)
            records.transform(whitening, n_threads)
        elif centre is not None and (training.whitened or descends):
            records.centre(centre, n_threads)
        for moments in self.whitenings if training.whitened else ():
            own = moments.release(records.gram(n_threads), source, n_threads, kept=kept)
            whitening = own if whitening is None else _core.row_products(own, whitening, n_threads)
            if descends or moments is not self.whitening:
                records.transform(own, n_threads)
        return Prepared(
            count=count,
            centre=centre,
            whitening=whitening,
            training=training,
            records=records if descends else None,
        )

    def trained(
        self,
        ready: Prepared,
        rows: Rows,
        source: _core.NoiseSource,
        *,
        choice: KernelChoice | None = None,
        features: FourierFeatures | None = None,
    ) -> ReleasedPipeline:
        """Return the weights of the mapped rows, or of their random features."""
        rule, matrix, temperature = ready.training.rule, ready.whitening, 1.0
        if rule is not None:
            weights, temperature = rule.descended(ready.records, rows, source)
            scaling = rule.intercept
        else:
            released = ReleasedMap(ready.centre, matrix)
            if features is not None:
                mapped = feature_rows(features, self.public, released, rows.X, rows.n_threads)
            elif sparse.issparse(rows.X) or self.public.splines is not None:
                # Sparse rows are not centred.
                mapped = self.public.apply(rows.X)
            else:
                mapped = mapped_rows(self.public, released, rows.X, np.float32)
            weights, scaling = ready.training.solved(mapped, rows, source)
        if matrix is not None and features is None:
            d = self.n_features
            weights = np.hstack([weights[:, :d] @ matrix, weights[:, d:]])
        found: dict[str, Any] = vars(ready) | {"weights": weights, "scaling": scaling}
        found |= {"choice": choice, "features": features, "records": None}
        return ReleasedPipeline(**found, temperature=temperature)

    def summary(self) -> str:
        """Return a one-line summary of public facts."""
        budget = f"epsilon = {self.epsilon:g}" if self.pure else f"mu = {self.mu:.4g}"
        return f"{self.loss.n_scores} x {self.n_features} weights by {self.trainer}, {budget}"

    def statement(self, released: Any = None, **occasion: Any) -> PrivacyStatement:
        """Return the statement of all releases of the path that was taken."""
        training: Training = released.training
        whole: dict[str, Any] = {
            "mechanism": self.kind,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "parts": tuple(map(attrgetter("part"), training.sums)),
            "reserved": tuple(map(attrgetter("part"), training.reserved)),
        }
        if training.solver is None:
            facts = {"loss": self.loss.name, "adjacency": self.adjacency} | whole | occasion
            return PrivacyStatement(**facts)
        solved = training.solver.statement(released, **occasion)
        if not training.sums:
            # The solver's own release only.
            return solved
        assert solved.noise is not None
        noise = dataclasses.replace(solved.noise, n_releases=training.n_releases)
        return dataclasses.replace(solved, noise=noise, **whole)


# The private pipeline of a kernel classifier: the linear one, trained on random features.
#
# Features of norm 1 make the noise in a score the same whatever their number, so a kernel costs
# signal only, and no release in addition to those of :mod:`dpsvm_fast.mechanisms.pipeline`. With
# :math:`\hat n` the released number of rows, :math:`\mu` the parameter of the training (halved
# under ``replace_one``) and K classes,
#
# .. math:: q = \hat n \mu / B, \qquad B = \max(K, d) \text{ for whitened rows, else } K
#
# measures the signal of one class against the noise. The model stays linear where q < 40, or
# where there are fewer than 10 unwhitened rows per feature: a kernel would fit noise there.
# Otherwise :math:`\gamma = \sqrt{q / 1000}` between 1/4 and 1, or 1/2 for whitened rows, which
# are far from each other in all directions; for gamma near 0 the kernel without its constant part
# is the linear one. Every choice is a function of public numbers and of
# released ones (docs/proofs/random_features.md, "Choice of the kernel" and "Number of rows").
#
# Gamma noise of rate :math:`\epsilon'` on p weights has the root mean square :math:`\sqrt{p + 1}
# / \epsilon'` in each, so without Gaussian noise :math:`\epsilon' / \sqrt{p + 1}` takes the place
# of :math:`\mu`. Its noise does grow with the number of features, hence their default is small,
# and too few of them cannot do what the linear model does: that needs twenty a dimension.


# Kernels that need no random features: no choice depends on the released number of rows.
UNLIFTED = ("additive", "linear")
# Share of the squared Gaussian parameter, or of epsilon, for the number of rows where no centre
# brings it. Where the rule turns to a kernel its noise is then a tenth of the number.
COUNT_SHARE = 0.02
# The rule.
SMALLEST_SIGNAL = 40.0

ROWS_A_FEATURE = 10.0
# Ten a feature lose 0.03 of accuracy where classes are linear, twenty up to 0.005.
COMPONENTS_A_FEATURE = 20.0

SIGNAL_OF_UNIT_GAMMA = 1000.0

SMALLEST_GAMMA, LARGEST_GAMMA, LARGEST_WHITENED_GAMMA = 0.25, 1.0, 0.5
# low_memory="auto": features are kept if all of them take at most this many bytes, and are
# computed anew in every pass beyond.
LARGEST_STORE = 1 << 28
BYTES_A_NUMBER = 4
# c of the descent on features.
WHITENED_C, PLAIN_C = 0.5, 0.7


@dataclass(frozen=True, kw_only=True)
class NoisyCount(SumRelease):
    """Release of the number of rows, which changes by 1 if a row is added or removed."""

    @cached_property
    def sum(self) -> NoisySum:
        """Noisy sum with its sensitivity; Gamma noise on one number is Laplace noise."""
        facts: dict[str, Any] = {"clip_norm": 1.0, "relation_factor": 1.0, "shape": (1,)}
        return self.of_multiples(1.0, name="count", **facts)

    def release(self, n_rows: float, source: _core.NoiseSource, n_threads: int) -> float:
        """Return the noisy number of rows, at least 1."""
        noisy = self.sum.release(np.array([float(n_rows)]), source, n_threads)
        return max(1.0, float(noisy[0]))


@dataclass(frozen=True, kw_only=True)
class KernelChoice:
    """Choice of the kernel rule before training.

    Parameters
    ----------
    kernel : {"rbf", "laplacian", "additive", "linear"}
    gamma : float > 0 or None
        None without random features.
    signal : float or None
        Signal q; None if the number of rows is unknown.
    """

    kernel: str
    gamma: float | None
    signal: float | None


@dataclass(frozen=True, kw_only=True)
class PrivateKernel(PrivateLinear):
    """Plan of all releases of one fit.

    Parameters
    ----------
    kernel : {"auto", "rbf", "laplacian", "additive", "linear"}
        "additive" trains a linear model of the functions of ``public``.
    gamma : float > 0 or "auto"
    n_components : int >= 1
        Number D of frequencies.
    orthogonal : bool
    normalize : bool
        Whether rows have norm 1. Otherwise they have norm at most 1 and are never centred.
    data_norm : float > 0
        Norm to which raw rows are clipped and by which they are divided, without ``normalize``.
    low_memory : bool or "auto"
        Whether features are recomputed in every pass of a descent; never changes the result.

    Notes
    -----
    Guarantees: those of :class:`PrivateLinear`. The features of a row depend only on the row and on
    public and released numbers, and have norm at most 1.
    """

    kind: ClassVar[str] = "private_kernel"

    kernel: str = "auto"
    gamma: float | str = "auto"
    n_components: int = 1000
    orthogonal: bool = True
    normalize: bool = True
    data_norm: float = 1.0
    low_memory: bool | str = "auto"

    def __post_init__(self) -> None:
        """Refuse settings whose noise would depend on the rule's choice; divide the budget."""
        chosen = self.kernel == "auto" and self.trainer == "objective" and self.delta > 0.0
        accepted = (
            "'rbf', 'laplacian' or 'linear' with mechanism='objective' and delta > 0, whose "
            "privacy loss would depend on the choice"
        )
        refuse(self, ("kernel", chosen, accepted))
        super().__post_init__()

    @property
    def n_columns(self) -> int:
        """Number of columns of the training rows."""
        return 2 * self.n_components if self.lifted else self.n_features

    def _counts_rows(self) -> bool:
        """Return whether a choice needs the number of rows and no centre releases it."""
        chosen = self.kernel not in UNLIFTED and "auto" in (self.kernel, self.gamma)
        needed = self.trainer == "gradient" or chosen
        return needed and not self.centred and self.adjacency == "add_remove"

    @cached_property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Privacy events; settings without valid noise for the features are refused."""
        own = super().events
        if self.kernel in UNLIFTED or self.lifted:
            return own
        wide = dataclasses.replace(self, lifted=True).events
        return own if self.kernel == "auto" else wide

    def known_count(self, rows: Rows, source: _core.NoiseSource) -> float | None:
        """Return the number of rows if it is public or released without a centre."""
        if self.adjacency == "replace_one":
            return float(rows.n_rows)
        released = self.count
        return None if released is None else released.release(rows.n_rows, source, rows.n_threads)

    def training(self, count: float | None) -> Training:
        """Return the training for the released or public number of rows."""
        if self.lifted or self.choice(count).gamma is None:
            return super().training(count)
        return dataclasses.replace(self, lifted=True).training(count)

    def choice(self, count: float | None) -> KernelChoice:
        """Return the kernel and its gamma, from public numbers and the released ``count``."""
        whitened, _, mu = self._path(count)
        signal = None if count is None else self._signal(count, mu, whitened=whitened)
        kernel = self.kernel
        if kernel == "auto":
            kernel = "rbf" if self._worthwhile(count, signal, whitened=whitened) else "linear"
        if kernel in UNLIFTED:
            return KernelChoice(kernel=kernel, gamma=None, signal=signal)
        if self.gamma != "auto":
            return KernelChoice(kernel=kernel, gamma=float(self.gamma), signal=signal)
        assert signal is not None
        gamma = math.sqrt(signal / SIGNAL_OF_UNIT_GAMMA)
        largest = LARGEST_WHITENED_GAMMA if whitened else LARGEST_GAMMA
        gamma = min(largest, max(SMALLEST_GAMMA, gamma))
        if kernel == "laplacian":
            # Rows of norm 1 that are nearly orthogonal have a squared distance of 2 and about
            # sqrt(4 d / pi) in the sum of absolute differences: there both kernels agree.
            gamma *= math.sqrt(math.pi / self.n_features)
        return KernelChoice(kernel=kernel, gamma=gamma, signal=signal)

    def _signal(self, count: float, mu: float, *, whitened: bool) -> float:
        """Return the signal q of the rule."""
        if self.pure:
            n_weights = self.loss.n_scores * (2 * self.n_components + self.fit_intercept)
            mu = pure_rest(self) / math.sqrt(n_weights + 1.0)
        K = self.loss.n_classes
        scale = max(K, self.n_features) if whitened else K
        return count * mu / RELATION_FACTOR[self.adjacency] / scale

    def _worthwhile(self, count: float | None, signal: float | None, *, whitened: bool) -> bool:
        """Return whether a kernel is expected to beat the linear model."""
        if count is None or signal is None or signal < SMALLEST_SIGNAL:
            return False
        if self.pure and self.n_components < COMPONENTS_A_FEATURE * self.n_features:
            return False
        return whitened or count >= ROWS_A_FEATURE * self.n_features

    def run(self, rows: Rows, source: _core.NoiseSource) -> ReleasedPipeline:
        """Make the releases of one path; keep nothing else."""
        ready = self.prepared(rows, source)
        choice, features = self.choice(ready.count), None
        if choice.gamma is not None:
            # Drawn only where it is used: a linear model is then that of the linear pipeline.
            features = self.features(choice, source.public_seed())
        if features is not None and ready.training.rule is not None:
            size = BYTES_A_NUMBER * 2 * features.n_components * max(rows.n_here, rows.n_rows)
            automatic = self.low_memory == "auto"
            stored = size <= LARGEST_STORE if automatic else not self.low_memory
            rows.lift(ready.records, features, stored=stored)
        return self.trained(ready, rows, source, choice=choice, features=features)

    def features(self, choice: KernelChoice, seed: int) -> FourierFeatures | None:
        """Return the public feature map for a choice; None for the linear model.

        Parameters
        ----------
        choice : KernelChoice
        seed : int
            Public seed, independent of the data.
        """
        if choice.gamma is None:
            return None
        return filled(
            FourierFeatures,
            choice,
            self,
            structure=structure_of(choice.kernel, self.n_features, orthogonal=self.orthogonal),
            centre="sphere" if self.normalize else "ball",
            seed=seed,
        )

    def statement(self, released: Any = None, **occasion: Any) -> PrivacyStatement:
        """Return the statement of all releases of the path that was taken, with its features."""
        if released.features is not None:
            known, seed = occasion["occasion"], released.features.seed
            occasion["occasion"] = dataclasses.replace(known, feature_seed=seed)
        return super().statement(released, **occasion)

    def summary(self) -> str:
        """Return a one-line summary of public facts."""
        features = f"{2 * self.n_components} features where it is not linear"
        return f"{super().summary()}; kernel {self.kernel}, {features}"
