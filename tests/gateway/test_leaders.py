"""A gateway beside a node that does not lead: requests are refused at once, and the refusal names the leader."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from penstock.broker.errors import NotLeader
from penstock.clients.aio.driver import AsyncDriver
from penstock.clients.opening import open_connection
from penstock.gateway.asking import ask
from penstock.transport.messages import ListTopics, Topics
from support.shard import Shard


def test_what_is_asked_of_a_follower_is_refused_with_the_leaders_address(tmp_path: Path) -> None:
    async def refused(url: str) -> NotLeader:
        driver = AsyncDriver(open_connection(url, timeout=60.0, name=None, clock=time.monotonic))
        try:
            with pytest.raises(NotLeader) as raised:
                await ask(driver, lambda request: ListTopics(request, []), Topics, "listing topics")
        finally:
            driver.close()
        return raised.value

    with Shard([f"unix://{tmp_path}/{number}.sock" for number in range(2)]) as shard:
        shard.move(1)
        error = asyncio.run(asyncio.wait_for(refused(shard.doors[0].url), 20))
        assert (error.where, error.term) == (shard.doors[1].url, 2)
