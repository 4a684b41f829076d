"""An appender wakes the readers that its row names, and no others."""

from __future__ import annotations

import pytest
from penstock.storage.board import Board
from penstock.storage.board_row import OTHERS
from penstock.storage.futex import MISSING
from penstock.storage.lending.waking import RowWakes

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def board() -> Board:
    return Board.private(2, slots=6)


def asleep(board: Board, *numbers: int) -> None:
    for number in numbers:
        board.slot(number).sleep(0, lambda: False)


def test_it_wakes_the_slots_that_are_bits(board: Board) -> None:
    row = board.row(1)
    wakes = RowWakes(board, row)
    asleep(board, 0, 2, 5)
    wakes.wake()
    assert board.raised() == [0, 2, 5]
    row.readers = 1 << 2 | 1 << 3
    wakes.wake()
    assert board.raised() == [0, 5]
    asleep(board, 2)
    row.readers = 1 << 5
    wakes.wake()
    assert board.raised() == [0, 2]


def test_where_readers_have_no_bits_it_wakes_all(board: Board) -> None:
    board.row(0).readers = OTHERS | 1
    wakes = RowWakes(board, board.row(0))
    asleep(board, 1, 4)
    wakes.wake()
    assert board.raised() == []


def test_bits_beyond_the_slots_are_left_out(board: Board) -> None:
    board.row(0).readers = 1 << 40 | 1 << 5
    asleep(board, 5)
    RowWakes(board, board.row(0)).wake()
    assert board.raised() == []
