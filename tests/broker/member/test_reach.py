"""The log says once that a peer is unreachable, and once that it is back."""

from __future__ import annotations

from penstock.broker.member.reach import LOOK_S, TELL_S, Reach


def test_a_peer_is_told_of_once_it_was_away_long_enough_and_when_it_is_back() -> None:
    reach = Reach({2: "ipc:///two", 3: "ipc:///three"}, 100.0)
    assert reach.due_s == 100.0 + LOOK_S
    assert list(reach.look({3}, 100.0 + TELL_S - 0.1)) == []
    assert reach.due_s == 100.0 + TELL_S - 0.1 + LOOK_S
    (line,) = reach.look({3}, 100.0 + TELL_S)
    assert line == "node 2 cannot be reached at ipc:///two: 2 of 3 nodes are left"
    assert list(reach.look({3}, 200.0)) == []
    (line,) = reach.look(set(), 200.0 + TELL_S)
    assert line == "node 3 cannot be reached at ipc:///three: 1 of 3 nodes are left"
    assert list(reach.look({2}, 210.0)) == ["node 2 is reached again at ipc:///two"]
    assert list(reach.look(set(), 210.0 + TELL_S - 0.1)) == []
    assert len(list(reach.look(set(), 210.0 + TELL_S))) == 1
