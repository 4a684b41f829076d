"""A call as bytes: refused where it is sent, or unpacked with the types of the signature."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

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


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int


def things(payload: dict[str, Any], *rest, times: list = [], **more): ...  # noqa: B006


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (NOON, "datetime"),
        (date(2026, 1, 2), "date"),
        ((1, "a"), "tuple[int, str]"),
        ({3, 4}, "set[int]"),
        ([NOON], "list[datetime.datetime]"),
        ({1: "a"}, "dict[int, str]"),
        ({"a": [(1, 2)]}, "dict[str, list[tuple[int, int]]]"),
        (Colour.RED, "Colour"),
        (Point(3), "Point"),
        (UUID(int=5), "UUID"),
        (Decimal("1.50"), "Decimal"),
        (timedelta(seconds=3), "timedelta"),
    ],
)
@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_an_argument_that_would_change_is_refused_with_the_annotation_that_helps(given, hint, encoding):
    arguments = Arguments(loose, "loose")
    if encoding == "msgpack" and given == {1: "a"}:
        assert arguments.unpack(encoding, arguments.pack(encoding, (given,), {})) == ([given], {})
        return
    with pytest.raises(
        InvalidArgument, match=f"'second' of loose would arrive as .*: annotate it as second: {re.escape(hint)}$"
    ):
        arguments.pack(encoding, (1,), {"second": given})


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        (({"at": NOON},), {}, "'payload' .*annotate it as payload: dict"),
        (({}, 1, (2,)), {}, r"'rest' .*as \[2\], not as \(2,\).*rest: tuple\[int\]"),
        (({},), {"times": [NOON]}, "'times' .*times: list"),
        (({},), {"other": NOON}, "'more' .*more: datetime"),
        (({"a": [NOON, "x"]},), {}, "'payload' .*send what it has words for"),
        (({"a": OrderedDict()},), {}, "'payload' .*send what it has words for"),
    ],
)
def test_so_is_one_whose_annotation_leaves_its_type_open(args, kwargs, says):
    with pytest.raises(InvalidArgument, match=says):
        Arguments(things, "things").pack("json", args, kwargs)


def test_arguments_without_types_that_do_not_change_are_taken():
    value = {"a": [1, 2.5, "x", None, True, {"b": []}]}
    for arguments, call in ((Arguments(loose, "loose"), [value, "x"]), (Arguments(things, "things"), [value, 1, "x"])):
        assert arguments.unpack("json", arguments.pack("json", tuple(call), {})) == (call, {})
    nan = float("nan")
    assert Arguments(loose, "loose").pack("msgpack", ([nan],), {})


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
        (b"[[], {}]", "cannot be called with these arguments"),
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
    assert MAIL.unpack_result("json", MAIL.pack_result("json", None)) is None
    assert MAIL.unpack_result("json", None) is None
    with pytest.raises(ValueError, match="object"):
        MAIL.pack_result("json", object())
