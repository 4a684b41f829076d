"""What is set aside of held peers: in order, within bounds, and handed out in turn."""

from __future__ import annotations

from random import Random

import pytest
from penstock.transport import set_aside
from penstock.transport.set_aside import SetAside


@pytest.fixture
def aside() -> SetAside[str]:
    return SetAside()


def test_what_comes_from_others_is_handed_out_as_it_comes(aside: SetAside[str]):
    aside.hold(b"held")
    assert aside.instead(b"other", "one", 1) == "one"
    assert not aside.ready
    assert aside.take() is None


def test_what_was_set_aside_is_handed_out_in_order_before_what_comes_later(aside: SetAside[str]):
    aside.hold(b"p")
    assert [aside.instead(b"p", text, 1) for text in ("one", "two")] == [None, None]
    assert not aside.ready
    aside.resume(b"p")
    assert aside.ready
    assert aside.instead(b"p", "three", 1) == "one"
    assert [aside.take(), aside.take(), aside.take()] == ["two", "three", None]
    assert not aside.ready
    assert aside.instead(b"p", "four", 1) == "four"


def test_peers_take_turns(aside: SetAside[str]):
    for peer in (b"p", b"q"):
        aside.hold(peer)
        for number in range(2):
            aside.instead(peer, f"{peer.decode()}{number}", 1)
        aside.resume(peer)
    assert [aside.take() for _ in range(4)] == ["p0", "q0", "p1", "q1"]


def test_one_that_is_held_again_keeps_what_was_set_aside(aside: SetAside[str]):
    for _ in range(2):
        aside.hold(b"p")
        aside.instead(b"p", "x", 1)
        aside.resume(b"p")
        aside.hold(b"p")
        aside.hold(b"p")
    assert aside.take() is None
    aside.resume(b"p")
    assert [aside.take(), aside.take(), aside.take()] == ["x", "x", None]


def test_above_the_bounds_what_comes_pushes_out_the_oldest(aside: SetAside[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(set_aside, "MESSAGES_MAX", 2)
    monkeypatch.setattr(set_aside, "BYTES_MAX", 100)
    aside.hold(b"p")
    assert [aside.instead(b"p", text, 10) for text in "abcd"] == [None, None, "a", "b"]
    aside.hold(b"q")
    assert aside.instead(b"q", "small", 80) is None
    assert aside.instead(b"q", "more", 1) == "small", "of all peers together"
    aside.drop(b"p")
    assert aside.instead(b"q", "again", 99) is None, "what was dropped takes no room"


def test_nothing_of_a_dropped_one_is_handed_out(aside: SetAside[str]):
    aside.hold(b"p")
    aside.instead(b"p", "x", 1)
    aside.drop(b"p")
    aside.drop(b"p")
    aside.resume(b"p")
    assert aside.take() is None


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_each_message_is_handed_out_once_and_in_order(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(set_aside, "MESSAGES_MAX", 5)
    random, aside, found = Random(seed), SetAside[tuple[bytes, int]](), list[tuple[bytes, int]]()
    peers = [b"p", b"q", b"r"]
    for number in range(1000):
        peer = random.choice(peers)
        match random.randrange(4):
            case 0:
                aside.hold(peer)
            case 1:
                aside.resume(peer)
            case 2:
                found.append(aside.take() or (b"", 0))
            case _:
                found.append(aside.instead(peer, (peer, number + 1), 1) or (b"", 0))
                found.append((b"came " + peer, number + 1))
    for peer in peers:
        aside.resume(peer)
    while (message := aside.take()) is not None:
        found.append(message)
    for peer in peers:
        came = [number for name, number in found if name == b"came " + peer]
        assert [number for name, number in found if name == peer] == came
