"""Semaphores of mapped readers: given, posted only to sleepers, and gone at the end."""

from __future__ import annotations

import posix_ipc
import pytest
from penstock.broker.wakes import Wakes
from penstock.storage.board import Board


@pytest.fixture
def board(tmp_path):
    board = Board.create(1, slots=2, file=tmp_path / "board")
    yield board
    board.retire()
    board.close()


def test_a_semaphore_is_posted_only_while_its_reader_says_it_waits(board: Board) -> None:
    wakes = Wakes(board)
    name, slot = wakes.open(7)
    semaphore = posix_ipc.Semaphore(name)
    wakes.wake(7)
    with pytest.raises(posix_ipc.BusyError):
        semaphore.acquire(0)
    board.set_slot(slot, 1)
    wakes.wake(7)
    semaphore.acquire(0)
    assert board.slot(slot) == 0
    semaphore.close()
    wakes.close_all()


def test_closing_wakes_the_reader_and_removes_the_name(board: Board) -> None:
    wakes = Wakes(board)
    name, _ = wakes.open(7)
    semaphore = posix_ipc.Semaphore(name)
    wakes.close(7)
    semaphore.acquire(0)
    semaphore.close()
    with pytest.raises(posix_ipc.ExistentialError):
        posix_ipc.Semaphore(name)


def test_without_a_free_slot_a_reader_polls(board: Board) -> None:
    wakes = Wakes(board)
    slots = [wakes.open(session)[1] for session in (1, 2, 3)]
    assert sorted(slots) == [-1, 0, 1]
    wakes.close(1)
    assert wakes.open(4)[1] == slots[0]
    wakes.close_all()
