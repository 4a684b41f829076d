"""Turns failures from the wire back into errors, of the class that the broker raised.

Contract: an unknown code (a newer broker's) becomes a RemoteError that keeps it. Pure. The floors register the errors
they raise (`Error.by_code`).
"""

from __future__ import annotations

from typing import Any

from ..storage.errors import Corrupt, Error
from .errors import RemoteError
from .messages import Failure


def error_of(failure: Failure) -> Error:
    """The error that a Failure (or an Evicted) stands for, ready to be raised."""
    error = error_from(failure.code, failure.message, retry=failure.retry)
    error.offset, error.retry_after = failure.offset, failure.after_ms / 1000
    if hasattr(error, "where"):  # of another node, see NotLeader
        error.where, error.term = failure.where, failure.term  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(error, Corrupt) and failure.offset >= 0:
        error.next_offset = failure.offset
    return error


def error_from(code: str, message: str, *, retry: bool = False) -> Error:
    """The error of a code and a sentence that came over the wire."""
    kind: Any = Error.by_code.get(code)
    return RemoteError(message, code=code, retry=retry) if kind is None else kind(message)
