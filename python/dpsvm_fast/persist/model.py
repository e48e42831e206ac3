"""Saved models: JSON files with a fitted model, its certificate and its table's schema.

Loading a file runs no code from it. docs/model_format.md describes the format.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import _core
from dpsvm_fast import preprocessing as ours
from dpsvm_fast.certificates import read_certificate
from dpsvm_fast.certificates.record import exactly
from dpsvm_fast.certificates.statement import (
    DRAFT,
    Statement,
    bound_certificate,
    certificate_schema,
)
from dpsvm_fast.data.encoder import leading_encoder
from dpsvm_fast.estimators.inputs import NamedBounds, checked_bounds, public_classes
from dpsvm_fast.exceptions import InvalidParameterError, ModelFormatError
from dpsvm_fast.files import ROOM, checked_key, write_bytes
from dpsvm_fast.persist.classes import (
    MAX_REPEATED,
    NOT_SAVED,
    SAVED_CLASSES,
    SavedClass,
    read_entries,
    table_schema,
    written,
)
from dpsvm_fast.persist.values import (
    DIGEST,
    FORMAT,
    SIGNATURE,
    VERSION,
    check_seals,
    document_of,
    plain_to,
    refused,
    sealed_text,
    shown,
)
from dpsvm_fast.validation import check_integer, check_option, check_path
from dpsvm_fast.verification import Verification, verify
from dpsvm_fast.verification.verify import Comparison

if TYPE_CHECKING:
    from dpsvm_fast.data import TableSchema


# Fitted objects as records of plain values, and back.


# Kinds of data frames for `set_output`.
OUTPUTS = ("default", "pandas", "polars")

SEARCH = "PrivateGridSearch"

PIPELINES = ("Pipeline", "PrivatePipeline")

COLUMNS = "ColumnTransformer"

NOTHING = "passthrough"
# Parameters that are parts, by class: fields of their own beside the other parameters.
PARTS = {
    **{name: {"steps"} for name in PIPELINES},
    COLUMNS: {"transformers", "remainder"},
    SEARCH: {"estimator"},
}
# Most steps of a pipeline. Far fewer are sensible, and a file must not require millions.
MAX_STEPS = 1000
# Least memory that reading a model may be limited to.
MIN_ROOM = 1 << 20


# Certificates that were read with a model, each with its place.
Statements = list[tuple[str, Statement]]


def record_of(model: Any, where: str, *, fitted: bool = True) -> dict[str, Any]:
    """Return the saved record of a model.

    Parameters
    ----------
    model : estimator
    where : str
        For messages.
    fitted : bool
        Whether to save the fitted attributes, which must exist.

    Raises
    ------
    InvalidParameterError
        A class or a parameter value cannot be saved.
    NotFittedError
    """
    saved = _saved_class(model, where)
    name = type(model).__name__
    record: dict[str, Any] = {"class": name, "parameters": _parameters_of(model, saved, where)}
    if name in PIPELINES:
        record["steps"] = [
            [step, record_of(one, f"{where}[{step!r}]", fitted=fitted) if _does(one) else None]
            for step, one in model.steps
        ]
    if name == COLUMNS:
        record |= _columns_of(model, where, fitted=fitted)
    if name == SEARCH:
        record["estimator"] = record_of(model.estimator, f"{where}.estimator", fitted=False)
    if fitted:
        record["attributes"] = _attributes_of(model, saved, where)
        if saved.private:
            record["privacy"] = model.privacy_.to_dict()
        if name == SEARCH:
            best = f"{where}.best_estimator_"
            record["best_estimator"] = record_of(model.best_estimator_, best)
    output = vars(model).get("_sklearn_output_config", {}).get("transform")
    if output is not None:
        record["output"] = output
    return record


def _saved_class(model: Any, where: str) -> SavedClass:
    """Return the entry of the exact class, not of a parent."""
    name = type(model).__name__
    saved = SAVED_CLASSES.get(name)
    if saved is None or saved.kind is not type(model):
        known = ", ".join(SAVED_CLASSES)
        raise InvalidParameterError(
            f"{where}: got an object of class {name}, which cannot be saved as JSON; save it with "
            f"joblib.dump for readers who trust you, or give one of {known}"
        )
    return saved


def _parameters_of(model: Any, saved: SavedClass, where: str) -> dict[str, Any]:
    """Return the parameters, checked by the class."""
    others = {*saved.parameters, *NOT_SAVED, *PARTS.get(saved.name, ())}
    if saved.module.startswith("sklearn."):
        for name, given in inspect.signature(saved.kind).parameters.items():
            value = getattr(model, name)
            if name not in others and value is not given.default and value != given.default:
                raise InvalidParameterError(
                    f"{where}.{name}: got {shown(value)}, expected {given.default!r} in a saved "
                    f"{saved.name}"
                )
    return written(saved.parameters, {name: getattr(model, name) for name in saved.parameters})


def _attributes_of(model: Any, saved: SavedClass, where: str) -> dict[str, Any] | None:
    """Return the fitted attributes; None if none are fitted or needed."""
    found, name = vars(model), type(model).__name__
    if saved.private:
        is_fitted = "privacy_" in found
    else:
        is_fitted = any(attribute in found for attribute in saved.attributes)
        if not is_fitted and not (saved.fits and saved.attributes):
            return {} if name in PIPELINES else None
    if not is_fitted:
        raise NotFittedError(f"{where}: this {name} is not fitted; call fit before save_model")
    missing = [n for n, a in saved.attributes.items() if n not in found and not a.optional]
    if missing:
        raise InvalidParameterError(f"{where}: expected the fitted attribute {missing[0]}")
    return written(saved.attributes, found)


def _columns_of(model: Any, where: str, *, fitted: bool) -> dict[str, Any]:
    """Return names, records and columns of the parts of a ColumnTransformer."""
    made = {name: step for name, step, _ in getattr(model, "transformers_", ())}
    indices = getattr(model, "_transformer_to_input_indices", {})
    names = getattr(model, "feature_names_in_", ())

    def part(name: str, step: Any) -> Any:
        if isinstance(step, str):
            return step
        # A part without columns was not fitted.
        there = fitted and len(indices.get(name, ())) > 0
        inner = made.get(name, step) if there else step
        return record_of(inner, f"{where}[{name!r}]", fitted=there)

    parts = []
    for name, step, columns in model.transformers:
        # Columns chosen by a function or a slice are written as a list.
        if isinstance(columns, np.ndarray):
            columns = columns.tolist()
        plain = isinstance(columns, (str, int)) or (
            isinstance(columns, list) and not any(isinstance(one, bool) for one in columns)
        )
        if not plain:
            found = indices.get(name)
            if found is None:
                raise InvalidParameterError(
                    f"{where}[{name!r}]: expected columns by name or position in what is saved"
                )
            columns = [str(names[place]) for place in found] if len(names) else list(found)
        parts.append([name, part(name, step), plain_to(f"{where}[{name!r}]", columns)])
    return {"transformers": parts, "remainder": part("remainder", model.remainder)}


def _columns_from(
    record: dict[str, Any], where: str, statements: Statements, *, fitted: bool
) -> dict[str, Any]:
    """Read the parts of a ColumnTransformer."""
    parts: list[Any] = []
    entries = record["transformers"]
    if not isinstance(entries, list) or len(entries) > MAX_STEPS:
        raise ModelFormatError(f"{where}: expected a list of at most {MAX_STEPS} parts")

    def read(name: str, one: Any, *, chosen: bool) -> Any:
        if isinstance(one, str):
            return refused(check_option, f"{where}[{shown(name)}]", one, ("drop", NOTHING))
        there = fitted and chosen and isinstance(one, dict) and "attributes" in one
        step = model_from(one, f"{where}[{shown(name)}]", statements, fitted=there)
        if not hasattr(step, "transform"):
            raise ModelFormatError(f"{where}[{shown(name)}]: expected a transformer")
        return step

    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 3 or not isinstance(entry[0], str):
            raise ModelFormatError(f"{where}: expected a name, a record and columns of every part")
        name, one, columns = entry
        many = columns if isinstance(columns, list) else [columns]
        if not all(type(column) in (str, int) for column in many):
            raise ModelFormatError(f"{where}[{shown(name)}]: expected names or positions")
        parts.append((name, read(name, one, chosen=bool(many)), columns))
    return {"transformers": parts, "remainder": read("remainder", record["remainder"], chosen=True)}


def _blank(X: Any, width: int) -> Any:
    """Return an array with as many columns as a fitted part returns."""
    return np.zeros((np.shape(X)[0], width))


def _join_columns(model: Any, facts: Mapping[str, Any], where: str) -> None:
    """Fit a ColumnTransformer of loaded parts on dummy rows with the right columns."""
    fitted = {name: step for name, step, _ in model.transformers} | {"remainder": model.remainder}
    names, n_features = facts.get("feature_names_in_"), facts["n_features_in_"]

    def stand_in(step: Any, columns: Any = None) -> Any:
        # A part without columns was not fitted.
        width = None if isinstance(step, str) or columns == [] else _width(step, None)
        if width is None:
            return step
        if width > MAX_REPEATED:
            raise ModelFormatError(f"{where}: a part has more columns than a model may have")
        return FunctionTransformer(_blank, kw_args={"width": width})

    blank = clone(model).set_params(
        transformers=[
            (name, stand_in(step, columns), columns) for name, step, columns in model.transformers
        ],
        remainder=stand_in(model.remainder),
    )
    rows: Any = np.zeros((1, n_features))
    if names is not None:
        table = {name: [0.0] for name in names}
        for library in ("pandas", "polars"):
            with suppress(ImportError):
                rows = importlib.import_module(library).DataFrame(table)
                break
    try:
        blank.fit(rows)
    except (TypeError, ValueError) as error:
        raise ModelFormatError(f"{where}: inconsistent columns ({error})") from None
    found = {name: value for name, value in vars(blank).items() if name not in blank.get_params()}
    found["transformers_"] = [
        (name, step if isinstance(fitted[name], str) else fitted[name], columns)
        for name, step, columns in blank.transformers_
    ]
    model.__dict__.update(found)
    check_is_fitted(model)


def _does(step: object) -> bool:
    """Return whether a step of a pipeline does anything."""
    return step is not None and not isinstance(step, str)


def model_from(record: object, where: str, statements: Statements, *, fitted: bool = True) -> Any:
    """Restore the object that :func:`record_of` saved, and add its certificates to a list.

    Raises
    ------
    ModelFormatError
    """
    name = record.get("class") if isinstance(record, dict) else None
    saved = SAVED_CLASSES.get(name) if isinstance(name, str) else None
    if saved is None:
        raise ModelFormatError(
            f"{where}: got the class {shown(name)}, which this version cannot load"
        )
    assert isinstance(record, dict)
    names = {"class", "parameters"} | PARTS.get(saved.name, set()) | ({"output"} & set(record))
    if fitted:
        names |= {"attributes"} | ({"privacy"} if saved.private else set())
        names |= {"best_estimator"} if saved.name == SEARCH else set()
    refused(exactly, where, record, names)
    parameters = read_entries(saved.parameters, record["parameters"], f"{where}.parameters")
    if "estimator" in record:
        inner = f"{where}.estimator"
        parameters["estimator"] = model_from(record["estimator"], inner, statements, fitted=False)
    if "steps" in record:
        parameters["steps"] = _steps_from(record["steps"], where, statements, fitted=fitted)
    if "transformers" in record:
        parameters |= _columns_from(record, where, statements, fitted=fitted)
    model = saved.kind(**parameters)
    if fitted:
        _set_fitted(model, saved, record, where, statements)
    if "output" in record:
        if not hasattr(model, "set_output"):
            raise ModelFormatError(f"{where}.output: set_output does not apply to this class")
        kind = refused(check_option, f"{where}.output", record["output"], OUTPUTS)
        model.set_output(transform=kind)
    return model


def _steps_from(records: object, where: str, statements: Statements, *, fitted: bool) -> list[Any]:
    """Read the steps of a pipeline, whose numbers of features must match."""
    steps: list[Any] = []
    if not isinstance(records, list) or not 0 < len(records) <= MAX_STEPS:
        raise ModelFormatError(f"{where}: expected a list of 1 to {MAX_STEPS} steps")
    for entry in records:
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
            raise ModelFormatError(f"{where}: expected a name and a record of every step")
        name, record = entry
        if not name or "__" in name or name in [known for known, _ in steps]:
            raise ModelFormatError(f"{where}: expected different names of steps, without '__'")
        inner = f"{where}[{shown(name)}]"
        last = len(steps) == len(records) - 1
        step = NOTHING if record is None else model_from(record, inner, statements, fitted=fitted)
        if record is not None and not last and not hasattr(step, "transform"):
            raise ModelFormatError(f"{inner}: expected a transformer before the last step")
        steps.append((name, step))
    # Return the number of output columns of a step.
    width: int | None = None
    for name, step in steps if fitted else ():
        expected = vars(step).get("n_features_in_") if _does(step) else width
        if None not in (width, expected) and width != expected:
            raise ModelFormatError(
                f"{where}[{shown(name)}]: takes {expected} features, the step before gives {width}"
            )
        width = _width(step, width if expected is None else expected)
    return steps


def _width(step: Any, before: int | None) -> int | None:
    """Return the number of output columns of a step."""
    if type(step).__name__ in WIDTHS and type(step).__module__.startswith("sklearn."):
        return int(WIDTHS[type(step).__name__](step))
    if isinstance(step, Pipeline):
        for _, inner in step.steps:
            before = _width(inner, before)
        return before
    width: int | None = getattr(step, "_n_features_out", getattr(step, "n_features_in_", before))
    return width


WIDTHS: dict[str, Any] = {
    "OneHotEncoder": lambda step: len(step.get_feature_names_out()),
    "SplineTransformer": lambda step: step.n_features_out_,
    "PolynomialFeatures": lambda step: step.n_output_features_,
    "HashingVectorizer": lambda step: step.n_features,
    COLUMNS: lambda step: max((one.stop for one in step.output_indices_.values()), default=0),
}


def _set_fitted(
    model: Any, saved: SavedClass, record: dict[str, Any], where: str, statements: Statements
) -> None:
    """Set the fitted attributes."""
    if record["attributes"] is None and not saved.private and not saved.fits:
        saved.refit(clone(model), {}, where)
        return
    facts = read_entries(saved.attributes, record["attributes"], f"{where}.attributes")
    facts |= saved.derived(facts) if saved.derived is not None else {}
    statement = None
    if saved.private:
        inside = f"{where}.privacy"
        statement = _statement_of(inside, record)
        statements.append((inside, statement))
        facts["privacy_"] = statement
    _check_facts(where, model, facts)
    if "best_estimator" in record:
        facts["best_estimator_"] = _best_from(record, where, statements, statement, facts)
    saved.refit(model, facts, where)
    if "transformers" in record:
        _join_columns(model, facts, where)
    model.__dict__.update(facts)


def _best_from(
    record: dict[str, Any],
    where: str,
    statements: Statements,
    statement: Any,
    facts: dict[str, Any],
) -> Any:
    """Read the released model of a search, with the search's statement, features and labels."""
    best = model_from(record["best_estimator"], f"{where}.best_estimator", statements)
    inner = [found for at, found in statements if at.startswith(f"{where}.best_estimator")]
    if any(isinstance(found, type(statement)) and found != statement for found in inner):
        raise ModelFormatError(
            f"{where}.best_estimator: expected the certificate of the search that it comes from"
        )
    for name in ("n_features_in_", "classes_"):
        own, other = facts.get(name), getattr(best, name, None)
        if own is not None and other is not None and not np.array_equal(own, other):
            raise ModelFormatError(f"{where}.best_estimator: has another {name} than the search")
    return best


# Recomputations that are remembered: workers load the same model again and again.
REMEMBERED = 64


def _statement_of(where: str, record: dict[str, Any]) -> Any:
    """Read the certificate in a record, which must be for the release saved with it."""
    certificate = record["privacy"]
    if not isinstance(certificate, Mapping):
        raise ModelFormatError(f"{where}: got {shown(certificate)}, expected a certificate")
    try:
        statement = read_certificate(certificate)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelFormatError(
            f"{where}: not a certificate that this version reads: {error}"
        ) from None
    compared = Comparison()
    compared.fit(statement, record)
    if compared.problems:
        raise ModelFormatError(f"{where}: {compared.problems[0]}")
    return statement


def _check_holds(where: str, statement: Statement) -> None:
    """Recompute the guarantee of a certificate; if it is not private, that of its noise.

    Raises
    ------
    ModelFormatError
        The guarantee does not follow from the numbers of the certificate.
    """
    found = _verified(statement.to_json(indent=None))
    if not found:
        verdict = "cannot be confirmed" if found.undecided else "does not hold"
        raise ModelFormatError(
            f"{where}: the certificate {verdict}: {found.problems[0]}; do not rely on the epsilon "
            "and delta of this model"
        )


@lru_cache(maxsize=REMEMBERED)
def _verified(text: str) -> Verification:
    """Return the result of ``verify``, ignoring the reasons why a statement is not private."""
    # Consistency of the numbers does not depend on who knows the seed.
    statement: Any = read_certificate(text)
    return verify(statement.in_private())


def _check_facts(where: str, model: Any, facts: Mapping[str, Any]) -> None:
    """Check that attributes and parameters fit each other.

    The shapes of the attributes are already checked.
    """
    classes: Any = facts.get("classes_")
    given = getattr(model, "classes", None)
    if classes is not None and given is not None and not _same_labels(given, classes):
        raise ModelFormatError(f"{where}: expected the same label set in classes and classes_")
    _check_widths(where, model, facts)
    _check_choices(where, facts)
    loss = facts.get("_fitted_loss")
    if loss is None:
        return
    n_rivals = len(classes)
    if "ellipsoids_" in facts:
        # Those of one class compete with all of the others.
        n_classes, each = facts["ellipsoids_"].shape[:2]
        n_rivals = (n_classes - 1) * each + 1
    if loss.n_classes != n_rivals:
        raise ModelFormatError(f"{where}: the loss is for another number of classes")


def _check_widths(where: str, model: Any, facts: Mapping[str, Any]) -> None:
    """Check the lengths of public parameters with a number for each feature."""
    n_features = facts.get("n_features_in_")
    if n_features is None:
        return
    spec = getattr(model, "spec", None)
    if spec is not None and not (
        spec.n_features == n_features and _same_labels(spec.classes, facts["classes_"])
    ):
        raise ModelFormatError(f"{where}: expected the features and classes of the specification")
    names = facts.get("feature_names_in_")
    sides: list[NDArray[Any]] = []
    bounds, centre = vars(model).get("bounds"), vars(model).get("centre")
    if bounds is not None and not isinstance(bounds, str):
        given = checked_bounds("bounds", bounds)
        if isinstance(given, NamedBounds):
            refused(given.in_order, names, where=f"{where}: ")
        sides += given
    if centre is not None:
        sides.append(np.asarray(centre))
    if any(side.ndim == 1 and side.size != n_features for side in sides):
        raise ModelFormatError(f"{where}: expected bounds, or a centre, of {n_features} numbers")
    if isinstance(model, ours.PublicSplines):
        refused(model.functions, n_features, names, where=f"{where}: ")
    if isinstance(model, ours.PublicImageFeatures):
        refused(model.grids, n_features, where=f"{where}: ")


def _same_labels(given: Any, classes: NDArray[Any]) -> bool:
    """Return whether a label set, as given by the user, is that of a model."""
    known = public_classes("classes", list(given))
    kinds = {labels.dtype.kind for labels in (known, classes)}
    same: bool = known.tolist() == classes.tolist()
    return same and (len(kinds) == 1 or kinds <= set("iu"))


def _check_choices(where: str, facts: Mapping[str, Any]) -> None:
    """Check that the choices of a fit agree with its releases."""
    if "whitened_" in facts and facts["whitened_"] is not (facts["whitening_"] is not None):
        raise ModelFormatError(f"{where}: whitened_ does not match whitening_")
    if "lift_" in facts:
        own = facts["lift_"] > 0.0 and facts.get("features_") is None
        if own is not (facts["lift_coef_"] is not None):
            raise ModelFormatError(f"{where}: lift_ does not match lift_coef_")
    if "kernel_" not in facts:
        return
    features = facts["features_"]
    unlifted = "linear" if facts.get("splines_") is None else "additive"
    chosen = (
        (unlifted, None, None)
        if features is None
        else (features.kernel, features.gamma, features.n_components)
    )
    if chosen != tuple(facts[name] for name in ("kernel_", "gamma_", "n_components_")):
        raise ModelFormatError(f"{where}: kernel_, gamma_ or n_components_ differs from features_")


LONGEST_VERSION = 100

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class SavedModel:
    """Content of a model file.

    Parameters
    ----------
    estimator : estimator
        Fitted model, with its certificate in ``privacy_``.
    schema : TableSchema or None
        Schema of the training table, if it was saved.
    format_version : int
    library_version : str
        Version of the library that wrote the file.
    signature : {"none", "not checked", "checked"}
        "not checked": the file is signed but was read without the key. Treat it as unsigned.
    """

    estimator: Any
    schema: TableSchema | None
    format_version: int
    library_version: str
    signature: str


def save_model(
    model: Any,
    path: PathLike,
    *,
    schema: TableSchema | None = None,
    key: bytes | PathLike | None = None,
) -> None:
    """Save a fitted model as a JSON file.

    Parameters
    ----------
    model : estimator
        Fitted estimator or transformer of this library, a ``PrivateGridSearch``, or a Pipeline of
        these and of ``Normalizer`` and ``HashingVectorizer``.
    path : str or path
        File to write atomically; an existing file is replaced.
    schema : TableSchema or None, default=None
        Schema of the training table, saved with the model.
    key : bytes, path of a file with them, or None, default=None
        Secret key of at least 16 bytes that signs the file (HMAC-SHA256). Loading with the key then
        detects every change. The key is not saved.

    Raises
    ------
    InvalidParameterError
        A class cannot be saved, a parameter was changed after the fit, or the schema is of another
        table.
    NotFittedError
        The model is not fitted.
    OSError
        The file cannot be written.

    Notes
    -----
    Guarantees: for each class the file has a fixed list of parameters and fitted attributes, and
    nothing else of the object. All of it is public or was released by the fit, so the file is as
    private as the model. Not saved: the ledger, ``n_threads``, the seed of private noise (anyone
    who knows it can subtract the noise; a seeded model stays marked NOT PRIVATE) and the state for
    ``partial_fit``.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.persist import load_model, save_model
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PrivateLinearSVC(2.0, bounds=(0, 10), classes=[0, 1, 2]).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, f"{folder}/iris.json")
    ...     again = load_model(f"{folder}/iris.json")
    >>> bool((again.predict(X) == model.predict(X)).all()), again.privacy_.epsilon
    (True, 2.0)
    """
    secret = checked_key(key)
    record = record_of(model, "model")
    described = None if schema is None else schema.to_dict()
    try:
        # Only a loadable model is saved. The certificate is from this object's own fit.
        _check_table(model_from(record, "model", []), schema)
    except ModelFormatError as error:
        raise InvalidParameterError(f"{error}; restore it or fit again before saving") from None
    contents = {
        "library_version": _core.build_info()["version"],
        "model": record,
        "schema": described,
    }
    write_bytes(Path(check_path("path", path)), sealed_text(contents, secret))


def save_certificate(
    model: PathLike,
    path: PathLike,
    *,
    key: bytes | PathLike | None = None,
    max_memory: int = ROOM,
) -> None:
    """Save the certificate of a saved model, bound to the model by a digest.

    Parameters
    ----------
    model : str or path
        File written by :func:`save_model`.
    path : str or path
        File to write atomically; an existing file is replaced.
    key : bytes, path of a file with them, or None, default=None
        Secret key of at least 16 bytes that signs digest and certificate (HMAC-SHA256). It may
        differ from the key of the model.
    max_memory : int, default=2**28
        As in :func:`load_model`.

    Raises
    ------
    InvalidParameterError
        The model has no certificate, as for public transformers.
    ModelFormatError, OSError
        As in :func:`load_model`.

    Notes
    -----
    Guarantees: ``verify(certificate, model=..., key=...)`` is true only for the model with that
    digest of class, parameters, numbers and certificate. Without a key, someone who replaces the
    model can also replace the digest.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dpsvm_fast import PrivateCenter, verify
    >>> from dpsvm_fast.persist import save_certificate, save_model
    >>> centre = PrivateCenter(1.0).fit([[0.6, 0.8], [0.0, 1.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model, certificate = f"{folder}/centre.json", f"{folder}/certificate.json"
    ...     save_model(centre, model)
    ...     save_certificate(model, certificate)
    ...     found = verify(Path(certificate).read_text(), model=model)
    >>> found.ok, found.matches[-1]
    (True, 'noisy sums and their shapes')
    """
    where, target = Path(check_path("model", model)), Path(check_path("path", path))
    estimator = read_model(where, verify=False, max_memory=max_memory).estimator
    document = document_of(where, max_memory)
    statement = statement_of(estimator)
    record = bound_certificate(statement.to_dict(), document, checked_key(key))
    write_bytes(target, json.dumps(record, indent=2, allow_nan=False).encode("ascii") + b"\n")


def statement_of(model: Any) -> Any:
    """Return the privacy statement of a fitted estimator or pipeline."""
    if hasattr(model, "privacy_"):
        return model.privacy_
    steps = [step for _, step in getattr(model, "steps", ()) if hasattr(step, "privacy_")]
    if len(steps) == 1:
        return steps[0].privacy_
    from dpsvm_fast.pipelines import total_privacy

    return total_privacy(model)


def load_model(
    path: PathLike,
    *,
    key: bytes | PathLike | None = None,
    verify: bool = True,
    max_memory: int = ROOM,
) -> Any:
    """Load a model written by :func:`save_model`.

    Parameters
    ----------
    path : str or path
    key : bytes, path of a file with them, or None, default=None
        Key with which the file was signed; with a key, an unsigned file is refused. None checks no
        signature, even of a signed file: ``read_model(path).signature`` then says so.
    verify : bool, default=True
        Whether to recompute the certificate's epsilon and delta, which takes some seconds for
        searches and objective perturbation. Use False only for files checked before.
    max_memory : int, default=2**28
        Bytes of memory that reading may take; a file takes up to five times its size. Raise it for
        models of more than some millions of weights.

    Returns
    -------
    estimator
        The model. Its predictions and scores are bit-identical to those of the saved model.

    Raises
    ------
    ModelFormatError
        The file is not a model that this version reads, was changed, or has a certificate that does
        not hold, or may take more than ``max_memory``.
    OSError
        The file cannot be read.

    Notes
    -----
    Guarantees: no code from the file is run, only modules of a fixed table are imported, and every
    value is checked before use. Without a key, the digest in the file detects only accidents and
    careless edits, because an attacker can write a new digest. With a key, nobody without it can
    change the file unnoticed.

    Examples
    --------
    >>> import secrets, tempfile
    >>> from dpsvm_fast import PublicScaler
    >>> from dpsvm_fast.persist import load_model, save_model
    >>> key = secrets.token_bytes(32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(PublicScaler((0, 10)).fit([[1.0, 2.0]]), f"{folder}/scaler.json", key=key)
    ...     scaler = load_model(f"{folder}/scaler.json", key=key)
    >>> scaler.transform([[5.0, 20.0]]).tolist()
    [[0.5, 1.0]]
    """
    return read_model(path, key=key, verify=verify, max_memory=max_memory).estimator


def read_model(
    path: PathLike,
    *,
    key: bytes | PathLike | None = None,
    verify: bool = True,
    max_memory: int = ROOM,
) -> SavedModel:
    """Load a saved model with its schema, statement and format.

    Parameters
    ----------
    path : str or path
    key, verify, max_memory
        As in :func:`load_model`.

    Returns
    -------
    SavedModel

    Raises
    ------
    ModelFormatError, OSError
        As in :func:`load_model`.

    Examples
    --------
    >>> import tempfile
    >>> from dpsvm_fast import PublicScaler
    >>> from dpsvm_fast.data import TableSchema
    >>> from dpsvm_fast.persist import read_model, save_model
    >>> schema = TableSchema.from_dict({"columns": {"age": {"bounds": [0, 100]}}})
    >>> scaler = PublicScaler(schema.bounds).fit([[30.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(scaler, f"{folder}/scaler.json", schema=schema)
    ...     saved = read_model(f"{folder}/scaler.json")
    >>> saved.schema.feature_names, saved.format_version
    (('age',), 5)
    """
    secret = checked_key(key)
    where = Path(check_path("path", path))
    room = check_integer("max_memory", max_memory, MIN_ROOM)
    try:
        document = document_of(where, room)
        signature = check_seals(document, secret)
        return _saved_model(document, signature, verify=verify)
    except ModelFormatError as error:
        raise ModelFormatError(f"{str(where)!r} {error}") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        # Exceptions of checks that meet a value of another type: the file is not a model.
        raise ModelFormatError(
            f"{str(where)!r} cannot be loaded: its contents are inconsistent"
        ) from None


def model_schema() -> dict[str, Any]:
    """Return the self-contained JSON Schema (draft 2020-12) of saved models.

    Returns
    -------
    dict
        A new copy. The readers of this library also check what a schema cannot express: array
        shapes implied by other attributes, and certificates.

    Examples
    --------
    >>> from dpsvm_fast.persist import model_schema
    >>> model_schema()["properties"]["format"]["const"]
    'dpsvm_fast.model'
    """
    known: dict[str, Any] = certificate_schema()["$defs"]
    certificate = {"anyOf": [kind.refer(known) for kind in Statement.members().values()]}
    named = {"$ref": "#/$defs/class"}
    known["class"] = {
        "description": "Class of the object: a word of a fixed table.",
        "enum": list(SAVED_CLASSES),
    }
    for name, fitted in (("unfitted", False), ("fitted", True)):
        own = {"$ref": f"#/$defs/{name}"}
        step = {
            "type": "array",
            "prefixItems": [{"type": "string"}, {"anyOf": [own, {"type": "null"}]}],
            "items": False,
            "minItems": 2,
        }
        properties: dict[str, Any] = {
            "class": named,
            "parameters": {"type": "object"},
            "output": {"enum": list(OUTPUTS)},
            "steps": {"type": "array", "minItems": 1, "items": step},
            "transformers": {"type": "array", "items": {"type": "array", "minItems": 3}},
            "remainder": {"anyOf": [own, {"enum": ["drop", NOTHING]}]},
            "estimator": {"$ref": "#/$defs/unfitted"},
        }
        if fitted:
            properties |= {
                "attributes": {"type": ["object", "null"]},
                "privacy": certificate,
                "best_estimator": own,
            }
        needed = ["class", "parameters", *(["attributes"] if fitted else [])]
        known[name] = _object(f"An object that was {'' if fitted else 'not '}fitted.", properties)
        known[name]["required"] = needed
    digest = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    document = _object(
        "A fitted model of dpsvm_fast with its certificate. It contains no code.",
        {
            "format": {"const": FORMAT},
            "version": {"type": "integer", "const": VERSION},
            "library_version": {"type": "string", "minLength": 1, "maxLength": LONGEST_VERSION},
            "model": {"$ref": "#/$defs/fitted"},
            "schema": {"type": ["object", "null"]},
            DIGEST: digest,
            SIGNATURE: digest,
        },
    )
    document["required"] = [name for name in document["properties"] if name != SIGNATURE]
    return {"$schema": DRAFT, "title": "Saved model", **document, "$defs": known}


def _object(description: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object without additional fields."""
    return {
        "description": description,
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _saved_model(document: Mapping[str, Any], signature: str, *, verify: bool) -> SavedModel:
    """Return the contents of a document whose digest and signature are checked."""
    version, described = document["library_version"], document["schema"]
    if not isinstance(version, str) or not 0 < len(version) <= LONGEST_VERSION:
        raise ModelFormatError(f"has the library_version {shown(version)}, expected a text")
    statements: Statements = []
    try:
        estimator = model_from(document["model"], "model", statements)
        schema = None if described is None else table_schema(described, where="schema: ")
        _check_table(estimator, schema)
        for where, statement in statements if verify else ():
            _check_holds(where, statement)
    except ModelFormatError as error:
        raise ModelFormatError(f"cannot be loaded: {error}") from None
    return SavedModel(estimator, schema, VERSION, version, signature)


def _check_table(estimator: Any, schema: TableSchema | None) -> None:
    """Check that rows of the table, if it is described, are valid for the model."""
    if schema is None:
        return
    encoder = leading_encoder(estimator)
    n_features = getattr(estimator, "n_features_in_", None)
    n_features = n_features if encoder is None else len(encoder.get_feature_names_out())
    if n_features not in (None, schema.n_features):
        raise ModelFormatError(
            f"schema: the table has {schema.n_features} features, the model {n_features}"
        )
    classes = getattr(estimator, "classes_", None)
    if classes is None or schema.classes is None:
        return
    if not _same_labels(schema.classes, classes):
        raise ModelFormatError("schema: the table and the model have different classes")
