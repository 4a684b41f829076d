"""A state that was restored from its snapshot goes on like the one that wrote it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.entry import Entry
from penstock.broker.engine.tables.producers import Place
from penstock.broker.engine.tables.queues.placing import intake_of
from penstock.broker.engine.tables.queues.settings import QueueSettings
from penstock.broker.engine.tables.state import PartitionState
from penstock.storage.batch import encode, parse

MINUTE_US = 60_000_000


def due_at(*times: int) -> PartitionState:
    """A log of so many delayed records, and a group that works on all."""
    state = PartitionState()
    batch = parse(encode([b""] * len(times), not_before=list(times)))
    entry = Entry(Place(0, len(times), 0, 1, 1, 1), intake=intake_of(batch))
    state.apply(entry, 1)
    state.batch_applied(entry.place)
    state.effect(fx.QueueSet("g", QueueSettings().named(), 0), 1)
    return state


def carry(state: PartitionState, *offsets: int) -> None:
    state.apply(Entry(Place(0, 0, state.end, state.seq + 1, 1, 1), kept=np.array(offsets)), 1)


def both(state: PartitionState, effects: Sequence[fx.AnyEffect], time_us: int) -> bytes:
    """Apply these to a state and to what its snapshot gives. Returns what both are then, and go on to be."""
    again = PartitionState.decode(state.encode())
    for effect in effects:
        state.effect(effect, time_us)
        again.effect(effect, time_us)
    assert again.encode() == state.encode()
    assert PartitionState.decode(state.encode()).encode() == state.encode()
    assert PartitionState.decode(state.encode()).digest() == state.digest()
    return state.encode()


@pytest.mark.parametrize("keep_s", [None, 600.0], ids=["set later", "from the start"])
def test_a_group_that_is_made_behind_the_beginning_notes_ends_from_there_on(keep_s: float | None):
    state = PartitionState()
    state.effect(fx.FirstOffset(1000), MINUTE_US)
    state.effect(fx.QueueSet("g", QueueSettings(keep_finished_s=keep_s).named(), 1000), MINUTE_US)
    both(state, [fx.QueueSet("g", QueueSettings(keep_finished_s=60.0).named(), 1000)], 2 * MINUTE_US)
    assert [offset for _, offset in state.queues.by_name["g"].endings.entries] == ([1000] if keep_s is None else [])
    both(state, [fx.TasksTaken("g", [(990, 20)], 1010)], 3 * MINUTE_US)
    assert state.queues.by_name["g"].endings.entries == [(3 * MINUTE_US, 1000)]


def test_a_group_that_a_restored_state_makes_notes_ends_from_the_beginning_on():
    state = PartitionState()
    state.effect(fx.FirstOffset(1000), MINUTE_US)
    made = fx.QueueSet("g", QueueSettings(keep_finished_s=60.0).named(), 1000)
    both(state, [made, fx.TasksTaken("g", [(990, 20)], 1010)], MINUTE_US)


def test_a_trim_of_what_was_carried_alone_takes_its_timers_too():
    state = due_at(100, 100, 100, 100)
    carry(state, 0, 1, 2)
    state.effect(fx.FirstOffset(3), 1)
    state.effect(fx.TasksCancelled("g", [0, 2]), 1)
    both(state, [fx.Trimmed(2)], 2)
    assert [each for each in range(4) if state.shelves.time_of(each)] == [3]


def test_what_is_carried_and_open_keeps_its_timer_over_a_trim_before_it():
    state = due_at(100, 100, 100, 100)
    carry(state, 0, 2)
    state.effect(fx.FirstOffset(3), 1)
    both(state, [fx.Trimmed(1)], 2)
    assert [each for each in range(4) if state.shelves.time_of(each)] == [2, 3]


@pytest.mark.parametrize("gone", [False, True], ids=["open", "discarded"])
def test_a_carried_record_that_was_open_when_its_group_was_moved_stays_apart_for_as_long(gone: bool):
    state = due_at(100, 100, 100, 100)
    state.effect(fx.LeaseGranted("g", 1, "w", 1 << 60, [(1, 1, 1)], 0, [(0, 0, 100, 1)]), 200)
    state.effect(fx.TasksDied("g", 1, [(1, 1, 1)], "broken"), 200)
    carry(state, 0, 1, 2)
    both(state, [fx.QueueMoved("g", 0), *([fx.TasksDiscarded("g", [(1, 1)])] if gone else []), fx.FirstOffset(3)], 300)
    assert state.queues.by_name["g"].apart == (set() if gone else {1})


@pytest.mark.parametrize("restored", [False, True])
def test_the_end_of_a_carried_record_with_a_priority_is_told_also_by_a_state_that_was_restored(restored: bool):
    state = PartitionState()
    batch = parse(encode([b""] * 3, priorities=[3] * 3))
    tied = fx.MembersTied(0, "g", b"t" * 16, 0, b"b" * 16, [0, 1, 2])
    state.effect(fx.QueueSet("g", QueueSettings().named(), 0), 1)
    entry = Entry(Place(0, 3, 0, 1, 1, 1), effects=[tied], intake=intake_of(batch))
    state.apply(entry, 1)
    state.batch_applied(entry.place)
    state.effect(fx.LeaseGranted("g", 1, "w", 1 << 60, [(0, 3, 1)], 0, [(3, 3, 0, -1)]), 1)
    state.effect(fx.TasksDied("g", 1, [(1, 1, 1)], "no", False), 1)
    state.effect(fx.TasksFinished("g", 1), 1)
    carry(state, 1)
    state.effect(fx.FirstOffset(3), 1)
    if restored:
        state = PartitionState.decode(state.encode())
    assert state.shelves.level_of(1) == 3
    assert [state.queues.begun(offset, state.shelves) for offset in range(3)] == [True] * 3
    both(state, [fx.TasksDiscarded("g", [(1, 1)])], 1)
    assert [(each.member, each.state) for each in state.ties.tellings.values()][-1] == (1, "discarded")
    assert not state.ties.open
