"""What is remembered of transactions: the last epoch, what is unfinished and in which order, what may be forgotten."""

from __future__ import annotations

from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.decisions import TransactionTable
from penstock.broker.engine.tables.state import PartitionState

TOPIC = bytes(16)


def decided(table: TransactionTable, name: str, epoch: int, time_us: int, stages: int = 1) -> None:
    keys = [(TOPIC, number, 100 * epoch + number) for number in range(stages)]
    table.decided(fx.TransactionDecided(name, epoch, keys), time_us)


def unfinished(table: TransactionTable) -> list[tuple[str, int]]:
    return [(name, each.epoch) for name, each in table.unfinished()]


def test_the_last_epoch_is_known_and_nothing_of_a_stranger():
    table = TransactionTable()
    decided(table, "a", 3, 10)
    decided(table, "a", 7, 11)
    assert (table.last_epoch("a"), table.last_epoch("b"), len(table)) == (7, -1, 1)


def test_what_is_unfinished_comes_in_the_order_in_which_it_was_decided():
    table = TransactionTable()
    decided(table, "b", 1, 10)
    decided(table, "a", 5, 11)
    decided(table, "b", 2, 12)
    assert unfinished(table) == [("b", 1), ("a", 5), ("b", 2)]
    table.finished("b", 1)
    assert unfinished(table) == [("a", 5), ("b", 2)]
    table.finished("b", 2)
    table.finished("stranger", 2)
    assert unfinished(table) == [("a", 5)]


def test_epochs_are_finished_in_any_order_and_once():
    table = TransactionTable()
    for epoch in range(5):
        decided(table, "a", epoch, 10 + epoch)
    for epoch, left in [(0, [1, 2, 3, 4]), (3, [1, 2, 4]), (3, [1, 2, 4]), (1, [2, 4]), (7, [2, 4]), (4, [2]), (2, [])]:
        table.finished("a", epoch)
        assert unfinished(table) == [("a", each) for each in left]


def test_only_the_very_stages_of_the_last_epoch_are_its_own():
    table = TransactionTable()
    decided(table, "a", 1, 10, stages=2)
    own = [(TOPIC, 0, 100), (TOPIC, 1, 101)]
    assert table.is_last("a", 1, own)
    assert table.is_last("a", 1, own[::-1])
    assert not any(table.is_last(*each) for each in [("a", 1, own[:1]), ("a", 0, own), ("b", 1, own), ("a", 1, [])])
    decided(table, "a", 2, 11, stages=0)
    assert not table.is_last("a", 2, []), "without stages, requests cannot be told apart"


def test_an_epoch_without_stages_is_finished_when_it_is_decided():
    table = TransactionTable()
    decided(table, "a", 1, 10, stages=0)
    assert (table.last_epoch("a"), unfinished(table)) == (1, [])


def test_names_are_outlived_by_their_last_decision_and_only_when_all_is_finished():
    table = TransactionTable()
    for at, name in enumerate(["a", "~b", "c", "~d", "e"]):
        decided(table, name, 1, at, stages=0)
    decided(table, "a", 2, 10)
    assert table.outlived(100, 0, 10) == ["c", "e"]
    assert table.outlived(0, 100, 10) == ["~b", "~d"]
    assert table.outlived(3, 2, 10) == ["c", "~b"]
    assert table.outlived(100, 100, 2) == ["c", "e"]
    table.finished("a", 2)
    assert table.outlived(100, 0, 10) == ["c", "e", "a"]
    assert table.oldest_fleeting(1) == ["~b"]


def test_what_is_forgotten_is_gone_altogether():
    table = TransactionTable()
    decided(table, "~a", 1, 10, stages=0)
    decided(table, "b", 1, 10, stages=0)
    table.forgotten(["~a", "stranger"])
    assert (table.last_epoch("~a"), table.last_epoch("b"), table.oldest_fleeting(5)) == (-1, 1, [])


def test_a_table_from_a_snapshot_is_the_same():
    state = PartitionState()
    for name, epoch, time_us in [("b", 1, 10), ("a", 5, 11), ("b", 2, 12), ("~c", 1, 9)]:
        decided(state.transactions, name, epoch, time_us)
    state.transactions.finished("~c", 1)
    loaded = PartitionState.decode(state.encode())
    assert loaded.encode() == state.encode()
    assert unfinished(loaded.transactions) == unfinished(state.transactions)
    assert loaded.transactions.outlived(100, 100, 10) == ["~c"]
    assert loaded.transactions.last_epoch("b") == 2
