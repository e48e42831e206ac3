"""Run functions in the floating-point mode that the proofs assume."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np

from dpsvm_fast.rounding import SMALLEST_FLOAT

# Names, not literals: the compiler would fold those before anyone changed the rounding.
_ONE, _TINY, _NORMAL = 1.0, 2.0**-60, sys.float_info.min


def check_arithmetic() -> None:
    """Refuse a thread whose floating-point unit is not in the default mode.

    Rounding bounds and exact sums are proved for rounding to nearest with subnormal numbers.

    Raises
    ------
    FloatingPointError
        The unit does not round to nearest, or treats subnormal numbers as 0.
    """
    # One of the two is inexact and moves in each of the three directed roundings.
    if _ONE + _TINY != _ONE or _ONE - _TINY != _ONE:
        changed = "no longer rounds to nearest"
    elif _NORMAL * 0.5 == 0.0 or SMALLEST_FLOAT * 2.0 == 0.0:
        changed = "now treats subnormal numbers as 0"
    else:
        return
    raise FloatingPointError(
        f"this thread {changed}, which no guarantee covers, because another library changed its "
        "arithmetic (-ffast-math, fesetround); nothing was spent: use a process that does not "
        "import that library"
    )


@contextmanager
def _usual_arithmetic() -> Iterator[None]:
    """Run the body with rounding to nearest and subnormal numbers; overflow gives no warning."""
    core = sys.modules.get("dpsvm_fast._core")
    if core is None:
        check_arithmetic()
    usual = nullcontext() if core is None else core.UsualArithmetic()
    with usual, np.errstate(all="ignore"):
        yield


@contextmanager
def _no_numpy_warnings() -> Iterator[None]:
    """Run the body without NumPy's warnings and errors about overflow and underflow."""
    with np.errstate(all="ignore"):
        yield


# Decorates a function to run with rounding to nearest and subnormal numbers. Without the compiled
# module, any other mode is refused.
#
# A call of ``fesetround``, or a library compiled with ``-ffast-math``, changes the mode of the
# calling or loading thread; ``numpy.seterr`` changes how NumPy reports overflow and underflow. The
# thread's mode is restored afterwards. The decorator adds one frame: the caller is two frames above
# the function.
in_usual_arithmetic = _usual_arithmetic()

# Decorates a function of rows to ignore overflow and underflow silently. Whether a number overflows
# or underflows depends on the rows, so no warning or error may reveal it, whatever the caller's
# NumPy settings are.
quiet = _no_numpy_warnings()
