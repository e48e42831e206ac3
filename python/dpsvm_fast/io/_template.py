"""A schema file to be filled in."""

from __future__ import annotations

import os

from dpsvm_fast.exceptions import InvalidParameterError, TableError
from dpsvm_fast.io._csv import read_header
from dpsvm_fast.io._text_format import TextFormat
from dpsvm_fast.io._toml_text import toml_key, toml_string

__all__ = ["template"]


def template(path: str | os.PathLike[str], *, target: str | None, format: str | None) -> str:
    """As ``TableSchema.template``."""
    from dpsvm_fast.io.tables import table_format

    path = os.fspath(path)
    file = os.path.basename(path)
    kind = table_format(path, format)
    if kind not in ("csv", "tsv"):
        raise InvalidParameterError(f"path: {file} does not name its columns")
    names, _ = read_header(path, TextFormat(), "," if kind == "csv" else "\t")
    if target is not None and target not in names:
        shown = ", ".join(map(repr, names))
        raise TableError(f"{file}: target: it has no column {target!r}; it has columns {shown}")
    lines = [
        f"target = {toml_string(target or '')}   # the column of labels",
        "classes = []   # its public values",
        "",
        "[columns]",
        "# bounds = [low, high], categories = [...], boolean = true or ignore = true.",
        "# Write what is publicly known of a column, not what its values happen to be.",
        *(f"{toml_key(name)} = {{ bounds = [] }}" for name in names if name != target),
    ]
    return "\n".join(lines) + "\n"
