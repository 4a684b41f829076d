"""One bound over what all clients make the gateway hold."""

from __future__ import annotations

import pytest
from penstock.gateway.holding import LEAST, HeldBytes

MOST = 100 * LEAST


class Peer:
    """A connection that holds bytes, and may be busy."""

    def __init__(self, size: int = 0, *, busy: bool = False) -> None:
        self.size, self.busy, self.closed = size, busy, False

    def held(self) -> int:
        return self.size

    def shed(self) -> bool:
        self.closed = not self.busy
        return self.closed


@pytest.fixture
def held() -> HeldBytes:
    return HeldBytes(MOST)


def test_what_requests_take_is_bounded(held):
    assert held.take(MOST - 1)
    assert not held.take(2)
    assert held.take(1)
    held.give(2)
    assert held.take(2)


def test_connections_that_hold_the_most_give_way_until_there_is_room(held):
    peers = [Peer() for _ in range(4)]
    for peer, size in zip(peers, (30, 40, 25, 5), strict=True):
        held.holds(peer, size * LEAST)
    assert [peer.closed for peer in peers] == [False] * 4
    held.holds(peers[3], 6 * LEAST)
    assert [peer.closed for peer in peers] == [False, True, False, False]
    assert held.take(39 * LEAST)
    assert not peers[0].closed
    assert held.take(1)
    assert [peer.closed for peer in peers] == [True, True, False, False]


def test_one_that_holds_less_counts_less(held):
    peer = Peer()
    held.holds(peer, MOST)
    held.holds(peer, MOST - LEAST)
    assert held.take(LEAST)
    assert not peer.closed
    held.holds(peer, 0)
    assert held.take(MOST - LEAST)


def test_what_is_little_is_not_counted(held):
    assert held.take(MOST)
    peer = Peer()
    held.holds(peer, LEAST - 1)
    assert not peer.closed
    held.holds(peer, LEAST)
    assert peer.closed


def test_busy_connections_stay_and_there_is_no_room(held):
    peer, other = Peer(busy=True), Peer()
    held.holds(peer, MOST - LEAST)
    assert not held.take(2 * LEAST)
    held.holds(other, 2 * LEAST)
    assert other.closed
    held.holds(peer, 0)
    assert held.take(MOST)


def test_connections_are_looked_at_as_peers_read_without_a_word(held):
    peer = Peer()
    held.holds(peer, MOST)
    held.look()  # it holds nothing by now
    assert held.take(MOST)
    assert not peer.closed
