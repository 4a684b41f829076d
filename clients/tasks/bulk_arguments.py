"""Encodes the arguments of many calls of one function at once.

Idea: msgspec encodes all calls in one pass. Text, whole numbers and truth values arrive as they are where their
parameters say nothing else. Of other values, a second pass decodes all to the types of the signature: if that gives
back exactly what was sent, values and types alike, the calls are as good as packed one by one (arguments.py), at a
tenth of the cost. What does not is packed one by one, so that errors and conversions are the same.

As JSON the calls are lines, which become the column of a batch as they lie, without an object for each call.

Contract: the bytes are those that `Arguments.pack` makes, up to the spelling of numbers. Pure.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import msgspec
import numpy as np

from ...storage.columns import EndToEnd
from ..encoding import Encoding
from .arguments import Arguments

RUN = 2_000
"""Calls that are packed together: about a batch, with their headers."""

HEAD, TAIL = b"[", b",{}]"
"""Of a value, around the line of its call."""

LINE_END = ord("\n")
GROWS = len(TAIL + HEAD) - 1
"""By how much a value is longer than its line with the line end."""

PLAIN = {str, int, bool}
"""Types whose values every encoding brings back as they are."""

_JSON = msgspec.json.Encoder()
_MSGPACK = msgspec.msgpack.Encoder()


def pack_many(arguments: Arguments, encoding: Encoding, calls: list[tuple[Any, ...]]) -> list[EndToEnd]:
    """Encode calls with positional arguments, in runs. Raises InvalidArgument that names the argument."""
    return [_packed(arguments, encoding, calls[at : at + RUN]) for at in range(0, len(calls), RUN)]


def _packed(arguments: Arguments, encoding: Encoding, calls: list[tuple[Any, ...]]) -> EndToEnd:
    packed = _packed_alike(arguments, encoding, calls)
    return EndToEnd.of([arguments.pack(encoding, call, {}) for call in calls]) if packed is None else packed


def _packed_alike(arguments: Arguments, encoding: Encoding, calls: list[tuple[Any, ...]]) -> EndToEnd | None:
    """The calls of values that arrive as they are; None if there are others among them."""
    counts = set(map(len, calls))
    hints = arguments.positional_hints(counts.pop()) if len(counts) == 1 else None
    if hints is None:
        return None
    try:
        lines = _JSON.encode_lines(calls) if encoding == "json" else list(map(_MSGPACK.encode, calls))
        if not (_is_plain(calls, hints) or _arrives(calls, lines, hints)):
            return None
    except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError, msgspec.MsgspecError):
        return None
    return _values(lines)


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


def _values(lines: bytes | list[bytes]) -> EndToEnd:
    """The values of records: arrays of two, the arguments and no named ones."""
    if not isinstance(lines, bytes):
        return EndToEnd.of([b"\x92%b\x80" % line for line in lines])
    written = HEAD + lines
    ends = np.flatnonzero(np.frombuffer(written, np.uint8) == LINE_END)  # one within a text is escaped
    bounds = np.zeros(len(ends) + 1, np.int64)
    np.add(ends, np.arange(len(TAIL), len(ends) * GROWS + len(TAIL), GROWS), out=bounds[1:])
    return EndToEnd(written.replace(b"\n", TAIL + HEAD), bounds)
