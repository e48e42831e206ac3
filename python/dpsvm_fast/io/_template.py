"""A schema file to be filled in."""

from __future__ import annotations

import os

from dpsvm_fast.exceptions import TableError
from dpsvm_fast.io._arrow import arrow_types, parquet_types
from dpsvm_fast.io._arrow_types import hint
from dpsvm_fast.io._columns import quoted
from dpsvm_fast.io._csv import read_header
from dpsvm_fast.io._npz import npz_width
from dpsvm_fast.io._text_format import NO_NAMES, TextFormat, may_be_a_row, other_delimiter
from dpsvm_fast.io._toml_text import toml_key, toml_string

__all__ = ["template"]

CLASSES = "classes = []   # its public values"
HINTS = (
    "# bounds = [low, high], categories = [...], boolean = true or ignore = true.",
    "# Write what is publicly known, not what the values happen to be.",
)


def template(path: str | os.PathLike[str], *, target: str | None, format: str | None) -> str:
    """As ``TableSchema.template``."""
    from dpsvm_fast.io.tables import table_format

    path = os.fspath(path)
    kind = table_format(path, format)
    if kind in ("npz", "libsvm"):
        return _without_names(npz_width(path) if kind == "npz" else 0)
    mark = ""
    if kind in ("csv", "tsv"):
        names = read_header(path, TextFormat(), "," if kind == "csv" else "\t")
        if mark := other_delimiter(names):
            names = read_header(path, TextFormat(), mark)
        if may_be_a_row(names):
            # Nor are they written to a file.
            raise TableError(f"{os.path.basename(path)}: it has {NO_NAMES}")
        columns = dict.fromkeys(names, "bounds = []")
    else:
        types = parquet_types(path)[0] if kind == "parquet" else arrow_types(path)
        columns = {name: hint(one) for name, one in types.items()}
    if target is not None and target not in columns:
        raise TableError(
            f"{os.path.basename(path)}: target: it has no column {target!r}; it has columns "
            f"{', '.join(map(quoted, list(columns)[:50]))}{', ...' if len(columns) > 50 else ''}"
        )
    lines = [
        f"target = {toml_string(target or '')}   # the column of labels",
        CLASSES,
        "",
        "[columns]",
        *HINTS,
        *(f"{toml_key(name)} = {{ {it} }}" for name, it in columns.items() if name != target),
        *(["", "[csv]", f"delimiter = {toml_string(mark)}"] if mark else []),
    ]
    return "\n".join(lines) + "\n"


def _without_names(width: int) -> str:
    """For files that do not name their columns."""
    lines = [
        CLASSES,
        f"n_features = {width}",
        "",
        "[all_other_columns]",
        *HINTS[1:],
        "bounds = []",
    ]
    return "\n".join(lines) + "\n"
