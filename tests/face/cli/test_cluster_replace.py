"""`penstock cluster replace` while another change of the members goes on."""

from __future__ import annotations

import pytest
from penstock.broker.errors import Unavailable
from penstock.cli import exits
from penstock.cli.app import run
from penstock.clients import cluster
from penstock.transport.messages import ClusterMember, ClusterState

REPLACED = ClusterMember(3, "follower", "replicating", 0, 0, 0, [])


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the leader refuses with, the first first; then it begins."""
    left: list[str] = []

    def replace_node(*_: object) -> None:
        if left:
            raise Unavailable(left.pop(0))

    monkeypatch.setattr(cluster, "replace_node", replace_node)
    monkeypatch.setattr(cluster, "cluster_state", lambda *_: ClusterState(1, "c", 1, 1, 2, 9, [REPLACED]))
    return left


def test_it_asks_again_until_the_change_before_is_done(refusals, capsysbinary) -> None:
    refusals += ["node 3 cannot be replaced now"] * 3
    assert run(["cluster", "replace", "3", "--url", "tcp://127.0.0.1:1"]) == exits.OK
    assert refusals == []
    assert b"node 3 is a member again" in capsysbinary.readouterr().out


def test_it_says_why_it_could_not_begin_in_time(refusals, capsysbinary, monkeypatch) -> None:
    monkeypatch.setenv("PENSTOCK_TIMEOUT_S", "0.2s")
    refusals += ["node 3 cannot be replaced now"] * 1000
    assert run(["cluster", "replace", "3", "--url", "tcp://127.0.0.1:1"]) == exits.UNAVAILABLE
    assert b"cannot be replaced now" in capsysbinary.readouterr().err
