"""Mistakes at the command line: one sentence that says what to do, and nothing is spent."""

from __future__ import annotations

import gzip
import os
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("click")
pytest.importorskip("pyarrow")

from dpsvm_fast import OutputPerturbationSVC, PrivacyLedger, PrivateLinearSVC, PublicScaler
from dpsvm_fast.certificates import PureEvent
from dpsvm_fast.data import TableSchema
from dpsvm_fast.persist import save_model
from oracles.command_line import Cli, through_files
from oracles.toml import toml

SCHEMA = """target = "income"
classes = ["<=50K", ">50K"]
[columns]
age = { bounds = [0, 100] }
hours = { bounds = [0, 100] }
work = { categories = ["Private", "Gov"] }
"""
FITTED = ("--schema", "schema.toml", "--epsilon", "1", "-o", "model.json")
# A value that occurs once in the data, and must not be quoted.
SECRET = "77.125"


def people(n_rows: int = 120) -> list[str]:
    """Lines of a table; one cell of it is the secret."""
    rng = np.random.default_rng(0)
    ages, hours = rng.integers(18, 99, n_rows), rng.integers(1, 99, n_rows)
    lines = [
        f"{a},{h},{'Gov' if h % 3 else 'Private'},{'>50K' if a + h > 100 else '<=50K'}"
        for a, h in zip(ages, hours, strict=True)
    ]
    lines[60] = f"{SECRET},40,Gov,>50K"
    return ["age,hours,work,income", *lines]


class Place:
    """A folder with a table, its schema, a budget and a model that was made of the same columns."""

    def __init__(self, folder: Path, cli: Cli) -> None:
        self.folder, self._cli = folder, cli
        self.write("people.csv", "\n".join(people()) + "\n")
        self.write("schema.toml", SCHEMA)
        PrivacyLedger(2.0, 1e-5, path=folder / "people.budget")
        (folder / "temp").mkdir()

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def edit(self, name: str, old: str, new: str, count: int = 1) -> None:
        path = self.folder / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new, count))

    def fit(self, *more: str, epsilon: str = "1") -> tuple[int, str]:
        """Exit code and standard error of a fit that spends from the budget."""
        words = ["people.csv", "--schema", "schema.toml", "--epsilon", epsilon, "-o", "model.json"]
        return self.run("fit", *words, "--budget", "people.budget", "--temp", "temp", *more)

    def run(self, *words: str) -> tuple[int, str]:
        code, self.printed, told = self._cli.said(*words)
        return code, told

    def model(self) -> None:
        assert self.run("fit", "people.csv", *FITTED)[0] == 0

    @property
    def left_behind(self) -> set[str]:
        return {path.name for path in self.folder.rglob("*")} - {
            *("people.csv", "schema.toml", "people.budget", "temp"),
        }


@pytest.fixture
def place(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path, cli)


def refused(place: Place, outcome: tuple[int, str], *parts: str, code: int = 2) -> None:
    """One sentence with these parts, nothing spent, nothing left behind."""
    found, told = outcome
    assert found == code, told
    first, _, rest = told.partition("\n")
    assert first.startswith("dpsvm-fast: ")
    assert all(part in told for part in parts), told
    assert SECRET not in told
    assert "unexpected" not in told.replace("unexpected extra argument", "")
    # What follows the sentence are lines to copy.
    assert rest == "" or rest.startswith("[columns]\n"), told
    assert PrivacyLedger.open(place.folder / "people.budget").history == ()
    assert not (place.folder / "model.json").exists()
    assert not list((place.folder / "temp").iterdir())
    assert not [name for name in place.left_behind if name.startswith(".")]


# What would be right, and goes on with what is typed wrongly.
RIGHT = {
    "anything": [],
    "plan": ["plan", "--epsilon=1", "--delta=1e-5", "--features=4", "--classes=3"],
    "bench": ["bench", "--samples=120", "--features=4", "--classes=3", "--repeats=3"],
    "fit": ["fit", "people.csv", *FITTED, "--budget", "people.budget", "--temp", "temp"],
    "tune": ["tune", "people.csv", *FITTED, "--budget", "people.budget"],
}
MISTAKES = toml(Path(__file__).with_name("mistakes.toml"))
TYPED = [(command, typed, parts) for command in RIGHT for typed, parts in MISTAKES[command].items()]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(("command", "typed", "parts"), TYPED)
def test_what_is_typed(place: Place, command: str, typed: str, parts: str | list[str]) -> None:
    outcome = place.run(*RIGHT[command], *shlex.split(typed))
    refused(place, outcome, *([parts] if isinstance(parts, str) else parts))
    assert not place.printed or "--json" in typed


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("file", "old", "new", "parts"),
    [
        # Missing bounds: the lines to write are told.
        ("schema.toml", "hours = { bounds = [0, 100] }\n", "", ["'hours'", "hours = { bounds"]),
        ("schema.toml", "bounds = [0, 100]", "bounds = [0 100]", ["schema.toml", "TOML"]),
        ("schema.toml", 'target = "income"\n', "", ["target", 'target = "']),
        # Cells: row and column are named, values are not.
        ("people.csv", f"{SECRET},40", "forty,40", ["people.csv", "row 61", "'age'"]),
        ("people.csv", f"{SECRET},40,Gov", f"{SECRET},40,Spy", ["people.csv", "row 61", "'work'"]),
        ("people.csv", "Gov,>50K", "Gov,maybe", ["people.csv", "'income'"]),
        ("people.csv", f"{SECRET},40,", f"{SECRET},40,1,", ["people.csv"]),
        ("people.csv", "age,hours,", "age,hour,", ["people.csv", "'hours'"]),
    ],
)
@pytest.mark.parametrize("max_memory", ["2GiB", "partitions"])
def test_files(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    max_memory: str,
    file: str,
    old: str,
    new: str,
    parts: list[str],
) -> None:
    if max_memory == "partitions":
        through_files(monkeypatch)
    place.edit(file, old, new)
    outcome = place.fit()
    refused(place, outcome, *parts)
    assert not {"forty", "Spy", "maybe"} & set(outcome[1].replace("'", " ").split())


def test_the_ten_rows_of_one_column_more(place: Place) -> None:
    """Data wider than the schema."""
    text = (place.folder / "people.csv").read_text(encoding="utf-8").splitlines()
    place.write("people.csv", "\n".join([text[0] + ",iq", *(line + ",1" for line in text[1:])]))
    refused(place, place.fit(), "'iq'", "[columns]", "iq = { bounds = ")


def test_a_template_that_is_not_filled_in_is_refused(place: Place) -> None:
    code, _ = place.run("fit", "people.csv", "--write-schema", "new.toml", "--target", "income")
    assert code == 0
    refused(place, place.fit("--schema", "new.toml"), "new.toml")
    refused(
        place, place.run("fit", "people.csv", "--write-schema", "new.toml"), "exists", "--force"
    )


@pytest.mark.skipif(os.name == "nt", reason="the words are quoted as cmd does")
def test_commands_to_copy_name_files_as_they_are_typed(place: Place) -> None:
    place.write("my people.csv", "\n".join(people()) + "\n")
    code, _ = place.run("fit", "my people.csv", "--write-schema", "it's.toml")
    assert code == 0
    words = shlex.split(place.printed.rpartition("dpsvm-fast ")[2])
    assert words[:4] == ["fit", "my people.csv", "--schema", "it's.toml"]


def test_truncated_files(place: Place) -> None:
    text = (place.folder / "people.csv").read_text(encoding="utf-8")
    place.write("people.csv", text[: text.index(SECRET) + 3])
    refused(place, place.fit(), "people.csv")
    packed = gzip.compress(text.encode())
    (place.folder / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    words = ["cut.csv.gz", *FITTED]
    refused(place, place.run("fit", *words, "--temp", "temp"), "cut.csv.gz")
    place.write("people.csv", "")
    refused(place, place.fit(), "people.csv")
    place.write("people.csv", text.splitlines()[0] + "\n")
    refused(place, place.fit(), "people.csv")


def test_no_permission_to_write(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(**where: Any) -> Any:
        raise PermissionError(13, "Permission denied", "/somewhere/else")

    monkeypatch.setattr(tempfile, "mkstemp", denied)
    refused(place, place.fit(), "model.json: no permission", "choose another location")


def test_no_permission_for_a_budget(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    create = ("budget", "create", "new.budget", "--epsilon", "1", "--delta", "0")
    refused(place, place.run(*create), "new.budget: no permission; choose another location")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_model_that_may_not_be_read(place: Place) -> None:
    place.write("closed.json", "{}").chmod(0)
    refused(place, place.run("verify", "closed.json"), "closed.json", "no permission", "its owner")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
def test_a_folder_without_permission(place: Place) -> None:
    closed = place.folder / "closed"
    closed.mkdir(mode=0o500)
    refused(place, place.fit("-o", "closed/model.json"), "closed/model.json: no permission")


@pytest.mark.parametrize("temp", ["absent", "people.csv"])
def test_a_temporary_folder_that_cannot_be_made(
    place: Place, monkeypatch: pytest.MonkeyPatch, temp: str
) -> None:
    through_files(monkeypatch)
    refused(place, place.fit("--temp", temp), f"{temp}: cannot make a temporary folder", "--temp")


def test_a_full_disk_says_how_much_is_needed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsvm_fast.data import Table

    def full(self: Any, folder: Path, **how: Any) -> Any:
        raise OSError(28, "No space left on device")

    through_files(monkeypatch)
    monkeypatch.setattr(Table, "to_partitions", full)
    refused(place, place.fit(), "temp: cannot hold the decoded rows", "MB needed", "--max-memory")


def test_rows_that_do_not_fit_are_pointed_to_sums(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpsvm_fast.cli.training import TrainingRows

    through_files(monkeypatch)
    monkeypatch.setattr(TrainingRows, "n_bytes", 2**60)
    refused(place, place.fit("--mechanism", "objective"), "--max-memory", "--mechanism gradient")
    assert place.fit()[0] == 0


def test_an_overspent_budget(place: Place) -> None:
    path = place.folder / "people.budget"
    outcome = place.fit(epsilon="2.5")
    refused(place, outcome, "epsilon = 2 of 2 is left", "--epsilon 2 or less", code=3)
    refused(place, place.fit("--delta", "0.1", epsilon="2"), "--delta 1e-05 or less", code=3)
    # Refused before any data are read: there need not be any.
    (place.folder / "people.csv").unlink()
    place.write("people.csv", "age,hours,work,income\n")
    refused(place, place.fit(epsilon="2.5"), "of 2 is left", code=3)
    PrivacyLedger.open(path).spend(PureEvent(2.0, "add_remove"))
    code, told = place.fit(epsilon="0.1")
    assert code == 3
    assert "epsilon = 0 of 2 is left" in told
    assert "no further use" in told
    assert len(PrivacyLedger.open(path).history) == 1


class TestPredict:
    """Mistakes with a model cost nothing either; here they are about files."""

    @pytest.fixture
    def ready(self, place: Place) -> Place:
        place.model()
        return place

    def predict(self, place: Place, *more: str) -> tuple[int, str]:
        return place.run("predict", "model.json", "people.csv", "-o", "out.csv", *more)

    def told(self, place: Place, outcome: tuple[int, str], *parts: str) -> None:
        code, told = outcome
        assert code == 2, told
        assert told.startswith("dpsvm-fast: ")
        assert told.count("\n") == 1 or "\n[columns]\n" in told
        assert all(part in told for part in parts), told
        assert SECRET not in told
        assert "unexpected" not in told
        assert not [name for name in place.left_behind if "out.csv" in name]

    @pytest.mark.parametrize(
        ("damage", "part"),
        [
            (lambda text: text[: len(text) // 2], "model.json"),
            (lambda text: "", "model.json"),
            (lambda text: text.replace('"intercept_"', '"intercepT_"'), "model.json"),
        ],
        ids=["truncated", "empty", "changed"],
    )
    def test_a_damaged_model(self, ready: Place, damage: Callable[[str], str], part: str) -> None:
        path = ready.folder / "model.json"
        path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
        self.told(ready, self.predict(ready), part)

    def test_data_wider_or_narrower_than_the_model(self, ready: Place) -> None:
        lines = (ready.folder / "people.csv").read_text(encoding="utf-8").splitlines()
        wide = [lines[0] + ",iq", *(line + ",1" for line in lines[1:])]
        ready.write("people.csv", "\n".join(wide))
        self.told(ready, self.predict(ready), "does not declare column 'iq'", "remove")
        ready.write("people.csv", "\n".join(line.split(",", 1)[1] for line in lines))
        self.told(ready, self.predict(ready), "'age'")
        ready.write("other.toml", SCHEMA.replace('"Gov"', '"Gov", "Self"'))
        ready.write("people.csv", "\n".join(lines))
        self.told(ready, self.predict(ready, "--schema", "other.toml"), "5 features", "4")

    def test_a_bad_cell_leaves_no_half_of_a_file(self, ready: Place) -> None:
        ready.edit("people.csv", f"{SECRET},40", "nan,40")
        self.told(ready, self.predict(ready), "'age'", "row 61")

    def test_outputs(self, ready: Place) -> None:
        self.told(ready, self.predict(ready, "-o", "out.xlsx"), "out.xlsx", ".parquet")
        self.told(ready, self.predict(ready, "-o", "-", "--json"), "--json", "standard output")
        self.told(ready, self.predict(ready, "-o", "absent/out.csv"), "absent/out.csv")
        ready.write("there.csv", "")
        self.told(ready, self.predict(ready, "-o", "there.csv"), "already exists", "--force")

    def test_what_is_read_is_not_replaced(self, ready: Place) -> None:
        (ready.folder / "link.csv").symlink_to("model.json")
        for name in ("people.csv", "link.csv"):
            before = (ready.folder / name).read_bytes()
            outcome = self.predict(ready, "-o", name, "--force")
            self.told(ready, outcome, f"{name}: is an input of this command", "another name")
            assert (ready.folder / name).read_bytes() == before
        outcome = ready.run("statement", "model.json", "--certificate", "model.json", "--force")
        self.told(ready, outcome, "model.json: is an input of this command")
        words = ("--write-schema", "people.csv", "--force")
        self.told(ready, ready.run("fit", "people.csv", *words), "people.csv: is an input of this")

    def test_a_transformer_labels_nothing(self, place: Place) -> None:
        schema = TableSchema.load(place.folder / "schema.toml")
        scaler = PublicScaler(schema.bounds).fit(np.zeros((1, schema.n_features)))
        save_model(scaler, place.folder / "scaler.json", schema=schema)
        outcome = place.run("predict", "scaler.json", "people.csv", "-o", "p.csv")
        refused(place, outcome, "scaler.json: is a saved PublicScaler, which cannot predict")
        assert not (place.folder / "p.csv").exists()

    def test_a_model_without_schema_or_probabilities(self, place: Place) -> None:
        X, y = np.random.default_rng(0).random((60, 4)), np.arange(60) % 2
        save_model(PrivateLinearSVC(1.0, classes=[0, 1]).fit(X, y), place.folder / "model.json")
        self.told(place, self.predict(place), "without a schema", "--schema FILE")
        hinge = OutputPerturbationSVC(1.0, classes=[0, 1]).fit(X, y)
        save_model(hinge, place.folder / "model.json")
        self.told(place, self.predict(place, "--probabilities"), "--probabilities", "--scores")


def test_a_search_may_not_exceed_the_budget(place: Place) -> None:
    outcome = place.run(*RIGHT["tune"], "--grid", "margin=0,1", "--epsilon", "3")
    refused(place, outcome, "of 2 is left", code=3)
