"""An app's connection, for threads: one client and a producer per queue, made when they are needed.

Contract: threads may share it. A forked child starts with none, because the connections are its parent's.
"""

from __future__ import annotations

import logging
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ...broker.errors import UnknownTopic
from ...storage import forks
from ...storage.errors import Error
from ..client import Client, connect
from ..queues.task_ids import task_id
from .queues import QueueApp, check_attempts, ensure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..producer import Producer
    from ..producing.pending import Future
    from ..queues.descriptions import Schedule
    from .job_lists import Run
    from .message import Message, Messages, Then

T = TypeVar("T")

log = logging.getLogger("penstock.tasks")


class Link:
    """See the module."""

    def __init__(self, app: QueueApp) -> None:
        self._app = app
        self._lock = threading.RLock()
        self._client: Client | None = None
        self._at_exit: weakref.finalize[..., Link] | None = None  # an app need not be closed
        self._producers: dict[str, Producer] = {}
        self._settings: dict[str, dict[str, Any]] = {}  # of the queues that there are producers of
        forks.tell(self)

    def _forked(self) -> None:
        """Drop the client in a forked child, which connects by itself."""
        forks.renew(self._lock)
        if self._at_exit is not None:
            self._at_exit.detach()
        self._client, self._producers, self._settings = None, {}, {}

    def client(self) -> Client:
        """The client, connected."""
        with self._lock:
            if self._client is None or self._client.closed:
                self._producers, self._settings = {}, {}
                self._client = connect(self._app.url, timeout=self._app.timeout_s, name="penstock-tasks")
                self._at_exit = weakref.finalize(self, _end, self._client)
            return self._client

    def send(self, message: Message) -> str:
        """Commit a call to its queue; returns the task's id."""
        if message.then is not None:
            return self.send_group([message], message.then)[0]

        def send(producer: Producer, now_us: int) -> tuple[int, int]:
            return _place(producer.send_nowait(message.value, **message.sending(now_us)))

        return task_id(message.queue, *self._sent(message, send))

    def send_many(self, messages: Messages) -> list[Run]:
        """Commit many calls to their queue; returns where they are, in their order."""
        if not messages.count:
            return []
        return self._sent(messages, lambda producer, now_us: _runs(producer, messages, now_us))

    def _sent(self, sent: Message | Messages, send: Callable[[Producer, int], T]) -> T:
        """Send by the producer of a queue; by another one, which makes the queue again, where its topic was deleted."""
        producer, now_us = self._producer(sent.queue, sent.attempts)
        try:
            return send(producer, now_us)
        except UnknownTopic:
            with suppress(UnknownTopic):
                producer.flush()  # so that closing the client does not tell of the others that failed
            with self._lock:
                if self._producers.get(sent.queue) is producer:
                    del self._producers[sent.queue], self._settings[sent.queue]
        return send(*self._producer(sent.queue, sent.attempts))

    def send_group(self, messages: Sequence[Message], then: Then) -> list[str]:
        """Commit calls to their queues, and one of `then` once they have ended; returns the ids of their tasks."""
        client = self.client()
        self._ready(client, then.queue)
        for message in messages:
            check_attempts(message.queue, self._ready(client, message.queue), message.attempts)
        group, now_us = self._app.group, client.now_us
        return client.send_group([message.grouped(group, now_us) for message in messages], then=then.callback())

    def schedule(self, message: Message, name: str, spec: str) -> Schedule:
        """Commit a call at stated times."""
        how = message.scheduling(self._app.zone)
        client = self.client()
        ensure(client, self._app.queues[message.queue])
        return client.schedule(message.queue, name, spec, message.value, **how)

    def _producer(self, queue: str, attempts: int | None) -> tuple[Producer, int]:
        """The producer of a queue, and the time by its clock. Raises InvalidArgument for too many `attempts`."""
        client = self.client()
        with self._lock:
            settings = self._ready(client, queue)
            if queue not in self._producers:
                self._producers[queue] = client.producer(queue)
            check_attempts(queue, settings, attempts)
            return self._producers[queue], client.now_us

    def _ready(self, client: Client, queue: str) -> dict[str, Any]:
        """The settings of a queue, which is made where it is missing."""
        with self._lock:
            if queue not in self._settings:
                self._settings[queue] = ensure(client, self._app.queues[queue])
            return self._settings[queue]

    def close(self) -> None:
        """Close the client."""
        client, self._client, self._producers, self._settings = self._client, None, {}, {}
        if client is not None and self._at_exit is not None and self._at_exit.detach():
            client.close()


def _end(client: Client) -> None:
    """Close the client of an app that was not closed, as when the program ends."""
    try:
        client.close()
    except Error as error:
        log.error("closing the connection of an app to %s: %s", client.url, error)


def _runs(producer: Producer, messages: Messages, now_us: int) -> list[Run]:
    """Commit many calls; returns where they are, in their order."""
    if messages.alike:
        return producer.place_many(messages.runs, **messages.sending_all(now_us))
    futures = [producer.send_nowait(value, **beside) for value, beside in messages.each(now_us)]
    return [(*_place(future), 1) for future in futures]


def _place(future: Future) -> tuple[int, int]:
    """Partition and offset of the task that a record is, or repeats; waits for its commit."""
    offset = future.result()
    return future.partition, offset if future.repeats is None else future.repeats
