"""How arrays, files, tables and collections come apart into partitions."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsvm_fast.distributed._loaders import Columns, FileRows, MemoryRows
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = [
    "blocks_of",
    "columns_of",
    "files_of",
    "has_blocks",
    "is_path",
    "is_persisted",
    "parts_of",
]


def parts_of(values: Any, cuts: range, step: int) -> list[Any]:
    """A loader for each range of rows; of a map by the name of its file."""
    file = FileRows.of(values) if isinstance(values, np.memmap) else None
    ends = [min(start + step, values.shape[0]) for start in cuts]
    if file is not None:
        return [file.part(start, end) for start, end in zip(cuts, ends, strict=True)]
    return [MemoryRows(values, start, end) for start, end in zip(cuts, ends, strict=True)]


def is_path(value: Any) -> bool:
    """Whether it is the name of a file."""
    return isinstance(value, (str, os.PathLike))


def files_of(paths: Any, suffix: str) -> list[str]:
    """Names of files, in order; folders and patterns by name."""
    found: list[str] = []
    for path in map(os.fspath, [paths] if is_path(paths) else paths):
        if os.path.isdir(path):
            found += sorted(glob.glob(os.path.join(glob.escape(path), f"*{suffix}")))
        elif glob.has_magic(path) and not os.path.exists(path):
            found += sorted(glob.glob(path))
        else:
            found.append(path)
    if not found:
        raise InvalidParameterError("paths: expected at least one file")
    return [os.path.abspath(path) for path in found]


def columns_of(
    schema: Any, label: str | None, features: Sequence[str] | None, before: Columns | None = None
) -> Columns:
    """Which columns are read, and as what; files must agree."""
    from pyarrow import types

    counts = Counter(schema.names)
    names = [name for name in schema.names if name != label] if features is None else list(features)
    for name in [*names, *([] if label is None else [label])]:
        if counts[name] != 1:
            raise InvalidParameterError(f"{name}: expected one column of this name in each file")
    if not names or label in names:
        raise InvalidParameterError(
            "features: expected at least one column, none of them the label"
        )
    kinds = [schema.field(name).type for name in names]
    for name, kind in zip(names, kinds, strict=True):
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise TypeError(f"features: column {name!r} has type {kind}, expected numbers")
    small = all(types.is_float32(kind) or types.is_float16(kind) for kind in kinds)
    found = Columns(tuple(names), label, np.dtype(np.float32 if small else np.float64))
    if before is not None and found.features != before.features:
        raise InvalidParameterError("features: expected the same columns in each file")
    return found


def has_blocks(collection: Any) -> bool:
    """Whether it is an array or a DataFrame in blocks."""
    return hasattr(collection, "to_delayed") and hasattr(collection, "shape")


def is_persisted(collection: Any) -> bool:
    """Whether blocks are on a cluster already."""
    try:
        from distributed.client import futures_of
    except ImportError:
        return False
    return bool(futures_of(collection))


def blocks_of(X: Any) -> tuple[tuple[str, ...] | None, list[Any], int | None]:
    """Names of columns, blocks of whole rows, and the number of rows where it is known."""
    if not hasattr(X, "chunks"):
        return tuple(map(str, X.columns)), list(X.to_delayed()), None
    if X.ndim == 2 and len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    sizes = X.chunks[0]
    known = None if any(np.isnan(size) for size in sizes) else int(sum(sizes))
    return None, list(X.to_delayed().ravel()), known
