"""A connection to a broker as the transport needs it: topics made when they are missing, one producer for each.

Contract: threads may share a link. What it makes stays: queues are durable, and exchanges keep an hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from threading import Lock
from typing import Any

from ...broker.errors import TopicExists, UnknownGroup, UnknownTopic
from ...clients import Client, Producer, Worker, connect
from .names import GROUP

CONNECT_TIMEOUT_S = 4.0
"""How long connecting, and each request, may wait for the broker by default."""

LEASE_S = 30.0
"""How long the messages of a worker that died stay with it. Those of one that lives are extended."""

NEVER_S = 10 * 365 * 86400.0
"""A worker of Celery may run a task for months: its leases end with its process, not with its silence."""

KEEP_FINISHED_S = 60.0
"""How long acknowledged messages stay in a queue."""

EXCHANGE_SETTINGS: dict[str, Any] = {"commit": "written", "retention_s": 3600.0, "retention_bytes": 64_000_000}
"""What is broadcast is for the processes that listen now."""


class KombuLink:
    """See the module."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        """Connect. Raises TimedOut when no broker answers, InvalidUrl."""
        self.lease_s = float(options.get("lease", LEASE_S))
        timeout = float(options.get("timeout", CONNECT_TIMEOUT_S))
        self.client: Client = connect(url, timeout=timeout, name="celery", key=options.get("key"))
        self._lock = Lock()
        self._producers: dict[str, Producer] = {}
        self._queues: set[str] = set()

    def ensure_queue(self, topic: str) -> None:
        """Make a queue that is missing."""
        if topic not in self._queues:
            self._ensure_topic(topic, {})
            try:
                self.client.queue(topic, GROUP)
            except UnknownGroup:
                self.client.set_queue(topic, GROUP, max_attempts=None, backoff_s=0, keep_finished_s=KEEP_FINISHED_S)
            self._queues.add(topic)

    def ensure_exchange(self, topic: str) -> None:
        """Make the topic of an exchange that is missing."""
        self._ensure_topic(topic, EXCHANGE_SETTINGS)

    def has_topic(self, topic: str) -> bool:
        """Whether there is such a topic. One that this link sent to is taken to be there."""
        if topic in self._producers:
            return True
        try:
            self.client.topic(topic)
        except UnknownTopic:
            return False
        return True

    def send(self, topic: str, value: bytes, *, priority: int = 0, at: datetime | None = None) -> None:
        """Append a message and wait until it is committed. Raises UnknownTopic, TimedOut and what producers raise."""
        producer = self._producers.get(topic) or self._open(topic)
        try:
            producer.send(value, priority=priority or None, at=at)
        except UnknownTopic:
            self.forget(topic)
            raise

    def worker(self, topic: str) -> Worker:
        """A worker of a queue, which asks for what it is told to and nothing ahead."""
        return self.client.worker(topic, group=GROUP, lease=self.lease_s, prefetch=0, max_processing=NEVER_S, name=None)

    def forget(self, topic: str) -> None:
        """Take nothing about a topic for granted: it was deleted."""
        with self._lock:
            self._queues.discard(topic)
            producer = self._producers.pop(topic, None)
        if producer is not None:
            with suppress(UnknownTopic):
                producer.close()

    def close(self) -> None:
        """Close the client with all that was opened."""
        self.client.close()

    def _open(self, topic: str) -> Producer:
        with self._lock:
            if topic not in self._producers:
                self._producers[topic] = self.client.producer(topic)
            return self._producers[topic]

    def _ensure_topic(self, topic: str, settings: Mapping[str, Any]) -> None:
        if not self.has_topic(topic):
            with suppress(TopicExists):  # another process was first
                self.client.create_topic(topic, **settings)
