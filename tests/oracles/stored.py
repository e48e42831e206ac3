"""Reference values in tests/stored; the field ``about`` of each file says where they are from.

Also files that broke a reader, and how to add one.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

STORED = Path(__file__).parents[1] / "stored"
CORPUS = STORED / "readers"
# Most characters of a file that a message repeats.
LONGEST_REPEATED = 8000
HOW_TO_KEEP = (
    f"To keep a file that broke a reader: echo BYTES | base64 -d | gunzip > {CORPUS}/NAME, with a "
    "NAME that ends like those of its kind, and a line in README.md there; a ledger stays packed"
)


def repeated(path: Path) -> str:
    """The bytes of a file, for messages."""
    text = base64.b64encode(gzip.compress(path.read_bytes(), mtime=0)).decode()
    return f"bytes: {text if len(text) <= LONGEST_REPEATED else 'too many to print'}"


def stored(name: str) -> Any:
    """The contents of one file of reference values."""
    return json.loads((STORED / f"{name}.json").read_text(encoding="utf-8"))
