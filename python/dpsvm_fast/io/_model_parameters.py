"""Parameters of constructors: how each is written, and what a value from a file has to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpsvm_fast import _validation as check
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.spec import FederatedSpec
from dpsvm_fast.io._model_values import numbers_from, numbers_to, plain_from, plain_to

__all__ = ["SPECIFICATION", "Parameter", "hashing_parameters", "parameters_of"]

# Of a process, a machine or a run, and not of a model. The seed of private noise would let whoever
# reads the file subtract the noise.
NOT_SAVED = ("ledger", "n_threads", "random_state")

# Words of an n-gram.
MOST_WORDS = 1000


@dataclass(frozen=True)
class Parameter:
    """How one parameter of a constructor is saved.

    Parameters
    ----------
    test : callable
        Refuses a value that the class would refuse, and returns what it stands for.
    write, read : callable
        From the name and what ``test`` returned to JSON; from the name and JSON to the value.
    """

    test: Callable[[Any], Any]
    write: Callable[[str, Any], Any] = plain_to
    read: Callable[[str, Any], Any] = plain_from


def _sides_to(name: str, bounds: Any) -> Any:
    """Bounds as the user gave them: numbers stay numbers."""
    if bounds is None:
        return None
    return [float(side) if side.ndim == 0 else numbers_to(side) for side in bounds]


def _sides_from(name: str, record: Any) -> Any:
    """A tuple of numbers or arrays."""
    if not isinstance(record, list):
        return record
    return tuple(
        numbers_from(name, side, (None,)) if isinstance(side, dict) else side for side in record
    )


def _labels_to(name: str, labels: Any) -> Any:
    """A label set that the user gave."""
    return None if labels is None else labels.tolist()


def _point_to(name: str, point: Any) -> Any:
    """A public point."""
    return None if point is None else numbers_to(point)


def _point_from(name: str, record: Any) -> Any:
    """A public point."""
    return None if record is None else numbers_from(name, record, (None,))


def _spec_to(name: str, spec: FederatedSpec | None) -> Any:
    """What the parties agreed on."""
    return None if spec is None else spec.to_dict()


def _spec_from(name: str, record: Any) -> FederatedSpec | None:
    """What the parties agreed on, checked in full."""
    return None if record is None else FederatedSpec(**record)


def _checked_spec(spec: Any) -> Any:
    """A specification, or None."""
    if spec is not None and not isinstance(spec, FederatedSpec):
        raise TypeError(f"spec: got {type(spec).__name__}, expected a FederatedSpec")
    return spec


def parameters_of(tests: Mapping[str, Callable[[Any], Any]]) -> dict[str, Parameter]:
    """Parameters of a class with a table of tests."""
    special: dict[str, dict[str, Any]] = {
        "bounds": {"write": _sides_to, "read": _sides_from},
        "centre": {"write": _point_to, "read": _point_from},
        "classes": {"write": _labels_to},
    }
    return {
        name: Parameter(test, **special.get(name, {}))
        for name, test in tests.items()
        if name not in NOT_SAVED
    }


def _only(name: str, *accepted: Any) -> Parameter:
    """A parameter of which some values are plain and safe, and no others are saved."""

    def test(value: Any) -> Any:
        if not any(type(value) is type(known) and value == known for known in accepted):
            raise InvalidParameterError(
                f"{name}: expected one of {accepted} in a model that is saved"
            )
        return value

    return Parameter(test)


def _checked_range(value: Any) -> tuple[int, int]:
    """Lengths of n-grams."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError("ngram_range: expected two whole numbers")
    low, high = (check.check_integer("ngram_range", length, 1, MOST_WORDS) for length in value)
    return low, high


def _checked_words(value: Any) -> Any:
    """None, a word for a list, or a list."""
    plain = value is None or value == "english"
    if plain or (isinstance(value, list) and all(isinstance(word, str) for word in value)):
        return value
    raise InvalidParameterError("stop_words: expected None, 'english' or a list of words")


def _float_type(name: str, record: Any) -> Any:
    """Of the numbers that come out."""
    return {"float64": np.float64, "float32": np.float32}.get(record, record)


def _checked_float_type(value: Any) -> Any:
    """One of two types."""
    if value not in (np.float64, np.float32):
        raise InvalidParameterError("dtype: expected numpy.float64 or numpy.float32")
    return value


def hashing_parameters() -> dict[str, Parameter]:
    """Of scikit-learn's ``HashingVectorizer``, as far as they are plain.

    Functions of the user's, files and regular expressions of one's own are refused: they would let
    a file decide what is run or read when the model is used.
    """
    options: dict[str, tuple[Any, ...]] = {
        "input": ("content",),
        "encoding": ("utf-8",),
        "decode_error": ("strict", "ignore", "replace"),
        "strip_accents": (None, "ascii", "unicode"),
        "lowercase": (True, False),
        "preprocessor": (None,),
        "tokenizer": (None,),
        "token_pattern": (r"(?u)\b\w\w+\b",),
        "analyzer": ("word", "char", "char_wb"),
        "binary": (True, False),
        "norm": ("l2", "l1", None),
        "alternate_sign": (True, False),
    }
    found = {name: _only(name, *accepted) for name, accepted in options.items()}
    n_features = partial(check.check_integer, "n_features", low=1, high=2**31 - 1)
    return found | {
        "n_features": Parameter(n_features),
        "ngram_range": Parameter(_checked_range),
        "stop_words": Parameter(_checked_words),
        "dtype": Parameter(_checked_float_type, lambda _, kind: np.dtype(kind).name, _float_type),
    }


SPECIFICATION = Parameter(_checked_spec, _spec_to, _spec_from)
