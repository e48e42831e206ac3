"""Labels as columns of pandas, polars and pyarrow and as strings of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpsvm_fast as dp
from oracles.odd_inputs import X, Y
from oracles.subjects import CLASSIFIERS, assert_refused, made
from oracles.tables import WORDS
from oracles.watching import fitted_names

seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


def labels_of(kind: str) -> Any:
    """The labels in another form."""
    library, _, kind = kind.partition(" ")
    words = WORDS[Y]
    if library == "numpy":
        strings: Any = getattr(getattr(np, "dtypes", None), "StringDType", None)
        if kind == "T" and strings is None:
            pytest.skip("numpy 1 has no StringDType")
        return words.astype(strings() if kind == "T" else kind)
    if library == "pandas":
        if "pyarrow" in kind:
            pytest.importorskip("pyarrow")
        return pd.Series(words.tolist(), dtype=kind)
    package = pytest.importorskip(library)
    if library == "polars":
        types = {"Enum": package.Enum(WORDS.tolist())}
        return package.Series(words.tolist(), dtype=types.get(kind) or getattr(package, kind))
    column = package.array(words.tolist())
    found = {"array": column, "chunked": package.chunked_array([column.slice(0, 5), column[5:]])}
    return found.get(kind, column.dictionary_encode())


STRINGS = [
    *(f"numpy {kind}" for kind in ("U", "O", "T")),
    *(f"pandas {kind}" for kind in ("str", "object", "string", "category", "string[pyarrow]")),
    *(f"polars {kind}" for kind in ("String", "Categorical", "Enum")),
    *(f"pyarrow {kind}" for kind in ("array", "chunked", "dictionary")),
]


@seeded
@pytest.mark.parametrize("kind", STRINGS)
def test_string_labels(kind: str) -> None:
    labels = labels_of(kind)
    expected = made("output", random_state=1).fit(X, Y)
    for classes in (WORDS.tolist(), labels_of(kind)[:3]):
        fitted = made("output", random_state=1, classes=classes).fit(X, labels)
        assert fitted.classes_.tolist() == WORDS.tolist()
        np.testing.assert_array_equal(fitted.coef_, expected.coef_)
        np.testing.assert_array_equal(fitted.predict(X), WORDS[expected.predict(X)])
    assert fitted.score(X, WORDS[Y]) == expected.score(X, Y)


def test_labels_of_a_type_that_numpy_lacks() -> None:
    polars = pytest.importorskip("polars", minversion="1.18")
    fitted = made("output", classes=[0, 1, 2]).fit(X, polars.Series(Y).cast(polars.Int128))
    assert fitted.classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("subject", CLASSIFIERS)
@pytest.mark.parametrize("kind", ["boolean", "Int64", "bool", "category"])
def test_nullable_labels_keep_their_kind(subject: str, kind: str) -> None:
    classes: Any = [False, True] if "bool" in kind else [0, 1]
    labels = pd.Series(np.array(classes)[Y % 2], dtype=kind)
    fitted = made(subject, classes=classes).fit(X, labels)
    assert fitted.classes_.dtype == np.array(classes).dtype
    assert set(fitted.predict(X)) <= set(classes)
    with pytest.warns(dp.PrivacyLeakWarning):
        read = made(subject, classes=None).fit(X, labels)
    assert read.classes_.dtype == fitted.classes_.dtype


@pytest.mark.parametrize("subject", CLASSIFIERS)
def test_missing_labels_are_refused(subject: str) -> None:
    some = [None, *Y[1:].tolist()]
    words = [None, *WORDS[Y[1:]].tolist()]
    forms: list[Any] = [
        pd.Series(some, dtype="Int64"),
        pd.Series(some, dtype=float),
        pd.Series(some, dtype="category"),
        pd.Series(words, dtype="string"),
        pd.Series(words),
        np.array(words, dtype=object),
    ]
    fitting = made(subject, classes=[0, 1, 2])
    for labels in forms:
        assert_refused(
            lambda labels=labels: fitting.fit(X, labels), fitting, "^y: a label is missing"
        )


def test_missing_labels_of_other_libraries() -> None:
    for library in ("polars", "pyarrow"):
        package = pytest.importorskip(library)
        make = package.Series if library == "polars" else package.array
        for values in ([None, *Y[1:].tolist()], [None, "a"], [None, True]):
            fitting = made("output")
            with pytest.raises(ValueError, match=r"^y: a label is missing"):
                fitting.fit(X[: len(values)], make(values))
            assert fitted_names(fitting) == []
