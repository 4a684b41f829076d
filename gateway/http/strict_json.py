"""Decodes JSON into types, and refuses objects that name a field twice.

Idea: msgspec takes the last of two fields of one name, and another reader may take the first. The standard library
shows the fields of each object as they stand, so it looks at what msgspec has accepted. It takes a second for a body of
a few MB that has many small values, so what is larger than `AT_ONCE` is looked at in portions, in turns of the loop.

Contract: what a client's own JSON holds (`FREE` fields) is stored as it came, so it is not looked into. Raises what
msgspec raises, and Refusal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping
from itertools import count
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from ..turns import Turns
from .problems import Refusal

AT_ONCE = 16 << 10
"""Bytes that are looked at in one turn, which takes a millisecond or two."""

TOKENS = 1_000
"""The same of strings and brackets of a larger text."""

FREE = frozenset({"json", "result", "progress"})
"""Fields of requests that hold any JSON value."""

_REPEATED = object()

T = TypeVar("T")


class StrictDecoder(Generic[T]):
    """Decodes bodies of one type."""

    def __init__(self, kind: Any) -> None:
        self._decode: Callable[[Any], T] = msgspec.json.Decoder(kind).decode

    def decode(self, body: bytes | msgspec.Raw) -> T:
        """A value of the type. Raises msgspec.DecodeError, UnicodeError, RecursionError, Refusal."""
        found, text = self._decode(body), bytes(body)
        if b"," in text:
            _check(text.decode())
        return found

    async def decode_in_turns(self, body: bytes | msgspec.Raw, turns: Turns) -> T:
        """As `decode`, of a body of any size."""
        if len(memoryview(body)) <= AT_ONCE:
            return self.decode(body)
        text = bytes(body)
        found = self._decode(text)
        for _ in portions(text, _own(found, text)):
            await turns.turn()
        return found


def _own(found: Any, text: bytes) -> dict[int, int]:
    """Where a client's own JSON is in a text from which something was decoded: each beginning, and its end."""
    fields = msgspec.structs.astuple(found) if isinstance(found, msgspec.Struct) else ()
    begin = _address(text)
    starts = ((_address(each) - begin, len(memoryview(each))) for each in fields if isinstance(each, msgspec.Raw))
    return {start: start + size for start, size in starts if 0 <= start < len(text)}


def _address(content: Any) -> int:
    return np.frombuffer(content, np.uint8).ctypes.data


def _check(text: str) -> None:
    top = json.loads(text, object_pairs_hook=_seen, parse_int=len, parse_float=len)
    if _has_repeated(top):
        raise _repeated()


def _repeated() -> Refusal:
    return Refusal(400, "invalid_request", "an object of the body has two fields of one name")


_TO_TOKEN = re.compile(rb'[^"{}\[\]]{0,4096}+(["{}\[\]]?)')
"""What is between two strings or brackets, as far as one portion goes, and the beginning of the next one."""

_COLON = re.compile(rb"[ \t\r\n]*+(?:(:)[ \t\r\n]*+)?")

TOKEN_BYTES = 64
"""So many bytes without a string or a bracket take as long as one."""


def portions(text: bytes, own: Mapping[int, int]) -> Generator[None, None, None]:
    """Look through valid JSON, with a pause behind every portion. Raises Refusal.

    `own` has the ends of fields of a client's own by their beginnings, as far as they are known: they are passed over.
    """
    open_: list[set[str]] = []  # names that objects have had so far, of those around this place; none of lists
    free = at = 0  # `free`: how many of those there are around a field of a client's own; 0 outside of one
    left = TOKENS
    while at < len(text):
        if left <= 0:
            yield
            left = TOKENS
        found = _TO_TOKEN.match(text, at)
        assert found is not None, "it matches nothing, too"
        begin, (token,) = found.end() - 1, found.groups()
        left -= 1 + (found.end() - at) // TOKEN_BYTES
        at = found.end()
        if token == b'"':
            end = yield from _end_of_string(text, at)
            colon = _COLON.match(text, end)
            assert colon is not None, "it matches nothing, too"
            at = colon.end()
            if colon[1] and not 0 < free < len(open_):
                name = msgspec.json.decode(text[begin:end])
                if name in open_[-1]:
                    raise _repeated()
                open_[-1].add(name)
                free = len(open_) if name in FREE else 0
                at = own.get(at, at) if free else at
        elif token in (b"{", b"["):
            open_.append(set())
        elif token:
            open_.pop()
            free = 0 if len(open_) < free else free


def _end_of_string(text: bytes, at: int) -> Generator[None, None, int]:
    """Where a string ends whose content begins at a place, with a pause behind every portion of it."""
    quote = text.index(b'"', at)
    if quote == at or text[quote - 1] != _BACKSLASH:
        return quote + 1
    for parts in count(1):
        found = _STRING_PART.match(text, at)
        assert found is not None, "it matches nothing, too"
        if found[1]:
            return found.end()
        at = found.end()
        if not parts % PARTS:
            yield
    raise AssertionError("a string of valid JSON has an end")


_BACKSLASH = ord("\\")

_STRING_PART = re.compile(rb'(?:[^"\\]{1,256}+|\\.){0,64}+("?)', re.DOTALL)

PARTS = 64
"""Of a string with escapes in one portion: a hundred KB."""


def _seen(pairs: list[tuple[str, Any]]) -> Any:
    """What stands for an object: whether it repeats a field, or holds an object that does."""
    if len(dict(pairs)) < len(pairs):
        return _REPEATED
    for name, value in pairs:
        if _has_repeated(value) and name not in FREE:
            return _REPEATED
    return None


def _has_repeated(value: Any) -> bool:
    return value is _REPEATED or (type(value) is list and any(map(_has_repeated, value)))
