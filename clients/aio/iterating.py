"""Iteration over consumers, workers and ranges, for tasks of a loop.

Contract: iteration ends when another task closes the object it reads from.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, TypeVar

from ...storage.batch import Batch
from ...storage.errors import Closed
from ...storage.record import Record
from ..arguments.checking import count
from ..connection.delivery import Delivery, range_ways
from ..connection.steps import FOREVER, Steps
from ..consuming.columnar import Convert
from ..consuming.core import ConsumerCore
from ..consuming.loading import loaded
from ..consuming.reader import Reader
from ..consuming.telling import Untold
from ..ranges.known_topics import KnownTopics
from ..ranges.range import RangeCore, core_of
from ..working.core import WorkerCore
from ..working.loading import loaded as loaded_values
from .driver import AsyncDriver

T = TypeVar("T")


async def run_told(driver: AsyncDriver, core: Reader, begin: Callable[[], Steps[T]]) -> T:
    """Run steps; the application is told of changes of the assignment first."""
    while True:
        try:
            return await driver.run(begin())
        except Untold:
            await tell(core)


async def fetched(driver: AsyncDriver, core: Reader, most: int, deadline: float) -> list[Record[Any]]:
    """What `fetch` returns. Records are loaded without the client's lock."""
    if core.load is None or not most:
        return await run_told(driver, core, lambda: core.fetch(most, deadline))
    count("max_records", most)
    run = await run_told(driver, core, lambda: core.next_list(deadline, one_by_one=False))
    return loaded(core, run, most, lambda: driver.do(lambda: core.run_there(holds=True)))


async def tell(core: Reader) -> None:
    """Tell the application what it was given and what was taken."""
    telling = core.telling
    if telling is not None:
        with telling.whole():
            await _called(telling.callback(telling.change(core.session)))


async def run_last_told(core: ConsumerCore) -> None:
    """Tell the application, while it can still commit, that everything is taken."""
    telling, core.telling = core.telling, None
    if telling is not None and telling.known:
        await _called(telling.callback(telling.change(None)))


async def _called(found: object) -> None:
    if inspect.isawaitable(found):
        await found


async def each_record(driver: AsyncDriver, core: Reader) -> AsyncIterator[Record[Any]]:
    """Every record, waiting for those to come."""
    while True:
        try:
            found = await driver.run(core.next_list(FOREVER, one_by_one=True))
        except Untold:
            await tell(core)
            continue
        except Closed:
            core.connection.check_ours()
            return
        assert found is not None, "a wait without a deadline ends with records"
        for record in found.iterator:
            yield record


async def each_batch(driver: AsyncDriver, core: Reader, convert: Convert, patience: float) -> AsyncIterator[Any]:
    """Every batch, until none comes for `patience` seconds."""
    while True:
        try:
            found = await driver.run(core.next_batch(convert, core.connection.clock() + patience))
        except Untold:
            await tell(core)
            continue
        except Closed:
            core.connection.check_ours()
            return
        if found is None:
            return
        yield found if core.load is None else loaded(core, found, found.left)


async def fetched_tasks(
    driver: AsyncDriver, core: WorkerCore, begun: Steps[list[Any]], again: Callable[[], Steps[list[Any]]]
) -> list[Any]:
    """The tasks of a call, and of others while none of them can be read."""
    tasks = await driver.run(begun)
    while tasks:
        if found := loaded_values(core, tasks):
            return found
        tasks = await driver.run(again())
    return []


async def each_task(driver: AsyncDriver, core: WorkerCore) -> AsyncIterator[Any]:
    """Every task, waiting for those to come."""
    while True:
        task = core.left.popleft() if core.left else None
        try:
            if task is None:
                core.left.extend(await driver.run(core.fetch(core.options.lease_records, FOREVER)))
        except Closed:
            core.connection.check_ours()
            return
        if task is not None and not task.lost and not core.closed:
            for each in loaded_values(core, [task]):
                yield each


async def each_batch_of_range(driver: AsyncDriver, core: RangeCore) -> AsyncIterator[Batch]:
    """The batches of a range, each checked when it is asked for."""
    try:
        while found := await driver.run(core.more()):
            for batch in found:
                core.check(batch)
                yield batch
    finally:
        core.close()


def each_batch_aside(
    driver: AsyncDriver, topics: KnownTopics, delivery: Delivery, topic: str, partition: int, start: int, end: int,
    columns: Sequence[str],
) -> Iterator[Batch]:  # fmt: skip
    """The batches of a range, in a thread beside the loop, which may wait for the disk."""
    connection = driver.connection
    ways = range_ways(connection, delivery, may_map=True)
    core = core_of(connection, topics, ways, topic, partition, start, end, columns)
    driver.run_from_thread(core.found())
    try:
        while found := driver.run_from_thread(core.more()):
            for batch in found:
                core.check(batch)
                yield batch
    finally:
        driver.call_soon(core.close)
