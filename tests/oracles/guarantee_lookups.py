"""The look-ups of the test of docs/guarantees.md, for the tests of other pages."""

from __future__ import annotations

from types import ModuleType

from oracles.scripts import module_of


def guarantee_lookups() -> ModuleType:
    return module_of("tests/docs/test_guarantees_page.py")
