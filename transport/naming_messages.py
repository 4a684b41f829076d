"""NameRequest: a name for a request, by which logs of several processes are brought together (docs/decisions/135-*.md).

Normative text: PROTOCOL.md, section 8.1. Pure: values only. No sockets, no clock, no rules.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .message import Count, Message

REQUEST_ID_MAX = 128
"""Characters of an id."""

REQUEST_IDS_MAX = 64
"""Ids of one request."""

REQUEST_ID = rf"\A[!-~]{{1,{REQUEST_ID_MAX}}}\Z"
"""Visible ASCII characters: an id cannot end a line of a log, or begin one."""

RequestId = Annotated[str, Meta(pattern=REQUEST_ID)]


class NameRequest(Message, tag=133, frozen=True):
    """One-way: the request with this number, which this connection sends next, is part of these requests elsewhere."""

    number: Count
    ids: Annotated[list[RequestId], Meta(min_length=1, max_length=REQUEST_IDS_MAX)]
