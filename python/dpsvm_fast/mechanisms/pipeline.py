"""The whole private training of a linear classifier: centre, whitening, training, one budget.

Proved in docs/proofs/auto_pipeline.md. With delta > 0 all noise of the standard recipe is Gaussian,
and Gaussian mechanisms compose exactly: the squares of their parameters add up, also where later
ones are chosen by the results of earlier ones, as long as the sum is fixed (sections "Whitening"
and "Composition"). Here it is the same on both paths: what the whitening does not spend, because
too few rows would drown in its noise, stays with the training.

Rows of few features are whitened three times, each time by a release of what is left to whiten.

Training by noise in the objective has another privacy law, so nothing can move between its budget
and others: a share reserved for whitening that does not happen is lost. With delta = 0 epsilons add
up and there is no whitening.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from dpsvm_fast import _core
from dpsvm_fast.accounting import composed_delta, gaussian_epsilon
from dpsvm_fast.certificates import GaussianEvent, PrivacyEvent, PrivacyStatement, PureEvent
from dpsvm_fast.certificates.words import CLIPPED, FLOATING_POINT_CAVEAT, RUNNING_TIME_CAVEAT
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.moments import NoisyMean, NoisyMoments, releases_of, whitening_shares
from dpsvm_fast.mechanisms.noise import (
    MOST_FEATURES,
    RELATION_FACTOR,
    NoisySum,
    budget_of,
    epsilon_left,
    gaussian_parameter,
    grid_below,
    joined_parameter,
    scale_for,
    share_of,
)
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation, automatic_intercept_scaling
from dpsvm_fast.mechanisms.output import OutputPerturbation, automatic_C
from dpsvm_fast.rounding import add_down, add_up, div_down, fraction_down, sqrt_down

# Full-batch private gradient descent with every number from public facts and noisy counts.
#
# With R the clip norm, :math:`\mu` the Gaussian parameter of all steps together (halved under
# ``replace_one``) and :math:`\hat n` a released number of rows of d features:
#
# .. math::
#     T = \lceil \hat n \mu / 300 \rceil \text{ in } [100, 500], \quad
#     c = \min(0.7, \max(0.35, \sqrt{6 d / \hat n})), \quad
#     \lambda = c R / \mu, \quad \eta = 1 / (\lambda T)
#
# on the sum of clipped gradients, without weight decay, and the mean of the last
# :math:`0.0875\, T / c` iterates, an eighth to a quarter of them: with many features a row noise
# dominates and every step should count in full, with few the iterates oscillate and averaging calms
# them. Whitened rows take c down to 0.25 and the mean of the last :math:`0.15\, T / c` iterates:
# they
# learn all directions at one pace, so where rows are many most of the path is noise around one
# place. Noise of standard deviation :math:`\sqrt T R / \mu` in the sum moves W by
# :math:`1 / (c \sqrt T)` a step whatever the data; the whole step :math:`1 / \lambda` acts as
# regularisation. T costs time, not privacy: once steps are small the noise of the result does not
# depend on it. R is far below the largest gradient: a sum of clipped gradients keeps its direction
# while the noise shrinks with R.


# R for scores of three or more classes. Between 0.1 and 0.5 the accuracy hardly changes.
CLIP = 0.25

INTERCEPT = 0.2

FEWEST_STEPS, MOST_STEPS = 100, 500

ROWS_A_STEP = 300.0

SMALLEST_C, LARGEST_C = 0.35, 0.7

FEATURES_A_ROW = 6.0
# Of the iterates, at the smallest c; inversely proportional to c.
AVERAGED_SHARE = 0.25
# For whitened rows.
SMALLEST_WHITENED_C, AVERAGED_WHITENED_SHARE = 0.25, 0.6
# Rounding to the grid costs at most this share of the clip norm, unless the noise would then have
# too many steps.
GRID_SHARE = 1e-6


@dataclass(frozen=True, kw_only=True)
class DescentRule:
    """One private training run, chosen by the rule above.

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
        Replaces the rule for c; public, or chosen by what was released.
    whitened : bool
        Whether the rows themselves, and not features of them, are whitened.
    """

    loss: Loss
    n_features: int
    fit_intercept: bool
    adjacency: str
    noise_grid: str
    mu: float
    count: float
    fixed_c: float | None = None
    whitened: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Number of scores, and of features with the constant one."""
        return (self.loss.n_scores, self.n_features + self.fit_intercept)

    @property
    def _unit(self) -> float:
        """The rule is about K scores; the one score of two classes is the difference of theirs.

        Two scores move by opposite gradients, of norm sqrt(2) times that of the one score.
        Clipping that at R / sqrt(2) and dividing c by sqrt(2) gives the same model.
        """
        return 1.0 if self.loss.n_scores > 1 else math.sqrt(0.5)

    @property
    def clip(self) -> float:
        """R: bound of the norm of one record's gradient."""
        return CLIP * self._unit

    @property
    def _own_mu(self) -> float:
        """The parameter at which one record would be protected."""
        return self.mu / RELATION_FACTOR[self.adjacency]

    @cached_property
    def n_steps(self) -> int:
        """T."""
        wanted = min(self.count * self._own_mu / ROWS_A_STEP, float(MOST_STEPS))
        return max(FEWEST_STEPS, math.ceil(wanted))

    @property
    def c(self) -> float:
        """The factor c of lambda, larger for more features a row."""
        if self.fixed_c is not None:
            return self.fixed_c
        by_shape = math.sqrt(FEATURES_A_ROW * self.n_features / self.count)
        return min(LARGEST_C, max(self._smallest_c, by_shape))

    @property
    def _smallest_c(self) -> float:
        return SMALLEST_WHITENED_C if self.whitened else SMALLEST_C

    @property
    def regularization(self) -> float:
        """Lambda."""
        return self.c * self._unit * self.clip / self._own_mu

    @property
    def learning_rate(self) -> float:
        """Eta."""
        return 1.0 / (self.regularization * self.n_steps)

    @property
    def average_from(self) -> int:
        """The number, from 0, of the first step whose iterate is averaged."""
        at_smallest = AVERAGED_WHITENED_SHARE if self.whitened else AVERAGED_SHARE
        share = at_smallest * self._smallest_c / self.c
        return self.n_steps - math.ceil(share * self.n_steps)

    @property
    def row_scale(self) -> float:
        """Brings rows of norm 1 with their constant feature to norm 1."""
        return 1.0 / math.hypot(1.0, self.intercept)

    @property
    def intercept(self) -> float:
        """The constant feature; 0 for none."""
        return INTERCEPT if self.fit_intercept else 0.0

    @cached_property
    def sum(self) -> NoisySum:
        """The noisy sums of clipped gradients and what their noise covers."""
        n_weights = math.prod(self.shape)
        factor = float(RELATION_FACTOR[self.adjacency])
        grid = None
        if self.noise_grid == "exact":
            fine = GRID_SHARE * self.clip / math.sqrt(n_weights)
            grid = grid_below(fine, 2.0 * math.sqrt(self.n_steps) * factor * self.clip / self.mu)
        moved = _core.clipped_sum_distance(self.clip, n_weights, grid)
        return NoisySum(
            name="training",
            what=CLIPPED,
            adjacency=self.adjacency,
            clip_norm=self.clip,
            relation_factor=factor,
            shape=self.shape,
            mu=self.mu,
            grid=grid,
            rounding=max(0.0, add_up(moved, -self.clip)),
            n_steps=self.n_steps,
        )

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in one released weight where gradients do not answer it.

        Each step moves a weight by eta times the noise; the mean of the iterates after steps
        k .. T-1 holds the steps before k in full and the others in falling shares.
        """
        k, T = self.average_from, self.n_steps
        shares = sum(((T - t) / (T - k)) ** 2 for t in range(k, T))
        return self.learning_rate * self.sum.scale * math.sqrt(k + shares)

    def descent(self) -> _core.Descent:
        """The compiled run."""
        return _core.Descent(**self.descent_options())

    def descent_options(self) -> dict[str, Any]:
        """Settings of the compiled run."""
        kernel, smoothing, margin = self.loss.kernel
        return {
            "loss": kernel,
            "n_scores": self.loss.n_scores,
            "smoothing": smoothing,
            "margin": margin,
            "n_features": self.n_features,
            "intercept": self.intercept,
            "row_scale": self.row_scale,
            "clip": self.clip,
            "sigma": self.sum.scale,
            "grid": self.sum.grid,
            "sampling_rate": 1.0,
            "divisor": 1.0,
            "regularization": 0.0,
            "optimizer": "gd",
            "learning_rate": self.learning_rate,
            "schedule": "constant",
            "horizon": self.n_steps,
            "momentum": 0.0,
            "nesterov": False,
            "beta1": 0.9,
            "beta2": 0.999,
            "stabilizer": 1e-8,
            "noise_correction": False,
            "average_from": self.average_from,
            "radius": None,
            "precision": "f32",
        }


# The path that a private pipeline takes once its first release is there.


Solver = ObjectivePerturbation | OutputPerturbation


@dataclass(frozen=True, kw_only=True)
class Training:
    """What is done after the first release, as that decides.

    Parameters
    ----------
    whitened : bool
    rule : DescentRule or None
        The private descent.
    solver : ObjectivePerturbation, OutputPerturbation or None
        The solver with its noise, of one release; exactly one of the two.
    n_releases : int >= 1
        How often the solver's weights are released: each minimiser is regularised towards the
        release before it.
    sums : tuple of NoisySum
        All noisy sums of this path, in their order.
    reserved : tuple of NoisySum
        Paid for though this path does not release it. A released number chose the path, so what
        the fit costs is what its dearest path does.
    """

    whitened: bool
    rule: DescentRule | None
    solver: Solver | None
    sums: tuple[NoisySum, ...]
    n_releases: int = 1
    reserved: tuple[NoisySum, ...] = ()

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Everything that is released on this path, and what is reserved."""
        own = () if self.solver is None else self.n_releases * self.solver.events
        kept = tuple(part.event for part in self.reserved)
        return tuple(part.event for part in self.sums) + own + kept


# What is promised about all releases of a pipeline together, on the path that was taken.


def path_statement(
    mechanism: PrivateLinear,
    training: Training,
    facts: dict[str, Any],
    caveats: tuple[str, ...],
) -> PrivacyStatement:
    """The statement about one path.

    Parameters
    ----------
    mechanism : PrivateLinear
    training : Training
        The path.
    facts : dict
        Fields about the fit, as they are.
    caveats : tuple of str
        Beside those of the mechanism.
    """
    whole: dict[str, Any] = {
        "mechanism": mechanism.kind,
        "epsilon": mechanism.epsilon,
        "delta": mechanism.delta,
        "parts": tuple(part.part for part in training.sums),
        "reserved": tuple(part.part for part in training.reserved),
    }
    if training.solver is not None:
        return _of_solver(training.solver, training, whole, facts | {"caveats": caveats})
    own_caveats: tuple[str, ...] = (RUNNING_TIME_CAVEAT,)
    if mechanism.noise_grid == "float":
        own_caveats += (FLOATING_POINT_CAVEAT,)
    return PrivacyStatement(
        loss=mechanism.loss.name,
        adjacency=mechanism.adjacency,
        caveats=own_caveats + caveats,
        **facts,
        **whole,
    )


def _of_solver(
    solver: Solver, training: Training, whole: dict[str, Any], facts: dict[str, Any]
) -> PrivacyStatement:
    """That of the solver, about the noisy sums before it too."""
    own = solver.statement(**facts)
    if not training.sums:
        # Nothing but the solver's own release.
        return own
    assert own.noise is not None
    noise = dataclasses.replace(own.noise, n_releases=training.n_releases)
    return dataclasses.replace(own, noise=noise, **whole)


TRAINERS = ("gradient", "objective", "output")
# Shares of the squared Gaussian parameter, and of epsilon without Gaussian noise.
CENTRE_SHARE, PURE_CENTRE_SHARE = 0.07, 0.10
# Of the solvers, as in the estimators of their own.
OBJECTIVE_TOL, OUTPUT_TOL = 1e-5, 1e-3
# Releases of weights with noise on them: later minimisers see the noise of earlier ones, and
# correct what of it costs the rows.
WEIGHT_RELEASES = 4
# Below, noise on a grid would have more steps than the sampler draws, once the budget is spent.
SMALLEST_EXACT_MU = 1e-9


@dataclass(frozen=True, kw_only=True)
class PrivateLinear:
    """All releases of one fit, known in full before any data are read.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1)
        0 for the pure recipe.
    adjacency : {"add_remove", "replace_one"}
    trainer : {"gradient", "objective", "output"}
    noise_grid : {"exact", "float"}
    loss : Loss
        Of the training.
    n_features : int
    fit_intercept : bool
    centred : bool
        Whether rows are centred (and perhaps whitened) before they are trained on.
    whiten : bool or "auto"
        "auto" decides by the released number of rows.

    Notes
    -----
    Guarantees: the releases that :meth:`training` names, made in their order from rows of norm at
    most 1, are (epsilon, delta)-differentially private together, on either path.
    """

    kind: ClassVar[str] = "private_linear"

    epsilon: float
    delta: float
    adjacency: str
    trainer: str
    noise_grid: str
    loss: Loss
    n_features: int
    fit_intercept: bool
    centred: bool = True
    whiten: bool | str = "auto"

    def __post_init__(self) -> None:
        """Refuses budgets whose noise would not be a positive finite number."""
        if self.pure:
            return
        if self.noise_grid == "exact" and self.mu < SMALLEST_EXACT_MU:
            raise InvalidParameterError(
                f"epsilon: the Gaussian parameter of the budget is {self.mu!r}, expected at least "
                f"{SMALLEST_EXACT_MU:g}; use larger values of epsilon and delta, or "
                "noise_grid='float'"
            )
        assert self._rest.mu > 0.0

    @property
    def pure(self) -> bool:
        """Whether delta is 0."""
        return self.delta == 0.0

    @property
    def score_loss(self) -> Loss:
        """The loss as a function of the scores."""
        return self.loss

    @property
    def n_columns(self) -> int:
        """Number of columns of the rows that are trained on."""
        return self.n_features

    @cached_property
    def mu(self) -> float:
        """Gaussian parameter of the whole budget."""
        return gaussian_parameter(self.epsilon, self.delta)

    @cached_property
    def centre(self) -> NoisyMean | None:
        """The first release."""
        if not self.centred:
            return None
        return NoisyMean(
            n_features=self.n_features,
            adjacency=self.adjacency,
            noise_grid=self.noise_grid,
            mu=None if self.pure else share_of(self.mu, CENTRE_SHARE),
            epsilon=PURE_CENTRE_SHARE * self.epsilon if self.pure else None,
        )

    @cached_property
    def whitenings(self) -> tuple[NoisyMoments, ...]:
        """The releases after the first, where they may happen: each of rows whitened before."""
        wide = self.whiten == "auto" and self.n_features > MOST_FEATURES
        if not self.centred or self.pure or self.whiten is False or wide:
            return ()
        shares = whitening_shares(self.n_features, self.loss.n_classes)
        # Noise in the objective would lose every share where rows are not whitened.
        shares = shares[-1:] if self.trainer == "objective" else shares
        return releases_of(shares, self.mu, self.n_features, self.adjacency, self.noise_grid)

    @property
    def whitening(self) -> NoisyMoments | None:
        """The last of them, whose noise decides whether there are any."""
        return self.whitenings[-1] if self.whitenings else None

    @property
    def _before(self) -> tuple[PrivacyEvent, ...]:
        """What a ledger is charged before the training."""
        centre = () if self.centre is None else (self.centre.event,)
        return (*centre, *(moments.event for moments in self.whitenings))

    @cached_property
    def _rest(self) -> GaussianEvent:
        """What all earlier releases leave, at sensitivity 1."""
        return self._left_by(self._before)

    def _left_by(self, events: tuple[PrivacyEvent, ...]) -> GaussianEvent:
        mus = (Fraction(event.mu) for event in events if isinstance(event, GaussianEvent))
        spent = sum((mu**2 for mu in mus), Fraction(0))
        left = sqrt_down(fraction_down(Fraction(self.mu) ** 2 - spent))
        return GaussianEvent(sigma=scale_for(1.0, left), sensitivity=1.0, adjacency=self.adjacency)

    @property
    def _pure_rest(self) -> float:
        """What all earlier releases leave of a pure epsilon."""
        spent = sum(event.epsilon for event in self._before if isinstance(event, PureEvent))
        return add_down(self.epsilon, -spent)

    @cached_property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What a ledger records: it covers the releases of either path."""
        own = self.pure or self.trainer == "objective" or not self._before
        if own and self.trainer != "gradient":
            return (*self._before, *self._solver(1.0).events)
        if self.trainer == "output":
            # What it refuses is refused before anything is spent.
            self._solver(self._rest.mu)
        # A plan does not know the number of features: earlier whitenings count as training.
        earlier = [moments.event for moments in self.whitenings[:-1]]
        recorded = tuple(event for event in self._before if event not in earlier)
        return (*recorded, self._left_by(recorded))

    def known_count(self, n_rows: int, source: _core.NoiseSource, n_threads: int) -> float | None:
        """Number of rows where it is public, or released apart from a centre."""
        return None

    def training(self, count: float | None) -> Training:
        """The path that follows from the released number of rows; None without a centre."""
        whitened, sums, mu = self._path(count)
        return self._training(count, sums, mu, whitened=whitened)

    def _path(self, count: float | None) -> tuple[bool, tuple[NoisySum, ...], float]:
        """Whether to whiten, all noisy sums before the training, and what is left for it."""
        centre, moments = self.centre, self.whitening
        wanted = self.whiten is True or (moments is not None and moments.worthwhile(count or 0.0))
        whitened = moments is not None and wanted
        sums: tuple[NoisySum, ...] = () if centre is None else (centre.sum,)
        mu = 0.0 if self.pure else self._rest.mu
        if whitened:
            return whitened, (*sums, *(each.sum for each in self.whitenings)), mu
        events = (each.event for each in self.whitenings)
        unspent = [event.mu for event in events if isinstance(event, GaussianEvent)]
        return whitened, sums, joined_parameter(mu, *unspent) if unspent else mu

    def _training(
        self,
        count: float | None,
        sums: tuple[NoisySum, ...],
        mu: float,
        *,
        whitened: bool,
        fixed_c: float | None = None,
    ) -> Training:
        """The training that follows the noisy ``sums``."""
        if self.trainer != "gradient":
            solver, reserved = self._solver(mu), () if whitened else self._reserved
            return Training(
                whitened=whitened,
                rule=None,
                solver=solver,
                sums=sums,
                n_releases=self.n_releases,
                reserved=reserved,
            )
        assert count is not None
        rule = DescentRule(
            loss=self.loss,
            n_features=self.n_columns,
            fit_intercept=self.fit_intercept,
            adjacency=self.adjacency,
            noise_grid=self.noise_grid,
            mu=mu,
            count=count,
            fixed_c=fixed_c,
            # A fixed c is that of features, whatever became of the rows.
            whitened=whitened and fixed_c is None,
        )
        return Training(whitened=whitened, rule=rule, solver=None, sums=(*sums, rule.sum))

    @property
    def _reserved(self) -> tuple[NoisySum, ...]:
        """The whitening that does not happen, where its budget cannot move to the training."""
        skipped = self.whitening if self.trainer == "objective" else None
        return () if skipped is None else (skipped.sum,)

    def _solver(self, mu: float) -> Solver:
        """Perturbation of the objective or of the weights, for what is left."""
        if self.pure:
            return self._with_budget(self._pure_rest, 0.0)
        if not self._before:
            return self._with_budget(self.epsilon, self.delta)
        if self.trainer == "output":
            each = share_of(mu, 1.0 / self.n_releases)
            return self._with_budget(*budget_of(each, self.epsilon, self.delta))
        return _objective_solver(self)

    @property
    def n_releases(self) -> int:
        """How often noisy weights are released."""
        several = self.trainer == "output" and not self.pure and self._before
        return WEIGHT_RELEASES if several else 1

    def _with_budget(self, own: float, delta: float) -> Solver:
        """The solver's mechanism with an epsilon and a delta of its own."""
        noise = "gamma" if self.pure else "gaussian"
        shared: dict[str, Any] = {
            "epsilon": own,
            "delta": delta,
            "adjacency": self.adjacency,
            "noise": noise,
        }
        if self.trainer == "objective":
            scaling = automatic_intercept_scaling(1.0, noise) if self.fit_intercept else 0.0
            return ObjectivePerturbation(
                **shared,
                noise_grid=self.noise_grid,
                loss=self.loss,
                n_features=self.n_columns,
                data_norm=1.0,
                intercept_scaling=scaling,
                C=None,
                extra_regularization=None,
                tol=OBJECTIVE_TOL,
            )
        return self._output(shared)

    def _output(self, shared: dict[str, Any]) -> OutputPerturbation:
        """Noise on the weights, with the estimator's own rule for C."""
        scaling = INTERCEPT if self.fit_intercept else 0.0
        C = automatic_C(
            **shared,
            loss=self.loss.name,
            n_weights=self.loss.n_scores * (self.n_columns + self.fit_intercept),
            row_norm=(1.0 + scaling**2) ** 0.5,
            n_classes=self.loss.n_classes,
        )
        return OutputPerturbation(
            **shared,
            noise_grid=self.noise_grid,
            loss=self.loss.name,
            n_classes=self.loss.n_classes,
            n_features=self.n_columns,
            data_norm=1.0,
            intercept_scaling=scaling,
            C=C,
            tol=OUTPUT_TOL,
            smoothing=self.loss.smoothing,
            margin=self.loss.margin,
        )

    def summary(self) -> str:
        """Public facts in one line."""
        budget = f"epsilon = {self.epsilon:g}" if self.pure else f"mu = {self.mu:.4g}"
        return f"{self.loss.n_scores} x {self.n_features} weights by {self.trainer}, {budget}"

    def statement(
        self,
        training: Training,
        *,
        library_version: str,
        random_source: str = "operating_system",
        assumed_public: tuple[str, ...] = (),
        caveats: tuple[str, ...] = (),
        not_private_reasons: tuple[str, ...] = (),
    ) -> PrivacyStatement:
        """What is promised about all releases of one path together."""
        facts: dict[str, Any] = {
            "library_version": library_version,
            "random_source": random_source,
            "assumed_public": assumed_public,
            "not_private_reasons": not_private_reasons,
        }
        return path_statement(self, training, facts, caveats)


@lru_cache(maxsize=256)
def _objective_solver(mechanism: PrivateLinear) -> Solver:
    """Noise in the objective for what exact composition leaves to it."""
    # The law hardly knows the number of features: the search is remembered without it.
    own = _objective_epsilon(dataclasses.replace(mechanism, n_features=1))
    while True:
        solver = mechanism._with_budget(own, mechanism.delta)
        together = (*mechanism._before, *solver.events)
        if composed_delta(together, mechanism.epsilon) <= mechanism.delta:
            return solver
        own *= 1.0 - 1e-6


@lru_cache(maxsize=256)
def _objective_epsilon(mechanism: PrivateLinear) -> float:
    """Epsilon that exact composition leaves to the noise in the objective."""
    return epsilon_left(
        mechanism.epsilon,
        mechanism.delta,
        mechanism._before,
        lambda own: mechanism._with_budget(own, mechanism.delta).events,
        # What Gaussian noise would be left; other laws leave a little less.
        gaussian_epsilon(mechanism.delta, div_down(1.0, mechanism._rest.mu)),
    )
