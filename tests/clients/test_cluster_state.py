"""Which of several answers says what a cluster is: each node tells what it knows."""

from __future__ import annotations

import pytest
from penstock.clients import cluster
from penstock.clients.errors import TimedOut
from penstock.transport.messages import ClusterMember, ClusterState


class Nodes:
    """Answers by address, as given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, ClusterState] = {}
        self.asked: list[str] = []
        monkeypatch.setattr(cluster, "ask_node", self._answer)

    def _answer(self, url: str, *_: object) -> ClusterState:
        self.asked.append(url)
        if url not in self.answers:
            raise TimedOut(f"{url} does not answer")
        return self.answers[url]

    def says(self, node: int, leader: int, term: int, entry: int = 0) -> None:
        members = [ClusterMember(each, "", "", 0, 0, 0, [f"unix:///{each}"]) for each in (1, 2, 3)]
        self.answers[f"unix:///{node}"] = ClusterState(1, "c", node, leader, term, entry, members)

    def state(self, *nodes: int) -> tuple[int, int]:
        """The node whose answer counts, and the leader that it names."""
        found = cluster.cluster_state([f"unix:///{node}" for node in nodes], 1.0)
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
