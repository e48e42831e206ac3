"""Estimators: each combines a loss, a solver, a mechanism and a privacy event."""

from __future__ import annotations

from dpsvm_fast.estimators.gaussian_margin import PrivateGaussianMarginClassifier
from dpsvm_fast.estimators.gradient import GradientPerturbationSVC
from dpsvm_fast.estimators.kernel import PrivateKernelSVC
from dpsvm_fast.estimators.linear import PrivateLinearSVC
from dpsvm_fast.estimators.objective import ObjectivePerturbationSVC
from dpsvm_fast.estimators.output import OutputPerturbationSVC

__all__ = [
    "GradientPerturbationSVC",
    "ObjectivePerturbationSVC",
    "OutputPerturbationSVC",
    "PrivateGaussianMarginClassifier",
    "PrivateKernelSVC",
    "PrivateLinearSVC",
]
