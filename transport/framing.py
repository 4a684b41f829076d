"""Messages on a stream of bytes: frame sizes, and the limit on them (PROTOCOL.md, section 1.2).

    4 bytes   size of frame 1       little-endian
    4 bytes   size of frame 2       0: the message has one frame
              frame 1, frame 2

Idea: small messages are cut out of the bytes of one read. For a longer message the frames get memory of their size,
and the rest of it is read straight into place, together with whatever follows it.

Contract: sizes are checked before any memory is allocated. Whatever the bytes, `take` returns messages or raises
ProtocolError, after which the stream must not be used. Pure: knows no sockets and no meaning.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

_PREFIX = struct.Struct("<II")
PREFIX_BYTES = _PREFIX.size

JOIN_BYTES_MAX = 8 << 10
"""The largest message that is made into one buffer: copying costs less than telling the kernel of two more."""


def framed(frames: Sequence[Buffer]) -> list[Buffer]:
    """The bytes of one message of one or two frames, in order; large frames are not copied."""
    if len(frames) > 2:
        raise ValueError(f"a message of {len(frames)} frames; there are one or two")
    first, second = frames[0], frames[1] if len(frames) == 2 else b""
    prefix = _PREFIX.pack(len(first), len(second))
    if len(first) + len(second) <= JOIN_BYTES_MAX:
        return [b"".join((prefix, first, second))]
    return [prefix, first, second] if len(second) else [prefix, first]


class Inflow:
    """Cuts the bytes of one connection into messages.

    Between two calls, either `_parts` are the frames of a message that is not whole, and `_missing` what is still
    to come of them, or `_torn` is the beginning of a prefix.
    """

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` is the limit of each frame."""
        self._max_bytes = max_bytes
        self._parts: list[memoryview] = []
        self._missing: list[memoryview] = []
        self._torn = b""
        self.begun = False
        """A message was begun and is not whole; until then all of the next bytes go to `spare`."""

    def places(self, spare: memoryview) -> list[memoryview]:
        """Buffers for the next bytes, in order; bytes of frames that have not begun go to `spare`."""
        if self._missing:
            return [*self._missing, spare]
        torn = len(self._torn)
        if not torn:
            return [spare]
        spare[:torn] = self._torn
        return [spare[torn:]]

    def take(self, count: int, spare: memoryview) -> list[list[Buffer]]:
        """The messages that are whole now that `count` more bytes are in their places. Raises ProtocolError."""
        found: list[list[Buffer]] = []
        if self._missing:
            count = self._fill(count)
            if self._missing:
                return found
            parts, self._parts = [part.toreadonly() for part in self._parts], []
            found.append(parts if len(parts[1]) else parts[:1])
        else:
            count += len(self._torn)
            self._torn = b""
        data, at = spare[:count], 0
        while count - at >= PREFIX_BYTES:
            first, second = _PREFIX.unpack_from(data, at)
            if first > self._max_bytes or second > self._max_bytes:
                raise ProtocolError(f"a message of {first} and {second} bytes; frames are up to {self._max_bytes}")
            at += PREFIX_BYTES
            middle = at + first
            if middle + second > count:
                self._begin(first, second, data[at:])
                break
            frame = bytes(data[at:middle])
            at = middle + second
            found.append([frame, bytes(data[middle:at])] if second else [frame])
        else:
            self._torn = bytes(data[at:])
        self.begun = bool(self._missing or self._torn)
        return found

    def _fill(self, count: int) -> int:
        """`count` bytes came for what is missing; returns how many of them lie behind it."""
        missing = self._missing
        while missing and count >= len(missing[0]):
            count -= len(missing.pop(0))
        if missing:
            missing[0] = missing[0][count:]
            return 0
        return count

    def _begin(self, first: int, second: int, data: memoryview) -> None:
        """Make room for a message of which only `data` is here."""
        for size in (first, second):
            part = _room(size)
            here = data[:size]
            part[: len(here)] = here
            data = data[len(here) :]
            self._parts.append(part)
            if len(here) < size:
                self._missing.append(part[len(here) :])


def _room(size: int) -> memoryview:
    """Uninitialised memory: clearing 256 KiB takes a fifth of the time to receive them."""
    return np.empty(size, np.uint8).data
