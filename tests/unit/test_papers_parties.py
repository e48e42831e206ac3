"""Benchmarks of FedDPDR, DP-Helmet and LMGC: tasks, methods, pages, on tiny synthetic rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benches import tables  # noqa: E402
from benches.papers import (  # noqa: E402
    command,
    drawing,
    feddpdr,
    feddpdr_curves,
    feddpdr_figure2,
    feddpdr_figure3,
    feddpdr_figure4,
    feddpdr_figure5,
    feddpdr_table3,
    helmet,
    helmet_figure3,
    helmet_figure4,
    helmet_table2,
    lmgc,
    parties_features,
    pictures,
)
from benches.papers.cells import Statement, cells, error, grid, shown, statements  # noqa: E402

from dpsvm_fast.accounting import (  # noqa: E402
    gaussian_sigma,
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


def test_tasks_of_digits(few_digits: Path) -> None:
    pair, parity, ten = (feddpdr.task_of(n, 0) for n in ("3 or 8", "even or odd", "ten digits"))
    assert pair is not None
    assert parity is not None
    assert ten is not None
    assert (pair.X.shape, pair.X_test.shape, pair.n_classes) == ((100, 12), (20, 12), 2)
    assert (parity.X.shape, parity.n_classes, ten.n_classes) == ((500, 12), 2, 10)
    np.testing.assert_allclose(np.linalg.norm(ten.X, axis=1), 1.0, rtol=1e-12)
    # Rows of the pair keep their digit: 3 has its peak in column 3, 8 in column 8.
    assert (pair.X.argmax(axis=1) == np.where(pair.y == 0, 3, 8)).all()
    other = feddpdr.task_of("ten digits", 1, 50)
    assert other is not None
    assert other.X.shape == (50, 12)
    assert (other.y != ten.y[:50]).any()


def test_data_that_users_supply(
    few_digits: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert feddpdr.task_of("fashion_mnist", 0) is None
    assert "SKIPPED fashion_mnist" in capsys.readouterr().out
    X = np.random.default_rng(0).integers(0, 256, (60, 3 * 32 * 32), dtype=np.uint8)
    np.savez(few_digits / "cifar10.npz", X=X, y=np.arange(60) % 10)
    # Without an official split the last rows are the test part.
    monkeypatch.setattr(feddpdr, "N_TEST", 20)
    task = feddpdr.task_of("cifar10", 0)
    assert task is not None
    assert (task.X.shape, task.X_test.shape, task.n_classes) == ((40, 1764), (20, 1764), 10)
    np.testing.assert_allclose(np.linalg.norm(task.X_test, axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(task.y_test, np.arange(20) % 10)


def test_parties_share_rows_and_shrink_alike(few_digits: Path) -> None:
    task = feddpdr.task_of("ten digits", 0)
    assert task is not None
    assert [len(y) for _, y in feddpdr.parties_of(task, [10, 40])] == [10, 40]
    shrunk = feddpdr.parties_of(task, [500, 1500])
    assert [len(y) for _, y in shrunk] == [125, 375]
    np.testing.assert_array_equal(np.concatenate([X for X, _ in shrunk]), task.X)


def test_gradients_of_an_edge_have_one_direction() -> None:
    edge = np.zeros((2, 3, 32, 32))
    # The second channel is the strongest; the second picture is the first one turned.
    edge[0, 1, :, 18:], edge[1, 1, 18:, :] = 200.0, 200.0
    counts = pictures.histograms(edge.reshape(2, -1)).reshape(2, 7, 7, 4, 9)
    assert (counts[0][..., 0] > 0.0).any()
    assert (counts[0][..., 1:] == 0.0).all()
    assert (counts[1][..., 4] > 0.0).any()
    norms = np.linalg.norm(counts.reshape(2, 49, 36), axis=2)
    assert norms.max() <= 1.0
    assert np.unique(norms.round(3)).tolist() == [0.0, 1.0]
    assert (counts[0].sum(axis=(2, 3)) == counts[1].sum(axis=(2, 3)).T).all()


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


@pytest.mark.parametrize("along", CURVES)
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


def curve_row(method: str, k: str, accuracy: str) -> tables.Row:
    return {"data": "3 or 8", "method": method, "k": k, "epsilon": "0.1", "n": "100"} | {
        "accuracy": accuracy,
        "standard_error": "0.01",
        "fits": "3",
        "rows": "100",
        "holds": "True",
    }


def test_a_level_line_holds_everywhere_and_statements_are_counted() -> None:
    table = [
        curve_row("DPML", "", "0.5"),
        *(curve_row("DPDR-DPML", k, a) for k, a in (("5", "0.4"), ("20", "0.6"), ("100", "0.6"))),
        *(curve_row(feddpdr.FEDERATED, k, "0.7") for k in ("5", "20", "100")),
        *(curve_row("Non-Priv", k, a) for k, a in (("20", "0.8"), ("100", "0.9"))),
    ]
    level = feddpdr_curves.curve(table, "DPML", "k")
    assert {place: row["accuracy"] for place, row in level.items()} == dict.fromkeys(
        (5.0, 20.0, 100.0), "0.5"
    )
    counted = [one.counted(table) for one in feddpdr_figure2.SAID]
    # Growing: 1 of 2, 0 of 2, 1 of 1; still: all but Non-Priv; above DPML: all but one.
    assert counted == ["2 of 5", "2 of 3", "5 of 6", "3 of 3", ""]
    shown = feddpdr_figure2.page(table)
    assert "| 3 or 8: DPML | 0.500 ± 0.010 | 0.500 ± 0.010 | 0.500 ± 0.010 |" in shown
    assert "| 3 or 8: Non-Priv | | 0.800 ± 0.010 | 0.900 ± 0.010 |" in shown


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


def test_times_are_medians_beside_the_papers() -> None:
    rows = [
        {"data": "3 or 8", "method": "DPML", "seconds": seconds, "cpu_seconds": "0.1"}
        for seconds in ("0.5", "0.7", "9")
    ]
    (row,) = feddpdr_table3.analyse(rows)
    assert (float(row["seconds"]), row["goal_met"]) == (0.7, "True")
    assert (row["slowest"], row["paper_seconds"]) == ("9", "7873.23")
    shown = feddpdr_table3.page([row])
    assert "| DPML | 0.700 \\| 7,873.23 |" in shown
    assert "1 of 1 are below 1 s" in shown
    assert feddpdr_table3.failures([row]) == []


def test_all_methods_are_timed(
    few_digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feddpdr_table3, "DIMENSION", 3)
    rows = feddpdr_table3.run(["3 or 8", "fashion_mnist"], 1)
    assert {row["method"] for row in rows} == {*feddpdr.ONE_SITE, feddpdr.FEDERATED}
    feddpdr_table3.plot(feddpdr_table3.analyse(rows), tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").is_file()


def test_facts_of_feddpdr() -> None:
    assert set(feddpdr_table3.PAPER) == {"mnist", *feddpdr.FILES}
    for printed in feddpdr_table3.PAPER.values():
        assert list(printed) == ["Non-Priv", "DPML", "DPDR-DPML", feddpdr.FEDERATED]
        assert set(printed) <= set(feddpdr.METHODS)
    assert all(len(sizes) == feddpdr.N_PARTIES for sizes in feddpdr_figure5.SIZES.values())


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


def test_larger_data_sets_are_less_noise() -> None:
    setting = helmet.Setting("points", 100, 50, 1.172, 67)
    less = gaussian_sigma(1.172, 1e-5) / gaussian_sigma(setting.noise_epsilon, 1e-5)
    assert less * setting.copies == pytest.approx(67.0, rel=1e-6)
    own = helmet.Setting("points", 100, 50, 1.172)
    assert (own.copies, own.noise_epsilon) == (1, 1.172)


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


def test_the_baseline_shows_its_printed_and_its_best_rate() -> None:
    place = {"data": "mnist", "setting": "points", "users": "10", "points": "50"}
    rows = [
        place | {"epsilon": "1", "method": method, "accuracy": accuracy, "holds": ""}
        for method, accuracy in (
            ("SVM_SGD", "0.5"),
            ("DP-FL, rate 4", "0.4"),
            ("DP-FL, rate 16", "0.45"),
            ("DP-FL, rate 1", "0.3"),
        )
    ]
    table = helmet.analyse(rows)
    assert {row["method"]: row["accuracy"] for row in table} == {
        "SVM_SGD": "0.5",
        helmet.FEDERATED: "0.4",
        helmet.BEST: "0.45",
    }
    assert helmet.failures(table, "x") == []
    assert len(helmet.failures(helmet.analyse([rows[0] | {"holds": "False"}]), "x")) == 1


HELMET = {
    "helmet_figure3": (helmet_figure3, "mnist, 50 points a user"),
    "helmet_figure4": (helmet_figure4, "mnist"),
    "helmet_table2": (helmet_table2, "mnist"),
}


@pytest.mark.parametrize("name", HELMET)
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


def test_the_place_where_curves_cross_is_checked() -> None:
    rows = [
        {"method": method, "users": users, "accuracy": accuracy}
        for method, users, accuracy in (
            *(("Softmax_SLP_SGD", "10", "0.2"), (helmet.FEDERATED, "10", "0.3")),
            *(("Softmax_SLP_SGD", "100", "0.5"), (helmet.FEDERATED, "100", "0.6")),
            *(("Softmax_SLP_SGD", "500", "0.5"), (helmet.FEDERATED, "500", "0.6")),
        )
    ]
    assert helmet_figure4._crossing(rows) == [True, False]


def test_a_graceful_decline_is_checked() -> None:
    common = {"setting": "spread", "epsilon": "1"}
    rows = [
        common | {"method": method, "users": users, "accuracy": accuracy}
        for method, users, accuracy in (
            *(("SVM_SGD", "1", "0.8"), ("SVM_SGD", "1000", "0.7")),
            *(("Softmax_SLP_SGD", "1", "0.9"), ("Softmax_SLP_SGD", "1000", "0.5")),
            *((helmet.FEDERATED, "1", "0.9"), (helmet.FEDERATED, "1000", "0.6")),
        )
    ]
    assert helmet_figure3._graceful(rows) == [True, False]
    assert helmet_figure3._graceful([row | {"setting": "points"} for row in rows]) == []


def test_facts_of_dp_helmet() -> None:
    assert {method for method, _ in helmet_table2.PAPER} < set(helmet.LEARNERS)
    assert {multiplier for _, multiplier in helmet_table2.PAPER} == set(helmet_table2.MULTIPLIERS)
    assert set(helmet_figure3.PAPER_ONE_USER) < {*helmet.LEARNERS, helmet.FEDERATED}


def test_features_of_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parties_features.features_of.cache_clear()
    monkeypatch.setenv("DPSVM_DATA", str(tmp_path))
    assert parties_features.features_of("cifar10_simclr") is None
    assert "SKIPPED cifar10_simclr" in capsys.readouterr().out
    X, y = np.random.default_rng(0).normal(size=(40, 7)), np.arange(40) % 4
    np.savez(tmp_path / "cifar10_simclr.npz", X=X, y=y)
    monkeypatch.setattr(parties_features, "N_TEST", 10)
    parties_features.features_of.cache_clear()
    found = parties_features.features_of("cifar10_simclr")
    parties_features.features_of.cache_clear()
    assert found is not None
    assert (found.X.shape, found.X_test.shape, found.n_classes) == ((30, 7), (10, 7), 4)
    np.testing.assert_allclose(np.linalg.norm(found.X, axis=1), 1.0, rtol=1e-12)


def test_components_of_public_pictures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pictures_of = rng.integers(0, 256, (30, 28 * 28), dtype=np.uint8)
    is_train = np.arange(30) < 20
    np.savez(tmp_path / "mnist.npz", X=pictures_of, y=np.arange(30) % 10, is_train=is_train)
    np.savez(tmp_path / "usps.npz", X=rng.random((90, 256)), y=np.arange(90) % 10)
    monkeypatch.setenv("DPSVM_DATA", str(tmp_path))
    parties_features.features_of.cache_clear()
    # Without an official split of the public pictures nothing says which part was meant.
    assert parties_features.features_of("mnist") is None
    public = {"X": rng.random((90, 256)), "y": np.arange(90) % 10, "is_train": np.arange(90) < 80}
    np.savez(tmp_path / "usps.npz", **public)
    parties_features.features_of.cache_clear()
    found = parties_features.features_of("mnist")
    parties_features.features_of.cache_clear()
    assert found is not None
    assert (found.X.shape, found.X_test.shape) == ((20, 64), (10, 64))
    np.testing.assert_allclose(np.linalg.norm(found.X, axis=1), 1.0, rtol=1e-12)


def test_means_and_grids() -> None:
    rows = [{"a": "1", "b": "x"}, {"a": "2", "b": "y"}, {"a": "1", "b": "z"}]
    assert [len(part) for part in cells(rows, ["a"]).values()] == [2, 1]
    assert error([1.0]) is None
    assert error([1.0, 3.0]) == pytest.approx(1.0)
    assert shown(None) == ""
    assert shown({"accuracy": "0.51234", "standard_error": ""}) == "0.512"
    assert shown({"accuracy": "0.5", "standard_error": "0.0123"}) == "0.500 ± 0.012"
    assert grid(("", "b"), [("c", "")]) == "| | b |\n|---|---|\n| c | |"
    said = (
        Statement("b is known", lambda part: [row["b"] in "xy" for row in part]),
        Statement("never compared", lambda part: []),
    )
    assert statements(said, rows, "a", "said").splitlines()[2:] == [
        "| b is known | 1 of 2 | 1 of 1 |",
        "| never compared | | |",
    ]


def test_panels_that_are_left_over_are_hidden(tmp_path: Path) -> None:
    lines = {"one": [(1.0, 0.5, 0.1), (2.0, 0.6, 0.0)], "none": []}
    drawn = [drawing.Panel(str(i), lines) for i in range(3)]
    path = tmp_path / "folder" / "drawn.png"
    drawing.panels(path, drawn, x_label="x", columns=2)
    assert path.read_bytes().startswith(b"\x89PNG")
    looks = {(s["marker"], s["linestyle"]) for s in drawing.styles(drawn).values()}
    assert len(looks) == 2


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


def test_gains_within_chance_are_even() -> None:
    assert [lmgc._verdict(gain, 0.01) for gain in (0.015, 0.03, -0.03)] == ["even", "yes", "no"]
    assert lmgc._verdict(0.5, None) == "even"


def test_recipes_of_ellipsoids_fill_one_ledger() -> None:
    rng = np.random.default_rng(2)
    X = rng.random((300, 18))
    split = lmgc.Split(X, np.arange(300) % 2, X, np.arange(300) % 2, 2, (0.0, 1.0))
    own = lmgc.own_epsilon("vehicle", 8.0, "softmax_margin", 18, 2)
    model = lmgc.ellipsoids(lmgc.RECIPES["vehicle"], split, 8.0, "softmax_margin", own)
    model.fit(split.X, split.y)
    spent, _ = model[-1].ledger.total()
    assert 7.8 < spent <= 8.0
