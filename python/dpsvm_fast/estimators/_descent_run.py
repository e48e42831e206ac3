"""A run of the compiled descent: rows, steps, progress."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.estimators._continuation import Continuation, resumed
from dpsvm_fast.estimators._progress import shares_with_progress
from dpsvm_fast.mechanisms._row_maps import PublicMap
from dpsvm_fast.mechanisms.gradient import GradientPerturbation

__all__ = ["descend", "started", "take_steps", "training_records"]

# Noise that one call of the compiled descent draws at most: it counts its streams in 32 bits.
MOST_NUMBERS = 2**32


def started(mechanism: GradientPerturbation, before: Continuation | None) -> _core.Descent:
    """The descent before its first step, or where the calls before have left it."""
    if before is None:
        return _core.Descent(**_options(mechanism, None))
    return _core.Descent(**_options(mechanism, before), state=resumed(before.state))


def _options(mechanism: GradientPerturbation, before: Continuation | None) -> dict[str, Any]:
    """Settings of the compiled descent."""
    return mechanism.descent_options(0 if before is None else before.n_steps)


def descend(
    descent: _core.Descent,
    X: Any,
    codes: NDArray[np.int64],
    mechanism: GradientPerturbation,
    settings: SimpleNamespace,
    source: _core.NoiseSource,
) -> None:
    """Take all steps of one call. What the descent knows then are noisy sums alone."""
    records = training_records(X, codes, mechanism, settings.n_threads)
    options = _options(mechanism, settings.before)
    most = max(1, MOST_NUMBERS // math.prod(mechanism.shape))
    shown = settings.verbose > 0
    for share in shares_with_progress(mechanism.steps, most=most, shown=shown):
        take_steps(descent, options, records, source, share, settings.n_threads)


def take_steps(
    descent: _core.Descent,
    options: dict[str, Any],
    records: Any,
    source: _core.NoiseSource,
    n_steps: int,
    n_threads: int,
) -> None:
    """Steps on records here, or on those of several partitions, of which only sums come here.

    Parameters
    ----------
    descent : Descent
        Its state is moved on.
    options : dict
        The settings that it was made with.
    records : Records, or what stands for those of all partitions
    source : NoiseSource
        Every noise is drawn from it, here.
    n_steps : int
    n_threads : int
        Does not change the result.
    """
    elsewhere = getattr(records, "descend", None)
    if elsewhere is None:
        descent.run(records, source, n_steps, n_threads)
    else:
        elsewhere(descent, options, source, n_steps)


def training_records(
    X: Any, codes: NDArray[np.int64], mechanism: GradientPerturbation, n_threads: int
) -> _core.Records:
    """The rows divided by the bound of their norm, in the form of the compiled descent."""
    public = PublicMap(unit=False, data_norm=mechanism.data_norm)
    return public.records(X, codes, mechanism.loss.n_classes, n_threads)
