"""`penstock cluster status`: clocks beside the median, which is what a leader goes by, and what people are shown."""

from __future__ import annotations

import pytest
from penstock.cli.cluster import _fields, _row
from penstock.transport.messages import ClusterMember, ClusterState

S = 1_000_000


def off_by(*clocks_s: int) -> list[int | None]:
    members = [ClusterMember(node, "", "", 0, 0, at * S, []) for node, at in enumerate(clocks_s, 1)]
    shown = _fields(ClusterState(1, "c", 1, 1, 1, 1, members))["members"]
    assert [each["clock_ms"] for each in shown] == [at * 1000 or None for at in clocks_s]
    return [each["clock_off_ms"] for each in shown]


@pytest.mark.parametrize(
    ("clocks_s", "wanted"),
    [
        ((500, 100, 101), [399_000, -1_000, 0]),  # the leader's own is the one that is off
        ((100, 100, 40), [0, 0, -60_000]),
        ((100, 500, 0), [0, 400_000, None]),  # of two the earlier counts
        ((100, 0, 0), [None, None, None]),  # one alone says nothing of the others
        ((1, 2, 3, 4, 5), [-2_000, -1_000, 0, 1_000, 2_000]),
        ((1, 2, 0, 0), [None] * 4),
    ],
)
def test_each_clock_stands_to_the_median_of_a_majority(clocks_s, wanted):
    assert off_by(*clocks_s) == wanted


def test_people_are_shown_room_and_clocks_as_they_read_them():
    known = ClusterMember(1, "leader", "serving", 0, 78 << 30, 1_795_962_073_576_900, ["tcp://a:1", "tcp://b:1"])
    other = ClusterMember(2, "", "unreachable", -1, -1, 0, [])
    rows = [_row(each) for each in _fields(ClusterState(1, "c", 1, 1, 1, 1, [known, other]))["members"]]
    assert rows == [
        [1, "leader", "serving", 0, "78 GB", "2026-11-29 14:21:13.576 UTC", "", "tcp://a:1, tcp://b:1", ""],
        [2, "", "unreachable", "", "", "", "", "", ""],
    ]
