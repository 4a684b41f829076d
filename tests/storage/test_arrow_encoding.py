"""Batches from Arrow arrays: the same records as from lists, whatever shape the arrays come in."""

from __future__ import annotations

import numpy as np
import pytest
from penstock.storage.batch import Codec, Kind, encode, parse
from penstock.storage.errors import InvalidBatch

pa = pytest.importorskip("pyarrow", reason="needs the extra penstock[arrow]")

from penstock.storage.arrow_encoding import as_binary, encode_arrow  # noqa: E402

VALUES = [b"", b"one", b"\x00\xff" * 40, b"four"]
KEYS = [b"k", None, b"", b"key"]
HEADERS = [{"a": b"1", "b": b""}, None, {}, {"ä": bytes(300)}]
TIMES = [5, -1, 0, 2**62]
ENTRIES = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def lists(headers):
    """As Arrow has them, with something before and behind that is sliced away."""
    rows = [None if found is None else [{"key": k, "value": v} for k, v in found.items()] for found in headers]
    return pa.array([[{"key": "before", "value": b"x"}], *rows, None], ENTRIES)[1:-1]


def sliced(values):
    return pa.array([b"before", *values, b"behind"], pa.binary())[1:-1]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("kind", [Kind.RECORDS, Kind.STAGED])
def test_all_columns_of_slices_become_the_same_batch_as_lists(codec, kind):
    how = {"codec": codec, "kind": kind, "producer_id": 7, "producer_epoch": 1, "first_sequence": 9}
    made = encode_arrow(
        sliced(VALUES), keys=sliced(KEYS), headers=lists(HEADERS), event_times=np.array(TIMES),
        priorities=[0, 1, 2, 3], not_before=np.arange(4), **how,
    )  # fmt: skip
    assert bytes(made) == bytes(
        encode(
            VALUES, keys=KEYS, headers=HEADERS, event_times=TIMES, priorities=[0, 1, 2, 3], not_before=range(4), **how
        )
    )
    batch = parse(made)
    batch.check()
    assert (batch.kind, batch.first_sequence) == (kind, 9)


def test_columns_that_say_nothing_are_left_out():
    nothing = pa.nulls(2, pa.binary())
    made = encode_arrow(pa.array([b"a", b"b"]), keys=nothing, headers=lists([None, {}]), priorities=[0, 0])
    assert bytes(made) == bytes(encode([b"a", b"b"]))


def test_of_two_headers_with_one_name_the_later_one_stands():
    twice = pa.array([[{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}]], ENTRIES)
    assert parse(encode_arrow(pa.array([b"x"]), headers=twice)).headers() == [{"a": b"2"}]


def test_a_header_without_a_value_has_a_null():
    given = pa.array([[{"key": "a", "value": None}]], ENTRIES)
    (found,) = parse(encode_arrow(pa.array([b"x"]), headers=given)).headers()
    assert (dict(found), found.pairs) == ({}, (("a", None),))


def test_what_lies_behind_a_missing_list_is_not_looked_at():
    """Arrow lets a null have entries of its own in the array below."""
    entries = pa.array([{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}], ENTRIES.value_type)
    offsets, present = pa.py_buffer(np.array([0, 1, 2], "<i4")), pa.py_buffer(b"\x02")
    headers = pa.ListArray.from_buffers(ENTRIES, 2, [present, offsets], children=[entries])
    assert parse(encode_arrow(pa.array([b"x", b"y"]), headers=headers)).headers() == [{}, {"b": b"2"}]


@pytest.mark.parametrize(
    "kind", ["string", "large_string", "large_binary", "binary_view", "string_view", "dictionary", "fixed"]
)
def test_every_kind_of_bytes_and_text_becomes_binary(kind):
    types = {
        "string": pa.string(), "large_string": pa.large_string(), "large_binary": pa.large_binary(),
        "binary_view": pa.binary_view(), "string_view": pa.string_view(),
        "dictionary": pa.dictionary(pa.int32(), pa.string()), "fixed": pa.binary(2),
    }  # fmt: skip
    given = pa.array(["ab", "cd", None, "ab"]).cast(pa.binary() if kind == "fixed" else pa.string()).cast(types[kind])
    assert as_binary(given, "value").to_pylist() == [b"ab", b"cd", None, b"ab"]
    assert as_binary(given[1:], "value").type == pa.binary()


@pytest.mark.parametrize("kind", ["binary", "string", "large_binary", "large_string"])
def test_a_dictionary_of_bytes_or_text_becomes_binary(kind):
    given = pa.array(["ab", "cd", None, "ab"]).cast(getattr(pa, kind)()).dictionary_encode()[1:]
    assert as_binary(given, "value").to_pylist() == [b"cd", None, b"ab"]
    assert as_binary(given, "value").type == pa.binary()


def test_text_is_not_copied_to_become_binary():
    given = pa.array(["ab", "cd"])
    assert as_binary(given, "key").buffers()[2].address == given.buffers()[2].address


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"values": pa.array([], pa.binary())}, "at least one record"),
        ({"values": pa.array([1, 2])}, "column 'value' has type int64; binary or text belongs there"),
        ({"keys": pa.array([1.5, 2.5])}, "column 'key' has type double"),
        ({"keys": pa.array([b"x"])}, "1 keys for 2 records"),
        ({"headers": lists([None])}, "1 headers for 2 records"),
        ({"event_times": [1]}, "1 event times for 2 records"),
        ({"headers": pa.array([[{"key": None, "value": b""}], None], ENTRIES)}, "a header without a name"),
        ({"headers": pa.array([[None], None], ENTRIES)}, "a header without a name"),
    ],
)
def test_what_cannot_be_a_record_is_refused_with_a_sentence(given, says):
    with pytest.raises(InvalidBatch, match=says):
        encode_arrow(**{"values": pa.array([b"x", b"y"]), **given})
