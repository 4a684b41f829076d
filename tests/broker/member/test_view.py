"""Replacing a directory as an operator asks for it: what is refused, and what begins."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from penstock.broker.engine.ports import NodeStanding
from penstock.broker.errors import InvalidRequest, NotLeader, Unavailable
from penstock.broker.member.pace import ELECTION_TICKS
from penstock.broker.member.view import MemberView
from penstock.broker.peers.greeting import PeerIdentity
from penstock.broker.raft.messages import Change, ChangeStep, Kind, Message, Operation
from penstock.broker.replica.catchup_messages import AskManifest, Staged, encode
from penstock.broker.replica.shipping import QUIET_TICKS
from support.damaged import cut, produce, segments
from support.members import DATA, Member, Shard


class Scene:
    """A leader's view over simulated members, and the directories that peers were refused with.

    Of a `member` that is given: its own view, as a follower.
    """

    def __init__(self, shard: Shard | None = None, member: Member | None = None) -> None:
        self.shard = shard or Shard(1)
        self.leader: Member = member or self.shard.until(lambda: self.shard.leader)
        self.other = next(each for each in self.shard.members.values() if each is not self.leader)
        self.strangers: dict[int, bytes] = {}
        peers = {number: f"ipc:///{number}" for number in self.shard.numbers}
        own = PeerIdentity(cluster="c", node=self.leader.number, uuid=self.leader.uuid, incarnation=1, peers=peers)
        self.reachable = set(peers)
        links: Any = SimpleNamespace(own=own, strangers=self.strangers, advertised={}, reachable=lambda: self.reachable)
        self.standing: Any = SimpleNamespace(role="follower" if member else "leader", own=())
        assert self.leader.replica is not None
        self.replica = self.leader.replica
        self.view = MemberView(self.replica, links, self.standing, lambda: 1)

    def replace(self, node: int) -> Any:
        return self.view.replace(7, node, self.leader.now)

    def role(self, node: int) -> tuple[str, str]:
        members = self.view.state(1, self.leader.now).members
        return next((each.role, each.state) for each in members if each.node == node)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_directory_is_replaced_by_the_one_that_its_node_came_with(scene: Scene) -> None:
    other = scene.other
    other.wipe()
    other.start()
    scene.strangers[other.number] = other.uuid
    answer = scene.replace(other.number)
    assert (answer.request, answer.leader) == (7, scene.leader.number)
    with pytest.raises(Unavailable, match=r"cannot be replaced now \(the change at entry \d+ is not applied"):
        scene.replace(other.number)
    roles = set[tuple[str, str]]()
    for _ in range(60):
        scene.shard.rounds()
        roles.add(scene.role(other.number))
    assert ("follower", "replicating") in roles
    assert scene.replica.directories.is_settled
    assert scene.replica.directories.table.uuids[other.number] == other.uuid
    with pytest.raises(InvalidRequest, match="has not come with another directory"):
        scene.replace(other.number)  # it was let in since


def test_a_node_that_answers_is_never_shown_as_unreachable(scene: Scene) -> None:
    """Not even where the leader has just counted its quorum, and began to listen anew."""
    scene.shard.rounds()
    seen = set[tuple[str, str]]()
    for _ in range(3 * ELECTION_TICKS):
        scene.replica.tick()
        seen.add(scene.role(scene.other.number))
        scene.shard.rounds()
    assert seen == {("follower", "replicating")}
    scene.shard.cut |= {(scene.leader.number, scene.other.number), (scene.other.number, scene.leader.number)}
    for _ in range(3 * ELECTION_TICKS):
        scene.shard.rounds()
    assert scene.role(scene.other.number) == ("follower", "unreachable")


@pytest.mark.parametrize("is_in", [True, False])
def test_a_replacement_that_has_begun_goes_on_when_it_is_asked_for_again(scene: Scene, is_in: bool) -> None:
    shard, other = scene.shard, scene.other
    other.wipe()
    other.start()
    scene.strangers[other.number] = other.uuid
    shard.cut |= {(scene.leader.number, other.number)}
    scene.replace(other.number)
    shard.until(lambda: scene.role(other.number)[0] == "learner")
    if is_in:
        del scene.strangers[other.number]
    entries = scene.replica.order.last_index()
    assert scene.replace(other.number).leader == scene.leader.number
    shard.rounds(3)
    assert scene.replica.order.last_index() == entries, "nothing is begun"
    other.wipe()
    scene.strangers[other.number] = other.uuid
    scene.replace(other.number)
    shard.until(lambda: scene.replica.directories.table.uuids[other.number] == other.uuid)


def test_a_node_of_a_new_cluster_waits_until_all_nodes_have_met() -> None:
    shard = Shard(2)
    shard.cut = {(1, 3), (2, 3), (3, 1), (3, 2)}
    shard.rounds(40)
    scene = Scene(shard, shard.members[1])
    assert scene.role(1)[1] == "waiting"
    shard.heal()
    shard.until(lambda: shard.leader)
    shard.rounds(5)
    assert scene.role(1)[1] == ""


def test_a_node_that_came_with_another_directory_is_refused_and_not_only_unreachable(scene: Scene) -> None:
    number = scene.other.number
    scene.strangers[number] = bytes(16)
    assert scene.role(number) == ("follower", "replicating"), "its own directory is there, too"
    scene.reachable.discard(number)
    assert scene.role(number) == ("follower", "refused")
    found = next(each for each in scene.view.state(1, scene.leader.now).members if each.node == number)
    assert (found.free_bytes, found.clock_us) == (-1, 0), "what it said before is no news"
    del scene.strangers[number]
    assert scene.role(number) == ("follower", "unreachable")


def test_what_cannot_be_replaced_is_refused_with_the_way_out(scene: Scene) -> None:
    with pytest.raises(InvalidRequest, match="node 9 is none of the cluster: 1, 2, 3 are"):
        scene.replace(9)
    with pytest.raises(InvalidRequest, match="leads, so its directory is not lost: hand the lead over before"):
        scene.replace(scene.leader.number)
    with pytest.raises(InvalidRequest, match="has not come with another directory: start it with an empty one"):
        scene.replace(scene.other.number)
    scene.standing.role = "follower"
    scene.replica.node.standing = NodeStanding("follower", 4, ("unix:///leader",))
    with pytest.raises(NotLeader):
        scene.replace(scene.other.number)


def test_a_member_that_fetches_what_it_has_lost_is_recovering_and_shows_how_far_it_is(scene: Scene) -> None:
    shard, other, topic = scene.shard, scene.other, scene.shard.topic("t")
    produce(shard, topic, 40, size=60_000)
    other.crash(power=False)
    for path in segments(other, f"{DATA}/topics/{topic.hex()}/0"):
        cut(other, path)
    shard.begin(other)
    assert other.recovery is not None
    shown, own = list[tuple[str, str, str]](), set[str]()
    for _ in range(400):
        if other.recovery is not None:
            own.add(other.recovery.catching_up.progress())
        for member in shard.members.values():
            shard.tick(member)
            shard.turn(member)
        for _ in range(len(shard.network)):
            shard.turn(shard.deliver(0))
        found = next(each for each in scene.view.state(1, scene.leader.now).members if each.node == other.number)
        shown.append((found.role, found.state, found.progress))
        if other in shard.closed:
            shard.begin(other)
            shard.closed.discard(other)
    fetching = [each for each in shown if each[:2] == ("recovering", "installing")]
    name = f"topics/{topic.hex()}/0"
    batches = [int(text.split()[-3]) for _, _, text in fetching if name in text]
    assert batches == sorted(batches)
    assert len(set(batches)) > 1
    assert all(re.fullmatch(r"(log [123] of 3, topics/\w{32}/[01]: batch \d+ of 20)?", text) for _, _, text in fetching)
    assert any(name in each for each in own)
    assert shown[-1] == ("follower", "replicating", "")


def test_a_lead_is_where_it_is_to_go(scene: Scene) -> None:
    term = scene.leader.replica.core.term if scene.leader.replica else 0
    begun = scene.view.transfer(7, scene.leader.number)
    assert (begun.request, begun.node, begun.term) == (7, scene.leader.number, term)
    assert scene.replica.core.status().transferee == 0, "nothing begins"
    assert scene.view.transfer(8, scene.other.number).node == scene.replica.core.status().transferee


def test_a_lead_without_a_destination_goes_to_a_voter_though_a_learner_has_as_much(scene: Scene) -> None:
    learner, voter = sorted(set(scene.shard.numbers) - {scene.leader.number})
    scene.replica.core.apply_change(Change((ChangeStep(Operation.LEARNER, learner),)), 0)
    members = scene.replica.core.status().members
    assert members[learner].match == members[voter].match
    assert scene.view.transfer(7, 0).node == voter


def test_a_leader_shows_its_own_clock_as_it_is_and_not_the_time_that_it_goes_by(scene: Scene) -> None:
    scene.leader.lag_s = 86_400.0
    scene.shard.rounds(3)
    wall = scene.leader.now
    gone_by = scene.replica.clocks.now(wall, 0)
    assert wall.wall_us - gone_by.wall_us > 80_000_000_000
    shown = {each.node: each.clock_us for each in scene.view.state(1, gone_by).members}
    assert shown[scene.leader.number] == wall.wall_us


def test_a_lead_that_is_lost_forgets_who_recovers(scene: Scene) -> None:
    exchange = scene.replica.exchange
    exchange.take(Message(Kind.SHIP, scene.leader.number, 9, context=encode(AskManifest(1))), {})
    assert exchange.recovers(9)
    for _ in range(QUIET_TICKS):
        exchange.tick()
    assert exchange.recovers(9)
    exchange.tick()
    assert not exchange.recovers(9)
    exchange.take(Message(Kind.SHIP, scene.leader.number, 9, context=encode(AskManifest(1))), {})
    exchange.take(Message(Kind.SHIP, scene.leader.number, 9, context=encode(Staged(1))), {})
    assert not exchange.recovers(9)
