"""Schemas: what is accepted, what errors say, and that nothing else ever comes out of them."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsvm_fast.data import TableSchema
from dpsvm_fast.exceptions import InvalidParameterError, SchemaError

FULL = """
target = "income"
classes = ["<=50K", ">50K"]
[csv]
delimiter = ";"
decimal = ","
missing_values = ["?", ""]
[columns]
age = { bounds = [0, 100], missing = 35 }
workclass = { categories = ["Private", "Gov", 3], missing = "none", unknown = "none" }
smoker = { boolean = true, missing = false }
"home address" = { ignore = true }
"""
AGE = {"age": {"bounds": [0, 100]}}

needs_toml = pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML is read from Python 3.11")


@needs_toml
def test_a_file_says_what_features_there_are(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(FULL, encoding="utf-8")
    schema = TableSchema.load(path)
    assert schema.target == "income"
    assert schema.classes == ("<=50K", ">50K")
    names = ("age", "workclass=Private", "workclass=Gov", "workclass=3", "smoker")
    assert schema.feature_names == names
    assert schema.n_features == 5
    low, high = schema.bounds
    assert low.tolist() == [0.0] * 5
    assert high.tolist() == [100.0, 1.0, 1.0, 1.0, 1.0]
    assert low.dtype == high.dtype == np.float64
    record = json.loads(json.dumps(schema.to_dict()))
    assert TableSchema.from_dict(record) == schema
    (tmp_path / "schema.json").write_text(json.dumps(record), encoding="utf-8")
    assert TableSchema.load(tmp_path / "schema.json") == schema
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_features_without_names_are_counted() -> None:
    record = {"n_features": 3, "all_other_columns": {"bounds": [-1, 1]}}
    schema = TableSchema.from_dict(record)
    assert schema.feature_names == ("x0", "x1", "x2")
    assert schema.bounds[0].tolist() == [-1.0] * 3
    wide = TableSchema.from_dict({**record, "n_features": 10**6})
    assert wide.n_features == 10**6
    assert wide.bounds[1].shape == (10**6,)
    named = TableSchema.from_dict({**record, "columns": {"x1": {"bounds": [5, 6]}}})
    assert named.bounds[1].tolist() == [1.0, 6.0, 1.0]
    with pytest.raises(SchemaError, match=r"got 'x3', expected names from 'x0' to 'x2'"):
        _ = TableSchema.from_dict({**record, "columns": {"x3": {"bounds": [5, 6]}}}).features


def test_all_other_columns_wait_for_a_file() -> None:
    schema = TableSchema.from_dict({"all_other_columns": {"bounds": [0, 1]}})
    with pytest.raises(SchemaError, match=r"^the schema: all_other_columns: columns are known"):
        _ = schema.n_features
    found = schema.of_names(["b", "a"], labelled=False, file="f.csv")
    assert found.feature_names == ("b", "a")
    assert found.of_names(["a", "b"], labelled=False, file="f.csv").feature_names == ("b", "a")


def test_every_column_without_bounds_is_listed_at_once() -> None:
    record = {"columns": {"age": {}, "b": {"bounds": [0, 1]}, "zip code": {"bounds": []}}}
    with pytest.raises(SchemaError) as caught:
        TableSchema.from_dict(record, origin="census.toml")
    sentence, *lines = str(caught.value).split("\n")
    assert sentence == (
        "census.toml: no bounds for 2 columns: write public ones (or categories = [...], or "
        "ignore = true) in [columns]:"
    )
    assert lines == [
        "  age = { bounds = [LOW, HIGH] }",
        '  "zip code" = { bounds = [LOW, HIGH] }',
    ]
    others = {**record, "all_other_columns": {"bounds": [2, 3]}, "n_features": 3}
    found = TableSchema.from_dict({**others, "columns": {"x1": {}}})
    assert found.bounds[0].tolist() == [2.0, 2.0, 2.0]


# What a schema cannot say, and the key that the error names.
WRONG: list[tuple[Any, str]] = [
    ([1], ""),
    ({"targets": "y"}, "targets"),
    ({}, "columns"),
    ({"columns": 3}, "columns"),
    ({"columns": {"age": [0, 1]}}, "columns.age"),
    ({"columns": {"a b": {"bound": [0, 1]}}}, 'columns."a b".bound'),
    ({"columns": {"a": {"bounds": [0, 1], "categories": ["x"]}}}, "columns.a"),
    ({"columns": {"a": {"bounds": [1, 0]}}}, "columns.a.bounds"),
    ({"columns": {"a": {"bounds": [1, 1]}}}, "columns.a.bounds"),
    ({"columns": {"a": {"bounds": [0, float("nan")]}}}, "columns.a.bounds"),
    ({"columns": {"a": {"bounds": [0, 10**400]}}}, "columns.a.bounds"),
    ({"columns": {"a": {"bounds": [False, True]}}}, "columns.a.bounds"),
    ({"columns": {"a": {"bounds": "0-1"}}}, "columns.a.bounds"),
    ({"columns": {"a": {"categories": ["x", " x"]}}}, "columns.a.categories"),
    ({"columns": {"a": {"categories": [0.5]}}}, "columns.a.categories"),
    ({"columns": {"a": {"ignore": "yes"}}}, "columns.a.ignore"),
    ({"columns": {"a": {"bounds": [0, 1], "missing": 2}}}, "columns.a.missing"),
    ({"columns": {"a": {"categories": ["x"], "missing": "y"}}}, "columns.a.missing"),
    ({"columns": {"a": {"ignore": True, "missing": 1}}}, "columns.a.missing"),
    ({"columns": {"a": {"bounds": [0, 1], "unknown": "none"}}}, "columns.a.unknown"),
    ({"columns": {" a": {"bounds": [0, 1]}}}, "columns"),
    ({"target": True, "columns": AGE}, "target"),
    ({"target": "age", "columns": AGE}, "columns.age"),
    ({"classes": ["a"], "columns": AGE}, "classes"),
    ({"classes": ["a", 1], "columns": AGE}, "classes"),
    ({"classes": [True, False], "columns": AGE}, "classes"),
    ({"classes": ["a", "a"], "columns": AGE}, "classes"),
    ({"n_features": 0, "columns": AGE}, "n_features"),
    ({"extra_columns": "drop", "columns": AGE}, "extra_columns"),
    ({"extra_columns": "ignore", "all_other_columns": {"bounds": [0, 1]}}, "extra_columns"),
    ({"all_other_columns": {"categories": ["a"]}}, "all_other_columns"),
    ({"zero_based": 1, "columns": AGE}, "zero_based"),
    ({"image": [8], "columns": AGE}, "image"),
    ({"image": [8, 0], "columns": AGE}, "image"),
    ({"columns": {"a": {"bounds": [0, 1], "knots": 0}}}, "columns.a.knots"),
    ({"columns": {"a": {"boolean": True, "knots": 3}}}, "columns.a.knots"),
    ({"csv": ";", "columns": AGE}, "csv"),
    ({"csv": {"delimiter": "ab"}, "columns": AGE}, "csv.delimiter"),
    ({"csv": {"delimiter": '"'}, "columns": AGE}, "csv"),
    ({"csv": {"decimal": ","}, "columns": AGE}, "csv.decimal"),
    ({"csv": {"encoding": "klingon"}, "columns": AGE}, "csv.encoding"),
    ({"csv": {"encoding": "hex"}, "columns": AGE}, "csv.encoding"),
    ({"csv": {"header": ["a", "a"]}, "columns": AGE}, "csv.header"),
    ({"csv": {"missing_values": "NA"}, "columns": AGE}, "csv.missing_values"),
]


@pytest.mark.parametrize(("record", "key"), WRONG, ids=str)
def test_an_error_names_the_key(record: Any, key: str) -> None:
    with pytest.raises(SchemaError) as caught:
        TableSchema.from_dict(record, origin="s.toml")
    assert str(caught.value).startswith(f"s.toml: {key}: " if key else "s.toml: ")
    assert isinstance(caught.value, InvalidParameterError)
    # What the user passed; the message tells the file, and the key in it.
    assert caught.value.parameter == "schema"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("s.yaml", b""), ("s.json", b"{"), ("s.json", b"[1]"), ("s.json", b"[" * 100_000)),
        *(("s.json", b'{"target": "a", "target": "b"}'), ("s.json", b'{"n_features": NaN}')),
        ("s.json", b'\xff{"a": 1}'),
        *(
            pytest.param("s.toml", b, marks=needs_toml)
            for b in (b"target = ", b"a = 1\na = 2", b"")
        ),
    ],
)
def test_a_file_that_is_no_schema(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SchemaError, match=rf"^{name}: "):
        TableSchema.load(tmp_path / name)


def test_a_byte_order_mark_is_no_part_of_a_schema(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"columns": AGE}).encode())
    assert TableSchema.load(path).feature_names == ("age",)


NAMES = st.sampled_from(["age", "x0", "x1", "a b", "é", "none", "label"])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([10**400, 0.5, -1e308, float("inf"), float("nan"), 2**63]),
    NAMES,
    st.sampled_from([",", ";", "utf-8", "refuse", "ignore", "", " "]),
)
ANY = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=4,
)
NUMBERS = st.fixed_dictionaries(
    {"bounds": st.tuples(st.integers(-3, 0), st.integers(1, 3)).map(list)},
    optional={"missing": st.integers(0, 1)},
)
COLUMNS = st.one_of(
    NUMBERS,
    st.fixed_dictionaries(
        {"categories": st.lists(st.one_of(NAMES, st.integers()), min_size=1, unique_by=str)},
        optional={"missing": st.just("none"), "unknown": st.sampled_from(["refuse", "none"])},
    ),
    st.fixed_dictionaries({"boolean": st.just(True)}, optional={"missing": st.booleans()}),
    st.just({"ignore": True}),
)
GOOD = {
    "target": st.one_of(st.integers(-3, 3), st.just("the label")),
    "classes": st.one_of(
        st.lists(NAMES, min_size=2, unique=True),
        st.lists(st.integers(-(2**63) + 1, 2**63 - 1), min_size=2, unique=True),
    ),
    "n_features": st.integers(2, 9),
    "zero_based": st.booleans(),
    "image": st.lists(st.integers(1, 9), min_size=2, max_size=3),
    "extra_columns": st.just("refuse"),
    "csv": st.fixed_dictionaries(
        {"delimiter": st.sampled_from([";", "\t", "|"])},
        optional={
            "decimal": st.sampled_from([".", ","]),
            "quote": st.sampled_from(["", "'"]),
            "encoding": st.just("latin-1"),
            "header": st.one_of(st.booleans(), st.lists(NAMES, min_size=1, unique=True)),
            "missing_values": st.lists(NAMES),
        },
    ),
    "columns": st.dictionaries(NAMES, COLUMNS, min_size=1, max_size=4),
    "all_other_columns": NUMBERS,
}


@st.composite
def near_schemas(draw: st.DrawFn) -> dict[str, Any]:
    """What is a schema but for a few places."""
    record = draw(st.fixed_dictionaries({}, optional=GOOD))
    for _ in range(draw(st.integers(0, 2))):
        place = record
        key = draw(st.sampled_from([*GOOD, "extra"]))
        while draw(st.booleans()) and isinstance(place.get(key), dict) and place[key]:
            place = place[key]
            key = draw(st.sampled_from([*place, "extra"]))
        place[key] = draw(ANY)
    return record


@given(near_schemas())
def test_any_tree_is_a_schema_or_an_error(record: Any) -> None:
    refusal = ""
    try:
        schema = TableSchema.from_dict(record)
    except SchemaError as error:
        refusal = str(error)
    if refusal:
        assert refusal.startswith("the schema: ")
        return
    stored = json.loads(json.dumps(schema.to_dict(), allow_nan=False))
    assert TableSchema.from_dict(stored) == schema
    try:
        low, high = schema.bounds
    except SchemaError:
        return
    assert len(low) == len(high) == schema.n_features == len(schema.feature_names)
    assert (low < high).all()


@given(st.binary(max_size=60), st.sampled_from([".toml", ".json"]))
def test_any_bytes_are_a_schema_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, suffix: str
) -> None:
    if suffix == ".toml" and sys.version_info < (3, 11):
        suffix = ".json"
    path = tmp_path_factory.mktemp("schema") / f"s{suffix}"
    path.write_bytes(content)
    with pytest.raises(SchemaError):
        TableSchema.load(path)


def test_the_order_of_features_survives_whoever_sorts_keys() -> None:
    schema = TableSchema.from_dict({"columns": {"b": {"bounds": [0, 1]}, "a": {"bounds": [0, 2]}}})
    stored = json.loads(json.dumps(schema.to_dict(), sort_keys=True))
    assert TableSchema.from_dict(stored).feature_names == ("b", "a")
    for wrong in ([1], [{"bounds": [0, 1]}], [{"name": "a", "bounds": [0, 1]}] * 2):
        with pytest.raises(
            SchemaError, match=r"^the schema: columns\[[01]\]: got .* a table with a name"
        ):
            TableSchema.from_dict({"columns": wrong})


def test_billions_of_features_are_counted_and_not_made() -> None:
    record = {"n_features": 2**31 - 1, "all_other_columns": {"bounds": [0, 2]}}
    named = {"x7": {"categories": ["a", "b", "c"]}, "x2147483646": {"bounds": [0, 1]}}
    assert TableSchema.from_dict({**record, "columns": named}).n_features == 2**31 + 1
    for name in ("x2147483647", "x-1", "x07", "y1", "x", "x\u0663", "x" + "9" * 5000):
        wrong = TableSchema.from_dict({**record, "columns": {name: {"bounds": [0, 1]}}})
        with pytest.raises(SchemaError, match="expected names from 'x0' to 'x2147483646'"):
            _ = wrong.n_features


def test_a_logarithmic_column_has_bounds() -> None:
    declared = {"columns": {"a": {"bounds": [0, 9], "log": True}, "b": {"bounds": [0, 1]}}}
    schema = TableSchema.from_dict(declared)
    assert [column.log for column in schema.features] == [True, False]
    assert TableSchema.from_dict(schema.to_dict()) == schema
    for wrong in ({"categories": ["x"], "log": True}, {"bounds": [0, 1], "log": 1}):
        with pytest.raises(SchemaError, match=r"a\.log"):
            TableSchema.from_dict({"columns": {"a": wrong}})
