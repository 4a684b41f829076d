"""Redis Streams: redis-server of Debian, redis-py with hiredis, over a Unix socket.

Durability: `appendonly yes` writes every command to a file before its reply leaves; `appendfsync always` also fsyncs
it, once for all commands of one round of the server's loop; `appendfsync no` leaves it in the page cache. Snapshots
are off, and so is the rewriting of the file, which would take turns with the figures.

How it is driven: two ways to append, because they differ by a factor of two and the better one is not the usual one.
- A pipeline without a transaction of XADD commands: what the documentation of redis-py shows.
- A script that the server runs for a thousand values at once: one command to encode and one reply to parse, and the
  stream that results is the same. It is the fastest way that redis-py documents.
Reading is XREAD with large counts. Replies stay as hiredis parsed them: the default callback of redis-py makes a
dictionary of each entry and takes twice the time of the rest (`set_response_callback` is there to replace it).

As a task queue: a consumer group. Tasks are added by script; a worker reads a batch with XREADGROUP and finishes it
with one XACK. Both change the file, and `appendfsync always` syncs each. A finished entry stays in the stream, as a
record does in a log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from . import servers
from .batches import in_batches
from .queue import One, Queue, Work
from .system import Receiver, Sender, System

GROUP = "lab"
APPEND = "for i = 1, #ARGV do redis.call('XADD', KEYS[1], '*', 'v', ARGV[i]) end return #ARGV"
FIELD = b"v"
BATCH = 1000  # values of one pipeline or script, if they are small; 200 to 10,000 make no difference
COUNT = 1000  # entries of one XREAD
CONFIGURATION = """
port 0
unixsocket {socket}
dir {directory}
appendonly yes
appendfsync {fsync}
auto-aof-rewrite-percentage 0
save ""
loglevel warning
"""

Client = Any  # redis.Redis; redis-py is there only with the extra `bench`
Produce = Callable[[Client, str, Sequence[bytes]], None]


def pipelined(client: Client, stream: str, values: Sequence[bytes]) -> None:
    pipeline = client.pipeline(transaction=False)
    for value in values:
        pipeline.execute_command("XADD", stream, "*", FIELD, value)
    pipeline.execute()


def scripted(client: Client, stream: str, values: Sequence[bytes]) -> None:
    client.register_script(APPEND)(keys=[stream], args=values)


class RedisStreams(System):
    """One way to append; everything else is the same."""

    durabilities = frozenset({"durable", "written"})

    def __init__(self, name: str, append: Produce, chunk: int) -> None:
        self.name = name
        self.chunk = chunk
        self._append = append

    def absent(self) -> str:
        return servers.absence("redis-server", "redis", "hiredis")

    def versions(self) -> dict[str, str]:
        said = servers.said(servers.program("redis-server"), "--version")
        found = re.search(r"v=(\S+)", said)
        return {"redis-server": found[1] if found else said, **servers.client_versions("redis", "hiredis")}

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        with servers.short_path() as place:
            fsync = {"durable": "always", "written": "no"}[durability]
            text = CONFIGURATION.format(socket=place / "redis", directory=directory, fsync=fsync)
            (directory / "redis.conf").write_text(text)
            command = [servers.program("redis-server"), str(directory / "redis.conf")]
            with servers.running(command, directory / "redis.log", [place / "redis"]):
                yield str(place / "redis")

    def create(self, address: str, stream: str) -> None:
        """Remove an older stream of this name; a stream begins with its first entry."""
        with closing(connect(address)) as client:
            client.delete(stream)

    def produce(self, address: str, stream: str, values: Sequence[bytes]) -> None:
        with closing(connect(address)) as client:
            for batch in in_batches(values, BATCH):
                self._append(client, stream, batch)

    def consume(self, address: str, stream: str, count: int) -> Sequence[bytes]:
        with closing(connect(address)) as client:
            reader = _Reader(client, stream, b"0")
            values: list[bytes] = []
            while len(values) < count:
                values += reader()
            return values

    @contextmanager
    def sender(self, address: str, stream: str) -> Iterator[Sender]:
        with closing(connect(address)) as client:
            pipe = _Pipe(client, stream)
            yield pipe.send
            pipe.collect(wait=True)

    @contextmanager
    def acknowledged(self, address: str, stream: str) -> Iterator[Sender]:
        with closing(connect(address)) as client:
            pipe = _Pipe(client, stream)

            def send(values: Sequence[bytes]) -> None:
                pipe.send(values)
                pipe.collect(wait=True)

            yield send

    @contextmanager
    def receiver(self, address: str, stream: str) -> Iterator[Receiver]:
        with closing(connect(address)) as client:
            last = client.execute_command("XREVRANGE", stream, "+", "-", "COUNT", 1)
            yield _Reader(client, stream, last[0][0] if last else b"0")


class _Reader:
    """Reads on from one entry; blocks at the server until a new one comes."""

    def __init__(self, client: Client, stream: str, last: bytes) -> None:
        self._client = client
        self._stream = stream
        self._last = last

    def __call__(self) -> Sequence[bytes]:
        patience_ms = int(servers.PATIENCE_S * 1000)
        read = ("XREAD", "COUNT", COUNT, "BLOCK", patience_ms, "STREAMS", self._stream, self._last)
        reply = self._client.execute_command(*read)
        if not reply:
            raise TimeoutError(f"nothing came on {self._stream} for {servers.PATIENCE_S:.0f} s")
        entries = reply[0][1]
        self._last = entries[-1][0]
        return [fields[1] for _, fields in entries]


class _Pipe:
    """A connection written to without waiting; replies are read when they arrive, and errors raised."""

    def __init__(self, client: Client, stream: str) -> None:
        self._connection = client.connection_pool.get_connection()
        self._stream = stream
        self._outstanding = 0

    def send(self, values: Sequence[bytes]) -> None:
        commands = [("XADD", self._stream, "*", FIELD, value) for value in values]
        self._connection.send_packed_command(self._connection.pack_commands(commands))
        self._outstanding += len(commands)
        self.collect(wait=False)

    def collect(self, wait: bool) -> None:
        while self._outstanding and (wait or self._connection.can_read(timeout=0)):
            self._connection.read_response()
            self._outstanding -= 1


def connect(path: str) -> Client:
    """RESP 2: the reply of XREAD is then a plain list in every version of redis-py."""
    import redis

    client = redis.Redis(unix_socket_path=path, protocol=2, socket_timeout=None)
    for command in ("XREAD", "XREADGROUP", "XREVRANGE"):
        client.set_response_callback(command, lambda reply, **_: reply)
    return client


class RedisGroup(RedisStreams, Queue):
    """The task side: one stream with one group."""

    def create(self, address: str, stream: str) -> None:
        super().create(address, stream)
        with closing(connect(address)) as client:
            client.execute_command("XGROUP", "CREATE", stream, GROUP, "0", "MKSTREAM")

    def enqueue(self, address: str, queue: str, values: Sequence[bytes]) -> None:
        self.produce(address, queue, values)

    @contextmanager
    def worker(self, address: str, queue: str, batch: int) -> Iterator[Work]:
        with closing(connect(address)) as client:
            name = f"worker-{client.client_id()}"
            yield lambda: _work(client, queue, name, batch)

    @contextmanager
    def one(self, address: str, queue: str) -> Iterator[One]:
        with closing(connect(address)) as client:

            def life(value: bytes) -> None:
                client.execute_command("XADD", queue, "*", FIELD, value)
                if _work(client, queue, "one", 1) != 1:
                    raise RuntimeError("the entry that was just added was not given out")

            yield life


def _work(client: Client, queue: str, name: str, batch: int) -> int:
    read = ("XREADGROUP", "GROUP", GROUP, name, "COUNT", batch, "BLOCK", 1000, "STREAMS", queue, ">")
    reply = client.execute_command(*read)
    if not reply:
        return 0
    ids = [id_ for id_, _ in reply[0][1]]
    client.execute_command("XACK", queue, GROUP, *ids)
    return len(ids)


SYSTEMS = [
    RedisStreams("Redis Streams", pipelined, chunk=60_000),
    RedisStreams("Redis Streams, by script", scripted, chunk=150_000),
]
TASK_QUEUE = RedisGroup("Redis Streams, consumer group", scripted, chunk=15_000)
