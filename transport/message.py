"""The base of all messages, and the bounds of the numbers in them.

A message is a msgpack array [tag, field, ...]; messages.py and queue_messages.py declare them. Pure: values only.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from msgspec import Meta, Struct

INT64_MAX = 2**63 - 1

Int64 = Annotated[int, Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
Count = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Unsigned = Annotated[int, Meta(ge=0)]
"""0 to 2**64 - 1, which is all that msgpack can carry."""
TopicId = Annotated[bytes, Meta(min_length=16, max_length=16)]
Setting = str | int | float | bool | None
"""Flat, so that no request can nest."""

LIST_MAX = 1 << 14
"""Entries of one list of a request: what they ask for is work, of which one request may cause so much."""

SETTINGS_MAX = 100
"""Entries of one map of settings, and headers of one schedule."""

T = TypeVar("T")
Listed = Annotated[list[T], Meta(max_length=LIST_MAX)]
Settings = Annotated[dict[str, Setting], Meta(max_length=SETTINGS_MAX)]

# The bounds above hold for what is decoded from the wire: whatever passed can be stored in 8 bytes.


class Message(Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=False):
    """Base of all messages. New fields go at the end, with a default, and old peers skip them."""
