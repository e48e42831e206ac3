"""Wrong prices of noise in objectives, on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpsvm_fast.mechanisms import objective
from dpsvm_fast.mechanisms.noise import RELATION_FACTOR
from dpsvm_fast.mechanisms.objective import LinearNoise

Patch = pytest.MonkeyPatch


def forgotten_record(patch: Patch) -> None:
    """A replacement moves one gradient only: of Gamma noise, beta instead of beta / 2."""
    patch.setitem(RELATION_FACTOR, "replace_one", 1)


def forgotten_relation(patch: Patch) -> None:
    """Gaussian noise of a replacement calibrated as for an addition."""
    original = objective.noise_multiplier
    patch.setattr(
        objective,
        "noise_multiplier",
        lambda loss, e, d, _, kappa: original(loss, e, d, "add_remove", kappa),
    )


def scaled(name: str, factor: float) -> Callable[[Patch], None]:
    """A function that calibrates the noise returns ``factor`` times its value."""

    def apply(patch: Patch) -> None:
        original: Any = getattr(objective, name)
        patch.setattr(objective, name, lambda *a: factor * original(*a))

    return apply


def unused_extra(patch: Patch) -> None:
    """The guarantee counts on the extra regularisation; the objective has its own share only."""
    original: Any = LinearNoise.curvature_ratio
    patch.setattr(LinearNoise, "regularization", property(lambda p: p.own_regularization))
    patch.setattr(LinearNoise, "curvature_ratio", property(lambda p: 0.5 * original.func(p)))
