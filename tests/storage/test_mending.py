"""What has rotted in a log is found with both of its ends, and only what was there takes its place."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from penstock.storage.errors import InvalidBatch
from penstock.storage.layout import DATA_START
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.mending import RottenRange, look_for_rot, mend
from penstock.storage.scan import Bad
from penstock.storage.verify import verify
from support.logs import LOG_ID, Built, build

SHAPE = ((2, 1, 3), (1, 0, 2), (2, 2))


def built() -> tuple[Built, MemoryFiles]:
    log = build(shape=SHAPE)
    assert isinstance(log.files, MemoryFiles)
    return log, log.files


def flip(log: Built, seq: int, place: int = -1) -> None:
    """Flip a bit of a batch; -1: of its last byte that a checksum covers."""
    name, position = log.places[seq]
    size = len(log.batches[seq])
    path = f"{log.directory}/{name.segment_file}"
    log.files.contents[path].data[position + (place if place >= 0 else size // 2)] ^= 1


def found(log: Built) -> list[RottenRange | Bad]:
    return [each for each in look_for_rot(log.files, log.directory) if not isinstance(each, int)]


def test_a_whole_log_has_nothing_to_mend_and_all_of_it_is_read():
    log, files = built()
    assert sum(look_for_rot(files, log.directory)) == sum(map(len, log.batches.values()))


@pytest.mark.parametrize("seq", range(1, 8))
@pytest.mark.parametrize("place", [0, 9, 20, 30, -1])
def test_any_rotten_batch_is_mended_by_its_bytes_and_by_no_others(seq: int, place: int):
    log, files = built()
    before = {path: bytes(content.data) for path, content in files.contents.items()}
    flip(log, seq, place)
    (rotten,) = found(log)
    assert isinstance(rotten, RottenRange)
    name, position = log.places[seq]
    assert rotten.path == f"{log.directory}/{name.segment_file}"
    assert rotten.before == replace(log.ends[seq - 1], position=position)
    assert (rotten.last, rotten.checksum) == (seq, log.ends[seq].checksum)
    another = seq % 7 + 1
    middle = len(log.batches[seq]) // 2
    rotten_too = log.batches[seq][:middle] + bytes([log.batches[seq][middle] ^ 1]) + log.batches[seq][middle + 1 :]
    whole = log.batches[seq]
    for wrong in ([], [rotten_too], [log.batches[another]], [whole, log.batches[another]], [whole + bytes(1)]):
        with pytest.raises(InvalidBatch):
            mend(files, rotten, wrong)
    assert found(log) == [rotten], "nothing was written"
    mend(files, rotten, [log.batches[seq]])
    assert {path: bytes(content.data) for path, content in files.contents.items()} == before


def test_a_range_of_several_batches_is_one_and_ends_with_its_segment():
    log, files = built()
    for seq in (2, 3, 4):
        flip(log, seq)
    one, other = found(log)
    assert isinstance(one, RottenRange)
    assert isinstance(other, RottenRange)
    assert [(each.before.seq, each.last) for each in (one, other)] == [(1, 3), (3, 4)]
    with pytest.raises(InvalidBatch):
        mend(files, one, [log.batches[2]])
    mend(files, one, [log.batches[2], log.batches[3]])
    mend(files, other, [log.batches[4]])
    assert verify(files, log.directory).ok


def test_batches_of_another_log_with_the_same_seqs_do_not_fit():
    log, files = built()
    flip(log, 2)
    (rotten,) = found(log)
    other = build(shape=SHAPE, log_id=bytes(16))
    with pytest.raises(InvalidBatch):
        mend(files, rotten, [other.batches[2]])


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_segment_that_has_lost_its_first_page_too_is_not_mended(index: int):
    log, files = built()
    seq = sum(map(len, SHAPE[:index])) + 1
    flip(log, seq)
    content = files.contents[log.segment_path(index)]
    content.data[:DATA_START] = bytes(DATA_START)
    assert not [each for each in found(log) if isinstance(each, RottenRange) and each.path == log.segment_path(index)]


def test_a_first_page_alone_is_named_as_what_cannot_be_mended():
    log, files = built()
    files.contents[log.segment_path(1)].data[8] ^= 1
    (bad,) = found(log)
    assert isinstance(bad, Bad)
    assert bad.position == 0


@pytest.mark.parametrize("seq", [7, 8])
def test_what_nothing_stands_behind_is_not_mended_though_the_mark_names_it(seq: int):
    """What stood above the mark may be gone with it, and only this damage says so."""
    log, files = built()
    name, position = log.places[seq]
    del files.contents[f"{log.directory}/{name.segment_file}"].data[position + 1 :]
    (bad,) = found(log)
    assert isinstance(bad, Bad)


def test_what_is_known_to_have_been_durable_counts_where_no_mark_reaches():
    log = build(shape=SHAPE, unmarked=4)
    flip(log, 6)
    assert found(log) == []
    (rotten,) = (each for each in look_for_rot(log.files, log.directory, lambda _: 6) if not isinstance(each, int))
    assert isinstance(rotten, RottenRange)
    assert (rotten.before.seq, rotten.last) == (5, 6)
    mend(log.files, rotten, [log.batches[6]])
    flip(log, 8)
    ids = list[bytes]()
    (bad,) = (
        each
        for each in look_for_rot(log.files, log.directory, lambda each: ids.append(each) or 8)
        if not isinstance(each, int)
    )
    assert ids == [LOG_ID]
    assert isinstance(bad, Bad), "nothing stands behind it"


def test_a_segment_that_is_missing_at_the_end_is_not_mended_into_the_one_before():
    """What it said of entries that were acknowledged is gone with it: a leader is asked."""
    log, files = built()
    files.unlink(log.segment_path(2))
    (bad,) = (each for each in look_for_rot(files, log.directory, lambda _: 8) if not isinstance(each, int))
    assert isinstance(bad, Bad)


def test_a_segment_that_is_cut_short_is_written_to_its_end_again():
    log, files = built()
    path = log.segment_path(0)
    before = bytes(files.contents[path].data)
    position = log.places[2][1]
    del files.contents[path].data[position + 10 :]
    (rotten,) = found(log)
    assert isinstance(rotten, RottenRange)
    mend(files, rotten, [log.batches[2], log.batches[3]])
    assert bytes(files.contents[path].data) == before[: len(files.contents[path].data)]
    assert verify(files, log.directory).ok
