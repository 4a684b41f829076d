"""The message browser: messages of a partition around an offset or a time, those of a key, and one in full.

Idea: a page is a window of offsets, so older and newer ones are links. A key is looked for in its partition, so many
messages at a time, and the page says how far it has looked.

Contract: reading moves no group. A page reads `SCAN` messages and 16 MiB at most.
"""

from __future__ import annotations

import binascii
from typing import Annotated

from msgspec import Meta, Struct

from ...clients.errors import InvalidArgument
from ...storage.record import Record
from ...transport.messages import Topic
from ...transport.partitioner import PARTITIONERS
from ..consumers import TAKEN_BYTES_MAX, take
from ..http.operation import HttpCall, Reply
from ..http.problems import Refusal
from ..http.shapes import start_of
from ..link import TopicPlace
from .making import PageMaker
from .payloads import FORMS, Form, shown

WINDOW = 50
SCAN = 5_000
PART = 500
"""Messages read at a time, so that other requests go on meanwhile."""

VALUE_BYTES = 64 << 10
"""Of a value shown in full."""


class MessagesQuery(Struct, forbid_unknown_fields=True):
    """Where to look. Fields that a form left empty are not said."""

    partition: str = ""
    offset: str = ""
    time: Annotated[str, Meta(max_length=64)] = ""
    key: Annotated[str, Meta(max_length=4096)] = ""
    form: Form = "auto"


class OneQuery(Struct, forbid_unknown_fields=True):
    """How to show it."""

    form: Form = "auto"


class Window(Struct, frozen=True):
    """Messages of offsets from `start` on and below `end`, in a partition that has those from `first` to `last`."""

    partition: int
    records: list[Record]
    start: int
    end: int
    first: int
    last: int
    older: int | None  # where the window before begins
    newer: int | None


async def messages(maker: PageMaker, call: HttpCall) -> Reply:
    name, asked = call.path["topic"], call.asked
    call.may("read", name)
    topic = (await maker.link.driver.run(maker.link.verbs.topics([name])))[0]
    key = _key(asked.key)
    place = TopicPlace(topic, _partition(topic, asked, key))
    start = await _start(maker, place, asked, key)
    window = await (_around(maker, place, start) if key is None else _with_key(maker, place, start, key))
    return await maker.page(
        call, "messages.html", f"/console/topics/{name}/messages", topic=name, window=window, asked=asked, forms=FORMS,
        partitions=len(topic.partitions),
    )  # fmt: skip


async def message(maker: PageMaker, call: HttpCall) -> Reply:
    name = call.path["topic"]
    call.may("read", name)
    topic = (await maker.link.driver.run(maker.link.verbs.topics([name])))[0]
    place, offset = TopicPlace(topic, _number(call.path["partition"], topic)), _offset(call.path["offset"])
    parts, _ = await take(maker.link, topic, {place.partition: offset}, 1)
    found = [record for part in parts for record in part.records() if record.offset == offset]
    if not found:
        there = f"it has those from {place.first} to {place.end - 1}" if place.end > place.first else "it is empty"
        raise Refusal(404, "out_of_bounds", f"partition {place.partition} has no message {offset}: {there}")
    record = found[0]
    return await maker.page(
        call, "message.html", f"/console/topics/{name}/messages/{place.partition}/{offset}", topic=name, record=record,
        first=place.first, last=place.end, value=shown(record.value, call.asked.form, VALUE_BYTES),
        key=None if record.key is None else shown(record.key, "auto", VALUE_BYTES), form=call.asked.form, forms=FORMS,
        headers=[(header, shown(value, "auto", VALUE_BYTES)) for header, value in record.header_list],
    )  # fmt: skip


# -- where --------------------------------------------------------------------------------------------------


def _key(text: str) -> bytes | None:
    """The key of a search: text, or hex behind 0x."""
    if not text:
        return None
    if text.startswith("0x"):
        try:
            return binascii.unhexlify(text[2:].replace(" ", ""))
        except ValueError:
            raise InvalidArgument(f"{text[:40]!r} is no hex: write two digits for each byte behind 0x") from None
    return text.encode()


def _partition(topic: Topic, asked: MessagesQuery, key: bytes | None) -> int:
    """The one that is asked for; without one, that of the key, or the first with messages."""
    if asked.partition:
        return _number(asked.partition, topic)
    if key is None:
        return next((each.partition for each in topic.partitions if each.end > each.first), 0)
    return PARTITIONERS[str(topic.settings.get("partitioner", "xxh3"))].of(key, len(topic.partitions))


def _number(text: str, topic: Topic) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < len(topic.partitions)):
        raise Refusal(404, "unknown_partition", f"topic {topic.name} has {len(topic.partitions)} partitions, from 0 on")
    return int(text)


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidArgument(f"{text[:40]!r} is no offset: a number from 0 on")
    return int(text)


async def _start(maker: PageMaker, place: TopicPlace, asked: MessagesQuery, key: bytes | None) -> int:
    """The first offset to show: that asked for, that of a time, or that of the newest messages."""
    if asked.offset and asked.time:
        raise InvalidArgument("an offset and a time both say where to begin: give one of them")
    if asked.offset:
        found = _offset(asked.offset)
    elif asked.time:
        found = (await maker.link.client.offsets(place.topic.name, start_of(asked.time)))[place.partition]
    else:
        found = place.end - (WINDOW if key is None else SCAN)
    return min(max(found, place.first), place.end)


# -- reading ------------------------------------------------------------------------------------------------


async def _around(maker: PageMaker, place: TopicPlace, start: int) -> Window:
    """The messages from an offset on."""
    parts, following = await take(maker.link, place.topic, {place.partition: start}, WINDOW)
    records = [record for part in parts for record in part.records()]
    end = min(max(following[place.partition], start), place.end)
    older = max(start - WINDOW, place.first) if start > place.first else None
    return Window(
        place.partition, records, start, end, place.first, place.end, older, end if end < place.end else None
    )  # fmt: skip


async def _with_key(maker: PageMaker, place: TopicPlace, start: int, key: bytes) -> Window:
    """The messages of a key from an offset on, until there are enough or `SCAN` were looked at."""
    records: list[Record] = []
    offset, until, size = start, min(start + SCAN, place.end), 0
    while offset < until and len(records) < WINDOW and size < TAKEN_BYTES_MAX:
        parts, following = await take(maker.link, place.topic, {place.partition: offset}, min(PART, until - offset))
        records += [record for part in parts for record in part.records() if record.key == key]
        size += sum(part.batch.batch_bytes for part in parts)
        if following[place.partition] <= offset:
            break
        offset = following[place.partition]
    if len(records) > WINDOW:
        del records[WINDOW:]
        offset = records[-1].offset + 1
    older = max(start - SCAN, place.first) if start > place.first else None
    return Window(
        place.partition, records, start, offset, place.first, place.end, older, offset if offset < place.end else None
    )  # fmt: skip
