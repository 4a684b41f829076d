"""The asyncio twin of range_client.py: the same names, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...storage.batch import Batch
from ..arguments.quantities import Duration, Size, Start
from ..descriptions import TopicEnds
from ..ranges.known_topics import KnownTopics
from ..ranges.range import RangeCore, Wanted, column_names, handed_out_async
from ..ranges.verbs import RangeVerbs, topic_id
from ..verbs import Delivery, range_ways

if TYPE_CHECKING:
    from .driver import AsyncDriver


class AsyncRangeClient:
    """The part of `AsyncClient` that concerns whole topics and ranges of them."""

    def __init__(self, driver: AsyncDriver, delivery: Delivery) -> None:
        self._driver = driver
        self._delivery: Delivery = delivery
        self._range_verbs = RangeVerbs(driver.connection)
        self._known_topics = KnownTopics(driver.connection)

    async def ends(
        self, topics: Iterable[str], *, known: Mapping[str, TopicEnds] | None = None, wait: Duration = 0.0
    ) -> dict[str, TopicEnds]:
        """Where all partitions of some topics begin and end. See `Client.ends`."""
        return await self._driver.run(self._range_verbs.ends(topics, known, wait))

    async def positions(self, topic: str, at: Start, *, id: str | None = None) -> dict[int, tuple[int, int]]:
        """As `offsets`, with the term of the record before. See `Client.positions`."""
        return await self._driver.run(self._range_verbs.positions(topic, at, id))

    async def measure(
        self, topic: str, spans: Iterable[tuple[int, int, int]], piece_bytes: Size, *, id: str | None = None
    ) -> list[list[tuple[int, int]]]:
        """Cut spans into pieces of about so many bytes. See `Client.measure`."""
        return await self._driver.run(self._range_verbs.measure(topic, spans, piece_bytes, id))

    async def begin_group(
        self, topic: str, group: str, positions: Mapping[int, int], *, id: str | None = None
    ) -> dict[int, tuple[int, int]]:
        """Give a group its first cursors unless somebody did. See `Client.begin_group`."""
        return await self._driver.run(self._range_verbs.begin_group(topic, group, positions, id))

    async def commit_group(
        self, topic: str, group: str, positions: Mapping[int, int], *, id: str | None = None
    ) -> None:
        """Move cursors of a group without members."""
        await self._driver.run(self._range_verbs.commit_group(topic, group, positions, id))

    async def range(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        term: int | None = None,
        columns: Sequence[str] | None = None,
        id: str | None = None,
        delivery: Delivery | None = None,
        verify: bool = True,
    ) -> AsyncIterator[Batch]:
        """The batches of a range of one partition. See `Client.range`.

        With delivery="auto" nothing is mapped: the loop would wait for the disk.
        """
        self._driver.check_open()
        wanted = Wanted(
            topic=topic, topic_id=b"" if id is None else topic_id(id), partition=partition, start=start, end=end,
            term=-1 if term is None else term, columns=column_names(columns), verify=verify,
        )  # fmt: skip
        ways = range_ways(self._driver.connection, delivery or self._delivery, may_map=False)
        core = RangeCore(self._driver.connection, self._known_topics, wanted, ways)
        await self._driver.run(core.found())
        return handed_out_async(self._driver, core)
