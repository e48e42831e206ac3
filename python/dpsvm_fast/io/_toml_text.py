"""Text that goes into a TOML file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

__all__ = ["column_lines", "toml_key", "toml_string"]

# Of a message.
MAX_LINES, LONGEST_NAME = 50, 100
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_string(text: str) -> str:
    """Return a basic string; TOML's escapes are JSON's, and DEL needs one too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(text: str) -> str:
    """Return a key, in quotes where it needs them."""
    return text if BARE_KEY.fullmatch(text) else toml_string(text)


def column_lines(names: Sequence[str], values: str = "bounds = [LOW, HIGH]") -> str:
    """Return one line for each column, to be filled in; the first of very many."""
    lines = [
        f"  {toml_key(name)} = {{ {values} }}"
        if len(name) <= LONGEST_NAME
        else f"  # a name of {len(name)} characters"
        for name in names[:MAX_LINES]
    ]
    more = [f"  # and {len(names) - MAX_LINES} more"] if len(names) > MAX_LINES else []
    return "\n".join([*lines, *more])
