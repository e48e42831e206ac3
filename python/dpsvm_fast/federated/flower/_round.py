"""The server of one secure sum: Flower's workflow, stage by stage, with an outcome for each."""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
from flwr.common import FitIns, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext
from numpy.typing import NDArray

from dpsvm_fast._validation import check_integer, check_positive
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.errors import InconsistentSumError, SecureSumAborted
from dpsvm_fast.federated.flower import _stages
from dpsvm_fast.federated.flower._watch import WatchedGrid
from dpsvm_fast.federated.flower.harden import SERVER, check_hardened, forget_keys, harden
from dpsvm_fast.federated.flower.terms import RoundTerms
from dpsvm_fast.federated.secsum import SumResult

__all__ = ["sum_of_parties"]

_LOG = logging.getLogger("dpsvm_fast.federated")

# Stages before any party has sent its vector: an attempt that ends there may be made again.
_BEFORE_VECTORS = (_stages.SETUP, _stages.SHARE)


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
    total = _whole_sum(receiver.means, survivors, terms)
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


def _whole_sum(
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
