"""Assignment is complete, even, sticky and repeatable."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from penstock.broker.engine.streams.assignment import assign

MEMBERS = st.sets(st.sampled_from("abcdefgh"), min_size=1).map(sorted)
PARTITIONS = st.sets(st.integers(0, 40)).map(sorted)
CURRENT = st.dictionaries(st.integers(0, 40), st.sampled_from("abcdefghxyz"))


@given(MEMBERS, PARTITIONS, CURRENT)
def test_every_partition_has_one_member_and_shares_differ_by_at_most_one(members, partitions, current):
    result = assign(members, partitions, current)
    assert sorted(result) == partitions
    shares = [list(result.values()).count(member) for member in members]
    assert sum(shares) == len(partitions)
    assert max(shares) - min(shares) <= 1


@given(MEMBERS, PARTITIONS, CURRENT)
def test_no_more_partitions_move_than_must(members, partitions, current):
    result = assign(members, partitions, current)
    kept = sum(current.get(partition) == member for partition, member in result.items())
    held = sorted((sum(current.get(p) == member for p in partitions) for member in members), reverse=True)
    least, larger = divmod(len(partitions), len(members))
    assert kept == sum(min(count, least + (rank < larger)) for rank, count in enumerate(held))


@given(MEMBERS, PARTITIONS, CURRENT)
def test_assigning_again_changes_nothing(members, partitions, current):
    result = assign(members, partitions, current)
    assert assign(list(reversed(members)), partitions, result) == result


def test_a_leave_moves_only_what_the_member_had():
    before = assign(["a", "b", "c"], range(9), {})
    after = assign(["a", "b"], range(9), before)
    assert [p for p in range(9) if before[p] != after[p]] == [p for p in range(9) if before[p] == "c"]


def test_without_members_nothing_is_assigned():
    assert assign([], range(3), {0: "a"}) == {}
