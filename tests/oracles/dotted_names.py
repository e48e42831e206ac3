"""Whether what a page names is there."""

from __future__ import annotations

import importlib


def python_object_exists(name: str) -> bool:
    """Import the longest module prefix of a dotted name and walk the rest as attributes."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("dpsvm_fast"):
                # The module is there, and an extra that it imports is not.
                return True
            continue
        for attribute in parts[cut:]:
            # A field without a default is no attribute of its class.
            fields = getattr(found, "__dataclass_fields__", {})
            found = getattr(found, attribute, fields.get(attribute))
            if found is None:
                return False
        return True
    return False
