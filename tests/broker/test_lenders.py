"""When a broker that lends logs sleeps: told by appenders, or not at all if something was appended meanwhile."""

from __future__ import annotations

from typing import Any, cast

from penstock.broker.lenders import DOZE_S, Lenders
from penstock.storage.board import Board
from penstock.storage.layout import word


class Rows:
    """Knows the row of each log: here the logs are their rows."""

    def number_of(self, log: int) -> int:
        return log

    def held(self, log: int) -> None:
        return None


def lent(board: Board, *rows: int) -> Lenders:
    lenders = Lenders(board, cast("Any", Rows()), cast("Any", None), (0, 0), missing="")
    lenders.logs = cast("Any", list(rows))
    lenders._list()
    return lenders


def test_with_nothing_lent_or_for_a_moment_it_says_of_no_sleep() -> None:
    board = Board.private(2, slots=0)
    assert lent(board).sleep(1.0) == 1.0
    assert lent(board, 1).sleep(DOZE_S) == DOZE_S
    assert board.asleep == 0


def test_each_sleep_has_a_number_of_its_own_until_the_broker_looks_again() -> None:
    board = Board.private(2, slots=0)
    lenders, numbers = lent(board, 1), set[int]()
    for _ in range(3):
        assert lenders.sleep(1.0) == 1.0
        numbers.add(board.asleep)
        lenders.wake()
        assert board.asleep == 0
    assert len(numbers) == 3
    assert 0 not in numbers


def test_it_does_not_sleep_while_something_was_appended() -> None:
    board = Board.private(3, slots=0)
    lenders = lent(board, 0, 2)
    board.row(1).appended = word(1, 9)
    assert lenders.sleep(1.0) == 1.0
    board.row(2).appended = word(1, 1)
    assert lenders.moved() == [2]
    assert lenders.sleep(1.0) == 0.0
    board.row(2).written = word(1, 1)
    assert lenders.moved() == []


def test_a_log_without_a_row_is_not_lent() -> None:
    board = Board.private(1, slots=0)
    board.incarnation = 5
    terms: dict[str, Any] = {"producer_id": 1, "epoch": 0, "sequence": 0, "judge": None, "now": None}
    assert lent(board).lend(cast("Any", 0), 7, **terms) is None
