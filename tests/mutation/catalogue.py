"""Faults that would cost privacy, as changes of this project's source: read from catalogue.toml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oracles.toml import toml

__all__ = ["CATALOGUE", "Edit", "Mutant"]


@dataclass(frozen=True)
class Edit:
    """One replacement; ``old`` occurs once in the sources, or in the files that define ``near``."""

    old: str
    new: str
    near: str = ""


@dataclass(frozen=True)
class Mutant:
    """A fault with the named tests, each of which fails on it by a check of its own."""

    name: str
    models: str
    edits: tuple[Edit, ...]
    killers: tuple[str, ...]
    slow: bool = False


CATALOGUE = tuple(
    Mutant(**one | {"edits": tuple(Edit(**e) for e in one["edits"]), "killers": (*one["killers"],)})
    for one in toml(Path(__file__).with_suffix(".toml"))["mutant"]
)
