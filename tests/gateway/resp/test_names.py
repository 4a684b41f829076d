"""Keys and topics: one to one, both ways."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from penstock.gateway.resp.names import key_of_topic, numbered, topic_of_key
from penstock.gateway.resp.refusals import CommandRefused
from penstock.transport.names import is_name

NAMES = st.from_regex(r"(esc_)?(esc_)?(_[0-9a-f]{2}|[A-Za-z0-9_.-]){1,20}", fullmatch=True).filter(is_name)


@pytest.mark.parametrize(
    ("key", "topic"),
    [
        (b"orders", "orders"), (b"user:1", "esc_user_3a1"), (b"", "esc_"), (b".hidden", "esc_.hidden"),
        (b"a b", "esc_a_20b"), (b"\xff", "esc__ff"), (b"esc_user_3a1", "esc_esc_5fuser_5f3a1"), (b"esc_x", "esc_x"),
    ],
)  # fmt: skip
def test_keys_are_escaped_as_stated(key, topic):
    assert topic_of_key(key) == topic
    assert key_of_topic(topic) == key


@given(st.binary(max_size=60))
@example(b"esc_esc_5fx_3a")
def test_every_key_comes_back(key):
    topic = topic_of_key(key)
    assert is_name(topic)
    assert key_of_topic(topic) == key


@given(NAMES)
@example("esc_user_3A1")
@example("esc_orders")
@example("esc_esc_5forders")
def test_every_topic_has_a_key_of_its_own(topic):
    assert topic_of_key(key_of_topic(topic)) == topic


def test_a_key_that_is_too_long_is_refused():
    assert topic_of_key(b"x" * 200) == "x" * 200
    for key in (b"x" * 201, b":" * 66):
        with pytest.raises(CommandRefused, match="200 characters"):
            topic_of_key(key)


def test_a_number_behind_a_colon_may_be_a_partition():
    assert numbered(b"a:b:12") == (b"a:b", 12)
    assert [numbered(key) for key in (b"a:", b":1", b"a1", b"a:-1", b"a:12345")] == [None] * 5
