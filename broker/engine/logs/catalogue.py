"""The catalogue: the topics of a node, from the metadata log.

Idea: a state like a partition's, over the effects TopicCreated, TopicAltered, TopicDeleted, TopicErased. A topic's
logs are made before TopicCreated is proposed, so every topic in the catalogue has its files; files that no topic names
are left alone.

Contract: only TopicDeleted, read from an intact log, allows files to be removed; it is kept until TopicErased says
they are. Applying decides nothing. Pure.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from xxhash import xxh3_64_intdigest

from ..tables import effects as fx
from ..tables.entry import Entry
from ..tables.producers import Place
from ..tables.queues.shelf_bodies import Read, no_runs
from ..tables.state import decode_body

VERSION = 1


class TopicEntry(Struct, array_like=True):
    """One topic as the catalogue knows it."""

    name: str
    topic: bytes
    partitions: int
    settings: dict[str, Any]
    created_us: int


class CatalogueBody(Struct, array_like=True):
    """The catalogue's snapshot, as a msgpack array of these fields in this order."""

    version: int
    seq: int
    term: int
    time_us: int
    topics: list[TopicEntry]
    tombstones: list[bytes]  # deleted, files perhaps not yet removed


class CatalogueState:
    """The state of the metadata log up to `seq`."""

    def __init__(self) -> None:
        self.seq = 0
        self.term = 0
        self.time_us = 0
        self.end = 0
        self.topics: dict[bytes, TopicEntry] = {}
        self.names: dict[str, bytes] = {}
        self.tombstones: dict[bytes, None] = {}

    def name_taken(self, name: str) -> bool:
        """Whether a topic of this name exists or is being created."""
        return name in self.names

    def apply(self, entry: Entry, time_us: int) -> None:
        """Apply one batch. Raises UnknownEffect for an effect that does not belong into the metadata log."""
        if entry.has_records:
            raise fx.UnknownEffect("records stand in the metadata log: a newer version of penstock must open it")
        for effect in entry.effects:
            self.effect(effect, time_us)

    def effect(self, effect: fx.AnyEffect, time_us: int) -> None:
        """Apply one effect. Raises UnknownEffect for one that does not belong into the metadata log."""
        match effect:
            case fx.TopicCreated(name, topic, partitions, settings, created_us):
                self.topics[topic] = TopicEntry(name, topic, partitions, settings, created_us)
                self.names[name] = topic
            case fx.TopicAltered(topic, partitions, settings):
                if topic in self.topics:
                    entry = self.topics[topic]
                    entry.partitions, entry.settings = partitions, settings
            case fx.TopicDeleted(topic):
                if topic in self.topics:
                    self.names.pop(self.topics.pop(topic).name, None)
                self.tombstones[topic] = None
            case fx.TopicErased(topic):
                self.tombstones.pop(topic, None)
            case _:
                raise fx.UnknownEffect(f"effect {type(effect).__name__} stands in the metadata log")

    def batch_applied(self, place: Place) -> None:
        """The batch at `place` is applied completely."""
        self.seq, self.term, self.time_us = place.seq, place.term, place.time_us
        self.end = place.offset + place.count

    def lost(self, seqs: range) -> None:
        """The loss of these batches was accepted; none is ever read again."""

    def copy(self) -> CatalogueState:
        """A copy."""
        return type(self).decode(self.encode())

    def encode(self) -> bytes:
        """The body of a snapshot."""
        topics = sorted(self.topics.values(), key=lambda entry: entry.topic)
        return msgspec.msgpack.encode(
            CatalogueBody(VERSION, self.seq, self.term, self.time_us, topics, sorted(self.tombstones))
        )

    def digest(self) -> int:
        """A number that is the same for all states that are equal."""
        return xxh3_64_intdigest(self.encode())

    @classmethod
    def decode(cls, body: bytes, read: Read = no_runs) -> CatalogueState:
        """The state of a snapshot's body. Raises NewerFormat, Corrupt."""
        stored = decode_body(body, CatalogueBody, VERSION)
        state = cls()
        state.seq, state.term, state.time_us = stored.seq, stored.term, stored.time_us
        state.topics = {entry.topic: entry for entry in stored.topics}
        state.names = {entry.name: entry.topic for entry in stored.topics}
        state.tombstones = dict.fromkeys(stored.tombstones)
        return state
