"""docs/results.md from the stored summaries: every figure on it is generated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def contents(folder: Path, modules: Mapping[str, Any]) -> str:
    """The page for the summaries that are stored in a folder."""
    raise NotImplementedError(folder, modules)


def write(path: Path, folder: Path, modules: Mapping[str, Any]) -> None:
    """Write the page."""
    path.write_text(contents(folder, modules), encoding="utf-8")
