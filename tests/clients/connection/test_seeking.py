"""When a node of several is left for the next, as the channel tells."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from penstock.clients.connection.search import REST_MIN_S
from penstock.clients.connection.seeking import REACH_AGAIN_S, REACH_S, Seeking
from penstock.clients.connection.steps import FOREVER
from penstock.transport.errors import CannotListen

A, B = "unix:///a", "unix:///b"


class Scene:
    """A client of two nodes, whose channel is told what it is."""

    def __init__(self) -> None:
        self.channel: Any = SimpleNamespace(connected=True, unreachable=False)
        self.turned: list[str] = []
        self.seeking = Seeking(self.channel, f"{A},b", (A, B), self.turned.append, 0.0)


def test_a_node_that_cannot_be_reached_is_left_at_once() -> None:
    scene = Scene()
    assert scene.seeking.due(is_ready=False) == REACH_S, "it may greet us yet"
    assert scene.seeking.left(REACH_S / 2, is_ready=False) == ""
    scene.channel.connected, scene.channel.unreachable = False, True
    assert scene.seeking.due(is_ready=False) == 0.0, "nothing will arrive, so the driver must not wait for it"
    assert scene.seeking.left(REACH_S / 2, is_ready=False) == "no connection"


def test_a_node_to_which_no_channel_can_be_opened_is_left_too() -> None:
    """No descriptor is left for a moment: that ends neither the search nor the thread that searches."""
    scene = Scene()
    full = iter([CannotListen("no socket left (EMFILE)")])

    def turn_to(address: str) -> None:
        for error in full:
            raise error
        scene.turned.append(address)

    scene.seeking._turn_to = turn_to
    scene.seeking.missed(1.0, "it does not lead")
    assert not scene.seeking.turn(1.0, is_ready=False)
    assert "unix:///b: no socket left" in scene.seeking.search.state
    assert scene.seeking.due(is_ready=False) == 1.0 + REST_MIN_S
    assert scene.seeking.turn(1.0 + REST_MIN_S, is_ready=False)
    assert scene.turned == [scene.seeking.search.address]


def test_news_counts_once_the_node_was_left() -> None:
    seeking, turned = (scene := Scene()).seeking, scene.turned
    seeking.told(1.0, 2, [B])
    assert (seeking.search.address, seeking.search.term) == (A, 0), "its answer to the greeting is still to come"
    for _ in range(2):
        assert seeking.missed(1.0, "it does not lead") == FOREVER
        seeking.turn(1.0, is_ready=False)
    assert (turned, seeking.due(is_ready=False)) == ([B], 1.0 + REST_MIN_S), "it rests"
    seeking.told(1.0, 2, [B])
    assert seeking.due(is_ready=False) == 1.0
    assert seeking.turn(1.0, is_ready=False)
    assert turned == [B, B]


def test_a_node_that_could_not_be_reached_has_little_time_to_greet_when_it_can() -> None:
    seeking, channel = (scene := Scene()).seeking, scene.channel
    now, had = 0.0, []
    for _ in range(7):
        channel.unreachable = not had  # its listener is gone, and there again from the second round on
        had.append(seeking.due(is_ready=False) - now)
        now = max(seeking.due(is_ready=False), now)
        assert seeking.left(now - 0.01, is_ready=False) == "" or channel.unreachable
        assert seeking.left(now, is_ready=False)
        seeking.missed(now, "no connection")  # of A
        seeking.turn(now, is_ready=False)
        seeking.missed(now, "it does not lead")  # of B, which answers
        now = seeking.due(is_ready=False)
        seeking.turn(now, is_ready=False)
    assert had[1:] == pytest.approx([REACH_AGAIN_S, 0.2, 0.4, 0.8, REACH_S, REACH_S])
    seeking.found(now, 1)
    seeking.missed(now, "it leads no longer")
    for _ in range(2):
        now = max(seeking.due(is_ready=False), now)
        assert seeking.turn(now, is_ready=False)
        assert seeking.due(is_ready=False) == pytest.approx(now + REACH_S), "what was before is forgotten"
        seeking.missed(now, "it does not lead")
