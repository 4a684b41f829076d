"""Messages to frames and back.

A message travels as one frame, or two: the msgpack array [tag, field, ...], then the batches it carries.
Contract: bytes from the wire decode to a message or raise ProtocolError, nothing else, in time and memory proportional
to the frames. Bounds of every number are checked here (messages.py), their meaning is not. The second frame is opaque:
only the broker's append and the readers look into batches.

Pure: bytes in, messages out. Knows no sockets and no sessions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

import msgspec

from . import messages
from .errors import MessageTooLarge, ProtocolError, TooMuchAsked

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

VERSION = 1
"""The version of this protocol; Hello and Welcome agree on one."""

REQUEST_BYTES_MAX = 1 << 20
"""First frame of a request. Nesting is flat, so decoding takes a small multiple of it."""

ANSWER_BYTES_MAX = 64 << 20
"""First frame of an answer: a description of a hundred thousand partitions fits."""

MAY_BE_EMPTY = frozenset(
    {messages.Fetched, messages.FetchedMany, messages.Leased, messages.DeadTasks, messages.Deliver}
)
CARRIES_BATCHES = MAY_BE_EMPTY | {messages.Produce}
"""Messages with a second frame. Those that may be empty go without one then."""

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[messages.Request] = msgspec.msgpack.Decoder(messages.Request)
_answers: msgspec.msgpack.Decoder[messages.Answer] = msgspec.msgpack.Decoder(messages.Answer)

_KINDS: dict[object, type[messages.Message]] = {kind.__struct_config__.tag: kind for kind in get_args(messages.Request)}
_BEGINNING_BYTES = 5 + 9 + 9
_LENGTH = re.compile(r"of length <= (\d+)")
_TOO_MANY = re.compile(r"of length <= (\d+) - at `\$\[(\d+)\](.*)`")

# What msgspec raises on bytes: its own errors, text that is not UTF-8 (a ValueError), and junk nested deeper
# than the interpreter's stack is allowed to be.
_BAD_BYTES = (msgspec.MsgspecError, ValueError, RecursionError)


def encode(message: messages.Message) -> bytes:
    """The first frame of `message`. Raises MessageTooLarge above what the other side accepts."""
    return frames(message)[0]


def frames(message: messages.Message, payload: Buffer = b"") -> list[Buffer]:
    """All frames of `message`: one without a payload, else two."""
    frame = _encoder.encode(message)
    if len(frame) > REQUEST_BYTES_MAX:
        _check_size(message, len(frame))
    return [frame, payload] if len(payload) else [frame]


def check_request(message: messages.Message) -> None:
    """Raise ProtocolError, which names the field, for a message that every receiver would refuse."""
    try:
        _requests.decode(_encoder.encode(message))
    except (*_BAD_BYTES, TypeError, OverflowError) as error:
        reason, _, place = str(error).partition(" - at ")
        limit = _LENGTH.search(reason)
        if limit is not None:
            reason = f"over {limit[1]} entries, which is the limit of one request"
        raise ProtocolError(f"{_field(message, place)}{reason}") from None


def decode_request(received: Sequence[Buffer]) -> tuple[messages.Request, Buffer]:
    """A client's message and its batches (b"" without). Raises ProtocolError, TooMuchAsked."""
    header, payload = _split(received, REQUEST_BYTES_MAX)
    try:
        message = _requests.decode(header)
    except _BAD_BYTES as error:
        _check_counts(header, error)
        raise ProtocolError(f"not a request: {error}") from None
    if bool(len(payload)) is not (type(message) in CARRIES_BATCHES):  # as most that carry batches have some
        _check_payload(message, payload)
    return message, payload


def decode_answer(received: Sequence[Buffer]) -> tuple[messages.Answer, Buffer]:
    """A broker's message and its batches (b"" without). Raises ProtocolError."""
    header, payload = _split(received, ANSWER_BYTES_MAX)
    try:
        message = _answers.decode(header)
    except _BAD_BYTES as error:
        raise ProtocolError(f"not an answer: {error}") from None
    if len(payload):  # each answer that may carry batches may come without
        _check_payload(message, payload)
    return message, payload


def _field(message: messages.Message, place: str) -> str:
    """The field that msgspec found at a place like `$[2][0]`, behind the tag; "" when it says none."""
    found = re.match(r"`\$\[(\d+)\](.*)`", place)
    return f"{message.__struct_fields__[int(found[1]) - 1]}{found[2]}: " if found else ""


def _check_counts(header: Buffer, error: Exception) -> None:
    """Raise TooMuchAsked for a request with too many entries: it is well-formed so far, so its sender can be told.

    What msgspec would skip of a large request takes longer than all the rest: only the beginning is looked at.
    """
    found = _TOO_MANY.search(str(error))
    if found is None:
        return
    begin = bytes(header[:_BEGINNING_BYTES])
    tag, at = _count(begin, {0xDC: 3, 0xDD: 5}.get(begin[0], 1))
    kind = _KINDS[tag]
    if kind.__struct_fields__[0] == "request":
        field = kind.__struct_fields__[int(found[2]) - 1]
        raise TooMuchAsked(
            f"{field}{found[3]} of a {kind.__name__} has more than {found[1]} entries, which is the limit: ask for "
            "less at once",
            request=_count(begin, at)[0],
        ) from None


def _count(data: bytes, at: int) -> tuple[int, int]:
    """A number that is known to be one and not negative, and where the next one begins."""
    lead = data[at]
    if lead < 0x80:
        return lead, at + 1
    end = at + 1 + (1 << (lead & 3))  # 0xcc to 0xcf and 0xd0 to 0xd3: of 1, 2, 4 and 8 bytes
    return int.from_bytes(data[at + 1 : end], "big"), end


def _split(received: Sequence[Buffer], limit: int) -> tuple[Buffer, Buffer]:
    count = len(received)
    if not 0 < count <= 2:
        raise ProtocolError(f"a message of {count} frames; there are one or two")
    size = len(received[0])
    if size > limit:
        raise ProtocolError(f"a first frame of {size} bytes is over {limit}")
    return received[0], received[1] if count == 2 else b""


def _check_payload(message: messages.Message, payload: Buffer) -> None:
    kind = type(message)
    if kind in CARRIES_BATCHES:
        if not len(payload) and kind not in MAY_BE_EMPTY:
            raise ProtocolError(f"{kind.__name__} came without its batches")
    elif len(payload):
        raise ProtocolError(f"{kind.__name__} carries no batches, but a second frame of {len(payload)} bytes came")


def _check_size(message: messages.Message, size: int) -> None:
    limit = REQUEST_BYTES_MAX if isinstance(message, messages.Request) else ANSWER_BYTES_MAX
    if size > limit:
        raise MessageTooLarge(f"{type(message).__name__} takes {size} bytes, over {limit}; ask for less at once")
