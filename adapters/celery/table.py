"""Values by key in a topic: what a result backend needs, over a log.

Idea: a value is a record with its key, in the partition that the key's hash chooses. A lookup reads that partition from
where it was read last for this key: from the beginning for a key of another process, from the end as of then for a key
that this process announced (`begin`), so that waiting for a result reads only what is new. A null is a deletion.
Retention is the expiry. What is read for one key is noted for all that were looked for or announced: the parts of a
chord, or a client that waits for a thousand tasks, read each record once.

Contract: threads may share a table. Values of a key come in the order of the log, which all processes share.
*Invariant*: of a partition, all values between the bounds of its span are noted of each key whose offset lies there.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from threading import RLock
from typing import Any

from ...broker.errors import TopicExists, UnknownTopic
from ...clients import Client, Producer, TopicEnds
from ...storage.errors import OutOfBounds

PARTITIONS = 8
"""A lookup of a key that nothing is known of reads one of them."""

READ_MOST = 5000
KEYS_MOST = 10_000
"""Keys whose place is remembered. For an older one, the partition is read again."""


class SeenKey:
    """What a table knows of one key: its values before an offset, which is -1 when nothing was read for it."""

    __slots__ = ("offset", "values")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.values: list[bytes | None] = []


class ValuesByKey:
    """See the module."""

    def __init__(self, client: Client, topic: str, expires_s: float | None) -> None:
        """Make the topic when it is missing. An existing one keeps its retention."""
        self.topic = topic
        self._client = client
        self._lock = RLock()
        self._seen: OrderedDict[bytes, SeenKey] = OrderedDict()
        self._spans: dict[int, range] = {}  # what was read last of each partition, without a gap
        settings: dict[str, Any] = {} if not expires_s else {"retention_s": expires_s}
        try:
            client.topic(topic)
        except UnknownTopic:
            with suppress(TopicExists):  # another process was first
                client.create_topic(topic, partitions=PARTITIONS, **settings)
        self._producer: Producer = client.producer(topic)
        self._ends: TopicEnds = client.ends([topic])[topic]

    def put(self, key: bytes, value: bytes | None) -> int:
        """Append a value, or a deletion; returns its offset once it is committed."""
        return self._producer.send(value, key=key, partition=self._partition(key))

    def begin(self, key: bytes) -> None:
        """Announce a key that has no values yet."""
        with self._lock:
            self._remember(key, self._end(self._partition(key)))

    def values(self, key: bytes) -> list[bytes | None]:
        """All values of a key, oldest first."""
        return self.values_of([key])[0]

    def values_of(self, keys: Iterable[bytes]) -> list[list[bytes | None]]:
        """All values of some keys, as of now: each partition is read once."""
        wanted = list(keys)
        with self._lock:
            self._ends = self._client.ends([self.topic])[self.topic]
            by_partition: dict[int, list[bytes]] = {}
            for key in wanted:
                by_partition.setdefault(self._partition(key), []).append(key)
            for partition, members in by_partition.items():
                self._read(partition, members)
            found = [list(self._seen[key].values) for key in wanted]
            while len(self._seen) > KEYS_MOST:
                self._seen.popitem(last=False)
            return found

    def wait(self, wait_s: float) -> None:
        """Wait until something came since the latest look, at most so long."""
        with self._lock:
            known = self._ends
        self._client.ends([self.topic], known={self.topic: known}, wait=max(wait_s, 0.0))

    def _read(self, partition: int, keys: list[bytes]) -> None:
        known = [self._seen.get(key) or self._remember(key, -1) for key in keys]
        for key in keys:
            self._seen.move_to_end(key)
        span, end = self._spans.get(partition, range(0)), self._end(partition)
        begin = offset = max(min(_place(each, span) for each in known), self._first(partition))
        for each in known:
            if _place(each, span) < begin:
                each.offset = begin  # what was before is gone
        while offset < end:
            try:
                found = self._client.read(self.topic, partition, offset, max_records=READ_MOST)
            except OutOfBounds:  # retention took some meanwhile
                offset = self._client.offsets(self.topic, "earliest")[partition]
                continue
            if not found:
                break
            for record in found:
                each = self._seen.get(record.key) if record.key is not None else None
                if each is not None and begin <= _place(each, span) and each.offset <= record.offset:
                    each.values.append(None if record.value is None else bytes(record.value))
                    each.offset = record.offset + 1
            offset = found[-1].offset + 1
        for each in known:
            each.offset = max(each.offset, offset)
        self._spans[partition] = range(span.start if begin in span or begin == span.stop else begin, offset)

    def _remember(self, key: bytes, offset: int) -> SeenKey:
        return self._seen.setdefault(key, SeenKey(offset))

    def _partition(self, key: bytes) -> int:
        return zlib.crc32(key) % len(self._ends.partitions)

    def _end(self, partition: int) -> int:
        return self._ends.partitions[partition].end

    def _first(self, partition: int) -> int:
        return self._ends.partitions[partition].first


def _place(known: SeenKey, span: range) -> int:
    """Up to where the values of a key are known."""
    return span.stop if span.start <= known.offset <= span.stop else known.offset
