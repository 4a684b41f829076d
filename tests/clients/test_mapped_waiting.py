"""A mapped reader sleeps exactly while nothing is committed in what it reads, and its own process does not wake it."""

from __future__ import annotations

import threading
import time

import pytest
from penstock.clients.mapped import SlotWaiter
from penstock.clients.watch import Watch, watch
from penstock.storage.board import Board

LONG_S = 60.0


@pytest.fixture
def board() -> Board:
    return Board.private(2, slots=1)


@pytest.fixture
def watching(board: Board) -> Watch:
    made = watch(board, {0: 0})
    made.moved()
    return made


def test_what_was_committed_after_the_look_keeps_a_reader_awake(board: Board, watching: Watch) -> None:
    waiter = SlotWaiter(board, board.slot(0))
    board.row(0).written = 7
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
    waiter.sleep(LONG_S, looked)


def test_a_wake_counts_for_one_sleep(board: Board, watching: Watch) -> None:
    waiter = SlotWaiter(board, board.slot(0))
    waiter.wake()
    waiter.sleep(LONG_S, watching)
    begun = time.monotonic()
    waiter.sleep(0.02, watching)
    assert time.monotonic() - begun >= 0.02


def test_a_wake_between_coming_and_looking_counts(board: Board) -> None:
    waiter = SlotWaiter(board, board.slot(0))

    class Waking(Looked):
        def still(self) -> bool:
            waiter.wake()
            return True

    waiter.sleep(LONG_S, Waking())
