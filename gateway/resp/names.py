"""Redis keys and names of topics (decision 064).

Idea: a key that can be the name of a topic is that name. Any other key, such as `user:1`, is the topic `esc_` with each
byte outside of A-Z a-z 0-9 . - written as `_` and two hexadecimal digits: `esc_user_3a1`.

Contract: one to one between keys and topics, both ways: a topic that has the form of an escaped key, and is not one,
has its own name as key. Pure.
"""

from __future__ import annotations

import re

from ...transport.names import RULE, is_name
from .refusals import CommandRefused

PREFIX = "esc_"

_SPECIAL = re.compile(rb"[^A-Za-z0-9.-]")
_ESCAPED = re.compile(r"esc_(?:[A-Za-z0-9.-]|_[0-9a-f]{2})*")
_NUMBERED = re.compile(rb"(.+):([0-9]{1,4})", re.DOTALL)


def topic_of_key(key: bytes) -> str:
    """The name of a key's topic. Raises CommandRefused."""
    text = key.decode("latin-1")
    if is_name(text) and _original(text) is None:
        return text
    topic = _escaped(key)
    if not is_name(topic):
        raise CommandRefused(f"the key is not the name of a topic ({RULE}), and too long when escaped: {topic[:60]}...")
    return topic


def key_of_topic(topic: str) -> bytes:
    """The key of a topic, of which `topic_of_key` is the inverse."""
    original = _original(topic)
    return topic.encode() if original is None else original


def numbered(key: bytes) -> tuple[bytes, int] | None:
    """`key:3` as (key, 3), which names a partition if the topic has several. None for other keys."""
    found = _NUMBERED.fullmatch(key)
    return None if found is None else (found[1], int(found[2]))


def _escaped(key: bytes) -> str:
    return PREFIX + _SPECIAL.sub(lambda found: b"_%02x" % found[0][0], key).decode()


def _original(topic: str) -> bytes | None:
    """The key that was escaped as `topic`; None if no key is."""
    if _ESCAPED.fullmatch(topic) is None:
        return None
    key = re.sub(r"_(..)", lambda found: chr(int(found[1], 16)), topic.removeprefix(PREFIX)).encode("latin-1")
    if _escaped(key) != topic:
        return None
    text = key.decode("latin-1")
    return None if is_name(text) and _original(text) is None else key


def group_of_name(name: bytes) -> str:
    """The queue group that a client names so: as topics. Raises CommandRefused."""
    return topic_of_key(name)


def name_of_group(group: str) -> bytes:
    """The inverse of `group_of_name`."""
    return key_of_topic(group)


def worker_of_name(name: bytes) -> str:
    """The worker that a client names so. Raises CommandRefused."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise CommandRefused("the name of a consumer has to be UTF-8") from None
