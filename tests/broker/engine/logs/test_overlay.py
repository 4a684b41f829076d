"""What is proposed to a history, and who is told about it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from penstock.broker.engine.logs import overlay as overlay_module
from penstock.broker.engine.logs.overlay import Overlay
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.entry import Entry
from penstock.broker.engine.tables.producers import Place
from penstock.broker.engine.tables.queues.placing import intake_of
from penstock.broker.engine.tables.state import PartitionState
from penstock.storage.batch import encode, parse, with_effects
from penstock.storage.errors import BatchTooLarge, Poisoned
from support.engine import START_US, Rig


class Told:
    """A waiter that remembers."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def committed(self, place: Place) -> None:
        self.words.append(f"committed {place.seq}")

    def failed(self, error: Any) -> None:
        self.words.append(error.code)


class Ahead(Told):
    """One that answers before what it waits for is applied, if it can."""

    def __init__(self, *, can: bool = True) -> None:
        super().__init__()
        self._can = can

    def answer_ahead(self, place: Place) -> bool:
        self.words += [f"ahead {place.seq}"] if self._can else []
        return self._can


def partition_of(rig: Rig) -> Any:
    rig.topic()
    return next(iter(rig.node._registry.partitions.values()))


def overlay_on(rig: Rig) -> Overlay[PartitionState]:
    """Another overlay over the history of a partition; what is proposed to it is flushed by the test."""
    return Overlay(partition_of(rig).history, lambda _: None)


def propose(overlay: Overlay[PartitionState], waiter: Told, producer_id: int = 9) -> Place:
    place = Place(0, 1)
    overlay.propose_records(bytes(encode([b"x"], producer_id=producer_id)), Entry(place, producer_id), waiter)
    return place


def test_a_new_overlay_begins_with_what_is_in_flight_and_the_waiters_of_the_old_one_hear_nothing():
    rig = Rig()
    old, gone = overlay_on(rig), Told()
    propose(old, gone)
    assert old.flush(rig.now.wall_us)
    propose(old, gone, producer_id=10)  # queued, and lost with the overlay

    new, told = Overlay(old.history, lambda _: None), Told()
    assert list(new.proposed.producers.by_id) == [9]
    assert (new.proposed.end, new.history.committed.end, new.idle) == (1, 0, False)
    new.barrier(told)
    old.log.sync()
    assert new.advance() == 1
    assert (gone.words, told.words, new.idle) == ([], ["committed 1"], True)
    assert not new.flush(rig.now.wall_us)


def test_a_resend_waits_for_the_batch_that_is_queued_and_for_the_one_in_flight():
    rig = Rig()
    overlay, first, queued, in_flight = overlay_on(rig), Told(), Told(), Told()
    place = propose(overlay, first)
    overlay.attach(place, queued)
    overlay.flush(rig.now.wall_us)
    overlay.attach(place, in_flight)
    assert overlay.advance() == 0
    overlay.log.sync()
    assert overlay.advance() == 1
    assert first.words == queued.words == in_flight.words == ["committed 1"]
    with pytest.raises(AssertionError, match="neither proposed nor in flight"):
        overlay.attach(Place(0, 1), Told())


def test_a_barrier_waits_for_the_last_of_what_is_proposed_wherever_it_is():
    rig = Rig()
    overlay, words = overlay_on(rig), list[list[str]]()

    def barrier() -> None:
        told = Told()
        words.append(told.words)
        overlay.barrier(told)

    propose(overlay, Told())
    overlay.flush(rig.now.wall_us)
    barrier()  # for what is in flight
    propose(overlay, Told(), producer_id=10)
    barrier()  # for what is queued
    overlay.propose(fx.CursorMoved("g", 0))
    barrier()  # for the tail behind it
    overlay.flush(rig.now.wall_us)
    overlay.log.sync()
    overlay.advance()
    barrier()  # for nothing
    assert words == [["committed 1"], ["committed 2"], ["committed 3"], ["committed 3"]]


def test_effects_behind_the_queue_stay_proposed_when_another_process_appended_before_it():
    rig = Rig()
    overlay = overlay_on(rig)
    overlay.propose(fx.OwnerSet("g", "m", 1, 0))
    overlay.propose_in_order(fx.ProducersExpired([9]))
    overlay.follow([Entry(Place(0, 1, 0, 1, 1, rig.now.wall_us), 9)], 100)
    assert (overlay.proposed.end, overlay.proposed.groups.get("g").epoch) == (1, 1)


def test_a_log_that_is_poisoned_fails_what_is_in_flight_and_what_is_queued_each_once():
    rig = Rig()
    overlay, in_flight, queued, tail = overlay_on(rig), Told(), Told(), Told()
    propose(overlay, in_flight)
    overlay.flush(rig.now.wall_us)
    propose(overlay, queued, producer_id=10)
    overlay.propose(fx.CursorMoved("g", 0), tail)
    overlay.log.poison("the disk is gone")
    assert overlay.advance() == 0
    assert in_flight.words == queued.words == tail.words == ["poisoned"]
    assert (overlay.idle, overlay.proposed.producers.by_id, overlay.advance()) == (True, {}, 0)


def test_the_proposed_state_is_made_when_it_is_needed_and_anew_after_a_failure():
    rig = Rig()
    overlay = overlay_on(rig)
    assert overlay.latest is overlay.history.committed, "nothing is proposed, and nothing was made for this look"
    overlay.propose_nothing()
    assert overlay.latest is not overlay.history.committed
    propose(overlay, Told())
    made = overlay.proposed
    assert overlay.latest is made is not overlay.history.committed
    overlay.flush(rig.now.wall_us)
    overlay.log.sync()
    overlay.advance()
    assert overlay.proposed is made, "it goes on while nothing fails"
    overlay.abandon(Poisoned("gone"))
    assert overlay.latest is overlay.history.committed
    assert (overlay.proposed is not made, list(overlay.proposed.producers.by_id)) == (True, [9])


def test_of_records_that_come_one_by_one_no_proposed_state_is_made_until_two_are_on_their_way():
    rig = Rig()
    overlay = overlay_on(rig)
    for producer_id in (7, 8):
        propose(overlay, Told(), producer_id)
        overlay.flush(rig.now.wall_us)
        overlay.log.sync()
        overlay.advance()
        assert overlay.latest is overlay.history.committed
    propose(overlay, Told(), 9)
    state = overlay.latest
    assert state is not overlay.history.committed
    propose(overlay, Told(), 10)
    assert list(state.producers.by_id) == [7, 8, 9, 10]
    assert state.producers.by_id[9].last_us == state.producers.by_id[10].last_us == overlay.history.committed.time_us
    assert list(overlay.history.committed.producers.by_id) == [7, 8]
    overlay.flush(rig.now.wall_us)
    assert overlay.latest is state
    overlay.log.sync()
    overlay.advance()
    propose(overlay, Told(), 11)
    assert (overlay.latest is state, 11 in state.producers.by_id) == (True, True), "once made, it goes on"


def test_a_record_that_follows_one_in_flight_is_judged_by_what_that_leads_to():
    rig = Rig()
    overlay = overlay_on(rig)
    propose(overlay, Told(), 7)
    overlay.flush(rig.now.wall_us)
    assert list(overlay.latest.producers.by_id) == [7]
    assert not overlay.history.committed.producers.by_id


def test_an_overlay_counts_what_is_in_flight_with_a_priority():
    rig = Rig()
    overlay, batch = overlay_on(rig), bytes(encode([b"x"], priorities=[7]))
    overlay.propose_records(batch, Entry(Place(0, 1), intake=intake_of(parse(batch))), Told())
    overlay.flush(rig.now.wall_us)
    again = Overlay(overlay.history, lambda _: None)
    assert (overlay.unshelved, again.unshelved) == (1, 1)
    overlay.log.sync()
    again.advance()
    assert again.unshelved == 0


def test_a_batch_may_be_as_large_as_the_log_takes_with_the_effects_beside_it_and_no_larger():
    rig = Rig()
    overlay, batch = overlay_on(rig), bytes(encode([b"x"]))
    seen = fx.KeysSeen([0], [bytes(16)], START_US * 2)
    both = len(with_effects(batch, fx.encode([seen])))

    def take(most: int) -> None:
        overlay.log.options = msgspec.structs.replace(overlay.log.options, max_batch_bytes=most)
        overlay.propose_records(batch, Entry(Place(0, 1), effects=[seen]), Told())

    with pytest.raises(BatchTooLarge, match=f"has {both} bytes, a batch of this log may have {both - 1}"):
        take(both - 1)
    assert (overlay.idle, overlay.proposed.keys.by_digest) == (True, {})
    take(both)
    assert overlay.flush(rig.now.wall_us)
    overlay.log.sync()
    overlay.advance()
    chunk = overlay.log.reader().cursor(0).next()
    assert chunk is not None
    assert fx.decode(chunk.batches[0].effects() or b"") == [seen]


def test_opening_a_node_makes_no_proposed_state():
    rig = Rig()
    overlay_on(rig)
    rig.restart()
    (partition,) = rig.node._registry.partitions.values()
    assert partition.latest is partition.committed


@pytest.mark.parametrize(("effects", "most", "batches"), [(4, 4, [4]), (5, 4, [2, 3]), (3, 1, [1, 1, 1]), (1, 0, [1])])
def test_effects_of_one_flush_share_a_batch_as_far_as_they_fit(
    monkeypatch: pytest.MonkeyPatch, effects: int, most: int, batches: list[int]
):
    rig = Rig()
    overlay, told = overlay_on(rig), Told()
    moves = [fx.CursorMoved("g", number) for number in range(effects)]
    monkeypatch.setattr(overlay_module, "TAIL_BYTES", len(fx.encode(moves[:most])))
    for move in moves:
        overlay.propose(move, told if move is moves[-1] else None)
    assert overlay.flush(rig.now.wall_us)
    assert [len(entry.effects) for entry in overlay.history.in_flight] == batches
    assert [effect for entry in overlay.history.in_flight for effect in entry.effects] == moves
    overlay.log.sync()
    overlay.advance()
    assert told.words == [f"committed {len(batches)}"], "with the last of them"


def test_who_answers_ahead_does_so_once_it_is_committed_and_hears_nothing_more():
    rig = Rig()
    overlay, waiters = overlay_on(rig), [Ahead(), Ahead(), Ahead()]
    for number, waiter in enumerate(waiters[:2]):
        propose(overlay, waiter, producer_id=9 + number)
    overlay.flush(rig.now.wall_us)
    assert not overlay.answer_ahead()
    overlay.log.sync()
    propose(overlay, waiters[2], producer_id=11)
    overlay.flush(rig.now.wall_us)
    assert overlay.answer_ahead()
    assert [waiter.words for waiter in waiters] == [["ahead 1"], ["ahead 2"], []], "the third is not durable"
    assert overlay.history.committed.end == 0
    assert not overlay.answer_ahead()
    assert overlay.advance() == 2
    overlay.log.poison("a sync failed")
    overlay.advance()
    assert [waiter.words for waiter in waiters] == [["ahead 1"], ["ahead 2"], ["poisoned"]]


@pytest.mark.parametrize("second", [Ahead(can=False), Told()], ids=["cannot now", "never can"])
def test_nobody_answers_ahead_of_one_who_waited_before(second: Told):
    rig = Rig()
    overlay, first, third = overlay_on(rig), Ahead(), Ahead()
    place = propose(overlay, first)
    overlay.attach(place, second)
    overlay.attach(place, third)
    behind = Ahead()
    propose(overlay, behind, producer_id=10)
    overlay.flush(rig.now.wall_us)
    overlay.log.sync()
    assert overlay.answer_ahead()
    overlay.advance()
    assert first.words == ["ahead 1"]
    assert second.words == third.words == ["committed 1"]
    assert behind.words == ["committed 2"]
