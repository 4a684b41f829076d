"""Values survive both encodings, and what cannot is refused with a sentence."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.clients.encoding import ENCODINGS, decode, encode, fitted, is_known

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(value=PLAIN)
def test_plain_values_come_back_equal(encoding, value):
    assert decode(encoding, encode(encoding, value)) == value


@dataclass
class Order:
    number: int
    due: datetime


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (Order(7, datetime(2026, 1, 2, tzinfo=UTC)), Order),
        ([Order(7, datetime(2026, 1, 2, tzinfo=UTC))], list[Order]),
        (UUID(int=5), UUID),
        ({1: "a", 2: "b"}, dict[int, str]),
        ((1, "x"), tuple[int, str]),
        ({1, 2}, set[int]),
    ],
)
def test_a_type_brings_back_what_the_encoding_has_no_word_for(encoding, value, hint):
    assert fitted(decode(encoding, encode(encoding, value)), hint) == value


def test_bytes_are_for_msgpack():
    assert decode("msgpack", encode("msgpack", [b"\xff"])) == [b"\xff"]
    for value in (b"x", [b"x"], {"a": {"b": bytearray(b"x")}}):
        with pytest.raises(ValueError, match='take "msgpack" instead'):
            encode("json", value)


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("json", object()),
        ("msgpack", object()),
        ("json", math.nan),
        ("json", math.inf),
        ("msgpack", 1 << 70),
        ("json", {(1, 2): 3}),
    ],
)
def test_what_cannot_be_encoded_is_a_value_error(encoding, value):
    with pytest.raises(ValueError, match=r"."):
        encode(encoding, value)


def test_a_value_that_refers_to_itself_is_refused():
    endless: list[object] = []
    endless.append(endless)
    for encoding in ENCODINGS:
        with pytest.raises(ValueError, match=r"."):
            encode(encoding, endless)


@given(st.binary(max_size=40))
def test_any_bytes_decode_or_are_a_value_error(data):
    for encoding in ENCODINGS:
        with contextlib.suppress(ValueError):
            decode(encoding, data)


@pytest.mark.parametrize(("encoding", "one_more"), [("json", b"["), ("msgpack", b"\x91")])
def test_what_is_nested_too_deeply_is_a_value_error(encoding, one_more):
    with pytest.raises(ValueError, match=f"it is no {encoding}: maximum recursion depth"):
        decode(encoding, one_more * 5000)


@dataclass
class Careful:
    name: str

    def __post_init__(self) -> None:
        raise LookupError(self.name)


def test_what_a_type_raises_that_checks_itself_is_a_value_error():
    with pytest.raises(ValueError, match="LookupError: ada"):
        fitted({"name": "ada"}, Careful)


def test_text_with_half_a_character_is_refused():
    for encoding in ENCODINGS:
        with pytest.raises(ValueError, match="surrogates"):
            encode(encoding, "\ud800")


def test_a_type_that_cannot_be_checked_is_known_as_such():
    assert is_known(int | None)
    assert not is_known(Order | dict)
