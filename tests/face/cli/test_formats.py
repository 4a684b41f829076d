"""Records as lines, JSON lines and raw bytes, in and out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.cli import formats
from penstock.cli.formats import Entry, InvalidInput, entries, writer
from penstock.storage.header_list import of_pairs, pairs_of
from penstock.storage.record import Record

EVERY_BYTE = bytes(range(256))


def read(form: str, *chunks: bytes, separator: bytes = b"") -> list[Entry]:
    found = entries(form, chunks, name="standard input", key_separator=separator)  # type: ignore[arg-type]
    return [entry for batch in found for entry in batch]


def record(value: bytes, key: bytes | None = None, headers: dict[str, bytes] | None = None) -> Record:
    return Record(value, key, MappingProxyType(headers or {}), 7, 1_000_000, 2, "topic")


def test_lines_lose_their_newline_and_nothing_else() -> None:
    assert read("lines", b"a\r\n\n b \x00\xff\nlast") == [
        Entry(b"a\r"),
        Entry(b""),
        Entry(b" b \x00\xff"),
        Entry(b"last"),
    ]


@given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=5))
def test_lines_are_the_same_wherever_the_chunks_are_cut(content: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(content)]
    chunks = [content[start:end] for start, end in pairwise(edges)]
    assert read("lines", *chunks) == read("lines", content)


def test_an_empty_input_has_no_lines_but_is_one_raw_record() -> None:
    assert read("lines") == read("json") == []
    assert read("raw") == [Entry(b"")]


def test_a_raw_record_is_the_whole_input() -> None:
    assert read("raw", EVERY_BYTE, b"\n", EVERY_BYTE) == [Entry(EVERY_BYTE + b"\n" + EVERY_BYTE)]


def test_a_key_stands_before_the_first_separator() -> None:
    assert read("lines", b"AA\tx\ty\n\tz", separator=b"\t") == [Entry(b"x\ty", b"AA"), Entry(b"z", b"")]


def test_a_line_without_the_separator_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"standard input line 3 holds no key separator \\t"):
        read("lines", b"a\tb\nc\td\n", b"nothing", separator=b"\t")


records = st.builds(
    record,
    st.binary(max_size=20),
    st.none() | st.binary(max_size=5),
    st.dictionaries(st.text(max_size=5), st.binary(max_size=5)),
)


@given(st.lists(records, max_size=4))
def test_what_json_writes_json_reads_back_equal(given_records: list[Record]) -> None:
    found = read("json", writer("json")(given_records))
    assert found == [Entry(r.value, r.key, dict(r.headers) or None, r.timestamp) for r in given_records]


@given(st.lists(records, max_size=4), st.lists(st.integers(0, 400), max_size=5))
def test_what_msgpack_writes_msgpack_reads_back_equal_wherever_it_is_cut(given_records: list[Record], cuts: list[int]):
    content = writer("msgpack")(given_records)
    edges = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    found = read("msgpack", *(content[start:end] for start, end in pairwise(edges)))
    assert found == [Entry(r.value, r.key, dict(r.headers) or None, r.timestamp) for r in given_records]
    decoder = msgspec.msgpack.Decoder()  # the other library finds the same maps, one after the other
    maps = [decoder.decode(writer("msgpack")([each])) for each in given_records]
    assert [(each["value"], each.get("key")) for each in maps] == [(r.value, r.key) for r in given_records]
    assert b"".join(map(msgspec.msgpack.encode, maps)) == content


def test_msgpack_of_others_may_have_text_and_nothing_but_a_value() -> None:
    content = msgspec.msgpack.encode({"value": "é"}) + msgspec.msgpack.encode(
        {"key": "k", "value": b"\xff", "offset": 9}
    )
    assert read("msgpack", content) == [Entry("é".encode()), Entry(b"\xff", b"k")]
    assert read("msgpack") == []


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_nulls_come_back_as_nulls(form: str) -> None:
    given_records = [record(None, b"k"), record(b"", b"k")]  # type: ignore[arg-type]
    content = writer(form)(given_records)  # type: ignore[arg-type]
    found = read(form, content)
    assert [(entry.value, entry.key) for entry in found] == [(None, b"k"), (b"", b"k")]


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_lists_of_headers_come_back_as_lists(form: str) -> None:
    lists = [[("a", b"1"), ("a", b"\xff"), ("b", None)], [("b", None)], [("a", b"1"), ("b", b"2")]]
    given_records = [Record(b"v", None, of_pairs(each), 0, 1, 0, "t") for each in lists]
    found = read(form, writer(form)(given_records))  # type: ignore[arg-type]
    assert [list(pairs_of(entry.headers or {})) for entry in found] == lists
    assert [entry.headers for entry in found] == [record.headers for record in given_records]


def test_where_nothing_stands_for_nulls_they_are_empty() -> None:
    given_records = [record(None), record(b"x")]  # type: ignore[arg-type]
    assert writer("lines")(given_records) == b"\nx\n"
    assert writer("raw")(given_records) == b"x"
    assert formats.shown(None) == "null"
    assert formats.json_fields(given_records[0])["value"] is None


GOOD = msgspec.msgpack.encode({"value": b"fine"})


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"\xc1", "is not a msgpack record: these bytes mean nothing in msgpack (at byte 13)"),
        (b"\x05", "Expected `object`, got `int`"),
        (msgspec.msgpack.encode({"key": b"k"}), "missing required field `value`"),
        (msgspec.msgpack.encode({"valeu": b"k"}), "unknown field `valeu`"),
        (msgspec.msgpack.encode({"value": 5}), "value is neither bytes nor text but int"),
        (msgspec.msgpack.encode({"value": b"", "headers": {"a": None}}), "a is neither bytes nor text but NoneType"),
        (msgspec.msgpack.encode({"value": [1]}), "value is neither bytes nor text but list"),
        (b"\x81\xa5value\xdd\xff\xff\xff\xff", "4294967295 exceeds max_array_len(100000)"),
        (b"\x81\xa5value\xc4\x05ab", "is cut short: the input ends at byte 24"),
        (b"\xdf\xff\xff\xff\xff", "4294967295 exceeds max_map_len(100000)"),
        (b"\x81\xa5value\xc6\x7f\xff\xff\xff", "is cut short"),
        (b"\x81\xa5value" * 2000, "is not a msgpack record"),
        (b"\x81\xa1\xff\x01", "'utf-8' codec can't decode"),
    ],
)
def test_a_msgpack_record_that_is_none_is_named_with_number_byte_and_reason(bad: bytes, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read("msgpack", GOOD + bad)
    assert caught.value.message.startswith(f"standard input: record 2, which begins at byte {len(GOOD)}, ")
    assert says in caught.value.message


def test_a_msgpack_record_without_an_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MSGPACK_MOST_BYTES", 1 << 20)
    endless = (b"\xdf\x00\x01\x86\xa0", *([b"\xa1k" + msgspec.msgpack.encode("x" * 1000)] * 100_000))
    taken = 0

    def chunks() -> Iterator[bytes]:
        nonlocal taken
        for chunk in endless:
            taken += len(chunk)
            yield chunk

    with pytest.raises(InvalidInput, match="record 1, which begins at byte 0, takes more than 1 MB"):
        list(entries("msgpack", chunks(), name="it"))
    assert taken < 2 << 20


def test_json_says_text_as_text_and_other_bytes_in_base64() -> None:
    lines = writer("json")([record("é\n".encode(), b"k", {"a": b"x"}), record(b"\xff", b"\xfe", {"b": b"\xfd"})])
    assert lines.decode().splitlines() == [
        '{"topic":"topic","partition":2,"offset":7,"timestamp":1000000,"key":"k","value":"é\\n","headers":{"a":"x"}}',
        '{"topic":"topic","partition":2,"offset":7,"timestamp":1000000,"key_base64":"/g==","value_base64":"/w==",'
        '"headers_base64":{"b":"/Q=="}}',
    ]


def test_lines_and_raw_write_any_bytes() -> None:
    given_records = [record(EVERY_BYTE), record(b"")]
    assert writer("lines")(given_records) == EVERY_BYTE + b"\n\n"
    assert writer("raw")(given_records) == EVERY_BYTE
    assert writer("lines")([]) == writer("raw")([]) == writer("json")([]) == b""


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{}", 'neither "value" nor "value_base64"'),
        (b'{"value": 1}', "Expected `str | null`"),
        (b'{"valeu": "x"}', "unknown field `valeu`"),
        (b"plain", "malformed"),
        (b'{"value": "a", "value_base64": "YQ=="}', 'its "value" is given twice'),
        (b'{"value_base64": "?"}', "is not a JSON record"),
        (b'{"value": "x", "headers": {"a": 1}}', "Expected `str`"),
        (b"[]", "Expected `object`"),
        (b'{"value_base64": "?"}', 'its "value_base64" is not base64'),
        (b'{"value": "", "headers_base64": {"h": "?"}}', 'its "headers_base64.h" is not base64'),
        (b'"\xff"', "is not a JSON record"),
    ],
)
def test_a_line_that_is_no_record_is_named_with_its_number_and_reason(line: bytes, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read("json", b'{"value": "fine"}\n\n' + line + b"\n")
    assert caught.value.message.startswith("standard input line 3 is not a JSON record: ")
    assert says in caught.value.message
