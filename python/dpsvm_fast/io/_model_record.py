"""Fitted objects as records of plain values, and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from dpsvm_fast.exceptions import InvalidParameterError, ModelFormatError
from dpsvm_fast.io._model_checks import (
    Statement,
    check_facts,
    check_holds,
    check_promise,
    statement_from,
)
from dpsvm_fast.io._model_classes import SavedClass, saved_classes
from dpsvm_fast.io._model_text import shown
from dpsvm_fast.io._model_values import exact_record, text_from

__all__ = ["Reading", "check_certificates", "model_from", "record_of"]

# Of `set_output`: kinds of data frames.
OUTPUTS = ("default", "pandas", "polars")
SEARCH = "PrivateGridSearch"
PIPELINE = "Pipeline"
NOTHING = "passthrough"
# Of a pipeline. Far fewer make sense, and a file must not ask for millions.
MOST_STEPS = 1000


@dataclass
class Reading:
    """What is found while a model is read.

    Parameters
    ----------
    verified : bool
        Whether certificates are recomputed.
    """

    verified: bool = True
    statements: list[tuple[str, Statement]] = field(default_factory=list)


def record_of(model: Any, where: str, *, fitted: bool = True) -> dict[str, Any]:
    """What is saved of a model.

    Parameters
    ----------
    model : estimator
    where : str
        For messages.
    fitted : bool
        Whether to save what was fitted, which then must be there.

    Raises
    ------
    InvalidParameterError
        A class, or a value of a parameter, that cannot be saved.
    NotFittedError
    """
    saved = _saved_class(model, where)
    name = type(model).__name__
    record: dict[str, Any] = {"class": name, "parameters": _parameters_of(model, saved, where)}
    if name == PIPELINE:
        record["steps"] = _steps_of(model, where, fitted=fitted)
    if name == SEARCH:
        record["estimator"] = record_of(model.estimator, f"{where}.estimator", fitted=False)
    if fitted:
        record["attributes"] = _attributes_of(model, saved, where)
        if saved.mechanism is not None:
            record["privacy"] = model.privacy_.to_dict()
        if name == SEARCH:
            best = f"{where}.best_estimator_"
            record["best_estimator"] = record_of(model.best_estimator_, best)
    output = vars(model).get("_sklearn_output_config", {}).get("transform")
    if output is not None:
        record["output"] = output
    return record


def _saved_class(model: Any, where: str) -> SavedClass:
    """The table's entry, of the class itself and of no parent."""
    name = type(model).__name__
    saved = saved_classes().get(name)
    if saved is None or saved.kind is not type(model):
        known = ", ".join(saved_classes())
        raise InvalidParameterError(
            f"{where}: got an object of class {name}, which cannot be saved as JSON; save it with "
            f"joblib.dump for readers who trust you, or give one of {known}"
        )
    return saved


def _parameters_of(model: Any, saved: SavedClass, where: str) -> dict[str, Any]:
    """Parameters as the class checks them."""
    if getattr(model, "transform_input", None) is not None:
        raise InvalidParameterError(f"{where}.transform_input: expected None in a saved Pipeline")
    return {
        name: parameter.write(name, parameter.test(getattr(model, name)))
        for name, parameter in saved.parameters.items()
    }


def _attributes_of(model: Any, saved: SavedClass, where: str) -> dict[str, Any] | None:
    """Fitted attributes; None where nothing was fitted and nothing has to be."""
    found = vars(model)
    if saved.mechanism is None and not any(name in found for name in saved.attributes):
        if saved.fits and saved.attributes:
            raise _not_fitted(model, where)
        return {} if type(model).__name__ == PIPELINE else None
    if saved.mechanism is not None and "privacy_" not in found:
        raise _not_fitted(model, where)
    missing = [n for n, a in saved.attributes.items() if n not in found and not a.optional]
    if missing:
        raise InvalidParameterError(f"{where}: expected the fitted attribute {missing[0]}")
    return {
        name.lstrip("_"): attribute.written(found[name])
        for name, attribute in saved.attributes.items()
        if name in found
    }


def _not_fitted(model: Any, where: str) -> NotFittedError:
    """Says what to do first."""
    name = type(model).__name__
    return NotFittedError(f"{where}: this {name} is not fitted; call fit before save_model")


def _steps_of(pipeline: Any, where: str, *, fitted: bool) -> list[Any]:
    """Names and records of the steps."""
    return [
        [name, record_of(step, f"{where}[{name!r}]", fitted=fitted) if _does(step) else None]
        for name, step in pipeline.steps
    ]


def _does(step: object) -> bool:
    """Whether a step of a pipeline does anything."""
    return step is not None and not isinstance(step, str)


def model_from(record: object, where: str, reading: Reading, *, fitted: bool = True) -> Any:
    """The object that :func:`record_of` wrote.

    Raises
    ------
    ModelFormatError
    """
    name = record.get("class") if isinstance(record, dict) else None
    saved = saved_classes().get(name) if isinstance(name, str) else None
    if saved is None:
        raise ModelFormatError(
            f"{where}: got the class {shown(name)}, which this release cannot load"
        )
    assert isinstance(record, dict)
    exact_record(where, record, _fields(saved, record, fitted=fitted))
    model = _made(saved, record, where, reading, fitted=fitted)
    if fitted:
        _set_fitted(model, saved, record, where, reading)
    if "output" in record:
        _set_output(model, text_from(f"{where}.output", record["output"], OUTPUTS), where)
    return model


def _fields(saved: SavedClass, record: dict[str, Any], *, fitted: bool) -> set[str]:
    """Names that a record has to have."""
    name = saved.kind.__name__
    names = {"class", "parameters"} | ({"output"} & set(record))
    names |= {PIPELINE: {"steps"}, SEARCH: {"estimator"}}.get(name, set())
    if fitted:
        names |= {"attributes"} | ({"privacy"} if saved.mechanism is not None else set())
        names |= {"best_estimator"} if name == SEARCH else set()
    return names


def _made(
    saved: SavedClass, record: dict[str, Any], where: str, reading: Reading, *, fitted: bool
) -> Any:
    """The object before it was fitted."""
    inside = f"{where}.parameters"
    records = exact_record(inside, record["parameters"], set(saved.parameters))
    parameters: dict[str, Any] = {}
    for name, parameter in saved.parameters.items():
        try:
            value = parameter.read(name, records[name])
            parameter.test(value)
        except ModelFormatError as error:
            raise ModelFormatError(f"{inside}.{error}") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelFormatError(f"{inside}: {error}") from None
        parameters[name] = value
    if "estimator" in record:
        inner = f"{where}.estimator"
        parameters["estimator"] = model_from(record["estimator"], inner, reading, fitted=False)
    if "steps" in record:
        parameters["steps"] = _steps_from(record["steps"], where, reading, fitted=fitted)
    return saved.kind(**parameters)


def _steps_from(records: object, where: str, reading: Reading, *, fitted: bool) -> list[Any]:
    """Steps of a pipeline, whose rows have to fit each other."""
    steps: list[Any] = []
    if not isinstance(records, list) or not 0 < len(records) <= MOST_STEPS:
        raise ModelFormatError(f"{where}: expected a list of 1 to {MOST_STEPS} steps")
    for entry in records:
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
            raise ModelFormatError(f"{where}: expected a name and a record of every step")
        name, record = entry
        if not name or "__" in name or name in [known for known, _ in steps]:
            raise ModelFormatError(f"{where}: expected different names of steps, without '__'")
        inner = f"{where}[{shown(name)}]"
        last = len(steps) == len(records) - 1
        step = NOTHING if record is None else model_from(record, inner, reading, fitted=fitted)
        if record is not None and not last and not hasattr(step, "transform"):
            raise ModelFormatError(f"{inner}: expected a transformer before the last step")
        steps.append((name, step))
    width: int | None = None
    for name, step in steps if fitted else ():
        expected = vars(step).get("n_features_in_") if _does(step) else width
        if None not in (width, expected) and width != expected:
            raise ModelFormatError(
                f"{where}[{shown(name)}]: takes {expected} features, the step before makes {width}"
            )
        width = _width(step, width if expected is None else expected)
    return steps


def _width(step: Any, before: int | None) -> int | None:
    """Columns that come out of a step."""
    width: int | None = getattr(step, "_n_features_out", before)
    return width


def _set_fitted(
    model: Any, saved: SavedClass, record: dict[str, Any], where: str, reading: Reading
) -> None:
    """Publish what the fit published."""
    if record["attributes"] is None and saved.mechanism is None and not saved.fits:
        return
    facts = _facts_from(saved, record["attributes"], f"{where}.attributes")
    statement = None
    if saved.mechanism is not None:
        inside = f"{where}.privacy"
        statement = statement_from(inside, record["privacy"])
        check_promise(inside, saved.mechanism, model, statement)
        reading.statements.append((inside, statement))
        facts["privacy_"] = statement
    check_facts(where, model, facts, statement)
    if "best_estimator" in record:
        facts["best_estimator_"] = best = _best_from(record, where, reading, statement)
        _check_same_rows(where, facts, best)
    model.__dict__.update(facts)


def _facts_from(saved: SavedClass, records: object, where: str) -> dict[str, Any]:
    """Attributes by name, each checked against those before it."""
    given = records if isinstance(records, dict) else {}
    wanted = {
        name.lstrip("_"): (name, attribute)
        for name, attribute in saved.attributes.items()
        if not attribute.optional or name.lstrip("_") in given
    }
    found = exact_record(where, records, set(wanted))
    facts: dict[str, Any] = {}
    for short, (name, attribute) in wanted.items():
        facts[name] = attribute.read_from(f"{where}.{short}", found[short], facts)
    return facts | (saved.derived(facts) if saved.derived is not None else {})


def _best_from(record: dict[str, Any], where: str, reading: Reading, statement: Any) -> Any:
    """The model that a search released; what it promises is what the search does."""
    best = model_from(record["best_estimator"], f"{where}.best_estimator", reading)
    inner = [found for at, found in reading.statements if at.startswith(f"{where}.best_estimator")]
    if any(isinstance(found, type(statement)) and found != statement for found in inner):
        raise ModelFormatError(
            f"{where}.best_estimator: expected the certificate of the search that it comes from"
        )
    return best


def _check_same_rows(where: str, facts: dict[str, Any], best: Any) -> None:
    """A search says the same of rows and labels as the model that it released."""
    for name in ("n_features_in_", "classes_"):
        own, inner = facts.get(name), getattr(best, name, None)
        if own is not None and inner is not None and not np.array_equal(own, inner):
            raise ModelFormatError(f"{where}.best_estimator: has another {name} than the search")


def _set_output(model: Any, kind: str, where: str) -> None:
    """The kind of data frames that a transformer returns."""
    if not hasattr(model, "set_output"):
        raise ModelFormatError(f"{where}.output: this class has no output to be set")
    model.set_output(transform=kind)


def check_certificates(reading: Reading) -> None:
    """Recompute every certificate that was read."""
    if reading.verified:
        for where, statement in reading.statements:
            check_holds(where, statement)
