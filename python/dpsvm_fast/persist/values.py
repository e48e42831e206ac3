"""Values of saved models as strict JSON: exact arrays, digest, signature."""

from __future__ import annotations

import base64
import hmac
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.certificates.record import (
    Options,
    Range,
    Record,
    check_size,
    exactly,
    loads,
)
from dpsvm_fast.certificates.statement import digest_of, signature_of
from dpsvm_fast.exceptions import InvalidParameterError, ModelFormatError
from dpsvm_fast.files import MEMORY_ADVICE, ROOM, read_bytes

# Arrays, labels and parameters as JSON values, and back: exact to the last bit.


# Little-endian: the same bytes on every machine.
FLOATS = "<f8"
# Most characters of all labels, each counted as long as the longest.
MAX_CHARACTERS = 1 << 24
# Most axes of an array among parameters.
MAX_AXES = 8
# Label sets: their types, and what JSON has for them.
LABEL_TYPES: dict[str, type] = {
    "bool": bool,
    "str": str,
    "float64": float,
    "float32": float,
    **{f"{sign}int{bits}": int for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

Shape = tuple[int | None, ...]
# Type of a value read from a file.
Read = TypeVar("Read")


@dataclass(frozen=True)
class NumbersRecord(Record):
    """Array of finite little-endian IEEE 754 doubles in C order, encoded in base64.

    Parameters
    ----------
    dtype : {"<f8"}
        Type of one number.
    shape : tuple of int
        Lengths of the axes.
    data : str
        The bytes.
    """

    dtype: Annotated[str, Options(FLOATS)]
    shape: tuple[Annotated[int, Range(0)], ...]
    data: str


def refused(function: Callable[..., Read], *arguments: Any, where: str = "") -> Read:
    """Return a function's result; turn its errors into errors about the file."""
    try:
        return function(*arguments)
    except (TypeError, InvalidParameterError) as error:
        raise ModelFormatError(f"{where}{error}") from None


def numbers_to(values: Any) -> dict[str, Any]:
    """Write an array of floats as type, shape, and bytes in base64."""
    array = np.ascontiguousarray(values, dtype=FLOATS)
    data = base64.b64encode(array.tobytes()).decode("ascii")
    return {"dtype": FLOATS, "shape": list(np.shape(values)), "data": data}


def numbers_from(where: str, record: object, shape: Shape) -> NDArray[np.float64]:
    """Read the array that :func:`numbers_to` wrote.

    Parameters
    ----------
    where : str
        For messages.
    record : object
    shape : tuple of int or None
        Expected shape; None for any length from 1.
    """
    made: NumbersRecord = refused(NumbersRecord.read, record, where=f"{where}: ")
    given = made.shape
    fits = len(given) == len(shape) and all(
        n > 0 if expected is None else n == expected
        for n, expected in zip(given, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise ModelFormatError(
            f"{where}: got the shape ({', '.join(map(shown, given[:5]))}), expected ({wanted})"
        )
    try:
        raw = base64.b64decode(made.data, validate=True)
    except ValueError:
        raise ModelFormatError(f"{where}: expected bytes in base64") from None
    if len(raw) != 8 * math.prod(given):
        raise ModelFormatError(f"{where}: got {len(raw)} bytes, expected those of its shape")
    array = np.frombuffer(raw, dtype=FLOATS).astype(np.float64).reshape(given)
    if not np.isfinite(array).all():
        raise ModelFormatError(f"{where}: expected finite numbers")
    return array


def labels_to(labels: NDArray[Any]) -> dict[str, Any]:
    """Write a label set as type and plain values."""
    kind = "str" if labels.dtype.kind == "U" else labels.dtype.name
    if kind not in LABEL_TYPES:
        raise InvalidParameterError(
            f"model: got labels of type {kind}, expected ints, strings, bools or whole floats"
        )
    return {"dtype": kind, "values": labels.tolist()}


def labels_from(where: str, record: object) -> NDArray[Any]:
    """Read the sorted label set that :func:`labels_to` wrote."""
    made = refused(exactly, where, record, {"dtype", "values"})
    kind, values = made["dtype"], made["values"]
    expected = LABEL_TYPES.get(kind) if isinstance(kind, str) else None
    if expected is None:
        raise ModelFormatError(f"{where}: got labels of type {shown(kind)}, which no model has")
    if not isinstance(values, list) or not all(type(value) is expected for value in values):
        raise ModelFormatError(f"{where}: expected a list of labels of one type")
    if kind == "str" and len(values) * max(map(len, values), default=0) > MAX_CHARACTERS:
        raise ModelFormatError(f"{where}: expected shorter labels, or fewer of them")
    # NumPy 1 wraps such numbers around.
    if expected is int and not all(np.iinfo(kind).min <= x <= np.iinfo(kind).max for x in values):
        raise ModelFormatError(f"{where}: a label is outside the range of its type")
    labels = np.array(values, dtype=None if kind == "str" else kind)
    if labels.tolist() != values or not (labels[1:] > labels[:-1]).all():
        raise ModelFormatError(f"{where}: expected sorted labels without repetitions")
    if labels.size < 2 or (expected is float and not (labels == np.floor(labels)).all()):
        raise ModelFormatError(
            f"{where}: expected at least two labels; float labels must be whole numbers"
        )
    return labels


def plain_to(where: str, value: Any) -> Any:
    """Write a parameter of any plain type, tagged if JSON has no form for it.

    Raises
    ------
    InvalidParameterError
        The value is not plain, for example a function.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuU":
        value = value.tolist()
    if isinstance(value, (list, range)):
        return [plain_to(where, item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [plain_to(where, item) for item in value]}
    if isinstance(value, dict):
        return {"pairs": [[plain_to(where, part) for part in pair] for pair in value.items()]}
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return {"numbers": numbers_to(value)}
    raise InvalidParameterError(
        f"{where}: got {type(value).__name__}, expected finite numbers, strings, lists, tuples, "
        "dicts or arrays of them, as only those can be saved"
    )


def plain_from(where: str, record: Any) -> Any:
    """Read the parameter that :func:`plain_to` wrote."""
    if isinstance(record, list):
        return [plain_from(where, item) for item in record]
    if not isinstance(record, dict):
        return record
    if set(record) == {"tuple"} and isinstance(record["tuple"], list):
        return tuple(plain_from(where, item) for item in record["tuple"])
    if set(record) == {"numbers"}:
        inner = record["numbers"]
        shape = inner.get("shape") if isinstance(inner, dict) else None
        n_axes = len(shape) if isinstance(shape, list) and len(shape) <= MAX_AXES else 0
        return numbers_from(where, inner, (None,) * n_axes)
    if set(record) == {"pairs"} and isinstance(record["pairs"], list):
        found: dict[Any, Any] = {}
        for pair in record["pairs"]:
            if not isinstance(pair, list) or len(pair) != 2:
                raise ModelFormatError(f"{where}: expected pairs")
            key, value = (plain_from(where, part) for part in pair)
            if not isinstance(key, (bool, int, float, str)) or key in found:
                raise ModelFormatError(f"{where}: expected different plain keys")
            found[key] = value
        return found
    raise ModelFormatError(f"{where}: expected a plain value, list, tuple, pairs or array")


FORMAT = "dpsvm_fast.model"

VERSION = 5


DIGEST, SIGNATURE = "sha256", "hmac_sha256"
# Results of checking a file's signature.
UNSIGNED, NOT_CHECKED, CHECKED = ("none", "not checked", "checked")

FIELDS = ("format", "version", "library_version", "model", "schema")


def shown(value: object) -> str:
    """Return a value from a file as short text without control characters, for messages."""
    if isinstance(value, str):
        value = value[:50]
    if isinstance(value, int) and value.bit_length() > 200:
        return "a long number"
    if isinstance(value, (str, int, float)) or value is None:
        text = ascii(value)
        return text if len(text) <= 40 else f"{text[:40]}..."
    return "an object" if isinstance(value, dict) else "a list"


def document_of(path: Path, room: int = ROOM) -> dict[str, Any]:
    """Read a file as JSON, before format, version and digest are checked.

    Parameters
    ----------
    path : Path
    room : int, default=2**28
        Most bytes of memory that this may take.

    Raises
    ------
    ModelFormatError
        The file is not one JSON object, or may take more memory.
    OSError
        The file cannot be read.
    """
    data = read_bytes(path, room=room)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ModelFormatError("is not text; expected a file that save_model wrote") from None
    # A large file need not be in memory twice.
    del data
    if not text.strip():
        raise ModelFormatError("is empty; expected a file that save_model wrote")
    try:
        check_size(text, room)
    except ValueError as error:
        raise ModelFormatError(f"{error}; {MEMORY_ADVICE}") from None
    try:
        document = loads(text, room)
    except json.JSONDecodeError as error:
        raise ModelFormatError(_no_json(text, error)) from None
    except ValueError as error:
        raise ModelFormatError(f"{error}; save_model writes no such file") from None
    if not isinstance(document, dict):
        raise ModelFormatError("is not a JSON object; expected a file that save_model wrote")
    return document


def check_seals(document: Mapping[str, Any], key: bytes | None) -> str:
    """Check format, version, fields, digest and signature.

    Returns
    -------
    str
        ``UNSIGNED``, ``NOT_CHECKED`` or ``CHECKED``.

    Raises
    ------
    ModelFormatError
    """
    if document.get("format") != FORMAT:
        got = shown(document.get("format"))
        hint = "; a certificate is for verify" if "certificate" in got else ""
        raise ModelFormatError(f"has the format {got}, expected {FORMAT!r}{hint}")
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        newer, what = type(version) is int and version > VERSION, shown(version)
        remedy = "pip install --upgrade dpsvm-fast" if newer else "fit again"
        raise ModelFormatError(
            f"was written by {'a newer' if newer else 'another'} dpsvm_fast (format {what}; this "
            f"version reads {VERSION}): {remedy}"
        )
    wrong = set(document) ^ {*FIELDS, DIGEST, SIGNATURE}
    wrong -= {SIGNATURE} - set(document)
    if wrong:
        names = ", ".join(map(shown, sorted(wrong)[:5])) + (", ..." if len(wrong) > 5 else "")
        raise ModelFormatError(f"has missing or unknown fields: {names}")
    contents = {name: document[name] for name in FIELDS}
    if not _same(document[DIGEST], digest_of(contents)):
        raise ModelFormatError(
            "was changed or damaged after saving: its SHA-256 does not match; copy the original "
            "file again"
        )
    if key is None:
        return NOT_CHECKED if SIGNATURE in document else UNSIGNED
    if SIGNATURE not in document:
        raise ModelFormatError("is not signed; load it without key, or save it with the key")
    if not _same(document[SIGNATURE], signature_of(contents, key)):
        raise ModelFormatError(
            "was not signed with this key, or was changed since; expected the key it was saved with"
        )
    return CHECKED


def sealed_text(contents: Mapping[str, Any], key: bytes | None) -> bytes:
    """Return the text of a file: contents, format, version, digest and, with a key, signature."""
    document = {"format": FORMAT, "version": VERSION, **contents}
    seals = {DIGEST: digest_of(document)}
    if key is not None:
        seals[SIGNATURE] = signature_of(document, key)
    return json.dumps(document | seals, indent=1, allow_nan=False).encode("ascii") + b"\n"


def _same(stated: object, computed: str) -> bool:
    """Compare two texts in constant time."""
    return isinstance(stated, str) and hmac.compare_digest(
        stated.encode("utf-8", "surrogatepass"), computed.encode()
    )


def _no_json(text: str, error: json.JSONDecodeError) -> str:
    """Describe why a text is not JSON."""
    if not text.lstrip().startswith("{"):
        return "is not JSON; expected a file that save_model wrote"
    if not text.rstrip().endswith("}") or error.pos >= len(text.rstrip()):
        return "is cut off; copy or save it again"
    return f"is not JSON from line {error.lineno} on; copy the original file again"
