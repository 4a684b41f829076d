"""A promise that was returned is never forgotten, and never gone back on."""

from __future__ import annotations

import errno

import pytest
from penstock.storage.errors import Corrupt, Poisoned, StorageFull
from penstock.storage.layout import PROMISE_BYTES, Promise, encode_promise
from penstock.storage.memory_files import Content, MemoryFiles
from penstock.storage.promises import PAIR_BYTES, Promises
from support.files import RecordingFiles
from support.writeback import WritebackFiles

LOG, OTHER, ME, YOU = bytes(16), bytes([1]) * 16, bytes([2]) * 16, bytes([3]) * 16
PATH = "/node/promises"


def test_the_newest_promise_of_each_log_is_found_again() -> None:
    files = MemoryFiles()
    promises = Promises(PATH, files)
    assert (promises.term(LOG), promises.vote(LOG)) == (0, bytes(16))
    for log_id, term, vote in ((LOG, 1, ME), (OTHER, 7, YOU), (LOG, 4, YOU)):
        promises.promise(log_id, term, vote)
    again = Promises(PATH, files)
    assert (again.term(LOG), again.vote(LOG)) == (4, YOU)
    assert (again.term(OTHER), again.vote(OTHER)) == (7, YOU)


def test_a_term_never_goes_down_and_a_vote_never_changes() -> None:
    promises = Promises(PATH, MemoryFiles())
    promises.promise(LOG, 3)
    promises.promise(LOG, 3, ME)
    promises.promise(LOG, 3, ME)
    for term, vote in ((2, ME), (3, YOU)):
        with pytest.raises(Corrupt, match="go back"):
            promises.promise(LOG, term, vote)
    promises.promise(LOG, 4, YOU)


def test_a_torn_last_entry_was_never_promised() -> None:
    for length in range(PAIR_BYTES):
        files = MemoryFiles()
        promises = Promises(PATH, files)
        promises.promise(LOG, 1)
        promises.promise(LOG, 2, b"a vote 16 bytes.")
        data = files.contents[PATH].data
        whole = bytes(data)
        data[PAIR_BYTES + length :] = bytes(PAIR_BYTES - length)
        again = Promises(PATH, files)
        is_whole = data[: PAIR_BYTES + PROMISE_BYTES] == whole[: PAIR_BYTES + PROMISE_BYTES]
        assert (again.term(LOG), again.damage) == (2 if is_whole else 1, 0)
        again.promise(LOG, 5)
        assert Promises(PATH, files).term(LOG) == 5


def test_a_last_promise_of_which_the_second_entry_alone_came_to_the_disk_holds() -> None:
    files = MemoryFiles()
    promises = Promises(PATH, files)
    promises.promise(LOG, 1)
    promises.promise(LOG, 2, ME)
    files.contents[PATH].data[PAIR_BYTES : PAIR_BYTES + PROMISE_BYTES] = bytes(PROMISE_BYTES)
    again = Promises(PATH, files)
    assert (again.term(LOG), again.vote(LOG), again.damage) == (2, ME, 0)


def written(*promised: Promise) -> MemoryFiles:
    """A journal of an older version, of single entries."""
    files = MemoryFiles()
    files.contents[PATH] = Content(b"".join(map(encode_promise, promised)))
    return files


def test_every_flipped_bit_loses_at_most_the_entry_it_is_in_and_is_counted() -> None:
    for bit in range(PROMISE_BYTES * 8):
        files = written(Promise(LOG, 1), Promise(OTHER, 2))
        files.contents[PATH].data[bit // 8] ^= 1 << bit % 8
        again = Promises(PATH, files)
        assert (again.term(LOG), again.term(OTHER), again.damage) == (0, 2, 1)


def test_a_flipped_bit_loses_no_promise_nor_does_another_one_once_it_was_opened() -> None:
    """Also none of the last promise, which a torn write would look like."""
    for bit in range(2 * PAIR_BYTES * 8):
        files = MemoryFiles()
        promises = Promises(PATH, files)
        promises.promise(OTHER, 7, YOU)
        promises.promise(LOG, 2, ME)
        for _ in range(2):
            files.contents[PATH].data[bit // 8] ^= 1 << bit % 8
            again = Promises(PATH, files)
            found = again.term(OTHER), again.vote(OTHER), again.term(LOG), again.vote(LOG), again.damage
            assert found == (7, YOU, 2, ME, 0), f"bit {bit}"
            bit = (bit + PROMISE_BYTES * 8) % (2 * PAIR_BYTES * 8)  # in its twin, or the next entry


@pytest.mark.parametrize("lost", range(6))
def test_more_at_the_end_than_one_write_tears_is_damage(lost: int) -> None:
    files = MemoryFiles()
    promises = Promises(PATH, files)
    for term in (1, 2, 3, 4):
        promises.promise(LOG, term)
    data = files.contents[PATH].data
    data[len(data) - lost * PROMISE_BYTES :] = b"\xff" * (lost * PROMISE_BYTES)
    assert Promises(PATH, files).damage == (lost if lost > 2 else 0)


@pytest.mark.parametrize("first", range(5))
@pytest.mark.parametrize("bad", range(1, 5))
def test_an_entry_stands_for_its_twin_alone(first: int, bad: int) -> None:
    files = MemoryFiles()
    promises = Promises(PATH, files)
    for term in range(1, 6):
        promises.promise(LOG, term)
    start = first * PROMISE_BYTES
    files.contents[PATH].data[start : start + bad * PROMISE_BYTES] = bytes(bad * PROMISE_BYTES)
    again = Promises(PATH, files)
    alone = sum(place // 2 * 2 < first or place // 2 * 2 + 1 >= first + bad for place in range(first, first + bad))
    assert (again.term(LOG), again.damage) == (5, bad - alone)


@pytest.mark.parametrize("place", range(3))
def test_a_bad_entry_of_an_older_version_is_damage(place: int) -> None:
    files = written(*(Promise(LOG, term) for term in (1, 2, 3, 4)))
    files.contents[PATH].data[place * PROMISE_BYTES] ^= 1
    again = Promises(PATH, files)
    assert (again.term(LOG), again.damage, files.open(PATH).size()) == (4, 1, 4 * PROMISE_BYTES)


def test_promises_of_an_older_version_get_twins_when_they_are_opened() -> None:
    files = written(Promise(LOG, 1), Promise(OTHER, 2, ME), Promise(LOG, 3))
    again = Promises(PATH, files)
    assert (again.term(LOG), again.term(OTHER), again.damage) == (3, 2, 0)
    for place in (0, PAIR_BYTES):
        files.contents[PATH].data[place] ^= 1
    again = Promises(PATH, files)
    assert (again.term(LOG), again.term(OTHER), again.vote(OTHER), again.damage) == (3, 2, ME, 0)


def test_a_promise_is_durable_before_it_is_given() -> None:
    files = RecordingFiles()
    promises = Promises(PATH, files)
    promises.promise(LOG, 1)
    kinds = [type(operation).__name__ for operation in files.journal]
    assert kinds[-2:] == ["Write", "Sync"]
    assert "SyncDir" in kinds


def test_a_journal_that_cannot_be_synced_promises_nothing_more() -> None:
    files = RecordingFiles()
    promises = Promises(PATH, files)
    files.fail("sync", 1, errno.EIO)
    for _ in range(2):
        with pytest.raises(Poisoned):
            promises.promise(LOG, 1)
    assert promises.term(LOG) == 0


@pytest.mark.parametrize("again", [False, True])
def test_a_promise_that_could_not_be_synced_and_is_found_again_can_be_made_durable(again: bool) -> None:
    files = WritebackFiles()
    promises = Promises(PATH, files)
    promises.promise(LOG, 3)
    files.fail_next(PATH)
    with pytest.raises(Poisoned):
        promises.promise(LOG, 4)
    promises = Promises(PATH, files)
    assert promises.term(LOG) == 4
    assert Promises(PATH, files.power_cut()).term(LOG) == 3
    if again:
        files.fail_next(PATH)
        with pytest.raises(Poisoned):
            promises.make_durable()
        assert Promises(PATH, files.power_cut()).term(LOG) == 3
        with pytest.raises(Poisoned):
            promises.promise(LOG, 5)
    promises = Promises(PATH, files)
    promises.make_durable()
    assert Promises(PATH, files.power_cut()).term(LOG) == 4
    promises.promise(LOG, 5)
    assert Promises(PATH, files.power_cut()).term(LOG) == 5


def test_many_entries_of_as_many_logs_stay_as_they_are() -> None:
    files = RecordingFiles()
    promises = Promises(PATH, files)
    for number in range(4200):
        promises.promise(number.to_bytes(16), 1)
    steps = len(files.journal)
    assert Promises(PATH, files).term(OTHER) == 0
    assert len(files.journal) == steps


@pytest.mark.parametrize("kind", ["create", "write"])
def test_a_full_disk_leaves_many_superseded_entries_as_they_are(kind: str) -> None:
    files = RecordingFiles()
    promises = Promises(PATH, files)
    for term in range(1, 4200):
        promises.promise(LOG, term)
    files.fail(kind, 1)
    again = Promises(PATH, files)
    assert files.open(PATH).size() == 4199 * PAIR_BYTES
    again.promise(LOG, 4200)
    assert Promises(PATH, files).term(LOG) == 4200
    assert files.open(PATH).size() == PAIR_BYTES


def test_a_journal_written_anew_whose_name_may_be_lost_promises_nothing() -> None:
    files = RecordingFiles()
    promises = Promises(PATH, files)
    for term in range(1, 4200):
        promises.promise(LOG, term)
    files.fail("sync_dir", 1, errno.EMFILE)
    with pytest.raises(StorageFull):
        Promises(PATH, files)
    assert Promises(PATH, files).term(LOG) == 4199


def test_a_full_disk_refuses_a_promise_and_the_next_one_is_fine() -> None:
    files = RecordingFiles()
    promises = Promises(PATH, files)
    files.fail("write", 1)
    with pytest.raises(StorageFull):
        promises.promise(LOG, 1)
    promises.promise(LOG, 2)
    assert Promises(PATH, files).term(LOG) == 2


def test_many_superseded_entries_are_written_anew_as_few() -> None:
    files = MemoryFiles()
    promises = Promises(PATH, files)
    for term in range(1, 5000):
        promises.promise(LOG, term)
    promises.promise(OTHER, 1)
    again = Promises(PATH, files)
    assert files.open(PATH).size() == 2 * PAIR_BYTES
    assert (again.term(LOG), again.term(OTHER)) == (4999, 1)
    again.promise(LOG, 6000)
    assert Promises(PATH, files).term(LOG) == 6000
