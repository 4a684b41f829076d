"""Decodes JSON into types, and refuses objects that name a field twice.

Idea: msgspec takes the last of two fields of one name, and another reader may take the first. The standard library
shows the fields of each object as they stand, so it looks at what msgspec has accepted.

Contract: what a client's own JSON holds (`FREE` fields) is stored as it came, so it is not looked into. Raises what
msgspec raises, and Refusal. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from .problems import Refusal

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


def _check(text: str) -> None:
    top = json.loads(text, object_pairs_hook=_seen, parse_int=len, parse_float=len)
    if _has_repeated(top):
        raise Refusal(400, "invalid_request", "an object of the body has two fields of one name")


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
