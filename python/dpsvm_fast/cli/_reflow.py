"""Text that was broken into lines for one width, for another."""

from __future__ import annotations

import re
import textwrap

from dpsvm_fast.accounting._prose import WIDTH

__all__ = ["reflowed"]

# What the lines of an item are indented by: a bullet, a box, a label, or spaces.
BEGIN = re.compile(r" *(?:- |\[ \] |\w[\w ]{0,13} {2,})?")
RULE = re.compile(r"(=+|-{4,}|_{4,})")


def reflowed(text: str, width: int) -> str:
    """``text`` with no line longer than ``width`` where words allow it.

    Lines that were broken at the width of privacy statements are joined before they are broken
    again; lines that are short for another reason stay apart.
    """
    lines = text.split("\n")
    if max(map(len, lines)) <= width:
        return text
    return "\n".join(piece for line in _joined(lines) for piece in _broken(line, width))


def _joined(lines: list[str]) -> list[str]:
    """Undo the breaks that were made because the next word had no room."""
    whole: list[str] = []
    last = ""
    for line in lines:
        word = line.strip().partition(" ")[0]
        soft = last.strip() and word and len(last) + 1 + len(word) > WIDTH
        if soft and not RULE.fullmatch(last) and _hangs(line, whole[-1]):
            whole[-1] += f" {line.strip()}"
        else:
            whole.append(line)
        last = line
    return whole


def _hangs(line: str, item: str) -> bool:
    """Whether a line goes on where an item stands."""
    indent = len(line) - len(line.lstrip())
    return indent == _hanging(item) and not re.match(r" *(- |\[ \] )", line)


def _hanging(item: str) -> int:
    """Indent of the lines of an item after its first."""
    begin = BEGIN.match(item)
    return begin.end() if begin is not None else 0


def _broken(line: str, width: int) -> list[str]:
    """One item in lines."""
    if len(line) <= width:
        return [line]
    if RULE.fullmatch(line):
        return [line[:width]]
    hanging = min(_hanging(line), width // 2)
    first = re.match(r" *", line)
    indent = first[0] if first is not None else ""
    return textwrap.wrap(
        line.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=" " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
