"""Tiny fits with odd parameters: from tiny to huge, and of wrong kinds.

A fit is refused with a typed error before anything is spent, or ends with finite numbers.
"""

from __future__ import annotations

import inspect
import math
import time
import warnings
from random import Random
from typing import Any

import numpy as np

from dpsvm_fast.exceptions import CertificationError
from oracles.subjects import SUBJECTS, made, spent

MAX_SECONDS = 20.0
ODD: list[Any] = [
    *(None, True, False, "", "auto", "x" * 10_000, b"1", [], (), {}, [1.0], object, 1j, 10**400),
    *(0, 1, -1, 2, 3, 10, 1000, 2**31, 2**63, 2**64, 0.0, -0.0, -1.0, float("nan"), float("inf")),
    *(-math.inf, 5e-324, 1e-320, 2.3e-308, 1e-300, 1e-200, 1e-100, 1e-30, 1e-9, 0.1, 0.5, 1.0),
    *(1 - 2**-53, 1 + 2**-52, 2.0, 1e3, 1e4, 1e9, 1e30, 1e38, 1e100, 1e200, 1e300, 1.7e308),
    *(np.float32(0.5), np.int8(3), np.array([1.0, 2.0]), np.array(1.0), np.nan, np.str_("auto")),
    *((0, 1), (0, 1e308), (-1e308, 1e308), (0, 5e-324), (1e308, 1.1e308), (-1e-300, 1e-300)),
    *((0, [1, 2, 3]), ([0, 0, 0], [1e-300, 1, 1e300]), (0.9, 0.999), [0, 1], ["a", "b"]),
]
NAMES = sorted(name for name in SUBJECTS if not SUBJECTS[name].slow)
LEFT_ALONE = ("ledger", "n_threads", "random_state", "verbose")


def number(random: Random) -> float:
    """Of any size."""
    return random.choice((1, 1, 1, -1)) * 10.0 ** random.uniform(-308, 308)


def fault_of(random: Random) -> str | None:
    """What a fit with some odd parameters did that it must not do."""
    name = random.choice(NAMES)
    estimator = made(name)
    known = [p for p in inspect.signature(type(estimator)).parameters if p not in LEFT_ALONE]
    chosen = random.sample(known, min(len(known), random.choice((1, 1, 2, 3))))
    odd = {p: number(random) if random.randrange(3) == 0 else random.choice(ODD) for p in chosen}
    # What takes long because it was asked for is no fault.
    for slow in ("n_steps", "n_epochs", "max_iter", "n_components", "n_ellipsoids", "max_samples"):
        if isinstance(odd.get(slow), (int, float)) and odd[slow] > 1000:
            del odd[slow]
    for p, value in odd.items():
        setattr(estimator, p, value)
    n, d = random.choice((2, 3, 20)), 3
    X = np.array([[random.uniform(-1, 1) for _ in range(d)] for _ in range(n)])
    X *= random.choice((0.0, 1e-300, 1e-9, 1.0, 1.0, 1.0, 1e9, 1e150))
    y = np.arange(n) % 3
    started = time.process_time()
    what = f"{name} {odd!r:.300} scale {abs(X).max():g} n {n}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            estimator.fit(X, y)
        except (TypeError, ValueError) as error:
            if not is_ours(error):
                return f"{what}: {type(error).__name__}: {str(error)[:200]}"
            if len(str(error)) > 2000:
                return f"{what}: a message of {len(str(error))} characters"
            if spent(estimator):
                return f"{what}: refused after spending: {str(error)[:200]}"
        except CertificationError:
            return None
        except BaseException as error:
            return f"{what}: {type(error).__name__}: {str(error)[:200]}"
        else:
            if bad := not_finite(estimator):
                return f"{what}: {bad} is not finite"
    if time.process_time() - started > MAX_SECONDS:
        return f"{what}: {time.process_time() - started:.0f} s"
    return None


def is_ours(error: Exception) -> bool:
    """Whether an error was raised on purpose, here or by scikit-learn's validation."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    file = "" if trace is None else trace.tb_frame.f_code.co_filename
    return "dpsvm_fast" in file or "sklearn" in file


def not_finite(estimator: Any) -> str | None:
    """The first fitted attribute with a number that is none."""
    for name, value in vars(estimator).items():
        if not name.endswith("_") or name.startswith("_"):
            continue
        for one in value if isinstance(value, tuple) else (value,):
            is_number = isinstance(one, (float, np.ndarray)) and np.asarray(one).dtype.kind == "f"
            if is_number and not np.isfinite(one).all():
                return name
    return None


def faults(n_fits: int, entropy: int) -> list[str]:
    """So many fits; what went wrong."""
    random = Random(entropy)
    return [found for _ in range(n_fits) if (found := fault_of(random)) is not None]
