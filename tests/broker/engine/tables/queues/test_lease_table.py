"""The table of leases: which lease holds a record, and what is leased from an offset on."""

from __future__ import annotations

import random

import pytest
from penstock.broker.engine.tables.queues.lease_table import BLOCK, LeaseTable
from penstock.broker.engine.tables.queues.leases import Lease


def test_a_record_is_found_among_many_leases_without_looking_at_all(monkeypatch: pytest.MonkeyPatch):
    table, looked = LeaseTable(), 0
    attempt = Lease.attempt

    def counted(lease: Lease, offset: int) -> int:
        nonlocal looked
        looked += 1
        return attempt(lease, offset)

    monkeypatch.setattr(Lease, "attempt", counted)
    for number in range(1, 3001):
        table.add(Lease.of(number, "w", 9, [(number * 1000, 700, 1)]))
    assert table.holding(2_500_699) is table[2500]
    assert (table.holding(2_500_700), table.holding(-1)) == (None, None)
    assert looked <= 4


def test_who_holds_a_record_is_known_through_leases_that_come_and_go():
    table, dice = LeaseTable(), random.Random(3)
    for token in range(1, 2000):
        first = dice.randrange(3000)
        table.add(Lease.of(token, "w", 9, [(first, dice.choice([1, 300, 600]), 1), (10_000 + token, 1, 2)]))
        if len(table) > dice.choice([60, 200]):
            table.remove(table[dice.choice(list(table))])
        offset = dice.randrange(4000)
        holders = [each for each in table.values() if each.attempt(offset)]
        found = table.holding(offset)
        assert (found in holders) if holders else found is None


def test_what_is_leased_comes_in_order_from_any_offset_on():
    dice, table, held = random.Random(5), LeaseTable(), dict[int, int]()  # token by offset
    for token in range(1, 1500):
        first, count = dice.randrange(200_000), dice.choice([1, 1, 3, 900])
        if held.keys().isdisjoint(range(first, first + count)):
            table.add(Lease.of(token, f"w{token % 7}", 9, [(first, count, 1 + token % 3)]))
            held.update(dict.fromkeys(range(first, first + count), token))
        lease = table[dice.choice(list(table))]
        gone, many = lease.extents[0].offset + dice.randrange(3), dice.choice([1, 600])
        for offset in [at for at in range(gone, gone + many) if held.get(at) == lease.token]:
            del held[offset]
        table.take_out(lease, gone, many)
        if not lease.left:
            table.remove(lease)
        elif dice.random() < 0.3:
            held = {offset: each for offset, each in held.items() if each != lease.token}
            table.finish(lease)
            table.remove(lease)
        if token % 100 == 0:
            check_against(table, held, dice.randrange(200_000))
            check_against(table, held, 0)
            check_below(table, held, dice.randrange(200_000), dice.randrange(200_000))


def check_below(table: LeaseTable, held: dict[int, int], offset: int, end: int) -> None:
    """Records from `end` on are none: there is no block to go on with where they begin."""
    found: list[int] = []
    at = offset
    while at >= 0:
        runs, at = table.from_offset(at, end)
        assert at < end
        found += [run.offset + n for run in runs for n in range(run.many)]
    assert found == [offset_ for offset_ in sorted(held) if offset <= offset_ < end]


def check_against(table: LeaseTable, held: dict[int, int], offset: int) -> None:
    found: list[tuple[int, int]] = []
    at = offset
    while at >= 0:
        runs, beyond = table.from_offset(at)
        assert beyond < 0 or beyond > at
        assert all(run.attempt == run.lease.attempt(run.offset) for run in runs)
        found += [(run.offset + n, run.lease.token) for run in runs for n in range(run.many)]
        at = beyond
    assert found == sorted((at, token) for at, token in held.items() if at >= offset)
    by_worker = [table[token].worker for token in held.values()]
    assert table.by_worker == {worker: by_worker.count(worker) for worker in set(by_worker)}
    assert (table.records, table.first(), table.last()) == (len(held), min(held, default=-1), max(held, default=-1))


def test_a_look_at_some_leased_records_looks_at_few_leases_of_many(monkeypatch: pytest.MonkeyPatch):
    table = LeaseTable()
    for token in range(1, 5001):
        table.add(Lease.of(token, "w", 9, [(token * 2, 1, 1)]))
    looked = 0
    within = Lease.within

    def counted(lease: Lease, first: int, end: int) -> object:
        nonlocal looked
        looked += 1
        return within(lease, first, end)

    monkeypatch.setattr(Lease, "within", counted)
    runs, beyond = table.from_offset(5001)
    assert (runs[0].offset, runs[0].lease.token) == (5002, 2501)
    assert beyond == (5001 // BLOCK + 1) * BLOCK
    assert table.last() == 10_000
    assert looked <= BLOCK


def test_blocks_that_emptied_are_forgotten_and_used_again():
    table = LeaseTable()
    for token in range(1, 1001):
        table.add(lease := Lease.of(token, "w", 9, [(token * BLOCK, 1, 1)]))
        table.finish(lease)
        table.remove(lease)
        assert len(table._order) <= 65
    table.add(Lease.of(2000, "w", 9, [(5, 1, 1)]))
    table.add(Lease.of(2001, "w", 9, [(990 * BLOCK, 1, 1)]))
    table.add(Lease.of(2002, "w", 9, [(1001 * BLOCK, 1, 1)]))
    assert check_order(table) == [5, 990 * BLOCK, 1001 * BLOCK]


def check_order(table: LeaseTable) -> list[int]:
    found: list[int] = []
    at = 0
    while at >= 0:
        runs, at = table.from_offset(at)
        found += [run.offset for run in runs]
    return found
