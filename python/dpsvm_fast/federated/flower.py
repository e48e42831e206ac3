"""Federated training over a network: Flower transports the messages of the secure sum.

Flower is optional and only transports bytes between server and parties. The messages, replies and
refusals are defined in ``protocol.py``, ``party.py`` and ``server.py``. Threat model:
``docs/federated.md``.

Importing this module disables Flower's telemetry and gives Flower a private home directory, unless
the environment sets them or Flower is already imported, because Flower reads both on import.
Processes that Flower starts (SuperLink, SuperNode) need ``FLWR_TELEMETRY_ENABLED=0`` and
``FLWR_HOME`` in their own environment.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.exceptions import InvalidParameterError, PrivacyLeakWarning, SecureSumAborted
from dpsvm_fast.federated.classifier import FederatedLinearSVC, finalize, public_state
from dpsvm_fast.federated.local import local_update
from dpsvm_fast.federated.secsum import SumResult
from dpsvm_fast.federated.spec import FederatedSpec
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.validation import (
    check_integer,
    check_non_negative,
    check_option,
    check_positive,
)

__all__ = ["make_client_app", "make_server_app", "run_secure_round", "run_training"]


def require(*modules: str) -> None:
    """Raise an error that says what to install if an optional dependency is missing."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"secure sums need {' and '.join(missing)} (Python 3.11 or newer): "
            'pip install "dpsvm-fast[federated]"'
        )


def _prepare_environment() -> None:
    """Keep Flower from sending telemetry and from writing into the user's home."""
    if "flwr" in sys.modules:
        return
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    if "FLWR_HOME" not in os.environ:
        home = tempfile.mkdtemp(prefix="dpsvm-fast-flwr-")
        os.environ["FLWR_HOME"] = home
        atexit.register(shutil.rmtree, home, ignore_errors=True)


require("flwr", "cryptography")
_prepare_environment()
with warnings.catch_warnings():
    # Deprecations among Flower's own dependencies do not concern users.
    warnings.simplefilter("ignore", DeprecationWarning)
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    from dpsvm_fast.federated.party import FileJournal, Party
    from dpsvm_fast.federated.protocol import RoundTerms
    from dpsvm_fast.federated.server import sum_of_parties

# A message of Flower has one record of this name, and in it the bytes of one of ours.
RECORD = "dpsvm_fast"
MESSAGE_TYPE = "train"

Place: TypeAlias = "str | os.PathLike[str]"


def _wrapped(data: bytes) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({"message": data})})


def _unwrapped(message: Message) -> bytes:
    """Return the bytes in a Flower message; empty if it has other contents."""
    if not message.has_content():
        return b""
    data = message.content.config_records.get(RECORD, {}).get("message")
    return data if isinstance(data, bytes) else b""


def _given(value: Any, context: Context) -> Any:
    """Return a value, or what a function of Flower's context returns."""
    return value(context) if callable(value) else value


UNCOUNTED = (
    "ledger: got neither a ledger nor a journal, so this party answers every run of the server at "
    "the full privacy cost; give a ledger in a file, or a journal"
)


def make_client_app(
    spec: FederatedSpec | Callable[[Context], FederatedSpec],
    load_data: Callable[[Context], tuple[Any, ...]],
    *,
    ledger: PrivacyLedger | Callable[[Context], PrivacyLedger] | None = None,
    journal: Place | Callable[[Context], Place] | None = None,
) -> Any:
    """Return the client app of a party.

    Parameters
    ----------
    spec : FederatedSpec or callable
        The party's own copy, or a function of Flower's context that returns it. A server with
        another specification gets no answer.
    load_data : callable
        Function of Flower's context that returns the party's rows and labels, and the person ids if
        ``local_update`` needs ``groups``.
    ledger : PrivacyLedger or callable or None, default=None
        The party's own ledger, checked before data are loaded and charged before noise is drawn.
        Use a ledger in a file (``PrivacyLedger(..., path=...)``), or a function that opens it:
        Flower may start a process for every message, and a ledger in memory would start anew in
        each.
    journal : path or callable or None, default=None
        Directory that records answered rounds over all runs, so that every round of a specification
        is answered once. Without it, every run of the server is answered, with fresh noise.

    Returns
    -------
    flwr.clientapp.ClientApp

    Warns
    -----
    PrivacyLeakWarning
        There is neither a ledger nor a journal: the party answers every run of a server, and each
        statement covers only one run.

    Notes
    -----
    Guarantees: those of the run's statement, against an honest-but-curious server and up to
    ``spec.colluders`` honest-but-curious parties. The server learns the sum of at least
    ``spec.survivors_needed`` vectors, which parties took part, and one of a few constant messages
    if a party stops. See ``docs/federated.md``.
    """
    if ledger is None and journal is None:
        warnings.warn(UNCOUNTED, PrivacyLeakWarning, stacklevel=2)

    app = ClientApp()

    def party_of(context: Context) -> Party:
        def contribute(terms: RoundTerms, public: NDArray[np.float64] | None) -> NDArray[np.int64]:
            own_ledger, own_spec = _given(ledger, context), _given(spec, context)
            if own_ledger is not None:
                events = own_spec.round(terms.name).events("secure_sum")
                own_ledger.check(events, unit=own_spec.unit)
            X, y, *ids = load_data(context)
            own: dict[str, Any] = {"groups": ids[0] if ids else None, "ledger": own_ledger}
            update = local_update(X, y, own_spec, terms.name, public=public, **own)
            return update.vector

        return Party(
            number=context.node_id,
            terms=lambda: RoundTerms.of_rounds(_given(spec, context)),
            contribute=contribute,
            journal=lambda: None if journal is None else FileJournal(_given(journal, context)),
        )

    def answer(message: Message, context: Context) -> Message:
        # Flower keeps a party's state for one run; another run begins with an empty one.
        records = context.state.config_records
        state = records[RECORD]["state"] if RECORD in records else b""
        state, reply = party_of(context).respond(state, _unwrapped(message))
        records[RECORD] = ConfigRecord({"state": state})
        return Message(_wrapped(reply), reply_to=message)

    app.train()(answer)
    return app


Seconds: TypeAlias = "float | Callable[[Context], float]"

# Seconds between checks of who is connected.
POLL_SECONDS = 1.0


def make_server_app(
    spec: FederatedSpec | Callable[[Context], FederatedSpec],
    *,
    on_result: Callable[[FederatedLinearSVC, Context], None],
    timeout: Seconds = 120.0,
    wait: Seconds = 300.0,
    attempts: int = 2,
) -> Any:
    """Return the server app of a training.

    Parameters
    ----------
    spec : FederatedSpec or callable
        Specification, or a function of Flower's context that returns it. Parties with another one
        refuse.
    on_result : callable
        Function of the fitted classifier and Flower's context that stores the classifier.
    timeout : float or callable, default=120.0
        Seconds to wait in each stage of a secure sum.
    wait : float or callable, default=300.0
        Seconds to wait for all parties; after that, those present must suffice.
    attempts : int, default=2
        Number of attempts to start a round, as long as no party has sent its vector.

    Returns
    -------
    flwr.serverapp.ServerApp
        App whose main function raises all errors, so that Flower reports the run as failed:
        :class:`SecureSumAborted` with stage and number of remaining parties,
        ``InconsistentSumError`` for an invalid sum.
    """
    check_integer("attempts", attempts, 1)
    app = ServerApp()

    def main(grid: Any, context: Context) -> None:
        agreed = _given(spec, context)
        pause = check_non_negative("wait", _given(wait, context))
        seconds = check_positive("timeout", _given(timeout, context))
        parties = _parties(grid, agreed, pause)
        model = run_training(grid, agreed, parties, timeout=seconds, attempts=attempts)
        on_result(model, context)

    app.main()(main)
    return app


def run_training(
    grid: Any,
    spec: FederatedSpec,
    node_ids: Sequence[int],
    *,
    timeout: float = 120.0,
    attempts: int = 2,
) -> FederatedLinearSVC:
    """Run all rounds of a training.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    spec : FederatedSpec
    node_ids : sequence of int
        Node ids of the parties; those that drop out of one round are asked again in the next.
    timeout, attempts
        As in :func:`run_secure_round`.

    Returns
    -------
    FederatedLinearSVC
        Classifier with its statement ``privacy_``.

    Raises
    ------
    SecureSumAborted, InconsistentSumError
        As in :func:`run_secure_round`.
    """
    results: dict[str, SumResult] = {}
    for plan in spec.rounds:
        results[plan.name] = run_secure_round(
            grid,
            spec,
            plan.name,
            node_ids,
            public=public_state(spec, results),
            timeout=timeout,
            attempts=attempts,
        )
    return finalize(results, spec)


def run_secure_round(
    grid: Any,
    spec: FederatedSpec,
    round_name: str,
    node_ids: Sequence[int],
    *,
    public: NDArray[np.float64] | None = None,
    timeout: float = 120.0,
    attempts: int = 2,
) -> SumResult:
    """Run one round of a training: one secure sum.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    spec : FederatedSpec
    round_name : str
        A name of ``spec.rounds``.
    node_ids : sequence of int
        Parties to ask.
    public : ndarray of float64 or None
        Result of earlier rounds, sent to every party.
    timeout : float, default=120.0
        Seconds to wait in each stage.
    attempts : int, default=2
        Number of attempts to start, as long as no party has sent its vector.

    Returns
    -------
    SumResult
        Exact integers, and the number of parties in the sum.

    Raises
    ------
    SecureSumAborted
        Too few parties remained; there is no fallback to a plain sum.
    InconsistentSumError
        The numbers are not a valid sum over the counted parties.
    """
    terms = RoundTerms.of_rounds(spec)
    check_option("round_name", round_name, tuple(terms))
    return sum_of_parties(
        exchange_over(grid, timeout),
        terms[round_name],
        node_ids,
        public=public,
        attempts=attempts,
    )


def exchange_over(grid: Any, timeout: float) -> Callable[[Mapping[int, bytes]], dict[int, bytes]]:
    """Return a function that sends messages over a Flower grid and collects the replies."""
    timeout = check_positive("timeout", timeout)

    def exchange(requests: Mapping[int, bytes]) -> dict[int, bytes]:
        messages = [
            Message(_wrapped(data), dst_node_id=party, message_type=MESSAGE_TYPE)
            for party, data in requests.items()
        ]
        replies: dict[int, bytes] = {}
        for reply in grid.send_and_receive(messages, timeout=timeout):
            # The first of several replies of a party.
            replies.setdefault(reply.metadata.src_node_id, _unwrapped(reply))
        return replies

    return exchange


def _parties(grid: Any, spec: FederatedSpec, wait: float) -> list[int]:
    """Wait for the parties."""
    end = time.monotonic() + wait
    while True:
        present = sorted(grid.get_node_ids())
        if len(present) >= spec.n_users or time.monotonic() >= end:
            break
        time.sleep(min(POLL_SECONDS, max(0.0, end - time.monotonic())))
    if len(present) > spec.n_users:
        raise InvalidParameterError.of(
            "parties", got=len(present), accepted=f"at most {spec.n_users}, as in the specification"
        )
    if len(present) < spec.survivors_needed:
        raise SecureSumAborted("waiting", len(present), spec.survivors_needed)
    return present
