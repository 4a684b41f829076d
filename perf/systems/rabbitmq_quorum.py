"""RabbitMQ, quorum queue: rabbitmq-server of Debian (3.10), pika, over TCP.

Durability: `durable` only. A quorum queue of one member confirms a message when its write-ahead log has it, and that
log calls fdatasync once for all that came meanwhile before any client is told (`wal_sync_method`, datasync by default).

How it is driven: SelectConnection with our own calls of its loop. BlockingConnection waits for each confirm before the
next message (a twentieth of the rate) and, without confirms, writes to the socket for each. So:
- publisher confirms in a window of messages; the broker confirms many at once (`multiple`);
- `basic_qos` with a large prefetch, deliveries to a callback, one acknowledgement for hundreds.
What remains is pika: three frames to marshal and three writes for each message.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import rabbitmq, servers
from .batches import in_batches
from .system import Receiver, Sender, System

BATCH = 500  # messages published before the loop runs
WINDOW = 4000  # messages that wait for their confirm
PREFETCH = 2000
ACKNOWLEDGE = 500  # deliveries behind one acknowledgement
QUORUM = {"x-queue-type": "quorum"}

Channel = Any  # pika.channel.Channel; pika is there only with the extra `bench`


class RabbitMqQuorum(System):
    """One quorum queue, published to through the default exchange."""

    name = "RabbitMQ quorum queue"
    durabilities = frozenset({"durable"})
    chunk = 12_000

    def absent(self) -> str:
        return rabbitmq.absent("pika")

    def versions(self) -> dict[str, str]:
        return rabbitmq.version() | servers.client_versions("pika")

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        if durability not in self.durabilities:
            raise ValueError(f"a quorum queue is durable, never {durability}")
        with rabbitmq.serve(directory) as ports:
            yield str(ports.amqp)

    def create(self, address: str, stream: str) -> None:
        import pika

        with pika.BlockingConnection(_parameters(address)) as connection:
            channel = connection.channel()
            channel.queue_delete(stream)
            channel.queue_declare(stream, durable=True, arguments=QUORUM)

    def produce(self, address: str, stream: str, values: Sequence[bytes]) -> None:
        with _Session(address) as session:
            window = _Window(session, stream)
            for batch in in_batches(values, BATCH):
                window.publish(batch)
                session.until(lambda: window.waiting <= WINDOW)
            session.until(lambda: not window.waiting)

    def consume(self, address: str, stream: str, count: int) -> Sequence[bytes]:
        with _Session(address) as session:
            deliveries = _Deliveries(session, stream)
            session.until(lambda: len(deliveries.values) >= count)
            deliveries.acknowledge()
            return deliveries.values

    @contextmanager
    def sender(self, address: str, stream: str) -> Iterator[Sender]:
        with _Session(address) as session:
            window = _Window(session, stream)

            def send(values: Sequence[bytes]) -> None:
                window.publish(values)
                session.turn()

            yield send
            session.until(lambda: not window.waiting)

    @contextmanager
    def acknowledged(self, address: str, stream: str) -> Iterator[Sender]:
        with _Session(address) as session:
            window = _Window(session, stream)

            def send(values: Sequence[bytes]) -> None:
                window.publish(values)
                session.until(lambda: not window.waiting)

            yield send

    @contextmanager
    def receiver(self, address: str, stream: str) -> Iterator[Receiver]:
        with _Session(address) as session:
            deliveries = _Deliveries(session, stream)

            def receive() -> Sequence[bytes]:
                session.until(lambda: bool(deliveries.values))
                return deliveries.taken()

            yield receive
            deliveries.acknowledge()


class _Session:
    """A connection with one channel, and its loop, which runs only while a caller waits."""

    def __init__(self, address: str) -> None:
        from pika.adapters.select_connection import SelectConnection

        self._failed: object = None
        self._channels: list[Channel] = []
        self._connection = SelectConnection(
            _parameters(address),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._channels.append),
            on_open_error_callback=self._on_end,
            on_close_callback=self._on_end,
        )
        self._loop = self._connection.ioloop
        self._loop.activate_poller()

    def __enter__(self) -> _Session:
        self.until(lambda: bool(self._channels))
        self.channel = self._channels[0]
        self.channel.add_on_close_callback(self._on_end)
        return self

    def __exit__(self, *raised: object) -> None:
        if not self._failed:
            self._connection.close()
            self.until(lambda: self._connection.is_closed, bearing=True)
        self._loop.deactivate_poller()
        self._loop.close()

    def until(self, done: Callable[[], bool], bearing: bool = False) -> None:
        """Run the loop until `done`; the end of the connection is an error unless it is awaited."""
        until = time.monotonic() + servers.PATIENCE_S
        while not done():
            self.turn()
            if self._failed and not bearing:
                raise ConnectionError(f"RabbitMQ closed: {self._failed}")
            if time.monotonic() > until:
                raise TimeoutError(f"RabbitMQ said nothing for {servers.PATIENCE_S:.0f} s")

    def turn(self) -> None:
        """Write and read what is possible; wait if nothing is."""
        self._loop.poll()
        self._loop.process_timeouts()

    def _on_end(self, _: object, reason: object) -> None:
        self._failed = reason


class _Window:
    """Messages of one channel, whose tags count from 1. *Invariant*: all up to `_confirmed` are confirmed."""

    def __init__(self, session: _Session, queue: str) -> None:
        import pika

        self._publish = session.channel.basic_publish
        self._queue = queue
        self._persistent = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
        self._published = 0
        self._confirmed = 0
        self._early: set[int] = set()
        ready: list[object] = []
        session.channel.confirm_delivery(self._on_confirm, callback=ready.append)
        session.until(lambda: bool(ready))

    @property
    def waiting(self) -> int:
        return self._published - self._confirmed

    def publish(self, values: Sequence[bytes]) -> None:
        publish, queue, persistent = self._publish, self._queue, self._persistent
        for value in values:
            publish("", queue, value, persistent)
        self._published += len(values)

    def _on_confirm(self, frame: Any) -> None:
        """Handle a confirm of all messages up to a tag, or of one; single ones may overtake each other."""
        confirm = frame.method
        if confirm.NAME != "Basic.Ack":
            raise RuntimeError(f"RabbitMQ refused message {confirm.delivery_tag}")
        if confirm.multiple:
            self._confirmed = max(self._confirmed, confirm.delivery_tag)
        else:
            self._early.add(confirm.delivery_tag)
        while self._confirmed + 1 in self._early:
            self._confirmed += 1
            self._early.remove(self._confirmed)


class _Deliveries:
    """The deliveries of a consumer, acknowledged by the hundred."""

    def __init__(self, session: _Session, queue: str) -> None:
        self.values: list[bytes] = []
        self._channel = session.channel
        self._last = 0
        self._acknowledged = 0
        consuming: list[object] = []
        session.channel.basic_qos(prefetch_count=PREFETCH)
        session.channel.basic_consume(queue, self._on_message, callback=consuming.append)
        session.until(lambda: bool(consuming))

    def taken(self) -> Sequence[bytes]:
        values, self.values = self.values, []
        return values

    def acknowledge(self) -> None:
        if self._last > self._acknowledged:
            self._channel.basic_ack(self._last, multiple=True)
            self._acknowledged = self._last

    def _on_message(self, channel: Channel, deliver: Any, properties: object, body: bytes) -> None:
        self.values.append(body)
        self._last = deliver.delivery_tag
        if self._last - self._acknowledged >= ACKNOWLEDGE:
            self.acknowledge()


def _parameters(address: str) -> Any:
    import pika

    return pika.ConnectionParameters(servers.LOOPBACK, int(address))


SYSTEM = RabbitMqQuorum()
