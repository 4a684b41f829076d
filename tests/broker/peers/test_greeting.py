"""Which nodes are let in: one sentence for each that is not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from penstock.broker.engine import NodeConfig
from penstock.broker.peers.greeting import PeerIdentity, is_replaceable, other_limits, refusal_of

OWN, OTHER = bytes([1] * 16), bytes([2] * 16)
PEERS = {1: "tcp://a:1", 2: "tcp://b:1", 3: "tcp://c:1"}


def identity(node: int, uuid: bytes) -> PeerIdentity:
    return PeerIdentity(cluster="c", node=node, uuid=uuid, incarnation=7, peers=PEERS, advertise=("tcp://x:2",))


ONE, TWO = identity(1, OWN), identity(2, OTHER)


@pytest.mark.parametrize("known", [b"", OTHER])
@pytest.mark.parametrize("to_uuid", [b"", OWN])
def test_a_peer_is_let_in(known: bytes, to_uuid: bytes) -> None:
    assert refusal_of(TWO.hello(1, to_uuid), ONE, lambda node: known) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cluster": "d"}, "node 2 is of cluster 'd', and this one of 'c': correct --cluster or --peer"),
        ({"node": 9}, "node 9 is none of the peers of node 1"),
        ({"node": 1}, "node 1 is none of the peers of node 1"),
        ({"to": 3}, "node 2 takes this node for node 3, and it is node 1"),
        ({"to_uuid": OTHER}, "node 2 knows another data directory of node 1"),
        ({"uuid": OWN}, "node 2 comes with another data directory"),
        ({"oldest_version": 2, "newest_version": 3}, "speaks versions 2 to 3 between nodes"),
        ({"oldest_version": 0, "newest_version": 0}, "speaks versions 0 to 0 between nodes"),
    ],
)
def test_one_sentence_says_why_a_node_is_refused(change: dict[str, object], said: str) -> None:
    hello = replace(TWO.hello(1, OWN), **change)
    assert said in refusal_of(hello, ONE, lambda node: OTHER)
    assert is_replaceable(hello, ONE) == (change == {"uuid": OWN})


@pytest.mark.parametrize(
    ("theirs", "ours", "theirs_in", "ours_in"), [(8, 7, True, False), (7, 7, False, False), (7, 8, False, True)]
)
def test_the_node_that_has_applied_more_is_right_about_a_directory(theirs, ours, theirs_in, ours_in):
    """`theirs_in`: though we know another directory of them; `ours_in`: though they know another one of us."""
    hello = TWO.hello(1, OWN, theirs)
    assert (refusal_of(hello, ONE, lambda node: b"another", ours) == "") == theirs_in
    hello = TWO.hello(1, b"another", theirs)
    assert (refusal_of(hello, ONE, lambda node: OTHER, ours) == "") == ours_in


def test_ranges_of_versions_that_meet_in_one_are_enough() -> None:
    hello = replace(TWO.hello(1, b""), oldest_version=1, newest_version=9)
    assert refusal_of(hello, ONE, lambda node: b"") == ""


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ({}, ""),
        ({"max_a": 1, "max_b": 2}, ""),
        ({"max_a": 1, "max_new": 9}, ""),
        ({"max_a": 3}, "node 2 has max_a=3 where this one has 1: "),
        ({"max_b": 0, "max_a": 0}, "node 2 has max_a=0 where this one has 1, max_b=0 where this one has 2: "),
    ],
)
def test_limits_that_differ_are_named_with_both_values(theirs: dict[str, int], said: str) -> None:
    hello = replace(TWO, limits=theirs).hello(1, OWN)
    found = other_limits(hello, replace(ONE, limits={"max_b": 2, "max_a": 1}))
    assert found.startswith(said)
    assert bool(found) == bool(said)
    assert not refusal_of(hello, ONE, lambda node: OTHER), "it is let in"


def test_limits_are_what_a_leader_accepts_and_nothing_that_is_each_nodes_own() -> None:
    found = NodeConfig(max_topics=7, node="n", housekeeping_s=1.0, chunk_bytes=9).limits
    assert found["max_topics"] == 7
    assert found["max_frame_bytes"] == NodeConfig().max_frame_bytes
    assert not {"node", "members", "housekeeping_s", "chunk_bytes"} & set(found)
    assert len(found) <= 64, "a PeerHello carries no more"
