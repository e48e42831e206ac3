"""The client of the secure sum: guard, Flower's hardened modifier, a function giving a vector."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.common import (
    Code,
    FitRes,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.compat.common import recorddict_compat
from numpy.typing import NDArray

from dpsvm_fast.federated.errors import PartyRefusedError
from dpsvm_fast.federated.flower._journal import ContextJournal, Journal
from dpsvm_fast.federated.flower._refusals import NO_CONTRIBUTION
from dpsvm_fast.federated.flower.guard import current_terms, make_guard
from dpsvm_fast.federated.flower.harden import CLIENT, harden
from dpsvm_fast.federated.flower.terms import RoundTerms

__all__ = ["Contribution", "checked_vector", "make_party_app"]

# (context, terms of the round, public array that came with the request) -> vector.
Contribution = Callable[[Context, RoundTerms, NDArray[np.float64] | None], NDArray[np.int64]]


def make_party_app(
    terms_of: Callable[[Context], Mapping[str, RoundTerms]],
    contribute: Contribution,
    journal_of: Callable[[Context], Journal] = ContextJournal,
) -> Any:
    """Make the client of a party.

    Parameters
    ----------
    terms_of : callable
        The party's own terms, by name of the round.
    contribute : callable
        Makes the vector of a round; called once a round at most. Whatever it raises reaches
        nobody but the party.
    journal_of : callable
        Where answered rounds are written down.

    Returns
    -------
    flwr.clientapp.ClientApp

    Raises
    ------
    HardeningError
        Flower's secure aggregation cannot be made safe here.
    """
    harden()
    app = ClientApp()
    guard = make_guard(terms_of, journal_of)
    secure_aggregation = sys.modules[CLIENT].secaggplus_mod

    def train(message: Message, context: Context) -> Message:
        terms = current_terms()
        vector = checked_vector(contribute(context, terms, _public_array(message)), terms)
        answer = FitRes(
            status=Status(code=Code.OK, message=""),
            parameters=ndarrays_to_parameters([vector]),
            # The number of records is part of the vector, and known to nobody.
            num_examples=1,
            metrics={},
        )
        content = recorddict_compat.fitres_to_recorddict(answer, keep_input=False)
        return Message(content, reply_to=message)

    app.train(mods=[guard, secure_aggregation])(train)
    return app


def checked_vector(vector: object, terms: RoundTerms) -> NDArray[np.int64]:
    """A vector as agreed on.

    Raises
    ------
    PartyRefusedError
        Another type, another shape, numbers out of range; the text is constant.
    """
    if not isinstance(vector, np.ndarray) or vector.dtype != np.int64:
        raise PartyRefusedError(NO_CONTRIBUTION)
    if vector.shape != (terms.length,) or vector[-1] != 1:
        raise PartyRefusedError(NO_CONTRIBUTION)
    # Not through abs: the smallest integer has none.
    if (vector <= -terms.limit).any() or (vector >= terms.limit).any():
        raise PartyRefusedError(NO_CONTRIBUTION)
    return vector


def _public_array(message: Message) -> NDArray[np.float64] | None:
    """The one array that may come with a request."""
    instructions = recorddict_compat.recorddict_to_fitins(message.content, keep_input=True)
    arrays = parameters_to_ndarrays(instructions.parameters)
    if not arrays:
        return None
    if len(arrays) != 1 or arrays[0].dtype != np.float64 or not np.isfinite(arrays[0]).all():
        raise PartyRefusedError(NO_CONTRIBUTION)
    return np.asarray(arrays[0], dtype=np.float64)
