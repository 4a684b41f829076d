"""Commands about keys: every topic is one, and is a stream."""

from __future__ import annotations

import fnmatch
import re
from typing import Any

from ...broker.errors import UnknownTopic
from ..link import TopicPlace
from .command import Command, RespSession, may, sees
from .names import key_of_topic, numbered, topic_of_key
from .places import find
from .refusals import SYNTAX, CommandRefused, whole
from .replies import Status


async def _has(session: RespSession, key: bytes) -> bool:
    """Whether a key is a topic, or one partition of several."""
    name = topic_of_key(key)
    may(session, "see", name)
    if await session.door.link.topic(name) is not None:
        return True
    return numbered(key) is not None and await find(session, key, "see") is not None


async def exists(session: RespSession, arguments: list[bytes]) -> Any:
    """EXISTS."""
    return sum([await _has(session, key) for key in arguments])


async def type_(session: RespSession, arguments: list[bytes]) -> Any:
    """TYPE."""
    return Status("stream" if await _has(session, arguments[0]) else "none")


async def delete(session: RespSession, arguments: list[bytes]) -> Any:
    """DEL."""
    deleted, keys = 0, dict.fromkeys(arguments)
    for key in keys:
        may(session, "manage", topic_of_key(key))
    for key in keys:
        name = topic_of_key(key)
        if await _delete(session, name):
            deleted += 1
        elif numbered(key) is not None and isinstance(await find(session, key, "manage"), TopicPlace):
            raise CommandRefused("a partition cannot be deleted alone: name its topic")
    return deleted


async def _delete(session: RespSession, name: str) -> bool:
    """Delete a topic; False when there is none, also because another client deleted it meanwhile."""
    link = session.door.link
    async with link.deleting:
        topic = await link.topic(name)
        if topic is None:
            return False
        link.forget(topic.topic)
        try:
            await link.client.delete_topic(name)
        except UnknownTopic:
            return False
        return True


async def _keys(session: RespSession, pattern: bytes = b"*") -> list[bytes]:
    wanted, topics = _glob(pattern), await session.door.link.client.topics()
    found = [key_of_topic(topic.name) for topic in topics if sees(session, topic.name)]
    return sorted(key for key in found if wanted.fullmatch(key.decode("latin-1")))


def _glob(pattern: bytes) -> re.Pattern[str]:
    """A pattern of Redis: as of a shell, with ^ for not, and backslashes."""
    text = pattern.decode("latin-1").replace("[^", "[!")
    parts = re.split(r"\\(.)", text, flags=re.DOTALL)
    plain = "".join(f"[{part}]" if number % 2 and part != "^" else part for number, part in enumerate(parts))
    return re.compile(fnmatch.translate(plain))


async def keys(session: RespSession, arguments: list[bytes]) -> Any:
    """KEYS."""
    return await _keys(session, arguments[0])


async def scan(session: RespSession, arguments: list[bytes]) -> Any:
    """SCAN: everything in one answer, which is what a cursor of 0 says."""
    whole(arguments[0], "cursor")
    pattern, words = b"*", [*arguments[1:]]
    while words:
        option = words.pop(0).upper()
        if not words or option not in (b"MATCH", b"COUNT", b"TYPE"):
            raise CommandRefused(SYNTAX)
        given = words.pop(0)
        if option == b"MATCH":
            pattern = given
        elif option == b"COUNT":
            whole(given, "COUNT", 1)
        elif given.lower() != b"stream":
            return [b"0", []]
    return [b"0", await _keys(session, pattern)]


async def dbsize(session: RespSession, arguments: list[bytes]) -> Any:
    """DBSIZE."""
    return len(await _keys(session))


COMMANDS = [
    Command(
        "EXISTS", -2, exists, "keys", "EXISTS key [key ...]", "How many of the keys are topics", "read", (1, -1, 1),
        ("readonly",),
    ),
    Command("TYPE", 2, type_, "keys", "TYPE key", "`stream` or `none`", "read", (1, 1, 1), ("readonly",)),
    Command(
        "DEL", -2, delete, "keys", "DEL key [key ...]", "Deletes topics, with their records and groups", "manage",
        (1, -1, 1), ("write",),
    ),
    Command("KEYS", 2, keys, "keys", "KEYS pattern", "The keys of topics that match", "read", flags=("readonly",)),
    Command(
        "SCAN", -2, scan, "keys", "SCAN cursor [MATCH pattern] [COUNT n] [TYPE stream]",
        "The same, all in one answer", "read", flags=("readonly",),
    ),
    Command("DBSIZE", 1, dbsize, "keys", "DBSIZE", "How many topics there are", "read", flags=("readonly",)),
]  # fmt: skip
