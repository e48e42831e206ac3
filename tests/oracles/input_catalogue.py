"""The catalogue of bad and odd inputs: number, what comes, what happens.

Every test that stands for an item is marked ``covers``, every case in `odd_rows` and every bad
parameter in `odd_parameters` names its item; `tests/estimators/test_input_catalogue.py` asserts
that each item is asked of everyone it applies to. "Refused" means: an error of a known type that
names the argument and quotes no data, nothing spent, nothing fitted. "Noisy" means: finite numbers,
and others in a second fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from oracles.subjects import CLASSIFIERS, MAIN, PRIVATE, SUBJECTS, known

Function = TypeVar("Function", bound=Callable[..., Any])
NORMED = [name for name in MAIN if known(name, {"data_norm": 1.0})]
SEEDED = [name for name in MAIN if known(name, {"random_state": 1})]
THREADED = [name for name in MAIN if known(name, {"n_threads": 1})]


@dataclass(frozen=True)
class Item:
    """One kind of input."""

    what: str
    result: str
    subjects: Sequence[str] = tuple(MAIN)


REFUSED, NOISY = "refused", "noisy"
LABELS = CLASSIFIERS


ITEMS: dict[int, Item] = {
    1: Item("NaN among the rows", REFUSED),
    2: Item("plus infinity among the rows", REFUSED),
    3: Item("minus infinity among the rows", REFUSED),
    4: Item("NaN or infinite labels", REFUSED, LABELS),
    5: Item("subnormal features", NOISY),
    6: Item("features of 1e308: the norm overflows", NOISY),
    7: Item("features of 1e200: the square overflows", NOISY),
    8: Item("1e-300 and 1e300 together", NOISY),
    9: Item("negative zeros", NOISY),
    10: Item("rows of zeros", NOISY),
    11: Item("nothing but zeros", NOISY),
    12: Item("a constant feature", NOISY),
    13: Item("no rows", REFUSED),
    14: Item("one row", NOISY),
    15: Item("two rows", NOISY),
    16: Item("no features", REFUSED),
    17: Item("one feature", NOISY),
    18: Item("100 000 features of 12 rows", "noisy, or refused where a matrix would be released"),
    19: Item("rows of one class only", NOISY, LABELS),
    20: Item("a class with one row", NOISY, LABELS),
    21: Item("a class that does not occur", NOISY, LABELS),
    22: Item("unknown labels in score", "accuracy 0", LABELS),
    23: Item("labels {0, 1}, {-1, 1}, {1, 2}, booleans; unknown ones", "noisy; refused", LABELS),
    24: Item("whole floats; fractions", "noisy; refused", LABELS),
    25: Item("strings, among them the empty one and Greek", "noisy; refused if unknown", LABELS),
    26: Item("labels of several kinds", REFUSED, LABELS),
    27: Item("None among the labels", REFUSED, LABELS),
    28: Item("integer labels beyond 2**53", NOISY, LABELS),
    29: Item("the largest unsigned label", NOISY, LABELS),
    30: Item("a categorical column of labels", NOISY, LABELS),
    31: Item("labels of shape (n, 1), (n, 2), ()", "flattened; refused", LABELS),
    32: Item("more rows than labels; no labels", REFUSED, LABELS),
    33: Item("sample_weight", "refused where they are no weights, or no argument"),
    34: Item("half precision", "noisy; refused if infinite"),
    35: Item("single precision, norms at the edge of its range", NOISY),
    36: Item("8-bit integers, whose products overflow", NOISY),
    37: Item("64-bit integers beyond 2**53", NOISY),
    38: Item("booleans as features", NOISY),
    39: Item("complex numbers", REFUSED),
    40: Item("numbers as objects", NOISY),
    41: Item("text", REFUSED),
    42: Item("dates, durations, records", REFUSED),
    43: Item("long doubles", NOISY),
    44: Item("Fortran order", "the same model"),
    45: Item("negative strides", "the same model"),
    46: Item("slices", "the same model"),
    47: Item("read-only rows", NOISY),
    48: Item("swapped bytes", "the same model"),
    49: Item("memory maps", "the same model"),
    50: Item("a scalar, one and three dimensions, None", REFUSED),
    51: Item("masked arrays", REFUSED),
    52: Item("np.matrix", REFUSED),
    53: Item("lists; ragged lists", "noisy; refused"),
    54: Item("frames: missing values, dtypes, repeated names, another order", "noisy; refused"),
    55: Item("frames of other libraries, with and without nulls", "the same model; refused"),
    56: Item("tables of other libraries", "the same model"),
    57: Item("CSR with unsorted indices", "the same model"),
    58: Item("CSR with duplicates", "summed before anything else; refused if infinite"),
    59: Item("CSR with stored zeros, long or broken indices", "the same model; refused"),
    60: Item("CSC, COO, BSR, LIL, empty rows", "the same model"),
    61: Item("NaN in sparse rows", REFUSED),
    62: Item("arrays that cannot be read, or lie about themselves", REFUSED),
    63: Item("rows changed by another thread", "outside the guarantee; an error or finite numbers"),
    64: Item("epsilon of any kind", "refused, or noise as large as it asks for", PRIVATE),
    65: Item("delta of any kind", "refused, or noisy", PRIVATE),
    66: Item("regularisation of any kind", REFUSED, ["output", "objective", "gradient"]),
    67: Item("clip norm of any kind", REFUSED, ["gradient"]),
    68: Item("sampling rate and batch of any kind", "refused, or all rows", ["gradient", "psgd"]),
    69: Item("numbers of steps of any kind", REFUSED, ["gradient", "psgd", "output", "objective"]),
    70: Item("smoothing of any kind", REFUSED, ["objective", "psgd", "gradient", "ellipsoids"]),
    71: Item("bound of the norm of any kind, smaller than the rows", "refused; clipped", NORMED),
    72: Item("random_state of any kind", REFUSED, SEEDED),
    73: Item("n_threads of any kind", "refused, or the same model", THREADED),
    74: Item("groups, honest fraction", "no parameter, refused by name"),
    75: Item("use before fit, another number of features, no rows", REFUSED),
    76: Item("a second fit with another number of features", "forgets the first"),
    77: Item("clone, get_params, set_params, unknown parameters", "round trip; refused"),
    78: Item("a budget smaller than the cost", "refused before data are read", PRIVATE),
    79: Item("ten thousand classes", NOISY, LABELS),
    80: Item("class_weight of any kind", REFUSED, LABELS),
    81: Item("no components, gamma 0 or infinite", REFUSED, ["features", "kernel"]),
    82: Item("no principal components, or more than features", REFUSED, ["pca"]),
    83: Item("labels under other names", "the same model", LABELS),
    84: Item("rows in another order", "the same sums; minimisers within their distance"),
    85: Item("texts of errors", "quote no data"),
}


def covers(*numbers: int) -> Callable[[Function], Function]:
    """Marks a test as standing for items, for every ``subject`` that it is parametrised with."""

    def mark(function: Function) -> Function:
        function.catalogue_items = numbers  # type: ignore[attr-defined]
        return function

    return mark


def subjects_of(function: Any) -> set[str]:
    """Whom a parametrised test asks."""
    found: set[str] = set()
    for mark in getattr(function, "pytestmark", ()):
        if mark.name == "parametrize" and "subject" in str(mark.args[0]).split(","):
            for value in mark.args[1]:
                name = value if isinstance(value, str) else value.values[0]
                found.add(name)
    # Another recipe of a class asks that class.
    kinds = {SUBJECTS[name].kind for name in found}
    return found | {name for name in MAIN if SUBJECTS[name].kind in kinds and name != "psgd"}
