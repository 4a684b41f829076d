"""A call as bytes: refused where it is sent, or unpacked with the types of the signature."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from penstock.clients.tasks.arguments import Arguments
from penstock.errors import InvalidArgument


def mail(to: str, at: datetime, *copies: int, subject: str = "", **more: float) -> dict[int, timedelta]: ...


def loose(first, second: Any = None, third: Unknown = None): ...  # noqa: F821


MAIL = Arguments(mail, "mail")
NOON = datetime(2026, 1, 2, 12)


def test_a_call_comes_back_with_its_types():
    packed = MAIL.pack("json", ("a", NOON, 1, 2), {"subject": "s", "weight": 2})
    assert packed == b'[["a","2026-01-02T12:00:00",1,2],{"subject":"s","weight":2}]'
    assert MAIL.unpack("json", packed) == (["a", NOON, 1, 2], {"subject": "s", "weight": 2.0})


def test_arguments_without_types_are_as_the_encoding_has_them():
    arguments = Arguments(loose, "loose")
    assert arguments.unpack("json", arguments.pack("json", ((1, 2),), {"second": NOON})) == (
        [[1, 2], "2026-01-02T12:00:00"],
        {},
    )


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "missing a required argument: 'to'"),
        (("a", NOON), {"subject": b"x"}, "argument 'subject' of mail cannot be sent: bytes"),
        (("a", object()), {}, "argument 'at' of mail cannot be sent"),
        (("a", "no time"), {}, "mail: argument 'at' does not fit"),
        (("a", NOON, "x"), {}, "mail: argument 'copies' does not fit"),
        (("a", NOON), {"weight": "heavy"}, "mail: argument 'more' does not fit"),
    ],
)
def test_what_cannot_be_sent_names_the_argument(args, kwargs, says):
    with pytest.raises(InvalidArgument) as caught:
        MAIL.pack("json", args, kwargs)
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "it is no json"),
        (b"{}", "not an array"),
        (b"[[]]", "not an array"),
        (b"[[], []]", "not a map"),
        (b"[[], {}]", "cannot be called so"),
        (b'[["a", "x"], {}]', "argument 'at' does not fit"),
    ],
)
def test_what_is_no_call_says_why(value, says):
    with pytest.raises(ValueError, match=says):
        MAIL.unpack("json", value)


def test_a_map_of_no_names_is_no_call():
    with pytest.raises(ValueError, match="not a map of named"):
        MAIL.unpack("msgpack", b"\x92\x90\x81\x01\x02")


def test_a_result_comes_back_with_its_type():
    result = {1: timedelta(seconds=2)}
    assert MAIL.unpack_result("json", MAIL.pack_result("json", result)) == result
    assert MAIL.pack_result("json", None) is None
    assert MAIL.unpack_result("json", None) is None
    with pytest.raises(ValueError, match="object"):
        MAIL.pack_result("json", object())
