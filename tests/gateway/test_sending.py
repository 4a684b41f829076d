"""Records of one request that join shared batches."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from penstock.broker.rights import ANYONE
from penstock.gateway.sending import PORTION, Outgoing, append_few
from penstock.gateway.turns import Turns


class Batch:
    """A batch that a test settles."""

    def __init__(self) -> None:
        self.settled = False
        self.pending = SimpleNamespace(partition=0)

    def offset(self, index: int) -> int:
        assert self.settled
        return index

    def repeats(self, index: int) -> None:
        return None


class Appending:
    """An appender whose first batch is settled as soon as the request waits for room."""

    def __init__(self) -> None:
        self.batches = [Batch()]
        self.jammed = False
        self.teller: Any = None

    def append(self, value: bytes, *rest: Any) -> tuple[Batch, int]:
        self.teller = rest[3]
        self.jammed = value == b"last before the window is full"
        return self.batches[-1], 0

    async def room(self) -> None:
        self.jammed = False
        self.settle()
        self.batches.append(Batch())

    def settle(self) -> None:
        self.batches[-1].settled = True
        self.teller.settled()


def linked(appender: Any) -> Any:
    return SimpleNamespace(turns=Turns(), known_topic=lambda name: name, appender=lambda principal, topic: appender)


def test_a_batch_that_is_settled_before_the_last_record_is_taken_does_not_end_the_wait():
    async def run() -> int:
        appender = Appending()
        records = [Outgoing(b"last before the window is full"), Outgoing(b"x")]
        waits = asyncio.ensure_future(append_few(linked(appender), ANYONE, "t", records, create=False))
        while len(appender.batches) < 2:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waits.done()
        appender.settle()
        return len(await waits)

    assert asyncio.run(run()) == 2


def test_many_records_are_taken_in_portions():
    taken = [0]

    class Counting(Appending):
        def append(self, value: bytes, *rest: Any) -> tuple[Batch, int]:
            taken[0] += 1
            return super().append(value, *rest)

    async def run() -> None:
        appender = Counting()
        waits = asyncio.ensure_future(
            append_few(linked(cast("Any", appender)), ANYONE, "t", [Outgoing(b"x")] * (9 * PORTION), create=False)
        )
        before = 0
        while taken[0] < 9 * PORTION:
            await asyncio.sleep(0)
            assert taken[0] - before < 2 * PORTION
            before = taken[0]
        await asyncio.sleep(0)
        appender.settle()
        assert len(await waits) == 9 * PORTION

    asyncio.run(run())
