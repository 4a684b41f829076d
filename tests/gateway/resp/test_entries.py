"""Entries: ids in order, fields as records."""

from __future__ import annotations

import pytest
from penstock.gateway.resp.entries import (
    BAD_ID,
    FIRST,
    LAST,
    EntryId,
    encoded,
    encoded_entries,
    entry_id,
    following,
    lower_bound,
    record_of,
    upper_bound,
)
from penstock.gateway.resp.refusals import CommandRefused
from penstock.storage import batch
from penstock.storage.header_list import HeaderList

hiredis = pytest.importorskip("hiredis", reason="needs the extra gateway")

TOP = (1 << 64) - 1


@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [
        (b"-", FIRST, FIRST), (b"+", LAST, LAST), (b"5", (5, 0), (6, 0)), (b"5-3", (5, 3), (5, 4)),
        (b"(5-3", (5, 4), (5, 3)), (b"(5", (5, 1), (5, 0)), (b"0-0", (0, 0), (0, 1)),
    ],
)  # fmt: skip
def test_bounds_of_a_range(text, lower, upper):
    assert lower_bound(text) == EntryId(*lower)
    assert upper_bound(text) == EntryId(*upper)


@pytest.mark.parametrize(
    "text", [b"", b"x", b"5-", b"-5", b"5-x", b"1-2-3", b"99999999999999999999999", b"1-%d" % 2**64]
)
def test_what_is_no_id_is_refused(text):
    with pytest.raises(CommandRefused, match=BAD_ID):
        entry_id(text, 0)


def test_the_id_behind_the_largest_offset_is_in_the_next_millisecond():
    assert following(EntryId(5, TOP)) == EntryId(6, 0)
    assert following(EntryId(5, TOP - 1)) == EntryId(5, TOP)


FIELDS = [
    ([b"value", b"x"], (b"x", None, None)),
    ([b"key", b"k", b"value", b"x"], (b"x", b"k", None)),
    ([b"a", b"1", b"b", b"2"], (None, None, {"a": b"1", "b": b"2"})),
    ([b"value", b"", b"a", b"1"], (b"", None, {"a": b"1"})),
    ([b"value", b""], (b"", None, None)),
    ([b"key", b""], (None, b"", None)),
    ([b"", b"x", "ä".encode(), b"\xff"], (None, None, {"": b"x", "ä": b"\xff"})),
]


@pytest.mark.parametrize(("fields", "parts"), FIELDS)
def test_fields_become_a_record_and_come_back(fields, parts):
    assert record_of(fields) == parts
    value, key, headers = parts
    stored = batch.parse(batch.encode([value], keys=[key], headers=[headers], producer_id=1))
    (entry,) = encoded_entries(stored, 0, 1)
    reader = hiredis.Reader()
    reader.feed(entry)
    read = reader.gets()[1]
    pairs = dict(zip(fields[::2], fields[1::2], strict=True))
    assert dict(zip(read[::2], read[1::2], strict=True)) == pairs


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ([b"a", b"1", b"a", b"2"], "'a' is there twice"),
        ([b"value", b"1", b"value", b"2"], "'value' is there twice"),
        ([b"key", b"1", b"key", b"2"], "'key' is there twice"),
        ([b"\xff", b"1"], "not UTF-8"),
    ],
)
def test_fields_that_no_record_has_are_refused(fields, says):
    with pytest.raises(CommandRefused, match=says):
        record_of(fields)


def test_a_list_of_headers_is_shown_in_its_order_with_an_empty_field_for_a_null():
    headers = HeaderList([("b", b"1"), ("a", None), ("b", b"2")])
    (entry,) = encoded_entries(batch.parse(batch.encode([None], headers=[headers])), 0, 1)
    reader = hiredis.Reader()
    reader.feed(entry)
    assert reader.gets()[1] == [b"b", b"1", b"a", b"", b"b", b"2"]


def test_a_null_without_anything_is_an_entry_without_fields():
    found = encoded_entries(batch.parse(batch.encode([b"x", None, b""])), 0, 3)
    reader = hiredis.Reader()
    reader.feed(b"".join(found))
    assert [reader.gets()[1] for _ in found] == [[b"value", b"x"], [], [b"value", b""]]


def test_a_part_of_a_batch_is_encoded():
    stored = batch.parse(batch.encode([b"a", b"b", b"c", b"d"], producer_id=1))
    ids = [entry.split(b"\r\n")[2] for entry in encoded_entries(stored, 1, 3)]
    assert ids == [b"0-1", b"0-2"]


def test_ids_of_any_length_stand_with_their_length():
    times, offsets, values = [2_000_000] * 1002, range(0, 1002), [b"x" * (at % 13) for at in range(1002)]
    reader = hiredis.Reader()
    found = encoded(values, None, None, offsets, times)
    reader.feed(b"".join(found))
    assert [reader.gets() for _ in found] == [
        [b"2000-%d" % offset, [b"value", value]] for offset, value in zip(offsets, values, strict=True)
    ]


def test_records_of_several_times_have_each_its_own():
    reader = hiredis.Reader()
    reader.feed(b"".join(encoded([b"a", b"b"], None, None, range(9, 11), [1_000_999, 2_000_000])))
    assert [reader.gets()[0] for _ in range(2)] == [b"1000-9", b"2000-10"]


def test_no_records_are_no_entries():
    assert encoded([], None, None, range(0), []) == []
