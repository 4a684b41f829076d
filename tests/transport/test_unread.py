"""What waits for a peer to read it, counted by marks."""

from __future__ import annotations

import pytest
from penstock.transport import unread as module
from penstock.transport.unread import MARK_BYTES, Unread

PEER, OTHER = b"peer", b"other"


class Mark:
    def __init__(self, done: bool = False) -> None:
        self.done = done


@pytest.fixture
def unread() -> Unread:
    return Unread()


def test_nothing_waits_for_a_peer_that_was_sent_nothing(unread: Unread):
    assert unread.bytes_of(PEER) == 0
    unread.forget(PEER)


def test_a_mark_is_wanted_once_in_so_many_bytes(unread: Unread):
    assert not unread.wants_mark(PEER, MARK_BYTES - 1)
    assert unread.wants_mark(PEER, MARK_BYTES)
    unread.sent(PEER, MARK_BYTES - 2)
    assert not unread.wants_mark(PEER, 1)
    assert unread.wants_mark(PEER, 2)
    assert not unread.wants_mark(OTHER, 2)
    unread.sent(PEER, 2, Mark())
    assert not unread.wants_mark(PEER, MARK_BYTES - 1)
    assert unread.wants_mark(PEER, MARK_BYTES)


def test_what_was_sent_up_to_a_mark_has_left_when_the_mark_says_so(unread: Unread):
    one, two = Mark(), Mark()
    unread.sent(PEER, 10)
    unread.sent(PEER, 5, one)
    unread.sent(PEER, 3)
    unread.sent(PEER, 1, two)
    unread.sent(OTHER, 100)
    assert unread.bytes_of(PEER) == 19
    two.done = True
    assert unread.bytes_of(PEER) == 19, "marks leave in order"
    one.done = True
    assert unread.bytes_of(PEER) == 0
    unread.sent(PEER, 7)
    assert unread.bytes_of(PEER) == 7
    assert unread.bytes_of(OTHER) == 100


def test_a_connection_that_is_gone_has_nothing(unread: Unread):
    unread.sent(PEER, 10, Mark())
    unread.forget(PEER)
    assert unread.bytes_of(PEER) == 0
    assert not unread.wants_mark(PEER, MARK_BYTES - 1)


def test_peers_that_have_read_make_room_and_others_are_kept(unread: Unread, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PEERS_KEPT", 4)
    slow = [b"slow1", b"slow2"]
    for peer in slow:
        unread.sent(peer, MARK_BYTES, Mark())
    for number in range(100):
        unread.sent(b"%d" % number, MARK_BYTES, Mark(done=True))
        unread.sent(b"%d" % number, MARK_BYTES - 1)
    assert [unread.bytes_of(peer) for peer in slow] == [MARK_BYTES] * 2
    known = [number for number in range(100) if unread.bytes_of(b"%d" % number)]
    assert 1 <= len(known) <= 4
    assert known[-1] == 99
