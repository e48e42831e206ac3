"""What the command line's ``plan`` says about a fit of the whole private pipeline."""

from __future__ import annotations

import argparse
import math

from dpsvm_fast import _validation as check
from dpsvm_fast.estimators import PrivateKernelSVC, PrivateLinearSVC
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms._descent_rule import DescentRule
from dpsvm_fast.mechanisms._noisy_sum import joined_parameter
from dpsvm_fast.mechanisms._training_path import Training
from dpsvm_fast.mechanisms.kernel_pipeline import (
    COMPONENTS_A_FEATURE,
    ROWS_A_FEATURE,
    SMALLEST_SIGNAL,
    PrivateKernel,
)
from dpsvm_fast.mechanisms.linear_pipeline import PrivateLinear

__all__ = ["describe_pipeline", "largest_lead", "planned_pipeline"]


def planned_pipeline(arguments: argparse.Namespace) -> PrivateLinear:
    """The releases of `PrivateLinearSVC`, or of `PrivateKernelSVC`, with these settings.

    Raises
    ------
    InvalidParameterError
        A setting outside its range, or one that the pipeline chooses itself.
    """
    for name, value, default in (("C", arguments.C, None), ("data_norm", arguments.data_norm, 1.0)):
        if value != default:
            raise InvalidParameterError.of(
                name, got=value, accepted="it left out with --mechanism auto, which chooses it"
            )
    n_classes = check.check_integer("classes", arguments.classes, 2)
    n_features = check.check_integer("features", arguments.features, 1)
    shared = {"adjacency": arguments.adjacency, "classes": range(n_classes)}
    budget = (arguments.epsilon, arguments.delta)
    estimator = (
        PrivateLinearSVC(*budget, **shared)
        if arguments.kernel is None
        else PrivateKernelSVC(*budget, kernel=arguments.kernel, **shared)
    )
    return estimator._mechanism(estimator._checked_parameters(), n_classes, n_features)


def describe_pipeline(mechanism: PrivateLinear, n_samples: int | None) -> list[str]:
    """Lines about every release, as far as they are known before any data are touched.

    Parameters
    ----------
    mechanism : PrivateLinear
    n_samples : int or None
        Expected number of training rows; what depends on it is left out with None.
    """
    kernel = isinstance(mechanism, PrivateKernel)
    budget = "" if mechanism.pure else f", mu = {mechanism.mu:.6g}"
    lines = [
        f"Private pipeline ({'PrivateKernelSVC' if kernel else 'PrivateLinearSVC'}), "
        f"loss {mechanism.loss.name}, epsilon = {mechanism.epsilon:g}, "
        f"delta = {mechanism.delta:g} ({mechanism.adjacency}){budget}",
    ]
    if not kernel:
        lines.append(_weights(mechanism, mechanism.n_features))
    lines += _centre(mechanism, n_samples)
    if n_samples is None:
        needed = _rows_for_whitening(mechanism)
        if needed is not None:
            lines.append(
                f"  whitening      from {needed} rows on, {_share_of_whitening(mechanism)}"
            )
        what = "kernel and training depend" if kernel else "training       depends"
        return [*lines, f"  {what} on the number of rows: give --samples"]
    training = mechanism.training(float(n_samples))
    lines += _whitening(mechanism, training, n_samples)
    if isinstance(mechanism, PrivateKernel):
        lines += _kernel(mechanism, n_samples)
    if training.rule is not None:
        lines += _training(training.rule, mechanism)
    return lines


def _weights(mechanism: PrivateLinear, n_columns: int) -> str:
    """How many numbers are trained."""
    n_scores = mechanism.loss.n_scores
    return (
        f"  weights        {n_scores} score{'s'[: n_scores - 1]} x ({n_columns} features + 1)"
        f" = {n_scores * (n_columns + mechanism.fit_intercept)}"
    )


def _kernel(mechanism: PrivateKernel, n_samples: int) -> list[str]:
    """What the rule chooses for so many rows; a fit asks it about the noisy number."""
    choice = mechanism.choice(float(n_samples))
    judged = f"q = {choice.signal:.4g}"
    if choice.gamma is not None:
        columns = 2 * mechanism.n_components
        return [
            f"  kernel         {choice.kernel}: {judged}, gamma = {choice.gamma:.4g}, "
            f"{mechanism.n_components} frequencies, {columns} features",
            _weights(mechanism, columns),
        ]
    lines = [f"  kernel         linear: {judged}"]
    if mechanism.kernel == "auto":
        lines[0] += (
            f"; a kernel takes q >= {SMALLEST_SIGNAL:g}, and rows that are whitened or\n"
            f"                 {ROWS_A_FEATURE:g} times as many as features"
        )
        if mechanism.pure:
            lines[0] += f"; with delta = 0 also {COMPONENTS_A_FEATURE:g} frequencies a feature"
    return [*lines, _weights(mechanism, mechanism.n_features)]


def _centre(mechanism: PrivateLinear, n_samples: int | None) -> list[str]:
    """Noise in the mean and in the number of rows."""
    centre = mechanism.centre
    assert centre is not None
    share = f"epsilon = {centre.epsilon:g}" if centre.mu is None else _share(centre.mu, mechanism)
    noise = centre.sum.deviation
    lines = [f"  centre         {share}: standard deviation {noise:.6g} on every sum over the rows"]
    if centre.counts:
        # Half the number of rows is released beside the sums.
        lines.append(f"                 and {2.0 * noise:.6g} on their number")
    if n_samples is not None:
        length = noise * math.sqrt(mechanism.n_features) / n_samples
        lines.append(f"                 noise in the mean of rows of norm 1: length {length:.4g}")
    return lines


def _share(mu: float, mechanism: PrivateLinear) -> str:
    """Part of the budget."""
    return f"{100.0 * (mu / mechanism.mu) ** 2:.3g} % of mu^2"


def _share_of_whitening(mechanism: PrivateLinear) -> str:
    """What whitening takes from the training."""
    times = len(mechanism.whitenings)
    how = f"in {times} releases " if times > 1 else ""
    together = joined_parameter(*(moments.mu for moments in mechanism.whitenings))
    return f"{how}for {_share(together, mechanism)}"


def _rows_for_whitening(mechanism: PrivateLinear) -> int | None:
    """The smallest number of rows that are whitened; None where none are."""
    moments = mechanism.whitening
    if moments is None:
        return None
    high = 1
    while not moments.worthwhile(float(high)):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if moments.worthwhile(float(middle)) else (middle, high)
    return high


def _whitening(mechanism: PrivateLinear, training: Training, n_samples: int) -> list[str]:
    """Whether so many rows are whitened; the noisy number decides."""
    needed = _rows_for_whitening(mechanism)
    if needed is None:
        return ["  whitening      no: it needs delta > 0"]
    how = "yes" if training.whitened else "no"
    spent = _share_of_whitening(mechanism) if training.whitened else "nothing spent"
    return [
        f"  whitening      {how}, {spent}: the noisy number, about {n_samples}, is "
        f"{'at least' if training.whitened else 'below'} {needed}"
    ]


def _training(rule: DescentRule, mechanism: PrivateLinear) -> list[str]:
    """The descent and its noise."""
    return [
        f"  training       {_share(rule.mu, mechanism)}: {rule.n_steps} steps over all rows, "
        f"gradients clipped to norm {rule.clip:.6g}",
        f"  lambda         {rule.regularization:.6g} (c = {rule.c:.4g}), step "
        f"{rule.learning_rate:.6g} on the sum of gradients",
        f"  noise          standard deviation {rule.sum.scale:.6g} on every number of a step's sum",
        f"  one weight     standard deviation at most {rule.deviation:.6g}; usually less the more "
        "rows there are",
    ]


def largest_lead(rule: DescentRule, n_samples: int) -> float:
    r"""Bound of the lead of one class over another, over all data sets, before the noise.

    Each step moves W by at most eta n R, so the iterate after t steps has norm at most t eta n R;
    a difference of two rows of W has at most sqrt 2 of that. Rows have norm 1.
    """
    steps = 0.5 * (rule.average_from + 1 + rule.n_steps)
    weights = steps * rule.learning_rate * n_samples * rule.clip
    return (math.sqrt(2.0) if rule.loss.n_scores > 1 else 1.0) * weights
