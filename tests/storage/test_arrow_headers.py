"""Headers in Arrow: what a batch has of them comes out as lists, and goes in again as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.storage.batch import Codec, encode, parse
from penstock.storage.errors import InvalidBatch

pa = pytest.importorskip("pyarrow", reason="needs the extra penstock[arrow]")

from penstock.storage.arrow_encoding import encode_arrow  # noqa: E402
from penstock.storage.arrow_headers import as_headers, header_type, unpacked  # noqa: E402
from penstock.storage.arrow_numbers import numbers_of  # noqa: E402


def listed(headers):
    """As Arrow has them."""
    return [[{"key": name, "value": value} for name, value in one.items()] if one else None for one in headers]


def arrow_of(headers, **how):
    batch = parse(encode([b"v"] * len(headers), headers=headers, **how))
    batch.check()
    found = batch.arrow(["headers"]).column(0)
    found.validate(full=True)
    assert found.type == header_type()
    return found


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_headers_are_lists_and_null_where_a_record_has_none(codec):
    headers = [{"a": b"1", "b": b""}, None, {}, {"": bytes(100_000)}, {"ä": b"x"}, {"a": b"1", "b": b""}]
    assert arrow_of(headers, codec=codec).to_pylist() == listed(headers)


def test_without_any_headers_all_are_null():
    for headers in (None, [None] * 3, [{}, None, {}]):
        batch = parse(encode([b"v"] * 3, headers=headers))
        found = batch.arrow(["headers"]).column(0)
        found.validate(full=True)
        assert found.type == header_type()
        assert found.null_count == 3


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 64, 65, 70_000])
def test_any_number_of_records_without_keys_and_headers_is_null(count):
    found = parse(encode([b"v"] * count)).arrow(["key", "headers"])
    found.validate(full=True)
    assert found.num_rows == found.column(0).null_count == found.column(1).null_count == count


def test_equal_headers_are_equal_and_each_is_its_records():
    headers = [{"day": b"%d" % (number % 3)} for number in range(100)]
    assert arrow_of(headers).to_pylist() == listed(headers)


def test_the_type_may_have_names_of_its_own():
    """Spark calls what is in a list `element`, and declares what is never null."""
    entry = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
    kind = pa.list_(pa.field("element", entry))
    packed = pa.array([b"\x81\xa1a\xc4\x01x", None, b""], pa.binary())
    for given_, wanted in ((packed, [[{"key": "a", "value": b"x"}], None, None]), (packed[1:2], [None])):
        found = unpacked(given_, kind)
        found.validate(full=True)
        assert found.type == kind
        assert found.type.field(0).name == "element"
        assert found.to_pylist() == wanted


@pytest.mark.parametrize(
    "broken", [b"\x91\xa1a", b"\x81\xa1a\xa1x", b"\x81\x01\xc4\x00", b"\x81\xa1\xff\xc4\x00", b"\xc1"]
)
def test_headers_that_are_none_are_refused(broken):
    with pytest.raises(InvalidBatch, match="headers of a record are not a map of text to bytes"):
        unpacked(pa.array([b"", broken], pa.binary()), header_type())


def test_headers_of_related_types_are_taken_and_others_named():
    names = pa.array(
        [[{"value": "1", "key": b"a"}]], pa.large_list(pa.struct([("value", pa.string()), ("key", pa.binary())]))
    )
    assert parse(encode_arrow(pa.array([b"x"]), headers=as_headers(names))).headers() == [{"a": b"1"}]
    assert as_headers(pa.nulls(3)).null_count == 3
    for wrong in (pa.array([b"x"]), pa.array([["a"]]), pa.array([[{"key": "a"}]])):
        with pytest.raises(InvalidBatch, match="column 'headers' has type"):
            as_headers(wrong)


HEADERS = st.none() | st.dictionaries(st.text(max_size=3), st.binary(max_size=40), max_size=4)
RECORDS = st.lists(
    st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=5), HEADERS), min_size=1, max_size=90
)


@given(RECORDS, st.integers(0, 90), st.sampled_from(Codec), st.integers(-(2**62), 2**62))
def test_what_came_out_of_a_batch_makes_the_same_batch(records, first, codec, time):
    """Also from somewhere in the middle on."""
    first %= len(records)
    made = [encode_rows(rows, codec, time) for rows in (records, records[first:])]
    whole = parse(made[0])
    whole.check()
    rows = whole.arrow()
    rows.validate(full=True)
    found = rows.slice(first)
    times = numbers_of(found.column("timestamp"))
    again = encode_arrow(
        found.column("value"), keys=found.column("key"), headers=found.column("headers"), event_times=times, codec=codec
    )
    assert bytes(again) == bytes(made[1])


def encode_rows(rows, codec, time):
    values, keys, headers = (list(column) for column in zip(*rows, strict=True))
    times = [time] * len(rows)
    return encode(values, keys=keys, headers=headers if any(headers) else None, event_times=times, codec=codec)
