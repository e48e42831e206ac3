"""Tables of tests in TOML, with any Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest brings it along
    import tomli as tomllib


def toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8"))
