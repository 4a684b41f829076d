"""What a member tells its clients and its supervisor of its role."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from penstock.broker.engine.ports import NodeStanding
from penstock.broker.member.standing import ShownRole
from penstock.broker.raft.state import Role
from penstock.transport.messages import LeaderMoved
from support.engine import MemoryPort

OWN = ("unix:///own",)


class Scene:
    """A member whose parts are told what they are."""

    def __init__(self) -> None:
        self.port = MemoryPort()
        self.gone: list[str] = []
        self.told: list[tuple[str, int]] = []
        self.node = SimpleNamespace(leads=False, incarnation=0, standing=NodeStanding(), disconnect=self.gone.append)
        self.core = SimpleNamespace(role=Role.FOLLOWER, leader=0, term=1, is_settled=False)
        self.links = SimpleNamespace(advertised={2: ["unix:///two"]})
        parts: list[Any] = [self.node, self.core, self.links]
        self.standing = ShownRole(*parts, self.port, OWN, lambda role, term: self.told.append((role, term)))

    def becomes(
        self, role: Role, *, leader: int = 0, term: int = 1, incarnation: int = 0, is_settled: bool = False
    ) -> NodeStanding:
        self.core.role, self.core.leader, self.core.term, self.core.is_settled = role, leader, term, is_settled
        self.node.leads, self.node.incarnation = bool(incarnation), incarnation
        self.standing.look()
        return self.node.standing

    def moved(self) -> list[tuple[str, int, list[str]]]:
        sent = [(peer, message) for peer, message, _ in self.port.sent if isinstance(message, LeaderMoved)]
        return [(peer, message.term, message.leader) for peer, message in sent]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_member_shows_clients_whom_to_ask(scene: Scene) -> None:
    assert scene.becomes(Role.FOLLOWER) == NodeStanding("", 1, ())
    assert scene.becomes(Role.FOLLOWER, leader=2, term=2) == NodeStanding("follower", 2, ("unix:///two",))
    assert scene.becomes(Role.FOLLOWER, leader=3, term=3) == NodeStanding("follower", 3, ())
    assert scene.becomes(Role.PRE_CANDIDATE, term=3) == NodeStanding("", 3, ())
    assert scene.becomes(Role.LEADER, leader=1, term=4) == NodeStanding("", 4, ()), "it does not serve yet"
    assert scene.becomes(Role.LEADER, leader=1, term=4, incarnation=7) == NodeStanding("leader", 4, OWN)


def test_the_supervisor_hears_of_each_change_once(scene: Scene) -> None:
    scene.becomes(Role.FOLLOWER)
    scene.becomes(Role.FOLLOWER)
    scene.becomes(Role.CANDIDATE, term=2)
    scene.becomes(Role.LEADER, leader=1, term=2)
    scene.becomes(Role.LEADER, leader=1, term=2, incarnation=7)
    scene.becomes(Role.FOLLOWER, leader=2, term=5)
    assert scene.told == [("follower", 1), ("candidate", 2), ("leader", 2), ("follower", 5)]


def test_clients_that_were_greeted_are_told_when_the_lead_is_lost(scene: Scene) -> None:
    scene.becomes(Role.LEADER, leader=1, term=2, incarnation=7)
    for peer in ("a", "b"):
        scene.standing.greeted(peer)
    scene.standing.gone("b")
    scene.becomes(Role.LEADER, leader=1, term=2, incarnation=7)
    assert scene.moved() == []
    scene.becomes(Role.FOLLOWER, leader=2, term=3)
    assert scene.moved() == [("a", 3, ["unix:///two"])]
    assert scene.gone == ["a"]
    scene.becomes(Role.LEADER, leader=1, term=4, incarnation=8)
    scene.becomes(Role.CANDIDATE, term=4)
    assert len(scene.moved()) == 1, "they have heard, and greet again"


def test_another_office_of_the_same_node_is_a_move_too(scene: Scene) -> None:
    scene.becomes(Role.LEADER, leader=1, term=2, incarnation=7)
    scene.standing.greeted("a")
    scene.becomes(Role.LEADER, leader=1, term=4, incarnation=8)
    assert scene.moved() == [("a", 4, [])]


def test_clients_that_were_turned_away_are_told_once_another_node_serves(scene: Scene) -> None:
    for peer in ("a", "b"):
        scene.standing.greeted(peer)
    scene.standing.gone("b")
    scene.becomes(Role.FOLLOWER, leader=2, term=3)
    assert scene.moved() == [], "it may have been elected and not serve yet"
    scene.becomes(Role.FOLLOWER, leader=3, term=3, is_settled=True)
    assert scene.moved() == [], "its addresses are not known yet"
    scene.becomes(Role.FOLLOWER, leader=2, term=3, is_settled=True)
    scene.becomes(Role.FOLLOWER, leader=2, term=3, is_settled=True)
    assert scene.moved() == [("a", 3, ["unix:///two"])], "told once"
    scene.becomes(Role.CANDIDATE, term=4, is_settled=True)
    scene.becomes(Role.FOLLOWER, leader=2, term=5, is_settled=True)
    assert scene.moved()[1:] == [("a", 5, ["unix:///two"])], "again in another term"
    assert scene.gone == [], "what it answers to clients of a follower is still to come"


def test_clients_that_were_turned_away_are_told_once_this_node_serves(scene: Scene) -> None:
    scene.standing.greeted("a")
    scene.becomes(Role.LEADER, leader=1, term=2)
    assert scene.moved() == []
    scene.becomes(Role.LEADER, leader=1, term=2, incarnation=7)
    scene.becomes(Role.LEADER, leader=1, term=2, incarnation=7)
    assert scene.moved() == [("a", 2, ["unix:///own"])]
    scene.becomes(Role.FOLLOWER, leader=2, term=3, is_settled=True)
    assert scene.moved()[1:] == [("a", 3, ["unix:///two"])], "of the lead that it lost"
