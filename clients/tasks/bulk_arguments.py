"""Encodes the arguments of many calls of one function at once.

Idea: msgspec encodes all calls in one pass. Text, whole numbers and truth values arrive as they are where their
parameters say nothing else. Of other values, a second pass decodes all to the types of the signature: if that gives
back exactly what was sent, values and types alike, the calls are as good as packed one by one (arguments.py), at a
tenth of the cost. What does not is packed one by one, so that errors and conversions are the same.

Contract: the bytes are those that `Arguments.pack` makes, up to the spelling of numbers. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import msgspec

from ..encoding import Encoding
from .arguments import Arguments

PORTION = 500
"""Calls that are checked together: so few that they are gone before the garbage collector looks at them twice."""

PLAIN = {str, int, bool}
"""Types whose values every encoding brings back as they are."""

_JSON = msgspec.json.Encoder()
_MSGPACK = msgspec.msgpack.Encoder()


def pack_many(arguments: Arguments, encoding: Encoding, calls: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """Encode calls with positional arguments. Raises InvalidArgument that names the argument."""
    packed = _packed_alike(arguments, encoding, calls)
    return [arguments.pack(encoding, call, {}) for call in calls] if packed is None else packed


def _packed_alike(arguments: Arguments, encoding: Encoding, calls: Sequence[tuple[Any, ...]]) -> list[bytes] | None:
    """The calls of values that arrive as they are; None if there are others among them."""
    counts = set(map(len, calls))
    hints = arguments.positional_hints(counts.pop()) if len(counts) == 1 else None
    if hints is None:
        return None
    packed: list[bytes] = []
    try:
        for at in range(0, len(calls), PORTION):
            some = list(calls[at : at + PORTION])
            lines = _JSON.encode_lines(some) if encoding == "json" else list(map(_MSGPACK.encode, some))
            if not (_is_plain(some, hints) or _arrives(some, lines, hints)):
                return None
            packed += _as_records(lines)
    except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError, msgspec.MsgspecError):
        return None
    return packed


def _is_plain(calls: list[tuple[Any, ...]], hints: tuple[Any, ...]) -> bool:
    """Whether all arguments are of types that need no second look."""
    for place, hint in enumerate(hints):
        kinds = set(map(type, map(itemgetter(place), calls)))
        if not kinds <= PLAIN or (hint is not Any and kinds != {hint}):
            return False
    return True


def _arrives(calls: list[tuple[Any, ...]], lines: bytes | list[bytes], hints: tuple[Any, ...]) -> bool:
    """Whether calls come out as they went in. Raises what msgspec raises for other values."""
    wanted: Any = tuple[hints] if hints else tuple[()]
    if isinstance(lines, bytes):
        found = msgspec.json.Decoder(wanted).decode_lines(lines)
    else:
        found = list(map(msgspec.msgpack.Decoder(wanted).decode, lines))
    return found == calls and repr(found) == repr(calls)  # 1, 1.0 and True are equal, and are not the same


def _as_records(lines: bytes | list[bytes]) -> list[bytes]:
    """The values of records: arrays of two, the arguments and no named ones."""
    if isinstance(lines, bytes):  # a line end in a value is escaped
        return (b"[" + lines[:-1].replace(b"\n", b",{}]\n[") + b",{}]").split(b"\n")
    return [b"\x92%b\x80" % line for line in lines]
