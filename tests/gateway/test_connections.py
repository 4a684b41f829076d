"""How many connections a door has, which of them it closes, and what the further ones read."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from penstock.gateway import connections as module
from penstock.gateway.connections import REFUSED_MAX, SWEPT, AllConnections, Connections


class Peer:
    """A connection whose peer has until `due`."""

    def __init__(self, due: float = float("inf")) -> None:
        self.due = due
        self.ended: list[str] = []

    def overdue(self, now: float) -> bool:
        return now >= self.due

    def cut(self) -> None:
        self.ended.append("cut")

    def drain(self) -> None:
        self.ended.append("drained")


class Socket:
    def __init__(self) -> None:
        self.out, self.closed = b"", False

    def write(self, data: bytes) -> None:
        self.out += data

    def close(self) -> None:
        self.closed = True

    abort = close


@pytest.fixture
def lingering(monkeypatch) -> list[Socket]:
    """The sockets that linger."""
    found: list[Socket] = []
    monkeypatch.setattr(module, "linger", lambda transport, connection: found.append(transport))
    return found


def door(most: int, every: AllConnections | None = None) -> Connections[Peer]:
    return Connections(most, every or AllConnections(1000), b"full")


def accepted(connections: Connections[Peer]) -> Peer:
    made = connections.accept(Peer)
    assert type(made) is Peer
    connections.opened(made)
    return made


def refused(connections: Connections[Peer]) -> Socket:
    socket = Socket()
    made = connections.accept(Peer)
    made.connection_made(socket)
    return socket


def test_one_above_the_limit_reads_why_until_another_closes(lingering):
    connections = door(2)
    first, _ = accepted(connections), accepted(connections)
    socket = refused(connections)
    assert (socket.out, socket.closed, lingering) == (b"full", False, [socket])
    connections.closed(first)
    assert len(connections) == 1
    accepted(connections)


def test_handshakes_count_until_they_fail():
    connections = door(2)
    shaking = [connections.accept(Peer), connections.accept(Peer)]
    assert len(connections) == 2
    assert type(connections.accept(Peer)) is not Peer
    shaking.pop()
    gc.collect()
    assert len(connections) == 1
    connections.opened(shaking[0])
    assert len(connections) == 1


def test_doors_share_what_there_is_for_all(lingering):
    every = AllConnections(3)
    one, other = door(5, every), door(2, every)
    assert (one.most, other.most) == (3, 2)
    kept = [accepted(one), accepted(one), accepted(other)]
    assert refused(other).out == refused(one).out == b"full"
    one.closed(kept[0])
    accepted(other)


def test_refused_ones_that_may_still_read_are_bounded(lingering):
    connections = door(0)
    sockets = [refused(connections) for _ in range(REFUSED_MAX + 1)]
    assert lingering == sockets[:-1]
    assert [socket.closed for socket in sockets] == [False] * REFUSED_MAX + [True]


def test_a_refused_one_that_is_gone_leaves_its_place(lingering):
    connections = door(0)
    for _ in range(REFUSED_MAX + 1):
        made = connections.accept(Peer)
        made.connection_made(Socket())
        made.connection_lost(None)
    assert len(lingering) == REFUSED_MAX + 1


def test_those_that_are_overdue_are_cut(monkeypatch):
    connections = door(3)
    peers = [accepted(connections) for _ in range(3)]
    monkeypatch.setattr(module.time, "monotonic", lambda: 5.0)
    peers[0].due, peers[1].due, peers[2].due = 4.0, 5.0, 5.1
    connections.look()
    assert [peer.ended for peer in peers] == [["cut"], ["cut"], []]


def test_draining_waits_for_the_last_one_and_cuts_what_is_left(lingering):
    async def run() -> None:
        connections = door(2)
        first, last = accepted(connections), accepted(connections)
        socket = refused(connections)
        drains = asyncio.ensure_future(connections.drain(30))
        await asyncio.sleep(0)
        connections.closed(first)
        await asyncio.sleep(0)
        assert not drains.done()
        connections.closed(last)
        await drains
        assert first.ended == last.ended == ["drained"]
        assert socket.closed
        late = Peer()
        connections.opened(late)
        assert late.ended == ["cut"]

    asyncio.run(run())


def test_draining_takes_so_long_at_most():
    async def run() -> Peer:
        connections = door(1)
        peer = accepted(connections)
        await connections.drain(0)
        return peer

    assert asyncio.run(run()).ended == ["drained", "cut"]


def test_what_closed_connections_leave_is_collected_now_and_then() -> None:
    """They are parts of cycles, and the collector of the gateway is told to be rare."""
    every = AllConnections(10)
    doors = [Connections[Peer](10, every, b"") for _ in range(2)]
    peers, left = [Peer(), Peer()], Peer()
    left.ended = [left]  # type: ignore[list-item]
    gone = weakref.ref(left)
    gc.disable()
    try:
        del left
        for number in range(SWEPT):
            assert gone() is not None
            doors[number % 2].closed(peers[number % 2])
        assert gone() is None
    finally:
        gc.enable()


def test_memory_goes_back_to_the_system_once_half_of_a_flood_has_left(monkeypatch: pytest.MonkeyPatch):
    given: list[int] = []
    every = AllConnections(1 << 20)
    there = [0]
    every.doors.append(type("Door", (), {"__len__": lambda self: there[0]})())
    monkeypatch.setattr("penstock.gateway.connections.return_free_memory", lambda: given.append(there[0]))
    for there[0] in (0, 999, 10, 999, 1000, 501, 3000, 1501, 1500, 1400, 700, 699, 0, 999, 0):
        every.look()
    assert given == [1500, 700]
