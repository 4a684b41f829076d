"""Which of several answers says what a cluster is: each node tells what it knows."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from penstock.broker.errors import InvalidRequest, NotLeader
from penstock.clients import cluster
from penstock.clients.errors import TimedOut
from penstock.transport.errors import Unauthenticated
from penstock.transport.messages import AskCluster, ClusterMember, ClusterState, Message, TransferBegun

PATIENCE_S = 60.0


class Nodes:
    """Answers by address, as given; the others are silent. Each look at one takes its time, by a clock of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, Any] = {}
        self.commands: dict[str, Any] = {}  # what is answered to other messages; a number: nothing for so many looks
        self.asked: list[str] = []
        self.now = 1000.0
        monkeypatch.setattr(cluster, "_asking", self._asking)
        monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: self.now))

    def _asking(self, url: str, message: Message, _: object) -> Iterator[ClusterState | None]:
        self.asked.append(url)
        while True:
            self.now += cluster.LOOK_S
            yield None
            if isinstance(message, AskCluster):
                answer = self.answers.get(url)
            elif isinstance(answer := self.commands.get(url, TimedOut("this takes long")), int):
                self.commands[url] = answer - 1 or TransferBegun(1, int(url[-1]), 4)
                continue
            if isinstance(answer, Exception):
                raise answer
            yield answer

    def says(self, node: int, leader: int, term: int, entry: int = 0) -> None:
        members = [ClusterMember(each, "", "", 0, 0, 0, [f"unix:///{each}"]) for each in (1, 2, 3)]
        self.answers[f"unix:///{node}"] = ClusterState(1, "c", node, leader, term, entry, members)

    def state(self, *nodes: int) -> tuple[int, int]:
        """The node whose answer counts, and the leader that it names."""
        found = cluster.cluster_state([f"unix:///{node}" for node in nodes], PATIENCE_S)
        return found.node, found.leader


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    return Nodes(monkeypatch)


def test_a_leader_that_does_not_serve_yet_knows_better_than_those_that_follow_it(nodes: Nodes):
    nodes.says(1, leader=2, term=4, entry=9)
    nodes.says(2, leader=0, term=4)
    assert nodes.state(1, 2) == (2, 0)
    assert nodes.state(1) == (2, 0), "a follower tells where to ask it"
    nodes.says(2, leader=2, term=4)
    assert nodes.state(1, 2) == nodes.state(1) == (2, 2)


def test_a_leader_that_cannot_be_asked_is_the_one_that_its_followers_name(nodes: Nodes):
    nodes.says(1, leader=2, term=4, entry=9)
    nodes.says(3, leader=0, term=4, entry=10)
    assert nodes.state(1, 2, 3) == (1, 2)
    assert nodes.asked == ["unix:///1", "unix:///2", "unix:///3"], "none twice"


def test_the_highest_term_counts(nodes: Nodes):
    nodes.says(1, leader=1, term=4, entry=9)
    nodes.says(2, leader=0, term=5)
    nodes.says(3, leader=1, term=4)
    assert nodes.state(1, 2, 3) == (2, 0), "who led before knows of no other term"


@pytest.mark.parametrize("order", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
def test_a_node_that_is_silent_costs_little_once_another_has_answered(nodes: Nodes, order: tuple[int, ...]):
    nodes.says(1, leader=1, term=5)
    nodes.says(3, leader=1, term=5)
    start = nodes.now
    assert nodes.state(*order) == (1, 1)
    assert cluster.REST_S <= nodes.now - start <= cluster.REST_S + 10 * cluster.LOOK_S


def test_a_leader_that_only_another_node_names_costs_as_little(nodes: Nodes):
    nodes.says(1, leader=2, term=5)
    start = nodes.now
    assert nodes.state(1) == (1, 2)
    assert nodes.now - start <= cluster.REST_S + 10 * cluster.LOOK_S


def test_the_first_answer_may_take_the_whole_time(nodes: Nodes):
    start = nodes.now
    with pytest.raises(TimedOut, match=r"^unix:///1 does not answer within 60 s: is the node started\?$"):
        nodes.state(1, 2)
    assert PATIENCE_S <= nodes.now - start <= PATIENCE_S + 2 * cluster.LOOK_S


def test_a_refusal_is_told_if_no_node_answers_and_ends_no_wait_for_one(nodes: Nodes):
    nodes.answers["unix:///2"] = Unauthenticated("refused")
    start = nodes.now
    with pytest.raises(Unauthenticated):
        nodes.state(1, 2)
    assert nodes.now - start >= PATIENCE_S
    nodes.says(1, leader=1, term=4)
    assert nodes.state(1, 2) == (1, 1)


def test_a_time_that_is_shorter_is_not_made_longer_by_an_answer(nodes: Nodes):
    nodes.says(1, leader=1, term=4)
    start = nodes.now
    assert cluster.cluster_state(["unix:///1", "unix:///2"], 4 * cluster.LOOK_S).leader == 1
    assert nodes.now - start <= 6 * cluster.LOOK_S


def test_a_leader_that_has_answered_is_asked_at_no_other_address(nodes: Nodes):
    nodes.says(1, leader=1, term=4)
    nodes.answers["unix:///1"].members[0].addresses[:] = ["unix:///other"]
    assert nodes.state(1) == (1, 1)
    assert nodes.asked == ["unix:///1"]


def test_a_leader_that_another_node_names_is_asked_at_one_address(nodes: Nodes):
    nodes.says(1, leader=2, term=4)
    nodes.answers["unix:///1"].members[1].addresses[:] = ["unix:///a", "unix:///b"]
    assert nodes.state(1) == (1, 2)
    assert nodes.asked == ["unix:///1", "unix:///a"]


def test_an_address_without_a_way_to_it_hides_no_answer_and_is_named(nodes: Nodes):
    nodes.answers["unix:///2"] = OSError("no route")
    with pytest.raises(TimedOut, match=r"^unix:///2: no route$"):
        nodes.state(2)
    nodes.says(1, leader=1, term=4)
    assert nodes.state(2, 1) == (1, 1)


def test_who_hands_the_lead_over_asks_a_leader_that_is_silent_once_more(nodes: Nodes):
    nodes.says(1, leader=2, term=4)
    nodes.says(3, leader=2, term=4)
    with pytest.raises(TimedOut):
        cluster.transfer_lead(["unix:///1", "unix:///2", "unix:///3"], 0, PATIENCE_S)
    assert nodes.asked.count("unix:///2") == 2, "once for its state"


ALL = ["unix:///1", "unix:///2", "unix:///3"]


@pytest.fixture
def following(nodes: Nodes) -> Nodes:
    """Nodes of which the first and the last say that the second leads, which says nothing."""
    nodes.says(1, leader=2, term=4)
    nodes.says(3, leader=2, term=4)
    nodes.commands = {"unix:///1": NotLeader("follows"), "unix:///2": 10**6, "unix:///3": NotLeader("follows")}
    return nodes


def test_a_leader_that_is_dead_costs_little_where_another_has_taken_over(following: Nodes):
    following.commands["unix:///3"] = TransferBegun(1, 3, 4)
    start = following.now
    assert cluster.transfer_lead(ALL, 0, PATIENCE_S).node == 3
    assert following.now - start <= 3 * cluster.REST_S + 20 * cluster.LOOK_S


def test_a_leader_that_takes_long_is_heard_behind_those_that_do_not_lead(following: Nodes):
    following.commands["unix:///2"] = 100
    assert cluster.transfer_lead(ALL, 0, PATIENCE_S).node == 2
    assert following.asked[-3:] == ["unix:///2", "unix:///1", "unix:///3"]


def test_all_nodes_have_one_timeout_together(following: Nodes):
    start = following.now
    with pytest.raises(TimedOut, match=r"^unix:///2 does not answer within 5 s"):
        cluster.transfer_lead(ALL, 0, 5.0)
    assert following.now - start <= 5.0 + 4 * cluster.LOOK_S


def test_what_no_node_leads_is_said_without_waiting(following: Nodes):
    following.commands["unix:///2"] = NotLeader("follows, too")
    start = following.now
    with pytest.raises(NotLeader):
        cluster.transfer_lead(ALL, 0, PATIENCE_S)
    assert following.now - start <= cluster.REST_S + 20 * cluster.LOOK_S


def test_a_refusal_of_the_leader_ends_the_search(following: Nodes):
    following.commands["unix:///2"] = InvalidRequest("it is in no state to")
    with pytest.raises(InvalidRequest):
        cluster.transfer_lead(ALL, 0, PATIENCE_S)
    assert following.asked.count("unix:///1") == 1
