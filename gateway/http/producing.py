"""Appending messages: one, many, lines, rows of a table, or bytes as they are.

Idea: the media type of the body says what it holds: a message or a list of them as JSON, one on each line as NDJSON,
a row of a table as an Arrow stream, a value on each line as plain text, or the bytes of one value.

Contract: an acknowledgement means what that of the topic means. An error stops a request with many messages, and those
before it may be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ..appending import RecordRun
from ..sending import Outgoing, append_all, append_values
from .arrow_bodies import table_of
from .formats import ARROW, LINES
from .operation import HEADER, JSON, HttpCall, HttpOperation
from .problems import Refusal
from .shapes import MessagePlaces, MessageRun, NewMessage, Partition
from .strict_json import AT_ONCE, StrictDecoder

TEXT = "text/plain"
BYTES = "application/octet-stream"


MANY = 100_000
"""Messages of one request."""


class ProduceQuery(Struct, forbid_unknown_fields=True):
    """Of messages whose body does not say it."""

    partition: Annotated[Partition, Meta(description="Where all of them go, instead of by key.")] | None = None
    key: Annotated[str, Meta(description="Of plain text and bytes.")] | None = None


PORTION = 500
"""Messages that are decoded in one turn of the loop, ..."""

PORTION_BYTES = 32 << 10
"""... or so many bytes of them. One that is larger takes turns of its own."""

_many = msgspec.json.Decoder(Annotated[list[msgspec.Raw], Meta(max_length=MANY)])
_message: StrictDecoder[NewMessage] = StrictDecoder(NewMessage)


async def produce(call: HttpCall) -> MessagePlaces:
    """Append what the body holds."""
    name = call.path["queue"]
    call.may("write", name)
    if call.content_type in (LINES, TEXT) and call.body.removesuffix(b"\n").count(b"\n") >= MANY:
        raise Refusal(413, "too_many_messages", f"a request has at most {MANY} messages: send them in parts")
    if call.content_type in (TEXT, BYTES):
        placed = await _append_bytes(call, name)
    elif call.content_type == ARROW:
        placed = await _append_table(call, name)
    else:
        records = await _records(call)
        placed = await append_all(call.link, call.principal, name, records, create=call.door.may_create)
    return _places(placed)


def _nothing() -> Refusal:
    return Refusal(400, "invalid_request", "the body has no message")


async def _records(call: HttpCall) -> list[Outgoing]:
    """The messages of a body, decoded in portions. Raises Refusal."""
    each = _each(call)
    if not each:
        raise _nothing()
    partition, found, turns, size = call.asked.partition, list[Outgoing](), call.link.turns, 0
    for text in each:
        if size >= PORTION_BYTES:
            await turns.turn()
            size = 0
        length = len(memoryview(text))
        size += max(length, PORTION_BYTES // PORTION)
        message = _message.decode(text) if length <= AT_ONCE else await _message.decode_in_turns(text, turns)
        found.append(outgoing(message, partition))
    return found


def _each(call: HttpCall) -> Sequence[bytes | msgspec.Raw]:
    """What is one message each."""
    if call.content_type == LINES:
        return [line for line in call.body.split(b"\n") if line.strip()]
    return _many.decode(call.body) if call.body.lstrip().startswith(b"[") else [call.body]


async def _append_bytes(call: HttpCall, name: str) -> Sequence[RecordRun]:
    key = None if call.asked.key is None else call.asked.key.encode()
    headers = {
        header[len(HEADER) :].decode(): content for header, content in call.headers.items() if header.startswith(HEADER)
    }
    partition, create = call.asked.partition, call.door.may_create
    if call.content_type == BYTES:
        record = Outgoing(call.body, key, headers or None, None, partition)
        return await append_all(call.link, call.principal, name, [record], create=create)
    values = call.body.removesuffix(b"\n").split(b"\n")
    keys = None if key is None else [key] * len(values)
    return await append_values(call.link, call.principal, name, values, keys, partition, create=create)


async def _append_table(call: HttpCall, name: str) -> Sequence[RecordRun]:
    table = table_of(call.body, MANY)
    if not table.num_rows:
        raise _nothing()
    partition = None if "partition" in table.column_names else call.asked.partition
    return await append_values(call.link, call.principal, name, table, None, partition, create=call.door.may_create)


def outgoing(message: NewMessage, partition: int | None) -> Outgoing:
    """A message as a record; `partition` if it does not say its own. Raises InvalidArgument."""
    return Outgoing(
        message.bytes_of_value(), message.bytes_of_key(), message.bytes_of_headers(), message.timestamp,
        partition if message.partition is None else message.partition,
    )  # fmt: skip


def _places(placed: Sequence[RecordRun]) -> MessagePlaces:
    return MessagePlaces(
        sum(run.count for run in placed), [MessageRun(run.partition, run.first, run.count) for run in placed]
    )


OPERATIONS = [
    HttpOperation(
        method="POST", path="/api/v1/queues/{queue}/messages", name="produce", tag="messages", handler=produce,
        summary="Append messages to a queue, which is made if it is not there",
        about="A JSON body is a message or a list of messages, NDJSON has one on each line. Rows of an Arrow stream "
        "are messages: the columns are `value` and, where wanted, `key`, `headers`, `timestamp` and "
        "`partition`. Each line of plain text is the value of one message. Other bytes are the value of one "
        "message, which has those headers of the request that begin with `Penstock-Header-`, in lower case. "
        "The answer comes when everything is committed: fsynced, unless the topic has `commit=written`. Of "
        "many messages, those before one that fails may be there.",
        query=ProduceQuery, takes=(JSON, LINES, ARROW, TEXT, BYTES), shows=NewMessage | list[NewMessage],
        gives=MessagePlaces, status=201,
    ),
]  # fmt: skip
