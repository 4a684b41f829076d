"""A promise that was returned is never forgotten, and never gone back on."""

from __future__ import annotations

import errno

import pytest
from penstock.storage.errors import Corrupt, Poisoned, StorageFull
from penstock.storage.layout import PROMISE_BYTES
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.promises import Promises
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
    for length in range(PROMISE_BYTES):
        files = MemoryFiles()
        promises = Promises(PATH, files)
        promises.promise(LOG, 1)
        promises.promise(LOG, 2, b"a vote 16 bytes.")
        data = files.contents[PATH].data
        whole = bytes(data)
        data[PROMISE_BYTES + length :] = bytes(PROMISE_BYTES - length)
        again = Promises(PATH, files)
        assert again.term(LOG) == (2 if data == whole else 1)
        again.promise(LOG, 5)
        assert Promises(PATH, files).term(LOG) == 5


def test_every_flipped_bit_loses_at_most_the_entry_it_is_in_and_is_counted() -> None:
    for bit in range(PROMISE_BYTES * 8):
        files = MemoryFiles()
        promises = Promises(PATH, files)
        promises.promise(LOG, 1)
        promises.promise(OTHER, 2)
        files.contents[PATH].data[bit // 8] ^= 1 << bit % 8
        again = Promises(PATH, files)
        assert (again.term(LOG), again.term(OTHER), again.damage) == (0, 2, 1)


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
    assert files.open(PATH).size() == 4199 * PROMISE_BYTES
    again.promise(LOG, 4200)
    assert Promises(PATH, files).term(LOG) == 4200
    assert files.open(PATH).size() == PROMISE_BYTES


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
    assert files.open(PATH).size() == 2 * PROMISE_BYTES
    assert (again.term(LOG), again.term(OTHER)) == (4999, 1)
    again.promise(LOG, 6000)
    assert Promises(PATH, files).term(LOG) == 6000
