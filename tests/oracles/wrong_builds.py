"""Programs that are not as private as they claim, by their own constants changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from dpsvm_fast.mechanisms import gradient, noise
from dpsvm_fast.mechanisms import moments as scaling
from dpsvm_fast.mechanisms import objective as linear_noise
from dpsvm_fast.mechanisms.noise import RELATION_FACTOR
from dpsvm_fast.mechanisms.objective import noise_multiplier
from dpsvm_fast.mechanisms.output import ProjectedSGD
from dpsvm_fast.rounding import div_down

Patch = pytest.MonkeyPatch
Change = Callable[[Patch, str], None]
ROOT = math.sqrt(2.0)

# Calibrations: the module, the name, and whether a larger number is less noise.
CALIBRATIONS: tuple[tuple[Any, str, bool], ...] = (
    (noise, "gaussian_sigma", False),
    (noise, "div_down", True),
    (linear_noise, "noise_multiplier", False),
    (linear_noise, "largest_rate", True),
    (gradient, "gaussian_sigma", False),
    (gradient, "_noise_multiplier", False),
    (gradient, "gaussian_sigma", False),
    (noise, "scale_for", False),
)


def _scaled(function: Any, factor: float) -> Any:
    def wrong(*arguments: Any, **named: Any) -> Any:
        found = function(*arguments, **named)
        return None if found is None else found * factor

    return wrong


def noise_too_small_by_sqrt_2(patch: Patch, name: str) -> None:
    """Every calibrated scale of noise."""
    for module, function, inverse in CALIBRATIONS:
        wrong = _scaled(getattr(module, function), ROOT if inverse else 1.0 / ROOT)
        patch.setattr(module, function, wrong)
    if "Gamma" in name and name.startswith("Private"):
        # Of Gaussian sums it has another use.
        patch.setattr(noise, "div_down", _scaled(div_down, ROOT))


def replacement_counted_once(patch: Patch, name: str) -> None:
    """An exchange is taken to move a sum as one record more does."""
    patch.setitem(RELATION_FACTOR, "replace_one", 1)
    sampled = gradient._noise_multiplier

    def of_one_more(loss: Any, epsilon: float, delta: float, adjacency: str, **curve: float) -> Any:
        return noise_multiplier(loss, epsilon, delta, "add_remove", **curve)

    def sampled_of_one_more(*arguments: Any) -> Any:
        return sampled(*arguments[:-1], "add_remove")

    patch.setattr(linear_noise, "noise_multiplier", of_one_more)
    patch.setattr(gradient, "_noise_multiplier", sampled_of_one_more)
    # The exchange of orthogonal rows moves second moments by sqrt(2).
    patch.setattr(noise, "sqrt_up", lambda x: 1.0 if x == 2.0 else math.sqrt(x))
    patch.setattr(scaling, "div_up", lambda *_: 1.0)
    patch.setattr(ProjectedSGD, "sensitivity", _scaled(ProjectedSGD.sensitivity, 0.5))
