"""Records that wait, held against a plain table."""

from __future__ import annotations

import random

import pytest
from penstock.broker.engine.tables.queues.retrying import SLACK, RetryingRecord, RetryingTable


def test_the_lowest_ready_offsets_come_first_and_stay_until_they_are_taken():
    table = RetryingTable()
    for offset, ready_us in ((7, 5), (3, 9), (5, 1), (9, 100)):
        table[offset] = RetryingRecord(1, ready_us)
    assert table.ready(10, 2) == [3, 5]
    assert table.ready(10, 9) == [3, 5, 7]
    del table[3]
    assert table.ready(10, 9) == [5, 7]
    assert table.next_us(10) == 100


@pytest.mark.parametrize("seed", range(30))
def test_a_random_life_gives_what_a_plain_table_gives(seed: int):
    chance, table, plain, now_us = random.Random(seed), RetryingTable(), dict[int, int](), 0
    for _ in range(400):
        now_us += chance.randrange(3)
        offset = chance.randrange(60)
        if chance.random() < 0.2:
            end, ready_us = offset + chance.randrange(90), now_us + chance.randrange(-5, 40)
            plain |= dict.fromkeys(range(offset, end), ready_us)
            table.put(offset, end, RetryingRecord(1, ready_us))
        elif chance.random() < 0.6:
            plain[offset] = now_us + chance.randrange(-5, 40)
            table[offset] = RetryingRecord(1, plain[offset])
        else:
            plain.pop(offset, None)
            table.pop(offset, None)
        limit = chance.randrange(1, 8)
        assert {at: each.ready_us for at, each in table.items()} == plain
        ready = sorted(at for at, ready_us in plain.items() if ready_us <= now_us)
        assert table.ready(now_us, limit) == ready[:limit]
        assert table.next_us(now_us) == min((at for at in plain.values() if at > now_us), default=None)


def test_a_record_that_comes_and_goes_leaves_nothing_behind():
    table = RetryingTable()
    for time_us in range(10_000):
        table[1] = RetryingRecord(1, time_us)
        table.pop(1)
    assert len(table._timed) <= SLACK + 3


def test_ready_records_that_are_taken_past_the_list_leave_nothing_behind():
    table = RetryingTable()
    for offset in range(10_000):
        table[offset] = RetryingRecord(1, offset)
        assert table.next_us(offset) is None
        del table[offset]
    assert len(table._ready) <= SLACK + 3
    for offset in (7, 5):
        table[offset] = RetryingRecord(1, 1)
    assert table.next_us(1) is None
    assert table.ready(1, 2) == [5, 7]


def test_records_set_together_are_one_entry_and_passed_once_when_they_leave():
    table = RetryingTable()
    table.put(0, 100_000, RetryingRecord(1, 5))
    table.put(7, 7, RetryingRecord(1, 1))
    assert table._timed == [(5, 0, 100_000)]
    for offset in range(3):
        del table[offset]
    assert table.next_us(0) == 5
    assert table._timed == [(5, 3, 99_997)]
    assert table.ready(5, 3) == [3, 4, 5]
