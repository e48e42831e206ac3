"""Plans of noise, computed by the mechanisms that will add it."""

from __future__ import annotations

import copy
import math
from typing import Any

from dpsvm_fast import _validation as check
from dpsvm_fast.estimators import (
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateKernelSVC,
    PrivateLinearSVC,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._descent_rule import DescentRule
from dpsvm_fast.mechanisms._noisy_sum import joined_parameter
from dpsvm_fast.mechanisms._projected_sgd import loss_at_zero
from dpsvm_fast.mechanisms._training_path import Solver, Training
from dpsvm_fast.mechanisms._weight_noise import WeightNoise
from dpsvm_fast.mechanisms.kernel_pipeline import PrivateKernel
from dpsvm_fast.mechanisms.linear_pipeline import PrivateLinear
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from dpsvm_fast.planning._records import (
    CentreNoise,
    Decision,
    DescentNoise,
    KernelFeatures,
    NoisePlan,
    ObjectiveNoise,
    OutputNoise,
    Whitening,
)

__all__ = ["plan_noise"]

# The z with 95 % of a standard normal variable above -z.
Z_95 = 1.6448536269514722

PIPELINES = (PrivateLinearSVC, PrivateKernelSVC)
PLANNABLE = (*PIPELINES, ObjectivePerturbationSVC, OutputPerturbationSVC)


def plan_noise(estimator: Any, n_features: int, *, n_samples: int | None = None) -> NoisePlan:
    """Say what noise ``fit`` will add, from public facts alone.

    Parameters
    ----------
    estimator : estimator
        `PrivateLinearSVC` or `PrivateKernelSVC` with ``mechanism`` "auto" or "gradient",
        `ObjectivePerturbationSVC`, or `OutputPerturbationSVC` with the solver "exact". It has
        ``classes``, and stays as it is.
    n_features : int >= 1
        Number of features.
    n_samples : int >= 1 or None, default=None
        Expected number of training rows, if it is public. With None, what depends on it is left
        open.

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
    if not isinstance(estimator, PLANNABLE):
        raise TypeError(
            f"estimator: got {type(estimator).__name__}, expected PrivateLinearSVC, "
            "PrivateKernelSVC, ObjectivePerturbationSVC or OutputPerturbationSVC"
        )
    n_features = check.check_integer("n_features", n_features, 1)
    if n_samples is not None:
        n_samples = check.check_integer("n_samples", n_samples, 1)
    # Nothing is spent: a ledger without room is no reason not to plan.
    estimator = copy.copy(estimator).set_params(ledger=None)
    settings = estimator._checked_parameters()
    if settings.classes is None:
        raise InvalidParameterError("classes: got None, expected the public labels of the classes")
    _check_plannable(estimator)
    n_classes = settings.classes.size
    mechanism: Any = estimator._mechanism(settings, n_classes, n_features)
    shared = {
        "estimator": type(estimator).__name__,
        "epsilon": mechanism.epsilon,
        "delta": mechanism.delta,
        "adjacency": mechanism.adjacency,
        "n_features": n_features,
        "n_classes": n_classes,
        "n_samples": n_samples,
    }
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
    together = joined_parameter(*(each.mu for each in mechanism.whitenings))
    return Whitening(
        mu_share=_share(together, mechanism),
        n_releases=len(mechanism.whitenings),
        n_rows_needed=1 if mechanism.whiten is True else _smallest(moments.worthwhile),
        whitened=None if training is None else training.whitened,
    )


def _smallest(worthwhile: Any) -> int:
    """The smallest number of rows that is worthwhile."""
    high = 1
    while not worthwhile(float(high)):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if worthwhile(float(middle)) else (middle, high)
    return high


def _kernel(mechanism: PrivateKernel, n_samples: int) -> tuple[KernelFeatures, int]:
    """What the rule chooses for so many rows, and the number of columns; a fit asks about noise."""
    choice = mechanism.choice(float(n_samples))
    assert choice.signal is not None
    lifted = choice.gamma is not None
    features = KernelFeatures(
        asked=mechanism.kernel,
        kernel=choice.kernel,
        signal=choice.signal,
        gamma=choice.gamma,
        n_frequencies=mechanism.n_components if lifted else None,
    )
    return features, 2 * mechanism.n_components if lifted else mechanism.n_features


def _training(training: Training, mechanism: PrivateLinear, n_samples: int) -> dict[str, Any]:
    """The descent, or the solver, and its noise."""
    rule = training.rule
    if rule is None:
        assert training.solver is not None
        return _solver(training.solver, n_samples, automatic=True, is_bound=True)
    descent = DescentNoise(
        mu_share=_share(rule.mu, mechanism),
        n_steps=rule.n_steps,
        clip_norm=rule.clip,
        regularization=rule.regularization,
        c=rule.c,
        learning_rate=rule.learning_rate,
        step_deviation=rule.sum.scale,
    )
    # Rows have norm 1, the constant feature included.
    decision = _decision(
        mechanism.loss,
        rule.deviation,
        row_norm=1.0,
        data_norm=1.0,
        is_bound=True,
        largest_lead=_lead_of_descent(rule, n_samples),
    )
    return {"descent": descent, "decision": decision}


def _lead_of_descent(rule: DescentRule, n_samples: int) -> float:
    r"""Bound of the lead of one class over another, over all data sets, before the noise.

    Each step moves W by at most eta n R, so the iterate after t steps has norm at most t eta n R;
    a difference of two rows of W has at most sqrt 2 of that. Rows have norm 1.
    """
    steps = 0.5 * (rule.average_from + 1 + rule.n_steps)
    weights = steps * rule.learning_rate * n_samples * rule.clip
    return (math.sqrt(2.0) if rule.loss.n_scores > 1 else 1.0) * weights


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
        largest_lead=None if n_samples is None else _lead_of_solver(mechanism, n_samples),
    )
    if not isinstance(mechanism, ObjectivePerturbation):
        noise = OutputNoise(
            C=mechanism.C,
            automatic=automatic,
            sensitivity=mechanism.sensitivity,
            deviation=mechanism.scale,
        )
        return {"output": noise, "decision": decision}
    objective = ObjectiveNoise(
        C=mechanism.C,
        regularization=mechanism.regularization,
        extra_regularization=mechanism.inside.record.extra_regularization,
        linear_deviation=mechanism.inside.deviation,
        output_deviation=_released_deviation(mechanism.output),
    )
    return {"objective": objective, "decision": decision}


def _weight_deviation(mechanism: Solver) -> float:
    r"""Standard deviation of a released weight over the noise, or a bound of it.

    With noise B in the objective the minimiser W(B) moves by at most :math:`\|dB\|/\lambda`: any
    coordinate of it is a function of Gaussians with that Lipschitz constant, of which neither the
    standard deviation nor the tails beyond the median are larger than those of a linear one.
    """
    if not isinstance(mechanism, ObjectivePerturbation):
        return mechanism.scale
    inside = mechanism.inside.deviation / mechanism.regularization
    return math.hypot(inside, _released_deviation(mechanism.output))


def _released_deviation(noise: WeightNoise) -> float:
    """Standard deviation of Gaussian noise, or the root mean square of Gamma noise in a weight."""
    return noise.scale if noise.noise == "gaussian" else noise.deviation


def _lead_of_solver(mechanism: Solver, n_samples: int) -> float:
    r"""Bound of the lead of one class over another, over all data sets, before the noise.

    At the minimiser :math:`\tfrac{\lambda}{2} \|W\|^2 \le n \phi(0)`, the objective at W = 0, and
    :math:`\lambda W` is the sum of n gradients of norm at most :math:`L \kappa_t` each; a
    difference of two rows of W has at most :math:`\sqrt2 \|W\|`.
    """
    loss, norm, n = mechanism.score_loss, mechanism.row_norm, n_samples
    at_zero = 1.0 if loss.name == "crammer_singer" else loss_at_zero(loss)
    lam = mechanism.regularization
    weights = min(math.sqrt(2.0 * n * at_zero / lam), n * loss.lipschitz * norm / lam)
    return (math.sqrt(2.0) if loss.n_scores > 1 else 1.0) * weights * norm


def _decision(
    loss: Loss,
    weight_deviation: float,
    *,
    row_norm: float,
    data_norm: float,
    is_bound: bool,
    largest_lead: float | None,
) -> Decision:
    """What noise of this size in a weight means for a prediction."""
    score = weight_deviation * row_norm
    return Decision(
        weight_deviation=weight_deviation,
        score_deviation=score,
        is_bound=is_bound,
        data_norm=data_norm,
        margin=loss.margin,
        temperature=None if loss.margin else loss.temperature,
        # Scores of two classes have independent noise; one score for both is itself the lead.
        lead=Z_95 * score * (math.sqrt(2.0) if loss.n_scores > 1 else 1.0),
        largest_lead=largest_lead,
    )
