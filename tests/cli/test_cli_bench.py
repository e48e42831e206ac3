"""``dpsvm-fast bench``: what it times, and that it tells what the times depend on."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("click")

from oracles.command_line import Cli

SMALL = ["bench", "--samples=120", "--features=4", "--classes=3", "--repeats=3"]


def timed(cli: Cli, *options: str) -> dict[str, Any]:
    """The JSON object."""
    found: dict[str, Any] = cli.json(*SMALL, *options)
    return found


def test_every_number_is_there_and_consistent(cli: Cli) -> None:
    found = timed(cli, "--epsilon=2", "--threads=1")
    assert found["threads"] == 1
    assert found["build"]["profile"] == "release"
    assert found["data"] == {"samples": 120, "features": 4, "classes": 3}
    assert found["budget"] == {"epsilon": 2.0, "delta": 1e-6}
    assert [each["name"] for each in found["results"]] == [
        *("PrivateLinearSVC", "ObjectivePerturbationSVC", "OutputPerturbationSVC"),
        *("LinearSVC (sklearn)", "LogisticRegression (sklearn)"),
    ]
    for each in found["results"]:
        for times in (each["fit_seconds"], each["predict_seconds"]):
            assert len(times) == 3
            assert 0.0 < min(times) <= max(times) < 60.0
        assert all(0.0 <= share <= 1.0 for share in each["accuracy"])
    # scikit-learn tells most of the clusters apart.
    assert min(min(each["accuracy"]) for each in found["results"][-2:]) > 0.7
