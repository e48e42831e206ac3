"""Mutants of the constants of losses, for every mechanism with noise in its objective."""

from __future__ import annotations

import math

import pytest

from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms import objective as gaussian_objective

Patch = pytest.MonkeyPatch


def no_jacobian(patch: Patch) -> None:
    patch.setattr(Loss, "jacobian", lambda *_: 0.0)


def no_gaussian_jacobian(patch: Patch) -> None:
    original = gaussian_objective._calibrated
    patch.setattr(
        gaussian_objective,
        "_calibrated",
        lambda *target, kappa: original(*target, jacobian=0.0),
    )


def one_pairs_gradient(patch: Patch) -> None:
    """L = sqrt(2), that of a softmax, for K - 1 hinges that one record can violate at once."""
    patch.setattr(Loss, "lipschitz", math.sqrt(2.0))


def halved_curvature(patch: Patch) -> None:
    original = Loss.curvature_ratio
    patch.setattr(Loss, "curvature_ratio", lambda *a: 0.5 * original(*a))
