"""Offsets of a stream: how far each partition was read, as Spark keeps it in a query's checkpoint.

    {"v": 1, "topics": {"flights": {"id": "0a1b...", "p": {"0": [17, 2], "1": [42, 2]}}},
             "from":   {"flights": {"id": "0a1b...", "p": {"1": [40, -1]}}}}

Idea: `topics` says where a micro-batch ends. `from` says where it begins in partitions where that is not the end of
the one before: in all of them for the first one, in a new partition, behind lost records. So a micro-batch that is
repeated after a crash reads the same records, although Spark remembers no beginning and the partitions have moved on.
A position is an offset with the term of the record before it, -1 when unknown: after a power cut the same offset may
mean another record, and the term tells them apart. The id tells a topic from a deleted one of the same name.

Contract: `decode(encode(x)) == x`; equal offsets have equal text, because Spark compares texts. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from .errors import InvalidOffsets

VERSION = 1
UNKNOWN_TERM = -1


class Position(NamedTuple):
    """The next record, and the term of the one before it."""

    offset: int
    term: int = UNKNOWN_TERM


class PartitionKey(NamedTuple):
    """One partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Positions(msgspec.Struct, frozen=True):
    """Positions in one topic, by partition."""

    id: str
    partitions: Mapping[int, Position]


class SourceOffsets(msgspec.Struct, frozen=True):
    """See the module. `new`: nothing was read and nothing decided yet."""

    topics: Mapping[str, Positions] = {}
    begins: Mapping[str, Positions] = {}
    new: bool = False

    def begin_of(self, end: SourceOffsets, topic: str, partition: int) -> Position | None:
        """The position where the micro-batch from here to `end` begins in a partition; None if unknown."""
        id_ = end.topics[topic].id
        for found in (end.begins.get(topic), self.topics.get(topic)):
            if found is not None and found.id == id_ and partition in found.partitions:
                return found.partitions[partition]
        return None

    def places(self) -> Iterator[tuple[PartitionKey, Position]]:
        """Every partition, in order, and where it stands."""
        for topic in sorted(self.topics):
            for partition, position in sorted(self.topics[topic].partitions.items()):
                yield PartitionKey(topic, partition), position


NEW = SourceOffsets(new=True)
"""What a query starts with: where it begins is decided with its first micro-batch, and written down with its end."""


def encode(offsets: SourceOffsets) -> dict[str, Any]:
    """Encode for Spark, which makes JSON of it."""
    found: dict[str, Any] = {"v": VERSION}
    if not offsets.new:
        found["topics"] = _packed(offsets.topics)
    if offsets.begins:
        found["from"] = _packed(offsets.begins)
    return found


def _packed(topics: Mapping[str, Positions]) -> dict[str, Any]:
    return {name: {"id": found.id, "p": _pairs(found.partitions)} for name, found in sorted(topics.items())}


def _pairs(partitions: Mapping[int, Position]) -> dict[str, list[int]]:
    return {str(number): list(position) for number, position in sorted(partitions.items())}


class _Stored(msgspec.Struct, rename={"positions": "p"}):
    id: str
    positions: dict[int, tuple[int, int]]


class _Document(msgspec.Struct, rename={"version": "v", "begins": "from"}):
    version: int
    topics: dict[str, _Stored] | None = None
    begins: dict[str, _Stored] = {}


def decode(stored: Mapping[str, Any]) -> SourceOffsets:
    """Decode the offsets of a checkpoint. Raises InvalidOffsets."""
    try:
        found = msgspec.convert(stored, _Document, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidOffsets(
            f"the checkpoint holds offsets that are not penstock's ({error}): was it made by another source?"
        ) from None
    if found.version != VERSION:
        raise InvalidOffsets(
            f"the checkpoint holds offsets of version {found.version}, this penstock reads {VERSION}: upgrade it"
        )
    return SourceOffsets(_unpacked(found.topics or {}), _unpacked(found.begins), new=found.topics is None)


def _unpacked(topics: Mapping[str, _Stored]) -> dict[str, Positions]:
    return {
        topic: Positions(found.id, {partition: Position(*pair) for partition, pair in found.positions.items()})
        for topic, found in topics.items()
    }
