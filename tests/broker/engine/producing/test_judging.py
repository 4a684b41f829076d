"""What the broker acknowledges, every reader can decode: each way a batch may lie is refused and not stored."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.broker.engine.producing import judging
from penstock.storage import codecs
from penstock.storage.batch import HEADER_BYTES, Batch, Codec, ColumnId, Kind, assemble, encode, parse
from penstock.storage.columns import encode_validity, join, pieces
from penstock.storage.encoding import lay_out
from penstock.storage.errors import Error
from penstock.storage.header import CHECKSUM_STRUCT, EVENT_TIMES, of_producer
from penstock.storage.header_list import HeaderList
from penstock.storage.record import records
from penstock.transport import messages as m
from support.engine import START_US, Rig
from support.unjudged import hidden_codec
from xxhash import xxh3_64_intdigest

VALUES = (ColumnId.VALUE, Codec.NONE, pieces([b"a", b"b"]))


def raw(values: list[bytes]) -> bytes:
    column = pieces(values)
    return bytes(join(column.parts, column.size))


def of(*columns: Any, count: int = 2, **producer: int) -> bytes:
    """A batch of raw columns."""
    return bytes(assemble(Kind.RECORDS, count, columns, *producer.values()))


def with_headers(*packed: bytes, codec: int = Codec.NONE) -> bytes:
    """A batch with headers as they are packed, one for each record."""
    columns = [(ColumnId.VALUE, Codec.NONE, pieces([b"v"] * len(packed))), (ColumnId.HEADERS, codec, pieces(packed))]
    return of(*columns, count=len(packed))


def with_lists(*packed: tuple[bytes, bytes], codec: int = Codec.NONE) -> bytes:
    """A batch with maps of headers and lists of them as they are packed, one for each record."""
    maps, lists = zip(*packed, strict=True)
    columns = [(ColumnId.VALUE, Codec.NONE, pieces([b"v"] * len(packed)))]
    columns += [(ColumnId.HEADERS, codec, pieces(maps)), (ColumnId.HEADER_LIST, codec, pieces(lists))]
    return of(*columns, count=len(packed))


def stored(codec: int, data: bytes, raw_bytes: int, count: int = 2) -> bytes:
    """A batch whose values are stored as `data`, which the directory says are `raw_bytes` when inflated."""
    return bytes(lay_out(Kind.RECORDS, count, [(ColumnId.VALUE, codec, data, raw_bytes)], 0, 0, 0))


def edited(batch: bytes, position: int, data: bytes) -> bytes:
    """With other bytes in the header or directory, under a checksum that agrees."""
    found = bytearray(batch)
    found[position : position + len(data)] = data
    (header_bytes,) = struct.unpack_from("<I", found, 16)
    CHECKSUM_STRUCT.pack_into(found, 0, xxh3_64_intdigest(memoryview(found)[8:header_bytes]))
    return bytes(found)


def moved(batch: bytes, by: int) -> bytes:
    """With `by` bytes between its directory and its only column."""
    found = parse(batch)
    begin = found.header_bytes
    spread = batch[:begin] + bytes(by) + batch[begin:]
    spread = edited(spread, 20, struct.pack("<I", len(spread)))
    return edited(spread, HEADER_BYTES + 4, struct.pack("<I", begin + by))


def compressed(codec: int, data: bytes) -> bytes:
    return stored(codec, codecs.compress(codec, data), len(data))


FALLING = struct.pack("<3i4x", 0, 2, 1) + b"a"
PLAIN = bytes(encode([b"a", b"b"]))
MAP, PAIRS = b"\x81\xa1a\xc4\x01x", b"\x92\x92\xa1a\xc0\x92\xa1a\xc4\x01x"
LIST = [("é", b"1"), ("x", None), ("é", b"2")]
SOME_KEYS = encode_validity([True, False])

LIES = {
    "zstd that is none": (stored(Codec.ZSTD, b"nonsense", 18), "not valid zstd"),
    "lz4 that is none": (stored(Codec.LZ4, b"nonsense", 18), "not valid lz4"),
    "zstd that is longer than it says": (stored(Codec.ZSTD, codecs.compress(2, bytes(99)), 18), "inflated to 19"),
    "zstd that is shorter than it says": (stored(Codec.ZSTD, codecs.compress(2, bytes(9)), 18), "inflated to 9"),
    "compressed positions that fall": (compressed(Codec.LZ4, FALLING), "offsets"),
    "compressed positions that end elsewhere": (compressed(Codec.ZSTD, raw([b"a", b"b"]) + b"c"), "offsets"),
    "more records than compressed positions": (
        stored(Codec.ZSTD, codecs.compress(2, raw([b"a"])), 9, count=1 << 31), "cannot hold the offsets",
    ),
    "headers that are no map": (with_headers(b"\x93\x01\x02\x03"), "map of text to bytes"),
    "headers that are no map, of the last of many": (with_headers(*[b""] * 99, b"\x01"), "map of text to bytes"),
    "headers that are no map, compressed": (with_headers(b"\x01", codec=Codec.LZ4), "map of text to bytes"),
    "headers with text for a value": (with_headers(b"\x81\xa1h\xa1v"), "map of text to bytes"),
    "headers with a name that is no text": (with_headers(b"\x81\xa1\xff\xc4\x01v"), "map of text to bytes"),
    "headers that end early": (with_headers(b"\x81\xa1h\xc4\x05v", b"\x80"), "map of text to bytes"),
    "headers of two maps": (with_headers(b"\x80\x80", b""), "map of text to bytes"),
    "a list of headers without maps": (of(VALUES, (15, 0, pieces([b"", PAIRS]))), "leave column 15 out"),
    "a list of headers that is none": (with_lists((b"", b"\x81\xa1a\xc4\x01x")), "msgpack array of pairs"),
    "a list of headers that is no msgpack": (with_lists((b"", b"\xc1")), "msgpack array of pairs"),
    "a list of headers that ends early": (with_lists((b"", PAIRS[:-1])), "msgpack array of pairs"),
    "a list of headers and more": (with_lists((MAP, PAIRS + b"\x90")), "msgpack array of pairs"),
    "a list of headers with a triple": (with_lists((b"", b"\x91\x93\xa1a\xc0\xc0")), "msgpack array of pairs"),
    "a list of headers with text for a value": (with_lists((b"", b"\x91\x92\xa1a\xa1x")), "msgpack array of pairs"),
    "a list of headers with a name that is no text": (with_lists((b"", b"\x91\x92\xa1\xff\xc0")), "array of pairs"),
    "a list of headers that is not its map": (with_lists((b"", b""), (b"", PAIRS)), "other headers in its list"),
    "a list of headers that is not its map, compressed": (with_lists((b"", PAIRS), codec=2), "other headers in its"),
    "a map of headers that is not its list": (with_lists((b"\x81\xa1a\xc4\x01y", PAIRS)), "other headers in its list"),
    "lists of headers whose positions fall": (
        of(VALUES, (ColumnId.HEADERS, 0, pieces([b"", b""])), (15, 0, FALLING)), "offsets",
    ),
    "lists of headers whose positions fall, compressed": (
        of(VALUES, (ColumnId.HEADERS, 0, pieces([b"", b""])), (15, 1, FALLING)), "offsets",
    ),
    "a validity without keys": (of(VALUES, (ColumnId.KEY_VALIDITY, 0, SOME_KEYS)), "without keys"),
    "bits behind the last validity": (
        of(VALUES, (ColumnId.KEY, 0, pieces([b"k", b""])), (ColumnId.KEY_VALIDITY, 0, b"\x05")), "bits behind",
    ),
    "a missing key with bytes": (
        of(VALUES, (ColumnId.KEY, 0, pieces([b"k", b"k"])), (ColumnId.KEY_VALIDITY, 0, SOME_KEYS)), "without a key",
    ),
    "a missing key with bytes, compressed": (
        of(VALUES, (ColumnId.KEY, 1, pieces([b"k", b"k"])), (ColumnId.KEY_VALIDITY, 0, SOME_KEYS)), "without a key",
    ),
    "an event time before the calendar": (bytes(encode([b"a", b"b"], event_times=[0, EVENT_TIMES[0] - 1])), "years"),
    "an event time after it": (bytes(encode([b"a", b"b"], event_times=[EVENT_TIMES[1] + 1, 0])), "years 1 to 9999"),
    "a delay below 0": (bytes(encode([b"a", b"b"], not_before=[0, -1])), "not_before=-1 is negative"),
    "a delay beyond all": (bytes(encode([b"a", b"b"], not_before=[0, 1 << 62])), "more than 10 years"),
    "hashes of keys": (of(VALUES, (ColumnId.KEY_HASH, 0, bytes(16))), "column 3 cannot be produced"),
    "offsets": (of(VALUES, (ColumnId.OFFSET, 0, bytes(16))), "column 13 cannot be produced"),
    "times of appending": (of(VALUES, (ColumnId.APPEND_TIME, 0, bytes(16))), "column 14 cannot be produced"),
    "differences of offsets": (of(VALUES, (ColumnId.OFFSET_DELTA, 0, bytes(8))), "column 9 cannot be produced"),
    "bits behind the last validity of values": (of(VALUES, (ColumnId.VALUE_VALIDITY, 0, b"\7")), "column 12 has bits"),
    "a validity of values that is too short": (of(VALUES, (ColumnId.VALUE_VALIDITY, 0, b"")), "0 bytes instead of 1"),
    "a validity of values that is too long": (of(VALUES, (ColumnId.VALUE_VALIDITY, 0, b"\3\0")), "2 bytes instead"),
    "a compressed validity": (of(VALUES, (ColumnId.VALUE_VALIDITY, 1, b"\3")), "column 12 cannot have codec 1"),
    "a null with bytes": (of(VALUES, (ColumnId.VALUE_VALIDITY, 0, b"\2")), "without a value has bytes"),
    "a null with bytes, compressed": (
        of((ColumnId.VALUE, 1, pieces([b"a", b"b"])), (ColumnId.VALUE_VALIDITY, 0, b"\1")), "without a value has bytes",
    ),
    "a column of an experiment": (of(VALUES, (2000, 0, b"x")), "column 2000 cannot be produced"),
    "no records": (edited(PLAIN, 24, bytes(4)), "offsets"),
    "records without values": (of((ColumnId.KEY, 0, pieces([b"a", b"b"]))), "does not fit its columns"),
    "two columns of values": (of(VALUES, VALUES), "twice"),
    "flags": (edited(PLAIN, 14, b"\1"), "with flags 1"),
    "flags of a column": (edited(PLAIN, HEADER_BYTES + 3, b"\2"), "flags 2"),
    "reserved bytes": (edited(PLAIN, 108, b"\1"), "108 to 127"),
    "the last reserved byte": (edited(PLAIN, 127, b"\1"), "108 to 127"),
    "a sequence without a producer": (of(VALUES, id=0, epoch=0, first=1), "without a producer id"),
    "an epoch without a producer": (of(VALUES, id=0, epoch=1, first=0), "without a producer id"),
    "a sequence below 0": (of(VALUES, id=1, epoch=0, first=-1), "below 0"),
    "a column that is not aligned": (moved(PLAIN, 64)[: len(PLAIN) + 64], "begins at 256 instead of 192"),
    "bytes behind the columns": (edited(PLAIN + bytes(64), 20, struct.pack("<I", len(PLAIN) + 64)), "nothing behind"),
}  # fmt: skip


@pytest.mark.parametrize(("payload", "says"), LIES.values(), ids=LIES)
def test_a_batch_that_a_reader_would_trip_over_is_refused_and_not_stored(payload: bytes, says: str):
    rig = Rig()
    topic = rig.topic()
    answer = rig.ask(m.Produce, topic, 0, payload=payload)
    assert isinstance(answer, m.Failure), answer
    assert (answer.code, says in answer.message) == ("invalid_batch", True), answer
    assert rig.partition(topic).end == 0


@pytest.mark.parametrize("codec", Codec)
def test_what_every_reader_can_decode_is_taken(codec: Codec):
    rig = Rig()
    topic = rig.topic()
    how: dict[str, Any] = {
        "keys": [b"k", None, b""], "headers": [{"h": b"1", "é": b""}, None, HeaderList(LIST)],
        "event_times": [*EVENT_TIMES, 0],
        "priorities": [0, 9, 255], "not_before": [0, START_US + 1, 0], "dedup": [b"", b"d", b"e"], "codec": codec,
    }  # fmt: skip
    assert rig.produce(topic, [None, b"", b"c"], **how).offset == 0
    stored: Batch = rig.node.logs[1].reader().cursor(0).next().batches[0]
    found = records(stored)
    assert [record.headers for record in found] == [{"h": b"1", "é": b""}, {}, {"é": b"2"}]
    assert [record.header_list for record in found] == [[("h", b"1"), ("é", b"")], [], LIST]
    assert [record.key for record in found] == how["keys"]
    assert [record.value for record in found] == [None, b"", b"c"]
    assert [record.time.year for record in found] == [1, 9999, 1970]


@pytest.mark.parametrize("codec", Codec)
def test_a_column_of_a_critical_flag_that_the_broker_knows_is_taken(codec: Codec):
    rig = Rig()
    topic = rig.topic()
    batch = bytes(encode([b"a" * 99, b"b"], codec=codec))
    assert rig.ask(m.Produce, topic, 0, payload=edited(batch, HEADER_BYTES + 3, b"\1")).offset == 0


def test_nothing_is_inflated_beyond_the_limit_of_the_broker():
    rig = Rig()
    topic = rig.topic(max_record_bytes=64 << 20)
    most = judging.INFLATED_BYTES_MAX
    columns = [(ColumnId.VALUE, Codec.ZSTD, b"never looked at", most - 9), (ColumnId.KEY, Codec.LZ4, b"neither", 10)]
    answer = rig.ask(m.Produce, topic, 0, payload=bytes(lay_out(Kind.RECORDS, 2, columns, 0, 0, 0)))
    assert (answer.code, f"{most + 1} bytes when inflated, the limit is {most}" in answer.message) == (
        "batch_too_large", True,
    )  # fmt: skip
    assert rig.produce(topic, [bytes(most // 2)], codec=Codec.ZSTD).offset == 0


def test_lists_of_headers_count_as_headers():
    rig = Rig()
    topic = rig.topic(max_record_bytes=judging.HEADERS_BYTES_MAX)
    half = judging.HEADERS_BYTES_MAX // 2
    headers = [("a", b""), ("a", bytes(half))]
    answer = rig.produce(topic, [b"a"], headers=[HeaderList(headers)])
    assert (answer.code, "the headers of the batch" in answer.message) == ("batch_too_large", True)
    assert rig.produce(topic, [b"a"], headers=[HeaderList([("a", b""), ("a", bytes(half - 100))])]).offset == 0
    small = rig.topic("small", max_record_bytes=1000)
    answer = rig.produce(small, [b"a"], headers=[HeaderList([("a", bytes(900)), ("a", bytes(900))])])
    assert (answer.code, "a list of headers" in answer.message) == ("record_too_large", True)


def test_more_headers_than_the_broker_decodes_at_once_are_refused():
    rig = Rig()
    topic = rig.topic()
    most = judging.HEADERS_BYTES_MAX
    answer = rig.produce(topic, [b"a"], headers=[{"h": bytes(most)}])
    assert (answer.code, f"the limit is {most}" in answer.message) == ("batch_too_large", True)
    assert rig.produce(topic, [b"a"], headers=[{"h": bytes(most - 100)}]).offset == 0


def test_a_broker_without_the_codec_refuses_what_it_cannot_judge_and_says_where_to_install_it():
    rig = Rig()
    topic = rig.topic()
    batch = bytes(encode([b"a" * 99], codec=Codec.ZSTD))
    with hidden_codec():
        answer = rig.ask(m.Produce, topic, 0, payload=batch)
    assert answer.code == "missing_codec"
    assert "where the broker runs, pip install '.[codecs]' in a clone" in answer.message
    assert rig.produce(topic, [b"a"]).offset == 0


@given(
    st.lists(st.binary(max_size=90), min_size=1, max_size=3), st.integers(0, 2), st.integers(-1, 2), st.integers(0, 1),
    st.integers(0, 200), st.integers(300, 500),
)  # fmt: skip
def test_few_records_are_judged_as_all_others(values, producer_id, first, epoch, max_record_bytes, max_frame_bytes):
    """Whether a batch is recognised by its shape or not, it is accepted or refused with the same words."""
    batch = bytes(of_producer(encode(values), producer_id, epoch, first))
    judged = []
    for recognises in (judging.parse_few, lambda payload: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(judging, "parse_few", recognises)
            try:
                found = judging.judge(batch, max_frame_bytes, max_record_bytes, Rig().now)
                judged.append((found.producer_id, found.first_sequence, found.record_count, found.checked))
            except Error as error:
                judged.append((type(error), error.message))
    assert judged[0] == judged[1]
