"""The server app: waits for the parties, runs the rounds, hands out the classifier."""

from __future__ import annotations

import logging
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.common import FitIns, bytes_to_ndarray, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext
from flwr.serverapp import ServerApp
from numpy.typing import NDArray

from dpsvm_fast.exceptions import InconsistentSumError, InvalidParameterError, SecureSumAborted
from dpsvm_fast.federated.classifier import FederatedLinearSVC, finalize, public_state
from dpsvm_fast.federated.flower import protocol as stages
from dpsvm_fast.federated.flower.client import TAG
from dpsvm_fast.federated.flower.protocol import (
    REFUSALS,
    SERVER,
    RoundTerms,
    check_hardened,
    forget_keys,
    harden,
    terms_of_rounds,
)
from dpsvm_fast.federated.secsum import SumResult
from dpsvm_fast.federated.spec import FederatedSpec
from dpsvm_fast.validation import check_integer, check_non_negative, check_positive

# Stands between Flower's workflow and the grid: tags messages, drops replies that are no replies.
#
# A party whose reply is not as agreed on counts as one that has vanished; a wrong reply must not
# end, or change, the sum of the others.


OTHER_FAILURE = "another failure"

NO_REPLY = "no reply"

WRONG_REPLY = "a reply not as agreed on"


class WatchedGrid:
    """A grid for one attempt at one round.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    terms : RoundTerms
    session : str
        Name of the attempt; parties do not mix attempts.

    Attributes
    ----------
    stage : str
        The stage in progress.
    parties : tuple of int
        Who replied as agreed on in the last stage.
    reasons : Counter
        How often parties gave which of the constant reasons, over all stages.
    """

    def __init__(self, grid: Any, terms: RoundTerms, session: str) -> None:
        self._grid = grid
        self._terms = terms
        self._tag = {
            "protocol": terms.protocol,
            "digest": terms.digest,
            "round": terms.name,
            "session": session,
        }
        self.stage = stages.SETUP
        self.parties: tuple[int, ...] = ()
        self.reasons: Counter[str] = Counter()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send, wait, and hand on what is as agreed on.

        Parameters
        ----------
        messages : iterable of flwr.app.Message
            One for each party, all of one stage.
        timeout : float
            Seconds; None is refused, Flower would wait for twelve hours.
        """
        if timeout is None:
            raise ValueError("timeout: expected a number of seconds")
        requests = {message.metadata.dst_node_id: message for message in messages}
        for message in requests.values():
            message.content.config_records[TAG] = ConfigRecord(dict(self._tag))
            self.stage = str(message.content.config_records[stages.CONFIGS]["stage"])
        replies = self._grid.send_and_receive(list(requests.values()), timeout=timeout)
        kept: dict[int, Message] = {}
        wrong = 0
        for reply in replies:
            party = reply.metadata.src_node_id
            if party not in requests or party in kept:
                continue
            problem = self._problem(reply, requests[party], list(requests))
            if problem is None:
                kept[party] = reply
            else:
                wrong += 1
                self.reasons[problem] += 1
        silent = len(requests) - len(kept) - wrong
        if silent > 0:
            self.reasons[NO_REPLY] += silent
        self.parties = tuple(kept)
        return list(kept.values())

    def told(self) -> list[str]:
        """The reasons, a line each."""
        return [f"{count} of the parties: {text}" for text, count in sorted(self.reasons.items())]

    def _problem(self, reply: Message, request: Message, asked: Sequence[int]) -> str | None:
        """Why a reply is not used, None where it is."""
        if reply.has_error():
            reason = reply.error.reason or ""
            return next((text for text in REFUSALS if text in reason), OTHER_FAILURE)
        try:
            return None if self._is_fine(reply, request, asked) else WRONG_REPLY
        except Exception:
            # Whatever a stranger may have put there; none of it is a reply.
            return WRONG_REPLY

    def _is_fine(self, reply: Message, request: Message, asked: Sequence[int]) -> bool:
        records = reply.content.config_records
        if dict(records[TAG]) != self._tag:
            return False
        fields = dict(records[stages.CONFIGS])
        if set(fields) != stages.REPLIES[self.stage]:
            return False
        if self.stage == stages.SETUP:
            return all(_is_key(fields[name]) for name in ("pk1", "pk2"))
        if self.stage == stages.SHARE:
            others = set(asked) - {reply.metadata.src_node_id}
            packets = fields["ctxts"]
            whole = len(packets) == len(fields["dsts"]) and all(_is_key(p) for p in packets)
            return whole and sorted(fields["dsts"]) == sorted(others)
        if self.stage == stages.COLLECT:
            return self._is_masked(fields["masked_params"]) and _tells_nothing_else(reply)
        wanted = request.content.config_records[stages.CONFIGS]
        expected = [*wanted["active_nids"], *wanted["dead_nids"]]
        return list(fields["nids"]) == expected and len(fields["shares"]) == len(expected)

    def _is_masked(self, parts: Sequence[bytes]) -> bool:
        """Tell whether a masked vector has its shape: NumPy would stretch shorter ones silently."""
        arrays = [bytes_to_ndarray(part) for part in parts]
        if [array.shape for array in arrays] != [(1,), (self._terms.length,)]:
            return False
        return all(
            array.dtype == np.int64 and array.min() >= 0 and array.max() < self._terms.modulus
            for array in arrays
        )


def _is_key(data: object) -> bool:
    return isinstance(data, bytes) and 0 < len(data) <= stages.MAX_KEY_BYTES


def _tells_nothing_else(reply: Message) -> bool:
    """Neither metrics nor a number of records: the server must not come to know them."""
    content = reply.content
    counts = [dict(record) for record in content.metric_records.values()]
    return counts == [{"num_examples": 1}] and not content.config_records["fitres.metrics"]


# The server of one secure sum: Flower's workflow, stage by stage, with an outcome for each.


_LOG = logging.getLogger("dpsvm_fast.federated")

# Stages before any party has sent its vector: an attempt that ends there may be made again.
_BEFORE_VECTORS = (stages.SETUP, stages.SHARE)


class _Party:
    """What the workflow wants to know of a client."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id


class _Receiver:
    """Takes the place of a strategy: asks all parties, keeps the mean that comes out."""

    def __init__(self, node_ids: Sequence[int], public: NDArray[np.float64] | None) -> None:
        self._node_ids = node_ids
        self._public = [] if public is None else [public]
        self.means: list[NDArray[np.float64]] | None = None

    def configure_fit(self, *_: object, **__: object) -> list[tuple[_Party, Any]]:
        """One request a party."""
        return [
            (_Party(node_id), FitIns(ndarrays_to_parameters(self._public), {}))
            for node_id in self._node_ids
        ]

    def aggregate_fit(
        self, server_round: int, results: Sequence[Any], failures: Sequence[Any]
    ) -> tuple[None, dict[str, Any]]:
        """Keep the mean; Flower has put the same one into every result."""
        self.means = parameters_to_ndarrays(results[0][1].parameters)
        return None, {}


def sum_of_parties(
    grid: Any,
    terms: RoundTerms,
    node_ids: Sequence[int],
    *,
    public: NDArray[np.float64] | None = None,
    timeout: float = 120.0,
    attempts: int = 2,
) -> SumResult:
    """Sum one vector of each party, exactly, and learn nothing else about them.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Or anything with its ``send_and_receive``.
    terms : RoundTerms
    node_ids : sequence of int
        Parties that are asked: at least ``terms.min_survivors``, at most ``terms.n_users``.
    public : ndarray of float64 or None
        A public array that goes to every party with the request.
    timeout : float > 0
        Seconds to wait in each stage.
    attempts : int >= 1
        How often to begin before any party has sent its vector. A party sends its vector at most
        once, so what ends later has ended.

    Returns
    -------
    SumResult
        The integers and how many parties are in them.

    Raises
    ------
    SecureSumAborted
        Too few parties were left, with the stage; reasons that parties gave are in its notes.
    InconsistentSumError
        The numbers are not a sum of vectors as agreed on.
    HardeningError
        Flower's secure aggregation cannot be made safe here.
    """
    harden()
    timeout = check_positive("timeout", timeout)
    attempts = check_integer("attempts", attempts, 1)
    asked = list(dict.fromkeys(node_ids))
    if not terms.min_survivors <= len(asked) <= terms.n_users:
        accepted = f"{terms.min_survivors} to {terms.n_users} parties"
        raise InvalidParameterError.of("node_ids", got=len(asked), accepted=accepted)
    for attempt in range(1, attempts + 1):
        try:
            return _attempt(grid, terms, asked, public, timeout)
        except SecureSumAborted as aborted:
            if attempt == attempts or aborted.stage not in _BEFORE_VECTORS:
                raise
            _LOG.warning("%s; beginning again", aborted)
        finally:
            forget_keys()
    raise AssertionError("unreachable")


def _attempt(
    grid: Any,
    terms: RoundTerms,
    node_ids: Sequence[int],
    public: NDArray[np.float64] | None,
    timeout: float,
) -> SumResult:
    """Run the four stages once."""
    check_hardened()
    protocol: Any = sys.modules[SERVER]
    workflow = protocol.SecAggPlusWorkflow(
        1.0,
        # Flower reads the number 1 as a fraction; thresholds here are larger.
        terms.threshold,
        max_weight=1.0,
        clipping_range=float(terms.limit),
        quantization_range=terms.target,
        modulus_range=terms.modulus,
        timeout=timeout,
    )
    watched = WatchedGrid(grid, terms, uuid.uuid4().hex)
    receiver = _Receiver(node_ids, public)
    context = _legacy_context(receiver)
    state = protocol.WorkflowState()
    _stage(workflow.setup_stage, watched, context, state, terms)
    _leave_out_vanished(state)
    _stage(workflow.share_keys_stage, watched, context, state, terms)
    _leave_out_vanished(state)
    _stage(workflow.collect_masked_vectors_stage, watched, context, state, terms)
    survivors = len(watched.parties)
    _stage(workflow.unmask_stage, watched, context, state, terms, needed=terms.threshold)
    total = whole_sum(receiver.means, survivors, terms)
    if watched.reasons:
        _LOG.warning("round %r: %d of %d parties in the sum", terms.name, survivors, len(node_ids))
        for text in watched.told():
            _LOG.warning(text)
    return SumResult(total, survivors)


def _stage(
    step: Callable[..., bool],
    watched: WatchedGrid,
    context: Any,
    state: Any,
    terms: RoundTerms,
    needed: int | None = None,
) -> None:
    """One stage of Flower's workflow; where it would log an error and return, this raises."""
    needed = terms.min_survivors if needed is None else needed
    try:
        passed = step(watched, context, state)
    except Exception as error:
        # Its text may quote a reply.
        _LOG.error("%s in stage %s", type(error).__name__, watched.stage)
        passed = False
    if passed and len(watched.parties) >= needed:
        return
    aborted = SecureSumAborted(watched.stage, len(watched.parties), needed)
    for text in watched.told():
        _LOG.error(text)
        # Flower needs this version; type checkers may run on an older one.
        if sys.version_info >= (3, 11):
            aborted.add_note(text)
    raise aborted from None


def _leave_out_vanished(state: Any) -> None:
    """Go on without parties that vanished before any mask was made with them.

    Flower keeps them on its list and fails when it wants to remove masks that nobody has added.
    """
    left = set(state.active_node_ids)
    state.sampled_node_ids = set(left)
    state.nid_to_neighbours = {node_id: set(left) for node_id in left}


def _legacy_context(receiver: _Receiver) -> Any:
    """The surroundings that Flower's workflow was written for."""
    context = Context(run_id=0, node_id=0, node_config={}, state=RecordDict(), run_config={})
    context.state.config_records["config"] = ConfigRecord({"current_round": 1})
    context.state.array_records["parameters"] = ArrayRecord()
    return LegacyContext(context=context, strategy=receiver)


def whole_sum(
    means: Sequence[NDArray[np.float64]] | None, survivors: int, terms: RoundTerms
) -> NDArray[np.int64]:
    """The sum as integers, from the mean as floats.

    Flower computes ``mean = S * (1 / n)`` in doubles from an exact S, ``|S| <= n 2**29``. With
    the unit roundoff u = 2**-53, ``mean * n`` is within ``|S| (3u + 4u**2)`` of S, which is below
    1/2 for all ``n < 2**21``; terms allow fewer than ``2**18`` parties. So rounding gives S.
    """
    if means is None or len(means) != 1 or means[0].shape != (terms.length,):
        raise InconsistentSumError("sum: of another shape than agreed on")
    total = np.rint(means[0] * survivors)
    if not (np.abs(total) <= survivors * terms.limit).all():
        raise InconsistentSumError("sum: larger than the parties could have contributed")
    # Every vector ends with a 1. A party with other masks, or a sum of other parties than those
    # that were counted, leaves something else here.
    if total[-1] != survivors:
        raise InconsistentSumError("sum: not of the parties that were counted")
    return np.asarray(total.astype(np.int64))


Seconds: TypeAlias = "float | Callable[[Context], float]"

# Between two looks at who is there.
POLL_SECONDS = 1.0


def make_server_app(
    spec: FederatedSpec | Callable[[Context], FederatedSpec],
    *,
    on_result: Callable[[FederatedLinearSVC, Context], None],
    timeout: Seconds = 120.0,
    wait: Seconds = 300.0,
    attempts: int = 2,
) -> Any:
    """Make the server app of a training.

    Parameters
    ----------
    spec : FederatedSpec or callable
        Or a function of Flower's context that reads it. Parties with another one refuse.
    on_result : callable
        Takes the fitted classifier and Flower's context, and keeps it somewhere.
    timeout : float or callable, default=120.0
        Seconds to wait in every stage of a secure sum.
    wait : float or callable, default=300.0
        Seconds to wait for all parties; afterwards those who are there have to be enough.
    attempts : int, default=2
        How often to begin a round while no party has sent its vector.

    Returns
    -------
    flwr.serverapp.ServerApp
        Raises out of its main function whatever goes wrong, so that Flower reports the run as
        failed: :class:`SecureSumAborted` with stage and number of parties left,
        ``InconsistentSumError`` for a sum that is none.

    Raises
    ------
    HardeningError
        Flower's secure aggregation cannot be made safe here.
    """
    harden()
    check_integer("attempts", attempts, 1)
    app = ServerApp()

    def main(grid: Any, context: Context) -> None:
        agreed = spec if isinstance(spec, FederatedSpec) else spec(context)
        pause = check_non_negative("wait", wait(context) if callable(wait) else wait)
        seconds = check_positive("timeout", timeout(context) if callable(timeout) else timeout)
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
        Parties; those that vanish in one round are asked again in the next.
    timeout, attempts
        As of :func:`run_secure_round`.

    Returns
    -------
    FederatedLinearSVC
        With its statement, ``privacy_``.

    Raises
    ------
    SecureSumAborted, InconsistentSumError, HardeningError
        As :func:`run_secure_round`.
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
        Parties that are asked.
    public : ndarray of float64 or None
        What the round takes from earlier ones; goes to every party.
    timeout : float, default=120.0
        Seconds to wait in each stage.
    attempts : int, default=2
        How often to begin before any party has sent its vector.

    Returns
    -------
    SumResult
        Exact integers, and the number of parties in them.

    Raises
    ------
    SecureSumAborted
        Too few parties were left; never a plain sum instead.
    InconsistentSumError
        The numbers are no sum of the parties that were counted.
    HardeningError
        Flower's secure aggregation cannot be made safe here.
    """
    terms = terms_of_rounds(spec)
    if round_name not in terms:
        accepted = "one of " + ", ".join(map(repr, terms))
        raise InvalidParameterError.of("round_name", got=round_name, accepted=accepted)
    return sum_of_parties(
        grid, terms[round_name], node_ids, public=public, timeout=timeout, attempts=attempts
    )


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
            "parties", got=len(present), accepted=f"at most {spec.n_users}, as agreed on"
        )
    if len(present) < spec.survivors_needed:
        raise SecureSumAborted("waiting", len(present), spec.survivors_needed)
    return present
