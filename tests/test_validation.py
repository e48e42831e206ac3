"""Every check: what passes, what is a TypeError, what is a value error, and what the text says."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsvm_fast import PublicScaler
from dpsvm_fast.data import Partitions, TableSchema, open_table
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.persist import load_model, save_certificate, to_onnx
from dpsvm_fast.plotting import NoisePlanDisplay
from dpsvm_fast.validation import (
    ADJACENCIES,
    check_adjacency,
    check_delta,
    check_epsilon,
    check_fraction,
    check_integer,
    check_non_negative,
    check_option,
    check_positive,
)

REAL_CHECKS: list[Callable[[object], float]] = [
    partial(check_epsilon, "epsilon"),
    partial(check_delta, "delta"),
    lambda value: check_positive("C", value),
    lambda value: check_non_negative("C", value),
    lambda value: check_fraction("C", value),
]


@pytest.mark.parametrize("check", REAL_CHECKS)
@pytest.mark.parametrize("value", [0.25, np.float64(0.25), np.float32(0.25), np.float16(0.25)])
def test_real_numbers_become_floats(check: Callable[[object], float], value: object) -> None:
    assert type(check(value)) is float
    assert check(value) == 0.25


@pytest.mark.parametrize("check", REAL_CHECKS)
@pytest.mark.parametrize(
    "value",
    [
        True,
        np.True_,
        "0.5",
        None,
        Decimal("0.5"),
        Fraction(1, 2),
        np.longdouble(0.5),
        0.5j,
        [0.5],
        np.array(0.5),
        np.array([0.5]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_types_are_refused(check: Callable[[object], float], value: object) -> None:
    with pytest.raises(TypeError, match=r"(epsilon|delta|C): got .*, expected a finite number"):
        check(value)


@pytest.mark.parametrize("check", REAL_CHECKS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1e-300, 10**400, -1])
def test_other_values_are_refused(check: Callable[[object], float], value: float) -> None:
    with pytest.raises(InvalidParameterError, match=r"(epsilon|delta|C): got .*, expected a"):
        check(value)


@pytest.mark.parametrize(
    ("check", "inside", "outside"),
    [
        (partial(check_epsilon, "epsilon"), [1e-300, 1, 1e4], [0.0, -0.0, 1e4 * (1 + 1e-15)]),
        (partial(check_delta, "delta"), [0, 0.0, 1e-300, 1 - 1e-16], [1, 1.0]),
        (REAL_CHECKS[2], [5e-324, 1e308], [0.0]),
        (REAL_CHECKS[3], [0.0, 1e308], []),
        (REAL_CHECKS[4], [5e-324, 1], [0.0, 1 + 1e-15]),
    ],
)
def test_ends_of_the_ranges(
    check: Callable[[object], float], inside: list[float], outside: list[float]
) -> None:
    for value in inside:
        assert check(value) == value
    for value in outside:
        with pytest.raises(InvalidParameterError):
            check(value)


def test_messages_show_plain_numbers() -> None:
    with pytest.raises(InvalidParameterError, match=r"^epsilon: got -1\.0, expected .* > 0 and <="):
        check_epsilon("epsilon", np.float64(-1.0))
    with pytest.raises(TypeError, match=r"^epsilon: got '0\.5' of type str, expected"):
        check_epsilon("epsilon", "0.5")
    with pytest.raises(TypeError, match=r"^epsilon: got list, expected"):
        check_epsilon("epsilon", [1.0, 2.0])


def test_integers() -> None:
    assert check_integer("n", np.int8(3), 1) == 3
    assert type(check_integer("n", np.uint64(3), 1, 3)) is int
    for wrong in (True, np.False_, 3.0, "3", None, np.array(3)):
        with pytest.raises(TypeError, match=r"^n: got .*expected an integer"):
            check_integer("n", wrong, 1, 3)
    for value in (0, 4, -(10**30)):
        with pytest.raises(InvalidParameterError, match=r"^n: got -?\d+, expected an integer in"):
            check_integer("n", value, 1, 3)


def test_options_and_adjacency() -> None:
    for name in ADJACENCIES:
        assert check_adjacency("adjacency", name) == name
    assert type(check_adjacency("adjacency", np.str_("add_remove"))) is str
    with pytest.raises(InvalidParameterError, match="got 'add-remove', expected one of 'add_rem"):
        check_adjacency("adjacency", "add-remove")
    with pytest.raises(TypeError, match=r"^adjacency: got None"):
        check_adjacency("adjacency", None)
    with pytest.raises(InvalidParameterError, match=r"^noise: got 'x', expected 'gaussian'"):
        check_option("noise", "x", ("gaussian",))


SCHEMA = TableSchema.from_dict({"columns": {"a": {"bounds": [0, 1]}}})
PATHS: dict[str, Callable[[Any], object]] = {
    "schema": lambda value: TableSchema.load(value),
    "template": lambda value: TableSchema.template(value),
    "table": lambda value: open_table(value, SCHEMA),
    "model": lambda value: load_model(value),
    "certificate": lambda value: save_certificate("model.json", value),
    "of a model": lambda value: save_certificate(value, "certificate.json"),
    "graph": lambda value: to_onnx(PublicScaler((0, 1)).fit([[0.5]]), value),
}


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize(
    "value", [5, 1.5, b"x", [], object()], ids=lambda value: type(value).__name__
)
def test_what_is_no_path_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=r"^(path|model): got .*, expected the path of a file$"):
        PATHS[name](value)


@pytest.mark.parametrize("name", PATHS)
def test_a_path_has_no_null_character(name: str) -> None:
    with pytest.raises(InvalidParameterError, match="null character") as caught:
        PATHS[name]("a\0b")
    assert caught.value.parameter in ("path", "model")


@pytest.mark.parametrize(
    "value", [None, 5, "loaders", object()], ids=lambda value: type(value).__name__
)
def test_what_has_no_items_is_refused_by_name(value: object) -> None:
    calls: dict[str, Callable[[Any], object]] = {
        "loaders": lambda v: Partitions.from_loaders(v, n_features=1),
        "public": lambda v: TableSchema.from_frame({"a": [1]}, public=v),
        "plans": lambda v: NoisePlanDisplay.from_plans(v),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=f"^{name}: got"):
            call(value)


def test_columns_have_names() -> None:
    for name in ("target", "person"):
        for value in (5, ["a"], np.array([1.0, 2.0])):
            with pytest.raises(TypeError, match=f"^{name}: got"):
                TableSchema.from_frame({"a": [1]}, **{name: value})


def test_files_of_another_kind_are_named(tmp_path: Path) -> None:
    for name, read in (("paths", Partitions.from_parquet), ("source", Partitions.from_arrow)):
        file = tmp_path / "table"
        file.write_bytes(b"neither of them, but long enough to look")
        with pytest.raises(InvalidParameterError, match="'table'") as caught:
            read(str(file), label=None)
        assert caught.value.parameter == name
