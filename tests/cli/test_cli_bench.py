"""``dpsvm-fast bench``: what it times, and that it tells what the times depend on."""

from __future__ import annotations

import statistics
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
    assert found["machine"]["threads"] == 1
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["cpu"]
    assert found["machine"]["build"].startswith("release")
    assert found["data"] | {"tested": 0} == {
        "samples": 120,
        "features": 4,
        "classes": 3,
        "tested": 0,
        "kind": "Gaussian clusters, rows of norm 1",
        "seed": 0,
    }
    assert found["budget"] == {"epsilon": 2.0, "delta": 1e-6}
    private = [each["name"] for each in found["results"] if each["private"]]
    assert private == ["PrivateLinearSVC", "ObjectivePerturbationSVC", "OutputPerturbationSVC"]
    others = [each["name"] for each in found["results"] if not each["private"]]
    assert others == ["LinearSVC (sklearn)", "LogisticRegression (sklearn)"]
    for each in found["results"]:
        for times in (each["fit_seconds"], each["predict_seconds"]):
            assert len(times["runs"]) == 3
            assert times["median"] == statistics.median(times["runs"])
            assert 0.0 < times["min"] <= times["median"] <= times["max"] < 60.0
        assert each["threads"] == 1
        assert 0.0 <= each["accuracy"] <= 1.0
    # Clusters are three standard deviations from the centre: scikit-learn tells most apart.
    assert min(each["accuracy"] for each in found["results"][-2:]) > 0.7


def test_models_are_chosen_and_text_names_the_machine(cli: Cli) -> None:
    out, err = cli.both(*SMALL, "--repeats=1", "--model=kernel", "--model=linear")
    assert not err
    lines = out.splitlines()
    assert lines[0] == "120 rows, 4 features, 3 classes"
    assert "threads, load" in lines[1]
    names = [line.split("  ")[0] for line in lines if line.startswith(("Private", "L"))]
    assert names[0] == "PrivateKernelSVC"
    assert len(names) == 4
    assert "epsilon = 1, delta = 1e-06" in " ".join(out.split())
    assert "The problems differ" in out


def test_whatever_does_not_converge_is_marked(cli: Cli) -> None:
    from sklearn.linear_model import LogisticRegression

    hurried = trials.Contestant(
        "hurried", private=False, make=lambda _: LogisticRegression(max_iter=1)
    )
    train, test = trials.clusters(100, 5, 3)
    hurried.warm_up(train, test, n_threads=2)
    assert hurried.fit == []
    hurried.run(train, test)
    assert len(hurried.fit) == 1
    assert not hurried.converged
    assert hurried.cells()[0] == "hurried *"


def test_rows_have_norm_one_and_every_class() -> None:
    (X, y), (X_test, y_test) = trials.clusters(10, 3, 7)
    assert np.allclose(np.linalg.norm(X, axis=1), 1.0)
    assert set(y) == set(range(7))
    assert len(X_test) == len(y_test) == 200
