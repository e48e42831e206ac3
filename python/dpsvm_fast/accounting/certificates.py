"""Certificates of every kind, read back as the statements that they were written from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpsvm_fast.accounting._certificate import read_json
from dpsvm_fast.accounting.bound import unbound
from dpsvm_fast.accounting.federated_statement import FederatedStatement
from dpsvm_fast.accounting.pipeline import PipelineStatement
from dpsvm_fast.accounting.selection import SelectionStatement
from dpsvm_fast.accounting.statement import PrivacyStatement
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["Statement", "read_certificate", "read_loosely"]

Statement = PrivacyStatement | PipelineStatement | SelectionStatement | FederatedStatement


def read_certificate(certificate: Mapping[str, Any] | str | Statement) -> Statement:
    """Read a certificate of any kind as the statement that it was written from.

    Parameters
    ----------
    certificate : statement, dict or str
        As of `verify`. The fields are checked; whether the promise holds is not.

    Returns
    -------
    PrivacyStatement, PipelineStatement, SelectionStatement or FederatedStatement

    Raises
    ------
    InvalidParameterError, TypeError
        It is no certificate that this release reads.

    Examples
    --------
    >>> from dpsvm_fast import PrivateCenter
    >>> from dpsvm_fast.accounting import read_certificate
    >>> statement = PrivateCenter(epsilon=1.0, delta=1e-6).fit([[0.6, 0.8], [0.0, 1.0]]).privacy_
    >>> read_certificate(statement.to_json()) == statement
    True
    """
    statement, record, _ = read_loosely(certificate)
    for problem in statement.word_problems(record):
        raise InvalidParameterError(problem)
    return statement


def read_loosely(
    certificate: Mapping[str, Any] | str | Statement,
) -> tuple[Statement, Mapping[str, Any], Mapping[str, Any] | None]:
    """Read a certificate, whatever its words say.

    Returns
    -------
    tuple
        The statement, its record, and where the certificate names a model the record with both.
    """
    record: Any = certificate
    if isinstance(certificate, str):
        record = read_json(certificate)
    elif isinstance(certificate, Statement):
        record = certificate.to_dict()
    record, bound = unbound(record)
    name = record.get("format") if isinstance(record, Mapping) else None
    others = (PipelineStatement, SelectionStatement, FederatedStatement)
    kinds: dict[Any, Any] = {kind.FORMAT: kind for kind in others}
    kind = kinds.get(name, PrivacyStatement) if isinstance(name, str) else PrivacyStatement
    return kind.read(record), record, bound
