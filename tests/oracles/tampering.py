"""Every small change of a certificate that somebody could make in their own favour."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from dpsvm_fast.certificates.statement import Statement
from dpsvm_fast.certificates.words import LOSSES

__all__ = [
    "Change",
    "at",
    "changes_of",
    "leaf_changes",
    "list_changes",
    "places",
    "replaced",
    "with_events",
]

Path = tuple[Any, ...]
# Where something was changed, how, and the changed document.
Change = tuple[Path, str, dict[str, Any]]

# Legal values of the words that something is computed from, by the name of their field.
WORDS: dict[str, tuple[str, ...]] = {
    "mechanism": (
        *("output_perturbation", "objective_perturbation", "gradient_perturbation"),
        *("private_linear", "private_kernel", "private_center", "private_whitener"),
        *("private_pca", "private_standard_scaler", "gaussian_margin"),
    ),
    "loss": (*LOSSES, "none"),
    "adjacency": ("add_remove", "replace_one"),
    "distribution": ("gaussian", "gamma"),
    "sampler": ("exact_grid", "floating_point"),
    "random_source": ("operating_system", "seed"),
    "projection": ("joint", "per_class"),
    "average": ("last", "uniform", "weighted"),
    "law": ("softmax", "logistic", "huber", "weston_watkins"),
    "type": (
        *("gaussian", "subsampled_gaussian", "pure", "zcdp", "objective", "approximate"),
        "distance",
    ),
    "algorithm": ("dp_helmet", "fed_dpdr"),
    "unit": ("row", "person", "party", "something else"),
    "trust": ("secure_sum", "trusted_curator"),
    "weighting": ("records", "users"),
    "stopping": ("geometric", "logarithmic", "poisson"),
    "strategy": ("partition", "random_stopping"),
    "format": (
        "dpsvm_fast.certificate",
        "dpsvm_fast.pipeline_certificate",
        "dpsvm_fast.selection_certificate",
        "dpsvm_fast.federated_certificate",
    ),
}
# A part's name decides its sensitivity; a step's name is a label.
PART_NAMES = (
    *("centre", "whitening", "training", "count", "components", "means", "moments", "anchors"),
)
# So does that of a sum over parties.
ROUND_NAMES = ("model", "gram")
# The same word is the name of something else in a search.
CHOICES = ("permute_and_flip", "exponential", "discrete_laplace", "gaussian_on_grid")
OTHER_TEXT = "something else"


def replaced(document: Any, path: Path, value: Any) -> Any:
    """A copy with another value at one place; what is not on the way is shared."""
    if not path:
        return value
    changed = copy.copy(document)
    changed[path[0]] = replaced(document[path[0]], path[1:], value)
    return changed


def at(document: Any, path: Path) -> Any:
    """What is at a path."""
    for key in path:
        document = document[key]
    return document


def with_events(document: dict[str, Any]) -> dict[str, Any]:
    """A copy with what follows from its other fields, as a careful forger writes it.

    What cannot be read as a statement stays as it is.
    """
    try:
        followed = Statement.read(document).to_dict()
    except (TypeError, ValueError):
        return document
    derived = Statement.members()[document["format"]].DERIVED
    changed = {name: followed[name] for name in derived}
    if "steps" in document:
        changed["steps"] = [
            step | {"statement": step["statement"] and with_events(step["statement"])}
            for step in document["steps"]
        ]
    return document | changed


def places(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Everything in a document."""
    if path:
        yield path, value
    pairs = value.items() if isinstance(value, dict) else ()
    for key, item in enumerate(value) if isinstance(value, list) else pairs:
        yield from places(item, (*path, key))


def leaf_changes(path: Path, value: Any) -> Iterator[tuple[str, Any]]:
    """Other values that could stand in the place of one."""
    if isinstance(value, bool):
        yield "flip", not value
    elif isinstance(value, int):
        yield from (("+1", value + 1), ("-1", value - 1), ("x2", 2 * value), ("sign", -value))
        yield "x1/2", value // 2
    elif isinstance(value, float):
        for name, factor in (("x1.001", 1.001), ("x0.999", 0.999), ("x2", 2.0), ("x1/2", 0.5)):
            yield name, value * factor
        yield "sign", -value
        # What was zero is something.
        yield "set", 0.0 if value else 0.125
    elif isinstance(value, str):
        part_name = path[-1] == "name" and "parts" in path
        words = PART_NAMES if part_name else WORDS.get(str(path[-1]), (OTHER_TEXT,))
        words = ROUND_NAMES if path[-1] == "name" and "rounds" in path else words
        words = CHOICES if path[-2:] == ("selection", "mechanism") else words
        yield from ((word, word) for word in words if word != value)
    elif value is None:
        yield "set", 1.0
    if value is not None:
        yield "null", None


def list_changes(path: Path, value: Any) -> Iterator[tuple[str, Any]]:
    """Lists with entries dropped, repeated and exchanged, and objects that are gone."""
    if isinstance(value, dict):
        yield "null", None
        return
    for i in range(len(value)):
        yield f"drop {i}", value[:i] + value[i + 1 :]
        yield f"repeat {i}", value[: i + 1] + value[i:]
    if len(value) > 1:
        yield "reverse", value[::-1]
        yield "rotate", value[1:] + value[:1]
    yield "empty", []


def changes_of(document: dict[str, Any]) -> Iterator[Change]:
    """Every change of one thing in a certificate."""
    for path, value in places(document):
        nested = isinstance(value, (list, dict))
        for name, other in (list_changes if nested else leaf_changes)(path, value):
            if other != value or type(other) is not type(value):
                yield path, name, replaced(document, path, other)
        if len(path) == 1 and isinstance(value, (list, dict)):
            less = {key: item for key, item in document.items() if key != path[0]}
            yield path, "remove", less
    both = {"sensitivity", "noise", "objective", "descent"}
    if both & set(document):
        less = {key: item for key, item in document.items() if key not in both}
        yield ("noise",), "remove all of it", less
