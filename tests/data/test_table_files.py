"""CSV files: what is read, what is refused, and in which words."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsvm_fast.data import TableSchema, open_table
from dpsvm_fast.data.schema import TextFormat
from dpsvm_fast.exceptions import InvalidParameterError, TableError
from oracles.table_files import RECORD, ROWS, TEXT, columns, error_of, schema, wide, written

pytest.importorskip("pyarrow")


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes | str, str], Path]:
    return partial(written, tmp_path)


def test_rows_labels_and_facts(write: Any) -> None:
    table = open_table(write(TEXT), schema())
    X, y = table.read()
    assert X.tolist() == ROWS
    assert y.tolist() == ["no", "yes"]
    assert (table.n_features, table.n_rows, table.sparse, table.labelled) == (3, None, False, True)
    assert table.format == "csv"
    assert table.n_bytes_total == len(TEXT)
    assert repr(table) == "Table(t.csv: dense rows of 3 features)"


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + TEXT,
        TEXT.replace("\n", "\r\n"),
        TEXT.rstrip("\n"),
        " work , y,age\np,no, 1.5\n q, yes ,2.0\n",
        '"work","y","age"\n"p","no","1.5"\n"q","yes","2"\n',
        "\n\ny,age,work\n\nno,1.5,p\n\nyes,2e0,q\n\n",
    ],
    ids=[
        "mark",
        "carriage return",
        "no last line end",
        "order and blanks",
        "quotes",
        "blank lines",
    ],
)
def test_one_table_written_in_many_ways(write: Any, text: str) -> None:
    X, y = open_table(write(text), schema()).read()
    assert X.tolist() == ROWS
    assert y.tolist() == ["no", "yes"]


def test_suffixes_and_formats(write: Any) -> None:
    tabs = TEXT.replace(",", "\t")
    for content, name, format in (
        (tabs, "t.tsv", None),
        (gzip.compress(TEXT.encode(), mtime=0), "T.CSV.GZ", None),
        (
            gzip.compress(tabs.encode()[:20], mtime=0) + gzip.compress(tabs.encode()[20:], mtime=0),
            "t.tsv.gz",
            None,
        ),
        (TEXT, "t.data", "csv"),
    ):
        assert open_table(write(content, name), schema(), format=format).read()[0].tolist() == ROWS
    for name in ("t.xlsx", "t.parquet.gz", "t"):
        with pytest.raises(InvalidParameterError, match=r"^path: "):
            open_table(write(TEXT, name), schema())
    with pytest.raises(InvalidParameterError, match=r"^format: "):
        open_table(write(TEXT), schema(), format="excel")
    with pytest.raises(FileNotFoundError):
        open_table("no such file.csv", schema())
    with pytest.raises(TypeError, match=r"^schema: "):
        open_table(write(TEXT), RECORD)  # type: ignore[arg-type]


def test_labels_are_not_needed_to_predict(write: Any) -> None:
    unlabelled = "work,age\np,1.5\nq,2\n"
    bare = schema(target=None, classes=None)
    for text, of in ((TEXT, schema()), (unlabelled, schema()), (unlabelled, bare)):
        X, y = open_table(write(text), of, labelled=False).read()
        assert X.tolist() == ROWS
        assert y is None


def test_other_marks(write: Any) -> None:
    csv = {"delimiter": ";", "decimal": ",", "encoding": "latin-1", "missing_values": ["?"]}
    of = schema(csv=csv, classes=["Jürg", "Zoë"])
    text = "work;age;y\np;1,5;Jürg\nq;2;Zoë\n"
    X, y = open_table(write(text.encode("latin-1")), of).read()
    assert X.tolist() == ROWS
    assert y.tolist() == ["Jürg", "Zoë"]
    assert "row 1, column 'age': not a number" in error_of(write(text.replace("1,5", "1.5")), of)
    assert "row 2, column 'age': a missing value" in error_of(write(text.replace("2;", "?;")), of)
    assert "the header is not utf-8" in error_of(write(text.encode("utf-16")))


def test_a_category_may_be_called_none(write: Any) -> None:
    """Then it stands for what is missing, as its name says."""
    of = columns(age={"bounds": [0, 100]}, work={"categories": ["p", "none"], "missing": "none"})
    X, _ = open_table(write("y,age,work\nno,1,p\nno,1,none\nno,1,\n"), of).read()
    assert X[:, 1:].tolist() == [[1, 0], [0, 1], [0, 1]]


def test_files_without_header(write: Any) -> None:
    named = schema(csv={"header": ["y", "age", "work"]})
    assert open_table(write("no,1.5,p\nyes,2,q\n"), named).read()[0].tolist() == ROWS
    X, _ = open_table(write("1.5,p\n2,q\n"), named, labelled=False).read()
    assert X.tolist() == ROWS
    assert "row 1 has 4 cells, expected 3, as csv.header in s.toml says" in error_of(
        write("no,1,p,4\n"), named
    )
    last = wide(target=-1, csv={"header": False})
    table = open_table(write("0.25,0.5,1\n0.5,1,0\n"), last)
    assert table.read()[0].tolist() == [[0.25, 0.5], [0.5, 1.0]]
    assert table.read()[1].tolist() == [1, 0]
    assert table.schema.feature_names == ("x0", "x1")
    for text in ("0.25,0.5\n", "0.25,0.5,1\n"):
        X, _ = open_table(write(text), table.schema, labelled=False).read()
        assert X.tolist() == [[0.25, 0.5]]
    ordered = schema(csv={"header": False}, target=0)
    for text in ("no,1.5,p\nyes,2,q\n", "1.5,p\n2,q\n"):
        assert open_table(write(text), ordered, labelled=False).read()[0].tolist() == ROWS
    assert "expected a position from 0 to 2" in error_of(
        write("1,2,3\n"), wide(csv={"header": False}, target=5)
    )


def test_a_label_is_no_feature(write: Any) -> None:
    path = write(TEXT)
    expected = "s.toml: columns.age: is the target and cannot be a feature: remove it"
    assert error_of(path, replace(schema(), target="age")) == expected
    assert error_of(path, schema(target=1)) == expected


def test_a_pass_that_is_broken_off_can_be_repeated(write: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("dpsvm_fast.data.readers.BLOCK", 64)
    table = open_table(write("y,age,work\n" + "no,1,p\n" * 500), schema())
    for X, _ in table.batches():
        assert len(X) < 100
        break
    assert len(table.read()[0]) == 500


# What is wrong with a CSV file, and how the sentence goes on after its name.
WRONG: list[tuple[bytes | str, str]] = [
    ("", "the file is empty"),
    ("\n\n", "the file is empty"),
    ("income,age,work\nno,1,p\n", "target: "),
    ("y,work\nno,p\n", "lacks column 'age', declared in s.toml"),
    ("y,age,work,age\n", "duplicate column name 'age'"),
    ("y,age,work\nno,1,p\nno,s3cr3t\n", "row 2"),
    ("y,age,work\nno,1,p,s3cr3t\n", "row 1"),
    ("y,age,work\nno,1,p\nno,s3cr3t,p\n", "row 2, column 'age'"),
    ('y,age,work\nno,"1,5",p\n', "row 1, column 'age'"),
    ("y,age,work\nno,2026-01-02,p\n", "row 1, column 'age'"),
    ("y,age,work\nno,true,p\n", "row 1, column 'age'"),
    ("y,age,work\nno,-inf,p\n", "row 1, column 'age'"),
    ("y,age,work\nno,1,p\nno,,p\n", "row 2, column 'age'"),
    ("y,age,work\nno,1,p\nno,2,s3cr3t\n", "row 2, column 'work'"),
    ("y,age,work\nno,1,p\ns3cr3t,2,p\n", "row 2, column 'y'"),
    ("y,age,work\n,2,p\n", "row 1, column 'y'"),
    (b"y,age,work\nno,1,p\nno,1,s3cr3t\xff\n", "row 2, column 'work'"),
    (b"y,age,work\nno,\xff1,p\n", "row 1, column 'age'"),
    (b"y,age,work\nno,1,p\nno,\xc1\n", "row 2"),
]


@pytest.mark.parametrize(("content", "place"), WRONG, ids=str)
def test_wrong_text(write: Any, content: bytes | str, place: str) -> None:
    assert error_of(write(content)).startswith(f"t.csv: {place}")


def test_a_quote_that_is_never_closed_does_not_swallow_rows(write: Any) -> None:
    of = columns(note={"ignore": True})
    text = 'y,age,work,note\nno,1,p,"\nno,1,p,x\nno,1,p,x\n'
    assert "ends inside a quoted cell" in error_of(write(text), of)
    # A quote inside a cell is a character, and two of them are none.
    for cell in ('5" pipe', '"a ""b"" c"', '"two\nlines"', '"a\r\n""'):
        text = f"y,age,work,note\nno,1.5,p,{cell}\nyes,2,q,x\n"
        if cell != '"a\r\n""':
            assert open_table(write(text), of).read()[0].tolist() == ROWS
        else:
            error_of(write(text), of)


def test_undescribed_columns(write: Any) -> None:
    path = write("y,age,work,id,zip code\nno,1.5,p,s3cr3t,3\nyes,2,q,s3cr3t,4\n")
    assert "\n[columns]\n  id = { bounds = [LOW, HIGH] }" in error_of(path)
    assert open_table(path, schema(extra_columns="ignore")).read()[0].tolist() == ROWS
    ignored = columns(id={"ignore": True}, **{"zip code": {"ignore": True}})
    table = open_table(path, ignored)
    assert table.read()[0].tolist() == ROWS
    # Columns that are ignored need not be there.
    assert open_table(write(TEXT), table.schema).read()[0].tolist() == ROWS


def test_a_schema_for_training_needs_target_and_classes(write: Any) -> None:
    for key in ("target", "classes"):
        assert error_of(write(TEXT), schema(**{key: None})).startswith(f"s.toml: {key}: missing")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("39.5,s3cr3t,no\n50,p,yes\n", ["y", "age", "work"]),
        ("39.5,s3cr3t,39.5\n50,p,yes\n", ["y", "age", "work"]),
        ("y,-1e3,s3cr3t\nno,1,p\n", ["age"]),
    ],
)
def test_a_first_row_in_place_of_a_header_is_not_quoted(
    write: Any, text: str, columns: list[str]
) -> None:
    path = write(text)
    facts = {name: {"bounds": [0, 100]} for name in columns if name != "y"}
    record = {"target": "y", "classes": ["no", "yes"], "columns": facts}
    told = [error_of(path, TableSchema.from_dict(record, origin="s.toml"))]
    for target in (None, "y", "absent"):
        with pytest.raises(TableError) as caught:
            TableSchema.template(path, target=target)
        told.append(str(caught.value))
    for sentence in told:
        assert "write header = false" in sentence
        assert "s3cr3t" not in sentence
        assert "39.5" not in sentence


def test_a_cell_of_thousands_of_digits(write: Any) -> None:
    coded = schema(columns={"age": {"bounds": [0, 100]}, "work": {"categories": [1, 2]}})
    text = f"y,age,work\nno,1,{'7' * 5000}\n"
    assert "row 1, column 'work': a value outside the declared" in error_of(write(text), coded)


def test_only_a_header(write: Any) -> None:
    for text in ("y,age,work\n", "y,age,work", "\ny,age,work\r\n\r\n"):
        table = open_table(write(text), schema())
        X, y = table.read()
        assert X.shape == (0, 3)
        assert y.shape == (0,)
        with pytest.raises(TableError, match=r"^t\.csv: the table has no rows$"):
            table.to_partitions(Path(table.path).parent / "parts")


def test_blocks_of_any_size(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks shorter than a row, with line ends in quotes: rows come once each and in order."""
    rng = np.random.default_rng(0)
    ages = rng.integers(0, 100, 400)
    notes = ['"' + "long\n" * rng.integers(0, 60) + '"' for _ in ages]
    text = "".join(f"no,{age},p,{note}\n" for age, note in zip(ages, notes, strict=True))
    path = write("y,age,work,note\n" + text)
    of = columns(note={"ignore": True})
    monkeypatch.setattr("dpsvm_fast.data.readers.TILE_BYTES", 1)
    for block in (200, 10**6):
        monkeypatch.setattr("dpsvm_fast.data.readers.BLOCK", block)
        monkeypatch.setattr("dpsvm_fast.data.readers.BYTES_PER_CELL", 1)
        assert open_table(path, of).read()[0][:, 0].tolist() == ages.tolist()
    path.write_text(path.read_text().replace("no,", "s3cr3t,").replace("s3cr3t,", "no,", 321))
    monkeypatch.setattr("dpsvm_fast.data.readers.BLOCK", 64)
    assert "row 322, column 'y'" in error_of(path, of)


@pytest.mark.parametrize("cut", [2, 30, 200, -4, -20])
def test_compressed_text_that_is_cut(write: Any, cut: int) -> None:
    rng = np.random.default_rng(0)
    text = "y,age,work\n" + "".join(f"no,{age},p\n" for age in rng.random(5000))
    content = gzip.compress(text.encode())
    assert "cut off" in error_of(write(content[:cut], "t.csv.gz"))
    assert "cut off" in error_of(write(content[:200] + b"x" + content[201:], "t.csv.gz"))


def test_positions_are_kept_for_names_that_say_them(write: Any) -> None:
    of = wide(n_features=3, columns={"x1": {"bounds": [5, 6]}})
    table = open_table(write("x2,x1,x0\n0.25,0.5,1\n"), of, labelled=False)
    assert table.read()[0].tolist() == [[1.0, 0.5, 0.25]]
    assert table.schema.bounds[0].tolist() == [0.0, 5.0, 0.0]
    of = wide(n_features=2)
    assert "got 3 features, expected 2" in error_of(write("a,b,c\n1,2,3\n"), of, labelled=False)


# Headers that were read as one name, because another character separates the cells.


@pytest.mark.parametrize(("mark", "written"), [(";", '";"'), ("\t", '"\\t"'), ("|", '"|"')])
def test_another_delimiter_is_reported_and_written(tmp_path: Path, mark: str, written: str) -> None:
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
