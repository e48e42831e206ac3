"""What a fit does, and what it leaves behind."""

from __future__ import annotations

from typing import Any

import pytest


def fitted_names(estimator: Any) -> list[str]:
    """Names of the attributes that a fit has set."""
    parameters = estimator.get_params(deep=False)
    return [name for name in vars(estimator) if name not in parameters]


def watched(patch: pytest.MonkeyPatch, target: Any, name: str, seen: list[str]) -> None:
    """Notes in ``seen`` every call of a function."""
    original = getattr(target, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        seen.append(name)
        return original(*args, **kwargs)

    patch.setattr(target, name, call)
