"""XINFO: what there is to say about a stream and its groups."""

from __future__ import annotations

from typing import Any

from ...clients.queues.descriptions import Queue
from ..link import BrokerLink, TopicPlace
from ..reading import append_time_ms
from .command import Command, RespSession
from .entries import FIRST, EntryId
from .names import name_of_group
from .places import existing
from .refusals import CommandRefused
from .replies import Encoded
from .streams import entries, last_entries


async def xinfo(session: RespSession, arguments: list[bytes]) -> Any:
    """XINFO."""
    what, rest = arguments[0].upper(), arguments[1:]
    if what == b"STREAM" and len(rest) == 1:
        return await _stream(session.door.link, await existing(session, rest[0], "read"))
    if what == b"GROUPS" and len(rest) == 1:
        place, link = await existing(session, rest[0], "read"), session.door.link
        return [await _group(link, place, queue) for queue in await link.client.queues(place.topic.name)]
    raise CommandRefused("XINFO is XINFO STREAM key or XINFO GROUPS key here")


async def _stream(link: BrokerLink, place: TopicPlace) -> Any:
    first = await entries(link, place, place.first, place.end, 1)
    last = await last_entries(link, place, place.first, place.end, 1)
    ids = [_id_of(entry[0]) if entry else b"0-0" for entry in (first, last)]
    return {
        "length": place.end - place.first, "radix-tree-keys": 1, "radix-tree-nodes": 2,
        "last-generated-id": ids[1], "max-deleted-entry-id": b"0-0", "entries-added": place.end,
        "recorded-first-entry-id": ids[0], "groups": len(await link.client.queues(place.topic.name)),
        "first-entry": Encoded(first[0]) if first else None, "last-entry": Encoded(last[0]) if last else None,
    }  # fmt: skip


def _id_of(entry: bytes) -> bytes:
    """The id of an encoded entry."""
    return entry.split(b"\r\n", 3)[2]


async def _group(link: BrokerLink, place: TopicPlace, queue: Queue) -> Any:
    """One group. What it has not had yet is the end of the stream."""
    counts = next((each for each in queue.partitions if each.partition == place.partition), None)
    lag = 0 if counts is None else counts.ready + counts.delayed + counts.retrying
    had = place.end - lag  # the offset of the first one that it has not had
    last = FIRST if had <= place.first else EntryId(await append_time_ms(link, place, had - 1), had - 1)
    workers = (await link.client.pending_summary(place.topic.name, queue.name)).workers
    return {
        "name": name_of_group(queue.name), "consumers": len(workers), "pending": counts.in_flight if counts else 0,
        "last-delivered-id": bytes(last), "entries-read": had or None, "lag": lag,
    }  # fmt: skip


COMMANDS = [
    Command(
        "XINFO", -2, xinfo, "streams", "XINFO STREAM key | GROUPS key",
        "Length, first and last entry; or each group with what it has had, and what its consumers have", "read",
        (2, 2, 1), ("readonly",),
    ),
]  # fmt: skip
