"""Reference values in tests/stored; the field ``about`` of each file says where they are from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

STORED = Path(__file__).parents[1] / "stored"


def stored(name: str) -> Any:
    """The contents of one file of reference values."""
    return json.loads((STORED / f"{name}.json").read_text(encoding="utf-8"))
