"""Beginning a group: the first request decides, for all partitions or visibly for none."""

from __future__ import annotations

import random

import pytest
from penstock.transport import messages as m
from support.engine import MemoryStore, Rig
from support.files import Disk, RecordingFiles


def filled(partitions: int = 3, **how: object) -> tuple[Rig, bytes]:
    rig = Rig(**how)  # type: ignore[arg-type]
    topic = rig.topic(partitions=partitions)
    for partition in range(partitions):
        for _ in range(10):
            rig.produce(topic, [b"x"], partition)
    return rig, topic


def begin(rig: Rig, topic: bytes, *positions: tuple[int, int], group: str = "g") -> list[tuple[int, int]]:
    answer = rig.ask(m.BeginGroup, topic, group, list(positions))
    assert isinstance(answer, m.Begun), answer
    return answer.positions


def cursors(rig: Rig, topic: bytes, group: str = "g") -> list[int]:
    found = rig.ask(m.ListGroups, topic).groups
    return next(([part.cursor for part in each.partitions] for each in found if each.group == group), [])


def test_the_first_decides_and_the_next_is_told_what_was_decided():
    rig, topic = filled()
    assert begin(rig, topic, (2, 7), (0, 5), (1, 6)) == [(5, 1), (6, 1), (7, 1)]
    assert begin(rig, topic, (0, 1), (1, 1), (2, 1)) == [(5, 1), (6, 1), (7, 1)]
    rig.restart()
    assert begin(rig, topic, (0, 1), (1, 1), (2, 1)) == [(5, 1), (6, 1), (7, 1)]
    assert cursors(rig, topic) == [5, 6, 7]


def test_a_cursor_that_moved_on_is_what_is_told():
    rig, topic = filled(2)
    begin(rig, topic, (0, 0), (1, 10))
    rig.ask(m.Commit, 0, topic, "g", [m.Position(0, 9, 0)])
    assert begin(rig, topic, (0, 0), (1, 0)) == [(9, 1), (10, 1)]


def test_partitions_that_came_later_begin_at_their_first_record():
    rig, topic = filled(1)
    assert begin(rig, topic, (0, 10)) == [(10, 1)]
    rig.ask(m.AlterTopic, topic, {}, 2)
    rig.produce(topic, [b"x"], 1)
    assert begin(rig, topic, (0, 10), (1, 1)) == [(10, 1), (0, 0)]


def test_nothing_is_answered_before_it_is_committed():
    rig, topic = filled()
    rig.store.hold = True
    first = rig.next_request()
    rig.send(m.BeginGroup(first, topic, "g", [(0, 1), (1, 1), (2, 1)]))
    second = rig.next_request()
    rig.send(m.BeginGroup(second, topic, "g", [(0, 2), (1, 2), (2, 2)]))
    rig.turn()
    assert rig.answers(first) == rig.answers(second) == []
    rig.sync()
    rig.sync()
    assert [answer.positions for request in (first, second) for answer in rig.answers(request)] == [[(1, 1)] * 3] * 2


WANTED = [(0, 3), (1, 4), (2, 5)]
AGAIN = [(0, 9), (1, 9), (2, 9)]


@pytest.mark.parametrize("how", ["none", "some", "all"])
@pytest.mark.parametrize("steps", range(5))
def test_a_power_cut_leaves_all_cursors_or_a_group_that_has_not_begun(steps: int, how: str):
    """Cut after so many syncs of one log at a time; of what was not synced the disk has kept none, some or all."""
    for seed in range(5):
        chance = random.Random(seed)
        files = RecordingFiles()
        rig, topic = filled(store=MemoryStore(files))
        rig.store.hold = True
        request = rig.next_request()
        rig.send(m.BeginGroup(request, topic, "g", WANTED))
        rig.turn()
        for log in [*chance.sample(rig.node.logs[1:], 3), rig.node.logs[1]][:steps]:
            log.sync()
            rig.turn()
        answered = [answer.positions for answer in rig.answers(request)]
        again = Rig(MemoryStore(cut(files, chance, how)))
        found = cursors(again, topic) or [-1, -1, -1]
        assert found[0] == -1 or found == [3, 4, 5], "the lowest partition is moved last"
        assert not answered or found == [3, 4, 5]
        told = begin(again, topic, *AGAIN)
        assert told == [(offset if offset >= 0 else 9, told[0][1]) for offset in found]
        assert [offset for offset, _ in told] == cursors(again, topic)
        assert begin(again, topic, (0, 0), (1, 0), (2, 0)) == told


def cut(files: RecordingFiles, chance: random.Random, how: str) -> RecordingFiles:
    """What the disk has after a power cut."""
    disk = Disk(files)
    for operation in files.journal:
        disk.apply(operation)
    return RecordingFiles(disk.image(chance, how), sorted(files.directories))


def test_a_group_half_begun_is_completed_by_a_repeated_request():
    rig, topic = filled()
    rig.ask(m.Commit, 0, topic, "g", [m.Position(1, 4, 0)])  # as a crash leaves it: the lowest has no cursor
    assert begin(rig, topic, (0, 7), (1, 8), (2, 9)) == [(7, 1), (4, 1), (9, 1)]


def test_groups_of_which_the_lowest_partition_has_a_cursor_are_left_alone():
    rig, topic = filled()
    rig.ask(m.Commit, 0, topic, "g", [m.Position(0, 4, 0)])
    assert begin(rig, topic, (0, 7), (1, 8), (2, 9)) == [(4, 1), (0, 0), (0, 0)]
    assert begin(rig, topic, (1, 8), (2, 9)) == [(4, 1), (8, 1), (9, 1)], "of those named it is the lowest"


@pytest.mark.parametrize(
    ("positions", "code"),
    [
        ([], "invalid_request"),
        ([(3, 0)], "unknown_partition"),
        ([(0, 11)], "out_of_bounds"),
        ([(0, 0), (2, 99)], "out_of_bounds"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(positions: list[tuple[int, int]], code: str):
    rig, topic = filled()
    assert rig.ask(m.BeginGroup, topic, "g", positions).code == code
    assert cursors(rig, topic) == []


def test_names_and_kinds_of_groups_are_held_to():
    rig, topic = filled()
    assert rig.ask(m.BeginGroup, topic, "a/b", [(0, 0)]).code == "invalid_request"
    rig.lease(topic, "q")
    assert rig.ask(m.BeginGroup, topic, "q", [(0, 0)]).code == "invalid_request"
    assert rig.ask(m.BeginGroup, bytes(16), "g", [(0, 0)]).code == "unknown_topic"


def test_a_group_with_members_has_its_own_ways():
    rig, topic = filled()
    rig.join(topic, "g", "m")
    assert rig.ask(m.BeginGroup, topic, "g", [(0, 0)]).code == "group_active"


def test_on_a_poisoned_log_nothing_begins():
    rig, topic = filled()
    rig.node._registry.topics.get(topic).partition(2).log.poison("a test")
    assert rig.ask(m.BeginGroup, topic, "g", [(0, 0), (2, 0)]).code == "poisoned"


def test_random_asks_at_once_agree():
    chance = random.Random(9)
    for _ in range(100):
        rig, topic = filled(2)
        asked = [rig.next_request() for _ in range(chance.randint(2, 5))]
        for request in asked:
            rig.send(m.BeginGroup(request, topic, "g", [(0, chance.randint(0, 10)), (1, chance.randint(0, 10))]))
            if chance.random() < 0.5:
                rig.turn(1)
        rig.turn()
        told = [tuple(answer.positions) for request in asked for answer in rig.answers(request)]
        assert len(told) == len(asked)
        assert len(set(told)) == 1
