"""Other libraries beside ours: what is judged, and models of one class that share a budget."""

from __future__ import annotations

import numpy as np
from benches.papers import (
    helmet_figure8,
    outside_peers,
)

from dpsvm_fast.accounting import composed_delta


def peers_row(data: str, method: str, epsilon: str, accuracy: str, **more: str) -> dict[str, str]:
    """A stored fit."""
    common = {"split": "0", "rate": "", "seconds": "0.1", "spent": epsilon, "version": ""}
    return (
        common | {"data": data, "method": method, "epsilon": epsilon, "accuracy": accuracy} | more
    )


def test_a_library_that_is_ahead_or_overspends_is_named() -> None:
    rows = [
        peers_row("ours: usps", outside_peers.OURS, "1", "0.8"),
        peers_row("others: usps", outside_peers.DESCENT, "1", "0.9", rate="1", spent="1.5"),
    ]
    found = outside_peers.failures(outside_peers.analyse(rows))
    assert len(found) == 2
    assert "spent 1.5" in found[0]


def test_models_of_one_class_each_share_a_budget() -> None:
    place = helmet_figure8.Place(0.59, 1e-5, 120, 5, 3)
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    model = helmet_figure8.amp(place).fit(np.eye(3, 5)[y] + 0.1 * rng.random((120, 5)), y)
    events = [event for one in model.models_ for event in one.privacy_.events]
    # Nearly all of the budget is used, and no more.
    assert 0.9e-5 < composed_delta(events, 0.59) <= 1e-5
    assert helmet_figure8._spent(model, place) == 0.59
    assert helmet_figure8._spent(model, helmet_figure8.Place(0.3, 1e-5, 120, 5, 3)) is None
