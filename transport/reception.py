"""The server's front door: whole, well-formed requests in; hostile peers out.

Idea: one place decides what happens to frames that are not a request: they are dropped and counted, and the
connection they came over is cut off. An honest client with a bug finds itself reconnecting, and the log says why.

Contract: `receive` never raises for anything a peer sends. Knows no request's meaning.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .codec import decode_request
from .errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from .messages import Request
    from .zmq_sockets import ServerSocket

_log = logging.getLogger("penstock.transport")


class Reception:
    """Reads requests from one server socket."""

    def __init__(self, server: ServerSocket) -> None:
        self.server = server
        self.rejected = 0
        """Messages that were no requests, since the start."""

    def receive(self) -> tuple[bytes, Request, Buffer] | None:
        """The next request: its peer, the message, its batches. None when nothing more waits."""
        while (received := self.server.receive()) is not None:
            peer, frames = received
            try:
                return peer, *decode_request(frames)
            except ProtocolError as error:
                self._reject(error)
        return None

    def _reject(self, error: ProtocolError) -> None:
        address = self.server.cut_off()
        self.rejected += 1
        if self.rejected & (self.rejected - 1) == 0:  # at 1, 2, 4, 8 ...: a flood must not fill the log
            _log.warning("cut off %s: %s (%d rejected so far)", address, error.message, self.rejected)
