"""What the doors of a gateway share at the broker: producers, and how they end."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from penstock.broker.rights import ANYONE
from penstock.clients.aio.driver import AsyncDriver
from penstock.clients.opening import open_connection
from penstock.gateway.link import BrokerLink


def test_a_door_that_remembers_fewer_partitions_has_the_same_producer(broker, key):
    """Doors that remembered different numbers made another one in turns, with each record."""

    async def run() -> None:
        driver = AsyncDriver(open_connection(broker.url, timeout=30.0, name=None, clock=time.monotonic))
        link = BrokerLink(driver)
        few = await link.create(key)
        old = link.appender(ANYONE, few)
        await driver.run(link.verbs.alter_topic(key, 2, {}))
        many = await link.topic(key)
        assert many is not None
        new = link.appender(ANYONE, many)
        assert (old.partitions, new.partitions) == (1, 2)
        assert link.appender(ANYONE, few) is new
        assert link.appender(ANYONE, many) is new
        await link.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_all_producers_that_end_have_one_time_out_together(broker):
    now, deadlines = [0.0], list[float]()

    async def run() -> None:
        driver = AsyncDriver(open_connection(broker.url, timeout=30.0, name=None, clock=lambda: now[0]))

        async def close() -> None:
            deadlines.append(driver.connection.deadline())
            now[0] += 20.0

        link: Any = BrokerLink(driver)
        link._appenders = {number: SimpleNamespace(close=close) for number in range(3)}
        link.client = SimpleNamespace(close=close)
        await link.close()
        driver.close()

    asyncio.run(asyncio.wait_for(run(), 30))
    assert deadlines == [30.0] * 4
