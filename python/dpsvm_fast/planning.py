"""Plans of the noise of a fit, computed by the mechanisms that add it."""

from __future__ import annotations

import bisect
import copy
import dataclasses
import math
from dataclasses import dataclass
from html import escape
from typing import Any

from dpsvm_fast import validation as check
from dpsvm_fast.accounting.composition import LARGEST_GROUP, composed_epsilon
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.certificates.words import UNITS
from dpsvm_fast.estimators import (
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateKernelSVC,
    PrivateLinearSVC,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.noise import MAX_FEATURES, joined_parameter
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from dpsvm_fast.mechanisms.pipeline import PrivateKernel, PrivateLinear, Solver, Training
from dpsvm_fast.mechanisms.plan import Facts, filled
from dpsvm_fast.validation import refuse

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

# Columns are numbered by 32 bits in the core; beyond the second, floats skip numbers.
MAX_PLANNED_FEATURES, MAX_ROWS = 2**32 - 2, 2**53


# Facts about a private fit that are known before any data are touched, as plain numbers.


@dataclass(frozen=True, kw_only=True)
class CentreNoise:
    """Noise in the mean and the number of rows.

    Attributes
    ----------
    mu_share : float or None
        Share of the squared Gaussian parameter of the budget; None without Gaussian noise.
    epsilon : float or None
        Epsilon of pure noise; exactly one of ``mu_share`` and ``epsilon`` is given.
    sum_deviation : float
        Standard deviation of the noise in each sum over the rows.
    count_deviation : float or None
        Standard deviation of the noise in the number of rows; None if that is public.
    mean_length : float or None
        Root mean square length of the noise in the mean of rows of norm 1.
    """

    mu_share: float | None
    epsilon: float | None
    sum_deviation: float
    count_deviation: float | None
    mean_length: float | None


@dataclass(frozen=True, kw_only=True)
class Whitening:
    """Noise in the second moments, released if there are enough rows for whitening.

    Attributes
    ----------
    mu_share : float
        Share of the squared Gaussian parameter of the budget, for all releases together.
    n_releases : int
    n_rows_needed : int
        Smallest noisy number of rows at which rows are whitened.
    whitened : bool or None
        Whether the expected number of rows is large enough; None if it is not given.
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
    kernel : {"rbf", "laplacian", "linear"}
    signal : float
        Signal q of the rule.
    gamma : float or None
        None for "linear".
    n_frequencies : int or None
        None for "linear".
    """

    kernel: str
    signal: float
    gamma: float | None
    n_frequencies: int | None


@dataclass(frozen=True, kw_only=True)
class DescentNoise:
    """Noise in gradient descent.

    Attributes
    ----------
    mu_share : float
        Share of the squared Gaussian parameter of the budget.
    n_steps : int
    clip_norm : float
        Bound on the norm of one row's gradient.
    regularization, c, learning_rate : float
    step_deviation : float
        Standard deviation of the noise in each entry of a step's sum.
    flops : float
        Multiplications and additions of all steps: 4 per row, weight and step.
    """

    mu_share: float
    n_steps: int
    clip_norm: float
    regularization: float
    c: float
    learning_rate: float
    step_deviation: float
    flops: float


@dataclass(frozen=True, kw_only=True)
class ObjectiveNoise:
    """Noise inside the objective.

    Attributes
    ----------
    C : float or None
        Factor of the losses; None if it is automatic.
    regularization : float
    extra_regularization : float
        Part of ``regularization`` that privacy needs beyond 1 / C.
    linear_deviation : float
        Standard deviation of each component of the linear term.
    output_deviation : float
        Standard deviation of the noise in each weight that covers the solver's tolerance.
    """

    C: float | None
    regularization: float
    extra_regularization: float
    linear_deviation: float
    output_deviation: float


@dataclass(frozen=True, kw_only=True)
class OutputNoise:
    """Noise added to trained weights.

    Attributes
    ----------
    C : float
    sensitivity : float
    deviation : float
        Standard deviation of the noise in each weight.
    """

    C: float
    sensitivity: float
    deviation: float


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Effect of the noise on predictions.

    Attributes
    ----------
    weight_deviation : float
        Standard deviation of one released weight due to the noise.
    score_deviation : float
        Standard deviation of one score, for a row of norm ``data_norm``.
    is_bound : bool
        Whether both deviations are upper bounds, because the rows' gradients counteract the noise.
    data_norm : float
    margin : float
        Margin of the loss.
    temperature : float or None
        Temperature of a loss without a margin.
    lead : float
        Lead of one class over another that survives the noise with probability 95 %.
    largest_lead : float or None
        Largest lead that the number of rows allows; None if it is unknown.
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
    def lead_ratio(self) -> float | None:
        """Ratio of ``largest_lead`` to ``lead``; None if the number of rows is unknown."""
        return None if self.largest_lead is None else self.largest_lead / self.lead

    @property
    def noise_dominates(self) -> bool | None:
        """Whether the noise dominates every decision; None if the number of rows is unknown."""
        return None if self.largest_lead is None else self.largest_lead < self.lead


@dataclass(frozen=True, kw_only=True)
class NoisePlan:
    """Noise of a fit, as far as it follows from public facts.

    Attributes
    ----------
    estimator : str
        Name of the estimator's class.
    loss : str
    epsilon, delta : float
    adjacency : {"add_remove", "replace_one"}
    unit : {"row", "person"}
        What neighbouring data sets differ by.
    mu : float or None
        Gaussian parameter of the whole budget of a pipeline; None for other estimators.
    n_features, n_classes : int
    n_samples : int or None
        Expected number of rows, or of persons.
    rows_per_person : int or None
        Largest number of rows of one person if the noise protects rows; None if not given.
    epsilon_of_person : float or None
        Epsilon for such a person at the same delta, rounded up.
    n_scores : int
        Number of trained scores: one for two classes with some losses.
    n_columns : int or None
        Number of trained columns, without the constant; None if it depends on an unknown number of
        rows.
    n_weights : int or None
    class_count_deviation : float or None
        Standard deviation of the noise in each class count; None if class weights do not depend on
        counts.
    centre : CentreNoise or None
    whitening : Whitening or None
    kernel : KernelFeatures or None
    descent : DescentNoise or None
    objective : ObjectiveNoise or None
    output : OutputNoise or None
        At most one of ``descent``, ``objective`` and ``output`` is given; none if it depends on an
        unknown number of rows.
    decision : Decision or None
        None if it depends on an unknown number of rows.
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
    class_count_deviation: float | None = None
    centre: CentreNoise | None = None
    whitening: Whitening | None = None
    kernel: KernelFeatures | None = None
    descent: DescentNoise | None = None
    objective: ObjectiveNoise | None = None
    output: OutputNoise | None = None
    decision: Decision | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        record = dataclasses.asdict(self)
        if self.decision is not None:
            derived = ("lead_ratio", "noise_dominates")
            record["decision"] |= {name: getattr(self.decision, name) for name in derived}
        return record

    def __str__(self) -> str:
        """Return a text with one fact per line."""
        title, rows, notes = described(self)
        width = max(len(words) for words, _ in rows)
        return "\n".join([title, *(f"{words:<{width}}  {cell}" for words, cell in rows), *notes])

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks."""
        title, rows, notes = described(self)
        inside = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
            for row in (*rows, *([note] for note in notes))
        )
        return f"<table><caption>{escape(title)}</caption>{inside}</table>"

    @property
    def whitens(self) -> bool | str | None:
        """Whether rows are whitened, or why not; None if unknown or never done by the estimator."""
        if self.whitening is not None:
            return self.whitening.whitened
        if self.estimator not in [kind.__name__ for kind in PIPELINES]:
            return None
        if self.delta == 0.0:
            return "no: it needs delta > 0"
        many = self.n_features > MAX_FEATURES
        return f"no: only up to {MAX_FEATURES} features" if many else "no: switched off"


# Description of a plan, one line a fact: the words, and where the number is.
FACTS = (
    ("epsilon of a person with N rows", "epsilon_of_person"),
    ("weights", "n_weights"),
    ("noise in a class count", "class_count_deviation"),
    ("share of mu^2 for the centre", "centre.mu_share"),
    ("epsilon of the centre", "centre.epsilon"),
    ("noise in a sum over the rows", "centre.sum_deviation"),
    ("noise in the number of rows", "centre.count_deviation"),
    ("norm of the noise in the mean", "centre.mean_length"),
    ("rows are whitened", "whitens"),
    ("rows required for whitening", "whitening.n_rows_needed"),
    ("share of mu^2 if whitened", "whitening.mu_share"),
    ("kernel", "kernel.kernel"),
    ("signal q of its rule", "kernel.signal"),
    ("gamma", "kernel.gamma"),
    ("frequencies", "kernel.n_frequencies"),
    ("share of mu^2 for training", "descent.mu_share"),
    ("steps", "descent.n_steps"),
    ("learning rate", "descent.learning_rate"),
    ("lambda", "descent.regularization"),
    ("bound on a row's gradient", "descent.clip_norm"),
    ("noise in a step", "descent.step_deviation"),
    ("lambda", "objective.regularization"),
    ("part of it for privacy", "objective.extra_regularization"),
    ("noise inside the objective", "objective.linear_deviation"),
    ("noise for the tolerance", "objective.output_deviation"),
    ("C", "objective.C"),
    ("C", "output.C"),
    ("sensitivity", "output.sensitivity"),
    ("noise in a weight", "decision.weight_deviation"),
    ("noise in a score", "decision.score_deviation"),
    ("lead that survives the noise, 95 %", "decision.lead"),
    ("largest possible lead", "decision.largest_lead"),
    ("ratio of the two leads", "decision.lead_ratio"),
    ("noise dominates", "decision.noise_dominates"),
)


def described(*plans: NoisePlan) -> tuple[str, list[list[str]], list[str]]:
    """Return the facts of plans that differ in epsilon only.

    Returns
    -------
    title : str
    rows : list of lists
        A description and one cell per plan; empty rows are left out.
    notes : list of str
    """
    first = plans[0]
    about = "" if first.n_samples is None else f", about {first.n_samples} {first.unit}s"
    persons = ", whole persons" * (first.unit == "person")
    title = (
        f"{first.estimator}, loss {first.loss}: {first.n_features} features, {first.n_classes} "
        f"classes{about}; delta = {first.delta:g} ({first.adjacency}{persons})"
    )
    rows = [["epsilon", *(f"{plan.epsilon:g}" for plan in plans)]]
    for words, path in FACTS:
        cells = [_cell(plan, path) for plan in plans]
        rows += [[words, *cells]] * any(cells)
    notes = []
    if any(plan.decision is not None and plan.decision.is_bound for plan in plans):
        notes.append("Noise of weights and scores is at most this; usually less with more rows.")
    if any(plan.decision is not None and plan.decision.noise_dominates for plan in plans):
        notes.append("Noise dominates where it exceeds the largest possible lead.")
        notes.append('Use a larger epsilon or more rows. "no" does not promise accuracy.')
    flops = max(0.0 if plan.descent is None else plan.descent.flops for plan in plans)
    if flops > MANY_FLOPS:
        hours = f"{flops / FLOPS_AN_HOUR:.2g} hours"
        notes.append(f"Training on dense rows takes about {hours} of one core; sampled steps,")
        notes.append('GradientPerturbationSVC(optimizer="sgd", max_samples=...), far less.')
    if first.decision is None:
        notes.append("The plan depends on the number of rows: give --samples.")
    return title, rows, notes


def _cell(plan: NoisePlan, path: str) -> str:
    """Return the cell of a plan; empty if the plan lacks that part."""
    value: Any = plan
    for name in path.split("."):
        value = getattr(value, name, None)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


# Work of one core at 56e9 a second, as measured with 1,000 classes.
FLOPS_AN_HOUR = 2e14
# Half an hour and more.
MANY_FLOPS = 0.5 * FLOPS_AN_HOUR

# The z with 95 % of a standard normal variable above -z.
Z_95 = 1.6448536269514722

PIPELINES = (PrivateLinearSVC, PrivateKernelSVC)

PLANNABLE = (*PIPELINES, ObjectivePerturbationSVC, OutputPerturbationSVC)


@in_usual_arithmetic
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
        ``classes``; it is not changed.
    n_features : int >= 1
        Number of features of the rows.
    n_samples : int >= 1 or None, default=None
        Expected number of training rows, or of persons, if it is public. None omits facts that
        depend on it.
    rows_per_person : int in 1..2**20 or None, default=None
        Largest number of rows of one person; adds the guarantee for such a person if the noise
        protects rows.
    unit : {"row", "person"}, default="row"
        "person" plans a fit with ``groups``, which protects whole persons.

    Returns
    -------
    NoisePlan
        Its ``str`` is a table; ``to_dict`` has the numbers.

    Raises
    ------
    InvalidParameterError
        A parameter is outside its range, ``classes`` is missing, or a setting cannot be planned.
    TypeError
        The class of the estimator is not supported.

    Examples
    --------
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.planning import plan_noise
    >>> plan = plan_noise(PrivateLinearSVC(1.0, 1e-5, classes=range(10)), 64, n_samples=1347)
    >>> plan.descent.n_steps, plan.decision.noise_dominates
    (100, False)
    """
    accepted = f"one of {', '.join(kind.__name__ for kind in PLANNABLE)}"
    check.check_type("estimator", estimator, PLANNABLE, accepted)
    n_features = check.check_integer("n_features", n_features, 1, MAX_PLANNED_FEATURES)
    if n_samples is not None:
        n_samples = check.check_integer("n_samples", n_samples, 1, MAX_ROWS)
    # Planning spends nothing, so a plan may exceed the ledger.
    estimator = copy.copy(estimator).set_params(ledger=None)
    estimator = estimator.checked()
    check.warn_of_weak_numbers(estimator.epsilon, estimator.delta, stacklevel=4)
    automatic = isinstance(estimator, PIPELINES)
    output = isinstance(estimator, OutputPerturbationSVC)
    refuse(
        estimator,
        ("classes", estimator.classes is None, "the public label set"),
        # The noise of other settings follows other rules.
        (
            "mechanism",
            automatic and estimator.mechanism not in ("auto", "gradient"),
            "'auto' or 'gradient'",
        ),
        ("solver", output and estimator.solver != "exact", "'exact'"),
    )
    unit = check.check_option("unit", unit, UNITS[:2])
    if unit == "person" and rows_per_person is not None:
        accepted = "None with unit='person', which protects persons with any number of rows"
        raise InvalidParameterError.of("rows_per_person", got=rows_per_person, accepted=accepted)
    n_classes = estimator.classes.size
    facts = Facts(n_features=n_features, n_classes=n_classes, unit=unit)
    mechanism: Any = estimator.plan(facts)
    # Refuse budgets whose noise cannot be drawn.
    events = mechanism.events
    shared: dict[str, Any] = {
        "estimator": type(estimator).__name__,
        "epsilon": mechanism.epsilon,
        "delta": mechanism.delta,
        "adjacency": estimator.adjacency,
        "unit": unit,
        "n_features": n_features,
        "n_classes": n_classes,
        "n_samples": n_samples,
    }
    if rows_per_person is not None:
        rows = check.check_integer("rows_per_person", rows_per_person, 1, LARGEST_GROUP)
        epsilon = composed_epsilon(events, mechanism.delta, group_size=rows)
        shared |= {"rows_per_person": rows, "epsilon_of_person": epsilon}
    counts = getattr(mechanism, "class_counts", None)
    shared["class_count_deviation"] = counts and counts.sum.deviation
    mechanism = mechanism.weighed_training
    shared |= {"loss": mechanism.loss.name, "n_scores": mechanism.loss.n_scores}
    if isinstance(mechanism, PrivateLinear):
        return NoisePlan(**shared, **_pipeline(mechanism, n_samples))
    shared |= {"n_columns": n_features, "n_weights": mechanism.n_weights}
    return NoisePlan(**shared, **_solver(mechanism, n_samples))


# --- Pipelines ------------------------------------------------------------------------------------


def _pipeline(mechanism: PrivateLinear, n_samples: int | None) -> dict[str, Any]:
    """Return every release of a pipeline, as far as it is known."""
    training = None if n_samples is None else mechanism.training(float(n_samples))
    facts: dict[str, Any] = {
        "mu": None if mechanism.pure else mechanism.mu,
        "centre": _centre(mechanism, n_samples),
        "whitening": _whitening(mechanism, training),
    }
    n_columns: int | None = mechanism.n_features
    if isinstance(mechanism, PrivateKernel):
        facts["kernel"], n_columns = _kernel(mechanism, n_samples)
    n_weights = None
    if n_columns is not None:
        n_weights = mechanism.loss.n_scores * (n_columns + mechanism.fit_intercept)
    facts |= {"n_columns": n_columns, "n_weights": n_weights}
    if training is not None and n_samples is not None:
        facts |= _training(training, mechanism, n_samples)
    return facts


def _centre(mechanism: PrivateLinear, n_samples: int | None) -> CentreNoise | None:
    """Return the noise in the mean and in the number of rows."""
    centre = mechanism.centre
    if centre is None:
        return None
    noise = centre.sum.deviation
    length = noise * math.sqrt(mechanism.n_features)
    return CentreNoise(
        mu_share=None if centre.mu is None else _share(centre.mu, mechanism),
        epsilon=centre.epsilon,
        sum_deviation=noise,
        # Half the number of rows is released with the sums.
        count_deviation=2.0 * noise if centre.counts else None,
        mean_length=None if n_samples is None else length / n_samples,
    )


def _share(mu: float, mechanism: PrivateLinear) -> float:
    """Return the share of the budget."""
    return (mu / mechanism.mu) ** 2


def _whitening(mechanism: PrivateLinear, training: Training | None) -> Whitening | None:
    """Return whether this many rows are whitened; in a fit the noisy number decides."""
    moments = mechanism.whitening
    if moments is None:
        return None
    needed = 1
    if mechanism.whiten is not True:
        # More rows than any data set has, if no number of rows is enough.
        needed = bisect.bisect_left(range(2**53), 1, lo=1, key=mechanism.worth_whitening)
    together = joined_parameter(*(each.mu for each in mechanism.whitenings))
    return Whitening(
        mu_share=_share(together, mechanism),
        n_releases=len(mechanism.whitenings),
        n_rows_needed=needed,
        whitened=None if training is None else training.whitened,
    )


def _kernel(
    mechanism: PrivateKernel, n_samples: int | None
) -> tuple[KernelFeatures | None, int | None]:
    """Return the kernel chosen for this number of rows, and the number of columns."""
    if n_samples is None:
        return None, None
    choice = mechanism.choice(float(n_samples))
    if choice.gamma is None:
        return filled(KernelFeatures, choice, n_frequencies=None), mechanism.n_features
    n_frequencies = mechanism.n_components
    return filled(KernelFeatures, choice, n_frequencies=n_frequencies), 2 * n_frequencies


def _training(training: Training, mechanism: PrivateLinear, n_samples: int) -> dict[str, Any]:
    """Return the descent or the solver, and its noise."""
    rule = training.rule
    if rule is None:
        assert training.solver is not None
        return _solver(training.solver, n_samples, is_bound=True)
    descent = filled(
        DescentNoise,
        rule,
        mu_share=_share(rule.mu, mechanism),
        clip_norm=rule.clip,
        step_deviation=rule.sum.scale,
        flops=4.0 * n_samples * math.prod(rule.shape) * rule.n_steps,
    )
    # Each step moves W by at most p eta n R, momentum included, so the iterate after t steps has
    # norm at most t p eta n R.
    steps = 0.5 * (rule.average_from + 1 + rule.n_moves) * rule.pace
    largest = steps * rule.learning_rate * n_samples * rule.clip
    decision = _decision(mechanism.loss, rule.deviation, largest, is_bound=True)
    return {"descent": descent, "decision": decision}


# --- Solvers --------------------------------------------------------------------------------------


def _solver(mechanism: Solver, n_samples: int | None, *, is_bound: bool = False) -> dict[str, Any]:
    r"""Return the noise inside the objective, or on trained weights.

    At the minimiser :math:`\tfrac{\lambda}{2} \|W\|^2 \le n \phi(0)`, the objective at W = 0, and
    :math:`\lambda W` is the sum of n gradients of norm at most :math:`L \kappa_t` each.
    """
    noise, lam = mechanism.output, mechanism.regularization
    deviation = noise.deviation
    found: dict[str, Any]
    if isinstance(mechanism, ObjectivePerturbation):
        inside = mechanism.inside
        # A coordinate of the minimiser is a function of Gaussians with the Lipschitz constant
        # 1 / lambda: neither its standard deviation nor its tails are those of a larger one.
        deviation, is_bound = math.hypot(inside.deviation / lam, deviation), True
        objective = filled(
            ObjectiveNoise,
            mechanism,
            extra_regularization=inside.record.extra_regularization,
            linear_deviation=inside.deviation,
            output_deviation=noise.deviation,
        )
        found = {"objective": objective}
    else:
        found = {"output": filled(OutputNoise, mechanism, noise, sensitivity=noise.total)}
    loss, norms = mechanism.loss, (mechanism.row_norm, mechanism.data_norm)
    largest = None
    if n_samples is not None:
        by_gradients = n_samples * loss.lipschitz * mechanism.row_norm / lam
        largest = min(math.sqrt(2.0 * n_samples * loss.at_zero / lam), by_gradients)
    return found | {"decision": _decision(loss, deviation, largest, *norms, is_bound=is_bound)}


def _decision(
    loss: Loss,
    weight_deviation: float,
    largest_norm: float | None,
    row_norm: float = 1.0,
    data_norm: float = 1.0,
    *,
    is_bound: bool,
) -> Decision:
    """Return the effect of noise in weights of at most this norm before the noise.

    By default rows have norm 1, the constant feature included.
    """
    score = weight_deviation * row_norm
    # A difference of two rows of W has at most this share of the norm of W.
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
