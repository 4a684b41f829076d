"""Ids of requests, by which the logs of a client, the gateway and the broker are brought together: `X-Request-Id`.

Idea: an id that the client sends comes back with the answer. An answer that is an error has one in any case, and the
line about it in the log of the gateway has the same. An id that the client sent goes on to the broker, with all
that the gateway asks there for the request.

Contract: an id is 1 to 128 visible ASCII characters; another one counts as none, so that no client can write lines
into the log.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from ...clients.connection.request_ids import request_id
from ...transport.naming_messages import REQUEST_ID

HEADER_NAME = b"x-request-id"
_VALID = re.compile(REQUEST_ID.encode())


def given(headers: Mapping[bytes, bytes]) -> bytes:
    """The id that a client sent, b"" without one."""
    found = headers.get(HEADER_NAME, b"")
    return found if _VALID.fullmatch(found) else b""


def made() -> bytes:
    """An id for a request without one."""
    return uuid.uuid4().hex.encode()


def followed(given: bytes) -> AbstractContextManager[None]:
    """Have what a block asks of the broker carry an id that a client sent; b"": none."""
    return request_id(given.decode()) if given else nullcontext()
