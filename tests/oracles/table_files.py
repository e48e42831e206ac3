"""A small table, its schema, and the sentence with which a file is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dpsvm_fast.data import TableSchema, open_table
from dpsvm_fast.exceptions import SchemaError, TableError

RECORD: dict[str, Any] = {
    "target": "y",
    "classes": ["no", "yes"],
    "columns": {"age": {"bounds": [0, 100]}, "work": {"categories": ["p", "q"]}},
}

TEXT = "y,age,work\nno,1.5,p\nyes,2,q\n"

ROWS = [[1.5, 1.0, 0.0], [2.0, 0.0, 1.0]]

WIDE = {"classes": [0, 1], "all_other_columns": {"bounds": [0, 1]}}


def wide(**changes: Any) -> TableSchema:
    """A schema of numbers from 0 to 1, however many."""
    return TableSchema.from_dict({**WIDE, **changes})


def written(folder: Path, content: bytes | str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def stored(table: Any, path: Path, how: str | None = None) -> Path:
    """One block of rows as Parquet, Feather, or an Arrow file or stream, as the name says."""
    import pyarrow as pa
    from pyarrow import feather, parquet

    if path.suffix == ".parquet":
        size = table.num_rows
        parquet.write_table(table, path, compression=how or "snappy", row_group_size=size)
    elif path.suffix == ".feather":
        feather.write_feather(table, path, compression=how)
    else:
        options = pa.ipc.IpcWriteOptions(compression=None if how == "none" else how)
        make = pa.ipc.new_stream if path.stem == "stream" else pa.ipc.new_file
        with make(str(path), table.schema, options=options) as writer:
            writer.write_table(table)
    return path


def schema(**changes: Any) -> TableSchema:
    return TableSchema.from_dict({**RECORD, **changes}, origin="s.toml")


def columns(**changes: Any) -> TableSchema:
    return schema(columns={**RECORD["columns"], **changes})


def error_of(path: Path, of: TableSchema | None = None, **options: Any) -> str:
    """The sentence with which a file is refused."""
    with pytest.raises((TableError, SchemaError)) as caught:
        open_table(path, schema() if of is None else of, **options).read()
    assert all("s3cr3t" not in repr(error) for error in chain(caught.value))
    return str(caught.value)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it was raised for."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
