"""Checks of the arguments of noise, and the source that it is drawn from."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpsvm_fast import _core
from dpsvm_fast._validation import (
    check_integer,
    check_random_state,
    check_real,
)
from dpsvm_fast.exceptions import InvalidParameterError

_MIN_SIGMA, _MAX_SIGMA = 1e-290, 1e300
MAX_SIDE = 2**63 - 1


def make_source(random_state: int | None) -> _core.NoiseSource:
    """Make a source of noise for `random_state`, in a thread that computes as the proofs assume."""
    return _core.NoiseSource(check_random_state(random_state))


def check_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return `shape` as a tuple whose product fits an array."""
    sides = shape if isinstance(shape, (tuple, list)) else (shape,)
    dims = tuple(check_integer("shape", side, 0, MAX_SIDE) for side in sides)
    if math.prod(dims) > MAX_SIDE:
        raise InvalidParameterError(f"shape: got {dims}, expected at most {MAX_SIDE} entries")
    return dims


def check_sigma(sigma: float) -> float:
    """Return `sigma` as 0 or a positive float whose noise can be represented."""
    number = check_real("sigma", sigma, low=0.0, high=_MAX_SIGMA)
    if 0.0 < number < _MIN_SIGMA:
        raise InvalidParameterError(
            f"sigma: got {number}, expected 0 or a number from {_MIN_SIGMA} to {_MAX_SIGMA}"
        )
    return number
