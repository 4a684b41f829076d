"""Appends the records of a request and waits until they are committed.

Idea: a few records join those of other requests in a shared batch; many make batches of their own. A topic that was
looked up lately is not looked up again, but for one that turns out to be gone.

Contract: records keep their order within a partition. An error stops it, and what was appended before stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ..broker.errors import UnknownTopic
from ..broker.rights import Principal, authorize
from ..clients.producing.arrow_data import ArrowData
from ..clients.producing.queued import Queued
from .appending import Appender, RecordRun, SharedBatch
from .link import BrokerLink

T = TypeVar("T")

FEW = 64
"""Records of one request that join others."""

PORTION = 500
"""Records of one request that are taken in one turn of the loop."""


class Outgoing(NamedTuple):
    """A record to be appended. Without a partition, the key chooses it."""

    value: bytes | None
    key: bytes | None = None
    headers: Mapping[str, bytes] | None = None
    timestamp: int | None = None  # microseconds
    partition: int | None = None
    queued: Queued | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it has no more than a value and a key."""
        return self[2:] == (None, None, None, None)


class RecordPlace(NamedTuple):
    """Where one record is; `repeats` is the offset of the one whose dedup key it repeats."""

    partition: int
    offset: int
    repeats: int | None = None


class _Waiting:
    """Waits for the batches with records of one request."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.batches: set[SharedBatch] = set()
        self.complete = False  # no further batch comes

    def settled(self) -> None:
        """See Told."""
        if self.complete and not self.done.done() and all(batch.settled for batch in self.batches):
            self.done.set_result(None)


async def _appending(
    link: BrokerLink, principal: Principal, name: str, act: Callable[[Appender], Awaitable[T]], *, create: bool
) -> T:
    """Have `act` append to a topic, once more if it turns out to be gone and is there again."""
    known = link.known_topic(name)
    if known is not None:
        try:
            return await act(link.appender(principal, known))
        except UnknownTopic:
            pass  # it was deleted, and with it what was appended
    create = create and authorize(principal, "manage", f"topic:{name}")
    return await act(link.appender(principal, await link.topic_to_append(name, create=create)))


async def append_few(
    link: BrokerLink, principal: Principal, name: str, records: Sequence[Outgoing], *, create: bool
) -> list[RecordPlace]:
    """Append records in shared batches. Raises what a producer raises."""
    return await _appending(link, principal, name, lambda appender: _join(link, appender, records), create=create)


async def _join(link: BrokerLink, appender: Appender, records: Sequence[Outgoing]) -> list[RecordPlace]:
    waiting = _Waiting()
    placed: list[tuple[SharedBatch, int]] = []
    for number, (value, key, headers, timestamp, partition, queued) in enumerate(records, 1):
        if number % PORTION == 0:
            await link.turns.turn()
        while appender.jammed:
            await appender.room()
        placed.append(appender.append(value, key, headers, partition, waiting, timestamp, queued))
        waiting.batches.add(placed[-1][0])
    waiting.complete = True
    waiting.settled()
    await waiting.done
    return [_appended(batch, index) for batch, index in placed]


def _appended(batch: SharedBatch, index: int) -> RecordPlace:
    return RecordPlace(batch.pending.partition, batch.offset(index), batch.repeats(index))


async def append_all(
    link: BrokerLink, principal: Principal, name: str, records: Sequence[Outgoing], *, create: bool
) -> list[RecordRun]:
    """Append records. Returns where they are, in runs. Raises what a producer raises."""
    if len(records) <= FEW or not all(record.is_plain for record in records):
        places = await append_few(link, principal, name, records, create=create)
        return _runs(RecordRun(place.partition, place.offset, 1) for place in places)
    keys = [record.key for record in records]
    known = keys if any(key is not None for key in keys) else None
    return await append_values(link, principal, name, [record.value for record in records], known, None, create=create)


async def append_values(
    link: BrokerLink, principal: Principal, name: str, values: Sequence[bytes | None] | ArrowData,
    keys: Sequence[bytes | None] | None, partition: int | None, *, create: bool,
) -> list[RecordRun]:  # fmt: skip
    """Append records that have no more than a value and a key, or the rows of a table. As `append_all`."""
    places = await _appending(
        link, principal, name, lambda appender: appender.append_many(values, keys, partition), create=create
    )
    return _runs(places)


def _runs(places: Iterable[RecordRun]) -> list[RecordRun]:
    """The same places, in as few runs as they make."""
    found: list[RecordRun] = []
    for place in places:
        last = found[-1] if found else None
        if last is not None and last.partition == place.partition and place.first == last.first + last.count:
            found[-1] = RecordRun(last.partition, last.first, last.count + place.count)
        else:
            found.append(place)
    return found
