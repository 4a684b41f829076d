"""Stream groups: joining, hand-over, fences, cursors, lag, expiry, and what administrators do."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.transport import messages as m
from support.engine import Rig


def failure(answer: object) -> str:
    assert isinstance(answer, m.Failure), answer
    return answer.code


def filled(partitions: int = 1, records: int = 10, **config: Any) -> tuple[Rig, bytes]:
    """A node with a topic whose partitions hold `records` records each."""
    rig = Rig(**config)
    topic = rig.topic(partitions=partitions)
    for partition in range(partitions):
        for number in range(records):
            rig.produce(topic, [b"%d-%d" % (partition, number)], partition)
    return rig, topic


def commit(rig: Rig, joined: m.Joined, topic: bytes, partition: int, offset: int, epoch: int | None = None) -> Any:
    if epoch is None:
        epoch = rig.assigned(joined)[partition][0]
    return rig.ask(m.Commit, joined.session, topic, "g", [m.Position(partition, offset, epoch)])


def group(rig: Rig, topic: bytes, name: str = "g") -> m.Group:
    return next(each for each in rig.ask(m.ListGroups, topic).groups if each.group == name)


# -- joining ----------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_with_its_answer():
    rig, topic = filled(partitions=3)
    joined = rig.join(topic, "g", "a")
    assert [(a.partition, a.epoch, a.offset) for a in joined.assignments] == [(0, 1, 0), (1, 1, 0), (2, 1, 0)]
    assert len(rig.received(joined)) == 30


def test_a_member_is_answered_only_when_its_ownership_is_durable():
    rig, topic = filled()
    rig.store.hold = True
    request = rig.next_request()
    rig.send(m.Join(request, topic, "g", "a", "push", -1, [], 10_000, 1 << 20, 1 << 20))
    rig.turn()
    assert rig.answers(request) == []
    assert rig.port.delivered == []
    rig.sync()
    (joined,) = rig.answers(request)
    assert len(joined.assignments) == 1
    assert len(rig.received(joined)) == 10


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"delivery": "pigeon"}, "invalid_request"),
        ({"start": -3}, "invalid_request"),
        ({"group": ".g"}, "invalid_request"),
        ({"member": ""}, "invalid_request"),
        ({"positions": [(0, 1)]}, "invalid_request"),
    ],
)
def test_a_join_that_cannot_be_is_refused_and_opens_nothing(change: dict[str, Any], code: str):
    rig, topic = filled()
    how: dict[str, Any] = {"group": "g", "member": "a", **change}
    assert failure(rig.join(topic, how.pop("group"), how.pop("member"), **how)) == code
    assert rig.port.open == set()


def test_positions_of_a_reader_on_its_own_are_checked():
    rig, topic = filled(partitions=2)
    answer = rig.join(topic, positions=[(1, 11)])
    assert (failure(answer), answer.offset) == ("out_of_bounds", 10)
    assert failure(rig.join(topic, positions=[(7, 0)])) == "unknown_partition"
    joined = rig.join(topic, positions=[(1, 8)], start=m.LATEST)
    assert {a.partition: a.offset for a in joined.assignments} == {0: 10, 1: 8}
    assert rig.received(joined) == [b"1-8", b"1-9"]


@pytest.mark.parametrize(("start", "expected"), [(m.EARLIEST, 0), (m.LATEST, 10), (0, 0), (1 << 60, 10)])
def test_a_group_without_a_cursor_starts_where_it_was_told(start: int, expected: int):
    rig, topic = filled()
    assert rig.join(topic, "g", "a", start=start).assignments[0].offset == expected


def test_a_start_by_time_is_the_first_record_of_that_time():
    rig, topic = filled(records=3)
    rig.pass_time(5)
    at = rig.now.wall_us
    rig.produce(topic, [b"later"])
    assert rig.join(topic, "g", "a", start=at).assignments[0].offset == 3


def test_a_group_that_started_at_the_end_loses_nothing_when_its_member_dies_before_the_first_commit():
    rig, topic = filled(session_timeout_min_s=1.0)
    rig.join(topic, "g", "a", start=m.LATEST, timeout_ms=1000)
    rig.produce(topic, [b"new"])
    rig.pass_time(3)
    joined = rig.join(topic, "g", "b", start=m.LATEST)
    assert rig.received(joined) == [b"new"]


def test_joining_again_under_the_same_name_replaces_the_older_session():
    rig, topic = filled()
    old = rig.join(topic, "g", "a", peer="one")
    new = rig.join(topic, "g", "a", peer="two")
    assert rig.told(old.session)[-1].code == "session_replaced"
    assert new.assignments[0].epoch == 2
    assert rig.port.open == {new.session}
    assert failure(commit(rig, old, topic, 0, 5, epoch=1)) == "unknown_session"


# -- cursors ----------------------------------------------------------------------------------------


def test_a_cursor_is_durable_and_the_next_owner_goes_on_from_it():
    rig, topic = filled()
    joined = rig.join(topic, "g", "a")
    assert commit(rig, joined, topic, 0, 4) == m.Done(rig._request)
    for clean in (True, False):
        rig.restart(clean=clean)
        again = rig.join(topic, "g", "b")
        assert [a.offset for a in again.assignments] == [4]
        assert rig.received(again)[0] == b"0-4"


def test_a_commit_is_answered_only_when_it_is_durable():
    rig, topic = filled()
    joined = rig.join(topic, "g", "a")
    rig.store.hold = True
    request = rig.next_request()
    rig.send(m.Commit(request, joined.session, topic, "g", [m.Position(0, 4, 1)]))
    rig.turn()
    assert rig.answers(request) == []
    assert group(rig, topic).partitions[0].cursor == -1
    rig.sync()
    assert rig.answers(request) == [m.Done(request)]


def test_all_commits_of_a_turn_are_one_batch_per_partition():
    rig, topic = filled(partitions=2)
    joined = rig.join(topic, "g", "a")
    before = [log.written for log in rig.node.logs[1:]]
    requests = []
    for offset in (1, 2, 3):
        requests.append(rig.next_request())
        positions = [m.Position(0, offset, 1), m.Position(1, offset, 1)]
        rig.send(m.Commit(requests[-1], joined.session, topic, "g", positions))
    rig.turn()
    assert [log.written for log in rig.node.logs[1:]] == [seq + 1 for seq in before]
    assert [rig.answers(request) for request in requests] == [[m.Done(request)] for request in requests]
    assert [p.cursor for p in group(rig, topic).partitions] == [3, 3]


@pytest.mark.parametrize(
    ("positions", "code"),
    [
        ([m.Position(0, 11, 1)], "out_of_bounds"),
        ([m.Position(0, 5, 1), m.Position(1, 99, 1)], "out_of_bounds"),
        ([m.Position(0, 5, 2)], "fenced"),
        ([m.Position(0, 5, 1), m.Position(1, 5, 0)], "fenced"),
        ([m.Position(0, 5, 1), m.Position(9, 5, 1)], "unknown_partition"),
    ],
)
def test_a_commit_moves_all_its_cursors_or_none(positions: list[m.Position], code: str):
    rig, topic = filled(partitions=2)
    joined = rig.join(topic, "g", "a")
    assert failure(rig.ask(m.Commit, joined.session, topic, "g", positions)) == code
    assert [p.cursor for p in group(rig, topic).partitions] == [-1, -1]


def test_a_session_commits_only_for_its_own_group():
    rig, topic = filled()
    joined = rig.join(topic, "g", "a")
    other = rig.ask(m.Commit, joined.session, topic, "other", [m.Position(0, 1, 1)])
    assert failure(other) == "unknown_session"
    alone = rig.join(topic)
    assert failure(rig.ask(m.Commit, alone.session, topic, "", [m.Position(0, 1, 1)])) == "unknown_session"


def test_lag_is_exact_and_never_missing():
    rig, topic = filled(partitions=2)
    joined = rig.join(topic, "g", "a")
    assert [(p.cursor, p.lag) for p in group(rig, topic).partitions] == [(-1, 10), (-1, 10)]
    commit(rig, joined, topic, 0, 7)
    rig.produce(topic, [b"x", b"y"], 0)
    assert [(p.cursor, p.end, p.lag, p.member) for p in group(rig, topic).partitions] == [
        (7, 12, 5, "a"),
        (-1, 10, 10, "a"),
    ]


# -- hand-over --------------------------------------------------------------------------------------


def test_a_new_member_gets_its_share_when_the_owner_has_finished_and_released():
    rig, topic = filled(partitions=4, records=2)
    a = rig.join(topic, "g", "a")
    b = rig.join(topic, "g", "b")
    assert b.assignments == []
    (asked,) = [message for message in rig.told(a.session) if isinstance(message, m.Assigned)]
    assert (asked.assignments, len(asked.revoked)) == ([], 2)
    for partition in asked.revoked:
        assert commit(rig, a, topic, partition, 1, epoch=1).request, "the owner may commit until it releases"
    rig.send(m.Release(a.session, asked.revoked))
    rig.turn()
    assert rig.assigned(b) == dict.fromkeys(asked.revoked, (2, 1))
    assert sorted(rig.assigned(a)) == sorted(set(range(4)) - set(asked.revoked))
    assert failure(commit(rig, a, topic, asked.revoked[0], 2, epoch=1)) == "fenced"
    assert sorted(rig.received(b)) == sorted(b"%d-1" % partition for partition in asked.revoked)


def test_nothing_more_is_sent_of_a_partition_that_was_asked_back():
    rig, topic = filled(partitions=2, records=1)
    a = rig.join(topic, "g", "a")
    rig.join(topic, "g", "b")
    (revoked,) = rig.told(a.session)[-1].revoked
    rig.produce(topic, [b"late"], revoked)
    rig.produce(topic, [b"kept"], 1 - revoked)
    assert rig.received(a)[-1] == b"kept"
    assert b"late" not in rig.received(a)


def test_what_is_not_released_is_taken_after_the_deadline_and_fenced():
    rig, topic = filled(partitions=2, records=1, handover_s=5.0)
    a = rig.join(topic, "g", "a", timeout_ms=60_000)
    b = rig.join(topic, "g", "b", timeout_ms=60_000)
    (revoked,) = rig.told(a.session)[-1].revoked
    rig.pass_time(4.5)
    assert rig.assigned(b) == {}
    rig.pass_time(1)
    assert rig.assigned(b) == {revoked: (2, 0)}
    assert failure(commit(rig, a, topic, revoked, 1, epoch=1)) == "fenced"


def test_a_leave_hands_everything_over_at_once():
    rig, topic = filled(partitions=2, records=1)
    a = rig.join(topic, "g", "a")
    rig.join(topic, "g", "b")
    assert rig.ask(m.Leave, a.session).request
    assert sorted(group(rig, topic).members) == [("b", 0)]
    assert [p.member for p in group(rig, topic).partitions] == ["b", "b"]
    assert len(rig.port.open) == 1
    assert rig.ask(m.Leave, a.session).request, "leaving twice is fine"


def test_members_that_stay_keep_what_they_have_without_a_new_epoch():
    rig, topic = filled(partitions=4, records=1)
    a = rig.join(topic, "g", "a")
    b = rig.join(topic, "g", "b")
    rig.send(m.Release(a.session, rig.told(a.session)[-1].revoked))
    rig.turn()
    kept = rig.assigned(a)
    rig.ask(m.Leave, b.session)
    assert {p: rig.assigned(a)[p] for p in kept} == kept
    assert sorted(rig.assigned(a)) == [0, 1, 2, 3]


def test_a_release_of_what_was_not_asked_back_changes_nothing():
    rig, topic = filled(partitions=2)
    a = rig.join(topic, "g", "a")
    rig.send(m.Release(a.session, [0, 1, 7]))
    rig.turn()
    assert [p.member for p in group(rig, topic).partitions] == ["a", "a"]
    assert commit(rig, a, topic, 0, 3).request


def test_epochs_go_on_after_a_restart():
    rig, topic = filled()
    a = rig.join(topic, "g", "a")
    for epoch, clean in ((2, True), (3, False)):
        rig.restart(clean=clean)
        again = rig.join(topic, "g", "a")
        assert again.assignments[0].epoch == epoch
        assert failure(commit(rig, again, topic, 0, 1, epoch=a.assignments[0].epoch)) == "fenced"


# -- sessions ---------------------------------------------------------------------------------------


def test_a_silent_member_is_evicted_and_what_it_did_not_commit_is_read_again_under_a_new_epoch():
    rig, topic = filled(records=3)
    a = rig.join(topic, "g", "a", timeout_ms=2000)
    commit(rig, a, topic, 0, 1)
    b = rig.join(topic, "g", "b", timeout_ms=60_000)
    rig.pass_time(1.5)
    assert rig.assigned(b) == {}
    rig.pass_time(1.5)
    assert rig.told(a.session)[-1].code == "session_expired"
    assert rig.assigned(b) == {0: (2, 1)}
    assert rig.received(b) == [b"0-1", b"0-2"]
    assert failure(commit(rig, a, topic, 0, 3, epoch=1)) == "unknown_session"


@pytest.mark.parametrize("sign", ["ping", "credit", "commit"])
def test_signs_of_life_keep_a_session(sign: str):
    rig, topic = filled()
    a = rig.join(topic, "g", "a", timeout_ms=1000)
    for _ in range(8):
        rig.pass_time(0.75)
        if sign == "ping":
            assert rig.ask(m.Ping, a.session).request
        elif sign == "credit":
            rig.send(m.Credit(a.session, 1, 1))
        else:
            commit(rig, a, topic, 0, 1)
    assert [name for name, _ in group(rig, topic).members] == ["a"]


def test_a_broker_that_was_stopped_does_not_hold_its_own_silence_against_members():
    rig, topic = filled()
    a = rig.join(topic, "g", "a", timeout_ms=2000)
    rig.pass_time(1)
    rig.pass_time(60, step=60)
    assert rig.ask(m.Ping, a.session).request
    rig.pass_time(1)
    assert commit(rig, a, topic, 0, 1).request


def test_messages_for_a_session_of_an_earlier_start_say_so():
    rig, topic = filled()
    a = rig.join(topic, "g", "a")
    rig.restart()
    b = rig.join(topic, "g", "b")
    assert a.session != b.session
    rig.send(m.Credit(a.session, 1, 1))
    assert rig.told(a.session)[-1].code == "unknown_session"
    assert failure(rig.ask(m.Ping, a.session)) == "unknown_session"


def test_sessions_are_bounded():
    rig, topic = filled(max_sessions=2)
    rig.join(topic), rig.join(topic)
    assert failure(rig.join(topic)) == "limit_reached"
    assert len(rig.port.open) == 2


# -- seeking ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "g"])
def test_a_seek_is_a_new_epoch_and_is_told_before_it_is_answered(name: str):
    rig, topic = filled()
    joined = rig.join(topic, name, "a")
    before = len(rig.received(joined))
    request = rig.next_request()
    rig.send(m.SeekTo(request, joined.session, 0, 8))
    rig.turn()
    assigned, done = [message for _, message, _ in rig.port.sent][-2:]
    assert [(a.partition, a.epoch, a.offset) for a in assigned.assignments] == [(0, 2, 8)]
    assert done == m.Done(request)
    assert rig.received(joined)[before:] == [b"0-8", b"0-9"]
    assert rig.deliveries(joined)[-1][0].epoch == 2


def test_a_commit_from_before_a_seek_is_fenced():
    rig, topic = filled()
    joined = rig.join(topic, "g", "a")
    rig.ask(m.SeekTo, joined.session, 0, 2)
    assert failure(commit(rig, joined, topic, 0, 9, epoch=1)) == "fenced"
    assert commit(rig, joined, topic, 0, 3, epoch=2).request


@pytest.mark.parametrize(("partition", "offset", "code"), [(0, 11, "out_of_bounds"), (3, 0, "unknown_partition")])
def test_a_seek_out_of_range_changes_nothing(partition: int, offset: int, code: str):
    rig, topic = filled()
    joined = rig.join(topic, "g", "a")
    answer = rig.ask(m.SeekTo, joined.session, partition, offset)
    assert failure(answer) == code
    assert commit(rig, joined, topic, 0, 1, epoch=1).request


def test_only_the_reader_of_a_partition_seeks_in_it():
    rig, topic = filled()
    rig.join(topic, "g", "a")
    b = rig.join(topic, "g", "b")
    assert failure(rig.ask(m.SeekTo, b.session, 0, 0)) == "fenced"


# -- administration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time_us", "positions", "expected"),
    [
        (m.EARLIEST, [], [0, 0]),
        (m.LATEST, [], [10, 10]),
        (0, [], [0, 0]),
        (m.EARLIEST, [(1, 6)], [-1, 6]),
    ],
)
def test_an_idle_group_is_reset(time_us: int, positions: list[tuple[int, int]], expected: list[int]):
    rig, topic = filled(partitions=2)
    a = rig.join(topic, "g", "a")
    rig.ask(m.Leave, a.session)
    assert rig.ask(m.ResetGroup, topic, "g", time_us, positions).request
    assert [p.cursor for p in group(rig, topic).partitions] == expected


def test_a_group_with_members_is_neither_reset_nor_deleted_nor_committed_for():
    rig, topic = filled()
    rig.join(topic, "g", "a")
    assert failure(rig.ask(m.ResetGroup, topic, "g", m.EARLIEST, [])) == "group_active"
    assert failure(rig.ask(m.DeleteGroup, topic, "g")) == "group_active"
    assert failure(rig.ask(m.Commit, 0, topic, "g", [m.Position(0, 1, 0)])) == "group_active"


def test_an_administrator_commits_for_an_idle_group_and_thereby_makes_it():
    rig, topic = filled()
    assert rig.ask(m.Commit, 0, topic, "fresh", [m.Position(0, 6, 0)]).request
    assert rig.join(topic, "fresh", "a").assignments[0].offset == 6


def test_a_deleted_group_is_forgotten_for_good():
    rig, topic = filled(partitions=2)
    a = rig.join(topic, "g", "a")
    commit(rig, a, topic, 1, 5)
    rig.ask(m.Leave, a.session)
    assert rig.ask(m.DeleteGroup, topic, "g").request
    for clean in (True, False):
        assert rig.ask(m.ListGroups, b"").groups == []
        rig.restart(clean=clean)
    assert rig.join(topic, "g", "a").assignments[1].offset == 0


def test_an_unknown_group_is_named():
    rig, topic = filled()
    assert failure(rig.ask(m.ResetGroup, topic, "unknown", -1, [])) == "unknown_group"
    assert failure(rig.ask(m.DeleteGroup, topic, "unknown")) == "unknown_group"


def test_an_abandoned_group_expires_by_a_logged_effect_and_one_with_members_does_not():
    rig, topic = filled(group_expiry_s=100.0, housekeeping_s=10.0)
    rig.ask(m.Commit, 0, topic, "old", [m.Position(0, 6, 0)])
    rig.join(topic, "g", "a", timeout_ms=300_000)
    rig.pass_time(150, step=0.9)
    assert [each.group for each in rig.ask(m.ListGroups, b"").groups] == ["g"]
    rig.restart(clean=False)
    assert [each.group for each in rig.ask(m.ListGroups, b"").groups] == ["g"]


def test_members_are_listed_with_the_time_since_they_were_last_seen():
    rig, topic = filled()
    rig.join(topic, "g", "a", timeout_ms=60_000)
    rig.pass_time(3)
    assert group(rig, topic).members == [("a", 3000)]


def test_a_seek_that_is_committed_after_its_partition_was_asked_back_does_not_revive_it():
    rig, topic = filled(partitions=2)
    a = rig.join(topic, "g", "a")
    rig.store.hold = True
    seeks = {partition: rig.next_request() for partition in range(2)}
    for partition, request in seeks.items():
        rig.send(m.SeekTo(request, a.session, partition, 0))
    rig.turn()
    rig.send(m.Join(rig.next_request(), topic, "g", "b", "push", -1, [], 10_000, 1 << 20, 1 << 20))
    rig.turn()
    (revoked,) = rig.told(a.session)[-1].revoked
    before = len(rig.deliveries(a))
    rig.store.hold = False
    rig.sync()
    told = rig.told(a.session)[-1]
    assert ([each.epoch for each in told.assignments], told.revoked) == ([2, 2], [revoked])
    assert {message.partition for message, _ in rig.deliveries(a)[before:]} == {1 - revoked}
    assert commit(rig, a, topic, revoked, 5, epoch=2).request, "it may still commit what it has finished"


def test_members_that_come_meanwhile_do_not_give_the_owner_more_time():
    rig, topic = filled(partitions=3, records=1, handover_s=5.0)
    rig.join(topic, "g", "a", timeout_ms=60_000)
    b = rig.join(topic, "g", "b", timeout_ms=60_000)
    rig.pass_time(3)
    rig.join(topic, "g", "c", timeout_ms=60_000)
    rig.pass_time(2.5)
    assert len(rig.assigned(b)) == 1
