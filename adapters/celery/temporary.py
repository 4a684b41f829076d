"""Temporary queues: places in the topics of exchanges, instead of topics of their own.

Idea: a queue that goes with its connection (`auto_delete`, `exclusive`) gets what is published after it was bound. So
it is a list of bindings, each with an offset of the exchange's topic, and routing is done where it is read. A process
that dies leaves nothing behind, and publishers need not know the listeners. Remote control of Celery, its replies and
events are such queues.

Contract: a binding is read by one thread at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kombu.utils.json import loads

from ...clients import Client
from ...storage.errors import OutOfBounds
from ...storage.record import Record

logger = logging.getLogger("penstock.celery")

READ_MOST = 500


class Binding:
    """A queue's place in an exchange: `accepts` says which routing keys it wants."""

    def __init__(self, client: Client, topic: str, accepts: Callable[[str], bool]) -> None:
        """From the end of the exchange's topic on, which is there."""
        self.topic = topic
        self._client = client
        self._accepts = accepts
        self._offset = client.offsets(topic, "latest")[0]

    def read(self, wait_s: float) -> list[dict[str, Any]]:
        """The next messages for the queue; [] when none came in time. Those that retention took are passed over."""
        try:
            found = self._client.read(self.topic, 0, self._offset, max_records=READ_MOST, wait=wait_s)
        except OutOfBounds:
            self._offset = max(self._client.offsets(self.topic, "earliest")[0], self._offset)
            return []
        if found:
            self._offset = found[-1].offset + 1
        return [message for record in found if (message := self._wanted(record)) is not None]

    def _wanted(self, record: Record) -> dict[str, Any] | None:
        """The message of a record, if the queue wants it."""
        try:
            message = loads(bytes(record.value or b"null"))
            properties = message["properties"]
            properties["delivery_tag"] = f"{self.topic} offset {record.offset}"  # no lease has it, whatever was written
            return message if self._accepts(properties["delivery_info"]["routing_key"]) else None
        except Exception as error:
            logger.warning(
                "%s offset %d is no message of kombu, and is passed over: %r", self.topic, record.offset, error
            )
            return None
