"""A gateway beside a node that does not lead: requests are refused at once, and the refusal names the leader."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from penstock.broker.errors import NotLeader
from penstock.clients.aio.driver import AsyncDriver
from penstock.clients.opening import open_connection
from penstock.gateway.asking import ask
from penstock.gateway.config import GatewayConfig
from penstock.transport.messages import ListTopics, Topics
from support.cluster import ClusterProcesses
from support.processes import Serving
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


def topics(node: Serving) -> httpx.Response:
    return httpx.get(node.ready["http"][0].replace("tcp", "http", 1) + "/api/v1/topics", timeout=60.0)


def test_a_gateway_serves_beside_each_node_and_refuses_with_the_leaders_address(tmp_path: Path) -> None:
    doors = GatewayConfig(url="", http=("tcp://127.0.0.1:0",), timeout_s=10.0).to_json()
    with ClusterProcesses(tmp_path, gateway=doors) as cluster:
        leader = cluster.leader()
        follower = min(set(cluster.numbers) - {leader})
        node = cluster.nodes.pop(follower)
        node.end()
        node.close()
        cluster.start(follower, wait=True)  # while another leads
        for number, node in cluster.nodes.items():
            reply = topics(node)
            expected = (200, None) if number == leader else (503, cluster.urls[leader - 1])
            assert (reply.status_code, reply.headers.get("penstock-leader")) == expected
        for number in cluster.numbers:
            cluster.kill(number)
        alone = cluster.start(1, wait=True)  # no node leads, and its doors are there for when one does
        assert topics(alone).json()["code"] == "timed_out"
