"""The bytes of entries: what goes in comes out, small batches stand inside, and no mutation leads outside."""

from __future__ import annotations

import random

import pytest
from penstock.broker.replica import entries
from penstock.broker.replica.entries import (
    INLINE_BYTES,
    INLINE_TOGETHER,
    EntryType,
    asks_digests,
    batches_of,
    decode_entry,
    decode_flush,
    encode_entry,
    encode_flush,
)
from penstock.storage.errors import InvalidBatch
from support.order import log_id, stamped


def of_size(seq: int, size: int) -> entries.StampedBatch:
    return entries.StampedBatch(log_id(1), seq, seq * 7, size, [bytes([seq % 256]) * size])


def test_a_flush_comes_back_with_its_rows_and_the_bytes_of_small_batches():
    given = [stamped(log_id(1), 1, b"one"), stamped(log_id(2), 9, b"two"), of_size(5, 13)]
    flush = decode_flush(encode_flush(77, given))
    assert (flush.time_us, flush.digest) == (77, False)
    assert [row[:4] for row in flush.batches] == [batch[:4] for batch in given]
    assert [bytes(flush.inlined(row) or b"") for row in flush.batches] == [b"".join(each.buffers) for each in given]


def test_a_flush_says_whether_replicas_compare_their_digests():
    for digest in (False, True):
        data = encode_flush(1, [], digest=digest)
        assert decode_flush(data).digest is digest
        assert asks_digests(EntryType.FLUSH, data) is digest
        assert not asks_digests(EntryType.CHANGE, data)
    assert not asks_digests(EntryType.FLUSH, b"")


def test_a_batch_stands_inside_up_to_the_limit_of_one_and_not_beyond():
    flush = decode_flush(encode_flush(1, [of_size(1, INLINE_BYTES), of_size(2, INLINE_BYTES + 1), of_size(3, 8)]))
    assert [bool(row.position) for row in flush.batches] == [True, False, True]
    assert flush.inlined(flush.batches[1]) is None


def test_batches_stand_inside_up_to_the_limit_of_all_together():
    count = INLINE_TOGETHER // INLINE_BYTES
    flush = decode_flush(encode_flush(1, [of_size(seq, INLINE_BYTES) for seq in range(1, count + 3)]))
    assert [bool(row.position) for row in flush.batches] == [True] * count + [False] * 2


def test_every_batch_inside_begins_at_a_multiple_of_eight():
    flush = decode_flush(encode_flush(1, [of_size(seq, seq) for seq in range(1, 20)]))
    assert all(row.position % 8 == 0 for row in flush.batches)


@pytest.mark.parametrize("type_", [0, 1])
def test_an_entry_comes_back_with_its_type(type_):
    found, data = decode_entry(encode_entry(type_, b"data"))
    assert (found, bytes(data)) == (type_, b"data")


def test_the_no_op_of_a_leader_has_no_bytes():
    assert encode_entry(0, b"") == b""
    assert decode_entry(None) == decode_entry(b"") == (0, b"")
    assert encode_entry(1, b"") != b""


def test_only_flushes_name_batches():
    data = encode_flush(1, [of_size(1, 8)])
    assert [row.seq for _, row in batches_of(0, data)] == [1]
    assert list(batches_of(0, b"")) == list(batches_of(1, data)) == []


def test_an_entry_that_is_too_short_is_refused():
    with pytest.raises(InvalidBatch, match="7 bytes"):
        decode_entry(bytes(7))


def test_a_flush_cut_anywhere_is_refused_or_has_all_it_names():
    data = encode_flush(1, [of_size(1, 24), of_size(2, 9)])
    for size in range(len(data)):
        try:
            flush = decode_flush(data[:size])
        except InvalidBatch:
            continue
        assert all(len(flush.inlined(row) or b"") == row.size for row in flush.batches)
        assert size >= len(data) - 8  # only padding is missing


def test_no_mutated_flush_leads_outside_its_bytes():
    choose, data = random.Random(3), encode_flush(1, [of_size(1, 24), of_size(2, 9)])
    for _ in range(2000):
        mutant = bytearray(data)
        for _ in range(choose.randint(1, 4)):
            mutant[choose.randrange(len(mutant))] = choose.randrange(256)
        try:
            flush = decode_flush(mutant)
        except InvalidBatch:
            continue
        assert all(len(flush.inlined(row) or bytes(row.size)) == row.size for row in flush.batches)


def test_a_row_that_points_before_the_bodies_or_behind_the_end_is_refused():
    data = bytearray(encode_flush(1, [of_size(1, 8)]))
    for position in (8, 55, 57):
        data[52:56] = position.to_bytes(4, "little")
        with pytest.raises(InvalidBatch, match="outside"):
            decode_flush(data)
    data[52:56] = (56).to_bytes(4, "little")
    assert decode_flush(data).batches[0].position == 56
