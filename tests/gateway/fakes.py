"""The socket of a connection of either door, without a peer."""

from __future__ import annotations

import asyncio


class FakeTransport:
    """Keeps what is written to it, and whether it is read, closed, aborted, or ended for writing."""

    def __init__(self, peer: tuple[str, int] | None = None) -> None:
        self.out = b""
        self.limit = 0
        self.reads, self.closed, self.aborted, self.ended = True, False, False, False
        self.protocol: asyncio.BaseProtocol | None = None
        self._peer = peer

    def get_extra_info(self, name: str) -> object:
        return self._peer if name == "peername" else None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol | None:
        return self.protocol

    def set_write_buffer_limits(self, high: int) -> None:
        self.limit = high

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.out += data

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True
