"""Files that ask for more memory or time than they should get, or hold what nobody expects.

Memory is that of a process of its own, beyond what the import takes; sizes are those of blocks and
rooms, made small where the property is the same.
"""

from __future__ import annotations

import gzip
import inspect
import io
import os
import secrets
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("pyarrow")

from dpsvm_fast import OutputPerturbationSVC, PrivacyLedger, PrivateStandardScaler
from dpsvm_fast._core import RecordEnds
from dpsvm_fast.cli import main
from dpsvm_fast.data import TableSchema, open_table
from dpsvm_fast.exceptions import InvalidParameterError, ModelFormatError, SchemaError, TableError
from dpsvm_fast.persist import load_model, save_model
from dpsvm_fast.verification.verify import model_document
from oracles.reader_attacks import (
    TYPED,
    corpus,
    fault_of,
    faults,
    forget_peak,
    resident,
    seeds,
)
from oracles.stored import CORPUS, HOW_TO_KEEP
from oracles.table_files import stored

MIB = 2**20
TWO = TableSchema.from_dict(
    {
        "target": "y",
        "classes": ["a", "b"],
        "columns": {"x": {"bounds": [0, 1]}, "z": {"bounds": [0, 1]}},
    }
)
MATRIX = TableSchema.from_dict({"classes": [0, 1], "all_other_columns": {"bounds": [0, 1]}})
ROW = b"0.5,0.25,a\n"
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory by /proc")


def n_rows(path: Path, schema: TableSchema = TWO, **how: Any) -> int:
    return sum(X.shape[0] for X, _ in open_table(path, schema, **how).batches())


def peak_of(work: Callable[[], Any]) -> int:
    """Bytes of memory beyond those before."""
    forget_peak()
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before


def refusing(*refused: tuple[type[Exception], Callable[..., Any], Any]) -> Callable[[], None]:
    """Calls that each end in an error of their class: class, function, argument."""

    def work() -> None:
        for error, call, given in refused:
            with pytest.raises(error):
                call(given)

    return work


# Records and rows without end.


@linux
@pytest.mark.parametrize("where", ["header", "row", "quote", "packed quote", "libsvm"])
def test_a_record_without_end_takes_no_more_than_its_share(tmp_path: Path, where: str) -> None:
    path = tmp_path / "t.csv"
    if where == "header":
        path.write_bytes(b"x" * 60 * MIB)
    elif where == "row":
        path.write_bytes(b"x,z,y\n0.5," + b"1" * 60 * MIB)
    elif where == "quote":
        path.write_bytes(b"x,z,y\n" + ROW * 1000 + b'0.5,"0.25,a\n' + ROW * 6_000_000)
    elif where == "packed quote":
        path = tmp_path / "t.csv.gz"
        path.write_bytes(gzip.compress(b'x,z,y\n0.5,"0.25,a\n' + ROW * 6_000_000, 1))
    else:
        path = tmp_path / "t.svm"
        path.write_bytes(b"1 " + b"1:1 " * (15 * MIB))
    schema = MATRIX if where == "libsvm" else TWO
    if where == "libsvm":
        schema = TableSchema.from_dict({**schema.to_dict(), "n_features": 5})

    def refused() -> None:
        with pytest.raises(TableError) as error:
            n_rows(path, schema)
        expected = "row 1001" if where == "quote" else "row 1:"
        assert expected in str(error.value)

    assert peak_of(refused) < 45 * MIB


def test_longer_records_need_more_memory_and_get_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    schema = TableSchema.from_dict({**TWO.to_dict(), "extra_columns": "ignore"})
    path.write_bytes(b'x,z,y,note\n0.5,0.25,a,"' + b"\n" * 300_000 + b'"\n0.5,0.25,b,\n')
    with pytest.raises(TableError):
        n_rows(path, schema, max_memory=2**22)
    assert n_rows(path, schema) == 2


@linux
def test_a_row_of_many_features_is_decoded_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "a0,a\n" * 50_000)
    columns = {"x": {"categories": [f"a{i}" for i in range(2000)]}}
    schema = TableSchema.from_dict({"target": "y", "classes": ["a", "b"], "columns": columns})
    assert peak_of(lambda: n_rows(path, schema)) < 100 * MIB


def test_blank_lines_without_end_are_no_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\n" * 10**6 + b"x,z,y\n" + ROW)
    with pytest.raises(TableError):
        n_rows(path)
    path.write_bytes(b"\n" * 20 + b"x,z,y\n" + b"\n" * 10**5 + ROW)
    assert n_rows(path) == 1


# Where records end, by a slow reader of characters.


def slow_ends(text: bytes) -> list[int]:
    """Places behind the line ends that are outside quotes."""
    ends, inside, at_start, place = [], False, True, 0
    while place < len(text):
        mark = text[place : place + 1]
        place += 1
        if inside:
            if mark == b'"':
                if text[place : place + 1] == b'"':
                    place += 1
                else:
                    inside = False
        elif mark == b'"' and at_start:
            inside = True
        elif mark in (b"\n", b"\r"):
            ends.append(place)
        at_start = not inside and mark in (b",", b"\n", b"\r")
    return ends


def test_records_end_where_a_slow_reader_says() -> None:
    random = np.random.default_rng(1)
    alphabet = np.frombuffer(b'"",\nx\r', np.uint8)
    for _ in range(1500):
        text = random.choice(alphabet, size=random.integers(1, 30)).tobytes()
        records, at, found = RecordEnds('"', ","), 0, []
        while at < len(text):
            size = int(random.integers(1, 9))
            _, last = records.ends(text[at : at + size])
            if last:
                found.append(at + last)
            at += size
        ends = slow_ends(text)
        assert set(found) <= set(ends)
        whole = RecordEnds('"', ",")
        first, last = whole.ends(text)
        # A carriage return at the end may be half of a line end.
        known = ends[:-1] if ends and ends[-1] == len(text) and text.endswith(b"\r") else ends
        assert last == (known[-1] if known else 0)
        if known:
            assert first in (known[0], known[0] + 1)
        assert whole.end_inside() == (len(slow_ends(text + b"\n")) == len(slow_ends(text)))


# Declared sizes.


def npz(path: Path, header: dict[str, Any], content: bytes = b"", n_labels: int = 0) -> Path:
    """An archive whose X says anything."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        stream = io.BytesIO()
        np.lib.format.write_array_header_1_0(stream, header)
        archive.writestr("X.npy", stream.getvalue() + content)
        stream = io.BytesIO()
        np.save(stream, np.zeros(n_labels, int))
        archive.writestr("y.npy", stream.getvalue())
    return path


@linux
@pytest.mark.parametrize("shape", [(0, 10**9), (1, 10**9), (10**9, 10**9), (10**18, 0), (-1, 2)])
def test_declared_sizes_are_not_believed(tmp_path: Path, shape: tuple[int, int]) -> None:
    path = npz(tmp_path / "t.npz", {"descr": "|i1", "fortran_order": False, "shape": shape})

    started = time.process_time()
    refused = refusing((TableError, partial(n_rows, schema=MATRIX), path))
    assert peak_of(refused) < 20 * MIB
    assert time.process_time() - started < 5


@linux
def test_columns_first_need_not_fit_into_memory(tmp_path: Path) -> None:
    X = np.asfortranarray(np.arange(2_000_000.0).reshape(-1, 20) / 4e6)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "t.npz", X=X, y=np.zeros(len(X), int))
        table = open_table(tmp_path / "t.npz", MATRIX, max_memory=2**24)
        blocks: list[Any] = []

        def read(table: Any = table, blocks: list[Any] = blocks) -> None:
            blocks.extend(B[::1000].copy() for B, _ in table.batches())

        assert peak_of(read) < 14 * MIB
        step = next(len(B) for B, _ in table.batches())
        expected = np.concatenate([X[i : i + step : 1000] for i in range(0, len(X), step)])
        assert (np.concatenate(blocks) == expected.astype(np.float32)).all()


@linux
@pytest.mark.parametrize("n_characters", [2000, 10**6])
def test_labels_count_with_their_width(tmp_path: Path, n_characters: int) -> None:
    n = 10**7 // n_characters
    np.savez_compressed(tmp_path / "t.npz", X=np.zeros((n, 1)), y=np.zeros(n, f"U{n_characters}"))

    read = partial(n_rows, schema=replace(MATRIX, classes=("", "b")))
    assert peak_of(refusing((TableError, read, tmp_path / "t.npz"))) < 50 * MIB


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("code", [0x110000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_labels_of_no_characters_are_refused(tmp_path: Path, order: str, code: int) -> None:
    """NumPy keeps any four bytes; Python ends in a SystemError when it meets such a text."""
    labels = np.array([ord("a"), code], f"{order}u4").view(f"{order}U1")
    path = tmp_path / "t.npz"
    np.savez(path, X=np.zeros((2, 1)), y=labels)
    with pytest.raises(TableError, match="damaged"):
        n_rows(path, replace(MATRIX, classes=("a", "b")))
    labels.view(f"{order}u4")[1] = 0x10FFFF
    np.savez(path, X=np.zeros((2, 1)), y=labels)
    assert n_rows(path, replace(MATRIX, classes=("a", "\U0010ffff"))) == 2


# Packed bytes that unpack to very much more.


def packed(path: Path, kind: str) -> Path:
    """A table of a few kilobytes: 80 MiB of zeros, or one text of 64 MiB."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = pa.array(["a", "b" * 64 * MIB])
    if "text" in kind:
        path, n = path / f"t.{kind.split()[0]}", 2
        y = texts if path.suffix == ".parquet" else pa.DictionaryArray.from_arrays([0, 0], texts)
    else:
        path, n = path / f"t.{kind.split()[0]}", 4 * MIB
        y = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), ["a", "b"])
    table = pa.table({"x": np.zeros(n), "z": np.zeros(n), "y": y})
    if path.suffix == ".parquet":
        how = {"data_page_size": 2**30, "write_batch_size": 2**30}
        if "max_rows_per_page" in inspect.signature(parquet.ParquetWriter).parameters:
            how["max_rows_per_page"] = 2**30
        parquet.write_table(
            table, path, compression="zstd", use_dictionary=kind.endswith("words"), **how
        )
        return path
    path = path.with_stem("stream" if "stream" in kind else "t")
    return stored(table, path, "lz4" if "lz4" in kind else "zstd")


@pytest.mark.sampled(every=2)
@linux
@pytest.mark.parametrize(
    "kind",
    [
        *("arrow", "arrow lz4", "arrow stream", "arrow text", "arrow stream text", "parquet"),
        *("parquet text", "parquet text words"),
    ],
)
def test_packed_sizes_are_judged_before_they_are_unpacked(tmp_path: Path, kind: str) -> None:
    path = packed(tmp_path, kind)
    assert path.stat().st_size < MIB

    small = partial(n_rows, max_memory=2**24)
    assert peak_of(refusing((TableError, small, path))) < 20 * MIB


def test_packed_tables_that_fit_are_read(tmp_path: Path) -> None:
    for kind in ("arrow", "arrow lz4", "arrow stream", "parquet"):
        assert n_rows(packed(tmp_path, kind), max_memory=2**28) == 4 * MIB


def test_packed_columns_that_are_not_read_do_not_count(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    n = 4 * MIB
    table = pa.table(
        {
            "note": np.zeros(n),
            "x": pa.array(np.zeros(n, np.int8)),
            "none": pa.nulls(n),
            "y": pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int8)), ["a"]),
        }
    )
    stored(table, tmp_path / "t.arrow", "zstd")
    described = {**TWO.to_dict(), "columns": {"x": {"bounds": [0, 1]}}, "extra_columns": "ignore"}
    schema = TableSchema.from_dict(described)
    assert n_rows(tmp_path / "t.arrow", schema, max_memory=2**25) == n


def test_rows_of_no_bytes_at_all_are_refused(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"x": pa.nulls(1000)})
    stored(table, tmp_path / "t.arrow")
    schema = TableSchema.from_dict({"columns": {"x": {"bounds": [0, 1], "missing": 0}}})
    with pytest.raises(TableError):
        next(iter(open_table(tmp_path / "t.arrow", schema, labelled=False).batches()))


@linux
def test_text_of_many_columns_is_read_some_columns_at_a_time(tmp_path: Path) -> None:
    n, path = 20_000, tmp_path / "t.csv"
    cells = [f"0.{j % 7}" for j in range(n)]
    row = ",".join(cells)
    path.write_text(",".join(names(n)) + ",y\n" + f"{row},a\n{row},b\n" * 4)
    schema = TableSchema.from_dict({**MATRIX.to_dict(), "target": "y", "classes": ["a", "b"]})
    found: list[Any] = []
    table = open_table(path, schema, max_memory=2**26)
    assert peak_of(lambda: found.extend(table.batches())) < 150 * MIB
    X = np.concatenate([X for X, _ in found])
    assert (np.array(cells, np.float32) == X).all()
    assert [str(y) for _, labels in found for y in labels] == ["a", "b"] * 4
    path.write_text(path.read_text()[:-3] + "c\n")
    with pytest.raises(TableError):
        n_rows(path, schema)


# Many columns: the work of four times as many is about four times as much.


def seconds(work: Callable[[], Any]) -> float:
    """CPU time, the best of five: neighbours on a busy machine take some of its memory."""
    found = []
    for _ in range(5):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


def names(n: int) -> list[str]:
    return [f"c{i}" for i in range(n)]


def of_names(n: int) -> Callable[[], Any]:
    record = {"columns": {name: {"bounds": [0, 1]} for name in names(n)}, "target": "y"}
    schema = TableSchema.from_dict(record | {"classes": ["a", "b"]})
    return lambda: schema.of_names([*names(n), "y"], labelled=True, file="t")


def same_key(n: int) -> Callable[[], Any]:
    text = ",".join(f'"c{i}": 1' for i in [*range(n), n - 1])

    def load() -> None:
        from dpsvm_fast.certificates import record as strict_json

        with pytest.raises(ValueError, match="repeats"):
            strict_json.loads(f"{{{text}}}")

    return load


def same_name(n: int) -> Callable[[], Any]:
    from dpsvm_fast.data.schema import repeated

    twice = [f"c{i // 2}" for i in range(n)]
    return lambda: repeated(twice)


def same_category(n: int) -> Callable[[], Any]:
    def load() -> None:
        with pytest.raises(SchemaError):
            TableSchema.from_dict({"columns": {"c": {"categories": [*names(n), f"c{n - 1}"]}}})

    return load


def record(n: int) -> Callable[[], Any]:
    columns = [{"name": name, "bounds": [0, 1]} for name in names(n)]
    return lambda: TableSchema.from_dict({"columns": columns}).n_features


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("made", [of_names, same_key, same_name, same_category, record])
def test_the_work_grows_with_the_columns_and_not_with_their_square(made: Any) -> None:
    small, large = seconds(made(4_000)), seconds(made(16_000))
    # A square would be 16 times; memory that is further away may cost some.
    assert large < 9 * small + 0.05
    assert large < 5


# Documents.


@pytest.mark.parametrize("kind", ["pipe", "zeros", "sparse"])
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name")
def test_what_is_no_file_of_text_is_refused_at_once(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "zeros":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(2**31)

    def refused() -> None:
        with pytest.raises(ModelFormatError):
            load_model(path)
        with pytest.raises(SchemaError):
            TableSchema.load(path)
        if kind != "sparse":
            with pytest.raises(InvalidParameterError):
                save_model(PrivateStandardScaler(bounds=(0, 1)).fit([[0.5]]), path, key=path)
        assert main(["verify", str(path)]) == 2
        if kind != "sparse":
            with pytest.raises(InvalidParameterError):
                model_document(path)

    assert peak_of(refused) < 50 * MIB
    assert "cannot be read" in capsys.readouterr().err


@linux
@pytest.mark.parametrize("part", ['{"a":1},', "{},", "[],", '"\\u20ac",', "1,"])
def test_many_values_are_refused_before_they_are_made(tmp_path: Path, part: str) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"columns":[' + part * (20 * MIB // len(part)) + "1]}")

    def refused() -> None:
        with pytest.raises(ModelFormatError):
            load_model(path)
        with pytest.raises(SchemaError):
            TableSchema.load(path)
        assert main(["verify", str(path)]) == 2

    assert peak_of(refused) < 200 * MIB


# Whatever hides the key below from who looks for it.
HIDING = [
    *("", "x = 1.1\n", "[1.1]\n", "x = 'a' # '\n", "'\"' = 1\n", "'#'.", '"\\"".', "\"\".'='."),
    *('"""\n""", {', '"""\\""""", {', "'''\n''''', {", "'\\', {", '"\\\\", {', '"""x"""", {'),
]


@pytest.mark.parametrize("before", HIDING)
def test_a_key_of_many_parts_is_refused_at_once(tmp_path: Path, before: str) -> None:
    """Python's parser takes minutes for such a key; a file of this size has 8 parts in each."""
    path = tmp_path / "s.toml"
    start = f"x = [{before}" if before.endswith("{") else before
    path.write_text(start + "b . " * 300_000 + "b = 1")
    started = time.process_time()
    with pytest.raises(SchemaError, match="more than 8 parts"):
        TableSchema.load(path)
    assert time.process_time() - started < 5
    parts = "[columns.'a.b.c.d.e.f.g.h.i.j.k']\nbounds = [0.5, 1.5] # a.b.c.d.e.f.g.h.i.j.k\n"
    path.write_text(parts)
    assert TableSchema.load(path).n_features == 1


@linux
@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "n"),
    [("[{:x}.a]\n", 74_000), ("[{:x}.a.b.c.d.e.f.g]\n", 18_000), ("{:x}.a.b.c=1\n", 149_000)],
)
def test_as_many_keys_of_a_toml_file_as_are_taken_fit_into_memory(
    tmp_path: Path, part: str, n: int
) -> None:
    path = tmp_path / "s.toml"
    text = "".join(part.format(i) for i in range(n)) + "z = ["
    path.write_text(text + "{}," * ((4 * MIB - len(text)) // 3 - 1) + "]")
    started = time.process_time()
    assert peak_of(refusing((SchemaError, TableSchema.load, path))) < 256 * MIB
    assert time.process_time() - started < 10
    path.write_text(text.replace("z = [", "") * 3)
    assert peak_of(refusing((SchemaError, TableSchema.load, path))) < 20 * MIB


@linux
@pytest.mark.slow
@pytest.mark.parametrize("read", [load_model, model_document, lambda path: main(["verify", path])])
@pytest.mark.parametrize("start", ["", '"format": "dpsvm_fast.model",'], ids=["any file", "model"])
@pytest.mark.parametrize(("n", "filling"), [(664_000, 0), (330_000, 25 * MIB), (1, 50 * MIB)])
def test_as_many_values_as_are_taken_fit_into_memory(
    tmp_path: Path, read: Any, start: str, n: int, filling: int
) -> None:
    path = tmp_path / "s.json"
    # Texts take more bytes than their escapes say.
    pairs = (f'"{i:05d}\\u20ac":"{i:06d}\\ud83d\\ude00"' for i in range(n))
    text = "{" + start + ",".join(pairs) + ',"x":"' + "x" * filling + '"}'
    path.write_text(text)
    needed = 5 * len(text) + 220 * sum(map(text.count, ",[{"))
    assert 0.97 * 256 * MIB < needed < 256 * MIB

    def refused() -> None:
        with suppress(ModelFormatError, InvalidParameterError):
            assert read(str(path)) != 0

    assert peak_of(refused) < 256 * MIB


LONG = "q" * 10_000


@pytest.mark.parametrize(
    "record",
    [
        {"columns": {LONG + " ": {"bounds": [0, 1]}}},
        {"columns": {LONG: {"bounds": [1, 0]}}},
        {"columns": {LONG: {}}},
        {"columns": {"a": {LONG: 1}}},
        {"columns": {"a": {"bounds": [0, 10**400], "missing": 10**400}}},
        {"columns": {"a": {"categories": [LONG, LONG]}}},
        {"columns": {"a": {"categories": [10**5000, 1]}}},
        {"columns": {f"{i}": {} for i in range(10_000)}},
        {LONG: 1},
        {"target": [LONG]},
        {"n_features": 10**5000},
        {"classes": [LONG, "a"], "columns": {"a": {"bounds": [0, 1]}}},
        {"classes": [10**5000, 1], "columns": {"a": {"bounds": [0, 1]}}},
        {"csv": {"delimiter": LONG}, "columns": {"a": {"bounds": [0, 1]}}},
    ],
)
def test_messages_quote_little_of_a_file(record: dict[str, Any]) -> None:
    with pytest.raises(SchemaError) as error:
        TableSchema.from_dict(record)
    assert len(str(error.value)) < 3000
    assert "q" * 200 not in str(error.value)


def test_squares_of_huge_scales_are_finite() -> None:
    scaler = PrivateStandardScaler(bounds=(0, 1e308)).fit(np.ones((5, 2)))
    assert np.isfinite(scaler.var_).all()


def test_a_pure_budget_that_no_float_suits_is_refused_unspent() -> None:
    ledger = PrivacyLedger(1.0, 0.0)
    rows = np.linspace(0.0, 1.0, 60).reshape(20, 3)
    for epsilon, is_taken in ((1e-300, False), (1e-99, True)):
        scaler = PrivateStandardScaler(epsilon, 0.0, bounds=(0, 1), ledger=ledger)
        if is_taken:
            assert np.isfinite(scaler.fit(rows).scale_).all()
        else:
            with pytest.raises(InvalidParameterError):
                scaler.fit(rows)
            assert ledger.history == ()


@linux
@pytest.mark.parametrize("letters", ["x", "\u00e9", "x\U0001f600"])
def test_a_long_text_that_is_no_model_costs_a_few_times_its_size(
    tmp_path: Path, letters: str
) -> None:
    path = tmp_path / "model.json"
    path.write_text('{"a": "' + letters[:1] * 20 * MIB + letters[1:] + '"}', encoding="utf-8")
    size = path.stat().st_size

    assert peak_of(refusing((ModelFormatError, load_model, path))) < 4 * size + 10 * MIB


@linux
@pytest.mark.slow
def test_a_large_model_takes_at_most_five_times_its_file(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    rows = sparse.random(60, 400_000, density=1e-5, format="csr", random_state=0, dtype=np.float32)
    model = OutputPerturbationSVC(2.0, classes=range(10))
    save_model(model.fit(rows, np.arange(60) % 10), path)
    most = 5 * path.stat().st_size
    assert path.stat().st_size > 40 * MIB
    for read in (load_model, model_document, lambda path: main(["verify", str(path)])):
        assert peak_of(partial(read, path)) < most


# Whatever bytes a file has: it is read or refused with a typed error, within memory and time.


N_FILES, N_BY_NIGHT = 220, 10_000


def test_the_files_are_good_before_they_are_changed(tmp_path: Path) -> None:
    for seed in seeds():
        path = tmp_path / seed.name
        path.write_bytes(seed.content)
        seed.read(path)


def test_files_that_are_kept_are_read_or_refused(tmp_path: Path) -> None:
    """Each broke a reader once, or stands for a kind of fault."""
    about, found, refused = (CORPUS / "README.md").read_text(), [], 0
    sizes = {path.name: path.stat().st_size for path in CORPUS.iterdir()}
    assert [name for name in sizes if f"`{name}`" not in about] == ["README.md"]
    assert sum(sizes.values()) < 100_000
    for seed in corpus():
        path = tmp_path / seed.name
        path.write_bytes(seed.content)
        started = time.process_time()
        fault = fault_of(seed, path)
        if fault is not None or time.process_time() - started > 2:
            found.append(f"{seed.name}: {fault}")
        with suppress(*TYPED):
            seed.read(path)
            refused -= 1
        refused += 1
    assert found == []
    # Negative control: most of these readings end in an error.
    assert refused > 100


def test_changed_files_are_read_or_refused(tmp_path: Path) -> None:
    assert faults(tmp_path, N_FILES, 1) == []


@pytest.mark.nightly
def test_many_changed_files_are_read_or_refused(tmp_path: Path) -> None:
    entropy = secrets.randbits(64)
    found = faults(tmp_path, N_BY_NIGHT, entropy, stored=True)
    assert found == [], f"entropy {entropy}. {HOW_TO_KEEP}"
