"""Messages that a channel has and did not settle: kombu's QoS, over leases.

Idea: a delivery tag stands for a task of a penstock worker. Acks are committed in the background, together. A message
that its consumer requeues was tried, and is redelivered; one that is given back untried keeps its place.

Contract: feeds add messages from their threads, kombu settles from any. *Invariant*: `_held` has exactly the tasks that
are leased for this channel and not settled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from threading import Condition
from typing import Any

from kombu.transport import virtual
from kombu.utils.json import loads

from ...broker.errors import LeaseLost
from ...clients import Task, Worker
from ...clients.tasks.outcome import reason_of

logger = logging.getLogger("penstock.celery")

BATCH = 100
"""Messages that are asked for at once where a channel has no limit."""

REJECTED = "rejected by its consumer"
REQUEUED = "requeued by its consumer"
NOT_OURS = "not a message of kombu"

Settle = Callable[[Worker, list[Task]], None]
"""A verb of workers."""


class Deliveries(virtual.QoS):
    """See the module."""

    def __init__(self, channel: Any, prefetch_count: int = 0) -> None:
        # Not super().__init__: the broker gives messages back when leases end, so nothing is restored at exit.
        self.channel = channel
        self._limit = prefetch_count or 0
        self._held: dict[int, tuple[Worker, Task]] = {}
        self._changed = Condition()
        self._tags = count(1)

    # -- room ---------------------------------------------------------------------------------------------

    @property
    def prefetch_count(self) -> int:
        """Messages that may be unsettled at once; 0: any number."""
        return self._limit

    @prefetch_count.setter
    def prefetch_count(self, value: int) -> None:
        with self._changed:
            self._limit = value or 0
            self._changed.notify_all()

    def room(self, wait_s: float = 0.0) -> int:
        """How many more messages may be taken, waiting so long for the first place."""
        with self._changed:
            if not self._room():
                self._changed.wait(wait_s)
            return self._room()

    def _room(self) -> int:
        return max(self._limit - len(self._held), 0) if self._limit else BATCH

    def can_consume(self) -> bool:
        """Whether there is room."""
        return self._room() > 0

    def can_consume_max_estimate(self) -> int:
        """How much room there is."""
        return self._room()

    # -- taking and settling ------------------------------------------------------------------------------

    def take(self, worker: Worker, tasks: list[Task]) -> list[dict[str, Any]]:
        """The messages of leased tasks, with their tags.

        Tasks for which there is no room go back to their queue: several feeds may have asked for the last place.
        """
        with self._changed:
            kept = tasks[: self._room()] if self._limit else tasks
            tagged = [(next(self._tags), task) for task in kept]
            self._held.update((tag, (worker, task)) for tag, task in tagged)
        if len(kept) < len(tasks):
            _settled(worker, Worker.release, tasks[len(kept) :])
        return [message for tag, task in tagged if (message := self._opened(tag, task)) is not None]

    def _opened(self, tag: int, task: Task) -> dict[str, Any] | None:
        try:
            return message_of(tag, task)
        except Exception as error:  # whatever another program wrote: nested too deeply, say
            self.refuse(tag, error)
            return None

    def append(self, message: Any, delivery_tag: Any) -> None:
        """Nothing: a message is noted when it is leased."""

    def get(self, delivery_tag: int) -> Task:
        """The task of a tag. Raises KeyError."""
        return self._held[delivery_tag][1]

    def ack(self, delivery_tag: int) -> None:
        """Ack a message. Unknown tags, as of broadcasts, need none."""
        found = self._pop(delivery_tag)
        if found is not None:
            worker, task = found
            worker.ack_nowait(task)

    def reject(self, delivery_tag: int, requeue: bool = False) -> None:
        """Have a message delivered again, or dead-letter it."""
        if requeue:
            self._settle(delivery_tag, partial(Worker.nack, delay=0, reason=REQUEUED))
        else:
            self._settle(delivery_tag, partial(Worker.reject, reason=REJECTED))

    def refuse(self, delivery_tag: Any, error: Exception) -> None:
        """Dead-letter a message that kombu did not write: reading it raised `error`."""
        reason = f"{NOT_OURS}: {reason_of(error)}"
        logger.warning("delivery %s is passed over: %s", delivery_tag, reason)
        self._settle(delivery_tag, partial(Worker.reject, reason=reason))

    def give_back(self, delivery_tag: int) -> None:
        """Give a message back untried."""
        self._settle(delivery_tag, Worker.release)

    def restore_unacked(self) -> list[Any]:
        """Give all messages back to their queues."""
        for tag in list(self._held):
            self.give_back(tag)
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """As `restore_unacked`."""
        self.restore_unacked()

    def _settle(self, tag: int, verb: Settle) -> None:
        found = self._pop(tag)
        if found is not None:
            worker, task = found
            _settled(worker, verb, [task])

    def _pop(self, tag: int) -> tuple[Worker, Task] | None:
        with self._changed:
            found = self._held.pop(tag, None)
            self._changed.notify_all()
            return found


def message_of(tag: int, task: Task) -> dict[str, Any]:
    """The message of a task as kombu has it. From the second attempt on it says that it is redelivered."""
    message = loads(bytes(task.value or b""))
    properties = message["properties"]
    properties["delivery_tag"] = tag
    if task.attempt > 1:
        properties["delivery_info"]["redelivered"] = True
        message["headers"]["redelivered"] = True
    return message


def _settled(worker: Worker, verb: Settle, tasks: list[Task]) -> None:
    """Settle tasks. A lost lease is settled by its end: the message is back in its queue, or with another worker."""
    with suppress(LeaseLost):
        verb(worker, tasks)
