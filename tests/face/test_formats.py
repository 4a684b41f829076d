"""Records as lines, JSON lines and raw bytes, in and out."""

from __future__ import annotations

from itertools import pairwise
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.cli.formats import Entry, InvalidInput, entries, writer
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
    with pytest.raises(InvalidInput, match=r"standard input line 3 holds no key separator b'\\t'"):
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
        (b'{"value": 1}', "Expected `str`"),
        (b'{"valeu": "x"}', "unknown field `valeu`"),
        (b"plain", "malformed"),
        (b'{"value": "a", "value_base64": "YQ=="}', "given twice"),
        (b'{"value_base64": "?"}', "is not a JSON record"),
        (b'{"value": "x", "headers": {"a": 1}}', "Expected `str`"),
        (b"[]", "Expected `object`"),
        (b'"\xff"', "is not a JSON record"),
    ],
)
def test_a_line_that_is_no_record_is_named_with_its_number_and_reason(line: bytes, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read("json", b'{"value": "fine"}\n\n' + line + b"\n")
    assert caught.value.message.startswith("standard input line 3 is not a JSON record: ")
    assert says in caught.value.message
