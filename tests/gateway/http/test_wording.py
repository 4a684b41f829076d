"""What is wrong with a request, in our words: each sentence names the field."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta, Struct
from penstock.gateway.http.shapes import NewMessage, Offsets
from penstock.gateway.http.wording import malformed, sentence


class Moved(Struct, forbid_unknown_fields=True):
    next: Offsets
    wait: Annotated[float, Meta(le=60)] | None = None


Body = NewMessage | list[NewMessage]


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        (Body, "1", "the body has to be an object or a list, not a whole number"),
        (Body, '{"value": 1}', "value has to be text or null, not a whole number"),
        (Body, '[{"value": "a"}, {"value": true}]', "[1].value has to be text or null, not true or false"),
        (Body, '{"valu": "a"}', "the body: there is no field `valu`"),
        (Body, '[{"valu": "a"}]', "[0]: there is no field `valu`"),
        (Body, '{"partition": -1}', "partition has to be a whole number >= 0"),
        (Body, '{"timestamp": "x"}', "timestamp has to be a whole number or null, not text"),
        (Body, '{"value_base64": "%"}', "value_base64: invalid base64 encoded string"),
        (Moved, "{}", "the body: the field `next` is missing"),
        (Moved, '{"next": {"x": 1}}', "a name in next has to be a whole number, not text"),
        (Moved, '{"next": {"0": -3}}', "next[...] has to be a whole number >= 0"),
        (Moved, '{"next": {}}', "next has to be an object of length >= 1"),
        (Moved, '{"next": {"0": 1}, "wait": 99}', "wait has to be a number <= 60.0"),
    ],
)
def test_a_sentence_names_the_field_and_what_it_takes(kind: Any, body: str, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.json.decode(body, type=kind)
    assert sentence(str(raised.value), "the body") == said


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is not JSON: it ends too early"),
        (b"{", "the body is not JSON: it ends too early"),
        (b'{"a": ?}', "the body is not JSON in UTF-8: it is malformed at byte 6"),
        (b'{"\xff": 1}', "the body is not JSON in UTF-8: it is malformed"),
    ],
)
def test_a_body_that_is_no_json_is_called_so(body: bytes, said: str) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeError)) as raised:
        msgspec.json.decode(body)
    assert malformed(str(raised.value)) == said
