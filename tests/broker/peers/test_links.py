"""Links over real sockets: greetings, both sockets, new connections, strangers."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from penstock.broker.errors import InvalidPeers
from penstock.broker.peers.addresses import data_address
from penstock.broker.peers.greeting import PeerIdentity
from penstock.broker.peers.links import NOTICE_S, TAKEN_MAX, PeerLinks
from penstock.broker.peers.messages import DATA_KINDS, PeerTurn, frames_of
from penstock.broker.raft.messages import Entry, Kind, Message
from penstock.storage.batch import parse
from penstock.transport import socket_options
from penstock.transport.sent import Sent
from penstock.transport.zmq_sockets import Context
from support.samples import BATCH

WAIT_S = 20.0


class Pair:
    """Nodes 1 and 2 of three, and what they said; node 3 is down."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.peers = {node: f"ipc://{path}/{node}" for node in (1, 2, 3)}
        self.context = Context()
        self.said: list[str] = []
        self.known: dict[int, bytes] = {}
        self.limits: dict[int, dict[str, int]] = {1: {}, 2: {}}
        self.links = {node: self.open(node) for node in (1, 2)}

    def identity(self, node: int, uuid: bytes = b"") -> PeerIdentity:
        return PeerIdentity(
            cluster="c", node=node, uuid=uuid or bytes([node] * 16), incarnation=node, peers=self.peers,
            advertise=(f"tcp://node{node}:7070",), limits=self.limits[node],
        )  # fmt: skip

    def open(self, node: int, uuid: bytes = b"") -> PeerLinks:
        return PeerLinks(
            self.identity(node, uuid), self.context, self.peers[node],
            uuid_of=lambda other: self.known.get(other, b""), say=self.said.append,
        )  # fmt: skip

    def until(self, there: Callable[[], object]) -> list[tuple[int, Message, int]]:
        """Turn both until a condition holds; what has arrived, as (receiver, message, batches)."""
        found: list[tuple[int, Message, int]] = []
        deadline = time.monotonic() + WAIT_S
        while not there():
            assert time.monotonic() < deadline, f"it never came about: {self.said}"
            for node, links in self.links.items():
                links.flush(time.monotonic())
                found += [(node, each.message, len(each.bodies)) for each in links.take()]
            self.links[1].outgoing[3][0].socket.poll(0.001)
        return found


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.context.close()


def both_up(pair: Pair) -> bool:
    return all(links.reachable() == {3 - node} and links.advertised for node, links in pair.links.items())


def test_nodes_greet_and_name_their_addresses_for_clients(pair: Pair) -> None:
    pair.until(lambda: both_up(pair))
    assert pair.links[1].advertised == {2: ["tcp://node2:7070"]}
    assert (pair.links[1].renewed(), pair.links[1].renewed()) == ({2}, set()), "told once"


def test_messages_of_a_turn_arrive_with_their_batches(pair: Pair) -> None:
    pair.until(lambda: both_up(pair))
    one, got = pair.links[1], []
    assert one.put(Message(Kind.APPEND, 2, 1, index=5, entries=[Entry(6, 1, b"")]), [BATCH])
    assert one.put(Message(Kind.HEARTBEAT, 2, 1, term=3))
    assert not one.put(Message(Kind.VOTE, 7, 1)), "there is no node 7"
    one.flush(0.0)
    deadline = time.monotonic() + WAIT_S
    while len(got) < 2 and time.monotonic() < deadline:
        got += list(pair.links[2].take())
    batch = parse(BATCH)
    bodies = {each.message.kind: each.bodies for each in got}
    assert bodies == {Kind.HEARTBEAT: {}, Kind.APPEND: {(batch.log_id, batch.seq, batch.header_checksum): BATCH}}
    assert {each.node for each in got} == {1}


def taken(pair: Pair, count: int) -> list[Message]:
    """What node 2 takes, until it is so much."""
    got: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while len(got) < count:
        assert time.monotonic() < deadline, got
        got += [each.message for each in pair.links[2].take()]
    return got


def test_a_notice_waits_for_its_time_or_for_an_append_that_tells_the_same(pair: Pair) -> None:
    pair.until(lambda: both_up(pair))
    one = pair.links[1]
    one.put(Message(Kind.APPEND, 2, 1, index=5, commit=5))
    one.flush(10.0)
    assert one.wait(10.0) == pytest.approx(NOTICE_S)
    one.put(Message(Kind.APPEND, 2, 1, index=5, commit=5, entries=[Entry(6, 1, b"x")]))
    one.flush(10.0)
    assert [len(each.entries) for each in taken(pair, 1)] == [1], "the notice came to nothing"
    assert one.wait(10.0) == math.inf
    one.put(Message(Kind.APPEND, 2, 1, index=6, commit=6))
    one.flush(11.0)
    one.flush(11.0 + NOTICE_S / 2)
    assert one.wait(11.0 + NOTICE_S / 2) == pytest.approx(NOTICE_S / 2), "its time began with the first flush"
    one.flush(11.0 + NOTICE_S)
    assert [(each.index, each.commit) for each in taken(pair, 1)] == [(6, 6)]
    assert one.wait(12.0) == math.inf


def test_a_notice_to_a_node_that_is_down_has_no_time(pair: Pair) -> None:
    pair.until(lambda: both_up(pair))
    pair.links[1].put(Message(Kind.APPEND, 3, 1, index=5, commit=5))
    pair.links[1].flush(10.0)
    assert pair.links[1].wait(10.0) == math.inf


def test_what_a_socket_does_not_take_keeps_no_node_awake(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.until(lambda: both_up(pair))
    one = pair.links[1]
    monkeypatch.setattr(one.outgoing[2][1].socket, "send", lambda frames: Sent.FULL)
    one.put(Message(Kind.APPEND, 2, 1, index=5, commit=5))
    one.flush(10.0)
    one.flush(10.0 + NOTICE_S)
    assert one.wait(10.0 + NOTICE_S) == pytest.approx(NOTICE_S), "it is tried again after the same time"
    one.put(Message(Kind.APPEND, 2, 1, index=5, commit=5, entries=[Entry(6, 1, b"x")]))
    one.flush(11.0)
    assert one.wait(11.0) == math.inf, "the next turn tries again"


def test_links_are_readable_until_all_is_taken(pair: Pair) -> None:
    """Whatever the descriptor tells: a socket that has told of news and was not emptied still has some."""
    pair.until(lambda: both_up(pair))
    two = pair.links[2]
    list(two.take())
    assert not two.readable
    for index in range(TAKEN_MAX + 1):
        pair.links[1].put(Message(Kind.HEARTBEAT, 2, 1, index=index))
        pair.links[1].flush(0.0)
    got: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(got) <= TAKEN_MAX:
        assert time.monotonic() < deadline, got
        assert select.select([two.fd], [], [], WAIT_S)[0] or two.readable
        while two.readable:
            got += [each.message.index for each in two.take()]
    assert got == list(range(TAKEN_MAX + 1))


def test_a_node_that_comes_back_has_a_new_connection(pair: Pair) -> None:
    pair.until(lambda: both_up(pair))
    pair.links[1].renewed()
    pair.links.pop(2).close()
    pair.until(lambda: not pair.links[1].reachable())
    pair.links[2] = pair.open(2)
    pair.until(lambda: both_up(pair))
    assert pair.links[1].renewed() == {2}
    assert pair.links[1].restarted() == set(), "the same incarnation has another connection"


def test_a_node_that_began_anew_is_named_once(pair: Pair) -> None:
    pair.until(lambda: both_up(pair))
    assert pair.links[1].restarted() == set()
    again = pair.context.client(pair.peers[1])
    while not again.connected:
        again.poll(1.0)
    for restarted in ({2}, set()):
        pair.links[1].renewed()
        again.send(frames_of(replace(pair.identity(2).hello(1, b""), incarnation=8)))
        pair.until(pair.links[1].renewed)
        assert pair.links[1].restarted() == restarted
        assert pair.links[1].restarted() == set()


def test_a_node_that_comes_back_is_connected_to_when_it_greets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(socket_options.CLIENT, "RECONNECT_IVL", -1)  # libzmq never tries again by itself
    pair = Pair(tmp_path)
    pair.until(lambda: both_up(pair))
    pair.links.pop(2).close()
    pair.until(lambda: not pair.links[1].reachable())
    pair.links[2] = pair.open(2)
    pair.until(lambda: both_up(pair))
    sockets = [each.socket for each in pair.links[1].outgoing[2]]
    stranger = pair.context.client(pair.peers[1])
    while not stranger.connected:
        stranger.poll(1.0)
    pair.links[1].renewed()
    stranger.send(frames_of(replace(pair.identity(2).hello(1, b""), incarnation=8)))
    pair.until(pair.links[1].renewed)
    assert [each.socket for each in pair.links[1].outgoing[2]] == sockets, "a connection that stands is kept"
    pair.context.close()


def test_a_node_with_another_directory_is_refused(pair: Pair) -> None:
    pair.known[2] = bytes([9] * 16)
    wanted = "node 2 comes with another data directory"  # node 2 says of itself the same, sooner or later
    pair.until(lambda: pair.links[1].refused and any(wanted in sentence for sentence in pair.said))
    assert pair.links[1].advertised == {}
    assert pair.links[1].strangers == {2: bytes([2] * 16)}
    del pair.known[2]
    pair.until(lambda: both_up(pair))
    assert pair.links[1].strangers == {}


def test_limits_that_differ_are_said_once_and_that_they_are_the_same_again(pair: Pair) -> None:
    def reopened(limit: int) -> None:
        pair.links.pop(2).close()
        pair.until(lambda: not pair.links[1].reachable())
        pair.limits[2] = {"max_topics": limit}
        pair.links[2] = pair.open(2)
        pair.until(lambda: both_up(pair))

    pair.until(lambda: both_up(pair))
    pair.limits[1] = {"max_topics": 5}
    pair.links[1].own = pair.identity(1)
    for _ in range(2):
        reopened(7)
    assert [line for line in pair.said if line.startswith("node 2")] == [
        "node 2 has max_topics=7 where this one has 5: those of the leader count, so a change of the leader changes "
        "them; give all nodes the same"
    ]
    assert all(line.startswith("node 1 has max_topics=5 where this one has 7: ") for line in pair.said[1:])
    pair.said.clear()
    reopened(5)
    assert pair.said == ["node 2 has the limits of this one now"]


def test_a_node_whose_directory_was_replaced_is_heard_no_more(pair: Pair) -> None:
    pair.until(lambda: both_up(pair))
    pair.known[2] = bytes([9] * 16)
    assert pair.links[2].put(Message(Kind.HEARTBEAT, 1, 2, term=3))
    got = pair.until(lambda: pair.links[1].refused)
    assert not [message for node, message, _ in got if node == 1]
    assert any("node 2 has another data directory by now" in sentence for sentence in pair.said)


def test_a_peer_with_a_directory_that_is_not_known_yet_may_tell_and_does_not_count(pair: Pair) -> None:
    pair.known[2] = bytes([9] * 16)
    one, two = pair.links[1], pair.links[2]
    one.entry, two.entry = (lambda: 7), (lambda: 8)
    pair.until(lambda: both_up(pair))
    assert one.strangers == {}
    got: list[Kind] = []

    def sent(*kinds: Kind) -> Callable[[], bool]:
        def arrived() -> bool:
            got.extend(each.message.kind for each in one.take())
            return bool(got) and got[-1] == kinds[-1]

        for kind in kinds:
            assert two.put(Message(kind, 1, 2))
        return arrived

    pair.until(sent(*(kind for kind in Kind if kind not in DATA_KINDS | {Kind.HEARTBEAT}), Kind.HEARTBEAT))
    assert got == [Kind.HEARTBEAT]
    for kind in sorted(DATA_KINDS):
        pair.until(sent(kind))
    assert got[1:] == sorted(DATA_KINDS)
    pair.known[2] = bytes([2] * 16)  # it has applied the replacement
    pair.until(sent(Kind.VOTE))
    pair.known[2] = bytes([9] * 16)
    one.entry = lambda: 8  # and would have, where that is so
    assert two.put(Message(Kind.HEARTBEAT, 1, 2))
    pair.until(lambda: one.refused)


def test_what_comes_before_a_greeting_or_for_others_is_dropped(pair: Pair) -> None:
    pair.until(lambda: both_up(pair))
    stranger = pair.context.client(pair.peers[1])
    vote = frames_of(PeerTurn(0, [Message(Kind.VOTE, 1, 2)]))
    while not stranger.connected:
        stranger.poll(1.0)
    stranger.send(vote)
    stranger.send(frames_of(replace(pair.identity(2).hello(1, b""), incarnation=8)))
    stranger.send(
        frames_of(PeerTurn(0, [Message(Kind.VOTE, 1, 3), Message(Kind.VOTE, 3, 2), Message(Kind.READ, 1, 2)]))
    )
    found: list[Kind] = []
    deadline = time.monotonic() + WAIT_S
    while not found and time.monotonic() < deadline:
        found += [each.message.kind for each in pair.links[1].take()]
    assert found == [Kind.READ]


def test_a_node_that_connects_again_and_again_takes_no_other_node_its_hearing(pair: Pair) -> None:
    """It did, once it had come 256 times: the oldest greeting was forgotten, which was that of the node that stands."""
    pair.until(lambda: both_up(pair))
    one = pair.links[1]
    hello = frames_of(replace(pair.identity(2).hello(1, b""), node=3))
    for _ in range(300):
        flapping = pair.context.client(pair.peers[1])
        while not flapping.connected:
            flapping.poll(1.0)
        flapping.send(hello)
        one.renewed()
        pair.until(one.renewed)
        flapping.close()
    assert pair.links[2].put(Message(Kind.HEARTBEAT, 1, 2, term=3))
    got: list[int] = []
    pair.links[2].flush(0.0)
    deadline = time.monotonic() + WAIT_S
    while not got:
        assert time.monotonic() < deadline, "node 2 is not heard"
        got += [each.node for each in one.take()]
    assert got == [2]
    pair.until(lambda: [len(greeted) for greeted in one._greeted] == [1, 1])  # nothing is kept of those that have left


def test_a_connection_that_sends_something_else_is_cut_off(pair: Pair) -> None:
    pair.until(lambda: both_up(pair))
    stranger = pair.context.client(pair.peers[1])
    while not stranger.connected:
        stranger.poll(1.0)
    stranger.send([b"\x93\x04\x07\x00"])
    pair.until(lambda: pair.links[1].refused)
    assert "no message between nodes" in pair.said[0]


def test_nothing_is_kept_of_connections_that_have_left(pair: Pair) -> None:
    pair.until(lambda: both_up(pair))
    one = pair.links[1]
    for _ in range(3):
        refused = one.refused
        stranger = pair.context.client(pair.peers[1])
        while not stranger.connected:
            stranger.poll(1.0)
        stranger.send([b"no message"])
        pair.until(lambda: one.refused > refused)  # noqa: B023
        stranger.close()
        pair.until(lambda: not one.servers[0].readable)


@pytest.mark.parametrize(
    ("address", "data"),
    [("tcp://h:7", "tcp://h:8"), ("ipc:///run/p", "ipc:///run/p.data"), ("tcp://[::1]:1", "tcp://[::1]:2")],
)
def test_data_has_an_address_of_its_own(address: str, data: str) -> None:
    assert data_address(address) == data


@pytest.mark.parametrize("address", ["tcp://h:65535", "unix:///run/p"])
def test_an_address_without_room_for_data_is_refused(address: str) -> None:
    with pytest.raises(InvalidPeers):
        data_address(address)
