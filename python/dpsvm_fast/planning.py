"""Noise plans, computed by the mechanisms that add the noise."""

from __future__ import annotations

import bisect
import copy
import dataclasses
import math
import re
from dataclasses import dataclass
from html import escape
from typing import Any

from dpsvm_fast import validation as check
from dpsvm_fast.accounting.composition import LARGEST_GROUP, composed_epsilon
from dpsvm_fast.certificates.words import UNITS
from dpsvm_fast.estimators import (
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateKernelSVC,
    PrivateLinearSVC,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.noise import MOST_FEATURES, joined_parameter
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from dpsvm_fast.mechanisms.output import loss_at_zero
from dpsvm_fast.mechanisms.pipeline import (
    COMPONENTS_A_FEATURE,
    ROWS_A_FEATURE,
    SMALLEST_SIGNAL,
    DescentRule,
    PrivateKernel,
    PrivateLinear,
    Solver,
    Training,
)
from dpsvm_fast.mechanisms.plan import Facts, filled

__all__ = [
    "CentreNoise",
    "Decision",
    "DescentNoise",
    "KernelFeatures",
    "NoisePlan",
    "ObjectiveNoise",
    "OutputNoise",
    "Whitening",
    "plan_noise",
]


# What is known about a private fit before any data are touched, as plain numbers.


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
    """Noise of the second moments, if there are enough rows for whitening.

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
    """Random features that `PrivateKernelSVC` chooses.

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
    """Noise of the gradient descent.

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
    """Effect of the noise on a prediction.

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
        """Whether noise dominates every decision; None if the number of rows is unknown."""
        return None if self.largest_lead is None else self.largest_lead < self.lead


@dataclass(frozen=True, kw_only=True)
class NoisePlan:
    """Noise of a fit, as far as public facts determine it.

    Attributes
    ----------
    estimator : str
        Name of the class.
    loss : str
    epsilon, delta : float
    adjacency : {"add_remove", "replace_one"}
    unit : {"row", "person"}
        What neighbouring data sets differ in.
    mu : float or None
        Gaussian parameter of the whole budget of a pipeline; None without one.
    n_features, n_classes : int
    n_samples : int or None
        Expected number of rows, or of persons.
    rows_per_person : int or None
        Largest number of rows of one person under noise for rows; None if not given.
    epsilon_of_person : float or None
        The epsilon of such a person at the same delta, rounded up.
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
    unit: str = "row"
    mu: float | None = None
    n_features: int
    n_classes: int
    n_samples: int | None
    rows_per_person: int | None = None
    epsilon_of_person: float | None = None
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
        """Return all numbers as plain JSON values."""
        record = dataclasses.asdict(self)
        if self.decision is not None:
            record["decision"] |= {"room": self.decision.room, "drowned": self.decision.drowned}
        return record

    def __str__(self) -> str:
        """Prose, one line a fact."""
        return "\n".join(describe(self))

    def _repr_html_(self) -> str:
        """A table in notebooks."""
        title, *lines = describe(self)
        cells = (re.split(r" {2,}", line.strip(), maxsplit=1) for line in lines)
        rows = (("", *one) if len(one) == 1 else one for one in cells)
        inside = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
        )
        return f"<table><caption>{escape(title)}</caption>{inside}</table>"


# A plan in words, one line a fact.


OWN_TITLES = {
    "ObjectivePerturbationSVC": "Objective perturbation",
    "OutputPerturbationSVC": "Output perturbation",
}


def describe(plan: NoisePlan) -> list[str]:
    """The plan, line by line."""
    name = OWN_TITLES.get(plan.estimator, f"Private pipeline ({plan.estimator})")
    budget = "" if plan.mu is None else f", mu = {plan.mu:.6g}"
    constant = "" if plan.n_weights == plan.n_scores * (plan.n_columns or 0) else " + 1"
    weights = (
        f"  weights        {plan.n_scores} score{'s'[: plan.n_scores - 1]} x "
        f"({plan.n_columns} features{constant}) = {plan.n_weights}"
    )
    lines = [
        f"{name}, loss {plan.loss}, epsilon = {plan.epsilon:g}, delta = {plan.delta:g} "
        f"({plan.adjacency}{', whole persons' * (plan.unit == 'person')}){budget}"
    ]
    if plan.epsilon_of_person is not None:
        lines.append(
            f"  one person     with up to {plan.rows_per_person} rows: epsilon = "
            f"{plan.epsilon_of_person:.6g} at the same delta"
        )
    lifted = plan.estimator == "PrivateKernelSVC"
    lines += [] if lifted else [weights]
    lines += _centre_lines(plan.centre) if plan.centre is not None else []
    lines += _whitening_lines(plan) if plan.estimator not in OWN_TITLES else []
    if plan.kernel is not None:
        lines += [*_kernel_lines(plan.kernel, pure=plan.delta == 0.0), weights]
    if plan.decision is None:
        what = "kernel and training depend" if lifted else "training       depends"
        return [*lines, f"  {what} on the number of rows: give --samples"]
    lines += _descent_lines(plan.descent) if plan.descent is not None else []
    lines += _objective_lines(plan.objective) if plan.objective is not None else []
    if plan.output is None:
        lines.append(
            f"  one weight     standard deviation at most {plan.decision.weight_deviation:.6g}; "
            "usually less the more rows there are"
        )
    else:
        lines += _output_lines(plan.output)
    return lines + _decision_lines(plan.decision, plan.n_samples, plan.unit)


def _percent(share: float) -> str:
    """A share of the budget."""
    return f"{100.0 * share:.3g} %"


def _centre_lines(centre: CentreNoise) -> list[str]:
    """Noise in the mean and in the number of rows."""
    share = "" if centre.mu_share is None else f"{_percent(centre.mu_share)} of mu^2"
    share = share or f"epsilon = {centre.epsilon:g}"
    noise = f"standard deviation {centre.sum_deviation:.6g} on each sum over the rows"
    lines = [f"  centre         {share}: {noise}"]
    if centre.count_deviation is not None:
        lines.append(f"                 and {centre.count_deviation:.6g} on their number")
    if centre.mean_length is not None:
        length = f"length {centre.mean_length:.4g}"
        lines.append(f"                 noise in the mean of rows of norm 1: {length}")
    return lines


def _whitening_lines(plan: NoisePlan) -> list[str]:
    """Whether rows are whitened, as the noisy number of them decides; or why none would be."""
    whitening = plan.whitening
    if whitening is None:
        why = "it needs delta > 0" if plan.delta == 0.0 else "switched off"
        if plan.delta > 0.0 and plan.n_features > MOST_FEATURES:
            why = f"only up to {MOST_FEATURES} features are"
        return [] if plan.n_samples is None else [f"  whitening      no: {why}"]
    how = f"in {whitening.n_releases} releases " if whitening.n_releases > 1 else ""
    share = f"{how}for {_percent(whitening.mu_share)} of mu^2"
    if whitening.whitened is None:
        return [f"  whitening      from {whitening.n_rows_needed} rows on, {share}"]
    found, place = (f"yes, {share}", "at least") if whitening.whitened else NOT_WHITENED
    return [
        f"  whitening      {found}: the noisy number, about {plan.n_samples}, is {place} "
        f"{whitening.n_rows_needed}"
    ]


NOT_WHITENED = ("no, nothing spent", "below")


def _kernel_lines(features: KernelFeatures, *, pure: bool) -> list[str]:
    """What the rule chooses for so many rows; a fit asks it about the noisy number."""
    line = f"  kernel         {features.kernel}: q = {features.signal:.4g}"
    if features.gamma is not None and features.n_frequencies is not None:
        n = features.n_frequencies
        return [f"{line}, gamma = {features.gamma:.4g}, {n} frequencies, {2 * n} features"]
    if features.asked == "auto":
        line += (
            f"; a kernel needs q >= {SMALLEST_SIGNAL:g}, and rows that are whitened "
            f"or\n                 {ROWS_A_FEATURE:g} times as many as features"
        )
        if pure:
            line += f"; with delta = 0 also {COMPONENTS_A_FEATURE:g} frequencies a feature"
    return [line]


def _descent_lines(descent: DescentNoise) -> list[str]:
    """The descent and its noise."""
    return [
        f"  training       {_percent(descent.mu_share)} of mu^2: {descent.n_steps} steps over all "
        f"rows, gradients clipped to norm {descent.clip_norm:.6g}",
        f"  lambda         {descent.regularization:.6g} (c = {descent.c:.4g}), step "
        f"{descent.learning_rate:.6g} on the sum of gradients",
        f"  noise          standard deviation {descent.step_deviation:.6g} on each number of the "
        "sum of a step",
    ]


def _objective_lines(noise: ObjectiveNoise) -> list[str]:
    """What determines the noise in the objective."""
    origin = "automatic" if noise.C is None else "1 / C"
    if noise.C is not None and noise.extra_regularization > 0.0:
        origin = f"1 / C = {1.0 / noise.C:.6g}, the rest for privacy"
    return [
        f"  lambda         {noise.regularization:.6g} ({origin})",
        f"  noise          standard deviation {noise.linear_deviation:.6g} on each component of "
        "the linear term",
        f"                 and {noise.output_deviation:.3g} on each weight for the tolerance of "
        "the solver",
    ]


def _output_lines(noise: OutputNoise) -> list[str]:
    """What determines the noise on the weights."""
    return [
        f"  C              {noise.C:.6g} ({'automatic' if noise.automatic else 'given'})",
        f"  sensitivity    {noise.sensitivity:.6g}",
        f"  noise          standard deviation {noise.deviation:.6g} on each weight",
    ]


def _decision_lines(decision: Decision, n_samples: int | None, unit: str) -> list[str]:
    """What noise of this size means."""
    at_most, at_least = ("at most ", "at least ") if decision.is_bound else ("", "")
    asked = f"the loss asks for a margin of {decision.margin:g}"
    if not decision.margin:
        asked = f"the loss has temperature {decision.temperature:g}, no margin"
    lines = [
        f"  one score      standard deviation {at_most}{decision.score_deviation:.4g} for a row of "
        f"norm {decision.data_norm:g}; {asked}",
        f"  a decision     a lead of {decision.lead:.4g} of one class over another survives the "
        "noise",
        f"                 with probability {at_least}95 %",
    ]
    if decision.largest_lead is not None:
        largest = f"{decision.largest_lead:.4g}"
        lines.append(f"  the most       that {n_samples} {unit}s can lead by: {largest}")
    if decision.drowned:
        lines.append(f"With so few {unit}s noise dominates every decision: use a larger epsilon.")
    return lines


# The z with 95 % of a standard normal variable above -z.
Z_95 = 1.6448536269514722

PIPELINES = (PrivateLinearSVC, PrivateKernelSVC)

PLANNABLE = (*PIPELINES, ObjectivePerturbationSVC, OutputPerturbationSVC)


def plan_noise(
    estimator: Any,
    n_features: int,
    *,
    n_samples: int | None = None,
    rows_per_person: int | None = None,
    unit: str = "row",
) -> NoisePlan:
    """Return the noise that ``fit`` will add, from public facts only.

    Parameters
    ----------
    estimator : estimator
        `PrivateLinearSVC` or `PrivateKernelSVC` with ``mechanism`` "auto" or "gradient",
        `ObjectivePerturbationSVC`, or `OutputPerturbationSVC` with the solver "exact". It has
        ``classes``, and stays as it is.
    n_features : int >= 1
        Number of features.
    n_samples : int >= 1 or None, default=None
        Expected number of training rows, or of persons, if it is public. With None, what depends
        on it is left open.
    rows_per_person : int in 1..2**20 or None, default=None
        Largest number of rows of one person; adds the guarantee of such a person under noise for
        rows.
    unit : {"row", "person"}, default="row"
        "person" plans a fit with ``groups``, which protects whole persons.

    Returns
    -------
    NoisePlan
        Its ``str`` is prose; ``to_dict`` has the numbers.

    Raises
    ------
    InvalidParameterError
        A parameter outside its range, no ``classes``, or a setting that cannot be planned.
    TypeError
        Another estimator.

    Examples
    --------
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.planning import plan_noise
    >>> plan = plan_noise(PrivateLinearSVC(1.0, 1e-5, classes=range(10)), 64, n_samples=1347)
    >>> plan.descent.n_steps, plan.decision.drowned
    (100, False)
    """
    accepted = f"one of {', '.join(kind.__name__ for kind in PLANNABLE)}"
    check.check_type("estimator", estimator, PLANNABLE, accepted)
    n_features = check.check_integer("n_features", n_features, 1)
    if n_samples is not None:
        n_samples = check.check_integer("n_samples", n_samples, 1)
    # Nothing is spent, so a plan may exceed the ledger.
    estimator = copy.copy(estimator).set_params(ledger=None)
    estimator = estimator.checked()
    check.warn_of_weak_numbers(estimator.epsilon, estimator.delta, stacklevel=3)
    if estimator.classes is None:
        raise InvalidParameterError("classes: got None, expected the public label set")
    _check_plannable(estimator)
    unit = check.check_option("unit", unit, UNITS[:2])
    if unit == "person" and rows_per_person is not None:
        accepted = "None with unit='person', which protects persons with any number of rows"
        raise InvalidParameterError.of("rows_per_person", got=rows_per_person, accepted=accepted)
    n_classes = estimator.classes.size
    facts = Facts(n_features=n_features, n_classes=n_classes, unit=unit)
    mechanism: Any = estimator.plan(facts)
    shared = {
        "estimator": type(estimator).__name__,
        "epsilon": mechanism.epsilon,
        "delta": mechanism.delta,
        "adjacency": mechanism.adjacency,
        "unit": unit,
        "n_features": n_features,
        "n_classes": n_classes,
        "n_samples": n_samples,
    }
    if rows_per_person is not None:
        rows = check.check_integer("rows_per_person", rows_per_person, 1, LARGEST_GROUP)
        epsilon = composed_epsilon(mechanism.events, mechanism.delta, group_size=rows)
        shared |= {"rows_per_person": rows, "epsilon_of_person": epsilon}
    if isinstance(mechanism, PrivateLinear):
        return _pipeline(mechanism, n_samples, shared)
    return NoisePlan(
        **shared,
        **_columns(mechanism.score_loss, n_features, mechanism.n_weights),
        **_solver(mechanism, n_samples, automatic=estimator.C == "auto"),
    )


def _check_plannable(estimator: Any) -> None:
    """Refuse settings whose noise follows other rules than those below."""
    if isinstance(estimator, PIPELINES) and estimator.mechanism not in ("auto", "gradient"):
        raise InvalidParameterError.of(
            "mechanism", got=estimator.mechanism, accepted="'auto' or 'gradient'"
        )
    if isinstance(estimator, OutputPerturbationSVC) and estimator.solver != "exact":
        raise InvalidParameterError.of("solver", got=estimator.solver, accepted="'exact'")


def _columns(loss: Loss, n_columns: int | None, n_weights: int | None) -> dict[str, Any]:
    """How many numbers are trained."""
    return {
        "loss": loss.name,
        "n_scores": loss.n_scores,
        "n_columns": n_columns,
        "n_weights": n_weights,
    }


# --- Pipelines ------------------------------------------------------------------------------------


def _pipeline(mechanism: PrivateLinear, n_samples: int | None, shared: dict[str, Any]) -> NoisePlan:
    """Every release of a pipeline, as far as it is known."""
    training = None if n_samples is None else mechanism.training(float(n_samples))
    facts: dict[str, Any] = {
        "mu": None if mechanism.pure else mechanism.mu,
        "centre": _centre(mechanism, n_samples),
        "whitening": _whitening(mechanism, training),
    }
    n_columns: int | None = mechanism.n_features
    if isinstance(mechanism, PrivateKernel):
        n_columns = None
        if n_samples is not None:
            facts["kernel"], n_columns = _kernel(mechanism, n_samples)
    n_weights = None
    if n_columns is not None:
        n_weights = mechanism.loss.n_scores * (n_columns + mechanism.fit_intercept)
    facts |= _columns(mechanism.loss, n_columns, n_weights)
    if training is not None and n_samples is not None:
        facts |= _training(training, mechanism, n_samples)
    return NoisePlan(**shared, **facts)


def _centre(mechanism: PrivateLinear, n_samples: int | None) -> CentreNoise | None:
    """Noise in the mean and in the number of rows."""
    centre = mechanism.centre
    if centre is None:
        return None
    noise = centre.sum.deviation
    length = None
    if n_samples is not None:
        length = noise * math.sqrt(mechanism.n_features) / n_samples
    return CentreNoise(
        mu_share=None if centre.mu is None else _share(centre.mu, mechanism),
        epsilon=centre.epsilon,
        sum_deviation=noise,
        # Half the number of rows is released beside the sums.
        count_deviation=2.0 * noise if centre.counts else None,
        mean_length=length,
    )


def _share(mu: float, mechanism: PrivateLinear) -> float:
    """Part of the budget."""
    return (mu / mechanism.mu) ** 2


def _whitening(mechanism: PrivateLinear, training: Training | None) -> Whitening | None:
    """Whether so many rows are whitened; in a fit the noisy number decides."""
    moments = mechanism.whitening
    if moments is None:
        return None
    needed = 1
    if mechanism.whiten is not True:
        # More than any data set has, where no number of rows is enough.
        needed = bisect.bisect_left(range(2**53), 1, lo=1, key=moments.worthwhile)
    together = joined_parameter(*(each.mu for each in mechanism.whitenings))
    return Whitening(
        mu_share=_share(together, mechanism),
        n_releases=len(mechanism.whitenings),
        n_rows_needed=needed,
        whitened=None if training is None else training.whitened,
    )


def _kernel(mechanism: PrivateKernel, n_samples: int) -> tuple[KernelFeatures, int]:
    """What the rule chooses for so many rows, and the number of columns; a fit asks about noise."""
    choice = mechanism.choice(float(n_samples))
    assert choice.signal is not None
    lifted = choice.gamma is not None
    features = filled(
        KernelFeatures,
        choice,
        asked=mechanism.kernel,
        n_frequencies=mechanism.n_components if lifted else None,
    )
    return features, 2 * mechanism.n_components if lifted else mechanism.n_features


def _training(training: Training, mechanism: PrivateLinear, n_samples: int) -> dict[str, Any]:
    """The descent, or the solver, and its noise."""
    rule = training.rule
    if rule is None:
        assert training.solver is not None
        return _solver(training.solver, n_samples, automatic=True, is_bound=True)
    descent = filled(
        DescentNoise,
        rule,
        mu_share=_share(rule.mu, mechanism),
        clip_norm=rule.clip,
        step_deviation=rule.sum.scale,
    )
    # Rows have norm 1, the constant feature included.
    decision = _decision(
        mechanism.loss,
        rule.deviation,
        row_norm=1.0,
        data_norm=1.0,
        is_bound=True,
        largest_norm=_norm_of_descent(rule, n_samples),
    )
    return {"descent": descent, "decision": decision}


def _norm_of_descent(rule: DescentRule, n_samples: int) -> float:
    """Bound of the norm of W over all data sets, before the noise.

    Each step moves W by at most eta n R, so the iterate after t steps has norm at most t eta n R.
    """
    steps = 0.5 * (rule.average_from + 1 + rule.n_moves)
    return steps * rule.learning_rate * n_samples * rule.clip


# --- Solvers --------------------------------------------------------------------------------------


def _solver(
    mechanism: Solver, n_samples: int | None, *, automatic: bool, is_bound: bool | None = None
) -> dict[str, Any]:
    """Noise inside the objective, or on trained weights."""
    inside = isinstance(mechanism, ObjectivePerturbation)
    decision = _decision(
        mechanism.score_loss,
        _weight_deviation(mechanism),
        row_norm=mechanism.row_norm,
        data_norm=mechanism.data_norm,
        is_bound=inside if is_bound is None else is_bound,
        largest_norm=None if n_samples is None else _norm_of_solver(mechanism, n_samples),
    )
    if not isinstance(mechanism, ObjectivePerturbation):
        noise = filled(
            OutputNoise,
            mechanism,
            automatic=automatic,
            deviation=mechanism.weight_noise.deviation,
        )
        return {"output": noise, "decision": decision}
    objective = filled(
        ObjectiveNoise,
        mechanism,
        extra_regularization=mechanism.inside.record.extra_regularization,
        linear_deviation=mechanism.inside.deviation,
        output_deviation=mechanism.output.deviation,
    )
    return {"objective": objective, "decision": decision}


def _weight_deviation(mechanism: Solver) -> float:
    r"""Standard deviation of a released weight over the noise, or a bound of it.

    With noise B in the objective the minimiser W(B) moves by at most :math:`\|dB\|/\lambda`: any
    coordinate of it is a function of Gaussians with that Lipschitz constant, of which neither the
    standard deviation nor the tails beyond the median are larger than those of a linear one.
    """
    if not isinstance(mechanism, ObjectivePerturbation):
        return mechanism.weight_noise.deviation
    inside = mechanism.inside.deviation / mechanism.regularization
    return math.hypot(inside, mechanism.output.deviation)


def _norm_of_solver(mechanism: Solver, n_samples: int) -> float:
    r"""Bound of the norm of W over all data sets, before the noise.

    At the minimiser :math:`\tfrac{\lambda}{2} \|W\|^2 \le n \phi(0)`, the objective at W = 0, and
    :math:`\lambda W` is the sum of n gradients of norm at most :math:`L \kappa_t` each.
    """
    loss, norm, n = mechanism.score_loss, mechanism.row_norm, n_samples
    at_zero = 1.0 if loss.name == "crammer_singer" else loss_at_zero(loss)
    lam = mechanism.regularization
    return min(math.sqrt(2.0 * n * at_zero / lam), n * loss.lipschitz * norm / lam)


def _decision(
    loss: Loss,
    weight_deviation: float,
    *,
    row_norm: float,
    data_norm: float,
    is_bound: bool,
    largest_norm: float | None,
) -> Decision:
    """What noise of this size in a weight, and weights of this norm, mean for a prediction."""
    score = weight_deviation * row_norm
    # A difference of two rows of W has at most so much of the norm of W.
    apart = math.sqrt(2.0) if loss.n_scores > 1 else 1.0
    return Decision(
        weight_deviation=weight_deviation,
        score_deviation=score,
        is_bound=is_bound,
        data_norm=data_norm,
        margin=loss.margin,
        temperature=None if loss.margin else loss.temperature,
        # Scores of two classes have independent noise; one score for both is itself the lead.
        lead=Z_95 * score * apart,
        largest_lead=None if largest_norm is None else apart * largest_norm * row_norm,
    )
