"""The secure sum as an object: the whole protocol in one process."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.common import serde
from flwr.common.constant import ErrorCode
from flwr.proto.message_pb2 import Context as ProtoContext
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.flower.client import make_party_app
from dpsvm_fast.federated.flower.protocol import CONFIGS, RoundTerms
from dpsvm_fast.federated.flower.server import sum_of_parties
from dpsvm_fast.federated.secsum import SumResult
from dpsvm_fast.federated.spec import FederatedSpec
from dpsvm_fast.validation import check_option

# Flower's protocol in one process: a grid that delivers messages by calling the clients.
#
# Everything that the network would do to a message is done: it is turned into bytes and back, and
# so is the state of a party between two messages. Faults can be put in at every stage.


KINDS = ("silent", "lost", "raises", "changed")

# Flower keeps the identity of the running task in a class, for the whole process.
_IDENTITY = threading.RLock()


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong with some parties at one stage.

    Parameters
    ----------
    stage : str
        ``"setup"``, ``"share_keys"``, ``"collect_masked_vectors"`` or ``"unmask"``.
    parties : sequence of int
        By position, from 0.
    kind : {"silent", "lost", "raises", "changed"}
        The party vanishes before the message; after it, so that its reply is lost; its process
        fails; its reply is changed on the way.
    change : callable or None
        For ``"changed"``: takes the reply and changes it in place.
    times : int or None
        How many messages of the stage are met, None for all. A party that has vanished stays
        away until then.
    text : str
        For ``"raises"``: what the process says.
    """

    stage: str
    parties: Sequence[int]
    kind: str = "silent"
    change: Callable[[Message], None] | None = None
    times: int | None = None
    text: str = "the process failed"

    def __post_init__(self) -> None:
        """Refuse an unknown kind."""
        check_option("kind", self.kind, KINDS)


@dataclass(frozen=True)
class Sent:
    """A message as it went over the line.

    Parameters
    ----------
    stage : str
    party : int
        By position, from 0.
    upwards : bool
        To the server.
    message : flwr.app.Message
    """

    stage: str
    party: int
    upwards: bool
    message: Any


class LocalGrid:
    """A grid whose nodes are client apps in this process.

    Parameters
    ----------
    apps : sequence of flwr.clientapp.ClientApp
        One for each party.
    node_configs : sequence of mapping or None, default=None
        What each party's context has as ``node_config``.
    faults : sequence of Fault, default=()
    record : bool, default=False
        Keep all messages in ``traffic``.
    node_ids : sequence of int or None, default=None
        Numbers of the parties; the default counts from 1,001.

    Attributes
    ----------
    traffic : list of Sent
    contexts : list of flwr.app.Context
        State of each party.
    """

    def __init__(
        self,
        apps: Sequence[Any],
        *,
        node_configs: Sequence[Mapping[str, Any]] | None = None,
        faults: Sequence[Fault] = (),
        record: bool = False,
        node_ids: Sequence[int] | None = None,
    ) -> None:
        self._apps = list(apps)
        self._ids = list(node_ids) if node_ids is not None else list(_ids(len(self._apps)))
        configs = node_configs if node_configs is not None else [{} for _ in self._apps]
        self.contexts = [
            Context(
                run_id=1,
                node_id=node_id,
                node_config=dict(config),
                state=RecordDict(),
                run_config={},
            )
            for node_id, config in zip(self._ids, configs, strict=True)
        ]
        self._faults = list(faults)
        self._met = [dict.fromkeys(fault.parties, 0) for fault in faults]
        self._gone: set[int] = set()
        self._record = record
        self.traffic: list[Sent] = []

    def get_node_ids(self) -> list[int]:
        """Numbers of all parties."""
        return list(self._ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Deliver messages and collect the replies of those who do reply.

        Parameters
        ----------
        messages : iterable of flwr.app.Message
        timeout : float or None
            Not waited for: who is silent is silent at once.

        Returns
        -------
        list of flwr.app.Message
        """
        replies = []
        for message in messages:
            reply = self._deliver(message)
            if reply is not None:
                replies.append(reply)
        return replies

    def _deliver(self, message: Message) -> Message | None:
        party = self._ids.index(message.metadata.dst_node_id)
        stage = _stage_of(message)
        fault = self._fault(stage, party)
        received = _over_the_line(message)
        self._note(stage, party, received, upwards=False)
        if fault is not None and fault.kind == "silent":
            return None
        if fault is not None and fault.kind == "raises":
            reply = _failure(received, RuntimeError(fault.text))
        else:
            reply = self._answer(party, received)
        if fault is not None and fault.kind == "lost":
            return None
        if fault is not None and fault.change is not None:
            fault.change(reply)
        sent = _over_the_line(reply)
        self._note(stage, party, sent, upwards=True)
        return sent

    def _answer(self, party: int, message: Message) -> Message:
        """Call the client as Flower's own process does, which starts anew for every message."""
        context = serde.context_from_proto(
            ProtoContext.FromString(
                serde.context_to_proto(self.contexts[party]).SerializeToString()
            )
        )
        try:
            reply = self._apps[party](message=message, context=context)
        except Exception as error:
            reply = _failure(message, error)
        # Flower stores the state of a party after a failure too.
        self.contexts[party] = context
        return reply

    def _fault(self, stage: str, party: int) -> Fault | None:
        """The fault that meets a message; vanished parties stay away in later stages."""
        for fault, met in zip(self._faults, self._met, strict=True):
            if fault.stage != stage or party not in met:
                continue
            if fault.times is None or met[party] < fault.times:
                met[party] += 1
                if fault.kind in ("silent", "lost") and fault.times is None:
                    self._gone.add(party)
                return fault
        return Fault(stage, [party]) if party in self._gone else None

    def _note(self, stage: str, party: int, message: Message, *, upwards: bool) -> None:
        if self._record:
            # Whoever receives the message takes it apart.
            self.traffic.append(Sent(stage, party, upwards, _over_the_line(message)))


@contextmanager
def server_identity() -> Iterator[None]:
    """Let messages be made outside of a process that Flower has started."""
    names = ("_task_id", "_run_id", "_node_id")
    with _IDENTITY:
        before = {name: getattr(TaskIdentity, name) for name in names}
        for name in names:
            if before[name] is None:
                setattr(TaskIdentity, name, 1)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(TaskIdentity, name, value)


def _ids(count: int) -> range:
    return range(1001, 1001 + count)


def _stage_of(message: Message) -> str:
    configs = message.content.config_records.get(CONFIGS, {})
    return str(configs.get("stage", ""))


def _over_the_line(message: Message) -> Message:
    """To bytes and back, with a number as the SuperLink gives one."""
    data = serde.message_to_proto(message).SerializeToString()
    received: Any = serde.message_from_proto(ProtoMessage.FromString(data))
    received.metadata.__dict__["_message_id"] = uuid.uuid4().hex
    return received


def _failure(message: Message, error: Exception) -> Message:
    """The message that Flower's process sends when a client raises."""
    reason = f"{type(error)}:<'{error}'>"
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


@dataclass(frozen=True)
class FlowerSum:
    """Adds vectors with Flower's secure aggregation, all parties in this process.

    The messages, masks and shares are those of a real run; only the network is missing. Whoever
    holds this process holds all vectors, so it protects nobody: it is for experiments, and for
    tests of what a real run would give.

    Parameters
    ----------
    min_survivors : int or None, default=None
        Parties without which nothing comes out; None for all.
    threshold : int or None, default=None
        Shares that open a mask; None for the smallest that is more than half.
    faults : sequence of Fault, default=()
        What goes wrong.
    attempts : int, default=2
        How often to begin while no vector has been sent.
    """

    min_survivors: int | None = None
    threshold: int | None = None
    faults: Sequence[Fault] = ()
    attempts: int = 2

    @classmethod
    def for_spec(cls, spec: FederatedSpec, faults: Sequence[Fault] = ()) -> FlowerSum:
        """The sum as a specification wants it: its threshold, its number of survivors.

        Parameters
        ----------
        spec : FederatedSpec
        faults : sequence of Fault, default=()
            What a test lets go wrong.

        Returns
        -------
        FlowerSum
        """
        return cls(spec.survivors_needed, spec.threshold, faults)

    @property
    def trust(self) -> str:
        """Word of the statement."""
        return "secure_sum"

    def sum(self, vectors: Iterable[NDArray[np.int64]]) -> SumResult:
        """The sum of one vector of each party.

        Parameters
        ----------
        vectors : iterable of ndarray of shape (length,), int64
            Below 2**29 in size, the last number 1.

        Raises
        ------
        SecureSumAborted
            Too few parties were left.
        InvalidParameterError
            Fewer than two vectors.
        """
        rows = list(vectors)
        if len(rows) < 2:
            raise InvalidParameterError.of("vectors", got=len(rows), accepted="at least 2")
        needed = len(rows) if self.min_survivors is None else self.min_survivors
        terms = RoundTerms(
            digest="in one process",
            name="sum",
            length=len(rows[0]),
            n_users=len(rows),
            min_survivors=needed,
            threshold=len(rows) // 2 + 1 if self.threshold is None else self.threshold,
        )
        apps = [
            make_party_app(lambda _: {terms.name: terms}, lambda *_, row=row: row) for row in rows
        ]
        with server_identity():
            grid = LocalGrid(apps, faults=self.faults)
            return sum_of_parties(grid, terms, grid.get_node_ids(), attempts=self.attempts)
