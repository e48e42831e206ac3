"""``dpsvm-fast bench``: what it times, and that it tells what the times depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("click")

from dpsvm_fast.cli import trials
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


def test_models_are_chosen_and_text_names_the_build(cli: Cli) -> None:
    out, err = cli.both(*SMALL, "--repeats=1", "--model=kernel", "--model=linear")
    assert not err
    lines = out.splitlines()
    assert lines[0] == "120 samples, 4 features, 3 classes"
    assert lines[1].startswith("dpsvm_fast ")
    names = [line.split("  ")[0] for line in lines if line.startswith(("Private", "L"))]
    assert names[0] == "PrivateKernelSVC"
    assert len(names) == 4
    assert "epsilon = 1, delta = 1e-06" in " ".join(out.split())
    assert "The problems differ" in out


def test_rows_have_norm_one() -> None:
    (X, y), (X_test, y_test) = trials.blobs(10, 3, 7)
    assert np.allclose(np.linalg.norm(X, axis=1), 1.0)
    assert len(X) == len(y) == len(X_test) == len(y_test) == 10
