"""Schema files: bytes to plain values."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpsvm_fast import _strict_json
from dpsvm_fast.exceptions import ModelFormatError, SchemaError
from dpsvm_fast.io._model_files import read_bytes

__all__ = ["read_record"]

# As many named columns as there may be take less. Python reads some MB of TOML in a second.
LARGEST_FILES = {".json": 2**25, ".toml": 2**23}


def read_record(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the tree of a TOML or JSON file."""
    name = os.path.basename(os.fspath(path))
    suffix = os.path.splitext(name)[1].lower()
    if suffix not in (".toml", ".json"):
        raise SchemaError(f"{name}: expected a schema file that ends in .toml or .json")
    try:
        content = read_bytes(Path(path), LARGEST_FILES[suffix])
    except ModelFormatError as error:
        raise SchemaError(f"{name}: {error}; expected a schema file") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SchemaError(f"{name}: expected text in UTF-8") from None
    try:
        return _json(text) if suffix == ".json" else _toml(text)
    except (ValueError, RecursionError) as error:
        language = suffix[1:].upper()
        reason = str(error) if isinstance(error, ValueError) else "nested too deeply"
        reason = reason.replace("Cannot overwrite a value", "a key occurs twice")
        reason = reason if len(reason) <= 200 else f"{reason[:200]}..."
        raise SchemaError(f"{name}: expected {language}, but: {reason}") from None


def _json(text: str) -> Mapping[str, Any]:
    """JSON whose keys occur once each, and whose numbers are numbers."""
    try:
        value = _strict_json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        raise ValueError(f"the text {error}") from None
    if not isinstance(value, dict):
        raise ValueError("expected an object { ... }")
    return value


def _toml(text: str) -> Mapping[str, Any]:
    """TOML, by the standard library from Python 3.11 on."""
    for module in ("tomllib", "tomli"):
        try:
            reader = importlib.import_module(module)
        except ImportError:
            continue
        return dict(reader.loads(text))
    raise ImportError(
        'schema files in TOML need tomli with Python 3.10: pip install "dpsvm-fast[cli]", or write '
        "the schema as JSON"
    )
