"""What is known about a private fit before any data are touched, as plain numbers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from dpsvm_fast.planning._prose import describe

__all__ = [
    "CentreNoise",
    "Decision",
    "DescentNoise",
    "KernelFeatures",
    "NoisePlan",
    "ObjectiveNoise",
    "OutputNoise",
    "Whitening",
]


@dataclass(frozen=True, kw_only=True)
class CentreNoise:
    """Noise in the mean of the rows and in their number.

    Attributes
    ----------
    mu_share : float or None
        Part of the squared Gaussian parameter of the budget; None without Gaussian noise.
    epsilon : float or None
        Part of epsilon; exactly one of the two.
    sum_deviation : float
        Standard deviation of the noise in every sum over the rows.
    count_deviation : float or None
        Standard deviation of the noise in the number of rows; None where that is public.
    mean_length : float or None
        Expected length, as a root mean square, of the noise in the mean of rows of norm 1.
    """

    mu_share: float | None
    epsilon: float | None
    sum_deviation: float
    count_deviation: float | None
    mean_length: float | None


@dataclass(frozen=True, kw_only=True)
class Whitening:
    """Release of second moments, where rows are enough for it.

    Attributes
    ----------
    mu_share : float
        Part of the squared Gaussian parameter of the budget, of all releases together.
    n_releases : int
    n_rows_needed : int
        The smallest noisy number of rows that is whitened.
    whitened : bool or None
        Whether the expected number of rows is; None where none is given.
    """

    mu_share: float
    n_releases: int
    n_rows_needed: int
    whitened: bool | None


@dataclass(frozen=True, kw_only=True)
class KernelFeatures:
    """What the rule of `PrivateKernelSVC` chooses.

    Attributes
    ----------
    asked : str
        The parameter ``kernel``.
    kernel : {"rbf", "laplacian", "linear"}
    signal : float
        The rule's q.
    gamma : float or None
        None for "linear".
    n_frequencies : int or None
        None for "linear".
    """

    asked: str
    kernel: str
    signal: float
    gamma: float | None
    n_frequencies: int | None


@dataclass(frozen=True, kw_only=True)
class DescentNoise:
    """The private descent.

    Attributes
    ----------
    mu_share : float
        Part of the squared Gaussian parameter of the budget.
    n_steps : int
    clip_norm : float
        Bound of the norm of one row's gradient.
    regularization, c, learning_rate : float
    step_deviation : float
        Standard deviation of the noise in every number of a step's sum.
    """

    mu_share: float
    n_steps: int
    clip_norm: float
    regularization: float
    c: float
    learning_rate: float
    step_deviation: float


@dataclass(frozen=True, kw_only=True)
class ObjectiveNoise:
    """Noise inside the objective.

    Attributes
    ----------
    C : float or None
        The factor of the losses; None where it is automatic.
    regularization : float
    extra_regularization : float
        The part of it that privacy asks for beyond 1 / C.
    linear_deviation : float
        Standard deviation of every component of the linear term.
    output_deviation : float
        Standard deviation of the noise on every weight, for the solver's tolerance.
    """

    C: float | None
    regularization: float
    extra_regularization: float
    linear_deviation: float
    output_deviation: float


@dataclass(frozen=True, kw_only=True)
class OutputNoise:
    """Noise on trained weights.

    Attributes
    ----------
    C : float
    automatic : bool
        Whether C is.
    sensitivity : float
    deviation : float
        Standard deviation of the noise on every weight.
    """

    C: float
    automatic: bool
    sensitivity: float
    deviation: float


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the noise means for a prediction.

    Attributes
    ----------
    weight_deviation : float
        Standard deviation of one released weight over the noise.
    score_deviation : float
        Standard deviation of one score, for a row of norm ``data_norm``.
    is_bound : bool
        Whether the two are upper bounds: gradients of the rows answer the noise.
    data_norm : float
    margin : float
        What the loss asks for.
    temperature : float or None
        Of a loss without a margin.
    lead : float
        The lead of one class over another that survives the noise with probability 95 %.
    largest_lead : float or None
        Bound of the lead that the rows can bring about; None without a number of rows.
    """

    weight_deviation: float
    score_deviation: float
    is_bound: bool
    data_norm: float
    margin: float
    temperature: float | None
    lead: float
    largest_lead: float | None

    @property
    def room(self) -> float | None:
        """``largest_lead`` over ``lead``; None without a number of rows."""
        return None if self.largest_lead is None else self.largest_lead / self.lead

    @property
    def drowned(self) -> bool | None:
        """Whether the noise drowns every decision; None without a number of rows."""
        return None if self.largest_lead is None else self.largest_lead < self.lead


@dataclass(frozen=True, kw_only=True)
class NoisePlan:
    """Everything about the noise of a fit that follows from public facts.

    Attributes
    ----------
    estimator : str
        Name of the class.
    loss : str
    epsilon, delta : float
    adjacency : {"add_remove", "replace_one"}
    mu : float or None
        Gaussian parameter of the whole budget of a pipeline; None without one.
    n_features, n_classes : int
    n_samples : int or None
        Expected number of rows.
    n_scores : int
        Scores that are trained: one for two classes of some losses.
    n_columns : int or None
        Columns that are trained on, without the constant one; None where the number of rows
        decides.
    n_weights : int or None
    centre : CentreNoise or None
    whitening : Whitening or None
    kernel : KernelFeatures or None
    descent : DescentNoise or None
    objective : ObjectiveNoise or None
    output : OutputNoise or None
        At most one of the three; none where the number of rows decides.
    decision : Decision or None
        None where it depends on a number of rows that is not given.
    """

    estimator: str
    loss: str
    epsilon: float
    delta: float
    adjacency: str
    mu: float | None = None
    n_features: int
    n_classes: int
    n_samples: int | None
    n_scores: int
    n_columns: int | None
    n_weights: int | None
    centre: CentreNoise | None = None
    whitening: Whitening | None = None
    kernel: KernelFeatures | None = None
    descent: DescentNoise | None = None
    objective: ObjectiveNoise | None = None
    output: OutputNoise | None = None
    decision: Decision | None = None

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain values, for JSON."""
        record = dataclasses.asdict(self)
        if self.decision is not None:
            record["decision"] |= {"room": self.decision.room, "drowned": self.decision.drowned}
        return record

    def __str__(self) -> str:
        """Prose, one line a fact."""
        return "\n".join(describe(self))
