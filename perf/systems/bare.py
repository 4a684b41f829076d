"""A bare Unix stream socket and a Python process that forwards bytes: the cost of two hops without a system.

Idea: the least that every broker between two local processes has to do. A sender connects, a receiver connects, and a
forwarder between them copies bytes; or one connection gets its own bytes back (echo), which is the ping-pong. Nothing
is stored or inspected, so there is no durability to state.

Contract: values travel as a length of four bytes and the value; values that are due together go in one write.
"""

from __future__ import annotations

import platform
import select
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from ..lab.children import child
from .system import Receiver, Sender

AT_ONCE_BYTES = 1 << 18
LENGTH_BYTES = 4
SENDER, RECEIVER, ECHO = b"s", b"r", b"e"


class Frames:
    """Cuts a stream of bytes into values, and keeps what is not whole yet."""

    def __init__(self) -> None:
        self._rest = b""

    def of(self, more: bytes) -> list[bytes]:
        """The complete values so far. Raises at the end of the stream."""
        if not more:
            raise ConnectionError("the other side of the bare socket is gone")
        data, at, values = self._rest + more, 0, []
        while len(data) - at >= LENGTH_BYTES:
            end = at + LENGTH_BYTES + int.from_bytes(data[at : at + LENGTH_BYTES], "little")
            if end > len(data):
                break
            values.append(data[at + LENGTH_BYTES : end])
            at = end
        self._rest = data[at:]
        return values


def framed(values: Sequence[bytes]) -> bytes:
    """Frame values for the wire."""
    return b"".join([part for value in values for part in (len(value).to_bytes(LENGTH_BYTES, "little"), value)])


@contextmanager
def connected(address: str, role: bytes = ECHO) -> Iterator[socket.socket]:
    """A connection that told its role and was heard."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(address)
        connection.sendall(role)
        connection.recv(1)
        yield connection


class Bare:
    """See the module."""

    name = "bare Unix socket, forwarded"
    durabilities: frozenset[str] = frozenset()
    chunk = 200_000

    def absent(self) -> str:
        return ""

    def versions(self) -> dict[str, str]:
        return {"python": platform.python_version()}

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        """A forwarder until the block ends. The path is short: such paths are limited to about 100 characters."""
        with tempfile.TemporaryDirectory(prefix="bare-") as place:
            address = f"{place}/s"
            with child(__name__, address) as process:
                assert process.stdout
                if not process.stdout.readline():
                    raise RuntimeError("the forwarder ended before it was ready; its reason is above")
                yield address

    def create(self, address: str, stream: str) -> None:
        """Do nothing: the only stream sends everything to every receiver."""

    def produce(self, address: str, stream: str, values: Sequence[bytes]) -> None:
        raise NotImplementedError("a bare socket acknowledges nothing")

    def consume(self, address: str, stream: str, count: int) -> Sequence[bytes]:
        raise NotImplementedError("a bare socket stores nothing")

    @contextmanager
    def sender(self, address: str, stream: str) -> Iterator[Sender]:
        with connected(address, SENDER) as connection:
            yield lambda values: connection.sendall(framed(values))

    def acknowledged(self, address: str, stream: str) -> AbstractContextManager[Sender]:
        raise NotImplementedError("a bare socket acknowledges nothing")

    @contextmanager
    def receiver(self, address: str, stream: str) -> Iterator[Receiver]:
        with connected(address, RECEIVER) as connection:
            frames = Frames()

            def receive() -> list[bytes]:
                while not (values := frames.of(connection.recv(AT_ONCE_BYTES))):
                    pass
                return values

            yield receive


class Forwarder:
    """Copies what senders write to all receivers, and what an echo writes back to itself."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._poll = select.poll()
        self._connections: dict[int, socket.socket] = {}
        self._targets: dict[int, list[socket.socket]] = {}  # by descriptor of the writer
        self._receivers: list[socket.socket] = []

    def run(self, until: int) -> None:
        """Forward until the descriptor `until` is readable."""
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(until, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == until:
                    return
                if descriptor == self._listener.fileno():
                    self._accept()
                else:
                    self._forward(descriptor)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        role = connection.recv(1)
        descriptor = connection.fileno()
        self._connections[descriptor] = connection
        self._targets[descriptor] = [connection] if role == ECHO else self._receivers
        if role == RECEIVER:
            self._receivers.append(connection)
        self._poll.register(connection, select.POLLIN)
        connection.sendall(role)

    def _forward(self, descriptor: int) -> None:
        connection = self._connections[descriptor]
        try:
            data = connection.recv(AT_ONCE_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            return self._drop(connection)
        for target in list(self._targets[descriptor]):
            try:
                target.sendall(data)
            except ConnectionError:
                self._drop(target)

    def _drop(self, connection: socket.socket) -> None:
        """Close a connection whose peer is gone."""
        self._poll.unregister(connection)
        del self._connections[connection.fileno()], self._targets[connection.fileno()]
        if connection in self._receivers:
            self._receivers.remove(connection)
        connection.close()


def main(address: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        Forwarder(listener).run(sys.stdin.fileno())


SYSTEM = Bare()

if __name__ == "__main__":
    main(sys.argv[1])
