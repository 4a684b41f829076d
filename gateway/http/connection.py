"""One connection of an HTTP client: uvicorn's, with bounds on time and size.

Idea: uvicorn bounds neither the head of a request nor the time that a peer takes. What this adds is a time by which the
peer has to go on, which the door looks at every second, and a count of bytes that brought nothing further.

Contract: a peer that is slow to send a request or to read its answer is cut off. Heads, trailers and the like are
bounded by `HEAD_BYTES_MAX`, requests that wait for the one before by `PIPELINE_MAX`. Bodies are bounded where they are
read (app.py), and there a stream says how much of it the peer has yet to read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, cast

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from ..connections import Connections
from ..holding import TOO_MUCH
from ..lingering import linger
from .operation import CONNECTION
from .problems import Problem

log = logging.getLogger("penstock.gateway")

HEAD_BYTES_MAX = 64 << 10
"""Of the head of a request, or of whatever a peer sends that is neither head nor body."""

PIPELINE_MAX = 100
"""Requests of one connection that wait for the one before."""

HEAD_S = 10.0
"""From connecting, or from the first byte of a request, to the end of its head."""

BODY_S = 60.0
"""From the end of the head to the end of the body; where another request is answered before, from then on."""

READ_S = 60.0
"""For a peer to read some of an answer that waits for it."""

IDLE_S = 75
"""Between two requests."""

STRANGER_S = 10.0
"""Between two requests of a peer that has to authenticate, and has not."""

OUT_BYTES_MAX = 256 << 10
"""Of an answer that waits in the socket before the rest waits."""

NEVER = float("inf")


class HttpConnection(HttpToolsProtocol):
    """See the module.

    Invariant: `_due` is when the peer has used up its time to send, NEVER while the door owes it an answer; `_read_by`
    is when it has used up that to read, NEVER while it reads.
    """

    def __init__(
        self, config: Config, state: ServerState, connections: Connections[HttpConnection], *, stranger: bool = False
    ) -> None:
        """It says to `connections` when it is open, and when it is not any more. `stranger`: it has to authenticate."""
        super().__init__(config, state, {})
        self._connections = connections
        self._due = self._read_by = NEVER
        self._idle_bytes = 0  # since anything was complete
        self._went_on = False
        self._running: RequestResponseCycle | None = None
        self.part_bytes = 0  # of a stream, about to be written
        self._ended = False  # it lingers
        self._stranger = stranger
        self._rests = False  # a stranger, between two requests

    # -- asyncio ------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(OUT_BYTES_MAX)
        self._due = time.monotonic() + HEAD_S
        self._connections.opened(self)

    def data_received(self, data: bytes) -> None:
        if (self._due == NEVER or self._rests) and (self.cycle is None or self.cycle.response_complete):
            self._due, self._rests = time.monotonic() + HEAD_S, False
        self._went_on = False
        super().data_received(data)
        self._idle_bytes = 0 if self._went_on else self._idle_bytes + len(data)
        if self._idle_bytes > HEAD_BYTES_MAX:
            self._refuse(431, "head_too_large", f"the head of a request has at most {HEAD_BYTES_MAX} bytes")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._leave()
        self._connections.closed(self)
        self._forget()

    def _forget(self) -> None:
        """Name no request, as each names its connection, so that both go with the last task and not with the collector.

        It is calm, and of TLS a connection has buffers as large as the largest answer that waited.
        """
        self._ended = True
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        self.cycle = self._running = cast("Any", None)
        self.scope = cast("Any", None)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_by = time.monotonic() + READ_S

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read_by = NEVER

    # -- httptools ----------------------------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        self._went_on, self._due = True, NEVER  # nothing is read of a body whose request waits for the one before
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > HEAD_BYTES_MAX:
            self._refuse(431, "head_too_large", f"the head of a request has at most {HEAD_BYTES_MAX} bytes")
            return
        super().on_headers_complete()
        if not self.cycle.keep_alive:
            self.cycle.transport = cast("Any", _LastAnswer(self.transport, self._answered_last))
        if len(self.pipeline) > PIPELINE_MAX:
            self.cut()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        if cycle.more_body:
            self._due = time.monotonic() + BODY_S
        cast("dict[str, Any]", cycle.scope)[CONNECTION] = self
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._went_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._went_on, self._due = True, NEVER
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if not self._ended:
            super().on_response_complete()
            if self._stranger and self._due == NEVER and self.cycle.response_complete:
                self._due, self._rests = time.monotonic() + STRANGER_S, True

    def known(self) -> None:
        """Its peer has authenticated."""
        if self._stranger:
            self._stranger = False
            self._connections.known(self)

    def end(self, *, may_send: bool = True) -> None:
        """Close once the peer has read what was written. `may_send`: False if it has said all that it will."""
        if not self._ended:
            self._ended, self._due, self._read_by = True, NEVER, NEVER
            self._leave()
            linger(self.transport, self, may_send=may_send)

    def _answered_last(self) -> None:
        """No request follows this one, whose body the peer may still send."""
        self.end(may_send=self.cycle.more_body)

    def _leave(self) -> None:
        """Tell the request that runs, as uvicorn tells the newest alone."""
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()

    # -- from the door --------------------------------------------------------------------------------------

    def overdue(self, now: float) -> bool:
        """Whether the peer has used up its time."""
        return now >= min(self._due, self._read_by)

    def cut(self) -> None:
        """Close at once."""
        self.transport.abort()

    def held(self) -> int:
        """See ByteHolder: what a stream waits to write."""
        if self.transport.is_closing():
            return 0
        return self.part_bytes + self.transport.get_write_buffer_size()

    def shed(self) -> bool:
        """See ByteHolder."""
        log.warning("cut off %s: %s, and its stream of events held %d", self._peer, TOO_MUCH, self.held())
        self.cut()
        return True

    @property
    def _peer(self) -> str:
        return ":".join(map(str, self.client)) if self.client else "unix"

    def drain(self) -> None:
        """Close once what was received is answered."""
        self.shutdown()

    # -- refusals -----------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "invalid_http", "these bytes are no request of HTTP")

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer a request that cannot be read, and close."""
        if not (self._ended or self.transport.is_closing()):
            self._connections.refused.add("size" if status == 431 else "protocol")
            self.transport.write(refusal(status, code, message))
            self.end()


def refusal(status: int, code: str, message: str) -> bytes:
    """The last answer of a connection."""
    body = msgspec.json.encode(Problem(code, message, status == 503))
    head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return STATUS_LINE[status] + head + body


class _LastAnswer:
    """The socket as the last request of a connection sees it: an answer may come before all of the body is read."""

    def __init__(self, transport: Any, end: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = end
