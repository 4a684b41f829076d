"""What is done to a group in portions, while members come and go between two of them."""

from __future__ import annotations

import pytest
from penstock.broker.engine.streams import grouping
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


def noted(rig: Rig, topic: bytes, *notes: tuple[int, int, str], group: str = "g") -> object:
    return rig.ask(m.Commit, 0, topic, group, [m.Position(number, offset, 0, note) for number, offset, note in notes])


def test_a_note_stands_beside_its_cursor_until_that_moves():
    rig, topic = wide()
    noted(rig, topic, (0, 1, "ä" * 2048), (7, 0, ""), (9, 1, "nine"))
    noted(rig, topic, (0, 1, "other"), group="h")
    found = rig.ask(m.AskCursors, topic, "g")
    assert (found.cursors, found.next_partition) == ([(0, 1, "ä" * 2048), (7, 0, ""), (9, 1, "nine")], -1)
    assert rig.ask(m.AskCursors, topic, "g", 8).cursors == [(9, 1, "nine")]
    assert rig.ask(m.AskCursors, topic, "h").cursors == [(0, 1, "other")]
    assert rig.ask(m.AskCursors, topic, "none").cursors == []
    rig.ask(m.Commit, 0, topic, "g", [m.Position(0, 1, 0)])
    rig.ask(m.ResetGroup, topic, "g", m.EARLIEST, [(9, 0)])
    assert rig.ask(m.AskCursors, topic, "g").cursors == [(0, 1, ""), (7, 0, ""), (9, 0, "")]
    assert rig.ask(m.AskCursors, bytes(16), "g").code == "unknown_topic"


def test_a_note_of_a_member_needs_its_epoch_and_stays_when_the_partition_changes_hands():
    rig, topic = wide()
    joined = rig.join(topic, "g", "a")
    assert rig.ask(m.Commit, joined.session, topic, "g", [m.Position(3, 1, 2, "late")]).code == "fenced"
    rig.ask(m.Commit, joined.session, topic, "g", [m.Position(3, 1, 1, "mine")])
    rig.ask(m.Leave, joined.session)
    rig.join(topic, "g", "b")
    assert rig.ask(m.AskCursors, topic, "g").cursors == [(3, 1, "mine")]


@pytest.mark.parametrize("note", ["x" * 4097, "ä" * 2049])
def test_a_note_over_its_limit_moves_nothing(note: str):
    rig, topic = wide()
    answer = noted(rig, topic, (0, 1, ""), (1, 1, note))
    assert (answer.code, "over 4096" in answer.message) == ("invalid_request", True)
    joined = rig.join(topic, "m", "a")
    assert rig.ask(m.Commit, joined.session, topic, "m", [m.Position(0, 1, 1, note)]).code == "invalid_request"
    assert rig.ask(m.AskCursors, topic, "g").cursors == rig.ask(m.AskCursors, topic, "m").cursors == []


def test_many_notes_come_in_several_answers(monkeypatch):
    monkeypatch.setattr(grouping, "CURSORS_BYTES", 20_000)
    rig, topic = wide()
    wanted = [(number, 1, f"{number:02}" * 2048) for number in range(PARTITIONS)]
    noted(rig, topic, *wanted)
    found, first, answers = [], 0, 0
    while first >= 0:
        answer = rig.ask(m.AskCursors, topic, "g", first)
        assert len(answer.cursors) <= 5
        found, first, answers = found + answer.cursors, answer.next_partition, answers + 1
    assert (found, answers) == (wanted, 12)


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


@pytest.mark.parametrize("way", ["release", "leave"])
def test_a_commit_in_portions_moves_all_its_cursors_before_what_its_member_gives_back_is_another_s(way: str):
    rig, topic = wide()
    a = rig.join(topic, "g", "a")
    b = rig.join(topic, "g", "b", peer="another")
    asked_back = [number for message in rig.told(a.session) for number in getattr(message, "revoked", ())]
    assert len(asked_back) == PARTITIONS // 2
    given_back = asked_back if way == "release" else list(range(PARTITIONS))
    request, left = rig.next_request(), rig.next_request()
    rig.send(m.Commit(request, a.session, topic, "g", [m.Position(number, 1, 1) for number in given_back]))
    rig.send(m.Release(a.session, given_back) if way == "release" else m.Leave(left, a.session))
    rig.turn(40)
    assert rig.answers(request) == [m.Done(request)]
    assert rig.assigned(b) == dict.fromkeys(given_back, (2, 1))


def test_a_session_that_is_left_twice_behind_a_commit_is_over_once():
    rig, topic = wide()
    a = rig.join(topic, "g", "a")
    many(rig, topic, a.session, 1)
    requests = [rig.next_request() for _ in range(2)]
    for request in requests:
        rig.send(m.Leave(request, a.session))
    rig.turn(40)
    assert [rig.answers(request) for request in requests] == [[m.Done(request)] for request in requests]
    assert set(cursors(rig, topic)) == {1}


def test_what_is_committed_and_not_applied_yet_may_be_read_so_cursors_may_stand_behind_it():
    """A mapped reader sees on the board what the keeper has synced before the broker hears it at the end of a turn."""
    rig = Rig()
    topic = rig.topic()
    joined = rig.join(topic, "g", "a", delivery="mapped")
    rig.store.hold = True
    rig.produce(topic, [b"x"] * 2)
    rig.produce(topic, [b"y"])
    commits = [rig.next_request() for _ in range(4)]

    def commit(request: int, offset: int) -> None:
        rig.send(m.Commit(request, joined.session, topic, "g", [m.Position(0, offset, 1)]))

    commit(commits[0], 1)  # nothing of it is committed yet
    for log in rig.node.logs:
        log.sync()
    commit(commits[1], 4)
    commit(commits[2], 3)
    seek = rig.next_request()
    rig.send(m.SeekTo(seek, joined.session, 0, 3))
    rig.store.hold = False
    rig.turn()
    assert refused(rig, commits[0]) == refused(rig, commits[1]) == ["out_of_bounds"]
    assert rig.answers(commits[2]) == [m.Done(commits[2])]
    assert rig.answers(seek) == [m.Done(seek)]
    assert cursors(rig, topic) == [3]


@pytest.mark.parametrize("present", [True, False])
def test_a_group_that_has_begun_reads_a_new_partition_from_its_first_record(present: bool):
    """Also one that begins at the end, as its members do, and what came there while it had none."""
    rig = Rig()
    topic = rig.topic(partitions=1)
    rig.produce(topic, [b"x"])
    a = rig.join(topic, "g", "a", start=m.LATEST)
    assert rig.assigned(a) == {0: (1, 1)}
    if not present:
        rig.ask(m.Leave, a.session)
    rig.ask(m.AlterTopic, topic, {}, 3, peer="other")
    for number in range(3):
        rig.produce(topic, [b"y"], number)
    new = rig.join(topic, "new", "a", start=m.LATEST)
    assert rig.assigned(new) == {0: (1, 2), 1: (1, 1), 2: (1, 1)}
    if not present:
        a = rig.join(topic, "g", "b", start=m.LATEST)
    assert rig.assigned(a) == {0: (1 if present else 2, 1), 1: (1, 0), 2: (1, 0)}
    rig.restart(clean=False)
    again = rig.join(topic, "g", "c", start=m.LATEST)
    assert {number: offset for number, (_, offset) in rig.assigned(again).items()} == {0: 1, 1: 0, 2: 0}
