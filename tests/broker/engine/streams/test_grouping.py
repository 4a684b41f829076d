"""What is done to a group in portions, while members come and go between two of them."""

from __future__ import annotations

import pytest
from penstock.transport import messages as m
from support.engine import Rig

PARTITIONS = 60


def wide() -> tuple[Rig, bytes]:
    """A node with a topic of more partitions than a turn looks at, with a record in each."""
    rig = Rig()
    topic = rig.topic(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        rig.produce(topic, [b"x"], partition)
    return rig, topic


def refused(rig: Rig, request: int) -> list[str]:
    return [answer.code for answer in rig.answers(request)]


def cursors(rig: Rig, topic: bytes) -> list[int]:
    (group,) = rig.ask(m.ListGroups, topic).groups
    return [each.cursor for each in group.partitions]


def many(rig: Rig, topic: bytes, session: int, epoch: int) -> int:
    """Send a commit of more positions than a turn takes, and do the first of its portions. Returns its number."""
    request = rig.next_request()
    rig.send(m.Commit(request, session, topic, "g", [m.Position(number, 1, epoch) for number in range(PARTITIONS)]))
    rig.turn(1)
    assert not rig.answers(request)
    return request


def test_a_commit_in_portions_moves_nothing_that_its_member_lost_meanwhile():
    rig, topic = wide()
    a = rig.join(topic, "g", "a")
    request = many(rig, topic, a.session, 1)
    b = rig.join(topic, "g", "a", peer="another")
    rig.turn(20)
    assert refused(rig, request) == ["fenced"]
    assert {epoch for epoch, _ in rig.assigned(b).values()} == {2}
    moved = cursors(rig, topic)
    assert (moved[0], moved[-1]) == (1, -1)


def test_a_member_that_joins_ends_a_commit_in_portions_of_one_that_is_none():
    rig, topic = wide()
    request = many(rig, topic, 0, 0)
    joined = rig.join(topic, "g", "a", peer="another")
    rig.turn(20)
    assert refused(rig, request) == ["group_active"]
    begun = {number: offset for number, (_, offset) in rig.assigned(joined).items()}
    assert begun == {number: max(cursor, 0) for number, cursor in enumerate(cursors(rig, topic))}
    assert (begun[0], begun[59]) == (1, 0)


@pytest.mark.parametrize("portions", [1, 100], ids=["between two portions", "before the lowest partition"])
def test_a_member_that_joins_while_its_group_begins_ends_that(portions: int):
    rig, topic = wide()
    rig.store.hold = portions > 1  # then the lowest waits for the commit of the others
    request = rig.next_request()
    rig.send(m.BeginGroup(request, topic, "g", [(number, 1) for number in range(PARTITIONS)]))
    rig.turn(portions)
    assert not rig.answers(request)
    rig.store.hold = False
    joined = rig.join(topic, "g", "a", peer="another")
    rig.turn(20)
    assert refused(rig, request) == ["group_active"]
    begun = {number: offset for number, (_, offset) in rig.assigned(joined).items()}
    assert begun == {number: max(cursor, 0) for number, cursor in enumerate(cursors(rig, topic))}
    assert (begun[0], begun[1]) == (0, 1)


def test_a_member_that_joins_while_its_group_is_deleted_keeps_what_it_owns():
    rig, topic = wide()
    rig.ask(m.Commit, 0, topic, "g", [m.Position(number, 1, 0) for number in range(PARTITIONS)])
    request = rig.next_request()
    rig.send(m.DeleteGroup(request, topic, "g"))
    rig.turn(1)
    joined = rig.join(topic, "g", "a", peer="another")
    rig.turn(20)
    assert refused(rig, request) == ["group_active"]
    assert isinstance(rig.ask(m.Commit, joined.session, topic, "g", [m.Position(59, 1, 1)]), m.Done)
