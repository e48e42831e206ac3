"""Accounting: from noise and events to epsilon and delta, and back."""

from dpsvm_fast.accounting.composition import (
    composed_delta,
    composed_epsilon,
    delta_without_distance,
)
from dpsvm_fast.accounting.export import dp_accounting_event, dp_accounting_tree
from dpsvm_fast.accounting.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    subsampled_gaussian_delta,
    subsampled_gaussian_epsilon,
    subsampled_gaussian_noise_multiplier,
)
from dpsvm_fast.accounting.objective import objective_delta, objective_sigma

__all__ = [
    "composed_delta",
    "composed_epsilon",
    "delta_without_distance",
    "dp_accounting_event",
    "dp_accounting_tree",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "objective_delta",
    "objective_sigma",
    "subsampled_gaussian_delta",
    "subsampled_gaussian_epsilon",
    "subsampled_gaussian_noise_multiplier",
]
