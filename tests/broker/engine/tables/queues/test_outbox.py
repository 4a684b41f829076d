"""The outbox of a partition: what dies enters it, numbers are never used twice."""

from __future__ import annotations

from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.producers import Place
from penstock.broker.engine.tables.queues.settings import parse
from penstock.broker.engine.tables.state import PartitionState


def state(dead_topic: str = "graves") -> PartitionState:
    """One group whose lease 1 has the records 0 to 9."""
    made = PartitionState()
    made.effect(fx.QueueSet("g", parse({"dead_topic": dead_topic}).named(), 0), 1)
    made.effect(fx.LeaseGranted("g", 1, "w", 100, [(0, 10, 1)], 10), 2)
    made.batch_applied(Place(0, 10, 0, 5, 1, 2))
    return made


def test_what_dies_enters_it_once_in_order_with_what_is_known_of_it():
    found = state()
    found.effect(fx.TasksDied("g", 1, [(2, 2, 3), (7, 1, 1)], "broken"), 50)
    entries = list(found.outbox.entries.values())
    assert [(each.number, each.offset, each.attempt) for each in entries] == [(1, 2, 3), (2, 3, 3), (3, 7, 1)]
    assert {(each.target, each.group, each.time_us, each.reason) for each in entries} == {("graves", "g", 50, "broken")}


def test_without_a_dead_topic_nothing_enters():
    found = state("")
    found.effect(fx.TasksDied("g", 1, [(2, 2, 3)], "broken"), 50)
    assert not found.outbox.entries
    assert len(found.queues.by_name["g"].dead_letters) == 2


def test_what_was_cancelled_meanwhile_is_not_dead_and_does_not_enter():
    found = state()
    found.effect(fx.TasksCancelled("g", [3]), 40)
    found.effect(fx.TasksDied("g", 1, [(2, 2, 3)], "broken"), 50)
    assert [each.offset for each in found.outbox.entries.values()] == [2]


def test_entries_outlive_their_group():
    found = state()
    found.effect(fx.TasksDied("g", 1, [(2, 1, 3)], "broken"), 50)
    found.effect(fx.QueueDeleted("g"), 60)
    assert [each.target for each in found.outbox.entries.values()] == ["graves"]


def test_where_a_copy_goes_is_remembered_until_it_is_there():
    found = state()
    found.effect(fx.TasksDied("g", 1, [(0, 4, 3)], "broken"), 50)
    found.effect(fx.OutboxRouted(b"t" * 16, 7, [(2, 2), (9, 1)]), 60)
    assert [(each.topic, each.partition) for each in found.outbox.entries.values()] == [
        (b"", 0), (b"t" * 16, 7), (b"t" * 16, 7), (b"", 0),
    ]  # fmt: skip
    found.effect(fx.OutboxMoved([(1, 1), (3, 2)]), 70)
    assert list(found.outbox.entries) == [2]
    assert PartitionState.decode(found.encode()).outbox.entries == found.outbox.entries


def test_numbers_go_on_when_it_was_empty_in_a_snapshot():
    found = state()
    found.effect(fx.TasksDied("g", 1, [(0, 4, 3)], "broken"), 50)
    found.effect(fx.OutboxMoved([(1, 4)]), 70)
    again = PartitionState.decode(found.encode())
    again.effect(fx.TasksDied("g", 1, [(5, 1, 3)], "broken"), 80)
    assert list(again.outbox.entries) == [5]
