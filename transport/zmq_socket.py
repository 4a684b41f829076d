"""What all ZeroMQ sockets share: an owner that closes them, and whole messages out and in, without waiting.

Contract: `_send` takes a message whole or not at all; a frame that is received is bytes, or a read-only view above
RECEIVE_COPY_BYTES_MAX. One thread per owner, and never across a fork. Knows no messages, and no addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Self

import zmq

from .descriptors import DescriptorRoom
from .errors import none_left
from .raw_sockets import RawSockets
from .sent import Sent
from .socket_options import SOCKETS_MAX

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

SEND_COPY_BYTES_MAX = 1 << 20
"""The size up to which a copy is cheaper than telling Python when libzmq is done (1 MiB: 3090 against 2307 MB/s)."""

RECEIVE_COPY_BYTES_MAX = 32 << 10
"""A frame up to this size becomes bytes, a larger one a view of libzmq's memory (256 KiB: 4.1 against 3.1 GB/s)."""

NOBLOCK = zmq.NOBLOCK
_SNDMORE = zmq.NOBLOCK | zmq.SNDMORE
_POLLIN = int(zmq.POLLIN)  # the operators of its enum cost as much as asking the socket

FRAMES_MAX = 3
"""Frames of one message that are kept: one more than any message has, so that the codec can refuse it."""

NO_SECURITY: Mapping[int, int | bytes] = {}


class SocketOwner:
    """Owner of sockets: everything it made is closed with it, and closing never waits for a peer.

    One that is dropped is closed, too.
    """

    def __init__(self, *, io_threads: int = 1, room: DescriptorRoom | None = None) -> None:
        self.room = room or DescriptorRoom()
        self._context = zmq.Context(io_threads)
        self._context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
        self.open: set[Socket] = set()
        """Those that are not closed."""
        self._raw = RawSockets(self, self._context)
        self._monitors = count()

    def monitor(self, raw: zmq.Socket[bytes], events: int, unread: int = 1) -> zmq.Socket[bytes]:
        """A socket that reports the events of `raw`. With MONITOR_EVENTS and `unread` more, libzmq's thread waits.

        Raises CannotListen.
        """
        address = f"inproc://monitor-{next(self._monitors)}"  # never one that libzmq may still be releasing
        try:
            raw.monitor(address, events)
        except zmq.ZMQError as error:
            raise none_left(error.strerror) from error
        made = self._made(zmq.PAIR)
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.RCVHWM, unread)
        made.connect(address)
        return made

    def close(self) -> None:
        """Close all sockets, then the context. What was not delivered is dropped. Repeating it does nothing."""
        for made in list(self.open):
            made.close()
        self._raw.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def raw_socket(
        self, kind: int, options: dict[str, int], max_bytes: int, security: Mapping[int, int | bytes] = NO_SECURITY
    ) -> zmq.Socket[bytes]:
        """A new socket of libzmq with these options, and others by number (zmq_curve.py). Raises CannotListen."""
        made = self._made(kind)
        for option, value in options.items():
            made.setsockopt(getattr(zmq, option), value)
        for number, setting in security.items():
            made.setsockopt(number, setting)
        made.setsockopt(zmq.MAXMSGSIZE, max_bytes)  # of one frame; libzmq cuts off a peer that announces more
        return made

    def _made(self, kind: int) -> zmq.Socket[bytes]:
        try:
            return self._context.socket(kind, self._raw.make)
        except zmq.ZMQError as error:
            raise none_left(error.strerror) from error


class Socket:
    """The base of all four. `raw` is for the poller only."""

    def __init__(self, context: SocketOwner, raw: zmq.Socket[bytes]) -> None:
        self.raw = raw
        self._context = context
        context.open.add(self)

    @property
    def fd(self) -> int:
        """For foreign event loops. Edge-triggered: after every send and receive ask `readable` again."""
        return number(self.raw, zmq.FD)

    @property
    def readable(self) -> bool:
        """Whether `receive` would return something."""
        return readable(self.raw)

    def patience_s(self) -> float:
        """Seconds until `refresh` is due even if `fd` stays silent: never."""
        return inf

    def refresh(self) -> None:
        """A poller found it readable."""

    def close(self) -> None:
        """Drop the connections and what they hold. Repeating it does nothing."""
        self._context.open.discard(self)
        self.raw.close(0)

    def _send(self, frames: Sequence[Buffer]) -> Sent:
        """Send one message whole, or not at all. The rest of a message is never refused once its start is taken."""
        last = len(frames) - 1
        try:
            for index, frame in enumerate(frames):
                flags = _SNDMORE if index < last else NOBLOCK
                self.raw.send(frame, flags, len(frame) <= SEND_COPY_BYTES_MAX)
        except zmq.Again:
            return Sent.FULL
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return Sent.GONE
            raise
        return Sent.TAKEN

    def _receive_rest(self) -> tuple[list[Buffer], zmq.Frame]:
        """The frames of a message from here on, at most FRAMES_MAX of them, and the first as libzmq has it.

        Frame objects say whether more follows; asking the socket instead costs a call of 2 us per frame.
        """
        first = frame = self.raw.recv(NOBLOCK, False)
        found: list[Buffer] = [_content(frame)]
        while frame.more:
            frame = self.raw.recv(NOBLOCK, False)
            if len(found) < FRAMES_MAX:
                found.append(_content(frame))
        return found, first


def number(raw: zmq.Socket[bytes], option: int) -> int:
    value = raw.getsockopt(option)
    assert isinstance(value, int)
    return value


def text(raw: zmq.Socket[bytes], option: int) -> str:
    value = raw.getsockopt(option)
    assert isinstance(value, bytes)
    return value.rstrip(b"\0").decode()


def readable(raw: zmq.Socket[bytes]) -> bool:
    return bool(number(raw, zmq.EVENTS) & _POLLIN)


def _content(frame: zmq.Frame) -> Buffer:
    return frame.bytes if len(frame) <= RECEIVE_COPY_BYTES_MAX else frame.buffer.toreadonly()
