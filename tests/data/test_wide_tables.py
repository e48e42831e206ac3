"""Tables of many columns are read in bounded memory, some columns at a time where need be.

Peaks are of a process of its own, beyond what it took before it opened the file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from pyarrow import parquet

from dpsvm_fast.data import TableSchema, open_table
from dpsvm_fast.exceptions import TableError
from oracles.command_line import python
from oracles.table_files import stored

MIB = 2**20
RECORD = {
    "target": "y",
    "classes": ["a", "b"],
    "columns": {"work": {"categories": ["p", "q"], "unknown": "none"}},
    "all_other_columns": {"bounds": [0, 1], "missing": 0},
}
SCHEMA = TableSchema.from_dict(RECORD)
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory by /proc")
MEASURE = """
import sys
import pyarrow, pyarrow.csv, pyarrow.compute, pyarrow.ipc, pyarrow.parquet
from dpsvm_fast.data import TableSchema, open_table
from oracles.reader_attacks import forget_peak, resident
schema = TableSchema.from_dict({record!r})
forget_peak()
before = resident("VmRSS")
n = sum(len(X) for X, y in open_table(sys.argv[1], schema).batches())
print(n, resident("VmHWM") - before)
"""


def wide(n_rows: int, n_columns: int) -> Any:
    """Numbers that nothing packs, a column of texts, and labels."""
    random = np.random.default_rng(0)
    columns: dict[str, Any] = {f"c{j}": random.uniform(size=n_rows) for j in range(n_columns)}
    columns["c1"] = pa.array([None, 0.5] * (n_rows // 2))
    columns["work"] = np.array(["p", "q", "r"])[random.integers(0, 3, n_rows)]
    columns["y"] = np.array(["a", "b"])[random.integers(0, 2, n_rows)]
    return pa.table(columns)


def rows(table: Any) -> tuple[Any, Any]:
    """What reading it returns."""
    work = np.array(table.column("work").to_pylist())
    names = [name for name in table.column_names if name not in ("work", "y")]
    numbers = [table.column(name).fill_null(0).to_numpy() for name in names]
    X = np.column_stack([work == "p", work == "q", *numbers]).astype(np.float32)
    return X, np.array(table.column("y").to_pylist())


def in_groups(folder: Path, *groups: Any) -> Path:
    """A file with a row group for each table."""
    path = folder / "t.parquet"
    with parquet.ParquetWriter(path, groups[0].schema) as writer:
        for group in groups:
            writer.write_table(group)
    return path


@pytest.mark.parametrize("max_memory", [2**22, 2**24, 2**28])
def test_one_row_group_of_many_columns_is_read_whatever_the_memory(
    tmp_path: Path, max_memory: int
) -> None:
    table = wide(20_000, 60)
    # The second row group fits at once.
    path = in_groups(tmp_path, table, table.slice(0, 100), table.slice(0, 20_000))
    found = list(open_table(path, SCHEMA, max_memory=max_memory).batches())
    X, y = rows(pa.concat_tables([table, table.slice(0, 100), table]))
    assert (np.concatenate([one for one, _ in found]) == X).all()
    assert (np.concatenate([labels for _, labels in found]) == y).all()


@pytest.mark.parametrize("max_memory", [2**22, 2**24, 2**28])
def test_persons_are_the_same_whatever_the_memory(tmp_path: Path, max_memory: int) -> None:
    n_rows = 10_000 if max_memory == 2**22 else 20_000
    who = np.random.default_rng(0).integers(0, 6000, n_rows)
    table = wide(n_rows, 60).append_column(
        "who", pa.array(np.char.add("patient ", who.astype(str)))
    )
    path = in_groups(tmp_path, table, table)
    of_persons = TableSchema.from_dict(RECORD | {"person": "who"})
    groups = open_table(path, of_persons, owners=True, max_memory=max_memory).read()[2]["groups"]
    _, codes = np.unique(groups, return_inverse=True)
    _, expected = np.unique(np.append(who, who), return_inverse=True)
    assert len(set(zip(codes.tolist(), expected.tolist(), strict=True))) == expected.max() + 1
    assert codes.max() == expected.max()


def test_the_row_of_a_wrong_cell_is_reported_from_columns_that_are_read_in_turn(
    tmp_path: Path,
) -> None:
    table = wide(20_000, 60)
    for name, column in (
        ("y", ["a"] * 15_000 + ["c"] * 5000),
        ("c59", [0.5] * 14_999 + [None] * 5001),
    ):
        place = table.column_names.index(name)
        wrong = table.set_column(place, name, pa.array(column))
        path = stored(wrong, tmp_path / "t.parquet", "snappy")
        strict = TableSchema.from_dict(
            RECORD
            | {
                "all_other_columns": {"bounds": [0, 1]},
                "columns": RECORD["columns"] | {"c1": {"bounds": [0, 1], "missing": 0}},
            }  # type: ignore[operator]
        )
        with pytest.raises(TableError) as error:
            list(open_table(path, strict, max_memory=2**24).batches())
        assert "row 15001" in str(error.value) or "row 15000" in str(error.value)
        assert name in str(error.value)


def test_row_groups_that_say_a_wrong_number_of_rows_are_damaged(tmp_path: Path) -> None:
    path = stored(wide(20_000, 60), tmp_path / "t.parquet", "snappy")
    content = path.read_bytes()
    # The number of rows of the row group, in Thrift's way of writing 20,000.
    at = content.rindex(bytes([0xC0, 0xB8, 0x02]))
    for changed in (bytes([0xBE, 0xB8, 0x02]), bytes([0xC2, 0xB8, 0x02])):
        path.write_bytes(content[:at] + changed + content[at + 3 :])
        with pytest.raises(TableError):
            list(open_table(path, SCHEMA, max_memory=2**24).batches())


@linux
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("t.parquet", "snappy"),
        ("t.parquet", "none"),
        ("t.parquet", "zstd"),
        ("t.arrow", "none"),
        ("t.arrow", "lz4"),
        ("t.feather", "lz4"),
        ("stream.arrow", "none"),
    ],
)
def test_a_wide_file_takes_no_more_than_its_memory(tmp_path: Path, name: str, how: str) -> None:
    n = 100_000 if name == "t.arrow" else 300_000
    assert_peak(stored(wide(n, 100), tmp_path / name, how), n)


@linux
@pytest.mark.slow
def test_text_of_100_000_columns_takes_no_more_than_its_memory(tmp_path: Path) -> None:
    n = 100_000
    path = tmp_path / "t.csv"
    row = ",".join(f"0.{j % 7}" for j in range(n))
    path.write_text(",".join(f"c{j}" for j in range(n)) + ",work,y\n" + f"{row},p,a\n" * 20)
    assert_peak(path, 20)


def assert_peak(path: Path, n_rows: int) -> None:
    """All rows are read within the default of ``max_memory``."""
    done = python("-c", MEASURE.format(record=RECORD), str(path))
    assert done.returncode == 0, done.stderr
    n, peak = map(int, done.stdout.split())
    assert n == n_rows
    assert peak <= 256 * MIB


def dictionary(words: list[str], codes: list[int]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), words)


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
def test_dictionaries_that_grow_from_batch_to_batch(tmp_path: Path, make: Any) -> None:
    batches = [
        pa.RecordBatch.from_pydict(
            {
                "c0": [0.5],
                "work": dictionary(words[:n], [n - 1]),
                "y": dictionary(["a", "b"], [n - 1]),
            }
        )
        for words, n in ((["p", "q"], 1), (["p", "q"], 2))
    ]
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    path = tmp_path / "t.arrow"
    with make(str(path), batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    X, y = open_table(path, SCHEMA).read()
    assert X.tolist() == [[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]]
    assert y.tolist() == ["a", "b"]


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_arrow_files_of_polars(tmp_path: Path, compression: Any) -> None:
    """Their messages are laid out in another way than those of Arrow's own writer."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"c0": [0.5, 0.25], "work": ["p", "q"], "y": ["a", "b"]})
    frame.write_ipc(tmp_path / "t.arrow", compression=compression)
    X, y = open_table(tmp_path / "t.arrow", SCHEMA).read()
    assert X.tolist() == [[1.0, 0.0, 0.5], [0.0, 1.0, 0.25]]
    assert y.tolist() == ["a", "b"]


@pytest.mark.parametrize("name", ["t.arrow", "t.feather"])
def test_arrow_files_that_are_cut_off_anywhere_are_damaged(tmp_path: Path, name: str) -> None:
    path = stored(wide(20, 2), tmp_path / name, "lz4")
    content = path.read_bytes()
    for end in range(1, len(content), 7):
        path.write_bytes(content[:end])
        with pytest.raises(TableError):
            open_table(path, SCHEMA).read()


@pytest.mark.parametrize("place", [-8, 0, 3, 10**4, 2**62])
def test_a_list_of_batches_that_points_anywhere_is_damaged(tmp_path: Path, place: int) -> None:
    path = stored(wide(20, 2), tmp_path / "t.arrow", "none")
    content = path.read_bytes()
    # Messages begin with this mark: that of the schema, dictionaries, and the batch.
    batch = content.rindex(b"\xff\xff\xff\xff", 0, content.rindex(b"\xff\xff\xff\xff"))
    at = content.rindex(batch.to_bytes(8, "little"))
    changed = len(content) if place == 10**4 else place
    path.write_bytes(content[:at] + changed.to_bytes(8, "little", signed=True) + content[at + 8 :])
    with pytest.raises(TableError):
        open_table(path, SCHEMA).read()
