"""A mapped reader sleeps exactly while nothing is committed in what it reads."""

from __future__ import annotations

import pytest
from penstock.clients.mapped import SlotWaiter
from penstock.clients.watch import watch
from penstock.storage.board import Board


class Semaphore:
    """Counts how often it was slept on; nobody ever posts."""

    def __init__(self) -> None:
        self.slept = 0

    def sleep(self, seconds: float) -> None:
        self.slept += 1

    def post(self) -> None:
        """Nobody sleeps."""

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def board() -> Board:
    return Board.private(2, slots=1)


def waiter_of(board: Board, semaphore: Semaphore) -> SlotWaiter:
    return SlotWaiter(board, 0, semaphore)  # pyright: ignore[reportArgumentType]


def test_what_was_committed_after_the_look_keeps_a_reader_awake(board: Board) -> None:
    semaphore = Semaphore()
    waiter, watching = waiter_of(board, semaphore), watch(board, {0: 0})
    watching.moved()
    board.row(0).written = 7
    waiter.sleep(1.0, watching)
    assert semaphore.slept == 0
    assert list(watching.moved()) == [0]
    waiter.sleep(1.0, watching)
    assert semaphore.slept == 1


def test_the_flag_is_up_only_while_a_reader_sleeps(board: Board) -> None:
    class Looking(Semaphore):
        def sleep(self, seconds: float) -> None:
            assert board.slot(0) == 1
            super().sleep(seconds)

    semaphore, watching = Looking(), watch(board, {0: 0})
    watching.moved()
    waiter_of(board, semaphore).sleep(1.0, watching)
    assert (semaphore.slept, board.slot(0)) == (1, 0)


def test_a_closed_one_lets_nobody_sleep(board: Board) -> None:
    semaphore = Semaphore()
    waiter, watching = waiter_of(board, semaphore), watch(board, {0: 0})
    watching.moved()
    waiter.close()
    waiter.close()
    waiter.sleep(1.0, watching)
    assert semaphore.slept == 0
