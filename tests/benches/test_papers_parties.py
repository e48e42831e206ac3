"""Benchmarks of FedDPDR, DP-Helmet and LMGC: tasks, methods, pages, on tiny synthetic rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from benches.papers import (
    command,
    feddpdr,
    feddpdr_curves,
    feddpdr_figure2,
    feddpdr_figure3,
    feddpdr_figure4,
    feddpdr_figure5,
    helmet,
    helmet_figure3,
    helmet_figure4,
    helmet_table2,
    lmgc,
    parties_features,
)

from benches import tables
from dpsvm_fast.accounting import (
    subsampled_gaussian_noise_multiplier,
)


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Rows in the place of MNIST that peak in the column of their digit."""
    rng = np.random.default_rng(1)
    y = np.arange(600) % 10
    X = np.abs(np.eye(10, 12)[y] * 200.0 + rng.integers(0, 50, (600, 12)))
    np.savez(tmp_path / "mnist.npz", X=X, y=y, is_train=np.arange(600) < 500)
    monkeypatch.setenv("DPSVM_DATA", str(tmp_path))
    feddpdr._file.cache_clear()
    yield tmp_path
    feddpdr._file.cache_clear()


@pytest.mark.parametrize("method", feddpdr.METHODS)
def test_methods_run_within_their_budget(few_digits: Path, method: str) -> None:
    task = feddpdr.task_of("3 or 8", 0)
    assert task is not None
    found = feddpdr.measured(task, method, 4, 8.0, 100, check=True)
    rows = 100
    assert (found["rows"], found["holds"]) == (
        rows,
        True if method in feddpdr.CHECKED else None,
    )
    assert float(str(found["accuracy"])) > 0.4


def test_a_budget_that_is_exceeded_is_noticed(few_digits: Path) -> None:
    task = feddpdr.task_of("3 or 8", 0)
    assert task is not None
    model = feddpdr.make_pipeline(*feddpdr.halves(task, 4, 2.0)).fit(task.X, task.y)
    assert feddpdr.within(model, 2.0)
    assert not feddpdr.within(model, 1.0)


CURVES = {"k": feddpdr_figure2, "epsilon": feddpdr_figure3, "n": feddpdr_figure4}


@pytest.mark.parametrize(
    "along", ["k", *(pytest.param(one, marks=pytest.mark.slow) for one in ("epsilon", "n"))]
)
def test_curves_run_and_are_drawn(
    along: str, few_digits: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module: ModuleType = CURVES[along]
    for name, values in (("DIMENSIONS", (2, 6)), ("EPSILONS", (4.0, 8.0)), ("SIZES", (50, 100))):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, values)
    for name, value in (("DIMENSION", 6), ("EPSILON", 8.0), ("N_ROWS", 100)):
        monkeypatch.setattr(feddpdr_curves, name, value)
        if hasattr(module, name):
            monkeypatch.setattr(module, name, value)
    methods = ("Non-Priv", "DPML", "DPDR-DPML", "PrivateLinearSVC")
    monkeypatch.setattr(feddpdr_curves, "METHODS", methods)
    name = module.__name__.rpartition(".")[2]
    assert command.main([name, "--data", "3 or 8", "--repeats", "2", "--out", str(tmp_path)]) == 0
    assert (tmp_path / f"papers_{name}.png").read_bytes().startswith(b"\x89PNG")
    table = tables.read(tmp_path / f"papers_{name}.csv")[0]
    # What does not depend on the axis is measured once.
    fixed = {"k": 2, "epsilon": 1, "n": 0}[along]
    assert len(table) == 2 * len(methods) - fixed
    assert {row["holds"] for row in table} == {"True"}
    shown = module.page(table)
    assert shown.count("\n| 3 or 8: ") == len(feddpdr_curves.METHODS)
    assert " ± " in shown
    wrong = [table[0] | {"holds": "False"}]
    assert len(module.failures(wrong)) == 1


@pytest.mark.slow
def test_uneven_parties_run_and_are_judged(
    few_digits: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(feddpdr_figure5, "SIZES", {"small": (20, 30, 50)})
    monkeypatch.setattr(feddpdr_figure5, "EPSILONS", (4.0,))
    monkeypatch.setattr(feddpdr_figure5, "DIMENSION", 3)
    name = "feddpdr_figure5"
    variants = {feddpdr.FEDERATED: feddpdr_figure5.VARIANTS[feddpdr.FEDERATED]}
    monkeypatch.setattr(feddpdr_figure5, "VARIANTS", variants)
    assert command.main([name, "--data", "3 or 8", "--repeats", "1", "--out", str(tmp_path)]) == 0
    table = tables.read(tmp_path / f"papers_{name}.csv")[0]
    assert len(table) == 1 + 3 * 2 + 2
    assert {row["holds"] for row in table} == {"True"}
    found = {row["method"]: float(row["accuracy"]) for row in table}
    assert found["Non-Priv"] > 0.9
    near, above = (one.counted(table) for one in feddpdr_figure5.SAID)
    assert near.endswith("of 1")
    assert above.endswith("of 2")
    assert len(feddpdr_figure5.failures([table[0] | {"holds": "False"}])) == 1
    assert (tmp_path / f"papers_{name}.png").is_file()


@pytest.fixture
def few_features() -> parties_features.Features:
    """Three classes along axes of their own."""
    rng = np.random.default_rng(2)
    y = np.arange(400) % 3
    X = np.eye(3, 5)[y] + 0.1 * rng.normal(size=(400, 5))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return parties_features.Features(X[:300], y[:300], X[300:], y[300:], 3)


def test_users_hold_their_points(few_features: parties_features.Features) -> None:
    mixed = helmet.parties_of(few_features, helmet.Setting("points", 10, 20, 1.0), 0)
    assert [len(y) for _, y in mixed] == [20] * 10
    rows = np.concatenate([X for X, _ in mixed])
    assert len(np.unique(rows, axis=0)) == 200
    biased = helmet.parties_of(few_features, helmet.Setting("one class", 10, 20, 1.0), 0)
    assert [(len(y), len(set(y))) for _, y in biased] == [(20, 1)] * 10
    assert {int(y[0]) for _, y in biased} == {0, 1, 2}
    assert (helmet.points(7, 1.0).points, helmet.spread(10, 1.0).points) == (50, 5000)


@pytest.mark.parametrize(("users", "points"), [(1, 50), (100, 50), (1000, 50)])
def test_each_user_of_the_baseline_protects_itself(users: int, points: int) -> None:
    """The noise of the sum is that of so many users, each of whom had enough for its own."""
    model = helmet.descent(helmet.Setting("points", users, points, 0.5885), 10, 4.0)
    n = users * points
    sampled = min(1.0, 1024 / n)
    assert model.n_steps == round(40 / sampled)
    assert model.expected_batch_size == pytest.approx(min(n, 1024))
    of_sum, of_one = (
        subsampled_gaussian_noise_multiplier(*budget, sampled, model.n_steps, "replace_one")
        for budget in ((model.epsilon, model.delta), (0.5885, 1e-5))
    )
    assert of_sum / of_one == pytest.approx(users**0.5, rel=1e-3)


HELMET = {
    "helmet_figure3": (helmet_figure3, "mnist, 50 points a user"),
    "helmet_figure4": (helmet_figure4, "mnist"),
    "helmet_table2": (helmet_table2, "mnist"),
}


@pytest.mark.parametrize(
    "name",
    [
        "helmet_table2",
        *(pytest.param(f"helmet_figure{k}", marks=pytest.mark.slow) for k in (3, 4)),
    ],
)
def test_users_run_and_are_drawn(
    name: str,
    few_features: parties_features.Features,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    module, data = HELMET[name]
    monkeypatch.setattr(module, "features_of", lambda one: few_features)
    monkeypatch.setattr(module, "USERS", 6 if name == "helmet_table2" else (1, 6))
    if name == "helmet_figure3":
        monkeypatch.setattr(module, "EPSILONS", (0.5885, 8.0))
    monkeypatch.setattr(helmet, "OTHER_RATES", ())
    arguments = [name, "--data", data, "--repeats", "2", "--out", str(tmp_path)]
    assert command.main(arguments) == 0
    table = tables.read(tmp_path / f"papers_{name}.csv")[0]
    assert {row["holds"] for row in table} == {"True"}
    assert {row["data"] for row in table} == {data}
    shown = module.page(table)
    assert shown.startswith("| ")
    assert all(isinstance(module.page(part), str) for part in (table[:1], table[-1:]))
    assert (tmp_path / f"papers_{name}.png").is_file()
    if name == "helmet_table2":
        assert {row["multiplier"] for row in table} == {"1", "67"}
        assert "| SVM_SGD, 1x | " in shown
        assert " | 0.85 (-2 pp) |" in shown
        assert module.failures([table[0] | {"holds": "False"}]) != []


@pytest.mark.slow
def test_ellipsoids_run_and_are_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lmgc, "N_ROWS", 1500)
    monkeypatch.setattr(lmgc, "EPSILONS", (8.0,))
    given = ["lmgc", "--data", lmgc.COVARIANCES, "--repeats", "2", "--out", str(tmp_path)]
    assert command.main(given) == 0
    (row,) = tables.read(tmp_path / "papers_lmgc.csv")[0]
    assert (tmp_path / "papers_lmgc.png").is_file()
    assert "| same means, 2 splits | **0." in lmgc.page([row])
    # No plane separates classes of the same mean.
    assert float(row["linear"]) < 0.55 < float(row["ellipsoids"])
    assert float(row["not_private_linear"]) < 0.55 < float(row["not_private"])
    assert len(lmgc.failures([row | {"gain": "-0.1"}])) == 1


def test_recipes_of_ellipsoids_fill_one_ledger() -> None:
    rng = np.random.default_rng(2)
    X = rng.random((300, 18))
    split = lmgc.Split(X, np.arange(300) % 2, X, np.arange(300) % 2, 2, (0.0, 1.0))
    own = lmgc.own_epsilon("vehicle", 8.0, "softmax_margin", 18, 2)
    model = lmgc.ellipsoids(lmgc.RECIPES["vehicle"], split, 8.0, "softmax_margin", own)
    model.fit(split.X, split.y)
    spent, _ = model[-1].ledger.total()
    assert 7.8 < spent <= 8.0
