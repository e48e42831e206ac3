"""Modules that do not have everything yet that the command line asks for."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from benches.tables import Row

# Names of the modules' constants with the names of their data sets.
DATA_OF = {
    "lmgc": "RECIPES",
    "helmet": "FEATURES",
}


def adapted(module: ModuleType) -> Any:
    """The module itself where it is complete, else one that behaves so."""
    if hasattr(module, "PROTOCOL"):
        return module
    name = module.__name__.rpartition(".")[2]
    known = getattr(module, DATA_OF[name]) if name in DATA_OF else (name,)
    takes_names = len(inspect.signature(module.run).parameters) > 1

    def run(names: Sequence[str], repeats: int | None) -> list[Row]:
        rows: list[Row] = module.run(names, repeats) if takes_names else module.run(repeats)
        return rows

    def plot(table: Sequence[Row], path: Path) -> None:
        if hasattr(module, "plot"):
            module.plot(table, path)

    return SimpleNamespace(
        DATA=tuple(known),
        QUICK_DATA=tuple(known)[:1],
        QUICK_REPEATS=1,
        run=run,
        analyse=module.analyse,
        failures=module.failures,
        plot=plot,
    )
