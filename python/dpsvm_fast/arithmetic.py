"""The floating-point mode that guarantees are proved for, whatever the calling thread has set."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from dpsvm_fast import _core

P = ParamSpec("P")

R = TypeVar("R")


def in_usual_arithmetic(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function with rounding to nearest and subnormal numbers; restore the thread's mode.

    A call of ``fesetround``, or a library compiled with ``-ffast-math``, changes the mode of the
    thread that makes or loads it; ``numpy.seterr`` changes what NumPy says about numbers that leave
    the floats. The caller of the function is two frames above it.
    """

    @wraps(function)
    def computed(*args: P.args, **kwargs: P.kwargs) -> R:
        with _core.UsualArithmetic(), np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return computed


def quiet(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function of rows without a word about numbers that leave the floats.

    Which numbers overflow, or fall below the normal ones, depends on the rows: neither a warning
    nor an error may tell, whatever the caller has made NumPy do about them.
    """

    @wraps(function)
    def computed(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return computed
