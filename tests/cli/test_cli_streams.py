"""Standard input, defaults from outside, silence, export and the check of a schema."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("click")
pytest.importorskip("pyarrow")

from dpsvm_fast.cli import main
from dpsvm_fast.data import SchemaEncoder
from dpsvm_fast.persist import read_model
from oracles.command_line import Cli

SCHEMA = """target = "left"
classes = ["no", "yes"]
[columns]
age = { bounds = [0, 100], missing = 40 }
plan = { categories = ["basic", "pro"], missing = "none" }
since = { dates = ["2020-01-01", "2024-12-31"] }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    age = rng.uniform(0.0, 100.0, 600).round(3)
    table = pd.DataFrame(
        {
            "age": np.where(rng.random(600) < 0.1, np.nan, age),
            "plan": rng.choice(["basic", "pro", None], 600),
            "since": [f"202{year}-03-01" for year in rng.integers(0, 5, 600)],
            "left": np.where(age > 50.0, "yes", "no"),
        }
    )
    table.to_csv("rows.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA, encoding="utf-8")
    return tmp_path


def fit(*more: str, epsilon: str = "8") -> tuple[str, ...]:
    return ("fit", "rows.csv", "--schema", "schema.toml", "--epsilon", epsilon, *more)


def given(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """What is on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_rows_from_standard_input(folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    content = Path("rows.csv").read_bytes()
    temporary = folder / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    given(monkeypatch, content)
    words = ("--schema", "schema.toml", "--epsilon", "8", "-o", "m.json", "-q")
    assert cli("fit", "-", *words) == ""
    expected = cli("predict", "m.json", "rows.csv", "-o", "-")
    given(monkeypatch, content)
    assert cli("predict", "m.json", "-", "-o", "-") == expected
    parquet = io.BytesIO()
    pd.read_csv("rows.csv").to_parquet(parquet)
    given(monkeypatch, parquet.getvalue())
    assert cli("predict", "m.json", "-", "-o", "-", "--format", "parquet") == expected
    # Rows that are wrong are told, and nothing of them stays.
    given(monkeypatch, content.replace(b"basic", b"s3cr3t"))
    err = cli.stderr("predict", "m.json", "-", "-o", "-")
    assert err.startswith("dpsvm-fast: stdin.csv: row ")
    assert "s3cr3t" not in err
    given(monkeypatch, b"")
    assert "empty" in cli.stderr("predict", "m.json", "-", "-o", "-")
    assert not list(temporary.iterdir())


@pytest.mark.slow
def test_a_reader_that_leaves_ends_it_well(folder: Path, cli: Cli) -> None:
    cli(*fit("-o", "m.json", "-q"))
    pd.concat([pd.read_csv("rows.csv")] * 100).to_csv("many.csv", index=False)
    code = "import sys; from dpsvm_fast.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "predict", "m.json", "many.csv", "-o", "-", "--scores"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"left,score_yes\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.parametrize("file", ["dpsvm.toml", "pyproject.toml"])
def test_defaults_from_outside(
    folder: Path, file: str, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    begin = "" if file == "dpsvm.toml" else "[project]\nname = 'x'\n"
    head = "[fit]" if file == "dpsvm.toml" else "[tool.dpsvm-fast.fit]"
    inner = (
        'schema = "schema.toml"\nepsilon = 3.0\nmax-memory = "1GiB"\njson = true\nforce = true\n'
    )
    Path(file).write_text(f"{begin}{head}\n{inner}", encoding="utf-8")

    def epsilon(*words: str) -> float:
        found: float = json.loads(cli("fit", "rows.csv", "-o", "m.json", *words))["epsilon"]
        return found

    assert epsilon() == 3.0
    monkeypatch.setenv("DPSVM_FAST_FIT_EPSILON", "4")
    assert epsilon() == 4.0
    assert epsilon("--epsilon", "5") == 5.0
    monkeypatch.setenv("DPSVM_FAST_FIT_EPSILON", "much")
    assert "--epsilon: got 'much'" in cli.stderr("fit", "rows.csv", "-o", "m.json")
    monkeypatch.setenv("DPSVM_FAST_FIT_EPSILON", "5")
    monkeypatch.setenv("DPSVM_FAST_FIT_JSON", "0")
    assert "epsilon = 5" in cli("fit", "rows.csv", "-o", "m.json")
    # Those of one command are not those of another.
    assert cli("verify", "m.json", "-q") == ""
    monkeypatch.setenv("DPSVM_FAST_FIT_EPSILLON", "5")
    told = cli.stderr("fit", "rows.csv", "-o", "m.json")
    assert "DPSVM_FAST_FIT_EPSILLON" in told
    assert "DPSVM_FAST_FIT_EPSILON?" in told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[fit]\nepsilom = 1\n", "fit.epsilom"),
        ("[fits]\nepsilon = 1\n", "fits"),
        ("epsilon = 1\n", "epsilon"),
        ("fit = 3\n", "fit"),
        ("[fit\n", "dpsvm.toml"),
    ],
)
def test_a_slip_in_the_project_file_is_reported(
    folder: Path, text: str, words: str, cli: Cli
) -> None:
    Path("dpsvm.toml").write_text(text, encoding="utf-8")
    shown = cli.stderr(*fit("-o", "m.json"))
    assert shown.startswith("dpsvm-fast: dpsvm.toml: ")
    assert words in shown
    assert not Path("m.json").exists()


def test_several_values_and_commands_of_commands(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    text = "[budget.create]\ndelta = 1e-5\nepsilon = 2.0\n[evaluate]\nmetric = ['accuracy']\n"
    Path("dpsvm.toml").write_text(text, encoding="utf-8")
    assert cli.json("budget", "create", "b.sqlite")["epsilon"] == 2.0
    cli(*fit("-o", "m.json", "-q"))
    words = ["evaluate", "m.json", "rows.csv", "--epsilon", "1", "--json"]
    assert list(json.loads(cli(*words))["metrics"]) == ["accuracy"]
    monkeypatch.setenv("DPSVM_FAST_EVALUATE_METRIC", "precision_recall")
    assert "--metric" in cli.stderr(*words)


def test_export(folder: Path, cli: Cli) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    table = pd.read_csv("rows.csv")
    for model in ("linear", "objective"):
        cli(*fit("-o", "m.json", "-q", "--force", "--model", model))
        shown = cli.json("export", "m.json", "-o", "m.onnx", "--force")
        assert shown["inputs"] == ["age", "plan", "since"]
        days = (pd.to_datetime(table["since"]) - pd.Timestamp("2020-01-01")).dt.days
        feeds: dict[str, Any] = {
            "age": table[["age"]].to_numpy(),
            "plan": table[["plan"]].fillna("").to_numpy(dtype=object),
            "since": days.to_numpy(dtype=float)[:, None],
        }
        label = runtime.InferenceSession("m.onnx").run(["label"], feeds)[0]
        assert label.tolist() == cli("predict", "m.json", "rows.csv", "-o", "-").split()[1:]
        cli("export", "m.json", "-o", "x.onnx", "--features", "--force", "-q")
        saved = read_model("m.json")
        rows = SchemaEncoder(saved.schema).transform(table).astype(float)
        again = runtime.InferenceSession("x.onnx").run(["label"], {"X": rows})[0]
        assert again.tolist() == label.tolist()
    assert "--force" in cli.stderr("export", "m.json", "-o", "m.onnx")


def test_a_graph_goes_to_a_pipe_and_to_no_terminal(
    folder: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    assert main([*fit("-o", "m.json", "-q")]) == 0
    assert main(["export", "m.json", "-o", "m.onnx", "-q"]) == 0
    capfdbinary.readouterr()
    # A captured stream has no buffer of its own bytes: one that has.
    with open(1, "w", closefd=False) as stream, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", stream)
        assert main(["export", "m.json", "-o", "-"]) == 0
        stream.flush()
        assert capfdbinary.readouterr().out == Path("m.onnx").read_bytes()
        assert main(["export", "m.json", "-o", "-", "--json"]) == 2
        patch.setattr(stream, "isatty", lambda: True)
        assert main(["export", "m.json", "-o", "-"]) == 2
    assert b"terminal" in capfdbinary.readouterr().err


def test_the_check_of_a_schema(folder: Path, cli: Cli) -> None:
    shown = cli("schema", "check", "schema.toml")
    assert "4 features" in shown
    assert "missing = 40.0" in shown
    found = cli.json("schema", "check", "schema.toml", "rows.csv", "--rows")
    assert (found["rows"], found["n_features"]) == (600, 4)
    Path("rows.csv").write_text("age,plan,since,left\n7,s3cr3t,2020-01-01,no\n", encoding="utf-8")
    # A header fits whatever the rows are.
    cli("schema", "check", "schema.toml", "rows.csv", "-q")
    err = cli.stderr("schema", "check", "schema.toml", "rows.csv", "--rows")
    assert "row 1, column 'plan'" in err
    assert "s3cr3t" not in err
    Path("rows.csv").write_text("age,plan\n", encoding="utf-8")
    assert main(["schema", "check", "schema.toml", "rows.csv"]) == 2
    assert main(["schema", "check", "schema.toml", "--rows"]) == 2
