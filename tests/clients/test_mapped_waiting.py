"""A mapped reader sleeps exactly while nothing is committed in what it reads."""

from __future__ import annotations

import posix_ipc
import pytest
from penstock.clients.mapped import SlotWaiter
from penstock.storage.board import Board


class Semaphore:
    """Counts how often it was slept on; nobody ever posts."""

    def __init__(self) -> None:
        self.slept = 0

    def acquire(self, seconds: float) -> None:
        self.slept += 1
        raise posix_ipc.BusyError

    def release(self) -> None:
        """Nobody sleeps."""

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def board() -> Board:
    return Board.private(2, slots=1)


def test_what_was_committed_after_the_look_keeps_a_reader_awake(board: Board) -> None:
    semaphore = Semaphore()
    waiter = SlotWaiter(board, 0, semaphore, {0: board.row(0)})  # pyright: ignore[reportArgumentType]
    waiter.look()
    waiter.looked(0)
    board.row(0).written = 7
    waiter.sleep(1.0)
    assert semaphore.slept == 0


def test_a_partition_that_was_given_back_keeps_nobody_awake(board: Board) -> None:
    semaphore = Semaphore()
    waiter = SlotWaiter(board, 0, semaphore, {0: board.row(0), 1: board.row(1)})  # pyright: ignore[reportArgumentType]
    waiter.look()
    waiter.looked(0)
    waiter.looked(1)
    waiter.look()
    waiter.looked(0)
    board.row(1).written = 7
    waiter.sleep(1.0)
    assert semaphore.slept == 1
