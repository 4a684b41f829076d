"""Values one after the other, each behind its length: how records stand in a plain file, and in a pipe."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

LENGTH = struct.Struct("<I")
READ_BYTES = 1 << 20


def framed(value: bytes) -> bytes:
    """A value with its length before it."""
    return LENGTH.pack(len(value)) + value


def values_of(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Values of the frames that `read` returns; a truncated last frame is none."""
    rest = b""
    while more := read(READ_BYTES):
        data, position = rest + more, 0
        while position + LENGTH.size <= len(data):
            begin = position + LENGTH.size
            end = begin + LENGTH.unpack_from(data, position)[0]
            if end > len(data):
                break
            yield data[begin:end]
            position = end
        rest = data[position:]
