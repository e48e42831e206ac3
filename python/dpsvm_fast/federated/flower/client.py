"""The client app of a party: its own specification, its own data, its own ledger."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from dpsvm_fast.accounting import PrivacyLedger
from dpsvm_fast.exceptions import PrivacyLeakWarning
from dpsvm_fast.federated.flower._journal import ContextJournal, FileJournal, Journal
from dpsvm_fast.federated.flower._party import make_party_app
from dpsvm_fast.federated.flower.terms import RoundTerms, terms_of_rounds
from dpsvm_fast.federated.local import local_update
from dpsvm_fast.federated.spec import FederatedSpec

__all__ = ["make_client_app"]

UNCOUNTED = (
    "ledger: none given, and no journal; every run that the server starts is answered, at the full "
    "privacy cost each time. Give a ledger that is kept in a file, or a journal."
)

Place: TypeAlias = "str | os.PathLike[str]"


def make_client_app(
    spec: FederatedSpec | Callable[[Context], FederatedSpec],
    load_data: Callable[[Context], tuple[Any, Any]],
    *,
    ledger: PrivacyLedger | Callable[[Context], PrivacyLedger] | None = None,
    journal: Place | Callable[[Context], Place] | None = None,
) -> Any:
    """Make the client app with which a party takes part in a training.

    Parameters
    ----------
    spec : FederatedSpec or callable
        The party's own copy, or a function of Flower's context that reads it. A server with
        another one gets nothing.
    load_data : callable
        Takes Flower's context and returns the party's rows and labels.
    ledger : PrivacyLedger or callable or None, default=None
        The party's own, asked before data are loaded and charged before noise is drawn. One that is
        kept in a file (``PrivacyLedger(..., path=...)``), or a function that opens it: Flower may
        start a process for every message, and a ledger in memory begins anew with each.
    journal : path or callable or None, default=None
        Directory for what was answered, over all runs: every round of a specification is answered
        once. Without it, every run of the server is answered, with noise of its own.

    Returns
    -------
    flwr.clientapp.ClientApp

    Raises
    ------
    HardeningError
        Flower's secure aggregation cannot be made safe here.

    Warns
    -----
    PrivacyLeakWarning
        Neither a ledger nor a journal: a server that starts N runs is answered N times, and the
        statement of each speaks of one.

    Notes
    -----
    Guarantees: those of the run's statement, against a server and up to
    ``spec.counts.colluders`` other parties that follow the protocol and are curious. The server
    learns the sum of at least ``spec.survivors_needed`` vectors, who took part, and one of a few
    constant texts where a party does not go on. See ``docs/secure_summation.md``.
    """
    if ledger is None and journal is None:
        warnings.warn(UNCOUNTED, PrivacyLeakWarning, stacklevel=2)

    def terms_of(context: Context) -> Mapping[str, RoundTerms]:
        return terms_of_rounds(_made(spec, context))

    def journal_of(context: Context) -> Journal:
        if journal is None:
            return ContextJournal(context)
        return FileJournal(journal(context) if callable(journal) else journal)

    def contribute(
        context: Context, terms: RoundTerms, public: NDArray[np.float64] | None
    ) -> NDArray[np.int64]:
        agreed = _made(spec, context)
        own_ledger = ledger(context) if callable(ledger) else ledger
        if own_ledger is not None:
            own_ledger.check(agreed.round(terms.name).events("secure_sum"))
        X, y = load_data(context)
        update = local_update(X, y, agreed, terms.name, public=public, ledger=own_ledger)
        return update.vector

    return make_party_app(terms_of, contribute, journal_of)


def _made(
    spec: FederatedSpec | Callable[[Context], FederatedSpec], context: Context
) -> FederatedSpec:
    return spec if isinstance(spec, FederatedSpec) else spec(context)
