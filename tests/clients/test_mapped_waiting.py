"""A mapped reader sleeps exactly while nothing is committed in what it reads, and its own process does not wake it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from penstock.clients.reading.mapped import SlotWaiter
from penstock.clients.reading.watch import Watch, watch
from penstock.storage.board import Board
from penstock.storage.futex import WORD_BYTES, Futex
from support.interrupts import interrupts

LONG_S = 20.0


@pytest.fixture
def board() -> Board:
    return Board.private(2, slots=1)


@contextmanager
def soon() -> Iterator[None]:
    """What is inside does not sleep until its time is over."""
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < LONG_S / 2


@pytest.fixture
def watching(board: Board) -> Watch:
    made = watch(board, {0: 0})
    made.moved()
    return made


def test_what_was_committed_after_the_look_keeps_a_reader_awake(board: Board, watching: Watch) -> None:
    waiter = SlotWaiter(board, board.slot(0))
    board.row(0).written = 7
    with soon():
        waiter.sleep(LONG_S, watching)
    assert list(watching.moved()) == [0]
    begun = time.monotonic()
    waiter.sleep(0.02, watching)
    assert time.monotonic() - begun >= 0.02


class Looked(Watch):
    """Nothing moves; says when a reader has looked for the last time before it sleeps."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def still(self) -> bool:
        self.event.set()
        return True


@pytest.mark.parametrize("end", [SlotWaiter.wake, SlotWaiter.close])
def test_its_own_process_ends_a_sleep_that_has_begun_and_one_about_to(board: Board, end) -> None:
    waiter, looked = SlotWaiter(board, board.slot(0)), Looked()
    sleeper = threading.Thread(target=waiter.sleep, args=(LONG_S, looked))
    sleeper.start()
    assert looked.event.wait(LONG_S)
    end(waiter)
    sleeper.join(LONG_S / 2)
    assert not sleeper.is_alive()
    end(waiter)
    with soon():
        waiter.sleep(LONG_S, looked)


def test_the_board_is_closed_when_the_last_sleeper_is_back(board: Board) -> None:
    class Closing(Looked):
        def still(self) -> bool:
            waiter.close()
            assert board.epoch % 2 == 0
            return super().still()

    waiter = SlotWaiter(board, board.slot(0))
    with soon():
        waiter.sleep(LONG_S, Closing())
    assert_closed(board)


def test_a_wake_counts_for_one_sleep(board: Board, watching: Watch) -> None:
    waiter = SlotWaiter(board, board.slot(0))
    waiter.wake()
    with soon():
        waiter.sleep(LONG_S, watching)
    begun = time.monotonic()
    waiter.sleep(0.02, watching)
    assert time.monotonic() - begun >= 0.02


@pytest.mark.parametrize("end", [SlotWaiter.wake, SlotWaiter.close])
def test_a_wake_between_coming_and_raising_the_slot_counts(board: Board, watching: Watch, end) -> None:
    class Late(Futex):
        """Its slot is raised a moment after the reader came."""

        def sleep(self, seconds: float, still: Callable[[], bool]) -> None:
            end(waiter)
            super().sleep(seconds, still)

    waiter = SlotWaiter(board, Late(memoryview(bytearray(WORD_BYTES))))
    with soon():
        waiter.sleep(LONG_S, watching)


def test_a_wake_ends_every_wait_of_its_process(board: Board, watching: Watch) -> None:
    class Overtaken(Futex):
        """Another thread comes, and is back, before the first one has raised the slot."""

        def sleep(self, seconds: float, still: Callable[[], bool]) -> None:
            if threading.current_thread() is threading.main_thread():
                waiter.wake()
                other = threading.Thread(target=waiter.sleep, args=(LONG_S, watching))
                other.start()
                other.join(LONG_S / 2)
            super().sleep(seconds, still)

    waiter = SlotWaiter(board, Overtaken(memoryview(bytearray(WORD_BYTES))))
    with soon():
        waiter.sleep(LONG_S, watching)


def test_a_slot_given_back_is_not_touched_by_later_wakes(board: Board) -> None:
    waiter = SlotWaiter(board, board.slot(0))
    another_s = board.slot(0)
    waiter.close()
    another_s.sleep(0.0, lambda: False)
    waiter.wake()
    assert another_s.is_raised


PLACES = ("clients/reading/mapped.py", "storage/futex.py")


def test_after_ctrl_c_at_any_moment_of_a_sleep_the_next_one_takes_its_time_and_closing_releases_the_board() -> None:
    for interrupt in interrupts(PLACES, above=5):
        board = Board.private(2, slots=1)
        watching, waiter = watch(board, {0: 0}), SlotWaiter(board, board.slot(0))
        watching.moved()
        with interrupt:
            waiter.sleep(0.0, watching)
        waiter.wake()
        with soon():
            waiter.sleep(LONG_S, watching)
        begun = time.monotonic()
        waiter.sleep(0.02, watching)
        assert time.monotonic() - begun >= 0.02
        waiter.close()
        assert_closed(board)


def test_closing_again_after_ctrl_c_releases_the_board() -> None:
    for interrupt in interrupts(PLACES, above=3):
        board = Board.private(2, slots=1)
        waiter = SlotWaiter(board, board.slot(0))
        with interrupt:
            waiter.close()
        waiter.close()
        assert_closed(board)


def assert_closed(board: Board) -> None:
    with pytest.raises(ValueError, match="released"):
        _ = board.epoch
