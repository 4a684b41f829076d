"""Batches that have their places already: what follows is taken as it is, what does not is refused by name."""

from __future__ import annotations

import pytest
from penstock.storage import header
from penstock.storage.batch import Kind, encode, encode_state, of_kind, parse
from penstock.storage.errors import BadChecksum, Closed, InvalidBatch
from penstock.storage.header import Stamp, stamp
from penstock.storage.log import LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from support.files import RecordingFiles, Write
from support.following import LOG_ID, OPTIONS, PATH, Group, held, leader, opened

BEGUN = leader(3, [], [10, 20])


def follower() -> LogWriter:
    log = opened(MemoryFiles(), Group(9))
    log.append_stamped(BEGUN)
    return log


def placed(batch: bytes | bytearray, **changes: object) -> bytes:
    """The batch as it would follow BEGUN, but for what is said otherwise."""
    last = parse(BEGUN[-1])
    fields = {
        "seq": 3, "base_offset": 2, "term": 3, "log_id": LOG_ID, "append_time_us": last.append_time_us,
        "previous": last.header_checksum,
    }  # fmt: skip
    head = stamp(batch, Stamp(**(fields | changes)))  # pyright: ignore[reportArgumentType]
    return bytes(head) + bytes(batch[len(head) :])


def test_what_follows_is_the_same_bytes_in_log_and_index() -> None:
    sizes = [10, 9000, 9000, 10, 17_000, 10]
    batches = leader(3, [], sizes)
    alone, together = (opened(MemoryFiles(), Group()) for _ in range(2))
    for batch in batches:
        alone.append_stamped([batch])
    appended = together.append_stamped(batches)
    assert [each.seq for each in appended] == list(range(1, 7))
    assert held(alone) == held(together) == batches
    assert [alone.reader().row(seq) for seq in range(1, 7)] == [together.reader().row(seq) for seq in range(1, 7)]
    last = parse(batches[-1])
    assert (together.term, together.last_time_us, together.end_offset) == (3, last.append_time_us, 6)
    assert [together.end_offset_at(seq) for seq in range(7)] == list(range(7))


def test_batches_of_one_call_are_one_write() -> None:
    files = RecordingFiles()
    log = opened(files, Group())
    log.append_stamped(BEGUN)
    before = len(files.journal)
    log.append_stamped(leader(3, BEGUN, [10, 20, 30])[2:])
    writes = [each for each in files.journal[before:] if isinstance(each, Write)]
    assert len(writes) == 2, "rows, and batches"


def test_a_batch_of_any_size_and_kind_is_taken() -> None:
    log = follower()
    state = placed(encode_state(b"s" * 70_000))
    log.options = type(OPTIONS)(segment_bytes=20_000, max_batch_bytes=100)
    log.append_stamped([state])
    assert (log.end_offset, held(log)) == (2, [*BEGUN, state])
    staged = placed(of_kind(encode([b"x"]), Kind.STAGED), seq=4, previous=parse(state).header_checksum)
    log.append_stamped([staged])
    assert (log.written, log.end_offset) == (4, 2)


RECORD = encode([b"three"])
REFUSED = {
    "seq": (placed(RECORD, seq=4), "batch 4 stands where 3 belongs"),
    "again": (BEGUN[1], "batch 2 stands where 3 belongs"),
    "log": (placed(RECORD, log_id=bytes(16)), "another log"),
    "chain": (placed(RECORD, previous=7), "does not follow the batch before it"),
    "offset": (placed(RECORD, base_offset=3), "starts at offset 3 instead of 2"),
    "term": (placed(RECORD, term=2), "batch 3 has term 2, the one before it 3"),
    "time": (placed(RECORD, append_time_us=3000), "batch 3 was appended at 3000, the one before it at 3001"),
    "bytes behind": (placed(RECORD) + bytes(64), "its header says"),
    "bytes missing": (placed(RECORD)[:-64], "192 are there"),
    "column": (placed(RECORD).replace(b"three", b"thr3e"), "column 1 of batch 3"),
}


@pytest.mark.parametrize(("batch", "reason"), REFUSED.values(), ids=REFUSED)
def test_one_that_does_not_follow_refuses_all(batch: bytes, reason: str) -> None:
    log = follower()
    good = placed(RECORD)
    with pytest.raises(InvalidBatch, match=reason):
        log.append_stamped([batch])
    with pytest.raises(InvalidBatch):
        log.append_stamped([good, batch])
    assert (log.written, log.end_offset, held(log)) == (2, 2, BEGUN)
    log.append_stamped([good])
    assert held(log) == [*BEGUN, good]


def test_a_kind_that_is_not_known_is_not_taken() -> None:
    batch = bytearray(encode_state(b"s"))
    batch[header.KIND_POSITION] = 99
    with pytest.raises(InvalidBatch, match="kind 99 cannot be appended"):
        follower().append_stamped([placed(batch)])


def test_a_damaged_header_is_not_taken() -> None:
    batch = bytearray(placed(RECORD))
    batch[40] ^= 1
    with pytest.raises(BadChecksum):
        follower().append_stamped([batch])


def test_equal_terms_and_times_follow() -> None:
    log = follower()
    log.append_stamped([placed(RECORD)])
    assert (log.written, log.term, log.last_time_us) == (3, 3, 3001)


def test_nothing_changes_nothing_and_a_closed_log_takes_nothing() -> None:
    log = follower()
    assert log.append_stamped([]) == []
    assert log.written == 2
    log.close()
    with pytest.raises(Closed):
        log.append_stamped([placed(RECORD)])


def test_a_log_that_followed_is_closed_in_good_order() -> None:
    log = follower()
    log.close()
    again = opened(log.files, Group())
    assert (again.must_cut, again.written, again.durable) == (False, 2, 2)
    again.append_stamped([placed(RECORD)])
    assert again.generation == 1


def test_a_sole_writer_goes_on_under_a_term_above_what_it_was_given() -> None:
    files = MemoryFiles()
    promises = Promises("/promises", files)
    log = LogWriter.create(PATH, files=files, log_id=LOG_ID, order=Sole(promises), options=OPTIONS)
    log.append_stamped(BEGUN)
    log.append([RECORD], 1)
    assert (log.term, promises.term(LOG_ID), log.last_time_us) == (4, 4, 3001)
    log.append([RECORD], 5000)
    assert (log.term, log.written) == (4, 4)
    last = parse(held(log)[-1])
    log.append_stamped(
        [placed(RECORD, seq=5, base_offset=4, term=8, append_time_us=6000, previous=last.header_checksum)]
    )
    log.append([RECORD], 5000)
    assert (log.term, log.written, log.last_time_us) == (9, 6, 6000)


def test_a_segment_that_is_ended_early_is_followed_by_one() -> None:
    log = follower()
    log.segment_ends = True
    log.append([], 5000)
    log.append_stamped([])
    log.append([RECORD] * 3, 5000)
    assert [(each.base_seq, each.last_seq) for each in log.segments()] == [(1, 2), (3, 5)]
    log.append([RECORD] * 2, 5000)
    assert len(log.segments()) == 2


def test_a_closed_log_begins_no_term() -> None:
    files = MemoryFiles()
    promises = Promises("/promises", files)
    log = LogWriter.create(PATH, files=files, log_id=LOG_ID, order=Sole(promises), options=OPTIONS)
    log.close()
    with pytest.raises(Closed):
        log.append([RECORD], 1)
    assert promises.term(LOG_ID) == 0
