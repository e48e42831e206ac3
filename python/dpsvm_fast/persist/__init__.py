"""Persistence: saved models as JSON files, and as ONNX graphs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpsvm_fast.exceptions import ModelFormatError

if TYPE_CHECKING:
    from dpsvm_fast.persist.model import (
        SavedModel,
        load_model,
        model_schema,
        read_model,
        save_certificate,
        save_model,
    )
    from dpsvm_fast.persist.onnx import (
        to_onnx,
    )

__all__ = [
    "ModelFormatError",
    "SavedModel",
    "load_model",
    "model_schema",
    "read_model",
    "save_certificate",
    "save_model",
    "to_onnx",
]

# Imported at first use: whoever reads a table does not wait for the estimators.
_HOMES = {
    "SavedModel": "model",
    "load_model": "model",
    "model_schema": "model",
    "read_model": "model",
    "save_certificate": "model",
    "save_model": "model",
    "to_onnx": "onnx",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
