"""Dead records are given up in time, abandoned groups are deleted, and those that are used stay."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.queues.upkeep import upkeep
from penstock.broker.engine.tables import effects as fx
from penstock.storage.batch import encode
from penstock.transport import messages as m
from penstock.transport import queue_messages as q
from support.dead import die, opened, queue, set_queue
from support.engine import Rig

DAY_S = 86_400.0


def made(partitions: int = 1, **settings: Any) -> tuple[Rig, bytes]:
    """Ten records on each partition and a group that expires after a day of silence."""
    rig = Rig(housekeeping_s=5.0, group_expiry_s=DAY_S, producer_expiry_s=100 * DAY_S)
    topic = rig.topic(partitions=partitions)
    for number in range(partitions):
        rig.produce(topic, [b"%d" % each for each in range(10)], number)
        set_queue(rig, topic, partition=number, **settings)
    return rig, topic


def empty(rig: Rig, topic: bytes) -> None:
    """Remove all records."""
    rig.ask(m.Trim, topic, m.TrimRule.RECORDS, 0)


def groups(rig: Rig, topic: bytes, partition: int = 0) -> list[str]:
    return list(opened(rig, topic, partition).committed.queues.by_name)


# -- dead records ---------------------------------------------------------------------------------


def test_dead_records_are_given_up_after_their_time_and_not_before():
    rig, topic = made(dead_retention_s=100.0)
    die(rig, topic, [1, 2])
    rig.pass_time(50)
    die(rig, topic, [5])
    rig.pass_time(45)
    assert list(queue(rig, topic).dead_letters) == [1, 2, 5]
    rig.pass_time(15)
    assert list(queue(rig, topic).dead_letters) == [5]
    rig.restart(clean=False)
    rig.pass_time(50)
    assert not queue(rig, topic).dead_letters


def test_many_are_given_up_in_portions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(upkeep, "PORTION", 2)
    rig, topic = made(dead_retention_s=100.0)
    die(rig, topic, [1, 2, 3, 7, 8])
    rig.pass_time(99)
    left = []
    for _ in range(4):
        rig.pass_time(5)
        left.append(len(queue(rig, topic).dead_letters))
    assert left == [3, 1, 0, 0]


class Watched(dict[int, Any]):
    """Notes what is looked at."""

    def items(self) -> Any:
        for item in super().items():
            self.looked.append(item[0])
            yield item

    def __init__(self, found: dict[int, Any]) -> None:
        super().__init__(found)
        self.looked: list[int] = []


def test_a_look_at_dead_records_ends_at_the_first_that_stays_and_is_repeated_when_that_is_over():
    rig, topic = made(dead_retention_s=100.0)
    die(rig, topic, [4])
    die(rig, topic, [3])
    books = queue(rig, topic)
    books.dead_letters = watched = Watched(books.dead_letters)
    rig.pass_time(50)
    die(rig, topic, [1, 2])
    rig.pass_time(40)
    assert watched.looked == [4]
    partition, proposed = opened(rig, topic), list[Any]()
    propose, partition.propose = partition.propose, lambda effect: (proposed.append(effect), propose(effect))
    rig.pass_time(20)
    assert watched.looked == [4, 4, 3, 1, 1]
    assert [each.ranges for each in proposed] == [[(3, 2)]]


def test_the_oldest_of_dead_records_are_given_up_also_behind_a_restart():
    rig, topic = made(dead_retention_s=100.0)
    for offset in (7, 3, 5):
        die(rig, topic, [offset])
        rig.pass_time(20)
    rig.restart()
    left = []
    for _ in range(4):
        left.append(sorted(queue(rig, topic).dead_letters))
        rig.pass_time(30 if len(left) == 1 else 20)
    assert left == [[3, 5, 7], [3, 5, 7], [3, 5], [5]]


def test_a_shorter_retention_counts_for_what_is_dead_already():
    rig, topic = made(dead_retention_s=1000.0)
    die(rig, topic, [1])
    rig.pass_time(50)
    assert list(queue(rig, topic).dead_letters) == [1]
    set_queue(rig, topic, dead_retention_s=20.0)
    rig.pass_time(10)
    assert not queue(rig, topic).dead_letters


def test_what_died_again_is_given_up_when_its_new_time_is_up():
    rig, topic = made(dead_retention_s=100.0)
    die(rig, topic, [1])
    rig.pass_time(60)
    rig.ask(q.RedriveDead, topic, "g")
    die(rig, topic, [1])
    rig.pass_time(60)
    assert list(queue(rig, topic).dead_letters) == [1]
    rig.pass_time(50)
    assert not queue(rig, topic).dead_letters


def test_what_is_being_redriven_is_not_given_up_meanwhile():
    rig, topic = made(dead_retention_s=100.0)
    die(rig, topic, [1, 2, 4])
    rig.pass_time(98)
    rig.store.hold = True
    rig.send(q.RedriveDead(rig.next_request(), topic, "g", [(0, 1), (0, 2)]))
    rig.pass_time(10)
    rig.store.hold = False
    rig.sync()
    assert not queue(rig, topic).dead_letters
    rig.settle(topic, m.Settle(0, rig.lease(topic, most=2).token, q.Verb.ACK))
    assert [rig.ask(q.AskTask, topic, "g", 0, at).state for at in (1, 2, 4)] == ["completed", "completed", "discarded"]


def test_a_group_that_is_being_deleted_is_left_alone():
    rig, topic = made(dead_retention_s=100.0)
    die(rig, topic, [1])
    rig.pass_time(98)
    rig.store.hold = True
    rig.send(m.DeleteQueue(rig.next_request(), topic, "g"))
    rig.pass_time(10)
    rig.store.hold = False
    rig.sync()
    assert groups(rig, topic) == []


def test_of_groups_that_are_gone_nothing_is_remembered():
    rig, topic = made(dead_retention_s=100.0)
    for name in ("a", "b", "c"):
        set_queue(rig, topic, name)
        die(rig, topic, [1], name)
        rig.pass_time(10)
        assert name in rig.node._office.queues.upkeep._due[opened(rig, topic)]
        rig.ask(m.DeleteQueue, topic, name)
    rig.pass_time(10)
    assert rig.node._office.queues.upkeep._due == {opened(rig, topic): {}}
    rig.ask(m.DeleteTopic, topic)
    assert rig.node._office.queues.upkeep._due == {}


# -- abandoned groups -----------------------------------------------------------------------------


def test_an_unused_group_of_an_empty_topic_is_deleted_everywhere_and_stays_so():
    rig, topic = made(partitions=2)
    empty(rig, topic)
    rig.pass_time(DAY_S - 100, step=100)
    assert [groups(rig, topic, each) for each in (0, 1)] == [["g"], ["g"]]
    rig.pass_time(300, step=50)
    for _ in range(2):
        assert [groups(rig, topic, each) for each in (0, 1)] == [[], []]
        rig.restart()


def test_a_group_that_is_used_on_one_partition_stays_on_all():
    rig, topic = made(partitions=2)
    rig.pass_time(DAY_S * 0.7, step=100)
    assert rig.ask(q.Lease, topic, "g", "w", 1, 0).runs
    rig.pass_time(DAY_S * 0.7, step=100)
    assert [groups(rig, topic, each) for each in (0, 1)] == [["g"], ["g"]]


def test_a_group_whose_workers_find_nothing_is_renewed_so_that_a_restart_does_not_take_it_for_abandoned():
    rig, topic = made()
    leased = rig.ask(q.Lease, topic, "g", "w", 10)
    rig.ask(q.SettleTasks, topic, "g", [q.Settle(0, leased.token, q.Verb.ACK)])
    for _ in range(15):
        assert rig.ask(q.Lease, topic, "g", "w", 1).runs == []
        rig.pass_time(DAY_S / 10, step=100)
    rig.restart(clean=False)
    rig.pass_time(DAY_S / 5, step=100)
    assert groups(rig, topic) == ["g"]
    assert queue(rig, topic).frontier == 10


def test_a_renewal_leaves_settings_that_are_on_their_way():
    rig, topic = made()
    leased = rig.ask(q.Lease, topic, "g", "w", 10)
    rig.ask(q.SettleTasks, topic, "g", [q.Settle(0, leased.token, q.Verb.ACK)])
    rig.pass_time(DAY_S * 0.4, step=100)
    assert rig.ask(q.Lease, topic, "g", "w", 1).runs == []
    rig.store.hold = True
    rig.send(m.SetQueue(rig.next_request(), topic, "g", {"lease_s": 77.0}))
    rig.pass_time(DAY_S * 0.2, step=100)
    rig.store.hold = False
    rig.sync()
    assert queue(rig, topic).settings.lease_s == 77.0


def test_records_that_are_on_their_way_keep_a_group_that_was_not_used_for_long():
    rig, topic = made()
    empty(rig, topic)
    rig.pass_time(DAY_S - 100, step=100)
    rig.store.hold = True
    rig.send(m.Produce(rig.next_request(), topic, 0), bytes(encode([b"late"])))
    rig.pass_time(300, step=50)
    rig.store.hold = False
    rig.sync()
    assert groups(rig, topic) == ["g"]


def test_a_worker_that_waits_keeps_its_group():
    rig, topic = made()
    leased = rig.ask(q.Lease, topic, "g", "w", 10)
    rig.ask(q.SettleTasks, topic, "g", [q.Settle(0, leased.token, q.Verb.ACK)])
    for _ in range(12):
        rig.send(q.Lease(rig.next_request(), topic, "g", "w", 1, wait_ms=60_000))
        rig.pass_time(DAY_S / 10, step=60)
    assert groups(rig, topic) == ["g"]


def test_asking_does_not_write_more_than_it_takes():
    rig, topic = made()
    leased = rig.ask(q.Lease, topic, "g", "w", 10)
    rig.ask(q.SettleTasks, topic, "g", [q.Settle(0, leased.token, q.Verb.ACK)])
    before = opened(rig, topic).committed.seq
    for _ in range(20):
        rig.ask(q.Lease, topic, "g", "w", 1)
        rig.pass_time(DAY_S / 10, step=100)
    assert opened(rig, topic).committed.seq - before == 3


def test_a_group_that_is_paused_stays():
    rig, topic = made()
    empty(rig, topic)
    until_us = rig.now.wall_us + round(3 * DAY_S * 1e6)
    opened(rig, topic).propose(fx.QueuePaused("g", until_us))
    rig.pass_time(2 * DAY_S, step=200)
    assert groups(rig, topic) == ["g"]
    rig.pass_time(3 * DAY_S, step=200)
    assert groups(rig, topic) == []


@pytest.mark.parametrize("verb", [None, q.Verb.NACK, q.Verb.REJECT, q.Verb.ACK])
def test_a_group_stays_as_long_as_its_topic_has_records(verb: q.Verb | None):
    rig, topic = made(partitions=2, max_attempts=None)
    leased = rig.ask(q.Lease, topic, "g", "w", 1, 0)
    if verb is not None:
        rig.ask(q.SettleTasks, topic, "g", [q.Settle(0, leased.token, verb, delay_ms=0)])
    rig.pass_time(3 * DAY_S, step=100)
    rig.restart(clean=False)
    rig.pass_time(3 * DAY_S, step=100)
    assert [groups(rig, topic, each) for each in (0, 1)] == [["g"], ["g"]]
    empty(rig, topic)
    rig.pass_time(2 * DAY_S, step=100)
    assert [groups(rig, topic, each) for each in (0, 1)] == [[], []]


def test_on_a_damaged_partition_nothing_is_decided():
    rig, topic = made(dead_retention_s=100.0)
    die(rig, topic, [1])
    opened(rig, topic).history.damaged = True
    rig.pass_time(2 * DAY_S, step=200)
    assert list(queue(rig, topic).dead_letters) == [1]
