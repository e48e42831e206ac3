"""Flower's grid in one process: messages are handed to client apps, and their replies back."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flwr.app import Context, Error, Message, RecordDict

# Flower keeps the identity of the running task in a class, for the whole process.
IDENTITY = threading.RLock()


class LocalGrid:
    """A grid whose nodes are client apps in this process."""

    def __init__(self, apps: Sequence[Any], first: int = 1001) -> None:
        self.apps = list(apps)
        self.contexts = [context_of(first + i) for i in range(len(self.apps))]
        self.replies: list[Message] = []

    def get_node_ids(self) -> list[int]:
        return [context.node_id for context in self.contexts]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        found = []
        for message in messages:
            i = self.get_node_ids().index(message.metadata.dst_node_id)
            try:
                reply = self.apps[i](message=message, context=self.contexts[i])
            except Exception as error:
                # As Flower's process does when a client raises.
                reply = Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)
            found.append(reply)
        self.replies += found
        return found


def context_of(node_id: int) -> Context:
    return Context(run_id=1, node_id=node_id, node_config={}, state=RecordDict(), run_config={})


@contextmanager
def server_identity() -> Iterator[None]:
    """Let messages be made outside of a process that Flower has started."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # Older ones ask for nothing.
        yield
        return
    names = ("_task_id", "_run_id", "_node_id")
    with IDENTITY:
        before = {name: getattr(TaskIdentity, name) for name in names}
        for name in names:
            if before[name] is None:
                setattr(TaskIdentity, name, 1)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(TaskIdentity, name, value)
