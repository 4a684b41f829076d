"""Slots of mapped readers: given, woken only where a reader sleeps, refused when there are no more, and given again."""

from __future__ import annotations

import pytest
from penstock.broker.errors import LimitReached
from penstock.broker.wakes import Wakes
from penstock.storage import futex
from penstock.storage.board import Board


@pytest.fixture
def board() -> Board:
    return Board.private(1, slots=2)


def test_a_reader_is_woken_only_while_its_slot_is_raised(board: Board, monkeypatch: pytest.MonkeyPatch):
    calls: list[object] = []
    monkeypatch.setattr(futex, "_wake", lambda *call: calls.append(call))
    wakes = Wakes(board)
    slot = board.slot(wakes.open(7))
    wakes.wake(7)
    assert calls == []
    slot.sleep(0.0, lambda: False)
    assert slot.is_raised
    wakes.wake(7)
    wakes.wake(7)
    assert (len(calls), slot.is_raised) == (1, False)
    wakes.close_all()
    assert len(calls) == 2, "no reader sleeps through the end"


def test_without_a_free_slot_a_session_is_refused_until_one_is_given_back(board: Board):
    wakes = Wakes(board)
    slots = [wakes.open(session) for session in (1, 2)]
    assert sorted(slots) == [0, 1]
    with pytest.raises(LimitReached, match=r"all 2 places .* mapped_readers"):
        wakes.open(3)
    for session in (1, 2):
        wakes.wake(session)
    wakes.close(1)
    assert wakes.open(4) == slots[0]
    wakes.wake(4)


def test_one_look_finds_the_sessions_whose_readers_sleep(board: Board):
    wakes = Wakes(board)
    assert wakes.asleep() == set()
    first, second = (board.slot(wakes.open(session)) for session in (7, 8))
    assert wakes.asleep() == set()
    second.sleep(0.0, lambda: False)
    assert wakes.asleep() == {8}
    first.sleep(0.0, lambda: False)
    assert wakes.asleep() == {7, 8}
    wakes.wake(8)
    assert wakes.asleep() == {7}
    wakes.close(7)
    first.sleep(0.0, lambda: False)
    assert wakes.asleep() == set(), "a reader whose session is over"
    assert board.slot(wakes.open(9)).is_raised
    assert wakes.asleep() == {9}


def test_a_board_without_slots_has_no_sleepers():
    assert Wakes(Board.private(1, slots=0)).asleep() == set()


def test_a_slot_goes_to_the_next_session_as_late_as_can_be():
    wakes = Wakes(Board.private(1, slots=3))
    first = wakes.open(1)
    wakes.close(1)
    assert [wakes.open(session) for session in (2, 3, 4)][-1] == first


def test_a_machine_without_futexes_has_no_places(board: Board, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(futex, "MISSING", "mapped readers cannot be woken on linux s390x: use delivery='auto'")
    with pytest.raises(LimitReached, match="s390x"):
        Wakes(board).open(1)
