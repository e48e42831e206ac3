"""Persistence: models as JSON files and as ONNX graphs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpsvm_fast.exceptions import ModelFormatError

if TYPE_CHECKING:
    from dpsvm_fast.persist.model import SavedModel as SavedModel
    from dpsvm_fast.persist.model import load_model as load_model
    from dpsvm_fast.persist.model import model_schema as model_schema
    from dpsvm_fast.persist.model import read_model as read_model
    from dpsvm_fast.persist.model import save_certificate as save_certificate
    from dpsvm_fast.persist.model import save_model as save_model
    from dpsvm_fast.persist.onnx import to_onnx as to_onnx

# Imported at first use: reading a table does not wait for the estimators.
_OF_MODELS = ("SavedModel", "load_model", "model_schema", "read_model")
_HOMES = dict.fromkeys((*_OF_MODELS, "save_certificate", "save_model"), "model")
_HOMES["to_onnx"] = "onnx"

__all__ = [*_HOMES, "ModelFormatError"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
