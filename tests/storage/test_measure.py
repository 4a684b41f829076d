"""Measuring: pieces of about so many bytes, at the ends of batches, from the index alone."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from penstock.storage import measure
from penstock.storage.errors import OutOfBounds
from penstock.storage.layout import INDEX_HEADER_BYTES, INDEX_ROW_BYTES
from penstock.storage.memory_files import MemoryFile, MemoryFiles
from penstock.storage.reader import LogReader
from support.logs import Built, build

SHAPES = [((1,),), ((2, 0, 1), (3, 1)), ((0, 0), (0, 5), (1, 0)), ((4, 4, 4, 4), (4, 4), (4, 4, 4))]


def sizes(built: Built) -> list[tuple[int, int, int]]:
    """Base offset, end offset and bytes of every batch, in order."""
    found = []
    for seq, raw in sorted(built.batches.items()):
        found.append((built.ends[seq - 1].offset, built.ends[seq].offset, len(raw)))
    return found


def pieces(*how) -> Iterator[tuple[int, int]]:
    """Without the pauses."""
    return (piece for piece in measure.pieces(*how) if piece is not None)


def reader_of(built: Built) -> LogReader:
    return LogReader(built.directory, built.files)


@pytest.mark.parametrize("shape", SHAPES)
def test_pieces_cover_a_span_and_end_where_batches_do(shape):
    built = build(shape=shape, value_bytes=100)
    total, last = built.end.offset, built.end.seq
    ends = {end.offset for end in built.ends}
    for offset in range(total + 1):
        for end in range(offset, total + 1):
            for piece_bytes in (0, 1, 300, 700, 10_000):
                found = list(pieces(reader_of(built), offset, end, piece_bytes, last))
                if offset == end:
                    assert found == []
                    continue
                assert [each for each, _ in found] == sorted({each for each, _ in found})
                assert found[-1][0] == end
                assert all(each in ends for each, _ in found[:-1])
                assert all(size >= piece_bytes for _, size in found[:-1])
                if piece_bytes == 10_000:
                    assert len(found) == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_the_bytes_of_all_pieces_are_those_of_the_batches_between(shape):
    built = build(shape=shape, value_bytes=100)
    total = built.end.offset
    held = [(base, stop, size) for base, stop, size in sizes(built) if stop > base]
    for offset in range(total):
        for end in range(offset + 1, total + 1):
            measured = sum(size for _, size in pieces(reader_of(built), offset, end, 300, built.end.seq))
            least = sum(size for base, stop, size in held if stop > offset and base < end)
            most = sum(len(raw) for raw in built.batches.values())
            assert least <= measured <= most


def test_every_batch_is_a_piece_when_nothing_is_too_small():
    built = build(shape=((2, 3), (1, 4, 2)), value_bytes=10)
    found = list(pieces(reader_of(built), 0, 12, 0, built.end.seq))
    assert found == [(stop, size) for _, stop, size in sizes(built)]


def test_no_more_is_measured_than_is_committed():
    built = build(shape=((2, 3, 1),), unmarked=1)
    assert [end for end, _ in pieces(reader_of(built), 0, 5, 0, 2)] == [2, 5]


def test_a_segment_without_an_index_counts_as_one_batch():
    built = build(shape=((2, 3), (1, 4), (2, 2)))
    built.files.unlink(built.index_path(1))
    reader = reader_of(built)
    assert [end for end, _ in pieces(reader, 0, 14, 1, built.end.seq)] == [2, 5, 12, 14]


def test_an_index_that_lies_gives_ends_that_ascend_all_the_same():
    chance = random.Random(3)
    built = build(shape=((2, 3, 1, 2), (1, 4, 2, 2, 1)), value_bytes=20)
    for _ in range(300):
        reader = reader_of(built)
        for index in (0, 1):
            garble(built, index, chance)
        found = []
        for each in pieces(reader, 1, 17, chance.choice([0, 1, 500]), built.end.seq):
            found.append(each)
            assert len(found) <= 20
        ends = [end for end, _ in found]
        assert ends == sorted(set(ends))
        assert ends[-1] == 17
        assert all(1 < end <= 17 for end in ends)


def garble(built: Built, index: int, chance: random.Random) -> None:
    """Write nonsense into one row of an index."""
    file = built.files.open(built.index_path(index), write=True)
    row = chance.randrange(file.size() // INDEX_ROW_BYTES)
    position = INDEX_HEADER_BYTES + row * INDEX_ROW_BYTES + chance.randrange(INDEX_ROW_BYTES)
    file.pwritev([chance.randbytes(chance.choice([1, 8]))], position)
    file.close()


def test_there_is_a_pause_after_each_segment():
    built = build(shape=((2, 3), (1, 4), (2, 2), (1, 1)))
    assert list(measure.pieces(reader_of(built), 0, 14, 1 << 30, built.end.seq))[:-1] == [None] * 3


def test_no_batch_is_read(monkeypatch):
    built = build(shape=((2, 3), (1, 4), (2, 2)), value_bytes=5000)
    reader, read = reader_of(built), []
    pread = MemoryFile.pread

    def watched(file, size, position):
        read.append((file.path, position))
        return pread(file, size, position)

    monkeypatch.setattr(MemoryFile, "pread", watched)
    assert list(pieces(reader, 3, 14, 5000, built.end.seq))
    assert not [place for place in read if place[0].endswith(".segment") and place[1] >= 4096]


def test_a_segment_that_goes_while_it_is_measured_is_said_to_be_gone():
    built = build(MemoryFiles(), shape=((2, 3), (1, 4), (2, 2), (1, 1)))
    reader = reader_of(built)
    found = pieces(reader, 0, 16, 1, built.end.seq)
    assert next(found)[0] == 2
    for index in (0, 1):
        built.files.unlink(built.segment_path(index))
        built.files.unlink(built.index_path(index))
    reader._cache.close()
    reader.refresh()
    with pytest.raises(OutOfBounds, match="gone"):
        list(found)
