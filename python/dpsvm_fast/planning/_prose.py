"""A plan in words, one line a fact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsvm_fast.mechanisms._noisy_moments import MOST_FEATURES
from dpsvm_fast.mechanisms.kernel_pipeline import (
    COMPONENTS_A_FEATURE,
    ROWS_A_FEATURE,
    SMALLEST_SIGNAL,
)

if TYPE_CHECKING:
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

__all__ = ["describe"]

PIPELINES = ("PrivateLinearSVC", "PrivateKernelSVC")
OWN_TITLES = {
    "ObjectivePerturbationSVC": "Objective perturbation",
    "OutputPerturbationSVC": "Output perturbation",
}


def describe(plan: NoisePlan) -> list[str]:
    """The plan, line by line."""
    whose_rows = plan.estimator == "PrivateKernelSVC"
    lines = [_title(plan)]
    if not whose_rows:
        lines.append(_weights(plan))
    if plan.centre is not None:
        lines += _centre(plan.centre)
    if plan.estimator in PIPELINES:
        lines += _whitening(plan)
    if plan.kernel is not None:
        lines += [*_kernel(plan.kernel, pure=plan.delta == 0.0), _weights(plan)]
    if plan.descent is not None:
        lines += _descent(plan.descent, plan.decision)
    if plan.objective is not None:
        lines += _objective(plan.objective, plan.decision)
    if plan.output is not None:
        lines += _output(plan.output)
    if plan.decision is None:
        what = "kernel and training depend" if whose_rows else "training       depends"
        return [*lines, f"  {what} on the number of rows: give --samples"]
    return lines + _decision(plan.decision, plan.n_samples)


def _percent(share: float) -> str:
    """A share of the budget."""
    return f"{100.0 * share:.3g} %"


def _title(plan: NoisePlan) -> str:
    """What is planned."""
    name = OWN_TITLES.get(plan.estimator, f"Private pipeline ({plan.estimator})")
    budget = "" if plan.mu is None else f", mu = {plan.mu:.6g}"
    return (
        f"{name}, loss {plan.loss}, epsilon = {plan.epsilon:g}, delta = {plan.delta:g} "
        f"({plan.adjacency}){budget}"
    )


def _weights(plan: NoisePlan) -> str:
    """How many numbers are trained."""
    constant = "" if plan.n_weights == plan.n_scores * (plan.n_columns or 0) else " + 1"
    return (
        f"  weights        {plan.n_scores} score{'s'[: plan.n_scores - 1]} x "
        f"({plan.n_columns} features{constant}) = {plan.n_weights}"
    )


def _centre(centre: CentreNoise) -> list[str]:
    """Noise in the mean and in the number of rows."""
    share = (
        f"epsilon = {centre.epsilon:g}"
        if centre.mu_share is None
        else f"{_percent(centre.mu_share)} of mu^2"
    )
    noise = f"standard deviation {centre.sum_deviation:.6g} on every sum over the rows"
    lines = [f"  centre         {share}: {noise}"]
    if centre.count_deviation is not None:
        lines.append(f"                 and {centre.count_deviation:.6g} on their number")
    if centre.mean_length is not None:
        length = f"length {centre.mean_length:.4g}"
        lines.append(f"                 noise in the mean of rows of norm 1: {length}")
    return lines


def _whitening(plan: NoisePlan) -> list[str]:
    """Whether rows are whitened; the noisy number decides."""
    whitening = plan.whitening
    if whitening is None:
        return [f"  whitening      no: {_why_not(plan)}"] if plan.n_samples is not None else []
    if whitening.whitened is None:
        return [f"  whitening      from {whitening.n_rows_needed} rows on, {_share_of(whitening)}"]
    spent = _share_of(whitening) if whitening.whitened else "nothing spent"
    return [
        f"  whitening      {'yes' if whitening.whitened else 'no'}, {spent}: the noisy number, "
        f"about {plan.n_samples}, is {'at least' if whitening.whitened else 'below'} "
        f"{whitening.n_rows_needed}"
    ]


def _why_not(plan: NoisePlan) -> str:
    """Why no number of rows would be whitened."""
    if plan.delta == 0.0:
        return "it needs delta > 0"
    if plan.n_features > MOST_FEATURES:
        return f"only up to {MOST_FEATURES} features are"
    return "it is switched off"


def _share_of(whitening: Whitening) -> str:
    """What whitening takes from the training."""
    how = f"in {whitening.n_releases} releases " if whitening.n_releases > 1 else ""
    return f"{how}for {_percent(whitening.mu_share)} of mu^2"


def _kernel(features: KernelFeatures, *, pure: bool) -> list[str]:
    """What the rule chooses for so many rows; a fit asks it about the noisy number."""
    judged = f"q = {features.signal:.4g}"
    if features.gamma is not None and features.n_frequencies is not None:
        return [
            f"  kernel         {features.kernel}: {judged}, gamma = {features.gamma:.4g}, "
            f"{features.n_frequencies} frequencies, {2 * features.n_frequencies} features"
        ]
    line = f"  kernel         linear: {judged}"
    if features.asked == "auto":
        line += (
            f"; a kernel takes q >= {SMALLEST_SIGNAL:g}, and rows that are whitened or\n"
            f"                 {ROWS_A_FEATURE:g} times as many as features"
        )
        if pure:
            line += f"; with delta = 0 also {COMPONENTS_A_FEATURE:g} frequencies a feature"
    return [line]


def _descent(descent: DescentNoise, decision: Decision | None) -> list[str]:
    """The descent and its noise."""
    return [
        f"  training       {_percent(descent.mu_share)} of mu^2: {descent.n_steps} steps over all "
        f"rows, gradients clipped to norm {descent.clip_norm:.6g}",
        f"  lambda         {descent.regularization:.6g} (c = {descent.c:.4g}), step "
        f"{descent.learning_rate:.6g} on the sum of gradients",
        f"  noise          standard deviation {descent.step_deviation:.6g} on every number of a "
        "step's sum",
        *_one_weight(decision),
    ]


def _objective(noise: ObjectiveNoise, decision: Decision | None) -> list[str]:
    """What determines the noise in the objective."""
    origin = "automatic" if noise.C is None else "1 / C"
    if noise.C is not None and noise.extra_regularization > 0.0:
        origin = f"1 / C = {1.0 / noise.C:.6g}, the rest for the sake of privacy"
    return [
        f"  lambda         {noise.regularization:.6g} ({origin})",
        f"  noise          standard deviation {noise.linear_deviation:.6g} on every component of "
        "the linear term",
        f"                 and {noise.output_deviation:.3g} on every weight for the solver's "
        "tolerance",
        *_one_weight(decision),
    ]


def _one_weight(decision: Decision | None) -> list[str]:
    """Bound of the noise in a weight."""
    if decision is None:
        return []
    return [
        f"  one weight     standard deviation at most {decision.weight_deviation:.6g}; usually "
        "less the more rows there are"
    ]


def _output(noise: OutputNoise) -> list[str]:
    """What determines the noise on the weights."""
    return [
        f"  C              {noise.C:.6g} ({'automatic' if noise.automatic else 'given'})",
        f"  sensitivity    {noise.sensitivity:.6g}",
        f"  noise          standard deviation {noise.deviation:.6g} on every weight",
    ]


def _decision(decision: Decision, n_samples: int | None) -> list[str]:
    """What noise of this size means."""
    asked = (
        f"the loss asks for a margin of {decision.margin:g}"
        if decision.margin
        else f"the loss has temperature {decision.temperature:g}, no margin"
    )
    lines = [
        f"  one score      standard deviation {'at most ' if decision.is_bound else ''}"
        f"{decision.score_deviation:.4g} for a row of norm {decision.data_norm:g}; {asked}",
        f"  a decision     a lead of {decision.lead:.4g} of one class over another survives the "
        "noise",
        f"                 with probability {'at least ' if decision.is_bound else ''}95 %",
    ]
    if decision.largest_lead is not None:
        largest = f"{decision.largest_lead:.4g}"
        lines.append(f"  the most       that {n_samples} rows can lead by: {largest}")
    if decision.drowned:
        lines.append(
            "With so few rows the noise drowns every decision: a larger epsilon is needed."
        )
    return lines
