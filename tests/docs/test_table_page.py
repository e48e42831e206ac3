"""docs/your_data.md: its files, its code and what that prints, and its tables of keys."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest

from dpsvm_fast.data import TableSchema
from dpsvm_fast.data.schema import COLUMN, KEYS, MISSING_TEXTS, TEXT
from dpsvm_fast.data.tables import SUFFIXES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "your_data.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r"^(?:<!-- file (?P<file>\S+) -->\n|<!-- not run: (?P<reason>.+?) -->\n)?"
    r"```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    flags=re.DOTALL | re.MULTILINE,
)


@pytest.fixture
def blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Blocks that are no files, behind the files that are written."""
    monkeypatch.chdir(tmp_path)
    found = []
    for block in BLOCK.finditer(PAGE):
        if block["file"] is None:
            if block["reason"]:
                compile(block["text"], "docs/your_data.md", "exec")
            else:
                found.append((block["kind"], block["text"]))
        else:
            Path(block["file"]).write_text(block["text"], encoding="utf-8")
    return found


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML is read from Python 3.11 on")
def test_code_prints_what_is_shown(blocks: list[tuple[str, str]]) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    pytest.importorskip("onnx")
    names: dict[str, object] = {}
    compared = 0
    printed = ""
    for kind, text in blocks:
        if kind == "text":
            assert printed == text
            compared += 1
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(text, "docs/your_data.md", "exec"), names)
        printed = output.getvalue()
    assert compared == 4


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML is read from Python 3.11 on")
def test_every_schema_on_the_page_is_one(blocks: list[tuple[str, str]]) -> None:
    assert len(blocks) > 0
    schemas = sorted(Path().glob("*.toml"))
    names = ["customers.toml", "kunden.toml", "people.toml", "pixels.toml"]
    assert [path.name for path in schemas] == names
    for path in schemas:
        assert TableSchema.load(path).n_features > 0


def first_cells(heading: str) -> list[str]:
    """The keys in the first column of a table."""
    table = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (.+?) \|", table, flags=re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_every_key_is_listed() -> None:
    assert sorted(name.strip("[]") for name in first_cells("Key")) == sorted(KEYS)
    assert sorted(first_cells("Key of a column")) == sorted([*COLUMN, "missing"])
    assert sorted(first_cells("Key of `[csv]`")) == sorted(TEXT)
    suffixes = first_cells("End of the name")
    assert set(suffixes) - {".csv.gz", ".tsv.gz", ".gz"} == set(SUFFIXES)
    for text in filter(None, MISSING_TEXTS):
        assert f"`{text}`" in PAGE
