"""A broker of dramatiq: its queues are topics with a queue group, its messages records, what a consumer holds leased.

    dramatiq.set_broker(PenstockBroker("unix:///run/penstock/broker.sock"))

Idea: the broker delays by itself, so there are no delay queues. dramatiq retries by enqueueing a message anew, so one
that it gives up is a dead letter. Redriven, it has all its retries again: the history of its record says that it was
given up. A worker that dies gives its messages back by the end of its leases.

Contract: threads may share a broker and a consumer. Nothing is asked of penstock before the first message is enqueued
or consumed, and a forked child connects anew.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Condition, RLock
from time import monotonic, sleep
from typing import Any

from dramatiq.broker import Broker, Consumer, MessageProxy
from dramatiq.errors import ConnectionClosed, DecodeError, QueueJoinTimeout, QueueNotFound
from dramatiq.message import Message

from ..broker.errors import LeaseLost, UnknownGroup, UnknownTopic
from ..clients import Client, Producer, Task, Worker, connect
from ..storage.errors import Closed, Error

GROUP = "dramatiq"
LEASE_S = 30.0
"""How long the messages of a worker that died stay with it. Those of one that lives are extended."""

NEVER_S = 10 * 365 * 86400.0
"""An actor may run for months: its leases end with its process, not with its silence."""

GIVEN_UP = "given up by dramatiq"
"""The reason of a dead letter."""

KEEP_FINISHED_S = 60.0
JOIN_LOOK_S = 0.1


class PenstockBroker(Broker):
    """See the module."""

    def __init__(
        self, url: str, *, lease: float = LEASE_S, timeout: float = 10.0, key: Any = None, middleware: Any = None
    ) -> None:
        """Note where penstock is; `timeout` is how long a request may wait for it, `key` of the client."""
        super().__init__(middleware=middleware)
        self.url, self.lease_s = url, lease
        self._options = {"timeout": timeout, "key": key}
        self._lock = RLock()
        self._process = 0
        self._client: Client | None = None
        self._producers: dict[str, Producer] = {}

    @property
    def client(self) -> Client:
        """The connection of this process. Raises ConnectionClosed."""
        with self._lock, _told():
            if self._client is None or self._process != os.getpid():
                self._client, self._producers = connect(self.url, name="dramatiq", **self._options), {}
                self._process = os.getpid()
            return self._client

    def close(self) -> None:
        """Close the connection with all that was opened."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None and self._process == os.getpid():
            client.close()

    def declare_queue(self, queue_name: str) -> None:
        """Note a queue; its topic is made when it is used first."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Append a message, not to be delivered for `delay` milliseconds; it is committed when this returns."""
        self.emit_before("enqueue", message, delay)
        delay_s = None if delay is None else delay / 1000
        with _told():
            try:
                self._producer(message.queue_name).send(message.encode(), delay=delay_s)
            except UnknownTopic:  # deleted since
                self._producers.pop(message.queue_name, None)
                self._producer(message.queue_name).send(message.encode(), delay=delay_s)
        self.emit_after("enqueue", message, delay)
        return message

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> PenstockConsumer:
        """A consumer that holds `prefetch` messages at most, and waits `timeout` milliseconds for one."""
        topic = self._ensured(queue_name)
        with _told():
            client = self.client
            worker = client.worker(topic, group=GROUP, lease=self.lease_s, prefetch=0, max_processing=NEVER_S)

        def was_given_up(id_: str) -> bool:
            return any(failure.reason == GIVEN_UP for failure in client.task(id_, group=GROUP).history)

        return PenstockConsumer(worker, max(prefetch, 1), timeout / 1000, was_given_up)

    def flush(self, queue_name: str) -> None:
        """Skip the messages of a queue that no worker has begun, delayed ones too."""
        with _told():
            self.client.reset_queue(self._ensured(queue_name), GROUP, "latest")

    def flush_all(self) -> None:
        """Skip the messages of all queues that no worker has begun."""
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Wait until a queue has no message left. Raises QueueJoinTimeout after so many milliseconds."""
        topic, deadline = self._ensured(queue_name), None if timeout is None else monotonic() + timeout / 1000
        while self.client.queue(topic, GROUP).depth:
            if deadline is not None and monotonic() >= deadline:
                raise QueueJoinTimeout(queue_name)
            sleep(JOIN_LOOK_S)

    def _ensured(self, queue_name: str) -> str:
        """The topic of a queue, made with its group when they are missing. Raises QueueNotFound."""
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        topic = topic_of(queue_name)
        with _told():
            try:
                self.client.queue(topic, GROUP)
            except (UnknownTopic, UnknownGroup):
                self.client.create_topic(topic, if_missing=True)
                self.client.set_queue(topic, GROUP, max_attempts=None, backoff_s=0, keep_finished_s=KEEP_FINISHED_S)
        return topic

    def _producer(self, queue_name: str) -> Producer:
        with self._lock:
            client = self.client  # of this process, with its producers
            if queue_name not in self._producers:
                self._producers[queue_name] = client.producer(self._ensured(queue_name))
            return self._producers[queue_name]


class PenstockConsumer(Consumer):
    """Messages of one queue, under leases. A record that dramatiq did not write is dead-lettered."""

    def __init__(self, worker: Worker, prefetch: int, wait_s: float, was_given_up: Callable[[str], bool]) -> None:
        """Made by `PenstockBroker.consume`; `was_given_up` asks the broker about a task."""
        self._worker = worker
        self._prefetch = prefetch
        self._wait_s = wait_s
        self._was_given_up = was_given_up
        self._arrived: deque[LeasedMessage] = deque()
        self._held: set[str] = set()  # ids of tasks that are leased and not settled
        self._room = Condition()

    def __next__(self) -> LeasedMessage | None:
        """The next message, or None when none came in time. Raises ConnectionClosed."""
        if not self._arrived:
            with self._room:
                if len(self._held) >= self._prefetch:
                    self._room.wait(self._wait_s)
                room = self._prefetch - len(self._held)
            if room > 0:
                with _told():
                    self._take(self._worker.ack_and_fetch([], max_records=room, wait=self._wait_s))
        return self._arrived.popleft() if self._arrived else None

    def _take(self, tasks: list[Task]) -> None:
        for task in tasks:
            try:
                message = LeasedMessage(Message.decode(bytes(task.value or b"")), task)
                retries = message.options.get("retries")
            except (DecodeError, TypeError, LookupError, AttributeError) as error:
                self._worker.reject([task], f"not a message of dramatiq: {error!r}")
                continue
            with self._room:
                self._held.add(task.id)
            if retries and self._was_given_up(task.id):  # it was redriven
                message = LeasedMessage(message.copy(options={"retries": 0}), task)
            self._arrived.append(message)

    def ack(self, message: Any) -> None:
        """The message is done."""
        self._let_go([message])
        with _told():
            self._worker.ack_nowait(message.task)

    def nack(self, message: Any) -> None:
        """The message becomes a dead letter, as dramatiq has no more retries for it."""
        self._let_go([message])
        with _told(), suppress(LeaseLost):
            self._worker.reject([message.task], GIVEN_UP)

    def requeue(self, messages: Iterable[Any]) -> None:
        """Give messages back untried."""
        given: list[LeasedMessage] = list(messages)
        self._let_go(given)
        with _told(), suppress(LeaseLost):
            self._worker.release([message.task for message in given])

    def close(self) -> None:
        """Commit what was settled, and give back the rest."""
        with suppress(Error):
            self._worker.close()

    def _let_go(self, messages: list[LeasedMessage]) -> None:
        with self._room:
            self._held.difference_update(message.task.id for message in messages)
            self._room.notify_all()


class LeasedMessage(MessageProxy):
    """A message and the task that it came as."""

    def __init__(self, message: Message[Any], task: Task) -> None:
        super().__init__(message)
        self.task = task


def topic_of(queue_name: str) -> str:
    """The topic of a queue: names of dramatiq's queues are such of topics."""
    return f"dramatiq.{queue_name}"


@contextmanager
def _told() -> Iterator[None]:
    """What may be repeated is a lost connection to dramatiq, which then makes its consumers anew."""
    try:
        yield
    except Error as error:
        if error.retry or isinstance(error, Closed):
            raise ConnectionClosed(error) from error
        raise
