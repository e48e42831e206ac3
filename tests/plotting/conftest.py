"""Figures of tests: drawn without a window, closed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    yield
    pyplot.close("all")
