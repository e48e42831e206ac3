"""Slips of the pen at the command line, streams that are closed, interrupts at any time."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("click")
pytest.importorskip("pyarrow")

from dpsvm_fast import OutputPerturbationSVC, PrivacyLedger
from dpsvm_fast.certificates import PureEvent
from dpsvm_fast.cli import main
from dpsvm_fast.cli.training import Spending
from dpsvm_fast.data import TableSchema
from dpsvm_fast.exceptions import InvalidParameterError
from oracles.command_line import Cli, python

SCHEMA = """target = "income"
classes = ["low", "mid", "high"]
[columns]
age = { bounds = [0, 100] }
work = { categories = ["Private", "Gov", "Self"] }
name = { ignore = true }
"""
SECRET = "77.125"
PLAN = ("plan", "--epsilon", "1", "--delta", "1e-5")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.toml").write_text(SCHEMA)
    rows = [
        f"{20 + i},{('Private', 'Gov', 'Self')[i % 3]},N{i},{('low', 'mid', 'high')[i % 3]}\n"
        for i in range(60)
    ]
    (tmp_path / "people.csv").write_text("age,work,name,income\n" + "".join(rows))
    return tmp_path


FIT = ("fit", "people.csv", "--schema", "people.toml", "--epsilon", "1", "-o", "model.json")


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("target", "taget", "taget: unknown key, expected one of target, classes,"),
        ("target", "taget", "; did you mean target?"),
        ("bounds", "bound", "columns.age.bound: unknown key"),
        ("bounds", "bound", "; did you mean bounds?"),
        ("name = { ignore", "age = { ignore", "expected TOML, but: a key occurs twice"),
    ],
)
def test_slips_in_a_schema(folder: Path, cli: Cli, old: str, new: str, part: str) -> None:
    (folder / "people.toml").write_text(SCHEMA.replace(old, new))
    assert part in cli.sentence(*FIT)


@pytest.mark.filterwarnings("default::dpsvm_fast.exceptions.NotPrivateWarning")
def test_the_option_is_named_by_a_warning(cli: Cli) -> None:
    assert "warning: --seed: anyone who knows it" in cli.sentence(*FIT, "--seed", "1", code=0)


@pytest.mark.slow
def test_best_parameters_are_listed(cli: Cli) -> None:
    words = (*FIT[1:], "--strategy", "random_stopping", "--grid", "margin=0.5")
    assert "\nbest parameters: margin = 0.5\n" in cli("tune", *words)


class TestPlanOfASchema:
    def test_categories_are_features_and_ignored_columns_are_none(self, cli: Cli) -> None:
        found = cli.json(*PLAN, "--schema", "people.toml")
        assert found == cli.json(*PLAN, "--features", "4", "--classes", "3")

    def test_a_column_of_persons_plans_for_persons(self, folder: Path, cli: Cli) -> None:
        (folder / "people.toml").write_text('person = "patient"\n' + SCHEMA)
        found = []
        for options in ([], ["--unit", "person"], ["--unit", "row"], ["--rows-per-person", "3"]):
            words = [*PLAN, "--model", "objective", "--schema", "people.toml", *options, "--json"]
            if options[:1] == ["--rows-per-person"]:
                assert "--rows-per-person" in cli.sentence(*words)
                continue
            found.append(json.loads(cli(*words))["plans"][0])
        assert found[0] == found[1]
        assert [plan["unit"] for plan in found] == ["person", "person", "row"]
        noise = [plan["objective"]["linear_deviation"] for plan in found]
        assert noise[0] > noise[2]

    def test_options_may_repeat_it(self, cli: Cli) -> None:
        words = (*PLAN, "--schema", "people.toml", "--features", "4")
        cli(*words)
        sentence = cli.sentence(*words[:-1], "2")
        assert "--features: got 2, expected 4 as in people.toml" in sentence

    def test_what_it_leaves_open_is_asked_for(self, folder: Path, cli: Cli) -> None:
        (folder / "pixels.toml").write_text("all_other_columns = { bounds = [0, 16] }\n")
        words = (*PLAN, "--schema", "pixels.toml")
        assert "--features is missing, and pixels.toml does not say" in cli.sentence(*words)
        words += ("--features", "64")
        assert "--classes is missing, and pixels.toml does not say" in cli.sentence(*words)
        cli(*words, "--classes", "10")
        assert "--features is missing; give --features N, or --schema" in cli.sentence(*PLAN)

    def test_it_is_checked(self, folder: Path, cli: Cli) -> None:
        (folder / "people.toml").write_text(SCHEMA.replace("[0, 100]", "[100, 0]"))
        assert "age" in cli.sentence(*PLAN, "--schema", "people.toml")


def test_a_delta_that_allows_to_publish_a_row_is_warned_of(cli: Cli) -> None:
    words = (*PLAN[:-1], "1e-3", "--schema", "people.toml", "--samples")
    assert "--delta: 0.001 is not below 1 / 1000 rows" in cli.sentence(*words, "1000", code=0)
    assert not cli.stderr(*words, "999", code=0)


class TestBudgetFiles:
    def test_without_permission_nothing_is_read(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
    ) -> None:
        PrivacyLedger(2.0, 1e-5, path=folder / "people.budget")
        (folder / "people.csv").unlink()
        denied = {folder / "people.budget": {4, 2}, folder: set()}

        def access(path: object, mode: int) -> bool:
            return mode not in denied[Path(str(path)).absolute()]

        monkeypatch.setattr("dpsvm_fast.cli.budget.os.access", access)
        words = (*FIT, "--budget", "people.budget")
        assert "people.budget: no permission to read" in cli.sentence(*words)
        denied[folder / "people.budget"] = {2}
        assert "people.budget: no permission to write this budget" in cli.sentence(*words)
        cli("budget", "show", "people.budget")
        denied |= {folder / "people.budget": set(), folder: {2}}
        assert "or its folder" in cli.sentence(*words)

    def test_what_is_left_is_what_the_budget_shows(self, folder: Path, cli: Cli) -> None:
        PrivacyLedger(2.0, 1e-5, path=folder / "people.budget")
        left = cli(*FIT, "--budget", "people.budget").split("epsilon = ")[2].split(" is left")[0]
        shown = cli("budget", "show", "people.budget").split("left ")[1].split()[0]
        assert left == shown
        assert "." in left

    def test_older_copies_are_reported(self, folder: Path, cli: Cli) -> None:
        create = ("budget", "create", "a.budget", "--epsilon", "1", "--delta", "0")
        cli(*create, "--anchor", "first.anchor")
        (folder / "copy").write_bytes((folder / "a.budget").read_bytes())
        cli("budget", "anchor", "a.budget", "second.anchor")
        PrivacyLedger.open(folder / "a.budget").spend(PureEvent(0.5, "add_remove"))
        record = cli.json("budget", "show", "a.budget")
        assert record["anchor"] == str(folder / "second.anchor")
        cli("budget", "show", "a.budget", "--since", record["mark"])
        # The copy names the first anchor, which the budget has left.
        assert "first.anchor" in cli.sentence("budget", "show", "copy")
        (folder / "second.anchor").unlink()
        assert "second.anchor" in cli.sentence("budget", "show", "a.budget")
        (folder / "empty").touch()
        assert "remove it" in cli.sentence(*create[:2], "empty", *create[3:])


class TestTextsOfOthers:
    """A text that is not of this package may quote a cell."""

    @pytest.mark.parametrize("kind", [ValueError, TypeError, RuntimeError, OSError, KeyError])
    def test_are_not_printed_once_there_are_rows(
        self, kind: type[Exception], monkeypatch: pytest.MonkeyPatch, cli: Cli
    ) -> None:
        def failing(*_: object) -> None:
            raise kind(f"could not convert {SECRET}")

        monkeypatch.setattr("dpsvm_fast.cli.training.train", failing)
        sentence = cli.stderr(*FIT)
        assert SECRET not in sentence
        assert f"unexpected {kind.__name__}" in sentence
        assert "DPSVM_FAST_TRACEBACK=1" in sentence
        assert sentence.endswith("; nothing was spent\n")

    def test_ours_are(self, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
        def failing(*_: object) -> None:
            raise InvalidParameterError("C: got 0, expected more")

        monkeypatch.setattr("dpsvm_fast.cli.training.train", failing)
        assert "C: got 0, expected more" in cli.sentence(*FIT)

    def test_the_system_says_what_it_has_to_say(self) -> None:
        options = dict.fromkeys(("adjacency", "budget", "periods", "random_state"))
        schema = TableSchema.from_dict({"columns": {"age": {"bounds": [0, 100]}}})
        spending = Spending(options | {"epsilon": 1.0, "delta": 1e-5}, schema)
        with pytest.raises(OSError, match="No space left"), spending.hide_other_messages():
            raise OSError(errno.ENOSPC, "No space left on device")
        with spending.hide_other_messages():
            pass


def test_a_full_disk_without_a_name(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("dpsvm_fast.cli.statement.read_document", full)
    assert cli.sentence("verify", "c.json") == (
        "dpsvm-fast: the disk is full; free some space and run the command again\n"
    )


def test_the_next_command_names_the_kind_of_packed_files(folder: Path, cli: Cli) -> None:
    import gzip

    (folder / "p.csv.gz").write_bytes(gzip.compress((folder / "people.csv").read_bytes()))
    assert "NEW.csv.gz -o" in cli("fit", "p.csv.gz", *FIT[2:])


@pytest.mark.skipif(sys.platform == "win32", reason="streams are closed by a shell")
def test_closed_streams_are_no_failure(folder: Path) -> None:
    model = OutputPerturbationSVC(1.0, 1e-5, classes=[0, 1]).fit([[0.0], [1.0]], [0, 1])
    (folder / "c.json").write_text(model.privacy_.to_json())
    command = f"{sys.executable} -m dpsvm_fast verify c.json >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 0


def test_a_mark_of_byte_order_is_no_damage(folder: Path) -> None:
    """Some editors write one."""
    model = OutputPerturbationSVC(1.0, 1e-5, classes=[0, 1]).fit([[0.0], [1.0]], [0, 1])
    (folder / "c.json").write_text(model.privacy_.to_json(), encoding="utf-8-sig")
    assert main(["verify", "c.json"]) == 0
    assert main(["statement", "c.json"]) == 0


# Raises KeyboardInterrupt where a module is imported, as Ctrl-C would.
INTERRUPTED = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
from dpsvm_fast.cli import main
sys.exit(main(["plan", "--epsilon", "1", "--delta", "1e-5", "--features", "4", "--classes", "2"]))
"""


@pytest.mark.parametrize("module", ["dpsvm_fast.cli.app", "click", "sklearn.utils"])
def test_an_interrupt_while_modules_are_imported(module: str) -> None:
    run = python("-c", INTERRUPTED.format(module=module))
    assert (run.returncode, run.stdout) == (130, "")
    assert run.stderr == "dpsvm-fast: interrupted\n"
