"""Void records: two columns against a dict, and queue groups that pass them over."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.queues.voids import Voids
from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from support.dedup import SECOND, assert_replays, failure, keyed, opened, repeats, void
from support.engine import START_US, Rig


@pytest.mark.parametrize("seed", range(5))
def test_voids_are_what_a_dict_would_be(seed: int):
    chance, voids, model = random.Random(seed), Voids(), dict[int, int]()
    for _ in range(300):
        pairs = [(chance.randint(0, 500), chance.randint(0, 500)) for _ in range(chance.randint(0, 4))]
        pairs = [(offset, task if task != offset else task + 1) for offset, task in pairs]
        voids.add(pairs)
        model.update({offset: task for offset, task in pairs if model.get(offset) != offset})
        deleted = chance.randint(0, 500)
        if chance.random() < 0.3:
            voids.delete([(deleted, 3)])
            model.update({offset: offset for offset in range(deleted, deleted + 3)})
        if chance.random() < 0.05:
            first = chance.randint(0, 100)
            voids.forget_below(first)
            model = {offset: task for offset, task in model.items() if offset >= first}
        low, high = sorted((chance.randint(-10, 520), chance.randint(-10, 520)))
        assert voids.between(low, high) == sorted(offset for offset in model if low <= offset < high)
        some = np.array(chance.sample(range(501), chance.randint(0, 40)), np.int64)
        assert voids.among(some).tolist() == sorted(offset for offset in some.tolist() if offset in model)
        gone = [offset for offset in sorted(model) if model[offset] == offset and low <= offset < high]
        assert voids.deleted(low, high).tolist() == gone
        assert voids.count(low, high) == len(voids.between(low, high))
        assert voids.beyond(low) == next(offset for offset in range(low, 1000) if offset not in model)
        assert [voids.task_of(offset) for offset in range(501)] == [model.get(offset, -1) for offset in range(501)]
        assert (len(voids), 7 in voids) == (len(model), 7 in model)
        voids = Voids.load(voids.dump())


def test_records_that_repeat_an_earlier_one_are_told_from_those_that_a_later_one_replaced():
    voids = Voids()
    voids.add([(10, 3), (11, 15), (12, 11)])
    assert voids.repeats(10, 3) == [(0, 3), (2, 11)]
    assert voids.repeats(11, 1) == []
    assert voids.repeats(13, 5) == []


# -- with queue groups ----------------------------------------------------------------------------


def test_no_group_works_on_a_repetition_and_none_counts_it_as_ready():
    rig = Rig()
    topic = rig.topic()
    assert rig.lease(topic, group="g").runs == []
    repeats(rig, topic, b"a", b"a", b"b", b"a", b"a")
    (queue,) = rig.ask(m.SetQueue, topic, "g", {}).queues
    assert queue.partitions[0].ready == 2
    assert rig.lease(topic, group="g", most=9).runs == [(0, 1, 1), (2, 1, 1)]
    assert rig.lease(topic, group="g", most=9).runs == []
    assert rig.lease(topic, group="later", most=1).runs == [(0, 1, 1)]
    assert rig.lease(topic, group="later", most=1).runs == [(2, 1, 1)]
    assert rig.lease(topic, group="later", most=1).runs == []


def test_a_lease_in_the_write_of_the_records_takes_what_is_no_repetition():
    rig = Rig()
    topic = rig.topic()
    lease, produced = rig.next_request(), rig.next_request()
    rig.send(m.Lease(lease, topic, "g", "w", 5, wait_ms=1000))
    rig.send(m.Produce(produced, topic, 0), keyed([b"a", b"a", b"b"]))
    rig.turn()
    assert [each.runs for each in rig.answers(lease)] == [[(0, 1, 1), (2, 1, 1)]]
    assert_replays(rig)


def test_a_record_is_not_lost_whose_replacement_did_not_fit_on_the_disk():
    """A lease in the same flush passed the old record over, and must fail with what made it void."""
    rig = Rig()
    topic = rig.topic(dedup="replace")
    repeats(rig, topic, b"a", b"b")
    log = opened(rig).log
    append = log.append

    def full(batches: Any, now_us: int) -> Any:
        if any(len(batch) > 2000 for batch in batches):
            raise StorageFull("no space left")
        return append(batches, now_us)

    log.append = full
    assert rig.lease(topic, group="other").runs == [(0, 1, 1)], "small effects do fit"
    rig.settle(topic, m.Settle(0, rig.port.sent[-1][1].token, 3), group="other")
    large = bytes(encode([b"x" * 3000], dedup=[b"a"]))
    produced, lease = rig.next_request(), rig.next_request()
    rig.send(m.Produce(produced, topic, 0), large)
    rig.send(m.Lease(lease, topic, "g", "w", 1, wait_ms=0))
    rig.turn()
    assert [failure(each) for each in rig.answers(produced)] == ["storage_full"]
    log.append = append
    found = [run for each in rig.answers(lease) if isinstance(each, m.Leased) for run in each.runs]
    while (leased := rig.lease(topic, group="g", most=1)).runs:
        found += leased.runs
    assert sorted(found) == [(0, 1, 1), (1, 1, 1)]


def test_a_long_stretch_of_repetitions_is_passed_in_one_step():
    rig = Rig()
    topic = rig.topic()
    rig.lease(topic)
    repeats(rig, topic, *[b"same"] * 5000)
    rig.lease(topic)
    looked: list[tuple[int, int]] = []
    voids = opened(rig).proposed.voids
    between = voids.between
    voids.between = lambda first, end: looked.append((first, end)) or between(first, end)
    assert rig.lease(topic).runs == []
    assert sum(end - first for first, end in looked) < 10
    repeats(rig, topic, b"new")
    assert rig.lease(topic).runs == [(5000, 1, 1)]


@pytest.mark.parametrize("how", ["delayed", "urgent", "plain"])
def test_void_and_cancelled_records_are_passed_over_once_and_the_place_is_logged(how: str):
    """A key that is replaced again and again before it is due, and workers that ask all the time."""
    rig = Rig()
    topic = rig.topic(dedup="replace" if how == "delayed" else "drop", dedup_window_s=3600)
    rig.lease(topic, most=1)
    repeats(rig, topic, b"a")
    assert rig.lease(topic, most=9).runs == [(0, 1, 1)]
    columns: dict[str, Any] = {"priorities": [3] * 500} if how == "urgent" else {}
    for _ in range(4):
        if how == "delayed":
            columns = {"not_before": [rig.now.wall_us + SECOND] * 500}
        payload = bytes(encode([b"v"] * 500, dedup=[b"a"] * 500, **columns))
        assert isinstance(rig.ask(m.Produce, topic, 0, payload=payload), m.Produced)
        rig.pass_time(0.5)
    rig.pass_time(0.4)
    seq = opened(rig).log.written
    assert rig.lease(topic, most=9).runs == []
    assert opened(rig).log.written == seq + 1
    looked: list[int] = []
    voids = opened(rig).proposed.voids
    between = voids.between
    voids.between = lambda first, end: looked.append(end - first) or between(first, end)
    assert rig.lease(topic, most=9).runs == []
    assert (sum(looked), opened(rig).log.written) == (0, seq + 1)
    assert_replays(rig)
    repeats(rig, topic, b"b")
    rig.pass_time(5)
    expected = [(2000, 2, 1)] if how == "delayed" else [(2001, 1, 1)]
    assert rig.lease(topic, most=9).runs == expected


@pytest.mark.parametrize("end", ["leased", "finished", "dead"])
def test_replace_leaves_a_record_alone_that_was_begun_and_both_are_tried(end: str):
    rig = Rig()
    topic = rig.topic(dedup="replace")
    repeats(rig, topic, b"a")
    opened(rig).propose(fx.QueueSet("g", {}, 0))
    opened(rig).propose(fx.QueueSet("other", {}, 0))
    opened(rig).propose(fx.LeaseGranted("g", 1, "w", rig.now.wall_us + SECOND, [(0, 1, 1)], 1))
    if end == "finished":
        opened(rig).propose(fx.TasksFinished("g", 1))
    if end == "dead":
        opened(rig).propose(fx.TasksDied("g", 1, [(0, 1, 1)], "why"))
    assert repeats(rig, topic, b"a") == []
    assert void(rig) == []
    assert repeats(rig, topic, b"a") == []
    assert void(rig) == [1], "the newer one holds the key now"


@pytest.mark.parametrize(
    "how", [{"priorities": [3]}, {"not_before": [START_US + 3600 * SECOND]}], ids=["urgent", "delayed"]
)
@pytest.mark.parametrize("taken", [False, True], ids=["on its shelf", "taken from it"])
def test_replace_makes_a_record_void_that_the_frontier_passed_while_it_is_on_its_shelf(taken: bool, how: Any):
    rig = Rig()
    topic = rig.topic(dedup="replace")
    rig.ask(m.Produce, topic, 0, payload=bytes(encode([b"v"], dedup=[b"a"], **how)))
    repeats(rig, topic, b"b")
    found, level = opened(rig), how.get("priorities", [0])[0]
    found.propose(fx.QueueSet("g", {}, 0))
    cursors = [(level, 1, how["not_before"][0], 0) if "not_before" in how else (level, 1, 0, -1)] if taken else []
    runs = [(0, 2, 1)] if taken else [(1, 1, 1)]
    found.propose(fx.LeaseGranted("g", 1, "w", rig.now.wall_us + SECOND, runs, 2, cursors))
    found.propose(fx.TasksFinished("g", 1))
    assert repeats(rig, topic, b"a") == []
    assert void(rig) == ([] if taken else [0])
    assert_replays(rig)


def test_replace_takes_a_waiting_record_from_its_group_in_whatever_order_the_log_has_it():
    rig = Rig()
    topic = rig.topic(dedup="replace")
    repeats(rig, topic, b"a")
    found = opened(rig)
    found.propose(fx.QueueSet("g", {}, 0))
    found.propose(fx.LeaseGranted("g", 1, "w", rig.now.wall_us + SECOND, [(0, 1, 1)], 1))
    rig.turn()
    # Both in one flush: the return is decided first and stands behind the record, at the end of the flush.
    found.propose(fx.TasksReturned("g", 1, [(0, 1, 1, 0)], "failed"))
    assert repeats(rig, topic, b"a") == []
    assert void(rig) == [0]
    for state in (found.proposed, found.committed):
        assert not len(state.queues.by_name["g"].retrying)
    assert_replays(rig)


def test_a_copy_of_the_void_records_goes_its_own_way():
    voids = Voids()
    voids.add([(3, 9), (5, 9)])
    copy = voids.copy()
    copy.add([(4, 8)])
    voids.forget_below(4)
    assert (copy.between(0, 9), voids.between(0, 9)) == ([3, 4, 5], [5])
    assert [copy.task_of(offset) for offset in (3, 4, 5)] == [9, 8, 9]
