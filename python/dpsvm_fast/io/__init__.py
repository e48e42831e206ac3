"""Files: tables to train on and to predict, what is public of them, and saved models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpsvm_fast.exceptions import ModelFormatError, SchemaError, TableError

if TYPE_CHECKING:
    from dpsvm_fast.io.models import (
        SavedModel,
        load_model,
        model_schema,
        read_model,
        save_certificate,
        save_model,
    )
    from dpsvm_fast.io.onnx import to_onnx
    from dpsvm_fast.io.schema import TableSchema
    from dpsvm_fast.io.tables import Table, open_table

__all__ = [
    "ModelFormatError",
    "SavedModel",
    "SchemaError",
    "Table",
    "TableError",
    "TableSchema",
    "load_model",
    "model_schema",
    "open_table",
    "read_model",
    "save_certificate",
    "save_model",
    "to_onnx",
]

# Imported at their first use: whoever reads a table does not wait for the estimators, and whoever
# reads a certificate for neither.
_HOMES = {
    "models": (
        *("SavedModel", "load_model", "model_schema", "read_model", "save_certificate"),
        "save_model",
    ),
    "onnx": ("to_onnx",),
    "schema": ("TableSchema",),
    "tables": ("Table", "open_table"),
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"dpsvm_fast.io.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
