"""An app's connection, for threads: one client and a producer per queue, made when they are needed.

Contract: threads may share it. A forked child starts with none, because the connections are its parent's.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from ...storage import forks
from ..client import Client, connect
from ..queues.task_ids import task_id
from .queues import QueueApp, ensure

if TYPE_CHECKING:
    from ..producer import Producer
    from ..queues.descriptions import Schedule
    from .message import Message


class Link:
    """See the module."""

    def __init__(self, app: QueueApp) -> None:
        self._app = app
        self._lock = threading.RLock()
        self._client: Client | None = None
        self._at_exit: weakref.finalize[..., Link] | None = None  # an app need not be closed
        self._producers: dict[str, Producer] = {}
        forks.tell(self)

    def _forked(self) -> None:
        """Drop the client in a forked child, which connects by itself."""
        forks.renew(self._lock)
        if self._at_exit is not None:
            self._at_exit.detach()
        self._client, self._producers = None, {}

    def client(self) -> Client:
        """The client, connected."""
        with self._lock:
            if self._client is None or self._client.closed:
                self._producers = {}
                self._client = connect(self._app.url, timeout=self._app.timeout_s, name="penstock-tasks")
                self._at_exit = weakref.finalize(self, self._client.close)
            return self._client

    def send(self, message: Message) -> str:
        """Commit a call to its queue; returns the task's id."""
        producer = self._producer(message.queue)
        future = producer.send_nowait(message.value, **message.sending())
        offset = future.result()
        return task_id(message.queue, future.partition, offset if future.repeats is None else future.repeats)

    def schedule(self, message: Message, name: str, spec: str) -> Schedule:
        """Commit a call at stated times."""
        how = message.scheduling(self._app.zone)
        client = self.client()
        ensure(client, self._app.queues[message.queue])
        return client.schedule(message.queue, name, spec, message.value, **how)

    def _producer(self, queue: str) -> Producer:
        client = self.client()
        with self._lock:
            if queue not in self._producers:
                ensure(client, self._app.queues[queue])
                self._producers[queue] = client.producer(queue)
            return self._producers[queue]

    def close(self) -> None:
        """Close the client."""
        if self._at_exit is not None:
            self._at_exit()
        self._client, self._producers = None, {}
