"""The order log as the storage of a Raft core: equal entries are equal bytes, and what is committed is never cut."""

from __future__ import annotations

import random

import pytest
from penstock.broker.raft.messages import Entry, EntryKind
from penstock.broker.replica import order_log
from penstock.broker.replica.order_log import OrderLog
from penstock.storage.cutting import UnsafeCut
from penstock.storage.errors import OutOfBounds, StorageFull
from penstock.storage.log import LogOptions
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.segment import reference
from support.files import RecordingFiles
from support.order import ORDER, ORDER_ID, flush, log_id, stamped

SMALL = LogOptions(segment_bytes=8 << 10, allocate_bytes=4 << 10)


def opened(files: MemoryFiles) -> OrderLog:
    return OrderLog(ORDER, files, log_id=ORDER_ID, options=SMALL)


def some(index: int, term: int, value: bytes = b"value") -> Entry:
    return flush(index, term, stamped(log_id(1), index, value))


def read(order: OrderLog) -> list[Entry] | None:
    return order.entries(order.first_index(), order.last_index() + 1, 1 << 20)


def test_entries_are_found_again_with_their_terms_and_types():
    order = opened(MemoryFiles())
    given = [
        Entry(1, 1),
        some(2, 1),
        Entry(3, 2, b"change", EntryKind.CHANGE),
        Entry(4, 2, b"", EntryKind.CHANGE),
        some(5, 3),
    ]
    order.append(given[:2])
    order.append(given[2:])
    assert (order.first_index(), order.last_index()) == (1, 5)
    assert [order.term(index) for index in range(6)] == [0, 1, 1, 2, 2, 3]
    assert read(order) == given


def test_entries_are_read_from_the_disk_as_they_were_appended():
    files = MemoryFiles()
    order, given = opened(files), [some(index, 1, b"%d" % index * 900) for index in range(1, 40)]
    order.append(given)
    order.close()
    order = opened(files)
    assert len(order.log.names) > 1
    assert read(order) == given
    assert [order.term(index) for index in (0, 1, 20, 39)] == [0, 1, 1, 1]
    few = order.entries(3, 30, 3000)
    assert 1 <= len(few) < 27
    assert few == given[2 : 2 + len(few)]
    assert order.entries(7, 8, 1) == [given[6]]
    assert order.entries(7, 7) == []


def test_an_entry_that_is_not_there_has_no_term_and_one_behind_a_gap_is_refused():
    order = opened(MemoryFiles())
    order.append([Entry(1, 1), Entry(2, 1)])
    assert order.term(4) is order.entries(0, 1) is None
    with pytest.raises(OutOfBounds, match="1 to 2"):
        order.entries(2, 4)
    with pytest.raises(OutOfBounds, match="does not follow"):
        order.append([Entry(4, 1)])


def test_entries_of_a_leader_are_taken_up_to_the_first_that_contradicts_what_is_here():
    order = opened(MemoryFiles())
    order.append([some(1, 1), some(2, 1), some(3, 2), some(4, 2)])
    order.commit = 2
    same, others = [some(3, 2), some(4, 2), some(5, 2)], [some(4, 3), some(5, 3), some(6, 3)]
    assert order.up_to_other([]) == []
    assert order.up_to_other(same) == same
    assert order.up_to_other(others[1:]) == others[1:]
    assert order.up_to_other([same[0], *others]) == [same[0], others[0]]
    decided = [some(1, 9), some(2, 9)]
    assert order.up_to_other([*decided, *others]) == [*decided, others[0]]


def test_entries_that_contradict_what_is_there_replace_it():
    for reopen in (False, True):
        files = MemoryFiles()
        order = opened(files)
        order.append([some(1, 1), some(2, 1, b"old"), some(3, 1, b"old")])
        assert order.append([some(2, 2, b"new")])
        if reopen:
            order.close()
            order = opened(files)
        assert read(order) == [some(1, 1), some(2, 2, b"new")]
        assert [order.term(index) for index in (1, 2)] == [1, 2]
        assert not order.append([some(3, 2)])
        assert order.entries(3, 4) == [some(3, 2)]


def test_what_is_committed_is_not_cut():
    order = opened(MemoryFiles())
    order.append([some(1, 1), some(2, 1), some(3, 1)])
    order.commit = 2
    order.commit = 1
    with pytest.raises(UnsafeCut):
        order.append([some(2, 2)])
    assert order.last_index() == 3
    order.append([some(3, 2)])
    assert order.term(3) == 2


def test_replicas_with_equal_entries_have_equal_bytes_however_they_came():
    choose, given, ends = random.Random(5), [], []
    for index in range(1, 60):
        given.append(some(index, 1 + index // 20) if choose.random() < 0.7 else Entry(index, 1 + index // 20))
    for seed in range(4):
        choose, order, place = random.Random(seed), opened(MemoryFiles()), 0
        while place < len(given):
            count = choose.randint(1, 9)
            order.append(given[place : place + count])
            place += count
        ends.append([(order.checksum(index), order.term(index)) for index in range(1, 60)])
    assert ends[1:] == ends[:-1]


def test_the_time_of_an_entry_never_goes_back():
    order = opened(MemoryFiles())
    order.append([flush(1, 1, time_us=500), flush(2, 2, time_us=400), Entry(3, 2), flush(4, 2, time_us=600)])
    rows = [order.log.reader().row(seq) for seq in range(1, 5)]
    assert [row.append_time_us for row in rows if row] == [500, 500, 500, 600]


def test_only_so_many_bytes_of_entries_stay_in_memory(monkeypatch):
    monkeypatch.setattr(order_log, "RECENT_BYTES", 2000)
    order = opened(MemoryFiles())
    given = [some(index, 1, bytes(500)) for index in range(1, 11)]
    for entry in given:
        order.append([entry])
    assert sum(len(each.data) for each in order._recent.values()) <= 2000
    assert read(order) == given
    order.cut(9)
    order.append([some(10, 2)])
    assert order.entries(9, 11) == [given[8], some(10, 2)]


def test_an_append_that_fails_leaves_no_entry():
    files = RecordingFiles(directories=["/data"])
    order = opened(files)
    order.append([some(1, 1)])
    order.log.sync()
    files.fail("write", 2)
    with pytest.raises(StorageFull):
        order.append([some(2, 1), some(3, 1)])
    files.heal()
    assert read(order) == [some(1, 1)]
    order.append([some(2, 2)])
    assert read(order) == [some(1, 1), some(2, 2)]


def test_what_replaced_a_cut_entry_is_read_from_the_disk_and_not_what_was_cut(monkeypatch):
    monkeypatch.setattr(order_log, "RECENT_BYTES", 0)
    order = opened(MemoryFiles())
    order.append([some(1, 1), some(2, 1, b"old"), some(3, 1, b"old")])
    assert order.term(2) == 1
    assert order.checksum(2)
    order.append([some(2, 2, b"new"), some(3, 2, b"new")])
    assert (order.term(2), order.entries(2, 3)) == (2, [some(2, 2, b"new")])


@pytest.mark.parametrize("has_looked", [False, True])
@pytest.mark.parametrize("has_read", [False, True])
def test_what_a_keeper_has_just_removed_is_gone_before_the_order_hears_of_it(has_read: bool, has_looked: bool):
    """A leader reads it for a member that lags; it is no damage."""
    files = MemoryFiles()
    order, given = opened(files), [some(index, 1, b"%d" % index * 900) for index in range(1, 40)]
    order.append(given)
    order.close()
    order = opened(files)
    first, second, *_ = order.log.names
    if has_read:
        assert order.entries(1, 40) == given  # and the first segment is not open any more
    for name in (first.segment_file, first.index_file):
        files.unlink(f"{ORDER}/{name}")
    if has_looked:
        order._reader.refresh()
    for _ in range(2):
        assert order.entries(1, 40) is None
        assert order.term(1) is order.term(0) is order.term(second.base_seq - 1) is None
    assert order.entries(second.base_seq, 40)[0] == given[second.base_seq - 1]
    assert order.log.place_behind(second.base_seq - 1)[0].seq == second.base_seq - 1
    with pytest.raises(OutOfBounds, match=f"the log begins at batch {second.base_seq}"):
        order.log.place_behind(second.base_seq - 2)
    order.log.forget([reference(ORDER, first)])
    assert order.first_index() == second.base_seq
    assert order.term(second.base_seq - 1) == 1
