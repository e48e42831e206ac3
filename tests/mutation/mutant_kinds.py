"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CORE", "PACKAGE", "Edit", "Mutant"]

PACKAGE = "python/dpsvm_fast/"
CORE = "rust/core/src/"


@dataclass(frozen=True)
class Edit:
    """One exact replacement; ``old`` occurs once in the file."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A fault with the named tests, each of which fails on it by a check of its own.

    ``slow`` ones run with the nightly tests only; so do those of the compiled module.
    """

    name: str
    models: str
    edits: tuple[Edit, ...]
    killers: tuple[str, ...]
    slow: bool = False

    @property
    def compiled(self) -> bool:
        """Whether the compiled module has to be built."""
        return any(edit.path.startswith("rust/") for edit in self.edits)
