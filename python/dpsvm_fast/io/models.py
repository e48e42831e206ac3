"""Saved models: JSON files that hold a fitted model, its certificate and its table's schema.

Loading one runs no code. The format is described in docs/model_format.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsvm_fast import _core
from dpsvm_fast.accounting.bound import bound_certificate
from dpsvm_fast.accounting.schema import certificate_schema
from dpsvm_fast.exceptions import InvalidParameterError, ModelFormatError
from dpsvm_fast.io._model_checks import same_labels
from dpsvm_fast.io._model_files import checked_key, read_bytes, write_bytes
from dpsvm_fast.io._model_record import Reading, check_certificates, model_from, record_of
from dpsvm_fast.io._model_text import (
    VERSION,
    check_seals,
    parsed,
    sealed_text,
    shown,
)

if TYPE_CHECKING:
    from dpsvm_fast.io import TableSchema

__all__ = [
    "SavedModel",
    "load_model",
    "model_schema",
    "read_model",
    "save_certificate",
    "save_model",
    "statement_of",
]

LONGEST_VERSION = 100

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class SavedModel:
    """What a file holds.

    Parameters
    ----------
    estimator : estimator
        The fitted model, with its certificate in ``privacy_``.
    schema : TableSchema or None
        Of the table that it was trained on, where it was saved with one.
    format_version : int
    library_version : str
        Of the release that wrote the file.
    signature : {"none", "not checked", "checked"}
        "not checked": the file is signed, and was read without the key. It is as good as unsigned.
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
        A fitted estimator or transformer of this library, a ``PrivateGridSearch``, or a Pipeline of
        them, ``Normalizer`` and ``HashingVectorizer``.
    path : str or path
        An existing file is replaced once the new one is complete.
    schema : TableSchema or None, default=None
        Of the table that the model was trained on; saved with it.
    key : bytes, path of a file with them, or None, default=None
        Secret of 16 bytes or more: the file is signed with HMAC-SHA256, and whoever loads it with
        the key notices every change. The key is not saved.

    Raises
    ------
    InvalidParameterError
        A class that cannot be saved, a parameter that was changed after the fit, or a schema of
        another table.
    NotFittedError
        The model is not fitted.
    OSError
        The file cannot be written.

    Notes
    -----
    Guarantees: what is written is a fixed list of parameters and fitted attributes for each class,
    and nothing else of the object. All of it is public or was released by the fit, so that the file
    is as private as the model. Not saved: the ledger, ``n_threads``, the seed of private noise
    (whoever knows it can subtract the noise; a seeded model stays marked NOT PRIVATE) and the state
    that ``partial_fit`` goes on from.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.io import load_model, save_model
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
        # What could not be loaded is not saved. The certificate comes from this object's own fit.
        made = model_from(record, "model", Reading(verified=False))
        if schema is not None:
            _check_table(made, schema)
    except ModelFormatError as error:
        raise InvalidParameterError(f"{error}; set it back or fit again before saving") from None
    contents = {
        "library_version": _core.build_info()["version"],
        "model": record,
        "schema": described,
    }
    write_bytes(Path(path), sealed_text(contents, secret))


def save_certificate(
    model: PathLike, path: PathLike, *, key: bytes | PathLike | None = None
) -> None:
    """Save the certificate of a saved model, bound to the model by a digest of it.

    Parameters
    ----------
    model : str or path
        File that :func:`save_model` wrote.
    path : str or path
        An existing file is replaced once the new one is complete.
    key : bytes, path of a file with them, or None, default=None
        Secret of 16 bytes or more: the digest and the certificate are signed with HMAC-SHA256. It
        need not be that of the model.

    Raises
    ------
    InvalidParameterError
        The model has no certificate, as public transformers.
    ModelFormatError, OSError
        As of :func:`load_model`.

    Notes
    -----
    Guarantees: ``verify(certificate, model=..., key=...)`` is true only for the model of that
    digest: its class, parameters, numbers and certificate. Without a key, whoever replaces the
    model can write another digest.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from dpsvm_fast import PrivateCenter, verify
    >>> from dpsvm_fast.io import save_certificate, save_model
    >>> centre = PrivateCenter(1.0).fit([[0.6, 0.8], [0.0, 1.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model, certificate = f"{folder}/centre.json", f"{folder}/certificate.json"
    ...     save_model(centre, model)
    ...     save_certificate(model, certificate)
    ...     found = verify(Path(certificate).read_text(), model=model)
    >>> found.ok, found.matches[-1]
    (True, 'noisy sums and their shapes')
    """
    where = Path(model)
    document = parsed(read_bytes(where))
    estimator = read_model(where, verify=False).estimator
    statement = statement_of(estimator)
    record = bound_certificate(statement.to_dict(), document, checked_key(key))
    write_bytes(Path(path), json.dumps(record, indent=2, allow_nan=False).encode("ascii") + b"\n")


def statement_of(model: Any) -> Any:
    """Return the promise of a fitted estimator, or of all steps of a pipeline together."""
    if hasattr(model, "privacy_"):
        return model.privacy_
    steps = [step for _, step in getattr(model, "steps", ()) if hasattr(step, "privacy_")]
    if len(steps) == 1:
        return steps[0].privacy_
    from dpsvm_fast.pipelines import total_privacy

    return total_privacy(model)


def load_model(path: PathLike, *, key: bytes | PathLike | None = None, verify: bool = True) -> Any:
    """Load the model of a file that :func:`save_model` wrote.

    Parameters
    ----------
    path : str or path
    key : bytes, path of a file with them, or None, default=None
        The key that the file was signed with; with one, an unsigned file is refused. None checks no
        signature, also of a signed file: ``read_model(path).signature`` says so.
    verify : bool, default=True
        Whether to recompute the certificate's epsilon and delta, which takes some seconds for
        searches and for noise inside an objective. False is for files that were checked before.

    Returns
    -------
    estimator
        Predictions and scores are those of the saved model, to the last bit.

    Raises
    ------
    ModelFormatError
        The file is no model that this release reads, was changed after it was saved, or its
        certificate does not hold. The text says what to do.
    OSError
        The file cannot be read.

    Notes
    -----
    Guarantees: no code out of the file is run and nothing is imported because of it; every value
    is checked before it is used. Without a key, the digest in the file shows accidents and careless
    edits only: whoever changes a file on purpose can write a new digest. With a key, nobody who
    does not have it can change the file unnoticed.

    Examples
    --------
    >>> import secrets, tempfile
    >>> from dpsvm_fast import PublicScaler
    >>> from dpsvm_fast.io import load_model, save_model
    >>> key = secrets.token_bytes(32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(PublicScaler((0, 10)).fit([[1.0, 2.0]]), f"{folder}/scaler.json", key=key)
    ...     scaler = load_model(f"{folder}/scaler.json", key=key)
    >>> scaler.transform([[5.0, 20.0]]).tolist()
    [[0.5, 1.0]]
    """
    return read_model(path, key=key, verify=verify).estimator


def read_model(
    path: PathLike, *, key: bytes | PathLike | None = None, verify: bool = True
) -> SavedModel:
    """Load everything that a file of :func:`save_model` holds.

    Parameters
    ----------
    path : str or path
    key, verify
        As of :func:`load_model`.

    Returns
    -------
    SavedModel

    Raises
    ------
    ModelFormatError, OSError
        As :func:`load_model`.

    Examples
    --------
    >>> import tempfile
    >>> from dpsvm_fast import PublicScaler
    >>> from dpsvm_fast.io import TableSchema, read_model, save_model
    >>> schema = TableSchema.from_dict({"columns": {"age": {"bounds": [0, 100]}}})
    >>> scaler = PublicScaler(schema.bounds).fit([[30.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(scaler, f"{folder}/scaler.json", schema=schema)
    ...     saved = read_model(f"{folder}/scaler.json")
    >>> saved.schema.feature_names, saved.format_version
    (('age',), 1)
    """
    secret = checked_key(key)
    where = Path(path)
    try:
        document = parsed(read_bytes(where))
        signature = check_seals(document, secret)
        return _saved_model(document, signature, Reading(verified=verify))
    except ModelFormatError as error:
        raise ModelFormatError(f"{str(where)!r} {error}") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        # Checks of one value that meet another one: whatever they say, it is no model.
        raise ModelFormatError(
            f"{str(where)!r} cannot be loaded: what is in it does not go together"
        ) from None


def model_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of saved models, complete in itself.

    Returns
    -------
    dict
        A new copy. Readers of this library are stricter in what a schema cannot say: arrays have
        the shapes that the other attributes ask for, and certificates hold.

    Examples
    --------
    >>> from dpsvm_fast.io import model_schema
    >>> model_schema()["properties"]["format"]["const"]
    'dpsvm_fast.model'
    """
    path = files("dpsvm_fast.io") / "schemas" / "model.v1.json"
    schema: dict[str, Any] = json.loads(path.read_text("utf-8"))
    certificates = certificate_schema()
    return schema | {"$defs": schema["$defs"] | certificates["$defs"]}


def _saved_model(document: Mapping[str, Any], signature: str, reading: Reading) -> SavedModel:
    """The contents of a document whose seals have been checked."""
    version = document["library_version"]
    if not isinstance(version, str) or not 0 < len(version) <= LONGEST_VERSION:
        raise ModelFormatError(f"has the library_version {shown(version)}, expected a text")
    try:
        estimator = model_from(document["model"], "model", reading)
        schema = _schema_from(document["schema"], estimator)
        check_certificates(reading)
    except ModelFormatError as error:
        raise ModelFormatError(f"cannot be loaded: {error}") from None
    return SavedModel(estimator, schema, VERSION, version, signature)


def _schema_from(record: Any, estimator: Any) -> TableSchema | None:
    """The table's schema, which must be that of the model's features."""
    if record is None:
        return None
    from dpsvm_fast.io.schema import OF_MODEL, TableSchema

    try:
        schema = TableSchema.from_dict(record, origin=OF_MODEL)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelFormatError(f"schema: {error}") from None
    _check_table(estimator, schema)
    return schema


def _check_table(estimator: Any, schema: Any) -> None:
    """Whether rows of the table are rows for the model."""
    n_features = getattr(estimator, "n_features_in_", None)
    if n_features not in (None, schema.n_features):
        raise ModelFormatError(
            f"schema: the table has {schema.n_features} features and the model {n_features}"
        )
    classes = getattr(estimator, "classes_", None)
    if classes is None or schema.classes is None:
        return
    if not same_labels(schema.classes, classes):
        raise ModelFormatError("schema: the table declares other classes than the model has")
