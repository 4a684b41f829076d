"""`penstock cluster status` says how far each clock is off from the median, which is what a leader goes by."""

from __future__ import annotations

import pytest
from penstock.cli.cluster import _fields
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
