"""Hands that change the files of saved models, with and without a digest of their own."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsvm_fast.exceptions import ModelFormatError
from dpsvm_fast.persist import load_model, save_model
from oracles.saved import answers, fitted

__all__ = [
    "ODD",
    "assert_refused",
    "assert_same_answers",
    "at",
    "changed",
    "coefficients",
    "document_of",
    "places",
]

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2, 2**63, 10**400, 0.0, -0.0, 1e308, -1e308, 5e-324, 0.5, "", "1",
    "\ud800", "\0", "x" * 300, "<f8", [], {}, [[]], [0], [1, 2], {"": None}, {"tuple": []},
    {"numbers": {"dtype": "<f8", "shape": [], "data": ""}}, {"pairs": [[1, 2]]}, [None] * 100,
]  # fmt: skip


def document_of(kind: str, folder: Path) -> dict[str, Any]:
    save_model(fitted(kind), folder / f"{kind}.json")
    return dict(json.loads((folder / f"{kind}.json").read_text()))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All ways from the root to a value."""
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, name))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a place; what is put in place of ``...`` is taken out."""
    result = copy.deepcopy(document)
    inner = result
    for name in path[:-1]:
        inner = inner[name]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return result


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        document = document[name]
    return document


def assert_refused(path: Path, words: str, **options: Any) -> str:
    with pytest.raises(ModelFormatError, match=words) as caught:
        load_model(path, **options)
    sentence = str(caught.value)
    assert sentence.startswith(repr(str(path)))
    assert "\n" not in sentence
    assert len(sentence) < 700
    return sentence


def assert_same_answers(one: Any, two: Any) -> None:
    left, right = answers(one), answers(two)
    assert {k: v.tobytes() for k, v in left.items()} == {k: v.tobytes() for k, v in right.items()}


def coefficients(values: Any, shape: list[int] | None = None) -> dict[str, Any]:
    array = np.asarray(values, dtype="<f8")
    data = base64.b64encode(array.tobytes()).decode()
    return {"dtype": "<f8", "shape": shape or list(array.shape), "data": data}
