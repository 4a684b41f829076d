"""NATS JetStream: nats-server of Debian (2.9), nats-py, over TCP.

Durability: file storage, `written` only. This server syncs its files every two minutes and cannot be told otherwise:
`sync_interval`, with which a later one (2.10) syncs before it acknowledges, is an unknown field in its configuration.

How it is driven: nats-py spends its time on each message it receives, acknowledgements included, so as few of them as
possible are asked for and none passes through a future.
- A window of batches; the last message of a batch asks for an acknowledgement. The server stores what one connection
  sends in order, and the acknowledgement carries the sequence number of its message, so it proves those before it: a
  number that is not the expected one is an error. `publish_async`, with one acknowledgement and one future for each
  message, is slower by a factor of ten.
- A pull consumer whose requests go to the API's subject and whose messages come to a callback: `fetch` of nats-py
  waits for every single message with a timer, which costs a factor of five. Reading by position needs no
  acknowledgements (`AckPolicy.NONE`), as with a Kafka consumer without a group.
- A receiver is pushed to: an ordered client of its own would be asked for nothing.

nats-py lives in asyncio: its loop runs inside the calls and rests between them, in the calling thread.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from . import servers
from .arrived import Arrived
from .batches import in_batches
from .system import Receiver, Sender, System

BATCH = 500  # messages behind one acknowledgement
WINDOW = 6  # batches that wait for theirs
PULL = 5000  # messages of one request; two requests are under way
CONFIGURATION = """
listen: "127.0.0.1:{port}"
max_payload: 8MB
jetstream {{ store_dir: "{directory}", max_file_store: 1TB }}
"""

Client = Any  # nats.aio.client.Client; nats-py is there only with the extra `bench`
T = TypeVar("T")


class NatsJetStream(System):
    """One stream of one subject, both of the name given."""

    name = "NATS JetStream"
    durabilities = frozenset({"written"})
    chunk = 80_000

    def absent(self) -> str:
        return servers.absence("nats-server", "nats")

    def versions(self) -> dict[str, str]:
        said = servers.said(servers.program("nats-server"), "--version")
        return {"nats-server": said.removeprefix("nats-server: v"), **servers.client_versions("nats-py")}

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        if durability not in self.durabilities:
            raise ValueError(f"{self.name} is {', '.join(self.durabilities)}, never {durability}")
        port = servers.free_port()
        configuration = directory / "nats.conf"
        configuration.write_text(CONFIGURATION.format(port=port, directory=directory))
        command = [servers.program("nats-server"), "--config", str(configuration)]
        with servers.running(command, directory / "nats.log", [port]):
            yield f"nats://{servers.LOOPBACK}:{port}"

    def create(self, address: str, stream: str) -> None:
        with _connected(address) as session:
            session.run(_create(session.client, stream))

    def produce(self, address: str, stream: str, values: Sequence[bytes]) -> None:
        with _connected(address) as session:
            session.run(_produce(session.client, stream, values))

    def consume(self, address: str, stream: str, count: int) -> Sequence[bytes]:
        with _connected(address) as session:
            return session.run(_consume(session.client, stream, count))

    @contextmanager
    def sender(self, address: str, stream: str) -> Iterator[Sender]:
        with _connected(address) as session:
            window = session.run(_Window.opened(session.client, stream))
            yield lambda values: session.run(_send(window, values))
            session.run(window.until(0))

    @contextmanager
    def acknowledged(self, address: str, stream: str) -> Iterator[Sender]:
        with _connected(address) as session:
            window = session.run(_Window.opened(session.client, stream))
            yield lambda values: session.run(_send_and_wait(window, values))

    @contextmanager
    def receiver(self, address: str, stream: str) -> Iterator[Receiver]:
        with _connected(address) as session:
            arrived = session.run(_subscribed(session.client, stream))

            def receive() -> Sequence[bytes]:
                session.run(arrived.some())
                return arrived.taken()

            yield receive


class _Session:
    """A connected client and the loop it lives in."""

    def __init__(self, runner: asyncio.Runner, client: Client) -> None:
        self.client = client
        self._loop = runner.get_loop()

    def run(self, work: Awaitable[T]) -> T:
        """Run a coroutine. Runner.run would handle signals in every call, and a sender is called for each message."""
        return self._loop.run_until_complete(work)


@contextmanager
def _connected(address: str) -> Iterator[_Session]:
    import nats

    with asyncio.Runner() as runner:
        # Subjects are ours, so checking their characters again for each message is left out.
        client = runner.run(nats.connect(address, skip_subject_validation=True))
        try:
            yield _Session(runner, client)
        finally:
            runner.run(client.close())


class _Window:
    """Batches sent and acknowledgements received. *Invariant*: sequence is what the server must have stored."""

    def __init__(self, client: Client, stream: str, sequence: int) -> None:
        self._client = client
        self._stream = stream
        self._sequence = sequence
        self._expected: list[int] = []
        self._wrong = ""
        self._moved = asyncio.Event()
        self._inbox = client.new_inbox()

    @classmethod
    async def opened(cls, client: Client, stream: str) -> _Window:
        info = await client.jetstream().stream_info(stream)
        window = cls(client, stream, info.state.last_seq)
        await client.subscribe(window._inbox, cb=window._on_acknowledgement)
        return window

    async def send(self, values: Sequence[bytes]) -> None:
        publish, stream = self._client.publish, self._stream
        for value in values[:-1]:
            await publish(stream, value)
        self._sequence += len(values)
        self._expected.append(self._sequence)
        await publish(stream, values[-1], reply=self._inbox)

    async def until(self, most: int) -> None:
        """Wait until no more than `most` batches are unacknowledged."""
        async with asyncio.timeout(servers.PATIENCE_S):
            while len(self._expected) > most:
                self._moved.clear()
                await self._moved.wait()
                if self._wrong:
                    raise RuntimeError(self._wrong)

    async def _on_acknowledgement(self, message: Any) -> None:
        answer = json.loads(message.data)
        if answer.get("seq") != self._expected[0]:
            self._wrong = f"the server answered {answer} where it must have stored message {self._expected[0]}"
        del self._expected[0]
        self._moved.set()


async def _create(client: Client, stream: str) -> None:
    from nats.js.api import StorageType, StreamConfig
    from nats.js.errors import NotFoundError

    context = client.jetstream()
    with suppress(NotFoundError):
        await context.delete_stream(stream)
    await context.add_stream(StreamConfig(name=stream, subjects=[stream], storage=StorageType.FILE))


async def _produce(client: Client, stream: str, values: Sequence[bytes]) -> None:
    window = await _Window.opened(client, stream)
    for batch in in_batches(values, BATCH):
        await window.send(batch)
        await window.until(WINDOW)
    await window.until(0)


async def _send_and_wait(window: _Window, values: Sequence[bytes]) -> None:
    await window.send(values)
    await window.until(0)


async def _send(window: _Window, values: Sequence[bytes]) -> None:
    """Send values: the client's writing task runs while this yields once, and puts the bytes into the socket."""
    await window.send(values)
    await asyncio.sleep(0)


async def _consume(client: Client, stream: str, count: int) -> Sequence[bytes]:
    from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

    configuration = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL, mem_storage=True)
    consumer = await client.jetstream().add_consumer(stream, configuration)
    inbox = client.new_inbox()
    arrived = await _listening(client, inbox)
    values: list[bytes] = []
    asked = 0
    while len(values) < count:
        while asked < count and asked - len(values) <= PULL:
            request = {"batch": min(PULL, count - asked)}
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer.name}"
            await client.publish(subject, json.dumps(request).encode(), reply=inbox)
            asked += PULL
        await arrived.some()
        values += arrived.taken()
    return values


async def _subscribed(client: Client, stream: str) -> Arrived:
    from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

    inbox = client.new_inbox()
    arrived = await _listening(client, inbox)
    configuration = ConsumerConfig(
        ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.NEW, deliver_subject=inbox, mem_storage=True
    )
    await client.jetstream().add_consumer(stream, configuration)
    return arrived


async def _listening(client: Client, inbox: str) -> Arrived:
    """Collect messages that arrive at the inbox. Without limits: the client drops messages beyond them."""
    arrived = Arrived(asyncio.get_running_loop())

    async def take(message: Any) -> None:
        if message.headers:
            arrived.fail(RuntimeError(f"the server sent {message.headers} in place of a message"))
        arrived.add(message.data)

    await client.subscribe(inbox, cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
    return arrived


SYSTEM = NatsJetStream()
