"""The tutorial: its blocks, what has to come of them, and the mistakes that it lists.

Needs nothing but the standard library, so that ``tools/follow_tutorial.py`` can follow the page in
an environment that has only the wheel.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

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


# What is typed for each mistake of the table, after what has to be there for it.
KERNEL = "/sys"
FIT = "fit people.csv --schema people.toml --epsilon 1 --delta 1e-6 -o other.json"
BUDGET = "budget create people.budget --epsilon 0.5 --delta 1e-6"
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


def closed_folder() -> str | None:
    """A folder that this user has no permission to write into; None where there is none."""
    Path("locked").mkdir(mode=0o500, exist_ok=True)
    if not os.access("locked", os.W_OK):
        return "locked"
    # The superuser may write into any folder but those of the kernel. In a container these are
    # mounted for reading only, which is another mistake; where only the root was changed they are
    # not mounted at all; on Windows folders have no mode.
    return KERNEL if os.path.ismount(KERNEL) and os.access(KERNEL, os.W_OK) else None


def permission() -> str:
    return PREDICT.replace("predictions.csv", f"{closed_folder()}/predictions.csv")


def can_be_made(prepare: Callable[[], str]) -> bool:
    """Whether this user can make a mistake on this machine."""
    return prepare is not permission or closed_folder() is not None


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


def write_files() -> None:
    """The files that the section about mistakes shows."""
    files = [block for block in part("Ten common mistakes") if block.file is not None]
    assert [block.file for block in files] == ["people.csv", "people.toml"]
    for block in files:
        Path(str(block.file)).write_text(block.text, encoding="utf-8")


def messages() -> list[str]:
    """What the table of mistakes says, row by row."""
    page = PAGE.read_text(encoding="utf-8").partition("| Mistake | Message |\n|---|---|\n")[2]
    table = page.partition("\n\n")[0]
    return re.findall(r"^\| .*? \| `(.*)` \|$", table, flags=re.MULTILINE)


def as_documented(error: str) -> str:
    """A message in one line, without what depends on the user."""
    return " ".join(error.split()).replace(f"{KERNEL}/", "locked/").removeprefix("dpsvm-fast: ")
