"""What queue groups still need of a log."""

from __future__ import annotations

import numpy as np
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.entry import Entry
from penstock.broker.engine.tables.producers import Place
from penstock.broker.engine.tables.queues.placing import Placed
from penstock.broker.engine.tables.queues.queue import ShelfCursor
from penstock.broker.engine.tables.queues.settings import parse
from penstock.broker.engine.tables.queues.shelves import Shelves
from penstock.broker.engine.tables.queues.unfinished import delayed, most_delayed, shelved, unfinished, untouched
from penstock.broker.engine.tables.state import PartitionState


def state() -> PartitionState:
    """Group a: 0 is done, 1 waits, 2 is dead, 3 and 4 are leased, 5 is held; group b has not begun at 6."""
    found = PartitionState()
    found.effect(fx.QueueSet("a", parse({"dead_topic": "graves"}).named(), 0), 1)
    found.effect(fx.QueueSet("b", parse({}).named(), 6), 1)
    found.effect(fx.LeaseGranted("a", 1, "w", 9, [(0, 5, 1)], 8, held=[(5, 77)]), 2)
    found.effect(fx.TasksFinished("a", 1, [(0, 1)]), 3)
    found.effect(fx.TasksReturned("a", 1, [(1, 1, 1, 500)], "no"), 3)
    found.effect(fx.TasksDied("a", 1, [(2, 1, 1)], "no"), 3)
    return found


def keep(found: PartitionState, offsets: list[int], seq: int) -> None:
    """A batch of records that are carried forward."""
    found.apply(Entry(Place(0, 0, seq=seq), kept=np.array(offsets)), 0)


def test_untouched_records_are_one_number():
    assert untouched(state().queues, Shelves(), 20) == 6
    assert untouched(PartitionState().queues, Shelves(), 20) == 20


def test_what_is_open_stands_in_tables():
    assert unfinished(state()).tolist() == [1, 2, 3, 4, 5]
    assert unfinished(PartitionState()).tolist() == []


def test_what_has_to_cross_is_open_though_no_group_has_it():
    found = state()
    found.effect(fx.TasksDiscarded("a", [(2, 1)]), 4)
    assert 2 in unfinished(found)
    found.effect(fx.OutboxMoved([(1, 1)]), 5)
    assert 2 not in unfinished(found)


def test_what_was_kept_is_forgotten_when_the_log_begins_later_and_no_group_has_it_open():
    found = state()
    keep(found, [0, 2, 3], 40)
    found.effect(fx.FirstOffset(6), 5)
    assert [found.kept.seq(offset) for offset in range(4)] == [0, 0, 40, 40]


def test_what_is_ahead_of_the_log_forgets_nothing_that_is_kept():
    found = state()
    keep(found, [2, 3], 40)
    ahead = found.copy()
    ahead.effect(fx.TasksDiscarded("a", [(2, 1)]), 5)
    ahead.effect(fx.OutboxMoved([(1, 1)]), 5)
    ahead.effect(fx.FirstOffset(6), 5)
    assert [found.kept.seq(offset) for offset in (2, 3)] == [40, 40]


def test_what_was_carried_before_the_log_came_to_it_stays_kept():
    found = state()
    found.shelves.add(Placed(np.array([6, 9]), np.array([0, 0], np.uint8), np.array([500, 600])))
    keep(found, [6, 9], 40)
    found.effect(fx.FirstOffset(8), 5)
    assert [found.kept.seq(offset) for offset in (6, 9)] == [40, 40]
    assert found.shelves.time_of(6) == 500


def test_a_void_record_on_a_shelf_is_forgotten_with_its_place_in_the_log():
    found = state()
    found.shelves.add(Placed(np.array([6, 7]), np.array([0, 0], np.uint8), np.array([500, 600])))
    keep(found, [6, 7], 40)
    found.effect(fx.KeysSeen([9], [b"k" * 16], 99, [(7, 9)]), 4)
    ahead = found.copy()
    ahead.effect(fx.FirstOffset(8), 5)
    assert ahead.voids.between(7, 8) == [7]
    found.effect(fx.FirstOffset(8), 5)
    assert [found.kept.seq(offset) for offset in (6, 7)] == [40, 0]
    assert shelved(found.queues.by_name["a"], found.shelves, 100).tolist() == [6]


def test_what_is_ahead_of_the_log_sees_what_is_kept_when_it_is_committed():
    found = state()
    ahead = found.copy()
    keep(ahead, [2], 0)
    assert not ahead.kept
    keep(found, [2], 40)
    assert ahead.kept.seq(2) == 40


def test_records_on_a_shelf_are_needed_until_they_are_taken_or_cancelled():
    found = state()
    found.shelves.add(Placed(np.array([1, 3, 6, 7]), np.array([0, 9, 9, 0], np.uint8), np.array([500, 0, 0, 600])))
    a, b = found.queues.by_name["a"], found.queues.by_name["b"]
    assert shelved(a, found.shelves, 100).tolist() == [1, 3, 6, 7]
    assert delayed(a, found.shelves, found.voids, 100).tolist() == [1, 7]
    assert delayed(a, found.shelves, found.voids, 7).tolist() == [1]
    assert delayed(b, found.shelves, found.voids, 100).tolist() == [7]
    assert most_delayed(found.queues, found.shelves, 100) >= 3
    assert untouched(found.queues, found.shelves, 100) == 3, "the lowest of those with a priority"
    a.cursors[0] = ShelfCursor(0, 500, 1)
    a.cursors[9] = ShelfCursor(6)
    assert delayed(a, found.shelves, found.voids, 100).tolist() == [7]
    assert untouched(found.queues, found.shelves, 100) == 6
    for group in "ab":
        found.queues.by_name[group].cursors[9] = ShelfCursor(7)
    assert untouched(found.queues, found.shelves, 100) == 8, "delayed ones are passed by"
    found.effect(fx.TasksCancelled("a", [7]), 9)
    assert delayed(a, found.shelves, found.voids, 100).tolist() == []


def test_what_is_void_or_cancelled_at_the_frontier_holds_back_nothing():
    found = state()
    found.effect(fx.TasksCancelled("b", [6, 9]), 4)
    found.effect(fx.TasksCancelled("a", [9]), 4)
    found.effect(fx.KeysSeen([20], [b"k" * 16], 99, [(7, 20), (8, 20)]), 4)
    assert untouched(found.queues, found.shelves, 100) == 10
    found.shelves.add(Placed(np.array([10, 12]), np.array([9, 9], np.uint8), np.array([0, 0])))
    found.effect(fx.TasksCancelled("a", [10]), 4)
    assert untouched(found.queues, found.shelves, 100) == 10, "group b has yet to take it"
    found.effect(fx.TasksCancelled("b", [10]), 4)
    assert untouched(found.queues, found.shelves, 100) == 11


def test_a_cancelled_record_is_forgotten_once_the_log_begins_behind_it():
    found = state()
    found.shelves.add(Placed(np.array([6, 9]), np.array([0, 0], np.uint8), np.array([500, 600])))
    keep(found, [6], 40)
    for group in ("a", "b"):
        found.effect(fx.TasksCancelled(group, [6, 7, 9]), 4)
    ahead = found.copy()
    ahead.effect(fx.FirstOffset(8), 5)
    assert ahead.queues.by_name["b"].cancelled == {6, 7, 9}, "the shelves still have record 6"
    found.effect(fx.FirstOffset(8), 5)
    assert found.queues.by_name["b"].cancelled == {9}
    ahead.effect(fx.FirstOffset(9), 6)
    assert ahead.queues.by_name["b"].cancelled == {9}
