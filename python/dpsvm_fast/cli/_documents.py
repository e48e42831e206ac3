"""Files that make a promise: certificates, and models with theirs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsvm_fast import _strict_json
from dpsvm_fast.cli._errors import CommandError, note
from dpsvm_fast.exceptions import ModelFormatError

if TYPE_CHECKING:
    from dpsvm_fast.io import SavedModel

__all__ = ["Document", "certificate_text", "opened_model", "plain_model", "read_document"]

MODEL, BOUND = "dpsvm_fast.model", "dpsvm_fast.bound_certificate"
# A certificate is smaller; more would be another kind of file.
LARGEST_FILE = 1 << 25


@dataclass(frozen=True)
class Document:
    """What a file promises.

    Parameters
    ----------
    path : Path
    certificate : str
        JSON text; not checked yet.
    is_model : bool
        Whether it was part of a saved model.
    sha256 : str
        Of the file.
    signature : str or None, default=None
        Of a saved model or of a certificate with the digest of one, as of ``SavedModel``.
    whole : str or None, default=None
        A certificate with the digest of a model.
    key : bytes or None, default=None
        That ``whole`` was signed with.
    """

    path: Path
    certificate: str
    is_model: bool
    sha256: str
    signature: str | None = None
    whole: str | None = None
    key: bytes | None = None

    @property
    def text(self) -> str:
        """What ``verify`` takes: with the digest of a model where there is one."""
        return self.certificate if self.whole is None else self.whole

    @property
    def record(self) -> Any:
        """The certificate as plain values."""
        return json.loads(self.certificate)


def read_document(path: Path, key: Path | None) -> Document:
    """Read a certificate or the certificate of a saved model.

    Parameters
    ----------
    path : Path
    key : Path or None
        Key of a signed model or certificate.

    Raises
    ------
    CommandError
        The file cannot be read, or is no JSON text.
    ModelFormatError
        It is a model and damaged.
    """
    from dpsvm_fast.io._model_files import read_bytes

    try:
        data = read_bytes(path)
        # What may be a model is judged as one: its arrays may be large.
        is_model = b'"' + MODEL.encode() + b'"' in data
        if not is_model and len(data) > LARGEST_FILE:
            raise ModelFormatError("is too large for a certificate")
        text = data.decode("utf-8-sig")
        record = None
        if not is_model:
            _strict_json.check_size(text)
            record = json.loads(text)
    except OSError as error:
        reason = str(error).partition(f"{str(path)!r}: ")[2] or str(error)
        raise CommandError(f"{path} cannot be read: {reason}") from error
    except ModelFormatError as error:
        raise CommandError(f"{path} cannot be read: it {error}") from error
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} cannot be read: {_not_json(error)}") from error
    digest = hashlib.sha256(data).hexdigest()
    if is_model:
        # Whether its certificate holds is not asked yet.
        saved = opened_model(path, key)
        from dpsvm_fast.io.models import statement_of

        text = statement_of(saved.estimator).to_json()
        return Document(path, text, is_model=True, sha256=digest, signature=saved.signature)
    if isinstance(record, dict) and record.get("format") == BOUND:
        return _bound(path, text, record, digest, key)
    if key is not None:
        raise CommandError(f"--key: got a key, and {path} is no model that could be signed")
    return Document(path, text, is_model=False, sha256=digest)


def _bound(
    path: Path, text: str, record: dict[str, Any], digest: str, key: Path | None
) -> Document:
    """A certificate that names a model by its digest."""
    from dpsvm_fast.io._model_files import checked_key
    from dpsvm_fast.io._model_text import CHECKED, NOT_CHECKED, UNSIGNED

    signed = record.get("hmac_sha256") is not None
    state = (NOT_CHECKED if key is None else CHECKED) if signed else UNSIGNED
    inner = json.dumps(record.get("certificate"))
    secret = checked_key(key)
    return Document(
        path, inner, is_model=False, sha256=digest, signature=state, whole=text, key=secret
    )


def opened_model(path: Path, key: Path | None, *, quiet: bool = False) -> SavedModel:
    """A saved model whose certificate is not recomputed; told is a signature that nobody checks.

    Raises
    ------
    ModelFormatError, OSError
        As of ``read_model``.
    """
    from dpsvm_fast.io import read_model
    from dpsvm_fast.io._model_text import NOT_CHECKED

    saved = read_model(path, key=key, verify=False)
    if saved.signature == NOT_CHECKED and not quiet:
        note(f"warning: {path}: is signed, and the signature is not checked; give --key FILE")
    return saved


def certificate_text(statement: Any, model: Path, key: Path | None = None) -> str:
    """The certificate of a saved model as it is given away: with its digest, signed with a key."""
    from dpsvm_fast.accounting.bound import bound_certificate
    from dpsvm_fast.io._model_files import checked_key

    record = bound_certificate(statement.to_dict(), plain_model(model), checked_key(key))
    return json.dumps(record, indent=2, allow_nan=False) + "\n"


def plain_model(path: Path) -> dict[str, Any]:
    """What the file of a model holds, as ``verify`` compares it.

    Raises
    ------
    ModelFormatError, OSError
        As of ``read_model``.
    """
    from dpsvm_fast.io import ModelFormatError
    from dpsvm_fast.io._model_files import read_bytes
    from dpsvm_fast.io._model_text import parsed

    try:
        return parsed(read_bytes(path))
    except ModelFormatError as error:
        raise ModelFormatError(f"{str(path)!r} {error}") from None


def _is_cut(error: json.JSONDecodeError) -> bool:
    """Whether nothing but the end of the text is wrong: behind a value, or within a string."""
    return error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")


def _not_json(error: Exception) -> str:
    """Why a file is no JSON text, and what to do."""
    if isinstance(error, json.JSONDecodeError) and error.doc.strip() and _is_cut(error):
        return "its JSON text ends too early; copy or download the whole file again"
    return (
        "it is not JSON text; expected a file with what model.privacy_.to_json() returns, or a "
        "saved model"
    )
