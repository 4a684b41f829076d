"""Effects: decisions as they stand in a log. STATE.md describes them in words.

Idea: the leader decides, the log holds decisions. An effect carries everything needed to apply it; it is
never a request to be judged again, so replay needs no configuration, clock or randomness.

Contract: tags never change their meaning; fields are only added at the end, with a default. An unknown tag
is UnknownEffect: applying the rest without it would be guessing. One EFFECTS column holds a msgpack list of
effects, each [tag, field, ...], applied in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import UnknownEffect


class Effect(Struct, array_like=True, frozen=True, gc=False):
    """Base of all effects."""


# -- in the log of a partition ---------------------------------------------------------------------


class FirstOffset(Effect, tag=1, frozen=True):
    """Retention: offsets below `offset` are gone, for every reader."""

    offset: int


class ProducerOpened(Effect, tag=2, frozen=True):
    """`name` is claimed: `producer_id` goes on under `epoch`, older epochs are fenced."""

    name: str
    producer_id: int
    epoch: int


class ProducersExpired(Effect, tag=3, frozen=True):
    """These producers are forgotten."""

    producer_ids: list[int]


class CursorMoved(Effect, tag=4, frozen=True):
    """`group` has finished everything below `offset`."""

    group: str
    offset: int


class OwnerSet(Effect, tag=5, frozen=True):
    """From here on `member` reads this partition for `group` under `epoch`; commits of older epochs are refused.

    `start` is where reading begins while the group has no cursor.
    """

    group: str
    member: str
    epoch: int
    start: int


class GroupDeleted(Effect, tag=6, frozen=True):
    """`group` is forgotten here: cursor, owner and epoch."""

    group: str


# -- in the metadata log ---------------------------------------------------------------------------


class TopicCreated(Effect, tag=64, frozen=True):
    """A topic exists, with `partitions` logs that were made before this was written."""

    name: str
    topic: bytes
    partitions: int
    settings: dict[str, Any]
    time_us: int


class TopicAltered(Effect, tag=65, frozen=True):
    """All settings of a topic, and how many partitions it has now."""

    topic: bytes
    partitions: int
    settings: dict[str, Any]


class TopicDeleted(Effect, tag=66, frozen=True):
    """The tombstone: only this allows a topic's files to be removed."""

    topic: bytes


class TopicErased(Effect, tag=67, frozen=True):
    """The files of a deleted topic are gone; the tombstone is done with."""

    topic: bytes


PartitionEffect = FirstOffset | ProducerOpened | ProducersExpired | CursorMoved | OwnerSet | GroupDeleted
MetadataEffect = TopicCreated | TopicAltered | TopicDeleted | TopicErased
AnyEffect = PartitionEffect | MetadataEffect

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyEffect])


def encode(effects: Sequence[AnyEffect]) -> bytes:
    """The bytes of an EFFECTS column."""
    return _encoder.encode(effects)


def decode(column: bytes) -> list[AnyEffect]:
    """The effects of a column. Raises UnknownEffect for a tag this version does not know, or other bytes."""
    try:
        return _decoder.decode(column)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownEffect(
            f"an effect in the log is unknown to this version of penstock: {error}; upgrade it"
        ) from None
