"""Trimming on request: partitions begin at an exact record, and nothing that is open before it holds them."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.tables import effects as fx
from penstock.transport import messages as m
from penstock.transport.queue_messages import Verb
from support.dead import die, set_queue
from support.engine import Rig
from support.staging import partition_of, portion, stage

RECORDS, OFFSET, TIME = m.TrimRule
BIG = b"x" * 20_000  # three of them fill a segment of 64 KiB


def filled(count: int = 12, **settings: Any) -> tuple[Rig, bytes]:
    """A topic with one record a second, three of which fill a segment."""
    rig = Rig(housekeeping_s=5.0)
    topic = rig.topic(segment_bytes=64 << 10, **settings)
    fill(rig, topic, count)
    return rig, topic


def fill(rig: Rig, topic: bytes, count: int) -> None:
    for number in range(count):
        rig.produce(topic, [b"%02d" % number + BIG])
        rig.pass_time(1)


def trim(rig: Rig, topic: bytes, rule: int, value: int, partition: int = -1) -> Any:
    answer = rig.ask(m.Trim, topic, rule, value, partition)
    return answer if isinstance(answer, m.Failure) else answer.partitions


def segments(rig: Rig, topic: bytes) -> int:
    path = rig.store.directory(topic, 0)
    return len([name for name in rig.store.files.contents if name.startswith(path) and name.endswith(".segment")])


def numbers(rig: Rig, topic: bytes) -> list[int]:
    return [int(value[:2]) for value in rig.read(topic)]


# -- where it begins ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "value", "first"),
    [
        (RECORDS, 5, 7),
        (RECORDS, 0, 12),
        (RECORDS, 12, 0),
        (RECORDS, 100, 0),
        (OFFSET, 7, 7),
        (OFFSET, 0, 0),
        (OFFSET, 12, 12),
        (TIME, m.EARLIEST, 0),
        (TIME, m.LATEST, 12),
    ],
)
def test_a_partition_begins_at_the_exact_record(rule: int, value: int, first: int):
    rig, topic = filled()
    assert trim(rig, topic, rule, value) == [m.TrimmedPartition(0, 0, first, [])]
    assert rig.partition(topic).first == first
    assert numbers(rig, topic) == list(range(first, 12))
    if first:
        answer = rig.fetch(topic, first - 1)
        assert (answer.code, answer.offset) == ("out_of_bounds", first)
    for clean in (False, True):
        rig.restart(clean=clean)
        assert (rig.partition(topic).first, numbers(rig, topic)) == (first, list(range(first, 12)))


def test_what_is_older_than_a_time_goes():
    rig, topic = filled()
    time_us = partition_of(rig, topic).time_at(7)
    assert trim(rig, topic, TIME, time_us)[0].first == 7
    assert trim(rig, topic, TIME, time_us + 1)[0].first == 8


def test_a_beginning_never_moves_back():
    rig, topic = filled()
    trim(rig, topic, OFFSET, 7)
    assert trim(rig, topic, OFFSET, 3) == [m.TrimmedPartition(0, 7, 7, [])]
    assert trim(rig, topic, RECORDS, 9) == [m.TrimmedPartition(0, 7, 7, [])]
    assert rig.partition(topic).first == 7


def test_each_partition_is_trimmed_or_one_of_them():
    rig = Rig()
    topic = rig.topic(partitions=3)
    for partition in range(3):
        rig.produce(topic, [b"x"] * (partition + 2), partition)
    assert [(each.partition, each.first) for each in trim(rig, topic, RECORDS, 2)] == [(0, 0), (1, 1), (2, 2)]
    assert [(each.partition, each.first) for each in trim(rig, topic, RECORDS, 0, 1)] == [(1, 3)]
    assert [rig.partition(topic, number).first for number in range(3)] == [0, 3, 2]


def test_it_is_answered_when_it_is_durable_and_counts_what_is_committed():
    rig, topic = filled()
    rig.store.hold = True
    assert rig.ask(m.Produce, topic, 0, payload=b"") is not None
    rig.send(m.Trim(77, topic, RECORDS, 2))
    rig.send(m.Trim(78, topic, OFFSET, 3))
    rig.turn()
    assert rig.answers(77) == rig.answers(78) == []
    assert rig.partition(topic).first == 0
    rig.store.hold = False
    rig.sync()
    (first,), (second,) = rig.answers(77), rig.answers(78)
    assert [each.partitions[0].first for each in (first, second)] == [10, 10]
    assert second.partitions[0].before == 10


@pytest.mark.parametrize(
    ("rule", "value", "partition", "code"),
    [
        (3, 1, -1, "invalid_request"),
        (RECORDS, -1, -1, "invalid_request"),
        (OFFSET, -1, -1, "invalid_request"),
        (TIME, -3, -1, "invalid_request"),
        (RECORDS, 1, -2, "invalid_request"),
        (RECORDS, 1, 1, "unknown_partition"),
        (OFFSET, 4, -1, "out_of_bounds"),
        (OFFSET, 4, 0, "out_of_bounds"),
        (OFFSET, 1 << 40, 0, "out_of_bounds"),
    ],
)
def test_what_means_nothing_is_refused(rule: int, value: int, partition: int, code: str):
    rig, topic = filled(3)
    assert trim(rig, topic, rule, value, partition).code == code
    assert rig.partition(topic).first == 0


def test_nothing_is_trimmed_where_an_offset_is_behind_the_end_of_one_partition():
    rig = Rig()
    topic = rig.topic(partitions=2)
    rig.produce(topic, [b"x"] * 5, 0)
    rig.produce(topic, [b"x"] * 3, 1)
    answer = trim(rig, topic, OFFSET, 4)
    assert (answer.code, "before offset 4: 0 to its end 3 can be" in answer.message) == ("out_of_bounds", True)
    assert [rig.partition(topic, number).first for number in range(2)] == [0, 0]
    assert [each.first for each in trim(rig, topic, OFFSET, 3)] == [3, 3]


def test_nothing_is_trimmed_where_one_partition_cannot_be_written():
    rig = Rig()
    topic = rig.topic(partitions=2)
    for partition in range(2):
        rig.produce(topic, [b"x"] * 4, partition)
    log = partition_of(rig, topic, 1).log
    log.poisoned_by(OSError("no"))
    assert trim(rig, topic, RECORDS, 1).code == "poisoned"
    assert rig.partition(topic, 0).first == 0
    assert trim(rig, topic, RECORDS, 1, 0)[0].first == 3


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", ["durable", "written"])
def test_whole_segments_go_though_nothing_more_is_written(commit: str):
    rig, topic = filled(commit=commit)
    assert segments(rig, topic) == 4
    trim(rig, topic, OFFSET, 7)
    rig.pass_time(30)
    assert segments(rig, topic) == 2, "6 to 8, and 9 to 11"
    assert numbers(rig, topic) == list(range(7, 12))
    rig.restart(clean=False)
    assert numbers(rig, topic) == list(range(7, 12))
    trim(rig, topic, RECORDS, 0)
    rig.pass_time(30)
    assert segments(rig, topic) == 1
    assert rig.produce(topic, [b"next"]).offset == 12


def test_retention_goes_on_from_a_beginning_inside_of_a_segment():
    rig, topic = filled(retention_records=4)
    trim(rig, topic, OFFSET, 10)
    assert rig.partition(topic).first == 10
    for number in range(12, 24):
        rig.produce(topic, [b"%02d" % number + BIG])
    rig.pass_time(30)
    assert rig.partition(topic).first == 18
    assert numbers(rig, topic) == list(range(18, 24))


def test_what_is_staged_is_published_all_the_same():
    rig, topic = filled()
    stage(rig, topic, [b"20"])
    assert trim(rig, topic, RECORDS, 0)[0].first == 12
    rig.pass_time(30)
    assert portion(rig, topic).batches, "its segment stays"


# -- groups ---------------------------------------------------------------------------------------


def test_what_queue_groups_have_not_finished_is_lost_and_counted():
    rig, topic = filled(6)
    set_queue(rig, topic, max_attempts=1)
    die(rig, topic, [0])
    leased = rig.lease(topic, most=3)
    assert leased.runs == [(1, 3, 1)]
    rig.settle(topic, m.Settle(0, leased.token, 0, [(2, 1)]))
    (found,) = trim(rig, topic, OFFSET, 5)
    assert found.lost == [("g", 4)], "0 is dead, 1 and 3 are leased, 4 is untouched; 2 is done"
    assert rig.queue(topic).dead == rig.queue(topic).in_flight == 0
    assert rig.settle(topic, m.Settle(0, leased.token, 0))[0].code == "lease_lost"
    assert rig.ask(m.ExtendLeases, topic, "g", [(0, leased.token)]).lost == [(0, leased.token)]
    assert rig.ask(m.AskTask, topic, "g", 0, 1).code == "task_forgotten"
    assert rig.lease(topic, most=9).runs == [(5, 1, 1)]
    rig.restart(clean=False)
    assert rig.queue(topic).in_flight == 1


def test_the_rest_of_a_lease_stays_with_its_worker():
    rig, topic = filled(6)
    leased = rig.lease(topic, most=4)
    assert trim(rig, topic, OFFSET, 2)[0].lost == [("g", 2)]
    assert rig.ask(m.ExtendLeases, topic, "g", [(0, leased.token)]).lost == []
    assert rig.settle(topic, m.Settle(0, leased.token, 1, [(0, 4)], 0, "no")) == []
    assert rig.lease(topic, most=9).runs == [(2, 2, 2), (4, 2, 1)]


@pytest.mark.parametrize("verb", list(Verb))
def test_a_lease_without_an_end_is_settled_by_its_worker_though_records_are_gone(verb: Verb):
    rig, topic = filled(6)
    set_queue(rig, topic, lease_s=None, max_attempts=None, dead_topic="dead", order="key")
    leased = rig.lease(topic, most=4)
    assert trim(rig, topic, OFFSET, 2)[0].lost == [("g", 2)]
    assert trim(rig, topic, OFFSET, 3)[0].lost == [("g", 1)], "0 and 1 are gone already"
    rig.restart(clean=False)
    assert rig.queue(topic).in_flight == 4
    settled = rig.ask(m.SettleRecords, topic, "g", verb, [(0, offset) for offset in (0, 1, 3)])
    assert settled.count == 3
    queue = partition_of(rig, topic).committed.queues.by_name["g"]
    assert [list(lease.runs()) for lease in queue.leases.values()] == [[(2, 1, 1)]]
    assert {*queue.retrying, *queue.dead_letters} <= {3}
    assert [entry.offset for entry in partition_of(rig, topic).committed.outbox.entries.values()] in ([], [3])
    assert rig.settle(topic, m.Settle(0, leased.token, verb)) == []
    rig.restart(clean=False)
    assert rig.queue(topic).in_flight == 0


def test_a_claim_names_leased_records_that_are_gone_and_they_are_pending_no_longer():
    rig, topic = filled(6)
    set_queue(rig, topic, lease_s=None, max_attempts=None)
    rig.lease(topic, most=4)
    trim(rig, topic, OFFSET, 2)
    pending = rig.ask(m.ListPending, topic, "g", 0, 9)
    assert sum(run.count for run in pending.runs) == 4
    claimed = rig.ask(lambda *fields: m.Claim(*fields, max_records=9), topic, "g", "other", 0)
    assert (claimed.gone, claimed.runs) == ([0, 1], [(2, 2, 2)])
    assert rig.queue(topic).in_flight == 2


def test_segments_of_records_that_are_gone_are_removed():
    rig, topic = filled(12)
    set_queue(rig, topic, lease_s=None, max_attempts=None)
    rig.lease(topic, most=9)
    before = segments(rig, topic)
    trim(rig, topic, OFFSET, 9)
    for _ in range(4):
        fill(rig, topic, 6)
    assert segments(rig, topic) <= before + 6
    assert not partition_of(rig, topic).committed.kept, "nothing is carried forward for them"


def test_what_is_delayed_or_urgent_goes_too():
    rig = Rig()
    topic = rig.topic()
    late_us = rig.now.wall_us + 10_000_000
    rig.produce(topic, [b"0", b"1", b"2", b"3"], priorities=[0, 5, 0, 7], not_before=[late_us, 0, 0, 0])
    set_queue(rig, topic)
    assert trim(rig, topic, OFFSET, 3)[0].lost == [("g", 3)]
    assert rig.queue(topic).ready == 1
    rig.pass_time(20)
    assert rig.lease(topic, most=9).runs == [(3, 1, 1)]
    assert rig.queue(topic).delayed == 0


def test_a_lease_of_the_same_moment_takes_nothing_that_goes():
    """Shelves are changed when a trim is committed, and nothing may be taken from them until then."""
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"0", b"1", b"2"], priorities=[5, 5, 5])
    set_queue(rig, topic)
    rig.store.hold = True
    rig.send(m.Trim(77, topic, OFFSET, 2))
    rig.node.tick(rig.now)
    rig.send(m.Lease(78, topic, "g", "w", 9))
    rig.send(m.Lease(79, topic, "new", "w", 9))
    rig.store.hold = False
    rig.sync()
    assert rig.answers(78)[0].runs == rig.answers(79)[0].runs == [(2, 1, 1)]


def test_duplicates_that_groups_skip_are_not_counted():
    rig = Rig()
    topic = rig.topic()
    set_queue(rig, topic)
    rig.produce(topic, [b"0", b"1", b"2", b"3"], dedup=[b"a", b"a", b"", b"b"])
    rig.ask(m.CancelTask, topic, "g", 0, 2)
    assert trim(rig, topic, OFFSET, 4)[0].lost == [("g", 2)]


def test_a_delayed_record_that_another_replaced_is_not_counted():
    rig = Rig()
    topic = rig.topic(dedup="replace")
    set_queue(rig, topic)
    late_us = rig.now.wall_us + 3_600_000_000
    rig.produce(topic, [b"0", b"1"], dedup=[b"a", b"b"], not_before=[late_us, late_us])
    rig.produce(topic, [b"2"], dedup=[b"a"])
    assert trim(rig, topic, OFFSET, 3)[0].lost == [("g", 2)]


def test_nothing_is_remembered_of_what_was_trimmed_and_all_of_the_rest():
    rig, topic = filled(9)
    set_queue(rig, topic)
    partition, until_us = partition_of(rig, topic), rig.now.wall_us + 60_000_000
    for effect in (
        fx.LeaseGranted("g", 1, "w", until_us, [(1, 4, 1)], 7, held=[(0, 70), (5, 75), (6, 76)], keys=[71, 72, 73, 74]),
        fx.TasksReturned("g", 1, [(1, 1, 1, 0), (3, 1, 1, 0)], "failed"),
        fx.LeaseGranted("g", 2, "w", until_us, [(1, 1, 2), (3, 1, 2)], 7, keys=[71, 73]),
        fx.LeasesExtended("g", [1, 2], until_us, [(2, b"p2"), (3, b"p3"), (4, b"p4")]),
        fx.TasksCancelled("g", [2, 3, 7, 8]),
        fx.TasksCancelled("g", [0]),
    ):
        partition.propose(effect)
    trim(rig, topic, OFFSET, 3)
    queue = partition.committed.queues.by_name["g"]
    first, second = (queue.leases[token] for token in (1, 2))
    assert [list(lease.runs()) for lease in (first, second)] == [[(4, 1, 1)], [(3, 1, 2)]]
    assert (first.keys, second.keys) == ({4: 74}, {3: 73})
    assert list(second.history) == [3]
    assert (queue.held, queue.progress) == ({5: 75, 6: 76}, {3: b"p3", 4: b"p4"})
    assert (queue.cancelling, queue.cancelled) == ({3}, {7, 8})
    trim(rig, topic, OFFSET, 8)
    assert (queue.leases, queue.held, queue.progress, queue.cancelled) == ({}, {}, {}, {8})


def test_groups_of_consumers_begin_where_the_partition_does():
    rig, topic = filled(6)
    joined = rig.join(topic, "readers", "m")
    position = m.Position(0, 2, rig.assigned(joined)[0][0])
    rig.ask(m.Commit, joined.session, topic, "readers", [position])
    assert trim(rig, topic, OFFSET, 5)[0].lost == [("readers", 3)]
    (group,) = rig.ask(m.ListGroups, topic).groups
    assert (group.partitions[0].lag, group.partitions[0].first) == (1, 5)


def test_a_reader_that_is_behind_goes_on_at_the_beginning():
    rig, topic = filled(6)
    joined = rig.join(topic, credit=(1, 1))
    assert len(rig.received(joined)) < 5
    trim(rig, topic, OFFSET, 5)
    rig.send(m.Credit(joined.session, 1 << 20, 1 << 20))
    rig.turn()
    assert [value[:2] for value in rig.received(joined)[-1:]] == [b"05"]
    assert rig.deliveries(joined)[-1][0].offset == 5


def test_a_task_that_is_waited_for_is_told_at_once():
    rig, topic = filled(3)
    leased = rig.lease(topic)
    request = rig.next_request()
    rig.send(m.AskTask(request, topic, "g", 0, 0, 60_000))
    rig.turn()
    assert rig.answers(request) == []
    trim(rig, topic, OFFSET, 2)
    assert rig.answers(request)[0].code == "task_forgotten"
    assert leased.runs == [(0, 1, 1)]


@pytest.mark.parametrize("cold", [False, True])
def test_a_lease_whose_records_went_before_its_answer_gives_way_to_others(cold: bool):
    """Both were committed by one batch, or the records had to be read from the disk meanwhile."""
    rig, topic = filled(5)
    set_queue(rig, topic)
    rig.port.cold = [] if cold else None
    rig.send(m.Lease(77, topic, "g", "w", 3))
    if cold:
        rig.turn()
    rig.send(m.Trim(78, topic, OFFSET, 2))
    for _ in range(3):
        rig.node.tick(rig.now)
    rig.turn()
    if rig.port.cold is not None:
        (token,), rig.port.cold = rig.port.cold, None
        assert rig.answers(77) == []
        rig.node.warmed(token)
        rig.turn()
    assert rig.answers(78)[0].partitions[0].lost == [("g", 2)]
    assert rig.answers(77)[0].runs == [(2, 3, 1)]
    assert rig.queue(topic).in_flight == 3


def test_records_that_were_carried_forward_are_given_up():
    rig, topic = filled(0, retention_s=5.0)
    set_queue(rig, topic, carry_after_s=60.0)
    fill(rig, topic, 12)
    die(rig, topic, [0, 1])
    rig.settle(topic, m.Settle(0, rig.lease(topic, most=10).token, 0))
    rig.produce(topic, [b"12"])
    rig.pass_time(120)
    kept = partition_of(rig, topic).committed.kept
    rig.ask(m.RedriveDead, topic, "g", [(0, 1)])
    leased = rig.lease(topic)
    assert leased.runs == [(1, 1, 1)], "it is given though the partition begins later"
    rig.settle(topic, m.Settle(0, leased.token, 2))
    assert kept.seq(0)
    assert kept.seq(1)
    first = rig.partition(topic).first
    assert trim(rig, topic, OFFSET, 1) == [m.TrimmedPartition(0, first, first, [("g", 1)])], "it begins later already"
    assert not kept.seq(0)
    assert kept.seq(1), "its group still has it"
    assert trim(rig, topic, OFFSET, 1)[0].lost == []
    assert list(partition_of(rig, topic).committed.queues.by_name["g"].dead_letters) == [1]


def test_copies_for_a_dead_letter_topic_that_cannot_be_made_are_given_up():
    rig, topic = filled(6)
    rig.topic("graves")
    set_queue(rig, topic, dead_topic="graves")
    rig.ask(m.DeleteTopic, next(t.topic for t in rig.ask(m.ListTopics, ["graves"]).topics))
    die(rig, topic, [0, 4])
    assert len(partition_of(rig, topic).committed.outbox.entries) == 2
    trim(rig, topic, OFFSET, 4)
    graves = rig.topic("graves")
    rig.pass_time(70, step=1)
    assert [value[:2] for value in rig.read(graves)] == [b"04"]
    assert not partition_of(rig, topic).committed.outbox.entries


def test_a_failed_trim_changes_nothing():
    rig, topic = filled(4)
    set_queue(rig, topic)
    log, append = partition_of(rig, topic).log, partition_of(rig, topic).log.append

    def fail(*_: Any) -> Any:
        raise OSError("no space")

    log.append = fail
    assert trim(rig, topic, OFFSET, 2).code
    log.append = append
    assert rig.partition(topic).first == 0
    assert rig.lease(topic, most=9).runs == [(0, 4, 1)]


def test_the_effect_alone_says_it_all():
    rig, topic = filled(4)
    set_queue(rig, topic)
    partition_of(rig, topic).propose(fx.Trimmed(3))
    rig.turn()
    assert rig.partition(topic).first == 3
    assert rig.lease(topic, most=9).runs == [(3, 1, 1)]
