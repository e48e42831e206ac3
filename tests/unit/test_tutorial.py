"""The tutorial, pasted line by line in an empty directory: every output as documented."""

from __future__ import annotations

import code
import contextlib
import io
import json
import os
import re
import runpy
import shlex
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dpsvm_fast.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
# A fenced block, with the tolerance or the name of a file that a comment before it states.
BLOCK = re.compile(
    r"^(?:<!-- (?:numbers within (?P<within>\S+)|file (?P<file>\S+)) -->\n)?"
    r"```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)
DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
DOTS = "...\n"
NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


class Block(NamedTuple):
    """A block of a page: what it is, what it says, how far its numbers may be off."""

    kind: str
    text: str
    within: float
    file: str | None


def blocks_of(page: str) -> list[Block]:
    """All blocks of a page that say what they are."""
    return [
        Block(found["kind"], found["text"], float(found["within"] or 0.0), found["file"])
        for found in BLOCK.finditer(page)
    ]


def part(name: str) -> list[Block]:
    """The blocks of a part of the tutorial."""
    page = PAGE.read_text(encoding="utf-8")
    return blocks_of(page.partition(f"\n## {name}")[2].partition("\n## ")[0])


def differs(documented: str, printed: str, within: float) -> str | None:
    """What tells printed text from documented text; None where nothing does.

    A first line of dots stands for any lines. Every file has a digest of its own.
    """
    documented, printed = (DIGEST.sub("DIGEST", text.strip()) for text in (documented, printed))
    if documented.startswith(DOTS):
        documented = documented.removeprefix(DOTS)
        printed = "\n".join(printed.splitlines()[-len(documented.splitlines()) :])
    expected, found = NUMBER.split(documented), NUMBER.split(printed)
    if expected[::2] != found[::2]:
        return f"documented:\n{documented}\nprinted:\n{printed}"
    for one, other in zip(expected[1::2], found[1::2], strict=True):
        if one != other and not abs(float(one) - float(other)) <= within:
            return f"documented {one}, printed {other}, of:\n{printed}"
    return None


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


def follow(blocks: list[Block], run: dict[str, Callable[[str], str]]) -> Iterator[str]:
    """Paste block after block; whatever is not as documented."""
    printed = ""
    for block in blocks:
        if block.kind == "text":
            wrong = differs(block.text, printed, block.within)
            printed = ""
            if wrong is not None:
                yield wrong
            continue
        if printed.strip():
            yield f"printed and not documented:\n{printed}"
        printed = ""
        if block.file is not None:
            Path(block.file).write_text(block.text, encoding="utf-8")
        else:
            printed = run[block.kind](block.text)
    if printed.strip():
        yield f"printed and not documented:\n{printed}"


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


# What is typed for each mistake of the table, after what has to be there for it.
KERNEL = "/sys"
FIT = "fit people.csv --schema people.toml --epsilon 1 --delta 1e-6 -o other.json"
PREDICT = "predict model.json people.csv -o predictions.csv"


def changed(name: str, old: str, new: str, copy: str) -> None:
    """A copy of a file with something else in it."""
    text = Path(name).read_text(encoding="utf-8")
    assert text.count(old) == 1
    Path(copy).write_text(text.replace(old, new), encoding="utf-8")


def wrong_label_column() -> str:
    return FIT + " --target salary"


def missing_bounds() -> str:
    changed("people.toml", "age = { bounds = [0, 100] }\n", "", "short.toml")
    return FIT.replace("people.toml", "short.toml")


def word() -> str:
    return FIT.replace("--epsilon 1", "--epsilon one")


def budget() -> str:
    assert main(["budget", "create", "people.budget", "--epsilon=0.5", "--delta=1e-6"]) == 0
    return FIT + " --budget people.budget"


def gap() -> str:
    changed("people.csv", "38,", ",", "gap.csv")
    return FIT.replace("people.csv", "gap.csv")


def category() -> str:
    changed("people.csv", "53,Gov", "53,Army", "army.csv")
    return FIT.replace("people.csv", "army.csv")


def newer() -> str:
    found = json.loads(Path("model.json").read_text(encoding="utf-8"))
    found["version"] += 1
    Path("newer.json").write_text(json.dumps(found), encoding="utf-8")
    return PREDICT.replace("model.json", "newer.json")


def permission() -> str:
    Path("locked").mkdir(mode=0o500)
    folder = "locked"
    if os.access(folder, os.W_OK):
        # Of the superuser, who may write into any folder but those of the kernel.
        folder = KERNEL
        if not Path(folder).is_dir():
            pytest.skip("this user may write everywhere")
    return PREDICT.replace("predictions.csv", f"{folder}/predictions.csv")


def cut() -> str:
    text = Path("model.json").read_text(encoding="utf-8")
    Path("cut.json").write_text(text[: len(text) // 2], encoding="utf-8")
    return PREDICT.replace("model.json", "cut.json")


def wide() -> str:
    lines = Path("people.csv").read_text(encoding="utf-8").splitlines()
    wider = [f"{line},{cell}" for line, cell in zip(lines, ("zip", *"12345678"), strict=True)]
    Path("wide.csv").write_text("\n".join(wider) + "\n", encoding="utf-8")
    return PREDICT.replace("people.csv", "wide.csv")


# In the order of the table, with the exit code.
MISTAKES: list[tuple[Callable[[], str], int]] = [
    (wrong_label_column, 2),
    (missing_bounds, 2),
    (word, 2),
    (budget, 3),
    (gap, 2),
    (category, 2),
    (newer, 2),
    (permission, 2),
    (cut, 2),
    (wide, 2),
]


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


def write_files() -> None:
    """The files that the section about mistakes shows."""
    files = [block for block in part("Ten common mistakes") if block.file is not None]
    assert [block.file for block in files] == ["people.csv", "people.toml"]
    for block in files:
        Path(str(block.file)).write_text(block.text, encoding="utf-8")


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
    page = PAGE.read_text(encoding="utf-8").partition("| Mistake | Message |\n|---|---|\n")[2]
    rows = re.findall(r"^\| (.*?) \| `(.*)` \|$", page.partition("\n\n")[0], flags=re.MULTILINE)
    assert len(rows) == len(MISTAKES)
    prepare, code = MISTAKES[row]
    typed = prepare()
    capsys.readouterr()
    assert main(shlex.split(typed)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert f"dpsvm-fast: {rows[row][1]}" == " ".join(err.split()).replace(f"{KERNEL}/", "locked/")
    assert not Path("other.json").exists()
    assert not Path("predictions.csv").exists()


def test_other_outputs_are_told() -> None:
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
