"""One small set of rows as a table of every library, and labels that are words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oracles.odd_inputs import X

NAMES = ["age", "höhe", "x 2"]
COLUMNS: dict[str, Any] = {name: X[:, i] for i, name in enumerate(NAMES)}
LIBRARIES = ("pandas", "polars", "pyarrow")
every_library = pytest.mark.parametrize("library", LIBRARIES)
# In the order in which classes are kept.
WORDS = np.array(["", "longer", "β"])


def table(library: str, columns: Any = None) -> Any:
    """Columns as a table of a library, in their order."""
    columns = COLUMNS if columns is None else columns
    package = pytest.importorskip(library)
    return package.table(columns) if library == "pyarrow" else package.DataFrame(columns)
