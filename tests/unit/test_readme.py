"""The README's Python blocks run, one after the other, as a reader would paste them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]


def python_blocks(text: str) -> list[str]:
    """Return the Python code blocks of a Markdown text."""
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def run_blocks(blocks: list[str]) -> dict[str, object]:
    """Run code blocks in one namespace and return it."""
    namespace: dict[str, object] = {}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"README.md block {number}", "exec"), namespace)
    return namespace


def test_the_examples_run(capsys) -> None:
    blocks = python_blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 2
    namespace = run_blocks(blocks)
    printed = capsys.readouterr().out
    score = float(printed.splitlines()[0])
    # 0.84 with a standard deviation of 0.02 over the noise; chance is 0.1.
    assert 0.7 < score <= 1.0
    # The second model is the one in `clf`; its statement names what the example asked for.
    statement = namespace["clf"].privacy_
    assert statement.mechanism == "objective_perturbation"
    assert statement.epsilon == 2.0
    assert statement.delta == 1e-6
    assert np.all(np.isfinite(namespace["clf"].coef_))


def test_the_first_example_is_ten_lines() -> None:
    first = python_blocks((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 12


def test_a_broken_example_is_caught() -> None:
    """Negative control: blocks are found and really executed."""
    blocks = python_blocks("text\n```python\nraise ZeroDivisionError\n```\n```\nnot python\n```\n")
    assert len(blocks) == 1
    try:
        run_blocks(blocks)
    except ZeroDivisionError:
        return
    raise AssertionError("the block was not executed")


def test_links_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = []
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")
    assert not broken, broken
