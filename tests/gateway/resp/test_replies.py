"""Replies: a client of RESP2 or RESP3 reads what was meant."""

from __future__ import annotations

import pytest
from penstock.gateway.resp.replies import NULL_ARRAY, Encoded, Status, array, bulk, encode, error

hiredis = pytest.importorskip("hiredis", reason="needs the extra gateway")


def read(data: bytes) -> object:
    reader = hiredis.Reader()
    reader.feed(data)
    return reader.gets()


@pytest.mark.parametrize(
    ("value", "in_2", "in_3"),
    [
        (b"\r\n\x00", b"\r\n\x00", b"\r\n\x00"),
        (Status("OK"), b"OK", b"OK"),
        ("text", b"text", b"text"),
        (-5, -5, -5),
        (None, None, None),
        (NULL_ARRAY, None, None),
        ([], [], []),
        ([1, [b"a", None]], [1, [b"a", None]], [1, [b"a", None]]),
        ({"a": 1, "b": [2]}, [b"a", 1, b"b", [2]], {b"a": 1, b"b": [2]}),
        (Encoded(array([bulk(b"x")])), [b"x"], [b"x"]),
    ],
)
def test_values_are_read_as_they_were_meant(value, in_2, in_3):
    assert read(encode(value, 2)) == in_2
    assert read(encode(value, 3)) == in_3


def test_each_version_has_its_own_null():
    assert [encode(None, 2), encode(NULL_ARRAY, 2), encode(None, 3)] == [b"$-1\r\n", b"*-1\r\n", b"_\r\n"]


def test_an_error_is_one_line():
    assert error("ERR a\r\nb\ud800") == b"-ERR a  b\\ud800\r\n"
