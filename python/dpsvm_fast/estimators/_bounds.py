"""Public bounds of features: what is accepted, and the map of rows that follows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms._row_maps import PublicMap
from dpsvm_fast.mechanisms._settings import LARGEST

__all__ = ["Bounds", "broadcast_bounds", "check_extent", "checked_bounds", "public_map"]

# Lower and upper ones, as numbers or one for each feature.
Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]


def checked_bounds(value: Any) -> Bounds:
    """Two arrays of at most one dimension that go together."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(
            f"bounds: got {type(value).__name__}, expected a tuple (low, high) of numbers or arrays"
        )
    try:
        low, high = (np.array(side, dtype=np.float64) for side in value)
    except (OverflowError, TypeError, ValueError):
        raise TypeError(
            "bounds: got something else than numbers, expected a tuple (low, high) of numbers or "
            "arrays"
        ) from None
    if max(low.ndim, high.ndim) > 1 or (low.ndim == high.ndim and low.shape != high.shape):
        raise InvalidParameterError(
            f"bounds: got shapes {low.shape} and {high.shape}, expected numbers or one-dimensional "
            "arrays of one length"
        )
    with np.errstate(over="ignore"):
        width = high - low
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.isfinite(width).all()):
        raise InvalidParameterError("bounds: expected finite numbers with a finite difference")
    if not (width > np.finfo(np.float64).tiny).all():
        place = int(np.flatnonzero(~(np.atleast_1d(width) > np.finfo(np.float64).tiny))[0])
        ends = [float(np.broadcast_to(side, width.shape).flat[place]) for side in (low, high)]
        raise InvalidParameterError(
            f"bounds: got low = {ends[0]:g} and high = {ends[1]:g} for feature {place}, expected "
            "low < high for every feature; bounds are (lows, highs), not a pair for each feature"
        )
    return low, high


def broadcast_bounds(bounds: Bounds | None, n_features: int) -> Bounds | None:
    """Bounds as arrays of shape (n_features,)."""
    if bounds is None:
        return None
    for side in bounds:
        if side.ndim == 1 and side.size != n_features:
            raise InvalidParameterError(
                f"bounds: got {side.size} of them, expected numbers or one for each of the "
                f"{n_features} features"
            )
    low, high = (np.array(np.broadcast_to(side, (n_features,))) for side in bounds)
    return low, high


def public_map(bounds: Bounds | None, *, sparse_rows: bool) -> PublicMap:
    """The map of raw rows to rows of norm 1.

    Raises
    ------
    InvalidParameterError
        Bounds that would make sparse rows dense.
    """
    if bounds is None:
        return PublicMap()
    public = PublicMap.from_bounds(*bounds)
    if sparse_rows and public.offset is not None:
        raise InvalidParameterError(
            "bounds: expected low = 0, or low = -high, for sparse rows: other bounds map zeros to "
            "other numbers; pass such bounds or dense rows"
        )
    return public


def check_extent(public: PublicMap) -> None:
    """Refuse bounds that the compiled records would refuse once the budget is spent."""
    for numbers in (public.offset, public.scale):
        if numbers is not None and not (np.abs(numbers) <= LARGEST).all():
            raise InvalidParameterError(
                f"bounds: expected low from {-LARGEST:g} to {LARGEST:g}, and high at least "
                f"{1.0 / LARGEST:g} above it"
            )
