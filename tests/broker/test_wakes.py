"""Slots of mapped readers: given, woken only where a reader sleeps, refused when there are no more, and given again."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from penstock.broker.broker import Broker
from penstock.broker.errors import LimitReached
from penstock.broker.port import SocketPort
from penstock.broker.wakes import FEW, Wakes
from penstock.storage import futex
from penstock.storage.board import Board
from penstock.storage.futex import Futex
from penstock.storage.log import LogWriter


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


class Appended:
    """A log as far as waking looks at it; each is equal to itself alone."""

    def __init__(self, written: int, committed: int) -> None:
        self.written, self.committed = written, committed


def sleeper(wakes: Wakes, board: Board, session: int, log: LogWriter) -> Futex:
    slot = board.slot(wakes.open(session))
    wakes.begin_reading(session, log)
    slot.sleep(0.0, lambda: False)
    return slot


def test_readers_of_what_is_published_are_woken_and_no_others(board: Board):
    wakes = Wakes(board)
    first, second, unread = (cast("LogWriter", Appended(5, 5)) for _ in range(3))
    here, there = sleeper(wakes, board, 7, first), sleeper(wakes, board, 8, second)
    wakes.published([unread])
    assert (here.is_raised, there.is_raised) == (True, True)
    wakes.published([unread, first])
    assert (here.is_raised, there.is_raised) == (False, True)
    wakes.published([second])
    assert not there.is_raised


def test_readers_sleep_on_while_what_is_appended_is_not_theirs_yet(board: Board):
    wakes, log = Wakes(board), Appended(5, 4)
    slot = sleeper(wakes, board, 7, cast("LogWriter", log))
    wakes.published([cast("LogWriter", log)])
    assert slot.is_raised
    log.committed = 5
    wakes.published([cast("LogWriter", log)])
    assert not slot.is_raised


def test_a_session_that_is_over_is_not_woken(board: Board):
    wakes, log = Wakes(board), cast("LogWriter", Appended(5, 5))
    sleeper(wakes, board, 7, log)
    wakes.end_reading(7, log)
    wakes.close(7)
    wakes.published([log])


def test_a_crowd_is_left_to_be_woken_in_portions():
    board = Board.private(1, slots=FEW + 1)
    wakes, log = Wakes(board), cast("LogWriter", Appended(5, 5))
    slots = [sleeper(wakes, board, session, log) for session in range(FEW + 1)]
    wakes.published([log])
    assert all(slot.is_raised for slot in slots)
    wakes.end_reading(0, log)
    wakes.published([log])
    assert [slot.is_raised for slot in slots] == [True] + [False] * FEW


def test_the_port_wakes_the_readers_of_what_is_published(board: Board):
    wakes, log, unused = Wakes(board), cast("LogWriter", Appended(5, 5)), cast("Any", None)
    slot = sleeper(wakes, board, 7, log)
    port = SocketPort(unused, [], wakes, unused)
    port.published([log])
    port.close()
    assert not slot.is_raised


def test_the_broker_wakes_readers_before_it_answers():
    calls: list[str] = []
    dirty = [object()]

    def said(name: str, result: object = None) -> Callable[..., object]:
        return lambda *given, **_: (calls.append(name), result)[1]

    broker = SimpleNamespace(
        _node=SimpleNamespace(flush=said("flush", dirty), advance=said("advance")),
        _names=SimpleNamespace(fresh=False),
        _intake=SimpleNamespace(exhausted=False, messages=1, bytes=100),
        _watermarks=SimpleNamespace(flushed=said("on the board")),
        _port=SimpleNamespace(published=lambda logs: calls.append("wake" if logs is dirty else "others")),
    )
    Broker._settle(cast("Any", broker), cast("Any", SimpleNamespace(monotonic_s=1.0)))
    assert calls == ["flush", "on the board", "wake", "advance"]


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
