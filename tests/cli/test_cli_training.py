"""``fit``, ``tune``, ``predict`` and budget files when all goes well, and interrupts."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("click")
pytest.importorskip("pyarrow")

from dpsvm_fast import PrivacyLedger, data, verify
from dpsvm_fast.cli import main
from dpsvm_fast.cli import training as rows
from dpsvm_fast.data import TableSchema, open_table
from dpsvm_fast.model_selection import PrivateGridSearch
from dpsvm_fast.persist import load_model, read_model
from oracles.command_line import Cli, python, through_files

SCHEMA = """target = "kind"
classes = ["a", "b", "c"]
[columns]
colour = { categories = ["red", "green"] }
[all_other_columns]
bounds = [0, 10]
"""
FIT = ("--schema", "schema.toml", "--epsilon", "4", "--delta", "1e-5")


def table(n_rows: int, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n_rows)
    X = np.clip(5.0 + 2.0 * np.eye(3, 4)[y] + rng.normal(size=(n_rows, 4)), 0.0, 10.0)
    colours = np.where(rng.random(n_rows) < 0.3 + 0.2 * y, "red", "green")
    lines = ["x0,x1,x2,x3,colour,kind"]
    for row, colour, label in zip(X, colours, y, strict=True):
        lines.append(",".join([*(f"{x:.4f}" for x in row), colour, "abc"[label]]))
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(table(600), encoding="utf-8")
    (tmp_path / "new.csv").write_text(table(150, seed=1), encoding="utf-8")
    (tmp_path / "schema.toml").write_text(SCHEMA, encoding="utf-8")
    (tmp_path / "temp").mkdir()
    return tmp_path


def bound_to(certificate: Path, model: Path) -> bool:
    """Whether a certificate holds and names the file of this model by its digest."""
    found = verify(certificate.read_text(encoding="utf-8"), model=model)
    return found.ok and "model_sha256" in json.loads(certificate.read_text(encoding="utf-8"))


def owned(folder: Path, *, weights: bool = True) -> NDArray[np.int64]:
    """Persons and weights beside the rows of all files, and in the schema; returns the persons."""
    rng = np.random.default_rng(5)
    persons = (60 * rng.random(600) ** 1.7).astype(np.int64)
    for name in ("rows.csv", "new.csv"):
        head, *lines = (folder / name).read_text(encoding="utf-8").splitlines()
        found = [f"{line},patient {persons[i]},{0.25 * (i % 7)}" for i, line in enumerate(lines)]
        text = "\n".join([f"{head},who,share", *found]) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
    roles = 'person = "who"\nweight = "share"\n' if weights else 'person = "who"\n'
    (folder / "schema.toml").write_text(roles + SCHEMA, encoding="utf-8")
    return persons


@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
class TestPersons:
    @pytest.mark.sampled(every=2)
    @pytest.mark.parametrize("model", ["linear", "gradient"])
    def test_the_way_to_the_rows_changes_no_release(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, model: str
    ) -> None:
        owned(folder)
        words = ("fit", "rows.csv", *FIT, "--seed", "3", "--model", model, "--temp", "temp")
        words += ("--max-weight", "1.25", "--class-weight", "a=2,c=1.5")
        record = cli.json(*words, "-o", "memory.json")
        assert record["unit"] == "person"
        seen = []
        through_files(monkeypatch)
        whole = data.Table.to_partitions

        def watched(self: Any, *given: Any, **named: Any) -> Any:
            seen.append((self, whole(self, *given, **named)))
            for path in (folder / "temp").rglob("*"):
                assert path.is_dir() or b"patient" not in path.read_bytes()
            return seen[-1][1]

        monkeypatch.setattr(data.Table, "to_partitions", watched)
        for part, name in ((10_000, "mapped.json"), (77, "parts.json")):
            monkeypatch.setattr(rows.Room, "part", lambda self, n_features, part=part: part)
            monkeypatch.setattr(rows.Room, "kept_parts", lambda self, n_bytes, n_parts: 2)
            cli(*words, "-o", name)
        assert [len(parts) for _, parts in seen] == [1, 8]
        models = [load_model(f"{name}.json") for name in ("memory", "mapped", "parts")]
        last = [getattr(one, "steps", [(0, one)])[-1][1] for one in models]
        for other in last[1:]:
            assert np.array_equal(last[0].coef_, other.coef_)
        assert last[0].class_weight == {"a": 2.0, "c": 1.5}
        assert last[0].max_weight == 1.25
        for path in folder.glob("*.json"):
            assert b"patient" not in path.read_bytes()
        assert not list((folder / "temp").iterdir())

    def test_schemas_know_the_roles(self, folder: Path, cli: Cli) -> None:
        words = ("fit", "rows.csv", "--write-schema", "new.toml", "--target", "kind")
        owned(folder)
        cli(*words, "--person-column", "who")
        text = (folder / "new.toml").read_text(encoding="utf-8")
        assert 'person = "who"' in text
        assert "\nwho" not in text
        said = cli.json("schema", "check", "schema.toml", "rows.csv")
        assert (said["person"], said["weight"], said["n_features"]) == ("who", "share", 6)
        # Predictions ask for no persons, and mind none.
        cli("fit", "rows.csv", *FIT, "-o", "m.json")
        for name in ("rows.csv", "new.csv"):
            cli("predict", "m.json", name, "-o", f"{name}.p.csv")
        assert read_model("m.json").schema.person == "who"

    def test_models_are_evaluated_by_persons(self, folder: Path, cli: Cli) -> None:
        owned(folder)
        cli("fit", "rows.csv", *FIT, "-o", "m.json")
        words = ("evaluate", "m.json", "new.csv", "--epsilon", "3", "--certificate", "c.json")
        cli("budget", "create", "b.budget", "--epsilon", "5", "--delta", "1e-4",
             "--unit", "person")  # fmt: skip
        record = cli.json(*words, "--budget", "b.budget")
        assert record["unit"] == "person"
        certificate = (folder / "c.json").read_text(encoding="utf-8")
        assert verify(certificate).ok
        assert json.loads(certificate)["unit"] == "person"

    @pytest.mark.parametrize("option", ["--person-column", "--weight-column"])
    def test_options_name_columns(self, folder: Path, cli: Cli, option: str) -> None:
        owned(folder)
        (folder / "schema.toml").write_text(f'extra_columns = "ignore"\n{PLAIN}', "utf-8")
        name = "who" if option.startswith("--p") else "share"
        words = ("fit", "rows.csv", *FIT, "-o", "m.json", "--json", option, name)
        unit = json.loads(cli(*words, "--class-weight", "balanced"))["unit"]
        assert unit == ("person" if name == "who" else "row")

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (("--budget", "rows.budget"), "--unit person"),
            (("--person-column", "nobody"), "no column"),
            (("--person-column", "x0"), "cannot be a feature"),
            (("--class-weight", "z=1"), "--class-weight"),
            (("--class-weight", "a=-1"), "class-weight"),
            (("--max-weight", "0"), "--max-weight"),
            (("--class-weight", "balanced", "--delta", "0"), "class-weight"),
        ],
    )
    def test_what_is_wrong_is_reported_and_costs_nothing(
        self, folder: Path, cli: Cli, words: tuple[str, ...], told: str
    ) -> None:
        owned(folder)
        if "x0" in words:
            text = f'person = "who"\nweight = "share"\n{PLAIN}'
            (folder / "schema.toml").write_text(text, encoding="utf-8")
        cli("budget", "create", "rows.budget", "--epsilon", "9", "--delta", "1e-3")
        said = cli.stderr("fit", "rows.csv", *FIT, "-o", "m.json", *words)
        assert told.lower() in said.lower()
        assert "patient" not in said
        assert not (folder / "m.json").exists()
        assert not PrivacyLedger.open("rows.budget").history

    @pytest.mark.parametrize(
        ("cell", "other", "column"),
        [(",patient 3,", other, "who") for other in (",,", ",NaN,", ",NA,", ", ,")]
        + [(",0.25\n", f",{other}\n", "share") for other in ("-4711", "inf", "1e999", "heavy")],
    )
    def test_bad_cells_are_named_and_not_quoted(
        self, folder: Path, cli: Cli, cell: str, other: str, column: str
    ) -> None:
        owned(folder)
        text = (folder / "rows.csv").read_text(encoding="utf-8")
        assert cell in text
        (folder / "rows.csv").write_text(text.replace(cell, other, 1), encoding="utf-8")
        said = cli.stderr("fit", "rows.csv", *FIT, "-o", "m.json")
        assert column in said
        assert "row " in said
        assert "patient" not in said
        assert "4711" not in said


@pytest.mark.proof("persons", "Partitions")
def test_a_person_is_in_one_part_of_a_file(folder: Path) -> None:
    persons = owned(folder)
    table = open_table("rows.csv", TableSchema.load("schema.toml"), owners=True)
    X, y, own = table.read()
    groups = own["groups"]
    assert len(set(groups.tolist())) == np.unique(persons).size
    assert all(len(set(groups[persons == p].tolist())) == 1 for p in np.unique(persons))
    assert own["sample_weight"].tolist() == [0.25 * (i % 7) for i in range(600)]
    for step in (50, 600):
        parts = table.to_partitions(folder / f"parts-{step}", rows_per_partition=step)
        blocks = [loader() for loader in parts.loaders]
        found = [set(block[2].tolist()) for block in blocks]
        assert sum(map(len, found)) == len(set.union(*found))
        # The same rows, each with its own label, person and weight.
        whole = list(zip(X.tolist(), y, groups, own["sample_weight"], strict=True))
        moved = [row for x, *others in blocks for row in zip(x.tolist(), *others, strict=True)]
        assert sorted(map(repr, map(tuple, moved))) == sorted(map(repr, map(tuple, whole)))
        names = {path.name for path in (folder / f"parts-{step}").iterdir()}
        assert names == {"X.npy", "y.npy", "groups.npy", "sample_weight.npy"}
    # Ids of another run are other digests.
    again = open_table("rows.csv", table.schema, owners=True).read()[2]["groups"]
    assert not set(again.tolist()) & set(groups.tolist())


PLAIN = """target = "kind"
classes = ["a", "b", "c"]
[columns]
colour = { categories = ["red", "green"] }
x0 = { bounds = [0, 10] }
x1 = { bounds = [0, 10] }
x2 = { bounds = [0, 10] }
x3 = { bounds = [0, 10] }
"""


class TestFit:
    def test_model_certificate_and_json(self, folder: Path, cli: Cli) -> None:
        words = ("fit", "rows.csv", *FIT, "-o", "m.json", "--certificate", "c.json", "--json")
        record = json.loads(cli(*words, "--test-data", "new.csv"))
        assert (record["private"], record["epsilon"], record["delta"]) == (True, 4.0, 1e-5)
        assert record["public_test_accuracy"] > 0.6
        assert bound_to(folder / "c.json", folder / "m.json")
        saved = read_model(folder / "m.json")
        assert saved.schema.feature_names[:2] == ("colour=red", "colour=green")
        assert saved.estimator.classes_.tolist() == ["a", "b", "c"]
        assert not list((folder / "temp").iterdir())

    @pytest.mark.sampled(every=2)
    @pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
    @pytest.mark.parametrize(
        "model", ["linear", pytest.param("kernel", marks=pytest.mark.slow), "gradient"]
    )
    def test_the_way_to_the_rows_changes_no_release(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, model: str
    ) -> None:
        words = ("fit", "rows.csv", *FIT, "--seed", "3", "--model", model, "--temp", "temp")
        cli(*words, "-o", "memory.json")
        through_files(monkeypatch)
        cli(*words, "-o", "mapped.json")
        monkeypatch.setattr(rows.Room, "part", lambda self, n_features: 77)
        monkeypatch.setattr(rows.Room, "kept_parts", lambda self, n_bytes, n_parts: 2)
        cli(*words, "-o", "parts.json", "--threads", "1")
        monkeypatch.setattr(rows, "ROOM_FOR_FEATURES", 1 << 60)
        cli(*words, "-o", "small.json")
        names = ("memory", "mapped", "parts", "small")
        # Neither weights nor parameters tell which way it was: it follows from the number of rows.
        assert len({(folder / f"{name}.json").read_bytes() for name in names}) == 1
        assert not list((folder / "temp").iterdir())

    @pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
    @pytest.mark.parametrize(
        "model",
        [
            *(("--splines", "5"), ("--splines", "5", "--model", "kernel")),
            ("--splines", "5", "--mechanism", "objective"),
            ("--splines", "5", "--model", "gaussian"),
            ("--image", "2x3"),
            ("--image", "2x3", "--image-order", "2"),
            ("--image", "1x2x3", "--model", "output"),
        ],
    )
    def test_public_maps(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, model: tuple[str, ...]
    ) -> None:
        """Categories are left as they are; a column may be declared logarithmic."""
        declared = SCHEMA.replace("[all_", "x2 = { bounds = [0, 10], log = true }\n[all_")
        (folder / "schema.toml").write_text(declared, encoding="utf-8")
        words = ("fit", "rows.csv", *FIT, *model, "--seed", "3", "--temp", "temp")
        cli(*words, "-o", "memory.json")
        through_files(monkeypatch)
        monkeypatch.setattr(rows.Room, "part", lambda self, n_features: 77)
        cli(*words, "-o", "parts.json")
        assert len({(folder / f"{name}.json").read_bytes() for name in ("memory", "parts")}) == 1
        cli("predict", "parts.json", "new.csv", "-o", "predicted.csv")
        fitted = load_model(folder / "parts.json")
        if "--splines" in model:
            assert fitted[0].knots == [1, 1, 5, 5, 5, 5]
            assert fitted[0].log == [2]
            knots = fitted[0].functions(6).knots
            np.testing.assert_allclose(knots[2], 11.0 ** np.linspace(0, 1, 5) - 1.0)
            np.testing.assert_allclose(knots[3], np.linspace(0, 10, 5))

    @pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
    @pytest.mark.parametrize(
        ("lines", "options", "knots"),
        [
            ("x2 = { bounds = [0, 10], knots = 7 }\n[all_", (), [1, 1, 7, 1, 1, 1]),
            ("x2 = { bounds = [0, 10], knots = 1 }\n[all_", ("--splines", "4"), [1] * 3 + [4] * 3),
        ],
    )
    def test_the_schema_declares_knots(
        self, folder: Path, cli: Cli, lines: str, options: tuple[str, ...], knots: list[int]
    ) -> None:
        (folder / "schema.toml").write_text(SCHEMA.replace("[all_", lines), encoding="utf-8")
        cli("fit", "rows.csv", *FIT, *options, "-o", "model.json")
        fitted = load_model(folder / "model.json")
        assert fitted[0].knots == knots
        assert fitted[-1].bounds == (0.0, 1.0)
        cli("predict", "model.json", "new.csv", "-o", "predicted.csv")

    def test_the_schema_declares_an_image(self, folder: Path, cli: Cli) -> None:
        declared = "image = [2, 3]\n" + SCHEMA
        (folder / "schema.toml").write_text(declared, encoding="utf-8")
        cli("fit", "rows.csv", *FIT, "--image-order", "2", "-o", "model.json")
        fitted = load_model(folder / "model.json")
        assert (fitted[0].shape, fitted[0].order) == ((2, 3), 2)
        said = cli.sentence("fit", "rows.csv", *FIT, "--splines", "3", "-o", "other.json")
        assert "only one of them" in said

    @pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
    @pytest.mark.parametrize(
        "model", [("linear", "--delta", "0"), ("linear", "--mechanism", "output"), ("objective",)]
    )
    def test_sparse_rows(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, model: tuple[str, ...]
    ) -> None:
        """Where nothing is released before the weights, a pipeline's certificate is another one."""
        (folder / "rows.svm").write_text("".join(f"{k % 2} {1 + k % 5}:{k}\n" for k in range(90)))
        schema = "classes = [0, 1]\nn_features = 5\n[all_other_columns]\nbounds = [0, 90]\n"
        (folder / "sparse.toml").write_text(schema)
        asked = ("fit", "rows.svm", "--schema", "sparse.toml", "--epsilon", "4", "--seed", "3")
        cli(*asked, "--model", *model, "-o", "memory.json")
        through_files(monkeypatch)
        monkeypatch.setattr(rows.Room, "part", lambda self, n_features: 17)
        cli(*asked, "--model", *model, "-o", "parts.json", "--temp", "temp")
        first, second = ((folder / f"{name}.json").read_bytes() for name in ("memory", "parts"))
        assert first == second
        load_model(folder / "memory.json")

    def test_a_model_of_pairs_of_features_takes_no_sparse_rows(
        self, folder: Path, cli: Cli
    ) -> None:
        (folder / "rows.svm").write_text("0 1:1\n1 2:1\n")
        schema = "classes = [0, 1]\nn_features = 5\n[all_other_columns]\nbounds = [0, 90]\n"
        (folder / "sparse.toml").write_text(schema)
        asked = ("fit", "rows.svm", "--schema", "sparse.toml", "--epsilon", "4", "-o", "m.json")
        assert "got 'gaussian', which needs dense rows" in cli.stderr(*asked, "--model", "gaussian")

    @pytest.mark.sampled
    @pytest.mark.parametrize("model", ["output", "objective", "gaussian"])
    @pytest.mark.parametrize("delta", ["1e-5", "0"])
    def test_solvers(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, model: str, delta: str
    ) -> None:
        through_files(monkeypatch)
        words = (*FIT, "--delta", delta, "--model", model, "--temp", "temp", "-o", "m.json")
        cli("fit", "rows.csv", *words)
        estimator = load_model(folder / "m.json")
        assert estimator.steps[-1][1].privacy_.private
        X, _ = open_table(folder / "new.csv", TableSchema.load(folder / "schema.toml")).read()
        assert set(estimator.predict(X)) <= {"a", "b", "c"}

    @pytest.mark.filterwarnings("default::dpsvm_fast.NotPrivateWarning")
    def test_a_seed_is_not_private(self, folder: Path, cli: Cli) -> None:
        out, told = cli.both("fit", "rows.csv", *FIT, "-o", "m.json", "--seed", "3")
        assert "NOT PRIVATE" in out
        assert "warning" in told
        assert not load_model(folder / "m.json").privacy_.private

    def test_sparse_text(self, folder: Path, cli: Cli) -> None:
        rng = np.random.default_rng(0)
        lines = [
            f"{k % 2} {1 + k % 2}:1 {rng.integers(3, 9)}:{rng.random():.3f}" for k in range(400)
        ]
        (folder / "rows.svm").write_text("\n".join(lines) + "\n", encoding="utf-8")
        schema = "classes = [0, 1]\nn_features = 9\n[all_other_columns]\nbounds = [0, 1]\n"
        (folder / "svm.toml").write_text(schema, encoding="utf-8")
        words = ("fit", "rows.svm", "--schema", "svm.toml", "--epsilon", "4", "-o", "m.json")
        (folder / "public.svm").write_text("\n".join(lines) + "\n", encoding="utf-8")
        cli(*words, "--test-data", "public.svm")
        cli("predict", "m.json", "rows.svm", "-o", "p.csv")
        found = (folder / "p.csv").read_text(encoding="utf-8").split()
        assert found[0] == "label"
        assert np.mean(np.array(found[1:], dtype=int) == np.arange(400) % 2) > 0.9

    def test_a_model_that_cannot_be_written_at_the_end_is_not_lost(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
    ) -> None:
        from dpsvm_fast.cli.files import Draft

        def full(self: Draft) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Draft, "publish", full)
        monkeypatch.setattr("tempfile.tempdir", str(folder / "temp"))
        told = cli.stderr("fit", "rows.csv", *FIT, "-o", "m.json")
        assert "the model cannot be written" in told
        assert told.endswith("the budget is spent (epsilon = 4, delta = 1e-05)\n")
        (saved,) = (folder / "temp").glob("*/model.json")
        assert str(saved) in told
        assert load_model(saved).privacy_.private

    def test_public_rows_that_cannot_be_read_leave_the_model(self, folder: Path, cli: Cli) -> None:
        text = (folder / "new.csv").read_text(encoding="utf-8").replace(",red,", ",blue,", 1)
        (folder / "new.csv").write_text(text, encoding="utf-8")
        told = cli.stderr("fit", "rows.csv", *FIT, "-o", "m.json", "--test-data", "new.csv")
        assert "the model is saved as m.json" in told
        assert "no model" not in told
        assert load_model(folder / "m.json").privacy_.private

    def test_rows_that_cannot_be_removed_are_named(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
    ) -> None:
        through_files(monkeypatch)
        monkeypatch.setattr(rows.shutil, "rmtree", lambda *given, **named: None)
        told = cli.stderr("fit", "rows.csv", *FIT, "-o", "m.json", "--temp", "temp", code=0)
        (left,) = (folder / "temp").iterdir()
        assert f"{left.relative_to(folder)}: could not be removed" in told

    def test_private_rows_are_not_tested_on(self, folder: Path, cli: Cli) -> None:
        (folder / "link.csv").symlink_to(folder / "rows.csv")
        for command in (("fit",), ("tune", "--grid", "margin=0,1")):
            words = [command[0], "rows.csv", *command[1:], *FIT, "-o", "m.json"]
            assert "--test-data: got link.csv, whose rows are trained on" in cli.stderr(
                *words, "--test-data", "link.csv"
            )
            assert not (folder / "m.json").exists()

    def test_a_file_that_appears_meanwhile_is_not_replaced(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(folder / "temp"))
        whole = rows.partitioned.fit

        def meanwhile(*given: Any, **named: Any) -> Any:
            for name in ("m.json", "c.json"):
                (folder / name).write_text("mine", encoding="utf-8")
            return whole(*given, **named)

        monkeypatch.setattr(rows.partitioned, "fit", meanwhile)
        told = cli.stderr("fit", "rows.csv", *FIT, "-o", "m.json")
        (saved,) = (folder / "temp").glob("*/model.json")
        assert "m.json: the model cannot be written (File exists)" in told
        assert str(saved) in told
        (folder / "c.json").unlink()
        told = cli.stderr("fit", "rows.csv", *FIT, "-o", "n.json", "--certificate", "c.json")
        assert "c.json: cannot write the certificate (File exists)" in told
        assert "the model is saved as n.json" in told
        assert "the budget is spent" in told
        assert load_model(folder / "n.json").privacy_.private
        assert {(folder / name).read_text(encoding="utf-8") for name in ("m.json", "c.json")} == {
            "mine"
        }

    def test_periods_of_a_budget(self, folder: Path, cli: Cli) -> None:
        budget = ("budget", "create", "weeks.budget", "--epsilon", "4", "--delta", "1e-5")
        cli(*budget, "--periods", "W1,W2,W3")
        fit = ("fit", "rows.csv", *FIT, "-o", "m.json", "--force")
        cli(*fit, "--budget", "weeks.budget", "--periods", "W1")
        cli(*fit, "--budget", "weeks.budget", "--periods", "W2,W3")
        assert main([*fit, "--budget", "weeks.budget", "--periods", "W3"]) == 3
        assert main([*fit, "--budget", "weeks.budget", "--periods", "W4"]) == 2
        assert main([*fit, "--periods", "W1"]) == 2
        record = cli.json("budget", "show", "weeks.budget")
        assert [one["period"] for one in record["periods"]] == ["W1", "W2", "W3"]
        assert [spend["periods"] for spend in record["spends"][:1]] == [["W1"]]
        assert all(one["remaining_epsilon"] < 1e-3 for one in record["periods"])
        assert "W2 W3" in cli("budget", "show", "weeks.budget")


class TestInterrupts:
    def test_before_and_after_the_spend(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
    ) -> None:
        PrivacyLedger(9.0, 1e-4, path=folder / "budget")
        words = ["fit", "rows.csv", *FIT, "-o", "m.json", "--budget", "budget", "--temp", "temp"]
        through_files(monkeypatch)
        whole = rows.partitioned.fit

        def reading(*given: Any, **named: Any) -> Any:
            raise KeyboardInterrupt

        def training(*given: Any, **named: Any) -> Any:
            return whole(*given, **named | {"on_step": reading})

        for fault, end, spent in (
            (reading, "nothing was spent", False),
            (training, "the budget of budget is spent (epsilon = 4, delta = 1e-05)", True),
        ):
            monkeypatch.setattr(rows.partitioned, "fit", fault)
            assert end in cli.stderr(*words, code=130)
            assert bool(PrivacyLedger.open(folder / "budget").history) is spent
            assert not (folder / "m.json").exists()
            assert not list((folder / "temp").iterdir())

    @pytest.mark.skipif(os.name == "nt", reason="sends signals")
    @pytest.mark.nightly
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_process_in_training(self, folder: Path, number: signal.Signals) -> None:
        """Ends at once, says that the budget is spent, and leaves no rows on the disk."""
        rng = np.random.default_rng(0)
        X = rng.random((120_000, 40), dtype=np.float32)
        np.savez(folder / "rows.npz", X=X, y=(X[:, 0] > 0.5).astype(np.int64))
        schema = "classes = [0, 1]\nn_features = 40\n[all_other_columns]\nbounds = [0, 1]\n"
        (folder / "npz.toml").write_text(schema, encoding="utf-8")
        PrivacyLedger(9.0, 1e-4, path=folder / "budget")
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "dpsvm_fast", "fit", "rows.npz", "--schema", "npz.toml"),
                *("--epsilon", "4", "--budget", "budget", "--temp", "temp", "-o", "m.json"),
                *("--max-memory", "400MiB", "--model", "kernel"),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        ledger, begin = PrivacyLedger.open(folder / "budget"), time.monotonic()
        while not ledger.history and process.poll() is None and time.monotonic() - begin < 600:
            time.sleep(0.02)
        process.send_signal(number)
        # Alone on a machine it takes some 50 ms.
        _, told = process.communicate(timeout=600)
        assert process.returncode == 130, told
        assert "interrupted; the budget of budget is spent" in told
        assert not list((folder / "temp").iterdir())
        assert not (folder / "m.json").exists()


# What fits import is imported once: three fresh interpreters take minutes on a busy machine.
AT_ONCE = """
import os, sys
from dpsvm_fast.cli import main
children = []
for k in range(3):
    children.append(os.fork())
    if not children[-1]:
        os.dup2(os.open(f"told{k}", os.O_CREAT | os.O_WRONLY), 2)
        code = main([*sys.argv[1:], "-o", f"m{k}.json"])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


class TestBudget:
    @pytest.mark.slow
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
    def test_processes_that_spend_at_once_stay_within_it(self, folder: Path) -> None:
        """Room for two of three fits, which all begin at once."""
        words = ("budget", "create", "budget", "--epsilon", "1.7", "--delta", "1e-5")
        assert main(list(words)) == 0
        fit = ("fit", "rows.csv", *FIT, "--epsilon", "1", "--budget", "budget", "--threads", "1")
        ended = python("-c", AT_ONCE, *fit)
        assert ended.returncode == 0
        codes = [int(code) for code in ended.stdout.splitlines()[-1].split()]
        told = [(folder / f"told{k}").read_text(encoding="utf-8") for k in range(3)]
        assert sorted(codes) == [0, 0, 3], told
        assert "of 1.7 is left" in told[codes.index(3)]
        ledger = PrivacyLedger.open(folder / "budget")
        assert ledger.total()[0] <= 1.7
        assert len({record.process for record in ledger.history}) == 2
        assert len(list(folder.glob("m?.json"))) == 2

    def test_show(self, folder: Path, cli: Cli) -> None:
        create = ("budget", "create", "budget", "--epsilon", "5", "--delta", "1e-5", "--adaptive")
        assert cli.json(*create)["adaptive"] is True
        cli("fit", "rows.csv", *FIT, "--budget", "budget", "-o", "m.json")
        text = cli("budget", "show", "budget")
        assert "adaptive" in text
        assert "PrivateLinearSVC" in text
        record = cli.json("budget", "show", "budget")
        assert 3.9 < record["spent_epsilon"] < 4.1
        assert len(record["spends"]) > 1


class TestPredict:
    @pytest.fixture
    def model(self, folder: Path, cli: Cli) -> Any:
        cli("fit", "rows.csv", *FIT, "-o", "m.json")
        return load_model(folder / "m.json")

    def test_columns_are_those_of_the_estimator(self, folder: Path, model: Any, cli: Cli) -> None:
        from pyarrow import parquet

        X, _ = open_table(folder / "new.csv", TableSchema.load(folder / "schema.toml")).read()
        words = ("predict", "m.json", "new.csv", "--scores", "--probabilities", "-o")
        cli(*words, "p.csv")
        cli(*words, "p.tsv")
        cli(*words, "p.parquet")
        printed = cli(*words, "-")
        assert printed == (folder / "p.csv").read_text(encoding="utf-8")
        assert printed.replace(",", "\t") == (folder / "p.tsv").read_text(encoding="utf-8")
        rows = list(csv.DictReader(printed.splitlines()))
        read = parquet.read_table(folder / "p.parquet").to_pydict()
        assert list(read) == list(rows[0])
        assert [row["kind"] for row in rows] == read["kind"] == model.predict(X).tolist()
        for k, label in enumerate("abc"):
            scores = [row[f"score_{label}"] for row in rows]
            assert scores == [f"{score:.6g}" for score in read[f"score_{label}"]]
            assert read[f"score_{label}"] == model.decision_function(X)[:, k].tolist()
            shares = [float(row[f"probability_{label}"]) for row in rows]
            assert np.allclose(shares, model.predict_proba(X)[:, k], rtol=1e-5)
        words = (*words[:-1], "--digits", "17", "-o", "-")
        exact = list(csv.DictReader(cli(*words).splitlines()))
        assert [float(row["score_a"]) for row in exact] == read["score_a"]

    def test_labels_in_the_data_are_not_looked_at(self, folder: Path, model: Any, cli: Cli) -> None:
        lines = (folder / "new.csv").read_text(encoding="utf-8").splitlines()
        bare = "\n".join(line.rpartition(",")[0] for line in lines)
        odd = "\n".join([lines[0], *(line.rpartition(",")[0] + ",?" for line in lines[1:])])
        (folder / "bare.csv").write_text(bare, encoding="utf-8")
        (folder / "odd.csv").write_text(odd, encoding="utf-8")
        found = [cli("predict", "m.json", f"{n}.csv", "-o", "-") for n in ("bare", "odd")]
        assert found[0] == found[1] == cli("predict", "m.json", "new.csv", "-o", "-")

    def test_json_and_replacing(self, folder: Path, model: Any, cli: Cli) -> None:
        words = ("predict", "m.json", "new.csv", "-o", "p.csv")
        cli(*words)
        record = cli.json(*words, "--force")
        assert record == {"output": "p.csv", "rows": 150, "columns": ["kind"]}


class TestEvaluate:
    WORDS = ("evaluate", "m.json", "new.csv", "--budget", "t.budget", "--delta", "1e-6")

    @pytest.fixture
    def budget(self, folder: Path, cli: Cli) -> PrivacyLedger:
        cli("fit", "rows.csv", *FIT, "-o", "m.json")
        return PrivacyLedger(60.0, 1e-5, path=folder / "t.budget")

    def test_estimates_certificate_and_charge(
        self, folder: Path, budget: PrivacyLedger, cli: Cli
    ) -> None:
        words = (*self.WORDS, "--epsilon", "50")
        printed = cli(*words, "--certificate", "c.json")
        assert printed.startswith("PRIVATE, epsilon = 50")
        assert verify((folder / "c.json").read_text(encoding="utf-8")).ok
        model = load_model(folder / "m.json")
        X, y = open_table(folder / "new.csv", TableSchema.load(folder / "schema.toml")).read()
        more = ("--metric", "accuracy", "--metric", "roc", "--positive", "b", "--json")
        record = json.loads(cli(*self.WORDS, "--epsilon", "5", *more))
        share = record["metrics"]["accuracy"]
        assert share["low"] <= np.mean(model.predict(X) == y) <= share["high"]
        assert set(record["metrics"]) == {"accuracy", "roc", "auc"}
        assert record["positive"] == "b"
        assert len(budget.history) == 6

    def test_what_cannot_be_evaluated_costs_nothing(
        self, folder: Path, budget: PrivacyLedger, cli: Cli
    ) -> None:
        text = (folder / "new.csv").read_text(encoding="utf-8")
        (folder / "new.csv").write_text(text.replace("green", "blue", 1), encoding="utf-8")
        outcomes = {
            ("--epsilon", "1"): 2,
            ("--epsilon", "1", "--metric", "roc"): 2,
            ("--epsilon", "1", "--positive", "d"): 2,
            ("--epsilon", "70"): 3,
            ("--epsilon", "1", "--seed", "1"): 2,
            (): 2,
        }
        for more, code in outcomes.items():
            assert "blue" not in cli.stderr(*self.WORDS, *more, code=code)
        assert budget.history == ()


class TestTune:
    def test_one_budget_for_everything(self, folder: Path, cli: Cli) -> None:
        PrivacyLedger(4.0, 1e-5, path=folder / "budget")
        words = ("tune", "rows.csv", *FIT, "--grid", "margin=0.5,auto")
        found = cli(
            *words,
            "--budget",
            "budget",
            "-o",
            "m.json",
            "--certificate",
            "c.json",
            "--json",
        )
        record = json.loads(found)
        assert record["epsilon"] == 4.0
        assert record["best_parameters"]["margin"] in (0.5, "auto")
        assert record["budget"]["remaining_epsilon"] < 0.1
        assert isinstance(load_model(folder / "m.json"), PrivateGridSearch)
        assert verify((folder / "c.json").read_text(encoding="utf-8")).epsilon <= 4.0
        assert bound_to(folder / "c.json", folder / "m.json")
        cli("predict", "m.json", "new.csv", "-o", "p.csv")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of a child")
def test_memory_is_bounded(folder: Path) -> None:
    """A file of 200 MB in a program of which most is Python."""
    rng = np.random.default_rng(0)
    X = rng.random((500_000, 100), dtype=np.float32)
    np.savez(folder / "rows.npz", X=X, y=(X[:, 0] > 0.5).astype(np.int64))
    schema = "classes = [0, 1]\nn_features = 100\n[all_other_columns]\nbounds = [0, 1]\n"
    (folder / "npz.toml").write_text(schema, encoding="utf-8")
    words = [
        *(sys.executable, "-m", "dpsvm_fast", "fit", "rows.npz", "--schema", "npz.toml"),
        *("--epsilon", "0.1", "--max-memory", "400MiB", "--temp", "temp", "-o", "m.json"),
    ]
    # A process counts what its parent held when it began as its own peak: that one holds little.
    launcher = (
        "import os, sys\n"
        "child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)\n"
        "_, status, usage = os.wait4(child, 0)\n"
        "print(status, usage.ru_maxrss)\n"
    )
    launch = [sys.executable, "-S", "-c", launcher, *words]
    told = subprocess.run(launch, capture_output=True, check=True, text=True).stdout
    status, peak = map(int, told.splitlines()[-1].split())
    assert status == 0
    assert peak <= 400 * 1024
    assert not list((folder / "temp").iterdir())


@pytest.mark.parametrize("model", ["objective", "output", "gradient", "gaussian"])
def test_one_column_is_more_than_its_sign(folder: Path, cli: Cli, model: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 3000)
    lines = [
        f"{x:.3f},{'ab'[y]}"
        for x, y in zip(4 + 3 * labels + rng.normal(size=3000), labels, strict=True)
    ]
    (folder / "one.csv").write_text("\n".join(["x,kind", *lines]) + "\n", encoding="utf-8")
    one = 'target = "kind"\nclasses = ["a", "b"]\n[columns]\nx = { bounds = [0, 10] }\n'
    (folder / "one.toml").write_text(one, encoding="utf-8")
    cli(
        "fit",
        "one.csv",
        "--schema",
        "one.toml",
        "--epsilon=4",
        "--delta=1e-5",
        "--model",
        model,
        "-o",
        "one.json",
    )
    fitted = load_model("one.json")
    assert list(fitted.named_steps) == ["scaler", "constant", "size", "normalizer", "svc"]
    X = np.array([[3.0], [4.5], [6.5], [8.0]])
    assert fitted.predict(X).tolist() == ["a", "a", "b", "b"]
