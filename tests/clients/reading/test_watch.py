"""Watches tell every partition that moved once, however many they watch."""

from __future__ import annotations

import random

import pytest
from penstock.clients.reading.watch import FEW, Blind, Few, Many, watch
from penstock.storage.board import Board, Level

SEED = 20_240_607


@pytest.fixture(params=[1, FEW, FEW + 1, 300])
def count(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(params=[Level.WRITTEN, Level.DURABLE])
def board(request: pytest.FixtureRequest, count: int) -> Board:
    board = Board.private(2 * count)
    for number in range(count):
        board.row(number).assign(number + 1, generation=1, level=request.param)
    return board


def test_each_partition_is_told_first_and_then_only_when_its_word_moved(board: Board, count: int) -> None:
    watching = watch(board, {partition: partition for partition in range(count)})
    assert not watching.still()
    assert list(watching.moved()) == list(range(count))
    assert list(watching.moved()) == []
    generator = random.Random(SEED)
    for seq in range(1, 20):
        chosen = sorted(generator.sample(range(count), generator.randint(1, min(count, 9))))
        for partition in chosen:
            board.row(partition).publish(1, seq, seq, 0)
        assert not watching.still()
        assert sorted(watching.moved()) == chosen
        assert watching.still()


def test_only_the_word_of_the_commit_level_counts(board: Board, count: int) -> None:
    watching = watch(board, {partition: partition for partition in range(count)})
    watching.moved()
    other = "durable" if board.row(0).level == Level.WRITTEN else "written"
    setattr(board.row(0), other, 9)
    assert watching.still()
    assert list(watching.moved()) == []


def test_rows_of_others_do_not_count(board: Board, count: int) -> None:
    watching = watch(board, {partition: partition for partition in range(count)})
    watching.moved()
    board.row(count).publish(1, 5, 5, 0)
    assert watching.still()


def test_a_few_are_looked_at_one_by_one_and_many_at_once(board: Board, count: int) -> None:
    assert type(watch(board, {number: number for number in range(count)})) is (Few if count <= FEW else Many)


def test_nothing_to_watch_never_moves(board: Board) -> None:
    nothing = watch(board, {})
    assert list(nothing.moved()) == []
    assert nothing.still()


def test_without_a_board_every_look_is_at_all_partitions() -> None:
    watching = Blind([3, 1])
    assert list(watching.moved()) == [3, 1]
    assert list(watching.moved()) == [3, 1]
    assert watching.still()


def test_the_word_of_a_producer_counts_where_logs_may_be_lent(board: Board, count: int) -> None:
    watching = watch(board, {partition: partition for partition in range(count)})
    watching.moved()
    board.row(0).appended = 9
    can_be_lent = board.row(0).level == Level.WRITTEN
    assert watching.still() is not can_be_lent
    assert list(watching.moved()) == ([0] if can_be_lent else [])
    assert watching.still()
