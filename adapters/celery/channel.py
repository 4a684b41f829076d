"""A channel: what kombu asks for, as topics, leases and temporary queues.

Idea: a durable queue is a topic with a queue group; a temporary one is a list of places in the topics of exchanges
(temporary.py). A message that is published to an exchange goes to the durable queues that this connection bound, and
to the exchange's topic when a temporary queue has made one.

Contract: as kombu's channels, one thread at a time, but for acks. In a forked child a channel is closed without a word
to the broker.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty
from typing import Any

from amqp.protocol import queue_declare_ok_t
from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.utils.json import dumps
from kombu.utils.uuid import uuid

from ...broker.errors import UnknownGroup, UnknownTopic
from ...clients import Worker
from ...storage.errors import Error
from .deliveries import Deliveries
from .feeds import MessageFeed, QueueFeed, TemporaryFeed
from .names import GROUP, exchange_topic, queue_topic
from .routing import accepting, eta_of, priority_of
from .temporary import Binding

logger = logging.getLogger("penstock.celery")


class KombuChannel(virtual.Channel):
    """See the module."""

    QoS = Deliveries
    supports_fanout = True
    do_restore = False

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._link = connection.link
        self._process = os.getpid()
        self._deliveries = Deliveries(self)
        self._workers: dict[str, Worker] = {}
        self._feeds: dict[str, Sequence[MessageFeed]] = {}
        self._most_urgent = int(connection.client.transport_options.get("most_urgent", 9))

    @property
    def qos(self) -> Deliveries:
        """What this channel has and did not settle."""
        return self._deliveries

    # -- queues -------------------------------------------------------------------------------------------

    def queue_declare(
        self, queue: str | None = None, passive: bool = False, exclusive: bool = False, auto_delete: bool = False,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Make a queue: a topic, or a temporary one. Raises ChannelError (404) with `passive` when it is missing."""
        queue = queue or f"amq.gen-{uuid()}"
        if passive and not self._has_queue(queue):
            raise ChannelError(f"NOT_FOUND - no queue {queue!r}", (50, 10), "Channel.queue_declare", "404")
        if auto_delete or exclusive:
            self._temporary.setdefault(queue, {})
        elif not passive:
            self._new_queue(queue)
        return queue_declare_ok_t(queue, self._size(queue), 0)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any) -> None:
        """Delete a queue with its messages."""
        if if_empty and self._size(queue):
            return
        for name, key, _ in list(self.state.queue_bindings(queue)):
            self.queue_unbind(queue, name, key)
        self.state.queue_bindings_delete(queue)
        if self._temporary.pop(queue, None) is None:
            self._delete(queue)

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **kwargs: Any
    ) -> None:
        """Remove a binding."""
        super().queue_unbind(queue, exchange, routing_key, arguments, **kwargs)
        self._temporary.get(queue, {}).pop((exchange, routing_key), None)

    def _has_queue(self, queue: str, **kwargs: Any) -> Any:
        return queue in self._temporary or self._link.has_topic(queue_topic(queue))

    def _new_queue(self, queue: str, **kwargs: Any) -> None:
        self._link.ensure_queue(queue_topic(queue))

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        topic = queue_topic(queue)
        worker = self._workers.pop(topic, None)
        if worker is not None:
            _close(worker)
        self._link.forget(topic)
        with suppress(UnknownTopic):
            self._link.client.delete_topic(topic)

    def _size(self, queue: str) -> Any:
        if queue in self._temporary:
            return 0
        try:
            found = self._link.client.queue(queue_topic(queue), GROUP)
        except (UnknownTopic, UnknownGroup):
            return 0
        return found.ready + found.retrying + found.delayed

    def _purge(self, queue: str) -> int:
        size = self._size(queue)
        if size:
            self._link.client.reset_queue(queue_topic(queue), GROUP, "latest")
        return size

    # -- publishing ---------------------------------------------------------------------------------------

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any) -> None:
        """Publish a message; it is committed when this returns."""
        self._inplace_augment_message(message, exchange, routing_key)
        if not exchange:
            self._put(routing_key, message)
            return
        for queue in self._lookup(exchange, routing_key):
            if queue and queue not in self._temporary:
                self._put(queue, message)
        self._broadcast(exchange, message)

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        topic, value = queue_topic(queue), dumps(message).encode()
        priority = priority_of(message, self._most_urgent)
        self._link.ensure_queue(topic)
        try:
            self._link.send(topic, value, priority=priority, at=eta_of(message))
        except UnknownTopic:  # deleted by another process since
            self._link.ensure_queue(topic)
            self._link.send(topic, value, priority=priority, at=eta_of(message))

    def _broadcast(self, exchange: str, message: dict[str, Any]) -> None:
        topic = exchange_topic(exchange)
        if self._link.has_topic(topic):
            with suppress(UnknownTopic):  # an administrator deleted it: nothing listens
                self._link.send(topic, dumps(message).encode())

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        bindings = self._temporary.get(queue)
        if bindings is None or (exchange, routing_key) in bindings:
            return
        topic, kind = exchange_topic(exchange), self.typeof(exchange)
        self._link.ensure_exchange(topic)
        accepts = accepting(kind.type, pattern, routing_key, getattr(kind, "_match", str.__eq__))
        bindings[exchange, routing_key] = Binding(self._link.client, topic, accepts)

    # -- consuming ----------------------------------------------------------------------------------------

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], consumer_tag: str, **kwargs: Any
    ) -> None:
        """Consume from a queue, until `basic_cancel`."""

        def deliver(raw: dict[str, Any]) -> None:
            message = self._message(raw, no_ack=no_ack)
            if message is not None:
                callback(message)

        self._tag_to_queue[consumer_tag] = queue
        self._active_queues.append(queue)
        self._consumers.add(consumer_tag)
        self._feeds[consumer_tag] = feeds = self._feeds_of(queue, deliver)
        for feed in feeds:
            feed.start()

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop consuming. What was delivered stays with its consumer until it is settled."""
        if consumer_tag not in self._consumers:
            return
        self._consumers.remove(consumer_tag)
        self._active_queues.remove(self._tag_to_queue.pop(consumer_tag))
        for feed in self._feeds.pop(consumer_tag, []):
            feed.stop()

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """The next message that is there, or None."""
        try:
            raw = self._get(queue)
        except Empty:
            return None
        return self._message(raw, no_ack=no_ack)

    def _message(self, raw: dict[str, Any], *, no_ack: bool) -> Any:
        """What consumers get; None for what kombu did not write, which is a dead letter then."""
        tag = raw["properties"]["delivery_tag"]
        try:
            message = self.Message(raw, channel=self)
        except Exception as error:  # a body that cannot be decoded, headers that are no map
            self.qos.refuse(tag, error)
            return None
        if no_ack:
            self.qos.ack(tag)
        return message

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        if queue in self._temporary:
            raise Empty  # temporary queues are consumed: only feeds read them
        worker = self._worker(queue)
        found = self.qos.take(worker, worker.fetch(max_records=1, wait=timeout or 0.0))
        if not found:
            raise Empty
        return found[0]

    def _feeds_of(self, queue: str, deliver: Callable[[dict[str, Any]], None]) -> Sequence[MessageFeed]:
        inbox, bindings = self.connection.inbox, self._temporary.get(queue)
        if bindings is None:
            return [QueueFeed(inbox, deliver, self._worker(queue), self.qos)]
        return [TemporaryFeed(inbox, deliver, binding) for binding in bindings.values()]

    def _worker(self, queue: str) -> Worker:
        topic = queue_topic(queue)
        if topic not in self._workers:
            self._link.ensure_queue(topic)
            self._workers[topic] = self._link.worker(topic)
        return self._workers[topic]

    # -- the end ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Cancel all consumers, and give back what is not settled."""
        if self.closed:
            return
        if os.getpid() != self._process:
            self.closed = True
            return
        for tag in list(self._consumers):
            self.basic_cancel(tag)
        super().close()
        for worker in self._workers.values():
            _close(worker)

    @property
    def _temporary(self) -> dict[str, dict[tuple[str | None, str], Binding]]:
        return self.connection.temporary


def _close(worker: Worker) -> None:
    """Close a worker. What it could not settle comes again, which its application is prepared for."""
    try:
        worker.close()
    except Error as error:
        logger.warning("messages of queue %s may be delivered again: %s", worker.topic, error)
