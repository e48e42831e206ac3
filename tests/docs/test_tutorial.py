"""The tutorial, pasted line by line in an empty directory: every output as documented."""

from __future__ import annotations

import code
import contextlib
import io
import runpy
import shlex
import tempfile
from pathlib import Path

import pytest

from dpsvm_fast.cli import main
from oracles.tutorial import (
    BUDGET,
    FIT,
    MISTAKES,
    Block,
    as_documented,
    can_be_made,
    differs,
    follow,
    messages,
    part,
    write_files,
)


class Prompt:
    """A Python prompt into which lines are pasted."""

    def __init__(self) -> None:
        self.console = code.InteractiveConsole()

    def __call__(self, text: str) -> str:
        """What the lines print."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            more = False
            for line in text.splitlines():
                more = self.console.push(line)
        assert not more, f"a blank line is missing at the end of:\n{text}"
        assert not err.getvalue(), err.getvalue()
        return out.getvalue()


def shell(text: str) -> str:
    """What the lines print that are typed at a shell, errors too."""
    pytest.importorskip("click")
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        for line in text.splitlines():
            program, *arguments = shlex.split(line)
            if program == "python":
                runpy.run_path(arguments[0], run_name="__main__")
            else:
                assert program == "dpsvm-fast"
                assert main(arguments) == 0, line
    return out.getvalue()


def test_part_a(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    blocks = part("Part A")
    assert sum(block.kind == "text" for block in blocks) >= 8
    wrong = list(follow(blocks, {"python": Prompt()}))
    assert not wrong, "\n\n".join(wrong)
    assert Path("profile.png").read_bytes().startswith(b"\x89PNG")


def test_part_b(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = part("Part B")
    assert sum(block.kind == "text" for block in blocks) >= 6
    wrong = list(follow(blocks, {"sh": shell}))
    assert not wrong, "\n\n".join(wrong)
    predictions = Path("predictions.csv").read_text(encoding="utf-8").splitlines()
    assert predictions[0] == "digit"
    assert len(predictions) == 451


@pytest.fixture(scope="module")
def model() -> str:
    """A model of the table, as text; its noise is its own, its schema that of the page."""
    pytest.importorskip("click")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_files()
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(shlex.split(FIT)) == 0
        return Path("other.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("row", range(len(MISTAKES)))
def test_mistakes(
    row: int,
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files()
    Path("model.json").write_text(model, encoding="utf-8")
    rows = messages()
    assert len(rows) == len(MISTAKES)
    prepare, code = MISTAKES[row]
    if not can_be_made(prepare):
        pytest.skip("no folder is closed to this user")
    assert main(shlex.split(BUDGET)) == 0
    typed = prepare()
    capsys.readouterr()
    assert main(shlex.split(typed)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("dpsvm-fast: ")
    assert as_documented(err) == rows[row]
    assert not Path("other.json").exists()
    assert not Path("predictions.csv").exists()


def test_other_outputs_are_reported() -> None:
    """Negative control: text to the letter, numbers within what is stated."""
    assert differs("accuracy 0.91\n", "accuracy 0.89\n", 0.05) is None
    assert differs("accuracy 0.91\n", "accuracy 0.89\n", 0.0) is not None
    assert differs("accuracy 0.91\n", "accuracy 0.81\n", 0.05) is not None
    assert differs("accuracy 0.91\n", "Accuracy 0.91\n", 0.05) is not None
    assert differs("...\nlast 1\n", "first\nlast 1\n", 0.0) is None
    assert differs("...\nlast 1\n", "last 1\nfirst\n", 0.0) is not None
    wrong = [Block("python", "print(2)", 0.0, None), Block("text", "3\n", 0.0, None)]
    assert len(list(follow(wrong, {"python": Prompt()}))) == 1
    assert len(list(follow(wrong[:1], {"python": Prompt()}))) == 1
