"""Parameters of constructors: how each is written, and what a value from a file has to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpsvm_fast.federated.spec import FederatedSpec
from dpsvm_fast.io._model_values import numbers_from, numbers_to, plain_from, plain_to

__all__ = ["SPECIFICATION", "Parameter", "parameters_of"]

# Of a process, a machine or a run, and not of a model. The seed of private noise would let whoever
# reads the file subtract the noise.
NOT_SAVED = ("ledger", "n_threads", "random_state")


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


SPECIFICATION = Parameter(_checked_spec, _spec_to, _spec_from)
