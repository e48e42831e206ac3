"""The look-ups of the test of docs/guarantees.md, for the tests of other pages."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def guarantee_lookups() -> ModuleType:
    path = Path(__file__).resolve().parents[1] / "docs" / "test_guarantees_page.py"
    spec = importlib.util.spec_from_file_location("guarantees_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
