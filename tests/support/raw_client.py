"""A client in the raw: a socket, the codec, and nothing in between, for tests of the broker itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from penstock.storage.batch import batches
from penstock.transport import codec
from penstock.transport import messages as m
from penstock.transport.keys import Key
from penstock.transport.sockets import Sockets


class RawClient:
    """One connection. Requests are asked again when the connection was made anew meanwhile."""

    def __init__(self, url: str, key: Key | None = None) -> None:
        self.sockets = Sockets(key=key)
        self.socket = self.sockets.client(url)
        self.unasked: list[tuple[Any, bytes]] = []
        self._last = 0

    def next_request(self) -> int:
        self._last += 1
        return self._last

    def ask(
        self, make: Callable[[int], m.Request], payload: bytes = b"", *, timeout_s: float = 20.0
    ) -> tuple[Any, Any]:
        """The answer to a request, and what came with it. Failures are returned, not raised."""
        request = self.next_request()
        connection, deadline = -1, time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            if self.socket.connections != connection and self.socket.connected:
                self.socket.send(codec.frames(make(request), payload))
                connection = self.socket.connections
            self.socket.poll(min(left, 0.5))
            found = self._answer(request)
            if found is not None:
                return found
        raise TimeoutError(f"no answer to {make(request)} within {timeout_s} s")

    def _answer(self, request: int) -> tuple[Any, Any] | None:
        while (received := self.socket.receive()) is not None:
            answer, payload = codec.decode_answer(received)
            if getattr(answer, "request", 0) == request:
                return answer, payload
            self.unasked.append((answer, bytes(payload)))
        return None

    def create_topic(self, name: str, partitions: int = 1, **settings: Any) -> bytes:
        """The id of a topic that is there afterwards."""
        answer, _ = self.ask(lambda request: m.CreateTopic(request, name, partitions, settings))
        if isinstance(answer, m.Failure):
            answer, _ = self.ask(lambda request: m.ListTopics(request, [name]))
        return answer.topics[0].topic

    def try_topic(self, name: str) -> Any:
        """Topics, or the Failure."""
        return self.ask(lambda request: m.CreateTopic(request, name, 1, {}))[0]

    def produce(self, topic: bytes, batch: bytes, partition: int = 0) -> Any:
        """Produced, or the Failure."""
        return self.ask(lambda request: m.Produce(request, topic, partition), batch)[0]

    def fetch(self, topic: bytes, partition: int, offset: int) -> tuple[Any, Any]:
        """Fetched, or the Failure, and the batches."""
        return self.ask(lambda request: m.Fetch(request, topic, partition, offset, -1, 1 << 20, 0))

    def read_all(self, topic: bytes, partition: int) -> list[bytes]:
        """All values of a partition in offset order, checked for offsets without holes."""
        values: list[bytes] = []
        while True:
            answer, payload = self.fetch(topic, partition, len(values))
            assert isinstance(answer, m.Fetched), answer
            for batch in batches(payload):
                if batch.record_count and batch.end_offset > len(values):
                    assert batch.base_offset == len(values), f"offset {batch.base_offset} follows {len(values)}"
                    values += batch.values()
            if len(values) >= answer.end:
                return values

    def close(self) -> None:
        self.sockets.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
