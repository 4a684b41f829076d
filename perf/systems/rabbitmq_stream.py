"""RabbitMQ, stream: rabbitmq-server of Debian (3.10) with its stream plugin, rstream, over TCP.

Durability: `written` only. A stream hands its segments to the page cache and leaves syncing to the kernel; there is
no setting for it.

How it is driven: `send_batch` of plain bytes (rstream's binary codec, which its documentation names for exchanges from
Python to Python; AMQP 1.0 would encode each message in Python), a window of batches whose confirms a callback counts,
and a consumer with a callback. Sub-entry batches are left out: they write a quarter faster at best, and the broker
confirms and counts them as one.

rstream lives in asyncio: its loop runs inside the calls, in the calling thread. Closing a client sleeps 0.2 s for each
of its connections; a thread does that after the call has returned, as a program that keeps its client open would not
wait for it either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, TypeVar

from . import rabbitmq, servers
from .arrived import Arrived
from .batches import in_batches
from .system import Receiver, Sender, System

BATCH = 1000
WINDOW = 4000  # messages that wait for their confirm
CREDIT = 10  # chunks on their way to a consumer: rstream's default

Client = Any  # rstream.Producer or rstream.Consumer; rstream is there only with the extra `bench`
T = TypeVar("T")


class RabbitMqStream(System):
    """One stream, written and read over the stream protocol."""

    name = "RabbitMQ stream"
    durabilities = frozenset({"written"})
    chunk = 60_000

    def absent(self) -> str:
        return rabbitmq.absent("rstream")

    def versions(self) -> dict[str, str]:
        return rabbitmq.version() | servers.client_versions("rstream")

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        if durability not in self.durabilities:
            raise ValueError(f"a RabbitMQ stream is written, never {durability}")
        with rabbitmq.serve(directory) as ports:
            try:
                yield str(ports.stream)
            finally:
                _Session.wait_for_closing()

    def create(self, address: str, stream: str) -> None:
        with _Session("Producer", address) as session:
            session.run(session.client.delete_stream(stream, missing_ok=True))
            session.run(session.client.create_stream(stream))

    def produce(self, address: str, stream: str, values: Sequence[bytes]) -> None:
        with _Session("Producer", address) as session:
            session.run(_produce(_Window(session.client, stream), values))

    def consume(self, address: str, stream: str, count: int) -> Sequence[bytes]:
        with _Session("Consumer", address) as session:
            return session.run(_consume(session.client, stream, count))

    @contextmanager
    def sender(self, address: str, stream: str) -> Iterator[Sender]:
        with _Session("Producer", address) as session:
            window = _Window(session.client, stream)
            yield lambda values: session.run(window.send(values))
            session.run(window.until(0))

    @contextmanager
    def acknowledged(self, address: str, stream: str) -> Iterator[Sender]:
        with _Session("Producer", address) as session:
            window = _Window(session.client, stream)
            yield lambda values: session.run(_produce(window, values))

    @contextmanager
    def receiver(self, address: str, stream: str) -> Iterator[Receiver]:
        from rstream import OffsetType

        with _Session("Consumer", address) as session:
            arrived = session.run(_subscribed(session.client, stream, OffsetType.NEXT))

            def receive() -> Sequence[bytes]:
                session.run(arrived.some())
                return arrived.taken()

            yield receive


class _Session:
    """A started client and the loop it lives in."""

    _closing: ClassVar[list[Thread]] = []

    def __init__(self, kind: str, address: str) -> None:
        self._kind = kind
        self._port = int(address)
        self._runner = asyncio.Runner()

    def __enter__(self) -> _Session:
        import rstream

        async def started() -> Client:
            client = getattr(rstream, self._kind)(servers.LOOPBACK, self._port, username="guest", password="guest")
            await client.start()
            return client

        self.client = self.run(started())
        return self

    def __exit__(self, *raised: object) -> None:
        closing = Thread(target=self._close, name="rstream closes")
        self._closing.append(closing)
        closing.start()

    @classmethod
    def wait_for_closing(cls) -> None:
        """Let clients close first: one whose server stops would look for another server."""
        while cls._closing:
            cls._closing.pop().join()

    def run(self, work: Awaitable[T]) -> T:
        return self._runner.get_loop().run_until_complete(work)

    def _close(self) -> None:
        """Close the session, in a thread of its own; no other thread uses the loop by then."""
        with self._runner:
            self.run(self.client.close())


class _Window:
    """Messages sent and confirmed."""

    def __init__(self, client: Client, stream: str) -> None:
        self._client = client
        self._stream = stream
        self._waiting = 0
        self._refused = 0
        self._moved = asyncio.Event()

    async def send(self, values: Sequence[bytes]) -> None:
        self._waiting += len(values)
        await self._client.send_batch(self._stream, values, on_publish_confirm=self._on_confirm)

    async def until(self, most: int) -> None:
        """Wait until no more than `most` messages are unconfirmed."""
        async with asyncio.timeout(servers.PATIENCE_S):
            while self._waiting > most:
                self._moved.clear()
                await self._moved.wait()
                if self._refused:
                    raise RuntimeError(f"the broker refused {self._refused} messages")

    def _on_confirm(self, status: Any) -> None:
        self._waiting -= 1
        self._refused += not status.is_confirmed
        self._moved.set()


async def _produce(window: _Window, values: Sequence[bytes]) -> None:
    for batch in in_batches(values, BATCH):
        await window.send(batch)
        await window.until(WINDOW - BATCH)
    await window.until(0)


async def _consume(client: Client, stream: str, count: int) -> Sequence[bytes]:
    from rstream import OffsetType

    arrived = await _subscribed(client, stream, OffsetType.FIRST)
    return await arrived.at_least(count)


async def _subscribed(client: Client, stream: str, start: Any) -> Arrived:
    from rstream import ConsumerOffsetSpecification

    arrived = Arrived(asyncio.get_running_loop())
    offset = ConsumerOffsetSpecification(start, None)

    def take(message: bytes, context: object) -> None:
        arrived.add(message)

    await client.subscribe(stream, take, offset_specification=offset, initial_credit=CREDIT)
    return arrived


SYSTEM = RabbitMqStream()
