"""Feeds: a thread for each consumed queue, which waits for messages and tells the transport.

Idea: kombu waits for all of a connection's queues in one call. Each feed waits for its own queue at the broker, so
nothing polls, and puts itself into the transport's inbox once for each message that it has.

Contract: a stopped feed gives back what it was not asked for. A feed that fails puts its error into the inbox and ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from time import sleep
from typing import Any

from ...clients import Worker
from ...storage.errors import Closed
from .deliveries import Deliveries
from .temporary import Binding

WAIT_S = 1.0
"""How long one request waits. A stopped feed ends within this time."""

REST_S = 0.001
"""How long a feed rests that had messages: others gather behind it at the broker, and acks go with the next request."""

Inbox = SimpleQueue["MessageFeed | Exception"]
Deliver = Callable[[dict[str, Any]], Any]


class MessageFeed(ABC):
    """Messages of one queue for one consumer. The thread begins with `start`."""

    def __init__(self, inbox: Inbox, deliver: Deliver) -> None:
        self._inbox = inbox
        self._deliver = deliver
        self._lock = Lock()
        self._arrived: deque[dict[str, Any]] = deque()
        self.stopped = False

    def start(self) -> None:
        """Begin to wait for messages."""
        Thread(target=self._run, name="penstock-celery-feed", daemon=True).start()

    def deliver(self) -> bool:
        """Hand the next message to the consumer, in the calling thread. False when there is none any more."""
        with self._lock:
            if not self._arrived:
                return False
            message = self._arrived.popleft()
        self._deliver(message)
        return True

    def stop(self) -> None:
        """Take no more, and give back what was not delivered."""
        with self._lock:
            self.stopped = True
            left, self._arrived = list(self._arrived), deque()
        self._give_back(left)

    def _run(self) -> None:
        try:
            while not self.stopped:
                messages = self._next()
                self._hold(messages)
                if messages:
                    sleep(REST_S)
        except Closed:
            return  # the channel was closed meanwhile
        except Exception as error:  # also what nothing here expects: unheard, it would leave the queue alone
            if not self.stopped:
                self._inbox.put(error)

    def _hold(self, messages: list[dict[str, Any]]) -> None:
        with self._lock:
            if not self.stopped:
                self._arrived += messages
                for _ in messages:
                    self._inbox.put(self)
                return
        self._give_back(messages)

    @abstractmethod
    def _next(self) -> list[dict[str, Any]]:
        """The next messages, after waiting for some."""

    @abstractmethod
    def _give_back(self, messages: list[dict[str, Any]]) -> None:
        """Messages that are not delivered."""


class QueueFeed(MessageFeed):
    """Messages of a durable queue, under leases. Records that kombu did not write are dead-lettered."""

    def __init__(self, inbox: Inbox, deliver: Deliver, worker: Worker, deliveries: Deliveries) -> None:
        super().__init__(inbox, deliver)
        self._worker = worker
        self._deliveries = deliveries

    def _next(self) -> list[dict[str, Any]]:
        room = self._deliveries.room(WAIT_S)
        if not room or self.stopped:
            return []
        tasks = self._worker.ack_and_fetch([], max_records=room, wait=WAIT_S)
        return self._deliveries.take(self._worker, tasks) if tasks else []

    def _give_back(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            self._deliveries.give_back(message["properties"]["delivery_tag"])


class TemporaryFeed(MessageFeed):
    """Messages for a temporary queue from one exchange."""

    def __init__(self, inbox: Inbox, deliver: Deliver, binding: Binding) -> None:
        super().__init__(inbox, deliver)
        self._binding = binding

    def _next(self) -> list[dict[str, Any]]:
        return self._binding.read(WAIT_S)

    def _give_back(self, messages: list[dict[str, Any]]) -> None:
        """They end with their queue."""
