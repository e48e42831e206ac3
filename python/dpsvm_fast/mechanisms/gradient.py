r"""Gradient perturbation: descend along clipped, summed and noisy gradients; release the weights.

Proved in docs/proofs/gradient_perturbation.md. Rows are divided by the bound of their norm. In each
of T steps every record joins with probability q; its gradient :math:`a x^\top` (a in the scores) is
scaled down to norm R; the sum over the records that joined gets Gaussian noise; and with a declared
number v and a penalty lambda

.. math:: g = \tfrac1v (S + N(0, \sigma^2 I)) + \tfrac{q \lambda}{v} W

is where W goes, by gradient descent with momentum or by Adam. On average g is q / v times the
gradient of :math:`\sum_i \phi_{y_i}(W x_i) + \tfrac\lambda2 \|W\|_F^2`: with
:math:`\lambda = 1 / (C \kappa^2)`, kappa the bound by which rows were divided, C multiplies the sum
of losses as in scikit-learn. The penalty is no record's gradient and is neither clipped nor noisy.

Every iterate is a function of noisy sums, so are their means and the moments of Adam. Where only
the last iterate of plain descent is released, less noise may do.

Every number is rounded towards more noise. All of it is public: nothing here reads data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpsvm_fast._rounding import hypot_up
from dpsvm_fast.accounting import PrivacyEvent, PrivacyStatement, composed_epsilon
from dpsvm_fast.accounting.words import (
    FLOATING_POINT_CAVEAT,
    MAX_SAMPLES_CAVEAT,
    RUNNING_TIME_CAVEAT,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms._gradient_defaults import (
    automatic_intercept_scaling,
    automatic_learning_rate,
)
from dpsvm_fast.mechanisms._gradient_noise import ClippedSums
from dpsvm_fast.mechanisms._gradient_settings import GradientSettings
from dpsvm_fast.mechanisms._last_iterate import LastIterateSums
from dpsvm_fast.mechanisms._settings import check_range, check_row_norm

__all__ = ["GradientPerturbation", "automatic_intercept_scaling"]

# Adam's stabilizer; with the noise's variance subtracted from the second moment, what is left
# fluctuates by a few hundredths of it, and its root is meaningless below this share of the noise.
STABILIZER, CORRECTED_FLOOR = 1e-8, 0.5
# Beyond these a step would leave single precision.
LARGEST_INTERCEPT = 1e6
SMALLEST_CLIP, LARGEST_CLIP = 1e-20, 1e20


@dataclass(frozen=True, kw_only=True)
class GradientPerturbation(GradientSettings):
    r"""One run of noisy descent, known in full before any data are read.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in (0, 1)
    adjacency : {"add_remove", "replace_one"}
    noise_grid : {"exact", "float"}
        Exact sampling of rounded Gaussians on a power-of-two grid, or floating-point noise.
    loss : Loss
        A smooth loss with its number of classes.
    n_features : int
    data_norm : float > 0
        Public bound of the rows' L2 norm, by which they are divided.
    intercept_scaling : float >= 0
        Constant feature, divided like the others; 0 for none.
    C : float > 0 or None
        Multiplies the sum of the losses; None for no penalty on the weights.
    optimizer : {"gd", "sgd", "adam"}
    n_steps : int >= 1 or None
        Here and below None stands for the public rule.
    sampling_rate : float in (0, 1] or None
    expected_batch_size : float > 0 or None
        v, by which noisy sums are divided.
    max_grad_norm : float > 0 or None
        R.
    learning_rate : float > 0 or None
    schedule : {"constant", "inverse", "linear"}
    momentum : float in [0, 1)
    nesterov : bool
    betas : tuple of two floats in [0, 1)
    stabilizer : float > 0 or None
    noise_correction : bool
    average : float in [0, 1] or None
        Share of the iterates, from the last one back, whose mean is released; 0: the last one.
    accountant : {"auto", "composition", "last_iterate"}
    n_records : int >= 1 or None
        A public bound of the number of records, the number itself under ``replace_one``; None
        where there is none.
    continues : PrivacyStatement or None
        What was promised about earlier runs over the same records, whose state this run continues.

    Raises
    ------
    InvalidParameterError
        Settings for which no finite positive noise can be stated, or for which
        ``accountant="last_iterate"`` has no guarantee.

    Notes
    -----
    Guarantees: the weights and the state of a descent with ``descent_options`` over rows of norm at
    most 1 are (epsilon, delta)-differentially private; with the accountant of the last iterate the
    weights alone are. With ``noise_grid="exact"`` this holds for the program as run on
    floating-point hardware; otherwise for ideal real arithmetic only.

    References
    ----------
    Song, Chaudhuri, Sarwate, GlobalSIP 2013; Abadi et al., CCS 2016 (clipped noisy gradients);
    Park, Choi, Lee, NeurIPS 2025 (support vector machines); Bok, Su, Altschuler, ICML 2024 (last
    iterate); Karney, ACM TOMS 42 (2016) (exact sampling).
    """

    continues: PrivacyStatement | None = None

    def __post_init__(self) -> None:
        """Refuses settings whose noise would not be a positive finite number."""
        if not self.delta > 0.0:
            raise InvalidParameterError.of(
                "delta", got=self.delta, accepted="a number in (0, 1): the noise is Gaussian"
            )
        kappa = self.data_norm
        check_row_norm(kappa, self.intercept_scaling, hypot_up(kappa, self.intercept_scaling))
        if self.intercept > LARGEST_INTERCEPT:
            raise InvalidParameterError.of(
                "intercept_scaling",
                got=self.intercept_scaling,
                accepted=f"at most {LARGEST_INTERCEPT:g} data_norm",
            )
        if not SMALLEST_CLIP <= self.clip <= LARGEST_CLIP:
            raise InvalidParameterError.of(
                "max_grad_norm",
                got=self.max_grad_norm,
                accepted=f"a number in [{SMALLEST_CLIP:g}, {LARGEST_CLIP:g}]",
            )
        if self.C is not None:
            check_range("C", self.regularization, "the penalty of a step, q / (C data_norm^2 v)")
        if self.accountant == "last_iterate" and (problem := self._not_last_iterate()):
            raise InvalidParameterError(problem)
        check_range("epsilon", self.noise.sigma, "the standard deviation of the noise")
        check_range("learning_rate", self.step, "the learning rate")

    @cached_property
    def noise(self) -> ClippedSums | LastIterateSums:
        """The noise on the sums, by the accountant that was asked for or needs less of it."""
        composed = ClippedSums(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            exact=self.noise_grid == "exact",
            clip=self.clip,
            shape=self.shape,
            n_steps=self.steps,
            sampling_rate=self.rate,
        )
        if self.accountant == "composition" or self._not_last_iterate():
            return composed
        last = self._last_iterate
        return (
            last if self.accountant == "last_iterate" or last.sigma < composed.sigma else composed
        )

    @property
    def keeps_state(self) -> bool:
        """Whether what the run knows in the end may be kept, and the run continued."""
        return isinstance(self.noise, ClippedSums)

    @cached_property
    def _last_iterate(self) -> LastIterateSums:
        """The noise where only the last iterate is released."""
        return LastIterateSums(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            exact=self.noise_grid == "exact",
            loss=self.loss,
            row_norm=self.row_norm,
            shape=self.shape,
            n_steps=self.steps,
            n_records=self.n_records or 1,
            divisor=self.divisor,
            regularization=self.regularization,
            step=self.learning_rate,
        )

    def _not_last_iterate(self) -> str:
        """Why the guarantee of the last iterate does not hold, or nothing."""
        for name, holds, accepted in (
            ("optimizer", self.optimizer == "gd", "'gd'"),
            ("sampling_rate", self.rate == 1.0, "1"),
            ("momentum", self.momentum == 0.0, "0"),
            ("schedule", self.schedule == "constant", "'constant'"),
            ("average", self.share == 0.0, "0"),
            ("C", self.C is not None, "a number"),
            ("n_records", self.n_records is not None, "max_samples, a bound of the rows"),
        ):
            if not holds:
                shown = "max_samples" if name == "n_records" else name
                # What the estimator calls "auto" arrives here as None.
                got = "auto" if name == "C" and self.C is None else getattr(self, name)
                return f"{shown}: got {got!r}, expected {accepted} with accountant='last_iterate'"
        last = self._last_iterate
        if self.max_grad_norm is not None and self.max_grad_norm < last.clip:
            return (
                f"max_grad_norm: got {self.max_grad_norm!r}, expected at least {last.clip!r}, the "
                "largest gradient, with accountant='last_iterate'"
            )
        if self.max_grad_norm is None and self.accountant == "auto":
            return "max_grad_norm: 'auto' clips"
        return last.refusal

    @cached_property
    def step(self) -> float:
        """The learning rate, given or automatic."""
        if isinstance(self.noise, LastIterateSums):
            return self.noise.learning_rate
        if self.learning_rate is not None:
            return self.learning_rate
        return automatic_learning_rate(
            optimizer=self.optimizer,
            schedule=self.schedule,
            momentum=self.momentum,
            n_steps=self.steps,
            sampling_rate=self.rate,
            divisor=self.divisor,
            regularization=self.regularization,
            sigma=self.noise.sigma,
            row_norm=self.row_norm,
            n_scores=self.loss.n_scores,
            n_features=self.n_features,
            n_records=self.n_records,
        )

    @property
    def floor(self) -> float:
        """Adam's stabilizer, given or automatic."""
        if self.stabilizer is not None:
            return self.stabilizer
        corrected = self.optimizer == "adam" and self.noise_correction
        return CORRECTED_FLOOR * self.noise.sigma / self.divisor if corrected else STABILIZER

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """The one event of this run."""
        return (self.noise.event,)

    @cached_property
    def total_epsilon(self) -> float:
        """Epsilon of this run and those that it continues, at the delta of one."""
        if self.continues is None:
            return self.epsilon
        together = composed_epsilon((*self.continues.events, *self.events), self.delta)
        return max(self.epsilon, together)

    def descent_options(self, first_step: int = 0) -> dict[str, Any]:
        """Settings of the compiled descent; steps are counted on from ``first_step``."""
        kernel, smoothing, margin = self.loss.kernel
        noise, last = self.noise, isinstance(self.noise, LastIterateSums)
        averaged = math.ceil(self.share * self.steps)
        return {
            "loss": kernel,
            "n_scores": self.loss.n_scores,
            "smoothing": smoothing,
            "margin": margin,
            "n_features": self.n_features,
            "intercept": self.intercept,
            "row_scale": 1.0,
            "clip": noise.acting_clip if isinstance(noise, LastIterateSums) else noise.clip,
            "sigma": noise.sigma,
            "grid": noise.grid,
            "sampling_rate": self.rate,
            "divisor": self.divisor,
            "regularization": self.regularization,
            "optimizer": "adam" if self.optimizer == "adam" else "gd",
            "learning_rate": self.step,
            "schedule": self.schedule,
            "horizon": self.steps,
            "momentum": self.momentum,
            "nesterov": self.nesterov,
            "beta1": self.betas[0],
            "beta2": self.betas[1],
            "stabilizer": self.floor,
            "noise_correction": self.noise_correction,
            "average_from": first_step + self.steps - averaged if averaged else None,
            "radius": noise.radius if isinstance(noise, LastIterateSums) else None,
            "precision": "f64" if last else "f32",
        }

    def summary(self) -> str:
        """Public facts in one line."""
        sampled = "" if self.rate == 1.0 else f" with sampling rate {self.rate:.4g}"
        return (
            f"{math.prod(self.shape)} weights, {self.steps} steps of {self.optimizer}{sampled}, "
            f"clip norm {self.noise.clip:.4g}, noise with sigma = {self.noise.sigma:.4g} on sums, "
            f"learning rate {self.step:.4g}"
        )

    def statement(
        self,
        *,
        library_version: str,
        random_source: str = "operating_system",
        assumed_public: tuple[str, ...] = (),
        caveats: tuple[str, ...] = (),
        not_private_reasons: tuple[str, ...] = (),
    ) -> PrivacyStatement:
        """What is promised about this run and all that it continues."""
        own = (RUNNING_TIME_CAVEAT,) + (FLOATING_POINT_CAVEAT,) * (self.noise_grid == "float")
        if isinstance(self.noise, LastIterateSums):
            own += (MAX_SAMPLES_CAVEAT,) * (self.adjacency == "add_remove")
        before = self.continues
        return PrivacyStatement(
            mechanism="gradient_perturbation",
            loss=self.loss.name,
            adjacency=self.adjacency,
            epsilon=self.total_epsilon,
            delta=self.delta,
            events=self.events if before is None else before.events + self.events,
            parts=(self.noise.part,) if before is None else (*before.parts, self.noise.part),
            assumed_public=_joined(before, "assumed_public", assumed_public),
            caveats=_joined(before, "caveats", own + caveats),
            library_version=library_version,
            random_source=random_source,
            not_private_reasons=_joined(before, "not_private_reasons", not_private_reasons),
        )


def _joined(before: PrivacyStatement | None, name: str, now: tuple[str, ...]) -> tuple[str, ...]:
    """What was said before and is said now, each once."""
    return tuple(dict.fromkeys((() if before is None else getattr(before, name)) + now))
