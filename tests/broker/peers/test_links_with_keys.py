"""Links over tcp:// with the key that all nodes share: without it, no node gets in."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import pytest
from penstock.broker.peers import links as module
from penstock.broker.peers.gate import shared
from penstock.broker.peers.greeting import PeerIdentity
from penstock.broker.peers.links import AGAIN_S, PeerLinks
from penstock.broker.raft.messages import Kind, Message
from penstock.transport.keys import Key
from penstock.transport.zmq_sockets import Context
from support.ports import port_pairs

WAIT_S = 30.0
ONE_KEY = Key.generate()


class Nodes:
    """Nodes 1 and 2 of three, each with a key or none, and what they said; node 3 is down."""

    def __init__(self) -> None:
        self.peers = {node: f"tcp://127.0.0.1:{port}" for node, port in enumerate(port_pairs(3), 1)}
        self.said: dict[int, list[str]] = {1: [], 2: []}
        self.arrived: list[Message] = []
        self.links: dict[int, PeerLinks] = {}
        self._contexts: dict[int, Context] = {}

    def open(self, node: int, key: Key | None) -> None:
        """Begin a node, instead of the one that ran."""
        self.close(node)
        say = self.said[node].append
        own, guarded = (None, None) if key is None else shared(key, say)
        context = self._contexts[node] = Context(key=own, guarded=guarded)
        identity = PeerIdentity(
            cluster="c",
            node=node,
            uuid=bytes([node] * 16),
            incarnation=node,
            peers=self.peers,
            advertise=("tcp://x:1",),
        )
        self.links[node] = PeerLinks(identity, context, self.peers[node], say=say)

    def until(self, is_so: Callable[[], object], now_s: Callable[[], float] = time.monotonic) -> list[Message]:
        """Turn all nodes until a condition holds. Returns what arrived."""
        found: list[Message] = []
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < deadline, self.said
            for links in self.links.values():
                links.flush(now_s())
                found += [each.message for each in links.take()]
            self.arrived[:] = found
            self.links[1].outgoing[3][0].socket.poll(0.001)
        return found

    def met(self) -> bool:
        return all(links.reachable() == {3 - node} and links.advertised for node, links in self.links.items())

    def close(self, node: int) -> None:
        if node in self.links:
            self.links.pop(node).close()
            self._contexts.pop(node).close()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    yield made
    for node in list(made.links):
        made.close(node)


def test_nodes_with_the_same_key_meet(nodes: Nodes) -> None:
    for node in (1, 2):
        nodes.open(node, ONE_KEY)
    nodes.until(nodes.met)
    nodes.links[1].put(Message(Kind.HEARTBEAT, 2, 1, term=3))
    nodes.until(lambda: nodes.arrived)
    assert nodes.said == {1: [], 2: []}


@pytest.mark.parametrize("other", [Key.generate(), None], ids=["another key", "no key"])
@pytest.mark.parametrize("early", [1, 2])
def test_a_node_without_the_key_is_not_met_until_it_begins_anew_with_it(
    nodes: Nodes, other: Key | None, early: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    for node in (early, 3 - early):
        nodes.open(node, ONE_KEY if node == 1 else other)
    nodes.until(lambda: any("the same (--broker-key)" in line for line in nodes.said[1]))
    assert not nodes.links[1].reachable() | nodes.links[2].reachable()
    assert not nodes.links[1].advertised or not nodes.links[2].advertised
    nodes.open(2, ONE_KEY)
    nodes.until(nodes.met)


def test_a_refused_connection_is_made_anew_after_a_while_and_not_before(nodes: Nodes) -> None:
    nodes.open(1, ONE_KEY)
    nodes.open(2, None)
    one = nodes.links[1].outgoing[2][0]
    nodes.until(lambda: one.again_s < math.inf, lambda: 100.0)
    assert one.again_s == 100.0 + AGAIN_S
    refused = one.socket
    nodes.links[1].flush(100.0 + AGAIN_S / 2)
    assert one.socket is refused
    nodes.links[1].flush(100.0 + AGAIN_S)
    assert one.socket is not refused
    assert one.again_s == math.inf


def test_a_stranger_with_a_key_of_its_own_that_knows_the_cluster_s_public_half_is_refused(nodes: Nodes) -> None:
    nodes.open(1, ONE_KEY)
    mine = Key.generate(broker=ONE_KEY.public)
    with Context(key=mine) as context:
        socket = context.client(nodes.peers[1])
        nodes.until(lambda: socket.poll(0.001) and socket.refusal)
        assert nodes.said[1] == [
            line
            for line in nodes.said[1]
            if f"refused a peer with key {mine.public}, which is not the cluster's" in line
        ]
        assert nodes.said[1]
