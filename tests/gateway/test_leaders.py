"""A gateway beside a node that does not lead: requests are refused at once, and the refusal names the leader."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from penstock.broker.errors import NotLeader
from penstock.broker.rights import ANYONE
from penstock.clients.aio.driver import AsyncDriver
from penstock.clients.opening import open_connection
from penstock.gateway.asking import ask
from penstock.gateway.config import GatewayConfig
from penstock.gateway.link import BrokerLink
from penstock.gateway.sending import Outgoing, append_few, append_values
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


class Told:
    def settled(self) -> None: ...


@pytest.mark.parametrize("way", ["few", "many", "run", "room"])
def test_records_for_a_node_that_leads_no_more_are_refused_and_not_kept(tmp_path: Path, way: str) -> None:
    """They waited for the time-out, and were appended when it led again, after clients had sent them elsewhere."""

    async def append(link: BrokerLink) -> None:
        topic = link.known_topic("t")
        assert topic is not None, "it was looked up lately"
        appender = link.appender(ANYONE, topic)
        if way == "few":
            await append_few(link, ANYONE, "t", [Outgoing(b"x")], create=False)
        elif way == "many":
            await append_values(link, ANYONE, "t", [b"x"], None, None, create=False)
        elif way == "run":
            appender.append_run([b"x"], None, None, 0, Told())
        else:
            await appender.room()

    async def run(shard: Shard) -> list[int]:
        connection = open_connection(shard.doors[0].url, timeout=60.0, name=None, clock=time.monotonic)
        link = BrokerLink(AsyncDriver(connection))
        await link.topic_to_append("t", create=True)
        first = await append_few(link, ANYONE, "t", [Outgoing(b"first")], create=False)
        shard.move(1)
        with pytest.raises(NotLeader):
            await link.topic("t")
        with pytest.raises(NotLeader, match=shard.doors[1].url):
            await append(link)
        shard.move(0)
        while True:
            try:
                last = await append_few(link, ANYONE, "t", [Outgoing(b"last")], create=False)
            except NotLeader:  # for NEWS_S, it believes the last news
                await asyncio.sleep(0)
                continue
            await link.close()
            return [each.offset for each in (*first, *last)]

    with Shard([f"unix://{tmp_path}/{number}.sock" for number in range(2)]) as shard:
        assert asyncio.run(asyncio.wait_for(run(shard), 30)) == [0, 1]


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
