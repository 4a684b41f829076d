"""The port of one office: reads that waited for the disk continue only in the office that began them.

Contract: as `Port`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from .ports import COLD, Cold

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ...storage.log import LogWriter
    from ...storage.reader import Chunk, Cursor
    from ...transport.messages import Answer, Deliver
    from .ports import Payload, Peer, Port


class OfficePort:
    """A port, and which reads over it wait for pages."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._cold: set[Hashable] = set()

    def reply(self, peer: Peer, message: Answer, payload: Payload = b"") -> bool:
        return self._port.reply(peer, message, payload)

    def is_behind(self, peer: Peer) -> bool:
        return self._port.is_behind(peer)

    def open_delivery(self, session: int, peer: Peer, owner: str = "") -> str:
        return self._port.open_delivery(session, peer, owner)

    def deliver(self, session: int, message: Deliver, payload: Payload) -> bool:
        return self._port.deliver(session, message, payload)

    def close_delivery(self, session: int) -> None:
        self._port.close_delivery(session)

    def open_wake(self, session: int) -> int:
        return self._port.open_wake(session)

    def begin_reading(self, session: int, log: LogWriter) -> None:
        self._port.begin_reading(session, log)

    def end_reading(self, session: int, log: LogWriter) -> None:
        self._port.end_reading(session, log)

    def wake(self, session: int) -> None:
        self._port.wake(session)

    def asleep(self) -> set[int]:
        return self._port.asleep()

    def close_wake(self, session: int) -> None:
        self._port.close_wake(session)

    def stats(self) -> dict[str, Any]:
        return self._port.stats()

    def read(
        self, cursor: Cursor, max_bytes: int, limit_seq: int, token: Hashable
    ) -> Chunk | Literal[Cold.COLD] | None:
        chunk = self._port.read(cursor, max_bytes, limit_seq, token)
        if chunk is COLD:
            self._cold.add(token)
        return chunk

    def was_cold(self, token: Hashable) -> bool:
        """Pages are in memory: whether a read over this port waits for them."""
        waits = token in self._cold
        self._cold.discard(token)
        return waits
