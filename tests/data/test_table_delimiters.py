"""Headers that were read as one name, because another character separates the cells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from dpsvm_fast.data import TableSchema, open_table
from dpsvm_fast.data.schema import TextFormat
from dpsvm_fast.exceptions import TableError


@pytest.mark.parametrize(("mark", "written"), [(";", '";"'), ("\t", '"\\t"'), ("|", '"|"')])
def test_another_delimiter_is_told_and_written(tmp_path: Path, mark: str, written: str) -> None:
    path, file = tmp_path / "t.csv", tmp_path / "s.toml"
    path.write_text(f"a{mark}b{mark}y\n1{mark}2{mark}no\n", encoding="utf-8")
    text = TableSchema.template(path, target="y")
    assert text.endswith(f"\n[csv]\ndelimiter = {written}\n")
    text = text.replace("classes = []", 'classes = ["no", "yes"]')
    file.write_text(text.replace("bounds = []", "bounds = [0, 9]"), encoding="utf-8")
    schema = TableSchema.load(file)
    X, y = open_table(path, schema).read()
    assert (X.tolist(), y.tolist()) == ([[1.0, 2.0]], ["no"])
    with pytest.raises(TableError) as caught:
        open_table(path, replace(schema, text=TextFormat()))
    told = str(caught.value)
    assert "it has one column whose name contains " in told
    assert told.endswith(f"write delimiter = {written} in the [csv] table of the schema")


def test_a_first_row_of_another_delimiter_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("s3cr3t;39.5\np;50\n", encoding="utf-8")
    with pytest.raises(TableError) as caught:
        TableSchema.template(path)
    assert "s3cr3t" not in str(caught.value)
