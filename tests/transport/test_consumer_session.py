"""A consumer hands out what it owns, in order, once, and holds no more than its credit."""

from __future__ import annotations

import pytest
from penstock.transport.consumer_session import NOT_COMMITTED, REMOVED, ConsumerSession
from penstock.transport.credit import CreditWindow
from penstock.transport.errors import DeliveryGap
from penstock.transport.messages import Assigned, Assignment, Credit, Deliver, Joined, Position

SESSION = 77


def joined(*assignments: Assignment) -> Joined:
    return Joined(SESSION, SESSION, "", -1, list(assignments))


def session(*assignments: Assignment, window_bytes: int = 1000, window_records: int = 100) -> ConsumerSession:
    given = assignments or (Assignment(0, 5, 10, 1),)
    return ConsumerSession(joined(*given), window_bytes=window_bytes, window_records=window_records)


def deliver(
    number: int, offset: int, next_offset: int, *, partition: int = 0, epoch: int = 5, end: int = 50
) -> Deliver:
    return Deliver(SESSION, number, partition, epoch, offset, next_offset, end, next_offset - offset)


def spans(deliveries: list) -> list[tuple[int, int, int]]:
    return [(each.partition, each.offset, each.next_offset) for each in deliveries]


def test_deliveries_are_handed_out_and_positions_follow():
    consumer = session()
    (first,) = consumer.receive(deliver(1, 10, 20), b"batch")
    assert (first.offset, first.next_offset, first.payload) == (10, 20, b"batch")
    view = consumer.partitions[0]
    assert (view.committed, view.position, view.fetched, view.lag) == (10, 10, 20, 40)
    consumer.handed_out(first, 15)
    assert (view.position, view.lag) == (15, 35)
    consumer.handed_out(first)
    assert (view.position, view.lag) == (20, 30)
    consumer.handed_out(first, 12)
    assert view.position == 20  # positions never fall


def test_a_lost_delivery_ends_the_session():
    consumer = session()
    consumer.receive(deliver(1, 10, 20), b"")
    with pytest.raises(DeliveryGap, match="delivery 4 came after 1; 2 were lost"):
        consumer.receive(deliver(4, 40, 50), b"")


def test_a_repeated_delivery_and_one_of_another_session_are_dropped():
    consumer = session()
    assert spans(consumer.receive(deliver(1, 10, 20), b"")) == [(0, 10, 20)]
    assert consumer.receive(deliver(1, 10, 20), b"") == []
    assert consumer.receive(Deliver(78, 2, 0, 5, 20, 30, 50, 10), b"") == []
    assert consumer.dropped == 2
    assert consumer.outstanding == (0, 10)  # repeats are not charged twice


def test_a_delivery_of_an_older_epoch_is_dropped_and_its_credit_given_back():
    consumer = session()
    consumer.assigned(Assigned(SESSION, [Assignment(0, 6, 30, 1)], []))
    assert consumer.receive(deliver(1, 10, 20), bytes(600)) == []
    assert consumer.outstanding == (0, 0)
    assert consumer.credit_due() == Credit(SESSION, 1600, 110)
    assert spans(consumer.receive(deliver(2, 30, 40, epoch=6), b"")) == [(0, 30, 40)]


def test_a_delivery_that_overtook_its_assignment_waits_for_it():
    consumer = session()
    assert consumer.receive(deliver(1, 100, 110, partition=1, epoch=3), b"new partition") == []
    assert consumer.receive(deliver(2, 70, 80, epoch=6), b"new epoch") == []
    assert consumer.dropped == 0
    ready = consumer.assigned(Assigned(SESSION, [Assignment(1, 3, 100, 1), Assignment(0, 6, 70, 1)], []))
    assert spans(ready) == [(1, 100, 110), (0, 70, 80)]


def test_waiting_deliveries_of_other_assignments_go_on_waiting():
    consumer = session()
    consumer.receive(deliver(1, 0, 5, partition=1, epoch=1), b"")
    consumer.receive(deliver(2, 0, 5, partition=2, epoch=1), b"")
    assert spans(consumer.assigned(Assigned(SESSION, [Assignment(2, 1, 0, 1)], []))) == [(2, 0, 5)]
    assert spans(consumer.assigned(Assigned(SESSION, [Assignment(1, 1, 0, 1)], []))) == [(1, 0, 5)]


def test_records_already_fetched_are_not_handed_out_twice():
    consumer = session()
    consumer.receive(deliver(1, 10, 20), b"")
    assert spans(consumer.receive(deliver(2, 15, 25), b"")) == [(0, 20, 25)]
    assert consumer.receive(deliver(3, 12, 25), b"") == []


def test_offsets_that_jump_forward_are_missing_because_retention_removed_them():
    consumer = session()
    found = consumer.receive(deliver(1, 30, 40), b"")
    assert (spans(found), [each.missing for each in found]) == ([(0, 10, 30), (0, 30, 40)], [REMOVED, ""])
    assert consumer.partitions[0].fetched == 40


def test_revoked_partitions_are_handed_out_no_more_and_given_back_after_their_commit():
    consumer = session(Assignment(0, 5, 10, 1), Assignment(1, 5, 0, 1))
    (begun,) = consumer.receive(deliver(1, 10, 20), b"")
    (queued,) = consumer.receive(deliver(2, 20, 30), b"")
    consumer.handed_out(begun)
    consumer.assigned(Assigned(SESSION, [], [0, 9]))
    assert consumer.revoked == [0]
    assert not consumer.is_current(queued)
    assert consumer.receive(deliver(3, 30, 40), b"") == []
    assert consumer.to_commit() == [Position(0, 20, 5)]
    release = consumer.release([0])
    assert release.partitions == [0]
    assert list(consumer.partitions) == [1]
    consumer.handed_out(queued)  # too late: it changes nothing
    assert consumer.to_commit() == []


def test_a_partition_that_was_given_back_can_come_again():
    consumer = session()
    consumer.release([0])
    assert consumer.receive(deliver(1, 10, 20), b"") == []
    consumer.assigned(Assigned(SESSION, [Assignment(0, 8, 40, 1)], []))
    assert spans(consumer.receive(deliver(2, 40, 50, epoch=8), b"")) == [(0, 40, 50)]


def test_a_partition_that_was_taken_unreleased_and_comes_back_is_no_seek():
    consumer = session()
    consumer.receive(deliver(1, 10, 20), b"")
    consumer.assigned(Assigned(SESSION, [Assignment(0, 6, 12, 1)], [0]))  # a seek of one that is asked back
    assert (consumer.taken, consumer.partitions[0].committed) == ([], NOT_COMMITTED)
    before = consumer.partitions[0]
    consumer.assigned(Assigned(SESSION, [Assignment(0, 8, 17, 1)], []))
    view = consumer.partitions[0]
    assert consumer.taken == [before]
    assert (view.committed, view.cursor, view.position, view.revoked) == (17, 17, 17, False)
    assert consumer.revoked == []


def test_an_assignment_said_again_or_too_late_changes_nothing():
    consumer = session()
    (ready,) = consumer.receive(deliver(1, 10, 20), b"")
    consumer.handed_out(ready)
    consumer.assigned(Assigned(SESSION, [Assignment(0, 5, 10, 1), Assignment(0, 4, 0, 1)], []))
    assert consumer.partitions[0].position == 20
    consumer.assigned(Assigned(78, [Assignment(0, 9, 0, 1)], []))
    assert consumer.partitions[0].epoch == 5


def test_after_a_seek_the_new_position_can_be_committed_as_it_is():
    consumer = session()
    (old,) = consumer.receive(deliver(1, 10, 20), b"")
    consumer.assigned(Assigned(SESSION, [Assignment(0, 6, 3, 1)], []))
    assert not consumer.is_current(old)
    assert consumer.to_commit() == [Position(0, 3, 6)]
    consumer.committed([Position(0, 3, 6)])
    assert consumer.to_commit() == []


def test_the_cursor_of_the_group_is_known_behind_a_seek():
    consumer = session()
    view = consumer.partitions[0]
    assert (view.committed, view.cursor) == (10, 10)
    consumer.assigned(Assigned(SESSION, [Assignment(0, 6, 3, 1)], []))
    view = consumer.partitions[0]
    assert (view.committed, view.cursor) == (NOT_COMMITTED, 10)
    consumer.committed([Position(0, 12, 5)])
    assert view.cursor == 10
    consumer.committed([Position(0, 12, 6)])
    consumer.committed([Position(0, 4, 6)])
    assert (view.committed, view.cursor) == (12, 4)


def test_commits_of_an_older_epoch_say_nothing_about_the_newer():
    consumer = session()
    (ready,) = consumer.receive(deliver(1, 10, 20), b"")
    consumer.handed_out(ready)
    positions = consumer.to_commit()
    assert positions == [Position(0, 20, 5)]
    consumer.assigned(Assigned(SESSION, [Assignment(0, 6, 15, 1)], []))
    consumer.committed(positions)
    assert consumer.to_commit() == [Position(0, 15, 6)]


def test_a_mapped_member_reads_by_itself_through_the_same_positions():
    consumer = session()
    view = consumer.partitions[0]
    first = consumer.take(view, 10, 30, b"mapped")
    second = consumer.take(view, 35, 40, b"after retention")
    assert spans([first, second]) == [(0, 10, 30), (0, 35, 40)]
    consumer.handed_out(first)
    assert not consumer.finished(first)
    assert (view.fetched, view.lag) == (40, 10)
    assert consumer.to_commit() == [Position(0, 30, 5)]
    assert consumer.credit_due() is None
    assert consumer.positions() == [(0, 30)]


# -- credit ---------------------------------------------------------------------------------------


def test_credit_is_topped_up_when_half_of_the_window_is_used():
    consumer = session(window_bytes=1000, window_records=100)
    (first,) = consumer.receive(deliver(1, 10, 20), bytes(499))
    (second,) = consumer.receive(deliver(2, 20, 30), b"x")
    assert consumer.outstanding == (500, 20)
    assert consumer.credit_due() is None  # received, but still held
    consumer.finished(first)
    assert consumer.credit_due() is None
    consumer.finished(second)
    assert consumer.credit_due() == Credit(SESSION, 1500, 120)
    assert consumer.credit_due() is None
    assert consumer.sign_of_life() == Credit(SESSION, 1500, 120)


def test_records_run_out_of_credit_like_bytes():
    consumer = session(window_bytes=1 << 30, window_records=20)
    (first,) = consumer.receive(deliver(1, 10, 20), b"x")
    consumer.finished(first)
    assert consumer.credit_due() == Credit(SESSION, (1 << 30) + 1, 30)


def test_a_reader_that_never_finishes_is_never_granted_more_than_one_window():
    window = CreditWindow(1, 1000, 10)
    for _ in range(100):
        window.received(10, 1)
        assert window.due() is None
    assert window.current() == Credit(1, 1000, 10)


def test_what_is_granted_and_not_yet_finished_never_exceeds_the_window():
    window = CreditWindow(1, 1000, 1000)
    granted = 1000
    received = 0
    for turn in range(1, 500):
        size = min(37 + turn % 90, granted - received)
        window.received(size, 1)
        received += size
        window.finished(size, 1)
        due = window.due()
        granted = due.total_bytes if due else granted
        assert granted - received <= 1000
    assert received > 10_000
