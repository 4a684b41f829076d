"""Iteration over a range, for threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...storage.batch import Batch
from ..connection.delivery import Delivery, range_ways
from ..connection.driver import Driver
from .known_topics import KnownTopics
from .range import RangeCore, core_of


def each_batch_of_range(driver: Driver, core: RangeCore) -> Iterator[Batch]:
    """The batches of a range, each checked in the thread that asks for it, without the lock."""
    try:
        while found := driver.run(core.more()):
            for batch in found:
                core.check(batch)
                yield batch
    finally:
        driver.do(core.close)


def each_batch_aside(
    driver: Driver, topics: KnownTopics, delivery: Delivery, topic: str, partition: int, start: int, end: int,
    columns: Sequence[str],
) -> Iterator[Batch]:  # fmt: skip
    """The batches of a range, in any thread."""
    connection = driver.connection
    ways = range_ways(connection, delivery, may_map=True)
    core = core_of(connection, topics, ways, topic, partition, start, end, columns)
    driver.run(core.found())
    yield from each_batch_of_range(driver, core)
