"""The number in DATA/lock that ends the grants of earlier nodes, and what readers believe by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock.storage import lock
from penstock.storage.board import Board, Level
from penstock.storage.files import LOCK_BYTES_FROM, Files
from penstock.storage.layout import word
from penstock.storage.lending.incarnation import CurrentNode, Incarnation, renew
from penstock.storage.range_locks import RangeLocks

BYTES = LOCK_BYTES_FROM
LOG = 3 << 64 | 4


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path}/lock"


def test_it_is_seen_by_processes_that_mapped_it_before(path: str) -> None:
    with lock.take(path, Files()):
        identity = renew(path, 7)
        known = Incarnation(path)
        assert known() == 7
        assert known.identity == identity
        renew(path, 8)
        assert known() == 8


def test_locking_the_directory_again_ends_it(path: str) -> None:
    with lock.take(path, Files()):
        renew(path, 7)
    known = Incarnation(path)
    with lock.take(path, Files()):
        assert known() == 0


def test_the_holder_can_still_be_read(path: str) -> None:
    with lock.take_head(path, Files(), endpoint="unix:///x"):
        renew(path, 7)
        with pytest.raises(Exception, match="served by the broker at unix:///x"):
            lock.take(path, Files())


def test_single_bytes_are_free_once_the_node_gives_them_up(path: str) -> None:
    with lock.take(path, Files()) as held:
        producer = RangeLocks(path)
        assert not producer.take(BYTES)
        held.free_bytes()
        assert producer.take(BYTES)
        assert not producer.take(BYTES - 1)
        assert not held.take_bytes()
        producer.give_back(BYTES)
        assert held.take_bytes()
        assert not producer.take(BYTES)
        producer.close()


def test_there_is_none_before_it_is_written(path: str) -> None:
    with lock.take(path, Files()), pytest.raises(ValueError, match="length"):
        Incarnation(path)


@pytest.mark.parametrize("level", [Level.WRITTEN, Level.DURABLE])
def test_readers_believe_a_producer_as_long_as_the_board_is_the_nodes(path: str, level: Level) -> None:
    board, node = Board.private(1), None
    row = board.row(0)
    row.assign(LOG, generation=1, level=level)
    row.publish(1, 5, 3, 0)
    node = CurrentNode(path, board)
    own = word(1, 5 if level == Level.WRITTEN else 3)
    row.appended = word(1, 6)
    assert row.readable_word_of(LOG, node.is_current) == own
    row.lent = 9
    assert row.readable_word_of(LOG, node.is_current) == own  # there is no file
    board.incarnation = 7
    with lock.take(path, Files()):
        renew(path, 7)
        assert row.readable_word_of(LOG, node.is_current) == (word(1, 6) if level == Level.WRITTEN else own)
        assert row.readable_word_of(LOG + 1, node.is_current) is None
        renew(path, 8)
        assert row.readable_word_of(LOG, node.is_current) == own
