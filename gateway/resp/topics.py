"""Topics as queues of messages with named consumers: a message is a record's value, a consumer has an offset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..consumers import move, positions, take_some
from ..link import TopicPlace
from .appends import append
from .command import Command, RespSession, may, sees
from .fields import EntryColumns
from .names import key_of_topic, topic_of_key
from .places import existing
from .refusals import SYNTAX, CommandRefused, whole
from .replies import Status
from .tickets import OffsetTicket

LISTEN_COUNT = 10
LISTEN_COUNT_MAX = 10_000

_SWITCHES = {"true": True, "false": False}


async def create(session: RespSession, arguments: list[bytes]) -> Any:
    """CREATE."""
    name, words = topic_of_key(arguments[0]), [word.decode("utf-8", "replace") for word in arguments[1:]]
    may(session, "manage", name)
    if len(words) % 2:
        raise CommandRefused(SYNTAX)
    given = {option.lower(): value for option, value in zip(words[::2], words[1::2], strict=True)}
    partitions = whole(given.pop("partitions", "1").encode(), "PARTITIONS", 1)
    link = session.door.link
    settings = {option: _SWITCHES.get(value, value) for option, value in given.items()}
    await link.driver.run(link.verbs.create_topic(name, partitions, False, settings))
    return Status("OK")


async def delete(session: RespSession, arguments: list[bytes]) -> Any:
    """DELETE."""
    name, link = topic_of_key(arguments[0]), session.door.link
    may(session, "manage", name)
    topic = await link.client.topic(name)
    link.forget(bytes.fromhex(topic.id))
    await link.client.delete_topic(name)
    return Status("OK")


def enqueue(session: RespSession, topic: list[bytes], columns: list[Sequence[bytes]]) -> Any:
    """ENQUEUE."""
    (messages,) = columns
    return append(session, topic[0], EntryColumns(messages), OffsetTicket)


async def _position(session: RespSession, place: TopicPlace, consumer: str) -> int:
    """Where a consumer reads next."""
    return (await positions(session.door.link, place.topic, consumer))[place.partition]


def _consumer(name: bytes) -> str:
    return name.decode("utf-8", "replace")


async def listen(session: RespSession, arguments: list[bytes]) -> Any:
    """LISTEN."""
    key, name, *words = arguments
    consumer, advances = _consumer(name), bool(words) and words[-1].upper() == b"AUTO"
    words = words[:-1] if advances else words
    if len(words) > 1:
        raise CommandRefused(SYNTAX)
    count = min(whole(words[0], "count", 1), LISTEN_COUNT_MAX) if words else LISTEN_COUNT
    place, link = await existing(session, key, "read"), session.door.link
    may(session, "read", place.topic.name, consumer)
    starts = {place.partition: await _position(session, place, consumer)}
    parts, following = await take_some(link, place.topic, starts, count)
    found = [record.value for part in parts for record in part.records()]
    session.hold(sum(map(len, filter(None, found))))
    if advances and following != starts:
        await move(link, place.topic, consumer, following)
    return found


async def offset(session: RespSession, arguments: list[bytes]) -> Any:
    """OFFSET."""
    key, name, *words = arguments
    if len(words) > 1:
        raise CommandRefused(SYNTAX)
    place = await existing(session, key, "read")
    may(session, "read", place.topic.name, _consumer(name))
    if not words:
        return await _position(session, place, _consumer(name))
    wanted = whole(words[0], "offset")
    await move(session.door.link, place.topic, _consumer(name), {place.partition: wanted})
    return Status("OK")


async def topics(session: RespSession, arguments: list[bytes]) -> Any:
    """TOPICS."""
    found = await session.door.link.client.topics()
    return sorted(key_of_topic(topic.name) for topic in found if sees(session, topic.name))


async def stats(session: RespSession, arguments: list[bytes]) -> Any:
    """STATS."""
    link = session.door.link
    if not arguments:
        may(session, "see", "")
        every = await link.client.topics()
        return {
            "topics": len(every),
            "records": sum(t.records for t in every),
            "bytes": sum(t.size_bytes for t in every),
        }
    name = topic_of_key(arguments[0])
    may(session, "see", name)
    topic = await link.client.topic(name)
    return {
        "partitions": len(topic.partitions), "records": topic.records, "bytes": topic.size_bytes,
        "first": [partition.first for partition in topic.partitions],
        "end": [partition.end for partition in topic.partitions],
    }  # fmt: skip


async def consumers(session: RespSession, arguments: list[bytes]) -> Any:
    """CONSUMERS."""
    name = topic_of_key(arguments[0])
    may(session, "see", name)
    found = await session.door.link.client.groups(name)
    return sorted(group.name for group in found if sees(session, name, group.name))


COMMANDS = [
    Command(
        "CREATE", -2, create, "topics", "CREATE topic [PARTITIONS n] [setting value ...]",
        "Creates a topic, with settings as of `penstock topic create`", "manage", (1, 1, 1), ("write",),
    ),
    Command("DELETE", 2, delete, "topics", "DELETE topic", "Deletes a topic", "manage", (1, 1, 1), ("write",)),
    Command(
        "ENQUEUE", 3, enqueue, "topics", "ENQUEUE topic message",
        "Appends a message and answers its offset; the topic is made if it is not there", "write", (1, 1, 1),
        ("write", "fast"), shared=lambda words: 2,
    ),
    Command(
        "LISTEN", -3, listen, "topics", "LISTEN topic consumer [count] [AUTO]",
        "The messages from the consumer's offset on, 10 if not said otherwise; AUTO moves the offset behind them",
        "read", (1, 1, 1),
    ),
    Command(
        "OFFSET", -3, offset, "topics", "OFFSET topic consumer [offset]",
        "Where the consumer reads next; or moves it there, which makes a new consumer", "read", (1, 1, 1),
    ),
    Command("TOPICS", 1, topics, "topics", "TOPICS", "The names of all topics", "read", flags=("readonly",)),
    Command(
        "STATS", -1, stats, "topics", "STATS [topic]", "Records and bytes, of one topic or of all", "read",
        flags=("readonly",),
    ),
    Command(
        "CONSUMERS", 2, consumers, "topics", "CONSUMERS topic", "The names of its consumers", "read", (1, 1, 1),
        ("readonly",),
    ),
]  # fmt: skip
