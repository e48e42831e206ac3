"""The tutorial, pasted line by line in an empty directory: every output as documented."""

from __future__ import annotations

import code
import contextlib
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
# A fenced block, with the tolerance or the name of a file that a comment before it states.
BLOCK = re.compile(
    r"^(?:<!-- (?:numbers within (?P<within>\S+)|file (?P<file>\S+)) -->\n)?"
    r"```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)
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
    """What tells printed text from documented text; None where nothing does."""
    expected, found = NUMBER.split(documented.strip()), NUMBER.split(printed.strip())
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
    monkeypatch.chdir(tmp_path)
    blocks = part("Part A")
    assert sum(block.kind == "text" for block in blocks) >= 8
    wrong = list(follow(blocks, {"python": Prompt()}))
    assert not wrong, "\n\n".join(wrong)
