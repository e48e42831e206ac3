"""Run functions in the floating-point mode that the proofs assume."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from dpsvm_fast import _core

P = ParamSpec("P")

R = TypeVar("R")


def in_usual_arithmetic(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function to run with rounding to nearest and subnormal numbers.

    A call of ``fesetround``, or a library compiled with ``-ffast-math``, changes the mode of the
    calling or loading thread; ``numpy.seterr`` changes how NumPy reports overflow and underflow.
    The thread's mode is restored afterwards. The decorator adds one frame: the caller is two frames
    above the function.
    """

    @wraps(function)
    def computed(*args: P.args, **kwargs: P.kwargs) -> R:
        with _core.UsualArithmetic(), np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return computed


def quiet(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function of rows to ignore overflow and underflow silently.

    Whether a number overflows or underflows depends on the rows, so no warning or error may reveal
    it, whatever the caller's NumPy settings are.
    """

    @wraps(function)
    def computed(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return computed
