"""The order of a member's logs: terms of the group, numbers only for what was appended, and nothing applied is cut."""

from __future__ import annotations

import pytest
from penstock.broker.errors import NoLeader
from penstock.broker.replica.errors import ReplicaBroken
from penstock.broker.replica.places import LogRow, Places
from penstock.broker.replica.replicated import Replicated
from penstock.storage.batch import encode, parse
from penstock.storage.cutting import UnsafeCut
from penstock.storage.errors import StorageFull
from penstock.storage.log import LogOptions, LogWriter
from support.files import RecordingFiles

PATH, LOG = "/log", bytes(range(16))


def opened(files: RecordingFiles, order: Replicated) -> LogWriter:
    return LogWriter.create_or_open(
        PATH, files=files, log_id=LOG, order=order, options=LogOptions(segment_bytes=16 << 10, allocate_bytes=8 << 10)
    )


@pytest.fixture
def files() -> RecordingFiles:
    return RecordingFiles(directories=["", PATH])


def test_only_a_leader_appends(files):
    order = Replicated(Places(0, {}))
    log = opened(files, order)
    with pytest.raises(NoLeader):
        log.append([encode([b"one"])], 5)
    assert log.written == 0


def test_batches_have_the_term_of_the_group_and_are_noted_as_they_stand_in_the_log(files):
    order = Replicated(Places(0, {}))
    order.leading = 7
    log = opened(files, order)
    log.append([encode([b"one"]), encode([b"two"])], 5)
    log.append([encode([b"three"])], 4)
    noted = order.take()
    assert [batch.seq for batch in noted] == [1, 2, 3]
    for batch in noted:
        stood = parse(b"".join(batch.buffers))
        assert (stood.log_id, stood.term, stood.append_time_us) == (LOG, 7, 5)
        assert (batch.checksum, batch.size) == (stood.header_checksum, stood.batch_bytes)
        assert log.batch_at(batch.seq) == stood.buffer
        assert log.checksum_at(batch.seq) == batch.checksum
    assert order.take() == []


@pytest.mark.parametrize("call", ["write", "allocate"])
def test_an_append_that_fails_has_no_numbers_and_is_cut_before_the_next(files, call):
    order = Replicated(Places(0, {}))
    order.leading = 2
    log = opened(files, order)
    log.append([encode([b"one"])], 1)
    order.take()
    files.fail(call, 1 if call == "allocate" else 2)
    with pytest.raises(StorageFull):
        log.append([encode([b"x" * 9000]), encode([b"y" * 9000])], 2)
    files.heal()
    assert (order.take(), log.written, log.must_cut, order.broken) == ([], 1, False, "")
    log.append([encode([b"two"])], 3)
    assert [batch.seq for batch in order.take()] == [2]


def test_where_the_cut_after_a_failed_append_fails_too_nothing_is_stamped_any_more(files):
    order = Replicated(Places(0, {}))
    order.leading = 2
    log = opened(files, order)
    log.append([encode([b"one"])], 1)
    order.take()
    files.fail("create", 1, once=False)
    files.fail("write", 2)
    with pytest.raises(StorageFull):
        log.append([encode([b"x"])], 2)
    files.heal()
    assert order.broken
    with pytest.raises(ReplicaBroken, match="could not be cut"):
        log.append([encode([b"two"])], 3)


def test_what_is_applied_is_committed_and_safe_and_is_not_cut(files):
    places = Places(0, {})
    order = Replicated(places)
    order.leading = 2
    log = opened(files, order)
    log.append([encode([b"%d" % number]) for number in range(3)], 1)
    rows = [LogRow(batch.log_id, batch.seq, batch.checksum) for batch in order.take()]
    for entry, row in enumerate(rows, 1):
        places.appended(entry, [row])
    assert log.committed == log.safe == 0
    places.apply(2)
    assert log.committed == log.safe == 2
    with pytest.raises(UnsafeCut):
        log.cut(1)
    assert places.cut(2) == {LOG: (2, rows[1].checksum)}
    log.cut(2)
    assert log.written == 2


def test_a_follower_has_the_bytes_of_the_leader(files):
    leading = Replicated(Places(0, {}))
    leading.leading = 3
    log = opened(files, leading)
    log.append([encode([b"one"]), encode([b"two"])], 5)
    other = RecordingFiles(directories=["", PATH])
    following = Replicated(Places(0, {}))
    copy = opened(other, following)
    following.follow(copy, [b"".join(batch.buffers) for batch in leading.take()])
    assert (copy.checksum, copy.written, following.take()) == (log.checksum, 2, [])
