"""Replies as RESP2 or RESP3 bytes.

Idea: a handler returns a plain value, and `encode` writes it as the connection's version has it:

    bytes                 bulk string           int          integer
    Status                simple string         None         null
    list, tuple           array                 dict         map; in RESP2 an array of keys and values
    NULL_ARRAY            null; in RESP2 the null of arrays, which XREAD and EXEC return
    Encoded               what is encoded already

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

OK = b"+OK\r\n"
_LINE_ENDS = str.maketrans("\r\n", "  ")


class Status(str):
    """A simple string."""

    __slots__ = ()


class Encoded(bytes):
    """A reply that is encoded already, the same in both versions."""

    __slots__ = ()


class _NullArray:
    """See the module."""


NULL_ARRAY = _NullArray()


def encode(value: Any, version: int) -> bytes:
    """A value as a reply of RESP 2 or 3."""
    if isinstance(value, Encoded):
        return value
    if isinstance(value, bytes):
        return bulk(value)
    if isinstance(value, Status):
        return b"+%s\r\n" % value.encode()
    if isinstance(value, str):
        return bulk(value.encode())
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, dict):
        flat = [part for pair in value.items() for part in pair]
        return b"%s%s" % (map_header(len(value), version), b"".join(encode(part, version) for part in flat))
    if isinstance(value, list | tuple):
        return array([encode(part, version) for part in value])
    if version >= 3:
        return b"_\r\n"
    return b"*-1\r\n" if value is NULL_ARRAY else b"$-1\r\n"


def bulk(value: bytes) -> bytes:
    """A bulk string."""
    return b"$%d\r\n%s\r\n" % (len(value), value)


def array(parts: Sequence[bytes]) -> bytes:
    """An array of what is encoded already."""
    return b"*%d\r\n%s" % (len(parts), b"".join(parts))


def map_header(pairs: int, version: int) -> bytes:
    """What comes before the keys and values of a map."""
    return b"%%%d\r\n" % pairs if version >= 3 else b"*%d\r\n" % (2 * pairs)


def error(text: str) -> bytes:
    """An error. `text` begins with its kind: ERR, NOAUTH, ..."""
    return b"-%s\r\n" % text.translate(_LINE_ENDS).encode("utf-8", "backslashreplace")
