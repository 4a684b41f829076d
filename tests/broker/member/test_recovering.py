"""The member that recovers, as a broker drives it: it hears of room on its disk, and says what there was none for."""

from __future__ import annotations

from typing import Any, cast

import pytest
from penstock.broker.engine import NodeConfig, Now
from penstock.broker.member import recovering
from penstock.broker.member.recovering import RecoveringMember, empty_node
from penstock.storage.errors import StorageFull
from penstock.storage.room import RESERVE_BYTES
from support.damaged import damaged
from support.engine import START_US
from support.member_store import AnswerPort


class NoPeers:
    """Links without anything at their other ends."""

    def __init__(self) -> None:
        self.advertised: dict[int, list[str]] = {}

    def take(self) -> list[Any]:
        return []

    def renewed(self) -> list[int]:
        return []

    def flush(self, now_s: float) -> None:
        return None


def at(seconds: float) -> Now:
    return Now(START_US, 1000.0 + seconds)


def test_it_waits_on_a_full_disk_and_says_so_once(monkeypatch: pytest.MonkeyPatch):
    _, _, damaged_member = damaged(40)
    recovery, said, free = damaged_member.recovery, list[str](), RESERVE_BYTES
    assert recovery is not None
    monkeypatch.setattr(recovering, "say", said.append)
    node = empty_node(AnswerPort(), NodeConfig(), at(0))
    member = RecoveringMember(recovery, node, cast("Any", NoPeers()), lambda: free, lambda role, term: None, at(0))
    member.flush(at(1))
    assert not recovery.waits
    said.clear()  # what cannot be mended
    free = 0
    member.flush(at(2))
    assert recovery.waits
    assert [line.partition(":")[0] for line in said] == ["the disk is full"]
    free = RESERVE_BYTES
    for seconds in (3, 4):
        recovery._wait(StorageFull("no room for a piece"))
        member.flush(at(seconds))
    assert said[1:] == ["no room for a piece: this node goes on fetching what it has lost once there is room"]
