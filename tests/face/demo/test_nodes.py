"""What the demo of a cluster takes from what its nodes say of themselves."""

from __future__ import annotations

import threading

import pytest
from penstock.demo import nodes as demo_nodes
from penstock.demo.nodes import Node, Nodes


def said(number: int, role: str) -> Node:
    node = Node.__new__(Node)
    node.number, node.pid, node.role, node.term = number, 100 + number, role, 1
    return node


def test_a_killed_leader_that_is_back_before_its_end_was_noticed_hides_no_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its broker is started again at once, and says the new term as well."""
    nodes = Nodes.__new__(Nodes)
    nodes._moved, nodes._acting, nodes.failovers = threading.Condition(), threading.Lock(), []
    first, second, third = nodes.nodes = [said(1, "leader"), said(2, "follower"), said(3, "follower")]

    def killed(pid: int, by: int) -> None:
        assert pid == first.pid
        first.role, second.role = "follower", "leader"
        first.term = second.term = third.term = 2

    monkeypatch.setattr(demo_nodes, "WAIT_S", 0.1)
    monkeypatch.setattr(demo_nodes.os, "kill", killed)
    assert nodes.kill() == 2
    assert len(nodes.failovers) == 1
