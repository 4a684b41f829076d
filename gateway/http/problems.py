"""Errors as clients of HTTP see them: a status, and a body with code, message and retryable.

Idea: a status means one thing (decision 074). penstock's errors say by their class what they are: what is missing
(LookupError), what is malformed (ValueError), what may work later (`retry`). The others are in a table.

Pure.
"""

from __future__ import annotations

from msgspec import Struct

from ...storage.errors import Error

PHRASES = {
    400: "The request is malformed: it will fail again as it is.",
    401: "A user has to authenticate, or could not.",
    403: "The user has no permission.",
    404: "What the request is about is not there.",
    405: "The path has no such method.",
    409: "The request conflicts with how things are now.",
    413: "The body, or a record in it, is larger than allowed.",
    415: "The body has a media type or an encoding that the operation does not take.",
    429: "A bound is reached: slow down, or free something.",
    431: "The head of the request is larger than allowed.",
    500: "The gateway failed: its log says how.",
    503: "The broker cannot do this now; `retryable` says whether waiting helps.",
}
"""Every status of an error."""

_STATUSES = {
    **dict.fromkeys(("record_too_large", "batch_too_large", "message_too_large"), 413),
    **dict.fromkeys(
        ("topic_exists", "group_active", "fenced", "diverged", "lease_lost", "unknown_lease", "session_replaced"), 409
    ),
    **dict.fromkeys(("too_much_asked", "protocol"), 400),
    **dict.fromkeys(("limit_reached", "overloaded"), 429),
    "forbidden": 403,
}
"""Of codes whose class does not say it."""


class Problem(Struct, frozen=True):
    """The body of every answer that is an error."""

    code: str
    message: str
    retryable: bool


class Refusal(Exception):
    """A request that the door refuses itself."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.problem = Problem(code, message, status in (429, 503))


def status_of(error: Error) -> int:
    """The status of an error of penstock."""
    found = _STATUSES.get(error.code)
    if found is not None:
        return found
    if isinstance(error, LookupError):
        return 404
    return 400 if isinstance(error, ValueError) else 503


def problem_of(error: Error) -> Problem:
    """The body of an error of penstock."""
    return Problem(error.code, error.message, error.retry)
