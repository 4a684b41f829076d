"""What a node says of peers that it refuses."""

from __future__ import annotations

from penstock.broker.member.starting import LINES_MOST, TELL_AGAIN_S, PeerLines


def test_the_same_line_is_said_again_after_a_while_whatever_its_address():
    said: list[str] = []
    now = [100.0]
    lines = PeerLines(said.append, lambda: now[0])
    lines("node 2 is of another cluster (10.0.0.1)")
    now[0] += TELL_AGAIN_S / 2
    lines("node 2 is of another cluster (10.0.0.2)")
    lines("node 3 is of another cluster (10.0.0.3)")
    now[0] += TELL_AGAIN_S / 2
    lines("node 2 is of another cluster (10.0.0.4)")
    lines("node 3 is of another cluster (10.0.0.5)")
    assert [line[-9:] for line in said] == ["10.0.0.1)", "10.0.0.3)", "10.0.0.4)"]


def test_a_flood_of_different_lines_is_counted_and_left_out():
    said: list[str] = []
    now = [100.0]
    lines = PeerLines(said.append, lambda: now[0])
    for number in range(LINES_MOST + 5):
        lines(f"refused key {number}")
    assert said == [f"refused key {number}" for number in range(LINES_MOST)]
    now[0] += TELL_AGAIN_S
    lines("refused key 99")
    lines("refused key 100")
    assert said[LINES_MOST:] == ["refused key 99; 5 lines like it are left out", "refused key 100"]
